//! Looking at single paths of a project, without reading or changing more than asked for.

use std::collections::HashSet;
use std::ffi::CString;
use std::io::{self, Read as _};
use std::path::Path;

use super::read::Reader;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::relpath;
use crate::sys::{self, Dir, Kind, Stat};

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
