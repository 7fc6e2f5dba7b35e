//! Forgetting a project: its ref, its record and everything that is kept about it.

use super::Store;
use crate::error::Result;
use crate::fsx;
use crate::id::ProjectId;
use crate::progress::Progress;
use crate::time::Moment;

/// Conditions under which a project is forgotten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForgetIf {
    /// Time of its last use.
    pub(crate) last_touch: Option<f64>,
    /// True if its directory is gone.
    pub(crate) is_gone: bool,
    /// True to forget it only if it has no mark.
    pub(crate) is_unmarked: bool,
}

/// Forgets a project and all its checkpoints. Returns false, and keeps it, if it was used since `last_touch`, if
/// its record cannot be read, if it has an interrupted restore and its directory still exists, or if it has a mark
/// that it must not have.
pub(crate) fn forget_project(
    store: &Store,
    id: &ProjectId,
    only: ForgetIf,
    now: Moment,
    progress: &Progress,
) -> Result<bool> {
    let progress = Some(progress);
    let held = store.locks.share_until(progress)?;
    let locked = store.locks.lock_project_until(&held, id, progress)?;
    let mut record = store.records.get(id);
    let touched = record.last_touch();
    let is_used = record.is_unread() || touched.is_some() && touched != only.last_touch;
    let is_kept = only.is_unmarked && !store.pins.marks(id)?.is_empty();
    if is_used || is_kept || !only.is_gone && store.intents.get(id)?.is_some() {
        return Ok(false);
    }
    // A record with an index and without a ref means a lost ref; a process that is killed from here on must not
    // look like that.
    if record.has_finished_take() {
        record.unset_finished_take();
        store.records.save(&locked, id, &record)?;
    }
    store.locals.remove_all(&locked, id, now)?;
    store.pins.remove_all(&locked, id, now)?;
    store.refs.delete_ref(&locked, id, now)?;
    store.unfinished.drop_all(&locked, id, now)?;
    let layout = &store.layout;
    let caches = [layout.index(id), layout.local_index(id), layout.lineage(id), layout.lineage_0_1(id)];
    for path in caches.into_iter().chain([layout.intent(id), layout.record(id)]) {
        fsx::remove_file(&path)?;
    }
    store.ledger.remove(id)?;
    Ok(true)
}
