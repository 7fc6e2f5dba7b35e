//! Comparison of a checkpoint with the current files, or of two checkpoints. Stores nothing.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::json::{AtOldPath, AtPath, JsonPath, JsonPathOption};
use crate::local_files::{differing_local_files, local_files_changed_since};
use crate::lookup;
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::restore::{Left, Planner, WhyLeft};
use crate::settings::Settings;
use crate::skipped::SkipReason;
use crate::store::{Checkpoint, EntryMode, Objects, Store, TreeChange};
use crate::survey::{Survey, SurveyEnd, SurveyInput, entry_mode, local_names, survey};
use crate::sys::{Dir, is_gone};
use crate::worktree::{DirNode, FileNode, read_path};

mod brief;
mod histogram;
mod lines;
mod patch;

pub(crate) use brief::{brief, pair_renames};
pub(crate) use lines::{CONTEXT, Hunk, Lines, TEXT_BYTES_MAX, changed_lines, count, has_nul, is_text, split_lines};
pub use patch::unified_diff;

/// Result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diff {
    /// Files that differ, by path.
    pub files: Vec<FileDiff>,
    /// Unified diff for `git apply`. It is bytes because file contents are.
    pub patch: Vec<u8>,
    /// Files that could not be read, and so were not compared.
    pub unread: Vec<Vec<u8>>,
    /// Paths of local files that differ. They are not part of the patch.
    pub local: Vec<Vec<u8>>,
    /// Error, if local files could not be compared.
    pub local_error: Option<String>,
}

/// One file that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileDiff {
    /// Path on the new side; of a deleted file, the old one.
    pub path: Vec<u8>,
    /// Old path of a renamed file.
    pub old_path: Option<Vec<u8>>,
    /// Kind of change.
    pub status: DiffStatus,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// True if it is not compared by lines.
    pub is_binary: bool,
}

/// Kind of change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DiffStatus {
    /// Does not exist on the old side.
    Added,
    /// Does not exist on the new side.
    Deleted,
    /// Has other contents or another mode.
    Modified,
    /// Has another path and the same contents and mode.
    Renamed,
}

/// JSON of a [`Diff`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct DiffJson<'a> {
    /// number of files that differ
    files_changed: usize,
    /// number of lines added
    insertions: u64,
    /// number of lines removed
    deletions: u64,
    /// files that differ
    files: &'a [FileDiff],
    /// the difference as a patch; bytes that are not UTF-8 are replaced
    diff: Cow<'a, str>,
    /// files out of scope that differ, by name only
    local: Vec<JsonPath<'a, AtPath>>,
}

impl<'a> From<&'a Diff> for DiffJson<'a> {
    fn from(diff: &'a Diff) -> Self {
        let (insertions, deletions) = diff.totals();
        let patch = String::from_utf8_lossy(&diff.patch);
        let local = diff.local.iter().map(JsonPath::new).collect();
        Self { files_changed: diff.files.len(), insertions, deletions, files: &diff.files, local, diff: patch }
    }
}

/// JSON of a [`FileDiff`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct FileDiffJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    #[serde(flatten)]
    old_path: JsonPathOption<'a, AtOldPath>,
    /// kind of change
    status: DiffStatus,
    /// number of lines added
    insertions: u64,
    /// number of lines removed
    deletions: u64,
    /// true if it is not compared by lines
    binary: bool,
}

impl<'a> From<&'a FileDiff> for FileDiffJson<'a> {
    fn from(file: &'a FileDiff) -> Self {
        let FileDiff { path, old_path, status, insertions, deletions, is_binary } = file;
        Self {
            path: JsonPath::new(path),
            old_path: JsonPathOption::new(old_path.as_deref()),
            status: *status,
            insertions: *insertions,
            deletions: *deletions,
            binary: *is_binary,
        }
    }
}

crate::json::serialized_as! {
    Diff => DiffJson<'_>;
    FileDiff => FileDiffJson<'_>;
}

impl FileDiff {
    /// Returns a change of a text file in which no line differs.
    pub fn new(path: impl Into<Vec<u8>>, status: DiffStatus) -> Self {
        Self { path: path.into(), old_path: None, status, insertions: 0, deletions: 0, is_binary: false }
    }
}

impl Diff {
    /// Returns the number of lines added and the number of lines removed.
    pub fn totals(&self) -> (u64, u64) {
        self.files.iter().fold((0, 0), |(plus, minus), file| (plus + file.insertions, minus + file.deletions))
    }
}

/// One side of a file.
#[derive(Clone, PartialEq, Eq)]
struct Side {
    mode: EntryMode,
    id: ObjectId,
    /// Contents; `None` if they are too large to be shown.
    bytes: Option<Vec<u8>>,
}

/// Size limit of contents that are shown, because a diff is made in memory.
const SHOWN_BYTES_MAX: u64 = 32 << 20;

fn read_shown(objects: &Objects, id: ObjectId) -> Result<Option<Vec<u8>>> {
    let is_shown = objects.blob_size(id)? <= SHOWN_BYTES_MAX;
    is_shown.then(|| objects.read(id, ObjectKind::Blob)).transpose()
}

struct Changed {
    path: Vec<u8>,
    old: Option<Side>,
    new: Option<Side>,
}

/// Compares the checkpoint `from` with the checkpoint `to`, or with the current files if that is `None`. If `paths` is
/// not empty, only files at or below them are compared.
///
/// ```
/// use piton::diff;
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
/// std::fs::write(code.join("main.rs"), "fn main() { run() }\n")?;
/// let since = diff(&store, &project, ("1", None), &[], &settings, &progress)?;
/// assert_eq!((since.files.len(), since.files[0].insertions, since.files[0].deletions), (1, 1, 1));
/// assert!(String::from_utf8_lossy(&since.patch).contains("+fn main() { run() }"));
/// # Ok(())
/// # }
/// ```
pub fn diff(
    store: &Store,
    project: &Project,
    (from, to): (&str, Option<&str>),
    paths: &[Vec<u8>],
    settings: &Settings,
    progress: &Progress,
) -> Result<Diff> {
    let held = store.locks.share_until(Some(progress))?;
    let objects = store.objects.open(&held)?;
    let history = store.histories.of(&objects, project.id())?;
    let from = lookup::find(&history, from)?;
    let (changed, unread, local) = match to {
        Some(to) => {
            let to = lookup::find(&history, to)?;
            let local = differing_local_files(store, &objects, project.id(), from.id, to.id);
            (between_checkpoints(from, to, &objects, paths)?, Vec::new(), local)
        }
        None => {
            let (record, newest) = (store.records.get(project.id()), history.checkpoints.first());
            let input = SurveyInput::new(store, &objects, project, &record, newest, settings, progress);
            let survey = survey_now(&input)?;
            let present = local_names(project, &survey, settings, progress);
            let local = present.and_then(|names| local_files_changed_since(store, &objects, project, from.id, names));
            let (changed, unread) = against_files(from, &input, &survey, paths)?;
            (changed, unread, local)
        }
    };
    let (mut local, local_error) =
        local.map_or_else(|error| (Vec::new(), Some(error.to_string())), |local| (local, None));
    local.retain(|path| is_meant(path, paths));
    Ok(Diff { unread, local, local_error, ..describe(changed) })
}

fn survey_now(input: &SurveyInput<'_>) -> Result<Survey> {
    match survey(input, &input.store.objects.new_objects(input.objects, true))? {
        SurveyEnd::Done(survey) => Ok(survey),
        SurveyEnd::TooManyFiles => Err(Error::new(ErrorKind::Invalid, "compare")
            .because("there are more files in scope than max_files allows")
            .with_hint(Hint::RaiseSetting { name: "max_files" })),
        SurveyEnd::Stopped(_) => Err(Error::new(ErrorKind::Stopped, "compare").because("stopped; nothing was written")),
    }
}

fn is_meant(path: &[u8], paths: &[Vec<u8>]) -> bool {
    paths.is_empty() || paths.iter().any(|wanted| relpath::is_within(path, wanted))
}

fn between_checkpoints(
    from: &Checkpoint,
    to: &Checkpoint,
    objects: &Objects,
    paths: &[Vec<u8>],
) -> Result<Vec<Changed>> {
    let changes = objects.compare_trees(Some(from.tree), Some(to.tree))?;
    read_changes(changes.into_iter().filter(|change| is_meant(&change.path, paths)), objects)
}

/// Reads both sides of changes between trees.
fn read_changes(changes: impl Iterator<Item = TreeChange>, objects: &Objects) -> Result<Vec<Changed>> {
    let side = |side: Option<(EntryMode, ObjectId)>| match side {
        None | Some((EntryMode::Commit, _)) => Ok(None),
        Some((mode, id)) => Ok(Some(Side { mode, id, bytes: read_shown(objects, id)? })),
    };
    changes.map(|change| Ok(Changed { old: side(change.old)?, new: side(change.new)?, path: change.path })).collect()
}

/// Returns the description and the patch of changes between two trees.
pub(crate) fn of_trees(changes: Vec<TreeChange>, objects: &Objects) -> Result<Diff> {
    Ok(describe(read_changes(changes.into_iter(), objects)?))
}

/// Compares by planning a restore: it would undo exactly the changes since. Also returns the files that could not be
/// read.
fn against_files(
    from: &Checkpoint,
    input: &SurveyInput<'_>,
    survey: &Survey,
    paths: &[Vec<u8>],
) -> Result<(Vec<Changed>, Vec<Vec<u8>>)> {
    let dir = input.project.dir();
    let root = input.project.open_dir()?.map_or_else(Dir::missing, Ok);
    let root = root.map_err(|error| Error::io("open", dir, error))?;
    let objects = input.objects;
    let plan = Planner::for_preview(survey, from, objects, &root, paths).plan()?;
    let dirs = survey.manifest.dirs.iter().map(|dir| (&*dir.path, dir)).collect();
    let mut files = CurrentFiles { dirs, root: &root, unread: Vec::new() };
    let is_unread =
        |left: &&Left| matches!(left.why, WhyLeft::OutOfScope(SkipReason::Unreadable | SkipReason::Changing));
    files.unread.extend(plan.left.iter().filter(is_unread).map(|left| left.path.clone()));
    let mut changed = Vec::new();
    for write in plan.writes {
        let mode = match write.mode {
            None => EntryMode::Link,
            Some(mode) if mode & 0o100 != 0 => EntryMode::Executable,
            Some(_) => EntryMode::File,
        };
        let old = Some(Side { mode, id: write.id, bytes: read_shown(objects, write.id)? });
        let unread = files.unread.len();
        let new = write.over.and_then(|_| files.read(&write.path));
        if files.unread.len() == unread {
            changed.push(Changed { path: write.path, old, new });
        }
    }
    for remove in plan.removes {
        if let Some(new) = files.read(&remove.path) {
            changed.push(Changed { path: remove.path, old: None, new: Some(new) });
        }
    }
    // A diff shows the executable bit only, and no other permissions.
    for set in plan.modes {
        let mode = if set.mode & 0o100 != 0 { EntryMode::Executable } else { EntryMode::File };
        if let Some(new) = files.read(&set.path).filter(|new| set.seen.is_some() && new.mode != mode) {
            changed.push(Changed { path: set.path, old: Some(Side { mode, ..new.clone() }), new: Some(new) });
        }
    }
    // A path that is both removed and written (a file replaced by a link, say) is one change.
    changed.sort_by(|a, b| a.path.cmp(&b.path));
    changed.retain(|change| change.old != change.new);
    Ok((changed, files.unread))
}

/// Current files.
struct CurrentFiles<'a> {
    dirs: HashMap<&'a [u8], &'a DirNode>,
    root: &'a Dir,
    unread: Vec<Vec<u8>>,
}

impl CurrentFiles<'_> {
    fn find(&self, path: &[u8]) -> Option<&FileNode> {
        let (parent, name) = relpath::split(path);
        let dir = self.dirs.get(parent)?;
        dir.files.iter().find(|file| dir.name_of(file) == name)
    }

    /// Returns the current file. Returns `None` if it is gone, or if it cannot be read, which is noted in `unread`.
    fn read(&mut self, path: &[u8]) -> Option<Side> {
        let file = self.find(path)?;
        let mode = entry_mode(file);
        if file.stat.size > SHOWN_BYTES_MAX {
            return Some(Side { mode, id: file.id?, bytes: None });
        }
        match read_path(self.root, path, file.stat.kind, u64::MAX) {
            Ok(bytes) => Some(Side { mode, id: IdHasher::of(ObjectKind::Blob, &bytes).ok()?, bytes: Some(bytes) }),
            Err(error) => {
                self.unread.extend((!is_gone(&error)).then(|| path.to_vec()));
                None
            }
        }
    }
}

fn describe(changed: Vec<Changed>) -> Diff {
    let mut diff = Diff::default();
    let (renames, rest) = find_renames(changed);
    for (from, to) in renames {
        patch::print_rename(&mut diff.patch, &from, &to);
        diff.files.push(FileDiff {
            path: to,
            old_path: Some(from),
            status: DiffStatus::Renamed,
            insertions: 0,
            deletions: 0,
            is_binary: false,
        });
    }
    for Changed { path, old, new } in rest {
        // A missing side compares as empty text; a side that is not shown does not compare.
        let bytes = |side: &'_ Option<Side>| side.as_ref().map_or(Some(Vec::new()), |side| side.bytes.clone());
        let both = bytes(&old).zip(bytes(&new));
        let lines = both.as_ref().and_then(|(old, new)| Lines::compare(old, new));
        let (insertions, deletions) = lines.as_ref().map_or((0, 0), Lines::counts);
        fn version(side: &Side) -> patch::PatchSide<'_> {
            patch::PatchSide { mode: side.mode.octal(), id: side.id, bytes: side.bytes.as_deref() }
        }
        patch::print(&mut diff.patch, &path, old.as_ref().map(version).as_ref(), new.as_ref().map(version).as_ref());
        let status = match (&old, &new) {
            (None, _) => DiffStatus::Added,
            (_, None) => DiffStatus::Deleted,
            _ => DiffStatus::Modified,
        };
        let is_binary = lines.is_none();
        diff.files.push(FileDiff { path, old_path: None, status, insertions, deletions, is_binary });
    }
    diff.files.sort_by(|a, b| a.path.cmp(&b.path));
    diff
}

/// Old and new path.
type Rename = (Vec<u8>, Vec<u8>);

/// Pairs deleted files with added ones of the same contents and mode. Empty files are not paired, because they are all
/// equal.
fn find_renames(changed: Vec<Changed>) -> (Vec<Rename>, Vec<Changed>) {
    let mut gone: HashMap<(u32, ObjectId), Vec<usize>> = HashMap::new();
    for (at, change) in changed.iter().enumerate().rev() {
        if let (Some(old), None) = (&change.old, &change.new)
            && old.bytes.as_ref().is_none_or(|bytes| !bytes.is_empty())
        {
            gone.entry((old.mode.octal(), old.id)).or_default().push(at);
        }
    }
    let mut renames = Vec::new();
    let mut is_paired = vec![false; changed.len()];
    for (at, change) in changed.iter().enumerate() {
        if let (None, Some(new)) = (&change.old, &change.new)
            && let Some(from) = gone.get_mut(&(new.mode.octal(), new.id)).and_then(Vec::pop)
        {
            renames.push((changed[from].path.clone(), change.path.clone()));
            (is_paired[from], is_paired[at]) = (true, true);
        }
    }
    let rest = changed.into_iter().zip(is_paired).filter(|(_, is_paired)| !is_paired).map(|(change, _)| change);
    (renames, rest.collect())
}
