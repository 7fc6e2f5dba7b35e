//! Model of the expected state: the checkpoints of each project with their content, and the session records.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::SNAPSHOTS_MAX;
use crate::{Held, files_in};

/// Name prefix of the files that a killed restore leaves in a project until it is finished or undone.
const LEFT_OVER: &[u8] = b".piton-restore-";

/// Paths, each with a hash of its content and its size in bytes.
pub(super) type Files = BTreeMap<Vec<u8>, (u64, u64)>;

fn files_of(held: BTreeMap<Vec<u8>, Held>) -> Files {
    let hashed = held.into_iter().map(|(path, held)| {
        let mut hasher = DefaultHasher::new();
        held.hash(&mut hasher);
        (path, (hasher.finish(), held.len()))
    });
    hashed.collect()
}

fn is_left_over(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(LEFT_OVER))
}

/// Returns the paths at which the two differ, for a message.
pub(super) fn difference(found: &Files, wanted: &Files) -> String {
    let names: BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let differing = names.into_iter().filter(|path| found.get(*path) != wanted.get(*path));
    differing.map(|path| String::from_utf8_lossy(path).into_owned()).collect::<Vec<_>>().join(", ")
}

/// Returns `now` with the content of `then` at these paths; all of `then` if no paths are given.
pub(super) fn brought_back(now: &Files, then: &Files, paths: &[Vec<u8>]) -> Files {
    if paths.is_empty() {
        return then.clone();
    }
    let mut files = now.clone();
    for path in paths {
        match then.get(path) {
            Some(held) => drop(files.insert(path.clone(), *held)),
            None => drop(files.remove(path)),
        }
    }
    files
}

/// The restore or undo that a safety checkpoint precedes.
#[derive(Debug, Clone)]
pub(super) struct Before {
    pub(super) is_undo: bool,
    pub(super) paths: Vec<Vec<u8>>,
}

/// One checkpoint that must exist.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) id: String,
    pub(super) files: Files,
    pub(super) before: Option<Before>,
}

/// One project, as its worker knows it. Nothing else changes its files: every checkpoint that a command takes holds the
/// files as they were when the command began, even if the command was killed before it could report the checkpoint.
#[derive(Debug, Default)]
pub(super) struct Project {
    pub(super) dir: PathBuf,
    /// Oldest first.
    pub(super) known: Vec<Known>,
    /// True if checkpoints may be dropped because the store is too large.
    pub(super) has_size_limit: bool,
}

impl Project {
    /// Reads the files of the project as they are.
    pub(super) fn files(&self) -> Files {
        let mut files = files_of(files_in(&self.dir));
        files.retain(|path, _| !is_left_over(path));
        files
    }

    pub(super) fn has_left_overs(&self) -> bool {
        files_in(&self.dir).keys().any(|path| is_left_over(path))
    }

    /// Updates the model from the list after one command: at most one checkpoint is new, and only the oldest are gone,
    /// by a retention rule. Returns true if there is a new one.
    pub(super) fn agree(&mut self, list: &Value, began_with: &Files, before: Option<&Before>) -> bool {
        let list: Vec<_> = list.as_array().expect("a list").iter().rev().collect();
        let id = |one: &Value| one["id"].as_str().expect("an id").to_owned();
        let place = |known: &Known| list.iter().position(|one| id(one) == known.id);
        let gone = self.known.iter().position(|known| place(known).is_some()).unwrap_or(self.known.len());
        for (at, known) in self.known[gone..].iter().enumerate() {
            assert_eq!(place(known), Some(at), "{} of {} is not where it was", known.id, self.dir.display());
        }
        let is_by_rule = gone == 0 || list.len() >= SNAPSHOTS_MAX || self.has_size_limit;
        assert!(is_by_rule, "{}: {} are left, and {gone} are gone", self.dir.display(), list.len());
        let new = &list[self.known.len() - gone..];
        assert!(new.len() <= 1, "{}: more than was asked for: {new:?}", self.dir.display());
        assert!(!list.is_empty() || self.known.is_empty(), "{}: the newest is gone", self.dir.display());
        self.known.drain(..gone);
        self.known.extend(new.iter().map(|one| Known {
            id: id(one),
            files: began_with.clone(),
            before: before.filter(|_| one["kind"] == "safety").cloned(),
        }));
        !new.is_empty()
    }

    /// Updates the ids after a purge of this path, which may have been killed before or after it took effect.
    pub(super) fn agree_after_purge(&mut self, list: &Value, path: &[u8]) {
        let list = list.as_array().expect("a list").iter().map(|one| one["id"].as_str().expect("an id"));
        for (known, id) in self.known.iter_mut().rev().zip(list) {
            if known.id != id {
                id.clone_into(&mut known.id);
                known.files.remove(path);
            }
        }
    }

    /// Returns the number of bytes that a checkpoint must hold but does not, given what stock git found in it.
    pub(super) fn lost(known: &Known, found: BTreeMap<Vec<u8>, Held>) -> u64 {
        let found = files_of(found);
        let lost = known.files.iter().filter(|(path, held)| found.get(*path) != Some(held));
        let bytes = lost.map(|(_, (_, bytes))| bytes.max(&1)).sum();
        assert!(bytes > 0 || found.len() == known.files.len(), "{} holds more than was there", known.id);
        bytes
    }
}

/// The record that all workers add to.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Acknowledged steps.
    pub(super) certain: BTreeSet<String>,
    /// Steps that may exist: their process was killed.
    pub(super) possible: BTreeSet<String>,
}

impl Shared {
    /// Asserts that every acknowledged step exists, and each step once.
    pub(super) fn check(&self, record: &Value) {
        let steps: Vec<_> = record["progress"].as_array().into_iter().flatten().collect();
        let steps: Vec<_> = steps.iter().map(|one| one["step"].as_str().expect("a step").to_owned()).collect();
        let there: BTreeSet<_> = steps.iter().cloned().collect();
        assert_eq!(there.len(), steps.len(), "a step is there twice: {steps:?}");
        let lost: Vec<_> = self.certain.difference(&there).collect();
        assert!(lost.is_empty(), "updates of the shared record are lost: {lost:?}");
        assert!(there.iter().all(|step| self.certain.contains(step) || self.possible.contains(step)), "{steps:?}");
    }
}

/// A hook payload captured from an agent.
pub(super) struct Payload {
    /// Name of the agent on the command line.
    pub(super) agent: String,
    pub(super) event: String,
    text: String,
    /// Session name in the payload.
    session: Option<String>,
}

impl Payload {
    /// Returns the payloads of each agent, in their order.
    pub(super) fn captured() -> Vec<Vec<Self>> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-cli/tests/it/data/hooks");
        let sorted = |dir: &Path| {
            let entries = std::fs::read_dir(dir).expect("payloads");
            let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
            paths.sort();
            paths
        };
        let name = |path: &Path| path.file_stem().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
        let payload = |dir: &Path, path: &Path| {
            let text = std::fs::read_to_string(path).expect("a payload");
            let session = session_in(&serde_json::from_str(&text).expect("JSON"));
            let agent = name(dir).split('-').next().expect("a name").to_owned();
            let event = name(path).split_once('-').expect("a number and a name").1.to_owned();
            Self { agent, event, text, session }
        };
        let of_agent = |dir: &PathBuf| sorted(dir).iter().map(|path| payload(dir, path)).collect();
        sorted(&dir).iter().map(of_agent).collect()
    }

    /// Returns the payload for this directory, home and session.
    pub(super) fn about(&self, dir: &Path, home: &Path, session: &str) -> String {
        let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let text = self.text.replace("/home/u/p", &path(dir)).replace("/home/u", &path(home));
        self.session.as_ref().map_or_else(|| text.clone(), |own| text.replace(own, session))
    }
}

/// Returns the session name, under any of the keys that agents use.
fn session_in(value: &Value) -> Option<String> {
    const KEYS: [&str; 4] = ["session_id", "sessionId", "sessionID", "conversation_id"];
    let own = KEYS.iter().find_map(|key| value.get(*key)?.as_str());
    let below = || value.as_object()?.values().find_map(session_in);
    own.map(str::to_owned).or_else(below)
}
