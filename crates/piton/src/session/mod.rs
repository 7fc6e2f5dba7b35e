//! Session records: what an agent notes about its task, so that it can go on after its talk was cut short. One YAML file
//! each, beside the store, which other programs read and write as well. Touches nothing else.
//!
//! - N1. A record is replaced as a whole, and is on the disk when the call returns.
//! - N2. Changes are made one after the other, under the lock of the base: none is lost.
//! - N3. What piton does not change comes out as the value that it was, to every reader.
//! - N4. A record that an agent wrote is never replaced by an automatic one.
//! - N5. A file that cannot be read as a record is put aside, not destroyed.

use std::fs;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
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

pub use gc::{Collected, PutAside};
pub use id::SessionId;
pub use versions::Rewound;
pub(crate) use versions::{origin_of_safety, version_of};

use scalar::Meaning;
use yaml::{Kind, Map, Node, Refusal};

/// The largest record. What an agent needs to go on fits into a small part of it.
pub const RECORD_BYTES_MAX: u64 = 1 << 20;

/// The mark of a record that no agent wrote.
const AUTOMATIC: &str = "automatic";
const UPDATED: &str = "updated";
const TASK: &str = "task";

/// Who changes a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// An agent, or a person.
    Agent,
    /// A program that knows no more than what it saw from outside. What an agent wrote is better, and stays.
    Automatic,
}

/// What came of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It is on the disk.
    Done,
    /// An agent's record stands there, and stays.
    Declined,
}

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NoRecord {
    /// They are no YAML that can be read.
    #[error(transparent)]
    Unreadable(#[from] Refusal),
    /// They are, and say something else than a record.
    #[error("{0}")]
    NoMapping(&'static str),
}

/// One record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    map: Map,
}

impl Record {
    /// Reads a record. It must be a mapping.
    fn parse(bytes: &[u8]) -> std::result::Result<Self, NoRecord> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            Refusal { line, why: "it is not UTF-8".to_owned() }
        })?;
        Err(NoRecord::NoMapping(match yaml::parse(text)?.kind {
            Kind::Map(map) => return Ok(Self { map }),
            Kind::List(_) => "it is a list, and must be a mapping of keys to values",
            Kind::Scalar { text, .. } if text.is_empty() => "it is empty, and must be a mapping",
            Kind::Scalar { .. } => "it is a single value, and must be a mapping of keys to values",
        }))
    }

    /// The record as YAML.
    pub fn to_yaml(&self) -> String {
        emit::emit(&self.map)
    }

    /// Returns whether the task is done.
    pub fn is_completed(&self) -> bool {
        let status = self.map.get("status").and_then(Node::as_str);
        status.is_some_and(|status| status.trim().eq_ignore_ascii_case("completed"))
    }

    /// Returns whether no agent wrote it.
    pub fn is_automatic(&self) -> bool {
        self.map.get(AUTOMATIC).is_some_and(|mark| mark.meaning() == Some(Meaning::Bool(true)))
    }

    fn has_task(&self) -> bool {
        let has_words = |task: &Node| task.as_str().is_none_or(|text| !text.trim().is_empty());
        self.map.get(TASK).is_some_and(|task| !task.is_null() && has_words(task))
    }

    fn stamp(&mut self, author: Author, now: Moment) {
        self.map.set(Node::plain(UPDATED), Node::text(now.iso()));
        match author {
            Author::Automatic => self.map.set(Node::plain(AUTOMATIC), Node::plain("true")),
            Author::Agent => drop(self.map.remove(AUTOMATIC)),
        }
    }

    /// Takes over what an update says, key by key.
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

/// What was there stays, and what is new follows it. A value that is no list is one item.
fn append(old: Option<Node>, new: Node) -> Node {
    let items = |node: Node| match node.kind {
        Kind::List(items) if node.tag.is_none() => items,
        _ if node.is_null() => Vec::new(),
        _ => vec![node],
    };
    let mut all = old.map(items).unwrap_or_default();
    all.extend(items(new));
    Node::new(Kind::List(all))
}

fn merge(old: Option<Node>, new: Node) -> std::result::Result<Node, String> {
    let no_mapping = |whose: &str| format!("`state` {whose} is no mapping");
    let mut old = old.filter(|old| !old.is_null()).unwrap_or_else(|| Node::new(Kind::Map(Map::default())));
    let Kind::Map(map) = &mut old.kind else {
        return Err(no_mapping("in the record"));
    };
    match new.kind {
        Kind::Map(given) => given.0.into_iter().for_each(|(key, value)| map.set(key, value)),
        _ if new.is_null() => {}
        _ => return Err(no_mapping("as given")),
    }
    Ok(old)
}

/// The session records in one base.
///
/// ```
/// use piton::session::{Author, SessionId, Sessions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let base = temp.path().join("base");
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// let sessions = Sessions::in_base(&base);
/// let id = SessionId::parse("login")?;
/// sessions.write(&id, b"task: fix the login", Author::Agent, now)?;
/// sessions.update(&id, b"progress: [{step: tests, status: done}]", Author::Agent, now)?;
/// let record = sessions.read(&id)?.expect("just written");
/// assert!(record.resume(&id).is_some_and(|text| text.contains("fix the login"))); // what an agent goes on from
/// assert_eq!(sessions.list()?, [id]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Sessions {
    layout: Layout,
}

impl Sessions {
    /// Those in `base`, which need not exist. Touches nothing.
    pub fn in_base(base: &Path) -> Self {
        Self { layout: Layout::new(base.to_owned()) }
    }

    /// The record of this name. `None` where there is none, and where the file is no mapping.
    pub fn read(&self, id: &SessionId) -> Result<Option<Record>> {
        let Some(bytes) = self.bytes(id)? else {
            return Ok(None);
        };
        match Record::parse(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(NoRecord::Unreadable(why)) => Err(Error::damaged(format!("read the session record {id}"), why)
                .with_hint("mend the file by hand, or let `piton session gc` put it aside")),
            Err(NoRecord::NoMapping(_)) => Ok(None),
        }
    }

    /// The bytes of a record's file.
    fn bytes(&self, id: &SessionId) -> Result<Option<Vec<u8>>> {
        let path = self.layout.session(id.as_str());
        // Opening anything but a file may wait for ever.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(Error::new(ErrorKind::NotOurs, "read")
                .with_path(&path)
                .because("it is not a regular file")
                .with_hint("move it out of the base"));
        }
        fsx::read_small(&path, RECORD_BYTES_MAX)
    }

    /// Writes a record, given as YAML or JSON, in place of the one that is there.
    pub fn write(&self, id: &SessionId, given: &[u8], author: Author, now: Moment) -> Result<Changed> {
        let bad = |why: String| invalid(format!("write the session record {id}"), why);
        let mut record = parse_given(given).map_err(bad)?;
        if !record.has_task() {
            return Err(
                bad("it says no `task`".to_owned()).with_hint("a record needs a line like `task: fix the login`")
            );
        }
        record.stamp(author, now);
        let locked = self.claim()?;
        match self.read(id) {
            Ok(Some(there)) if author == Author::Automatic && !there.is_automatic() => return Ok(Changed::Declined),
            Ok(Some(_)) => {}
            // Whether it is damaged can be told only by who can read it.
            Err(error) if ![ErrorKind::Damaged, ErrorKind::NotOurs].contains(&error.kind()) => return Err(error),
            // What cannot be read may be what an agent wrote.
            _ if author == Author::Automatic && self.exists(id) => return Ok(Changed::Declined),
            _ if self.exists(id) => drop(self.put_aside(&locked, id, now)?),
            _ => {}
        }
        self.save(&locked, id, &record)
    }

    /// Changes a record by what is given, as YAML or JSON: `progress` and `decisions` are added to, `state` is merged,
    /// all else replaced.
    pub fn update(&self, id: &SessionId, given: &[u8], author: Author, now: Moment) -> Result<Changed> {
        let bad = |why: String| invalid(format!("update the session record {id}"), why);
        let given = parse_given(given).map_err(bad)?;
        if !self.exists(id) {
            return Err(not_found(id));
        }
        let locked = self.lock()?;
        let mut record = self.read(id)?.ok_or_else(|| not_found(id))?;
        if author == Author::Automatic && !record.is_automatic() {
            return Ok(Changed::Declined);
        }
        record.update(given.map).map_err(bad)?;
        if !record.has_task() {
            return Err(bad("it would have no `task` any more".to_owned()));
        }
        record.stamp(author, now);
        self.save(&locked, id, &record)
    }

    /// Removes a record. Whether there was one.
    pub fn delete(&self, id: &SessionId) -> Result<bool> {
        if !self.exists(id) {
            return Ok(false);
        }
        let locked = self.lock()?;
        let existed = self.exists(id);
        self.remove(&locked, &self.layout.session(id.as_str()))?;
        Ok(existed)
    }

    /// The names of all records, sorted. Files whose names no record can have are not among them.
    pub fn list(&self) -> Result<Vec<SessionId>> {
        let names = fsx::names_in(self.layout.base())?;
        let mut ids: Vec<_> =
            names.iter().filter_map(|name| SessionId::parse(Layout::session_in(name.to_str()?)?).ok()).collect();
        let mut failed = None;
        ids.retain(|id| {
            let path = self.layout.session(id.as_str());
            match fsx::look_at(&path) {
                Ok(found) => found.is_some_and(|found| found.is_file()),
                // A link to nowhere is no record.
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
        // What cannot be looked at is found out about by whoever reads it.
        fsx::is_there(&self.layout.session(id.as_str())).unwrap_or(true)
    }

    /// Keeps all others from changing records, where there are some. Declines a base that belongs to another user, who
    /// could not read what is written there any more.
    fn lock(&self) -> Result<BaseLock> {
        Store::open_damaged(self.layout.base())?;
        lock_base(self.layout.base(), "the session records")
    }

    /// The same where there may be none. Makes the base where it is missing; declines a directory of somebody else's
    /// files, among which everything that ends in `.yaml` would be taken for a record.
    fn claim(&self) -> Result<BaseLock> {
        claim_base(self.layout.base())?;
        self.lock()
    }

    fn save(&self, _locked: &BaseLock, id: &SessionId, record: &Record) -> Result<Changed> {
        let text = record.to_yaml();
        if text.len() as u64 > RECORD_BYTES_MAX {
            return Err(invalid(format!("save the session record {id}"), too_large())
                .with_hint("say less, or write it anew with the essential parts"));
        }
        fsx::replace(&self.layout.session(id.as_str()), text.as_bytes(), Durability::Synced)?;
        Ok(Changed::Done)
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
    let hint = "`piton session write --help` shows a record; nothing was changed";
    Error::new(ErrorKind::Invalid, action).because(why).with_hint(hint)
}

fn not_found(id: &SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("find the session record {id}"))
        .because("there is none of that name")
        .with_hint("`piton session list` shows those that are there; `piton session write` makes one")
}

/// Reads what somebody wants to be a record: what other readers would stumble over is refused here, and kept where it is
/// already there.
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
