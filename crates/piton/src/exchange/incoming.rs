//! Adding a checkpoint of another machine to the store.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, ObjectId, ObjectKind, ProjectId};
use crate::project::Project;
use crate::relpath;
use crate::settings::Settings;
use crate::store::{
    Checkpoint, EntryMode, FetchedFrom, NewCheckpoint, NewObjects, Objects, Pin, PinName, PinTime, Store, StoreLock,
    build_tree, parse_commit, parse_tree,
};
use crate::time::Moment;
use crate::worktree::dir_identity;

/// Number of fetched checkpoints that a project keeps.
const FETCHED_MAX: usize = 20;

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeItem {
    /// Name in the directory.
    pub name: Vec<u8>,
    /// Type of the object.
    pub kind: ObjectKind,
    /// Id of the object.
    pub id: ObjectId,
    /// Mode of the entry.
    mode: EntryMode,
}

/// Returns the tree that a commit names. Fails with `Damaged` if it is not a checkpoint.
pub fn checkpoint_tree(id: CheckpointId, commit: &[u8]) -> Result<ObjectId> {
    parse_commit(id, commit).map(|checkpoint| checkpoint.tree)
}

/// Returns true if a commit names the path as a directory without files, or as a path that the checkpoint left out. Fails
/// with `Damaged` if it is not a checkpoint.
pub fn names_path(id: CheckpointId, commit: &[u8], path: &[u8]) -> Result<bool> {
    let facts = parse_commit(id, commit)?.facts;
    let is_left_out = facts.skipped.iter().any(|skipped| relpath::is_within(path, &skipped.path));
    Ok(is_left_out || facts.empty_dirs.iter().any(|dir| relpath::is_within(dir, path)))
}

/// Returns the entries of a tree, without commits of other repositories. Fails with `Damaged` if it is invalid or holds a
/// name that must not be written to disk.
pub fn tree_items(id: ObjectId, tree: &[u8]) -> Result<Vec<TreeItem>> {
    let entries = parse_tree(id, tree)?.into_iter().filter(|entry| entry.mode != EntryMode::Commit);
    let item = |mode: EntryMode| if mode == EntryMode::Dir { ObjectKind::Tree } else { ObjectKind::Blob };
    Ok(entries.map(|one| TreeItem { kind: item(one.mode), name: one.name, id: one.id, mode: one.mode }).collect())
}

/// A file of a checkpoint that is fetched in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPath {
    path: Vec<u8>,
    mode: EntryMode,
    id: ObjectId,
}

impl FetchedPath {
    /// Returns the file that a tree entry names, at this path in the checkpoint.
    pub fn new(path: Vec<u8>, item: &TreeItem) -> Self {
        Self { path, mode: item.mode, id: item.id }
    }
}

/// A checkpoint of another machine that is to be added.
#[derive(Debug, Clone, Copy)]
pub struct FetchRequest<'a> {
    /// Name of that machine.
    pub machine: &'a str,
    /// Id of the checkpoint there.
    pub id: CheckpointId,
    /// Bytes of its commit.
    pub commit: &'a [u8],
    /// Files to fetch. `None`: all of them, whose objects must have been added.
    pub files: Option<&'a [FetchedPath]>,
    /// With `files`: directories of the checkpoint that contain a requested path which it does not hold. Restoring such
    /// a path does not remove them.
    pub dirs: &'a [Vec<u8>],
    /// Paths that were asked for, if not all were.
    pub paths: &'a [Vec<u8>],
}

/// Adds objects and one checkpoint of another machine. Nothing is visible before [`Incoming::finish`], and nothing is left
/// behind if it is dropped. While it exists, a garbage collection waits.
pub struct Incoming<'a> {
    store: &'a Store,
    project: &'a Project,
    held: StoreLock,
    objects: Objects,
    new_objects: NewObjects,
}

impl<'a> Incoming<'a> {
    /// Opens the store for new objects. Fails with `Busy` if another process blocks it for half a minute.
    pub fn begin(store: &'a Store, project: &'a Project) -> Result<Self> {
        let held = store.locks.share()?;
        let objects = store.objects.open(&held)?;
        let new_objects = store.objects.new_objects(&objects, false);
        Ok(Self { store, project, held, objects, new_objects })
    }

    /// Returns true if the store has the object.
    pub fn has(&self, id: ObjectId) -> bool {
        self.objects.has(id)
    }

    /// Reads an object that the store has.
    pub fn read(&self, id: ObjectId, kind: ObjectKind) -> Result<Vec<u8>> {
        self.objects.read(id, kind)
    }

    /// Adds an object. Fails with `Damaged` if the bytes do not have this id.
    pub fn add(&self, id: ObjectId, kind: ObjectKind, bytes: &[u8]) -> Result<()> {
        match self.new_objects.writer().add(kind, bytes)? {
            Ok(found) if found == id => Ok(()),
            _ => Err(Error::damaged(format!("add the object {id}"), "it is not what was written under this name")),
        }
    }

    /// Makes the checkpoint visible in the project, under a pin. Returns its id in this store, which differs from the
    /// original one because the commit names this project. Drops the oldest fetched ones above the limit. The caller
    /// has added every object that the store lacks. (Z5)
    pub fn finish(self, request: FetchRequest<'_>, settings: &Settings, now: Moment) -> Result<CheckpointId> {
        let Self { store, project, held, new_objects, .. } = self;
        let original = parse_commit(request.id, request.commit)?;
        let tree = match request.files {
            None => original.tree,
            Some(files) => {
                let entries: BTreeMap<_, _> =
                    files.iter().map(|file| (file.path.clone(), (file.mode, file.id))).collect();
                build_tree(&entries, &new_objects)?
            }
        };
        let facts = facts_of(&original, &request);
        let (time, reason, project_id) = (original.time, &*original.reason, project.id());
        let commit = NewCheckpoint { tree, parent: None, time, reason, facts: &facts, project: project_id }.encode();
        let id = match new_objects.writer().add(ObjectKind::Commit, &commit)? {
            Ok(id) => id,
            Err(collision) => return Err(Error::damaged("add a fetched checkpoint", collision)),
        };
        let locked = store.locks.lock_project(&held, project_id)?;
        let mut record = store.records.get(project_id);
        if record.dir().is_none() {
            // Without a checkpoint of its own, the directory would be unknown. The record can be rebuilt.
            record.touch(project.dir(), dir_identity(project.dir()), now);
            let _ = store.records.save(&locked, project_id, &record);
        }
        let pins = store.pins.of(project_id)?;
        let known = pins.iter().find(|pin| pin.id == id && pin.name.is_fetched());
        // If it was fetched before, only what the store has lost since is new.
        if known.is_some() && new_objects.is_empty() {
            return Ok(id);
        }
        let (bytes, written) = (new_objects.bytes_on_disk(), new_objects.bytes_written());
        store.size.reserve_for("fetch a checkpoint", bytes, written, settings.total_bytes_max())?;
        let published = new_objects.publish()?;
        let new_pin = || Pin { name: PinName::Fetched(PinTime::after(now, &pins)), id };
        let pin = known.cloned().unwrap_or_else(new_pin);
        store.pins.set(&locked, project_id, &pin, now)?;
        if !store.objects.secure(&published, now)? {
            if known.is_none() {
                store.pins.remove(&locked, project_id, &pin.name, now)?;
            }
            return Err(Error::new(ErrorKind::Busy, "fetch a checkpoint")
                .because("another program's collection removed objects")
                .with_hint("nothing was changed; try again"));
        }
        let fetched: Vec<_> = pins.iter().filter(|other| other.name.is_fetched() && other.name != pin.name).collect();
        for old in fetched.iter().take((fetched.len() + 1).saturating_sub(FETCHED_MAX)) {
            store.pins.remove(&locked, project_id, &old.name, now)?;
        }
        Ok(id)
    }
}

/// Returns the facts of a fetched checkpoint: those of the original, as far as they concern its files.
fn facts_of(original: &Checkpoint, request: &FetchRequest<'_>) -> crate::store::Facts {
    let is_wanted = |path: &[u8]| {
        request.files.is_none()
            || request.paths.iter().any(|wanted| relpath::is_within(path, wanted) || relpath::is_within(wanted, path))
    };
    let mut facts = original.facts.clone();
    facts.modes.retain(|(path, _)| is_wanted(path));
    facts.empty_dirs.retain(|path| is_wanted(path));
    facts.skipped.retain(|skipped| is_wanted(&skipped.path));
    if let Some(files) = request.files {
        // One that stock git made counts none, and says nothing about directories.
        facts.files = facts.files.map(|_| files.len() as u64);
        let has_files = |dir: &[u8]| files.iter().any(|file| relpath::is_within(&file.path, dir));
        facts.empty_dirs.extend(request.dirs.iter().filter(|dir| !dir.is_empty() && !has_files(dir)).cloned());
        facts.empty_dirs.sort();
        facts.empty_dirs.dedup();
    }
    (facts.restoring, facts.record) = (None, None);
    facts.fetched = Some(FetchedFrom { machine: request.machine.to_owned(), id: request.id });
    facts
}

/// Forgets every checkpoint that was fetched for a project. Returns their number.
pub fn forget_fetched(store: &Store, project: &ProjectId, now: Moment) -> Result<usize> {
    let held = store.locks.share()?;
    let locked = store.locks.lock_project(&held, project)?;
    let fetched: Vec<_> = store.pins.of(project)?.into_iter().filter(|pin| pin.name.is_fetched()).collect();
    fetched.iter().try_for_each(|pin| store.pins.remove(&locked, project, &pin.name, now))?;
    Ok(fetched.len())
}
