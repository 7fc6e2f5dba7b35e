//! Index files of the projects. The store keeps them for the stat cache, and does not interpret them.
//!
//! An index can be rebuilt, so it is not synced, and a missing one costs time only.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::Layout;
use super::lock::ProjectLock;
use super::size::bytes_of;
use crate::error::{Error, Result};
use crate::fsx;
use crate::id::ProjectId;

/// Size limit of an index that is read, enough for 10 million files.
pub(super) const INDEX_BYTES_MAX: u64 = 2 << 30;

/// Index of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexKind {
    /// Index that belongs to the newest checkpoint.
    Newest,
    /// Index that belongs to the progress of an unfinished checkpoint.
    Unfinished,
    /// Index of the local files of the newest checkpoint.
    Local,
}

/// The index files.
#[derive(Debug, Clone)]
pub(crate) struct Indexes {
    pub(super) layout: Arc<Layout>,
}

impl Indexes {
    /// Returns the bytes of an index. Returns `None` if it is missing or unreadable.
    pub(crate) fn read(
        &self,
        project: &ProjectId,
        kind: IndexKind,
    ) -> Option<impl Deref<Target = [u8]> + Send + use<>> {
        fsx::read_large(&self.path(project, kind), INDEX_BYTES_MAX).ok().flatten()
    }

    /// Replaces an index by the bytes that `write` writes, atomically. Returns the result of `write`.
    pub(crate) fn replace<T>(
        &self,
        project: &ProjectId,
        kind: IndexKind,
        write: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> Result<T> {
        if kind == IndexKind::Unfinished {
            fsx::ensure_dir(&self.layout.unfinished())?;
        }
        let path = self.path(project, kind);
        let mut temp = fsx::temp_file(path.parent().expect("an index is in a directory"))?;
        let written = write(temp.as_file_mut()).map_err(|error| Error::io("write", &path, error))?;
        fsx::persist_large(temp.into_temp_path(), &path)?;
        Ok(written)
    }

    /// Returns the size of a project's index on disk.
    pub(crate) fn bytes(&self, project: &ProjectId) -> u64 {
        bytes_of(&self.path(project, IndexKind::Newest))
    }

    /// Removes the indexes of a project: the next take reads all files.
    pub(crate) fn forget(&self, _held: &ProjectLock, project: &ProjectId) -> Result<()> {
        fsx::remove_file(&self.path(project, IndexKind::Local))?;
        fsx::remove_file(&self.path(project, IndexKind::Newest))
    }

    fn path(&self, project: &ProjectId, kind: IndexKind) -> PathBuf {
        match kind {
            IndexKind::Newest => self.layout.index(project),
            IndexKind::Unfinished => self.layout.unfinished_index(project),
            IndexKind::Local => self.layout.local_index(project),
        }
    }
}
