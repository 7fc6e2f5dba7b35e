//! Where a command runs and which directories its operands lie in. Lexical: nothing is looked up on disk.

use std::path::{Component, Path, PathBuf};

use super::word::Word;

/// More alternatives than this are not followed; the first ones stay.
const ALTERNATIVES_MAX: usize = 16;

/// The directories a command may run in. Empty after `exit`: nothing runs there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cwd {
    pub(super) known: Vec<PathBuf>,
    /// It may also be somewhere else; `known` then holds where it was last known to be.
    pub(super) lost: bool,
}

impl Cwd {
    pub(super) fn at(dir: &Path) -> Self {
        Self { known: vec![normalise(dir)], lost: false }
    }

    /// No command runs after this.
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

    /// This, or `other` where nothing would run: what follows an `exit` is still looked at.
    pub(super) fn or(self, other: &Self) -> Self {
        if self.known.is_empty() { other.clone() } else { self }
    }

    /// After `cd word`.
    pub(super) fn moved(&self, word: &Word, home: Option<&Path>) -> Self {
        let Some(path) = literal_path(word, home) else { return self.clone().lost() };
        if word.open {
            return self.clone().lost();
        }
        // An absolute path is where it is, wherever one came from.
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

/// The path that the known start of a word spells; nothing for another user's home or an unknown one.
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

/// What an operand names: the directories that hold it and, where it is known, the path itself.
pub(super) struct Target {
    pub(super) dirs: Vec<PathBuf>,
    /// The directories are what the word names, or where it is not known what it names. Otherwise they only hold it.
    pub(super) is_named: bool,
    /// The beginnings of what it names, where its end is not known and `is_named` is false.
    pub(super) starts: Vec<PathBuf>,
    pub(super) paths: Vec<PathBuf>,
}

/// The directories that hold the operand `word`: the operand itself when it is written as a directory, and the part
/// before the first thing that is not known.
pub(super) fn target(word: &Word, cwd: &Cwd, home: Option<&Path>) -> Target {
    let (dirs, starts, paths) = Default::default();
    let Some(path) = literal_path(word, home) else {
        return Target { dirs: cwd.known.clone(), is_named: true, starts, paths };
    };
    let text = word.text.as_str();
    let is_dir = text.ends_with('/') || matches!(text.rsplit('/').next(), Some("." | ".." | "")) || text == "~";
    // `x/*` is all of `x`. `../*` names what is beside the current directory, and not the one around it.
    let names_parent = word.open && path.components().next_back() == Some(Component::ParentDir);
    let mut out = Target { dirs, is_named: is_dir && !names_parent, starts, paths };
    for dir in &cwd.known {
        let full = normalise(&dir.join(&path));
        let holder = if is_dir { full.clone() } else { full.parent().unwrap_or(&full).to_path_buf() };
        out.dirs.push(holder);
        match (word.open, out.is_named) {
            (false, _) => out.paths.push(full),
            // With a slash at its end: everything in it.
            (true, false) => out.starts.push(if is_dir { full.join("") } else { full }),
            (true, true) => {}
        }
    }
    out
}

/// Without `.`, `..` and doubled slashes. `/..` is `/`.
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
