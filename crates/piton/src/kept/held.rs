//! Files that the newest checkpoint of a project holds, local files included.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::id::{ObjectId, ProjectId};
use crate::progress::Progress;
use crate::relpath;
use crate::settings::Settings;
use crate::store::{Checkpoint, EntryMode, Objects, Store};
use crate::sys::{self, Kind, Stat};
use crate::worktree::{Located, locate};

/// Names in a tree, with their ids.
type TreeNames = HashMap<Vec<u8>, (EntryMode, ObjectId)>;

/// Place of a tree: its root and its path.
type TreePlace = (ObjectId, Vec<u8>);

/// Returns the directories of the repository of the project in `root`, as far as they are known.
pub(super) fn repository_dirs(root: &Path) -> Vec<PathBuf> {
    let mut dirs = vec![root.join(".git")];
    if let Located::Found(place) = locate(root) {
        dirs.extend([place.own, place.common]);
    }
    dirs
}

/// Files that need not be kept.
pub(super) struct HeldFiles {
    root: PathBuf,
    objects: Option<Objects>,
    /// Trees of the newest checkpoint, with the size up to which it holds files: that of its files, and that of its local
    /// files.
    roots: Vec<(ObjectId, u64)>,
    /// Directories of the project's repository, whose state is saved with the checkpoint.
    repository: Vec<PathBuf>,
    /// Local files that may be torn, because they were written to while they were read.
    torn: HashSet<Vec<u8>>,
    /// The checkpoint, if it may be behind: it does not hold files that were changed after it.
    behind: Option<Checkpoint>,
    /// Trees that were read.
    trees: RefCell<HashMap<TreePlace, Option<TreeNames>>>,
}

impl HeldFiles {
    /// Reads the newest checkpoint of the project in `root`. Without one, nothing is held. Unless `is_current` is true,
    /// files that were changed after the checkpoint are not held.
    pub(super) fn of(
        store: &Store,
        root: Option<&Path>,
        settings: &Settings,
        is_current: bool,
        progress: &Progress,
    ) -> Self {
        let newest = root.and_then(|root| {
            let held = store.locks.share_until(Some(progress)).ok()?;
            let objects = store.objects.open(&held).ok()?;
            let project = ProjectId::of(root);
            let newest = objects.checkpoint(store.refs.newest(&project).ok()??).ok()?;
            let local = store.locals.get(&project, newest.id).ok().flatten();
            let local = local.and_then(|state| store.locals.read(&objects, state).ok());
            Some((objects, newest, local))
        });
        let root = root.unwrap_or(Path::new("")).to_owned();
        let Some((objects, newest, local)) = newest else {
            let (roots, repository, torn, behind, trees) = Default::default();
            return Self { root, objects: None, roots, repository, torn, behind, trees };
        };
        let local_tree = local.as_ref().map(|local| (local.tree, settings.local_file_bytes_max()));
        let roots = [(newest.tree, settings.file_bytes_max())].into_iter().chain(local_tree).collect();
        let torn = local.map(|local| local.in_use).unwrap_or_default().into_iter().collect();
        let repository = repository_dirs(&root);
        let behind = (!is_current).then_some(newest);
        Self { root, objects: Some(objects), roots, repository, torn, behind, trees: RefCell::default() }
    }

    /// Returns true if the checkpoint holds a file at this path. A file larger than the limit of its checkpoint is not
    /// the version that the checkpoint holds.
    pub(super) fn holds(&self, path: &Path, now: &Stat) -> bool {
        let Ok(below) = path.strip_prefix(&self.root) else { return false };
        let below = sys::path_bytes(below);
        let (dir, name) = relpath::split(below);
        let is_file = |names: Option<&TreeNames>| {
            names.is_some_and(|names| names.get(name).is_some_and(|(mode, _)| *mode != EntryMode::Dir))
        };
        !self.torn.contains(below)
            && self.behind.as_ref().is_none_or(|checkpoint| checkpoint.is_as_late_as(now.ctime))
            && self.roots.iter().any(|(root, bytes_max)| {
                (now.kind != Kind::File || now.size <= *bytes_max) && self.with_names(*root, dir, is_file)
            })
    }

    /// Returns true for the repository of the project itself, and for everything in it.
    pub(super) fn is_repository(&self, path: &Path) -> bool {
        self.repository.iter().any(|dir| path.starts_with(dir))
    }

    fn with_names<T>(&self, root: ObjectId, dir: &[u8], look: impl FnOnce(Option<&TreeNames>) -> T) -> T {
        let key = (root, dir.to_vec());
        if !self.trees.borrow().contains_key(&key) {
            let names = self.read(root, dir);
            self.trees.borrow_mut().insert(key.clone(), names);
        }
        look(self.trees.borrow().get(&key).and_then(Option::as_ref))
    }

    fn read(&self, root: ObjectId, dir: &[u8]) -> Option<TreeNames> {
        let id = match dir {
            b"" => root,
            _ => {
                let (parent, name) = relpath::split(dir);
                let found = self.with_names(root, parent, |names| names?.get(name).copied());
                found.filter(|(mode, _)| *mode == EntryMode::Dir)?.1
            }
        };
        let entries = self.objects.as_ref()?.tree(id).ok()?;
        Some(entries.into_iter().map(|entry| (entry.name, (entry.mode, entry.id))).collect())
    }
}
