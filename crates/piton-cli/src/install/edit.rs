//! Edits of an agent's configuration file: adding our pieces, finding them, removing them.
//!
//! - I4. Each edit is made twice, in the text and in the parsed value. If the edited text does not parse to the edited
//!   value, the edit is refused, so that a misread line never changes another key.
//! - I5. Only our own entries are removed. They are recognised by their command line, not by their position.

use serde_json::{Map, Value};

use super::jsonc::{Document, Step, wrapped};
use super::shell;
use super::yaml::Yaml;
use crate::agents::Agent;

/// File format of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

/// One entry that an agent's configuration needs.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Keys from the root to the entry, or to the list that holds it.
    pub(crate) keys: Vec<&'static str>,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// One item of the list at the keys.
    Item(Value),
    /// A value without which the agent ignores the file; an existing value is kept, whatever it is.
    Default(Value),
    /// One string in the list at the keys. It is a name of ours, so an equal string counts as ours even if the user
    /// added it.
    Word(&'static str),
    /// A value that an older version wrote at the keys, which is removed.
    Gone,
}

/// A configuration that is being edited.
#[derive(Debug, Clone)]
pub(crate) enum Config {
    Json(Document),
    Yaml(Yaml),
}

/// One command line of ours in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ours {
    pub(crate) event: String,
    pub(crate) command: String,
    /// Its index in each list that contains it, outermost first.
    pub(crate) at: Vec<usize>,
}

/// Result of an edit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Edited {
    /// Paths of the keys that were created.
    pub(crate) made: Vec<Vec<String>>,
    /// Pieces that could not be added: the keys, and the reason.
    pub(crate) left: Vec<(String, String)>,
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

    /// Adds the pieces. If one exists already, its command line is updated and nothing else.
    pub(crate) fn install(&mut self, pieces: &[Piece], agent: Agent) -> Result<Edited, String> {
        let mut edited = Edited::default();
        for piece in pieces {
            let found = match &piece.what {
                What::Item(item) => {
                    let ours = self.ours_at(&piece.keys, item, agent);
                    if ours.is_empty() {
                        self.push(&piece.keys, item)?
                    } else {
                        self.bring_up_to_date(&ours, &piece.keys, item)?;
                        piece.keys.len()
                    }
                }
                What::Default(value) => self.set_default(&piece.keys, value)?,
                What::Word(word) => match self.word_at(&piece.keys, word) {
                    Some(_) => piece.keys.len(),
                    None => self.push(&piece.keys, &Value::from(*word)).unwrap_or_else(|why| {
                        edited.left.push((piece.keys.join("."), format!("{why}; add `{word}` to it by hand")));
                        piece.keys.len()
                    }),
                },
                What::Gone => {
                    self.remove_member_of_ours(&piece.keys, agent)?;
                    piece.keys.len()
                }
            };
            let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
            edited.made.extend((found + 1..=piece.keys.len()).map(|depth| owned(&piece.keys[..depth])));
        }
        Ok(edited)
    }

    /// Removes everything of ours, at any position. Lists and objects that become empty are removed as well if they are
    /// among `made`; all of them if `made` is `None`, i.e. it is not known which we created.
    pub(crate) fn uninstall(
        &mut self,
        pieces: &[Piece],
        agent: Agent,
        made: Option<&[Vec<String>]>,
    ) -> Result<(), String> {
        let mut touched: Vec<Vec<Step>> = Vec::new();
        while let Some(path) = self.find_ours(pieces, agent) {
            touched.push(path[..path.len() - 1].to_vec());
            self.remove(&path)?;
        }
        for piece in pieces {
            if let What::Word(word) = &piece.what
                && let Some(at) = self.word_at(&piece.keys, word)
            {
                let list: Vec<_> = steps(&piece.keys).collect();
                let path: Vec<_> = list.iter().cloned().chain([Step::Item(at)]).collect();
                // If the list cannot be edited, the name stays in it; it has no effect any more.
                touched.extend(self.remove(&path).is_ok().then_some(list));
            }
        }
        for mut path in touched {
            while !path.is_empty() {
                let is_empty = match value_at(&self.value(), &path) {
                    Some(Value::Array(items)) => items.is_empty(),
                    Some(Value::Object(members)) => members.is_empty(),
                    Some(Value::Null) => true,
                    _ => false,
                };
                let is_made = made.is_none_or(|made| made.iter().any(|keys| steps(keys).eq(path.iter().cloned())));
                if !is_empty || !is_made {
                    break;
                }
                self.remove(&path)?;
                path.pop();
            }
        }
        self.remove_defaults(pieces, made.unwrap_or_default())
    }

    /// Removes the defaults that we added for the agent to read the file, unless other entries need them.
    fn remove_defaults(&mut self, pieces: &[Piece], made: &[Vec<String>]) -> Result<(), String> {
        let is_needed =
            |piece: &Piece| matches!(piece.what, What::Item(_)) && at(&self.value(), &piece.keys[..1]).is_some();
        if pieces.iter().any(is_needed) {
            return Ok(());
        }
        for piece in pieces {
            if let What::Default(value) = &piece.what
                && at(&self.value(), &piece.keys) == Some(value)
                && made.iter().any(|keys| *keys == piece.keys)
            {
                self.remove(&steps(&piece.keys).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Returns our command lines that are items of lists, in order.
    pub(crate) fn our_commands(&self, pieces: &[Piece], agent: Agent) -> Vec<Ours> {
        let value = self.value();
        let is_list = |root: &Vec<Step>| matches!(&root[..], [Step::Key(key)] if key != "quick_commands");
        let paths = roots(pieces).into_iter().filter(is_list).flat_map(|root| paths_of_ours(&value, &root, agent));
        let ours = |path: Vec<Step>| {
            let at = path.iter().filter_map(|step| if let Step::Item(at) = step { Some(*at) } else { None });
            let event = path.iter().rev().find_map(|step| match step {
                Step::Key(key) if key != "hooks" && key != "command" => Some(key.clone()),
                _ => None,
            });
            let command = value_at(&value, &path).and_then(Value::as_str).unwrap_or_default();
            Ours { event: event.unwrap_or_default(), command: command.to_owned(), at: at.collect() }
        };
        paths.map(ours).collect()
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

    /// Returns the position of a word in the list at `keys`.
    fn word_at(&self, keys: &[&str], word: &str) -> Option<usize> {
        at(&self.value(), keys)?.as_array()?.iter().position(|item| item == word)
    }

    /// Removes the member at `keys` if its command line is ours, and the sections that become empty: Hermes fails on
    /// empty ones.
    fn remove_member_of_ours(&mut self, keys: &[&str], agent: Agent) -> Result<(), String> {
        if !self.has_member_of_ours(keys, agent) {
            return Ok(());
        }
        self.remove(&steps(keys).collect::<Vec<_>>())?;
        for depth in (1..keys.len()).rev() {
            let is_empty = match at(&self.value(), &keys[..depth]) {
                Some(Value::Object(members)) => members.is_empty(),
                other => other == Some(&Value::Null),
            };
            if is_empty {
                self.remove(&steps(&keys[..depth]).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    fn has_member_of_ours(&self, keys: &[&str], agent: Agent) -> bool {
        at(&self.value(), keys).and_then(command_of).is_some_and(|line| shell::is_ours(line, agent))
    }

    /// Returns the keys at which an older version left an entry, or at which a string is missing that this version
    /// needs.
    pub(crate) fn outdated(&self, pieces: &[Piece], agent: Agent) -> Vec<String> {
        let is_outdated = |piece: &&Piece| match piece.what {
            What::Gone => self.has_member_of_ours(&piece.keys, agent),
            What::Word(word) => self.word_at(&piece.keys, word).is_none(),
            _ => false,
        };
        pieces.iter().filter(is_outdated).map(|piece| piece.keys.join(".")).collect()
    }

    /// Returns the path of one entry of ours to remove: an item, a handler among others in an item, or a member written
    /// by an older version.
    fn find_ours(&self, pieces: &[Piece], agent: Agent) -> Option<Vec<Step>> {
        let value = self.value();
        let command = roots(pieces).iter().find_map(|root| paths_of_ours(&value, root, agent).pop())?;
        let mut path = command[..command.len() - 1].to_vec();
        // A group without any other handler is removed as a whole.
        if let [.., Step::Key(key), Step::Item(_)] = &path[..]
            && key == "hooks"
            && path.len() >= 3
            && matches!(path[path.len() - 3], Step::Item(_))
            && value_at(&value, &path[..path.len() - 1]).and_then(Value::as_array).is_some_and(|list| list.len() == 1)
        {
            path.truncate(path.len() - 2);
        }
        Some(path)
    }

    /// Returns the paths of our command lines in the list at `keys`, for the same event as `item` only.
    fn ours_at(&self, keys: &[&str], item: &Value, agent: Agent) -> Vec<Vec<Step>> {
        let value = self.value();
        let paths = paths_of_ours(&value, &steps(keys).collect::<Vec<_>>(), agent);
        let is_same = |path: &Vec<Step>| {
            value_at(&value, &path[..=keys.len().min(path.len() - 1)])
                .is_some_and(|there| there["event"] == item["event"])
        };
        paths.into_iter().filter(is_same).collect()
    }

    /// Updates our items to the command line of this one. If it cannot be spliced in (a text folded over several lines,
    /// say), they are removed and this item is added.
    fn bring_up_to_date(&mut self, ours: &[Vec<Step>], keys: &[&str], item: &Value) -> Result<(), String> {
        let mut edited = self.clone();
        if let Err(why) = edited.set_commands(ours, command_of(item).unwrap_or_default()) {
            edited = self.clone();
            for path in ours.iter().rev() {
                // The command line is nested in an item that may hold other handlers: it must not be removed.
                if path.len() > keys.len() + 2 {
                    return Err(why);
                }
                edited.remove(&path[..=keys.len()])?;
            }
            edited.push(keys, item)?;
        }
        *self = edited;
        Ok(())
    }

    fn set_commands(&mut self, paths: &[Vec<Step>], command: &str) -> Result<(), String> {
        for path in paths {
            if value_at(&self.value(), path).and_then(Value::as_str) != Some(command) {
                self.replace_scalar(path, &Value::from(command))?;
            }
        }
        Ok(())
    }

    fn push(&mut self, keys: &[&str], item: &Value) -> Result<usize, String> {
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

    fn set_default(&mut self, keys: &[&str], value: &Value) -> Result<usize, String> {
        let mut expected = self.value();
        if at(&expected, keys).is_none() {
            put(&mut expected, keys, value.clone());
        }
        self.checked(&expected, |config| match config {
            Self::Json(document) => document.set_default(keys, value),
            Self::Yaml(yaml) => yaml.set_default(keys, value),
        })
    }

    fn replace_scalar(&mut self, path: &[Step], value: &Value) -> Result<(), String> {
        let mut expected = self.value();
        *value_at_mut(&mut expected, path).ok_or("the value is not there")? = value.clone();
        self.checked(&expected, |config| match config {
            Self::Json(document) => document.replace_scalar(path, value),
            Self::Yaml(yaml) => yaml.replace_scalar(path, value),
        })
    }

    fn remove(&mut self, path: &[Step]) -> Result<(), String> {
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

fn steps<S: AsRef<str>>(keys: &[S]) -> impl Iterator<Item = Step> {
    keys.iter().map(|key| Step::Key(key.as_ref().to_owned()))
}

/// Returns the paths below which our pieces are: for list items the top-level section, so that lists written by an
/// older version are found, too.
fn roots(pieces: &[Piece]) -> Vec<Vec<Step>> {
    let mut roots: Vec<Vec<Step>> = Vec::new();
    for piece in pieces {
        let depth = if matches!(piece.what, What::Item(_)) { 1 } else { piece.keys.len() };
        let root: Vec<_> = steps(&piece.keys[..depth]).collect();
        if !matches!(piece.what, What::Default(_) | What::Word(_)) && !roots.contains(&root) {
            roots.push(root);
        }
    }
    roots
}

/// Returns the paths of our command lines below `root`, in order.
fn paths_of_ours(value: &Value, root: &[Step], agent: Agent) -> Vec<Vec<Step>> {
    fn walk(value: &Value, path: &mut Vec<Step>, agent: Agent, found: &mut Vec<Vec<Step>>) {
        match value {
            Value::String(line)
                if path.last() == Some(&Step::Key("command".to_owned())) && shell::is_ours(line, agent) =>
            {
                found.push(path.clone());
            }
            Value::Object(members) => {
                for (key, value) in members {
                    path.push(Step::Key(key.clone()));
                    walk(value, path, agent, found);
                    path.pop();
                }
            }
            Value::Array(items) => {
                for (at, value) in items.iter().enumerate() {
                    path.push(Step::Item(at));
                    walk(value, path, agent, found);
                    path.pop();
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Some(value) = value_at(value, root) {
        walk(value, &mut root.to_vec(), agent, &mut found);
    }
    found
}

/// Returns the command line of an item: its own, or that of its first handler.
fn command_of(item: &Value) -> Option<&str> {
    item["command"].as_str().or_else(|| item["hooks"][0]["command"].as_str())
}

fn value_at<'a>(value: &'a Value, path: &[Step]) -> Option<&'a Value> {
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

fn at<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a Value> {
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
