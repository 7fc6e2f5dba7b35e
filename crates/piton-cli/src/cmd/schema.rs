//! JSON Schemas of the output of every command, from the types that are printed: `docs/schema/*.json`, and the tables of
//! keys for the reference. Tests generate both and compare them with the files; `PITON_UPDATE_SNAPSHOTS=1` writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use piton::session::SessionGcReport;
use piton::{
    Diff, ExportReport, FileBlame, GitRestoreReport, GitStateReport, Listed, ListedTurn, LogEntry, MarkReport,
    PrunePlan, PruneReport, PurgeReport, RecordedGitState, RepairReport, Restore, RestoreReport, RevertReport,
    SearchEntry, VerifyReport,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::cat::CatJson;
use super::clear::ClearJson;
use super::completions::{ManDirJson, PageJson, ScriptJson};
use super::config::{ConfigGetJson, ConfigInitJson, ConfigJson, ConfigSetJson};
use super::doctor::DoctorJson;
use super::install::InstallJson;
use super::machines::{MachineJson, MachineListJson};
use super::prune::{CollectJson, ForgetJson, ReleasedJson};
use super::purge::{PurgePlanJson, PurgePromptJson};
use super::push::PushJson;
use super::recover::{RecoverJson, UndoneJson};
use super::remote::{RemoteAddJson, RemoteNameJson, RemoteRemoveJson, RemoteStatusJson};
use super::remote_key::{KeyAddJson, KeyChangeJson, KeyListJson};
use super::repair::RemoteRepairJson;
use super::restore::RestoreJson;
use super::rewind::{CleanJson, ForkOnlyJson, ListedForkJson};
use super::session::{ChangedJson, DeletedJson, ReadJson, ResumeJson, SessionListJson};
use super::show::ShowJson;
use super::status::StatusJson;
use super::take::TakeJson;
use super::verify::RemoteVerifyJson;
use crate::output::{ErrorJson, VersionJson};
use crate::remote::named::FetchJson;
use crate::rpc::contract;
use crate::self_test::SelfTestJson;

/// The output of a command, in one or several forms.
struct OutputSpec {
    name: &'static str,
    generator: SchemaGenerator,
    /// The circumstances of each form, and its schema.
    forms: Vec<(&'static str, Value)>,
}

impl OutputSpec {
    fn new(name: &'static str) -> Self {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        Self { name, generator, forms: Vec::new() }
    }

    /// Adds the form that is printed under some circumstances.
    fn form<T: JsonSchema>(mut self, when: &'static str) -> Self {
        let schema = self.generator.subschema_for::<T>().to_value();
        self.forms.push((when, schema));
        self
    }

    fn schema(&self) -> Value {
        let title = if self.name.starts_with('-') { self.name.to_owned() } else { format!("piton {}", self.name) };
        let mut schema = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title});
        match self.forms.as_slice() {
            [(_, Value::Object(only))] => schema.as_object_mut().expect("an object").extend(only.clone()),
            forms => schema["anyOf"] = forms.iter().map(|(_, form)| form.clone()).collect(),
        }
        let definitions = self.generator.definitions();
        if !definitions.is_empty() {
            schema["$defs"] = Value::Object(definitions.clone());
        }
        for definition in schema["$defs"].as_object_mut().into_iter().flat_map(Map::values_mut) {
            // A comment on the type says nothing about the output.
            definition.as_object_mut().map(|definition| definition.remove("description"));
        }
        if schema["$defs"].is_null() {
            schema.as_object_mut().map(|schema| schema.remove("$defs"));
        }
        schema
    }
}

/// Returns every command with its output, by the name of its file.
fn commands() -> Vec<OutputSpec> {
    let restore = |command: OutputSpec| {
        let done = command.form::<RestoreJson<'_, RestoreReport>>("");
        done.form::<RestoreJson<'_, Restore<'_>>>("with `--dry-run`")
    };
    vec![
        OutputSpec::new("take").form::<TakeJson<'_>>(""),
        restore(OutputSpec::new("rollback").form::<Vec<Listed>>("").form::<MachineListJson>("with `--machine`"))
            .form::<Diff>("with `diff`"),
        OutputSpec::new("diff").form::<Diff>(""),
        restore(OutputSpec::new("restore")).form::<RestoreJson<'_, RevertReport>>("with `--keep-edits`"),
        restore(OutputSpec::new("rewind"))
            .form::<ForkOnlyJson>("with `--conversation-only`")
            .form::<Vec<ListedForkJson>>("with `--list`")
            .form::<CleanJson>("with `--clean`"),
        OutputSpec::new("revert").form::<RestoreJson<'_, RevertReport>>(""),
        OutputSpec::new("show").form::<ShowJson<'_>>(""),
        OutputSpec::new("log").form::<Vec<LogEntry>>(""),
        OutputSpec::new("blame").form::<FileBlame>(""),
        OutputSpec::new("search").form::<Vec<SearchEntry>>(""),
        OutputSpec::new("recover").form::<RecoverJson<'_>>("").form::<UndoneJson>("with `--undo`"),
        OutputSpec::new("git show").form::<Vec<RecordedGitState>>("").form::<GitStateReport>("with a checkpoint"),
        OutputSpec::new("git restore").form::<GitRestoreReport>(""),
        OutputSpec::new("cat").form::<CatJson<'_>>(""),
        OutputSpec::new("export").form::<ExportReport>("").form::<Diff>("with `--patch`"),
        OutputSpec::new("turns").form::<Vec<ListedTurn>>(""),
        OutputSpec::new("mark").form::<MarkReport>(""),
        OutputSpec::new("session write").form::<ChangedJson<'_>>(""),
        OutputSpec::new("session update").form::<ChangedJson<'_>>(""),
        OutputSpec::new("session read").form::<ReadJson<'_>>("").form::<ResumeJson<'_>>("with `--resume`"),
        OutputSpec::new("session delete").form::<DeletedJson<'_>>(""),
        OutputSpec::new("session list").form::<SessionListJson<'_>>(""),
        OutputSpec::new("session gc").form::<SessionGcReport>(""),
        OutputSpec::new("remote add").form::<RemoteAddJson<'_>>(""),
        OutputSpec::new("remote status").form::<RemoteStatusJson>(""),
        OutputSpec::new("remote remove").form::<RemoteRemoveJson>(""),
        OutputSpec::new("remote key").form::<KeyListJson>(""),
        OutputSpec::new("remote key add").form::<KeyAddJson<'_>>(""),
        OutputSpec::new("remote key rotate").form::<KeyChangeJson>(""),
        OutputSpec::new("remote name").form::<RemoteNameJson>(""),
        OutputSpec::new("push").form::<PushJson>(""),
        OutputSpec::new("fetch").form::<FetchJson>(""),
        OutputSpec::new("machines").form::<Vec<MachineJson>>(""),
        OutputSpec::new("status").form::<StatusJson<'_>>(""),
        OutputSpec::new("prune")
            .form::<PruneReport>("")
            .form::<PrunePlan>("with `--dry-run`")
            .form::<ForgetJson<'_>>("with `--forget`")
            .form::<ReleasedJson>("with `--kept`")
            .form::<CollectJson>("with `--remote`"),
        OutputSpec::new("clear").form::<ClearJson>(""),
        OutputSpec::new("purge")
            .form::<PurgeReport>("")
            .form::<PurgePlanJson<'_>>("with `--dry-run`")
            .form::<PurgePromptJson<'_>>("with `--prompt`"),
        OutputSpec::new("verify").form::<VerifyReport>("").form::<RemoteVerifyJson>("with `--remote`"),
        OutputSpec::new("repair").form::<RepairReport>("").form::<RemoteRepairJson>("with `--remote`"),
        OutputSpec::new("config").form::<ConfigJson<'_>>(""),
        OutputSpec::new("config get").form::<ConfigGetJson<'_>>(""),
        OutputSpec::new("config set").form::<ConfigSetJson<'_>>(""),
        OutputSpec::new("config init").form::<ConfigInitJson<'_>>(""),
        OutputSpec::new("completions").form::<ScriptJson<'_>>(""),
        OutputSpec::new("man").form::<PageJson<'_>>("").form::<ManDirJson<'_>>("with `--dir`"),
        OutputSpec::new("install").form::<InstallJson<'_>>(""),
        OutputSpec::new("doctor").form::<DoctorJson<'_>>("").form::<SelfTestJson<'_>>("with `--self-test`"),
        OutputSpec::new("--version").form::<VersionJson<'_>>(""),
        OutputSpec::new("error").form::<ErrorJson<'_>>(""),
    ]
}

/// Returns the rows of a table of keys: `skipped[].path` and its meaning.
fn rows(schema: &Value, definitions: &Value, around: &str, rows: &mut Vec<(String, String)>) {
    let schema = resolved(schema, definitions);
    for option in schema["anyOf"].as_array().into_iter().flatten() {
        self::rows(option, definitions, around, rows);
    }
    if schema["items"].is_object() {
        self::rows(&schema["items"], definitions, &format!("{around}[]"), rows);
    }
    if schema["additionalProperties"].is_object() {
        self::rows(&schema["additionalProperties"], definitions, &format!("{around}.NAME"), rows);
    }
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        let name = if around.is_empty() { key.clone() } else { format!("{around}.{key}") };
        let target = resolved(below, definitions);
        let text = below["description"].as_str().or(target["description"].as_str()).unwrap_or_default();
        let mut text = text.replace('\n', " ");
        let mut words = Vec::new();
        keywords(below, definitions, &mut words);
        if !words.is_empty() && !words.iter().any(|word| text.contains(&format!("`{word}`"))) {
            let _ = write!(text, ": {}", words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "));
        }
        // Said once, for all paths.
        if !text.starts_with("the exact bytes of") {
            rows.push((name.clone(), text));
        }
        self::rows(below, definitions, &name, rows);
    }
}

/// Collects the keywords that a value can be.
fn keywords(schema: &Value, definitions: &Value, words: &mut Vec<String>) {
    let schema = resolved(schema, definitions);
    words.extend(schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
    words.extend(schema["const"].as_str().map(str::to_owned));
    for option in ["anyOf", "oneOf"].iter().flat_map(|name| schema[*name].as_array().into_iter().flatten()) {
        keywords(option, definitions, words);
    }
}

fn resolved<'a>(schema: &'a Value, definitions: &'a Value) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/"));
    name.map_or(schema, |name| &definitions[name])
}

/// Returns the tables of keys, one section per command.
fn tables() -> String {
    let mut text = String::new();
    for command in commands().iter().filter(|command| !command.name.starts_with('-')) {
        let _ = writeln!(text, "# {}", command.name);
        let definitions = Value::Object(command.generator.definitions().clone());
        // The other forms of `rollback` are those of other commands.
        let forms = if command.name == "rollback" { &command.forms[..2] } else { &command.forms };
        for (when, schema) in forms {
            let mut table = Vec::new();
            rows(schema, &definitions, "", &mut table);
            let when = if when.is_empty() { String::new() } else { format!(" {when}") };
            let _ = write!(text, "\nJSON{when}:\n\n| key | |\n|---|---|\n");
            for (key, meaning) in table {
                let _ = writeln!(text, "| `{key}` | {meaning} |");
            }
        }
        text.push('\n');
    }
    text
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a generated text with its file, or writes the file.
fn compare(path: &Path, text: &str) {
    if std::env::var_os("PITON_UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == text, "{} is not up to date: PITON_UPDATE_SNAPSHOTS=1 writes it", path.display());
}

#[test]
fn the_schemas_are_those_of_the_printed_types() {
    let dir = root().join("docs/schema");
    let files: BTreeMap<String, Value> = commands()
        .iter()
        .map(|command| (command.name.trim_start_matches('-').replace(' ', "-") + ".json", command.schema()))
        .collect();
    let files: BTreeMap<String, Value> =
        files.into_iter().chain([("rpc.json".to_owned(), contract::document())]).collect();
    for (name, schema) in &files {
        compare(&dir.join(name), &(serde_json::to_string_pretty(schema).expect("JSON") + "\n"));
    }
    let there = std::fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let there: std::collections::BTreeSet<_> = there.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(there, files.keys().cloned().collect(), "a schema of no command, or a command without one");
}

#[test]
fn every_key_has_a_meaning_in_the_reference() {
    let tables = tables();
    let without: Vec<_> = tables.lines().filter(|line| line.starts_with("| `") && line.ends_with("`|  |")).collect();
    assert!(without.is_empty(), "without a comment on the field: {without:?}");
    assert!(!tables.contains("|  |\n"), "{tables}");
    compare(&root().join("crates/piton-cli/src/cmd/json_keys.md"), &tables);
}
