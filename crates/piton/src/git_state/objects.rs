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
    match present_objects(place, progress)? {
        Some(present) => store.git_states.lost_files(project, &place.common, &present),
        None => Ok(Vec::new()),
    }
}

/// Reason for leaving what names an object that is unknown to [`known_objects`].
pub(super) const UNKNOWN: &str = "its objects are neither held nor in the repository";
/// Empty blobs, of both hashes. Git has them without a file.
const EMPTY: [&str; 2] =
    ["e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"];

/// Returns a function that tells if an object is in a held file or in the repository, by its id in hexadecimal digits.
/// Any may be in one that uses objects of others or fetches them on demand.
pub(super) fn known_objects(
    store: &Store,
    project: &ProjectId,
    present: &GitSnapshot,
    progress: &Progress,
) -> Result<impl Fn(&str) -> bool + use<>> {
    let is_held = store.git_states.held_ids(project)?;
    let place = &present.place;
    let files = present_objects(place, progress)?.unwrap_or_default();
    let has_others = present.has_alternates() || files.iter().any(|file| file.ends_with(b".promisor"));
    let is_present = store.git_states.ids_at(&place.common, &files);
    Ok(move |id: &str| has_others || EMPTY.contains(&id) || is_held(id) || is_present(id))
}

/// Lists the object files in the repository, relative to its common directory. Returns `None` if there is no repository.
fn present_objects(place: &RepositoryPlace, progress: &Progress) -> Result<Option<BTreeSet<Vec<u8>>>> {
    let failed = |error| Error::io("read the objects of", &place.common, error);
    let Some(repository) = place.open()? else { return Ok(None) };
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
    Ok(Some(present))
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
