//! System calls on descriptors. No other module names the platform: `linux` is meant for 5.6 and later, `portable` for
//! macOS.
//!
//! A path below a [`Dir`] is resolved by the kernel without following links and without leaving the directory
//! (`openat2`; component by component with `O_NOFOLLOW` if there is only one or that call is missing). A link that
//! replaced a directory cannot redirect a read or a write.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use memmap2::MmapMut;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

mod beneath;
mod change;
mod files;
mod process;

#[cfg(all(target_os = "linux", not(piton_portable)))]
#[path = "linux.rs"]
mod platform;
#[cfg(any(not(target_os = "linux"), piton_portable))]
#[path = "portable.rs"]
mod platform;

pub(crate) use change::{SwapResult, flush_written, set_file_mode, set_file_mtime, set_mtime, swap_paths};
pub(crate) use files::{
    DirIdentity, create_dir, file_identity, link_count, mode, name_from_bytes, owner, path_bytes, path_from_bytes,
    permissions, read_exact_at, symlink,
};
pub use process::host_name;
pub(crate) use process::{boot_id, effective_uid, is_open_anywhere, is_running, lock_holders};

/// Type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Link,
    Dir,
    /// Socket, FIFO or device.
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

/// Stat data of one file. Equal values mean an unchanged file, within the limits described in the stat cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: Kind,
    /// Permission bits, including set-id and sticky bits.
    pub(crate) mode: u16,
    pub(crate) size: u64,
    pub(crate) mtime: FileTime,
    pub(crate) ctime: FileTime,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// Number of hard links.
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Stat {
    /// The types of the fields differ by platform.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "nanoseconds and permission bits are few, and device numbers are only compared"
    )]
    #[allow(
        clippy::unnecessary_cast,
        clippy::unnecessary_fallible_conversions,
        clippy::useless_conversion,
        reason = "on other platforms it is a conversion, or one that can fail"
    )]
    fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            kind: Kind::of(FileType::from_raw_mode(stat.st_mode)).unwrap_or(Kind::Special),
            mode: (stat.st_mode & 0o7777) as u16,
            size: stat.st_size.cast_unsigned(),
            mtime: FileTime { secs: stat.st_mtime.into(), nanos: stat.st_mtime_nsec as u32 },
            ctime: FileTime { secs: stat.st_ctime.into(), nanos: stat.st_ctime_nsec as u32 },
            dev: stat.st_dev as u64,
            ino: stat.st_ino.into(),
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }

    /// Returns 0 for the permission bits of a plain file, 1 for those of an executable one, and `None` for anything
    /// that is not a file.
    pub(crate) fn mode_class(&self) -> Option<usize> {
        (self.kind == Kind::File).then_some(usize::from(self.mode & 0o100 != 0))
    }
}

/// Time of a change to a file, as file systems record it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileTime {
    pub(crate) secs: i64,
    pub(crate) nanos: u32,
}

impl FileTime {
    pub(crate) fn as_nanos(self) -> i128 {
        i128::from(self.secs) * 1_000_000_000 + i128::from(self.nanos)
    }

    /// Returns the present time. No file that changed before has a later one.
    pub(crate) fn now() -> Self {
        Self::of_clock(ClockId::Realtime)
    }

    fn of_clock(clock: ClockId) -> Self {
        let time = clock_gettime(clock);
        Self { secs: time.tv_sec, nanos: u32::try_from(time.tv_nsec).unwrap_or(0) }
    }

    /// Waits until every file that changes is given a later time than this one: file systems take their times from a
    /// clock that is some milliseconds behind. Gives up after a second, if the clock was set back.
    pub(crate) fn wait_until_past(self) {
        for _ in 0..1_000 {
            if platform::file_clock() > self {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Open directory.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

impl Dir {
    /// Opens a directory by path, following links: only for paths chosen by the user or the caller.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Returns a placeholder for a missing directory: every lookup below it fails with an error for which [`is_gone`]
    /// holds.
    pub(crate) fn missing() -> io::Result<Self> {
        Ok(Self(rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens a directory below this one. The empty path is this directory itself.
    pub(crate) fn open_dir(&self, path: &[u8]) -> io::Result<Self> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        beneath::open(self.0.as_fd(), path, flags).map(Self)
    }

    /// Opens a file below this directory for reading. Does not block on a FIFO that replaced a file.
    pub(crate) fn open_file(&self, path: &[u8]) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        beneath::open(self.0.as_fd(), path, flags).map(File::from)
    }

    /// Calls `each` for every name in this directory, in no particular order, with its kind if the file system provides
    /// it.
    pub(crate) fn for_each(
        &self,
        buffer: &mut Vec<MaybeUninit<u8>>,
        each: impl FnMut(&[u8], Option<Kind>),
    ) -> io::Result<()> {
        platform::for_each(&self.0, buffer, each)
    }

    /// Returns the stat data of a name in this directory. Does not follow a link.
    pub(crate) fn stat_at(&self, name: &CStr) -> io::Result<Stat> {
        stat_at(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Returns the stat data of this directory.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        platform::stat_fd(&self.0)
    }

    /// Returns the target of a link in this directory.
    pub(crate) fn read_link(&self, name: &CStr) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }
}

/// Returns true if opening a path failed because it is missing or was replaced by something else.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR))
}

/// Returns true if a hard link failed because it is not possible or not allowed, so that only a copy is left.
pub(crate) fn cannot_link(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::XDEV | Errno::PERM | Errno::ACCESS | Errno::MLINK | Errno::NOTSUP | Errno::NOSYS))
}

/// Returns true if opening a path failed because this process or the system has no more descriptors or memory.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Opens a file for appending. Creates it with owner-only permissions if it is missing. Does not follow a link at the
/// end of the path, and does not block on a FIFO.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags | OFlags::NOCTTY, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens a lock file. Creates it with owner-only permissions if it is missing. Does not follow a link at the end of the
/// path.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Returns the stat data of an open file.
pub(crate) fn stat_file(file: &File) -> io::Result<Stat> {
    platform::stat_fd(file)
}

/// Returns the stat data at a path. Does not follow a link at its end.
pub(crate) fn stat_path(path: &Path) -> io::Result<Stat> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    stat_at(rustix::fs::CWD, &path, AtFlags::SYMLINK_NOFOLLOW)
}

fn stat_at(dir: impl AsFd, name: &CStr, flags: AtFlags) -> io::Result<Stat> {
    Ok(Stat::of(&rustix::fs::statat(dir, name, flags)?))
}

/// Copies the contents of a file to an empty one. Large holes stay holes.
pub(crate) fn copy_contents(to: &File, from: &File) -> io::Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    platform::copy_contents(to, from, size)
}

/// Writes an open file or directory to the disk, on every file system. `File::sync_all` fails on macOS where the file
/// system cannot empty the cache of the disk, as on network file systems.
pub fn sync_file(file: &File) -> io::Result<()> {
    platform::sync_file(file)
}

/// Space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    /// Available to this user.
    pub(crate) free_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// Returns the space of the file system of a path.
pub(crate) fn disk_space(path: &Path) -> io::Result<DiskSpace> {
    let found = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(DiskSpace { free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) })
}

/// Returns true if the path is known to be on a network file system.
pub(crate) fn is_on_network(path: &Path) -> bool {
    platform::is_on_network(path)
}

/// Asks for huge pages where the platform has them. Best effort.
pub(crate) fn prefer_huge_pages(memory: &MmapMut) {
    platform::prefer_huge_pages(memory);
}

/// Returns permission bits as the system calls take them.
#[allow(clippy::useless_conversion, reason = "on Linux it is a conversion")]
fn file_mode(bits: u16) -> Mode {
    Mode::from_raw_mode(bits.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;

    /// Copies a file, and returns the bytes that the copy occupies.
    fn copied(from: &File) -> u64 {
        let to = tempfile::tempfile().expect("a file");
        copy_contents(&to, from).expect("a copy");
        let read = |file: &File| {
            let mut bytes = vec![0; usize::try_from(file.metadata().expect("a file").len()).expect("it is small")];
            file.read_exact_at(&mut bytes, 0).expect("its contents");
            bytes
        };
        assert!(read(from) == read(&to), "the copy differs");
        to.metadata().expect("a file").blocks() * 512
    }

    #[test]
    fn a_copy_has_the_same_bytes_and_the_large_holes() {
        const SIZE: u64 = 8 << 20;
        let file = || tempfile::tempfile().expect("a file");
        copied(&file());
        let mut plain = file();
        plain.write_all(&vec![b'x'; 200_001]).expect("it is written");
        assert!(copied(&plain) >= 200_001);
        for ends_in_hole in [false, true] {
            let sparse = file();
            sparse.set_len(SIZE).expect("a hole");
            sparse.write_all_at(b"data", 3 << 20).expect("it is written");
            if !ends_in_hole {
                sparse.write_all_at(b"end", SIZE - 3).expect("it is written");
            }
            assert!(copied(&sparse) < SIZE / 4);
        }
    }

    #[cfg(any(not(target_os = "linux"), piton_portable))]
    #[test]
    fn holes_are_found_by_their_zeros() {
        let mut zeros = tempfile::tempfile().expect("a file");
        zeros.write_all(&vec![0; 4 << 20]).and_then(|()| zeros.write_all(b"end")).expect("it is written");
        assert!(copied(&zeros) < 1 << 20);
    }
}
