//! Completes a checkpoint that ran out of time, in a background process.
//!
//! The checkpoint is taken as of the time of the prompt. A file that changed since then is left out as `changing`, so
//! that a restore does not touch it; contents that were read before the change are kept as they were then. An attempt
//! that is cancelled keeps what it has read, and the next one continues from there.

use crate::error::Result;
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::store::{CheckpointKind, FinishLock, Origin, Store, TurnRecord};
use crate::take::{Outcome, Report, Request, WhySkipped, take};
use crate::time::Moment;

/// The unfinished checkpoint of one project. Holds the lock that keeps other processes from completing it.
#[derive(Debug)]
pub struct Completion<'a> {
    store: &'a Store,
    project: &'a Project,
    _lock: FinishLock,
}

/// Result of one attempt.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// No checkpoint is unfinished, or another one was taken since.
    Nothing,
    /// The attempt was cancelled, or the store was busy. The contents that it has read are kept.
    Stopped,
    /// The request is settled: no further attempt is needed.
    Done {
        /// Report of the take.
        report: Box<Report>,
        /// Agent, session and turn for which the checkpoint was taken.
        origin: Origin,
        /// Start or end of that turn.
        kind: CheckpointKind,
        /// The time as of which the checkpoint was taken.
        since: Moment,
    },
}

impl<'a> Completion<'a> {
    /// Begins to complete the checkpoint of a project; returns `None` if another process holds the lock for it.
    pub fn begin(store: &'a Store, project: &'a Project) -> Result<Option<Self>> {
        Ok(store.unfinished.try_lock_finish(project.id())?.map(|lock| Self { store, project, _lock: lock }))
    }

    /// Returns true if another process waits for this project or the store. The caller should cancel the attempt then.
    pub fn must_make_way(&self) -> bool {
        self.store.unfinished.must_make_way(self.project.id())
    }

    /// Takes the checkpoint, until `progress` is cancelled. Withdraws the request once it is settled, or if another
    /// checkpoint was taken since.
    pub fn attempt(&self, settings: &Settings, progress: &Progress) -> Result<Attempt> {
        let (store, id) = (self.store, self.project.id());
        let Some(unfinished) = store.unfinished.get(id) else { return Ok(Attempt::Nothing) };
        if store.refs.newest(id)? != unfinished.after {
            store.unfinished.withdraw(id)?;
            return Ok(Attempt::Nothing);
        }
        let request = Request {
            reason: unfinished.reason,
            kind: unfinished.kind,
            origin: unfinished.origin.clone(),
            count_left_out: false,
            is_late: true,
            changed_dirs: None,
        };
        let report = take(store, self.project, &request, settings, unfinished.since, progress)?;
        if matches!(report.outcome, Outcome::Skipped(WhySkipped::Deadline | WhySkipped::Busy)) {
            return Ok(Attempt::Stopped);
        }
        store.unfinished.withdraw(id)?;
        if report.outcome == Outcome::Skipped(WhySkipped::Superseded) {
            return Ok(Attempt::Nothing);
        }
        let (kind, since) = (unfinished.kind, unfinished.since);
        match kind {
            CheckpointKind::End => self.note_end(&request.origin, &report, since),
            _ => self.note_turn(&request.origin, &report),
        }
        Ok(Attempt::Done { report: Box::new(report), origin: unfinished.origin, kind, since })
    }

    /// Adds the end to the record of its turn. A checkpoint that lacks files is not the state in which the turn ended.
    fn note_end(&self, origin: &Origin, report: &Report, since: Moment) {
        let (Outcome::Taken(id) | Outcome::Unchanged(id)) = report.outcome else { return };
        let is_whole = || {
            let objects = self.store.objects.open(&self.store.locks.share().ok()?).ok()?;
            Some(!objects.checkpoint(id).ok()?.facts.is_incomplete)
        };
        if is_whole() == Some(true) {
            let (after, after_tree) = (Some(id), report.tree);
            let record = TurnRecord { ended: Some(since), after, after_tree, late: true, ..TurnRecord::of(origin) };
            let _ = self.store.ledger.append(self.project.id(), &record, || None);
        }
    }

    /// Adds the checkpoint to the record of its turn, if the hook has written one; otherwise the checkpoint itself
    /// names the turn. Best effort: an error is ignored.
    fn note_turn(&self, origin: &Origin, report: &Report) {
        let (Outcome::Taken(id) | Outcome::Unchanged(id)) = report.outcome else { return };
        let known = self.store.ledger.turns(self.project.id());
        if let Some(known) = known.into_iter().find(|known| known.origin() == *origin) {
            let (before, tree) = (Some(id), report.tree);
            let (agent, session, turn) = (known.agent, known.session, known.turn);
            let record = TurnRecord { agent, session, turn, before, tree, ..TurnRecord::default() };
            let _ = self.store.ledger.append(self.project.id(), &record, || None);
        }
    }

    /// Returns the origin of the checkpoint and the time as of which it is taken; `None` if there is no unfinished
    /// checkpoint, or if it is for the end of a turn: the turn is protected without it.
    pub fn origin(&self) -> Option<(Origin, Moment)> {
        let unfinished = self.store.unfinished.get(self.project.id())?;
        let unfinished = Some(unfinished).filter(|unfinished| !unfinished.kind.is_within_turn())?;
        Some((unfinished.origin, unfinished.since))
    }

    /// Withdraws the request. The contents that were read are kept for the next take.
    pub fn give_up(self) -> Result<()> {
        self.store.unfinished.withdraw(self.project.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::UnfinishedRequest;

    #[test]
    fn a_late_take_adds_nothing_to_a_newer_checkpoint() {
        let temp = tempfile::tempdir().expect("a directory");
        let code = temp.path().join("code");
        std::fs::create_dir(&code).expect("a directory");
        std::fs::write(code.join("file"), "1").expect("a file");
        let now = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
        let store = Store::open_or_create(&temp.path().join("base"), now).expect("a store");
        let project = Project::at(&code, None).expect("a project");
        let (settings, progress) = (Settings::default(), Progress::default());
        let take = |is_late| {
            let request = Request { kind: CheckpointKind::Manual, is_late, ..Request::default() };
            take(&store, &project, &request, &settings, now, &progress).expect("a take").outcome
        };
        let Outcome::Taken(newest) = take(false) else { panic!("nothing was taken") };
        std::fs::write(code.join("file"), "22").expect("a file");
        let ask = |after| {
            let (reason, origin, kind) = (String::new(), Origin::default(), CheckpointKind::Manual);
            let (is_told, rest) = (true, Default::default());
            let asked = UnfinishedRequest { reason, origin, kind, since: now, after, is_told, rest };
            store.unfinished.save(project.id(), &asked).expect("a request");
        };
        ask(None);
        assert_eq!(take(true), Outcome::Skipped(WhySkipped::Superseded));
        assert_eq!(store.refs.newest(project.id()).expect("a ref"), Some(newest));
        ask(Some(newest));
        assert!(!matches!(take(true), Outcome::Skipped(WhySkipped::Superseded)));
    }
}
