//! An agent at work for hours: many takes with a clock that goes on between them, and the rule that thins the rows.

use std::collections::HashSet;

use piton::Moment;

use super::call::{Answer, What};
use super::files::Edit;
use super::known::Kept;
use super::world::World;
use crate::kit::next_tick;
use crate::restore_kit::state_of;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// Rows that stay whatever their age.
const NEWEST: usize = 20;

fn at(secs: i64) -> Moment {
    Moment { secs, nanos: 0, offset_secs: 0 }
}

impl World<'_> {
    /// Takes so many checkpoints, each of other files and so many minutes after the one before, with `auto` as the
    /// limit and without one of the size.
    pub(super) fn work(&mut self, number: usize, takes: u8, minutes: i64) {
        self.learn_times(number);
        for text in 0..takes {
            self.clock_secs += minutes * 60;
            Edit::Write { name: 0, text: 100 + text, mode: 0 }.make(&self.projects[number].dir);
            let what = What::TakeAt { dir: self.projects[number].dir.clone(), secs: self.clock_secs };
            let mut call = self.call(what);
            (call.max_snapshots, call.max_total_size_mb) = (0, 0);
            let answer = self.processes.call(0, &call);
            next_tick(&self.sandbox);
            let Answer::Taken(id) = answer else {
                assert!(matches!(answer, Answer::Unchanged(_) | Answer::Skipped(_)), "{answer:?}");
                continue;
            };
            let (excludes, state) = (self.excludes, state_of(&self.projects[number].dir));
            let project = &mut self.projects[number];
            (project.is_stale, project.undoable) = (false, None);
            project.kept.push(Kept { time: Some(at(self.clock_secs)), ..Kept::new(id, state, excludes) });
            thin(&mut project.kept, self.clock_secs);
        }
    }
}

/// Drops what the rule does not keep of a project's checkpoints, the oldest of which come first. Beyond the newest rows,
/// they are in the order of time.
fn thin(kept: &mut Vec<Kept>, now: i64) {
    let newest_first: Vec<_> = kept.iter().rev().collect();
    let rows: Vec<_> = newest_first.iter().filter(|one| one.is_row).map(|one| one.time.expect("a time")).collect();
    let stays = |at: usize| {
        let local = |at: usize| rows[at].secs + i64::from(rows[at].offset_secs);
        let is_first_of = |span: i64| (0..at).all(|newer| local(newer).div_euclid(span) != local(at).div_euclid(span));
        let age = now - rows[at].secs;
        at < NEWEST || age <= DAY && is_first_of(HOUR) || age <= 30 * DAY && is_first_of(DAY)
    };
    let mut newer = 0;
    let mut goes = HashSet::new();
    for one in newest_first {
        // Ends and steps of turns go with their row.
        if if one.is_row { !stays(newer) } else { newer >= NEWEST } {
            goes.insert(one.id.clone());
        }
        newer += usize::from(one.is_row);
    }
    kept.retain(|one| !goes.contains(&one.id));
    let is_beyond = |at: &usize| kept[*at..].iter().filter(|one| one.is_row).count() > NEWEST;
    let beyond = (0..kept.len()).take_while(is_beyond).count();
    kept[..beyond].sort_by_key(|one| one.time.map(|time| time.secs));
}
