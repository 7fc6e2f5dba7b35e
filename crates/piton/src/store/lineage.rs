//! The ids of a project's checkpoints in order: `indexes/<project>.ids`, 20 bytes each, the newest last.
//!
//! Commits lead from the newest checkpoint to the oldest. A take that has to drop the oldest of ten thousand would read all
//! of them. This file leads there in one step. It is a cache: not synced, only trusted where its last id is the checkpoint
//! that the ref names, and made again from the commits where it is not. Ids of checkpoints that were dropped may precede the
//! others.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::{Objects, ProjectLock, Store};
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ID_BYTES, ObjectId, ProjectId};

const ENTRY: u64 = ID_BYTES as u64;

/// A project's checkpoints by their place, the newest last.
pub(crate) struct Lineage {
    file: File,
    path: PathBuf,
    count: u64,
}

impl Store {
    /// The checkpoints of a project, after `new` was put after `before`. Reads all commits only where the file says
    /// something else.
    pub(crate) fn lineage(
        &self,
        _held: &ProjectLock,
        project: &ProjectId,
        before: Option<CheckpointId>,
        new: CheckpointId,
        objects: &Objects,
    ) -> Result<Lineage> {
        let path = self.layout.lineage(project);
        let known = Lineage::open(path.clone()).filter(|known| known.last() == before && before.is_some());
        let mut lineage = match known {
            Some(known) => known,
            None => {
                let older = self.history(objects, before)?.checkpoints;
                let bytes: Vec<u8> = older.iter().rev().flat_map(|one| *one.id.as_bytes()).collect();
                fsx::replace(&path, &bytes, Durability::Rebuildable)?;
                Lineage::open(path.clone())
                    .ok_or_else(|| Error::damaged(format!("read {}", path.display()), "it is not a file"))?
            }
        };
        lineage.push(new)?;
        Ok(lineage)
    }

    /// Forgets the order of a project's checkpoints: it is not what the file says.
    pub(crate) fn forget_lineage(&self, project: &ProjectId) {
        // Where it cannot be removed, it is found out by its last id or by what the commits say.
        let _ = fsx::remove_file(&self.layout.lineage(project));
    }
}

impl Lineage {
    fn open(path: PathBuf) -> Option<Self> {
        let file = File::options().read(true).write(true).open(&path).ok()?;
        let bytes = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
        // Half of an id at the end was being written when the power failed.
        Some(Self { file, path, count: bytes / ENTRY })
    }

    /// Returns how many ids there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    fn at(&self, place: u64) -> Option<CheckpointId> {
        let mut bytes = [0; ID_BYTES];
        self.file.read_exact_at(&mut bytes, place * ENTRY).ok()?;
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

    /// The oldest of the newest `count` checkpoints; `None` where the commits do not say the same.
    pub(crate) fn oldest_of(&self, count: u64, objects: &Objects) -> Option<CheckpointId> {
        let place = self.count.checked_sub(count)?;
        let id = self.at(place)?;
        let follows = |next: CheckpointId| objects.checkpoint(next).is_ok_and(|next| next.parent == Some(id));
        let is_held = objects.checkpoint(id).is_ok();
        (is_held && self.at(place + 1).is_none_or(follows)).then_some(id)
    }

    /// Leaves out the ids before the newest `count`, once they are more than those.
    pub(crate) fn shrink(&self, count: u64) -> Result<()> {
        let Some(place) = self.count.checked_sub(count).filter(|place| *place > count) else { return Ok(()) };
        let mut bytes = vec![0; usize::try_from(count * ENTRY).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, place * ENTRY).map_err(|error| Error::io("read", &self.path, error))?;
        fsx::replace(&self.path, &bytes, Durability::Rebuildable)
    }
}
