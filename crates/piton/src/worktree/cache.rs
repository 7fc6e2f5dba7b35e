//! The stat cache: what the last scan found, from the project's index.
//!
//! - C1. An entry stands in for reading a file only when the file system says the same of the file as it did then, and
//!   would have said otherwise had it changed since. (An entry that could not promise the second was written with the
//!   size 0, as git does, so that it agrees with nothing.)
//! - C2. An index that piton did not write is not believed: only ours has C1.

use std::collections::HashMap;

use super::index::{self, Entry};
use crate::id::{Checksum, ID_BYTES, ObjectId};

/// An index, taken apart by directories.
pub(crate) struct Cache<'a> {
    bytes: &'a [u8],
    dirs: Vec<CachedDir<'a>>,
}

/// One directory of the cache. The files are sorted by name.
#[derive(Default)]
pub(super) struct CachedDir<'a> {
    pub(super) files: Vec<Entry<'a>>,
    pub(super) dirs: HashMap<&'a [u8], usize>,
    tree: Option<ObjectId>,
    /// How many bytes of its files' paths are its own, the slash included.
    prefix_bytes: usize,
}

impl<'a> Cache<'a> {
    /// Takes an index apart. `None` where `bytes` do not end in this checksum. Whether the checksum is right is another
    /// question, and takes longer: nothing may be believed before [`Self::is_whole`] has answered it.
    pub(crate) fn parse(bytes: &'a [u8], checksum: &str) -> Option<Self> {
        let (_, end) = bytes.split_last_chunk::<ID_BYTES>()?;
        if ObjectId::from_bytes(*end).to_string() != checksum {
            return None;
        }
        let mut cache = Self { bytes, dirs: vec![CachedDir::default()] };
        let mut open: Vec<usize> = vec![0];
        let mut current: &[u8] = b"";
        let rest = index::read_own(bytes, |entry| {
            let slash = entry.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            let dir = &entry.path[..slash];
            if dir != current {
                cache.go_to(&mut open, current, dir);
                current = dir;
            }
            cache.dirs[open[open.len() - 1]].files.push(entry);
        })?;
        if let Some(trees) = index::extension(rest, b"TREE") {
            cache.read_trees(trees);
        }
        Some(cache)
    }

    /// Whether every byte is as it was written: an index is not synced, and the power may have failed.
    pub(crate) fn is_whole(&self) -> bool {
        let Some((body, end)) = self.bytes.split_last_chunk::<ID_BYTES>() else {
            return false;
        };
        let mut sum = Checksum::new();
        sum.update(body);
        sum.finish() == *end
    }

    /// Closes and opens directories until the innermost open one is `dir`.
    fn go_to(&mut self, open: &mut Vec<usize>, current: &[u8], dir: &'a [u8]) {
        while !(dir.starts_with(&current[..self.dirs[open[open.len() - 1]].prefix_bytes])) {
            open.pop();
        }
        let mut at = self.dirs[open[open.len() - 1]].prefix_bytes;
        while let Some(length) = dir[at..].iter().position(|byte| *byte == b'/') {
            let next = self.dirs.len();
            self.dirs.push(CachedDir { prefix_bytes: at + length + 1, ..CachedDir::default() });
            self.dirs[open[open.len() - 1]].dirs.insert(&dir[at..at + length], next);
            open.push(next);
            at += length + 1;
        }
    }

    /// Reads git's own record of which tree each directory became. What makes no sense ends the reading; the trees that
    /// are missing then are built anew.
    fn read_trees(&mut self, mut rest: &[u8]) -> Option<()> {
        let mut open: Vec<(usize, usize)> = Vec::new();
        loop {
            let end = rest.iter().position(|byte| *byte == 0)?;
            let name = &rest[..end];
            let line = rest[end + 1..].iter().position(|byte| *byte == b'\n')? + end + 1;
            let (count, below) = std::str::from_utf8(&rest[end + 1..line]).ok()?.split_once(' ')?;
            let below: usize = below.parse().ok()?;
            rest = &rest[line + 1..];
            let dir = match open.last_mut() {
                None => 0,
                Some((parent, left)) => {
                    *left -= 1;
                    *self.dirs[*parent].dirs.get(name)?
                }
            };
            if !count.starts_with('-') {
                self.dirs[dir].tree = Some(ObjectId::read(rest)?);
                rest = &rest[ID_BYTES..];
            }
            open.push((dir, below));
            while let Some((_, 0)) = open.last() {
                open.pop();
            }
            if open.is_empty() {
                return Some(());
            }
        }
    }

    /// A directory by its place.
    pub(super) fn dir(&self, at: usize) -> &CachedDir<'a> {
        &self.dirs[at]
    }

    /// The tree that a directory became.
    pub(crate) fn tree(&self, at: usize) -> Option<ObjectId> {
        self.dirs[at].tree
    }

    /// The tree that the project became.
    pub(crate) fn root_tree(&self) -> Option<ObjectId> {
        self.tree(0)
    }

    /// How many directories a directory has.
    pub(crate) fn dirs_in(&self, at: usize) -> usize {
        self.dirs[at].dirs.len()
    }
}

impl<'a> CachedDir<'a> {
    /// The name of one of its files.
    pub(super) fn name_of(&self, entry: &Entry<'a>) -> &'a [u8] {
        &entry.path[self.prefix_bytes..]
    }

    /// The file of this name.
    pub(super) fn file(&self, name: &[u8]) -> Option<&Entry<'a>> {
        let at = self.files.binary_search_by(|entry| self.name_of(entry).cmp(name)).ok()?;
        Some(&self.files[at])
    }
}
