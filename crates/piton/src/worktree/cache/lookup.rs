//! Parsed index: the entries of the stat cache by directory, borrowed from the bytes of the file.

use std::collections::BTreeSet;

use super::codec::{self, CachedEntry, entry_at};
use crate::id::{Checksum, ID_BYTES, ObjectId};
use crate::relpath;

/// Initial capacity for the files of a directory, which avoids repeated reallocation.
const FILES_USUAL: usize = 16;

/// Parsed index, by directory.
pub(crate) struct CachedDirs<'a> {
    bytes: &'a [u8],
    dirs: Vec<CachedDir<'a>>,
}

#[derive(Default)]
struct CachedDir<'a> {
    /// Offsets of the entries of its files in the index, sorted by name.
    files: Vec<u32>,
    /// Names and positions of its subdirectories, in git's order.
    dirs: Vec<(&'a [u8], usize)>,
    tree: Option<ObjectId>,
    /// Length of the directory's own part of its files' paths, including the slash.
    prefix_bytes: usize,
}

impl<'a> CachedDirs<'a> {
    /// Parses an index. Returns `None` if `bytes` do not end in this checksum, or are not as piton writes them. The
    /// checksum itself is not verified, which takes longer: nothing may be trusted before [`Self::is_whole`] has
    /// returned true.
    pub(crate) fn parse(bytes: &'a [u8], checksum: &str) -> Option<Self> {
        let (_, end) = bytes.split_last_chunk::<ID_BYTES>()?;
        if ObjectId::from_bytes(*end).to_string() != checksum {
            return None;
        }
        let mut cache = Self { bytes, dirs: vec![CachedDir::default()] };
        let mut open: Vec<usize> = vec![0];
        let mut current: &[u8] = b"";
        let rest = codec::read_own(bytes, |place, path| {
            let is_next_to_it = path.strip_prefix(current).is_some_and(|name| !name.contains(&b'/'));
            if !is_next_to_it {
                let dir = &path[..path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)];
                cache.go_to(&mut open, current, dir);
                current = dir;
            }
            cache.dirs[open[open.len() - 1]].files.push(place);
        })?;
        if let Some(trees) = codec::extension(rest, b"TREE") {
            cache.read_trees(trees);
        }
        Some(cache)
    }

    /// Returns true if every byte is as written. An index is not synced, and the power may have failed. The CRC is
    /// checked first if it was recorded, because it is much faster than the checksum.
    pub(crate) fn is_whole(bytes: &[u8], crc: Option<u32>) -> bool {
        let Some((body, end)) = bytes.split_last_chunk::<ID_BYTES>() else {
            return false;
        };
        if crc.is_some_and(|crc| crc == crc32fast::hash(body)) {
            return true;
        }
        let mut sum = Checksum::new();
        sum.update(body);
        sum.finish() == *end
    }

    /// Closes and opens directories until `dir` is the innermost open one.
    fn go_to(&mut self, open: &mut Vec<usize>, current: &[u8], dir: &'a [u8]) {
        while !(dir.starts_with(&current[..self.dirs[open[open.len() - 1]].prefix_bytes])) {
            open.pop();
        }
        let mut at = self.dirs[open[open.len() - 1]].prefix_bytes;
        while let Some(length) = dir[at..].iter().position(|byte| *byte == b'/') {
            let next = self.dirs.len();
            let files = Vec::with_capacity(FILES_USUAL);
            self.dirs.push(CachedDir { files, prefix_bytes: at + length + 1, ..CachedDir::default() });
            self.dirs[open[open.len() - 1]].dirs.push((&dir[at..at + length], next));
            open.push(next);
            at += length + 1;
        }
    }

    /// Reads git's cache-tree extension, the tree of each directory. Invalid data ends the parsing; the missing trees
    /// are then rebuilt.
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
                    find_dir(&self.dirs[*parent].dirs, name)?
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

    /// Removes the entries of these paths, and the trees of the directories that contain them. (C4)
    pub(crate) fn distrust(&mut self, paths: &BTreeSet<Vec<u8>>) {
        for path in paths {
            let (dir, name) = relpath::split(path);
            let mut open = Some(0);
            let mut names = dir.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
            while let Some(at) = open {
                self.dirs[at].tree = None;
                open = match names.next() {
                    Some(name) => find_dir(&self.dirs[at].dirs, name),
                    None => {
                        if let Some(place) = self.dir(at).place(name) {
                            self.dirs[at].files.remove(place);
                        }
                        None
                    }
                };
            }
        }
    }

    /// Returns the directory at this position.
    pub(in crate::worktree) fn dir(&self, at: usize) -> DirInCache<'_> {
        DirInCache { bytes: self.bytes, dir: &self.dirs[at] }
    }

    /// Returns the tree of a directory, if it is known.
    pub(crate) fn tree(&self, at: usize) -> Option<ObjectId> {
        self.dirs[at].tree
    }

    /// Returns the tree of the project, if it is known.
    pub(crate) fn root_tree(&self) -> Option<ObjectId> {
        self.tree(0)
    }

    /// Returns the number of subdirectories of a directory.
    pub(crate) fn dirs_in(&self, at: usize) -> usize {
        self.dirs[at].dirs.len()
    }
}

/// Finds a subdirectory. An index is sorted by path, so subdirectories are in git's order.
fn find_dir(dirs: &[(&[u8], usize)], name: &[u8]) -> Option<usize> {
    let found = dirs.binary_search_by(|(other, _)| relpath::git_order((other, true), (name, true)));
    found.ok().map(|at| dirs[at].1)
}

/// One directory of the cache, with the bytes of the index.
#[derive(Clone, Copy)]
pub(in crate::worktree) struct DirInCache<'a> {
    bytes: &'a [u8],
    dir: &'a CachedDir<'a>,
}

/// One file of the cache.
pub(in crate::worktree) struct CachedFile<'a> {
    pub(in crate::worktree) name: &'a [u8],
    pub(in crate::worktree) entry: CachedEntry<'a>,
}

impl<'a> DirInCache<'a> {
    pub(in crate::worktree) fn len(self) -> usize {
        self.dir.files.len()
    }

    /// Returns its files, sorted by name.
    pub(in crate::worktree) fn files(self) -> impl Iterator<Item = CachedFile<'a>> {
        self.dir.files.iter().map(move |place| self.at(*place))
    }

    /// Returns the file of this name.
    pub(in crate::worktree) fn file(self, name: &[u8]) -> Option<CachedFile<'a>> {
        self.place(name).map(|place| self.at(self.dir.files[place]))
    }

    fn place(self, name: &[u8]) -> Option<usize> {
        self.dir.files.binary_search_by(|place| self.at(*place).name.cmp(name)).ok()
    }

    /// Returns its subdirectories, by name and position.
    pub(in crate::worktree) fn dirs(self) -> impl Iterator<Item = (&'a [u8], usize)> {
        self.dir.dirs.iter().copied()
    }

    /// Returns the position of the subdirectory of this name.
    pub(in crate::worktree) fn dir(self, name: &[u8]) -> Option<usize> {
        find_dir(&self.dir.dirs, name)
    }

    fn at(self, place: u32) -> CachedFile<'a> {
        let entry = entry_at(self.bytes, place);
        CachedFile { name: &entry.path[self.dir.prefix_bytes..], entry }
    }
}
