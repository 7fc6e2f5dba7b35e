//! Parameters of a method as the arguments of its command.

use std::ffi::OsString;
use std::path::PathBuf;

use piton::json::unescape_path;
use serde_json::{Map, Value};

use super::methods::{Method, PARAMETERS, Param, ParamKind};
use super::wire::has_lost_digits;
use crate::cli::Command;
use crate::output::Failure;
use crate::platform;

/// Parameters that every method has.
pub(crate) const DIRECTORY: &str = "directory";
pub(crate) const PROGRESS: &str = "progress";

/// A command, ready to run.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) command: Command,
    /// Directory that the command works in.
    pub(crate) directory: Option<PathBuf>,
    /// Bytes that the command reads in place of stdin.
    pub(crate) input: Vec<u8>,
    /// True if the client wants notifications of the progress.
    pub(crate) wants_progress: bool,
}

fn wrong(method: &Method, what: &str) -> Failure {
    Failure::new("usage", format!("cannot run `{}`: {what}", method.name), Some(PARAMETERS))
}

/// Parses the parameters of a method. Fails with `usage` if one is unknown, missing or of the wrong type.
pub(crate) fn parse(method: &Method, mut params: Map<String, Value>) -> Result<Parsed, Failure> {
    let directory = paths_of(&mut params, DIRECTORY, false).map_err(|what| wrong(method, &what))?;
    let wants_progress = match params.remove(PROGRESS) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(wants)) => wants,
        Some(_) => return Err(wrong(method, "`progress` must be true or false")),
    };
    let input = match method.input.map(|name| (name, params.remove(name))) {
        None => Vec::new(),
        Some((_, Some(Value::String(text)))) => text.into_bytes(),
        Some((name, Some(record @ Value::Object(_)))) if has_lost_digits(&record) => {
            let why =
                "has a number beyond 64 bits, whose digits would be lost: give the number, or the record, as a text";
            return Err(wrong(method, &format!("`{name}` {why}")));
        }
        Some((_, Some(record @ Value::Object(_)))) => record.to_string().into_bytes(),
        Some((name, _)) => return Err(wrong(method, &format!("`{name}` must be an object, or a text"))),
    };
    let mut options = Vec::new();
    for param in &method.params {
        add(param, &mut params, &mut options).map_err(|what| wrong(method, &what))?;
    }
    if let Some(unknown) = params.keys().next() {
        return Err(wrong(method, &format!("there is no parameter `{unknown}`")));
    }
    let directory = directory.into_iter().next().map(PathBuf::from);
    Ok(Parsed { command: method.parse(options)?, directory, input, wants_progress })
}

/// Takes one parameter, and adds its options.
fn add(param: &Param, params: &mut Map<String, Value>, options: &mut Vec<OsString>) -> Result<(), String> {
    let Param { name, option, is_list, .. } = param;
    let values: Vec<OsString> = match param.kind {
        ParamKind::Flag => {
            match params.remove(name) {
                Some(Value::Bool(true)) => options.push(format!("--{option}").into()),
                None | Some(Value::Null | Value::Bool(false)) => {}
                Some(_) => return Err(format!("`{name}` must be true or false")),
            }
            return Ok(());
        }
        ParamKind::Path => paths_of(params, name, *is_list)?,
        kind => {
            let one = |value: Value| match (kind, value) {
                (ParamKind::Text | ParamKind::Checkpoint, Value::String(text)) => Ok(text.into()),
                (ParamKind::Number | ParamKind::Checkpoint, Value::Number(number)) if number.is_u64() => {
                    Ok(number.to_string().into())
                }
                (ParamKind::Number, _) => Err(format!("`{name}` must be a whole number, 0 or more")),
                _ => Err(format!("`{name}` must be a text")),
            };
            list_of(params.remove(name), name, *is_list)?.into_iter().map(one).collect::<Result<_, _>>()?
        }
    };
    options.extend(values.into_iter().map(|value| {
        let mut word = OsString::from(format!("--{option}="));
        word.push(value);
        word
    }));
    Ok(())
}

/// Returns the values of a parameter. A single value counts as a list of one; null counts as no value.
fn list_of(value: Option<Value>, name: &str, is_list: bool) -> Result<Vec<Value>, String> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(values)) if is_list => Ok(values),
        Some(Value::Array(_)) => Err(format!("`{name}` must be one value, not a list")),
        Some(value) => Ok(vec![value]),
    }
}

/// Takes a parameter that is a path, or a list of paths. Its exact bytes, if they are not UTF-8, are in a second
/// parameter of the same form: `paths_bytes` beside `paths`, with null for each path that is UTF-8.
pub(crate) fn paths_of(params: &mut Map<String, Value>, name: &str, is_list: bool) -> Result<Vec<OsString>, String> {
    let name_bytes = format!("{name}_bytes");
    let texts = list_of(params.remove(name), name, is_list)?;
    let bytes = match params.remove(&name_bytes) {
        // A list may have null for each path; alone, null is not a value.
        Some(Value::Array(values)) if is_list => values,
        other => list_of(other, &name_bytes, is_list)?,
    };
    if !texts.is_empty() && !bytes.is_empty() && texts.len() != bytes.len() {
        return Err(format!("`{name_bytes}` must have as many values as `{name}`"));
    }
    let count = texts.len().max(bytes.len());
    let (mut texts, mut bytes) = (texts.into_iter(), bytes.into_iter());
    let one = |_| match (texts.next(), bytes.next()) {
        (_, Some(Value::String(escaped))) => unescape_path(&escaped)
            .map(platform::name_from_bytes)
            .ok_or_else(|| format!("`{name_bytes}` has a % without two hexadecimal digits: {escaped:?}")),
        (Some(Value::String(text)), None | Some(Value::Null)) => Ok(text.into()),
        (_, None | Some(Value::Null)) => Err(format!("`{name}` must be a text")),
        _ => Err(format!("`{name_bytes}` must be a text, or null for a path that is UTF-8")),
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::methods;
    use super::*;

    fn parsed(method: &str, params: Value) -> Result<Parsed, String> {
        let Value::Object(params) = params else { panic!("an object") };
        parse(&methods::all()[method], params).map_err(|failure| failure.message)
    }

    #[test]
    fn paths_are_given_as_text_or_as_bytes() {
        let restore = |params: Value| parsed("restore", params).map(|parsed| format!("{:?}", parsed.command));
        let both = restore(json!({"checkpoint": 1, "paths": ["a", "b\u{fffd}"], "paths_bytes": [null, "b%ff"]}));
        assert!(both.expect("valid").contains(r#"paths: ["a", "b\xFF"]"#));
        let bytes = restore(json!({"checkpoint": "1", "paths_bytes": ["b%ff"]})).expect("valid");
        assert!(bytes.contains(r#"paths: ["b\xFF"]"#), "{bytes}");
        for wrong in [
            json!({"checkpoint": 1, "paths": ["a"], "paths_bytes": [null, "b%ff"]}),
            json!({"checkpoint": 1, "paths_bytes": ["b%f"]}),
            json!({"checkpoint": 1, "paths_bytes": [null]}),
            json!({"checkpoint": 1, "paths": [7]}),
            json!({"checkpoint": -1}),
            json!({"checkpoint": ["1"]}),
            json!({"checkpoint": 1, "dry_run": "yes"}),
            json!({"checkpoint": 1, "dry-run": true}),
            json!({"checkpoint": 1, "progress": 1}),
        ] {
            assert!(restore(wrong.clone()).is_err(), "{wrong}");
        }
        let directory = parsed("take", json!({"directory": "d\u{fffd}", "directory_bytes": "d%fe"})).expect("valid");
        assert_eq!(directory.directory.expect("given").as_os_str().as_encoded_bytes(), b"d\xfe");
    }

    #[test]
    fn a_record_is_an_object_or_a_text() {
        let record = |value: Value| parsed("session.write", json!({"id": "a", "record": value}));
        assert_eq!(record(json!("task: x")).expect("valid").input, b"task: x");
        assert_eq!(record(json!({"task": "x"})).expect("valid").input, br#"{"task":"x"}"#);
        assert!(record(json!(7)).is_err() && parsed("session.write", json!({"id": "a"})).is_err());
    }
}
