//! The end of a turn: a checkpoint of the state in which the agent left the files.

use std::path::PathBuf;

use super::turns::existing;
use super::{Manager, leave_unfinished, within_deadline};
use crate::ensured::Ensured;
use crate::error::Result;
use crate::id::ProjectId;
use crate::progress::Progress;
use crate::project::{Home, Project};
use crate::store::{CheckpointKind, END_REASON, Origin, Store, TurnRecord};
use crate::take::{Outcome, Report, Request, WhySkipped, take};
use crate::time::Moment;

impl Manager {
    /// Takes a checkpoint of the state in which the turn ended, in each project in which it had one at its start, and
    /// records it as the end of the turn. Has no effect unless [`Manager::end_turn`] or [`Manager::end_continuation`]
    /// has ended the session's current turn. The turn is protected even if this fails: nothing is recorded as missed,
    /// and the turn then ends at the next prompt of its session.
    pub fn take_turn_end(&self, now: Moment) -> Vec<Ensured> {
        let (Some(session), Some(end)) = (&self.session, &self.end) else { return Vec::new() };
        let Some(store) = self.settings.enabled.then(|| Store::open_existing(&self.base).ok().flatten()).flatten()
        else {
            return Vec::new();
        };
        let origin =
            Origin { agent: Some(self.agent.clone()), session: Some(session.clone()), turn: Some(end.turn.clone()) };
        let request =
            Request { reason: END_REASON.to_owned(), kind: CheckpointKind::End, origin, ..Request::default() };
        let taken = within_deadline(self.settings.deadline_ms, |progress| {
            let home = Home::new(self.home.as_deref());
            let of_turn = projects_of(&store, session, &end.turn).into_iter();
            let one = |(id, dir): (ProjectId, PathBuf)| {
                let project = Project::at_canonical(dir, &home).ok().filter(|project| *project.id() == id)?;
                self.take_end_of(&store, &project, &request, now, progress)
            };
            of_turn.filter_map(one).collect::<Vec<_>>()
        });
        for one in &taken {
            if let Err(error) = &one.report {
                self.note_warning(format!("the end of a turn in {} is unknown: {error}", one.dir.display()), now);
            }
        }
        taken
    }

    /// Returns `None` if the project has no checkpoint, or if that of a start is still to be completed.
    fn take_end_of(
        &self,
        store: &Store,
        project: &Project,
        request: &Request,
        now: Moment,
        progress: &Progress,
    ) -> Option<Ensured> {
        let is_start_unfinished =
            store.unfinished.get(project.id()).is_some_and(|unfinished| !unfinished.kind.is_within_turn());
        if is_start_unfinished || project.is_gone() || store.refs.newest(project.id()).ok()?.is_none() {
            return None;
        }
        let report = take(store, project, request, &self.settings, now, progress);
        self.note_turn_end(store, project, &report, now, progress);
        let outcome = report.as_ref().ok().map(|report| report.outcome);
        let is_unfinished = outcome == Some(Outcome::Skipped(WhySkipped::Deadline))
            && leave_unfinished(store, project, request, now).is_ok();
        Some(Ensured { dir: project.dir().to_owned(), report, is_unfinished })
    }

    /// Adds the end to the record of the turn. A failure is ignored, like all of the ledger: the turn is open-ended
    /// then.
    fn note_turn_end(
        &self,
        store: &Store,
        project: &Project,
        report: &Result<Report>,
        now: Moment,
        progress: &Progress,
    ) {
        let (Some(session), Some(end), Ok(report)) = (&self.session, &self.end, report) else { return };
        let (Outcome::Taken(id) | Outcome::Unchanged(id)) = report.outcome else { return };
        let record = TurnRecord {
            agent: Some(self.agent.clone()),
            session: session.clone(),
            turn: end.turn.clone(),
            ended: Some(now),
            after: Some(id),
            after_tree: report.tree,
            ..TurnRecord::default()
        };
        let existing = || existing(store, project, progress);
        let _ = store.ledger.append(project.id(), &record, existing);
        // The user's own turn ends where its continuation does.
        if let Some(turn) = end.is_continuation.then(|| last_prompt(store, project, &record)).flatten() {
            let _ = store.ledger.append(project.id(), &TurnRecord { turn, ..record }, existing);
        }
    }
}

/// Returns the projects in which a turn used its attempt, with their directories.
fn projects_of(store: &Store, session: &str, turn: &str) -> Vec<(ProjectId, PathBuf)> {
    let known = store.known_projects().unwrap_or_default().into_iter();
    let dir_of = |project: ProjectId| {
        let record = store.records.get(&project);
        let is_meant = record.has_turn(session, turn);
        record.dir().filter(|_| is_meant).map(|dir| (project, dir))
    };
    known.filter_map(dir_of).collect()
}

/// Returns the last turn of the session before the given one that began with a prompt of the user.
fn last_prompt(store: &Store, project: &Project, continuation: &TurnRecord) -> Option<String> {
    let is_meant = |turn: &TurnRecord| {
        turn.prompted
            && !turn.continued
            && turn.turn != continuation.turn
            && (&turn.agent, &turn.session) == (&continuation.agent, &continuation.session)
    };
    store.ledger.turns(project.id()).into_iter().rev().find(is_meant).map(|turn| turn.turn)
}
