//! The paths that a tool call touches: the files and directories that it names, never their parent directories.
//!
//! The parent of a named directory is not what the agent changes. Once recorded as a project, it would cover everything
//! in it from then on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::platform;
use piton::triggers::Verdict;

/// Maximum number of directory entries searched for those that an operand such as `../build-*` may match.
const NAMES_MAX: usize = 1000;

/// Returns the paths that a shell command touches: the directories it runs in and the paths that it names.
pub(super) fn by(verdict: &Verdict) -> Vec<PathBuf> {
    let runs_in = verdict.dirs.iter().filter(|dir| !verdict.holders.contains(dir)).cloned();
    let links = verdict.paths.iter().filter(|path| path.is_symlink()).map(|link| beside(link));
    let meant = verdict.starts.iter().flat_map(|start| beginning_with(start));
    let named = verdict.paths.iter().cloned().chain(links).chain(meant);
    runs_in.chain(one_per_dir(named)).collect()
}

/// Returns the directories, and one of the other paths for each parent directory: an existing file if there is one.
pub(super) fn one_per_dir(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut touched = Vec::new();
    let mut others: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for path in paths {
        if path.is_dir() {
            touched.push(path);
            continue;
        }
        let dir = path.parent().map(Path::to_owned).unwrap_or_default();
        match others.entry(dir) {
            Entry::Vacant(place) => {
                place.insert(path);
            }
            Entry::Occupied(mut kept) => {
                if !kept.get().exists() && path.exists() {
                    kept.insert(path);
                }
            }
        }
    }
    touched.extend(others.into_values());
    touched
}

/// Returns another name in the directory of a link: removing the link changes that directory, not the one it points to.
fn beside(link: &Path) -> PathBuf {
    let mut name = link.file_name().map(OsString::from).unwrap_or_default();
    name.push("~");
    link.with_file_name(name)
}

/// Returns the existing paths that start with `start`. A path that ends with a slash matches everything in that
/// directory.
fn beginning_with(start: &Path) -> Vec<PathBuf> {
    let is_dir = start.as_os_str().as_encoded_bytes().ends_with(b"/");
    let (dir, name) = match (start.parent(), start.file_name()) {
        (Some(dir), Some(name)) if !is_dir => (dir, name.as_encoded_bytes()),
        _ => (start, &b""[..]),
    };
    let names = fs::read_dir(dir).into_iter().flatten().flatten().take(NAMES_MAX);
    names.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(name)).map(|entry| entry.path()).collect()
}

/// Returns true for a sticky, world-writable directory such as `/tmp`, and for a path directly in one that is not a
/// directory. Such files belong to no project, and a checkpoint of all of them would cost more than it saves.
pub(super) fn is_in_shared_dir(path: &Path) -> bool {
    let dir = if path.is_dir() { Some(path) } else { path.parent() };
    let found = dir.and_then(|dir| fs::metadata(dir).ok());
    found.is_some_and(|found| platform::mode(&found) & 0o1002 == 0o1002)
}
