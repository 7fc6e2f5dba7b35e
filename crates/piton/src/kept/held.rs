//! Files that the newest checkpoint of a project holds, local files included.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::id::{ObjectId, ProjectId};
use crate::relpath;
use crate::store::{EntryMode, Objects, Store};
use crate::sys;

/// Names in a tree, with their ids.
type TreeNames = HashMap<Vec<u8>, (EntryMode, ObjectId)>;

/// Place of a tree: its root and its path.
type TreePlace = (ObjectId, Vec<u8>);

/// Files that need not be kept.
pub(super) struct HeldFiles {
    root: PathBuf,
    objects: Option<Objects>,
    /// Trees of the newest checkpoint: that of its files, and that of its local files.
    roots: Vec<ObjectId>,
    /// Local files that may be torn, because they were written to while they were read.
    torn: HashSet<Vec<u8>>,
    /// Trees that were read.
    trees: RefCell<HashMap<TreePlace, Option<TreeNames>>>,
}

impl HeldFiles {
    /// Reads the newest checkpoint of the project in `root`. Without one, nothing is held.
    pub(super) fn of(store: &Store, root: Option<&Path>) -> Self {
        let newest = root.and_then(|root| {
            let held = store.locks.share().ok()?;
            let objects = store.objects.open(&held).ok()?;
            let project = ProjectId::of(root);
            let newest = objects.checkpoint(store.refs.newest(&project).ok()??).ok()?;
            let local = store.locals.get(&project, newest.id).ok().flatten();
            let local = local.and_then(|state| store.locals.read(&objects, state).ok());
            Some((objects, newest.tree, local))
        });
        let root = root.unwrap_or(Path::new("")).to_owned();
        let Some((objects, tree, local)) = newest else {
            return Self { root, objects: None, roots: Vec::new(), torn: HashSet::new(), trees: RefCell::default() };
        };
        let roots = [tree].into_iter().chain(local.as_ref().map(|local| local.tree)).collect();
        let torn = local.map(|local| local.in_use).unwrap_or_default().into_iter().collect();
        Self { root, objects: Some(objects), roots, torn, trees: RefCell::default() }
    }

    /// Returns true if the checkpoint holds a file at this path.
    pub(super) fn holds(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.root) else { return false };
        let below = sys::path_bytes(below);
        let (dir, name) = relpath::split(below);
        let is_file = |names: Option<&TreeNames>| {
            names.is_some_and(|names| names.get(name).is_some_and(|(mode, _)| *mode != EntryMode::Dir))
        };
        !self.torn.contains(below) && self.roots.iter().any(|root| self.with_names(*root, dir, is_file))
    }

    /// Returns true for the repository of the project itself, whose state is saved with the checkpoint.
    pub(super) fn is_repository(&self, path: &Path) -> bool {
        self.objects.is_some() && path.strip_prefix(&self.root).is_ok_and(|below| below == Path::new(".git"))
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
