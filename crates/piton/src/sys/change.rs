//! Changing what is in a directory, by descriptor: nothing here follows a link.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, utimensat};
use rustix::io::Errno;

use super::{Dir, Stat, stat_at};

/// What [`Dir::swap`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swapped {
    Done,
    /// This file system cannot do it in one step.
    Unsupported,
}

/// The same as [`Dir::swap`] for two paths of ours.
pub(crate) fn swap_paths(one: &Path, other: &Path) -> io::Result<Swapped> {
    swapped(rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE))
}

fn swapped(done: rustix::io::Result<()>) -> io::Result<Swapped> {
    match done {
        Ok(()) => Ok(Swapped::Done),
        Err(Errno::INVAL | Errno::NOSYS) => Ok(Swapped::Unsupported),
        Err(error) => Err(error.into()),
    }
}

fn mode(bits: u16) -> Mode {
    Mode::from_raw_mode(u32::from(bits))
}

impl Dir {
    /// Makes a file that is not there yet.
    pub(crate) fn create(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.0, name, flags, mode(0o600))?.into())
    }

    /// Makes a link that is not there yet.
    pub(crate) fn create_link(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.0, name)?)
    }

    pub(crate) fn make_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.0, name, mode(0o700))?)
    }

    pub(crate) fn remove(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes a directory, if it is empty.
    pub(crate) fn remove_dir(&self, name: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Renames, unless something stands under the new name.
    pub(crate) fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE) {
            // Where the file system does not know the flag, a second name that must not exist does the same.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(&self.0, from, &self.0, to, AtFlags::empty())?;
                self.remove(from)
            }
            done => Ok(done?),
        }
    }

    /// Renames to a name that no other program would choose. In one step everywhere: no later version of the file can
    /// take its place in between and be lost.
    pub(crate) fn rename_to_unused(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?),
            done => Ok(done?),
        }
    }

    /// Exchanges two names in one step, so that neither is missing at any moment.
    pub(crate) fn swap(&self, one: &[u8], other: &[u8]) -> io::Result<Swapped> {
        swapped(rustix::fs::renameat_with(&self.0, one, &self.0, other, RenameFlags::EXCHANGE))
    }

    /// Sets the permission bits of a file or directory, if `is_it` says that it is the one that is meant. A link has
    /// none; one that took the file's place is not followed.
    pub(crate) fn set_mode_of(&self, name: &[u8], bits: u16, is_it: impl FnOnce(&Stat) -> bool) -> io::Result<bool> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        if !is_it(&stat_at(&opened, c"", AtFlags::EMPTY_PATH)?) {
            return Ok(false);
        }
        // Changing the mode through a descriptor that may not read takes this detour.
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        rustix::fs::chmodat(CWD, path, mode(bits), AtFlags::empty())?;
        Ok(true)
    }

    /// Sets the permission bits of this directory.
    pub(crate) fn set_mode(&self, bits: u16) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.0, mode(bits))?)
    }

    /// Puts everything that was written to this file system on the disk.
    pub(crate) fn sync_file_system(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.0)?)
    }
}

/// Sets the time at which the file at a path was last written to. A link is not followed.
pub(crate) fn set_mtime(path: &Path, secs: i64) -> io::Result<()> {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: omitted, last_modification: Timespec { tv_sec: secs, tv_nsec: 0 } };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Sets the permission bits of an open file.
pub(crate) fn set_file_mode(file: &File, bits: u16) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, mode(bits))?)
}
