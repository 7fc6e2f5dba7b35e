//! The result of an analysis while it is made: what may change, and in which directories.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::loss::{Found, Loss, Placeholder, Run};
use super::place::{Cwd, target};
use super::word::Word;

/// Limit of operands of which only a prefix is known; further ones are dropped.
const STARTS_MAX: usize = 32;

#[derive(Default)]
pub(super) struct Findings<'a> {
    pub(super) home: Option<&'a Path>,
    pub(super) dirs: Vec<PathBuf>,
    /// Those of `dirs` that the command runs in or names.
    pub(super) own_dirs: HashSet<PathBuf>,
    /// Known prefixes of operands whose end is unknown.
    pub(super) starts: Vec<PathBuf>,
    pub(super) paths: Vec<PathBuf>,
    /// Number of times that something was found to change files.
    pub(super) marks: usize,
    /// First command that does.
    pub(super) first: String,
    /// True if a command was found whose purpose is to remove or replace.
    pub(super) destroys: bool,
    /// Command that is being analysed.
    pub(super) label: String,
    /// True if an operand was unknown, so that values that look like paths may be meant.
    pub(super) guessing: bool,
    hints: Vec<(Word, Cwd)>,
    pub(super) losses: Vec<Loss>,
    /// Paths that are moved, each with the path that it gets or the directory that it is moved to.
    pub(super) moves: Vec<(PathBuf, PathBuf)>,
    /// Directories in which an archive is unpacked.
    pub(super) unpacks: Vec<PathBuf>,
    /// Operands of destroying commands that are not known.
    pub(super) unread: Vec<String>,
    pub(super) runs: Vec<Run>,
    /// Values that the command gives to variables; `None` for one that is not known.
    pub(super) values: HashMap<String, Vec<Option<String>>>,
    /// How the names that `find` or `xargs` fill in are lost, until it is known which those are.
    pub(super) placeholder: Option<Placeholder>,
    /// The last `find` of the pipeline that only prints names.
    pub(super) printed: Option<Found>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(home: Option<&'a Path>) -> Self {
        Self { home, ..Self::default() }
    }

    /// Records that the current command may change files below the directories that it may run in.
    pub(super) fn mark(&mut self, cwd: &Cwd) {
        self.note();
        self.add(cwd.known.iter().cloned());
    }

    /// Records that the current command may change the target of the operand.
    pub(super) fn mark_target(&mut self, word: &Word, cwd: &Cwd) {
        self.note();
        self.guessing |= word.open;
        let found = target(word, cwd, self.home);
        self.add_held(found.dirs, found.is_named);
        for start in found.starts {
            if !self.starts.contains(&start) && self.starts.len() < STARTS_MAX {
                self.starts.push(start);
            }
        }
        for path in found.paths {
            if !self.paths.contains(&path) {
                self.paths.push(path);
            }
        }
        if cwd.lost {
            self.add(cwd.known.iter().cloned());
        }
    }

    fn note(&mut self) {
        if self.marks == 0 {
            self.first.clone_from(&self.label);
        }
        self.marks += 1;
    }

    /// Adds directories that the command runs in or names.
    pub(super) fn add(&mut self, dirs: impl IntoIterator<Item = PathBuf>) {
        self.add_held(dirs, true);
    }

    /// Adds directories; `is_named` is false for those that only contain something that the command names.
    fn add_held(&mut self, dirs: impl IntoIterator<Item = PathBuf>, is_named: bool) {
        for dir in dirs {
            if is_named {
                self.own_dirs.insert(dir.clone());
            }
            if !self.dirs.contains(&dir) {
                self.dirs.push(dir);
            }
        }
    }

    /// Records a value that may become an operand through a variable.
    pub(super) fn hint(&mut self, word: Word, cwd: &Cwd) {
        if word.text.contains('/') && self.hints.len() < 100 {
            self.hints.push((word, cwd.clone()));
        }
    }

    /// Adds the directories of the hints, if some operand was unknown.
    pub(super) fn finish(&mut self) {
        if !self.guessing {
            return;
        }
        for (word, cwd) in std::mem::take(&mut self.hints) {
            let found = target(&word, &cwd, self.home);
            // A known value is usually a directory: `D=/x; rm -r "$D/y"`.
            self.add(if found.paths.is_empty() { found.dirs } else { found.paths });
        }
    }
}
