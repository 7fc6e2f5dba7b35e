//! The user's own git repository: where it is, its small files, and its object files. Nothing in it is parsed except the
//! files that say where the rest is, and nothing of it is executed.

use std::ffi::CString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::fsx;
use crate::sys::{self, Dir, Kind, Stat};

mod identity;
mod list;
mod seen;
mod write;

pub(crate) use identity::repository_identity;
pub(crate) use list::{ObjectDir, RepositoryFile};
pub(crate) use seen::{SeenFiles, SeenPath, encode_seen, seen_paths};
pub(crate) use write::{
    RepositoryLock, RepositoryWriter, busy_error, place_pointer, remove_unfinished, rename_dir, running_commands,
    temp_lock,
};

/// Size limit of a `.git` file and of `commondir`.
const POINTER_BYTES_MAX: u64 = 8 << 10;

/// A repository, by the directories it consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepositoryPlace {
    /// Directory that holds `.git`.
    pub(crate) root: PathBuf,
    /// Directory of `HEAD` and the index.
    pub(crate) own: PathBuf,
    /// Directory of refs and objects. The same as `own`, except in a linked worktree.
    pub(crate) common: PathBuf,
}

/// Result of looking for the repository of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Located {
    Missing,
    /// There is one, whose state is not recorded. The text is the reason.
    Declined {
        root: PathBuf,
        why: &'static str,
    },
    Found(RepositoryPlace),
}

/// Finds the repository that a project is in, as git does: in its directory or the nearest one above.
pub(crate) fn locate(project: &Path) -> Located {
    let found = project.ancestors().find_map(|dir| Some((dir, sys::stat_path(&dir.join(".git")).ok()?)));
    let Some((root, stat)) = found else { return Located::Missing };
    let located = match stat.kind {
        Kind::Dir => Ok((root.join(".git"), root.join(".git"))),
        Kind::File => pointed_to(root),
        Kind::Link => Err("its `.git` is a symbolic link"),
        Kind::Special => Err("its `.git` is neither a directory nor a file"),
    };
    let located = located.and_then(|(own, common)| check(root, own, common));
    located.map_or_else(|why| Located::Declined { root: root.to_owned(), why }, Located::Found)
}

/// Follows the `.git` file of a linked worktree or a submodule.
fn pointed_to(root: &Path) -> std::result::Result<(PathBuf, PathBuf), &'static str> {
    let pointer = |path: &Path| fsx::read_small(path, POINTER_BYTES_MAX).ok().flatten();
    let text = pointer(&root.join(".git")).ok_or("its `.git` file cannot be read")?;
    let named = text.strip_prefix(b"gitdir:").ok_or("its `.git` file names no directory")?.trim_ascii();
    let gone = "the directory that its `.git` file names is missing";
    let own = fsx::canonical(&root.join(sys::name_from_bytes(named))).map_err(|_| gone)?;
    let common = match pointer(&own.join("commondir")) {
        Some(common) => fsx::canonical(&own.join(sys::name_from_bytes(common.trim_ascii()))).map_err(|_| gone)?,
        None => own.clone(),
    };
    Ok((own, common))
}

fn check(root: &Path, own: PathBuf, common: PathBuf) -> std::result::Result<RepositoryPlace, &'static str> {
    let is_ours = |dir: &Path| sys::stat_path(dir).is_ok_and(|stat| stat.uid == sys::effective_uid());
    if !own.starts_with(&common) {
        return Err("its directory for the worktree is not inside the repository");
    }
    if !is_ours(&own) || !is_ours(&common) {
        return Err("its git directory belongs to another user");
    }
    // A `.git` file can name any directory. Only a repository is read, and written to by a restore.
    let has = |name: &str| sys::stat_path(&common.join(name)).is_ok();
    if !has("objects") && !has("HEAD") {
        return Err("its git directory has neither `objects` nor `HEAD`");
    }
    Ok(RepositoryPlace { root: root.to_owned(), own, common })
}

impl RepositoryPlace {
    /// Returns the three directories as bytes, to be compared.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.root, &self.own, &self.common].map(|dir| sys::path_bytes(dir)).join(&0)
    }

    /// Returns the path of a file of this worktree, such as `HEAD`, relative to the common directory.
    pub(crate) fn own_path(&self, name: &str) -> Vec<u8> {
        let below = self.own.strip_prefix(&self.common).unwrap_or(Path::new(""));
        sys::path_bytes(&below.join(name)).to_vec()
    }

    /// Returns true if the common directory has a directory of this name.
    pub(crate) fn has_dir(&self, name: &str) -> bool {
        sys::stat_path(&self.common.join(name)).is_ok_and(|stat| stat.kind == Kind::Dir)
    }

    /// Returns true if something is at the `.git` of this worktree.
    pub(crate) fn is_linked(&self) -> bool {
        sys::stat_path(&self.root.join(".git")).is_ok()
    }

    /// Returns a free name for something that is at the place of the common directory and is not a directory. Returns
    /// `None` if there is nothing.
    pub(crate) fn name_aside(&self) -> Option<PathBuf> {
        sys::stat_path(&self.common).ok().filter(|stat| stat.kind != Kind::Dir)?;
        let name = self.common.file_name()?.to_str()?;
        let mut names = (1..1000).map(|number| self.common.with_file_name(format!("{name}.before-{number}")));
        names.find(|name| sys::stat_path(name).is_err_and(|error| sys::is_gone(&error)))
    }

    /// Opens the common directory. Returns `None` if it is missing.
    pub(crate) fn open(&self) -> Result<Option<Repository>> {
        match Dir::open(&self.common) {
            Ok(dir) => Ok(Some(Repository { dir })),
            Err(error) if sys::is_gone(&error) => Ok(None),
            Err(error) => Err(Error::io("open", &self.common, error)),
        }
    }
}

/// An open repository. Paths are relative to its common directory, and no link is followed.
#[derive(Debug)]
pub(crate) struct Repository {
    dir: Dir,
}

impl Repository {
    /// Returns the stat data at a path; `None` if nothing exists there.
    pub(crate) fn stat(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        let (parent, name) = crate::relpath::split(path);
        let stat = self.dir.open_dir(parent).and_then(|dir| dir.stat_at(&CString::new(name)?));
        match stat {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if sys::is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a file of at most `bytes_max` bytes, or the target of a link. Returns `None` if it is missing, longer, or
    /// something else.
    pub(crate) fn read(&self, path: &[u8], bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(stat) = self.stat(path)? else { return Ok(None) };
        let (parent, name) = crate::relpath::split(path);
        let read = match stat.kind {
            Kind::File if stat.size <= bytes_max => self.dir.open_file(path).and_then(|file| {
                let mut bytes = Vec::new();
                file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
                Ok(bytes)
            }),
            Kind::Link => self.dir.open_dir(parent).and_then(|dir| dir.read_link(&CString::new(name)?)),
            _ => return Ok(None),
        };
        match read {
            Ok(bytes) if bytes.len() as u64 <= bytes_max => Ok(Some(bytes)),
            Ok(_) => Ok(None),
            Err(error) if sys::is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
