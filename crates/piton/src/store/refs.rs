//! The newest checkpoint of each project, and the ends of histories. These are git's own files and its own `*.lock`
//! protocol, with the syncs that git leaves out.
//!
//! A `*.lock` file of piton is stale from the start: it is put in place complete, with an mtime of 1970. So the next
//! process that holds the project's lock, and therefore knows that no living piton process is using the ref, takes it
//! over at once. A lock file that stock git made is respected until it is ten minutes old and no process has it open.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, FileTimes};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempPath;

use super::layout::Layout;
use super::lock::Exclusive;
use super::objects::DAMAGED_HINT;
use super::verify::wrong_packed_line;
use super::{ProjectLock, Store, wait};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::sys;
use crate::time::Moment;

/// A ref is 41 bytes; the packed refs of a hundred thousand projects are 6 MB.
const REFS_BYTES_MAX: u64 = 64 << 20;
/// Lock for the file that lists the ends of histories.
const SHALLOW: &str = "shallow";
/// Lock for the file of packed refs.
const PACKED_REFS: &str = "packed-refs";
/// Number of attempts to rewrite the ends of histories while stock git changes them.
const BOUNDARY_CHANGES_MAX: u32 = 16;
const STALE_AFTER_SECS: i128 = 10 * 60;

impl Store {
    /// Returns the newest checkpoint of a project.
    pub(crate) fn newest(&self, project: &ProjectId) -> Result<Option<CheckpointId>> {
        let path = self.layout.reference(project);
        match fsx::read_small(&path, REFS_BYTES_MAX)? {
            Some(text) => match ObjectId::from_hex(text.trim_ascii()) {
                Some(id) => Ok(Some(id)),
                None => Err(Error::damaged(format!("read {}", path.display()), "it names no checkpoint")
                    .with_hint(DAMAGED_HINT)),
            },
            None => self.packed_ref(project),
        }
    }

    fn packed_ref(&self, project: &ProjectId) -> Result<Option<CheckpointId>> {
        let text = self.whole_packed_refs()?;
        let wanted = Layout::ref_name(project);
        let found = text.split(|byte| *byte == b'\n').find_map(|line| {
            let (id, name) = line.split_at_checked(40)?;
            (name.strip_prefix(b" ")? == wanted.as_bytes()).then(|| ObjectId::from_hex(id))
        });
        Ok(found.flatten())
    }

    /// Returns the packed refs. Fails if a line is invalid: it may be the ref of any project, and a caller that ignored
    /// it would start that history over, or treat its checkpoints as unreachable.
    pub(super) fn whole_packed_refs(&self) -> Result<Vec<u8>> {
        let path = self.layout.packed_refs();
        let text = fsx::read_small(&path, REFS_BYTES_MAX)?.unwrap_or_default();
        match wrong_packed_line(&text) {
            None => Ok(text),
            Some(number) => Err(Error::damaged(format!("read {}", path.display()), format!("line {number} is no ref"))
                .with_hint(DAMAGED_HINT)),
        }
    }

    /// Moves the ref from `expected` to `new`. Returns false if another program has moved it. The new value is synced
    /// on return.
    pub(crate) fn advance(
        &self,
        _held: &ProjectLock,
        project: &ProjectId,
        expected: Option<CheckpointId>,
        new: CheckpointId,
        now: Moment,
    ) -> Result<bool> {
        let path = self.layout.reference(project);
        let lock = self.put_lock(project.as_str(), &path, format!("{new}\n").as_bytes(), now)?;
        if self.newest(project)? != expected {
            fsx::remove_file(&lock)?;
            return Ok(false);
        }
        fs::rename(&lock, &path).map_err(|error| Error::io("replace", &path, error))?;
        fsx::sync_dir(path.parent().expect("a ref is below refs/hermes"))?;
        Ok(true)
    }

    /// Moves the ref back from `new` to `before`, or deletes it. Returns false if another program has moved it.
    pub(crate) fn retreat(
        &self,
        held: &ProjectLock,
        project: &ProjectId,
        new: CheckpointId,
        before: Option<CheckpointId>,
        now: Moment,
    ) -> Result<bool> {
        match before {
            Some(before) => self.advance(held, project, Some(new), before, now),
            None if self.newest(project)? == Some(new) => self.delete_ref(held, project, now).map(|()| true),
            None => Ok(false),
        }
    }

    /// Syncs the ref of the newest checkpoint, in case the process that moved it was killed before it did so.
    pub(crate) fn sync_newest(&self, project: &ProjectId) -> Result<()> {
        fsx::sync_dir(self.layout.reference(project).parent().expect("a ref is below refs/hermes"))
    }

    /// Drops all checkpoints before `end`, which becomes the end of the history. No id and no date changes.
    ///
    /// The previous end stays on record: a branch made with stock git, or another project's history, may still lead
    /// there. A garbage collection removes it once it is unreachable.
    ///
    /// All projects share the file, so that its own lock comes last in the order of locks.
    pub(crate) fn cut_before(
        &self,
        _held: &ProjectLock,
        project: &ProjectId,
        end: CheckpointId,
        now: Moment,
    ) -> Result<()> {
        self.rewrite_boundary(project.as_str(), now, |ends| {
            ends.insert(end);
        })
    }

    /// Removes ends of histories whose checkpoints are gone.
    pub(super) fn forget_boundaries(&self, gone: &HashSet<CheckpointId>, now: Moment) -> Result<()> {
        self.rewrite_boundary(wait::GC, now, |ends| ends.retain(|id| !gone.contains(id)))
    }

    /// Ends histories at `cuts`, and removes the invalid ends in `gone`.
    pub(super) fn repair_boundary(
        &self,
        _alone: &Exclusive,
        cuts: &BTreeSet<CheckpointId>,
        gone: &BTreeSet<CheckpointId>,
        now: Moment,
    ) -> Result<()> {
        self.rewrite_boundary(wait::GC, now, |ends| {
            ends.retain(|id| !gone.contains(id));
            ends.extend(cuts);
        })
    }

    /// Sets a ref of any name to `id`, or deletes it, whatever its old value.
    pub(super) fn repair_ref(&self, _alone: &Exclusive, name: &str, id: Option<ObjectId>, now: Moment) -> Result<()> {
        self.set_ref(wait::GC, name, id, now)
    }

    /// Sets a ref of any name to `id`, or deletes it. The caller holds the lock named `by`.
    pub(super) fn set_ref(&self, by: &str, name: &str, id: Option<ObjectId>, now: Moment) -> Result<()> {
        let path = self.layout.store().join(name);
        let dir = path.parent().expect("a ref is below refs");
        fsx::ensure_dir(dir)?;
        let text = id.map(|id| format!("{id}\n")).unwrap_or_default();
        let lock = self.put_lock(by, &path, text.as_bytes(), now)?;
        if id.is_some() {
            fs::rename(&lock, &path).map_err(|error| Error::io("replace", &path, error))?;
        } else {
            fsx::remove_file(&path)?;
            fsx::remove_file(&lock)?;
        }
        fsx::sync_dir(dir)
    }

    /// Removes the lines of packed refs for which `is_right` returns false.
    pub(super) fn repair_packed_refs(
        &self,
        _alone: &Exclusive,
        is_right: impl Fn(&[u8]) -> bool,
        now: Moment,
    ) -> Result<()> {
        let path = self.layout.packed_refs();
        let lock = self.put_lock(wait::GC, &path, b"", now)?;
        let text = fsx::read_small(&path, REFS_BYTES_MAX)?.unwrap_or_default();
        // A line that begins with `^` belongs to the previous one.
        let mut keeping = false;
        let mut kept = Vec::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            keeping = is_right(line) && (keeping || !line.starts_with(b"^"));
            if keeping {
                kept.extend_from_slice(line);
                kept.push(b'\n');
            }
        }
        if kept.is_empty() {
            fsx::remove_file(&path)?;
        } else {
            fsx::replace(&path, &kept, Durability::Synced)?;
        }
        fsx::remove_file(&lock)
    }

    /// Replaces the file that lists the ends of histories. `by` is part of the name of the temporary file.
    fn rewrite_boundary(&self, by: &str, now: Moment, change: impl Fn(&mut BTreeSet<CheckpointId>)) -> Result<()> {
        let _guard = self.locks.hold(SHALLOW, "the end of the history")?;
        for _ in 0..BOUNDARY_CHANGES_MAX {
            if self.try_rewrite_boundary(by, now, &change)? {
                return Ok(());
            }
        }
        Err(moved_meanwhile("cut the history"))
    }

    /// Returns false if stock git changed the file in the meantime, as its garbage collection does.
    fn try_rewrite_boundary(
        &self,
        by: &str,
        now: Moment,
        change: &impl Fn(&mut BTreeSet<CheckpointId>),
    ) -> Result<bool> {
        let before = self.boundary()?;
        let mut ends: BTreeSet<_> = before.iter().copied().collect();
        change(&mut ends);
        let text: String = ends.iter().map(|id| format!("{id}\n")).collect();
        let path = self.layout.shallow();
        let lock = self.put_lock(by, &path, text.as_bytes(), now)?;
        if self.boundary()? != before {
            fsx::remove_file(&lock)?;
            return Ok(false);
        }
        self.remove_commit_graph()?;
        // Stock git treats an empty file as a missing one.
        let moved = if ends.is_empty() {
            fsx::remove_file(&path)?;
            fs::remove_file(&lock)
        } else {
            fs::rename(&lock, &path)
        };
        moved.map_err(|error| Error::io("replace", &path, error))?;
        fsx::sync_dir(self.layout.store())?;
        Ok(true)
    }

    /// Deletes a project's ref, both the loose and the packed one.
    pub(crate) fn delete_ref(&self, _held: &ProjectLock, project: &ProjectId, now: Moment) -> Result<()> {
        let packed = self.layout.packed_refs();
        let name = Layout::ref_name(project);
        let text = fsx::read_small(&packed, REFS_BYTES_MAX)?.unwrap_or_default();
        let is_it = |line: &[u8]| line.get(40..).is_some_and(|rest| rest.trim_ascii() == name.as_bytes());
        if text.split(|byte| *byte == b'\n').any(is_it) {
            let _guard = self.locks.hold(PACKED_REFS, "the packed refs")?;
            let lock = self.put_lock(project.as_str(), &packed, &text, now)?;
            // Read again under git's own lock. A line that begins with `^` belongs to the previous one.
            let text = fsx::read_small(&packed, REFS_BYTES_MAX)?.unwrap_or_default();
            let mut skipping = false;
            let kept = text.split_inclusive(|byte| *byte == b'\n').filter(|line| {
                skipping = is_it(line) || skipping && line.starts_with(b"^");
                !skipping
            });
            let kept: Vec<u8> = kept.flatten().copied().collect();
            fsx::replace(&packed, &kept, Durability::Synced)?;
            fsx::remove_file(&lock)?;
        }
        let path = self.layout.reference(project);
        let lock = self.put_lock(project.as_str(), &path, b"", now)?;
        fsx::remove_file(&path)?;
        fsx::remove_file(&lock)?;
        fsx::sync_dir(path.parent().expect("a ref is below refs/hermes"))
    }

    /// Creates `<path>.lock` with these bytes, synced. It is written in another directory and moved, because stock git
    /// takes any other file below `refs/`, such as a half-written ref, for a ref. One temporary name for each `by` is
    /// enough, as the caller holds that lock; the leftover of a killed process is overwritten. Fails with `Busy` if
    /// another program holds the lock file.
    fn put_lock(&self, by: &str, path: &Path, bytes: &[u8], now: Moment) -> Result<PathBuf> {
        let lock = path.with_added_extension("lock");
        let temp = self.layout.lock(&format!("{}{by}", fsx::TEMP_PREFIX));
        let mut temp = TempPath::try_from_path(temp).map_err(|error| Error::io("write", &lock, error))?;
        let written = sys::open_lock(&temp).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(bytes)?;
            file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH))?;
            file.sync_all()
        });
        written.map_err(|error| Error::io("write", &lock, error))?;
        for pause_ms in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
            match temp.persist_noclobber(&lock) {
                Ok(()) => return Ok(lock),
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => temp = error.path,
                // Stock git removes ref directories that it has emptied.
                Err(error) if error.error.kind() == io::ErrorKind::NotFound && error.path.exists() => {
                    fsx::ensure_dir(path.parent().expect("a ref is in a directory"))?;
                    temp = error.path;
                    continue;
                }
                Err(error) => return Err(Error::io("make", &lock, error.error)),
            }
            if is_stale(&lock, now) {
                fsx::remove_file(&lock)?;
            } else {
                std::thread::sleep(Duration::from_millis(pause_ms));
            }
        }
        Err(Error::new(ErrorKind::Busy, "move the project's ref")
            .because(format!("another program holds {}", lock.display()))
            .with_hint("try again; a stale lock is taken over after ten minutes"))
    }

    /// Removes stale lock files of killed processes that no process may come to take over: stock git would wait for
    /// them for ever. The caller knows that no living piton process is using them.
    pub(super) fn remove_stale_locks(&self, now: Moment) -> Result<()> {
        let refs = self.layout.references();
        let names = fsx::names_in(&refs)?;
        let refs = names.iter().filter(|name| name.as_encoded_bytes().ends_with(b".lock")).map(|name| refs.join(name));
        let all = [self.layout.shallow(), self.layout.packed_refs()].map(|path| path.with_added_extension("lock"));
        all.into_iter().chain(refs).filter(|lock| is_stale(lock, now)).try_for_each(|lock| fsx::remove_file(&lock))
    }

    /// Returns the checkpoints whose parents were dropped: the ends of histories.
    pub(crate) fn boundary(&self) -> Result<HashSet<CheckpointId>> {
        let text = fsx::read_small(&self.layout.shallow(), REFS_BYTES_MAX)?.unwrap_or_default();
        Ok(text.split(|byte| *byte == b'\n').filter_map(ObjectId::from_hex).collect())
    }
}

pub(crate) fn moved_meanwhile(action: &str) -> Error {
    Error::new(ErrorKind::Busy, action).because("another program did so at the same moment").with_hint("try again")
}

fn is_stale(lock: &Path, now: Moment) -> bool {
    fsx::is_older(lock, STALE_AFTER_SECS, now) && !sys::is_open_anywhere(lock)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };

    #[test]
    fn a_lock_of_stock_git_is_taken_over_after_ten_minutes_unless_it_is_open() {
        let temp = tempfile::tempdir().expect("a directory");
        let lock = temp.path().join("x.lock");
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let open = fs::File::create(&lock).expect("a file");
        open.set_modified(made).expect("a time");
        let after = |secs: i64| Moment { secs: NOW.secs + secs, ..NOW };
        assert!(!is_stale(&lock, after(601)), "somebody has it open");
        drop(open);
        assert_eq!([0, 71, 600, 601].map(|secs| is_stale(&lock, after(secs))), [false, false, false, true]);
    }

    #[test]
    fn a_packed_ref_that_goes_takes_what_belongs_to_it_along() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = Store::open_or_create(&temp.path().join("base"), NOW).expect("a store");
        let line = |start: &str, name: &str| format!("{start}{}{name}\n", "07".repeat(20));
        let header = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
        let (stays, goes) = (line("", " refs/tags/stays"), line("", " refs/tags/goes"));
        let (peeled, last) = (line("^", ""), line("", " refs/tags/zoo"));
        let all =
            [&header, &stays, &peeled, &goes, &peeled, &peeled, &"\n".to_owned(), &last].map(String::as_str).concat();
        fs::write(store.layout.packed_refs(), all).expect("a file");
        let held = store.locks.lock_gc().expect("a lock");
        let alone = store.locks.exclude(&held).expect("a lock").expect("nobody else is there");
        store.repair_packed_refs(&alone, |line| !line.ends_with(b"goes"), NOW).expect("packed refs");
        let left = fs::read_to_string(store.layout.packed_refs()).expect("a file");
        assert_eq!(left, [header, stays, peeled, last].concat());
        store.repair_packed_refs(&alone, |_| false, NOW).expect("packed refs");
        assert!(!store.layout.packed_refs().exists());
    }
}
