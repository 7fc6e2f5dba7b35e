//! The functions of `linux` for other systems, with calls that every Unix has, and with calls of macOS where those are
//! not enough.
//!
//! `--cfg piton_portable` selects this file on Linux, so that every test can run on it.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use memmap2::MmapMut;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Dir, FileTime, Kind, Stat, file_mode, stat_at};

/// Size of the blocks in which contents are copied.
const BLOCK_BYTES: usize = 64 << 10;
/// Longest time by which the times of files are behind the clock.
const FILE_CLOCK_STEP_NANOS: u32 = 10_000_000;

/// Returns `None`: the path is opened component by component.
#[expect(clippy::unnecessary_wraps, reason = "it opens the path on Linux")]
pub(super) fn open_at_once(_dir: BorrowedFd<'_>, _path: &[u8], _flags: OFlags) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Returns the stat data of an open file.
pub(super) fn stat_fd(file: impl AsFd) -> io::Result<Stat> {
    Ok(Stat::of(&rustix::fs::fstat(file)?))
}

/// Calls `each` for every name in a directory but `.` and `..`, with its kind if the file system provides it. The buffer
/// is not used.
pub(super) fn for_each(
    dir: &OwnedFd,
    _buffer: &mut Vec<MaybeUninit<u8>>,
    mut each: impl FnMut(&[u8], Option<Kind>),
) -> io::Result<()> {
    let mut entries = rustix::fs::Dir::read_from(dir)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            each(name, Kind::of(entry.file_type()));
        }
    }
    Ok(())
}

/// Sets the permission bits of a name in a directory if `is_it` accepts its stat data. Does not follow a link. Between
/// the check and the change, an unreadable file can be replaced by another one, which then gets the bits.
pub(super) fn set_mode_of(dir: &OwnedFd, name: &[u8], bits: u16, is_it: impl Fn(&Stat) -> bool) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(opened) if is_it(&stat_fd(&opened)?) => rustix::fs::fchmod(&opened, file_mode(bits))?,
        Ok(_) => return Ok(false),
        Err(Errno::ACCESS) => {
            let path = std::ffi::CString::new(name)?;
            if !is_it(&stat_at(dir, &path, AtFlags::SYMLINK_NOFOLLOW)?) {
                return Ok(false);
            }
            rustix::fs::chmodat(dir, name, file_mode(bits), NO_FOLLOW_IN_CHMOD)?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// The C libraries of Linux and rustix reject the flag. There, this file is only tested.
const NO_FOLLOW_IN_CHMOD: AtFlags =
    if cfg!(target_os = "linux") { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };

/// Writes the contents of a file to the disk: there is no call that does it for a whole file system. On macOS, they may
/// stay in the cache of the disk until [`sync_file_system`].
pub(super) fn flush_written(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fsync(file)?)
}

/// Flushes what was handed to the disk of this directory.
pub(super) fn sync_file_system(dir: &OwnedFd) -> io::Result<()> {
    sync(dir)
}

/// Writes a file to the disk.
pub(super) fn sync_file(file: &File) -> io::Result<()> {
    sync(file)
}

/// Writes a file or directory to the disk, and empties the cache of the disk where that is a call of its own. The
/// standard library fails where that call is missing.
fn sync(fd: impl AsFd) -> io::Result<()> {
    #[cfg(target_vendor = "apple")]
    match rustix::fs::fcntl_fullfsync(&fd) {
        // Network file systems do not have it.
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NOTTY) => {}
        done => return Ok(done?),
    }
    Ok(rustix::fs::fsync(fd)?)
}

/// Copies the contents of a file to one of the same size that is all hole. Blocks of zeros become holes: APFS reports
/// holes where there is data that is not written yet, so that it cannot be asked for them.
pub(super) fn copy_contents(to: &File, from: &File, size: u64) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = 0;
    while at < size {
        let wanted = usize::try_from(size - at).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        let read = match from.read_at(&mut block[..wanted], at) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if block[..read].iter().any(|byte| *byte != 0) {
            to.write_all_at(&block[..read], at)?;
        }
        at += read as u64;
    }
    Ok(())
}

/// Creates a file that shares the contents of another one. Returns `None` if that is not possible.
#[cfg(target_vendor = "apple")]
pub(super) fn create_clone(dir: &Dir, name: &[u8], from: &File) -> io::Result<Option<File>> {
    match rustix::fs::fclonefileat(from, &dir.0, name, rustix::fs::CloneFlags::NOOWNERCOPY) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(Errno::EXIST.into()),
        Err(_) => return Ok(None),
    }
    // The clone has the mode of the original, which may not permit writing.
    let opened = rustix::fs::chmodat(&dir.0, name, file_mode(0o600), AtFlags::SYMLINK_NOFOLLOW).and_then(|()| {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&dir.0, name, flags, Mode::empty())
    });
    if opened.is_err() {
        dir.remove(name)?;
    }
    Ok(opened.ok().map(File::from))
}

/// Returns `None`: there is no call that every system has.
#[cfg(not(target_vendor = "apple"))]
#[expect(clippy::unnecessary_wraps, reason = "it clones on other systems")]
pub(super) fn create_clone(_dir: &Dir, _name: &[u8], _from: &File) -> io::Result<Option<File>> {
    Ok(None)
}

/// Returns false: file systems have no number that is the same on every system.
pub(super) fn is_on_network(_path: &Path) -> bool {
    false
}

/// Does nothing: huge pages cannot be asked for.
pub(super) fn prefer_huge_pages(_memory: &MmapMut) {}

/// Returns a time that is not later than the one that file systems give to a file that changes now: they may take it
/// from a clock that advances a hundred times a second.
pub(super) fn file_clock() -> FileTime {
    let now = FileTime::now();
    let (secs, nanos) = match now.nanos.checked_sub(FILE_CLOCK_STEP_NANOS) {
        Some(nanos) => (now.secs, nanos),
        None => (now.secs - 1, now.nanos + 1_000_000_000 - FILE_CLOCK_STEP_NANOS),
    };
    FileTime { secs, nanos }
}
