//! Waiting for kernel locks on open files, with a timeout, a flag to cancel and a callback for the user.

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::sys;

pub(super) const GC: &str = "gc";
pub(super) const GATE: &str = "gate";
pub(super) const STORE: &str = "store";
pub(super) const SIZE: &str = "size";
/// Longest pause between two attempts to take a lock. Short, so that a process that has waited for a long time does not
/// lose the lock to newcomers.
pub(super) const PAUSE_MS_MAX: u64 = 4;
/// Timeout for locks. Longer than any step under `store` exclusive or a project's lock should take.
pub(super) const WAIT_MS_MAX: u64 = 30_000;
/// Time after which the callback is called with the lock holder.
const SILENT_MS_MAX: u64 = 500;

/// A wait for a lock that another process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Locked resource, such as `the store`.
    pub what: String,
    /// Lock holder, as far as the system tells: `` `piton prune` (process 1234) ``.
    pub holder: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiting for {}, which holds {}; {} s at most", self.holder, self.what, WAIT_MS_MAX / 1000)
    }
}

type Tell = dyn Fn(&Waiting) + Send + Sync;

/// Callback for waits.
#[derive(Clone, Default)]
pub(super) struct WaitCallback(Option<Arc<Tell>>);

impl WaitCallback {
    pub(super) fn new(tell: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }
}

impl fmt::Debug for WaitCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(_)" } else { "None" })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Shared,
    Exclusive,
}

/// Lock of a base: no other process makes a store or changes a session record in it while it is held.
#[derive(Debug)]
pub(crate) struct BaseLock {
    _dir: File,
}

/// Locks the base directory. Fails with `Busy` after 30 seconds.
pub(crate) fn lock_base(base: &Path, what: &str) -> Result<BaseLock> {
    let dir = File::open(base).map_err(|error| Error::io("open", base, error))?;
    wait_until(&dir, Mode::Exclusive, what, None, &WaitCallback::default())?;
    Ok(BaseLock { _dir: dir })
}

/// Blocks until the lock is taken. Fails with `Busy` after 30 seconds (a process that is suspended, not dead, must not
/// block all others unnoticed), and with `Stopped` once `progress` is cancelled. A free lock is taken even then.
pub(super) fn wait_until(
    file: &File,
    mode: Mode,
    what: &str,
    progress: Option<&Progress>,
    told: &WaitCallback,
) -> Result<()> {
    if wait_at_most(file, mode, what, WAIT_MS_MAX, progress, told)? {
        return Ok(());
    }
    if progress.is_some_and(Progress::is_cancelled) {
        return Err(stopped(what, file));
    }
    Err(held_for_too_long(what, file))
}

pub(super) fn stopped(what: &str, file: &File) -> Error {
    Error::new(ErrorKind::Stopped, format!("lock {what}"))
        .because(format!("{} holds it, and the wait was cut short", holder_of(file)))
        .with_hint("try again when that process has ended")
}

pub(super) fn held_for_too_long(what: &str, file: &File) -> Error {
    Error::new(ErrorKind::Busy, format!("lock {what}"))
        .because(format!("{} has held it for {} seconds", holder_of(file), WAIT_MS_MAX / 1000))
        .with_hint("see whether it is still at work, and try again")
}

/// Describes the holder of a lock for people.
fn holder_of(file: &File) -> String {
    let holders = sys::lock_holders(file);
    let Some((process, command)) = holders.first() else {
        return "another process".to_owned();
    };
    match holders.len() - 1 {
        0 => format!("`{command}` (process {process})"),
        1 => format!("`{command}` (process {process}) with one other"),
        others => format!("`{command}` (process {process}) with {others} others"),
    }
}

/// Waits for a lock. Returns false after `wait_ms_max`, or once `progress` is cancelled.
pub(super) fn wait_at_most(
    file: &File,
    mode: Mode,
    what: &str,
    wait_ms_max: u64,
    progress: Option<&Progress>,
    told: &WaitCallback,
) -> Result<bool> {
    let is_cancelled = || progress.is_some_and(Progress::is_cancelled);
    let mut waited_ms = 0;
    let mut pause_ms = 1;
    let mut tell = told.0.as_ref();
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
            Err(TryLockError::WouldBlock) if waited_ms >= wait_ms_max || is_cancelled() => return Ok(false),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(pause_ms));
                waited_ms += pause_ms;
                pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
            }
        }
        if waited_ms >= SILENT_MS_MAX
            && let Some(tell) = tell.take()
        {
            tell(&Waiting { what: what.to_owned(), holder: holder_of(file) });
        }
    }
}
