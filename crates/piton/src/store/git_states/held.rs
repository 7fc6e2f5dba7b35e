//! Object files that are held for a project: hard links of those in the user's repository, or copies where a link is not
//! possible. Pack and object files are named by their contents and never written again, so a link keeps them whole.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::GitStates;
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::ProjectId;
use crate::progress::Progress;
use crate::relpath::{self, escape, unescape};
use crate::store::ProjectLock;
use crate::sys::{self, Dir, Kind};
use crate::time::Moment;

/// Size limit of the list of files that are gone.
const GONE_BYTES_MAX: u64 = 256 << 20;

/// Result of holding object files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HoldResult {
    pub(crate) linked: u64,
    pub(crate) copied: u64,
    /// Number of bytes of all copies.
    pub(crate) copied_bytes: u64,
    /// Files that were not copied because of the limit.
    pub(crate) beyond_limit: u64,
    /// Files of another user, and other things that have the name of an object file.
    pub(crate) foreign: u64,
}

/// An object file that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldFile {
    /// Path, relative to the repository's common directory.
    pub(crate) path: Vec<u8>,
    pub(crate) file: PathBuf,
    pub(crate) bytes: u64,
    /// Number of names that the file has.
    pub(crate) links: u32,
}

/// Holds the object files of a repository, one directory after the other.
pub(crate) struct HoldObjects<'a> {
    states: &'a GitStates,
    project: &'a ProjectId,
    _locked: &'a ProjectLock,
    now: Moment,
    /// Limit of all copies, in bytes. `None` if there is none.
    copied_bytes_max: Option<u64>,
    gone: Gone,
    /// Files that were not held before.
    new: Vec<Vec<u8>>,
    pub(crate) result: HoldResult,
}

impl GitStates {
    /// Starts to hold object files. `copied_bytes` is the number of bytes that were copied so far.
    pub(crate) fn hold<'a>(
        &'a self,
        locked: &'a ProjectLock,
        project: &'a ProjectId,
        copied_bytes: u64,
        copied_bytes_max: Option<u64>,
        now: Moment,
    ) -> HoldObjects<'a> {
        let gone = Gone::read(&self.gone_path(project));
        let result = HoldResult { copied_bytes, ..HoldResult::default() };
        HoldObjects { states: self, project, _locked: locked, now, copied_bytes_max, gone, new: Vec::new(), result }
    }

    pub(super) fn gone_path(&self, project: &ProjectId) -> PathBuf {
        self.dir(project).join("gone")
    }

    fn held_dir(&self, project: &ProjectId) -> PathBuf {
        self.dir(project).join("held")
    }

    /// Returns the file that holds an object file.
    pub(crate) fn held_path(&self, project: &ProjectId, path: &[u8]) -> PathBuf {
        self.held_dir(project).join(sys::name_from_bytes(path))
    }

    /// Lists the object files that are held.
    pub(crate) fn held(&self, project: &ProjectId) -> Result<Vec<HeldFile>> {
        let mut found = Vec::new();
        list_below(&self.held_dir(project), b"", &mut found)?;
        Ok(found)
    }
}

fn list_below(dir: &Path, path: &[u8], found: &mut Vec<HeldFile>) -> Result<()> {
    for name in fsx::names_in(dir)? {
        let file = dir.join(&name);
        let stat = match sys::stat_path(&file) {
            Err(error) if sys::is_gone(&error) => continue,
            stat => stat.map_err(|error| Error::io("look at", &file, error))?,
        };
        let path = relpath::join(path, name.as_encoded_bytes());
        match stat.kind {
            Kind::Dir => list_below(&file, &path, found)?,
            Kind::File if !name.as_encoded_bytes().starts_with(fsx::TEMP_PREFIX.as_bytes()) => {
                found.push(HeldFile { path, file, bytes: stat.size, links: stat.links });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Finds the directories named `objects`.
fn find_roots(dir: &Path, path: &[u8], found: &mut Vec<Vec<u8>>) -> Result<()> {
    for name in fsx::names_in(dir)? {
        let below = relpath::join(path, name.as_encoded_bytes());
        if name == "objects" {
            found.push(below);
        } else if fsx::is_dir(&dir.join(&name))? {
            find_roots(&dir.join(&name), &below, found)?;
        }
    }
    Ok(())
}

impl HoldObjects<'_> {
    /// Holds the files `names` of one directory. Returns false if some are not held: the limit is reached, or it was
    /// cancelled.
    pub(crate) fn dir(&mut self, path: &[u8], from: &Dir, names: &[Vec<u8>], progress: &Progress) -> Result<bool> {
        let target = self.states.held_path(self.project, path);
        let failed = |error| Error::io("hold the objects in", &target, error);
        let to = match Dir::open(&target) {
            Err(error) if sys::is_gone(&error) => {
                fsx::ensure_dir(&target)?;
                Dir::open(&target)
            }
            opened => opened,
        };
        let to = to.map_err(failed)?;
        let mut held = HashSet::new();
        to.for_each(&mut Vec::new(), |name, _| {
            held.insert(name.to_vec());
        })
        .map_err(failed)?;
        let mut is_whole = true;
        for name in names {
            if held.remove(name) {
                self.gone.remove(&relpath::join(path, name));
                continue;
            }
            if progress.is_cancelled() {
                return Ok(false);
            }
            let before = self.result.linked + self.result.copied;
            is_whole &= self.file(from, name, &to, &target).map_err(failed)?;
            if self.result.linked + self.result.copied > before {
                self.new.push(relpath::join(path, name));
            }
        }
        for name in held.iter().filter(|name| !name.starts_with(fsx::TEMP_PREFIX.as_bytes())) {
            self.gone.add(relpath::join(path, name), self.now.secs);
        }
        Ok(is_whole)
    }

    /// Records the held files of directories that are not among these as gone.
    pub(crate) fn only_dirs(&mut self, dirs: &BTreeSet<Vec<u8>>) -> Result<()> {
        let mut roots = Vec::new();
        find_roots(&self.states.held_dir(self.project), b"", &mut roots)?;
        roots.iter().try_for_each(|root| self.only_dirs_below(root, dirs))
    }

    fn only_dirs_below(&mut self, root: &[u8], dirs: &BTreeSet<Vec<u8>>) -> Result<()> {
        let held = self.states.held_path(self.project, root);
        for name in fsx::names_in(&held)? {
            let path = relpath::join(root, name.as_encoded_bytes());
            if !dirs.contains(&path) {
                for file in fsx::names_in(&held.join(&name))? {
                    self.gone.add(relpath::join(&path, file.as_encoded_bytes()), self.now.secs);
                }
            }
        }
        Ok(())
    }

    /// Records the files that are gone, and returns the result.
    pub(crate) fn finish(self) -> Result<HoldResult> {
        self.gone.save(&self.states.gone_path(self.project))?;
        self.states.add_listed(self.project, &self.new)?;
        Ok(self.result)
    }

    /// D12: links or copies one file. Returns false if the limit of copies does not allow it.
    fn file(&mut self, from: &Dir, name: &[u8], to: &Dir, target: &Path) -> io::Result<bool> {
        let stat = match from.stat_at(&CString::new(name)?) {
            // Removed meanwhile: what a ref needs of it is in a pack, which is listed later.
            Err(error) if sys::is_gone(&error) => return Ok(true),
            stat => stat?,
        };
        if stat.kind != Kind::File || stat.uid != sys::effective_uid() {
            self.result.foreign += 1;
            return Ok(true);
        }
        match to.hard_link_from(from, name, name) {
            Ok(()) => {
                self.result.linked += 1;
                return Ok(true);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists || sys::is_gone(&error) => return Ok(true),
            // Another file system, one without links, or a rule of the system against this link.
            Err(error) if sys::cannot_link(&error) => {}
            Err(error) => return Err(error),
        }
        if self.copied_bytes_max.is_some_and(|max| self.result.copied_bytes.saturating_add(stat.size) > max) {
            self.result.beyond_limit += 1;
            return Ok(false);
        }
        copy(&from.open_file(name)?, target, name)?;
        self.result.copied += 1;
        self.result.copied_bytes += stat.size;
        Ok(true)
    }
}

fn copy(from: &File, dir: &Path, name: &[u8]) -> io::Result<()> {
    let mut temp = fsx::temp_file(dir).map_err(io::Error::other)?;
    io::copy(&mut { from }, temp.as_file_mut())?;
    sys::sync_file(temp.as_file())?;
    match temp.into_temp_path().persist_noclobber(dir.join(sys::name_from_bytes(name))) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

/// Held files that are not in the repository any more, with the time in seconds at which that was noticed.
#[derive(Debug, Default)]
pub(super) struct Gone {
    pub(super) files: BTreeMap<Vec<u8>, i64>,
    is_changed: bool,
}

impl Gone {
    pub(super) fn read(path: &Path) -> Self {
        let text = fsx::read_small(path, GONE_BYTES_MAX).ok().flatten().unwrap_or_default();
        let lines = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b' ')?;
            let secs = std::str::from_utf8(&line[..at]).ok()?.parse().ok()?;
            Some((unescape(&line[at + 1..])?, secs))
        });
        Self { files: lines.collect(), is_changed: false }
    }

    pub(super) fn add(&mut self, path: Vec<u8>, secs: i64) {
        if let std::collections::btree_map::Entry::Vacant(place) = self.files.entry(path) {
            place.insert(secs);
            self.is_changed = true;
        }
    }

    pub(super) fn remove(&mut self, path: &[u8]) {
        self.is_changed |= self.files.remove(path).is_some();
    }

    pub(super) fn save(&self, path: &Path) -> Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let lines = self.files.iter().map(|(path, secs)| format!("{secs} {}\n", escape(path)));
        let text: String = lines.collect();
        fsx::replace(path, text.as_bytes(), Durability::Rebuildable)
    }
}

/// Unlinks a held file. A missing one is not an error.
pub(super) fn release(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("release", file, error)),
        _ => Ok(()),
    }
}
