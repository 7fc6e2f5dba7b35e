//! Edits of an agent's configuration file: adding our pieces, finding them, removing them.
//!
//! - I5. Only our own entries are removed. They are recognised by their command line, not by their position.

use serde_json::Value;

use crate::agents::Agent;
use crate::agents::setup::{Ours, Piece, What};
use crate::edit::{Config, Step, at, steps, value_at};

/// Result of an edit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Edited {
    /// Paths of the keys that were created.
    pub(crate) made: Vec<Vec<String>>,
    /// Pieces that could not be added: the keys, and the reason.
    pub(crate) left: Vec<(String, String)>,
}

/// The entries that one agent needs in a configuration.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'a> {
    pub(crate) all: &'a [Piece],
    pub(crate) agent: Agent,
}

impl Pieces<'_> {
    /// Adds the pieces. If one exists already, its command line is updated and nothing else.
    pub(crate) fn install(self, config: &mut Config) -> Result<Edited, String> {
        let mut edited = Edited::default();
        for piece in self.all {
            let found = match &piece.what {
                What::Item(item) => {
                    let ours = self.ours_at(config, &piece.keys, item);
                    if ours.is_empty() {
                        config.push(&piece.keys, item)?
                    } else {
                        bring_up_to_date(config, &ours, &piece.keys, item)?;
                        piece.keys.len()
                    }
                }
                What::Default(value) => config.set_default(&piece.keys, value)?,
                What::Word(word) => match word_at(config, &piece.keys, word) {
                    Some(_) => piece.keys.len(),
                    None => config.push(&piece.keys, &Value::from(*word)).unwrap_or_else(|why| {
                        edited.left.push((piece.keys.join("."), format!("{why}; add `{word}` to it by hand")));
                        piece.keys.len()
                    }),
                },
                What::Gone => {
                    self.remove_member_of_ours(config, &piece.keys)?;
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
    pub(crate) fn uninstall(self, config: &mut Config, made: Option<&[Vec<String>]>) -> Result<(), String> {
        let mut touched: Vec<Vec<Step>> = Vec::new();
        while let Some(path) = self.find_ours(config) {
            touched.push(path[..path.len() - 1].to_vec());
            config.remove(&path)?;
        }
        for piece in self.all {
            if let What::Word(word) = &piece.what
                && let Some(at) = word_at(config, &piece.keys, word)
            {
                let list: Vec<_> = steps(&piece.keys).collect();
                let path: Vec<_> = list.iter().cloned().chain([Step::Item(at)]).collect();
                // If the list cannot be edited, the name stays in it; it has no effect any more.
                touched.extend(config.remove(&path).is_ok().then_some(list));
            }
        }
        for mut path in touched {
            while !path.is_empty() {
                let is_empty = match value_at(&config.value(), &path) {
                    Some(Value::Array(items)) => items.is_empty(),
                    Some(Value::Object(members)) => members.is_empty(),
                    Some(Value::Null) => true,
                    _ => false,
                };
                let is_made = made.is_none_or(|made| made.iter().any(|keys| steps(keys).eq(path.iter().cloned())));
                if !is_empty || !is_made {
                    break;
                }
                config.remove(&path)?;
                path.pop();
            }
        }
        self.remove_defaults(config, made.unwrap_or_default())
    }

    /// Removes the defaults that we added for the agent to read the file, unless other entries need them.
    fn remove_defaults(self, config: &mut Config, made: &[Vec<String>]) -> Result<(), String> {
        let is_needed =
            |piece: &Piece| matches!(piece.what, What::Item(_)) && at(&config.value(), &piece.keys[..1]).is_some();
        if self.all.iter().any(is_needed) {
            return Ok(());
        }
        for piece in self.all {
            if let What::Default(value) = &piece.what
                && at(&config.value(), &piece.keys) == Some(value)
                && made.iter().any(|keys| *keys == piece.keys)
            {
                config.remove(&steps(&piece.keys).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Returns our command lines that are items of lists, in order.
    pub(crate) fn our_commands(self, config: &Config) -> Vec<Ours> {
        let value = config.value();
        let is_list = |root: &Vec<Step>| matches!(&root[..], [Step::Key(_)]);
        let paths = self.roots().into_iter().filter(is_list).flat_map(|root| self.paths_of_ours(&value, &root));
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

    /// Removes the member at `keys` if its command line is ours, and the sections that become empty, which not
    /// every agent accepts.
    fn remove_member_of_ours(self, config: &mut Config, keys: &[&str]) -> Result<(), String> {
        if !self.has_member_of_ours(config, keys) {
            return Ok(());
        }
        config.remove(&steps(keys).collect::<Vec<_>>())?;
        for depth in (1..keys.len()).rev() {
            let is_empty = match at(&config.value(), &keys[..depth]) {
                Some(Value::Object(members)) => members.is_empty(),
                other => other == Some(&Value::Null),
            };
            if is_empty {
                config.remove(&steps(&keys[..depth]).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    fn has_member_of_ours(self, config: &Config, keys: &[&str]) -> bool {
        at(&config.value(), keys).and_then(command_of).is_some_and(|line| self.agent.is_own_command(line))
    }

    /// Returns the keys at which an older version left an entry, or at which a string is missing that this version
    /// needs.
    pub(crate) fn outdated(self, config: &Config) -> Vec<String> {
        let is_outdated = |piece: &&Piece| match piece.what {
            What::Gone => self.has_member_of_ours(config, &piece.keys),
            What::Word(word) => word_at(config, &piece.keys, word).is_none(),
            _ => false,
        };
        self.all.iter().filter(is_outdated).map(|piece| piece.keys.join(".")).collect()
    }

    /// Returns the path of one entry of ours to remove: an item, a handler among others in an item, or a member written
    /// by an older version.
    fn find_ours(self, config: &Config) -> Option<Vec<Step>> {
        let value = config.value();
        let command = self.roots().iter().find_map(|root| self.paths_of_ours(&value, root).pop())?;
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
    fn ours_at(self, config: &Config, keys: &[&str], item: &Value) -> Vec<Vec<Step>> {
        let value = config.value();
        let paths = self.paths_of_ours(&value, &steps(keys).collect::<Vec<_>>());
        let is_same = |path: &Vec<Step>| {
            value_at(&value, &path[..=keys.len().min(path.len() - 1)])
                .is_some_and(|there| there["event"] == item["event"])
        };
        paths.into_iter().filter(is_same).collect()
    }

    /// Returns the paths below which our pieces are: for list items the top-level section, so that lists written by an
    /// older version are found, too.
    fn roots(self) -> Vec<Vec<Step>> {
        let mut roots: Vec<Vec<Step>> = Vec::new();
        for piece in self.all {
            let depth = if matches!(piece.what, What::Item(_)) { 1 } else { piece.keys.len() };
            let root: Vec<_> = steps(&piece.keys[..depth]).collect();
            if !matches!(piece.what, What::Default(_) | What::Word(_)) && !roots.contains(&root) {
                roots.push(root);
            }
        }
        roots
    }

    /// Returns the paths of our command lines below `root`, in order.
    fn paths_of_ours(self, value: &Value, root: &[Step]) -> Vec<Vec<Step>> {
        fn walk(value: &Value, path: &mut Vec<Step>, agent: Agent, found: &mut Vec<Vec<Step>>) {
            match value {
                Value::String(line)
                    if path.last() == Some(&Step::Key("command".to_owned())) && agent.is_own_command(line) =>
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
            walk(value, &mut root.to_vec(), self.agent, &mut found);
        }
        found
    }
}

/// Returns the position of a word in the list at `keys`.
fn word_at(config: &Config, keys: &[&str], word: &str) -> Option<usize> {
    at(&config.value(), keys)?.as_array()?.iter().position(|item| item == word)
}

/// Updates our items to the command line of this one. If it cannot be spliced in (a text folded over several lines,
/// say), they are removed and this item is added.
fn bring_up_to_date(config: &mut Config, ours: &[Vec<Step>], keys: &[&str], item: &Value) -> Result<(), String> {
    let mut edited = config.clone();
    if let Err(why) = set_commands(&mut edited, ours, command_of(item).unwrap_or_default()) {
        edited = config.clone();
        for path in ours.iter().rev() {
            // The command line is nested in an item that may hold other handlers: it must not be removed.
            if path.len() > keys.len() + 2 {
                return Err(why);
            }
            edited.remove(&path[..=keys.len()])?;
        }
        edited.push(keys, item)?;
    }
    *config = edited;
    Ok(())
}

fn set_commands(config: &mut Config, paths: &[Vec<Step>], command: &str) -> Result<(), String> {
    for path in paths {
        if value_at(&config.value(), path).and_then(Value::as_str) != Some(command) {
            config.replace_scalar(path, &Value::from(command))?;
        }
    }
    Ok(())
}

/// Returns the command line of an item: its own, or that of its first handler.
fn command_of(item: &Value) -> Option<&str> {
    item["command"].as_str().or_else(|| item["hooks"][0]["command"].as_str())
}
