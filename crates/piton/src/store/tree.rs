//! Trees: the names in one directory, in git's format and git's order, and the differences between two trees.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::Objects;
use crate::error::{Error, Result};
use crate::id::{ID_BYTES, ObjectId, ObjectKind};
use crate::relpath;

/// More paths than any project has. A store made by an attacker can name any number of paths in a few small trees.
pub(crate) const PATHS_MAX: usize = 8_000_000;

/// Returns the error for a tree with more than `PATHS_MAX` paths.
pub(crate) fn too_many_paths() -> Error {
    Error::damaged("read a tree", "it names more paths than any project has")
}

/// Kind of a tree entry. The full permission bits are in the facts of the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum EntryMode {
    File,
    Executable,
    Link,
    Dir,
    /// A commit of another repository, as stock git stores a nested repository. Never written by piton.
    Commit,
}

impl EntryMode {
    pub(crate) fn octal(self) -> u32 {
        match self {
            Self::File => 0o100_644,
            Self::Executable => 0o100_755,
            Self::Link => 0o120_000,
            Self::Dir => 0o040_000,
            Self::Commit => 0o160_000,
        }
    }

    fn parse(digits: &[u8]) -> Option<Self> {
        let octal = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
        match octal & 0o170_000 {
            0o100_000 if octal & 0o100 != 0 => Some(Self::Executable),
            0o100_000 => Some(Self::File),
            0o120_000 => Some(Self::Link),
            0o040_000 => Some(Self::Dir),
            0o160_000 => Some(Self::Commit),
            _ => None,
        }
    }
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    pub(crate) mode: EntryMode,
    pub(crate) name: Vec<u8>,
    pub(crate) id: ObjectId,
}

impl TreeEntry {
    fn is_dir(&self) -> bool {
        self.mode == EntryMode::Dir
    }
}

/// Appends an entry to the bytes of a tree. Entries must come in git's order: see [`relpath::git_order`].
pub(crate) fn push_entry(tree: &mut Vec<u8>, mode: EntryMode, name: &[u8], id: ObjectId) {
    tree.extend_from_slice(format!("{:o} ", mode.octal()).as_bytes());
    tree.extend_from_slice(name);
    tree.push(0);
    tree.extend_from_slice(id.as_bytes());
}

/// Parses a tree. Fails with `Damaged` if it is invalid; a forbidden name makes the whole tree invalid, so that nothing
/// below it is ever written to disk.
pub(crate) fn parse(id: ObjectId, mut bytes: &[u8]) -> Result<Vec<TreeEntry>> {
    let bad = |why: &str| Error::damaged(format!("read the tree {id}"), why.to_owned());
    let mut entries: Vec<TreeEntry> = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().take(8).position(|byte| *byte == b' ').ok_or_else(|| bad("an entry has no mode"))?;
        let mode =
            EntryMode::parse(&bytes[..space]).ok_or_else(|| bad("an entry has a mode that git does not have"))?;
        let rest = &bytes[space + 1..];
        let end = rest.iter().position(|byte| *byte == 0).ok_or_else(|| bad("an entry has no end"))?;
        let name = rest[..end].to_vec();
        let target = ObjectId::read(&rest[end + 1..]).ok_or_else(|| bad("an entry has no id"))?;
        if !relpath::is_allowed(&name) {
            return Err(bad(&format!("it holds the name {:?}", String::from_utf8_lossy(&name))));
        }
        if let Some(before) = entries.last()
            && relpath::git_order((&before.name, before.mode == EntryMode::Dir), (&name, mode == EntryMode::Dir))
                != Ordering::Less
        {
            return Err(bad("its names are not in order"));
        }
        // All names between a file and a directory of the same name start with that name.
        let mut alike = entries.iter().rev().take_while(|before| before.name.starts_with(&name));
        if mode == EntryMode::Dir && alike.any(|before| before.name == name) {
            return Err(bad("it holds a name twice"));
        }
        bytes = &rest[end + 1 + ID_BYTES..];
        entries.push(TreeEntry { mode, name, id: target });
    }
    Ok(entries)
}

/// Mode of a directory in a tree.
pub(super) const DIRECTORY: u32 = 0o040_000;
/// Mode of another repository's commit: the object is there, not in this store.
pub(super) const SUBMODULE: u32 = 0o160_000;

/// One entry of a tree, unchecked.
pub(super) struct RawEntry<'a> {
    /// File type bits of the mode, without permissions.
    pub(super) mode: u32,
    pub(super) name: &'a [u8],
    pub(super) id: ObjectId,
}

/// Iterates over the entries of a tree without checking their names, for callers that must see everything reachable.
/// Ends at the first entry that cannot be parsed; a tree that matches its id has none.
pub(super) fn entries(mut bytes: &[u8]) -> impl Iterator<Item = RawEntry<'_>> {
    std::iter::from_fn(move || {
        let (entry, rest) = first_entry(bytes)?;
        bytes = rest;
        Some(entry)
    })
}

fn first_entry(bytes: &[u8]) -> Option<(RawEntry<'_>, &[u8])> {
    let space = bytes.iter().take(8).position(|byte| *byte == b' ')?;
    let mode = u32::from_str_radix(std::str::from_utf8(&bytes[..space]).ok()?, 8).ok()? & 0o170_000;
    let rest = &bytes[space + 1..];
    let end = rest.iter().position(|byte| *byte == 0)?;
    let entry = RawEntry { mode, name: &rest[..end], id: ObjectId::read(&rest[end + 1..])? };
    Some((entry, &rest[end + 1 + ID_BYTES..]))
}

/// Returns true if these bytes can be parsed as a tree from beginning to end.
pub(super) fn is_valid_tree(mut bytes: &[u8]) -> bool {
    while let Some((_, rest)) = first_entry(bytes) {
        bytes = rest;
    }
    bytes.is_empty()
}

/// A path at which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeChange {
    pub(crate) path: Vec<u8>,
    pub(crate) old: Option<(EntryMode, ObjectId)>,
    pub(crate) new: Option<(EntryMode, ObjectId)>,
}

impl Objects {
    /// Returns the entry at a path in a tree, if there is one.
    pub(crate) fn entry_at(&self, tree: ObjectId, path: &[u8]) -> Result<Option<(EntryMode, ObjectId)>> {
        let mut found = Some((EntryMode::Dir, tree));
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let Some((EntryMode::Dir, tree)) = found else { return Ok(None) };
            let entry = self.tree(tree)?.into_iter().find(|entry| entry.name == name);
            found = entry.map(|entry| (entry.mode, entry.id));
        }
        Ok(found)
    }

    pub(crate) fn tree(&self, id: ObjectId) -> Result<Vec<TreeEntry>> {
        parse(id, &self.read(id, ObjectKind::Tree)?)
    }

    /// Returns the differences between two trees, files and links only, sorted by path. A missing tree counts as empty.
    pub(crate) fn compare_trees(&self, old: Option<ObjectId>, new: Option<ObjectId>) -> Result<Vec<TreeChange>> {
        compare(old, new, &[], &mut |id| self.tree(id).map(Rc::new))
    }
}

/// Compares the trees of a history, one after the other. Remembers those of the last comparison: most of them are part of
/// the next one, too.
pub(crate) struct TreeWalk<'a> {
    objects: &'a Objects,
    last: HashMap<ObjectId, Rc<Vec<TreeEntry>>>,
}

impl<'a> TreeWalk<'a> {
    pub(crate) fn new(objects: &'a Objects) -> Self {
        Self { objects, last: HashMap::new() }
    }

    /// Like [`Objects::entry_at`].
    pub(crate) fn entry_at(&mut self, tree: ObjectId, path: &[u8]) -> Result<Option<(EntryMode, ObjectId)>> {
        let mut found = Some((EntryMode::Dir, tree));
        let mut read = HashMap::new();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let Some((EntryMode::Dir, id)) = found else { return Ok(None) };
            let tree = match self.last.get(&id) {
                Some(tree) => Rc::clone(tree),
                None => Rc::new(self.objects.tree(id)?),
            };
            found = tree.iter().find(|entry| entry.name == name).map(|entry| (entry.mode, entry.id));
            read.insert(id, tree);
        }
        self.last = read;
        Ok(found)
    }

    /// Like [`Objects::compare_trees`], at or below these paths only, unless there are none.
    pub(crate) fn compare(&mut self, old: ObjectId, new: ObjectId, paths: &[Vec<u8>]) -> Result<Vec<TreeChange>> {
        let mut read = HashMap::new();
        let changes = compare(Some(old), Some(new), paths, &mut |id| {
            let tree = match self.last.get(&id) {
                Some(tree) => Rc::clone(tree),
                None => Rc::new(self.objects.tree(id)?),
            };
            read.insert(id, Rc::clone(&tree));
            Ok(tree)
        });
        self.last = read;
        changes
    }
}

fn compare(
    old: Option<ObjectId>,
    new: Option<ObjectId>,
    paths: &[Vec<u8>],
    read: &mut dyn FnMut(ObjectId) -> Result<Rc<Vec<TreeEntry>>>,
) -> Result<Vec<TreeChange>> {
    let is_meant = |path: &[u8]| paths.is_empty() || paths.iter().any(|wanted| relpath::is_within(path, wanted));
    let leads_to_meant = |dir: &[u8]| is_meant(dir) || paths.iter().any(|wanted| relpath::is_within(wanted, dir));
    let mut changes = Vec::new();
    // No recursion: a tree may be deeper than a stack.
    let mut open = vec![(Vec::new(), old, new)];
    while let Some((dir, old, new)) = open.pop() {
        if old == new {
            continue;
        }
        if changes.len() + open.len() > PATHS_MAX {
            return Err(too_many_paths());
        }
        let mut read = |id: Option<ObjectId>| id.map_or(Ok(Rc::default()), &mut *read);
        let (old, new) = (read(old)?, read(new)?);
        let mut pairs: BTreeMap<&[u8], [Option<&TreeEntry>; 2]> = BTreeMap::new();
        for (side, entry) in differing(&old, &new) {
            pairs.entry(&entry.name).or_default()[side] = Some(entry);
        }
        for (name, [old, new]) in pairs {
            let path = relpath::join(&dir, name);
            let as_tree = |entry: Option<&TreeEntry>| entry.filter(|entry| entry.is_dir()).map(|entry| entry.id);
            let as_file =
                |entry: Option<&TreeEntry>| entry.filter(|entry| !entry.is_dir()).map(|entry| (entry.mode, entry.id));
            let trees = (as_tree(old), as_tree(new));
            if trees.0 != trees.1 && leads_to_meant(&path) {
                open.push((path.clone(), trees.0, trees.1));
            }
            let (old, new) = (as_file(old), as_file(new));
            if old != new && is_meant(&path) {
                changes.push(TreeChange { path, old, new });
            }
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

/// Returns the entries that are not the same in both directories, each with its side. Both are in git's order.
fn differing<'a>(old: &'a [TreeEntry], new: &'a [TreeEntry]) -> Vec<(usize, &'a TreeEntry)> {
    let mut differing = Vec::new();
    let (mut olds, mut news) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (olds.peek(), news.peek()) {
            (None, None) => return differing,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => relpath::git_order((&old.name, old.is_dir()), (&new.name, new.is_dir())),
        };
        let old = if order == Ordering::Greater { None } else { olds.next() };
        let new = if order == Ordering::Less { None } else { news.next() };
        if old != new {
            differing.extend(old.map(|old| (0, old)));
            differing.extend(new.map(|new| (1, new)));
        }
    }
}
