//! Looking at single paths of a project, without reading or changing more than asked for.

use std::ffi::CString;
use std::io;
use std::path::Path;

use super::read::Reader;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::relpath;
use crate::sys::{self, Dir, DirIdentity, Kind, Stat};

/// Returns the stat data of a path below a project. Follows no symbolic link.
pub(crate) fn stat_path(root: &Dir, path: &[u8]) -> io::Result<Stat> {
    let (parent, name) = relpath::split(path);
    root.open_dir(parent)?.stat_at(&CString::new(name)?)
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

/// Returns the identity of a project's directory and of its parent. Returns `None` if the parent cannot be looked at.
pub(crate) fn dir_identity(dir: &Path) -> Option<DirIdentity> {
    let parent = sys::file_identity(&dir.parent()?.metadata().ok()?);
    let device = dir.metadata().map_or(parent.0, |own| sys::file_identity(&own).0);
    Some(DirIdentity { device, parent })
}
