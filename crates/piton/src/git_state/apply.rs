//! Carries out the plan of a restore, under git's own lock files.
//!
//! `HEAD.lock`, `index.lock` and `packed-refs.lock` are held from the comparison until the end, so that no command of git
//! comes in between. Their names are recorded first: the locks of a killed process are removed by the next restore.

use super::capture::{CaptureInput, capture_at};
use super::objects::lost_objects;
use super::plan::{GitAction, GitPlan, PlannedItem};
use super::snapshot::{GitSnapshot, SmallFile, without_packed};
use super::{GitItemKind, GitLeft};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ObjectId;
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath::escape;
use crate::settings::Settings;
use crate::store::{FILE_MODE, GitChange, GitStateMoment, GitStateRecord, LINK_MODE, ProjectLock, Store};
use crate::time::Moment;
use crate::worktree::{
    RepositoryLock, RepositoryPlace, RepositoryWriter, place_pointer, remove_unfinished, rename_dir, temp_lock,
};

/// Permission bits of the directory of a repository that is rebuilt, if the state has none.
const REPOSITORY_MODE: u16 = 0o755;

/// The repository to change, and on whose behalf.
pub(super) struct GitTarget<'a> {
    pub(super) store: &'a Store,
    pub(super) project: &'a Project,
    pub(super) locked: &'a ProjectLock,
    pub(super) place: &'a RepositoryPlace,
    pub(super) settings: &'a Settings,
    pub(super) now: Moment,
    pub(super) progress: &'a Progress,
}

/// Result of applying a plan.
pub(super) struct Applied {
    /// State before.
    pub(super) before: ObjectId,
    pub(super) objects: u64,
}

/// Returns the changes of a plan, as they are recorded for an undo.
fn changes(items: &[PlannedItem]) -> Vec<GitChange> {
    let mut all = Vec::new();
    for (item, action) in items.iter().flat_map(|one| one.actions.iter().map(|action| (&one.item, action))) {
        let (kind, path, value) = match (action, item.kind) {
            (GitAction::Ref { name, .. }, kind) => (kind, name.as_bytes(), item.to.clone()),
            (GitAction::Stash { .. }, kind) => (kind, &b"logs/refs/stash"[..], item.to.clone()),
            (GitAction::File { path, .. }, GitItemKind::Head) => (item.kind, path.as_slice(), item.to.clone()),
            (GitAction::File { path, .. }, GitItemKind::Index) if is_index(path) => {
                (item.kind, path.as_slice(), item.to.clone())
            }
            // Tables and shared indexes that nothing names do no harm, and others may name them by now.
            (GitAction::File { .. }, GitItemKind::Index) => continue,
            (GitAction::File { path, .. }, GitItemKind::Refs) if !path.ends_with(b"tables.list") => continue,
            (GitAction::File { path, file }, _) => (GitItemKind::File, path.as_slice(), file.as_ref().map(content)),
            (GitAction::Pointer { .. } | GitAction::Rebuild, _) => continue,
        };
        let is_companion = kind != item.kind;
        let name = if is_companion { String::from_utf8_lossy(path).into_owned() } else { item.name.clone() };
        let from = item.from.clone().filter(|_| !is_companion);
        all.push(GitChange { kind: kind.word().to_owned(), name, path: escape(path), from, to: value });
    }
    all
}

fn is_index(path: &[u8]) -> bool {
    crate::relpath::split(path).1 == b"index"
}

fn content(file: &SmallFile) -> String {
    crate::id::content_id(&file.bytes).to_string()
}

/// Carries out a plan. Items that fail are moved to the list of what is left.
pub(super) fn apply(target: &GitTarget<'_>, present: &GitSnapshot, plan: &mut GitPlan) -> Result<Applied> {
    let (states, project) = (&target.store.git_states, target.project.id());
    let guard = format!("piton {project} {}.{:09}\n", target.now.secs, target.now.nanos).into_bytes();
    let writer = RepositoryWriter::open(&target.place.common, guard.clone())?;
    let guarded = guarded_files(present, &plan.items, &guard);
    states.note_locks(target.locked, project, &target.place.common, &lock_files(&guarded, &plan.items, &guard))?;
    let mut locks = Vec::new();
    let applied = apply_locked(target, &writer, &guarded, &mut locks, present, plan);
    let released = locks.into_iter().map(|(lock, _)| lock.release()).collect::<Vec<_>>();
    match applied {
        // Another process may have one of these locks by now: only those of this one are known to be gone.
        Err(error) if released.iter().all(std::result::Result::is_ok) => {
            let _ = states.clear_locks(target.locked, project);
            Err(error)
        }
        applied => {
            let applied = applied?;
            writer.sync()?;
            states.remove_stale_locks(target.locked, project)?;
            Ok(applied)
        }
    }
}

/// Carries out a plan under the locks that it takes.
fn apply_locked(
    target: &GitTarget<'_>,
    writer: &RepositoryWriter,
    guarded: &Guarded,
    locks: &mut Vec<(RepositoryLock, bool)>,
    present: &GitSnapshot,
    plan: &mut GitPlan,
) -> Result<Applied> {
    for (path, bytes, mode) in guarded {
        locks.push((writer.lock(path, bytes, *mode)?, mode.is_some()));
    }
    if GitSnapshot::now(target.place, target.progress)?.as_ref() != Some(present) {
        return Err(Error::new(ErrorKind::Busy, "restore the git state").because("the repository changed meanwhile"));
    }
    let before = record_before(target, changes(&plan.items))?;
    for dir in ["refs", "objects"].into_iter().filter(|dir| !target.place.has_dir(dir)) {
        writer.place_dir(dir.as_bytes())?;
    }
    // D15: objects first.
    let objects = place_objects(target, writer)?;
    writer.sync()?;
    let is_guarded = |path: &[u8]| guarded.iter().any(|(guarded, ..)| guarded == path);
    let mut done = Vec::new();
    for one in std::mem::take(&mut plan.items) {
        match carry_out(writer, &one, present, is_guarded) {
            Ok(()) => done.push(one),
            Err(error) => {
                plan.left.push(GitLeft { kind: one.item.kind, name: one.item.name, why: error.to_string() });
            }
        }
    }
    plan.items = done;
    let is_new = |(_, is_new): &mut (RepositoryLock, bool)| *is_new;
    for (lock, _) in locks.extract_if(.., is_new) {
        lock.commit().map_err(|error| Error::io("replace a file of", &target.place.common, error))?;
    }
    Ok(Applied { before, objects })
}

/// Returns every file that is made to take the locks of a plan, with its contents unless it is temporary.
fn lock_files(guarded: &Guarded, items: &[PlannedItem], guard: &[u8]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut locks: Vec<(Vec<u8>, Vec<u8>)> =
        guarded.iter().map(|(path, bytes, _)| (path.clone(), bytes.clone())).collect();
    let line = |value: Option<&String>| value.map_or_else(|| guard.to_vec(), |value| format!("{value}\n").into_bytes());
    for action in items.iter().flat_map(|one| &one.actions) {
        match action {
            GitAction::Ref { name, to, .. } => locks.push((name.as_bytes().to_vec(), line(to.as_ref()))),
            GitAction::Stash { log, top } => {
                let log = if top.is_some() { log.clone() } else { guard.to_vec() };
                locks.extend([(b"refs/stash".to_vec(), line(top.as_ref())), (b"logs/refs/stash".to_vec(), log)]);
            }
            GitAction::File { path, file } => {
                locks.push((path.clone(), file.as_ref().map_or_else(|| guard.to_vec(), |file| file.bytes.clone())));
            }
            GitAction::Pointer { .. } | GitAction::Rebuild => {}
        }
    }
    let lock = |path: &[u8]| [path, b".lock"].concat();
    locks.into_iter().flat_map(|(path, bytes)| [(lock(&path), Some(bytes)), (temp_lock(&path), None)]).collect()
}

/// Files whose locks are held all the time: path, contents of the lock file, and the mode if these replace the file.
type Guarded = Vec<(Vec<u8>, Vec<u8>, Option<u16>)>;

fn guarded_files(present: &GitSnapshot, items: &[PlannedItem], guard: &[u8]) -> Guarded {
    let place = &present.place;
    let written = |wanted: &[u8]| {
        let mut actions = items.iter().flat_map(|one| &one.actions);
        actions.find_map(|action| match action {
            GitAction::File { path, file: Some(file) } if path == wanted => Some(as_file(file)),
            _ => None,
        })
    };
    let mut all = Guarded::new();
    let is_written = |path: &Vec<u8>| written(path).is_some();
    let paths = [place.own_path("HEAD"), place.own_path("index")].into_iter();
    for path in paths.chain(Some(b"config".to_vec()).filter(is_written)) {
        match written(&path) {
            Some(file) => all.push((path, file.bytes.clone(), Some(mode_of(&file)))),
            None => all.push((path, guard.to_vec(), None)),
        }
    }
    let packed = packed_after(present, items);
    let mode = packed.as_ref().and_then(|_| present.files.get(&b"packed-refs"[..])).map(mode_of);
    all.push((b"packed-refs".to_vec(), packed.unwrap_or_else(|| guard.to_vec()), mode));
    all
}

/// Returns `HEAD` as a file if it is a link, as old versions of git made it.
fn as_file(file: &SmallFile) -> SmallFile {
    if file.mode & LINK_MODE != LINK_MODE {
        return file.clone();
    }
    SmallFile { mode: FILE_MODE | 0o644, bytes: [b"ref: ", file.bytes.as_slice(), b"\n"].concat() }
}

fn mode_of(file: &SmallFile) -> u16 {
    u16::try_from(file.mode & 0o777).unwrap_or(0o644)
}

/// Returns `packed-refs` without the refs that are deleted, if it changes.
fn packed_after(present: &GitSnapshot, items: &[PlannedItem]) -> Option<Vec<u8>> {
    let deleted = items.iter().flat_map(|one| &one.actions).filter_map(|action| match action {
        GitAction::Ref { name, to: None, .. } => Some(name.as_bytes()),
        _ => None,
    });
    without_packed(present.bytes(b"packed-refs").unwrap_or_default(), &deleted.collect())
}

/// D16: records the state before, with the changes that follow. Fails if it cannot be recorded as a whole.
fn record_before(target: &GitTarget<'_>, changes: Vec<GitChange>) -> Result<ObjectId> {
    let captured = capture_at(
        &CaptureInput {
            store: target.store,
            locked: target.locked,
            project: target.project,
            checkpoint: None,
            moment: GitStateMoment::BeforeChange,
            changes,
            settings: target.settings,
            now: target.now,
            progress: target.progress,
        },
        target.place,
    )?;
    captured.state.ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "restore the git state").because("the state before could not be recorded")
    })
}

/// Adds the object files that are held and gone. Returns their number.
fn place_objects(target: &GitTarget<'_>, writer: &RepositoryWriter) -> Result<u64> {
    let mut count = 0;
    for file in lost_objects(target.store, target.project.id(), target.place, target.progress)? {
        count += u64::from(writer.place_object(&file.path, &file.file)?);
    }
    Ok(count)
}

fn carry_out(
    writer: &RepositoryWriter,
    one: &PlannedItem,
    present: &GitSnapshot,
    is_guarded: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    for action in &one.actions {
        match action {
            GitAction::Ref { name, to: Some(to), .. } => {
                writer.replace(name.as_bytes(), format!("{to}\n").as_bytes(), None)?;
            }
            GitAction::Ref { name, to: None, .. } => writer.remove(name.as_bytes())?,
            GitAction::Stash { log, top: Some(top) } => {
                let held = writer.lock(b"refs/stash", format!("{top}\n").as_bytes(), None)?;
                writer.replace(b"logs/refs/stash", log, None)?;
                held.commit().map_err(|error| Error::io("replace", "refs/stash", error))?;
            }
            GitAction::Stash { top: None, .. } => {
                writer.remove(b"refs/stash")?;
                writer.remove(b"logs/refs/stash")?;
            }
            GitAction::File { path, file: Some(_) } if is_guarded(path) => {}
            GitAction::File { path, file: Some(file) } => place_file(writer, path, file)?,
            // The lock is held already.
            GitAction::File { path, file: None } if is_guarded(path) => writer.remove_locked(path)?,
            GitAction::File { path, file: None } => {
                if present.files.contains_key(path) {
                    writer.remove(path)?;
                    remove_dirs_around(writer, path);
                }
            }
            GitAction::Pointer { link, text, is_own } => place_pointer(link, text, *is_own)?,
            GitAction::Rebuild => {}
        }
    }
    Ok(())
}

/// Removes the directories around a removed file that are empty now and that git makes for an operation only: an empty
/// `rebase-merge` is a rebase.
fn remove_dirs_around(writer: &RepositoryWriter, path: &[u8]) {
    const LASTING: [&[u8]; 7] = [b"branches", b"hooks", b"info", b"logs", b"modules", b"objects", b"refs"];
    let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    let mut dir = crate::relpath::split(path).0;
    while !dir.is_empty() && !LASTING.contains(&first) && writer.remove_empty_dir(dir) {
        dir = crate::relpath::split(dir).0;
    }
}

fn place_file(writer: &RepositoryWriter, path: &[u8], file: &SmallFile) -> Result<()> {
    if file.mode & LINK_MODE == LINK_MODE {
        return writer.place_link(path, &file.bytes);
    }
    writer.replace(path, &file.bytes, Some(mode_of(file)))
}

/// Rebuilds a repository that is gone, in a directory beside its place, which then gets its name. Something else that
/// has this name gets the name `aside`.
pub(super) fn rebuild(
    target: &GitTarget<'_>,
    then: &GitSnapshot,
    id: ObjectId,
    aside: Option<&std::path::Path>,
) -> Result<u64> {
    let common = &target.place.common;
    let mut name = common.file_name().unwrap_or_default().to_os_string();
    name.push(".piton-restore");
    let unfinished = common.with_file_name(name);
    remove_unfinished(&unfinished)?;
    let rebuilt = rebuild_at(target, then, id, &unfinished).and_then(|objects| {
        if let Some(aside) = aside {
            rename_dir(common, aside)?;
        }
        rename_dir(&unfinished, common).map(|()| objects)
    });
    if rebuilt.is_err() {
        // The first error is the one that is reported.
        let _ = remove_unfinished(&unfinished);
    }
    let objects = rebuilt?;
    if !target.place.is_linked() {
        let text = [b"gitdir: ", crate::sys::path_bytes(&target.place.own), b"\n"].concat();
        place_pointer(&target.place.root.join(".git"), &text, true)?;
    }
    Ok(objects)
}

/// Writes a recorded repository into a new directory, with a record of that. Returns the number of object files.
fn rebuild_at(target: &GitTarget<'_>, then: &GitSnapshot, id: ObjectId, unfinished: &std::path::Path) -> Result<u64> {
    let (states, common) = (&target.store.git_states, &target.place.common);
    let change = GitChange {
        kind: GitItemKind::Repository.word().to_owned(),
        name: common.display().to_string(),
        path: String::new(),
        from: None,
        to: Some(id.to_string()),
    };
    let record = GitStateRecord {
        time: target.now,
        state: id,
        checkpoint: None,
        moment: GitStateMoment::BeforeChange,
        is_cut: false,
        changes: vec![change],
    };
    states.append(target.locked, target.project.id(), &record)?;
    let mode = then.dirs.get(&b""[..]).copied().unwrap_or(REPOSITORY_MODE);
    let writer = RepositoryWriter::create(unfinished, mode)?.with_dir_modes(then.dirs.clone());
    let dirs = [&b"objects/pack"[..], b"objects/info", b"refs/heads", b"refs/tags"];
    for dir in dirs.into_iter().chain(then.dirs.keys().map(Vec::as_slice)).filter(|dir| !dir.is_empty()) {
        writer.place_dir(dir)?;
    }
    let mut objects = 0;
    for file in states.held(target.project.id())? {
        objects += u64::from(writer.place_object(&file.path, &file.file)?);
    }
    for (path, file) in &then.files {
        place_file(&writer, path, file)?;
    }
    writer.sync()?;
    Ok(objects)
}
