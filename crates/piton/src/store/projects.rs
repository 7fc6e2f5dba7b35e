//! Project records: everything that the store knows of a project besides its checkpoints, in `projects/<project>.json`.
//!
//! All of a record can be created again, so it is replaced atomically but not synced. Unknown keys survive a rewrite.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::ProjectLock;
use super::layout::{Layout, projects_by_file};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::id::{ObjectId, ProjectId};
use crate::relpath;
use crate::sys;
use crate::time::Moment;

const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Keys of the stat cache's note that every finished take sets.
const FINISHED_KEYS: [&str; 2] = ["index", "rules"];
/// Key of the note about local files.
const LOCAL_KEY: &str = "local";
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
    pub(crate) fn touch(&mut self, dir: &Path, identity: Option<sys::DirIdentity>, now: Moment) {
        // A clock that was set back does not make the project older: old projects may be pruned.
        let last = now.as_secs_f64().max(self.last_touch().unwrap_or(f64::MIN));
        let set = &mut self.keys;
        let now = Value::from(now.as_secs_f64());
        set.insert("workdir".to_owned(), dir.to_string_lossy().into());
        if dir.to_str().is_none() {
            set.insert("workdir_bytes".to_owned(), relpath::escape(sys::path_bytes(dir)).into());
        }
        set.entry("created_at").or_insert_with(|| now.clone());
        set.insert("last_touch".to_owned(), last.into());
        if let Some(sys::DirIdentity { device, mode, parent }) = identity {
            // If a disk is mounted at this very directory, the directory may disappear with it: then no device of the
            // parent matches.
            set.insert("parent_device".to_owned(), device.into());
            set.insert("workdir_parent_dev".to_owned(), parent.0.into());
            set.insert("workdir_parent_ino".to_owned(), parent.1.into());
            if let Some(mode) = mode {
                set.insert("workdir_mode".to_owned(), mode.into());
            }
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
        Some(sys::path_from_bytes(bytes)).filter(|dir| dir.is_absolute())
    }

    /// Returns the permission bits of the project's directory when it was last seen.
    pub(crate) fn dir_mode(&self) -> Option<u16> {
        u16::try_from(self.keys.get("workdir_mode")?.as_u64()?).ok().filter(|mode| *mode <= 0o777)
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

    /// Returns the keys among which the stat cache keeps its note. The store does not interpret them.
    pub(crate) fn cache_note(&self) -> &Map<String, Value> {
        &self.keys
    }

    /// Returns the same keys for a change of the note.
    pub(crate) fn cache_note_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.keys
    }

    /// Returns true if a take of the project has finished: it has left a note of its index.
    pub(crate) fn has_finished_take(&self) -> bool {
        FINISHED_KEYS.iter().all(|key| self.keys.get(*key).is_some_and(Value::is_string))
    }

    /// Makes the record look as if no take of the project had ever finished.
    pub(crate) fn unset_finished_take(&mut self) {
        self.keys.shift_remove(FINISHED_KEYS[0]);
    }

    /// Returns the note about the progress of an unfinished checkpoint; `None` if there is none, or if a checkpoint was
    /// taken since.
    pub(crate) fn progress(&self, newest: Option<ObjectId>) -> Option<&Map<String, Value>> {
        let noted = self.keys.get("unfinished")?.as_object()?;
        let parent = noted.get("parent").and_then(Value::as_str).map(str::to_owned);
        (parent == newest.map(|newest| newest.to_string())).then_some(noted)
    }

    /// Returns the note about the local files of the newest checkpoint that has some.
    pub(crate) fn local_note(&self) -> Option<&Map<String, Value>> {
        self.keys.get(LOCAL_KEY)?.as_object()
    }

    /// Replaces that note.
    pub(crate) fn set_local_note(&mut self, note: Map<String, Value>) {
        self.keys.insert(LOCAL_KEY.to_owned(), note.into());
    }

    pub(crate) fn has_progress(&self) -> bool {
        self.keys.contains_key("unfinished")
    }

    /// Records the progress of an unfinished checkpoint after `newest`, or clears it. Returns true if there was any
    /// before.
    pub(crate) fn set_progress(&mut self, progress: Option<Map<String, Value>>, newest: Option<ObjectId>) -> bool {
        let Some(mut keys) = progress else {
            return self.keys.shift_remove("unfinished").is_some();
        };
        keys.insert("parent".to_owned(), newest.map(|newest| newest.to_string()).into());
        self.keys.insert("unfinished".to_owned(), keys.into()).is_some()
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
        assert_eq!(store.records.read(&project).expect_err("it cannot be read").kind(), ErrorKind::Io);
        assert!(store.records.get(&project).is_unread);
    }
}
