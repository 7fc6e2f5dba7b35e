//! Writing into the user's project. Every change uses a descriptor of its directory, opened without following links, so
//! that nothing outside the project can be reached.
//!
//! - W1. A file is replaced or removed only if it is the one that was seen before, with the same contents: it is
//!   renamed atomically, read under a name that no other process knows, and renamed back if it differs. Times alone do
//!   not tell: a write through a memory mapping may change none, and any time can be reset.
//! - W2. Nothing is written into a `.git`.
//! - W3. A temporary file that may hold the user's data is marked with `x` in its name, all others with `w`. Both names
//!   contain a token that was recorded before it was used: a name alone proves nothing.
//! - W4. A file with several hard links is never changed in place: it is replaced, and the other links keep the old
//!   file.

use std::fs::File;
use std::io::{self, Write};

use super::manifest::FileNode;
use super::read::id_of_stream;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::relpath;
use crate::sys::{self, Dir, Kind, Stat, SwapResult};

/// New contents of a file.
pub(crate) enum NewContents<'a> {
    File(&'a [u8], u16),
    /// File that is written piece by piece.
    Streamed(&'a mut dyn FnMut(&mut File) -> io::Result<()>, u16),
    Link(&'a [u8]),
}

/// File or link as the survey found it: the only one that a restore may replace or remove at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenFile {
    pub(crate) stat: Stat,
    /// Contents that the safety checkpoint holds.
    pub(crate) id: ObjectId,
}

impl SeenFile {
    /// Returns the file as the survey found it. Every file has an id at that point.
    pub(crate) fn of(file: &FileNode) -> Self {
        Self { stat: file.stat, id: file.id.expect("files without an id were taken out of the survey") }
    }
}

/// Result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeResult {
    Made,
    /// Something else is at the path, and was left alone.
    Left,
}

/// Writer for one project. Keeps the directory of the last change open.
pub(crate) struct WorktreeWriter<'a> {
    root: &'a Dir,
    /// Makes the names of temporary files distinct from those of other threads and of users.
    token: String,
    count: usize,
    open: Option<(Vec<u8>, Dir)>,
    /// Directories that had to be made writable, with their old modes.
    loosened: Vec<(Vec<u8>, u16)>,
}

/// Returns true if this is the file that was seen before: same inode, size and mtime. The ctime is not compared,
/// because a rename changes it.
fn is_same_file(now: &Stat, seen: &Stat) -> bool {
    (now.kind, now.ino, now.dev, now.size, now.mtime) == (seen.kind, seen.ino, seen.dev, seen.size, seen.mtime)
}

impl<'a> WorktreeWriter<'a> {
    pub(crate) fn new(root: &'a Dir, token: String) -> Self {
        Self { root, token, count: 0, open: None, loosened: Vec::new() }
    }

    /// Writes a file or link with the contents `id`. `over` is the file seen at the path, or `None` if there was none.
    pub(crate) fn put(
        &mut self,
        path: &[u8],
        mut new: NewContents<'_>,
        id: ObjectId,
        over: Option<&SeenFile>,
    ) -> io::Result<ChangeResult> {
        let temp = self.temp_name(b'w');
        let aside = self.temp_name(b'x');
        self.in_dir_of(path, |dir, name| {
            let put = make(dir, &temp, &mut new).and_then(|()| match over {
                None => put_new(dir, &temp, name),
                Some(seen) => Exchange { dir, new: &aside, new_id: id, name, seen }.run(&temp),
            });
            if !matches!(put, Ok(ChangeResult::Made)) {
                let _ = dir.remove(&temp);
            }
            put
        })
    }

    /// Removes the file that was seen.
    pub(crate) fn remove(&mut self, path: &[u8], seen: &SeenFile) -> io::Result<ChangeResult> {
        let aside = self.temp_name(b'x');
        self.in_dir_of(path, |dir, name| {
            if !is_untouched(dir, name, &seen.stat) {
                return Ok(ChangeResult::Left);
            }
            dir.rename_to_unused(name, &aside)?;
            if is_still(dir, &aside, seen) {
                return dir.remove(&aside).map(|()| ChangeResult::Made);
            }
            dir.rename_new(&aside, name).map_err(|error| kept_as(&aside, &error))?;
            Ok(ChangeResult::Left)
        })
    }

    /// Removes a temporary file of an earlier restore that never held user data.
    pub(crate) fn sweep(&mut self, path: &[u8]) -> io::Result<ChangeResult> {
        self.in_dir_of(path, Dir::remove).map(|()| ChangeResult::Made)
    }

    /// Renames a file within its directory, unless the new name exists.
    pub(crate) fn move_aside(&mut self, path: &[u8], to: &[u8]) -> io::Result<()> {
        self.in_dir_of(path, |dir, name| dir.rename_new(name, to))
    }

    /// Creates a directory. Returns `None` if it exists. One that exists in another spelling, which the file system takes
    /// for the same, is left.
    pub(crate) fn make_dir(&mut self, path: &[u8]) -> io::Result<Option<ChangeResult>> {
        self.in_dir_of(path, |dir, name| match dir.make_dir(name) {
            Ok(()) => Ok(Some(ChangeResult::Made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_dir = stat_in(dir, name).is_ok_and(|stat| stat.kind == Kind::Dir);
                Ok((!is_dir || !is_listed(dir, name)?).then_some(ChangeResult::Left))
            }
            Err(error) => Err(error),
        })
    }

    /// Removes a directory if it is empty.
    pub(crate) fn remove_dir(&mut self, path: &[u8]) -> io::Result<ChangeResult> {
        self.open = None;
        let removed = self.in_dir_of(path, |dir, name| match dir.remove_dir(name) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(ChangeResult::Left),
            done => done.map(|()| ChangeResult::Made),
        })?;
        if removed == ChangeResult::Made {
            self.loosened.retain(|(loosened, _)| loosened != path);
        }
        Ok(removed)
    }

    /// Sets the permission bits of the file that was seen, or of a directory.
    ///
    /// A file with several hard links is left alone. (W4)
    pub(crate) fn set_mode(&mut self, path: &[u8], mode: u16, seen: Option<&Stat>) -> io::Result<ChangeResult> {
        let is_set = self.in_dir_of(path, |dir, name| {
            let is_it = |now: &Stat| match seen {
                Some(seen) => is_same_file(now, seen) && now.links == 1,
                None => now.kind == Kind::Dir,
            };
            dir.set_mode_of(name, mode, is_it)
        })?;
        if is_set {
            // It has its final mode: the mode recorded when it was made writable must not be restored.
            self.loosened.retain(|(loosened, _)| loosened != path);
        }
        Ok(if is_set { ChangeResult::Made } else { ChangeResult::Left })
    }

    /// Restores the modes of directories that were made writable.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.open = None;
        let mut done = Ok(());
        for (path, mode) in std::mem::take(&mut self.loosened) {
            let put_back = self.root.open_dir(&path).and_then(|dir| dir.set_mode(mode));
            done = done.and(put_back);
        }
        done
    }

    fn temp_name(&mut self, kind: u8) -> Vec<u8> {
        self.count += 1;
        let rest = format!("-{}-{}", self.token, self.count);
        [relpath::TEMPORARY, &[kind], rest.as_bytes()].concat()
    }

    /// Runs `change` in the directory of `path`. If the user owns the directory but has no write permission, it is made
    /// writable until [`Self::finish`].
    fn in_dir_of<T>(&mut self, path: &[u8], mut change: impl FnMut(&Dir, &[u8]) -> io::Result<T>) -> io::Result<T> {
        let (parent, name) = relpath::split(path);
        if path.split(|byte| *byte == b'/').any(|name| !relpath::is_allowed(name)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a name that no checkpoint may hold"));
        }
        if self.open.as_ref().is_none_or(|(open, _)| open != parent) {
            self.open = Some((parent.to_vec(), self.root.open_dir(parent)?));
        }
        let (_, dir) = self.open.as_ref().expect("opened above");
        match change(dir, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let stat = dir.stat()?;
                if stat.mode & 0o300 == 0o300 || stat.uid != sys::effective_uid() {
                    return Err(error);
                }
                dir.set_mode(stat.mode | 0o300)?;
                self.loosened.push((parent.to_vec(), stat.mode));
                change(dir, name)
            }
            done => done,
        }
    }
}

fn stat_in(dir: &Dir, name: &[u8]) -> io::Result<Stat> {
    dir.stat_at(&std::ffi::CString::new(name)?)
}

/// Returns true if a directory lists exactly this name, and not another spelling of it.
fn is_listed(dir: &Dir, name: &[u8]) -> io::Result<bool> {
    let mut is_listed = false;
    dir.open_dir(b".")?.for_each(&mut Vec::new(), |listed, _| is_listed |= listed == name)?;
    Ok(is_listed)
}

fn is_there(dir: &Dir, name: &[u8], seen: &Stat) -> bool {
    stat_in(dir, name).is_ok_and(|now| is_same_file(&now, seen))
}

/// Like [`is_there`], for a file that piton has not renamed yet: the ctime is compared, too. Not for a file with
/// several hard links: this restore may have removed one of them, which changes the ctime of all.
fn is_untouched(dir: &Dir, name: &[u8], seen: &Stat) -> bool {
    let is_same_time = |now: &Stat| now.ctime == seen.ctime || seen.links > 1;
    stat_in(dir, name).is_ok_and(|now| is_same_file(&now, seen) && is_same_time(&now))
}

/// Returns true if a renamed file is the one that was seen, including its contents. (W1)
fn is_still(dir: &Dir, name: &[u8], seen: &SeenFile) -> bool {
    is_there(dir, name, &seen.stat) && holds(dir, name, seen.id) && is_there(dir, name, &seen.stat)
}

/// Returns true if a file or link has these contents. Returns false if it cannot be read.
fn holds(dir: &Dir, name: &[u8], id: ObjectId) -> bool {
    let read = || -> io::Result<bool> {
        let stat = stat_in(dir, name)?;
        let found = match stat.kind {
            Kind::Link => Some(IdHasher::of(ObjectKind::Blob, &dir.read_link(&std::ffi::CString::new(name)?)?)),
            Kind::File => id_of_stream(stat.size, &mut dir.open_file(name)?),
            Kind::Dir | Kind::Special => None,
        };
        Ok(found.is_some_and(|found| found == Ok(id)))
    };
    read().unwrap_or(false)
}

/// Returns the error for user data that could not be renamed back, with the name that it has.
fn kept_as(aside: &[u8], error: &io::Error) -> io::Error {
    let name = String::from_utf8_lossy(aside);
    io::Error::other(format!("it changed meanwhile, and could not be put back ({error}): it is in {name}"))
}

fn make(dir: &Dir, name: &[u8], new: &mut NewContents<'_>) -> io::Result<()> {
    match new {
        NewContents::Link(target) => dir.create_link(name, target),
        NewContents::File(bytes, mode) => {
            let mut file = dir.create(name)?;
            file.write_all(bytes)?;
            finish_new(&file, *mode)
        }
        NewContents::Streamed(write, mode) => {
            let mut file = dir.create(name)?;
            write(&mut file)?;
            finish_new(&file, *mode)
        }
    }
}

/// Sets the mode of a new file, whose contents the sync at the end of a restore makes durable.
fn finish_new(file: &File, mode: u16) -> io::Result<()> {
    sys::set_file_mode(file, mode)?;
    sys::flush_written(file)
}

fn put_new(dir: &Dir, temp: &[u8], name: &[u8]) -> io::Result<ChangeResult> {
    match dir.rename_new(temp, name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(ChangeResult::Left),
        done => done.map(|()| ChangeResult::Made),
    }
}

/// Replacement of the file that was seen by a new one.
struct Exchange<'a> {
    dir: &'a Dir,
    /// Temporary name of the new file, and after the swap of the old one, until it was read again.
    new: &'a [u8],
    new_id: ObjectId,
    name: &'a [u8],
    seen: &'a SeenFile,
}

impl Exchange<'_> {
    /// Replaces the file. `temp` is the name of the new file.
    fn run(&self, temp: &[u8]) -> io::Result<ChangeResult> {
        let Self { dir, new, name, seen, .. } = *self;
        if !is_untouched(dir, name, &seen.stat) {
            return Ok(ChangeResult::Left);
        }
        dir.rename_new(temp, new)?;
        match dir.swap(new, name) {
            Ok(SwapResult::Done) if is_still(dir, new, seen) => dir.remove(new).map(|()| ChangeResult::Made),
            Ok(SwapResult::Done) => {
                // The file was edited between the two checks: swap it back.
                dir.swap(new, name).map_err(|error| kept_as(new, &error))?;
                self.remove_new()
            }
            Ok(SwapResult::Unsupported) => self.run_in_steps(),
            Err(error) => {
                let _ = dir.remove(new);
                Err(error)
            }
        }
    }

    /// Like [`Self::run`], for file systems that cannot swap names: the name is missing for a moment.
    fn run_in_steps(&self) -> io::Result<ChangeResult> {
        let Self { dir, new, name, seen, .. } = *self;
        let old = &[new, b"-old"].concat();
        if let Err(error) = dir.rename_to_unused(name, old) {
            let _ = dir.remove(new);
            return Err(error);
        }
        if !is_still(dir, old, seen) {
            dir.rename_new(old, name).map_err(|error| kept_as(old, &error))?;
            return self.remove_new();
        }
        match dir.rename_new(new, name) {
            Ok(()) => dir.remove(old).map(|()| ChangeResult::Made),
            // Another process created the file first. The safety checkpoint has the old contents.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                dir.remove(old)?;
                self.remove_new()
            }
            Err(error) => {
                dir.rename_new(old, name).map_err(|error| kept_as(old, &error))?;
                let _ = dir.remove(new);
                Err(error)
            }
        }
    }

    /// Removes the new file again. It may have been visible for a moment, and may have been edited.
    fn remove_new(&self) -> io::Result<ChangeResult> {
        if holds(self.dir, self.new, self.new_id) {
            self.dir.remove(self.new)?;
            return Ok(ChangeResult::Left);
        }
        let name = String::from_utf8_lossy(self.new);
        Err(io::Error::other(format!("it changed twice meanwhile: the other version is in {name}")))
    }
}
