//! Brings a saved file back to its path: as a clone or a copy, never as a link.
//!
//! The file is complete under a temporary name before it gets its own. A file that is there is replaced only if it is the
//! one that the caller has seen and saved. A temporary file never holds the only copy of anything.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::Path;

use crate::relpath;
use crate::sys::{self, Dir, FileTime, Kind, Stat, SwapResult};

/// Attributes of a file that comes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackAs {
    pub(crate) mode: u16,
    /// `None` if the contents changed since it was saved.
    pub(crate) mtime: Option<FileTime>,
}

/// Returns the name of a temporary file.
fn temp_name(token: &str, number: usize) -> Vec<u8> {
    [relpath::TEMPORARY, b"w-", token.as_bytes(), format!("-{number}").as_bytes()].concat()
}

/// Writes the contents of `from` to `to`. `over` is the file that is there and may be replaced. Returns the stat data of the
/// new file; `None` if something else is there, which is left alone.
pub(crate) fn bring_back(
    from: &Path,
    to: &Path,
    attributes: BackAs,
    over: Option<&Stat>,
    token: &str,
    number: usize,
) -> io::Result<Option<Stat>> {
    let (dir, name) = open_parent(to)?;
    let temp = temp_name(token, number);
    let made =
        write(from, &dir, &temp, attributes).and_then(|stat| Ok(give_name(&dir, &temp, &name, over)?.then_some(stat)));
    if !matches!(made, Ok(Some(_))) {
        let _ = dir.remove(&temp);
    }
    made
}

/// Creates a link, unless something is there. Returns false then.
pub(crate) fn bring_back_link(target: &[u8], to: &Path) -> io::Result<bool> {
    let (dir, name) = open_parent(to)?;
    match dir.create_link(&name, target) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// Creates a directory with these permission bits. Returns false if it exists.
pub(crate) fn bring_back_dir(to: &Path, mode: u16) -> io::Result<bool> {
    let (dir, name) = open_parent(to)?;
    match dir.make_dir(&name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.and_then(|()| dir.open_dir(&name)?.set_mode(mode | 0o700)).map(|()| true),
    }
}

/// Removes a file if it is the one that was brought back. Returns false if it is another one, or was changed.
pub(crate) fn take_away(path: &Path, seen: &Stat) -> io::Result<bool> {
    let (dir, name) = open_parent(path)?;
    let now = stat_in(&dir, &name)?;
    if !is_same(&now, seen) {
        return Ok(false);
    }
    dir.remove(&name).map(|()| true)
}

/// Removes a directory if it is empty.
pub(crate) fn take_away_dir(path: &Path) {
    if let Ok((dir, name)) = open_parent(path) {
        let _ = dir.remove_dir(&name);
    }
}

/// Removes the temporary files with this token in a directory.
pub(crate) fn remove_temporaries(dir: &Path, token: &str) {
    let Ok(opened) = Dir::open(dir) else { return };
    let (mut names, tokens) = (Vec::new(), [token.to_owned()]);
    let listed = opened.for_each(&mut Vec::new(), |name, _| {
        if relpath::temporary_kind(name, &tokens).is_some() {
            names.push(name.to_vec());
        }
    });
    if listed.is_ok() {
        names.iter().for_each(|name| drop(opened.remove(name)));
    }
}

fn open_parent(path: &Path) -> io::Result<(Dir, Vec<u8>)> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let name = sys::path_bytes(Path::new(name)).to_vec();
    Ok((Dir::open(path.parent().unwrap_or(Path::new("/")))?, name))
}

fn stat_in(dir: &Dir, name: &[u8]) -> io::Result<Stat> {
    dir.stat_at(&CString::new(name)?)
}

fn is_same(now: &Stat, seen: &Stat) -> bool {
    (now.kind, now.dev, now.ino, now.size, now.mtime) == (seen.kind, seen.dev, seen.ino, seen.size, seen.mtime)
}

fn write(from: &Path, dir: &Dir, temp: &[u8], attributes: BackAs) -> io::Result<Stat> {
    let (parent, name) = open_parent(from)?;
    let source = parent.open_file(&name)?;
    if sys::stat_file(&source)?.kind != Kind::File {
        return Err(io::Error::other("what was kept is not a file"));
    }
    let made: File = dir.create(temp)?;
    if !sys::clone_contents(&made, &source) {
        sys::copy_contents(&made, &source)?;
    }
    sys::set_file_mode(&made, attributes.mode)?;
    if let Some(mtime) = attributes.mtime {
        sys::set_file_mtime(&made, mtime)?;
    }
    made.sync_all()?;
    sys::stat_file(&made)
}

/// Gives the temporary file its name. Returns false if something else is there.
fn give_name(dir: &Dir, temp: &[u8], name: &[u8], over: Option<&Stat>) -> io::Result<bool> {
    let Some(seen) = over else {
        return match dir.rename_new(temp, name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            done => done.map(|()| true),
        };
    };
    if !stat_in(dir, name).is_ok_and(|now| is_same(&now, seen)) {
        return Ok(false);
    }
    match dir.swap(temp, name)? {
        SwapResult::Unsupported => dir.rename_over(temp, name).map(|()| true),
        SwapResult::Done if stat_in(dir, temp).is_ok_and(|old| is_same(&old, seen)) => dir.remove(temp).map(|()| true),
        SwapResult::Done => {
            // It was changed between the two looks: swap it back.
            dir.swap(temp, name)?;
            Ok(false)
        }
    }
}
