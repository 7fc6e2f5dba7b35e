//! Forgetting one project by directory, and finding projects that were recorded by mistake.

use std::path::{Path, PathBuf};

use super::{PruneReason, PruneReport, PrunedItem};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::ProjectId;
use crate::progress::Progress;
use crate::project;
use crate::status::StatusProblem;
use crate::store::{GcGoal, Store, collect_garbage, forget_project};
use crate::time::Moment;

/// Forgets the project in exactly this directory, with all its checkpoints, and frees the space. Neither the files in
/// the directory nor projects around or inside it are touched. With `is_dry`, only reports.
///
/// Fails with `NotFound` if the store has no record of the directory, and with `Invalid` if it is in use or a restore
/// of it was interrupted.
pub fn forget(store: &Store, dir: &Path, is_dry: bool, now: Moment, progress: &Progress) -> Result<PruneReport> {
    let dir = fsx::canonical(dir).ok().or_else(|| fsx::canonical_of_missing(dir)).unwrap_or_else(|| dir.to_owned());
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
    if !forget_project(store, &id, last_touch, !dir.is_dir(), now, progress)? {
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

/// Returns the projects that are probably on record by mistake: those without checkpoints, and unmarked directories
/// that contain other projects. The latter also cover everything in them that has no checkpoints of its own.
pub fn mistaken_projects(store: &Store) -> Result<Vec<StatusProblem>> {
    let known: Vec<(ProjectId, PathBuf)> =
        store.known_projects()?.into_iter().filter_map(|id| Some((id.clone(), store.dir_of(&id)?))).collect();
    let mut problems = Vec::new();
    for (id, dir) in known.iter().filter(|(_, dir)| dir.is_dir()) {
        let inside = known.iter().filter(|(_, other)| other != dir && other.starts_with(dir)).count();
        let shown = dir.display();
        let what = match inside {
            _ if !store.knows(id) => format!("{shown} is on record as a project, and has no checkpoint"),
            0 => continue,
            _ if project::has_marker(dir) => continue,
            1 => format!("{shown} is on record as a project, and another project lies in it"),
            count => format!("{shown} is on record as a project, and {count} other projects lie in it"),
        };
        problems.push(StatusProblem { what, hint: Hint::ForgetProject { dir: dir.clone() } });
    }
    Ok(problems)
}
