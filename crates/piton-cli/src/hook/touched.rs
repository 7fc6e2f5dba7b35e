//! What a tool call touches: the files and directories that it names, never the directories around them.
//!
//! A directory around a named one is not what the agent changes. Taken for a project, it would stand for everything in it
//! from then on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use piton::triggers::Verdict;

/// How many names are looked through for those that an operand such as `../build-*` may mean.
const NAMES_MAX: usize = 1000;

/// What a shell command touches: where it runs, and what it names.
pub(super) fn by(verdict: &Verdict) -> Vec<PathBuf> {
    let runs_in = verdict.dirs.iter().filter(|dir| !verdict.holders.contains(dir)).cloned();
    let links = verdict.paths.iter().filter(|path| path.is_symlink()).map(|link| beside(link));
    let meant = verdict.starts.iter().flat_map(|start| beginning_with(start));
    let named = verdict.paths.iter().cloned().chain(links).chain(meant);
    runs_in.chain(one_per_dir(named)).collect()
}

/// The directories, and of the other paths one for each directory that holds some: a file that exists, if there is one.
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

/// Another name in the directory of a link: removing the link changes that directory, and not the one it leads to.
fn beside(link: &Path) -> PathBuf {
    let mut name = link.file_name().map(OsString::from).unwrap_or_default();
    name.push("~");
    link.with_file_name(name)
}

/// What there is that begins so. A path with a slash at its end stands for everything in that directory.
fn beginning_with(start: &Path) -> Vec<PathBuf> {
    let is_dir = start.as_os_str().as_bytes().ends_with(b"/");
    let (dir, name) = match (start.parent(), start.file_name()) {
        (Some(dir), Some(name)) if !is_dir => (dir, name.as_bytes()),
        _ => (start, &b""[..]),
    };
    let names = fs::read_dir(dir).into_iter().flatten().flatten().take(NAMES_MAX);
    names.filter(|entry| entry.file_name().as_bytes().starts_with(name)).map(|entry| entry.path()).collect()
}

/// Returns true for a directory that everybody may write to, as `/tmp`, and for what lies right in it and is not a
/// directory. That belongs to no project, and taking all of it would cost more than it saves.
pub(super) fn is_in_shared_dir(path: &Path) -> bool {
    let dir = if path.is_dir() { Some(path) } else { path.parent() };
    let found = dir.and_then(|dir| fs::metadata(dir).ok());
    found.is_some_and(|found| found.permissions().mode() & 0o1002 == 0o1002)
}
