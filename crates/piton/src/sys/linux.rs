//! System calls that only Linux has. `portable` has the same functions for other systems.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use memmap2::{Advice, MmapMut};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, ResolveFlags, SeekFrom};
use rustix::io::Errno;
use rustix::time::ClockId;

use super::{Dir, FileTime, Kind, Stat, file_mode, stat_at};

/// Opens the path with `openat2`. Returns `None` if the kernel or a sandbox does not allow the call.
pub(super) fn open_at_once(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<Option<OwnedFd>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        return match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
            Ok(opened) => Ok(Some(opened)),
            // EAGAIN: a concurrent rename kept the kernel from verifying the path.
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(Errno::NOSYS | Errno::PERM) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
}

/// Returns the stat data of an open file. Makes the system call that [`stat_at`] makes for a name.
pub(super) fn stat_fd(file: impl AsFd) -> io::Result<Stat> {
    stat_at(file, c"", AtFlags::EMPTY_PATH)
}

/// Calls `each` for every name in a directory but `.` and `..`, with its kind if the file system provides it.
pub(super) fn for_each(
    dir: &OwnedFd,
    buffer: &mut Vec<MaybeUninit<u8>>,
    mut each: impl FnMut(&[u8], Option<Kind>),
) -> io::Result<()> {
    buffer.resize(64 * 1024, MaybeUninit::uninit());
    let mut entries = RawDir::new(dir.as_fd(), buffer.as_mut_slice());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            each(name, Kind::of(entry.file_type()));
        }
    }
    Ok(())
}

/// Sets the permission bits of a name in a directory if `is_it` accepts its stat data. Does not follow a link.
pub(super) fn set_mode_of(dir: &OwnedFd, name: &[u8], bits: u16, is_it: impl Fn(&Stat) -> bool) -> io::Result<bool> {
    let opened = rustix::fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if !is_it(&stat_fd(&opened)?) {
        return Ok(false);
    }
    // The mode cannot be changed through an `O_PATH` descriptor directly.
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    rustix::fs::chmodat(CWD, path, file_mode(bits), AtFlags::empty())?;
    Ok(true)
}

/// Does nothing: [`sync_file_system`] flushes the contents of every file.
#[expect(clippy::unnecessary_wraps, reason = "it fails on other systems")]
pub(super) fn flush_written(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Flushes the file system of a directory to disk.
pub(super) fn sync_file_system(dir: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(dir)?)
}

/// Creates a file that shares the contents of another one. Returns `None` if that is not possible.
pub(super) fn create_clone(dir: &Dir, name: &[u8], from: &File) -> io::Result<Option<File>> {
    let made = dir.create(name)?;
    if rustix::fs::ioctl_ficlone(&made, from).is_ok() {
        return Ok(Some(made));
    }
    dir.remove(name)?;
    Ok(None)
}

/// Copies the contents of a file to one of the same size that is all hole. Holes stay holes where the file system knows
/// them.
pub(super) fn copy_contents(mut to: &File, mut from: &File, size: u64) -> io::Result<()> {
    let mut at = 0;
    while at < size {
        let (start, end) = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(start) => (start, rustix::fs::seek(from, SeekFrom::Hole(start))?),
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::NOTSUP | Errno::NOTTY) => (at, size),
            Err(error) => return Err(error.into()),
        };
        from.seek(io::SeekFrom::Start(start))?;
        to.seek(io::SeekFrom::Start(start))?;
        io::copy(&mut from.take(end - start), &mut to)?;
        at = end;
    }
    Ok(())
}

/// Writes a file to the disk.
pub(super) fn sync_file(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Returns true if the path is known to be on a network file system.
pub(super) fn is_on_network(path: &Path) -> bool {
    // NFS, SMB, CIFS, SMB2, AFS, Coda, 9P, Ceph.
    const MAGIC: [u32; 8] =
        [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x5346_414F, 0x7375_7245, 0x0102_1997, 0x00C3_6400];
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "magic numbers have 32 bits")]
    rustix::fs::statfs(path).is_ok_and(|found| MAGIC.contains(&(found.f_type as u32)))
}

/// Asks for huge pages. Best effort.
pub(super) fn prefer_huge_pages(memory: &MmapMut) {
    let _ = memory.advise(Advice::HugePage);
}

/// Returns the time that file systems give to a file that changes now.
pub(super) fn file_clock() -> FileTime {
    FileTime::of_clock(ClockId::RealtimeCoarse)
}
