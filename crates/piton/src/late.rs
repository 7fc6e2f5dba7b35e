//! Completing a checkpoint that ran out of time, by a process in the background.
//!
//! It is taken as of the time of the prompt. A file that changed since is left out as `changing`, so that a restore leaves
//! it alone; what was read before it changed is as it was then. An attempt that is stopped keeps what it has read, and the
//! next one goes on from there.

use crate::error::Result;
use crate::project::Project;
use crate::settings::Settings;
use crate::skipped::{SkipReason, Skipped};
use crate::store::{CheckpointKind, FinishLock, Origin, Store, TurnRecord};
use crate::take::{Outcome, Progress, Report, Request, WhySkipped, take};
use crate::time::Moment;
use crate::worktree::{Manifest, is_settled};

/// The unfinished checkpoint of one project. No other process completes it as long as this exists.
#[derive(Debug)]
pub struct Completion<'a> {
    store: &'a Store,
    project: &'a Project,
    _lock: FinishLock,
}

/// The result of one attempt.
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// There is no unfinished checkpoint, or another one was taken since.
    Nothing,
    /// It was stopped, and has kept what it read.
    Stopped,
    /// There is nothing more to be done.
    Done {
        /// What the take came to.
        report: Box<Report>,
        /// Who was at work.
        origin: Origin,
        /// The time as of which the checkpoint was taken.
        since: Moment,
    },
}

impl<'a> Completion<'a> {
    /// Begins to complete the checkpoint of a project; `None` if another process does.
    pub fn begin(store: &'a Store, project: &'a Project) -> Result<Option<Self>> {
        Ok(store.try_lock_finish(project.id())?.map(|lock| Self { store, project, _lock: lock }))
    }

    /// Returns whether another process waits for this project or the store. The attempt under way is to be stopped then.
    pub fn must_make_way(&self) -> bool {
        self.store.must_make_way(self.project.id())
    }

    /// Takes the checkpoint until `progress.stop` is set.
    pub fn attempt(&self, settings: &Settings, progress: &Progress) -> Result<Attempt> {
        let (store, id) = (self.store, self.project.id());
        let Some(unfinished) = store.unfinished(id) else { return Ok(Attempt::Nothing) };
        if store.newest(id)? != unfinished.after {
            store.withdraw_unfinished(id)?;
            return Ok(Attempt::Nothing);
        }
        let request = Request {
            reason: unfinished.reason,
            kind: CheckpointKind::Auto,
            origin: unfinished.origin.clone(),
            count_left_out: false,
            is_late: true,
        };
        let report = take(store, self.project, &request, settings, unfinished.since, progress)?;
        if matches!(report.outcome, Outcome::Skipped(WhySkipped::Deadline | WhySkipped::Busy)) {
            return Ok(Attempt::Stopped);
        }
        store.withdraw_unfinished(id)?;
        self.note_turn(&request.origin, &report);
        Ok(Attempt::Done { report: Box::new(report), origin: unfinished.origin, since: unfinished.since })
    }

    /// Adds the checkpoint to the record of its turn, if the hook has made one: otherwise the checkpoint itself names the
    /// turn.
    fn note_turn(&self, origin: &Origin, report: &Report) {
        let Outcome::Taken(id) = report.outcome else { return };
        let known = self.store.turn_records(self.project.id());
        if let Some(known) = known.into_iter().find(|known| known.origin() == *origin) {
            let (before, tree) = (Some(id), report.tree);
            let (agent, session, turn) = (known.agent, known.session, known.turn);
            let record = TurnRecord { agent, session, turn, before, tree, ..TurnRecord::default() };
            let _ = self.store.append_turn(self.project.id(), &record, || None);
        }
    }

    /// Returns for whom the checkpoint is, and the time as of which it is taken.
    pub fn origin(&self) -> Option<(Origin, Moment)> {
        let unfinished = self.store.unfinished(self.project.id())?;
        Some((unfinished.origin, unfinished.since))
    }

    /// Gives the checkpoint up. What was read is kept for the next take.
    pub fn give_up(self) -> Result<()> {
        self.store.withdraw_unfinished(self.project.id())
    }
}

/// Takes out of a manifest what changed after `since`. Returns whether there was anything: then files may be gone, too.
///
/// A directory tells when names in it changed, and not which. One that was moved, or of which nothing is left, goes as a
/// whole: what is in it may have been elsewhere.
pub(crate) fn leave_out_changed(manifest: &mut Manifest, skipped: &mut Vec<Skipped>, since: i128) -> bool {
    let mut is_any = false;
    let mut goes = vec![false; manifest.dirs.len()];
    let mut names = vec![Vec::new(); manifest.dirs.len()];
    for at in (0..manifest.dirs.len()).rev() {
        let dir = &mut manifest.dirs[at];
        let changed = dir.files.iter().filter(|file| !is_settled(file.stat.ctime, since));
        names[at] = changed.map(|file| dir.path_of(file)).collect();
        if !names[at].is_empty() {
            dir.files.retain(|file| is_settled(file.stat.ctime, since));
            dir.same_files = false;
        }
        let is_changed = !is_settled(dir.ctime, since);
        let is_moved = is_changed && is_settled(dir.mtime, since);
        let is_bare = dir.files.is_empty() && dir.dirs.iter().all(|below| goes[*below]);
        goes[at] = at > 0 && is_changed && (is_moved || is_bare);
        is_any |= is_changed || !names[at].is_empty();
    }
    // Parents come first: what is in a directory that goes is named by it.
    let mut is_within = vec![false; manifest.dirs.len()];
    for at in 0..manifest.dirs.len() {
        let is_gone = goes[at] || is_within[at];
        if !is_gone {
            skipped.extend(names[at].drain(..).map(|path| Skipped::file(path, SkipReason::Changing)));
            continue;
        }
        let dir = &mut manifest.dirs[at];
        dir.files.clear();
        (dir.same_files, dir.exceptional) = (false, true);
        if !is_within[at] {
            skipped.push(Skipped::dir(dir.path.to_vec(), SkipReason::Changing));
        }
        for below in &manifest.dirs[at].dirs {
            is_within[*below] = true;
        }
    }
    is_any
}
