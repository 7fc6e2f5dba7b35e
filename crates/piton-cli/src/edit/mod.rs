//! Editing of configuration files: each change is spliced into the text, so that everything else stays as it is.
//!
//! - I4. Each edit is made twice, in the text and in the parsed value. If the edited text does not parse to the edited
//!   value, the edit is refused, so that a misread line never changes another key.

pub(crate) mod files;
mod jsonc;
#[cfg(test)]
mod jsonc_tests;
mod yaml;
mod yaml_tree;

use serde_json::{Map, Value};

use self::jsonc::{Document, wrapped};
use self::yaml::Yaml;

pub(crate) use self::jsonc::Step;

/// File format of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

/// A configuration that is being edited.
#[derive(Debug, Clone)]
pub(crate) enum Config {
    Json(Document),
    Yaml(Yaml),
}

impl Config {
    pub(crate) fn parse(text: &str, format: Format) -> Result<Self, String> {
        match format {
            Format::Json => Document::parse(text).map(Self::Json),
            Format::Yaml => Yaml::parse(text).map(Self::Yaml),
        }
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Json(document) => document.text(),
            Self::Yaml(yaml) => yaml.text(),
        }
    }

    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Json(document) => document.value(),
            Self::Yaml(yaml) => yaml.value(),
        }
    }

    /// Sets the value at these keys, which may exist or not. Changes nothing else.
    pub(crate) fn set(&mut self, keys: &[&str], value: &Value) -> Result<(), String> {
        let mut expected = self.value();
        if at(&expected, keys) == Some(value) {
            return Ok(());
        }
        put(&mut expected, keys, value.clone());
        self.checked(&expected, |config| match config {
            Self::Json(document) => match document.set_default(keys, value)? {
                found if found < keys.len() => Ok(()),
                _ => document.replace_scalar(&steps(keys).collect::<Vec<_>>(), value),
            },
            Self::Yaml(yaml) => yaml.set(keys, value),
        })
    }

    /// Turns `key: true` into a section with that value as `inner`. Does nothing if the value is not a boolean.
    pub(crate) fn expand(&mut self, key: &str, inner: &str) -> Result<(), String> {
        let mut expected = self.value();
        let Some(value @ Value::Bool(_)) = expected.get(key).cloned() else { return Ok(()) };
        put(&mut expected, &[key], wrapped(&[inner], value.clone()));
        self.checked(&expected, |config| match config {
            Self::Json(document) => document.replace_scalar(&[Step::Key(key.to_owned())], &wrapped(&[inner], value)),
            Self::Yaml(yaml) => yaml.open(key).and_then(|()| yaml.set(&[key, inner], &value)),
        })
    }

    /// Removes the value at these keys.
    pub(crate) fn unset(&mut self, keys: &[&str]) -> Result<(), String> {
        self.remove(&steps(keys).collect::<Vec<_>>())
    }

    pub(crate) fn push(&mut self, keys: &[&str], item: &Value) -> Result<usize, String> {
        let mut expected = self.value();
        match at_mut(&mut expected, keys) {
            Some(Value::Array(list)) => list.push(item.clone()),
            Some(Value::Null) | None => put(&mut expected, keys, Value::Array(vec![item.clone()])),
            Some(_) => return Err(format!("`{}` is not a list", keys.join("."))),
        }
        self.checked(&expected, |config| match config {
            Self::Json(document) => document.push(keys, item),
            Self::Yaml(yaml) => yaml.push(keys, item),
        })
    }

    pub(crate) fn set_default(&mut self, keys: &[&str], value: &Value) -> Result<usize, String> {
        let mut expected = self.value();
        if at(&expected, keys).is_none() {
            put(&mut expected, keys, value.clone());
        }
        self.checked(&expected, |config| match config {
            Self::Json(document) => document.set_default(keys, value),
            Self::Yaml(yaml) => yaml.set_default(keys, value),
        })
    }

    pub(crate) fn replace_scalar(&mut self, path: &[Step], value: &Value) -> Result<(), String> {
        let mut expected = self.value();
        *value_at_mut(&mut expected, path).ok_or("the value is not there")? = value.clone();
        self.checked(&expected, |config| match config {
            Self::Json(document) => document.replace_scalar(path, value),
            Self::Yaml(yaml) => yaml.replace_scalar(path, value),
        })
    }

    pub(crate) fn remove(&mut self, path: &[Step]) -> Result<(), String> {
        let mut expected = self.value();
        let (last, around) = path.split_last().ok_or("the whole document is not ours")?;
        match (value_at_mut(&mut expected, around), last) {
            (Some(Value::Array(list)), Step::Item(at)) if *at < list.len() => drop(list.remove(*at)),
            (Some(Value::Object(map)), Step::Key(key)) => drop(map.shift_remove(key)),
            _ => return Err("the value is not there".to_owned()),
        }
        self.checked(&expected, |config| match config {
            Self::Json(document) => document.remove(path),
            Self::Yaml(yaml) => yaml.remove(path),
        })
    }

    /// Returns true if both parse to the same value. Empty lists and objects are ignored: in block form, YAML cannot
    /// express them.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        without_empty(self.value()) == without_empty(other.value())
    }

    /// I4. Applies an edit. Fails without a change if the edited text does not parse to `expected`. For YAML, empty
    /// lists and objects are ignored: in block form, it cannot express them.
    fn checked<T>(&mut self, expected: &Value, edit: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        let mut edited = self.clone();
        let done = edit(&mut edited)?;
        let is_same = match self {
            Self::Json(_) => edited.value() == *expected,
            Self::Yaml(_) => without_empty(edited.value()) == without_empty(expected.clone()),
        };
        if !is_same {
            return Err("the edit would change more than it should".to_owned());
        }
        *self = edited;
        Ok(done)
    }
}

fn without_empty(value: Value) -> Value {
    match value {
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Object(members) if members.is_empty() => Value::Null,
        Value::Array(items) => items.into_iter().map(without_empty).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(key, value)| (key, without_empty(value))).collect())
        }
        other => other,
    }
}

pub(crate) fn steps<S: AsRef<str>>(keys: &[S]) -> impl Iterator<Item = Step> {
    keys.iter().map(|key| Step::Key(key.as_ref().to_owned()))
}

pub(crate) fn value_at<'a>(value: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Item(at) => value.get(at),
    })
}

fn value_at_mut<'a>(value: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Item(at) => value.get_mut(at),
    })
}

pub(crate) fn at<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().try_fold(value, |value, key| value.get(key))
}

fn at_mut<'a>(value: &'a mut Value, keys: &[&str]) -> Option<&'a mut Value> {
    keys.iter().try_fold(value, |value, key| value.get_mut(key))
}

/// Sets the value at these keys, creating the objects on the way.
pub(crate) fn put(root: &mut Value, keys: &[&str], value: Value) {
    let Some((key, inner)) = keys.split_first() else {
        *root = value;
        return;
    };
    match root {
        Value::Object(members) => match members.get_mut(*key) {
            Some(member) => put(member, inner, value),
            None => drop(members.insert((*key).to_owned(), wrapped(inner, value))),
        },
        other => *other = Value::Object(Map::from_iter([((*key).to_owned(), wrapped(inner, value))])),
    }
}
