//! The history of a project by author: which changes between checkpoints an agent made in which turn, and which the
//! user made between turns.
//!
//! Consecutive checkpoints are compared, never whole trees, so that the cost grows with the changes and not with the
//! size of the project.

use std::collections::HashMap;

use crate::history::History;
use crate::id::CheckpointId;
use crate::store::{Checkpoint, TurnRecord};
use crate::time::Moment;
use crate::turns::{Turn, TurnEnd};

mod blame_file;
mod local;
mod log;
mod search;

pub use blame_file::{BlameLine, FileBlame, blame_file};
pub(crate) use log::PeriodJson;
pub use log::{LogEntry, LogOptions, ProjectLog, log};
pub use search::{ContentMatch, MatchLine, SearchEntry, SearchOptions, SearchReport, TextMatch, search};

/// Author of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Author {
    /// An agent, in a turn whose end it reported.
    Agent,
    /// The user, or another program, between two turns.
    You,
    /// Unknown: the oldest checkpoint already has it.
    Earlier,
    /// An agent or the user: the end of the turn was not reported, or several agents worked at the same time.
    Unknown,
}

/// A part of the history of a project in which one author worked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Period {
    /// The author.
    pub by: Author,
    /// The turn in which an agent worked, or may have worked.
    pub turn: Option<TurnRecord>,
    /// Checkpoint that a restore, an undo or a revert made the files equal to, if the user's change was that.
    pub restored: Option<CheckpointId>,
    /// Checkpoint of the state before. `None` for everything before the oldest checkpoint.
    pub from: Option<CheckpointId>,
    /// Number of that checkpoint in the list, if it is a row of it.
    pub row: Option<usize>,
    /// Checkpoint of the state after. `None` for changes that are in no checkpoint.
    pub to: Option<CheckpointId>,
    /// Time of the prompt, or for the user's changes the time of the checkpoint that holds them first.
    pub time: Option<Moment>,
}

impl Period {
    /// Returns the period of a project without checkpoints, in which everything is the user's.
    fn without_checkpoints() -> Self {
        let (turn, restored, from, row, to, time) = (None, None, None, None, None, None);
        Self { by: Author::You, turn, restored, from, row, to, time }
    }
}

/// Periods of a project, oldest first.
pub(crate) struct Timeline<'a> {
    /// Checkpoints, oldest first.
    pub(crate) states: Vec<&'a Checkpoint>,
    turns: Vec<Turn>,
    /// Author of the change from each state to the next. The last one is about changes that are in no checkpoint.
    steps: Vec<AuthoredStep>,
    numbers: HashMap<CheckpointId, usize>,
}

/// Author of the change from one state to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AuthoredStep {
    by: Author,
    /// Index of the turn.
    turn: Option<usize>,
    restored: Option<CheckpointId>,
}

/// Steps in which a turn worked, or may have worked.
struct Reach {
    steps: std::ops::Range<usize>,
    /// True if the agent reported when it ended.
    is_certain: bool,
}

impl<'a> Timeline<'a> {
    pub(crate) fn new(history: &'a History) -> Self {
        let mut states: Vec<&Checkpoint> = history.checkpoints().iter().rev().collect();
        order_results_of_reverts(&mut states);
        let turns = history.turns();
        let reaches = reaches(&turns, &states);
        let step = |at: usize| step(states[at], at, &reaches);
        let steps = (0..states.len()).map(step).collect();
        let numbers = history.rows().zip(1..).map(|(row, number)| (row.id, number)).collect();
        Self { states, turns, steps, numbers }
    }

    /// Returns the periods between checkpoints as ranges of steps, oldest first. Each step of the user is a period of
    /// its own; those of a turn are one.
    pub(crate) fn ranges(&self) -> Vec<std::ops::Range<usize>> {
        let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
        for at in 0..self.states.len().saturating_sub(1) {
            match ranges.last_mut() {
                Some(last) if self.steps[at].turn.is_some() && self.steps[last.start] == self.steps[at] => {
                    last.end = at + 1;
                }
                _ => ranges.push(at..at + 1),
            }
        }
        ranges
    }

    /// Returns the period of a range of steps.
    pub(crate) fn period(&self, steps: &std::ops::Range<usize>) -> Period {
        let AuthoredStep { by, turn, restored } = self.steps[steps.start];
        let turn = turn.map(|at| self.turns[at].record.clone());
        let (from, to) = (self.states[steps.start], self.states.get(steps.end));
        let time = turn.as_ref().and_then(|turn| turn.time).or(to.map(|to| to.time));
        let row = self.numbers.get(&from.id).copied();
        Period { by, turn, restored, from: Some(from.id), row, to: to.map(|to| to.id), time }
    }

    /// Returns the period before the oldest checkpoint, if there is one.
    pub(crate) fn earlier(&self) -> Option<Period> {
        let to = self.states.first()?;
        let (turn, restored, from, row) = (None, None, None, None);
        Some(Period { by: Author::Earlier, turn, restored, from, row, to: Some(to.id), time: Some(to.time) })
    }

    /// Returns the period that a single step belongs to. The step after the newest checkpoint leads to the current files.
    pub(crate) fn period_of_step(&self, at: usize) -> Period {
        let ranges = self.ranges();
        let range = ranges.iter().find(|range| range.contains(&at)).cloned();
        self.period(&range.unwrap_or(at..at + 1))
    }

    /// Returns the period of every turn, with its first step. A turn that changed nothing ends where it began.
    pub(crate) fn periods_of_turns(&self) -> Vec<(usize, Period)> {
        let ranges = self.ranges();
        let period = |(at, turn): (usize, &Turn)| {
            if let Some(range) = ranges.iter().find(|range| self.steps[range.start].turn == Some(at)) {
                return Some((range.start, self.period(range)));
            }
            let place = self.states.iter().position(|state| state.id == turn.before)?;
            let by = if matches!(turn.end, TurnEnd::Reported(_)) { Author::Agent } else { Author::Unknown };
            let (from, time) = (Some(turn.before), turn.record.time);
            let row = self.numbers.get(&turn.before).copied();
            let turn = Some(turn.record.clone());
            Some((place, Period { by, turn, restored: None, from, row, to: from, time }))
        };
        self.turns.iter().enumerate().filter_map(period).collect()
    }

    /// Returns the number of a checkpoint in the list, if it is a row of it.
    pub(crate) fn number(&self, id: CheckpointId) -> Option<usize> {
        self.numbers.get(&id).copied()
    }

    /// Returns the state that a step made the files equal to, if it was a restore.
    pub(crate) fn restored_by(&self, at: usize) -> Option<usize> {
        let target = self.steps.get(at)?.restored?;
        self.states[..=at].iter().position(|state| state.id == target)
    }
}

/// Moves each checkpoint that a revert published behind the safety checkpoint that follows it. That one has the files
/// of the checkpoint before, and the files became equal to the published one only after it.
fn order_results_of_reverts(states: &mut [&Checkpoint]) {
    for at in 2..states.len() {
        let [before, result, safety] = [states[at - 2], states[at - 1], states[at]];
        let target = safety.facts.restoring.as_ref().map(|restoring| restoring.target);
        if target == Some(result.id) && safety.tree == before.tree && result.turns.is_empty() {
            states.swap(at - 1, at);
        }
    }
}

/// Returns the steps of each turn.
fn reaches(turns: &[Turn], states: &[&Checkpoint]) -> Vec<Reach> {
    let places: HashMap<CheckpointId, usize> = states.iter().zip(0..).map(|(state, at)| (state.id, at)).collect();
    let place = |id: CheckpointId| places.get(&id).copied();
    let reach = |(at, turn): (usize, &Turn)| {
        let Some(start) = place(turn.before) else { return Reach { steps: 0..0, is_certain: false } };
        // Turns are given newest first: a newer one of the same agent is its successor.
        let successor = || {
            let is_next = |other: &&Turn| other.record.agent == turn.record.agent;
            turns[..at].iter().rev().find(is_next).and_then(|next| place(next.before))
        };
        let (end, is_certain) = match turn.end {
            TurnEnd::Reported(end) => (place(end).unwrap_or(start), true),
            TurnEnd::OpenEnded(end) => (place(end).unwrap_or(start), false),
            TurnEnd::Open => (successor().unwrap_or(states.len()), false),
            // Only the time of the end is known.
            TurnEnd::Dropped => {
                let ended = turn.record.ended.map_or(i64::MIN, |ended| ended.secs);
                (states.iter().rposition(|state| state.time.secs <= ended).map_or(start, |last| last + 1), false)
            }
        };
        Reach { steps: start..end.max(start), is_certain }
    };
    turns.iter().enumerate().map(reach).collect()
}

/// Returns the author of the step from this state, which has this number. `reaches` are those of the turns, newest
/// first.
fn step(from: &Checkpoint, at: usize, reaches: &[Reach]) -> AuthoredStep {
    if let Some(restoring) = &from.facts.restoring {
        return AuthoredStep { by: Author::You, turn: None, restored: Some(restoring.target) };
    }
    let at_work = |is_certain: bool| {
        let covers = move |(_, reach): &(usize, &Reach)| reach.is_certain == is_certain && reach.steps.contains(&at);
        reaches.iter().enumerate().filter(covers).map(|(turn, _)| turn)
    };
    let mut certain = at_work(true);
    let (turn, by) = match (certain.next(), certain.next()) {
        (Some(turn), None) => (Some(turn), Author::Agent),
        (Some(turn), Some(_)) => (Some(turn), Author::Unknown),
        (None, _) => match at_work(false).next() {
            Some(turn) => (Some(turn), Author::Unknown),
            None => (None, Author::You),
        },
    };
    AuthoredStep { by, turn, restored: None }
}
