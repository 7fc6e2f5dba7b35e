//! Steps: checkpoints within a turn, so that work that was made and destroyed in one turn can be restored.

use std::path::PathBuf;

use super::turns::existing;
use super::{MISSES_MAX, Manager, within_deadline};
use crate::ensured::Ensured;
use crate::progress::Progress;
use crate::project::{Home, Project};
use crate::settings::StepPolicy;
use crate::store::{CheckpointKind, Origin, STEP_PREFIX, SessionKey, StepRecord, Store, TurnRecord};
use crate::take::{Outcome, Request, WhySkipped, take};
use crate::time::Moment;

impl Manager {
    /// Returns true if the setting `steps` asks for a checkpoint before a command that may change files. `destroys` is
    /// true for a command that destroys files or git state.
    pub fn wants_step(&self, destroys: bool) -> bool {
        match self.settings.steps {
            StepPolicy::None => false,
            StepPolicy::Destructive => destroys,
            StepPolicy::All => true,
        }
    }

    /// Takes a checkpoint within the turn in each project of `dirs` that has its checkpoint of this turn, except for
    /// the projects in `taken`, and records it as a step of the turn. The turn is protected even if this fails, so
    /// nothing is recorded as missed.
    pub fn take_steps(&self, dirs: &[PathBuf], taken: &[PathBuf], reason: &str, now: Moment) -> Vec<Ensured> {
        let (Some(session), Some(turn)) = (&self.session, &self.turn) else { return Vec::new() };
        let Some(store) = self.settings.enabled.then(|| Store::open_existing(&self.base).ok().flatten()).flatten()
        else {
            return Vec::new();
        };
        let note = store.turns.get(&SessionKey::new(&self.agent, session));
        // A project that takes too long must not hold up every command of the turn.
        if note.is_some_and(|note| note.turn.as_ref() == Some(turn) && note.misses >= MISSES_MAX) {
            return Vec::new();
        }
        let origin = Origin { agent: Some(self.agent.clone()), session: self.session.clone(), turn: self.turn.clone() };
        let request = Request {
            reason: format!("{STEP_PREFIX}{reason}"),
            kind: CheckpointKind::Step,
            origin,
            ..Request::default()
        };
        let home = Home::new(self.home.as_deref());
        let mut seen = taken.to_vec();
        within_deadline(self.settings.deadline_ms, |progress| {
            let one = |dir: &PathBuf| {
                let root = Project::protecting_beside(dir, Some(&store), &home).filter(|root| !seen.contains(root))?;
                seen.push(root.clone());
                let project = Project::at_canonical(root, &home).ok()?;
                self.take_step(&store, &project, &request, now, progress)
            };
            dirs.iter().filter_map(one).collect()
        })
    }

    /// Returns `None` if the project does not have its checkpoint of this turn, or if that is still to be completed.
    fn take_step(
        &self,
        store: &Store,
        project: &Project,
        request: &Request,
        now: Moment,
        progress: &Progress,
    ) -> Option<Ensured> {
        let (session, turn) = (request.origin.session.as_deref()?, request.origin.turn.as_deref()?);
        if !store.records.get(project.id()).has_turn(session, turn) || store.unfinished.get(project.id()).is_some() {
            return None;
        }
        let report = take(store, project, request, &self.settings, now, progress);
        match report.as_ref().map(|report| (report.outcome, report.tree)) {
            Ok((Outcome::Taken(id), Some(tree))) => {
                let steps = vec![StepRecord::new(id, tree, now)];
                let record = TurnRecord { steps, ..TurnRecord::of(&request.origin) };
                // A failure is ignored, like all of the ledger: the checkpoint itself names the turn.
                let _ = store.ledger.append(project.id(), &record, || existing(store, project, progress));
            }
            Ok((Outcome::Skipped(WhySkipped::Deadline | WhySkipped::Busy), _)) => {
                self.change_note(store, |note| note.misses += 1);
            }
            _ => {}
        }
        Some(Ensured { dir: project.dir().to_owned(), report, is_unfinished: false })
    }
}
