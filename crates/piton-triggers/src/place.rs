//! Directories that a command runs in and that contain its operands. Purely lexical: nothing is looked up on disk.

use std::path::{Component, Path, PathBuf};

use super::word::Word;

/// Limit of alternative directories; further ones are dropped.
const ALTERNATIVES_MAX: usize = 16;

/// Directories that a command may run in. Empty after `exit`: nothing runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cwd {
    pub(super) known: Vec<PathBuf>,
    /// True if it may also run somewhere else; `known` then has the last known directories.
    pub(super) lost: bool,
}

impl Cwd {
    pub(super) fn at(dir: &Path) -> Self {
        Self { known: vec![normalise(dir)], lost: false }
    }

    /// Returns the state after `exit`: no command runs.
    pub(super) fn nowhere() -> Self {
        Self::default()
    }

    pub(super) fn lost(mut self) -> Self {
        self.lost = true;
        self
    }

    pub(super) fn join(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for dir in &other.known {
            if !both.known.contains(dir) && both.known.len() < ALTERNATIVES_MAX {
                both.known.push(dir.clone());
            }
        }
        both.lost |= other.lost;
        both
    }

    /// Returns this, or `other` if nothing would run: commands after an `exit` are still analysed.
    pub(super) fn or(self, other: &Self) -> Self {
        if self.known.is_empty() { other.clone() } else { self }
    }

    /// Returns the directories after `cd word`.
    pub(super) fn moved(&self, word: &Word, home: Option<&Path>) -> Self {
        let Some(path) = literal_path(word, home) else { return self.clone().lost() };
        if word.open {
            return self.clone().lost();
        }
        // An absolute path does not depend on the previous directory.
        let lost = self.lost && !path.is_absolute();
        let mut known: Vec<PathBuf> = Vec::new();
        for dir in &self.known {
            let dir = normalise(&dir.join(&path));
            if !known.contains(&dir) {
                known.push(dir);
            }
        }
        Self { known, lost }
    }
}

/// Returns the path of the known part of a word; `None` for another user's home or an unknown one.
fn literal_path(word: &Word, home: Option<&Path>) -> Option<PathBuf> {
    if !word.tilde {
        return Some(PathBuf::from(&word.text));
    }
    let rest = word.text.strip_prefix('~')?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(home?.join(rest)),
        None if rest.is_empty() && !word.open => home.map(Path::to_path_buf),
        None => None,
    }
}

/// Target of an operand: the directories that contain it and, if it is known, the path itself.
pub(super) struct Target {
    pub(super) dirs: Vec<PathBuf>,
    /// True if the word names the directories, or if it is unknown what it names. Otherwise they only contain it.
    pub(super) is_named: bool,
    /// Known prefixes of the named paths, if their ends are unknown and `is_named` is false.
    pub(super) starts: Vec<PathBuf>,
    pub(super) paths: Vec<PathBuf>,
}

/// Returns the directories that contain the operand `word`: the operand itself if it is written as a directory,
/// otherwise the part before the first unknown.
pub(super) fn target(word: &Word, cwd: &Cwd, home: Option<&Path>) -> Target {
    let (dirs, starts, paths) = Default::default();
    let Some(path) = literal_path(word, home) else {
        return Target { dirs: cwd.known.clone(), is_named: true, starts, paths };
    };
    let text = word.text.as_str();
    let is_dir = text.ends_with('/') || matches!(text.rsplit('/').next(), Some("." | ".." | "")) || text == "~";
    // `x/*` is all of `x`. `../*` names the siblings of the current directory, and not its parent.
    let names_parent = word.open && path.components().next_back() == Some(Component::ParentDir);
    let mut out = Target { dirs, is_named: is_dir && !names_parent, starts, paths };
    for dir in &cwd.known {
        let full = normalise(&dir.join(&path));
        let holder = if is_dir { full.clone() } else { full.parent().unwrap_or(&full).to_path_buf() };
        out.dirs.push(holder);
        match (word.open, out.is_named) {
            (false, _) => out.paths.push(full),
            // A trailing slash means everything in it.
            (true, false) => out.starts.push(if is_dir { full.join("") } else { full }),
            (true, true) => {}
        }
    }
    out
}

/// Returns the path without `.`, `..` and doubled slashes. `/..` is `/`.
pub(super) fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from("/") } else { out }
}
