//! Projects: finding the directory of a project, and its name in the store.

use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::ProjectId;
use crate::store::Store;
use crate::sys::Dir;
use crate::worktree::{device_around, has_marker, is_shared, make_dir, subdirs};

/// Number of subdirectories of an unmarked directory that are searched for projects.
const DIRS_SEARCHED_MAX: usize = 64;

/// One working directory.
///
/// ```
/// use piton::Project;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let home = temp.path().canonicalize()?;
/// # std::fs::create_dir_all(home.join("code/src"))?;
/// std::fs::write(home.join("code/Cargo.toml"), "")?;
/// let project = Project::around(&home.join("code/src"), None, Some(&home))?; // a marker file shows the root
/// assert_eq!(project.dir(), home.join("code"));
/// assert!(Project::at(&home, Some(&home))?.is_too_broad());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    id: ProjectId,
    dir: PathBuf,
    is_too_broad: bool,
    is_gone: bool,
}

impl Project {
    /// Returns the project in exactly this directory. `home` is the user's home directory: neither it nor its ancestors
    /// can be a project.
    ///
    /// Fails with `Invalid` if `dir` is not a directory.
    pub fn at(dir: &Path, home: Option<&Path>) -> Result<Self> {
        Self::at_canonical(fsx::canonical(dir)?, &Home::new(home))
    }

    /// Like [`Project::at`], for a path without links in it.
    pub(crate) fn at_canonical(dir: PathBuf, home: &Home<'_>) -> Result<Self> {
        if !fsx::is_dir(&dir)? {
            return Err(Error::new(ErrorKind::Invalid, "use as a project")
                .with_path(&dir)
                .because("it is not a directory")
                .with_hint("name the directory that it is in"));
        }
        Ok(Self { id: ProjectId::of(&dir), is_too_broad: home.is_too_broad(&dir), dir, is_gone: false })
    }

    /// Returns the project whose directory was deleted, if `dir` was that directory or was inside it. Returns `None` if
    /// `dir` exists, or if the store has no checkpoint of `dir` or of a missing directory above it.
    ///
    /// Such a project can be listed, compared and restored. A restore creates the directory again.
    pub fn gone(dir: &Path, store: &Store, home: Option<&Path>) -> Option<Self> {
        let dir = fsx::canonical_of_missing(dir)?;
        let was_project =
            |dir: &&Path| matches!(fsx::exists(dir), Ok(false)) && store.has_checkpoint(&ProjectId::of(dir));
        let dir = dir.ancestors().find(was_project)?.to_owned();
        let is_too_broad = Home::new(home).is_too_broad(&dir);
        Some(Self { id: ProjectId::of(&dir), is_too_broad, dir, is_gone: true })
    }

    /// Returns the project for a command that was started in `dir`: the innermost directory, from `dir` upwards, that
    /// has checkpoints or a marker file; otherwise `dir` itself. A deleted directory is found if the store has
    /// checkpoints of it: see [`Project::gone`].
    pub fn around(dir: &Path, store: Option<&Store>, home: Option<&Path>) -> Result<Self> {
        let dir = match fsx::canonical(dir) {
            Err(error) => {
                return store.and_then(|store| Self::gone(dir, store, home)).ok_or(error);
            }
            found => found?,
        };
        let home = Home::new(home);
        Self::at_canonical(project_root(&dir, store, &home).unwrap_or(&dir).to_owned(), &home)
    }

    /// Returns the directory to protect before something changes at `path`, which may be missing: the project that
    /// contains it; otherwise `path` itself if it is a directory; otherwise its nearest existing directory, unless that
    /// directly contains other projects or everybody may write to it. A directory of the system is protected only if it
    /// has checkpoints or a marker file. Returns `None` if no directory qualifies.
    pub fn protecting(path: &Path, store: Option<&Store>, home: Option<&Path>) -> Option<PathBuf> {
        Self::protecting_beside(path, store, &Home::new(home))
    }

    /// Like [`Project::protecting`], for several paths with the same home directory.
    pub(crate) fn protecting_beside(path: &Path, store: Option<&Store>, home: &Home<'_>) -> Option<PathBuf> {
        let found = fsx::canonical(path).ok();
        let path = found.or_else(|| fsx::canonical_of_missing(path))?;
        if fsx::is_dir(&path).unwrap_or(true) {
            let root = project_root(&path, store, home);
            return root.or_else(|| Some(path.as_path()).filter(|path| !is_system_dir(path))).map(Path::to_owned);
        }
        let dir = path.ancestors().skip(1).find(|dir| fsx::is_dir(dir).unwrap_or(true))?;
        if let Some(root) = project_root(dir, store, home) {
            return Some(root.to_owned());
        }
        let is_taken = !home.is_too_broad(dir) && !is_system_dir(dir) && !is_shared(dir) && !holds_projects(dir, store);
        is_taken.then(|| dir.to_owned())
    }

    /// Returns its name in the store.
    pub fn id(&self) -> &ProjectId {
        &self.id
    }

    /// Returns its directory, with all links resolved.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns true if the directory was missing when the project was looked up.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Opens the directory. Returns `None` if the project was deleted and its directory is still missing.
    pub(crate) fn open_dir(&self) -> Result<Option<Dir>> {
        match Dir::open(&self.dir) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if self.is_gone && error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("open", &self.dir, error)),
        }
    }

    /// Creates the directory of a deleted project again, with missing ancestors, and opens it. It gets these permission
    /// bits, and is writable by its owner.
    pub(crate) fn make_dir_again(&self, mode: Option<u16>) -> Result<Dir> {
        let dir = make_dir(&self.dir)?;
        if let Some(mode) = mode {
            dir.set_mode(mode | 0o700).map_err(|error| Error::io("set the mode of", &self.dir, error))?;
        }
        Ok(dir)
    }

    /// Fails if the directory is missing because its disk is not mounted: restored files would be written to another
    /// disk, and be hidden once the right one is mounted. `device` is the recorded device.
    pub(crate) fn check_disk(&self, device: Option<u64>) -> Result<()> {
        if device.is_none() || device_around(&self.dir) == device {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, "restore into")
            .with_path(&self.dir)
            .because("the directory is missing, and so is the disk that it was on")
            .with_hint("mount that disk; or make the directory yourself, and what is restored goes there"))
    }

    /// Returns true if the directory is `/`, the home directory or an ancestor of it.
    pub fn is_too_broad(&self) -> bool {
        self.is_too_broad
    }
}

/// Directories of the system, in which a command may name files and nothing is a user's work.
const SYSTEM_DIRS: [&str; 14] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/System",
    "/Library",
];
/// Directories below those that hold files of users.
const USER_DIRS: [&str; 5] = ["/dev/shm", "/run/media", "/run/user", "/usr/local", "/usr/src"];

/// Returns true for a path at or below a directory of the system, such as `/dev`. Does not follow links.
pub fn is_system_dir(path: &Path) -> bool {
    let is_in = |dirs: &[&str]| dirs.iter().any(|dir| path.starts_with(dir));
    is_in(&SYSTEM_DIRS) && !is_in(&USER_DIRS)
}

/// The user's home directory. Its links are resolved once, when it is first needed.
#[derive(Debug)]
pub(crate) struct Home<'a> {
    named: Option<&'a Path>,
    resolved: OnceCell<Option<PathBuf>>,
}

impl<'a> Home<'a> {
    pub(crate) fn new(named: Option<&'a Path>) -> Self {
        Self { named, resolved: OnceCell::new() }
    }

    /// Returns whether `dir`, a path without links in it, is `/`, the home directory, or something around that.
    fn is_too_broad(&self, dir: &Path) -> bool {
        let resolve = |home: &Path| fsx::canonical(home).unwrap_or_else(|_| home.to_owned());
        let home = || self.resolved.get_or_init(|| self.named.map(resolve)).as_deref();
        dir.parent().is_none() || home().is_some_and(|home| home.starts_with(dir))
    }
}

/// Returns the innermost directory, from `dir` upwards, that the store knows or that has a marker file.
fn project_root<'a>(dir: &'a Path, store: Option<&Store>, home: &Home<'_>) -> Option<&'a Path> {
    let mut candidates = dir.ancestors().take_while(|dir| !home.is_too_broad(dir));
    candidates.find(|dir| is_known(dir, store) || has_marker(dir))
}

fn is_known(dir: &Path, store: Option<&Store>) -> bool {
    store.is_some_and(|store| store.knows(&ProjectId::of(dir)))
}

/// Returns true if a project is directly in the directory, if there are too many subdirectories to tell, or if the
/// directory cannot be listed.
fn holds_projects(dir: &Path, store: Option<&Store>) -> bool {
    let Ok(mut below) = subdirs(dir) else { return true };
    let is_project = |dir: PathBuf| is_known(&dir, store) || has_marker(&dir);
    below.by_ref().take(DIRS_SEARCHED_MAX).any(is_project) || below.next().is_some()
}

/// Returns the working directory for a file: the first directory upwards that holds a marker file, otherwise the file's
/// own directory. Returns `/` or the home directory only for a file directly in it.
pub fn working_dir_for_path(path: &Path, home: Option<&Path>) -> PathBuf {
    let path = fsx::canonical(path).unwrap_or_else(|_| path.to_owned());
    // A path that cannot be examined is used as it is: its parent would be too broad, and the caller gets the error.
    let own = if fsx::is_dir(&path).unwrap_or(true) { path.as_path() } else { path.parent().unwrap_or(&path) };
    let home = Home::new(home);
    own.ancestors().take_while(|dir| !home.is_too_broad(dir)).find(|dir| has_marker(dir)).unwrap_or(own).to_owned()
}
