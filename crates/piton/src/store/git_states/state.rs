//! One state of a repository: where it is, and every small file in it. A text file, named by the hash of its bytes.
//!
//! ```text
//! git-state 1
//! root /home/you/code
//! common /home/you/code/.git
//! own .
//! dir 700 .
//! dir 755 hooks
//! file 100644 =ref:%20refs/heads/main%0a HEAD
//! file 100644 5e1c… index
//! ```
//!
//! Contents of at most 256 bytes are in the line itself, after `=`; others are in a file of their own, named by their
//! hash. Paths and contents are escaped: `%` and two hexadecimal digits for everything but printable ASCII without the
//! space. A directory without a line has the mode of the one that it is in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::id::{ObjectId, content_id};
use crate::relpath::{escape, unescape};
use crate::sys;

const HEADER: &str = "git-state 1";
/// Size of the largest contents that are part of the state file.
pub(super) const INLINE_BYTES_MAX: usize = 256;

/// Contents of a small file in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GitContents {
    Inline(Vec<u8>),
    /// Hash of the contents, which are in a file of their own.
    Stored(ObjectId),
}

/// A small file in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateFile {
    /// Path, relative to the common directory.
    pub(crate) path: Vec<u8>,
    /// Type and permission bits, as in a tree of git: `100644`, `100755`, `120000`.
    pub(crate) mode: u32,
    pub(crate) contents: GitContents,
}

/// Type bits of a symbolic link.
pub(crate) const LINK_MODE: u32 = 0o120_000;
/// Type bits of a regular file.
pub(crate) const FILE_MODE: u32 = 0o100_000;

/// A state of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GitState {
    /// Directory that holds `.git`.
    pub(crate) root: PathBuf,
    /// Directory of refs and objects.
    pub(crate) common: PathBuf,
    /// Directory of `HEAD` and the index, relative to `common`.
    pub(crate) own: Vec<u8>,
    /// Permission bits of directories, relative to `common`; only those that differ from the directory around them.
    pub(crate) dirs: BTreeMap<Vec<u8>, u16>,
    /// Sorted by path.
    pub(crate) files: Vec<StateFile>,
}

impl GitState {
    /// Returns the small file at a path.
    pub(crate) fn file(&self, path: &[u8]) -> Option<&StateFile> {
        self.files.binary_search_by(|file| file.path.as_slice().cmp(path)).ok().map(|at| &self.files[at])
    }

    /// Returns the bytes of the state file, and the id of the state.
    pub(super) fn encode(&self) -> (ObjectId, Vec<u8>) {
        let mut text = format!(
            "{HEADER}\nroot {}\ncommon {}\nown {}\n",
            escape(sys::path_bytes(&self.root)),
            escape(sys::path_bytes(&self.common)),
            if self.own.is_empty() { ".".to_owned() } else { escape(&self.own) },
        );
        for (path, mode) in &self.dirs {
            let path = if path.is_empty() { ".".to_owned() } else { escape(path) };
            text.push_str(&format!("dir {mode:o} {path}\n"));
        }
        for file in &self.files {
            let contents = match &file.contents {
                GitContents::Inline(bytes) => format!("={}", escape(bytes)),
                GitContents::Stored(id) => id.to_string(),
            };
            text.push_str(&format!("file {:o} {contents} {}\n", file.mode, escape(&file.path)));
        }
        (content_id(text.as_bytes()), text.into_bytes())
    }

    /// Parses a state file. Returns `None` if it is not the one with this id.
    pub(super) fn decode(id: ObjectId, bytes: &[u8]) -> Option<Self> {
        if content_id(bytes) != id {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        if lines.next()? != HEADER {
            return None;
        }
        let mut state = Self::default();
        for line in lines {
            let (key, value) = line.split_once(' ')?;
            match key {
                "root" => state.root = sys::path_from_bytes(unescape(value.as_bytes())?),
                "common" => state.common = sys::path_from_bytes(unescape(value.as_bytes())?),
                "own" => state.own = if value == "." { Vec::new() } else { unescape(value.as_bytes())? },
                "dir" => state.dirs.extend(decode_dir(value)),
                "file" => state.files.push(StateFile::decode(value)?),
                // A later version may add lines.
                _ => {}
            }
        }
        Some(state)
    }
}

/// Parses the mode and the path of a directory. Returns `None` if a later version writes them otherwise.
fn decode_dir(line: &str) -> Option<(Vec<u8>, u16)> {
    let (mode, path) = line.split_once(' ')?;
    let path = if path == "." { Vec::new() } else { unescape(path.as_bytes())? };
    let mode = u16::from_str_radix(mode, 8).ok()? & 0o7777;
    (path.is_empty() || is_below(&path)).then_some((path, mode))
}

impl StateFile {
    fn decode(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mode = u32::from_str_radix(words.next()?, 8).ok()?;
        let contents = words.next()?;
        let contents = match contents.strip_prefix('=') {
            Some(inline) => GitContents::Inline(unescape(inline.as_bytes())?),
            None => GitContents::Stored(ObjectId::from_hex(contents.as_bytes())?),
        };
        let path = unescape(words.next()?.as_bytes())?;
        is_below(&path).then_some(Self { path, mode, contents })
    }
}

/// Returns true for a path that does not lead out of the repository.
fn is_below(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> GitState {
        let file = |path: &[u8], contents| StateFile { path: path.to_vec(), mode: 0o100_644, contents };
        GitState {
            root: "/home/you/a b".into(),
            common: "/home/you/a b/.git".into(),
            own: b"worktrees/x".to_vec(),
            dirs: BTreeMap::from([(Vec::new(), 0o700), (b"a b".to_vec(), 0o2775)]),
            files: vec![
                file(b"HEAD", GitContents::Inline(b"ref: refs/heads/main\n".to_vec())),
                file(b"refs/heads/\xff %", GitContents::Inline(Vec::new())),
                file(b"worktrees/x/index", GitContents::Stored(content_id(b"index"))),
            ],
        }
    }

    #[test]
    fn a_state_comes_back_as_it_was_written() {
        let (id, bytes) = state().encode();
        assert_eq!(GitState::decode(id, &bytes), Some(state()));
        assert!(GitState::decode(content_id(b"another"), &bytes).is_none());
    }

    #[test]
    fn a_path_that_leads_out_of_the_repository_is_no_state() {
        for path in ["../x", "/x", "a//b", "a/../../b", "."] {
            let bytes = format!("{HEADER}\nroot /r\ncommon /r/.git\nown .\nfile 100644 = {path}\n");
            assert_eq!(GitState::decode(content_id(bytes.as_bytes()), bytes.as_bytes()), None, "{path}");
        }
    }
}
