//! Assigns the turns in the ledger to the checkpoints that they began from.

use std::collections::HashMap;

use super::TurnRecord;
use crate::id::{CheckpointId, ObjectId};
use crate::store::{Checkpoint, CheckpointKind, Origin};

/// Reason of a checkpoint that was taken for a prompt, and the prefix of the reason if the text of the prompt follows.
const PROMPT: &str = "prompt";
const PROMPT_PREFIX: &str = "prompt: ";
/// Reason of a checkpoint that was taken when the agent continued by itself.
const CONTINUED: &str = "before the agent went on, as another hook asked";

/// Adds to each of a project's checkpoints, newest first, the turns that began from it, newest first.
pub(super) fn assign(checkpoints: &mut [Checkpoint], turns: Vec<TurnRecord>) {
    let places = if turns.is_empty() { CheckpointIndex::default() } else { CheckpointIndex::of(checkpoints) };
    for turn in turns.into_iter().rev() {
        let Some(at) = places.find(checkpoints, &turn) else { continue };
        if !turn.continued {
            checkpoints[at].turns.push(turn);
        } else if checkpoints[at].facts.origin == turn.origin() {
            // Not a prompt of the user, but the reason for the checkpoint.
            let reason = Some(CONTINUED.to_owned());
            checkpoints[at].turns.push(TurnRecord { prompted: false, prompt: None, reason, ..turn });
        }
    }
    for checkpoint in checkpoints {
        if let Some(own) = own_turn(checkpoint)
            && !checkpoint.turns.iter().any(|turn| turn.is_same_turn(&own))
        {
            checkpoint.turns.push(own);
        }
    }
}

/// Index of a list of checkpoints, so that many turns in a long history are assigned without a linear search for each.
#[derive(Default)]
struct CheckpointIndex {
    by_id: HashMap<CheckpointId, usize>,
    /// Positions in the order of the list.
    by_tree: HashMap<ObjectId, Vec<usize>>,
}

impl CheckpointIndex {
    fn of(checkpoints: &[Checkpoint]) -> Self {
        let mut places = Self::default();
        for (at, checkpoint) in checkpoints.iter().enumerate() {
            places.by_id.entry(checkpoint.id).or_insert(at);
            places.by_tree.entry(checkpoint.tree).or_default().push(at);
        }
        places
    }

    /// Finds the checkpoint of a turn by id, by the id before a purge, or by tree: another program may have rewritten
    /// the commits.
    fn find(&self, checkpoints: &[Checkpoint], turn: &TurnRecord) -> Option<usize> {
        let mut by_id = [turn.before?].into_iter().chain(turn.formerly).filter_map(|id| self.by_id.get(&id));
        by_id.next().copied().or_else(|| {
            let same = self.by_tree.get(&turn.tree?)?;
            let is_before = |at: &&usize| turn.time.is_some_and(|time| checkpoints[**at].time.secs <= time.secs);
            same.iter().find(is_before).or_else(|| same.last()).copied()
        })
    }
}

/// Returns the turn that the commit itself names, as written by versions without a ledger.
fn own_turn(checkpoint: &Checkpoint) -> Option<TurnRecord> {
    let origin = (checkpoint.facts.kind == CheckpointKind::Auto).then_some(&checkpoint.facts.origin)?;
    let is_prompted = checkpoint.reason == PROMPT || checkpoint.reason.starts_with(PROMPT_PREFIX);
    Some(TurnRecord {
        agent: origin.agent.clone(),
        session: origin.session.clone()?,
        turn: origin.turn.clone()?,
        time: Some(checkpoint.time),
        prompted: is_prompted,
        prompt: checkpoint.reason.strip_prefix(PROMPT_PREFIX).map(str::to_owned),
        reason: (!is_prompted).then(|| checkpoint.reason.clone()),
        before: Some(checkpoint.id),
        tree: Some(checkpoint.tree),
        ..TurnRecord::default()
    })
}

impl TurnRecord {
    /// Returns a record that names a turn and nothing else.
    pub(crate) fn of(origin: &Origin) -> Self {
        let Origin { agent, session, turn } = origin.clone();
        let (session, turn) = (session.unwrap_or_default(), turn.unwrap_or_default());
        Self { agent, session, turn, ..Self::default() }
    }

    /// Returns the agent, the session and the turn.
    pub fn origin(&self) -> Origin {
        Origin { agent: self.agent.clone(), session: Some(self.session.clone()), turn: Some(self.turn.clone()) }
    }

    /// Returns the turn in one line: the prompt's first line, or the reason of a turn without a prompt.
    pub fn headline(&self) -> String {
        match (&self.prompt, &self.reason) {
            (Some(prompt), _) => format!("{PROMPT_PREFIX}{}", prompt.lines().next().unwrap_or_default()),
            (None, Some(reason)) if !self.prompted => reason.clone(),
            (None, _) => PROMPT.to_owned(),
        }
    }
}

impl Checkpoint {
    /// Returns the reason of the checkpoint, and the newest prompt that began from it.
    pub fn headline(&self) -> String {
        match (self.turns.first(), self.facts.kind) {
            (None, _) => self.reason.clone(),
            (Some(newest), CheckpointKind::Auto) => newest.headline(),
            (Some(newest), _) => format!("{}; {}", self.reason, newest.headline()),
        }
    }

    /// Returns the reason of the checkpoint; for one taken for prompts, the newest prompt.
    pub fn reason_or_prompt(&self) -> String {
        if self.facts.kind == CheckpointKind::Auto { self.headline() } else { self.reason.clone() }
    }

    /// Returns the number of prompts that began from this checkpoint, without the newest turn.
    pub fn earlier_prompts(&self) -> usize {
        self.turns.iter().skip(1).filter(|turn| turn.prompted).count()
    }

    /// Returns the agent, the session and the turn of the newest turn that began from this checkpoint.
    pub fn newest_origin(&self) -> Origin {
        self.turns.first().map_or_else(|| self.facts.origin.clone(), TurnRecord::origin)
    }

    /// Returns the newest turn of `session` that began from this checkpoint, or the newest turn of any session if there
    /// is none.
    pub fn turn_of(&self, session: Option<&str>) -> Option<&TurnRecord> {
        let own = session.and_then(|session| self.turns.iter().find(|turn| turn.session == session));
        own.or_else(|| self.turns.first())
    }
}
