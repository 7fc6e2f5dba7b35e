//! The stat caches of projects, as files: git indexes, whose contents only the worktree understands.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::Layout;
use super::lock::ProjectLock;
use super::size::bytes_of;
use crate::error::Result;
use crate::fsx;
use crate::id::ProjectId;

/// Size limit of an index that is read, enough for 10 million files.
pub(super) const INDEX_BYTES_MAX: u64 = 2 << 30;

/// The index files of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Indexes {
    pub(super) layout: Arc<Layout>,
}

impl Indexes {
    /// Returns the bytes of a project's index. Returns `None` if it is missing or unreadable, since it can be created
    /// again.
    /// With `is_unfinished`, returns the index that belongs to the progress in the project's record.
    pub(crate) fn read(
        &self,
        project: &ProjectId,
        is_unfinished: bool,
    ) -> Option<impl Deref<Target = [u8]> + Send + use<>> {
        let path = if is_unfinished { self.layout.unfinished_index(project) } else { self.layout.index(project) };
        fsx::read_large(&path, INDEX_BYTES_MAX).ok().flatten()
    }

    /// Returns the size of a project's index on disk.
    pub(crate) fn bytes(&self, project: &ProjectId) -> u64 {
        bytes_of(&self.layout.index(project))
    }

    /// Returns the path of a project's index, for writing it in pieces.
    pub(crate) fn path(&self, project: &ProjectId) -> PathBuf {
        self.layout.index(project)
    }

    /// Removes the index of a project: the next take reads all files.
    pub(crate) fn forget(&self, _held: &ProjectLock, project: &ProjectId) -> Result<()> {
        fsx::remove_file(&self.layout.index(project))
    }
}
