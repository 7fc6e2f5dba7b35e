//! Work of other sessions that a restore undoes. Several agents may work in one project: restoring the state before the
//! work of one of them also undoes the later work of the others, which needs consent while they are active.

use std::collections::{BTreeMap, BTreeSet};

use super::Planner;
use crate::error::Result;
use crate::relpath;
use crate::store::{Activity, Checkpoint};
use crate::time::Moment;

/// Work that another session, which is still active, has done since the restored checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherWork {
    /// Name of the session.
    pub session: String,
    /// Name of its agent, if known.
    pub agent: Option<String>,
    /// Time of the last event of the session.
    pub last_active: Moment,
    /// Number of its checkpoints that were followed by changes.
    pub checkpoints: usize,
    /// The files that changed after them, sorted.
    pub paths: Vec<Vec<u8>>,
}

impl OtherWork {
    /// Returns the agent and the time of its last event, for display.
    pub fn label(&self) -> String {
        let agent = self.agent.as_deref().unwrap_or("another session");
        format!("{agent}, last active {}", self.last_active.date_and_time())
    }
}

/// The parts of a restore that decide which work needs consent.
pub(super) struct Others<'a> {
    /// The restored checkpoint and those after it, oldest first.
    since: Vec<&'a Checkpoint>,
    /// Sessions whose work is undone without consent.
    own: BTreeSet<String>,
    activity: &'a Activity,
    now: Moment,
}

/// A session with a turn that began from a checkpoint.
#[derive(Debug, Clone)]
struct Worker {
    session: String,
    agent: Option<String>,
    /// Time of that turn in seconds, or of the checkpoint if the turn has none. Before any other time if the checkpoint
    /// is a safety checkpoint: the user restores at any time, and the session need not be active then.
    known_secs: i64,
}

impl<'a> Others<'a> {
    /// Describes a restore of `target`, which is one of `checkpoints` (newest first). If `session` is given, it is the
    /// one that asks for the restore, and only its own work is undone without consent.
    pub(super) fn new(
        target: &Checkpoint,
        checkpoints: &'a [Checkpoint],
        session: Option<&str>,
        activity: &'a Activity,
        now: Moment,
    ) -> Self {
        // A fetched checkpoint has no place in this history: all of it counts as later work.
        let absent = if target.facts.fetched.is_some() { checkpoints.len().saturating_sub(1) } else { 0 };
        let place = checkpoints.iter().position(|one| one.id == target.id).unwrap_or(absent);
        // The end of one session's turn does not end the work of the others.
        let counts = |one: &&Checkpoint| one.is_row() || one.id == target.id;
        let since = checkpoints.iter().take(place + 1).filter(counts).rev().collect();
        let own = session.map(|session| [session.to_owned()].into()).unwrap_or_default();
        let mut others = Self { since, own, activity, now };
        if session.is_none() {
            others.own = others.with_successors(&meant_by(target, checkpoints));
        }
        others
    }

    /// Returns these sessions and the successors of those that have ended: if no session of an agent among them is
    /// active any more, and exactly one other session of that agent is, then the user continued in that one.
    fn with_successors(&self, meant: &[Worker]) -> BTreeSet<String> {
        let mut own: BTreeSet<_> = meant.iter().map(|worker| worker.session.clone()).collect();
        let known: Vec<_> = meant.iter().cloned().chain(self.since.iter().flat_map(|one| workers(one))).collect();
        let agents: BTreeSet<_> = meant.iter().filter_map(|worker| worker.agent.as_deref()).collect();
        for agent in agents {
            let of_agent = known.iter().filter(|worker| worker.agent.as_deref() == Some(agent));
            let at_work =
                self.activity.all_at_work(agent, of_agent.map(|worker| (&*worker.session, worker.known_secs)));
            let mut at_work = at_work.into_iter();
            if let (Some(only), None) = (at_work.next(), at_work.next()) {
                // It is one of these sessions, or their successor.
                own.insert(only);
            }
        }
        own
    }

    /// Returns the work of other sessions. `planner` compares the newest checkpoint with the present files; paths in
    /// `rescoped` are in scope by rules that the restore brings back, and do not count.
    ///
    /// If no session belongs to the checkpoint, the first that changed something after it may be undone without
    /// consent: a user who restores the state before its work knows of it.
    pub(super) fn find(&self, planner: &Planner<'_>, rescoped: &[Vec<u8>]) -> Result<Vec<OtherWork>> {
        let mut own = self.own.clone();
        let mut found: BTreeMap<String, OtherWork> = BTreeMap::new();
        for (at, checkpoint) in self.since.iter().enumerate() {
            let workers = workers(checkpoint);
            if workers.is_empty() || workers.iter().all(|worker| own.contains(&worker.session)) {
                continue;
            }
            let changed = match self.since.get(at + 1) {
                Some(next) => {
                    let changes = planner.objects.compare_trees(Some(checkpoint.tree), Some(next.tree))?;
                    changes.into_iter().map(|change| change.path).collect()
                }
                None => changed_since(planner, rescoped)?,
            };
            let is_restored = |path: &Vec<u8>| {
                planner.paths.is_empty() || planner.paths.iter().any(|dir| relpath::is_within(path, dir))
            };
            let changed: Vec<_> = changed.into_iter().filter(is_restored).collect();
            if changed.is_empty() {
                continue;
            }
            if own.is_empty() {
                own = self.with_successors(&workers);
            }
            for worker in workers.into_iter().filter(|worker| !own.contains(&worker.session)) {
                let agent = worker.agent.as_deref();
                let Some(secs) = self.activity.at_work(agent, &worker.session, worker.known_secs) else { continue };
                let work = found.entry(worker.session.clone()).or_insert_with(|| OtherWork {
                    session: worker.session,
                    agent: worker.agent,
                    last_active: Moment { secs, nanos: 0, offset_secs: self.now.offset_secs },
                    checkpoints: 0,
                    paths: Vec::new(),
                });
                work.last_active.secs = work.last_active.secs.max(secs);
                work.checkpoints += 1;
                work.paths.extend(changed.iter().cloned());
            }
        }
        let mut found: Vec<_> = found.into_values().collect();
        for work in &mut found {
            work.paths.sort();
            work.paths.dedup();
        }
        Ok(found)
    }
}

/// Returns the paths that differ between the planner's checkpoint and the present files, without those in `rescoped`,
/// which are in scope by rules that the restore brings back.
fn changed_since(planner: &Planner<'_>, rescoped: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let plan = planner.plan()?;
    let (made, dropped) = plan.directories();
    let files =
        plan.written().map(|(path, _)| path).chain(plan.removed()).chain(plan.modes_changed().map(|(path, _)| path));
    let is_rescoped = |path: &&[u8]| rescoped.iter().any(|dir| relpath::is_within(path, dir));
    Ok(files.chain(made).chain(dropped).filter(|path| !is_rescoped(path)).map(<[u8]>::to_vec).collect())
}

/// Returns the sessions whose work a restore of `target` is meant to undo: those whose turns began from it, or, for a
/// safety checkpoint, from the checkpoint that its restore went back to.
fn meant_by(target: &Checkpoint, checkpoints: &[Checkpoint]) -> Vec<Worker> {
    let restored = target.facts.restoring.as_ref().map(|restoring| restoring.target);
    let restored = restored.and_then(|id| checkpoints.iter().find(|one| one.id == id));
    workers(restored.unwrap_or(target))
}

/// Returns the sessions whose turns began from a checkpoint, each once. Falls back to the session in its facts if no
/// turn is recorded.
fn workers(checkpoint: &Checkpoint) -> Vec<Worker> {
    let mut workers: Vec<Worker> = Vec::new();
    for turn in &checkpoint.turns {
        if !workers.iter().any(|worker| worker.session == turn.session) {
            let known_secs = turn.time.unwrap_or(checkpoint.time).secs;
            workers.push(Worker { session: turn.session.clone(), agent: turn.agent.clone(), known_secs });
        }
    }
    let origin = &checkpoint.facts.origin;
    if let (true, Some(session)) = (workers.is_empty(), &origin.session) {
        let is_safety = checkpoint.facts.restoring.is_some();
        let (agent, known_secs) = (origin.agent.clone(), if is_safety { i64::MIN } else { checkpoint.time.secs });
        workers.push(Worker { session: session.clone(), agent, known_secs });
    }
    workers
}
