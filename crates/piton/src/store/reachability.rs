//! Reachability: the objects that can be reached from the names in the store, and so must be kept.
//!
//! - G1. An object that is found here is never removed. A name that cannot be read, or that is gone while its objects
//!   exist, stops the removal: those objects would be taken for unreachable.

use std::collections::{BTreeMap, HashSet};

use super::commit::{parents_and_tree, tagged};
use super::marks::{Marks, NEVER, ReachRank};
use super::{LocalRef, Objects, Pin, tree};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::id::{CheckpointId, ObjectId, ObjectKind, ProjectId};

/// Everything that names an object.
#[derive(Debug, Default, Clone)]
pub(super) struct ReachRoots {
    /// Commits at which histories end. Read before the names: a take moves its ref first and cuts afterwards, so an end
    /// that is newer than the name would be outside the history, and the walk would run past the real end.
    pub(super) ends: HashSet<CheckpointId>,
    /// Newest checkpoint of each project.
    pub(super) projects: BTreeMap<ProjectId, CheckpointId>,
    /// Checkpoints of each project that have refs of their own.
    pub(super) pins: BTreeMap<ProjectId, Vec<Pin>>,
    /// Local files of each project.
    pub(super) locals: BTreeMap<ProjectId, Vec<LocalRef>>,
    /// Objects that anything else names: refs that do not belong to a project, `HEAD` and similar files, interrupted
    /// restores.
    pub(super) others: Vec<ObjectId>,
    /// Objects that stock git's reflogs name. They may be missing, since git itself expires them.
    pub(super) logged: Vec<ObjectId>,
}

/// Marks reachable objects, starting from one name after the other. An object keeps its first mark.
pub(super) struct Reachability {
    pub(super) marks: Marks,
    /// Commits at which histories end.
    pub(super) boundary: HashSet<CheckpointId>,
    /// Objects that are referenced and missing or corrupt.
    pub(super) missing: Vec<ObjectId>,
    buffer: Vec<u8>,
}

impl Reachability {
    /// Returns a `Reachability` without marks. `ids` are the existing objects; others can be marked, too.
    pub(super) fn new(ids: Vec<ObjectId>, boundary: HashSet<CheckpointId>) -> Self {
        Self { marks: Marks::new(ids), boundary, missing: Vec::new(), buffer: Vec::new() }
    }

    /// Marks every object that is reachable from the roots.
    pub(super) fn all_roots(&mut self, objects: &Objects, roots: &ReachRoots) {
        roots.projects.values().for_each(|id| self.all_from(objects, *id, NEVER));
        roots.pins.values().flatten().for_each(|pin| self.all_from(objects, pin.id, NEVER));
        self.other_roots(objects, roots);
        roots.locals.values().flatten().for_each(|local| self.local_files(objects, local.state, NEVER));
    }

    /// Marks the local files of a checkpoint. What nothing else has marked before counts as local.
    pub(super) fn local_files(&mut self, objects: &Objects, state: ObjectId, rank: ReachRank) {
        self.marks.marks_local = true;
        self.all_from(objects, state, rank);
        self.marks.marks_local = false;
    }

    /// Like [`Self::all_roots`], without the projects, their pins and their local files. Missing objects that only reflogs name are ignored.
    pub(super) fn other_roots(&mut self, objects: &Objects, roots: &ReachRoots) {
        roots.others.iter().for_each(|id| self.all_from(objects, *id, NEVER));
        let missing = self.missing.len();
        roots.logged.iter().for_each(|id| self.all_from(objects, *id, NEVER));
        self.missing.truncate(missing);
    }

    /// Marks a commit and everything in its tree, but not its parents.
    pub(super) fn commit_alone(&mut self, objects: &Objects, id: ObjectId, rank: ReachRank) {
        self.walk(objects, id, rank, false);
    }

    /// Marks an object and everything that is reachable from it.
    pub(super) fn all_from(&mut self, objects: &Objects, id: ObjectId, rank: ReachRank) {
        self.walk(objects, id, rank, true);
    }

    fn walk(&mut self, objects: &Objects, id: ObjectId, rank: ReachRank, with_parents: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        // Iterative, since a tree may be deeper than the stack allows.
        let mut open = vec![(id, None, 0)];
        while let Some((id, kind, name)) = open.pop() {
            if self.marks.contains(&id) {
                continue;
            }
            let kind = match kind {
                Some(ObjectKind::Blob) => ObjectKind::Blob,
                _ => match objects.read_any(id, &mut buffer) {
                    Ok(Some(kind)) => kind,
                    Ok(None) | Err(_) => {
                        self.missing.push(id);
                        continue;
                    }
                },
            };
            self.marks.insert(id, kind, name, rank);
            match kind {
                ObjectKind::Blob => {}
                ObjectKind::Tree => {
                    for entry in tree::entries(&buffer).filter(|entry| entry.mode != tree::SUBMODULE) {
                        let is_dir = entry.mode == tree::DIRECTORY;
                        let kind = if is_dir { None } else { Some(ObjectKind::Blob) };
                        open.push((entry.id, kind, similar_name(name, entry.name)));
                    }
                }
                ObjectKind::Commit => {
                    let (tree, parents) = parents_and_tree(&buffer);
                    if with_parents && !self.boundary.contains(&id) {
                        open.extend(parents.into_iter().map(|parent| (parent, None, 0)));
                    }
                    open.extend(tree.map(|tree| (tree, None, 0)));
                }
                ObjectKind::Tag => open.extend(tagged(&buffer).map(|target| (target, None, 0))),
            }
        }
        self.buffer = buffer;
    }

    /// Fails with `Damaged` if a referenced object is missing or corrupt.
    pub(super) fn check_whole(&self) -> Result<()> {
        match self.missing.first() {
            None => Ok(()),
            Some(id) => Err(not_whole(format!("the object {id} is missing or damaged"))),
        }
    }
}

/// Returns the error for a store with missing objects. Nothing is freed in such a store: objects that are reachable
/// only through a missing one would be taken for unreachable.
pub(super) fn not_whole(why: String) -> Error {
    Error::damaged("tell what is still needed", why).with_hint(Hint::Repair)
}

/// Git's name hash, which groups files with similar contents: the last characters of a path count most.
fn similar_name(dir: u32, name: &[u8]) -> u32 {
    let characters = std::iter::once(&b'/').chain(name).filter(|byte| !byte.is_ascii_whitespace());
    characters.fold(dir, |hash, byte| (hash >> 2).wrapping_add(u32::from(*byte) << 24))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::PathBuf;

    use super::super::refs::REF_DEPTH_MAX;
    use super::*;
    use crate::store::Store;
    use crate::store::kit::store;

    fn put(store: &Store, name: impl AsRef<std::path::Path>, text: &str) {
        let path = store.git_dir().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).and_then(|()| fs::write(path, text)).expect("a file");
    }

    /// G1: objects behind a skipped name would be taken for unreachable.
    #[test]
    fn an_unreadable_ref_fails_listing_all_refs() {
        for (name, text, is_read) in [
            ("refs/heads/alias", "ref: refs/heads/master\n", true),
            ("refs/heads/garbage", "garbage\n", false),
            ("refs/heads/empty", "", false),
            ("refs/hermes/0123456789abcdef", "ref: refs/heads/master\n", false),
            ("refs/heads/being-written.lock", "garbage\n", true),
        ] {
            let temp = tempfile::tempdir().expect("a directory");
            let store = store(&temp);
            put(&store, name, text);
            assert_eq!(store.catalog.roots().is_ok(), is_read, "{name}");
            let garbage = store.refs.list_all().expect("refs").garbage;
            assert_eq!(garbage.contains(name), !is_read, "{name}");
        }
    }

    #[test]
    fn a_name_that_is_not_text_or_lies_too_deep_stops_them_too() {
        let deep = |dirs: usize| PathBuf::from(format!("refs/{}x", "d/".repeat(dirs)));
        let strange = PathBuf::from(OsStr::from_bytes(b"refs/heads/\xff"));
        for (name, is_read) in [(deep(REF_DEPTH_MAX), true), (deep(REF_DEPTH_MAX + 1), false), (strange, false)] {
            let temp = tempfile::tempdir().expect("a directory");
            let store = store(&temp);
            put(&store, &name, &format!("{}\n", "07".repeat(20)));
            assert_eq!(store.catalog.roots().is_ok(), is_read, "{}", name.display());
        }
    }

    #[test]
    fn what_stock_git_names_in_files_of_its_own_counts() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let id = |digits: &str| ObjectId::from_hex(digits.repeat(20).as_bytes()).expect("an id");
        put(&store, "FETCH_HEAD", &format!("{}\t\tbranch 'a'\n{}\tnot-for-merge\tbranch 'b'\n", id("01"), id("02")));
        put(&store, "logs/HEAD", &format!("{} {} A <a> 5 +0000\treset\n", id("03"), id("04")));
        put(&store, "logs/refs/hermes/0123456789abcdef", &format!("{} {} A <a> 5 +0000\tx\n", id("05"), id("06")));
        let roots = store.catalog.roots().expect("names");
        assert_eq!((roots.others, roots.logged), (vec![id("01"), id("02")], vec![id("03"), id("04")]));
    }
}
