//! Removing what killed processes left: temporary files that nobody has written to for a while.

use std::path::Path;

use super::{Store, StoreLock};
use crate::fsx;
use crate::time::Moment;

/// A process writes to its temporary files all the time. One that was stopped for longer loses its checkpoint, with an
/// error, and nothing else.
const ABANDONED_AFTER_SECS: i128 = 60 * 60;
/// A session that was resumed after that long starts anew: its next prompt makes a new note.
const SESSION_FORGOTTEN_AFTER_SECS: i128 = 30 * 24 * 60 * 60;

impl Store {
    /// Removes temporary files that were abandoned, and notes on sessions that are long over. What cannot be removed now is
    /// there next time.
    ///
    /// No reader looks at these names, so others may be at work meanwhile.
    pub(crate) fn sweep(&self, _held: &StoreLock, now: Moment) {
        for dir in self.layout.with_temporaries() {
            remove_older(&dir, fsx::TEMP_PREFIX, ABANDONED_AFTER_SECS, now);
        }
        for dir in [self.layout.turns(), self.layout.notices()] {
            remove_older(&dir, "", SESSION_FORGOTTEN_AFTER_SECS, now);
        }
    }
}

/// Removes the files in a directory whose names begin so and that are so old.
fn remove_older(dir: &Path, prefix: &str, than_secs: i128, now: Moment) {
    for name in fsx::names_in(dir).unwrap_or_default() {
        let path = dir.join(&name);
        let is_file = || path.symlink_metadata().is_ok_and(|found| found.is_file());
        if name.as_encoded_bytes().starts_with(prefix.as_bytes()) && fsx::is_older(&path, than_secs, now) && is_file() {
            let _ = fsx::remove_file(&path);
        }
    }
}
