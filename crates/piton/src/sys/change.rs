//! Changing directory entries by descriptor, without following links.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, utimensat};
use rustix::io::Errno;

use super::{Dir, Stat, file_mode, platform};

/// Result of [`Dir::swap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SwapResult {
    Done,
    /// The file system cannot swap atomically.
    Unsupported,
}

/// Like [`Dir::swap`], for two paths.
pub(crate) fn swap_paths(one: &Path, other: &Path) -> io::Result<SwapResult> {
    swapped(rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE))
}

fn swapped(done: rustix::io::Result<()>) -> io::Result<SwapResult> {
    match done {
        Ok(()) => Ok(SwapResult::Done),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(SwapResult::Unsupported),
        Err(error) => Err(error.into()),
    }
}

impl Dir {
    /// Creates a file. Fails if it exists.
    pub(crate) fn create(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, file_mode(0o600))?.into())
    }

    /// Creates a file that shares the contents of another one without copying them; only its owner can read it. Creates
    /// nothing and returns `None` if the file system cannot do that, or not between these two. Fails if the name exists.
    pub(crate) fn create_clone(&self, name: &[u8], from: &File) -> io::Result<Option<File>> {
        platform::create_clone(self, name, from)
    }

    /// Creates a link. Fails if it exists.
    pub(crate) fn create_link(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    /// Gives a file of another directory a second name in this one. Does not follow a link, and fails if the name exists.
    pub(crate) fn hard_link_from(&self, from: &Self, name: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::linkat(&from.0, name, &self.0, to, AtFlags::empty())?)
    }

    /// Renames a file, and replaces one that has the new name.
    pub(crate) fn rename_over(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    pub(crate) fn make_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, file_mode(0o700))?)
    }

    pub(crate) fn remove(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes a directory. Fails if it is not empty.
    pub(crate) fn remove_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Renames a file. Fails if the new name exists.
    pub(crate) fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE) {
            // If the file system does not support the flag, a hard link, which must not exist, has the same effect.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                rustix::fs::linkat(&self.0, from, &self.0, to, AtFlags::empty())?;
                self.remove(from)
            }
            done => Ok(done?),
        }
    }

    /// Renames to a name that no other program would choose. Atomic on every file system: no later version of the file
    /// can take its place in between and be lost.
    pub(crate) fn rename_to_unused(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?),
            done => Ok(done?),
        }
    }

    /// Swaps two names atomically, so that neither is ever missing.
    pub(crate) fn swap(&self, one: &[u8], other: &[u8]) -> io::Result<SwapResult> {
        swapped(rustix::fs::renameat_with(&self.0, one, &self.0, other, RenameFlags::EXCHANGE))
    }

    /// Sets the permission bits of a file or directory, if `is_it` accepts its stat data. Returns true if they were
    /// set. A link has none; one that replaced the file is not followed.
    pub(crate) fn set_mode_of(&self, name: &[u8], bits: u16, is_it: impl Fn(&Stat) -> bool) -> io::Result<bool> {
        platform::set_mode_of(&self.0, name, bits, is_it)
    }

    /// Sets the permission bits of this directory.
    pub(crate) fn set_mode(&self, bits: u16) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.0, file_mode(bits))?)
    }

    /// Flushes this file system to disk. Where the platform cannot, flushes what went through [`flush_written`].
    pub(crate) fn sync_file_system(&self) -> io::Result<()> {
        platform::sync_file_system(&self.0)
    }
}

/// Sets the mtime of the file at a path. Does not follow a link.
pub(crate) fn set_mtime(path: &Path, secs: i64) -> io::Result<()> {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: omitted, last_modification: Timespec { tv_sec: secs, tv_nsec: 0 } };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Sets the mtime of an open file.
pub(crate) fn set_file_mtime(file: &File, mtime: super::FileTime) -> io::Result<()> {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.into() };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: omitted, last_modification })?)
}

/// Sets the permission bits of an open file.
pub(crate) fn set_file_mode(file: &File, bits: u16) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, file_mode(bits))?)
}

/// Prepares the contents of a new file for [`Dir::sync_file_system`].
pub(crate) fn flush_written(file: &File) -> io::Result<()> {
    platform::flush_written(file)
}
