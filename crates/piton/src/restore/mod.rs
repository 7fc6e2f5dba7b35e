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
use crate::history;
use crate::id::CheckpointId;
use crate::project::Project;
use crate::relpath;
use crate::session::{self, Rewound, Sessions};
use crate::settings::Settings;
use crate::store::{
    Checkpoint, CheckpointKind, Intent, NewObjects, Objects, ProjectLock, ProjectRecord, Readable, RestoreVerb,
    Restoring, Store, StoreLock,
};
use crate::survey::{Ground, Survey, SurveyEnd, survey};
use crate::sys::Dir;
use crate::take::{Keep, Kept, Outcome, Progress, Request};
use crate::time::Moment;

mod apply;
mod left;
mod others;
mod plan;
mod planner;

pub use left::{Left, WhyLeft};
pub use others::OtherWork;
pub use plan::RestorePlan;
pub(crate) use planner::Planner;

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
    intent: Option<Intent>,
    paths: Vec<Vec<u8>>,
    others: Vec<OtherWork>,
    across_sessions: bool,
    settings: Settings,
    survey: Survey,
    newest: Option<Checkpoint>,
    record: ProjectRecord,
    new_objects: Option<NewObjects>,
    objects: Objects,
    root: Dir,
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

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// What came of it.
    pub outcome: RestoreOutcome,
    /// What was restored.
    pub target: Checkpoint,
    /// What undo goes back to.
    pub safety: Option<CheckpointId>,
    /// The files that were written.
    pub written: Vec<Vec<u8>>,
    /// The files that were removed.
    pub removed: Vec<Vec<u8>>,
    /// How many files and directories got other permission bits.
    pub remoded: usize,
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
        let stop = Some(&*progress.stop);
        if !options.is_dry {
            store.ensure_lockable()?;
        }
        let held = store.share_until(stop)?;
        let locked = if options.is_dry { None } else { Some(store.lock_project_until(&held, project.id(), stop)?) };
        let objects = store.objects(&held)?;
        let history = store.history_of(&objects, project.id())?;
        let checkpoints = &history.checkpoints;
        let intent = store.interrupted_restore(project.id())?;
        let Resolved { target, verb, paths, safety } = resolve(to, options.paths, &history, intent.as_ref(), &objects)?;
        let newest = checkpoints.first().cloned();
        let record = store.record(project.id());
        let new_objects = store.new_objects(&objects, options.is_dry);
        let ground =
            Ground { store, objects: &objects, project, record: &record, newest: newest.as_ref(), settings, progress };
        let survey = survey_whole(&ground, &new_objects)?;
        // What is cut short has been agreed to.
        let others = match verb {
            None => Vec::new(),
            Some(_) => {
                let own = options.session.or_else(|| session_of(&target, checkpoints));
                others::others(&objects, &since(&target, checkpoints), survey.tree(), own, &paths)?
            }
        };
        let root = Dir::open(project.dir()).map_err(|error| Error::io("open", project.dir(), error))?;
        let stamp = now.stamp();
        let moves_aside = options.moves_uncovered_aside.then_some(stamp.as_str());
        let planner = Planner {
            survey: &survey,
            target: &target,
            objects: &objects,
            root: &root,
            paths: &paths,
            moves_aside,
            safety: safety.as_ref(),
        };
        let plan = planner.plan()?;
        Ok(Self {
            store,
            project,
            now,
            plan,
            target,
            verb,
            intent,
            paths,
            others,
            across_sessions: options.across_sessions,
            settings: settings.clone(),
            survey,
            newest,
            record,
            new_objects: Some(new_objects),
            objects,
            root,
            locked,
            _held: held,
        })
    }

    /// What it will do.
    pub fn plan(&self) -> &RestorePlan {
        &self.plan
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
        let names: Vec<_> = self.others.iter().map(|other| other.session.as_str()).collect();
        Err(Error::new(ErrorKind::NeedsConsent, "restore")
            .because(format!("it would also take back later work of another session ({})", names.join(", ")))
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
            let ground = Ground {
                store: self.store,
                objects: &objects,
                project: self.project,
                record: &ProjectRecord::default(),
                newest: self.newest.as_ref(),
                settings: &self.settings,
                progress: &Progress::default(),
            };
            if survey_whole(&ground, &new_objects)?.tree() != self.survey.tree() {
                return Err(unsafe_to_restore("the files changed meanwhile"));
            }
            (self.objects, self.new_objects) = (objects, Some(new_objects));
        }
        Err(Error::new(ErrorKind::Busy, "take a safety checkpoint")
            .because("another program's collections remove objects all the time")
            .with_hint("nothing was touched; try again"))
    }

    /// Returns `None` if contents that it relied upon are gone.
    fn try_to_save(&mut self, locked: &ProjectLock) -> Result<Option<(CheckpointId, Option<Vec<u8>>)>> {
        let asides = self.plan.asides.clone();
        let restoring =
            self.verb.map(|verb| Restoring { verb, target: self.target.id, paths: self.paths.clone(), asides });
        let request = Request {
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
            Kept::NoRoom { .. } => return Err(Error::new(ErrorKind::Full, "take a safety checkpoint")),
            Kept::Lost => return Ok(None),
        };
        let saved = match kept.outcome {
            Outcome::Taken(id) => (id, session_record),
            Outcome::Unchanged(id) => (id, self.newest.as_ref().and_then(|newest| newest.facts.record.clone())),
            Outcome::Skipped(_) => return Err(unsafe_to_restore("the files as they are could not be saved first")),
        };
        record.touch(self.project.dir(), self.now);
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
            return Err(Error::new(ErrorKind::Invalid, "apply a plan that was made only to be looked at"));
        };
        self.check_agreed()?;
        if self.plan.changes() == 0 && self.intent.is_none() {
            let outcome = if self.plan.left.is_empty() { RestoreOutcome::NothingToDo } else { RestoreOutcome::Partly };
            return Ok(report(outcome, self.target, None, self.plan.left));
        }
        let contents = apply::read_all(&self.plan, &self.objects, progress)?;
        apply::check_saved(&self.plan, &self.objects, progress)?;
        let (saved, saved_record) = self.save_first(&locked)?;
        // One that goes on or goes back keeps what the first try saved: that is what undo means.
        let safety = self.intent.as_ref().map_or(saved, |intent| intent.safety);
        let intent = Intent { target: self.target.id, safety, paths: self.paths };
        self.store.note_intent(&locked, self.project.id(), &intent)?;
        let mut done = apply::apply(self.plan, &contents, &self.objects, &self.root, saved, progress);
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
            moved_aside: done.moved_aside,
            record,
            ..report(outcome, self.target, Some(safety), done.left)
        })
    }
}

/// All files as they are: half of them would be no help.
fn survey_whole(ground: &Ground<'_>, new_objects: &NewObjects) -> Result<Survey> {
    match survey(ground, new_objects)? {
        SurveyEnd::Done(survey) => Ok(survey),
        SurveyEnd::TooManyFiles => Err(unsafe_to_restore("there are more files in scope than max_files allows")),
        SurveyEnd::Stopped => Err(Error::new(ErrorKind::Stopped, "restore").because("stopped; nothing was touched")),
    }
}

/// The checkpoint and all that came after it, in the order of time.
fn since(target: &Checkpoint, checkpoints: &[Checkpoint]) -> Vec<Checkpoint> {
    let place = checkpoints.iter().position(|one| one.id == target.id).unwrap_or(0);
    checkpoints.iter().take(place + 1).rev().cloned().collect()
}

/// The session whose work is to be taken back: that of the checkpoint, or, of one that a restore took first, that of what
/// was restored then.
fn session_of<'a>(target: &'a Checkpoint, checkpoints: &'a [Checkpoint]) -> Option<&'a str> {
    let restored = target.facts.restoring.as_ref().map(|restoring| restoring.target);
    let restored = restored.and_then(|id| checkpoints.iter().find(|one| one.id == id));
    restored.unwrap_or(target).facts.origin.session.as_deref()
}

fn report(outcome: RestoreOutcome, target: Checkpoint, safety: Option<CheckpointId>, left: Vec<Left>) -> RestoreReport {
    let (written, removed, moved_aside) = Default::default();
    RestoreReport { outcome, target, safety, written, removed, remoded: 0, moved_aside, left, record: None }
}

/// Brings the session's record back, too. That this fails is told, and no reason to call the files not restored.
fn rewind(store: &Store, target: &Checkpoint, saved: Option<&[u8]>) -> Option<Rewound> {
    let rewound = Sessions::in_base(store.base()).rewind(target, saved);
    Some(rewound.unwrap_or_else(|error| Rewound::Failed(error.to_string()))).filter(|done| *done != Rewound::NoSession)
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

struct Resolved {
    target: Checkpoint,
    verb: Option<RestoreVerb>,
    paths: Vec<Vec<u8>>,
    /// What the first try saved, where there was one.
    safety: Option<Checkpoint>,
}

fn resolve(
    to: RestoreTo<'_>,
    paths: &[Vec<u8>],
    history: &Readable,
    intent: Option<&Intent>,
    objects: &Objects,
) -> Result<Resolved> {
    let nothing = |what: &str, why: &str| Error::new(ErrorKind::NotFound, what.to_owned()).because(why.to_owned());
    let by_id = |id: CheckpointId| history::find(history, &id.to_string()).cloned();
    match (to, intent) {
        (RestoreTo::Continue, Some(intent)) => {
            let safety = by_id(intent.safety).ok();
            Ok(Resolved { target: by_id(intent.target)?, verb: None, paths: intent.paths.clone(), safety })
        }
        (RestoreTo::Abort, Some(intent)) => {
            Ok(Resolved { target: by_id(intent.safety)?, verb: None, paths: intent.paths.clone(), safety: None })
        }
        (RestoreTo::Continue | RestoreTo::Abort, None) => {
            Err(nothing("go on with a restore", "none was cut short in this project")
                .with_hint("`piton restore N` begins one, `piton undo` takes the last one back"))
        }
        (_, Some(_)) => Err(Error::new(ErrorKind::Invalid, "begin a restore")
            .because("an earlier one was cut short")
            .with_hint("`piton restore --continue` finishes it, `piton restore --abort` goes back to before it")),
        (RestoreTo::Named(name), None) => {
            let target = history::find(history, name)?.clone();
            let paths = paths.to_vec();
            paths.iter().try_for_each(|path| check_path(&target, path, objects))?;
            Ok(Resolved { target, verb: Some(RestoreVerb::Restore), paths, safety: None })
        }
        (RestoreTo::Undo | RestoreTo::Redo, None) => {
            let last = history.checkpoints.iter().find(|checkpoint| checkpoint.facts.kind == CheckpointKind::Safety);
            let verb = if to == RestoreTo::Undo { "undo" } else { "redo" };
            let last = last.ok_or_else(|| {
                nothing(verb, "nothing was restored in this project")
                    .with_hint("`piton rollback` lists the checkpoints, `piton restore N` goes back to one")
            })?;
            let restoring = last.facts.restoring.as_ref();
            if to == RestoreTo::Redo && restoring.is_none_or(|restoring| restoring.verb != RestoreVerb::Undo) {
                return Err(nothing("redo", "the last restore was no undo").with_hint("`piton undo` takes it back"));
            }
            let paths = restoring.map(|restoring| restoring.paths.clone()).unwrap_or_default();
            let verb = if to == RestoreTo::Undo { RestoreVerb::Undo } else { RestoreVerb::Redo };
            Ok(Resolved { target: last.clone(), verb: Some(verb), paths, safety: None })
        }
    }
}

/// A path that is asked for must be in the checkpoint: whoever mistypes it must not lose a file of that name.
fn check_path(target: &Checkpoint, path: &[u8], objects: &Objects) -> Result<()> {
    let is_known_dir =
        |dir: &[u8]| target.facts.empty_dirs.iter().any(|empty| relpath::is_within(empty, dir)) || dir.is_empty();
    if objects.entry_at(target.tree, path)?.is_some() || is_known_dir(path) {
        return Ok(());
    }
    let shown = String::from_utf8_lossy(path).into_owned();
    Err(Error::new(ErrorKind::NotFound, format!("find {shown} in the checkpoint {}", target.id.short()))
        .because("it held no such file or directory")
        .with_hint("`piton show --verbose` lists what a checkpoint holds"))
}
