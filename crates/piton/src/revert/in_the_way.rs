//! Later turns and edits that are in the way of a revert.

use super::{RevertConflict, State};
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

/// Returns the conflicts with the later changes of their paths. `checkpoints` are those of the project, newest first,
/// and `since` is the one in which the reverted turn ended.
pub(super) fn explain(
    conflicts: &[Conflict],
    since: CheckpointId,
    checkpoints: &[Checkpoint],
    current: &State,
    objects: &Objects,
) -> Result<Vec<RevertConflict>> {
    let end = checkpoints.iter().position(|checkpoint| checkpoint.id == since).unwrap_or(0);
    let later: Vec<&Checkpoint> = checkpoints[..=end].iter().rev().collect();
    let mut explained = Vec::new();
    for conflict in conflicts {
        let mut in_the_way: Vec<InTheWay> = Vec::new();
        for (at, before) in later.iter().enumerate() {
            let after = later.get(at + 1).map_or_else(|| current.clone(), |next| State::Tree(next.tree));
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
        explained.push(RevertConflict { conflict: conflict.clone(), in_the_way });
    }
    Ok(explained)
}
