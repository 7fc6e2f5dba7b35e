//! Names of git's lock files that a restore takes, recorded before it takes them: a killed restore must not leave the
//! user's repository locked.

use std::path::Path;

use super::GitStates;
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::{ProjectId, content_id};
use crate::relpath::{escape, unescape};
use crate::store::ProjectLock;
use crate::sys;

const LOCKS_BYTES_MAX: u64 = 64 << 20;
/// Size limit of a lock file that is compared.
const LOCK_BYTES_MAX: u64 = 256 << 20;

impl GitStates {
    fn locks_path(&self, project: &ProjectId) -> std::path::PathBuf {
        self.dir(project).join("locks")
    }

    /// Records the files that will be made to take locks: each with its contents, or without if it is only temporary.
    pub(crate) fn note_locks(
        &self,
        _locked: &ProjectLock,
        project: &ProjectId,
        common: &Path,
        files: &[(Vec<u8>, Option<Vec<u8>>)],
    ) -> Result<()> {
        let line = |(path, bytes): &(Vec<u8>, Option<Vec<u8>>)| {
            let file = common.join(sys::name_from_bytes(path));
            let id = bytes.as_ref().map_or_else(|| "-".to_owned(), |bytes| content_id(bytes).to_string());
            format!("{id} {}\n", escape(sys::path_bytes(&file)))
        };
        let text: String = files.iter().map(line).collect();
        fsx::replace(&self.locks_path(project), text.as_bytes(), Durability::Synced)
    }

    /// Records that the lock files are gone.
    pub(crate) fn clear_locks(&self, _locked: &ProjectLock, project: &ProjectId) -> Result<()> {
        fsx::remove_file(&self.locks_path(project))
    }

    /// Returns true if a restore was killed, and may have left lock files.
    pub(crate) fn has_stale_locks(&self, project: &ProjectId) -> bool {
        fsx::exists(&self.locks_path(project)).unwrap_or(false)
    }

    /// Removes the lock files of a restore that was killed: those on record with exactly the contents that it wrote. The
    /// lock of the project shows that no restore is running.
    pub(crate) fn remove_stale_locks(&self, locked: &ProjectLock, project: &ProjectId) -> Result<()> {
        let Some(text) = fsx::read_small(&self.locks_path(project), LOCKS_BYTES_MAX)? else { return Ok(()) };
        for line in text.split(|byte| *byte == b'\n') {
            let Some(at) = line.iter().position(|byte| *byte == b' ') else { continue };
            let Some(path) = unescape(&line[at + 1..]).map(sys::path_from_bytes) else { continue };
            let Some(bytes) = fsx::read_small(&path, LOCK_BYTES_MAX)? else { continue };
            if &line[..at] == b"-" || content_id(&bytes).to_string().as_bytes() == &line[..at] {
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(Error::io("remove", &path, error));
                    }
                    _ => {}
                }
            }
        }
        self.clear_locks(locked, project)
    }
}
