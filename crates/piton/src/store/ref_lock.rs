//! Git's `*.lock` files beside refs and lists of refs.
//!
//! A `*.lock` file of piton is stale from the start: it is put in place complete, with an mtime of 1970. So the next
//! process that holds the project's lock, and therefore knows that no living piton process is using the ref, takes it
//! over at once. A lock file that stock git made is respected until it is ten minutes old and no process has it open.

use std::fs::FileTimes;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempPath;

use super::layout::Layout;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::sys;
use crate::time::Moment;

const STALE_AFTER_SECS: i128 = 10 * 60;

/// Creates `<path>.lock` with these bytes, synced. It is written in another directory and moved, because stock git
/// takes any other file below `refs/`, such as a half-written ref, for a ref. One temporary name for each `by` is
/// enough, as the caller holds that lock; the leftover of a killed process is overwritten. Fails with `Busy` if
/// another program holds the lock file.
pub(super) fn put_lock(layout: &Layout, by: &str, path: &Path, bytes: &[u8], now: Moment) -> Result<PathBuf> {
    let lock = path.with_added_extension("lock");
    let temp = layout.lock(&format!("{}{by}", fsx::TEMP_PREFIX));
    let mut temp = TempPath::try_from_path(temp).map_err(|error| Error::io("write", &lock, error))?;
    let written = sys::open_lock(&temp).and_then(|mut file| {
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH))?;
        sys::sync_file(&file)
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

/// Returns true for a lock file that may be taken over.
pub(super) fn is_stale(lock: &Path, now: Moment) -> bool {
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
        let open = std::fs::File::create(&lock).expect("a file");
        open.set_modified(made).expect("a time");
        let after = |secs: i64| Moment { secs: NOW.secs + secs, ..NOW };
        assert!(!is_stale(&lock, after(601)), "another process has it open");
        drop(open);
        assert_eq!([0, 71, 600, 601].map(|secs| is_stale(&lock, after(secs))), [false, false, false, true]);
    }
}
