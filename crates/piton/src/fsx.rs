//! Small files and directories, written so that nobody ever sees half of one.
//!
//! - F1. A file that is replaced holds the old bytes or the new ones, never a mixture and never nothing.
//! - F2. Everything made here is readable by its owner alone.
//! - F3. A temporary name starts with `tmp_`, so that a sweep can tell it from everything else.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use memmap2::{Advice, MmapMut};
use tempfile::{NamedTempFile, TempPath};

use crate::error::{Error, Result};
use crate::sys::{self, Swapped};
use crate::time::Moment;

const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// What every temporary name starts with.
pub(crate) const TEMP_PREFIX: &str = "tmp_";

/// Whether new bytes must be on the disk before the call returns, or may be lost with the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Synced, and so is the directory.
    Synced,
    /// Whatever it holds can be made again.
    Rebuildable,
}

/// Makes an empty temporary file in `dir`, removed again unless it is kept.
pub(crate) fn temp_file(dir: &Path) -> Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(TEMP_PREFIX)
        .permissions(Permissions::from_mode(FILE_MODE))
        .tempfile_in(dir)
        .map_err(|error| Error::io("make a temporary file in", dir, error))
}

/// Renames a temporary file over `path`.
pub(crate) fn persist(temp: TempPath, path: &Path) -> Result<()> {
    temp.persist(path).map_err(|error| Error::io("replace", path, error.error))
}

/// The same for a large file that can be made again. Some file systems write out whatever is renamed over another file,
/// which takes longer than all before it: the two change places instead, and the old one goes.
pub(crate) fn persist_large(temp: TempPath, path: &Path) -> Result<()> {
    match sys::swap_paths(&temp, path) {
        Ok(Swapped::Done) => Ok(()),
        _ => persist(temp, path),
    }
}

/// Replaces the file at `path` as a whole.
pub(crate) fn replace(path: &Path, bytes: &[u8], durability: Durability) -> Result<()> {
    let dir = parent(path);
    let mut temp = temp_file(dir)?;
    temp.write_all(bytes).map_err(|error| Error::io("write", path, error))?;
    if durability == Durability::Synced {
        temp.as_file().sync_all().map_err(|error| Error::io("sync", path, error))?;
    }
    persist(temp.into_temp_path(), path)?;
    match durability {
        Durability::Synced => sync_dir(dir),
        Durability::Rebuildable => Ok(()),
    }
}

/// Makes a file as a whole, unless there is one. Says whether it did.
pub(crate) fn place(path: &Path, bytes: &[u8]) -> Result<bool> {
    let mut temp = temp_file(parent(path))?;
    temp.write_all(bytes).map_err(|error| Error::io("write", path, error))?;
    match temp.into_temp_path().persist_noclobber(path) {
        Ok(()) => Ok(true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::io("make", path, error.error)),
    }
}

/// Makes the names in a directory outlive a power cut.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    // Set for the self-test of `cargo xtask powercut`, which must notice that names are lost.
    if cfg!(piton_lose_syncs) {
        return Ok(());
    }
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| Error::io("sync", dir, error))
}

/// Makes a directory for the owner alone, and its name durable. One that exists stays as it is.
pub(crate) fn ensure_dir(dir: &Path) -> Result<()> {
    let make = || fs::DirBuilder::new().mode(DIR_MODE).create(dir);
    let made = match make() {
        // Once more, and not until it works: in `/proc`, or below a link that leads nowhere, it never does.
        Err(error) if error.kind() == io::ErrorKind::NotFound && dir.parent().is_some() => {
            ensure_dir(parent(dir))?;
            make()
        }
        made => made,
    };
    match made {
        Ok(()) => sync_dir(parent(dir)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::io("make the directory", dir, error)),
    }
}

/// Reads a file of at most `bytes_max` bytes; `None` where there is none. A longer one is damaged, not read.
pub(crate) fn read_small(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let Some((mut file, _)) = open_at_most(path, bytes_max)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| Error::io("read", path, error))?;
    if bytes.len() as u64 > bytes_max { Err(too_long(path, bytes_max)) } else { Ok(Some(bytes)) }
}

/// The same for a file that may be large and that nobody writes to. Most of the time would go into memory that was not
/// there before: it comes in large pages, where the system has them. One that gets shorter meanwhile is an error.
pub(crate) fn read_large(path: &Path, bytes_max: u64) -> Result<Option<MmapMut>> {
    let Some((file, size)) = open_at_most(path, bytes_max)? else { return Ok(None) };
    let size = usize::try_from(size).map_err(|_| too_long(path, bytes_max))?;
    let read = MmapMut::map_anon(size).and_then(|mut bytes| {
        // A help.
        let _ = bytes.advise(Advice::HugePage);
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    });
    read.map(Some).map_err(|error| Error::io("read", path, error))
}

/// Opens a file, and says how long it is. `None` where there is none.
fn open_at_most(path: &Path, bytes_max: u64) -> Result<Option<(File, u64)>> {
    match File::open(path).and_then(|file| Ok((file.metadata()?.len(), file))) {
        Ok((size, _)) if size > bytes_max => Err(too_long(path, bytes_max)),
        Ok((size, file)) => Ok(Some((file, size))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

fn too_long(path: &Path, bytes_max: u64) -> Error {
    Error::damaged(format!("read {}", path.display()), format!("it is longer than {bytes_max} bytes"))
        .with_hint("piton writes no such file; move it away, then try again")
}

/// Removes a file; one that is not there is fine.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// Removes everything in a directory whose name begins so.
pub(crate) fn remove_beginning_with(prefix: &str, dir: &Path) -> Result<()> {
    for name in names_in(dir)?.iter().filter(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
        let path = dir.join(name);
        if path.is_dir() {
            fs::remove_dir_all(&path).map_err(|error| Error::io("remove", &path, error))?;
        } else {
            remove_file(&path)?;
        }
    }
    Ok(())
}

/// The first of these that nothing stands at. What cannot be looked at may be something.
pub(crate) fn first_free(mut places: impl Iterator<Item = PathBuf>) -> Result<PathBuf> {
    loop {
        let place = places.next().expect("there is no end of names");
        if !is_there(&place)? {
            return Ok(place);
        }
    }
}

/// Returns whether anything stands at a path, a link that leads nowhere included.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if sys::is_gone(&error) => Ok(false),
        Err(error) => Err(Error::io("look at", path, error)),
    }
}

/// Returns whether what stands at a path, a link itself, was last written to more than so many seconds ago. What cannot be looked at
/// was not.
pub(crate) fn is_older(path: &Path, than_secs: i128, now: Moment) -> bool {
    let is_older = |stat: sys::Stat| now.as_nanos() - stat.mtime.as_nanos() > than_secs * 1_000_000_000;
    sys::stat_path(path).is_ok_and(is_older)
}

/// Returns whether a directory stands at a path, links followed.
pub(crate) fn is_dir(path: &Path) -> Result<bool> {
    Ok(look_at(path)?.is_some_and(|found| found.is_dir()))
}

/// The names in a directory, sorted; none where there is no such directory.
pub(crate) fn names_in(dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", dir, error)),
    };
    let mut names = entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|error| Error::io("list", dir, error))?;
    names.sort();
    Ok(names)
}

/// What stands at a path, links followed; `None` where nothing does. What cannot be looked at is an error and no absence:
/// whoever makes what is missing would make it in place of what is there.
pub(crate) fn look_at(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("look at", path, error)),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path that something missing would have with every link resolved: that of the nearest directory that exists, and
/// the remaining names. `None` if it is there, cannot be looked at, or has `..` after the part that exists.
pub(crate) fn canonical_of_missing(path: &Path) -> Option<PathBuf> {
    let mut missing = Vec::new();
    let mut ancestors = path.ancestors();
    let around = loop {
        let here = ancestors.next()?;
        match fs::symlink_metadata(here) {
            Ok(_) => break fs::canonicalize(here).ok()?,
            Err(error) if sys::is_gone(&error) => missing.push(here.file_name()?),
            Err(_) => return None,
        }
    };
    (!missing.is_empty()).then(|| missing.iter().rev().fold(around, |path, name| path.join(name)))
}

/// The path with every link in it resolved, of something that exists.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| Error::io("find", path, error))
}
