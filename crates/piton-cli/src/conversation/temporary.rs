//! Temporary files beside conversations: the beginning of a fork that is being written, or that a killed process left.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Prefix of their names, which no agent reads.
pub(super) const TEMP_PREFIX: &str = ".piton-tmp-";

/// Returns true for the name of such a file.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes())
}

/// Removes temporary files of killed processes. A process that is writing one right now fails, and says so.
pub(super) fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if is_temporary(&entry.file_name()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
