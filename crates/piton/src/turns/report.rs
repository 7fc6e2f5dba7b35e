//! The list of turns: where each began and ended, and how much it changed.

use std::collections::HashSet;

use super::{Places, TurnEnd, turns_of};
use crate::error::{ErrorKind, Result};
use crate::history::{Change, History};
use crate::id::CheckpointId;
use crate::json::{AtPaths, JsonPaths};
use crate::project::Project;
use crate::store::{Checkpoint, Store, TurnRecord};
use crate::time::Moment;

/// One entry of the list of turns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedTurn {
    /// Number of the row from which the turn began. `None` if the turn has no checkpoint.
    pub row: Option<usize>,
    /// Record of the turn.
    pub record: TurnRecord,
    /// Checkpoint from which the turn began. `None` if it is unprotected.
    pub before: Option<CheckpointId>,
    /// Checkpoint in which the turn ended. `None` while the turn is open, and once the checkpoint is gone.
    pub after: Option<CheckpointId>,
    /// Time of the end; for an open-ended turn, of the next prompt of its session. `None` while the turn is open.
    pub ended: Option<Moment>,
    /// True if the end was not reported, so that edits of the user cannot be told apart from the agent's.
    pub is_open_ended: bool,
    /// Difference between both checkpoints. `None` if one of them is missing or corrupt.
    pub change: Option<Change>,
    /// Paths that differ, sorted.
    pub paths: Vec<Vec<u8>>,
    /// Checkpoints within the turn, oldest first.
    pub steps: Vec<ListedStep>,
}

/// A checkpoint within a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedStep {
    /// Time at which it was taken.
    pub time: Moment,
    /// The checkpoint. `None` if it no longer exists.
    pub checkpoint: Option<Checkpoint>,
}

/// JSON of a [`ListedStep`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ListedStepJson<'a> {
    /// id of the checkpoint, or null once it is gone
    id: Option<CheckpointId>,
    /// time at which it was taken
    time: Moment,
    /// why it was taken, or null once it is gone
    reason: Option<&'a str>,
}

impl<'a> From<&'a ListedStep> for ListedStepJson<'a> {
    fn from(step: &'a ListedStep) -> Self {
        let checkpoint = step.checkpoint.as_ref();
        Self { id: checkpoint.map(|one| one.id), time: step.time, reason: checkpoint.map(|one| one.reason.as_str()) }
    }
}

/// JSON of a [`ListedTurn`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ListedTurnJson<'a> {
    /// number of the checkpoint from which it began, or null
    row: Option<usize>,
    /// name of the turn
    turn: &'a str,
    /// session of the turn
    session: &'a str,
    /// agent that worked, or null
    agent: Option<&'a str>,
    /// time of the prompt, or null
    started: Option<Moment>,
    /// time at which it ended, or null while it is open
    ended: Option<Moment>,
    /// true if its end was not reported: it ends at the next prompt, and may contain edits of the user
    open_ended: bool,
    /// text of the prompt as far as it is stored, or null
    prompt: Option<&'a str>,
    /// id of the checkpoint from which it began, or null if it has none or once that is gone
    before: Option<CheckpointId>,
    /// id of the checkpoint in which it ended, or null
    after: Option<CheckpointId>,
    /// reason why it has no checkpoint, or null
    missed: Option<&'a str>,
    /// number of files that it changed, or null
    files_changed: Option<u64>,
    /// number of lines that it added, or null
    insertions: Option<u64>,
    /// number of lines that it removed, or null
    deletions: Option<u64>,
    #[serde(flatten)]
    paths: JsonPaths<'a, AtPaths>,
    /// checkpoints within the turn, oldest first
    steps: Vec<ListedStepJson<'a>>,
}

impl<'a> From<&'a ListedTurn> for ListedTurnJson<'a> {
    fn from(listed: &'a ListedTurn) -> Self {
        let record = &listed.record;
        Self {
            row: listed.row,
            turn: &record.turn,
            session: &record.session,
            agent: record.agent.as_deref(),
            started: record.time,
            ended: listed.ended,
            open_ended: listed.is_open_ended,
            prompt: record.prompt.as_deref(),
            before: listed.before,
            after: listed.after,
            missed: record.missed.as_deref().filter(|_| listed.before.is_none()),
            files_changed: listed.change.map(|change| change.files),
            insertions: listed.change.map(|change| change.insertions),
            deletions: listed.change.map(|change| change.deletions),
            paths: JsonPaths::new(&listed.paths),
            steps: listed.steps.iter().map(ListedStepJson::from).collect(),
        }
    }
}

crate::json::serialized_as! {
    ListedTurn => ListedTurnJson<'_>;
}

/// Returns the newest `most` turns of a project, newest first, including those without a checkpoint and those whose
/// checkpoints are gone.
pub fn list_turns(store: &Store, project: &Project, most: usize) -> Result<Vec<ListedTurn>> {
    let history = History::of(store, project)?;
    let mut all = protected(&history);
    let listed: HashSet<_> = all.iter().map(|turn| turn.record.origin()).collect();
    let others = store.ledger.turns(project.id()).into_iter();
    let others = others.filter(|turn| !turn.continued && (turn.before.is_some() || turn.missed.is_some()));
    for record in others.filter(|turn| !listed.contains(&turn.origin())) {
        let at = all.iter().position(|other| other.record.time < record.time).unwrap_or(all.len());
        all.insert(at, ListedTurn::without_checkpoints(record));
    }
    all.truncate(most);
    let places = Places::of(history.checkpoints());
    for turn in &mut all {
        let steps = turn.record.steps.iter().map(|step| ListedStep {
            time: step.time,
            checkpoint: places.find(&[Some(step.id), step.formerly], Some(step.tree), Some(step.time)).cloned(),
        });
        turn.steps = steps.collect();
    }
    for turn in &mut all {
        let (Some(before), Some(after)) = (turn.before, turn.after) else { continue };
        match history.changes_between(before, after) {
            Err(error) if error.kind() == ErrorKind::Damaged => {}
            changes => (turn.change, turn.paths) = changes.map(|(change, paths)| (Some(change), paths))?,
        }
    }
    Ok(all)
}

/// Returns the turns that began from a checkpoint, newest first, without their differences.
fn protected(history: &History) -> Vec<ListedTurn> {
    let rows: Vec<&Checkpoint> = history.rows().collect();
    let turns = turns_of(history.checkpoints());
    let listed = turns.iter().enumerate().filter(|(_, turn)| !turn.record.continued).map(|(at, turn)| {
        let session = (&turn.record.agent, &turn.record.session);
        let next = || turns[..at].iter().rev().find(|later| (&later.record.agent, &later.record.session) == session);
        let (after, ended) = match turn.end {
            TurnEnd::Reported(after) => (Some(after), turn.record.ended),
            TurnEnd::OpenEnded(after) => (Some(after), next().and_then(|next| next.record.time)),
            TurnEnd::Open => (None, None),
            TurnEnd::Dropped => (None, turn.record.ended),
        };
        ListedTurn {
            row: rows.iter().position(|row| row.id == turn.before).map(|at| at + 1),
            before: Some(turn.before),
            after,
            ended,
            is_open_ended: matches!(turn.end, TurnEnd::OpenEnded(_)),
            ..ListedTurn::without_checkpoints(turn.record.clone())
        }
    });
    listed.collect()
}

impl ListedTurn {
    fn without_checkpoints(record: TurnRecord) -> Self {
        let ended = record.ended;
        Self {
            row: None,
            record,
            before: None,
            after: None,
            ended,
            is_open_ended: false,
            change: None,
            paths: Vec::new(),
            steps: Vec::new(),
        }
    }
}
