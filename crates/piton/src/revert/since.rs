//! The turns since a checkpoint, as stretches of history between the edits of the user.

use std::collections::HashMap;

use super::{RevertOptions, Stretch, end_of, gone, of_others, open_ended};
use crate::error::Result;
use crate::id::CheckpointId;
use crate::store::Checkpoint;
use crate::turns::{Turn, TurnEnd, turns_of};

/// Returns the stretches of history in which turns worked that began from `target` or later, the newest first. Turns
/// that overlap, and turns without a change between them, are one stretch. Turns that changed nothing are left out.
///
/// The turns of the session that asks are meant, or else those of the session whose turn began first. Fails with
/// `NeedsConsent` if other sessions have turns since, or if the end of a turn was not reported, unless the options allow
/// for that.
pub(super) fn stretches(
    checkpoints: &[Checkpoint],
    target: CheckpointId,
    options: RevertOptions<'_>,
) -> Result<Vec<Stretch>> {
    // Checkpoints by time, the oldest first.
    let oldest_first: Vec<&Checkpoint> = checkpoints.iter().rev().collect();
    let times: HashMap<CheckpointId, usize> = oldest_first.iter().zip(0..).map(|(one, at)| (one.id, at)).collect();
    let time = |id: CheckpointId| times.get(&id).copied().ok_or_else(|| gone(id));
    let since = time(target)?;
    let mut turns: Vec<(usize, Turn)> = Vec::new();
    for turn in turns_of(checkpoints) {
        let began = time(turn.before)?;
        if began >= since && !is_idle(&turn, began, &times, &oldest_first) {
            turns.push((began, turn));
        }
    }
    turns.sort_by_key(|(began, _)| *began);
    let own = options.session.or_else(|| turns.first().map(|(_, turn)| turn.record.session.as_str()));
    let is_other = |turn: &&Turn| Some(turn.record.session.as_str()) != own;
    let mut others = turns.iter().map(|(_, turn)| turn).filter(is_other).peekable();
    if !options.across_sessions && others.peek().is_some() {
        return Err(of_others(others, "would be taken back, too"));
    }
    // Beginning and end of each stretch; no end if it is the current state.
    let mut stretches: Vec<(usize, Option<usize>)> = Vec::new();
    for (began, turn) in &turns {
        if matches!(turn.end, TurnEnd::OpenEnded(_)) && !options.with_own_edits {
            return Err(open_ended(&format!(" from the work since {}", turn.before.short())));
        }
        let ended = end_of(turn)?.map(time).transpose()?;
        match stretches.last_mut() {
            Some((_, None)) => {}
            Some((_, last @ Some(_)))
                if last.is_some_and(|end| *began <= end || oldest_first[*began].tree == oldest_first[end].tree) =>
            {
                *last = ended.max(*last).filter(|_| ended.is_some());
            }
            _ => stretches.push((*began, ended)),
        }
    }
    let id = |at: usize| oldest_first[at].id;
    Ok(stretches.into_iter().rev().map(|(start, end)| Stretch { start: id(start), end: end.map(id) }).collect())
}

/// Returns true if a turn ended in the state from which it began.
fn is_idle(turn: &Turn, began: usize, times: &HashMap<CheckpointId, usize>, checkpoints: &[&Checkpoint]) -> bool {
    let (TurnEnd::Reported(end) | TurnEnd::OpenEnded(end)) = turn.end else { return false };
    times.get(&end).is_some_and(|end| checkpoints[*end].tree == checkpoints[began].tree)
}
