//! Session records: an agent's notes about its task, so that it can continue after its conversation was interrupted.
//! Each is a YAML file beside the store, which other programs read and write as well. This module touches nothing else.
//!
//! - N1. A record is replaced atomically, and is durable when the call returns.
//! - N2. Changes are serialised by the lock of the base: none is lost.
//! - N3. Values that piton does not change keep their meaning for every reader.
//! - N4. A record that an agent wrote is never replaced by an automatic one.
//! - N5. A file that cannot be read as a record is renamed, not deleted.

use std::fs;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::hint::Hint;
use crate::store::{BaseLock, Layout, Store, claim_base, lock_base};
use crate::time::Moment;

mod emit;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod gc;
mod id;
mod json;
mod resume;
mod scalar;
mod versions;
mod yaml;

pub use gc::{QuarantinedFile, SessionGcReport};
pub use id::SessionId;
pub use versions::RecordRewind;
pub(crate) use versions::{origin_of_safety, version_of};

use scalar::Meaning;
use yaml::{Map, Node, NodeKind, Refusal};

/// Size limit of a record. The notes that an agent needs to continue take a small part of it.
pub const RECORD_BYTES_MAX: u64 = 1 << 20;

/// Key that marks a record not written by an agent.
const AUTOMATIC: &str = "automatic";
const UPDATED: &str = "updated";
const TASK: &str = "task";

/// Author of a change to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordAuthor {
    /// Agent or person.
    Agent,
    /// Program that observes the session from outside. It never replaces a record that an agent wrote.
    Automatic,
}

/// Result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordChange {
    /// The change is on disk.
    Done,
    /// The existing record was written by an agent, and was kept.
    Declined,
}

/// Reason why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum InvalidRecord {
    /// They are not readable YAML.
    #[error(transparent)]
    Unreadable(#[from] Refusal),
    /// They are YAML, but not a mapping.
    #[error("{0}")]
    NoMapping(&'static str),
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    map: Map,
}

impl Record {
    /// Parses a record. It must be a mapping.
    fn parse(bytes: &[u8]) -> std::result::Result<Self, InvalidRecord> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            Refusal { line, why: "it is not UTF-8".to_owned() }
        })?;
        Err(InvalidRecord::NoMapping(match yaml::parse(text)?.kind {
            NodeKind::Map(map) => return Ok(Self { map }),
            NodeKind::List(_) => "it is a list, and must be a mapping of keys to values",
            NodeKind::Scalar { text, .. } if text.is_empty() => "it is empty, and must be a mapping",
            NodeKind::Scalar { .. } => "it is a single value, and must be a mapping of keys to values",
        }))
    }

    /// Returns the record as YAML.
    pub fn to_yaml(&self) -> String {
        emit::emit(&self.map)
    }

    /// Returns true if the task is completed.
    pub fn is_completed(&self) -> bool {
        let status = self.map.get("status").and_then(Node::as_str);
        status.is_some_and(|status| status.trim().eq_ignore_ascii_case("completed"))
    }

    /// Returns true if the record was not written by an agent.
    pub fn is_automatic(&self) -> bool {
        self.map.get(AUTOMATIC).is_some_and(|mark| mark.meaning() == Some(Meaning::Bool(true)))
    }

    fn has_task(&self) -> bool {
        let has_words = |task: &Node| task.as_str().is_none_or(|text| !text.trim().is_empty());
        self.map.get(TASK).is_some_and(|task| !task.is_null() && has_words(task))
    }

    fn stamp(&mut self, author: RecordAuthor, now: Moment) {
        self.map.set(Node::plain(UPDATED), Node::text(now.iso()));
        match author {
            RecordAuthor::Automatic => self.map.set(Node::plain(AUTOMATIC), Node::plain("true")),
            RecordAuthor::Agent => drop(self.map.remove(AUTOMATIC)),
        }
    }

    /// Applies an update key by key.
    fn update(&mut self, given: Map) -> std::result::Result<(), String> {
        for (key, value) in given.0 {
            let name = key.as_str().filter(|_| key.meaning() == Some(Meaning::Text)).unwrap_or_default().to_owned();
            let old = self.map.get(&name).cloned();
            let new = match name.as_str() {
                "progress" | "decisions" => append(old, value),
                "state" => merge(old, value)?,
                _ => value,
            };
            self.map.set(key, new);
        }
        Ok(())
    }
}

/// Returns the old items followed by the new ones. A value that is not a list counts as one item.
fn append(old: Option<Node>, new: Node) -> Node {
    let items = |node: Node| match node.kind {
        NodeKind::List(items) if node.tag.is_none() => items,
        _ if node.is_null() => Vec::new(),
        _ => vec![node],
    };
    let mut all = old.map(items).unwrap_or_default();
    all.extend(items(new));
    Node::new(NodeKind::List(all))
}

fn merge(old: Option<Node>, new: Node) -> std::result::Result<Node, String> {
    let no_mapping = |whose: &str| format!("`state` {whose} is not a mapping");
    let mut old = old.filter(|old| !old.is_null()).unwrap_or_else(|| Node::new(NodeKind::Map(Map::default())));
    let NodeKind::Map(map) = &mut old.kind else {
        return Err(no_mapping("in the record"));
    };
    match new.kind {
        NodeKind::Map(given) => given.0.into_iter().for_each(|(key, value)| map.set(key, value)),
        _ if new.is_null() => {}
        _ => return Err(no_mapping("as given")),
    }
    Ok(old)
}

/// Session records in one base.
///
/// ```
/// use piton::session::{RecordAuthor, SessionId, Sessions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let base = temp.path().join("base");
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// let sessions = Sessions::in_base(&base);
/// let id = SessionId::parse("login")?;
/// sessions.write(&id, b"task: fix the login", RecordAuthor::Agent, now)?;
/// sessions.update(&id, b"progress: [{step: tests, status: done}]", RecordAuthor::Agent, now)?;
/// let record = sessions.read(&id)?.expect("just written");
/// assert!(record.resume(&id).is_some_and(|text| text.contains("fix the login"))); // with which an agent continues
/// assert_eq!(sessions.list()?, [id]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Sessions {
    layout: Layout,
}

impl Sessions {
    /// Returns the records in `base`, which need not exist. Touches nothing.
    pub fn in_base(base: &Path) -> Self {
        Self { layout: Layout::new(base.to_owned()) }
    }

    /// Returns the record of this id. Returns `None` if there is no such file or it is not a mapping, and fails with
    /// `Damaged` if it is not YAML.
    pub fn read(&self, id: &SessionId) -> Result<Option<Record>> {
        let Some(bytes) = self.bytes(id)? else {
            return Ok(None);
        };
        match Record::parse(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(InvalidRecord::Unreadable(why)) => {
                Err(Error::damaged(format!("read the session record {id}"), why).with_hint(Hint::FixRecord))
            }
            Err(InvalidRecord::NoMapping(_)) => Ok(None),
        }
    }

    /// Returns the bytes of a record's file.
    fn bytes(&self, id: &SessionId) -> Result<Option<Vec<u8>>> {
        let path = self.layout.session(id.as_str());
        // Opening anything but a regular file may block for ever.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(Error::new(ErrorKind::NotOurs, "read")
                .with_path(&path)
                .because("it is not a regular file")
                .with_hint("move it out of the base"));
        }
        fsx::read_small(&path, RECORD_BYTES_MAX)
    }

    /// Writes a record, given as YAML or JSON, in place of an existing one. A file that cannot be read as a record is
    /// renamed first.
    pub fn write(&self, id: &SessionId, given: &[u8], author: RecordAuthor, now: Moment) -> Result<RecordChange> {
        let bad = |why: String| invalid(format!("write the session record {id}"), why);
        let mut record = parse_given(given).map_err(bad)?;
        if !record.has_task() {
            return Err(
                bad("it has no `task`".to_owned()).with_hint("a record needs a line like `task: fix the login`")
            );
        }
        record.stamp(author, now);
        let locked = self.claim()?;
        match self.read(id) {
            Ok(Some(there)) if author == RecordAuthor::Automatic && !there.is_automatic() => {
                return Ok(RecordChange::Declined);
            }
            Ok(Some(_)) => {}
            // Other errors do not tell whether the record is corrupt.
            Err(error) if ![ErrorKind::Damaged, ErrorKind::NotOurs].contains(&error.kind()) => return Err(error),
            // A record that cannot be read may have been written by an agent.
            _ if author == RecordAuthor::Automatic && self.exists(id) => return Ok(RecordChange::Declined),
            _ if self.exists(id) => drop(self.put_aside(&locked, id, now)?),
            _ => {}
        }
        self.save(&locked, id, &record)
    }

    /// Updates a record, given as YAML or JSON: `progress` and `decisions` are appended to, `state` is merged, all
    /// other keys are replaced. Fails with `NotFound` if there is no such record.
    pub fn update(&self, id: &SessionId, given: &[u8], author: RecordAuthor, now: Moment) -> Result<RecordChange> {
        let bad = |why: String| invalid(format!("update the session record {id}"), why);
        let given = parse_given(given).map_err(bad)?;
        if !self.exists(id) {
            return Err(not_found(id));
        }
        let locked = self.lock()?;
        let mut record = self.read(id)?.ok_or_else(|| not_found(id))?;
        if author == RecordAuthor::Automatic && !record.is_automatic() {
            return Ok(RecordChange::Declined);
        }
        record.update(given.map).map_err(bad)?;
        if !record.has_task() {
            return Err(bad("it would have no `task` any more".to_owned()));
        }
        record.stamp(author, now);
        self.save(&locked, id, &record)
    }

    /// Removes a record. Returns true if there was one.
    pub fn delete(&self, id: &SessionId) -> Result<bool> {
        if !self.exists(id) {
            return Ok(false);
        }
        let locked = self.lock()?;
        let existed = self.exists(id);
        self.remove(&locked, &self.layout.session(id.as_str()))?;
        Ok(existed)
    }

    /// Returns the ids of all records, sorted. Files whose names are not valid ids are skipped.
    pub fn list(&self) -> Result<Vec<SessionId>> {
        let names = fsx::names_in(self.layout.base())?;
        let mut ids: Vec<_> =
            names.iter().filter_map(|name| SessionId::parse(Layout::session_in(name.to_str()?)?).ok()).collect();
        let mut failed = None;
        ids.retain(|id| {
            let path = self.layout.session(id.as_str());
            match fsx::metadata_opt(&path) {
                Ok(found) => found.is_some_and(|found| found.is_file()),
                // A dangling link is not a record.
                Err(_) if path.is_symlink() => false,
                Err(error) => failed.replace(error).is_some(),
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        ids.sort();
        Ok(ids)
    }

    fn exists(&self, id: &SessionId) -> bool {
        // If the stat fails, the read that follows reports the error.
        fsx::exists(&self.layout.session(id.as_str())).unwrap_or(true)
    }

    /// Locks the existing records against changes by others. Fails if the base belongs to another user, who could no
    /// longer read the files written there.
    fn lock(&self) -> Result<BaseLock> {
        Store::open_damaged(self.layout.base())?;
        lock_base(self.layout.base(), "the session records")
    }

    /// Like [`Self::lock`], but creates the base if it is missing. Fails for a directory with foreign files, because
    /// every `*.yaml` among them would be taken for a record.
    fn claim(&self) -> Result<BaseLock> {
        claim_base(self.layout.base())?;
        self.lock()
    }

    fn save(&self, _locked: &BaseLock, id: &SessionId, record: &Record) -> Result<RecordChange> {
        let text = record.to_yaml();
        if text.len() as u64 > RECORD_BYTES_MAX {
            return Err(invalid(format!("save the session record {id}"), too_large())
                .with_hint("shorten it, or rewrite it with the essential parts"));
        }
        fsx::replace(&self.layout.session(id.as_str()), text.as_bytes(), Durability::Synced)?;
        Ok(RecordChange::Done)
    }

    fn remove(&self, _locked: &BaseLock, path: &Path) -> Result<()> {
        fsx::remove_file(path)?;
        fsx::sync_dir(self.layout.base())
    }
}

fn too_large() -> String {
    format!("it is larger than {} KiB", RECORD_BYTES_MAX >> 10)
}

fn invalid(action: String, why: String) -> Error {
    Error::new(ErrorKind::Invalid, action).because(why).with_hint(Hint::ShowRecordExample)
}

fn not_found(id: &SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("find the session record {id}"))
        .because("there is none of that name")
        .with_hint(Hint::ListRecords)
}

/// Parses a record given by the caller. Tags that other readers do not understand are refused here, although they are
/// kept in an existing record.
fn parse_given(given: &[u8]) -> std::result::Result<Record, String> {
    if given.len() as u64 > RECORD_BYTES_MAX {
        return Err(too_large());
    }
    let record = Record::parse(given).map_err(|why| why.to_string())?;
    match record.map.foreign_tag() {
        Some(tag) => Err(format!("other programs could not read what is tagged {tag}")),
        None => Ok(record),
    }
}
