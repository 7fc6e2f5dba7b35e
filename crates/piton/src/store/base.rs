//! Contents of the base besides the store, and their permanent removal. Every name is checked before anything is
//! removed: a base that points at a home directory by mistake must not cost a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::create;
use super::git_states::GitStates;
use super::kept::KeptFiles;
use super::layout::{LEGACY_PREFIX, LEGACY_WORKDIR, Layout};
use super::ledger::Ledger;
use super::lock::{GcLock, Locks};
use super::size::{StoreSize, bytes_below};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::sys;
use crate::time::Moment;

const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Directory that holds the repositories of an older layout after they were moved out of the way.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Archive {
    /// Name in the base.
    pub name: String,
    /// Size of its files in bytes.
    #[serde(rename = "size_bytes")]
    pub bytes: u64,
    /// Time of the last change, in seconds since 1970.
    pub mtime: f64,
}

/// The directory that holds the store.
#[derive(Debug, Clone)]
pub(crate) struct BaseDir {
    pub(super) layout: Arc<Layout>,
    pub(super) locks: Locks,
    pub(super) size: StoreSize,
    pub(super) ledger: Ledger,
    pub(super) git_states: GitStates,
}

impl BaseDir {
    /// Removes the indexes and the noted size. The next take rebuilds them, however long that takes.
    pub(crate) fn remove_rebuildable(&self) -> Result<()> {
        fsx::remove_file(&self.layout.size())?;
        let indexes = self.layout.indexes();
        fsx::names_in(&indexes)?.iter().try_for_each(|name| fsx::remove_file(&indexes.join(name)))
    }

    /// Returns the time of the last automatic prune, in seconds since 1970. An unreadable or invalid file counts as
    /// never.
    pub(crate) fn last_prune(&self) -> Option<f64> {
        let text = fsx::read_small(&self.layout.last_prune(), SMALL_BYTES_MAX).ok()??;
        std::str::from_utf8(&text).ok()?.trim().parse().ok().filter(|at: &f64| at.is_finite())
    }

    pub(crate) fn mark_prune(&self, now: Moment) -> Result<()> {
        fsx::replace(&self.layout.last_prune(), now.as_secs_f64().to_string().as_bytes(), Durability::Rebuildable)
    }

    /// Returns the size in bytes of the store and of everything that older layouts left.
    pub(crate) fn bytes(&self) -> Result<u64> {
        Ok(self.size.count_bytes()? + self.legacy_bytes()?)
    }

    /// Returns the size in bytes of everything that older layouts left, whether or not it was moved into an archive.
    pub(crate) fn legacy_bytes(&self) -> Result<u64> {
        let archives: u64 = self.archives()?.iter().map(|archive| archive.bytes).sum();
        let old = self.old_repositories()?;
        let old: u64 = old.iter().map(|(name, ..)| bytes_below(&self.layout.base().join(name))).sum::<Result<u64>>()?;
        Ok(archives + old)
    }

    /// Lists the archives, the directories into which repositories of older layouts were moved.
    pub(crate) fn archives(&self) -> Result<Vec<Archive>> {
        let mut archives = Vec::new();
        for name in fsx::names_in(self.layout.base())? {
            let (path, name) = (self.layout.base().join(&name), name.to_string_lossy().into_owned());
            if is_archive(&path, &name) {
                archives.push(Archive { bytes: bytes_below(&path)?, mtime: mtime_secs(&path), name });
            }
        }
        Ok(archives)
    }

    pub(crate) fn remove_archive(&self, name: &str) -> Result<()> {
        let path = self.layout.base().join(name);
        if !is_archive(&path, name) {
            return Err(not_ours(&path));
        }
        remove_dir(&path)
    }

    /// Lists the repositories of the older layout: name, the project directory, and the time of the last use in seconds
    /// since 1970.
    pub(crate) fn old_repositories(&self) -> Result<Vec<(String, Option<PathBuf>, f64)>> {
        let mut found = Vec::new();
        for name in fsx::names_in(self.layout.base())? {
            let path = self.layout.base().join(&name);
            if let Some(name) = name.to_str().filter(|name| is_old_repository(&path, name)) {
                let dir = fsx::read_small(&path.join(LEGACY_WORKDIR), SMALL_BYTES_MAX)?.unwrap_or_default();
                let dir = dir.trim_ascii().to_vec();
                let dir = Some(sys::path_from_bytes(dir)).filter(|dir| dir.is_absolute());
                let newest = ["", "HEAD", "index", "refs", "objects", "logs/HEAD", LEGACY_WORKDIR];
                let last_touch = newest.iter().map(|name| mtime_secs(&path.join(name))).fold(0.0, f64::max);
                found.push((name.to_owned(), dir, last_touch));
            }
        }
        Ok(found)
    }

    pub(crate) fn remove_old_repository(&self, name: &str) -> Result<()> {
        let path = self.layout.base().join(name);
        if !is_old_repository(&path, name) {
            return Err(not_ours(&path));
        }
        remove_dir(&path)
    }

    /// Fails with `NotOurs` if the directory is not a store that piton made.
    pub(crate) fn check_ours(&self) -> Result<()> {
        let is_ours = create::is_a_store(self.layout.store())? && fsx::is_dir(&self.layout.projects())?;
        if is_ours { Ok(()) } else { Err(not_ours(self.layout.store())) }
    }

    /// Removes all checkpoints of all projects. The store is renamed first, so that no process sees a half-removed one.
    /// Fails with `Busy` if other processes keep using it.
    pub(crate) fn remove_all(&self, held: &GcLock) -> Result<()> {
        self.check_ours()?;
        let Some(_alone) = self.locks.exclude_patiently(held)? else {
            return Err(Error::new(ErrorKind::Busy, "remove the store")
                .because("other processes use it all the time")
                .with_hint("end them, and try again"));
        };
        self.finish_removal()?;
        fs::rename(self.layout.store(), self.layout.aside())
            .map_err(|error| Error::io("remove", self.layout.store(), error))?;
        fsx::remove_file(&self.layout.last_prune())?;
        remove_dir(&self.layout.unfinished())?;
        remove_dir(&self.layout.begun())?;
        KeptFiles { layout: Arc::clone(&self.layout) }.remove_all()?;
        self.ledger.remove_all()?;
        self.git_states.remove_all()?;
        self.finish_removal()
    }

    /// Completes a removal of the store that was interrupted.
    pub(crate) fn finish_removal(&self) -> Result<()> {
        let aside = self.layout.aside();
        if is_real_dir(&aside) && create::is_a_store(&aside)? { remove_dir(&aside) } else { Ok(()) }
    }
}

fn not_ours(path: &Path) -> Error {
    Error::new(ErrorKind::NotOurs, format!("remove {}", path.display()))
        .because("it is not what piton makes")
        .with_hint("look at it, and remove it by hand")
}

fn is_real_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Returns true for a real directory named `legacy-<8 digits>-<6 digits>`, as piton names archives.
fn is_archive(path: &Path, name: &str) -> bool {
    let stamp = name.strip_prefix(LEGACY_PREFIX).and_then(|stamp| stamp.split_once('-'));
    let is_number = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    stamp.is_some_and(|(date, time)| is_number(date, 8) && is_number(time, 6)) && is_real_dir(path)
}

/// Returns true for a real directory that is named by a hash, has a `HEAD`, and names its project directory in a file.
fn is_old_repository(path: &Path, name: &str) -> bool {
    let is_hash = name.len() >= 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash && is_real_dir(path) && path.join("HEAD").is_file() && path.join(LEGACY_WORKDIR).is_file()
}

fn mtime_secs(path: &Path) -> f64 {
    let nanos = sys::stat_path(path).map_or(0, |stat| stat.mtime.as_nanos());
    #[expect(clippy::cast_precision_loss, reason = "days matter here")]
    let secs = nanos as f64 / 1e9;
    secs
}

fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Intent;
    use crate::store::kit::{NOW, store};
    use crate::{CheckpointKind, Outcome, Progress, Project, Request, Settings};

    #[test]
    fn only_what_is_named_and_made_as_piton_does_it_is_an_archive() {
        let temp = tempfile::tempdir().expect("a directory");
        let (dir, link, file) = (temp.path().join("dir"), temp.path().join("link"), temp.path().join("file"));
        fs::create_dir(&dir).and_then(|()| std::os::unix::fs::symlink(&dir, &link)).expect("a link");
        fs::write(&file, "").expect("a file");
        assert!(is_archive(&dir, "legacy-20260316-043600"));
        assert!(!is_archive(&link, "legacy-20260316-043600") && !is_archive(&file, "legacy-20260316-043600"));
        for name in ["20260316-043600", "legacy-20260316", "legacy-2026031-043600", "legacy-2026031x-043600"] {
            assert!(!is_archive(&dir, name), "{name}");
        }
        assert!(!is_archive(&dir, "legacy-20260316-letters") && !is_archive(&dir, "legacy-letters-043600"));
    }

    #[test]
    fn only_what_has_all_of_an_old_repository_is_one() {
        let temp = tempfile::tempdir().expect("a directory");
        let made = |name: &str, files: &[&str]| {
            let dir = temp.path().join(name);
            fs::create_dir(&dir).expect("a directory");
            files.iter().for_each(|file| fs::write(dir.join(file), "x").expect("a file"));
            dir
        };
        let whole = made("0123456789abcdef", &["HEAD", LEGACY_WORKDIR]);
        assert!(is_old_repository(&whole, "0123456789abcdef"));
        for (name, files) in [
            ("0123456", &["HEAD", LEGACY_WORKDIR][..]),
            ("somebodys", &["HEAD", LEGACY_WORKDIR]),
            ("1123456789abcdef", &["HEAD"]),
            ("2123456789abcdef", &[LEGACY_WORKDIR]),
        ] {
            assert!(!is_old_repository(&made(name, files), name), "{name}");
        }
        let link = temp.path().join("3123456789abcdef");
        std::os::unix::fs::symlink(&whole, &link).expect("a link");
        assert!(!is_old_repository(&link, "3123456789abcdef"));
    }

    #[test]
    fn what_only_has_the_name_of_a_store_that_is_being_removed_stays() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        for (name, stays) in [("letter.txt", true), ("HEAD", false)] {
            let file = store.layout.aside().join(name);
            fs::create_dir_all(store.layout.aside()).and_then(|()| fs::write(&file, "")).expect("a file");
            store.base_dir.finish_removal().expect("removed");
            assert_eq!(file.exists(), stays, "{name}");
            let _ = fs::remove_file(file);
        }
    }

    #[test]
    fn a_project_that_is_in_use_is_not_forgotten() {
        let temp = tempfile::tempdir().expect("a directory");
        let (store, dir) = (store(&temp), temp.path().join("project"));
        fs::create_dir(&dir).and_then(|()| fs::write(dir.join("file"), "1")).expect("a file");
        let project = Project::at(&dir, None).expect("a project");
        let request = Request { kind: CheckpointKind::Manual, ..Request::default() };
        let taken = crate::take(&store, &project, &request, &Settings::default(), NOW, &Progress::default());
        let Outcome::Taken(id) = taken.expect("a take").outcome else { panic!("not taken") };
        let touched = store.records.get(project.id()).last_touch();
        let forget = |last_touch, is_gone| {
            {
                let only = crate::store::ForgetIf { last_touch, is_gone, is_unmarked: false };
                crate::store::forget_project(&store, project.id(), only, NOW, &Progress::default())
            }
            .expect("an answer")
        };
        assert!(!forget(touched.map(|secs| secs - 1.0), false), "it was used since");
        let record = store.layout.record(project.id());
        let bytes = fs::read(&record).expect("a record");
        fs::remove_file(&record).and_then(|()| fs::create_dir(&record)).expect("a directory");
        assert!(!forget(touched, false), "the time of its last use is unknown");
        fs::remove_dir(&record).and_then(|()| fs::write(&record, bytes)).expect("a record");
        let locked = store.locks.lock_project(&store.locks.share().expect("a lock"), project.id()).expect("a lock");
        store
            .intents
            .note(
                &locked,
                project.id(),
                &Intent { target: id, safety: id, paths: Vec::new(), tokens: Vec::new(), rest: Default::default() },
            )
            .expect("a note");
        drop(locked);
        assert!(!forget(touched, false), "a restore waits to be finished");
        assert_eq!(store.refs.newest(project.id()).expect("a ref"), Some(id));
        assert!(forget(touched, true), "there is nothing left to finish it in");
        assert_eq!(store.refs.newest(project.id()).expect("a ref"), None);
    }
}
