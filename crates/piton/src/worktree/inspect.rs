//! Reading single paths of a project: stat data, contents, ids.

use std::collections::HashSet;
use std::ffi::CString;
use std::io::{self, Read as _};
use std::path::Path;

use super::read::Reader;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::relpath;
use crate::sys::{self, Dir, Kind, Stat};

/// Number of bytes of two files that are compared at once.
const COMPARED_AT_ONCE: usize = 256 << 10;

/// Returns the stat data of a path below a project. Follows no symbolic link.
pub(crate) fn stat_path(root: &Dir, path: &[u8]) -> io::Result<Stat> {
    let (parent, name) = relpath::split(path);
    root.open_dir(parent)?.stat_at(&CString::new(name)?)
}

/// Returns those of these paths at which nothing is. Each directory is opened once if the paths are sorted.
pub(crate) fn missing_paths<'a>(root: &Dir, paths: impl IntoIterator<Item = &'a [u8]>) -> HashSet<&'a [u8]> {
    let mut last: Option<(&[u8], Option<Dir>)> = None;
    let is_missing = |path: &&'a [u8]| {
        let (parent, name) = relpath::split(path);
        if last.as_ref().is_none_or(|(dir, _)| *dir != parent) {
            last = Some((parent, root.open_dir(parent).ok()));
        }
        let dir = last.as_ref().and_then(|(_, dir)| dir.as_ref());
        let name = CString::new(name).ok();
        dir.zip(name).is_none_or(|(dir, name)| dir.stat_at(&name).is_err())
    };
    paths.into_iter().filter(is_missing).collect()
}

/// Returns the id of the contents of a file or a link below a project. Returns `None` if it cannot be read.
pub(crate) fn id_of_path(root: &Dir, path: &[u8], kind: Kind) -> Option<ObjectId> {
    if kind != Kind::Link {
        return Reader::new(root).id_of(path);
    }
    let (parent, name) = relpath::split(path);
    let target = root.open_dir(parent).ok()?.read_link(&CString::new(name).ok()?).ok()?;
    IdHasher::of(ObjectKind::Blob, &target).ok()
}

/// Returns the id of the contents of a file. Returns `None` if it cannot be read.
pub(crate) fn id_of_file(path: &Path) -> Option<ObjectId> {
    let name = path.file_name()?;
    id_of_path(&Dir::open(path.parent()?).ok()?, sys::path_bytes(Path::new(name)), Kind::File)
}

/// Returns the target of a link. Returns `None` if the path is not a link.
pub(crate) fn link_target(path: &Path) -> Option<Vec<u8>> {
    let name = CString::new(sys::path_bytes(Path::new(path.file_name()?))).ok()?;
    Dir::open(path.parent()?).ok()?.read_link(&name).ok()
}

/// Returns true if two files have equal contents. Returns false if one of them cannot be read.
pub(crate) fn has_same_contents(one: &Path, other: &Path) -> bool {
    compare_contents(one, other).unwrap_or(false)
}

fn compare_contents(one: &Path, other: &Path) -> io::Result<bool> {
    let open = |path: &Path| {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Dir::open(path.parent().unwrap_or(Path::new("/")))?.open_file(sys::path_bytes(Path::new(name)))
    };
    let (mut one, mut other) = (open(one)?, open(other)?);
    let (first, second) = (sys::stat_file(&one)?, sys::stat_file(&other)?);
    if first.kind != Kind::File || second.kind != Kind::File || first.size != second.size {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; COMPARED_AT_ONCE], vec![0; COMPARED_AT_ONCE]);
    loop {
        let bytes = one.read(&mut left)?;
        if bytes == 0 {
            return Ok(other.read(&mut right[..1])? == 0);
        }
        match other.read_exact(&mut right[..bytes]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        if left[..bytes] != right[..bytes] {
            return Ok(false);
        }
    }
}

/// Returns the contents of a file, or the target of a link, below a project. Reads at most `bytes_max` bytes of a file.
pub(crate) fn read_path(root: &Dir, path: &[u8], kind: Kind, bytes_max: u64) -> io::Result<Vec<u8>> {
    if kind == Kind::Link {
        let (parent, name) = relpath::split(path);
        return root.open_dir(parent)?.read_link(&CString::new(name)?);
    }
    let mut bytes = Vec::new();
    root.open_file(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
