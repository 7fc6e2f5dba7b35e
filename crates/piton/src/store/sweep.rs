//! Removing what killed processes left: temporary files that nobody has written to for a while.

use super::{Store, StoreLock};
use crate::fsx;
use crate::sys;
use crate::time::Moment;

/// A process writes to its temporary files all the time. One that was stopped for longer loses its checkpoint, with an
/// error, and nothing else.
const ABANDONED_AFTER_SECS: i128 = 60 * 60;
/// A session that was resumed after that long starts anew: its next prompt makes a new note.
const SESSION_FORGOTTEN_AFTER_SECS: i128 = 30 * 24 * 60 * 60;

impl Store {
    /// Removes temporary files that were abandoned, and notes on sessions that are long over. What cannot be removed now is there next time.
    ///
    /// No reader looks at these names, so others may be at work meanwhile.
    pub(crate) fn sweep(&self, _held: &StoreLock, now: Moment) {
        for dir in self.layout.with_temporaries() {
            for name in fsx::names_in(&dir).unwrap_or_default() {
                let path = dir.join(&name);
                let is_temporary = name.as_encoded_bytes().starts_with(fsx::TEMP_PREFIX.as_bytes());
                if is_temporary && is_older(&path, ABANDONED_AFTER_SECS, now) {
                    let _ = fsx::remove_file(&path);
                }
            }
        }
        for dir in self.session_dirs() {
            for name in fsx::names_in(&dir).unwrap_or_default() {
                let path = dir.join(&name);
                if is_older(&path, SESSION_FORGOTTEN_AFTER_SECS, now) {
                    let _ = fsx::remove_file(&path);
                }
            }
        }
    }
}

fn is_older(path: &std::path::Path, than_secs: i128, now: Moment) -> bool {
    let is_old = |stat: sys::Stat| now.as_nanos() - stat.mtime.as_nanos() > than_secs * 1_000_000_000;
    sys::stat_path(path).is_ok_and(|stat| stat.kind == sys::Kind::File && is_old(stat))
}
