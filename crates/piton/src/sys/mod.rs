//! System calls on descriptors: the only place that names the platform, which is Linux 5.6 and later.
//!
//! A path below a [`Dir`] is resolved by the kernel without following any link and without leaving the directory
//! (`openat2`; component by component with `O_NOFOLLOW` where there is but one or that call is missing), so that a link
//! planted where a directory was cannot lead a read or a write astray.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, statat};

mod beneath;
mod change;
mod process;

pub(crate) use change::{Swapped, set_file_mode, set_mtime, swap_paths};
pub(crate) use process::{boot_id, effective_uid, host_name, is_open_anywhere, is_running, lock_holders};

/// What stands under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Link,
    Dir,
    /// A socket, a FIFO or a device.
    Special,
}

impl Kind {
    fn of(file_type: FileType) -> Option<Self> {
        match file_type {
            FileType::RegularFile => Some(Self::File),
            FileType::Symlink => Some(Self::Link),
            FileType::Directory => Some(Self::Dir),
            FileType::Unknown => None,
            _ => Some(Self::Special),
        }
    }
}

/// What the file system says of one file. Two equal ones mean an unchanged file, within the limits that the stat cache
/// knows about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: Kind,
    /// Permission bits, set-id and sticky bits included.
    pub(crate) mode: u16,
    pub(crate) size: u64,
    pub(crate) mtime: FileTime,
    pub(crate) ctime: FileTime,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// How many names it has.
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Stat {
    /// Returns whether its permission bits are those of a plain file (0) or an executable one (1). None of anything else.
    pub(crate) fn mode_class(&self) -> Option<usize> {
        (self.kind == Kind::File).then_some(usize::from(self.mode & 0o100 != 0))
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileTime {
    pub(crate) secs: i64,
    pub(crate) nanos: u32,
}

impl FileTime {
    pub(crate) fn as_nanos(self) -> i128 {
        i128::from(self.secs) * 1_000_000_000 + i128::from(self.nanos)
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory by its path, following links: only for paths that the user or the caller chose.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Stands for a directory that does not exist: every lookup below it fails with an error for which [`is_gone`] holds.
    pub(crate) fn missing() -> io::Result<Self> {
        Ok(Self(rustix::fs::open(c"/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens a directory below this one. The empty path is this one itself.
    pub(crate) fn open_dir(&self, path: &[u8]) -> io::Result<Self> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        beneath::open(self.0.as_fd(), path, flags).map(Self)
    }

    /// Opens a file below this one for reading. Does not wait for the other end of a FIFO that took a file's place.
    pub(crate) fn open_file(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        beneath::open(self.0.as_fd(), path, flags).map(File::from)
    }

    /// Calls `each` for every name in this directory, in no order, with its kind where the directory tells.
    pub(crate) fn for_each(
        &self,
        buffer: &mut Vec<MaybeUninit<u8>>,
        mut each: impl FnMut(&[u8], Option<Kind>),
    ) -> io::Result<()> {
        buffer.resize(64 * 1024, MaybeUninit::uninit());
        let mut entries = RawDir::new(self.0.as_fd(), buffer.as_mut_slice());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                each(name, Kind::of(entry.file_type()));
            }
        }
        Ok(())
    }

    /// What stands under a name in this directory itself. Links are not followed.
    pub(crate) fn stat_at(&self, name: &CStr) -> io::Result<Stat> {
        stat_at(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// What this directory is.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        stat_at(&self.0, c"", AtFlags::EMPTY_PATH)
    }

    /// Where a link in this directory leads.
    pub(crate) fn read_link(&self, name: &CStr) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }
}

/// Returns whether opening a path failed because something else stands there by now, or nothing.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR))
}

/// Returns whether opening a path failed because this process or the system has no room for another descriptor.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Opens a file of the owner's alone to write at its end, making it where it is missing. Follows no link at the end of the
/// path, and does not wait for the other end of a FIFO.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags | OFlags::NOCTTY, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens a file of the owner's alone that exists only to be locked, making it where it is missing. Follows no link at the
/// end of the path.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// What an open file is.
pub(crate) fn stat_file(file: &File) -> io::Result<Stat> {
    stat_at(file, c"", AtFlags::EMPTY_PATH)
}

/// What stands at a path; a link at its end is not followed.
pub(crate) fn stat_path(path: &Path) -> io::Result<Stat> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    stat_at(rustix::fs::CWD, &path, AtFlags::SYMLINK_NOFOLLOW)
}

fn stat_at(dir: impl AsFd, name: &CStr, flags: AtFlags) -> io::Result<Stat> {
    let stat = statat(dir, name, flags)?;
    #[expect(clippy::cast_possible_truncation, reason = "nanoseconds, and permission bits, are not that many")]
    let (time, mode) = (|secs, nanos: u64| FileTime { secs, nanos: nanos as u32 }, (stat.st_mode & 0o7777) as u16);
    Ok(Stat {
        kind: Kind::of(FileType::from_raw_mode(stat.st_mode)).unwrap_or(Kind::Special),
        mode,
        size: stat.st_size.cast_unsigned(),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        dev: stat.st_dev,
        ino: stat.st_ino,
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
    })
}
