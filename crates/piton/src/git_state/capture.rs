//! Records the state of the repository that a project is in, beside each checkpoint.
//!
//! Small files are looked at first, then loose objects, then packs: git writes objects before the refs that need them, and
//! a new pack before it removes what the pack replaces. So the objects of every ref that was read are found.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;

use super::{GitCapture, GitCaptureOutcome};
use crate::error::{Error, ErrorKind, Result, plain_io};
use crate::id::{CheckpointId, ObjectId};
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath::escape;
use crate::settings::Settings;
use crate::store::{
    FILE_MODE, GitChange, GitState, GitStateCache, GitStateMoment, GitStateRecord, HoldResult, LINK_MODE, ProjectLock,
    SMALL_FILE_BYTES_MAX, StateFile, Store,
};
use crate::sys::{self, Kind, Stat};
use crate::time::Moment;
use crate::worktree::{Located, ObjectDir, Repository, RepositoryFile, RepositoryPlace, locate};

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
    let captured = capture_at(input, &place).unwrap_or_else(|error| {
        let outcome = match error.kind() {
            ErrorKind::Stopped => GitCaptureOutcome::CutShort,
            _ => GitCaptureOutcome::Failed,
        };
        let text = format!("the git state of {} was not recorded: {error}", place.root.display());
        GitCapture { outcome, problem: Some(text), ..GitCapture::default() }
    });
    // Without a record of the problem, the report still has it.
    let _ = states.note_problem(input.project.id(), captured.problem.as_deref());
    captured
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
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::Interrupted => stopped(),
        _ => Error::io("read", &place.common, error),
    };
    let Some(repository) = place.open()? else { return Ok(GitCapture::default()) };
    let cache = states.cache(project);
    let listing = repository.list_files(input.progress).map_err(failed)?;
    let files = lines(listing.files.iter().map(|file| (file.path.as_slice(), &file.stat)), None);
    let is_same = files == cache.files && cache.state.is_some_and(|id| states.has_state(project, id));
    let (state, too_large) = match cache.state.filter(|_| is_same) {
        Some(id) => (StateToSave::Known(id), Vec::new()),
        None => {
            states.prepare(input.locked, project)?;
            let (state, too_large) = read_state(input, place, &repository, &listing.files, &cache)?;
            (StateToSave::New(state), too_large)
        }
    };
    let mut objects = hold_objects(input, &repository, &listing.object_roots, &cache)?;
    objects.left_out.extend(too_large);
    let id = match state {
        StateToSave::Known(id) => id,
        StateToSave::New(state) => states.put(input.locked, project, &state)?,
    };
    let young = Some(input.now);
    let next = GitStateCache {
        state: Some(id),
        logged: cache.logged,
        copied_bytes: objects.held.copied_bytes,
        files: lines(listing.files.iter().map(|file| (file.path.as_slice(), &file.stat)), young),
        objects: objects.lines,
    };
    finish(input, place, id, next, &cache, objects.held, objects.is_cut, &objects.left_out)
}

enum StateToSave {
    Known(ObjectId),
    New(GitState),
}

/// Adds the state to the log if it is not there, saves the cache if it changed, and words what is missing.
#[expect(clippy::too_many_arguments, reason = "the parts of one result")]
fn finish(
    input: &CaptureInput<'_>,
    place: &RepositoryPlace,
    id: ObjectId,
    mut next: GitStateCache,
    cache: &GitStateCache,
    held: HoldResult,
    is_cut: bool,
    left_out: &[String],
) -> Result<GitCapture> {
    let (states, project) = (&input.store.git_states, input.project.id());
    let is_row = input.moment == GitStateMoment::Row;
    let logged = input.checkpoint.map(|checkpoint| (checkpoint, is_row));
    let is_new = cache.state != Some(id);
    if is_new || logged != cache.logged || input.moment == GitStateMoment::BeforeChange {
        states.prepare(input.locked, project)?;
        let record = GitStateRecord {
            time: input.now,
            state: id,
            checkpoint: input.checkpoint,
            moment: input.moment,
            is_cut: is_cut || !left_out.is_empty() || held.beyond_limit > 0,
            changes: input.changes.clone(),
        };
        states.append(input.locked, project, &record)?;
        next.logged = logged;
    }
    if next != *cache {
        // It can be rebuilt.
        let _ = states.save_cache(project, &next);
    }
    let root = place.root.display();
    let mut problems = Vec::new();
    if is_cut {
        problems.push(format!("the objects of the git repository in {root} are not all saved: it took too long"));
    }
    if held.beyond_limit > 0 {
        problems.push(format!(
            "{} object files of the git repository in {root} are not saved: they cannot be linked, and copies have \
             reached keep_git_mb",
            held.beyond_limit
        ));
    }
    if held.foreign > 0 {
        problems.push(format!("{} object files in {root} belong to another user and are not saved", held.foreign));
    }
    problems.extend(left_out.iter().map(|what| format!("of the git repository in {root}, {what} are not saved")));
    let outcome = match () {
        () if is_cut => GitCaptureOutcome::CutShort,
        () if is_new => GitCaptureOutcome::Recorded,
        () => GitCaptureOutcome::Unchanged,
    };
    let problem = (!problems.is_empty()).then(|| problems.join("; "));
    Ok(GitCapture { outcome, state: Some(id), linked: held.linked, copied: held.copied, problem })
}

/// Returns a line for each path, by which a change is noticed. With the time of the capture, the line of a file that is
/// too young to be trusted does not match any later one.
fn lines<'a>(files: impl Iterator<Item = (&'a [u8], &'a Stat)>, young_at: Option<Moment>) -> String {
    let mut text = String::new();
    for (path, stat) in files {
        let (mtime, ctime) = (stat.mtime.as_nanos(), stat.ctime.as_nanos());
        let is_young = young_at.is_some_and(|now| mtime.max(ctime) > now.as_nanos() - YOUNG_NANOS);
        let end = if is_young { " !" } else { "" };
        let line = format!("{} {:o} {} {mtime} {ctime} {}{end}\n", escape(path), stat.mode, stat.size, stat.ino);
        text.push_str(&line);
    }
    text
}

/// Returns the lines by the path at their start.
fn by_path(lines: &str) -> HashMap<&str, &str> {
    lines.lines().filter_map(|line| Some((line.split_once(' ')?.0, line))).collect()
}

/// Reads the small files that changed since the last capture. Also returns what was left out, in words.
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
    let known = by_path(&cache.files);
    let own = sys::path_bytes(place.own.strip_prefix(&place.common).unwrap_or(std::path::Path::new(""))).to_vec();
    let mut state = GitState {
        root: place.root.clone(),
        common: place.common.clone(),
        own,
        files: Vec::with_capacity(files.len()),
    };
    let mut left_out = Vec::new();
    for file in files {
        if input.progress.is_cancelled() {
            return Err(stopped());
        }
        let line = lines([(file.path.as_slice(), &file.stat)].into_iter(), None);
        let name = escape(&file.path);
        if known.get(name.as_str()).is_some_and(|known| *known == line.trim_end())
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
struct HeldObjects {
    lines: String,
    held: HoldResult,
    is_cut: bool,
    left_out: Vec<String>,
}

/// Links or copies the object files that are new since the last capture.
fn hold_objects(
    input: &CaptureInput<'_>,
    repository: &Repository,
    roots: &[Vec<u8>],
    cache: &GitStateCache,
) -> Result<HeldObjects> {
    let (states, project) = (&input.store.git_states, input.project.id());
    let failed = |error: io::Error| Error::io("read the objects of", input.project.dir(), error);
    let mut dirs: Vec<ObjectDir> = Vec::new();
    let mut left_out = Vec::new();
    for root in roots {
        match repository.object_dirs(root) {
            Ok(found) => dirs.extend(found),
            Err(error) if sys::is_gone(&error) => {}
            Err(error) => left_out.push(format!("the objects in {} ({})", escape(root), plain_io(&error))),
        }
    }
    let current = lines(dirs.iter().map(|dir| (dir.path.as_slice(), &dir.stat)), None);
    if current == cache.objects {
        let held = HoldResult { copied_bytes: cache.copied_bytes, ..HoldResult::default() };
        return Ok(HeldObjects { lines: current, held, is_cut: false, left_out });
    }
    states.prepare(input.locked, project)?;
    let bytes_max = Some(input.settings.git_copy_bytes_max());
    let mut holding = states.hold(input.locked, project, cache.copied_bytes, bytes_max, input.now);
    let known: HashSet<&str> = cache.objects.lines().collect();
    let (mut done, mut is_cut) = (String::new(), false);
    for dir in &dirs {
        let one = || [(dir.path.as_slice(), &dir.stat)].into_iter();
        if known.contains(lines(one(), None).trim_end()) {
            done.push_str(&lines(one(), Some(input.now)));
            continue;
        }
        if input.progress.is_cancelled() {
            is_cut = true;
            break;
        }
        let mut is_whole = false;
        for _ in 0..if dir.is_packs { PACK_ATTEMPTS } else { 1 } {
            let (opened, names) = match repository.object_names(dir) {
                Err(error) if sys::is_gone(&error) => break,
                listed => listed.map_err(failed)?,
            };
            is_whole = holding.dir(&dir.path, &opened, &names, input.progress)?;
            // A pack that went while it was linked is replaced by one that is listed now.
            if !dir.is_packs || opened.stat().is_ok_and(|stat| stat.mtime == dir.stat.mtime) {
                break;
            }
        }
        if is_whole {
            done.push_str(&lines(one(), Some(input.now)));
        }
        is_cut |= !is_whole && input.progress.is_cancelled();
    }
    if !is_cut {
        let listed: BTreeSet<Vec<u8>> = dirs.iter().map(|dir| dir.path.clone()).collect();
        holding.only_dirs(&listed)?;
    }
    Ok(HeldObjects { lines: done, held: holding.finish()?, is_cut, left_out })
}

fn stopped() -> Error {
    Error::new(ErrorKind::Stopped, "record the git state").because("it took too long")
}
