//! Result of a scan: the directories of a project and the files in them, as flat data.
//!
//! A directory comes after its parent, so that iterating backwards visits children before their parents, however deep
//! the tree is: nothing here recurses.

use std::ops::Range;

use crate::id::ObjectId;
use crate::relpath;
use crate::sys::{FileTime, Stat};

/// Directories in scope. The first is the project's own.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) dirs: Vec<DirNode>,
}

/// One directory. The default is an empty one at the top of the project.
#[derive(Debug, Default)]
pub(crate) struct DirNode {
    /// Path relative to the project.
    pub(crate) path: Box<[u8]>,
    pub(crate) mode: u16,
    /// Time when the directory itself was last changed, moved or given another mode.
    pub(crate) ctime: FileTime,
    /// Time when a name in it was last added or removed.
    pub(crate) mtime: FileTime,
    /// Files and links, sorted by name.
    pub(crate) files: Vec<FileNode>,
    /// Names of the files, concatenated: a hundred thousand small allocations cost more than the scan.
    pub(crate) names: Vec<u8>,
    /// Positions of its subdirectories in [`Manifest::dirs`], sorted by name.
    pub(crate) dirs: Vec<usize>,
    /// Position of the directory in the cache.
    pub(crate) cached: Option<usize>,
    /// True if the cache has exactly these files, all of them unchanged.
    pub(crate) same_files: bool,
    /// Permission bits of these files.
    pub(crate) modes: Modes,
    /// Stat data of its `.gitignore`, if that is out of scope itself: it has rules but is not content.
    pub(crate) hidden_rules: Option<Stat>,
    /// True if a rule leaves the directory out, and it was entered only for a file in it that is in scope.
    pub(crate) exceptional: bool,
}

/// One file or link.
#[derive(Debug)]
pub(crate) struct FileNode {
    /// Range of its name in the names of its directory.
    pub(super) name: Range<u32>,
    pub(crate) stat: Stat,
    /// Object id, known from the cache or from reading the file.
    pub(crate) id: Option<ObjectId>,
    /// Target of a link, unless the cache has its id.
    pub(crate) target: Option<Box<[u8]>>,
    /// True if the cache has an entry of this size for it, so that its contents may be unchanged.
    pub(crate) may_be_known: bool,
}

/// Summary of the permission bits of some files: of plain ones, and of executable ones.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    pub(crate) counts: [u32; 2],
    /// Permission bits of the counted files, by class.
    pub(crate) modes: [u16; 2],
    /// True if some differ, so that each file must be examined.
    pub(crate) is_mixed: bool,
}

impl Modes {
    pub(super) fn count(&mut self, stat: &Stat) {
        if let Some(class) = stat.mode_class() {
            let is_first = self.counts[class] == 0;
            self.counts[class] += 1;
            self.is_mixed |= !is_first && self.modes[class] != stat.mode;
            self.modes[class] = stat.mode;
        }
    }
}

/// File or directory, in git's order.
pub(crate) enum Child<'a> {
    File(&'a [u8], &'a FileNode),
    Dir(usize),
}

impl DirNode {
    pub(crate) fn name(&self) -> &[u8] {
        relpath::split(&self.path).1
    }

    /// Returns the name of one of its files.
    pub(crate) fn name_of(&self, file: &FileNode) -> &[u8] {
        &self.names[file.name.start as usize..file.name.end as usize]
    }

    /// Returns the path of one of its files.
    pub(crate) fn path_of(&self, file: &FileNode) -> Vec<u8> {
        relpath::join(&self.path, self.name_of(file))
    }

    /// Stores a name. Returns its range.
    pub(super) fn keep_name(&mut self, name: &[u8]) -> Range<u32> {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        let place = |at: usize| u32::try_from(at).expect("a directory's names fit in memory many times over");
        place(start)..place(self.names.len())
    }
}

impl Manifest {
    pub(crate) fn files(&self) -> u64 {
        self.dirs.iter().map(|dir| dir.files.len() as u64).sum()
    }

    /// Returns files and subdirectories of a directory in git's order: a directory sorts as if its name ended in a
    /// slash. This is also the order of all paths of the project.
    pub(crate) fn children(&self, dir: usize) -> Vec<Child<'_>> {
        let dir = &self.dirs[dir];
        let files = dir.files.iter().map(|file| Child::File(dir.name_of(file), file));
        let mut children: Vec<_> = files.chain(dir.dirs.iter().map(|dir| Child::Dir(*dir))).collect();
        // Two sorted runs: the sort merges them in one pass.
        children.sort_by(|a, b| relpath::git_order(self.key(a), self.key(b)));
        children
    }

    fn key<'a>(&'a self, child: &Child<'a>) -> (&'a [u8], bool) {
        match child {
            Child::File(name, _) => (name, false),
            Child::Dir(dir) => (self.dirs[*dir].name(), true),
        }
    }
}
