//! Changes of the user's repository, in git's own way: the new contents are written to `<name>.lock`, which no other
//! process may have, and renamed over the file. Object files are added and never changed.
//!
//! - D17. A file of the repository has the old contents or the new ones, whenever the process is killed.
//! - D18. A lock file of another process is never removed.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::RepositoryPlace;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::content_id;
use crate::relpath;
use crate::sys::{self, Dir, Kind};

/// Suffix of git's lock files.
const LOCK_SUFFIX: &[u8] = b".lock";
/// Prefix of temporary object files, which git itself removes if they are left.
const TEMP_OBJECT: &[u8] = b"tmp_obj_piton";
/// Prefix of files that become lock files.
pub(super) const TEMP_LOCK: &[u8] = b"piton-tmp-";
/// Permission bits of files without recorded ones.
const NEW_FILE_MODE: u16 = 0o644;

/// Writes to a repository. Paths are relative to its common directory, and no link is followed.
#[derive(Debug)]
pub(crate) struct RepositoryWriter {
    dir: Dir,
    path: PathBuf,
    /// Permission bits of new directories.
    dir_mode: u16,
    /// Permission bits of new files without recorded ones.
    file_mode: u16,
    /// Permission bits of some of them.
    dir_modes: BTreeMap<Vec<u8>, u16>,
    /// Contents of lock files that only keep others out. No other process writes the same.
    guard: Vec<u8>,
}

/// A lock file of git that this process holds. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct RepositoryLock {
    dir: Dir,
    name: Vec<u8>,
    is_done: bool,
}

/// Returns the lock files in a repository: another command of git is running, or was killed.
pub(crate) fn running_commands(place: &RepositoryPlace) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let in_own = ["index.lock", "HEAD.lock"].map(|name| place.own.join(name));
    let shared = ["HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock", "reftable/tables.list.lock"];
    let shared = shared.map(|name| place.common.join(name));
    let all = in_own.into_iter().chain(shared).filter(|path| sys::stat_path(path).is_ok());
    found.extend(all);
    locks_below(&place.common.join("refs"), 0, &mut found);
    found.sort();
    found.dedup();
    found
}

fn locks_below(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for name in fsx::names_in(dir).unwrap_or_default() {
        let path = dir.join(&name);
        match sys::stat_path(&path).map(|stat| stat.kind) {
            Ok(Kind::Dir) if depth < 32 => locks_below(&path, depth + 1, found),
            Ok(Kind::File) if name.as_encoded_bytes().ends_with(LOCK_SUFFIX) => found.push(path),
            _ => {}
        }
    }
}

impl RepositoryWriter {
    /// Opens the common directory of a repository for changes.
    pub(crate) fn open(common: &Path, guard: Vec<u8>) -> Result<Self> {
        let failed = |error| Error::io("open", common, error);
        let dir = Dir::open(common).map_err(failed)?;
        let dir_mode = dir.stat().map_err(failed)?.mode & 0o777;
        // Those of `HEAD` are as private, or as shared, as the repository is meant to be.
        let head = dir.stat_at(c"HEAD").ok().filter(|stat| stat.kind == Kind::File);
        let file_mode = head.map_or(NEW_FILE_MODE, |stat| stat.mode & 0o666);
        Ok(Self { dir, path: common.to_owned(), dir_mode, file_mode, dir_modes: BTreeMap::new(), guard })
    }

    /// Creates the directory for a repository that is rebuilt, and opens it. The project around it may be gone, too.
    pub(crate) fn create(common: &Path, dir_mode: u16) -> Result<Self> {
        let failed = |error| Error::io("make the directory", common, error);
        std::fs::create_dir_all(common.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        sys::create_dir(common, dir_mode.into()).map_err(failed)?;
        let dir = Dir::open(common).map_err(failed)?;
        dir.set_mode(dir_mode).map_err(failed)?;
        let guard = b"piton\n".to_vec();
        let file_mode = NEW_FILE_MODE;
        Ok(Self { dir, path: common.to_owned(), dir_mode, file_mode, dir_modes: BTreeMap::new(), guard })
    }

    /// Sets the permission bits of directories that are created. Others get those of the directory around them.
    pub(crate) fn with_dir_modes(mut self, modes: BTreeMap<Vec<u8>, u16>) -> Self {
        self.dir_modes = modes;
        self
    }

    fn mode_of(&self, mut path: &[u8]) -> u16 {
        while !path.is_empty() {
            if let Some(mode) = self.dir_modes.get(path) {
                // The files in it are still to be written.
                return *mode | 0o700;
            }
            path = relpath::split(path).0;
        }
        self.dir_mode
    }

    fn full(&self, path: &[u8]) -> PathBuf {
        self.path.join(sys::name_from_bytes(path))
    }

    /// Opens the parent directory of a path, and creates it if it is missing.
    fn parent(&self, path: &[u8]) -> Result<Dir> {
        let (parent, _) = relpath::split(path);
        self.dir_at(parent).map_err(|error| Error::io("make the directory", self.full(parent), error))
    }

    fn dir_at(&self, path: &[u8]) -> io::Result<Dir> {
        match self.dir.open_dir(path) {
            Err(error) if sys::is_gone(&error) && !path.is_empty() => {}
            opened => return opened,
        }
        let (parent, name) = relpath::split(path);
        let parent = self.dir_at(parent)?;
        match parent.make_dir(name) {
            Ok(()) => {
                let made = parent.open_dir(name)?;
                made.set_mode(self.mode_of(path))?;
                Ok(made)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => parent.open_dir(name),
            Err(error) => Err(error),
        }
    }

    /// Takes the lock of a file. Fails with `Busy` if another process has it. Without `mode`, the file keeps the permission
    /// bits that it has.
    ///
    /// The lock file gets its name when its contents are complete: one with other contents is another process's.
    pub(crate) fn lock(&self, path: &[u8], bytes: &[u8], mode: Option<u16>) -> Result<RepositoryLock> {
        let dir = self.parent(path)?;
        let name = relpath::split(path).1.to_vec();
        let lock = [name.as_slice(), LOCK_SUFFIX].concat();
        let full = self.full(&[path, LOCK_SUFFIX].concat());
        let failed = |error| Error::io("write", &full, error);
        let temp = temp_lock(path);
        match self.dir.remove(&temp) {
            Err(error) if !sys::is_gone(&error) => return Err(failed(error)),
            _ => {}
        }
        let replaced = || dir.stat_at(&CString::new(name.as_slice()).ok()?).ok().filter(|stat| stat.kind == Kind::File);
        let mode = mode.or_else(|| Some(replaced()?.mode & 0o777)).unwrap_or(self.file_mode);
        let mut file = self.dir.create(&temp).map_err(failed)?;
        let written = file.write_all(bytes).and_then(|()| sys::set_file_mode(&file, mode));
        let written = written.and_then(|()| sys::sync_file(&file));
        let linked = written.and_then(|()| dir.hard_link_from(&self.dir, &temp, &lock));
        let removed = self.dir.remove(&temp);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(busy(&full)),
            linked => linked.map_err(failed)?,
        }
        let held = RepositoryLock { dir, name, is_done: false };
        removed.map_err(failed)?;
        Ok(held)
    }

    /// Replaces a file by these contents, or creates it.
    pub(crate) fn replace(&self, path: &[u8], bytes: &[u8], mode: Option<u16>) -> Result<()> {
        self.lock(path, bytes, mode)?.commit().map_err(|error| Error::io("replace", self.full(path), error))
    }

    /// Removes a file under its lock. A missing one is not an error.
    pub(crate) fn remove(&self, path: &[u8]) -> Result<()> {
        let held = self.lock(path, &self.guard, None)?;
        match held.dir.remove(&held.name) {
            Err(error) if !sys::is_gone(&error) => Err(Error::io("remove", self.full(path), error)),
            _ => Ok(()),
        }
    }

    /// Removes a file whose lock the caller holds. A missing one is no failure.
    pub(crate) fn remove_locked(&self, path: &[u8]) -> Result<()> {
        match self.parent(path)?.remove(relpath::split(path).1) {
            Err(error) if !sys::is_gone(&error) => Err(Error::io("remove", self.full(path), error)),
            _ => Ok(()),
        }
    }

    /// Removes a directory if it is empty. Returns true if it was.
    pub(crate) fn remove_empty_dir(&self, path: &[u8]) -> bool {
        let (parent, name) = relpath::split(path);
        self.dir.open_dir(parent).is_ok_and(|parent| parent.remove_dir(name).is_ok())
    }

    /// Creates a symbolic link, unless something has its name.
    pub(crate) fn place_link(&self, path: &[u8], target: &[u8]) -> Result<()> {
        let (dir, name) = (self.parent(path)?, relpath::split(path).1);
        match dir.create_link(name, target) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::io("make", self.full(path), error))
            }
            _ => Ok(()),
        }
    }

    /// Creates a directory, unless it exists.
    pub(crate) fn place_dir(&self, path: &[u8]) -> Result<()> {
        self.dir_at(path).map(drop).map_err(|error| Error::io("make the directory", self.full(path), error))
    }

    /// Adds an object file: as a second name of the held one, or as a copy of it. Returns false if it was there.
    pub(crate) fn place_object(&self, path: &[u8], held: &Path) -> Result<bool> {
        let failed = |error| Error::io("make", self.full(path), error);
        let (dir, name) = (self.parent(path)?, relpath::split(path).1);
        if dir.stat_at(&CString::new(name).map_err(|error| failed(error.into()))?).is_ok() {
            return Ok(false);
        }
        let around = held.parent().unwrap_or(Path::new("/"));
        let held_name = held.file_name().unwrap_or_default().as_encoded_bytes();
        let linked = Dir::open(around).and_then(|around| dir.hard_link_from(&around, held_name, name));
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) if sys::cannot_link(&error) => copy_object(&dir, name, held).map_err(failed).map(|()| true),
            Err(error) => Err(failed(error)),
        }
    }

    /// Makes everything that was written durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.dir.sync_file_system().map_err(|error| Error::io("sync", &self.path, error))
    }
}

/// Returns the name of the file in the common directory that becomes the lock file of a path.
pub(crate) fn temp_lock(path: &[u8]) -> Vec<u8> {
    let id = content_id(path).to_string();
    [TEMP_LOCK, &id.as_bytes()[..16]].concat()
}

fn copy_object(dir: &Dir, name: &[u8], held: &Path) -> io::Result<()> {
    let temp = [TEMP_OBJECT, name].concat();
    match dir.remove(&temp) {
        Err(error) if !sys::is_gone(&error) => return Err(error),
        _ => {}
    }
    let mut file = dir.create(&temp)?;
    io::copy(&mut File::open(held)?, &mut file)?;
    sys::set_file_mode(&file, 0o444)?;
    sys::sync_file(&file)?;
    match dir.rename_new(&temp, name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => dir.remove(&temp),
        done => done,
    }
}

impl RepositoryLock {
    /// Renames the lock file over the file that it locks.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        let lock = [self.name.as_slice(), LOCK_SUFFIX].concat();
        let mut renamed = self.dir.rename_over(&lock, &self.name);
        if renamed.is_err() && remove_empty_dirs(&self.dir, &self.name, 0) {
            renamed = self.dir.rename_over(&lock, &self.name);
        }
        self.is_done = renamed.is_ok();
        renamed
    }
}

impl RepositoryLock {
    /// Removes the lock file.
    pub(crate) fn release(mut self) -> io::Result<()> {
        self.is_done = true;
        self.dir.remove(&[self.name.as_slice(), LOCK_SUFFIX].concat())
    }
}

impl Drop for RepositoryLock {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = self.dir.remove(&[self.name.as_slice(), LOCK_SUFFIX].concat());
        }
    }
}

/// Removes a directory in which there are only empty ones, which git leaves where a ref was. Returns true if it is gone.
fn remove_empty_dirs(parent: &Dir, name: &[u8], depth: usize) -> bool {
    let Ok(dir) = parent.open_dir(name) else { return false };
    let mut names = Vec::new();
    let listed = dir.for_each(&mut Vec::new(), |name, _| names.push(name.to_vec()));
    listed.is_ok()
        && depth < 32
        && names.iter().all(|name| remove_empty_dirs(&dir, name, depth + 1))
        && parent.remove_dir(name).is_ok()
}

fn busy(lock: &Path) -> Error {
    Error::new(ErrorKind::Busy, "change the repository")
        .because(format!("another git command runs: there is {}", lock.display()))
        .with_hint("wait for it; if none runs, a killed one has left the file, and it can be removed")
}

/// Returns the error for a repository in which another command is running.
pub(crate) fn busy_error(locks: &[PathBuf]) -> Option<Error> {
    locks.first().map(|lock| busy(lock))
}

/// Creates the `.git` file of a worktree, and its directory. Something that exists there is left. Unless it is the
/// worktree's own, the directory must be new or empty: a repository can name any.
pub(crate) fn place_pointer(link: &Path, text: &[u8], is_own: bool) -> Result<()> {
    if sys::stat_path(link).is_ok() {
        return Ok(());
    }
    let failed = |error| Error::io("make", link, error);
    let dir = link.parent().unwrap_or(Path::new("/"));
    if !is_own && !fsx::names_in(dir)?.is_empty() {
        return Err(
            Error::new(ErrorKind::Invalid, format!("make {}", link.display())).because("its directory has other files")
        );
    }
    std::fs::create_dir_all(dir).map_err(failed)?;
    let dir = Dir::open(dir).map_err(failed)?;
    let name = link.file_name().unwrap_or_default().as_encoded_bytes();
    let mut file = dir.create(name).map_err(failed)?;
    file.write_all(text).and_then(|()| sys::set_file_mode(&file, NEW_FILE_MODE)).map_err(failed)?;
    sys::sync_file(&file).map_err(failed)
}

/// Renames a directory, or something that is in its place, to a name that must not exist.
pub(crate) fn rename_dir(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| Error::io("rename", from, error);
    let parent = Dir::open(to.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let name = |path: &Path| path.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
    parent.rename_new(&name(from), &name(to)).map_err(failed)?;
    parent.sync_file_system().map_err(failed)
}

/// Removes a directory of an interrupted rebuild. Object files in it are unlinked and not changed.
pub(crate) fn remove_unfinished(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", dir, error)),
        _ => Ok(()),
    }
}
