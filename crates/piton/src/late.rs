//! Completes a checkpoint that ran out of time, in a background process.
//!
//! The checkpoint is taken as of the time of the prompt. A file that changed since then is left out as `changing`, so
//! that a restore does not touch it; contents that were read before the change are kept as they were then. An attempt
//! that is cancelled keeps what it has read, and the next one continues from there.

use crate::error::Result;
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::skipped::{SkipReason, Skipped};
use crate::store::{CheckpointKind, FinishLock, Origin, Store, TurnRecord};
use crate::take::{Outcome, Report, Request, WhySkipped, take};
use crate::time::Moment;
use crate::worktree::{Manifest, is_settled};

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
        /// The time as of which the checkpoint was taken.
        since: Moment,
    },
}

impl<'a> Completion<'a> {
    /// Begins to complete the checkpoint of a project; returns `None` if another process holds the lock for it.
    pub fn begin(store: &'a Store, project: &'a Project) -> Result<Option<Self>> {
        Ok(store.unfinished.try_lock_finish(project.id())?.map(|lock| Self { store, project, _lock: lock }))
    }

    /// Returns true if another process waits for this project or the store. The caller is to cancel the attempt then.
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
            kind: CheckpointKind::Auto,
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
        self.note_turn(&request.origin, &report);
        Ok(Attempt::Done { report: Box::new(report), origin: unfinished.origin, since: unfinished.since })
    }

    /// Adds the checkpoint to the record of its turn, if the hook has written one; otherwise the checkpoint itself
    /// names the turn. Best effort: an error is ignored.
    fn note_turn(&self, origin: &Origin, report: &Report) {
        let Outcome::Taken(id) = report.outcome else { return };
        let known = self.store.ledger.turns(self.project.id());
        if let Some(known) = known.into_iter().find(|known| known.origin() == *origin) {
            let (before, tree) = (Some(id), report.tree);
            let (agent, session, turn) = (known.agent, known.session, known.turn);
            let record = TurnRecord { agent, session, turn, before, tree, ..TurnRecord::default() };
            let _ = self.store.ledger.append(self.project.id(), &record, || None);
        }
    }

    /// Returns the origin of the checkpoint and the time as of which it is taken; `None` if no checkpoint is
    /// unfinished.
    pub fn origin(&self) -> Option<(Origin, Moment)> {
        let unfinished = self.store.unfinished.get(self.project.id())?;
        Some((unfinished.origin, unfinished.since))
    }

    /// Withdraws the request. The contents that were read are kept for the next take.
    pub fn give_up(self) -> Result<()> {
        self.store.unfinished.withdraw(self.project.id())
    }
}

/// Removes files and directories from the manifest that changed after `since`, and adds them to `skipped`. Returns true
/// if anything changed; files may have been deleted then, too.
///
/// The times of a directory show that names in it changed, but not which. A directory that was moved, or of which
/// nothing is left, is left out as a whole, because its contents may have been elsewhere.
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
    // Parents come first: a directory that is left out covers everything in it.
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
