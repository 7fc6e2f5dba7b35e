//! Stat data of the paths of a repository, as plain bytes for the caller to store. The next capture compares them to
//! detect that nothing changed. Comparing them makes one system call for each path, and allocates nothing.
//!
//! git replaces refs by renames, which change the times of their directory. In a repository with many small files, refs
//! and their reflogs are not statted as long as their directory is unchanged.

use std::ffi::CStr;

use super::Repository;
use crate::sys::{Kind, Stat};

/// Number of small files up to which each of them is statted.
const WATCHED_MAX: usize = 1_000;

/// Length of encoded stat data. A record consists of a byte of flags, the stat data, the path, and a zero byte.
const STAMP_BYTES: usize = 43;
/// Flag of a path that changed just before it was statted: its times may not show the next change.
const YOUNG: u8 = 1;

/// Encodes the stat data that changes with a path. The size of a directory says nothing.
fn stamp(stat: &Stat) -> [u8; STAMP_BYTES] {
    let kind = match stat.kind {
        Kind::File => 0,
        Kind::Dir => 1,
        Kind::Link => 2,
        Kind::Special => 3,
    };
    let size = if stat.kind == Kind::Dir { 0 } else { stat.size };
    let mut bytes = [0; STAMP_BYTES];
    bytes[0] = kind;
    bytes[1..3].copy_from_slice(&stat.mode.to_le_bytes());
    bytes[3..11].copy_from_slice(&size.to_le_bytes());
    bytes[11..19].copy_from_slice(&stat.mtime.secs.to_le_bytes());
    bytes[19..23].copy_from_slice(&stat.mtime.nanos.to_le_bytes());
    bytes[23..31].copy_from_slice(&stat.ctime.secs.to_le_bytes());
    bytes[31..35].copy_from_slice(&stat.ctime.nanos.to_le_bytes());
    bytes[35..43].copy_from_slice(&stat.ino.to_le_bytes());
    bytes
}

/// Encodes the stat data of paths. A path that changed after `settled_before`, in nanoseconds since 1970, never counts
/// as unchanged.
pub(crate) fn encode_seen<'a>(paths: impl Iterator<Item = (&'a [u8], &'a Stat)>, settled_before: i128) -> Vec<u8> {
    let mut seen = Vec::new();
    paths.for_each(|(path, stat)| push_seen(&mut seen, path, stat, settled_before));
    seen
}

fn push_seen(seen: &mut Vec<u8>, path: &[u8], stat: &Stat, settled_before: i128) {
    seen.push(if is_young(stat, settled_before) { YOUNG } else { 0 });
    seen.extend_from_slice(&stamp(stat));
    seen.extend_from_slice(path);
    seen.push(0);
}

fn is_young(stat: &Stat, settled_before: i128) -> bool {
    stat.mtime.as_nanos().max(stat.ctime.as_nanos()) > settled_before
}

/// Stat data of small files, as [`encode_seen`] encodes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SeenFiles {
    /// Files that every capture stats.
    pub(crate) watched: Vec<u8>,
    /// Files whose directory shows their changes. Most of a repository with many refs, so that they are not even read
    /// if nothing changed.
    pub(crate) unwatched: Vec<u8>,
}

impl SeenFiles {
    /// Encodes the stat data of all small files of a repository.
    pub(crate) fn encode<'a>(paths: impl ExactSizeIterator<Item = (&'a [u8], &'a Stat)>, settled_before: i128) -> Self {
        let is_many = paths.len() > WATCHED_MAX;
        let mut files = Self::default();
        for (path, stat) in paths {
            let is_settled = stat.kind != Kind::Dir && !is_young(stat, settled_before);
            let is_unwatched = is_many && is_settled && is_ref_or_log(path);
            let part = if is_unwatched { &mut files.unwatched } else { &mut files.watched };
            push_seen(part, path, stat, settled_before);
        }
        files
    }
}

/// Returns true for a ref or its reflog, also for one of a submodule.
fn is_ref_or_log(path: &[u8]) -> bool {
    let is_below = |dir: &[u8]| path.starts_with(&dir[1..]) || path.windows(dir.len()).any(|part| part == dir);
    is_below(b"/refs/") || is_below(b"/logs/refs/")
}

/// A path with the stat data that it had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenPath<'a> {
    pub(crate) path: &'a CStr,
    stamp: &'a [u8],
    flags: u8,
}

impl SeenPath<'_> {
    /// Returns true if the path still has this stat data, and had it long enough for that to prove that it is
    /// unchanged.
    pub(crate) fn is_same(&self, stat: &Stat) -> bool {
        self.flags & YOUNG == 0 && self.stamp == stamp(stat)
    }
}

/// Iterates over encoded paths. Ends at a record that is not complete.
pub(crate) fn seen_paths(mut seen: &[u8]) -> impl Iterator<Item = SeenPath<'_>> {
    std::iter::from_fn(move || {
        let (head, rest) = seen.split_at_checked(1 + STAMP_BYTES)?;
        let path = CStr::from_bytes_until_nul(rest).ok()?;
        seen = &rest[path.count_bytes() + 1..];
        Some(SeenPath { path, stamp: &head[1..], flags: head[0] })
    })
}

impl Repository {
    /// Returns true if every path is as it was seen. The empty path is the common directory itself.
    pub(crate) fn is_as_seen(&self, seen: &[u8]) -> bool {
        seen_paths(seen).all(|seen| self.stat_seen(seen.path).is_some_and(|stat| seen.is_same(&stat)))
    }

    fn stat_seen(&self, path: &CStr) -> Option<Stat> {
        if path.is_empty() { self.dir.stat().ok() } else { self.dir.stat_at(path).ok() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sys::Dir;

    fn seen_in(dir: &std::path::Path, paths: &[&str], settled_before: i128) -> (Repository, Vec<u8>) {
        let repository = Repository { dir: Dir::open(dir).expect("a directory") };
        let stats: Vec<Stat> = paths
            .iter()
            .map(|path| repository.stat_seen(&std::ffi::CString::new(*path).expect("a path")).expect("stat data"))
            .collect();
        let pairs: Vec<(&[u8], &Stat)> = paths.iter().map(|path| path.as_bytes()).zip(&stats).collect();
        let seen = SeenFiles::encode(pairs.into_iter(), settled_before);
        (repository, seen.watched)
    }

    #[test]
    fn a_change_of_any_path_is_seen_and_a_young_one_is_never_taken_for_unchanged() {
        let temp = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(temp.path().join("refs/heads")).expect("a directory");
        let main = temp.path().join("refs/heads/main");
        fs::write(&main, "1").expect("a file");
        let paths = ["", "refs/heads", "refs/heads/main"];
        let (repository, seen) = seen_in(temp.path(), &paths, i128::MAX);
        assert_eq!(seen_paths(&seen).count(), 3);
        assert!(repository.is_as_seen(&seen));
        let (_, young) = seen_in(temp.path(), &paths, 0);
        assert!(!repository.is_as_seen(&young));
        fs::write(&main, "22").expect("a file");
        assert!(!repository.is_as_seen(&seen), "written in place");
        fs::remove_file(&main).expect("a file");
        assert!(!repository.is_as_seen(&seen), "gone");
    }

    #[test]
    fn of_many_refs_the_directories_are_looked_at() {
        let temp = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(temp.path().join("refs/heads")).expect("a directory");
        fs::write(temp.path().join("config"), "1").expect("a file");
        let names: Vec<String> = (0..=WATCHED_MAX).map(|number| format!("refs/heads/{number}")).collect();
        names.iter().for_each(|name| fs::write(temp.path().join(name), "1").expect("a file"));
        let mut paths = vec!["refs/heads", "config"];
        paths.extend(names.iter().map(String::as_str));
        let (repository, seen) = seen_in(temp.path(), &paths, i128::MAX);
        assert_eq!(seen_paths(&seen).count(), 2);
        fs::write(temp.path().join("refs/heads/7"), "22").expect("a file");
        assert!(repository.is_as_seen(&seen), "no git writes in place");
        // As git does it.
        fs::write(temp.path().join("new"), "333").expect("a file");
        fs::rename(temp.path().join("new"), temp.path().join("refs/heads/7")).expect("renamed");
        assert!(!repository.is_as_seen(&seen));
        let (repository, seen) = seen_in(temp.path(), &paths, i128::MAX);
        fs::write(temp.path().join("config"), "22").expect("a file");
        assert!(!repository.is_as_seen(&seen), "any other file is looked at");
        let (repository, young) = seen_in(temp.path(), &paths, 0);
        assert_eq!(seen_paths(&young).count(), paths.len());
        assert!(!repository.is_as_seen(&young));
    }

    #[test]
    fn refs_and_their_logs_are_known_by_their_paths() {
        for path in ["refs/heads/a", "logs/refs/stash", "modules/x/refs/tags/b", "worktrees/w/logs/refs/bisect/c"] {
            assert!(is_ref_or_log(path.as_bytes()), "{path}");
        }
        for path in ["HEAD", "logs/HEAD", "xrefs/heads", "packed-refs", "info/refs"] {
            assert!(!is_ref_or_log(path.as_bytes()), "{path}");
        }
    }
}
