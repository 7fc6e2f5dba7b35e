//! Finds the checkpoints that are intact, and the paths that the others have lost.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::commit::{self, parents_and_tree, tagged};
use super::decode::{Decoder, Why};
use super::object_copies::{Copies, CopyLookup};
use super::tree;
use crate::id::{ObjectId, ObjectKind, ProjectId};
use crate::relpath;

/// Number of entries visited for one checkpoint that has lost something. Trees made by an attacker may have no end.
const PLACES_MAX: usize = 100_000;
/// Longest chain of tags: a tag may name a tag.
const TAGS_MAX: usize = 16;

/// Defect of an object that something refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectFault {
    Missing,
    Damaged(Why),
}

/// A readable commit.
#[derive(Debug, Clone)]
pub(super) struct Commit {
    pub(super) id: ObjectId,
    pub(super) tree: ObjectId,
    pub(super) parents: Vec<ObjectId>,
    pub(super) time_secs: i64,
    /// Project that the commit names.
    pub(super) project: Option<ProjectId>,
    /// True if everything that its tree names is intact.
    pub(super) is_whole: bool,
}

/// Memoised integrity check of objects.
pub(super) struct IntegrityChecker<'a> {
    copies: &'a Copies,
    decoder: Decoder<'a>,
    /// Objects that are missing and about to be written: they count as intact.
    promised: HashSet<ObjectId>,
    trees: HashMap<ObjectId, bool>,
    blobs: HashSet<ObjectId>,
    commits: HashMap<ObjectId, Option<Commit>>,
    /// Objects that something refers to and that are missing or corrupt.
    pub(super) bad: BTreeMap<ObjectId, ObjectFault>,
}

struct OpenTree {
    id: ObjectId,
    below: Vec<ObjectId>,
    is_whole: bool,
}

impl<'a> IntegrityChecker<'a> {
    pub(super) fn new(copies: &'a Copies, promised: HashSet<ObjectId>) -> Self {
        Self {
            copies,
            decoder: copies.decoder(),
            promised,
            trees: HashMap::new(),
            blobs: HashSet::new(),
            commits: HashMap::new(),
            bad: BTreeMap::new(),
        }
    }

    /// Returns the number of objects that were checked.
    pub(super) fn objects(&self) -> u64 {
        (self.trees.len() + self.blobs.len() + self.commits.len()) as u64
    }

    fn read(&mut self, id: ObjectId, kind: ObjectKind) -> Option<std::sync::Arc<Vec<u8>>> {
        let bad = match self.copies.read(&mut self.decoder, id) {
            CopyLookup::Whole((found, bytes)) if found == kind => return Some(bytes),
            CopyLookup::Whole((found, _)) => ObjectFault::Damaged(format!("it is a {}", found.word()).into()),
            CopyLookup::Missing => ObjectFault::Missing,
            CopyLookup::Damaged(why) => ObjectFault::Damaged(why),
        };
        if !self.promised.contains(&id) {
            self.bad.insert(id, bad);
        }
        None
    }

    /// Returns true if there is a readable commit with this id. The objects that it names are not checked.
    pub(super) fn is_commit(&mut self, id: ObjectId) -> bool {
        let found = self.copies.read(&mut self.decoder, id);
        matches!(found, CopyLookup::Whole((ObjectKind::Commit, _)))
    }

    /// Returns a commit; `None` if it is missing or corrupt.
    pub(super) fn commit(&mut self, id: ObjectId) -> Option<Commit> {
        if let Some(known) = self.commits.get(&id) {
            return known.clone();
        }
        let read = self.read(id, ObjectKind::Commit).and_then(|bytes| {
            let (tree, parents) = parents_and_tree(&bytes);
            let Some((tree, time_secs)) = tree.zip(commit::time_of(&bytes)) else {
                self.bad.insert(id, ObjectFault::Damaged("it names no tree or no time".into()));
                return None;
            };
            let is_whole = self.tree(tree);
            Some(Commit { id, tree, parents, time_secs, project: commit::project_of(&bytes), is_whole })
        });
        self.commits.insert(id, read.clone());
        read
    }

    /// Returns true if a tree and everything below it is intact. Blobs are not read: one counts as intact if it has a
    /// copy that is not known to be corrupt. No recursion: a tree may be deeper than a stack.
    pub(super) fn tree(&mut self, root: ObjectId) -> bool {
        if let Some(known) = self.trees.get(&root) {
            return *known;
        }
        let mut open = vec![self.open_tree(root)];
        let mut is_whole = true;
        while let Some(top) = open.last_mut() {
            if let Some(id) = top.below.pop() {
                match self.trees.get(&id) {
                    Some(known) => top.is_whole &= known,
                    None => {
                        let below = self.open_tree(id);
                        open.push(below);
                    }
                }
                continue;
            }
            is_whole = top.is_whole;
            self.trees.insert(top.id, is_whole);
            open.pop();
            if let Some(around) = open.last_mut() {
                around.is_whole &= is_whole;
            }
        }
        is_whole
    }

    fn open_tree(&mut self, id: ObjectId) -> OpenTree {
        let mut opened = OpenTree { id, below: Vec::new(), is_whole: true };
        let Some(bytes) = self.read(id, ObjectKind::Tree) else {
            // A promised tree is intact: it is written together with everything that it names.
            opened.is_whole = self.promised.contains(&id);
            return opened;
        };
        for entry in tree::entries(&bytes).filter(|entry| entry.mode != tree::SUBMODULE) {
            if entry.mode == tree::DIRECTORY {
                opened.below.push(entry.id);
            } else {
                opened.is_whole &= self.blob(entry.id);
            }
        }
        opened
    }

    fn blob(&mut self, id: ObjectId) -> bool {
        if self.blobs.insert(id) && !self.copies.has(id) && !self.promised.contains(&id) {
            let is_there = self.copies.has_any(id);
            let bad =
                if is_there { ObjectFault::Damaged("its contents are damaged".into()) } else { ObjectFault::Missing };
            self.bad.insert(id, bad);
        }
        !self.bad.contains_key(&id)
    }

    /// Returns true if an object of any kind, and everything that it names except the parents of a commit, is intact.
    /// Also returns the commit that it leads to, if any.
    pub(super) fn any(&mut self, mut id: ObjectId) -> (bool, Option<Commit>) {
        for _ in 0..TAGS_MAX {
            let found = self.copies.read(&mut self.decoder, id);
            match found {
                CopyLookup::Whole((ObjectKind::Tag, bytes)) => match tagged(&bytes) {
                    Some(target) => id = target,
                    None => return (false, None),
                },
                CopyLookup::Whole((ObjectKind::Tree, _)) => return (self.tree(id), None),
                CopyLookup::Whole((ObjectKind::Blob, _)) => return (self.blob(id), None),
                _ => {
                    let commit = self.commit(id);
                    return (commit.as_ref().is_some_and(|commit| commit.is_whole), commit);
                }
            }
        }
        (false, None)
    }

    /// Returns every readable commit, reachable or not.
    pub(super) fn all_commits(&mut self) -> Vec<Commit> {
        let copies = self.copies;
        let mut ids = HashSet::new();
        for pack in copies.packs.iter().filter(|pack| pack.is_there()) {
            for (id, start) in pack.in_order() {
                if self.decoder.kind(pack, start) == Some(ObjectKind::Commit) {
                    ids.insert(id);
                }
            }
        }
        for (id, path) in &copies.loose {
            if Copies::kind_of_loose(path) == Some(ObjectKind::Commit) {
                ids.insert(*id);
            }
        }
        let mut ids: Vec<_> = ids.into_iter().collect();
        ids.sort();
        ids.into_iter().filter_map(|id| self.commit(id)).collect()
    }

    /// Returns the paths and ids of the missing and corrupt objects of a tree, and true if the search was cut off by
    /// `PLACES_MAX`.
    pub(super) fn lost_paths(&mut self, root: ObjectId) -> (Vec<(Vec<u8>, ObjectId)>, bool) {
        let mut lost = Vec::new();
        let mut open = vec![(Vec::new(), root)];
        let mut looked_at = 0;
        while let Some((path, id)) = open.pop() {
            looked_at += 1;
            if looked_at > PLACES_MAX {
                return (lost, true);
            }
            if self.bad.contains_key(&id) {
                lost.push((path, id));
                continue;
            }
            if self.trees.get(&id) != Some(&false) {
                continue;
            }
            let CopyLookup::Whole((_, bytes)) = self.copies.read(&mut self.decoder, id) else { continue };
            for entry in tree::entries(&bytes) {
                let is_lost = self.bad.contains_key(&entry.id) || entry.mode == tree::DIRECTORY;
                if is_lost && entry.mode != tree::SUBMODULE {
                    open.push((relpath::join(&path, entry.name), entry.id));
                }
            }
        }
        lost.sort();
        (lost, false)
    }
}
