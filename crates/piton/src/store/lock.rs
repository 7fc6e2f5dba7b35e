//! Who may do what at the same time, by kernel locks on files in `store/locks/`. They are never unlinked, and die with
//! the process that holds them.
//!
//! Order, never upgraded: `prompt` -> `gc` -> `gate` -> `store` -> project -> the ref's own `.lock`.
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
use crate::fsx;
use crate::id::ProjectId;

pub(super) const GC: &str = "gc";
pub(super) const GATE: &str = "gate";
pub(super) const STORE: &str = "store";
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

/// No other process moves this project's ref while this is held.
#[derive(Debug)]
pub(crate) struct ProjectLock {
    _file: File,
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
        let path = self.layout.lock(project.as_str());
        let file = fsx::open_lock_file(&path).map_err(|error| Error::io("open the lock", &path, error))?;
        wait_until(&file, Mode::Exclusive, "this project", stop)?;
        Ok(ProjectLock { _file: file })
    }

    /// Waits until no other process answers a prompt in place of an agent.
    pub(crate) fn lock_prompts(&self) -> Result<Option<File>> {
        let file = self.open_lock(PROMPT)?;
        file.as_ref().map_or(Ok(()), |file| wait_for(file, Mode::Exclusive, "the prompts"))?;
        Ok(file)
    }

    fn open_lock(&self, name: &str) -> Result<Option<File>> {
        let path: &Path = &self.layout.lock(name);
        match fsx::open_lock_file(path) {
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
    let mut waited_ms = 0;
    let mut pause_ms = 1;
    loop {
        let tried = match mode {
            Mode::Shared => file.try_lock_shared(),
            Mode::Exclusive => file.try_lock(),
        };
        match tried {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(Error::new(ErrorKind::Io, format!("lock {what}")).because(error));
            }
            Err(TryLockError::WouldBlock) if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) => {
                return Err(Error::new(ErrorKind::Stopped, format!("lock {what}"))
                    .because("another process holds it, and the time is up"));
            }
            Err(TryLockError::WouldBlock) if waited_ms >= WAIT_MS_MAX => {
                return Err(Error::new(ErrorKind::Busy, format!("lock {what}"))
                    .because(format!("another process has held it for {} seconds", WAIT_MS_MAX / 1000))
                    .with_hint("see which piton process is still running, and try again"));
            }
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(pause_ms));
                waited_ms += pause_ms;
                pause_ms = (pause_ms * 2).min(16);
            }
        }
    }
}
