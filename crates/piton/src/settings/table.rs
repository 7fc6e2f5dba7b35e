//! Table of settings: name, type, default, lowest value and description of each.

use serde_json::Value;

/// Type of a setting: its conversions from and to configuration values.
pub(super) trait SettingType: Sized {
    /// Completes "expected …" in a message about a wrong value.
    const EXPECTED: &'static str;

    /// Returns the value that a configuration file gives, or `None` if it is of another type.
    fn from_value(value: &Value) -> Option<Self>;

    /// Returns the configuration value for the text of an environment variable or a command-line argument. Text that is not
    /// of this type becomes a value that `from_value` refuses.
    fn value_from_text(text: &str) -> Value;

    fn to_value(&self) -> Value;

    /// Raises a number to the lowest value allowed. Other types are returned as they are.
    fn at_least(self, _least: u64) -> Self {
        self
    }
}

impl SettingType for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn value_from_text(text: &str) -> Value {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => true.into(),
            "false" | "no" | "off" => false.into(),
            number => number.parse::<i64>().map_or_else(|_| text.into(), |number| (number != 0).into()),
        }
    }

    fn to_value(&self) -> Value {
        (*self).into()
    }
}

impl SettingType for u64 {
    const EXPECTED: &'static str = "a whole number";

    /// Negative numbers become 0, and a number may be quoted: Hermes accepts both.
    fn from_value(value: &Value) -> Option<Self> {
        let quoted = || value.as_str().and_then(|text| text.trim().parse().ok());
        let number: i64 = value.as_i64().or_else(quoted)?;
        Some(Self::try_from(number).unwrap_or(0))
    }

    fn value_from_text(text: &str) -> Value {
        text.trim().parse::<i64>().map_or_else(|_| text.into(), Value::from)
    }

    fn to_value(&self) -> Value {
        (*self).into()
    }

    fn at_least(self, least: u64) -> Self {
        self.max(least)
    }
}

impl SettingType for Vec<String> {
    const EXPECTED: &'static str = "a list of patterns";

    fn from_value(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
    }

    /// Accepts a JSON list, otherwise items separated by commas.
    fn value_from_text(text: &str) -> Value {
        let split = || text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
        serde_json::from_str::<Self>(text).map_or_else(|_| split(), Value::from)
    }

    fn to_value(&self) -> Value {
        self.clone().into()
    }
}

/// Implements [`SettingType`] for an enum whose values are words, listed in `ALL` and named by `word`.
macro_rules! word_setting {
    ($type:ty, $expected:literal) => {
        impl SettingType for $type {
            const EXPECTED: &'static str = $expected;

            fn from_value(value: &Value) -> Option<Self> {
                let word = value.as_str()?;
                Self::ALL.into_iter().find(|one| one.word() == word)
            }

            fn value_from_text(text: &str) -> Value {
                text.trim().into()
            }

            fn to_value(&self) -> Value {
                self.word().into()
            }
        }
    };
}

/// Amount of each prompt that is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromptText {
    /// First line, at most 120 characters, with values that look like keys masked.
    #[default]
    Short,
    /// Whole prompt, as it was typed.
    Full,
    /// Nothing.
    None,
}

impl PromptText {
    const ALL: [Self; 3] = [Self::Short, Self::Full, Self::None];

    /// Returns its name in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Full => "full",
            Self::None => "none",
        }
    }
}

word_setting!(PromptText, "short, full or none");

/// Commands before which a checkpoint is taken within a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepPolicy {
    /// No command.
    None,
    /// Commands that destroy files or git state.
    #[default]
    Destructive,
    /// All commands and tools that may change files.
    All,
}

impl StepPolicy {
    const ALL: [Self; 3] = [Self::None, Self::Destructive, Self::All];

    /// Returns its name in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Destructive => "destructive",
            Self::All => "all",
        }
    }
}

word_setting!(StepPolicy, "none, destructive or all");

/// Files outside the scope that are saved with each checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeepIgnored {
    /// None.
    None,
    /// Ignored and excluded files, except for those whose names say that they hold secrets.
    NoSecrets,
    /// Ignored and excluded files.
    #[default]
    All,
}

impl KeepIgnored {
    /// Its name in the configuration, where it is not `true` or `false`.
    const NO_SECRETS: &'static str = "no_secrets";
}

impl SettingType for KeepIgnored {
    const EXPECTED: &'static str = "true, no_secrets or false";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(true) => Some(Self::All),
            Value::Bool(false) => Some(Self::None),
            Value::String(word) if word.trim() == Self::NO_SECRETS => Some(Self::NoSecrets),
            _ => None,
        }
    }

    fn value_from_text(text: &str) -> Value {
        if text.trim() == Self::NO_SECRETS { Self::NO_SECRETS.into() } else { bool::value_from_text(text) }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::None => false.into(),
            Self::NoSecrets => Self::NO_SECRETS.into(),
            Self::All => true.into(),
        }
    }
}

/// Number of checkpoints that a project keeps. Only the rows of the list count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxSnapshots {
    /// The newest 20, then one for each hour of a day, and one for each day of a month.
    #[default]
    Auto,
    /// At most this many, the newest.
    Rows(u64),
}

impl MaxSnapshots {
    /// Its name in the configuration, where it is not a number.
    const AUTO: &'static str = "auto";
}

impl From<u64> for MaxSnapshots {
    fn from(rows: u64) -> Self {
        Self::Rows(rows)
    }
}

impl SettingType for MaxSnapshots {
    const EXPECTED: &'static str = "a whole number or auto";

    fn from_value(value: &Value) -> Option<Self> {
        let is_auto = value.as_str().is_some_and(|text| text.trim() == Self::AUTO);
        if is_auto { Some(Self::Auto) } else { u64::from_value(value).map(Self::Rows) }
    }

    fn value_from_text(text: &str) -> Value {
        u64::value_from_text(text)
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Auto => Self::AUTO.into(),
            Self::Rows(rows) => (*rows).into(),
        }
    }

    fn at_least(self, least: u64) -> Self {
        match self {
            Self::Auto => self,
            Self::Rows(rows) => Self::Rows(rows.max(least)),
        }
    }
}

/// One row of the table of settings.
#[non_exhaustive]
pub struct Setting {
    /// Name in the configuration file. The environment variable is `PITON_` and the name in capitals.
    pub key: &'static str,
    /// Description, one line.
    pub help: &'static str,
    pub(super) get: fn(&Settings) -> Value,
    pub(super) set: fn(&mut Settings, &Value) -> Result<(), &'static str>,
    pub(super) value_from_text: fn(&str) -> Value,
}

/// Declares `Settings`, its default and its table. `[least]` is the lowest value of a number.
macro_rules! settings {
    ($($key:ident: $type:ty = $default:expr, $([$least:expr])? $help:literal;)*) => {
        /// All settings.
        ///
        /// ```
        /// use piton::Settings;
        ///
        /// let mut settings = Settings::default();
        /// let problems = settings.read_yaml("checkpoints:\n  max_files: 100\n  retention_days: soon\n");
        /// assert_eq!((settings.max_files, settings.retention_days), (100, 7)); // a wrong value changes nothing
        /// assert!(problems[0].is_error && problems[0].line == 3 && problems[0].key == "retention_days");
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Settings {
            $(#[doc = concat!("Configures ", $help, ".")] pub $key: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        /// One setter for each setting, so that a caller can build the value in one expression.
        impl Settings {
            $(
                #[doc = concat!("Sets [`Settings::", stringify!($key), "`].")]
                #[must_use]
                pub fn $key(mut self, value: $type) -> Self {
                    self.$key = value;
                    self
                }
            )*
        }

        impl Settings {
            /// Every setting, in the order in which they are shown.
            pub const TABLE: &'static [Setting] = &[$(Setting {
                key: stringify!($key),
                help: $help,
                get: |settings| settings.$key.to_value(),
                set: |settings, value| {
                    let value = <$type>::from_value(value).ok_or(<$type>::EXPECTED)?;
                    settings.$key = value$(.at_least($least))?;
                    Ok(())
                },
                value_from_text: <$type as SettingType>::value_from_text,
            },)*];
        }
    };
}

settings! {
    enabled: bool = false, "automatic checkpoints for agents; what you ask for by hand always works";
    max_snapshots: MaxSnapshots = MaxSnapshots::Auto, [1] "the number of checkpoints that a project keeps; the oldest go \
        first; `auto` is the newest 20, then one an hour for a day and one a day for 30 days";
    max_total_size_mb: u64 = 500, "the size limit of the store; the oldest checkpoints go first, the newest of each \
        project stays; 0 is no limit";
    max_file_size_mb: u64 = 10, "the size above which a file is left out; 0 is no limit";
    auto_prune: bool = true, "pruning of the store in the background";
    retention_days: u64 = 7, "the number of days after which an unused project is dropped; 0 is never";
    delete_orphans: bool = true, "dropping of projects whose directory is gone: at once by a prune, in the background \
        when unused for `retention_days`";
    min_interval_hours: u64 = 24, "the hours between two prunes in the background";
    max_files: u64 = 1_000_000, "the number of files in scope above which a project is not taken; 0 is no limit";
    deadline_ms: u64 = 5_000, [1] "the time that a hook may hold an agent back, 10000 at most";
    tell_agent: bool = true, "whether an agent is told at its next prompt which files went back";
    steps: StepPolicy = StepPolicy::Destructive, "before which commands a checkpoint is taken within a turn: `destructive` \
        (those that destroy files or git state), `all` that may change files, or `none`";
    prompt_text: PromptText = PromptText::Short, "how much of each prompt is stored: `short` (its first line, keys masked), \
        `full` or `none`";
    session_idle_minutes: u64 = 30, "the minutes without an event after which a session is not at work, so that a restore may \
        take back what it did; 0 is no limit";
    keep_ignored: KeepIgnored = KeepIgnored::All, "whether small files out of scope (ignored, excluded, secrets) are saved with \
        each checkpoint, on this machine only: `true`, `no_secrets` or `false`";
    keep_file_size_mb: u64 = 5, "the size up to which a file out of scope is saved with each checkpoint; 0 is none";
    keep_total_size_mb: u64 = 200, "the size limit of files out of scope that are saved with checkpoints, and of copies of \
        files that a command was about to destroy; 0 is none";
    keep_git_mb: u64 = 500, "the size limit of copies of git objects, where hard links are not possible; 0 is none";
    keep_days: u64 = 7, "the days for which files and git objects that a command destroyed are kept";
    keep_min_free_mb: u64 = 5_120, "the free disk space below which kept files are released at once";
    remote: bool = true, "pushing of each new checkpoint to the remote in the background, if there is a remote; what you push \
        by hand always works";
    exclude: Vec<String> = Vec::new(), "patterns of files to leave out besides the exclude list, in gitignore syntax";
    include: Vec<String> = Vec::new(), "patterns of files that are in scope regardless of all other rules, in gitignore syntax";
}
