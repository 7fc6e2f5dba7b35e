//! Fetch: a checkpoint of another machine, whole or some paths of it, is added to the store of this one.
//!
//! Objects are received first, without a lock, and added under the lock afterwards: a fetch keeps no take waiting for the
//! network.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Mutex;

use piton::{
    CheckpointId, FetchRequest, FetchedPath, Incoming, Moment, ObjectId, ObjectKind, Project, Settings, Store,
    TreeItem, checkpoint_tree, names_path, tree_items,
};
use serde::Serialize;

use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::index::Index;
use crate::machines::{self, ProjectChoice};
use crate::remote::Remote;
use crate::transfer::{Meter, Received, receive, receive_all};

/// All commits and trees of a pack are read with one request, if they are this near to each other.
const META_BYTES_MAX: u64 = 1 << 20;
/// Attempts, if a garbage collection removes objects of this store meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// A checkpoint to fetch.
#[derive(Debug, Clone)]
pub struct FetchCheckpoint<'a> {
    /// Name of the machine.
    pub machine: &'a str,
    /// Its project.
    pub choice: ProjectChoice,
    /// Number, digits of the id, or mark.
    pub checkpoint: &'a str,
    /// Paths to fetch; everything if empty.
    pub paths: &'a [Vec<u8>],
}

/// Result of a fetch.
#[derive(Debug, Clone, Serialize)]
pub struct FetchReport {
    /// Id by which the checkpoint is found in this store.
    pub id: String,
    /// Its id on the machine that took it.
    pub original: String,
    /// Name of that machine.
    pub machine: String,
    /// Objects that were received.
    pub objects: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Blobs that were received, in a temporary file: they may be larger than memory.
struct Spool {
    file: std::fs::File,
    entries: Vec<(ObjectId, u64, usize)>,
    end: u64,
}

impl Spool {
    fn new(dir: &Path) -> Result<Self> {
        let file =
            tempfile::tempfile_in(dir).map_err(|error| RemoteError::io("make a temporary file in", dir, &error))?;
        Ok(Self { file, entries: Vec::new(), end: 0 })
    }

    fn add(&mut self, id: ObjectId, bytes: &[u8]) -> Result<()> {
        let failed =
            |error: std::io::Error| RemoteError::new(RemoteErrorKind::Io, format!("write a temporary file: {error}"));
        self.file.write_all(bytes).map_err(failed)?;
        self.entries.push((id, self.end, bytes.len()));
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn each(&mut self, mut each: impl FnMut(ObjectId, &[u8]) -> Result<()>) -> Result<()> {
        let failed =
            |error: std::io::Error| RemoteError::new(RemoteErrorKind::Io, format!("read a temporary file: {error}"));
        for (id, start, length) in &self.entries {
            let mut bytes = vec![0; *length];
            self.file.seek(SeekFrom::Start(*start)).and_then(|_| self.file.read_exact(&mut bytes)).map_err(failed)?;
            each(*id, &bytes)?;
        }
        Ok(())
    }
}

/// Fetches a checkpoint into a project. On return, the library finds it by the id in the report.
pub fn fetch_checkpoint(
    store: &Store,
    project: &Project,
    remote: &Remote,
    wanted: &FetchCheckpoint<'_>,
    settings: &Settings,
    now: Moment,
    meter: &Meter,
) -> Result<FetchReport> {
    let found = machines::find(remote, wanted.machine, &wanted.choice)?;
    let checkpoint = machines::checkpoint(&found.record, wanted.checkpoint)?;
    let index = remote.merged_index(&found.key, &found.record.indexes)?;
    let mut fetch = Fetch {
        store,
        project,
        remote,
        index,
        meter,
        meta: Received::new(),
        spool: Mutex::new(Spool::new(remote.local.dir())?),
    };
    for attempt in 1..=ATTEMPTS_MAX {
        let (part, known) = if wanted.paths.is_empty() {
            (None, fetch.everything(checkpoint.id)?)
        } else {
            fetch.some(checkpoint.id, wanted.paths).map(|(part, known)| (Some(part), known))?
        };
        let incoming = Incoming::begin(store, project)?;
        if !known.iter().all(|id| incoming.has(*id)) && attempt < ATTEMPTS_MAX {
            // A garbage collection has removed some since.
            continue;
        }
        fetch.add_to(&incoming)?;
        let commit = fetch.meta.get(&checkpoint.id).map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        let request = FetchRequest {
            machine: wanted.machine,
            id: checkpoint.id,
            commit: &commit,
            files: part.as_ref().map(|part| &*part.files),
            dirs: part.as_ref().map_or(&[], |part| &*part.dirs),
            paths: wanted.paths,
        };
        let id = incoming.finish(request, settings, now)?;
        let spool = fetch.spool.into_inner().expect("no thread panics with it");
        let bytes = spool.end + fetch.meta.values().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        return Ok(FetchReport {
            id: id.to_string(),
            original: checkpoint.id.to_string(),
            machine: wanted.machine.to_owned(),
            objects: fetch.meta.len() + spool.entries.len(),
            bytes,
        });
    }
    Err(RemoteError::new(RemoteErrorKind::Busy, "fetch: objects of this store keep being removed").hint("try again"))
}

/// The part of a checkpoint at some paths.
#[derive(Default)]
struct FetchedPart {
    files: Vec<FetchedPath>,
    /// Directories of the checkpoint around paths that it does not hold.
    dirs: Vec<Vec<u8>>,
}

/// A path in the tree of a checkpoint.
enum PathLookup {
    File(TreeItem),
    Directory(ObjectId),
    /// There is none; with the innermost directory around it that there is.
    Missing(Vec<u8>),
}

struct Fetch<'a> {
    store: &'a Store,
    project: &'a Project,
    remote: &'a Remote,
    index: Index,
    meter: &'a Meter,
    /// Commits and trees that were received.
    meta: Received,
    spool: Mutex<Spool>,
}

impl Fetch<'_> {
    /// Receives the commit, and everything that the store lacks. Returns the objects that it relies on in the store.
    fn everything(&mut self, id: CheckpointId) -> Result<HashSet<ObjectId>> {
        self.receive_meta(&[id], true)?;
        let mut known = HashSet::new();
        let (mut trees, mut blobs) = (vec![self.tree_of(id)?], HashSet::new());
        let mut done = HashSet::new();
        while !trees.is_empty() {
            let here = Incoming::begin(self.store, self.project)?;
            let (mut next, mut missing) = (Vec::new(), Vec::new());
            for tree in trees.drain(..) {
                if done.contains(&tree) {
                    continue;
                }
                let bytes = match self.meta.get(&tree) {
                    Some((_, bytes)) => bytes.clone(),
                    None if here.has(tree) => {
                        known.insert(tree);
                        here.read(tree, ObjectKind::Tree)?
                    }
                    None => {
                        missing.push(tree);
                        continue;
                    }
                };
                done.insert(tree);
                for item in tree_items(tree, &bytes)? {
                    match item.kind {
                        ObjectKind::Tree => next.push(item.id),
                        _ if here.has(item.id) => drop(known.insert(item.id)),
                        _ => drop(blobs.insert(item.id)),
                    }
                }
            }
            drop(here);
            self.receive_meta(&missing, false)?;
            next.extend(missing);
            trees = next;
        }
        self.receive_blobs(&blobs)?;
        Ok(known)
    }

    /// Receives the files at these paths. Fails with `NotFound` for a path that the checkpoint neither holds nor names as
    /// an empty directory or as left out, unless there is something at the path on this machine: a restore removes it.
    fn some(&mut self, id: CheckpointId, paths: &[Vec<u8>]) -> Result<(FetchedPart, HashSet<ObjectId>)> {
        self.receive_meta(&[id], true)?;
        let root = self.tree_of(id)?;
        let (mut part, mut blobs) = (FetchedPart::default(), HashSet::new());
        for path in paths {
            match self.look_up(root, path)? {
                PathLookup::File(item) => {
                    blobs.insert(item.id);
                    part.files.push(FetchedPath::new(path.clone(), &item));
                }
                PathLookup::Directory(tree) => self.below(tree, path, &mut part.files, &mut blobs)?,
                PathLookup::Missing(around) if self.is_known(id, path)? => part.dirs.push(around),
                PathLookup::Missing(_) => {
                    let what = format!("find {} in the checkpoint {}", String::from_utf8_lossy(path), id.short());
                    return Err(RemoteError::new(RemoteErrorKind::NotFound, what)
                        .hint("`piton show` lists what a checkpoint holds"));
                }
            }
        }
        let here = Incoming::begin(self.store, self.project)?;
        let known: HashSet<_> = blobs.iter().copied().filter(|blob| here.has(*blob)).collect();
        drop(here);
        blobs.retain(|blob| !known.contains(blob));
        self.receive_blobs(&blobs)?;
        Ok((part, known))
    }

    fn look_up(&mut self, root: ObjectId, path: &[u8]) -> Result<PathLookup> {
        let (mut tree, mut around) = (root, Vec::new());
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let item = self.items(tree)?.into_iter().find(|one| one.name == name);
            match item {
                Some(item) if item.kind == ObjectKind::Tree => {
                    tree = item.id;
                    around = if around.is_empty() { name.to_vec() } else { [&*around, b"/", name].concat() };
                }
                Some(item) if names.peek().is_none() => return Ok(PathLookup::File(item)),
                _ => return Ok(PathLookup::Missing(around)),
            }
        }
        Ok(PathLookup::Directory(tree))
    }

    /// Returns true if a path at which the checkpoint holds no file can be restored all the same.
    fn is_known(&self, id: CheckpointId, path: &[u8]) -> Result<bool> {
        let is_here = || self.project.dir().join(OsStr::from_bytes(path)).symlink_metadata().is_ok();
        Ok(names_path(id, self.commit(id)?, path)? || is_here())
    }

    /// Adds all files below a directory.
    fn below(
        &mut self,
        tree: ObjectId,
        path: &[u8],
        files: &mut Vec<FetchedPath>,
        blobs: &mut HashSet<ObjectId>,
    ) -> Result<()> {
        let mut open = vec![(tree, path.to_vec())];
        while let Some((tree, dir)) = open.pop() {
            for item in self.items(tree)? {
                let path = if dir.is_empty() { item.name.clone() } else { [&*dir, b"/", &*item.name].concat() };
                if item.kind == ObjectKind::Tree {
                    open.push((item.id, path));
                } else {
                    blobs.insert(item.id);
                    files.push(FetchedPath::new(path, &item));
                }
            }
        }
        Ok(())
    }

    fn commit(&self, id: CheckpointId) -> Result<&[u8]> {
        let found = self.meta.get(&id).map(|(_, commit)| &**commit);
        found.ok_or_else(|| RemoteError::damaged(&id.to_string(), "it is not a checkpoint"))
    }

    fn tree_of(&self, id: CheckpointId) -> Result<ObjectId> {
        Ok(checkpoint_tree(id, self.commit(id)?)?)
    }

    fn items(&mut self, tree: ObjectId) -> Result<Vec<TreeItem>> {
        self.receive_meta(&[tree], false)?;
        let (_, bytes) =
            self.meta.get(&tree).ok_or_else(|| RemoteError::damaged(&tree.to_string(), "it is not a tree"))?;
        Ok(tree_items(tree, bytes)?)
    }

    /// Receives commits and trees. With `neighbours`, also the others of the same pack, if one request is enough for them:
    /// they are most likely needed next.
    fn receive_meta(&mut self, ids: &[ObjectId], neighbours: bool) -> Result<()> {
        let mut wanted: HashSet<_> = ids.iter().copied().filter(|id| !self.meta.contains_key(id)).collect();
        if neighbours {
            for id in wanted.clone() {
                wanted.extend(self.neighbours(id));
            }
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        if !wanted.is_empty() {
            self.meta.extend(receive_all(self.remote, &self.index, &wanted, self.meter)?);
        }
        Ok(())
    }

    fn neighbours(&self, id: ObjectId) -> Vec<ObjectId> {
        let Some((pack, _)) = self.index.get(&id) else { return Vec::new() };
        let is_near = |other: &ObjectId| {
            self.index.get(other).is_some_and(|(one, place)| one.name == pack.name && place.kind != ObjectKind::Blob)
        };
        let all: Vec<_> = self.index.places.keys().copied().filter(is_near).collect();
        let bytes: u64 = all.iter().filter_map(|id| self.index.get(id)).map(|(_, place)| place.bytes).sum();
        if bytes <= META_BYTES_MAX { all } else { Vec::new() }
    }

    fn receive_blobs(&self, blobs: &HashSet<ObjectId>) -> Result<()> {
        let held: HashSet<_> = {
            let spool = self.spool.lock().expect("no thread panics with it");
            spool.entries.iter().map(|(id, ..)| *id).collect()
        };
        let wanted: Vec<_> = blobs.difference(&held).copied().collect();
        receive(self.remote, &self.index, &wanted, self.meter, &|id, kind, bytes| match kind {
            ObjectKind::Blob => self.spool.lock().expect("no thread panics with it").add(id, &bytes),
            _ => Err(RemoteError::damaged(&id.to_string(), "it is not a file")),
        })
    }

    fn add_to(&self, incoming: &Incoming<'_>) -> Result<()> {
        // The commit is not added: the store gets one of its own.
        for (id, (kind, bytes)) in self.meta.iter().filter(|(_, (kind, _))| *kind == ObjectKind::Tree) {
            incoming.add(*id, *kind, bytes)?;
        }
        self.spool
            .lock()
            .expect("no thread panics with it")
            .each(|id, bytes| Ok(incoming.add(id, ObjectKind::Blob, bytes)?))
    }
}
