//! Kept files in a restore: those that are missing come back, and an undo removes them again.
//!
//! A restore brings back the oldest version that was kept since the checkpoint was taken, which is the closest to the file at
//! that time. The record of what came back names the safety checkpoint, so that a restore of that checkpoint, which is what
//! an undo is, finds it. What an undo removes is on record in the same way, for a redo.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::back::{BackRequest, back, is_unchanged, secure, take_again};
use super::held::repository_dirs;
use super::lost::{KeptLoss, KeptQuery, KeptVersion, find_lost};
use super::{BackReport, KeptPathFilter};
use crate::error::Result;
use crate::progress::Progress;
use crate::store::{BackRecord, BroughtBack, Checkpoint, KeptFiles, Store};
use crate::time::Moment;
use crate::worktree::{stat_of, take_away_dir};

/// Kept files that a restore deals with.
#[derive(Debug, Default)]
pub(crate) struct KeptPlan {
    /// Missing files that come back.
    losses: Vec<KeptLoss>,
    /// Files that the undone restore brought back, and directories that it made for them.
    away: Vec<BroughtBack>,
    /// Existing files that differ from what was kept.
    pub(crate) differing: Vec<PathBuf>,
}

impl KeptPlan {
    /// Finds what a restore of `target` brings back below `dir`, and what it removes. `is_meant` decides for each path.
    /// Nothing in a git repository is among it, whatever an older version kept. (U9)
    pub(crate) fn find(store: &Store, dir: &Path, target: &Checkpoint, is_meant: KeptPathFilter<'_>) -> Self {
        let repository = repository_dirs(dir);
        let is_in_git = |path: &Path| {
            let below = path.strip_prefix(dir).unwrap_or(path);
            below.iter().any(|name| name == ".git") || repository.iter().any(|dir| path.starts_with(dir))
        };
        let is_meant = &|path: &Path| is_meant(path) && !is_in_git(path);
        let mut plan = Self::default();
        let mut handled: HashSet<PathBuf> = HashSet::new();
        for record in store.kept.backs_of(target.id) {
            for file in record.files.into_iter().filter(|file| file.path.starts_with(dir) && is_meant(&file.path)) {
                if !file.is_dir && !handled.insert(file.path.clone()) {
                    continue;
                }
                match file.is_gone {
                    true if stat_of(&file.path).is_none() => plan.losses.extend(again(store, &file)),
                    false if file.is_dir || is_unchanged(&file) => plan.away.push(file),
                    _ => {}
                }
            }
        }
        // Times are in seconds. What was kept in the second of a safety checkpoint was kept before it.
        let secs = target.time.secs + i64::from(target.facts.restoring.is_some());
        let since = Some(Moment { secs, ..target.time });
        let query = KeptQuery { within: Some(dir), since, version: KeptVersion::Oldest, ..KeptQuery::default() };
        for mut loss in find_lost(store, query) {
            loss.retain(|path| !handled.contains(path) && is_meant(path));
            plan.differing.extend(loss.leave_existing());
            plan.losses.extend((loss.files > 0).then_some(loss));
        }
        plan
    }

    /// Leaves out everything for which `is_left` returns true.
    pub(crate) fn leave_out(&mut self, is_left: impl Fn(&Path) -> bool) {
        for loss in &mut self.losses {
            loss.retain(|path| !is_left(path));
        }
        self.losses.retain(|loss| loss.files > 0);
        self.away.retain(|file| file.is_dir || !is_left(&file.path));
        self.differing.retain(|path| !is_left(path));
    }

    /// Returns the files that come back.
    pub(crate) fn back(&self) -> impl Iterator<Item = &Path> {
        self.losses.iter().flat_map(KeptLoss::files)
    }

    /// Returns the files that an undo removes again.
    pub(crate) fn away(&self) -> impl Iterator<Item = &Path> {
        self.away.iter().filter(|file| !file.is_dir).map(|file| file.path.as_path())
    }

    /// Removes the files that the undone restore brought back. The removal is recorded first, so that a restore of the
    /// safety checkpoint brings them back.
    pub(crate) fn take_away(&self, store: &Store, request: &BackRequest<'_>) -> Result<BackReport> {
        let mut report = BackReport::default();
        if self.away.is_empty() {
            return Ok(report);
        }
        let mut files = Vec::new();
        for file in self.away.iter().filter(|file| !file.is_dir) {
            match secure(store, file, request) {
                Ok(set) => files.push(file.gone(set)),
                Err(why) => report.left.push((file.path.clone(), why)),
            }
        }
        let record = BackRecord { time: request.now, safety: request.safety, files };
        store.kept.save_back(&KeptFiles::new_back_id(), &record)?;
        for file in &record.files {
            match take_again(file) {
                Ok(()) => report.files.push(file.path.clone()),
                Err(why) => report.left.push((file.path.clone(), why)),
            }
        }
        let mut dirs: Vec<&Path> =
            self.away.iter().filter(|file| file.is_dir).map(|file| file.path.as_path()).collect();
        dirs.sort_by(|a, b| b.cmp(a));
        dirs.into_iter().for_each(take_away_dir);
        Ok(report)
    }

    /// Brings the missing files back.
    pub(crate) fn bring_back(&self, store: &Store, request: &BackRequest<'_>) -> Result<BackReport> {
        if self.losses.is_empty() {
            return Ok(BackReport::default());
        }
        let request = BackRequest { losses: &self.losses, ..*request };
        back(store, &request, &Progress::default())
    }
}

/// Finds a file that was removed again, in the set that it came from.
fn again(store: &Store, file: &BroughtBack) -> Vec<KeptLoss> {
    let Some(from) = file.from.as_deref() else { return Vec::new() };
    find_lost(store, KeptQuery { paths: std::slice::from_ref(&file.path), from: Some(from), ..KeptQuery::default() })
}
