//! Applies the limit on the number of rows that a project keeps, after a row was added.

use std::collections::HashSet;

use crate::error::Result;
use crate::id::{CheckpointId, ProjectId};
use crate::settings::MaxSnapshots;
use crate::store::{Cut, Intent, Objects, Pin, PinName, PinTime, ProjectLock, Store, newest_rows, rows_kept};
use crate::time::Moment;

/// Up to this many rows are read to find the oldest one to keep. Above that, their order is kept in a file.
const WALK_MAX: usize = 64;

/// Request to apply the limit.
pub(crate) struct RowLimit<'a> {
    pub(crate) store: &'a Store,
    pub(crate) locked: &'a ProjectLock,
    pub(crate) project: &'a ProjectId,
    pub(crate) objects: &'a Objects,
    pub(crate) limit: MaxSnapshots,
    /// Time of the new row.
    pub(crate) now: Moment,
}

impl RowLimit<'_> {
    /// Records a new row, and drops none: a user who restores one row after the other finds all of them until the next
    /// take.
    pub(crate) fn note(&self, new: CheckpointId, parent: Option<CheckpointId>) -> Result<()> {
        if newest_rows(self.limit) > WALK_MAX {
            self.store.histories.lineage(self.locked, self.project, parent, new, self.objects)?;
        }
        Ok(())
    }

    /// Drops the rows that the limit does not keep, now that `new` was added after `parent`, with the checkpoints of
    /// their turns.
    pub(crate) fn apply(&self, new: CheckpointId, parent: Option<CheckpointId>) -> Result<()> {
        // An interrupted restore needs both of its checkpoints to be continued or aborted.
        let intent = self.store.intents.get(self.project)?;
        let pins = self.store.pins.of(self.project)?;
        let newest = newest_rows(self.limit);
        // The file has the rows of the history only.
        if newest > WALK_MAX && intent.is_none() && pins.iter().all(|pin| pin.name.is_mark() || pin.name.is_fetched()) {
            self.cut_by_place(new, parent, &pins, newest)
        } else {
            self.cut_by_walk(new, parent, &pins, newest, intent.as_ref())
        }
    }

    /// Ends the history after the newest rows. Without pins it takes constant time, whatever the length of the history.
    fn cut_by_place(&self, new: CheckpointId, parent: Option<CheckpointId>, pins: &[Pin], newest: usize) -> Result<()> {
        let lineage = self.store.histories.lineage(self.locked, self.project, parent, new, self.objects)?;
        let keep = newest as u64;
        if lineage.count() <= keep {
            return Ok(());
        }
        let Some(end) = lineage.oldest_of(keep, self.objects) else {
            self.store.histories.forget_lineage(self.project);
            return self.cut_by_walk(new, parent, pins, newest, None);
        };
        // Those before the new end are needed for pins only.
        let kept = || {
            let older = self.store.histories.from(self.objects, parent)?.checkpoints;
            let cut = older.iter().position(|one| one.id == end).map_or(older.len(), |at| at + 1);
            Ok(older[..cut].iter().map(|one| one.id).chain([new]).collect())
        };
        let cut = Cut { pins, end: Some(end), kept: &kept, pinned: Vec::new(), unpinned: Vec::new() };
        self.store.pins.cut(self.locked, self.project, cut, self.now)?;
        lineage.shrink(keep)
    }

    /// Like [`Self::cut_by_place`], but reads one checkpoint after the other, few more than are kept. Rows beyond the
    /// newest ones may stay, by pins.
    fn cut_by_walk(
        &self,
        new: CheckpointId,
        parent: Option<CheckpointId>,
        pins: &[Pin],
        newest: usize,
        intent: Option<&Intent>,
    ) -> Result<()> {
        // The new checkpoint is a row.
        let rows_max = newest - 1;
        let reads_all = intent.is_some() || self.limit == MaxSnapshots::Auto;
        let older = self.store.histories.up_to(self.objects, parent, if reads_all { usize::MAX } else { newest })?;
        let rows: Vec<_> = (0..older.len()).filter(|at| older[*at].is_row()).collect();
        let is_needed = |id: CheckpointId| intent.is_some_and(|intent| [intent.target, intent.safety].contains(&id));
        let needed = older.iter().rposition(|checkpoint| is_needed(checkpoint.id)).map_or(0, |at| at + 1);
        // The ends and steps before the oldest row belong to rows that are dropped.
        let kept = match rows_max.checked_sub(1) {
            None => 0,
            Some(last) => rows.get(last).map_or(older.len(), |at| at + 1),
        };
        let (chain, rest) = older.split_at(kept.max(needed));
        let beyond = Beyond::of(pins, &older.iter().map(|one| one.id).collect());
        let times = rows.iter().map(|at| older[*at].time).chain(beyond.rows.iter().map(|(time, _)| time.moment()));
        let times: Vec<_> = [self.now].into_iter().chain(times).collect();
        let stays = rows_kept(&times, self.limit, self.now);
        let (of_rows, of_pins) = stays[1..].split_at(rows.len());
        let pinned = rows.iter().zip(of_rows).filter(|(at, stays)| **stays && **at >= chain.len());
        let unpinned = beyond.unpinned(of_pins, rows_max.saturating_sub(rows.len()));
        let mut unpinned: Vec<_> = unpinned.filter(|pin| !is_needed(pin.id)).map(|pin| pin.name.clone()).collect();
        unpinned.reverse();
        if rest.is_empty() && unpinned.is_empty() {
            return Ok(());
        }
        let kept = || Ok(chain.iter().map(|one| one.id).chain([new]).collect());
        let cut = Cut {
            pins,
            end: (!rest.is_empty()).then(|| chain.last().map_or(new, |oldest| oldest.id)),
            kept: &kept,
            pinned: pinned.rev().map(|(at, _)| &older[*at]).collect(),
            unpinned,
        };
        self.store.pins.cut(self.locked, self.project, cut, self.now)
    }
}

/// Pinned checkpoints that are not in the history, the newest first.
struct Beyond<'a> {
    rows: Vec<(PinTime, &'a Pin)>,
    /// Ends and steps of turns.
    within_turns: Vec<(PinTime, &'a Pin)>,
}

impl<'a> Beyond<'a> {
    fn of(pins: &'a [Pin], history: &HashSet<CheckpointId>) -> Self {
        let mut beyond = Self { rows: Vec::new(), within_turns: Vec::new() };
        // Sorted by kind, then by time.
        for pin in pins.iter().rev().filter(|pin| !history.contains(&pin.id)) {
            match pin.name {
                PinName::Mark(_) | PinName::Fetched(_) => {}
                PinName::Row(time) => beyond.rows.push((time, pin)),
                PinName::End(time) | PinName::Step(time) => beyond.within_turns.push((time, pin)),
            }
        }
        beyond
    }

    /// Returns the pins to drop: rows that do not stay, and the ends and steps of rows other than the first `newest`.
    fn unpinned(&self, stays: &[bool], newest: usize) -> impl Iterator<Item = &'a Pin> {
        let oldest = self.rows.iter().take(newest).map(|(time, _)| *time).next_back();
        let rows = self.rows.iter().zip(stays).filter(|(_, stays)| !**stays).map(|((_, pin), _)| *pin);
        let ends = self.within_turns.iter().filter(move |(time, _)| oldest.is_none_or(|oldest| *time < oldest));
        rows.chain(ends.map(|(_, pin)| *pin))
    }
}
