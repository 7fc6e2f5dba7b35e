//! Making files equal to a checkpoint again.
//!
//! - R1. No byte is overwritten or removed that is not in the safety checkpoint. Ignored, oversized and special files are
//!   therefore never touched.
//! - R2. The safety checkpoint is taken from the very scan that the plan was made from. What changed after that scan is
//!   left alone, and reported.
//! - R3. Everything that will be written was read from the store, and found whole, before anything is touched.
//! - R4. A restore that is cut short is known to the next command, and can be finished or taken back.
//! - R5. A restore can be undone, and so can that.

use crate::error::{Error, ErrorKind, Result, plain_io};
use crate::id::CheckpointId;
use crate::keep::{Keep, Kept};
use crate::project::Project;
use crate::session::{self, Rewound, Sessions};
use crate::settings::Settings;
use crate::store::{
    Checkpoint, CheckpointKind, Intent, NewObjects, Objects, ProjectLock, ProjectRecord, RestoreVerb, Restoring, Store,
    StoreLock,
};
use crate::survey::{Ground, Survey};
use crate::sys::Dir;
use crate::take::{Outcome, Progress, Request};
use crate::time::Moment;

mod apply;
mod left;
mod moves;
mod others;
mod outside;
mod plan;
mod planner;
mod resolve;
mod rules;

pub use left::{Left, WhyLeft};
pub use others::OtherWork;
use others::Others;
pub use plan::RestorePlan;
pub(crate) use planner::Planner;

use outside::Made;
use resolve::{Resolved, resolve};
use rules::{Planned, Planning};

/// What to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreTo<'a> {
    /// The checkpoint of this number or id.
    Named(&'a str),
    /// What there was before the last restore.
    Undo,
    /// What there was before the last undo.
    Redo,
    /// What a restore that was cut short was to restore.
    Continue,
    /// What there was before it.
    Abort,
}

/// How to restore.
#[derive(Debug, Clone, Copy, Default)]
pub struct RestoreOptions<'a> {
    /// Only these paths, relative to the project; all, if there are none.
    pub paths: &'a [Vec<u8>],
    /// Move files that no checkpoint covers aside, instead of leaving them in the way.
    pub moves_uncovered_aside: bool,
    /// Take back what other sessions did since, too.
    pub across_sessions: bool,
    /// The session that asks, where one does. Its own work may be taken back.
    pub session: Option<&'a str>,
    /// Only make the plan. Writes nothing to the store and takes no lock that others would wait for.
    pub is_dry: bool,
}

/// A restore that is planned and not yet begun. No other process changes the project's checkpoints while it is held.
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
/// # let request = piton::Request { reason: "before patch".to_owned(), ..Default::default() };
/// # let (settings, progress) = (piton::Settings { enabled: true, ..Default::default() }, piton::Progress::default());
/// # piton::take(&store, &project, &request, &settings, now, &progress)?;
/// std::fs::write(code.join("main.rs"), "oops")?;
/// std::fs::write(code.join("new.rs"), "made since")?;
/// let options = RestoreOptions::default();
/// let restore = Restore::prepare(&store, &project, RestoreTo::Named("1"), options, &settings, now, &progress)?;
/// assert_eq!(restore.plan().changes(), 2); // nothing is done yet
/// let report = restore.apply()?;
/// assert_eq!((report.written, report.removed), (vec![b"main.rs".to_vec()], vec![b"new.rs".to_vec()]));
///
/// // What there was before is safe, and comes back the same way.
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
    moves_uncovered_aside: bool,
    /// The safety checkpoint of the restore that is undone.
    safety: Option<Checkpoint>,
    settings: Settings,
    survey: Survey,
    newest: Option<Checkpoint>,
    record: ProjectRecord,
    new_objects: Option<NewObjects>,
    objects: Objects,
    root: Dir,
    /// The directory was deleted, and is made again once the intent is noted.
    is_missing: bool,
    locked: Option<ProjectLock>,
    _held: StoreLock,
}

/// What came of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// The files are as they were then.
    Restored,
    /// Some are not: see what was left.
    Partly,
    /// They were so already.
    NothingToDo,
}

impl RestoreOutcome {
    /// The word for it in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Restored => "restored",
            Self::Partly => "partly",
            Self::NothingToDo => "nothing_to_do",
        }
    }
}

/// What a restore that changes ignore rules brings into scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesChanged {
    /// The `.gitignore` files that change.
    pub files: Vec<Vec<u8>>,
    /// The files and directories that were ignored and are in scope by the restored rules. They were saved and restored
    /// with the rest, unless `is_cut_short`.
    pub rescoped: Vec<Vec<u8>>,
    /// There was too much of it to be saved first. The same restore once more does the rest.
    pub is_cut_short: bool,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// What came of it.
    pub outcome: RestoreOutcome,
    /// What was restored.
    pub target: Checkpoint,
    /// Only these paths of it; all, if there are none.
    pub paths: Vec<Vec<u8>>,
    /// What there was before.
    pub safety: Option<CheckpointId>,
    /// True if undo goes back to that. After an abort it does not: undo goes to where the abort went.
    pub can_undo: bool,
    /// The files that were written.
    pub written: Vec<Vec<u8>>,
    /// The files that were removed.
    pub removed: Vec<Vec<u8>>,
    /// How many files and directories got other permission bits.
    pub remoded: usize,
    /// The directories that were made.
    pub made_dirs: Vec<Vec<u8>>,
    /// The directories that were removed.
    pub removed_dirs: Vec<Vec<u8>>,
    /// What changed by ignore rules that were restored.
    pub rules: RulesChanged,
    /// The files that were moved aside, and the names that they got.
    pub moved_aside: Vec<(Vec<u8>, Vec<u8>)>,
    /// What differs from the checkpoint and stays as it is.
    pub left: Vec<Left>,
    /// What became of the session's record. It follows the files where all of them went back, and the checkpoint has a
    /// session.
    pub record: Option<Rewound>,
}

/// How often the safety checkpoint is tried, should another program's collections remove what it relies upon.
const SAVES_MAX: u32 = 4;

impl<'a> Restore<'a> {
    /// Makes the plan of a restore. Fails, with nothing touched, where the target is not found or not whole, and where
    /// the files as they are could not be saved first.
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
        let objects = store.objects(&held)?;
        let history = store.history_of(&objects, project.id())?;
        let checkpoints = &history.checkpoints;
        let intent = store.interrupted_restore(project.id())?;
        let Resolved { target, verb, paths, safety } = resolve(to, options.paths, &history, intent.as_ref())?;
        let newest = checkpoints.first().cloned();
        let record = store.record(project.id());
        let new_objects = store.new_objects(&objects, options.is_dry);
        let (root, is_missing) = open_root(project, &record)?;
        let ground = Ground::new(store, &objects, project, &record, newest.as_ref(), settings, progress);
        let stamp = options.moves_uncovered_aside.then(|| now.stamp());
        let made = Made::after(&target, &root);
        let planning = Planning {
            ground: &ground,
            new_objects: &new_objects,
            root: &root,
            target: &target,
            paths: &paths,
            moves_aside: stamp.as_deref(),
            safety: safety.as_ref(),
            made: &made,
            // What goes on or goes back has been checked before.
            checks_paths: verb == Some(RestoreVerb::Restore),
        };
        let Planned { plan, survey, rules } = planning.run()?;
        // What is cut short has been agreed to.
        let others = if verb.is_none() {
            Vec::new()
        } else {
            let activity = store.activity(project.id(), settings.session_idle_minutes, now);
            let planner = Planner::to_look_at(&survey, newest.as_ref().unwrap_or(&target), &objects, &root, &paths);
            Others::new(&target, checkpoints, options.session, &activity, now).find(&planner, &rules.rescoped)?
        };
        Ok(Self {
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
            others,
            across_sessions: options.across_sessions,
            moves_uncovered_aside: options.moves_uncovered_aside,
            safety,
            settings: settings.clone(),
            survey,
            newest,
            record,
            new_objects: Some(new_objects),
            objects,
            root,
            is_missing,
            locked,
            _held: held,
        })
    }

    /// What it will do.
    pub fn plan(&self) -> &RestorePlan {
        &self.plan
    }

    /// What it will change by restoring ignore rules.
    pub fn rules(&self) -> &RulesChanged {
        &self.rules
    }

    /// What it will restore.
    pub fn target(&self) -> &Checkpoint {
        &self.target
    }

    /// What other sessions did since, and what it therefore takes back besides.
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
            .with_hint("`--dry-run` shows what; `--across-sessions` takes it back, too"))
    }

    /// Takes the safety checkpoint: its id, and the session's record that it carries. Where another program's collection
    /// removed contents that it relied upon, the files are read again.
    fn save_first(&mut self, locked: &ProjectLock) -> Result<(CheckpointId, Option<Vec<u8>>)> {
        for _ in 0..SAVES_MAX {
            if let Some(saved) = self.try_to_save(locked)? {
                return Ok(saved);
            }
            let objects = self.store.objects(&self._held)?;
            let new_objects = self.store.new_objects(&objects, false);
            if self.survey_again(&objects, &new_objects)?.tree() != self.survey.tree() {
                return Err(unsafe_to_restore("the files changed meanwhile"));
            }
            (self.objects, self.new_objects) = (objects, Some(new_objects));
        }
        Err(Error::new(ErrorKind::Busy, "take a safety checkpoint")
            .because("another program's collections remove objects all the time")
            .with_hint("nothing was touched; try again"))
    }

    /// Reads every file again, and covers the same as the survey that the plan was made from.
    fn survey_again(&self, objects: &Objects, new_objects: &NewObjects) -> Result<Survey> {
        let (record, progress) = (ProjectRecord::default(), Progress::default());
        let newest = self.newest.as_ref();
        let ground = Ground::new(self.store, objects, self.project, &record, newest, &self.settings, &progress);
        let stamp = self.now.stamp();
        let planning = Planning {
            ground: &ground,
            new_objects,
            root: &self.root,
            target: &self.target,
            paths: &self.paths,
            moves_aside: self.moves_uncovered_aside.then_some(stamp.as_str()),
            safety: self.safety.as_ref(),
            made: &Made::after(&self.target, &self.root),
            checks_paths: self.verb == Some(RestoreVerb::Restore),
        };
        Ok(planning.run()?.survey)
    }

    /// Returns `None` if contents that it relied upon are gone.
    fn try_to_save(&mut self, locked: &ProjectLock) -> Result<Option<(CheckpointId, Option<Vec<u8>>)>> {
        let asides = self.plan.asides.iter().chain(&self.plan.backs).cloned().collect();
        let (paths, outside) = (self.paths.clone(), self.plan.outside.clone());
        let restoring = self.verb.map(|verb| Restoring { verb, target: self.target.id, paths, asides, outside });
        let request = Request {
            is_late: false,
            reason: reason(self.verb, &self.target),
            kind: if self.verb.is_some() { CheckpointKind::Safety } else { CheckpointKind::Auto },
            origin: session::origin_of_safety(&self.target),
            ..Request::default()
        };
        let session_record = session::version_of(self.store, &request.origin);
        let mut record = self.record.clone();
        let keep = Keep {
            store: self.store,
            locked,
            project: self.project.id(),
            newest: self.newest.as_ref(),
            request: &request,
            restoring,
            session_record: session_record.clone(),
            objects: &self.objects,
            keep_max: self.settings.max_snapshots,
            // Nothing may go while a restore is about to need it. The next take makes up for it.
            bytes_max: None,
            collecting: None,
            is_contended: false,
            stop: None,
            now: self.now,
        };
        let new_objects = self.new_objects.take().expect("a plan is applied once");
        let kept = match keep.keep(&self.survey, new_objects, &mut record)? {
            Kept::Done(kept) => kept,
            Kept::Lost => return Ok(None),
            Kept::NoRoom { .. } => {
                return Err(Error::new(ErrorKind::Full, "take a safety checkpoint")
                    .because("the store has reached its limit")
                    .with_hint("nothing was touched; raise max_total_size_mb, or run `piton prune`"));
            }
        };
        let saved = match kept.outcome {
            Outcome::Taken(id) => (id, session_record),
            Outcome::Unchanged(id) => (id, self.newest.as_ref().and_then(|newest| newest.facts.record.clone())),
            Outcome::Skipped(_) => return Err(unsafe_to_restore("the files as they are could not be saved first")),
        };
        record.touch(self.project.dir(), self.now);
        if record.set_progress(None, None) {
            // What is left of it costs space, and the next take removes it.
            let _ = self.store.drop_unfinished(locked, self.project.id(), self.now);
        }
        // The record can be made again.
        let _ = self.store.save_record(locked, self.project.id(), &record);
        Ok(Some(saved))
    }

    /// Does it. Declines where it takes back another session's work and that was not agreed to.
    pub fn apply(self) -> Result<RestoreReport> {
        self.apply_watched(&Progress::default())
    }

    /// The same for whoever watches how far it has come. It goes on to its end: half a restore helps nobody.
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
                ..report(outcome, self.target, None, self.plan.left)
            });
        }
        let contents = apply::read_all(&self.plan, &self.objects, progress)?;
        apply::check_saved(&self.plan, &self.objects, progress)?;
        let (saved, saved_record) = self.save_first(&locked)?;
        // One that goes on or goes back keeps what the first try saved: that is what undo means.
        let safety = self.intent.as_ref().map_or(saved, |intent| intent.safety);
        let before = if self.is_abort { Some(saved).filter(|saved| *saved != safety) } else { Some(safety) };
        let token = random_token();
        let mut tokens = self.intent.take().map(|intent| intent.tokens).unwrap_or_default();
        tokens.push(token.clone());
        let intent = Intent { target: self.target.id, safety, paths: self.paths, tokens };
        self.store.note_intent(&locked, self.project.id(), &intent)?;
        if self.is_missing {
            self.root = self.project.make_dir_again().inspect_err(|_| {
                // Nothing was touched, so there is nothing to finish or to take back.
                let _ = self.store.clear_intent(&locked, self.project.id());
            })?;
        }
        let mut done = apply::apply(self.plan, &contents, &self.objects, &self.root, &token, progress);
        // Before the intent goes: a restore that is cut short here does it when it is finished.
        let is_whole = done.left.is_empty() && intent.paths.is_empty();
        let record = if is_whole { rewind(self.store, &self.target, saved_record.as_deref()) } else { None };
        // What is not on the disk for certain is not done: the intent stays, and the next command says so.
        let ended = match self.root.sync_file_system() {
            Ok(()) => self.store.clear_intent(&locked, self.project.id()).map_err(|error| error.to_string()),
            Err(error) => Err(plain_io(&error)),
        };
        // Whatever became of the intent, what was done and what was left must be told.
        done.left.extend(ended.err().map(|why| Left { path: Vec::new(), why: WhyLeft::Failed(why) }));
        let outcome = if done.left.is_empty() { RestoreOutcome::Restored } else { RestoreOutcome::Partly };
        Ok(RestoreReport {
            written: done.written,
            removed: done.removed,
            remoded: done.remoded,
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
    let stop = Some(&*progress.stop);
    if is_dry {
        return Ok((store.share_until(stop)?, None));
    }
    store.ensure_lockable()?;
    let held = store.share_until(stop)?;
    let locked = store.lock_project_until(&held, project.id(), stop)?;
    Ok((held, Some(locked)))
}

/// Opens the directory of a project, and returns whether it is missing. Fails if the disk that it was on is not there.
fn open_root(project: &Project, record: &ProjectRecord) -> Result<(Dir, bool)> {
    if let Some(root) = project.open_dir()? {
        return Ok((root, false));
    }
    project.check_disk(record.parent_device())?;
    Ok((Dir::missing().map_err(|error| Error::io("open", project.dir(), error))?, true))
}

fn report(outcome: RestoreOutcome, target: Checkpoint, safety: Option<CheckpointId>, left: Vec<Left>) -> RestoreReport {
    RestoreReport {
        outcome,
        target,
        paths: Vec::new(),
        safety,
        can_undo: safety.is_some(),
        written: Vec::new(),
        removed: Vec::new(),
        remoded: 0,
        made_dirs: Vec::new(),
        removed_dirs: Vec::new(),
        rules: RulesChanged::default(),
        moved_aside: Vec::new(),
        left,
        record: None,
    }
}

/// Brings the session's record back, too. That this fails is told, and no reason to call the files not restored.
fn rewind(store: &Store, target: &Checkpoint, saved: Option<&[u8]>) -> Option<Rewound> {
    let rewound = Sessions::in_base(store.base()).rewind(target, saved);
    Some(rewound.unwrap_or_else(|error| Rewound::Failed(error.to_string()))).filter(|done| *done != Rewound::NoSession)
}

/// Text that no name of a user's file holds by chance.
fn random_token() -> String {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

fn reason(verb: Option<RestoreVerb>, target: &Checkpoint) -> String {
    match verb {
        Some(RestoreVerb::Restore) => format!("before restore to {}", target.id.short()),
        Some(RestoreVerb::Undo) => "before undo".to_owned(),
        Some(RestoreVerb::Redo) => "before redo".to_owned(),
        None => "before going on with a restore that was cut short".to_owned(),
    }
}

fn unsafe_to_restore(why: &str) -> Error {
    Error::new(ErrorKind::Invalid, "restore without losing something")
        .because(why)
        .with_hint("nothing was touched; raise max_files in the configuration, or PITON_MAX_FILES for this command")
}
