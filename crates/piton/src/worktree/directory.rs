//! The root directories of projects: whether they exist, their device, and their marker files.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::error::{Error, Result};
use crate::sys::{self, Dir, DirIdentity};

/// Files and directories that mark the root of a project.
const MARKERS: [&str; 9] =
    [".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg", "Gemfile"];

/// Existence of a project's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Presence {
    /// It exists.
    There,
    /// It is gone, and its parent directory exists on the same disk as before.
    Gone,
    /// It was not found, and there is no evidence that it was deleted: its disk may not be mounted.
    Unknown,
}

/// Recorded identity of the parent directory of a project.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParentDirectory {
    /// Device and inode of the parent, and device of the project itself, which may be a mount point.
    Identity {
        device: u64,
        inode: u64,
        own_device: Option<u64>,
    },
    /// Device of the parent.
    Device(u64),
    /// Nothing: older layouts do not record it.
    OldLayout,
    Unknown,
}

/// Determines if a project's directory exists.
pub(crate) fn presence(dir: &Path, recorded: ParentDirectory) -> Presence {
    if dir.is_dir() {
        return Presence::There;
    }
    // A dangling link, or a path that cannot be examined, proves nothing.
    let is_gone = matches!(fs::symlink_metadata(dir), Err(error) if sys::is_gone(&error));
    let around = dir.parent().and_then(|parent| Some((parent, sys::file_identity(&parent.metadata().ok()?))));
    // A mount point is empty while nothing is mounted there.
    let is_in_use = |parent: &Path| fs::read_dir(parent).is_ok_and(|mut entries| entries.next().is_some());
    let evidence = around.is_some_and(|(parent, found)| match recorded {
        ParentDirectory::Identity { device, inode, own_device } => {
            found == (device, inode) && own_device.is_none_or(|own| own == found.0)
        }
        ParentDirectory::Device(device) => found.0 == device && is_in_use(parent),
        ParentDirectory::OldLayout => is_in_use(parent),
        ParentDirectory::Unknown => false,
    });
    if is_gone && evidence { Presence::Gone } else { Presence::Unknown }
}

/// Returns the identity of a project's directory and of its parent. Returns `None` if the parent cannot be examined.
pub(crate) fn dir_identity(dir: &Path) -> Option<DirIdentity> {
    let parent = sys::file_identity(&dir.parent()?.metadata().ok()?);
    let own = dir.metadata().ok();
    let device = own.as_ref().map_or(parent.0, |own| sys::file_identity(own).0);
    let mode = own.and_then(|own| u16::try_from(sys::mode(&own) & 0o777).ok());
    Some(DirIdentity { device, mode, parent })
}

/// Returns the device of the nearest ancestor of a missing directory that exists.
pub(crate) fn device_around(dir: &Path) -> Option<u64> {
    let around = dir.ancestors().skip(1).find_map(|dir| dir.metadata().ok());
    around.map(|found| sys::file_identity(&found).0)
}

/// Returns true if the path is a directory. Returns false if it cannot be examined.
pub(crate) fn is_dir(dir: &Path) -> bool {
    dir.is_dir()
}

/// Returns true if the path is a file. Returns false if it cannot be examined.
pub(crate) fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// Fails if the path cannot be examined. A missing path is not an error.
pub(crate) fn check_access(path: &Path) -> Result<()> {
    path.try_exists().map(drop).map_err(|error| Error::io("find", path, error))
}

/// Returns true if a marker file shows that the directory is the root of a project.
pub(crate) fn has_marker(dir: &Path) -> bool {
    MARKERS.iter().any(|marker| dir.join(marker).symlink_metadata().is_ok())
}

/// Returns true if everybody may write to the directory, as to `/tmp`.
pub(crate) fn is_shared(dir: &Path) -> bool {
    dir.metadata().is_ok_and(|found| sys::mode(&found) & 0o1002 == 0o1002)
}

/// Returns true if the path is a directory of this user, and no link.
pub(crate) fn is_own_dir(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && sys::owner(&found) == sys::effective_uid())
}

/// Returns the directories that are directly in this one, in no particular order.
pub(crate) fn subdirs(dir: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(dir)?.flatten();
    Ok(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()))
}

/// Creates a directory with its missing ancestors, and opens it.
pub(crate) fn make_dir(dir: &Path) -> Result<Dir> {
    fs::create_dir_all(dir).map_err(|error| Error::io("make the directory", dir, error))?;
    Dir::open(dir).map_err(|error| Error::io("open", dir, error))
}
