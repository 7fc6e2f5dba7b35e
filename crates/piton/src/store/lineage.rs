//! The ids of a project's rows in order: `indexes/<project>.rows`, 20 bytes each, the newest last.
//!
//! Commits link from the newest checkpoint to the oldest, so that a take that has to drop the oldest of ten thousand
//! would read all of them. This file finds it in one step. It is a cache: not synced, trusted only if its last id is
//! that of the newest row, and otherwise rebuilt from the commits. Ids of dropped checkpoints may precede the others.
//! The ends of turns and the steps within them are not in it.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::Objects;
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ID_BYTES, ObjectId};
use crate::sys;

const ENTRY: u64 = ID_BYTES as u64;

/// A project's rows by position, the newest last.
pub(crate) struct Lineage {
    file: File,
    path: PathBuf,
    count: u64,
}

impl Lineage {
    /// Returns the rows of a project after appending `new`; the row before it is `before`. Calls `older` for the ids up to
    /// `before`, the oldest first, only if the last id in the file is not `before`.
    pub(super) fn extended(
        path: &Path,
        before: Option<CheckpointId>,
        new: CheckpointId,
        older: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let known = Self::open(path.to_path_buf()).filter(|known| known.last() == before && before.is_some());
        let mut lineage = match known {
            Some(known) => known,
            None => {
                fsx::replace(path, &older()?, Durability::Rebuildable)?;
                Self::open(path.to_path_buf())
                    .ok_or_else(|| Error::damaged(format!("read {}", path.display()), "it is not a file"))?
            }
        };
        lineage.push(new)?;
        Ok(lineage)
    }

    fn open(path: PathBuf) -> Option<Self> {
        let file = File::options().read(true).write(true).open(&path).ok()?;
        let bytes = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
        // A partial id at the end is left by a power cut.
        Some(Self { file, path, count: bytes / ENTRY })
    }

    /// Returns the number of ids.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    fn at(&self, place: u64) -> Option<CheckpointId> {
        let mut bytes = [0; ID_BYTES];
        sys::read_exact_at(&self.file, &mut bytes, place * ENTRY).ok()?;
        Some(ObjectId::from_bytes(bytes))
    }

    fn last(&self) -> Option<CheckpointId> {
        self.at(self.count.checked_sub(1)?)
    }

    fn push(&mut self, new: CheckpointId) -> Result<()> {
        let failed = |error| Error::io("write", &self.path, error);
        self.file.seek(SeekFrom::Start(self.count * ENTRY)).map_err(failed)?;
        self.file.write_all(new.as_bytes()).map_err(failed)?;
        self.count += 1;
        Ok(())
    }

    /// Returns the oldest of the newest `count` rows; `None` if the commits disagree.
    pub(crate) fn oldest_of(&self, count: u64, objects: &Objects) -> Option<CheckpointId> {
        let place = self.count.checked_sub(count)?;
        let id = self.at(place)?;
        let follows =
            |next: CheckpointId| objects.checkpoint(next).is_ok_and(|next| objects.row_at(next.parent) == Some(id));
        let is_held = objects.checkpoint(id).is_ok();
        (is_held && self.at(place + 1).is_none_or(follows)).then_some(id)
    }

    /// Drops the ids before the newest `count`, once there are more than `count` of them.
    pub(crate) fn shrink(&self, count: u64) -> Result<()> {
        let Some(place) = self.count.checked_sub(count).filter(|place| *place > count) else { return Ok(()) };
        let mut bytes = vec![0; usize::try_from(count * ENTRY).unwrap_or(0)];
        sys::read_exact_at(&self.file, &mut bytes, place * ENTRY)
            .map_err(|error| Error::io("read", &self.path, error))?;
        fsx::replace(&self.path, &bytes, Durability::Rebuildable)
    }
}
