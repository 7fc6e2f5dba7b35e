//! Fuzz targets for the user's files: ignore rules, and the two kinds of index. See `crate::fuzz`.

use std::collections::BTreeSet;

use piton_ignore::{MatchVerdict, Patterns};

use super::cache::{CacheNote, CachedDirs, index_bytes_max, write_index};
use super::git_index::read_paths;
use super::manifest::{DirNode, FileNode, Manifest, Modes};
use crate::fuzz::two;
use crate::id::{Checksum, ID_BYTES, IdHasher, ObjectId, ObjectKind};
use crate::relpath;
use crate::sys::{FileTime, Kind, Stat};

const PATHS_BYTES_MAX: usize = 64 << 10;

/// Parses a list of patterns, and looks up paths in it.
pub(crate) fn ignore(bytes: &[u8]) {
    let (list, paths) = two(bytes);
    let patterns = Patterns::parse(list);
    let with = |line: &[u8]| Patterns::parse(&[list, b"\n", line].concat());
    let (commented, all, none) = (with(b"# a comment"), with(b"*"), with(b"!*"));
    for path in paths.split(|byte| *byte == 0).filter(|path| relpath::parse(path).is_ok_and(|it| it == *path)).take(16)
    {
        for is_dir in [false, true] {
            let verdict = patterns.verdict(path, is_dir);
            assert_eq!(commented.verdict(path, is_dir), verdict, "a comment changes nothing");
            assert_eq!(all.verdict(path, is_dir), Some(MatchVerdict::Ignored), "the last line decides");
            assert_eq!(none.verdict(path, is_dir), Some(MatchVerdict::Included), "the last line decides");
        }
    }
}

/// Parses the index of the user's own git.
pub(crate) fn tracked(bytes: &[u8]) {
    let (paths, shared) = read_paths(bytes, PATHS_BYTES_MAX);
    assert!(paths.iter().map(|path| path.len()).sum::<usize>() <= PATHS_BYTES_MAX, "memory has a bound");
    assert!(shared.is_none_or(|name| name.bytes().all(|byte| byte.is_ascii_hexdigit())), "it is joined to a path");
}

/// Parses piton's own index: the bytes themselves with a valid checksum, and the index of files that have the bytes as
/// paths.
pub(crate) fn index(bytes: &[u8]) {
    let mut sum = Checksum::new();
    sum.update(bytes);
    read(&[bytes, &sum.finish()].concat());

    let manifest = manifest(bytes);
    let trees: Vec<_> = manifest.dirs.iter().map(|dir| Some(id_of(&dir.path))).collect();
    let mut index = Vec::new();
    let sums = write_index(&manifest, &trees, i128::MAX, &mut index).expect("memory takes everything");
    assert!(index.ends_with(sums.checksum.as_bytes()));
    assert_eq!(sums.crc, crc32fast::hash(&index[..index.len() - ID_BYTES]));
    assert!(index.len() as u64 <= index_bytes_max(&manifest));
    let paths: Vec<_> = manifest.dirs.iter().flat_map(|dir| dir.files.iter().map(|file| dir.path_of(file))).collect();
    let mut sorted: Vec<&[u8]> = paths.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    assert!(read_paths(&index, usize::MAX).0.iter().map(|path| &**path).eq(sorted), "as git would read it");
    let cached = read(&index).expect("what was just written");
    assert_eq!(cached, paths.iter().map(|path| (path.clone(), id_of(path))).collect(), "every file comes back");
}

/// Reads the note of the stat cache from a record.
pub(crate) fn note(bytes: &[u8]) {
    let Ok(mut keys) = serde_json::from_slice(bytes) else { return };
    let note = CacheNote::read(&keys);
    note.write(&mut keys);
    assert_eq!(CacheNote::read(&keys), note, "a note comes back");
}

fn id_of(path: &[u8]) -> ObjectId {
    IdHasher::of(ObjectKind::Blob, path).expect("no collision")
}

/// Returns all files that the cache finds in an index.
fn read(index: &[u8]) -> Option<BTreeSet<(Vec<u8>, ObjectId)>> {
    let checksum = ObjectId::from_bytes(*index.last_chunk::<ID_BYTES>()?).to_string();
    let cache = CachedDirs::parse(index, &checksum)?;
    assert!(CachedDirs::is_whole(index, None));
    let mut found = BTreeSet::new();
    let mut open = vec![(Vec::new(), 0)];
    while let Some((path, at)) = open.pop() {
        let dir = cache.dir(at);
        assert_eq!(dir.files().count(), dir.len());
        for file in dir.files() {
            assert!(
                dir.file(file.name).is_some_and(|same| same.entry.id == file.entry.id),
                "a file is found by its name"
            );
            let _ = file.entry.agrees_with(&stat(5));
            found.insert((relpath::join(&path, file.name), file.entry.id));
        }
        let _ = (cache.tree(at), cache.root_tree(), cache.dirs_in(at));
        open.extend(dir.dirs().map(|(name, at)| (relpath::join(&path, name), at)));
    }
    Some(found)
}

fn stat(size: u64) -> Stat {
    let time = FileTime { secs: 1_700_000_000, nanos: 5 };
    Stat { kind: Kind::File, mode: 0o644, size, mtime: time, ctime: time, dev: 1, ino: 2, uid: 3, gid: 4, links: 1 }
}

/// Returns the manifest of a scan if these paths, one per line, were files. A path below a file is left out.
fn manifest(bytes: &[u8]) -> Manifest {
    let paths: BTreeSet<Vec<u8>> =
        bytes.split(|byte| *byte == b'\n').filter_map(|line| relpath::parse(line).ok()).collect();
    let is_below = |path: &[u8]| {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes.into_iter().any(|(at, _)| paths.contains(&path[..at]))
    };
    let mut manifest = Manifest { dirs: vec![dir_node(b"")] };
    for path in paths.iter().filter(|path| !path.is_empty() && !is_below(path)) {
        let (dir, name) = relpath::split(path);
        let at = dir_at(&mut manifest, dir);
        let dir = &mut manifest.dirs[at];
        let name = dir.keep_name(name);
        let (stat, id) = (stat(path.len() as u64), Some(id_of(path)));
        dir.files.push(FileNode { name, stat, id, target: None, may_be_known: false });
    }
    for at in 0..manifest.dirs.len() {
        let mut dirs = std::mem::take(&mut manifest.dirs[at].dirs);
        dirs.sort_by(|a, b| manifest.dirs[*a].path.cmp(&manifest.dirs[*b].path));
        manifest.dirs[at].dirs = dirs;
        let names = manifest.dirs[at].names.clone();
        let name = |file: &FileNode| names[file.name.start as usize..file.name.end as usize].to_vec();
        manifest.dirs[at].files.sort_by_key(name);
    }
    manifest
}

/// Returns the position of a directory. Adds it, with its ancestors, if it is new.
fn dir_at(manifest: &mut Manifest, path: &[u8]) -> usize {
    if let Some(at) = manifest.dirs.iter().position(|dir| *dir.path == *path) {
        return at;
    }
    let around = dir_at(manifest, relpath::split(path).0);
    let at = manifest.dirs.len();
    manifest.dirs.push(dir_node(path));
    manifest.dirs[around].dirs.push(at);
    at
}

fn dir_node(path: &[u8]) -> DirNode {
    DirNode {
        path: path.into(),
        mode: 0o755,
        ctime: FileTime { secs: 0, nanos: 1 },
        mtime: FileTime { secs: 0, nanos: 1 },
        files: Vec::new(),
        names: Vec::new(),
        dirs: Vec::new(),
        cached: None,
        same_files: false,
        modes: Modes::default(),
        hidden_rules: None,
        exceptional: false,
    }
}
