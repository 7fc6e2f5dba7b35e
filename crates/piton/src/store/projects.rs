//! Project records: everything that the store knows of a project besides its checkpoints, in `projects/<project>.json`.
//!
//! All of a record can be created again, so it is replaced atomically but not synced. Unknown keys survive a rewrite.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::ProjectLock;
use super::layout::{Layout, projects_by_file};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::id::{ObjectId, ProjectId};
use crate::relpath;
use crate::time::Moment;

const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Number of sessions whose last turn a project remembers. The oldest are forgotten first.
const SESSIONS_MAX: usize = 64;

/// The record of one project, with every key that it has on disk.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProjectRecord {
    keys: Map<String, Value>,
    /// True if a record exists and could not be read: it must not be overwritten with the little that is known without
    /// it.
    is_unread: bool,
}

impl ProjectRecord {
    /// Returns true if a record exists that could not be read.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Records that the project was used, and its directory. The device of the parent directory shows later whether a
    /// missing directory was deleted or is on a disk that is not mounted.
    pub(crate) fn touch(&mut self, dir: &Path, now: Moment) {
        // A clock that was set back does not make the project older: old projects may be pruned.
        let last = now.as_secs_f64().max(self.last_touch().unwrap_or(f64::MIN));
        let set = &mut self.keys;
        let now = Value::from(now.as_secs_f64());
        set.insert("workdir".to_owned(), dir.to_string_lossy().into());
        if dir.to_str().is_none() {
            set.insert("workdir_bytes".to_owned(), relpath::escape(dir.as_os_str().as_bytes()).into());
        }
        set.entry("created_at").or_insert_with(|| now.clone());
        set.insert("last_touch".to_owned(), last.into());
        if let Some(around) = dir.parent().and_then(|parent| parent.metadata().ok()) {
            // If a disk is mounted at this very directory, the directory may disappear with it: then no device of the
            // parent matches.
            let device = dir.metadata().map_or(around.dev(), |own| own.dev());
            set.insert("parent_device".to_owned(), device.into());
            set.insert("workdir_parent_dev".to_owned(), around.dev().into());
            set.insert("workdir_parent_ino".to_owned(), around.ino().into());
        }
    }

    /// Returns a record for a project of which only the checkpoints are known.
    pub(crate) fn with_times(first: Moment, last: Moment) -> Self {
        let times = [("created_at", first), ("last_touch", last)];
        times.into_iter().map(|(key, time)| (key.to_owned(), time.as_secs_f64().into())).collect::<Map<_, _>>().into()
    }

    /// Returns the directory of the project. A record that another program wrote may name any directory.
    pub(crate) fn dir(&self) -> Option<PathBuf> {
        let text = |key: &str| self.keys.get(key).and_then(Value::as_str);
        let bytes = match text("workdir_bytes") {
            Some(escaped) => relpath::unescape(escaped.as_bytes())?,
            None => text("workdir")?.as_bytes().to_vec(),
        };
        Some(PathBuf::from(OsString::from_vec(bytes))).filter(|dir| dir.is_absolute())
    }

    /// Returns the device on which the parent directory must be for a missing project directory to count as deleted.
    pub(crate) fn parent_device(&self) -> Option<u64> {
        self.keys.get("parent_device")?.as_u64()
    }

    /// Returns the device and inode of the parent directory, which Hermes records as well.
    pub(crate) fn parent_identity(&self) -> Option<(u64, u64)> {
        let number = |key: &str| self.keys.get(key)?.as_u64();
        Some((number("workdir_parent_dev")?, number("workdir_parent_ino")?))
    }

    /// Returns true if only Hermes has written the record, never piton.
    pub(crate) fn is_of_hermes_alone(&self) -> bool {
        !self.keys.is_empty() && !self.keys.contains_key("parent_device")
    }

    /// Returns the time at which the project was first seen, in seconds since 1970.
    pub(crate) fn created_at(&self) -> Option<f64> {
        self.keys.get("created_at")?.as_f64()
    }

    /// Returns the time at which the project was last used, in seconds since 1970.
    pub(crate) fn last_touch(&self) -> Option<f64> {
        self.keys.get("last_touch")?.as_f64()
    }

    /// Returns the checksum of the index that belongs to this record, and the rules of the scan that made it. An index
    /// with another checksum was written by another program, and says nothing about the rules.
    pub(crate) fn index_and_rules(&self) -> Option<(&str, &str)> {
        Some((self.keys.get("index")?.as_str()?, self.keys.get("rules")?.as_str()?))
    }

    /// Makes the record look as if no take of the project had ever finished.
    pub(crate) fn unset_index(&mut self) {
        self.keys.shift_remove("index");
    }

    /// Returns the rules that this scan found outside the index.
    pub(crate) fn hidden_rules(&self) -> BTreeMap<String, String> {
        let noted = self.keys.get("hidden_rules").and_then(Value::as_object);
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        noted.into_iter().flatten().filter_map(text).collect()
    }

    /// Returns the CRC-32 of that index.
    pub(crate) fn index_crc(&self) -> Option<u32> {
        self.keys.get("index_crc")?.as_u64()?.try_into().ok()
    }

    pub(crate) fn set_index_crc(&mut self, crc: u32) {
        self.keys.insert("index_crc".to_owned(), crc.into());
    }

    /// Returns the boot id of the machine when that index was written, and the time in seconds.
    pub(crate) fn index_boot(&self) -> Option<(&str, i64)> {
        Some((self.keys.get("index_boot")?.as_str()?, self.keys.get("index_time")?.as_i64()?))
    }

    pub(crate) fn set_index_boot(&mut self, boot: String, now: Moment) {
        self.keys.insert("index_boot".to_owned(), boot.into());
        self.keys.insert("index_time".to_owned(), now.secs.into());
    }

    pub(crate) fn set_index_and_rules(&mut self, index: String, rules: String, hidden: BTreeMap<String, String>) {
        self.keys.insert("index".to_owned(), index.into());
        self.keys.insert("rules".to_owned(), rules.into());
        let hidden: Map<String, Value> = hidden.into_iter().map(|(key, value)| (key, value.into())).collect();
        self.keys.insert("hidden_rules".to_owned(), hidden.into());
        self.keys.shift_remove("index_behind");
    }

    /// Returns the paths for which the tree differs from that index, if the index was not rewritten for the checkpoint
    /// of this tree.
    pub(crate) fn index_behind(&self, tree: ObjectId) -> Option<BTreeSet<Vec<u8>>> {
        let noted = self.keys.get("index_behind")?;
        let is = |key: &str, text: &str| noted.get(key).and_then(Value::as_str) == Some(text);
        if !is("tree", &tree.to_string()) || !is("index", self.index_and_rules()?.0) {
            return None;
        }
        let paths = noted.get("paths")?.as_array()?.iter();
        paths.map(|path| relpath::unescape(path.as_str()?.as_bytes())).collect()
    }

    pub(crate) fn set_index_behind(&mut self, tree: ObjectId, paths: &BTreeSet<Vec<u8>>) {
        let Some((index, _)) = self.index_and_rules() else { return };
        let paths: Vec<_> = paths.iter().map(|path| Value::from(relpath::escape(path))).collect();
        let noted = [("index", index.into()), ("tree", tree.to_string().into()), ("paths", paths.into())];
        let noted: Map<_, _> = noted.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        self.keys.insert("index_behind".to_owned(), noted.into());
    }

    /// Returns true if every object of this checkpoint was found in the store when the index was last compared with it.
    pub(crate) fn is_index_held(&self, newest: ObjectId) -> bool {
        self.keys.get("index_held").and_then(Value::as_str) == Some(&newest.to_string())
    }

    /// Records that every object of this checkpoint is in the store.
    pub(crate) fn set_index_held(&mut self, newest: ObjectId) {
        self.keys.insert("index_held".to_owned(), newest.to_string().into());
    }

    /// Returns the progress of an unfinished checkpoint, as a record of its own; `None` if there is none, or if a
    /// checkpoint was taken since.
    pub(crate) fn progress(&self, newest: Option<ObjectId>) -> Option<Self> {
        let noted = self.keys.get("unfinished")?.as_object()?;
        let parent = noted.get("parent").and_then(Value::as_str).map(str::to_owned);
        (parent == newest.map(|newest| newest.to_string())).then(|| noted.clone().into())
    }

    pub(crate) fn has_progress(&self) -> bool {
        self.keys.contains_key("unfinished")
    }

    /// Records the progress of an unfinished checkpoint after `newest`, or clears it. Returns true if there was any
    /// before.
    pub(crate) fn set_progress(&mut self, progress: Option<Self>, newest: Option<ObjectId>) -> bool {
        let Some(Self { mut keys, .. }) = progress else {
            return self.keys.shift_remove("unfinished").is_some();
        };
        keys.insert("parent".to_owned(), newest.map(|newest| newest.to_string()).into());
        self.keys.insert("unfinished".to_owned(), keys.into()).is_some()
    }

    /// Returns the time in seconds at which the entries of the index were last read: when it was written, or when the
    /// files that had changed shortly before that were read again. Returns `None` if there is no index.
    pub(crate) fn index_read_secs(&self) -> Option<i64> {
        let (_, written) = self.index_boot()?;
        let noted = self.keys.get("index_reread");
        let is_of_index = |noted: &&Value| noted.get("index").and_then(Value::as_str) == Some(self.index_sum());
        let reread = noted.filter(is_of_index).and_then(|noted| noted.get("time")?.as_i64());
        Some(written.max(reread.unwrap_or(written)))
    }

    /// Records that the recent entries of the index were read again and had not changed.
    pub(crate) fn set_index_reread(&mut self, now: Moment) {
        let noted = serde_json::json!({"index": self.index_sum(), "time": now.secs});
        self.keys.insert("index_reread".to_owned(), noted);
    }

    fn index_sum(&self) -> &str {
        self.index_and_rules().map_or("", |(sum, _)| sum)
    }

    /// Returns true if this turn of this session already has its checkpoint.
    pub(crate) fn has_turn(&self, session: &str, turn: &str) -> bool {
        self.keys.get("turns").and_then(|turns| turns.get(session)).and_then(Value::as_str) == Some(turn)
    }

    /// Returns true if this session has ever had a checkpoint here.
    pub(crate) fn knows_session(&self, session: &str) -> bool {
        self.keys.get("turns").is_some_and(|turns| turns.get(session).is_some())
    }

    /// Records that this turn of this session has its checkpoint.
    pub(crate) fn set_turn(&mut self, session: &str, turn: &str) {
        let turns = self.keys.entry("turns").or_insert_with(|| Map::new().into());
        if !turns.is_object() {
            *turns = Map::new().into();
        }
        let turns = turns.as_object_mut().expect("made an object above");
        turns.shift_remove(session);
        turns.insert(session.to_owned(), turn.into());
        while turns.len() > SESSIONS_MAX {
            let oldest = turns.keys().next().expect("more than none").clone();
            turns.shift_remove(&oldest);
        }
    }
}

impl From<Map<String, Value>> for ProjectRecord {
    fn from(keys: Map<String, Value>) -> Self {
        Self { keys, is_unread: false }
    }
}

/// The records of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(super) layout: Arc<Layout>,
}

impl Records {
    /// Returns every project that has a record, valid or not.
    pub(crate) fn projects(&self) -> Result<Vec<ProjectId>> {
        projects_by_file(&self.layout.projects())
    }

    /// Returns the record of a project. A missing or corrupt record is empty, since all of it can be created again. A
    /// record that cannot be read because of an I/O error is empty, too, and is not overwritten.
    pub(crate) fn get(&self, project: &ProjectId) -> ProjectRecord {
        self.read(project).unwrap_or_else(|_| ProjectRecord { is_unread: true, ..ProjectRecord::default() })
    }

    /// Like [`Self::get`], but fails if the record cannot be read because of an I/O error.
    pub(crate) fn read(&self, project: &ProjectId) -> Result<ProjectRecord> {
        let bytes = match fsx::read_small(&self.layout.record(project), RECORD_BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::Damaged => None,
            read => read?,
        };
        let keys = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
        Ok(ProjectRecord { keys, is_unread: false })
    }

    pub(crate) fn save(&self, _held: &ProjectLock, project: &ProjectId, record: &ProjectRecord) -> Result<()> {
        if record.is_unread {
            return Ok(());
        }
        let bytes =
            serde_json::to_vec(&record.keys).map_err(|error| Error::damaged("write a project's record", error))?;
        fsx::replace(&self.layout.record(project), &bytes, Durability::Rebuildable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_so_many_sessions_are_remembered_and_the_oldest_forgotten_first() {
        let mut record = ProjectRecord::default();
        let sessions: Vec<_> = (0..=SESSIONS_MAX).map(|number| format!("s{number}")).collect();
        for session in &sessions[..SESSIONS_MAX] {
            record.set_turn(session, "t");
        }
        assert!(sessions[..SESSIONS_MAX].iter().all(|session| record.knows_session(session)));
        record.set_turn(&sessions[0], "u");
        record.set_turn(&sessions[SESSIONS_MAX], "t");
        let forgotten: Vec<_> = sessions.iter().filter(|session| !record.knows_session(session)).collect();
        assert_eq!(forgotten, [&sessions[1]], "the first has had a turn since");
        assert!(record.has_turn(&sessions[0], "u") && !record.has_turn(&sessions[0], "t"));
    }

    #[test]
    fn what_is_known_of_checkpoints_alone_makes_a_record() {
        let at = |secs| Moment { secs, nanos: 0, offset_secs: 0 };
        let record = ProjectRecord::with_times(at(5), at(9));
        assert_eq!((record.created_at(), record.last_touch(), record.dir()), (Some(5.0), Some(9.0), None));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = crate::store::kit::store(&temp);
        let project = ProjectId::of(Path::new("/p"));
        assert_eq!(store.records.read(&project).expect("there is none"), ProjectRecord::default());
        std::fs::create_dir(store.layout.record(&project)).expect("a directory");
        assert_eq!(store.records.read(&project).expect_err("nobody can tell").kind(), ErrorKind::Io);
        assert!(store.records.get(&project).is_unread);
    }
}
