//! Later turns and edits that are in the way of a revert.

use super::RevertConflict;
use super::states::State;
use crate::error::Result;
use crate::id::CheckpointId;
use crate::merge::Conflict;
use crate::store::{Checkpoint, Objects, TurnRecord};

/// A later change that is in the way of a revert.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InTheWay {
    /// A later turn.
    Turn(Box<TurnRecord>),
    /// An edit between turns: the user's, or another program's.
    OwnEdits,
}

/// Input for finding what is in the way.
pub(super) struct Explain<'a> {
    /// Checkpoints of the project, newest first.
    pub(super) checkpoints: &'a [Checkpoint],
    pub(super) current: &'a State,
    pub(super) objects: &'a Objects,
}

impl Explain<'_> {
    /// Returns a conflict with the later changes of its paths. `since` is the checkpoint in which the turn ended.
    pub(super) fn run(&self, conflict: Conflict, since: CheckpointId) -> Result<RevertConflict> {
        let Self { checkpoints, current, objects } = self;
        let end = checkpoints.iter().position(|checkpoint| checkpoint.id == since).unwrap_or(0);
        let later: Vec<&Checkpoint> = checkpoints[..=end].iter().rev().collect();
        let mut in_the_way: Vec<InTheWay> = Vec::new();
        for (at, before) in later.iter().enumerate() {
            let after = later.get(at + 1).map_or_else(|| (*current).clone(), |next| State::Tree(next.tree));
            let before_tree = State::Tree(before.tree);
            let mut is_changed = false;
            for path in conflict.others.iter().chain([&conflict.path]) {
                is_changed |= before_tree.entry(path, objects)? != after.entry(path, objects)?;
            }
            // A turn that began from a checkpoint made the changes after it.
            let by = before.turns.first().map_or(InTheWay::OwnEdits, |turn| InTheWay::Turn(Box::new(turn.clone())));
            if is_changed && in_the_way.last() != Some(&by) {
                in_the_way.push(by);
            }
        }
        Ok(RevertConflict { conflict, in_the_way })
    }
}

/// Returns a conflict with edits of the user: all turns since then are reverted.
pub(super) fn of_user(conflict: Conflict) -> RevertConflict {
    RevertConflict { conflict, in_the_way: vec![InTheWay::OwnEdits] }
}
