//! The turns of a project with both ends: the state from which a turn began, and the state in which it ended.
//!
//! A turn ends when its agent reports it. Of a turn whose end was not reported, the state at the next prompt of its
//! session is all that is known: edits of the user in between cannot be told apart from the agent's.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::history::History;
use crate::id::{CheckpointId, ObjectId};
use crate::project::Project;
use crate::store::{Checkpoint, Origin, Store, TurnRecord};
use crate::time::Moment;

mod report;

pub use report::{ListedStep, ListedTurn, list_turns};

/// A turn with both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// Record of the turn.
    pub record: TurnRecord,
    /// Checkpoint from which the turn began.
    pub before: CheckpointId,
    /// State in which the turn ended.
    pub end: TurnEnd,
}

/// State in which a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnEnd {
    /// The agent reported the end, and this checkpoint holds the state at that moment.
    Reported(CheckpointId),
    /// The end was not reported. This checkpoint holds the state at the next prompt of the session, which may contain
    /// edits of the user.
    OpenEnded(CheckpointId),
    /// The end was not reported, and the session has had no prompt since: the turn may be running.
    Open,
    /// The end was reported, and its checkpoint no longer exists.
    Dropped,
}

/// Records that a turn ended in the state of a checkpoint, which the caller took when the agent reported the end. If an
/// agent reports several ends of a turn, the last one counts.
///
/// Fails with `Invalid` if `turn` names no session or no turn, and with `NotFound` if the project has no such turn or no
/// such checkpoint.
///
/// ```
/// use piton::{History, Origin, Request, TurnEnd, note_turn_end, take};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// let turn = Origin::default().agent("mine").session("s").turn("1");
/// let start = Request::default().reason("prompt: fix it").origin(turn.clone());
/// take(&store, &project, &start, &settings, now, &progress)?;
/// std::fs::write(code.join("main.rs"), "fn main() { run() }\n")?; // the agent works
/// let end = Request::default().reason("end of turn");
/// take(&store, &project, &end, &settings, now, &progress)?;
/// let after = History::of(&store, &project)?.checkpoints()[0].id;
/// note_turn_end(&store, &project, &turn, after, now)?;
/// assert_eq!(History::of(&store, &project)?.turns()[0].end, TurnEnd::Reported(after));
/// # Ok(())
/// # }
/// ```
pub fn note_turn_end(store: &Store, project: &Project, turn: &Origin, after: CheckpointId, now: Moment) -> Result<()> {
    let (Some(session), Some(name)) = (turn.session.clone(), turn.turn.clone()) else {
        return Err(Error::new(ErrorKind::Invalid, "record the end of a turn").because("it has no session or no name"));
    };
    let history = History::of(store, project)?;
    let Some(checkpoint) = history.checkpoints().iter().find(|checkpoint| checkpoint.id == after) else {
        return Err(Error::new(ErrorKind::NotFound, "record the end of a turn")
            .because(format!("the project has no checkpoint {}", after.short())));
    };
    let name_only = TurnRecord { agent: turn.agent.clone(), session, turn: name, ..TurnRecord::default() };
    let recorded = if store.ledger.turns(project.id()).iter().any(|known| known.is_same_turn(&name_only)) {
        name_only
    } else {
        // Only the commit names the turn.
        let of_commit = history.checkpoints().iter().flat_map(|checkpoint| &checkpoint.turns);
        of_commit.into_iter().find(|known| known.is_same_turn(&name_only)).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "record the end of a turn")
                .because("no turn of this name began in the project")
        })?
    };
    let (ended, after, after_tree) = (Some(now), Some(checkpoint.id), Some(checkpoint.tree));
    let record = TurnRecord { ended, after, after_tree, ..recorded };
    let existing = || Some(history.checkpoints().iter().flat_map(|one| [one.id, one.tree]).collect());
    store.ledger.append(project.id(), &record, existing)
}

impl History {
    /// Returns the turns that began from the checkpoints of this history, newest first, each with its end.
    pub fn turns(&self) -> Vec<Turn> {
        turns_of(self.checkpoints())
    }

    /// Returns a turn by its own id, or by the number or id of the checkpoint from which it began. If several turns
    /// began there, it is the newest that may have changed something; `agent` selects among those of several agents.
    ///
    /// Fails like [`History::find`], with `NotFound` if no turn began from the checkpoint, and with `Ambiguous` if turns
    /// of several agents did.
    pub fn turn(&self, name: &str, agent: Option<&str>) -> Result<Turn> {
        let mut turns = self.turns();
        turns.retain(|turn| agent.is_none() || turn.record.agent.as_deref() == agent);
        if let Some(turn) = turns.iter().find(|turn| turn.record.turn == name) {
            return Ok(turn.clone());
        }
        let checkpoint = self.find(name)?;
        let is_idle =
            |turn: &Turn| matches!(turn.end, TurnEnd::Reported(end) | TurnEnd::OpenEnded(end) if end == turn.before);
        let here: Vec<&Turn> = turns.iter().filter(|turn| turn.before == checkpoint.id).collect();
        let changed: Vec<&Turn> = here.iter().copied().filter(|turn| !is_idle(turn)).collect();
        let candidates = if changed.is_empty() { here } else { changed };
        let agents: std::collections::BTreeSet<_> = candidates.iter().map(|turn| &turn.record.agent).collect();
        if agents.len() > 1 {
            let names: Vec<_> = agents.into_iter().flatten().map(String::as_str).collect();
            return Err(Error::new(ErrorKind::Ambiguous, format!("find the turn at {name}"))
                .because(format!("turns of several agents began there: {}", names.join(", ")))
                .with_hint(Hint::NameAgent));
        }
        candidates.first().map(|turn| (*turn).clone()).ok_or_else(|| {
            let none = Error::new(ErrorKind::NotFound, format!("find the turn at {name}"))
                .because("no turn began from this checkpoint");
            let newer = |id: CheckpointId| self.checkpoints().iter().take_while(move |one| one.id != id);
            let place = |id: CheckpointId| newer(id).filter(|one| one.is_row()).count();
            let at = place(checkpoint.id);
            let nearest = turns.iter().map(|turn| place(turn.before)).min_by_key(|place| place.abs_diff(at));
            let hint = nearest.map(|place| Hint::NameNearestTurn { number: place + 1 });
            none.with_hint(hint.unwrap_or(Hint::ListCheckpoints))
        })
    }
}

/// Returns the turns of a project's checkpoints, which are given newest first.
pub(crate) fn turns_of(checkpoints: &[Checkpoint]) -> Vec<Turn> {
    let places = Places::of(checkpoints);
    let find = |record: &TurnRecord| {
        let ids = [record.after, record.after_formerly];
        places.find(&ids, record.after_tree, record.ended).map(|one| one.id)
    };
    // State from which the next prompt of each session began.
    let mut next: HashMap<(Option<&str>, &str), CheckpointId> = HashMap::new();
    let mut turns = Vec::new();
    for checkpoint in checkpoints {
        for record in &checkpoint.turns {
            let session = (record.agent.as_deref(), record.session.as_str());
            let end = match (find(record), record.ended, next.get(&session)) {
                (Some(after), Some(_), _) => TurnEnd::Reported(after),
                (None, Some(_), _) => TurnEnd::Dropped,
                (_, None, Some(after)) => TurnEnd::OpenEnded(*after),
                (_, None, None) => TurnEnd::Open,
            };
            turns.push(Turn { record: record.clone(), before: checkpoint.id, end });
            next.insert(session, checkpoint.id);
        }
    }
    turns
}

/// Index of a project's checkpoints, which are given newest first.
pub(crate) struct Places<'a> {
    by_id: HashMap<CheckpointId, &'a Checkpoint>,
    by_tree: HashMap<ObjectId, Vec<&'a Checkpoint>>,
}

impl<'a> Places<'a> {
    fn of(checkpoints: &'a [Checkpoint]) -> Self {
        let mut by_tree: HashMap<ObjectId, Vec<&Checkpoint>> = HashMap::new();
        checkpoints.iter().for_each(|one| by_tree.entry(one.tree).or_default().push(one));
        Self { by_id: checkpoints.iter().map(|one| (one.id, one)).collect(), by_tree }
    }

    /// Finds a checkpoint by one of its ids. If another program has rewritten the commit, it is the newest with the same
    /// tree that is not newer than `time`.
    fn find(
        &self,
        ids: &[Option<CheckpointId>],
        tree: Option<ObjectId>,
        time: Option<Moment>,
    ) -> Option<&'a Checkpoint> {
        ids.iter().flatten().find_map(|id| self.by_id.get(id).copied()).or_else(|| {
            let (same, time) = (self.by_tree.get(&tree?)?, time?);
            same.iter().find(|one| one.time.secs <= time.secs).copied()
        })
    }
}

/// Returns the turns of other sessions that worked during a turn, so that their changes cannot be told apart from its
/// own. `end` is the checkpoint in which the turn ended, or `None` if it ends with the current files.
pub(crate) fn overlapping(turn: &Turn, end: Option<CheckpointId>, checkpoints: &[Checkpoint]) -> Vec<Turn> {
    let times: HashMap<CheckpointId, usize> = checkpoints.iter().rev().zip(0..).map(|(one, at)| (one.id, at)).collect();
    let time = |id: CheckpointId| times.get(&id).copied();
    let Some(start) = time(turn.before) else { return Vec::new() };
    let end = end.and_then(time).unwrap_or(usize::MAX);
    let session = |turn: &Turn| (turn.record.agent.clone(), turn.record.session.clone());
    let is_overlapping = |other: &Turn| {
        let began = time(other.before).unwrap_or(0);
        let ended = if let TurnEnd::Reported(id) = other.end { time(id) } else { None };
        let began_within = (start..end).contains(&began) && ended != Some(began);
        let ended_within = began < start && ended.is_some_and(|ended| (start + 1..=end).contains(&ended));
        session(other) != session(turn) && (began_within || ended_within)
    };
    turns_of(checkpoints).into_iter().filter(is_overlapping).collect()
}
