//! The merges of a revert: one for each stretch of work that is taken back, the newest first.

use std::collections::BTreeSet;

use super::RevertOptions;
use super::states::{State, StateContents};
use super::trees::{Selection, Trees};
use crate::error::Result;
use crate::id::CheckpointId;
use crate::merge::{self, Conflict, ConflictReason, Entry, MergedContents, MergedEntry, PathChange};

/// A stretch of work that is taken back: one turn, or several without an edit of the user between them.
pub(super) struct Step {
    pub(super) start: State,
    /// State in which it ended. `None` for the current files.
    pub(super) end: Option<State>,
    /// Checkpoint after which everything is later than the step.
    pub(super) since: CheckpointId,
}

/// Result of the merges.
pub(super) struct Merged {
    /// Changes that turn the current files into the result.
    pub(super) changes: Vec<PathChange>,
    /// Conflicts, each with the step that it prevents.
    pub(super) conflicts: Vec<(usize, Conflict)>,
}

/// Takes the steps back one after the other, the newest first. If conflicts are to be skipped, no step changes a path
/// that conflicts in any of them.
pub(super) fn merge_steps(
    steps: &[Step],
    contents: &mut StateContents<'_>,
    options: RevertOptions<'_>,
) -> Result<Merged> {
    let mut excluded = BTreeSet::new();
    let mut conflicts = Vec::new();
    loop {
        let merged = merge_once(steps, contents, options, &excluded)?;
        let found = merged.conflicts.iter().flat_map(|(_, conflict)| conflict.others.iter().chain([&conflict.path]));
        let known = excluded.len();
        excluded.extend(found.cloned());
        let is_final = steps.len() == 1 || !options.skip_conflicts || excluded.len() == known;
        conflicts.extend(merged.conflicts);
        if is_final {
            return Ok(Merged { changes: merged.changes, conflicts });
        }
    }
}

fn merge_once(
    steps: &[Step],
    contents: &mut StateContents<'_>,
    options: RevertOptions<'_>,
    excluded: &BTreeSet<Vec<u8>>,
) -> Result<Merged> {
    let current = contents.now;
    let mut ours = current.clone();
    let (mut excluded, mut conflicts) = (excluded.clone(), Vec::new());
    for (at, step) in steps.iter().enumerate() {
        let selection = Selection { options, excluded: &excluded };
        let base = step.end.as_ref().unwrap_or(current);
        let (trees, uncovered) = Trees::read([base, &ours, &step.start], &selection, contents)?;
        let merge = merge::merge_trees(&trees.base, &trees.ours, &trees.theirs, &mut |id| contents.read(id))?;
        for mut conflict in uncovered.into_iter().chain(merge.conflicts) {
            if at > 0 {
                refer_to_current(&mut conflict, &ours, contents)?;
            }
            excluded.extend(conflict.others.iter().chain([&conflict.path]).cloned());
            conflicts.push((at, conflict));
        }
        if steps.len() == 1 {
            return Ok(Merged { changes: merge.changes, conflicts });
        }
        ours = ours.with(merge.changes, contents)?;
    }
    let changes = current.changes_to(&ours, contents.objects)?.into_iter();
    let changes = changes.filter_map(|change| {
        let (old, new) = (change.old.and_then(Entry::of), change.new.and_then(Entry::of));
        let new = new.map(|new| MergedEntry { kind: new.kind, contents: MergedContents::Stored(new.id) });
        (old.is_some() || new.is_some()).then_some(PathChange { path: change.path, old, new, renamed_from: None })
    });
    Ok(Merged { changes: changes.collect(), conflicts })
}

/// Makes the lines of a conflict those of the current file. They are given as lines of an intermediate result.
fn refer_to_current(conflict: &mut Conflict, ours: &State, contents: &StateContents<'_>) -> Result<()> {
    let ConflictReason::Lines(lines) = &mut conflict.reason else { return Ok(()) };
    let text = |state: &State| match state.entry(&conflict.path, contents.objects)? {
        Some((_, id)) => contents.read(id),
        None => Ok(None),
    };
    let hunks = text(contents.now)?.zip(text(ours)?).and_then(|(current, ours)| merge::hunks(&current, &ours));
    let hunks = hunks.unwrap_or_default();
    // Maps a line; within a hunk, to its beginning or to its end.
    let map = |line: usize, is_end: bool| {
        let before = hunks.iter().take_while(|hunk| hunk.new.start < line || hunk.new.start == line && is_end).last();
        match before {
            Some(hunk) if line < hunk.new.end => {
                if is_end {
                    hunk.old.end
                } else {
                    hunk.old.start
                }
            }
            Some(hunk) => hunk.old.end + (line - hunk.new.end),
            None => line,
        }
    };
    for line in lines {
        line.ours = map(line.ours.start, false)..map(line.ours.end, true);
    }
    Ok(())
}
