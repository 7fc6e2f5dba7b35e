//! Reading settings from text. The caller knows the source of the text (a file, the environment, a flag).

mod section;
mod table;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use serde_saphyr::Spanned;

pub use self::table::{KeepIgnored, MaxSnapshots, PromptText, Setting, Settings, StepPolicy};

/// Problem with a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingsProblem {
    /// True if the value was not used, false for a warning.
    pub is_error: bool,
    /// Line, counted from 1; 0 if there are no lines.
    pub line: u64,
    /// Name of the setting.
    pub key: String,
    /// Description of the problem.
    pub what: String,
}

impl SettingsProblem {
    /// Shifts the problem down by a number of lines.
    fn after(self, lines: u64) -> Self {
        Self { line: if self.line > 0 { self.line + lines } else { 0 }, ..self }
    }
}

impl fmt::Display for SettingsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)
    }
}

const MIB: u64 = 1 << 20;

impl Settings {
    /// Returns the size limit of one file in bytes.
    pub(crate) fn file_bytes_max(&self) -> u64 {
        if self.max_file_size_mb == 0 { u64::MAX } else { self.max_file_size_mb.saturating_mul(MIB) }
    }

    /// Returns the size limit of the store in bytes, or `None` for no limit.
    pub fn total_bytes_max(&self) -> Option<u64> {
        (self.max_total_size_mb > 0).then(|| self.max_total_size_mb.saturating_mul(MIB))
    }

    /// Returns the size limit of one local file in bytes; 0 if none is to be saved.
    pub(crate) fn local_file_bytes_max(&self) -> u64 {
        self.keep_file_size_mb.saturating_mul(MIB)
    }

    /// Returns the size limit of all local files in bytes; 0 if none are to be saved.
    pub fn local_bytes_max(&self) -> u64 {
        self.keep_total_size_mb.saturating_mul(MIB)
    }

    /// Returns the size limit of copies of git objects in bytes; 0 if none are to be made.
    pub(crate) fn git_copy_bytes_max(&self) -> u64 {
        self.keep_git_mb.saturating_mul(MIB)
    }

    /// Returns the limit of the number of files, or `None` for no limit.
    pub(crate) fn files_max(&self) -> Option<u64> {
        (self.max_files > 0).then_some(self.max_files)
    }

    /// Applies the section `checkpoints` of a configuration file. An invalid value leaves the setting unchanged and is
    /// reported: a typo never disables protection silently. If the file is not valid YAML, the section is parsed by
    /// itself; if that is not valid either, each of its keys is.
    pub fn read_yaml(&mut self, text: &str) -> Vec<SettingsProblem> {
        let whole = match self.read_valid(text) {
            Ok(problems) => return problems,
            Err(problem) => problem,
        };
        let Some(section) = section::cut_out(text) else {
            return vec![whole];
        };
        if let Ok(problems) = self.read_valid(&section.text) {
            let what = format!("{}; only its section `checkpoints` was read", whole.what);
            let elsewhere = SettingsProblem { is_error: false, key: String::new(), what, ..whole };
            let within = problems.into_iter().map(|problem| problem.after(section.lines_before));
            return [elsewhere].into_iter().chain(within).collect();
        }
        let mut problems = vec![whole];
        for key in section.keys() {
            // The problem of a key that cannot be parsed is reported once, for the whole file.
            let found = self.read_valid(&key.text).unwrap_or_default();
            problems.extend(found.into_iter().map(|problem| problem.after(key.lines_before)));
        }
        problems
    }

    /// Applies a text that is valid YAML. Fails on invalid YAML, and applies nothing then.
    fn read_valid(&mut self, text: &str) -> Result<Vec<SettingsProblem>, SettingsProblem> {
        #[derive(serde::Deserialize)]
        struct File {
            checkpoints: Option<Spanned<Value>>,
        }
        #[derive(serde::Deserialize)]
        struct Sections {
            checkpoints: BTreeMap<String, Spanned<Value>>,
        }
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let problem =
            |line, what: String| SettingsProblem { is_error: true, line, key: "checkpoints".to_owned(), what };
        let invalid = |error: &serde_saphyr::Error| problem(error.location().map_or(0, |at| at.line()), reason(error));
        let section = serde_saphyr::from_str::<File>(text).map_err(|error| invalid(&error))?.checkpoints;
        let Some(section) = section else {
            return Ok(Vec::new());
        };
        match section.value {
            Value::Null => Ok(Vec::new()),
            // The short form: `checkpoints: true`.
            Value::Bool(enabled) => {
                self.enabled = enabled;
                Ok(Vec::new())
            }
            Value::Object(_) => match serde_saphyr::from_str::<Sections>(text) {
                Ok(sections) => Ok(self.read_section(&sections.checkpoints)),
                Err(error) => Err(invalid(&error)),
            },
            other => Ok(vec![problem(
                section.referenced.line(),
                format!("expected a section with keys, or true or false, but found {}", name_of(&other)),
            )]),
        }
    }

    fn read_section(&mut self, section: &BTreeMap<String, Spanned<Value>>) -> Vec<SettingsProblem> {
        let problems = section.iter().filter_map(|(key, value)| {
            let (is_error, what) = self.set(key, &value.value).err()?;
            let line = value.referenced.line();
            Some(SettingsProblem { is_error, line, key: key.clone(), what })
        });
        let mut problems: Vec<_> = problems.collect();
        problems.sort_by_key(|problem| problem.line);
        problems
    }

    /// Returns the value of a setting, or null for an unknown key.
    pub fn get(&self, key: &str) -> Value {
        row(key).map_or(Value::Null, |row| (row.get)(self))
    }

    /// Sets one setting from the text of an environment variable or an argument. A list is JSON, or separated by
    /// commas.
    pub fn set_text(&mut self, key: &str, text: &str) -> Result<(), SettingsProblem> {
        let value = row(key).map_or(Value::Null, |row| (row.value_from_text)(text));
        self.set(key, &value).map_err(|(is_error, what)| SettingsProblem {
            is_error,
            line: 0,
            key: key.to_owned(),
            what,
        })
    }

    /// Sets one setting. Fails with a message, and with true if the value was refused or false if there is no such key.
    fn set(&mut self, key: &str, value: &Value) -> Result<(), (bool, String)> {
        let row = row(key).ok_or_else(|| (false, "unknown key".to_owned()))?;
        (row.set)(self, value).map_err(|expected| (true, format!("expected {expected}, but found {}", name_of(value))))
    }
}

/// Returns the row of a setting in the table.
fn row(key: &str) -> Option<&'static Setting> {
    Settings::TABLE.iter().find(|row| row.key == key)
}

/// Returns the reason why a text is not valid YAML, without the parser's wording.
fn reason(error: &serde_saphyr::Error) -> String {
    let is_budget = matches!(error.without_snippet(), serde_saphyr::Error::Budget { .. });
    if is_budget {
        return "it is too large or too deeply nested to be read".to_owned();
    }
    match error.location().map(|at| at.column()) {
        Some(column) => format!("it cannot be read as YAML with keys (column {column})"),
        None => "it cannot be read as YAML with keys".to_owned(),
    }
}

fn name_of(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a section".to_owned(),
        Value::String(text) => format!("the text {text:?}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let problems = settings.read_yaml(text);
        (settings, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_row_of_the_table_reads_back_its_default_and_refuses_another_type() {
        let mut settings = Settings::default();
        for row in Settings::TABLE {
            let value = settings.get(row.key);
            assert_eq!((row.set)(&mut settings, &value), Ok(()), "{}", row.key);
            assert!((row.set)(&mut settings, &serde_json::json!({"a": 1})).is_err(), "{}", row.key);
        }
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn every_key_is_read() {
        let (settings, problems) = read(
            "model: x\ncheckpoints:\n  enabled: true\n  max_snapshots: 5\n  max_total_size_mb: 0\n  max_file_size_mb: 3\n  \
             auto_prune: false\n  retention_days: 9\n  delete_orphans: off\n  min_interval_hours: 1\n  max_files: 10\n  \
             deadline_ms: 100\n  tell_agent: false\n  steps: all\n  prompt_text: none\n  session_idle_minutes: 5\n  keep_ignored: no_secrets\n  \
             keep_file_size_mb: 1\n  keep_total_size_mb: 2\n  keep_git_mb: 3\n  keep_days: 4\n  keep_min_free_mb: 6\n  remote: false\n  exclude: ['*.bin']\n  include:\n    - dist/keep\n",
        );
        assert_eq!(problems, [""; 0]);
        let expected = Settings {
            enabled: true,
            max_snapshots: MaxSnapshots::Rows(5),
            max_total_size_mb: 0,
            max_file_size_mb: 3,
            auto_prune: false,
            retention_days: 9,
            delete_orphans: false,
            min_interval_hours: 1,
            max_files: 10,
            deadline_ms: 100,
            tell_agent: false,
            steps: StepPolicy::All,
            prompt_text: PromptText::None,
            session_idle_minutes: 5,
            keep_ignored: KeepIgnored::NoSecrets,
            keep_file_size_mb: 1,
            keep_total_size_mb: 2,
            keep_git_mb: 3,
            keep_days: 4,
            keep_min_free_mb: 6,
            remote: false,
            exclude: vec!["*.bin".to_owned()],
            include: vec!["dist/keep".to_owned()],
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_number_in_quotes_is_a_number() {
        let (settings, problems) = read("checkpoints:\n  max_snapshots: '7'\n  retention_days: \" 3 \"\n");
        assert_eq!((settings.max_snapshots, settings.retention_days, problems), (7.into(), 3, vec![]));
        assert_eq!(read("checkpoints:\n  max_snapshots: 'many'\n").1.len(), 1);
    }

    #[test]
    fn max_snapshots_is_a_number_or_auto_and_auto_if_absent() {
        assert_eq!(Settings::default().max_snapshots, MaxSnapshots::Auto);
        for (text, expected) in [("auto", MaxSnapshots::Auto), ("\"auto\"", MaxSnapshots::Auto), ("20", 20.into())] {
            let text = format!("checkpoints:\n  max_snapshots: {text}\n");
            let mut settings = Settings { max_snapshots: 7.into(), ..Settings::default() };
            assert_eq!((settings.read_yaml(&text), settings.max_snapshots), (vec![], expected), "{text}");
        }
        let mut settings = Settings { max_snapshots: 7.into(), ..Settings::default() };
        assert_eq!(
            (settings.set_text("max_snapshots", " auto "), settings.max_snapshots),
            (Ok(()), MaxSnapshots::Auto)
        );
        let wrong = read("checkpoints:\n  max_snapshots: Automatic\n").1;
        assert_eq!(wrong, ["line 2: max_snapshots: expected a whole number or auto, but found the text \"Automatic\""]);
    }

    #[test]
    fn the_short_form_switches_on() {
        assert!(read("checkpoints: true").0.enabled);
        assert_eq!(read("# nothing\n"), (Settings::default(), vec![]));
        assert_eq!(read("other: 1\n"), (Settings::default(), vec![]));
    }

    #[test]
    fn a_wrong_value_names_line_and_key_and_changes_nothing() {
        let (settings, problems) = read("checkpoints:\n  max_files: many\n  enabled: 3\n  exclude: x\n  colour: red\n");
        assert_eq!(settings, Settings::default());
        assert_eq!(
            problems,
            [
                "line 2: max_files: expected a whole number, but found the text \"many\"",
                "line 3: enabled: expected true or false, but found 3",
                "line 4: exclude: expected a list of patterns, but found the text \"x\"",
                "line 5: colour: unknown key",
            ]
        );
    }

    #[test]
    fn a_broken_file_is_a_problem_and_not_a_default_in_silence() {
        for text in ["checkpoints: [", "checkpoints: 7", "checkpoints:\n\t- x: {", "- a\n- b\n"] {
            assert!(!read(text).1.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn a_mistake_elsewhere_in_the_file_leaves_the_section_as_it_is() {
        let (settings, problems) = read("model: [\ncheckpoints:\n  enabled: true\n  max_files: many\n\nother: }\n");
        assert!(settings.enabled, "{problems:?}");
        assert!(problems[0].contains("only its section `checkpoints` was read"), "{problems:?}");
        assert_eq!(problems[1], "line 4: max_files: expected a whole number, but found the text \"many\"");
    }

    #[test]
    fn a_mistake_in_the_section_costs_the_keys_that_it_is_in() {
        let (settings, problems) =
            read("checkpoints:\n  max_files: 7\n  exclude: [a\n  enabled: true\n  retention_days: \"3\n");
        assert_eq!((settings.enabled, settings.max_files, settings.retention_days), (true, 7, 7), "{problems:?}");
        assert_eq!(problems.len(), 1, "{problems:?}");
    }

    #[test]
    fn problems_do_not_quote_the_parser() {
        let bomb = format!("checkpoints:\n  exclude: {}1{}\n", "[".repeat(5000), "]".repeat(5000));
        for text in ["checkpoints: [", "a: &a [*a]\n", "checkpoints:\n\t- x: {", &bomb, "a: *b\ncheckpoints: [1"] {
            for problem in read(text).1 {
                let words = ["breached", "{", "budget", "ScannerError", "deserialize", "digit found"];
                assert!(!words.iter().any(|word| problem.contains(word)), "{problem}");
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_brought_into_it() {
        let (settings, problems) = read("checkpoints:\n  max_snapshots: 0\n  max_file_size_mb: -4\n");
        assert_eq!((settings.max_snapshots, settings.max_file_size_mb, problems.len()), (1.into(), 0, 0));
    }

    #[test]
    fn the_environment_is_read_as_text() {
        let mut settings = Settings::default();
        for (key, text) in [("enabled", "1"), ("max_files", " 7 "), ("exclude", "*.a, *.b")] {
            assert_eq!(settings.set_text(key, text), Ok(()));
        }
        assert_eq!((settings.enabled, settings.max_files), (true, 7));
        assert_eq!(settings.exclude, ["*.a", "*.b"]);
        assert!(settings.set_text("max_files", "x").is_err());
        assert_eq!(settings.set_text("prompt_text", "full"), Ok(()));
        assert_eq!(settings.prompt_text, PromptText::Full);
        assert!(settings.set_text("prompt_text", "some").is_err());
        for (text, patterns) in [("[\"a,b\", \"c\"]", vec!["a,b", "c"]), ("[ab],c", vec!["[ab]", "c"]), ("[]", vec![])]
        {
            assert_eq!(settings.set_text("exclude", text), Ok(()));
            assert_eq!(settings.exclude, patterns, "{text}");
        }
    }
}
