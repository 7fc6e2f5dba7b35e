//! What a command destroys, and the programs that it runs, as data.

use std::path::PathBuf;

use super::place::Cwd;
use super::word::Word;

/// How the contents at a path are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossKind {
    /// The name is removed, or names another file afterwards. Another hard link of the file keeps the contents.
    Unlinked,
    /// The file is written in place. Every hard link of it shows the new contents.
    Rewritten,
}

/// Which files at a path are lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossExtent {
    /// The file at the path. A directory stays.
    File,
    /// The file at the path, or the directory with everything in it.
    Tree,
    /// Files below the directory, if their names match the pattern.
    Below {
        /// Pattern of file names; `None` for all.
        names: Option<String>,
        /// True if a directory whose name matches is lost with everything in it.
        is_deep: bool,
    },
    /// Files below the directory that the git repository around it does not track.
    Untracked,
    /// The file at the path; or if that is a directory, the file in it that has the name of one of these paths.
    Onto {
        /// Paths, which may be patterns.
        sources: Vec<PathBuf>,
        /// True if a directory among them is merged with one of the same name.
        merges: bool,
    },
}

/// Something that a command destroys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Loss {
    /// Absolute path.
    pub path: PathBuf,
    /// True if the path is a pattern with `*`, `?` or `[`.
    pub is_pattern: bool,
    /// How it is lost.
    pub kind: LossKind,
    /// Which files.
    pub extent: LossExtent,
}

impl Loss {
    /// Returns the loss of one file.
    #[must_use]
    pub fn file(path: PathBuf, kind: LossKind) -> Self {
        Self { path, is_pattern: false, kind, extent: LossExtent::File }
    }
}

/// How the names that `find` or `xargs` fill in are lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placeholder {
    pub(super) kind: LossKind,
    /// True if directories are lost with everything in them.
    pub(super) is_deep: bool,
}

/// Starting points of a `find`, and the pattern of its `-name`.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) starts: Vec<Word>,
    pub(super) names: Option<String>,
    pub(super) cwd: Cwd,
}

/// A program whose text the command does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Run {
    /// A file that is run by its path, or by a shell: a shell script, if its first line does not say otherwise.
    Script {
        /// File.
        path: PathBuf,
        /// Directory that it runs in.
        cwd: PathBuf,
    },
    /// Targets of a makefile.
    Make {
        /// Directory that it runs in.
        cwd: PathBuf,
        /// File given with `-f`.
        file: Option<PathBuf>,
        /// Targets; the first one of the file if it is empty.
        targets: Vec<String>,
    },
    /// A script of `package.json`.
    Package {
        /// Directory of that file.
        cwd: PathBuf,
        /// Name of the script.
        script: String,
    },
    /// A text in a language other than that of the shell.
    Foreign {
        /// Interpreter.
        program: String,
        /// File, if it is one.
        path: Option<PathBuf>,
        /// Text, if the command contains it.
        text: Option<String>,
        /// Directory that it runs in.
        cwd: PathBuf,
    },
}
