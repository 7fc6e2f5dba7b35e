//! The checkpoints of projects in order: from the ref down to the end of the history, with the turns of the ledger.

use std::sync::Arc;

use super::boundary::Boundary;
use super::catalog::Catalog;
use super::commit::{Checkpoint, Readable};
use super::layout::Layout;
use super::ledger::Ledger;
use super::lineage::Lineage;
use super::lock::{ProjectLock, StoreLock};
use super::object_db::ObjectDb;
use super::objects::Objects;
use super::pins::Pins;
use super::refs::Refs;
use crate::error::{ErrorKind, Result};
use crate::fsx;
use crate::id::{CheckpointId, ProjectId};

/// The histories of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Histories {
    pub(super) layout: Arc<Layout>,
    pub(super) objects: ObjectDb,
    pub(super) refs: Refs,
    pub(super) boundary: Boundary,
    pub(super) catalog: Catalog,
    pub(super) ledger: Ledger,
    pub(super) pins: Pins,
}

impl Histories {
    /// Returns the checkpoints of a project together with their turns and marks.
    pub(crate) fn of(&self, objects: &Objects, project: &ProjectId) -> Result<Readable> {
        // In this order: a take moves the ref first and cuts afterwards. With a boundary that is newer than the ref
        // that was read, the walk would miss it and continue among objects that are gone.
        let ends = self.boundary.ends()?;
        let newest = self.refs.newest(project)?;
        if newest.is_none() {
            self.catalog.refuse_lost_ref(|other| other != project)?;
        }
        let mut history = objects.readable_history(newest, &ends)?;
        self.pins.attach(objects, project, &mut history)?;
        self.ledger.assign(project, &mut history.checkpoints);
        Ok(history)
    }

    /// Returns a checkpoint and its ancestors, up to the row number `rows_max`. The caller holds the project's lock.
    pub(crate) fn up_to(
        &self,
        objects: &Objects,
        newest: Option<CheckpointId>,
        rows_max: usize,
    ) -> Result<Vec<Checkpoint>> {
        Ok(objects.readable_history_to(newest, &self.boundary.ends()?, rows_max)?.checkpoints)
    }

    /// Returns a checkpoint and its ancestors. The caller holds the project's lock.
    pub(crate) fn from(&self, objects: &Objects, newest: Option<CheckpointId>) -> Result<Readable> {
        objects.readable_history(newest, &self.boundary.ends()?)
    }

    /// Returns a checkpoint and its ancestors, read from a fresh list of packs.
    pub(crate) fn now(&self, newest: Option<CheckpointId>) -> Result<Readable> {
        self.from(&self.objects.open(&StoreLock::none())?, newest)
    }

    /// Returns true if `id` is `newest` or one of its ancestors. Returns false if the history from `newest` is damaged.
    pub(crate) fn leads_to(&self, newest: Option<CheckpointId>, id: CheckpointId) -> Result<bool> {
        match self.now(newest) {
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
            history => Ok(history?.checkpoints.iter().any(|checkpoint| checkpoint.id == id)),
        }
    }

    /// Returns the rows of a project by position, after appending `new`, whose parent is `before`. Reads all commits only
    /// if the last id in the file is not that of the newest row.
    pub(crate) fn lineage(
        &self,
        _held: &ProjectLock,
        project: &ProjectId,
        before: Option<CheckpointId>,
        new: CheckpointId,
        objects: &Objects,
    ) -> Result<Lineage> {
        Lineage::extended(&self.layout.lineage(project), objects.row_at(before), new, || {
            let older = self.from(objects, before)?.checkpoints;
            let rows = older.iter().rev().filter(|one| one.is_row());
            Ok(rows.flat_map(|one| *one.id.as_bytes()).collect())
        })
    }

    /// Removes the cached order of a project's rows, which is out of date.
    pub(crate) fn forget_lineage(&self, project: &ProjectId) {
        // If it cannot be removed, its last id or the commits show that it is stale.
        let _ = fsx::remove_file(&self.layout.lineage(project));
    }
}
