//! Files that the project's own git tracks. The index is never written, and read only if a rule would leave something
//! out.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::git_index;
use crate::fsx;
use crate::id::Checksum;
use crate::sys;

/// Size limit of the index: a few million files.
const INDEX_BYTES_MAX: u64 = 512 << 20;
/// Size limit of the paths in it: as much as the largest index without prefix compression could hold.
const PATHS_BYTES_MAX: usize = 512 << 20;
const GITFILE_BYTES_MAX: u64 = 8 << 10;

/// Paths in the index of the project's own git.
pub(super) struct Tracked {
    git_dir: Option<PathBuf>,
    /// Path of the project in its repository, with a trailing slash; empty if the project is the repository.
    prefix: Vec<u8>,
    paths: OnceLock<Vec<Box<[u8]>>>,
    /// Index that exists, was needed and could not be read.
    unread: OnceLock<PathBuf>,
}

impl Tracked {
    /// Finds the repository of the project, which may be an ancestor directory. In a worktree or submodule, `.git` is a
    /// file with the path.
    pub(super) fn of(project: &Path) -> Self {
        let found = project.ancestors().find_map(|dir| Some((dir, git_dir(dir)?)));
        let inside = found.as_ref().and_then(|(dir, _)| project.strip_prefix(dir).ok());
        let mut prefix = inside.map(|inside| sys::path_bytes(inside).to_vec()).unwrap_or_default();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let git_dir = found.map(|(_, git_dir)| git_dir);
        Self { git_dir, prefix, paths: OnceLock::new(), unread: OnceLock::new() }
    }

    /// Returns the index that could not be read. It is unknown then which files are tracked, and the rules apply to
    /// all.
    pub(super) fn unread(&self) -> Option<&Path> {
        self.unread.get().map(PathBuf::as_path)
    }

    pub(super) fn contains(&self, path: &[u8]) -> bool {
        let path = [&self.prefix, path].concat();
        self.paths().binary_search_by(|tracked| (**tracked).cmp(&path)).is_ok()
    }

    /// Returns true if anything in the directory is tracked.
    pub(super) fn any_in(&self, dir: &[u8]) -> bool {
        let paths = self.paths();
        let inside = [&self.prefix, dir, b"/"].concat();
        let at = paths.partition_point(|tracked| **tracked < *inside);
        paths.get(at).is_some_and(|tracked| tracked.starts_with(&inside))
    }

    /// Adds the identity of the index to a checksum, so that it changes with the index.
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
            return git_index::read_paths(&bytes, PATHS_BYTES_MAX);
        }
        // A repository without an index tracks nothing.
        if fsx::exists(&path).unwrap_or(true) {
            let _ = self.unread.set(path);
        }
        Default::default()
    }
}

/// Reads a regular file of at most `bytes_max` bytes. Returns `None` for anything else.
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
            Some(project.join(sys::name_from_bytes(named)))
        }
        _ => None,
    }
}
