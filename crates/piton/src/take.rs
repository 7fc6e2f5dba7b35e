//! Taking a checkpoint: scan the project, read changed files, write objects, move the ref.
//!
//! - T1. A checkpoint that was reported as taken is complete on the disk.
//! - T2. The user's project is read and never written.
//! - T3. A file that cannot be taken does not affect the rest: it is skipped and reported.
//! - T4. A take that is declined by a rule is an outcome, not an error, and leaves the store unchanged.

use crate::error::{Error, ErrorKind, Result};
use crate::git_state::{CaptureInput, capture};
use crate::hint::Hint;
use crate::id::CheckpointId;
use crate::keep::{BuildOutcome, CheckpointBuilder, is_contended};
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::store::{
    Checkpoint, CheckpointKind, GcLock, GitStateMoment, MakeRoomOutcome, Objects, ProjectLock, Store, StoreLock,
    make_room, salvage_newest, sweep,
};
use crate::survey::{SurveyInput, survey};
use crate::time::Moment;
use crate::worktree::dir_identity;

mod report;

pub use report::{Outcome, Report, Request, WhySkipped};

/// Maximum number of attempts to make room, should other processes use it up at once.
const TRIES_MAX: u32 = 4;
/// Maximum number of retries because another program deleted objects that the take relied on.
const LOSSES_MAX: u32 = 16;

/// Takes a checkpoint of a project.
///
/// `now` must not be later than the call. A file that changed after `now` is read again by the next take.
///
/// ```
/// use piton::{Outcome, Progress, Request, Settings, take};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// let request = Request::default().reason("before patch");
/// let (settings, progress) = (Settings::default().enabled(true), Progress::default());
/// let first = take(&store, &project, &request, &settings, now, &progress)?;
/// let Outcome::Taken(id) = first.outcome else { panic!("{first:?}") };
/// // Nothing changed: the same checkpoint still holds the files as they are.
/// let again = take(&store, &project, &request, &settings, now, &progress)?;
/// assert_eq!(again.outcome, Outcome::Unchanged(id));
/// # Ok(())
/// # }
/// ```
pub fn take(
    store: &Store,
    project: &Project,
    request: &Request,
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<Report> {
    if request.kind == CheckpointKind::Auto && !settings.enabled {
        return Ok(Report::declined(WhySkipped::Disabled));
    }
    if project.is_too_broad() {
        return Ok(Report::declined(WhySkipped::TooBroad));
    }
    if project.is_gone() {
        return Err(Error::new(ErrorKind::Invalid, "take a checkpoint of")
            .with_path(project.dir())
            .because("the directory was deleted")
            .with_hint(Hint::RestoreDeleted));
    }
    let taking = TakeRun { store, project, request, settings, now, progress };
    let bytes_max = settings.total_bytes_max().unwrap_or(u64::MAX);
    // Held until the checkpoint is taken, so that no other process uses up the room made for it.
    let mut collecting = None;
    let (mut losses, mut lost) = (0, None);
    for _ in 0..TRIES_MAX {
        let bytes = loop {
            match taking.attempt(collecting.as_ref(), &mut lost)? {
                BuildOutcome::Done(report) => return Ok(Report { lost, ..report }),
                BuildOutcome::NoRoom { bytes } => break bytes,
                BuildOutcome::Lost if losses < LOSSES_MAX => losses += 1,
                BuildOutcome::Lost => return Err(deleted_meanwhile()),
            }
        };
        // Garbage collection must not run under the locks of a take, and may delete what this attempt found: start
        // over.
        let held = match collecting.take().map_or_else(|| store.locks.lock_gc_until(Some(progress)), Ok) {
            Err(error) if error.kind() == ErrorKind::Stopped => return Ok(Report::busy(&error)),
            held => held?,
        };
        match make_room(store, &held, bytes, bytes_max, now, progress)? {
            MakeRoomOutcome::Enough { .. } => collecting = Some(held),
            MakeRoomOutcome::Impossible { .. } => break,
            MakeRoomOutcome::Stopped { .. } => return Ok(Report::declined(WhySkipped::Deadline)),
        }
    }
    drop(collecting);
    taking.note_turn()?;
    Ok(Report { lost, ..Report::declined(WhySkipped::StoreFull) })
}

fn deleted_meanwhile() -> Error {
    Error::new(ErrorKind::Busy, "take a checkpoint")
        .because("another program keeps deleting objects of the store")
        .with_hint("end the collections of other programs in this store, and try again")
}

/// One take, with all its attempts.
struct TakeRun<'a> {
    store: &'a Store,
    project: &'a Project,
    request: &'a Request,
    settings: &'a Settings,
    now: Moment,
    progress: &'a Progress,
}

impl TakeRun<'_> {
    /// Makes one attempt. Sets `lost` if the newest checkpoint was missing and the project continues without it.
    fn attempt(&self, collecting: Option<&GcLock>, lost: &mut Option<CheckpointId>) -> Result<BuildOutcome> {
        let Self { store, project, request, settings, now, progress } = *self;
        let (locked, held) = match self.locks() {
            Err(error) if error.kind() == ErrorKind::Stopped => return Ok(BuildOutcome::Done(Report::busy(&error))),
            locks => locks?,
        };
        let mut record = store.records.get(project.id());
        let turn = request.turn();
        if turn.is_some_and(|(session, turn)| record.has_turn(session, turn)) {
            return Ok(BuildOutcome::Done(Report::declined(WhySkipped::AlreadyThisTurn)));
        }
        let objects = store.objects.open(&held)?;
        let newest = match self.newest(&objects) {
            Err(error) if error.kind() == ErrorKind::Damaged => return self.salvage(&locked, &objects, lost),
            newest => newest?,
        };
        if request.is_late && self.is_superseded(newest.as_ref()) {
            return Ok(BuildOutcome::Done(Report::declined(WhySkipped::Superseded)));
        }
        if newest.is_none() {
            // A new history in place of one whose ref is lost would make that one garbage.
            store.catalog.refuse_lost_ref(|other| other != project.id())?;
        }
        let newest = newest.as_ref();
        let new_objects = store.objects.new_objects(&objects, false);
        let input = SurveyInput {
            late: request.is_late.then_some(now),
            changed_dirs: request.changed_dirs.as_ref(),
            ..SurveyInput::new(store, &objects, project, &record, newest, settings, progress)
        };
        let surveyed = survey(&input, &new_objects);
        let (is_recorded, is_contended) = (record.dir().is_some(), is_contended(newest, &record, now));
        record.touch(project.dir(), dir_identity(project.dir()), now);
        let keep = CheckpointBuilder {
            store,
            locked: &locked,
            project: project.id(),
            newest,
            request,
            restoring: None,
            session_record: None,
            objects: &objects,
            settings,
            is_forced: false,
            bytes_max: settings.total_bytes_max(),
            collecting,
            is_contended,
            progress: Some(progress),
            now,
        };
        let taken = surveyed.and_then(|end| keep.keep_end(end, project, new_objects, &mut record));
        if let Ok(BuildOutcome::Done(Report { outcome: Outcome::Taken(_) | Outcome::Unchanged(_), .. })) = &taken
            && record.set_progress(None, None)
        {
            let _ = store.unfinished.drop_all(&locked, project.id(), now);
        }
        if matches!(&taken, Ok(BuildOutcome::Done(Report { outcome: Outcome::Taken(_), .. }))) {
            sweep(store, &held, now);
        }
        if let Some((session, turn)) = turn.filter(|_| consumes_turn(&taken)) {
            record.set_turn(session, turn);
        }
        // A refused directory is not recorded: it would become the project of everything in it.
        let is_refused = matches!(&taken, Ok(BuildOutcome::Done(Report { outcome: Outcome::Skipped(_), .. })));
        if is_recorded || record.has_progress() || matches!(&taken, Ok(BuildOutcome::Done(_))) && !is_refused {
            // The record can be rebuilt: a failure to save it must not hide the result of the take.
            let _ = store.records.save(&locked, project.id(), &record);
        }
        taken.map(|built| self.with_git_state(&locked, built))
    }

    /// Returns true if `newest` is not the checkpoint that the request to complete a late one was made after.
    fn is_superseded(&self, newest: Option<&Checkpoint>) -> bool {
        let asked = self.store.unfinished.get(self.project.id());
        asked.is_none_or(|asked| asked.after != newest.map(|newest| newest.id))
    }

    /// Records the state of the project's repository beside a checkpoint.
    fn with_git_state(&self, locked: &ProjectLock, built: BuildOutcome) -> BuildOutcome {
        let BuildOutcome::Done(report) = built else { return built };
        let (Outcome::Taken(id) | Outcome::Unchanged(id)) = report.outcome else { return BuildOutcome::Done(report) };
        let is_within = self.request.kind.is_within_turn();
        let git = capture(&CaptureInput {
            store: self.store,
            locked,
            project: self.project,
            checkpoint: Some(id),
            moment: if is_within { GitStateMoment::Within } else { GitStateMoment::Row },
            changes: Vec::new(),
            settings: self.settings,
            now: self.now,
            progress: self.progress,
        });
        BuildOutcome::Done(Report { git, ..report })
    }

    /// Reads the newest checkpoint of the project.
    fn newest(&self, objects: &Objects) -> Result<Option<Checkpoint>> {
        self.store.refs.newest(self.project.id())?.map(|id| objects.checkpoint(id)).transpose()
    }

    /// Replaces a newest checkpoint that is missing by the newest readable one. The caller retries.
    fn salvage(
        &self,
        locked: &ProjectLock,
        objects: &Objects,
        lost: &mut Option<CheckpointId>,
    ) -> Result<BuildOutcome> {
        let gone = salvage_newest(self.store, locked, self.project.id(), objects, self.now)?;
        *lost = lost.or(gone);
        Ok(BuildOutcome::Lost)
    }

    /// Locks the store and the project.
    fn locks(&self) -> Result<(ProjectLock, StoreLock)> {
        let progress = Some(self.progress);
        let held = self.store.locks.share_until(progress)?;
        Ok((self.store.locks.lock_project_until(&held, self.project.id(), progress)?, held))
    }

    /// Records that the turn has used its attempt.
    fn note_turn(&self) -> Result<()> {
        if let Some((session, turn)) = self.request.turn() {
            let progress = Some(self.progress);
            let held = self.store.locks.share_until(progress)?;
            let locked = self.store.locks.lock_project_until(&held, self.project.id(), progress)?;
            let mut record = self.store.records.get(self.project.id());
            record.set_turn(session, turn);
            if record.dir().is_some() {
                let _ = self.store.records.save(&locked, self.project.id(), &record);
            }
        }
        Ok(())
    }
}

/// Returns true if the turn has used its attempt. A failed take uses it; one that ran out of time or room, or that
/// another process blocked, does not.
fn consumes_turn(taken: &Result<BuildOutcome>) -> bool {
    match taken {
        Ok(BuildOutcome::Done(report)) => {
            !matches!(report.outcome, Outcome::Skipped(WhySkipped::Deadline | WhySkipped::Busy))
        }
        Ok(BuildOutcome::NoRoom { .. } | BuildOutcome::Lost) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Stopped),
    }
}

impl Request {
    /// Returns session and turn if the rule of one checkpoint per turn applies to this request.
    fn turn(&self) -> Option<(&str, &str)> {
        let origin = (self.kind == CheckpointKind::Auto).then_some(&self.origin)?;
        Some((origin.session.as_deref()?, origin.turn.as_deref()?))
    }
}
