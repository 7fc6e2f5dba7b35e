//! Restores files to a checkpoint.
//!
//! - R1. No byte is overwritten or removed that is not in the safety checkpoint or its local files. Oversized and special
//!   files are therefore never touched, and ignored ones only if they were saved.
//! - R2. The safety checkpoint is taken from the same scan that the plan was made from. Files that changed after that
//!   scan are left alone and reported.
//! - R3. Everything that will be written was read from the store and verified before anything is touched.
//! - R4. The next command detects an interrupted restore, which can be continued or aborted.
//! - R5. A restore can be undone, and an undo can be undone, too.

use crate::error::{Error, ErrorKind, Result, plain_io};
use crate::git_state::{CaptureInput, capture};
use crate::hint::Hint;
use crate::id::CheckpointId;
use crate::keep::{BuildOutcome, CheckpointBuilder};
use crate::progress::Progress;
use crate::project::Project;
use crate::session::{self, RecordRewind, Sessions};
use crate::settings::Settings;
use crate::skipped::NAMED_MAX;
use crate::store::{
    Activity, Checkpoint, CheckpointKind, GitStateMoment, Intent, NewObjects, Objects, ProjectLock, ProjectRecord,
    RestoreVerb, Restoring, Store, StoreLock,
};
use crate::survey::{Survey, SurveyInput};
use crate::sys::{Dir, FileTime};
use crate::take::{Outcome, Request};
use crate::time::Moment;
use crate::worktree::dir_identity;

mod apply;
mod json;
mod kept;
mod left;
mod local;
mod made;
mod moves;
mod options;
mod others;
mod outside;
mod plan;
mod planner;
mod report;
mod resolve;
mod rules;

pub(crate) use json::{AtRemovedPaths, AtWrittenPaths};
use kept::{KeptDone, KeptPlanning, KeptRestore};
pub use left::{Left, WhyLeft};
pub use local::IgnoredFiles;
use local::{LocalPlanned, LocalPlanning, ignored_by};
pub use options::RestoreOptions;
pub use others::OtherWork;
use others::Others;
pub use plan::RestorePlan;
pub(crate) use planner::Planner;
pub use report::{RestoreOutcome, RestoreReport, RulesChanged};

use made::MadeFiles;
use report::report;
use resolve::{Resolved, resolve};
use rules::{Planned, Planning};

/// Target of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreTo<'a> {
    /// The checkpoint with this number, id or mark.
    Named(&'a str),
    /// The state before the last restore.
    Undo,
    /// The state before the last undo.
    Redo,
    /// The target of an interrupted restore.
    Continue,
    /// The state before an interrupted restore.
    Abort,
}

/// A planned restore that has not begun. Unless it is a dry run, it holds the lock of the project: no other piton
/// process can change the project's checkpoints while this value exists.
///
/// ```
/// use piton::{Restore, RestoreOptions, RestoreTo};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let request = piton::Request::default().reason("before patch");
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &request, &settings, now, &progress)?;
/// std::fs::write(code.join("main.rs"), "oops")?;
/// std::fs::write(code.join("new.rs"), "made since")?;
/// let options = RestoreOptions::default();
/// let restore = Restore::prepare(&store, &project, RestoreTo::Named("1"), options, &settings, now, &progress)?;
/// assert_eq!(restore.plan().changes(), 2); // nothing is done yet
/// let report = restore.apply()?;
/// assert_eq!((report.written, report.removed), (vec![b"main.rs".to_vec()], vec![b"new.rs".to_vec()]));
///
/// // The previous state is saved, and can be restored likewise.
/// Restore::prepare(&store, &project, RestoreTo::Undo, options, &settings, now, &progress)?.apply()?;
/// assert_eq!(std::fs::read_to_string(code.join("main.rs"))?, "oops");
/// # Ok(())
/// # }
/// ```
pub struct Restore<'a> {
    store: &'a Store,
    project: &'a Project,
    now: Moment,
    plan: RestorePlan,
    target: Checkpoint,
    verb: Option<RestoreVerb>,
    is_abort: bool,
    rules: RulesChanged,
    intent: Option<Intent>,
    paths: Vec<Vec<u8>>,
    others: Vec<OtherWork>,
    across_sessions: bool,
    move_uncovered_files: bool,
    /// Safety checkpoint of the restore that is undone.
    safety: Option<Checkpoint>,
    settings: Settings,
    survey: Survey,
    local: LocalPlanned,
    newest: Option<Checkpoint>,
    record: ProjectRecord,
    new_objects: Option<NewObjects>,
    objects: Objects,
    root: Dir,
    /// True if the directory was deleted. It is created again once the intent is written.
    is_missing: bool,
    locked: Option<ProjectLock>,
    _held: StoreLock,
}

/// Maximum number of attempts to take the safety checkpoint, should garbage collection by other programs remove objects
/// that it relies on.
const SAVES_MAX: u32 = 4;

impl<'a> Restore<'a> {
    /// Makes the plan of a restore. Fails before anything is changed if the target is missing or corrupt, or if the
    /// current files cannot be saved.
    pub fn prepare(
        store: &'a Store,
        project: &'a Project,
        to: RestoreTo<'_>,
        options: RestoreOptions<'_>,
        settings: &Settings,
        now: Moment,
        progress: &Progress,
    ) -> Result<Self> {
        let (held, locked) = lock(store, project, options.is_dry, progress)?;
        let objects = store.objects.open(&held)?;
        let (history, intent) = (store.histories.of(&objects, project.id())?, store.intents.get(project.id())?);
        let Resolved { target, verb, paths, safety } = resolve(to, options.paths, &history, intent.as_ref())?;
        let (newest, record) = (history.checkpoints.first().cloned(), store.records.get(project.id()));
        let new_objects = store.objects.new_objects(&objects, options.is_dry);
        let (root, is_missing) = open_root(project, &record)?;
        let input = SurveyInput::new(store, &objects, project, &record, newest.as_ref(), settings, progress);
        let stamp = options.move_uncovered_files.then(|| now.stamp());
        let ignored = ignored_by(to, options.ignored, &target, intent.as_ref());
        let (kept, made) = KeptPlanning::new(store, project, &target, &paths, ignored, &root);
        let planning = Planning {
            input: &input,
            new_objects: &new_objects,
            root: &root,
            target: &target,
            paths: &paths,
            moves_aside: stamp.as_deref(),
            safety: safety.as_ref(),
            made: &made,
            // The other verbs use the paths of an earlier restore, which has checked them.
            checks_paths: verb == Some(RestoreVerb::Restore),
            local: Some(LocalPlanning::new(&input, &target, ignored, options.is_dry, now)),
            kept: Some(kept).into(),
        };
        let Planned { plan, survey, rules, local } = planning.run()?;
        let mut restore = Self {
            store,
            project,
            now,
            plan,
            target,
            verb,
            is_abort: to == RestoreTo::Abort,
            rules,
            intent,
            paths,
            others: Vec::new(),
            across_sessions: options.across_sessions,
            move_uncovered_files: options.move_uncovered_files,
            safety,
            settings: settings.clone(),
            survey,
            local,
            newest,
            record,
            new_objects: Some(new_objects),
            objects,
            root,
            is_missing,
            locked,
            _held: held,
        };
        restore.others = restore.find_others(&history.checkpoints, options.session)?;
        Ok(restore)
    }

    /// Returns the sessions whose later work this restore would take back. An interrupted restore has been agreed to.
    fn find_others(&self, history: &[Checkpoint], session: Option<&str>) -> Result<Vec<OtherWork>> {
        if self.verb.is_none() {
            return Ok(Vec::new());
        }
        let activity = Activity::read(&self.store.turns, &self.record, self.settings.session_idle_minutes, self.now);
        let newest = self.newest.as_ref().unwrap_or(&self.target);
        let planner = Planner::for_preview(&self.survey, newest, &self.objects, &self.root, &self.paths);
        let found = Others::new(&self.target, history, session, &activity, self.now);
        found.find(&planner, &self.rules.rescoped)
    }

    /// Returns the plan.
    pub fn plan(&self) -> &RestorePlan {
        &self.plan
    }

    /// Returns the effect of the ignore rules that it will restore.
    pub fn rules(&self) -> &RulesChanged {
        &self.rules
    }

    /// Returns the checkpoint that it will restore.
    pub fn target(&self) -> &Checkpoint {
        &self.target
    }

    /// Returns the work of other sessions since the target, which the restore would undo as well.
    pub fn others(&self) -> &[OtherWork] {
        &self.others
    }

    fn check_agreed(&self) -> Result<()> {
        if self.plan.changes() == 0 || self.others.is_empty() || self.across_sessions {
            return Ok(());
        }
        let names: Vec<_> = self.others.iter().map(OtherWork::label).collect();
        Err(Error::new(ErrorKind::NeedsConsent, "restore")
            .because(format!("it would also take back later work of {}", names.join(" and of ")))
            .with_hint(Hint::RestoreAcrossSessions))
    }

    /// Takes the safety checkpoint. Returns its id and the session's record that it carries. Reads the files again if
    /// garbage collection by another program removed contents that it relied on.
    fn save_first(&mut self, locked: &ProjectLock) -> Result<(CheckpointId, Option<Vec<u8>>)> {
        for _ in 0..SAVES_MAX {
            if let Some(saved) = self.try_to_save(locked)? {
                return Ok(saved);
            }
            let objects = self.store.objects.open(&self._held)?;
            let new_objects = self.store.objects.new_objects(&objects, false);
            if self.survey_again(&objects, &new_objects)?.tree() != self.survey.tree() {
                return Err(unsafe_to_restore("the files changed meanwhile", Hint::from("try again")));
            }
            (self.objects, self.new_objects) = (objects, Some(new_objects));
        }
        Err(Error::new(ErrorKind::Busy, "take a safety checkpoint")
            .because("another program's collections remove objects all the time")
            .with_hint(Hint::from("try again").nothing_touched()))
    }

    /// Reads every file again. Covers the same paths as the survey that the plan was made from.
    fn survey_again(&self, objects: &Objects, new_objects: &NewObjects) -> Result<Survey> {
        let (record, progress) = (ProjectRecord::default(), Progress::default());
        let newest = self.newest.as_ref();
        let input = SurveyInput::new(self.store, objects, self.project, &record, newest, &self.settings, &progress);
        let stamp = self.now.stamp();
        let planning = Planning {
            input: &input,
            new_objects,
            root: &self.root,
            target: &self.target,
            paths: &self.paths,
            moves_aside: self.move_uncovered_files.then_some(stamp.as_str()),
            safety: self.safety.as_ref(),
            made: &MadeFiles::after(&self.target, &self.root),
            checks_paths: self.verb == Some(RestoreVerb::Restore),
            local: None,
            kept: None.into(),
        };
        Ok(planning.run()?.survey)
    }

    /// Returns `None` if contents that the checkpoint relied on are missing.
    fn try_to_save(&mut self, locked: &ProjectLock) -> Result<Option<(CheckpointId, Option<Vec<u8>>)>> {
        let asides = self.plan.asides.iter().chain(&self.plan.backs).cloned().collect();
        let (paths, outside) = (self.paths.clone(), self.plan.outside.clone());
        let with_ignored = self.local.ignored == IgnoredFiles::With;
        let target = self.target.id;
        let restoring = self.verb.map(|verb| Restoring { verb, target, paths, asides, outside, with_ignored });
        let request = Request {
            is_late: false,
            reason: reason(self.verb, &self.target),
            kind: if self.verb.is_some() { CheckpointKind::Safety } else { CheckpointKind::Auto },
            origin: session::origin_of_safety(&self.target),
            ..Request::default()
        };
        let session_record = session::version_of(self.store, &request.origin);
        let mut record = self.record.clone();
        let keep = CheckpointBuilder {
            store: self.store,
            locked,
            project: self.project.id(),
            newest: self.newest.as_ref(),
            request: &request,
            restoring,
            session_record: session_record.clone(),
            objects: &self.objects,
            settings: &self.settings,
            is_forced: self.local.survey.as_ref().is_some_and(|local| !local.is_unchanged()),
            // No checkpoint may be dropped while a restore is about to need it. The next take enforces the limit.
            bytes_max: None,
            collecting: None,
            is_contended: false,
            progress: None,
            now: self.now,
        };
        let new_objects = self.new_objects.take().expect("a plan is applied once");
        let kept = match keep.keep(&self.survey, new_objects, &mut record)? {
            BuildOutcome::Done(kept) => kept,
            BuildOutcome::Lost => return Ok(None),
            BuildOutcome::NoRoom { .. } => {
                return Err(Error::new(ErrorKind::Full, "take a safety checkpoint")
                    .because("the store has reached its limit")
                    .with_hint(Hint::RaiseLimitOrPrune.nothing_touched()));
            }
        };
        let saved = match kept.outcome {
            Outcome::Taken(id) => (id, session_record),
            Outcome::Unchanged(id) => (id, self.newest.as_ref().and_then(|newest| newest.facts.record.clone())),
            Outcome::Skipped(why) => {
                let why = format!("the current files could not be saved first: {why}");
                return Err(unsafe_to_restore(&why, Hint::from("try again")));
            }
        };
        // Undo tells the files that this restore creates from those that the safety checkpoint left out by their times.
        if self.survey.skipped.len() > NAMED_MAX {
            FileTime::now().wait_until_past();
        }
        if let Some(local) = self.local.survey.take() {
            self.local.failed = keep.save_local(saved.0, local, self.project, &mut record).failed;
        }
        record.touch(self.project.dir(), dir_identity(self.project.dir()), self.now);
        if record.set_progress(None, None) {
            // A failure is ignored: what is left only takes space, and the next take removes it.
            let _ = self.store.unfinished.drop_all(locked, self.project.id(), self.now);
        }
        // The record can be rebuilt.
        let _ = self.store.records.save(locked, self.project.id(), &record);
        self.record_git_state(locked, saved.0);
        Ok(Some(saved))
    }

    /// Leaves the files out of scope that were to be replaced or removed as they are, if they could not be saved. (R1)
    fn leave_unsaved_local_files(&mut self) {
        let Some(failed) = &self.local.failed else { return };
        let is_unsaved = |path: &Vec<u8>| self.local.replacing.contains(path);
        let writes = self.plan.writes.extract_if(.., |write| is_unsaved(&write.path)).map(|write| write.path);
        let removes = self.plan.removes.extract_if(.., |remove| is_unsaved(&remove.path)).map(|remove| remove.path);
        let left = writes.chain(removes).map(|path| Left { path, why: WhyLeft::Failed(failed.clone()) });
        self.plan.left.extend(left);
    }

    /// Records the state of the repository beside the safety checkpoint. A restore of files does not touch the repository:
    /// a failure is no reason to stop.
    fn record_git_state(&self, locked: &ProjectLock, safety: CheckpointId) {
        let Self { store, project, settings, now, .. } = self;
        let (checkpoint, moment, progress) = (Some(safety), GitStateMoment::Row, &Progress::default());
        let changes = Vec::new();
        let _ = capture(&CaptureInput {
            store,
            locked,
            project,
            checkpoint,
            moment,
            changes,
            settings,
            now: *now,
            progress,
        });
    }

    /// Records the intent, and creates a missing directory again. From here on, a restore that ends early is continued or
    /// aborted.
    fn begin(&mut self, locked: &ProjectLock, safety: CheckpointId, token: &str) -> Result<Intent> {
        let (mut tokens, mut rest) = self.intent.take().map(|intent| (intent.tokens, intent.rest)).unwrap_or_default();
        tokens.push(token.to_owned());
        rest.insert(IgnoredFiles::KEY.to_owned(), self.local.ignored.word().into());
        let paths = std::mem::take(&mut self.paths);
        let intent = Intent { target: self.target.id, safety, paths, tokens, rest };
        self.store.intents.note(locked, self.project.id(), &intent)?;
        if self.is_missing {
            self.root = self.project.make_dir_again(self.record.dir_mode()).inspect_err(|_| {
                // Nothing was touched, so there is nothing to continue or abort.
                let _ = self.store.intents.clear(locked, self.project.id());
            })?;
        }
        Ok(intent)
    }

    /// Applies the plan. Fails with `NeedsConsent` if that would undo another session's work and the options do not
    /// allow it, and with `Invalid` if the plan was made for a dry run.
    pub fn apply(self) -> Result<RestoreReport> {
        self.apply_watched(&Progress::default())
    }

    /// Like [`Restore::apply`], and reports its progress. It cannot be cancelled, because half a restore is of no use.
    pub fn apply_watched(mut self, progress: &Progress) -> Result<RestoreReport> {
        let Some(locked) = self.locked.take() else {
            return Err(Error::new(ErrorKind::Invalid, "apply the plan of a restore")
                .because("it was made only to be shown")
                .with_hint("prepare the restore again, without the request to show it only"));
        };
        self.check_agreed()?;
        if self.plan.changes() == 0 && self.intent.is_none() && !self.is_missing {
            let outcome = if self.plan.left.is_empty() { RestoreOutcome::NothingToDo } else { RestoreOutcome::Partly };
            let rules = self.rules;
            return Ok(RestoreReport {
                paths: self.paths,
                rules,
                ignored_differing: self.local.differing,
                ..report(outcome, self.target, None, self.plan.left)
            });
        }
        let contents = apply::read_all(&self.plan, &self.objects, progress)?;
        apply::check_saved(&self.plan, &self.objects, progress)?;
        let (saved, saved_record) = self.save_first(&locked)?;
        self.leave_unsaved_local_files();
        // To continue or abort keeps the safety checkpoint of the first attempt: undo goes back to that one.
        let safety = self.intent.as_ref().map_or(saved, |intent| intent.safety);
        let before = if self.is_abort { Some(saved).filter(|saved| *saved != safety) } else { Some(safety) };
        // What an abort removes comes back by a restore of the state before the abort.
        let kept_with = if self.is_abort { saved } else { safety };
        let token = crate::id::random_token();
        let intent = self.begin(&locked, safety, &token)?;
        let LocalPlanned { written: local_written, differing, failed, kept, .. } = self.local;
        let Self { store, project, now, .. } = self;
        let with_kept = KeptRestore { store, project, settings: &self.settings, safety: kept_with, now };
        let mut kept_done = KeptDone::default();
        with_kept.take_away(&kept, &mut kept_done);
        let mut done = apply::apply(self.plan, &contents, &self.objects, &self.root, &token, progress);
        with_kept.bring_back(&kept, &mut kept_done);
        done.add(&kept_done);
        // Done before the intent is removed: a restore that is interrupted here does it when it is continued.
        let is_whole = done.left.is_empty() && intent.paths.is_empty();
        let record = if is_whole { rewind(self.store, &self.target, saved_record.as_deref()) } else { None };
        // A restore that is not safely on the disk is not done: the intent stays, and the next command reports it.
        let ended = match self.root.sync_file_system() {
            Ok(()) => self.store.intents.clear(&locked, self.project.id()).map_err(|error| error.to_string()),
            Err(error) => Err(plain_io(&error)),
        };
        // The report has to be returned whether or not the intent could be removed.
        done.left.extend(ended.err().map(|why| Left { path: Vec::new(), why: WhyLeft::Failed(why) }));
        let outcome = if done.left.is_empty() { RestoreOutcome::Restored } else { RestoreOutcome::Partly };
        let is_written = |path: &Vec<u8>| done.written.binary_search(path).is_ok();
        Ok(RestoreReport {
            ignored_written: local_written.into_iter().filter(is_written).collect(),
            kept_written: kept_done.written,
            ignored_differing: differing,
            ignored_unsaved: failed,
            written: done.written,
            removed: done.removed,
            modes_changed: done.modes_changed,
            made_dirs: done.made_dirs,
            removed_dirs: done.removed_dirs,
            moved_aside: done.moved_aside,
            record,
            paths: intent.paths,
            rules: self.rules,
            can_undo: !self.is_abort,
            ..report(outcome, self.target, before, done.left)
        })
    }
}

/// Locks the store, and the project unless nothing will be written.
fn lock(
    store: &Store,
    project: &Project,
    is_dry: bool,
    progress: &Progress,
) -> Result<(StoreLock, Option<ProjectLock>)> {
    let progress = Some(progress);
    if is_dry {
        return Ok((store.locks.share_until(progress)?, None));
    }
    store.locks.ensure_files()?;
    let held = store.locks.share_until(progress)?;
    let locked = store.locks.lock_project_until(&held, project.id(), progress)?;
    Ok((held, Some(locked)))
}

/// Opens the directory of a project, and returns true if it is missing. Fails if the disk that it was on is not
/// mounted.
fn open_root(project: &Project, record: &ProjectRecord) -> Result<(Dir, bool)> {
    if let Some(root) = project.open_dir()? {
        return Ok((root, false));
    }
    project.check_disk(record.parent_device())?;
    Ok((Dir::missing().map_err(|error| Error::io("open", project.dir(), error))?, true))
}

/// Restores the session's record, too. A failure is reported, and does not make the restore of the files a failure.
fn rewind(store: &Store, target: &Checkpoint, saved: Option<&[u8]>) -> Option<RecordRewind> {
    let rewound = Sessions::in_base(store.base()).rewind(target, saved);
    Some(rewound.unwrap_or_else(|error| RecordRewind::Failed(error.to_string())))
        .filter(|done| *done != RecordRewind::NoSession)
}

fn reason(verb: Option<RestoreVerb>, target: &Checkpoint) -> String {
    match verb {
        Some(RestoreVerb::Restore) => format!("before restore to {}", target.id.short()),
        Some(RestoreVerb::Undo) => "before undo".to_owned(),
        Some(RestoreVerb::Redo) => "before redo".to_owned(),
        None => "before continuing a restore that was cut short".to_owned(),
    }
}

fn unsafe_to_restore(why: &str, hint: Hint) -> Error {
    Error::new(ErrorKind::Invalid, "restore without losing something").because(why).with_hint(hint.nothing_touched())
}
