//! Every line of JSON that a test gets from the program is checked against the schemas in `docs/schema`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::Validator;
use serde_json::Value;

/// Commands whose output is not for users.
const INTERNAL: [&str; 5] = ["hook", "finish", "maintain", "mcp", "serve"];

/// Panics if the output of this command line is not as its schema says. Checks nothing without `--json`, and if the
/// program was killed before its answer.
#[track_caller]
pub(crate) fn check<'a>(args: impl Iterator<Item = &'a OsStr>, stdout: &str) {
    let args: Vec<_> = args.map(OsStr::to_string_lossy).collect();
    let Ok(value) = serde_json::from_str::<Value>(stdout) else { return };
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    if !args[..end].iter().any(|arg| arg == "--json") {
        return;
    }
    let name = if value["error"].is_object() { "error".to_owned() } else { command(&args) };
    if INTERNAL.contains(&name.as_str()) {
        return;
    }
    let errors: Vec<_> = validator(&name).iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{args:?} is not as docs/schema/{name}.json says: {errors:#?}\n{value:#}");
}

/// Panics if a value is not as the schema of this name says.
#[track_caller]
pub(crate) fn check_value(name: &str, value: &Value) {
    let errors: Vec<_> = validator(name).iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "not as docs/schema/{name}.json says: {errors:#?}\n{value:#}");
}

/// Returns the name of the schema for a command line.
fn command<S: AsRef<str>>(args: &[S]) -> String {
    let mut args = args.iter().map(AsRef::as_ref);
    let mut words = Vec::new();
    while let Some(arg) = args.next() {
        match arg {
            "--version" | "-V" => return "version".to_owned(),
            "-C" | "--base" | "--config" | "--surface" => {
                args.next();
            }
            option if option.starts_with('-') => {}
            word => words.push(word),
        }
    }
    match words.as_slice() {
        [] | ["list", ..] => "status".to_owned(),
        ["undo" | "redo", ..] => "restore".to_owned(),
        ["rollback", "revert", ..] => "revert".to_owned(),
        ["unmark", ..] => "mark".to_owned(),
        ["git", "undo", ..] => "git-restore".to_owned(),
        ["clear-legacy", ..] => "clear".to_owned(),
        ["uninstall", ..] => "install".to_owned(),
        ["remote", "key"] | ["remote", "key", "list"] => "remote-key".to_owned(),
        ["remote", "key", "add", ..] => "remote-key-add".to_owned(),
        ["remote", "key", ..] => "remote-key-rotate".to_owned(),
        [group @ ("session" | "config" | "git" | "remote"), verb, ..] => format!("{group}-{verb}"),
        [other, ..] => (*other).to_owned(),
    }
}

/// Returns the validator for one schema. It refuses keys that the schema does not name, although programs must not.
fn validator(name: &str) -> Arc<Validator> {
    static ALL: OnceLock<Mutex<HashMap<String, Arc<Validator>>>> = OnceLock::new();
    let mut all = ALL.get_or_init(Mutex::default).lock().expect("no test panics in here");
    let made = all.entry(name.to_owned()).or_insert_with(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schema/{name}.json"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut schema = serde_json::from_str(&text).expect("JSON");
        close(&mut schema);
        Arc::new(jsonschema::validator_for(&schema).expect("a schema"))
    });
    Arc::clone(made)
}

/// Forbids keys that are not named, at every level.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(keys) => {
            if keys.get("properties").is_some_and(Value::is_object) && !keys.contains_key("additionalProperties") {
                keys.insert("additionalProperties".to_owned(), false.into());
            }
            keys.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}

#[test]
fn an_unknown_key_or_a_missing_key_is_found() {
    let good = r#"{"bytes_freed": 0}"#;
    let args = || ["clear", "--json"].map(OsStr::new).into_iter();
    check(args(), good);
    for bad in [r#"{"bytes_freed": 0, "more": 1}"#, "{}", r#"{"bytes_freed": "none"}"#, r#"[{"bytes_freed": 0}]"#] {
        let refused = std::panic::catch_unwind(|| check(args(), bad));
        assert!(refused.is_err(), "{bad}");
    }
}
