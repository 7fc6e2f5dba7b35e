//! Reading and replacing configuration files of agents.
//!
//! - I6. A file has either its old contents or its new ones, even after a power failure: never a mixture, never
//!   nothing.
//! - I7. Mode and owner are preserved. A symbolic link stays one, and its target is replaced.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use piton::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};

use crate::platform;

/// Larger files are refused: they cannot be configurations.
const BYTES_MAX: u64 = 16 << 20;
/// Prefix of our temporary files.
const TEMP_PREFIX: &str = ".piton-tmp-";

/// Returns the text of a file; `None` if it does not exist. Fails if it is not a regular file, is too large or is not
/// UTF-8.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    // Do not block on a FIFO: it is refused below.
    let opened = platform::open_without_blocking(path).and_then(|file| Ok((file.metadata()?, file)));
    let (stat, file) = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| Error::io("read", path, error))?,
    };
    if !stat.is_file() || stat.len() > BYTES_MAX {
        let why = match stat.is_file() {
            true => format!("it is too large for a configuration (more than {} MB)", BYTES_MAX >> 20),
            false => "it is not a regular file".to_owned(),
        };
        let hint = "put a file with settings in its place, or remove it";
        return Err(Error::new(ErrorKind::Invalid, "read").with_path(path).because(why).with_hint(hint));
    }
    let mut text = String::new();
    match file.take(BYTES_MAX).read_to_string(&mut text) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let error = Error::new(ErrorKind::Invalid, "read").with_path(path).because("it is not UTF-8");
            Err(error.with_hint("save it as UTF-8, then try again; nothing was changed"))
        }
        read => read.map(|_| Some(text)).map_err(|error| Error::io("read", path, error)),
    }
}

/// Resolves a symbolic link, so that its target is replaced and not the link.
fn real_path(path: &Path) -> Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(stat) if stat.is_symlink() => fs::canonicalize(path).map_err(|error| {
            Error::io("follow the link", path, error).with_hint("fix or remove the link; nothing was changed")
        }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("look at", path, error)),
        _ => Ok(path.to_owned()),
    }
}

/// Replaces the contents of a file atomically. Creates it with `mode`, and missing directories above it.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let real = real_path(path)?;
    let dir = real.parent().unwrap_or(Path::new("/"));
    make_dirs(dir, dir_mode(mode))?;
    sweep(dir);
    let failed = |error| Error::io("write", path, error);
    let mut temp = tempfile::Builder::new().prefix(TEMP_PREFIX).tempfile_in(dir).map_err(failed)?;
    temp.write_all(bytes).map_err(failed)?;
    match fs::metadata(&real) {
        Ok(stat) => {
            platform::set_owner_like(temp.as_file(), temp.path(), &stat).map_err(|error| {
                Error::io("keep the owner of", path, error).with_hint("run it as the owner of the file")
            })?;
            platform::set_mode(temp.as_file(), platform::mode(&stat)).map_err(failed)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            platform::set_mode(temp.as_file(), mode).map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    piton::sync_file(temp.as_file()).map_err(failed)?;
    temp.persist(&real).map_err(|error| failed(error.error))?;
    sync_dir(dir)
}

/// Returns the mode for a directory that is created for a file of this mode.
fn dir_mode(mode: u32) -> u32 {
    if mode & 0o077 == 0 { 0o700 } else { 0o755 }
}

/// Locks the directory of a file, until the result is dropped. A process that changes a file holds this lock from
/// before it reads until after it writes. A missing directory is created, with a mode that fits a file of this mode.
pub(crate) fn lock_around(path: &Path, mode: u32) -> Result<File> {
    let real = real_path(path)?;
    let dir = real.parent().unwrap_or(Path::new("/"));
    make_dirs(dir, dir_mode(mode))?;
    let locked = File::open(dir).and_then(|dir| dir.lock().map(|()| dir));
    locked.map_err(|error| Error::io("lock", dir, error))
}

/// Removes temporary files of killed processes. No other process can be using them: every writer holds the lock of the
/// directory, or that of the records when it writes those.
fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes a file; succeeds if it does not exist.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

/// Removes the bytecode that Python compiled from a deleted source file: `__pycache__/NAME.*.pyc` next to it.
pub(crate) fn remove_bytecode(source: &Path) {
    let Some(name) = source.file_name().and_then(|name| name.to_str()?.strip_suffix(".py")) else { return };
    let cache = source.with_file_name("__pycache__");
    if source.exists() || !fs::symlink_metadata(&cache).is_ok_and(|stat| stat.is_dir()) {
        return;
    }
    for entry in fs::read_dir(&cache).into_iter().flatten().flatten() {
        let made = entry.file_name();
        let made = made.to_str().and_then(|made| made.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".pyc"));
        if made.is_some() {
            // Best effort: a file that cannot be removed only keeps its directory.
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(cache);
}

/// Removes those of the directories that are empty, the innermost first.
pub(crate) fn remove_empty(mut dirs: Vec<PathBuf>) {
    dirs.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
    for dir in dirs {
        // Fails if it is not empty or does not exist, which is fine.
        let _ = fs::remove_dir(dir);
    }
}

/// Returns the missing directories above a file, outermost first.
pub(crate) fn missing_dirs(path: &Path) -> Result<Vec<PathBuf>> {
    let mut missing = Vec::new();
    for dir in path.ancestors().skip(1) {
        match dir.try_exists() {
            Ok(true) => break,
            Ok(false) => missing.push(dir.to_owned()),
            Err(error) => return Err(Error::io("look at", dir, error)),
        }
    }
    missing.reverse();
    Ok(missing)
}

/// Creates a directory and the missing ones above it.
pub(crate) fn make_dirs(dir: &Path, mode: u32) -> Result<()> {
    for dir in missing_dirs(&dir.join("file"))? {
        match platform::create_dir(&dir, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("make the directory", dir, error));
            }
            _ => sync_dir(dir.parent().unwrap_or(&dir))?,
        }
    }
    Ok(())
}

fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| piton::sync_file(&dir)).map_err(|error| Error::io("sync", dir, error))
}

/// Returns the SHA-256 in hexadecimal digits.
pub(crate) fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
