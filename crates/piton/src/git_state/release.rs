//! Releases git states with the checkpoints that they belong to.

use std::collections::HashSet;

use super::objects::lost_objects;
use crate::error::Result;
use crate::id::{CheckpointId, ProjectId};
use crate::progress::Progress;
use crate::store::{ProjectLock, ReleasePolicy, Store};
use crate::time::Moment;
use crate::worktree::{Repository, RepositoryPlace};

/// Releases the git states of all projects that are not needed any more. Returns the number of bytes freed.
pub(crate) fn release_git_states(
    store: &Store,
    policy: ReleasePolicy,
    now: Moment,
    progress: &Progress,
) -> Result<u64> {
    let mut freed = 0;
    let known = store.known_projects()?;
    for project in store.git_states.projects()? {
        if progress.is_cancelled() {
            break;
        }
        freed += release_one(store, &project, known.contains(&project), policy, now, progress)?;
    }
    Ok(freed)
}

fn release_one(
    store: &Store,
    project: &ProjectId,
    is_known: bool,
    policy: ReleasePolicy,
    now: Moment,
    progress: &Progress,
) -> Result<u64> {
    let held = store.locks.share_until(Some(progress))?;
    let locked = store.locks.lock_project_until(&held, project, Some(progress))?;
    let states = &store.git_states;
    let place = states.log(project).last().and_then(|record| states.get(project, record.state).ok());
    let place = place.map(|state| RepositoryPlace {
        own: state.common.join(crate::sys::name_from_bytes(&state.own)),
        root: state.root,
        common: state.common,
    });
    let repository = place.as_ref().and_then(|place| place.open().ok().flatten());
    if !is_known {
        let place = place.filter(|_| repository.is_some());
        return release_forgotten(store, &locked, project, place.as_ref(), policy, now, progress);
    }
    let objects = store.objects.open(&held)?;
    let history = store.histories.of(&objects, project)?;
    let live: HashSet<CheckpointId> = history.checkpoints.iter().map(|checkpoint| checkpoint.id).collect();
    let is_present = |path: &[u8]| repository.as_ref().is_some_and(|repository| is_there(repository, path));
    states.release(&locked, project, &live, is_present, policy, now)
}

/// Releases what is held of a forgotten project: at once what its repository, in `place`, has as well, and what is lost
/// after `keep_days`. Nothing is released while the repository cannot be read.
fn release_forgotten(
    store: &Store,
    locked: &ProjectLock,
    project: &ProjectId,
    place: Option<&RepositoryPlace>,
    policy: ReleasePolicy,
    now: Moment,
    progress: &Progress,
) -> Result<u64> {
    let states = &store.git_states;
    let lost = match place {
        Some(place) => lost_objects(store, project, place, progress),
        None => states.held(project),
    };
    let Ok(lost) = lost else { return Ok(0) };
    let freed = states.release_all_but(locked, project, &lost, now)?;
    let is_needed = place.is_none() || !lost.is_empty();
    if is_needed && !states.is_expired(project, policy, now) {
        return Ok(freed);
    }
    let bytes = states.held_bytes(project)?;
    states.remove(project)?;
    Ok(freed + bytes)
}

/// Returns true if an object file is in the repository. An unreadable one counts as present.
fn is_there(repository: &Repository, path: &[u8]) -> bool {
    repository.stat(path).map_or(true, |stat| stat.is_some())
}
