//! Which files the project's own git tracks. Read, never written, and only when a rule would leave something out.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::index;
use crate::fsx;
use crate::id::Checksum;
use crate::sys;

/// The largest index that is read: a few million files.
const INDEX_BYTES_MAX: u64 = 512 << 20;
/// What the paths in it may come to: as much as the largest index that does not shorten them could hold.
const PATHS_BYTES_MAX: usize = 512 << 20;
const GITFILE_BYTES_MAX: u64 = 8 << 10;

/// The paths in the index of the project's own git.
pub(super) struct Tracked {
    git_dir: Option<PathBuf>,
    /// Where the project is in its repository, with a slash after it; nothing, if it is all of it.
    prefix: Vec<u8>,
    paths: OnceLock<Vec<Box<[u8]>>>,
    /// An index that is there, was looked into and could not be read.
    unread: OnceLock<PathBuf>,
}

impl Tracked {
    /// Finds the repository that the project is or is in. A worktree or submodule has a file `.git` that says where.
    pub(super) fn of(project: &Path) -> Self {
        let found = project.ancestors().find_map(|dir| Some((dir, git_dir(dir)?)));
        let inside = found.as_ref().and_then(|(dir, _)| project.strip_prefix(dir).ok());
        let mut prefix = inside.map(|inside| inside.as_os_str().as_bytes().to_vec()).unwrap_or_default();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let git_dir = found.map(|(_, git_dir)| git_dir);
        Self { git_dir, prefix, paths: OnceLock::new(), unread: OnceLock::new() }
    }

    /// The index that could not be read. Then nobody knows what is tracked, and rules hold for all of it.
    pub(super) fn unread(&self) -> Option<&Path> {
        self.unread.get().map(PathBuf::as_path)
    }

    pub(super) fn contains(&self, path: &[u8]) -> bool {
        let path = [&self.prefix, path].concat();
        self.paths().binary_search_by(|tracked| (**tracked).cmp(&path)).is_ok()
    }

    /// Returns whether anything in the directory is tracked.
    pub(super) fn any_in(&self, dir: &[u8]) -> bool {
        let paths = self.paths();
        let inside = [&self.prefix, dir, b"/"].concat();
        let at = paths.partition_point(|tracked| **tracked < *inside);
        paths.get(at).is_some_and(|tracked| tracked.starts_with(&inside))
    }

    /// Adds to a sum what tells that the index is another one now.
    pub(super) fn sum(&self, sum: &mut Checksum) {
        let Some(stat) = self.git_dir.as_ref().and_then(|dir| sys::stat_path(&dir.join("index")).ok()) else {
            return;
        };
        for number in [stat.mtime.as_nanos(), stat.ctime.as_nanos(), i128::from(stat.size), i128::from(stat.ino)] {
            sum.update(&number.to_be_bytes());
        }
    }

    fn paths(&self) -> &[Box<[u8]>] {
        self.paths.get_or_init(|| {
            let Some(git_dir) = &self.git_dir else {
                return Vec::new();
            };
            let (mut paths, shared) = self.read_index(git_dir.join("index"));
            if let Some(shared) = shared {
                paths.extend(self.read_index(git_dir.join(format!("sharedindex.{shared}"))).0);
            }
            paths.sort();
            paths
        })
    }

    fn read_index(&self, path: PathBuf) -> (Vec<Box<[u8]>>, Option<String>) {
        if let Some(bytes) = read_limited(&path, INDEX_BYTES_MAX) {
            return index::read_paths(&bytes, PATHS_BYTES_MAX);
        }
        // A repository without one tracks nothing.
        if fsx::is_there(&path).unwrap_or(true) {
            let _ = self.unread.set(path);
        }
        Default::default()
    }
}

/// A regular file of at most that many bytes. Anything else is as good as nothing.
fn read_limited(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let stat = sys::stat_path(path).ok()?;
    if stat.kind != sys::Kind::File || stat.size > bytes_max {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn git_dir(project: &Path) -> Option<PathBuf> {
    let dot_git = project.join(".git");
    match sys::stat_path(&dot_git).ok()?.kind {
        sys::Kind::Dir => Some(dot_git),
        sys::Kind::File => {
            let text = read_limited(&dot_git, GITFILE_BYTES_MAX)?;
            let named = text.strip_prefix(b"gitdir:")?.trim_ascii();
            Some(project.join(std::ffi::OsStr::from_bytes(named)))
        }
        _ => None,
    }
}
