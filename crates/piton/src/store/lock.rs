//! Who may do what at the same time, by kernel locks on files in `store/locks/`. They are never unlinked, and die with
//! the process that holds them.
//!
//! Order, never upgraded: `prompt` -> `gc` -> `gate` -> `store` -> project -> the ref's own `.lock`. The base directory
//! itself is locked last: whoever makes the store or changes a session record holds it, and waits for nobody then.
//!
//! - L1. Whoever reads or writes objects holds `store` shared; whoever unlinks holds it exclusively. So an object that
//!   was found under the lock stays there as long as the lock is held.
//! - L2. `gate` is a turnstile before `store`: kernel locks are unfair, and a stream of takers would keep a collector
//!   out for ever.
//! - L3. Whoever moves a project's ref holds that project's lock.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ProjectId;
use crate::sys;

pub(super) const GC: &str = "gc";
pub(super) const GATE: &str = "gate";
pub(super) const STORE: &str = "store";
pub(super) const SIZE: &str = "size";
/// Held by whoever waits for `gc` and is in a hurry: the collection under way makes way for it.
const URGENT: &str = "urgent";

/// How long a collection keeps takes waiting, at most, before it lets them go first.
const EXCLUSIVE_WAIT_MS_MAX: u64 = 150;
/// Held by whoever answers a prompt in place of an agent. Comes before all others.
const PROMPT: &str = "prompt";

/// How long a lock is waited for. Longer than any step under `store` exclusive or a project's lock should take.
const WAIT_MS_MAX: u64 = 30_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Shared,
    Exclusive,
}

/// Objects that are there stay there while this is held.
#[derive(Debug)]
pub(crate) struct StoreLock {
    _file: Option<File>,
}

/// Nobody else collects while this is held.
#[derive(Debug)]
pub(crate) struct GcLock {
    _file: File,
}

/// Nobody else reads or writes objects while this is held.
#[derive(Debug)]
pub(super) struct Exclusive {
    _gate: File,
    _store: File,
}

impl StoreLock {
    /// For whoever holds `gc`: nobody else unlinks then.
    pub(super) fn none() -> Self {
        Self { _file: None }
    }
}

/// No other process moves this project's ref while this is held.
#[derive(Debug)]
pub(crate) struct ProjectLock {
    _file: File,
}

/// No other process makes a store or changes a session record in this base while this is held.
#[derive(Debug)]
pub(crate) struct BaseLock {
    _dir: File,
}

/// Waits until no other process is at work in the base itself.
pub(crate) fn lock_base(base: &Path, what: &str) -> Result<BaseLock> {
    let dir = File::open(base).map_err(|error| Error::io("open", base, error))?;
    wait_for(&dir, Mode::Exclusive, what)?;
    Ok(BaseLock { _dir: dir })
}

impl Store {
    /// Waits until nobody unlinks objects, and keeps it so.
    pub(crate) fn share(&self) -> Result<StoreLock> {
        self.share_until(None)
    }

    /// The same, for whoever may be told to stop waiting.
    pub(crate) fn share_until(&self, stop: Option<&AtomicBool>) -> Result<StoreLock> {
        // On a read-only file system nobody can unlink anything either, and in a store that only stock git has used so
        // far nobody knows of these locks.
        let Some(gate) = self.open_lock(GATE)? else {
            return Ok(StoreLock { _file: None });
        };
        let file = self.open_lock(STORE)?;
        wait_until(&gate, Mode::Shared, "the store", stop)?;
        if let Some(file) = &file {
            wait_until(file, Mode::Shared, "the store", stop)?;
        }
        Ok(StoreLock { _file: file })
    }

    /// Waits until no other process works on the project. The store's lock comes first: see the order above.
    pub(crate) fn lock_project(&self, after: &StoreLock, project: &ProjectId) -> Result<ProjectLock> {
        self.lock_project_until(after, project, None)
    }

    /// The same, for whoever may be told to stop waiting.
    pub(crate) fn lock_project_until(
        &self,
        _after: &StoreLock,
        project: &ProjectId,
        stop: Option<&AtomicBool>,
    ) -> Result<ProjectLock> {
        let file = self.lock_file(project.as_str())?;
        wait_until(&file, Mode::Exclusive, "this project", stop)?;
        Ok(ProjectLock { _file: file })
    }

    /// Waits until no other process answers a prompt in place of an agent.
    pub(crate) fn lock_prompts(&self) -> Result<Option<File>> {
        let file = self.open_lock(PROMPT)?;
        file.as_ref().map_or(Ok(()), |file| wait_for(file, Mode::Exclusive, "the prompts"))?;
        Ok(file)
    }

    /// Becomes the one that collects, unless another process is.
    pub(crate) fn try_lock_gc(&self) -> Result<Option<GcLock>> {
        let file = self.lock_file(GC)?;
        Ok(wait_at_most(&file, Mode::Exclusive, "the collection", 0, None)?.then_some(GcLock { _file: file }))
    }

    /// Becomes the one that collects. A collection under way makes way.
    pub(crate) fn lock_gc(&self) -> Result<GcLock> {
        self.lock_gc_until(None)
    }

    /// The same, for whoever may be told to stop waiting.
    pub(crate) fn lock_gc_until(&self, stop: Option<&AtomicBool>) -> Result<GcLock> {
        let urgent = self.lock_file(URGENT)?;
        wait_until(&urgent, Mode::Exclusive, "the collection", stop)?;
        let file = self.lock_file(GC)?;
        wait_until(&file, Mode::Exclusive, "the collection", stop)?;
        Ok(GcLock { _file: file })
    }

    /// Whether somebody waits for `gc` and is in a hurry.
    pub(super) fn somebody_waits(&self) -> bool {
        self.lock_file(URGENT).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Keeps everybody else away from the objects; `None` where they are at work and go on for a while.
    pub(super) fn exclude(&self, _held: &GcLock) -> Result<Option<Exclusive>> {
        let (gate, store) = (self.lock_file(GATE)?, self.lock_file(STORE)?);
        let is_alone = wait_at_most(&gate, Mode::Exclusive, "the store", EXCLUSIVE_WAIT_MS_MAX, None)?
            && wait_at_most(&store, Mode::Exclusive, "the store", EXCLUSIVE_WAIT_MS_MAX, None)?;
        Ok(is_alone.then_some(Exclusive { _gate: gate, _store: store }))
    }

    /// The same, tried for longer.
    pub(super) fn exclude_patiently(&self, held: &GcLock) -> Result<Option<Exclusive>> {
        for pause_ms in [5, 20, 50, 100, 200, 400, 800] {
            if let Some(alone) = self.exclude(held)? {
                return Ok(Some(alone));
            }
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
        Ok(None)
    }

    pub(super) fn lock_file(&self, name: &str) -> Result<File> {
        let path = self.layout.lock(name);
        sys::open_lock(&path).map_err(|error| Error::io("open the lock", &path, error))
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

/// Waits for a lock, but not for ever: a process that is stopped (not dead) must not stop everybody else unnoticed.
pub(super) fn wait_for(file: &File, mode: Mode, what: &str) -> Result<()> {
    wait_until(file, mode, what, None)
}

/// The same, and no longer than until `stop` is set. A lock that is free is had even then.
fn wait_until(file: &File, mode: Mode, what: &str, stop: Option<&AtomicBool>) -> Result<()> {
    if wait_at_most(file, mode, what, WAIT_MS_MAX, stop)? {
        return Ok(());
    }
    if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
        return Err(Error::new(ErrorKind::Stopped, format!("lock {what}"))
            .because("another process holds it, and the wait was cut short"));
    }
    Err(Error::new(ErrorKind::Busy, format!("lock {what}"))
        .because(format!("another process has held it for {} seconds", WAIT_MS_MAX / 1000))
        .with_hint("see which piton process is still running, and try again"))
}

/// Waits for a lock; whether it was to be had.
fn wait_at_most(file: &File, mode: Mode, what: &str, wait_ms_max: u64, stop: Option<&AtomicBool>) -> Result<bool> {
    let is_stopped = || stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
    let mut waited_ms = 0;
    let mut pause_ms = 1;
    loop {
        let tried = match mode {
            Mode::Shared => file.try_lock_shared(),
            Mode::Exclusive => file.try_lock(),
        };
        match tried {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => {
                return Err(Error::new(ErrorKind::Io, format!("lock {what}")).because(error));
            }
            Err(TryLockError::WouldBlock) if waited_ms >= wait_ms_max || is_stopped() => return Ok(false),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(pause_ms));
                waited_ms += pause_ms;
                pause_ms = (pause_ms * 2).min(16);
            }
        }
    }
}
