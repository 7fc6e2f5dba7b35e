//! Taking a checkpoint: scan, read what is new, write it, move the ref.
//!
//! - T1. A checkpoint that was reported as taken is on the disk, whole.
//! - T2. The user's project is read and never written.
//! - T3. A file that cannot be taken does not spoil the rest: it is left out and reported.
//! - T4. What is declined by rule is an outcome, not an error, and leaves the store as it was.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::{CheckpointId, ObjectId, ObjectKind, ProjectId};
use crate::project::Project;
use crate::session;
use crate::settings::Settings;
use crate::skipped::{self, Extent, SkipReason, Skipped};
use crate::store::{
    Checkpoint, CheckpointKind, GcLock, Intent, NewCheckpoint, NewObjects, Objects, Origin, ProjectLock, ProjectRecord,
    Restoring, Room, RoomMade, Store, StoreLock, Watch, moved_meanwhile,
};
use crate::survey::{Ground, IndexAfter, Survey, SurveyEnd, survey};
use crate::sys;
use crate::threads;
use crate::time::Moment;
use crate::worktree::{IndexSums, index_bytes_max, write_index};

/// How many lines about what was left out go into a checkpoint.
const SKIPPED_LINES_MAX: usize = 200;

/// How often a take makes room, should others use it up at once.
const TRIES_MAX: u32 = 4;
/// Up to so many checkpoints are read to find the oldest that stays. For more, their order is kept in a file.
const WALK_MAX: u64 = 64;
/// What a take writes besides objects and the index: the record, the ref, the size.
const SMALL_FILES_BYTES: u64 = 8 * 4096;

/// What to take, and why.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Why: one line for people.
    pub reason: String,
    /// What makes it. For an automatic one, the rule of one per turn holds.
    pub kind: CheckpointKind,
    /// Who is at work.
    pub origin: Origin,
    /// Count the files in directories that are not entered. Costs time, and is for people who look at the report.
    pub count_left_out: bool,
    /// Take it as of a time that is past: files that changed after `now` are left out as `changing`, and what was read is kept
    /// if the take is stopped.
    pub is_late: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There is a new checkpoint, and it is on the disk.
    Taken(CheckpointId),
    /// Nothing changed since this one.
    Unchanged(CheckpointId),
    /// Nothing was done.
    Skipped(WhySkipped),
}

/// Why nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhySkipped {
    /// Automatic checkpoints are off.
    Disabled,
    /// The directory is `/`, the home directory or one that it is in.
    TooBroad,
    /// This turn had its checkpoint.
    AlreadyThisTurn,
    /// There are no files in scope, and no earlier checkpoint.
    Empty,
    /// There are more files in scope than the limit.
    TooManyFiles,
    /// It would have held the agent back for too long.
    Deadline,
    /// Another process held the store or the project for too long.
    Busy,
    /// An earlier checkpoint of the project is still being completed.
    BeingCompleted,
    /// The store has reached its limit.
    StoreFull,
}

impl WhySkipped {
    /// The word for it in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::TooBroad => "too_broad",
            Self::AlreadyThisTurn => "already_this_turn",
            Self::Empty => "empty",
            Self::TooManyFiles => "too_many_files",
            Self::Deadline => "deadline",
            Self::Busy => "busy",
            Self::BeingCompleted => "being_completed",
            Self::StoreFull => "store_full",
        }
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What came of it.
    pub outcome: Outcome,
    /// How many files are in scope.
    pub files: u64,
    /// What was seen and left out.
    pub skipped: Vec<Skipped>,
    /// The project's ignore rules leave out all of it or nearly so: whoever believes to be safe is not.
    pub unprotected: bool,
    /// The index of the project's own git, where it is there and cannot be read: what git tracks and a rule leaves out is
    /// then left out, too.
    pub unread_index: Option<PathBuf>,
    /// Directories that the checkpoint before held and that cannot be read any more.
    pub dropped_out: Vec<Vec<u8>>,
    /// The tree of the files as they are, where all of them were looked at.
    pub tree: Option<ObjectId>,
    /// The lock that was not to be had, and the process that held it, in words.
    pub held_by: Option<String>,
}

/// How far a take or a restore has come, for whoever watches it from another thread; and the way to stop it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files found in scope.
    pub files_found: AtomicU64,
    /// Bytes that have to be read.
    pub bytes_to_read: AtomicU64,
    /// Bytes that were read.
    pub bytes_read: AtomicU64,
    /// Of a restore, and before it touches anything: contents that have to be read and found whole.
    pub contents_to_check: AtomicU64,
    /// Contents that were.
    pub contents_checked: AtomicU64,
    /// Of a restore, once the files as they are have been saved: files that have to be written.
    pub files_to_write: AtomicU64,
    /// Files that were.
    pub files_written: AtomicU64,
    /// Bytes that have to be written.
    pub bytes_to_write: AtomicU64,
    /// Bytes that were.
    pub bytes_written: AtomicU64,
    /// Set it, and the take ends soon as if the deadline had passed. Nothing is left behind.
    pub stop: Arc<AtomicBool>,
}

impl Report {
    pub(crate) fn declined(why: WhySkipped) -> Self {
        let outcome = Outcome::Skipped(why);
        Self {
            outcome,
            files: 0,
            skipped: Vec::new(),
            unprotected: false,
            unread_index: None,
            dropped_out: Vec::new(),
            tree: None,
            held_by: None,
        }
    }

    /// Reports that a lock was waited for in vain.
    fn busy(error: &Error) -> Self {
        Self { held_by: Some(error.to_string()), ..Self::declined(WhySkipped::Busy) }
    }
}

/// What was found of more files than this is large.
const FILES_FREED_HERE_MAX: u64 = 10_000;

/// Takes a checkpoint of a project.
///
/// `now` must not be later than the call: a file that changed after it is read again next time.
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
/// let request = Request { reason: "before patch".to_owned(), ..Request::default() };
/// let (settings, progress) = (Settings { enabled: true, ..Settings::default() }, Progress::default());
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
            .with_hint("`piton restore 1` there brings it back"));
    }
    let taking = Taking { store, project, request, settings, now, progress };
    let bytes_max = settings.total_bytes_max().unwrap_or(u64::MAX);
    // Held until the checkpoint is taken: nobody else gets the room that was made for it.
    let mut collecting = None;
    for _ in 0..TRIES_MAX {
        let bytes = match taking.attempt(collecting.as_ref())? {
            Kept::Done(report) => return Ok(report),
            Kept::NoRoom { bytes } => bytes,
            Kept::Lost => continue,
        };
        // Whoever unlinks must not hold the locks of a take, and what was found before may be gone after: begin anew.
        let held = match collecting.take().map_or_else(|| store.lock_gc_until(Some(&progress.stop)), Ok) {
            Err(error) if error.kind() == ErrorKind::Stopped => return Ok(Report::busy(&error)),
            held => held?,
        };
        let watch = Watch { stop: Arc::clone(&progress.stop), ..Watch::default() };
        match store.make_room(&held, bytes, bytes_max, now, &watch)? {
            RoomMade::Enough { .. } => collecting = Some(held),
            RoomMade::Impossible { .. } => break,
            RoomMade::Stopped { .. } => return Ok(Report::declined(WhySkipped::Deadline)),
        }
    }
    drop(collecting);
    taking.note_turn()?;
    Ok(Report::declined(WhySkipped::StoreFull))
}

/// One take, as often as it has to be tried.
struct Taking<'a> {
    store: &'a Store,
    project: &'a Project,
    request: &'a Request,
    settings: &'a Settings,
    now: Moment,
    progress: &'a Progress,
}

impl Taking<'_> {
    fn attempt(&self, collecting: Option<&GcLock>) -> Result<Kept> {
        let Self { store, project, request, settings, now, progress } = *self;
        let (locked, held) = match self.locks() {
            Err(error) if error.kind() == ErrorKind::Stopped => return Ok(Kept::Done(Report::busy(&error))),
            locks => locks?,
        };
        let mut record = store.record(project.id());
        let turn = request.turn();
        if turn.is_some_and(|(session, turn)| record.has_turn(session, turn)) {
            return Ok(Kept::Done(Report::declined(WhySkipped::AlreadyThisTurn)));
        }
        let objects = store.objects(&held)?;
        let newest = store.newest(project.id())?.map(|id| objects.checkpoint(id)).transpose()?;
        if newest.is_none() {
            // A new history in the place of one whose name is lost would make that one garbage.
            store.refuse_lost_ref(|other| other != project.id())?;
        }
        let newest = newest.as_ref();
        let new_objects = store.new_objects(&objects, false);
        let unfinished = record.progress(newest.map(|newest| newest.id));
        let ground = Ground::new(store, &objects, project, &record, newest, settings, progress);
        let ground = Ground { unfinished: unfinished.as_ref(), late: request.is_late.then_some(now), ..ground };
        let surveyed = survey(&ground, &new_objects);
        let is_recorded = record.dir().is_some();
        let is_contended = is_contended(newest, &record, now);
        record.touch(project.dir(), now);
        let keep = Keep {
            store,
            locked: &locked,
            project: project.id(),
            newest,
            request,
            restoring: None,
            session_record: None,
            objects: &objects,
            keep_max: settings.max_snapshots,
            bytes_max: settings.total_bytes_max(),
            collecting,
            is_contended,
            stop: Some(&*progress.stop),
            now,
        };
        let taken = surveyed.and_then(|end| keep.keep_end(end, project, new_objects, &mut record));
        if let Ok(Kept::Done(Report { outcome: Outcome::Taken(_) | Outcome::Unchanged(_), .. })) = &taken
            && record.set_progress(None, None)
        {
            let _ = store.drop_unfinished(&locked, project.id(), now);
        }
        if matches!(&taken, Ok(Kept::Done(Report { outcome: Outcome::Taken(_), .. }))) {
            store.sweep(&held, now);
        }
        if let Some((session, turn)) = turn.filter(|_| has_had_its_try(&taken)) {
            record.set_turn(session, turn);
        }
        // A directory that was refused is not recorded: it would be taken for the project of everything in it.
        if is_recorded
            || record.has_progress()
            || matches!(&taken, Ok(Kept::Done(report)) if !matches!(report.outcome, Outcome::Skipped(_)))
        {
            // The record can be made again: that it could not be saved must not hide what came of the take.
            let _ = store.save_record(&locked, project.id(), &record);
        }
        taken
    }

    /// Locks the store and the project.
    fn locks(&self) -> Result<(ProjectLock, StoreLock)> {
        let stop = Some(&*self.progress.stop);
        let held = self.store.share_until(stop)?;
        Ok((self.store.lock_project_until(&held, self.project.id(), stop)?, held))
    }

    /// The turn has had its try.
    fn note_turn(&self) -> Result<()> {
        if let Some((session, turn)) = self.request.turn() {
            let stop = Some(&*self.progress.stop);
            let held = self.store.share_until(stop)?;
            let locked = self.store.lock_project_until(&held, self.project.id(), stop)?;
            let mut record = self.store.record(self.project.id());
            record.set_turn(session, turn);
            if record.dir().is_some() {
                let _ = self.store.save_record(&locked, self.project.id(), &record);
            }
        }
        Ok(())
    }
}

/// A turn that failed has had its try; one that ran out of time or room, or met another process, has not.
fn has_had_its_try(taken: &Result<Kept>) -> bool {
    match taken {
        Ok(Kept::Done(report)) => !matches!(report.outcome, Outcome::Skipped(WhySkipped::Deadline | WhySkipped::Busy)),
        Ok(Kept::NoRoom { .. } | Kept::Lost) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Stopped),
    }
}

impl Request {
    /// What the rule of one checkpoint per turn goes by, if it holds for this one.
    fn turn(&self) -> Option<(&str, &str)> {
        let origin = (self.kind == CheckpointKind::Auto).then_some(&self.origin)?;
        Some((origin.session.as_deref()?, origin.turn.as_deref()?))
    }
}

/// Makes a checkpoint of what a survey found.
pub(crate) struct Keep<'a> {
    pub(crate) store: &'a Store,
    pub(crate) locked: &'a ProjectLock,
    pub(crate) project: &'a ProjectId,
    pub(crate) newest: Option<&'a Checkpoint>,
    pub(crate) request: &'a Request,
    /// What the checkpoint is the safety checkpoint of. Such a one is taken even if nothing changed: it says what undo
    /// goes back to.
    pub(crate) restoring: Option<Restoring>,
    /// The record of the session, which the checkpoint carries. It alone does not make a checkpoint another one.
    pub(crate) session_record: Option<Vec<u8>>,
    pub(crate) objects: &'a Objects,
    /// How many checkpoints the project keeps.
    pub(crate) keep_max: u64,
    /// How large the store may get.
    pub(crate) bytes_max: Option<u64>,
    /// Whether room was made for it, so that all that is there is its own.
    pub(crate) collecting: Option<&'a GcLock>,
    /// Another program may be about to move the ref regardless of its value.
    pub(crate) is_contended: bool,
    /// Ends the wait for that.
    pub(crate) stop: Option<&'a AtomicBool>,
    pub(crate) now: Moment,
}

/// What came of keeping.
pub(crate) enum Kept {
    Done(Report),
    /// The store would pass its limit with so many bytes more. Nothing was written.
    NoRoom {
        bytes: u64,
    },
    /// Stock git's collection deleted objects that the checkpoint relied upon. It was taken back: begin again.
    Lost,
}

/// How long after a checkpoint of Hermes its ref may still be moved by it.
const HERMES_AT_WORK_SECS: i64 = 10;
/// How long a ref that Hermes may be about to move is watched.
const WATCHED_MS: u64 = 2_000;
const WATCH_PAUSE_MS: u64 = 10;
/// How often a checkpoint is put on top of another one, should other programs move the ref all the time.
const MOVES_MAX: u32 = 16;

/// Returns true if Hermes may be at work on the project. It moves the ref without a look at its value twice: for its first
/// checkpoint, which begins with the record, and after any other, when it drops those above its limit.
fn is_contended(newest: Option<&Checkpoint>, record: &ProjectRecord, now: Moment) -> bool {
    let is_recent = |secs: i64| (-HERMES_AT_WORK_SECS..=HERMES_AT_WORK_SECS).contains(&now.secs.saturating_sub(secs));
    match newest {
        Some(newest) => newest.facts.files.is_none() && is_recent(newest.time.secs),
        #[expect(clippy::cast_possible_truncation, reason = "a time in seconds")]
        None => record.is_of_hermes_alone() && record.last_touch().is_some_and(|last| is_recent(last as i64)),
    }
}

impl Keep<'_> {
    /// Makes a checkpoint of what a survey came to, if it came to its end.
    fn keep_end(
        mut self,
        end: SurveyEnd,
        project: &Project,
        new_objects: NewObjects,
        record: &mut ProjectRecord,
    ) -> Result<Kept> {
        match end {
            SurveyEnd::TooManyFiles => Ok(Kept::Done(Report::declined(WhySkipped::TooManyFiles))),
            SurveyEnd::Stopped(None) => Ok(Kept::Done(Report::declined(WhySkipped::Deadline))),
            SurveyEnd::Stopped(Some(survey)) => self.keep_progress(&survey, new_objects, record),
            SurveyEnd::Done(mut survey) => {
                if self.request.count_left_out {
                    survey.count_left_out(project);
                }
                self.session_record = session::version_of(self.store, &self.request.origin);
                let kept = self.keep(&survey, new_objects, record);
                let is_large = survey.manifest.files() > FILES_FREED_HERE_MAX;
                threads::free_aside(survey, is_large);
                kept
            }
        }
    }

    pub(crate) fn keep(&self, survey: &Survey, new_objects: NewObjects, record: &mut ProjectRecord) -> Result<Kept> {
        let skipped = skipped::summarise(survey.skipped.clone(), usize::MAX);
        let report = |outcome, files, skipped: Vec<Skipped>| {
            let (unprotected, unread_index) = (survey.unprotected, survey.unread_index.clone());
            let (tree, dropped_out) = (Some(survey.tree()), self.dropped_out(&skipped));
            Kept::Done(Report { outcome, files, skipped, unprotected, unread_index, dropped_out, tree, held_by: None })
        };
        let files = survey.manifest.files();
        if files == 0 && self.newest.is_none() && self.restoring.is_none() {
            return Ok(report(Outcome::Skipped(WhySkipped::Empty), files, skipped));
        }
        let mut facts = survey.facts(skipped::summarise(skipped.clone(), SKIPPED_LINES_MAX));
        facts.kind = self.request.kind;
        facts.origin = self.request.origin.clone();
        facts.restoring = self.restoring.clone();
        facts.record = self.session_record.clone();
        facts.is_incomplete = survey.is_incomplete && self.request.is_late;
        // Stock git's checkpoints say nothing of permissions: the same tree is the same then.
        let is_same = |newest: &Checkpoint| {
            newest.tree == survey.tree() && (newest.facts.files.is_none() || newest.facts.same_files(&facts))
        };
        if let Some(newest) = self.newest.filter(|newest| self.restoring.is_none() && is_same(newest)) {
            let path = self.store.index_path(self.project);
            let index = survey.writes_index().then(|| write_index_of(survey, &path, self.now));
            self.note_index(index.as_ref(), survey, record);
            self.store.sync_newest(self.project)?;
            return Ok(report(Outcome::Unchanged(newest.id), files, skipped));
        }
        let commit = NewCheckpoint {
            tree: survey.tree(),
            parent: self.newest.map(|newest| newest.id),
            time: self.now,
            reason: &self.request.reason,
            facts: &facts,
            project: self.project,
        };
        let added = new_objects.writer().add(ObjectKind::Commit, &commit.encode())?;
        let id = added.map_err(|collision| Error::damaged("make a checkpoint", collision))?;
        if let Some(bytes) = self.lacks_room(survey, &new_objects)? {
            return Ok(Kept::NoRoom { bytes });
        }
        if self.newest.is_none() {
            // Before there is a ref: a process that is killed must not leave checkpoints of an unknown directory.
            let _ = self.store.save_record(self.locked, self.project, record);
        }
        let (index_path, now) = (self.store.index_path(self.project), self.now);
        let touched = record.last_touch();
        let publish = || self.publish(commit, id, new_objects, survey, touched);
        // The index can be made again, so it may go out while the disk is busy with what cannot.
        let (index, published) = if survey.writes_index() {
            let (index, published) = threads::beside(|| write_index_of(survey, &index_path, now), publish);
            (Some(index), published)
        } else {
            (None, publish())
        };
        let Some(id) = published? else { return Ok(Kept::Lost) };
        self.note_index(index.as_ref(), survey, record);
        Ok(report(Outcome::Taken(id), files, skipped))
    }

    /// Keeps what a survey that was stopped has read, for the next attempt.
    fn keep_progress(&self, survey: &Survey, new_objects: NewObjects, record: &mut ProjectRecord) -> Result<Kept> {
        if let Some(bytes) = self.lacks_room(survey, &new_objects)? {
            return Ok(Kept::NoRoom { bytes });
        }
        let path = self.store.unfinished_index_path(self.project)?;
        let published = new_objects.publish()?;
        self.store.keep_unfinished(self.locked, self.project, survey.tree(), self.now)?;
        if !self.store.secure(&published, self.now)? {
            // Stock git's collection deleted some of it: the next attempt reads everything again.
            record.set_progress(None, None);
            self.store.drop_progress(self.locked, self.project, self.now)?;
            return Ok(Kept::Done(Report::declined(WhySkipped::Deadline)));
        }
        let written = write_index_of(survey, &path, self.now);
        let mut progress = ProjectRecord::default();
        self.note_index(Some(&written), survey, &mut progress);
        record.set_progress(written.is_ok().then_some(progress), self.newest.map(|newest| newest.id));
        Ok(Kept::Done(Report::declined(WhySkipped::Deadline)))
    }

    /// Publishes the objects and moves the ref. Where another program moved it meanwhile, the checkpoint goes on top of
    /// that one, under another id. Returns `None` if objects that it relies upon are gone; then nothing was taken.
    fn publish(
        &self,
        commit: NewCheckpoint<'_>,
        id: CheckpointId,
        new_objects: NewObjects,
        survey: &Survey,
        touched: Option<f64>,
    ) -> Result<Option<CheckpointId>> {
        let Self { store, locked, project, now, .. } = *self;
        let mut published = vec![new_objects.publish()?];
        let (mut id, mut parent) = (id, commit.parent);
        for _ in 0..MOVES_MAX {
            if store.advance(locked, project, parent, id, now)? && self.stays(id, touched)? {
                // Objects of the checkpoint that was the newest are safe only as long as it is the parent.
                let is_moved = parent != commit.parent;
                let relied = is_moved.then(|| survey.ids().collect());
                let is_whole = match relied {
                    None => store.secure(&published[0], now)?,
                    Some(relied) => store.secure_all(&relied, now)?,
                };
                if !is_whole && store.retreat(locked, project, id, parent, now)? {
                    return Ok(None);
                }
                // What could not be dropped now is dropped next time; the checkpoint is there either way.
                let _ = self.drop_oldest(id, parent);
                return Ok(Some(id));
            }
            parent = store.newest(project)?;
            let again = store.new_objects(self.objects, false);
            let added = again.writer().add(ObjectKind::Commit, &NewCheckpoint { parent, ..commit }.encode())?;
            id = added.map_err(|collision| Error::damaged("make a checkpoint", collision))?;
            published.push(again.publish()?);
        }
        Err(moved_meanwhile("move the project's ref"))
    }

    /// Watches the ref for a while, where another program may be about to move it regardless of its value. Returns false
    /// if that happened and the checkpoint is not part of the history any more.
    fn stays(&self, id: CheckpointId, touched: Option<f64>) -> Result<bool> {
        // A first take has saved the record before: whoever changed it since has begun a take of its own.
        let is_touched = || self.store.record(self.project).last_touch() != touched;
        if !self.is_contended && (self.newest.is_some() || !is_touched()) {
            return Ok(true);
        }
        for _ in 0..WATCHED_MS / WATCH_PAUSE_MS {
            let newest = self.store.newest(self.project)?;
            if newest != Some(id) {
                return self.store.leads_to(newest, id);
            }
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(WATCH_PAUSE_MS));
        }
        Ok(true)
    }

    /// Returns the directories among what was left out that cannot be read and that the checkpoint before held.
    fn dropped_out(&self, skipped: &[Skipped]) -> Vec<Vec<u8>> {
        let unread = skipped.iter().filter(|one| one.why == SkipReason::Unreadable && one.extent != Extent::File);
        let was_held = |path: &&[u8]| {
            self.newest.is_some_and(|newest| matches!(self.objects.entry_at(newest.tree, path), Ok(Some(_))))
        };
        unread.map(|one| one.path.as_slice()).filter(was_held).map(<[u8]>::to_vec).collect()
    }

    /// Sets aside what this checkpoint takes; or says how much it is, where there is no room for it.
    fn lacks_room(&self, survey: &Survey, new_objects: &NewObjects) -> Result<Option<u64>> {
        // Without a limit it is noted all the same: there may be one for the next take.
        let bytes_max = self.bytes_max.unwrap_or(u64::MAX);
        let index = || index_bytes_max(&survey.manifest).saturating_sub(self.store.index_bytes(self.project));
        let index = if survey.writes_index() { index() } else { 0 };
        let bytes = new_objects.bytes_on_disk() + index + SMALL_FILES_BYTES;
        let room = self.store.reserve(bytes, new_objects.bytes_written(), bytes_max, self.collecting)?;
        Ok((room == Room::Lacking).then_some(bytes))
    }

    /// Drops what is above the limit. A safety checkpoint drops nothing: a user who goes back and forth among the
    /// checkpoints of a list finds all of them there until the next take.
    fn drop_oldest(&self, new: CheckpointId, parent: Option<CheckpointId>) -> Result<()> {
        let keep = self.keep_max.max(1);
        if self.restoring.is_some() {
            let add = || self.store.lineage(self.locked, self.project, parent, new, self.objects).map(drop);
            return if keep > WALK_MAX { add() } else { Ok(()) };
        }
        // A restore that was cut short needs both of its checkpoints to be finished or taken back.
        let intent = self.store.interrupted_restore(self.project)?;
        let end = match intent {
            None if keep > WALK_MAX => self.oldest_by_place(new, parent, keep)?,
            intent => self.oldest_by_walk(new, parent, keep, intent.as_ref())?,
        };
        end.map_or(Ok(()), |end| self.store.cut_before(self.locked, self.project, end, self.now))
    }

    /// The checkpoint that the history is to end at, if it is longer than that. Takes the same time however long it is.
    fn oldest_by_place(
        &self,
        new: CheckpointId,
        parent: Option<CheckpointId>,
        keep: u64,
    ) -> Result<Option<CheckpointId>> {
        let lineage = self.store.lineage(self.locked, self.project, parent, new, self.objects)?;
        if lineage.count() <= keep {
            return Ok(None);
        }
        let Some(end) = lineage.oldest_of(keep, self.objects) else {
            self.store.forget_lineage(self.project);
            return self.oldest_by_walk(new, parent, keep, None);
        };
        lineage.shrink(keep)?;
        Ok(Some(end))
    }

    /// The same, found by reading one checkpoint after the other, no more than are kept.
    fn oldest_by_walk(
        &self,
        new: CheckpointId,
        parent: Option<CheckpointId>,
        keep: u64,
        intent: Option<&Intent>,
    ) -> Result<Option<CheckpointId>> {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        let most = if intent.is_some() { usize::MAX } else { keep };
        let older = self.store.history_to(self.objects, parent, most)?;
        let is_needed = |id: CheckpointId| intent.is_some_and(|intent| [intent.target, intent.safety].contains(&id));
        let needed = older.iter().rposition(|checkpoint| is_needed(checkpoint.id)).map_or(0, |at| at + 2);
        let keep = keep.max(needed);
        if older.len() < keep {
            return Ok(None);
        }
        Ok(Some(older[..keep - 1].last().map_or(new, |oldest| oldest.id)))
    }

    /// Without the index the next take reads every file again, and that is all: not worth failing a checkpoint for.
    fn note_index(&self, written: Option<&Result<IndexSums>>, survey: &Survey, record: &mut ProjectRecord) {
        if let IndexAfter::Behind(paths) = &survey.index {
            record.set_index_behind(survey.tree(), paths);
        }
        if survey.reread_young && written.is_none() {
            record.set_index_reread(self.now);
        }
        if let Some(Ok(sums)) = written {
            let hidden = survey.manifest.hidden_rules(self.now.as_nanos());
            record.set_index_and_rules(sums.checksum.to_string(), survey.rules.to_string(), hidden);
            record.set_index_crc(sums.crc);
            record.set_index_boot(sys::boot_id().unwrap_or_default(), self.now);
        }
    }
}

fn write_index_of(survey: &Survey, path: &Path, now: Moment) -> Result<IndexSums> {
    let mut temp = fsx::temp_file(path.parent().expect("an index is in a directory"))?;
    let written = write_index(&survey.manifest, &survey.trees, now.as_nanos(), temp.as_file_mut());
    let sums = written.map_err(|error| Error::io("write", path, error))?;
    fsx::persist_large(temp.into_temp_path(), path)?;
    Ok(sums)
}
