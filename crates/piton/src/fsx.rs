//! Writing small files and directories atomically.
//!
//! - F1. A replaced file has either the old bytes or the new ones, never a mixture, and is never missing.
//! - F2. Files and directories made here are readable by their owner only.
//! - F3. The name of a temporary file starts with `tmp_`, so that a sweep can recognise it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use memmap2::MmapMut;
use tempfile::{NamedTempFile, TempPath};

use crate::error::{Error, Result};
use crate::sys::{self, SwapResult};
use crate::time::Moment;

const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// Spare room in a buffer, so that a read to the end of a file does not begin with a small probe.
const ROOM_TO_SPARE_BYTES: usize = 64;

/// Prefix of the names of temporary files.
pub(crate) const TEMP_PREFIX: &str = "tmp_";

/// Durability of new bytes when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// File and directory are synced.
    Synced,
    /// May be lost with a power failure: the contents can be rebuilt.
    Rebuildable,
}

/// Creates an empty temporary file in `dir`, which is removed on drop unless it is persisted.
pub(crate) fn temp_file(dir: &Path) -> Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(TEMP_PREFIX)
        .permissions(sys::permissions(FILE_MODE))
        .tempfile_in(dir)
        .map_err(|error| Error::io("make a temporary file in", dir, error))
}

/// Renames a temporary file over `path`.
pub(crate) fn persist(temp: TempPath, path: &Path) -> Result<()> {
    temp.persist(path).map_err(|error| Error::io("replace", path, error.error))
}

/// Like [`persist`], for a large file that can be rebuilt. Some file systems flush a file that is renamed over another
/// one, which takes longer than all the work before it. So the two files swap names, and the old one is removed.
pub(crate) fn persist_large(temp: TempPath, path: &Path) -> Result<()> {
    match sys::swap_paths(&temp, path) {
        Ok(SwapResult::Done) => Ok(()),
        _ => persist(temp, path),
    }
}

/// Replaces the file at `path` atomically.
pub(crate) fn replace(path: &Path, bytes: &[u8], durability: Durability) -> Result<()> {
    let dir = parent(path);
    let mut temp = temp_file(dir)?;
    temp.write_all(bytes).map_err(|error| Error::io("write", path, error))?;
    if durability == Durability::Synced {
        sys::sync_file(temp.as_file()).map_err(|error| Error::io("sync", path, error))?;
    }
    persist(temp.into_temp_path(), path)?;
    match durability {
        Durability::Synced => sync_dir(dir),
        Durability::Rebuildable => Ok(()),
    }
}

/// Creates a complete file atomically, unless one exists. Returns true if it was created.
pub(crate) fn place(path: &Path, bytes: &[u8]) -> Result<bool> {
    let mut temp = temp_file(parent(path))?;
    temp.write_all(bytes).map_err(|error| Error::io("write", path, error))?;
    match temp.into_temp_path().persist_noclobber(path) {
        Ok(()) => Ok(true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::io("make", path, error.error)),
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    // Set by the self-test of `cargo xtask powercut`, which must detect that names are lost.
    if cfg!(piton_lose_syncs) {
        return Ok(());
    }
    File::open(dir).and_then(|dir| sys::sync_file(&dir)).map_err(|error| Error::io("sync", dir, error))
}

/// Creates a directory with owner-only permissions and missing ancestors, and makes its name durable. An existing one
/// is left as it is.
pub(crate) fn ensure_dir(dir: &Path) -> Result<()> {
    let make = || sys::create_dir(dir, DIR_MODE);
    let made = match make() {
        // Retry once only: in `/proc`, or below a dangling link, it never succeeds.
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

/// Reads a file of at most `bytes_max` bytes. Returns `None` if it is missing, and fails with `Damaged` if it is
/// longer.
pub(crate) fn read_small(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let Some((file, size)) = open_at_most(path, bytes_max)? else { return Ok(None) };
    // The spare room lets the second read find the end of the file without another stat.
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + ROOM_TO_SPARE_BYTES);
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| Error::io("read", path, error))?;
    if bytes.len() as u64 > bytes_max { Err(too_long(path, bytes_max)) } else { Ok(Some(bytes)) }
}

/// Like [`read_small`], for a file that may be large and that no process writes to. Most of the time would go into page
/// faults, so the memory comes in huge pages if the system has them. Fails if the file is truncated meanwhile.
pub(crate) fn read_large(path: &Path, bytes_max: u64) -> Result<Option<MmapMut>> {
    let Some((file, size)) = open_at_most(path, bytes_max)? else { return Ok(None) };
    let size = usize::try_from(size).map_err(|_| too_long(path, bytes_max))?;
    let read = MmapMut::map_anon(size).and_then(|mut bytes| {
        sys::prefer_huge_pages(&bytes);
        sys::read_exact_at(&file, &mut bytes, 0)?;
        Ok(bytes)
    });
    read.map(Some).map_err(|error| Error::io("read", path, error))
}

/// Opens a file, and returns it with its size. Returns `None` if it is missing, and fails with `Damaged` if it is
/// longer than `bytes_max`.
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

/// Removes a file. A missing file is not an error.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// Removes all files and directories in `dir` whose names start with `prefix`.
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

/// Returns the first of `places` at which nothing exists. Fails on a stat error, because something may exist there.
pub(crate) fn first_free(mut places: impl Iterator<Item = PathBuf>) -> Result<PathBuf> {
    loop {
        let place = places.next().expect("there is no end of names");
        if !exists(&place)? {
            return Ok(place);
        }
    }
}

/// Returns true if anything exists at the path, including a dangling link.
pub(crate) fn exists(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if sys::is_gone(&error) => Ok(false),
        Err(error) => Err(Error::io("look at", path, error)),
    }
}

/// Returns true if the file at the path (or the link itself) was last written to more than `than_secs` ago. Returns
/// false on a stat error.
pub(crate) fn is_older(path: &Path, than_secs: i128, now: Moment) -> bool {
    let is_older = |stat: sys::Stat| now.as_nanos() - stat.mtime.as_nanos() > than_secs * 1_000_000_000;
    sys::stat_path(path).is_ok_and(is_older)
}

/// Returns true if the path is a directory, following links.
pub(crate) fn is_dir(path: &Path) -> Result<bool> {
    Ok(metadata_opt(path)?.is_some_and(|found| found.is_dir()))
}

/// Returns the names in a directory, sorted. A missing directory has none.
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

/// Returns the metadata at a path, following links; `None` if nothing exists there. Any other error is returned: taking
/// it for a missing file could overwrite data.
pub(crate) fn metadata_opt(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("look at", path, error)),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the path that a missing file would have with all links resolved: the canonical path of its nearest existing
/// ancestor, and the remaining names. Returns `None` if the file exists, cannot be examined, or has `..` after the
/// existing part.
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

/// Returns the canonical path of an existing file.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| Error::io("find", path, error))
}
