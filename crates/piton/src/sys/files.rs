//! What the standard library offers on Unix only: paths as bytes, and the modes, owners and identities of files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Returns a path as the bytes that the system sees.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Returns the path with these bytes.
pub(crate) fn path_from_bytes(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

/// Returns the file name with these bytes.
pub(crate) fn name_from_bytes(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Fills the buffer from this offset of a file, without moving its position.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Returns the device and the inode of a file, which no other existing file has.
pub(crate) fn file_identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Identity of a directory and of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirIdentity {
    /// Device of the directory, or of its parent if the directory is missing.
    pub(crate) device: u64,
    /// Permission bits. `None` if the directory is missing.
    pub(crate) mode: Option<u16>,
    /// Device and inode of its parent.
    pub(crate) parent: (u64, u64),
}

/// Returns the user who owns a file.
pub(crate) fn owner(found: &Metadata) -> u32 {
    found.uid()
}

/// Returns the permission bits of a file, with set-user-id, set-group-id and sticky bit.
pub(crate) fn mode(found: &Metadata) -> u32 {
    found.mode() & 0o7777
}

/// Returns the number of names of a file.
pub(crate) fn link_count(found: &Metadata) -> u64 {
    found.nlink()
}

/// Returns permissions with these bits.
pub(crate) fn permissions(mode: u32) -> Permissions {
    Permissions::from_mode(mode)
}

/// Creates a directory with these permission bits.
pub(crate) fn create_dir(dir: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).create(dir)
}

/// Creates a symbolic link.
pub(crate) fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}
