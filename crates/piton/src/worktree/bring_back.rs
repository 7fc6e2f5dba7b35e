//! Brings a saved file back to its path: as a clone or a copy, never as a link.
//!
//! The file is complete under a temporary name before it gets its own. An existing file is replaced only if it is the
//! one that the caller has seen and saved: the two files exchange names, and if it turns out to be a different file,
//! they are exchanged back. In between, a temporary name of kind `x` may belong to a file that is saved nowhere else; a
//! name of kind `w` never does.

use std::ffi::CString;
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

/// Temporary files of one recovery.
#[derive(Debug)]
pub(crate) struct BackTemporaries<'a> {
    token: &'a str,
    is_left: bool,
}

impl<'a> BackTemporaries<'a> {
    pub(crate) fn new(token: &'a str) -> Self {
        Self { token, is_left: false }
    }

    /// Returns true if a temporary file could not be removed.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left
    }

    fn name(&self, kind: u8, number: usize) -> Vec<u8> {
        [relpath::TEMPORARY, &[kind, b'-'], self.token.as_bytes(), format!("-{number}").as_bytes()].concat()
    }

    fn remove(&mut self, dir: &Dir, name: &[u8]) {
        self.is_left |= dir.remove(name).is_err_and(|error| !sys::is_gone(&error));
    }
}

/// Writes the contents of `from` to `to`. `over` is the existing file that may be replaced. `number` distinguishes the
/// files of a recovery. Returns the stat data of the new file; `None` if something else exists at the path, which is
/// left alone.
pub(crate) fn bring_back(
    from: &Path,
    to: &Path,
    attributes: BackAs,
    over: Option<&Stat>,
    temporaries: &mut BackTemporaries<'_>,
    number: usize,
) -> io::Result<Option<Stat>> {
    put(to, over, temporaries, number, |dir, temp| write(from, dir, temp, attributes))
}

/// Like [`bring_back`], for a link.
pub(crate) fn bring_back_link(
    target: &[u8],
    to: &Path,
    over: Option<&Stat>,
    temporaries: &mut BackTemporaries<'_>,
    number: usize,
) -> io::Result<Option<Stat>> {
    put(to, over, temporaries, number, |dir, temp| {
        dir.create_link(temp, target)?;
        stat_in(dir, temp)
    })
}

/// Calls `make` to create something under a temporary name, and renames it.
fn put(
    to: &Path,
    over: Option<&Stat>,
    temporaries: &mut BackTemporaries<'_>,
    number: usize,
    make: impl FnOnce(&Dir, &[u8]) -> io::Result<Stat>,
) -> io::Result<Option<Stat>> {
    let (dir, name) = open_parent(to)?;
    let temp = temporaries.name(if over.is_some() { b'x' } else { b'w' }, number);
    let made = match make(&dir, &temp) {
        Ok(made) => made,
        Err(error) => {
            temporaries.remove(&dir, &temp);
            return Err(error);
        }
    };
    let given = match over {
        None => give_new_name(&dir, &temp, &name),
        Some(seen) => replace(&dir, &temp, &name, seen, &made),
    };
    match given {
        Ok(NameResult::Given) => Ok(Some(made)),
        Ok(NameResult::Swapped) => {
            temporaries.remove(&dir, &temp);
            Ok(Some(made))
        }
        Ok(NameResult::Taken) => {
            temporaries.remove(&dir, &temp);
            Ok(None)
        }
        Ok(NameResult::Strange) => {
            let temp = String::from_utf8_lossy(&temp);
            Err(io::Error::other(format!("it changed meanwhile: the other version is in {temp}")))
        }
        Err(error) => {
            temporaries.remove(&dir, &temp);
            Err(error)
        }
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

/// Removes the temporary files with this token in a directory, those of the kind `x` if `is_saved` returns true for the
/// number and the stat data. Returns false if one could not be removed.
pub(crate) fn remove_temporaries(dir: &Path, token: &str, is_saved: impl Fn(usize, &Stat) -> bool) -> bool {
    let opened = match Dir::open(dir) {
        Ok(opened) => opened,
        Err(error) => return sys::is_gone(&error),
    };
    let (mut names, tokens) = (Vec::new(), [token.to_owned()]);
    let listed = opened.for_each(&mut Vec::new(), |name, _| {
        if let Some(kind) = relpath::temporary_kind(name, &tokens) {
            names.push((kind, name.to_vec()));
        }
    });
    let is_ours = |kind: u8, name: &[u8]| {
        let number = name.rsplit(|byte| *byte == b'-').next().and_then(|digits| std::str::from_utf8(digits).ok());
        let number = number.and_then(|digits| digits.parse().ok());
        kind == b'w' || number.zip(stat_in(&opened, name).ok()).is_some_and(|(number, stat)| is_saved(number, &stat))
    };
    names.retain(|(kind, name)| is_ours(*kind, name));
    let failed = names.iter().filter(|(_, name)| opened.remove(name).is_err_and(|error| !sys::is_gone(&error))).count();
    listed.is_ok() && failed == 0
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
    let made = match dir.create_clone(temp, &source)? {
        Some(made) => made,
        None => {
            let made = dir.create(temp)?;
            sys::copy_contents(&made, &source)?;
            made
        }
    };
    sys::set_file_mode(&made, attributes.mode)?;
    if let Some(mtime) = attributes.mtime {
        sys::set_file_mtime(&made, mtime)?;
    }
    sys::sync_file(&made)?;
    sys::stat_file(&made)
}

/// Result of giving a temporary file its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameResult {
    Given,
    /// The file that was replaced, and is saved, has the temporary name now.
    Swapped,
    /// Something else has the name, and stays. The temporary file is the new one.
    Taken,
    /// The temporary file is neither the new one nor the one that was seen.
    Strange,
}

fn give_new_name(dir: &Dir, temp: &[u8], name: &[u8]) -> io::Result<NameResult> {
    match dir.rename_new(temp, name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(NameResult::Taken),
        done => done.map(|()| NameResult::Given),
    }
}

/// Gives the temporary file, `made`, the name of the one that was seen. Fails only while it still has the temporary name.
fn replace(dir: &Dir, temp: &[u8], name: &[u8], seen: &Stat, made: &Stat) -> io::Result<NameResult> {
    if !stat_in(dir, name).is_ok_and(|now| is_same(&now, seen)) {
        return Ok(NameResult::Taken);
    }
    if dir.swap(temp, name)? == SwapResult::Unsupported {
        return dir.rename_over(temp, name).map(|()| NameResult::Given);
    }
    let is_temp = |wanted: &Stat| stat_in(dir, temp).is_ok_and(|now| is_same(&now, wanted));
    if is_temp(seen) {
        return Ok(NameResult::Swapped);
    }
    // It was changed between the two looks: swap it back. The new file may have been changed meanwhile, too.
    let is_back = dir.swap(temp, name).is_ok();
    Ok(if is_back && is_temp(made) { NameResult::Taken } else { NameResult::Strange })
}
