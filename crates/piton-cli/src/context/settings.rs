//! Settings from the configuration file, the environment and the flags, and the problems found there.

use std::env;
use std::path::Path;

use piton::{Error, ErrorKind, Settings, SettingsProblem};

use crate::edit::files;
use crate::hints::{self, Problem};
use crate::options::Global;

/// A problem with the configuration.
#[derive(Debug, Clone)]
pub(crate) struct ConfigProblem {
    /// File or environment variable.
    source: String,
    /// Setting, or `checkpoints` for all of them.
    key: String,
    what: String,
    hint: String,
    /// False for a warning: the value is used.
    pub(super) is_error: bool,
    /// True if the file could not be read at all.
    is_unread: bool,
}

impl ConfigProblem {
    fn new(source: String, problem: &SettingsProblem) -> Self {
        let (what, hint) = (problem.to_string(), remedy(&source, problem));
        Self { source, key: problem.key.clone(), what, hint, is_error: problem.is_error, is_unread: false }
    }

    pub(super) fn unread(config: Option<&Path>, error: &Error) -> Self {
        Self {
            source: config.unwrap_or(Path::new("")).display().to_string(),
            key: "checkpoints".to_owned(),
            what: error.to_string(),
            hint: hints::of(error).unwrap_or_default(),
            is_error: true,
            is_unread: true,
        }
    }

    /// Returns true if the value of a setting is not used because of this problem.
    pub(super) fn refuses(&self, key: &str) -> bool {
        self.is_error && (self.key == key || self.key == "checkpoints")
    }

    /// Returns true if the value that `source` gives for a setting is not used because of this problem.
    pub(super) fn refuses_from(&self, source: &str, key: &str) -> bool {
        !self.is_unread && self.source == source && self.refuses(key)
    }

    /// Returns the problem for a user.
    pub(crate) fn for_user(&self) -> Problem {
        let what = if self.is_unread { self.what.clone() } else { format!("{}: {}", self.source, self.what) };
        Problem::new(what, self.hint.clone())
    }

    /// Returns the problem for the journal.
    pub(crate) fn for_journal(&self) -> String {
        about_configuration(&self.source) + &self.what
    }

    /// Returns the error for a command that needs a valid configuration.
    pub(super) fn into_error(self) -> anyhow::Error {
        anyhow::anyhow!("cannot use the configuration {}: {}\nhint: {}", self.source, self.what, self.hint)
    }
}

/// Returns the prefix of journal entries about an invalid configuration.
pub(super) fn about_configuration(source: &str) -> String {
    format!("the configuration {source}: ")
}

/// Returns the hint for an invalid setting.
fn remedy(source: &str, problem: &SettingsProblem) -> String {
    let SettingsProblem { key, is_error, .. } = problem;
    match (is_error, key.as_str()) {
        _ if *source == variable(key) => format!("give the variable {source} another value, or unset it"),
        (false, _) => "fix it there; `piton config` lists the settings".to_owned(),
        (true, "checkpoints") => "fix it there; `piton config set --help` shows how settings are written".to_owned(),
        (true, key) => format!("fix it there, or with `piton config set {key} VALUE`"),
    }
}

/// Returns the name of the environment variable that overrides a setting.
pub(crate) fn variable(key: &str) -> String {
    format!("PITON_{}", key.to_ascii_uppercase())
}

/// Environment variable by which Hermes limits each of its git commands, in seconds and within the same bounds.
const HERMES_TIMEOUT: &str = "HERMES_CHECKPOINT_TIMEOUT";

pub(super) fn hermes_timeout_ms() -> Option<u64> {
    let secs: i64 = env::var(HERMES_TIMEOUT).ok()?.trim().parse().ok()?;
    Some(secs.clamp(10, 60).unsigned_abs() * 1000)
}

/// Reads the settings from the file, then the environment, then the flags.
pub(super) fn read(global: &Global, config: Option<&Path>) -> ReadSettings {
    read_over(Settings::default(), global, config)
}

/// Like [`read`], for a hook. A hook that is called was installed with checkpoints switched on: if the file
/// cannot say so, they stay on. An invalid configuration never switches the protection off.
pub(super) fn read_for_hook(global: &Global, config: Option<&Path>) -> ReadSettings {
    let found = read(global, config);
    if found.unread.is_none() && !found.problems.iter().any(|problem| problem.refuses("enabled")) {
        return found;
    }
    read_over(Settings::default().enabled(true), global, config)
}

/// Like [`read`], for pruning in the background: an invalid value removes nothing. It switches the rule off or lifts
/// its limit.
pub(super) fn read_for_pruning(global: &Global, config: Option<&Path>) -> ReadSettings {
    let mut read = read(global, config);
    let is_wrong = |key: &str| read.unread.is_some() || read.problems.iter().any(|problem| problem.refuses(key));
    let settings = &mut read.settings;
    settings.auto_prune &= !is_wrong("auto_prune");
    settings.delete_orphans &= !is_wrong("delete_orphans");
    for (key, limit) in
        [("retention_days", &mut settings.retention_days), ("max_total_size_mb", &mut settings.max_total_size_mb)]
    {
        // 0 means no limit.
        *limit = if is_wrong(key) { 0 } else { *limit };
    }
    read
}

/// The settings, and what was wrong with them.
pub(super) struct ReadSettings {
    pub(super) settings: Settings,
    pub(super) problems: Vec<ConfigProblem>,
    /// Error of reading the file.
    pub(super) unread: Option<Error>,
}

fn read_over(mut settings: Settings, global: &Global, config: Option<&Path>) -> ReadSettings {
    let (mut problems, mut unread) = (Vec::new(), None);
    settings.deadline_ms = hermes_timeout_ms().unwrap_or(settings.deadline_ms);
    // `/dev/null` is the usual way to name no file.
    if let Some(path) = config.filter(|path| *path != Path::new("/dev/null")) {
        match files::read(path) {
            Ok(Some(text)) => {
                let source = path.display().to_string();
                let found = settings.read_yaml(&text);
                problems.extend(found.iter().map(|problem| ConfigProblem::new(source.clone(), problem)));
            }
            Ok(None) if global.config.is_none() => {}
            found => {
                let missing = Error::new(ErrorKind::Io, "read").with_path(path).because("there is no such file");
                let error = found.err().unwrap_or(missing);
                let hint = "`--config` and HERMES_HOME say which file is read";
                let hint = hints::of(&error).map_or_else(|| hint.to_owned(), |own| format!("{own}; {hint}"));
                unread = Some(error.with_hint(hint));
            }
        }
    }
    for key in Settings::TABLE.iter().map(|row| row.key) {
        let name = variable(key);
        if let Some(value) = env::var_os(&name) {
            let refused = settings.set_text(key, &value.to_string_lossy()).err();
            problems.extend(refused.map(|problem| ConfigProblem::new(name, &problem)));
        }
    }
    settings.enabled |= global.checkpoints;
    ReadSettings { settings, problems, unread }
}
