//! Directories that a caller names as possibly changed, and all others, which are taken from the cache (C6).

use std::collections::{BTreeSet, HashMap};

use super::codec::CachedEntry;
use super::lookup::DirInCache;
use crate::relpath::{self, BadPath};
use crate::skipped::{Extent, Skipped};
use crate::sys::{Kind, Stat};

/// Directories of a project in which something may have changed since the take of the newest checkpoint began.
///
/// A directory counts as changed if a name in it was created, deleted or replaced, or if a file in it was written or got
/// another mode, also by a restore. Directories are named relative to the project; `.` is the project itself.
///
/// ```
/// use piton::ChangedDirs;
///
/// let mut changed = ChangedDirs::default();
/// changed.add(b"src")?; // a file was written
/// changed.add_with_contents(b"vendor/lib")?; // a directory was moved here
/// # Ok::<(), piton::BadPath>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedDirs {
    dirs: BTreeSet<Vec<u8>>,
    with_contents: BTreeSet<Vec<u8>>,
}

impl ChangedDirs {
    /// Adds a directory. Its subdirectories are not added, except for those that it did not have before.
    pub fn add(&mut self, dir: &[u8]) -> Result<(), BadPath> {
        self.dirs.insert(relpath::parse(dir)?);
        Ok(())
    }

    /// Adds a directory and everything below it, for one that was moved, replaced or is not known in more detail.
    pub fn add_with_contents(&mut self, dir: &[u8]) -> Result<(), BadPath> {
        self.with_contents.insert(relpath::parse(dir)?);
        Ok(())
    }

    /// Returns true if the directory was added, or one above it with its contents.
    fn contains(&self, dir: &[u8]) -> bool {
        let mut around = std::iter::successors(Some(dir), |dir| (!dir.is_empty()).then(|| relpath::split(dir).0));
        self.dirs.contains(dir) || around.any(|dir| self.with_contents.contains(dir))
    }

    /// Returns the subdirectories of a directory that were added or contain one that was.
    fn next_below<'a>(&'a self, dir: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        let prefix = if dir.is_empty() { Vec::new() } else { [dir, b"/"].concat() };
        [&self.dirs, &self.with_contents].into_iter().flat_map(move |dirs| {
            let prefix = prefix.clone();
            let below = dirs.range(prefix.clone()..).take_while({
                let prefix = prefix.clone();
                move |path| path.starts_with(&prefix)
            });
            below.filter_map(move |path| path[prefix.len()..].split(|byte| *byte == b'/').next())
        })
    }
}

/// Files of the newest checkpoint, as far as the cache does not have them.
pub(crate) struct NewestFiles<'a> {
    /// Usual permission bits of files, executable files and directories.
    pub(crate) usual_modes: [u16; 3],
    /// Permission bits that differ from the usual ones, by path.
    pub(crate) modes: &'a [(Vec<u8>, u16)],
    pub(crate) empty_dirs: &'a [Vec<u8>],
    pub(crate) skipped: &'a [Skipped],
}

/// Directories that need not be listed, because the caller vouches for them.
pub(crate) struct Vouched<'a> {
    /// Directories that have to be listed.
    changed: ChangedDirs,
    usual_modes: [u16; 3],
    modes: HashMap<&'a [u8], u16>,
}

impl<'a> Vouched<'a> {
    /// Returns all directories but those in `changed`, those that contain one of the paths at which the index is
    /// outdated, and those of which the index does not have everything: empty ones, and those with skipped files.
    pub(super) fn new(mut changed: ChangedDirs, behind: &BTreeSet<Vec<u8>>, newest: &NewestFiles<'a>) -> Self {
        let parent = |path: &Vec<u8>| relpath::split(path).0.to_vec();
        changed.dirs.extend(behind.iter().map(parent));
        changed.dirs.extend(newest.empty_dirs.iter().cloned());
        for skipped in newest.skipped {
            match skipped.extent {
                // A summary of what was skipped somewhere below.
                Extent::Some(_) => changed.with_contents.insert(skipped.path.clone()),
                Extent::File | Extent::Dir(_) => changed.dirs.insert(parent(&skipped.path)),
            };
        }
        let modes = newest.modes.iter().map(|(path, mode)| (path.as_slice(), *mode)).collect();
        Self { changed, usual_modes: newest.usual_modes, modes }
    }

    /// Returns true if the directory need not be listed to find what is in it and below it.
    pub(super) fn contains(&self, dir: &[u8], cached: DirInCache<'_>) -> bool {
        // A changed directory that the cache does not know is found by listing the one around it.
        !self.changed.contains(dir) && self.changed.next_below(dir).all(|name| cached.dir(name).is_some())
    }

    /// Returns the permission bits of a directory.
    pub(in crate::worktree) fn dir_mode(&self, dir: &[u8]) -> u16 {
        self.modes.get(dir).copied().unwrap_or(self.usual_modes[2])
    }

    /// Returns the stat data of a file: that of its entry, with the permission bits of the newest checkpoint.
    pub(in crate::worktree) fn stat(&self, path: &[u8], entry: &CachedEntry<'_>) -> Stat {
        let stat = entry.stat();
        let class = usize::from(stat.mode & 0o100 != 0);
        let mode = self.modes.get(path).copied().unwrap_or(self.usual_modes[class]);
        if stat.kind == Kind::File { Stat { mode, ..stat } } else { stat }
    }
}
