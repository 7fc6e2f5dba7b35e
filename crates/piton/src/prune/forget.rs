//! Forgetting one project by directory.

use std::path::{Path, PathBuf};

use super::{KnownProject, PruneReason, PruneReport, PrunedItem, inventory_of};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::ProjectId;
use crate::progress::Progress;
use crate::store::{ForgetIf, GcGoal, Store, collect_garbage, forget_project};
use crate::time::Moment;
use crate::worktree::is_dir;

/// Forgets the project in exactly this directory, with all its checkpoints, and frees the space. Neither the files in
/// the directory nor projects around or inside it are touched. With `is_dry`, only reports.
///
/// Fails with `NotFound` if the store has no record of the directory, and with `Invalid` if it is in use or a restore
/// of it was interrupted.
pub fn forget(store: &Store, dir: &Path, is_dry: bool, now: Moment, progress: &Progress) -> Result<PruneReport> {
    let dir = project_dir(dir);
    let id = ProjectId::of(&dir);
    if !store.known_projects()?.contains(&id) {
        return Err(Error::new(ErrorKind::NotFound, "forget")
            .with_path(&dir)
            .because("the store has no record of it")
            .with_hint(Hint::ListProjects));
    }
    let mut report = PruneReport { scanned: 1, ..PruneReport::default() };
    report.dropped.push(PrunedItem { name: dir.display().to_string(), why: PruneReason::Asked });
    if is_dry {
        return Ok(report);
    }
    let held = store.locks.lock_gc_after_others(progress)?;
    let before = store.base_dir.bytes()?;
    let last_touch = store.records.get(&id).last_touch();
    let only = ForgetIf { last_touch, is_gone: !is_dir(&dir), is_unmarked: false };
    if !forget_project(store, &id, only, now, progress)? {
        return Err(Error::new(ErrorKind::Invalid, "forget")
            .with_path(&dir)
            .because("it is in use, or a restore of it was cut short")
            .with_hint(Hint::FinishRestoreAndRetry));
    }
    report
        .problems
        .extend(collect_garbage(store, &held, GcGoal::All, None, now, progress).err().map(|error| error.to_string()));
    report.bytes_freed = before.saturating_sub(store.base_dir.bytes()?);
    Ok(report)
}

/// Returns the project that [`forget`] would forget, if the store knows it.
pub fn plan_forget(store: &Store, dir: &Path) -> Result<Option<KnownProject>> {
    let id = ProjectId::of(&project_dir(dir));
    Ok(inventory_of(store, [id])?.projects.pop())
}

/// Returns the canonical path of a directory that may be gone.
fn project_dir(dir: &Path) -> PathBuf {
    fsx::canonical(dir).ok().or_else(|| fsx::canonical_of_missing(dir)).unwrap_or_else(|| dir.to_owned())
}
