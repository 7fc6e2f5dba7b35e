//! Records the state of the repository that a project is in, beside each checkpoint.
//!
//! Small files are read first, then loose objects, then packs: git writes objects before the refs that need them, and a
//! new pack before it removes what the pack replaces. So the objects of every ref that was read are found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use super::{GitCapture, GitCaptureOutcome};
use crate::error::{Error, ErrorKind, Result, plain_io};
use crate::id::{CheckpointId, ObjectId};
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath::{self, escape};
use crate::settings::Settings;
use crate::store::{
    FILE_MODE, GitChange, GitState, GitStateCache, GitStateMoment, GitStateRecord, HoldObjects, HoldResult, LINK_MODE,
    ProjectLock, SMALL_FILE_BYTES_MAX, StateFile, Store,
};
use crate::sys::{self, Kind};
use crate::time::Moment;
use crate::worktree::{
    Located, ObjectDir, Repository, RepositoryFile, RepositoryPlace, SeenFiles, SeenPath, encode_seen, locate,
    seen_paths,
};

/// A file that changed less than this long before it was read may change again without a trace in its times.
const YOUNG_NANOS: i128 = 2_000_000_000;
/// Number of attempts to hold the packs while another process repacks.
const PACK_ATTEMPTS: u32 = 3;

/// Input of a capture.
pub(crate) struct CaptureInput<'a> {
    pub(crate) store: &'a Store,
    pub(crate) locked: &'a ProjectLock,
    pub(crate) project: &'a Project,
    /// Checkpoint of the files at this moment.
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) moment: GitStateMoment,
    /// Changes that will follow, for [`GitStateMoment::BeforeChange`].
    pub(crate) changes: Vec<GitChange>,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Moment,
    pub(crate) progress: &'a Progress,
}

/// Records the state of the repository. Never fails: a failure is a value, and is noted for the status.
pub(crate) fn capture(input: &CaptureInput<'_>) -> GitCapture {
    let states = &input.store.git_states;
    let place = match locate(input.project.dir()) {
        Located::Missing => return GitCapture::default(),
        Located::Declined { root, why } => {
            let text = format!("the git repository in {} is not recorded: {why}", root.display());
            let _ = states.note_problem(input.project.id(), Some(&text));
            return GitCapture { outcome: GitCaptureOutcome::Declined, problem: Some(text), ..GitCapture::default() };
        }
        Located::Found(place) => place,
    };
    if is_another(input, &place) {
        return GitCapture::default();
    }
    capture_at(input, &place).unwrap_or_else(|error| {
        let outcome = match error.kind() {
            ErrorKind::Stopped => GitCaptureOutcome::CutShort,
            _ => GitCaptureOutcome::Failed,
        };
        let text = format!("the git state of {} was not recorded: {error}", place.root.display());
        let _ = states.note_problem(input.project.id(), Some(&text));
        GitCapture { outcome, problem: Some(text), ..GitCapture::default() }
    })
}

/// Returns true if the repository that was recorded is gone, and this one lies further up. Its state must not take the
/// place of the lost one.
fn is_another(input: &CaptureInput<'_>, place: &RepositoryPlace) -> bool {
    if place.root == input.project.dir() {
        return false;
    }
    let states = &input.store.git_states;
    let known = states.cache(input.project.id()).state.and_then(|id| states.get(input.project.id(), id).ok());
    known.is_some_and(|known| known.root != place.root && known.root.starts_with(&place.root))
}

pub(super) fn capture_at(input: &CaptureInput<'_>, place: &RepositoryPlace) -> Result<GitCapture> {
    let (states, project) = (&input.store.git_states, input.project.id());
    let Some(repository) = place.open()? else { return Ok(GitCapture::default()) };
    let cache = states.cache(project);
    if let Some(state) = unchanged_state(input, place, &repository, &cache) {
        return finish_unchanged(input, state);
    }
    let captured = capture_changed(input, place, &repository, &states.whole_cache(project))?;
    // Without a record of the problem, the report still has it.
    let _ = states.note_problem(project, captured.problem.as_deref());
    Ok(captured)
}

/// Returns the state of the last capture if stat data shows that nothing changed since.
fn unchanged_state(
    input: &CaptureInput<'_>,
    place: &RepositoryPlace,
    repository: &Repository,
    cache: &GitStateCache,
) -> Option<ObjectId> {
    let (states, project) = (&input.store.git_states, input.project.id());
    let parts = [&cache.dirs, &cache.files, &cache.objects];
    let is_same = cache.place == place.encode() && parts.into_iter().all(|seen| repository.is_as_seen(seen));
    cache.state.filter(|id| is_same && states.has_state(project, *id))
}

/// Adds an unchanged state to the log, unless the log has it with this checkpoint. Problems of the last capture
/// persist.
fn finish_unchanged(input: &CaptureInput<'_>, state: ObjectId) -> Result<GitCapture> {
    let problem = input.store.git_states.problem(input.project.id());
    log_state(input, state, false, problem.is_some())?;
    Ok(GitCapture { outcome: GitCaptureOutcome::Unchanged, state: Some(state), problem, ..GitCapture::default() })
}

fn capture_changed(
    input: &CaptureInput<'_>,
    place: &RepositoryPlace,
    repository: &Repository,
    cache: &GitStateCache,
) -> Result<GitCapture> {
    let (states, project) = (&input.store.git_states, input.project.id());
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::Interrupted => stopped(),
        _ => Error::io("read", &place.common, error),
    };
    let listing = repository.list_files(input.progress).map_err(failed)?;
    let SeenFiles { watched, unwatched } = seen_files(&listing.files, i128::MAX);
    let is_same = cache.place == place.encode() && watched == cache.files && unwatched == cache.unwatched;
    let dirs = dir_modes(&listing.dirs);
    let has_dirs = |id: &ObjectId| states.get(project, *id).is_ok_and(|state| state.dirs == dirs);
    let (state, too_large) = match cache.state.filter(|id| is_same && has_dirs(id)) {
        Some(id) => (StateToSave::Known(id), Vec::new()),
        None => {
            states.prepare(input.locked, project)?;
            let (mut state, too_large) = read_state(input, place, repository, &listing.files, cache)?;
            state.dirs = dirs;
            (StateToSave::New(state), too_large)
        }
    };
    let mut objects = hold_objects(input, repository, &listing.object_roots, cache)?;
    objects.left_out.extend(too_large.into_iter().chain(listing.left_out));
    let id = match state {
        StateToSave::Known(id) => id,
        StateToSave::New(state) => states.put(input.locked, project, &state)?,
    };
    let settled_before = input.now.as_nanos() - YOUNG_NANOS;
    let SeenFiles { watched, unwatched } = seen_files(&listing.files, settled_before);
    let next = GitStateCache {
        state: Some(id),
        copied_bytes: objects.held.copied_bytes,
        place: place.encode(),
        dirs: encode_seen(listing.dirs.iter().map(|dir| (dir.path.as_slice(), &dir.stat)), settled_before),
        files: watched,
        objects: std::mem::take(&mut objects.seen),
        unwatched,
    };
    let is_new = cache.state != Some(id);
    let problem = objects.problem(place);
    log_state(input, id, is_new, problem.is_some())?;
    if next != *cache {
        // It can be rebuilt.
        let _ = states.save_cache(project, &next);
    }
    let outcome = match () {
        () if objects.is_cut => GitCaptureOutcome::CutShort,
        () if is_new => GitCaptureOutcome::Recorded,
        () => GitCaptureOutcome::Unchanged,
    };
    let HoldResult { linked, copied, .. } = objects.held;
    Ok(GitCapture { outcome, state: Some(id), linked, copied, problem })
}

enum StateToSave {
    Known(ObjectId),
    New(GitState),
}

/// Adds the state to the log, unless its last line has the same state and checkpoint.
fn log_state(input: &CaptureInput<'_>, state: ObjectId, is_new: bool, is_cut: bool) -> Result<()> {
    let (states, project) = (&input.store.git_states, input.project.id());
    let logged = input.checkpoint.map(|checkpoint| (checkpoint, input.moment == GitStateMoment::Row));
    if !is_new && input.moment != GitStateMoment::BeforeChange && logged == states.logged(project) {
        return Ok(());
    }
    states.prepare(input.locked, project)?;
    let (checkpoint, moment, changes) = (input.checkpoint, input.moment, input.changes.clone());
    let record = GitStateRecord { time: input.now, state, checkpoint, moment, is_cut, changes };
    states.append(input.locked, project, &record)
}

/// Returns the permission bits of directories that differ from those of the directory around them.
fn dir_modes(dirs: &[RepositoryFile]) -> BTreeMap<Vec<u8>, u16> {
    let all: BTreeMap<&[u8], u16> = dirs.iter().map(|dir| (dir.path.as_slice(), dir.stat.mode & 0o7777)).collect();
    let around = |path: &[u8]| all.get(relpath::split(path).0).copied().filter(|_| !path.is_empty());
    all.iter().filter(|(path, mode)| around(path) != Some(**mode)).map(|(path, mode)| (path.to_vec(), *mode)).collect()
}

fn seen_files(files: &[RepositoryFile], settled_before: i128) -> SeenFiles {
    SeenFiles::encode(files.iter().map(|file| (file.path.as_slice(), &file.stat)), settled_before)
}

fn by_path(seen: SeenPath<'_>) -> (&[u8], SeenPath<'_>) {
    (seen.path.to_bytes(), seen)
}

/// Reads the small files that changed since the last capture. Also returns a description of what was left out.
fn read_state(
    input: &CaptureInput<'_>,
    place: &RepositoryPlace,
    repository: &Repository,
    files: &[RepositoryFile],
    cache: &GitStateCache,
) -> Result<(GitState, Vec<String>)> {
    let (states, project) = (&input.store.git_states, input.project.id());
    let failed = |error: io::Error| Error::io("read", &place.common, error);
    let before = cache.state.and_then(|id| states.get(project, id).ok()).unwrap_or_default();
    let known: HashMap<&[u8], SeenPath<'_>> =
        [&cache.files, &cache.unwatched].into_iter().flat_map(|part| seen_paths(part)).map(by_path).collect();
    let own = sys::path_bytes(place.own.strip_prefix(&place.common).unwrap_or(std::path::Path::new(""))).to_vec();
    let mut state = GitState {
        root: place.root.clone(),
        common: place.common.clone(),
        own,
        files: Vec::with_capacity(files.len()),
        ..GitState::default()
    };
    let mut left_out = Vec::new();
    for file in files {
        if input.progress.is_cancelled() {
            return Err(stopped());
        }
        let name = escape(&file.path);
        if known.get(file.path.as_slice()).is_some_and(|known| known.is_same(&file.stat))
            && let Some(same) = before.file(&file.path)
        {
            state.files.push(same.clone());
            continue;
        }
        if file.stat.size > SMALL_FILE_BYTES_MAX {
            left_out.push(format!("the contents of {name}, which is too large,"));
            continue;
        }
        // A file that is gone by now belongs to the next state.
        let Some(bytes) = repository.read(&file.path, SMALL_FILE_BYTES_MAX).map_err(failed)? else { continue };
        let kind = if file.stat.kind == Kind::Link { LINK_MODE } else { FILE_MODE };
        let mode = kind | u32::from(file.stat.mode & 0o777);
        let contents = states.put_contents(project, bytes)?;
        state.files.push(StateFile { path: file.path.clone(), mode, contents });
    }
    Ok((state, left_out))
}

/// Result of holding the objects.
#[derive(Default)]
struct HeldObjects {
    /// Stat data of the directories; those that are not completely held count as changed.
    seen: Vec<u8>,
    held: HoldResult,
    is_cut: bool,
    left_out: Vec<String>,
}

impl HeldObjects {
    /// Describes what is not saved.
    fn problem(&self, place: &RepositoryPlace) -> Option<String> {
        let root = place.root.display();
        let mut problems = Vec::new();
        if self.is_cut {
            problems.push(format!("the objects of the git repository in {root} are not all saved: it took too long"));
        }
        if self.held.beyond_limit > 0 {
            problems.push(format!(
                "{} object files of the git repository in {root} are not saved: they cannot be linked, and copies have \
                 reached keep_git_mb",
                self.held.beyond_limit
            ));
        }
        if self.held.foreign > 0 {
            let count = self.held.foreign;
            problems.push(format!("{count} object files in {root} belong to another user and are not saved"));
        }
        let left_out = self.left_out.iter();
        problems.extend(left_out.map(|what| format!("of the git repository in {root}, {what} are not saved")));
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

/// Links or copies the object files that are new since the last capture.
fn hold_objects(
    input: &CaptureInput<'_>,
    repository: &Repository,
    roots: &[Vec<u8>],
    cache: &GitStateCache,
) -> Result<HeldObjects> {
    let (states, project) = (&input.store.git_states, input.project.id());
    let mut dirs: Vec<ObjectDir> = Vec::new();
    let mut left_out = Vec::new();
    for root in roots {
        match repository.object_dirs(root) {
            Ok(found) => dirs.extend(found),
            Err(error) if sys::is_gone(&error) => {}
            Err(error) => left_out.push(format!("the objects in {} ({})", escape(root), plain_io(&error))),
        }
    }
    let encode = |dirs: &[ObjectDir], settled_before| {
        encode_seen(dirs.iter().map(|dir| (dir.path.as_slice(), &dir.stat)), settled_before)
    };
    let all = encode(&dirs, i128::MAX);
    if all == cache.objects {
        let held = HoldResult { copied_bytes: cache.copied_bytes, ..HoldResult::default() };
        return Ok(HeldObjects { seen: all, held, left_out, ..HeldObjects::default() });
    }
    states.prepare(input.locked, project)?;
    let bytes_max = Some(input.settings.git_copy_bytes_max());
    let mut holding = states.hold(input.locked, project, cache.copied_bytes, bytes_max, input.now);
    let known: HashMap<&[u8], SeenPath<'_>> = seen_paths(&cache.objects).map(by_path).collect();
    let (mut done, mut open) = (Vec::new(), Vec::new());
    for dir in &dirs {
        let is_known = known.get(dir.path.as_slice()).is_some_and(|known| known.is_same(&dir.stat));
        let is_whole = is_known || !input.progress.is_cancelled() && hold_dir(input, repository, dir, &mut holding)?;
        if is_whole { &mut done } else { &mut open }.push(dir.clone());
    }
    let is_cut = !open.is_empty() && input.progress.is_cancelled();
    if !is_cut {
        let listed: BTreeSet<Vec<u8>> = dirs.iter().map(|dir| dir.path.clone()).collect();
        holding.only_dirs(&listed)?;
    }
    let seen = [encode(&done, input.now.as_nanos() - YOUNG_NANOS), encode(&open, i128::MIN)].concat();
    Ok(HeldObjects { seen, held: holding.finish()?, is_cut, left_out })
}

/// Holds the files of one directory. Returns false if not all of them are held.
fn hold_dir(
    input: &CaptureInput<'_>,
    repository: &Repository,
    dir: &ObjectDir,
    holding: &mut HoldObjects<'_>,
) -> Result<bool> {
    let failed = |error: io::Error| Error::io("read the objects of", input.project.dir(), error);
    let mut is_whole = false;
    for _ in 0..if dir.is_packs { PACK_ATTEMPTS } else { 1 } {
        let (opened, names) = match repository.object_names(dir) {
            Err(error) if sys::is_gone(&error) => break,
            listed => listed.map_err(failed)?,
        };
        is_whole = holding.dir(&dir.path, &opened, &names, input.progress)?;
        // A pack that was deleted while it was being linked has been replaced by one that is listed now.
        if !dir.is_packs || opened.stat().is_ok_and(|stat| stat.mtime == dir.stat.mtime) {
            break;
        }
    }
    Ok(is_whole)
}

fn stopped() -> Error {
    Error::new(ErrorKind::Stopped, "record the git state").because("it took too long")
}
