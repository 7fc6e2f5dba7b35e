//! Recovers files that were lost: finds what checkpoints hold and the project lacks, and brings it back.
//!
//! Every source provides [`LostItem`]s: the checkpoints (`files`), the files out of scope that were saved with them
//! (`local`), the files that were kept before a command destroyed them (`kept`), and the recorded states of the git
//! repository (`git`), whose items a restore of the repository brings back. Files of checkpoints are recovered by a
//! restore: planned first, with a safety checkpoint, continued or aborted after a crash, and undone by an undo. Kept
//! files are recovered one by one, each complete before it gets its name; a record describes how to undo that.
//!
//! - U1. Only the listed paths are written. No file is removed, except the log of a replaced database.
//! - U2. A file that a recovery replaces is saved first, by a checkpoint or as a kept file; if that is not possible, it is
//!   left as it is.

use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::history::History;
use crate::id::{CheckpointId, ObjectId};
use crate::kept::BackReport;
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::restore::{IgnoredFiles, Restore, RestoreOptions, RestoreOutcome, RestoreReport, RestoreTo};
use crate::settings::Settings;
use crate::store::Store;
use crate::sys;
use crate::time::Moment;
use crate::timeline::{Period, Timeline};

mod changed;
mod elsewhere;
mod files;
mod git;
mod json;
mod kept;
mod local;
mod publish;
mod version;

pub use elsewhere::{LostElsewhere, lost_elsewhere};
use files::Versions;
pub use kept::{recover_outside, undo_recovery};

/// Options of a recovery.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct RecoverOptions<'a> {
    /// Recover these files, and the missing files below these directories. If it is empty, lost files are listed and
    /// nothing is recovered.
    pub paths: &'a [Vec<u8>],
    /// List only losses since this checkpoint, named as for a restore. The default is the start of the newest turn, or
    /// the oldest checkpoint if there are no turns or paths are given.
    pub since: Option<&'a str>,
    /// List everything that was lost since the oldest checkpoint.
    pub is_all: bool,
    /// Take the versions from this checkpoint, instead of the newest ones that differ from the current files.
    pub from: Option<&'a str>,
    /// Report what would be done, and write nothing.
    pub is_dry: bool,
}

impl<'a> RecoverOptions<'a> {
    /// Sets [`RecoverOptions::paths`].
    #[must_use]
    pub fn paths(mut self, paths: &'a [Vec<u8>]) -> Self {
        self.paths = paths;
        self
    }

    /// Sets [`RecoverOptions::since`].
    #[must_use]
    pub fn since(mut self, since: impl Into<Option<&'a str>>) -> Self {
        self.since = since.into();
        self
    }

    /// Sets [`RecoverOptions::is_all`].
    #[must_use]
    pub fn is_all(mut self, is_all: bool) -> Self {
        self.is_all = is_all;
        self
    }

    /// Sets [`RecoverOptions::from`].
    #[must_use]
    pub fn from(mut self, from: impl Into<Option<&'a str>>) -> Self {
        self.from = from.into();
        self
    }

    /// Sets [`RecoverOptions::is_dry`].
    #[must_use]
    pub fn is_dry(mut self, is_dry: bool) -> Self {
        self.is_dry = is_dry;
        self
    }
}

/// Kind of a lost item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LostKind {
    /// A file or link in a checkpoint.
    File,
    /// A file or link out of scope, saved with a checkpoint.
    Local,
    /// A file, link or directory that was kept before a command destroyed it.
    Kept,
    /// A branch of the project's git repository.
    Branch,
    /// A tag of it.
    Tag,
    /// An entry of its stash.
    Stash,
    /// A linked worktree of it.
    Worktree,
    /// Objects of it.
    Objects,
    /// The repository itself.
    Repository,
    /// Its refs, in a reftable, which comes back as a whole.
    Refs,
}

impl LostKind {
    /// Returns the keyword of the kind.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Local => "local",
            Self::Kept => "kept",
            Self::Branch => "branch",
            Self::Tag => "tag",
            Self::Stash => "stash",
            Self::Worktree => "worktree",
            Self::Objects => "objects",
            Self::Repository => "repository",
            Self::Refs => "refs",
        }
    }
}

/// Source from which a lost item can be recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostFrom {
    /// In a checkpoint.
    Checkpoint(CheckpointId),
    /// Among the kept files, under this name.
    Kept(String),
}

impl LostFrom {
    /// Returns the name that `--from` takes, shortened.
    pub fn short(&self) -> String {
        match self {
            Self::Checkpoint(id) => id.short().to_string(),
            Self::Kept(name) => name.clone(),
        }
    }
}

impl std::fmt::Display for LostFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Checkpoint(id) => id.fmt(f),
            Self::Kept(name) => f.write_str(name),
        }
    }
}

/// A file or a part of the git repository that was lost, or will be replaced by an earlier version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostItem {
    /// Kind.
    pub kind: LostKind,
    /// Path, relative to the project; absolute if it is outside.
    pub path: Vec<u8>,
    /// Source: the newest checkpoint that holds the version, or the name of a set of kept files.
    pub from: LostFrom,
    /// Number of that checkpoint in the list, if it is a row of it.
    pub row: Option<usize>,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of files, if it is a directory.
    pub files: u64,
    /// True if the contents were changed, through another name of the file, since it was kept.
    pub is_changed: bool,
    /// Command before which it was kept, shortened.
    pub command: Option<String>,
    /// Period in which it was lost. `None` if that was after the newest checkpoint.
    pub lost: Option<Period>,
    /// True if another version exists now, which the recovery replaces.
    pub is_replaced: bool,
    /// Recorded state of the git repository that has it. A restore of that state brings it back.
    pub git_state: Option<ObjectId>,
}

/// Outcome of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RecoverOutcome {
    /// The items can be recovered. Nothing was done.
    Listed,
    /// Nothing is missing.
    NothingLost,
    /// The files are back.
    Recovered,
    /// Some files were left as they are.
    Partly,
}

/// Report of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoverReport {
    /// Outcome.
    pub outcome: RecoverOutcome,
    /// Lost or recovered items, the last lost first.
    pub items: Vec<LostItem>,
    /// Number of files that were lost earlier and are not listed.
    pub older: usize,
    /// Report of the restore that brought the files back. `None` if no file was touched.
    pub restore: Option<RestoreReport>,
    /// Report of the kept files that were brought back. `None` if none were.
    pub kept: Option<BackReport>,
}

/// Lists lost files, or brings them back if the options name paths.
///
/// Fails like [`History::find`]; with `NotFound` if a path is in no checkpoint; and like a restore.
///
/// ```
/// use piton::{RecoverOptions, RecoverOutcome, recover};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # std::fs::write(code.join("notes"), "")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &piton::Request::default(), &settings, now, &progress)?;
/// std::fs::remove_file(code.join("main.rs"))?;
/// let lost = recover(&store, &project, RecoverOptions::default(), &settings, now, &progress)?;
/// assert_eq!(lost.items[0].path, b"main.rs");
/// let paths = [b"main.rs".to_vec()];
/// let options = RecoverOptions::default().paths(&paths);
/// assert_eq!(recover(&store, &project, options, &settings, now, &progress)?.outcome, RecoverOutcome::Recovered);
/// assert!(code.join("main.rs").exists());
/// # Ok(())
/// # }
/// ```
pub fn recover(
    store: &Store,
    project: &Project,
    options: RecoverOptions<'_>,
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<RecoverReport> {
    let history = History::of(store, project)?;
    let timeline = Timeline::new(&history);
    let local = local::LocalVersions::of(store, project, history.objects())?;
    let mut versions = Versions::new(&history, &timeline, &local, project)?;
    let since = first_step(options, &history, &timeline)?;
    let full = |path: &Vec<u8>| project.dir().join(sys::name_from_bytes(path));
    kept::check_named(store, options.from, options.paths.iter().map(full))?;
    let mut kept = kept::in_project(store, project, options, timeline.states.get(since).map(|state| state.time));
    let mut found = match options.paths {
        _ if kept::is_named(options.from) => Vec::new(),
        [] => versions.missing(progress)?,
        _ => versions.of_paths(options, &kept, progress)?,
    };
    found.retain(|version| !kept.is_newer(&version.path, version.checkpoint.time));
    found.iter().for_each(|version| kept.leave_out(&version.path));
    let (found, older): (Vec<_>, Vec<_>) = found.into_iter().partition(|version| version.state >= since);
    let mut older = older.len();
    let mut items = found.iter().map(|version| versions.item(version)).collect::<Result<Vec<_>>>()?;
    items.extend(kept.losses.iter().map(|loss| kept::item(loss, Some(project.dir()))));
    if options.paths.is_empty() {
        let first = timeline.states.get(since).filter(|_| !options.is_all).map(|state| state.time);
        let (outside, earlier) = kept::outside(store, project.dir(), first);
        items.extend(outside);
        older += earlier;
        items.extend(git::lost(store, project, &history, first, progress)?);
        if let Some(start) = timeline.states.get(since).filter(|_| !options.is_all) {
            let read = (store, project, settings, progress);
            changed::add_changed(&mut items, &history, &local, start.id, read)?;
        }
    }
    let listed = (options.paths.is_empty() || options.is_dry).then_some(RecoverOutcome::Listed);
    let listed = if items.is_empty() { Some(RecoverOutcome::NothingLost) } else { listed };
    let report = |outcome, restore, kept| RecoverReport { outcome, items, older, restore, kept };
    if let Some(outcome) = listed {
        return Ok(report(outcome, None, None));
    }
    let restored = if found.is_empty() {
        None
    } else {
        // The newest checkpoint that holds every version, or else one that is made for it.
        let single = versions.holds_all(&found)?;
        let paths: Vec<Vec<u8>> = found.iter().map(|version| version.path.clone()).collect();
        let made = match single {
            Some(id) => Publishing::Not(id),
            None => {
                let publishing =
                    publish::RecoveryPublisher { store, project, history: &history, local: &local, settings, now };
                Publishing::Made(publishing.run(&found, progress)?)
            }
        };
        let with_local = found.iter().any(|version| version.kind == LostKind::Local);
        let ignored = if with_local { IgnoredFiles::With } else { IgnoredFiles::Without };
        drop((found, versions));
        drop(timeline);
        drop(history);
        Some(restore_made(store, project, &made, (&paths, ignored), settings, now, progress)?)
    };
    let back = kept.bring_back(Some(project.dir()), None, settings, now, progress)?;
    let is_partly = restored.as_ref().is_some_and(|restored| restored.outcome == RestoreOutcome::Partly)
        || back.as_ref().is_some_and(|back| !back.left.is_empty());
    Ok(report(if is_partly { RecoverOutcome::Partly } else { RecoverOutcome::Recovered }, restored, back))
}

/// Restores the checkpoint, and withdraws it if it was made for this and the restore failed.
fn restore_made(
    store: &Store,
    project: &Project,
    made: &Publishing,
    paths: (&[Vec<u8>], IgnoredFiles),
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<RestoreReport> {
    let restored = restore(store, project, made.target(), paths, settings, now, progress);
    if let (Err(_), Publishing::Made(made)) = (&restored, made) {
        // Best effort: the checkpoint of a recovery that did not happen only takes a row in the list.
        let _ = made.withdraw(store, project, now);
    }
    restored
}

enum Publishing {
    /// The checkpoint exists.
    Not(CheckpointId),
    Made(publish::Made),
}

impl Publishing {
    fn target(&self) -> CheckpointId {
        match self {
            Self::Not(id) => *id,
            Self::Made(made) => made.target,
        }
    }
}

/// U1: a restore of these paths.
fn restore(
    store: &Store,
    project: &Project,
    target: CheckpointId,
    (paths, ignored): (&[Vec<u8>], IgnoredFiles),
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<RestoreReport> {
    // Each path was named, or is below a path that was named, and is missing: no work of another session is lost.
    let options = RestoreOptions { paths, ignored, across_sessions: true, ..RestoreOptions::default() };
    let name = target.to_string();
    let restore = Restore::prepare(store, project, RestoreTo::Named(&name), options, settings, now, progress)?;
    let with_mode: Vec<Vec<u8>> = restore.plan().modes_set().filter(|path| paths.contains(path)).cloned().collect();
    let mut report = restore.apply_watched(progress)?;
    // A file also counts as recovered if only its permission bits were restored.
    let is_left = |path: &Vec<u8>| report.left.iter().any(|left| left.path == *path);
    let with_mode: Vec<Vec<u8>> = with_mode.into_iter().filter(|path| !is_left(path)).collect();
    report.written.extend(with_mode);
    report.written.sort();
    report.written.dedup();
    Ok(report)
}

/// Returns the number of the first state whose losses are listed.
fn first_step(options: RecoverOptions<'_>, history: &History, timeline: &Timeline<'_>) -> Result<usize> {
    let place = |id: CheckpointId| timeline.states.iter().position(|state| state.id == id).unwrap_or(0);
    if let Some(since) = options.since {
        return Ok(place(history.find(since)?.id));
    }
    if options.is_all || !options.paths.is_empty() {
        return Ok(0);
    }
    Ok(history.turns().first().map_or(0, |turn| place(turn.before)))
}

fn not_held(path: &[u8]) -> Error {
    Error::new(ErrorKind::NotFound, format!("recover {}", String::from_utf8_lossy(path)))
        .because("no checkpoint holds such a file or directory")
        .with_hint(Hint::ListFiles)
}

/// Returns true if a path is at or below one of these.
fn is_meant(path: &[u8], paths: &[Vec<u8>]) -> bool {
    paths.iter().any(|wanted| relpath::is_within(path, wanted))
}
