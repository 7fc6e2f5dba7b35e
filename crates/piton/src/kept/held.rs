//! What the newest checkpoint of a project holds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::id::{ObjectId, ProjectId};
use crate::relpath;
use crate::store::{EntryMode, Objects, Store};
use crate::sys;

/// Names in a tree, with their ids.
type TreeNames = HashMap<Vec<u8>, (EntryMode, ObjectId)>;

/// Files that need not be kept.
pub(super) struct HeldFiles {
    root: PathBuf,
    /// Objects of the store and the tree of the newest checkpoint.
    newest: Option<(Objects, ObjectId)>,
    /// Trees that were read.
    trees: RefCell<HashMap<Vec<u8>, Option<TreeNames>>>,
}

impl HeldFiles {
    /// Reads the newest checkpoint of the project in `root`. Without one, nothing is held.
    pub(super) fn of(store: &Store, root: Option<&Path>) -> Self {
        let newest = root.and_then(|root| {
            let held = store.locks.share().ok()?;
            let objects = store.objects.open(&held).ok()?;
            let newest = objects.checkpoint(store.refs.newest(&ProjectId::of(root)).ok()??).ok()?;
            Some((objects, newest.tree))
        });
        Self { root: root.unwrap_or(Path::new("")).to_owned(), newest, trees: RefCell::default() }
    }

    /// Returns true if the checkpoint holds a file at this path.
    pub(super) fn holds(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.root) else { return false };
        let (dir, name) = relpath::split(sys::path_bytes(below));
        self.with_names(dir, |names| {
            names.is_some_and(|names| names.get(name).is_some_and(|(mode, _)| *mode != EntryMode::Dir))
        })
    }

    /// Returns true for the repository of the project itself, whose state is saved with the checkpoint.
    pub(super) fn is_repository(&self, path: &Path) -> bool {
        self.newest.is_some() && path.strip_prefix(&self.root).is_ok_and(|below| below == Path::new(".git"))
    }

    fn with_names<T>(&self, dir: &[u8], look: impl FnOnce(Option<&TreeNames>) -> T) -> T {
        if !self.trees.borrow().contains_key(dir) {
            let names = self.read(dir);
            self.trees.borrow_mut().insert(dir.to_vec(), names);
        }
        look(self.trees.borrow().get(dir).and_then(Option::as_ref))
    }

    fn read(&self, dir: &[u8]) -> Option<TreeNames> {
        let (objects, tree) = self.newest.as_ref()?;
        let id = match dir {
            b"" => *tree,
            _ => {
                let (parent, name) = relpath::split(dir);
                let found = self.with_names(parent, |names| names?.get(name).copied());
                found.filter(|(mode, _)| *mode == EntryMode::Dir)?.1
            }
        };
        let entries = objects.tree(id).ok()?;
        Some(entries.into_iter().map(|entry| (entry.name, (entry.mode, entry.id))).collect())
    }
}
