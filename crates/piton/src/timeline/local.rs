//! Local files in the history, by name: which of them changed between two checkpoints. Their contents are never read.

use std::collections::HashMap;

use crate::error::Result;
use crate::history::History;
use crate::id::{CheckpointId, ObjectId};
use crate::relpath;
use crate::store::Objects;

/// Local files of the checkpoints of a history.
pub(super) struct LocalHistory<'a> {
    objects: &'a Objects,
    history: &'a History,
    /// State of the local files at each checkpoint that has some.
    states: HashMap<CheckpointId, ObjectId>,
}

impl<'a> LocalHistory<'a> {
    pub(super) fn of(history: &'a History) -> Result<Self> {
        Ok(Self { objects: history.objects(), history, states: history.local_states()? })
    }

    /// Returns the local files at or below `paths` that differ between two checkpoints, by path. Without a checkpoint,
    /// there are none before it. Fails with `Damaged` if they cannot be read.
    pub(super) fn changed(
        &self,
        from: Option<CheckpointId>,
        to: CheckpointId,
        paths: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>> {
        let state = |id: CheckpointId| self.states.get(&id).copied();
        let (from, to) = (from.and_then(state), state(to));
        if from == to {
            return Ok(Vec::new());
        }
        let tree = |state: Option<ObjectId>| state.map(|state| self.history.local_tree(state)).transpose();
        let changes = self.objects.compare_trees(tree(from)?, tree(to)?)?;
        let is_meant = |path: &[u8]| paths.is_empty() || paths.iter().any(|wanted| relpath::is_within(path, wanted));
        Ok(changes.into_iter().map(|change| change.path).filter(|path| is_meant(path)).collect())
    }
}
