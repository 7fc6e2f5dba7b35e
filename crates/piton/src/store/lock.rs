//! Kernel locks on files in `store/locks/`, which serialise processes. The files are never unlinked, and a lock is
//! released when its holder exits.
//!
//! Order, never upgraded: `prompt` -> `urgent` -> `gc` -> `gate` -> `store` -> project -> `size`, `shallow`,
//! `packed-refs` and the `.lock` of a ref, one at a time. The base directory itself is locked last: a process that
//! makes the store or changes a session record holds it, and waits for no other lock while it does.
//!
//! - L1. A process that reads or writes objects holds `store` shared; one that unlinks them holds it exclusively. So an
//!   object that was found under the lock exists as long as the lock is held.
//! - L2. `gate` is a turnstile before `store`: kernel locks are unfair, and a stream of takes would keep a collection
//!   out for ever.
//! - L3. A process that moves a project's ref holds that project's lock.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::create;
use super::layout::Layout;
use super::wait::{self, GATE, GC, Mode, PAUSE_MS_MAX, STORE, WAIT_MS_MAX, WaitCallback, Waiting, wait_at_most};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ProjectId;
use crate::progress::Progress;
use crate::sys;

/// Held by a process that waits urgently for `gc`: the collection in progress yields to it.
const URGENT: &str = "urgent";

/// Suffix of the lock that is held while waiting for a project's own lock.
const WANTED: &str = ".wanted";

/// Longest time that a collection blocks takes before it yields to them.
const EXCLUSIVE_WAIT_MS_MAX: u64 = 150;
/// Held by a process that answers a prompt in place of an agent. Comes before all others.
const PROMPT: &str = "prompt";

/// Shared lock on the objects: existing objects stay while it is held.
#[derive(Debug)]
pub(crate) struct StoreLock {
    _file: Option<File>,
}

/// Garbage collection lock: no other process collects while it is held.
#[derive(Debug)]
pub(crate) struct GcLock {
    _file: File,
}

/// Exclusive lock on the objects: no other process reads or writes objects while it is held.
#[derive(Debug)]
pub(super) struct Exclusive {
    _gate: File,
    _store: File,
}

impl StoreLock {
    /// Returns an empty lock for a holder of `gc`: no other process unlinks objects then.
    pub(super) fn none() -> Self {
        Self { _file: None }
    }
}

/// Lock of a project: no other process moves its ref while it is held.
#[derive(Debug)]
pub(crate) struct ProjectLock {
    _file: File,
}

/// The lock files of a store.
#[derive(Debug, Clone)]
pub(crate) struct Locks {
    layout: Arc<Layout>,
    told: WaitCallback,
}

impl Locks {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout: Arc::new(layout), told: WaitCallback::default() }
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Creates the lock files that a store written only by stock git lacks.
    pub(crate) fn ensure_files(&self) -> Result<()> {
        create::ensure_lockable(&self.layout)
    }

    /// Sets the callback for waits.
    pub(super) fn on_wait(self, tell: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        Self { told: WaitCallback::new(tell), ..self }
    }

    /// Blocks until no process unlinks objects, and prevents that while the lock is held. Fails with `Busy` after 30
    /// seconds.
    pub(crate) fn share(&self) -> Result<StoreLock> {
        self.share_until(None)
    }

    /// Like [`Self::share`], but fails with `Stopped` once `progress` is cancelled.
    pub(crate) fn share_until(&self, progress: Option<&Progress>) -> Result<StoreLock> {
        // On a read-only file system no process can unlink objects either, and a store that only stock git has used has
        // no lock files.
        let Some(gate) = self.open_lock(GATE)? else {
            return Ok(StoreLock { _file: None });
        };
        let file = self.open_lock(STORE)?;
        self.wait_until(&gate, Mode::Shared, "the store", progress)?;
        if let Some(file) = &file {
            self.wait_until(file, Mode::Shared, "the store", progress)?;
        }
        Ok(StoreLock { _file: file })
    }

    /// Locks a project. Takes the store's lock as evidence that it was locked first: see the order above. Fails with
    /// `Busy` after 30 seconds.
    pub(crate) fn lock_project(&self, after: &StoreLock, project: &ProjectId) -> Result<ProjectLock> {
        self.lock_project_until(after, project, None)
    }

    /// Like [`Self::lock_project`], but fails with `Stopped` once `progress` is cancelled.
    pub(crate) fn lock_project_until(
        &self,
        _after: &StoreLock,
        project: &ProjectId,
        progress: Option<&Progress>,
    ) -> Result<ProjectLock> {
        let file = self.lock_file(project.as_str())?;
        if !wait_at_most(&file, Mode::Exclusive, "this project", 0, None, &WaitCallback::default())? {
            // Held while waiting: a process that completes a checkpoint in the background yields.
            let wanted = self.lock_file(&format!("{project}{WANTED}"))?;
            let _told = (0..3).any(|_| {
                let is_told = wanted.try_lock_shared().is_ok();
                if !is_told {
                    std::thread::sleep(Duration::from_millis(1));
                }
                is_told
            });
            self.wait_until(&file, Mode::Exclusive, "this project", progress)?;
        }
        Ok(ProjectLock { _file: file })
    }

    /// Returns true if a process waits for the project's lock, or for the whole store.
    pub(super) fn is_wanted(&self, project: &ProjectId) -> bool {
        let is_refused = |name: &str, lock: fn(&File) -> std::result::Result<(), TryLockError>| {
            let file = File::open(self.layout.lock(name));
            file.is_ok_and(|file| matches!(lock(&file), Err(TryLockError::WouldBlock)))
        };
        is_refused(&format!("{project}{WANTED}"), File::try_lock)
            || [GATE, URGENT].iter().any(|name| is_refused(name, File::try_lock_shared))
    }

    /// Calls `read` if no process holds the project's lock; `None` if one does. Does not create the lock file.
    pub(super) fn while_idle<T>(&self, project: &ProjectId, read: impl FnOnce() -> T) -> Option<T> {
        let file = File::open(self.layout.lock(project.as_str())).ok();
        let is_held = |file: &File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        if file.as_ref().is_some_and(is_held) { None } else { Some(read()) }
    }

    /// Blocks until no other process answers a prompt in place of an agent. Returns `None` if there is no lock file and
    /// none can be made.
    pub(crate) fn lock_prompts(&self) -> Result<Option<File>> {
        let file = self.open_lock(PROMPT)?;
        file.as_ref().map_or(Ok(()), |file| self.wait_until(file, Mode::Exclusive, "the prompts", None))?;
        Ok(file)
    }

    /// Takes the garbage collection lock; `None` if another process holds it.
    pub(crate) fn try_lock_gc(&self) -> Result<Option<GcLock>> {
        let file = self.lock_file(GC)?;
        Ok(wait_at_most(&file, Mode::Exclusive, "the collection", 0, None, &WaitCallback::default())?
            .then_some(GcLock { _file: file }))
    }

    /// Returns true if another process collects or makes room.
    pub(super) fn is_collecting(&self) -> Result<bool> {
        Ok(self.try_lock_gc()?.is_none())
    }

    /// Takes the garbage collection lock after all processes that wait for it urgently. Fails with `Stopped` if it is
    /// not free once `progress` is cancelled, and with `Busy` if it stays held.
    pub(crate) fn lock_gc_after_others(&self, progress: &Progress) -> Result<GcLock> {
        const WHAT: &str = "the collection";
        let file = self.lock_file(GC)?;
        for _ in 0..WAIT_MS_MAX / PAUSE_MS_MAX {
            self.wait_until(&file, Mode::Exclusive, WHAT, Some(progress))?;
            if !self.has_waiter() {
                return Ok(GcLock { _file: file });
            }
            file.unlock().map_err(|error| Error::new(ErrorKind::Io, format!("unlock {WHAT}")).because(error))?;
            if progress.is_cancelled() {
                return Err(wait::stopped(WHAT, &file));
            }
            std::thread::sleep(Duration::from_millis(PAUSE_MS_MAX));
        }
        Err(wait::held_for_too_long(WHAT, &file))
    }

    /// Takes the garbage collection lock. A collection in progress yields. Fails with `Busy` after 30 seconds.
    pub(crate) fn lock_gc(&self) -> Result<GcLock> {
        self.lock_gc_until(None)
    }

    /// Like [`Self::lock_gc`], but fails with `Stopped` once `progress` is cancelled.
    pub(crate) fn lock_gc_until(&self, progress: Option<&Progress>) -> Result<GcLock> {
        let urgent = self.lock_file(URGENT)?;
        self.wait_until(&urgent, Mode::Exclusive, "the collection", progress)?;
        let file = self.lock_file(GC)?;
        self.wait_until(&file, Mode::Exclusive, "the collection", progress)?;
        Ok(GcLock { _file: file })
    }

    /// Returns true if a process waits urgently for `gc`.
    pub(super) fn has_waiter(&self) -> bool {
        self.lock_file(URGENT).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Locks the objects exclusively; `None` if other processes still use them after a short wait.
    pub(super) fn exclude(&self, _held: &GcLock) -> Result<Option<Exclusive>> {
        let (gate, store) = (self.lock_file(GATE)?, self.lock_file(STORE)?);
        let is_alone =
            wait_at_most(&gate, Mode::Exclusive, "the store", EXCLUSIVE_WAIT_MS_MAX, None, &WaitCallback::default())?
                && wait_at_most(
                    &store,
                    Mode::Exclusive,
                    "the store",
                    EXCLUSIVE_WAIT_MS_MAX,
                    None,
                    &WaitCallback::default(),
                )?;
        Ok(is_alone.then_some(Exclusive { _gate: gate, _store: store }))
    }

    /// Like [`Self::exclude`], but tries seven times, with growing pauses.
    pub(super) fn exclude_patiently(&self, held: &GcLock) -> Result<Option<Exclusive>> {
        for pause_ms in [5, 20, 50, 100, 200, 400, 800] {
            if let Some(alone) = self.exclude(held)? {
                return Ok(Some(alone));
            }
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
        Ok(None)
    }

    /// Takes the exclusive lock of this name. Fails with `Busy` after 30 seconds.
    pub(super) fn hold(&self, name: &str, what: &str) -> Result<File> {
        let file = self.lock_file(name)?;
        self.wait_until(&file, Mode::Exclusive, what, None)?;
        Ok(file)
    }

    fn wait_until(&self, file: &File, mode: Mode, what: &str, progress: Option<&Progress>) -> Result<()> {
        wait::wait_until(file, mode, what, progress, &self.told)
    }

    pub(super) fn lock_file(&self, name: &str) -> Result<File> {
        let path = self.layout.lock(name);
        match sys::open_lock(&path) {
            // Missing if only stock git has used the store.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.ensure_files()?;
                sys::open_lock(&path).map_err(|error| Error::io("open the lock", &path, error))
            }
            opened => opened.map_err(|error| Error::io("open the lock", &path, error)),
        }
    }

    fn open_lock(&self, name: &str) -> Result<Option<File>> {
        let path: &Path = &self.layout.lock(name);
        match sys::open_lock(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(File::open(path).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open the lock", path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wait::SIZE;
    use super::*;
    use crate::store::Room;
    use crate::store::kit::{NOW, store};

    fn cancelled() -> Progress {
        let progress = Progress::default();
        progress.cancel();
        progress
    }

    #[test]
    fn maintenance_yields_to_urgent_collectors() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let urgent = store.locks.lock_file(URGENT).expect("a lock");
        urgent.lock().expect("the lock");
        let cancelled = cancelled();
        let refused = store.locks.lock_gc_after_others(&cancelled).expect_err("another process waits");
        assert_eq!(refused.kind(), ErrorKind::Stopped);
        assert!(store.locks.try_lock_gc().expect("a lock").is_some(), "nothing stays locked");
        drop(urgent);
        assert!(store.locks.lock_gc_after_others(&cancelled).is_ok());
    }

    /// L2. `store` itself is free, and a process that wants to share it waits all the same: a collection is ahead of
    /// it.
    #[test]
    fn a_later_process_waits_at_the_gate_behind_a_collector() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let gate = store.locks.lock_file(GATE).expect("a lock");
        gate.lock().expect("the lock");
        let cancelled = cancelled();
        let refused = store.locks.share_until(Some(&cancelled)).expect_err("the gate is closed");
        assert_eq!(refused.kind(), ErrorKind::Stopped);
        drop(gate);
        assert!(store.locks.share_until(Some(&cancelled)).is_ok());
    }

    /// L1. An object that was found under `store` shared is not unlinked.
    #[test]
    fn the_exclusive_lock_waits_for_readers() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let (held, shared) = (store.locks.lock_gc().expect("a lock"), store.locks.share().expect("a lock"));
        assert!(store.locks.exclude(&held).expect("a lock").is_none());
        drop(shared);
        let alone = store.locks.exclude(&held).expect("a lock").expect("no other holder");
        let refused = store.locks.share_until(Some(&cancelled())).expect_err("the exclusive lock is held");
        assert_eq!(refused.kind(), ErrorKind::Stopped);
        drop(alone);
        store.locks.share().expect("a lock");
    }

    #[test]
    fn a_lock_excludes_other_processes() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let is_free = |name: &str| store.locks.lock_file(name).expect("a file").try_lock().is_ok();
        let prompt = store.locks.lock_prompts().expect("a lock");
        let size = store.locks.hold(SIZE, "the size").expect("a lock");
        assert_eq!([PROMPT, SIZE].map(is_free), [false, false]);
        drop((prompt, size));
        assert_eq!([PROMPT, SIZE].map(is_free), [true, true]);
    }

    /// Other processes may have reserved space that they have not filled yet: only a process that excludes them may
    /// recount.
    #[test]
    fn reserved_room_is_not_given_to_others() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let bytes_max = (store.size.count_bytes().expect("a size") + 100_000) * 32 / 31;
        let room = |bytes, held: Option<&GcLock>| store.size.reserve(bytes, 0, bytes_max, held).expect("a size");
        assert_eq!(room(90_000, None), Room::Reserved);
        // The note leaves no room, although the files do.
        assert_eq!(room(50_000, None), Room::Lacking);
        let held = store.locks.lock_gc().expect("a lock");
        assert_eq!(room(50_000, Some(&held)), Room::Lacking);
        let made = crate::store::make_room(&store, &held, 50_000, bytes_max, NOW, &Progress::default()).expect("room");
        assert_eq!(made, crate::store::MakeRoomOutcome::Enough { dropped: 0 });
        assert_eq!(room(50_000, Some(&held)), Room::Reserved);
        drop(held);
        // Takes cannot use the part that is reserved for collections.
        assert_eq!(room(50_000, None), Room::Lacking);
        assert_eq!(room(40_000, None), Room::Reserved);
        // A power cut may lose the note. A caller without a limit, such as a restore, does not wait for a process that
        // makes room.
        std::fs::write(store.layout.size(), "").expect("a file");
        let _held = store.locks.lock_gc().expect("a lock");
        assert_eq!(store.size.reserve(60_000, 0, u64::MAX, None).expect("a size"), Room::Reserved);
    }
}
