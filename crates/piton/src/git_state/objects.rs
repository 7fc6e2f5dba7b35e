//! Object files that the repository has lost.

use std::collections::BTreeSet;

use super::snapshot::GitSnapshot;
use crate::error::{Error, Result};
use crate::id::ProjectId;
use crate::progress::Progress;
use crate::store::{HeldFile, Store};
use crate::sys;
use crate::worktree::{RepositoryPlace, staged_objects};

/// Returns the held object files that the repository lacks, and that have objects which no file in it has.
pub(super) fn lost_objects(
    store: &Store,
    project: &ProjectId,
    place: &RepositoryPlace,
    progress: &Progress,
) -> Result<Vec<HeldFile>> {
    let failed = |error| Error::io("read the objects of", &place.common, error);
    let Some(repository) = place.open()? else { return Ok(Vec::new()) };
    let mut present = BTreeSet::new();
    for root in repository.list_files(progress).map_err(failed)?.object_roots {
        let dirs = match repository.object_dirs(&root) {
            Err(error) if sys::is_gone(&error) => continue,
            dirs => dirs.map_err(failed)?,
        };
        for dir in dirs {
            match repository.object_names(&dir) {
                Err(error) if sys::is_gone(&error) => {}
                listed => {
                    let (_, names) = listed.map_err(failed)?;
                    present.extend(names.iter().map(|name| crate::relpath::join(&dir.path, name)));
                }
            }
        }
    }
    store.git_states.lost_files(project, &place.common, &present)
}

/// Returns the lost object files if a recorded state needs them: not those that `git gc` removed, which no ref reached.
///
/// Returns none if the repository uses objects of others, among which they may be.
pub(super) fn needed_objects(
    store: &Store,
    project: &ProjectId,
    then: &GitSnapshot,
    present: &GitSnapshot,
    progress: &Progress,
) -> Result<Vec<HeldFile>> {
    if present.has_alternates() {
        return Ok(Vec::new());
    }
    let mut lost = lost_objects(store, project, &then.place, progress)?;
    let stash = then.stash().into_iter().map(|entry| entry.id);
    let index = then.bytes(&then.place.own_path("index")).map(staged_objects).unwrap_or_default();
    let tips = then.refs().into_values().chain(stash).chain(then.head()).chain(index);
    let objects = then.place.common.join("objects");
    if !store.git_states.is_needed(&objects, tips.filter(|tip| super::snapshot::is_id(tip)), &lost, progress) {
        lost.clear();
    }
    Ok(lost)
}

/// Formats `12 files`.
pub(super) fn file_count(files: &[HeldFile]) -> String {
    if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) }
}
