//! What a scan found: the directories of a project and the files in them, as flat data.
//!
//! A directory stands after the one that it is in, so that going backwards meets children before their parents,
//! however deep the tree: nothing here recurses.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::cache::{Cache, DirInCache};
use super::index::{fingerprint, has_fingerprint};
use crate::id::ObjectId;
use crate::relpath;
use crate::sys::{FileTime, Stat};

/// How many `.gitignore` files that are not in scope are remembered. Below the others, rules are looked up anew.
const HIDDEN_RULES_MAX: usize = 4096;
/// How many bytes of text they may take, in a record that has a limit of its own.
const HIDDEN_RULES_BYTES_MAX: usize = 256 << 10;

/// The directories in scope. The first one is the project's own.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) dirs: Vec<DirNode>,
}

/// One directory. The default is one that holds nothing, at the top of the project.
#[derive(Debug, Default)]
pub(crate) struct DirNode {
    /// Relative to the project.
    pub(crate) path: Box<[u8]>,
    pub(crate) mode: u16,
    /// When the directory itself was last changed, moved or given another mode.
    pub(crate) ctime: FileTime,
    /// When a name in it was last made or removed.
    pub(crate) mtime: FileTime,
    /// Sorted by name.
    pub(crate) files: Vec<FileNode>,
    /// The names of the files, one after the other: a hundred thousand small allocations cost more than the scan.
    pub(crate) names: Vec<u8>,
    /// Where the directories in it stand in [`Manifest::dirs`], sorted by name.
    pub(crate) dirs: Vec<usize>,
    /// The same directory in the cache.
    pub(crate) cached: Option<usize>,
    /// True if the cache knows exactly these files, and all of them unchanged.
    pub(crate) same_files: bool,
    /// The permission bits of these files.
    pub(crate) modes: Modes,
    /// Its `.gitignore`, if that is not in scope itself: rules, without being content.
    pub(crate) hidden_rules: Option<Stat>,
    /// Left out by a rule, and entered only for some file in it that is in scope all the same.
    pub(crate) exceptional: bool,
}

/// One file or link.
#[derive(Debug)]
pub(crate) struct FileNode {
    /// Where its name is among the names of its directory.
    pub(super) name: Range<u32>,
    pub(crate) stat: Stat,
    /// Known from the cache, or from reading the file.
    pub(crate) id: Option<ObjectId>,
    /// Where a link leads, unless the cache knows it.
    pub(crate) target: Option<Box<[u8]>>,
    /// The cache has an entry of this size for it, so that it may have kept its contents.
    pub(crate) may_be_known: bool,
}

/// The permission bits of some files, at a glance: of plain ones, and of executable ones.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    pub(crate) counts: [u32; 2],
    /// What those that were counted have.
    pub(crate) modes: [u16; 2],
    /// Some have others: each has to be asked.
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

/// How much an index may be behind.
pub(crate) struct Limits {
    pub(crate) paths: usize,
    /// What the paths come to.
    pub(crate) paths_bytes: usize,
    /// What the files come to: they are read anew each time.
    pub(crate) files_bytes: u64,
}

/// A file or a directory, in git's order.
pub(crate) enum Child<'a> {
    File(&'a [u8], &'a FileNode),
    Dir(usize),
}

impl DirNode {
    pub(crate) fn name(&self) -> &[u8] {
        relpath::split(&self.path).1
    }

    /// The name of one of its files.
    pub(crate) fn name_of(&self, file: &FileNode) -> &[u8] {
        &self.names[file.name.start as usize..file.name.end as usize]
    }

    /// The path of one of its files.
    pub(crate) fn path_of(&self, file: &FileNode) -> Vec<u8> {
        relpath::join(&self.path, self.name_of(file))
    }

    /// Keeps a name; where it is now.
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

    /// What tells whether the `.gitignore` files that are not in scope have changed, by directory.
    pub(crate) fn hidden_rules(&self, began_nanos: i128) -> BTreeMap<String, String> {
        let rules = self.dirs.iter().filter_map(|dir| Some((dir, dir.hidden_rules?)));
        let kept = rules.filter_map(|(dir, stat)| Some((relpath::escape(&dir.path), fingerprint(&stat, began_nanos)?)));
        let mut bytes = 0;
        let fits = |(dir, print): &(String, String)| {
            bytes += dir.len() + print.len();
            bytes <= HIDDEN_RULES_BYTES_MAX
        };
        kept.take(HIDDEN_RULES_MAX).take_while(fits).collect()
    }

    /// Returns whether that would give the same again.
    pub(crate) fn has_hidden_rules(&self, noted: &BTreeMap<String, String>) -> bool {
        let mut rules = self.dirs.iter().filter_map(|dir| Some((dir, dir.hidden_rules?)));
        let count = rules.clone().count();
        count == noted.len()
            && rules.all(|(dir, stat)| {
                noted.get(&relpath::escape(&dir.path)).is_some_and(|noted| has_fingerprint(&stat, noted))
            })
    }

    /// The paths of which the cache says something else, or nothing, and those that it alone knows, together with `before`,
    /// if all of them are within these limits. A directory that is gone is beyond any.
    pub(crate) fn unlike(
        &self,
        cache: &Cache<'_>,
        before: BTreeSet<Vec<u8>>,
        mut limits: Limits,
    ) -> Option<BTreeSet<Vec<u8>>> {
        limits.paths = limits.paths.checked_sub(before.len())?;
        limits.paths_bytes = limits.paths_bytes.checked_sub(before.iter().map(Vec::len).sum())?;
        let mut paths = before;
        let mut note = |path: Vec<u8>, file_bytes: u64| {
            limits.files_bytes = limits.files_bytes.checked_sub(file_bytes)?;
            if !paths.contains(&path) {
                limits.paths = limits.paths.checked_sub(1)?;
                limits.paths_bytes = limits.paths_bytes.checked_sub(path.len())?;
                paths.insert(path);
            }
            Some(())
        };
        for dir in &self.dirs {
            let known_dirs = dir.dirs.iter().filter(|below| self.dirs[**below].cached.is_some()).count();
            if dir.cached.is_some_and(|cached| cache.dirs_in(cached) != known_dirs) {
                return None;
            }
            if dir.same_files {
                continue;
            }
            let mut known = dir.cached.map(|at| cache.dir(at)).into_iter().flat_map(DirInCache::files).peekable();
            for file in &dir.files {
                let name = dir.name_of(file);
                while let Some(gone) = known.next_if(|known| known.name < name) {
                    note(relpath::join(&dir.path, gone.name), 0)?;
                }
                let same = known.next_if(|known| known.name == name);
                if !same.is_some_and(|same| Some(same.entry.id) == file.id && same.entry.agrees_with(&file.stat)) {
                    note(dir.path_of(file), file.stat.size)?;
                }
            }
            for gone in known {
                note(relpath::join(&dir.path, gone.name), 0)?;
            }
        }
        Some(paths)
    }

    /// Files and directories of one directory together, as git sorts them: a directory as if its name ended in a
    /// slash. In this order all paths of the project are sorted, too.
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
