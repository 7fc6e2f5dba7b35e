//! Drops the local files of checkpoints that no longer exist. Other programs drop checkpoints, too.

use super::locals::ids_of;
use super::{Store, StoreLock};
use crate::error::Result;
use crate::time::Moment;

/// Drops the local files of all checkpoints that are no longer in a history. The caller holds the lock of collections.
/// (Z3)
pub(super) fn drop_stale_locals(store: &Store, now: Moment) -> Result<()> {
    let roots = store.catalog.roots()?;
    if roots.locals.is_empty() {
        return Ok(());
    }
    let objects = store.objects.open(&StoreLock::none())?;
    for (project, locals) in &roots.locals {
        let history = objects.history(roots.projects.get(project).copied(), &roots.ends)?;
        let pinned = roots.pins.get(project).into_iter().flatten().map(|pin| pin.id);
        let kept = ids_of(&history, pinned);
        if locals.iter().all(|local| kept.contains(&local.checkpoint)) {
            continue;
        }
        // A take may have followed: everything is read again under the project's lock.
        let held = store.locks.share()?;
        let locked = store.locks.lock_project(&held, project)?;
        let objects = store.objects.open(&held)?;
        let history = store.histories.from(&objects, store.refs.newest(project)?)?.whole()?;
        let kept = ids_of(&history, store.pins.of(project)?.into_iter().map(|pin| pin.id));
        store.locals.remove_unless(&locked, project, &kept, now)?;
    }
    Ok(())
}
