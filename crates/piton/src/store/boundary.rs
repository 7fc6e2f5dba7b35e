//! The ends of histories: git's `shallow` file, which lists the commits whose parents were dropped.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::sync::Arc;

use super::layout::Layout;
use super::lock::{Exclusive, Locks, ProjectLock};
use super::object_db::remove_commit_graph;
use super::ref_lock::put_lock;
use super::refs::{REFS_BYTES_MAX, moved_meanwhile};
use super::wait::GC;
use crate::error::{Error, Result};
use crate::fsx;
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::time::Moment;

/// Lock for the file that lists the ends of histories.
const SHALLOW: &str = "shallow";
/// Number of attempts to rewrite the ends of histories while stock git changes them.
const BOUNDARY_CHANGES_MAX: u32 = 16;

/// The ends of the histories of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Boundary {
    pub(super) layout: Arc<Layout>,
    pub(super) locks: Locks,
}

impl Boundary {
    /// Returns the checkpoints whose parents were dropped: the ends of histories.
    pub(crate) fn ends(&self) -> Result<HashSet<CheckpointId>> {
        let text = fsx::read_small(&self.layout.shallow(), REFS_BYTES_MAX)?.unwrap_or_default();
        Ok(text.split(|byte| *byte == b'\n').filter_map(ObjectId::from_hex).collect())
    }

    /// Drops all checkpoints before each of `cuts`, which become ends of histories. No id and no date changes.
    ///
    /// The previous end stays on record: a branch made with stock git, or another project's history, may still lead
    /// there. A garbage collection removes it once it is unreachable.
    ///
    /// All projects share the file, so that its own lock comes last in the order of locks.
    pub(crate) fn cut_before(
        &self,
        _held: &ProjectLock,
        project: &ProjectId,
        cuts: &[CheckpointId],
        now: Moment,
    ) -> Result<()> {
        self.rewrite(project.as_str(), now, |ends| ends.extend(cuts))
    }

    /// Removes ends of histories whose checkpoints are gone.
    pub(super) fn forget(&self, gone: &HashSet<CheckpointId>, now: Moment) -> Result<()> {
        self.rewrite(GC, now, |ends| ends.retain(|id| !gone.contains(id)))
    }

    /// Ends histories at `cuts`, and removes the invalid ends in `gone`.
    pub(super) fn repair(
        &self,
        _alone: &Exclusive,
        cuts: &BTreeSet<CheckpointId>,
        gone: &BTreeSet<CheckpointId>,
        now: Moment,
    ) -> Result<()> {
        self.rewrite(GC, now, |ends| {
            ends.retain(|id| !gone.contains(id));
            ends.extend(cuts);
        })
    }

    /// Replaces the file that lists the ends of histories. `by` is part of the name of the temporary file.
    fn rewrite(&self, by: &str, now: Moment, change: impl Fn(&mut BTreeSet<CheckpointId>)) -> Result<()> {
        let _guard = self.locks.hold(SHALLOW, "the end of the history")?;
        for _ in 0..BOUNDARY_CHANGES_MAX {
            if self.try_rewrite(by, now, &change)? {
                return Ok(());
            }
        }
        Err(moved_meanwhile("cut the history"))
    }

    /// Returns false if stock git changed the file in the meantime, as its garbage collection does.
    fn try_rewrite(&self, by: &str, now: Moment, change: &impl Fn(&mut BTreeSet<CheckpointId>)) -> Result<bool> {
        let before = self.ends()?;
        let mut ends: BTreeSet<_> = before.iter().copied().collect();
        change(&mut ends);
        let text: String = ends.iter().map(|id| format!("{id}\n")).collect();
        let path = self.layout.shallow();
        let lock = put_lock(&self.layout, by, &path, text.as_bytes(), now)?;
        if self.ends()? != before {
            fsx::remove_file(&lock)?;
            return Ok(false);
        }
        remove_commit_graph(&self.layout)?;
        // Stock git treats an empty file as a missing one.
        let moved = if ends.is_empty() {
            fsx::remove_file(&path)?;
            fs::remove_file(&lock)
        } else {
            fs::rename(&lock, &path)
        };
        moved.map_err(|error| Error::io("replace", &path, error))?;
        fsx::sync_dir(self.layout.store())?;
        Ok(true)
    }
}
