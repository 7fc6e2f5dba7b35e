//! Continuing with a project whose newest checkpoint was deleted by another program.
//!
//! Two concurrent collections by stock git can cause that: one deletes commits that are still unreachable, and the
//! other program points the ref to them a moment later. Only an object without any copy is gone: one that is corrupt,
//! or may be in an unreadable pack, is left to a repair, which may recover it.

use std::time::Duration;

use super::layout::Layout;
use super::object_copies::{Copies, CopyLookup};
use super::object_db::ObjectDb;
use super::repair::RefPlan;
use super::{Objects, ProjectLock, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::hint::Hint;
use crate::id::{CheckpointId, ProjectId};
use crate::time::Moment;

/// Maximum number of times that the packs are listed again, with pauses, because stock git puts a pack in place before
/// its idx.
const LOOKS_MAX: u32 = 20;
const LOOK_PAUSE_MS: u64 = 10;

/// Points the ref of a project to the newest remaining checkpoint, if the one that it names is gone. Returns the
/// lost id; `None` if the newest checkpoint exists, or there never was one.
///
/// The old value of the ref is kept in `repairs/`. Fails with `Damaged` if a repair may recover the checkpoint.
pub(crate) fn salvage_newest(
    store: &Store,
    locked: &ProjectLock,
    project: &ProjectId,
    objects: &Objects,
    now: Moment,
) -> Result<Option<CheckpointId>> {
    let Some(newest) = store.refs.newest(project)? else { return Ok(None) };
    match objects.checkpoint(newest) {
        Err(error) if error.kind() == ErrorKind::Damaged => {}
        read => return read.map(|_| None),
    }
    let copies = complete_copies(&store.objects)?;
    if store.refs.newest(project)? != Some(newest) {
        return Ok(None);
    }
    match copies.read(&mut copies.decoder(), newest) {
        CopyLookup::Missing => {}
        // Moved to another pack meanwhile, or an intact copy exists beside a corrupt one.
        CopyLookup::Whole(_) => return Ok(None),
        CopyLookup::Damaged(why) => {
            let what = format!("read the object {newest}");
            return Err(Error::damaged(what, why.to_string()).with_hint(Hint::Repair));
        }
    }
    copies.refuse_unread()?;
    let plan = RefPlan::new(store, &copies, project, newest)?;
    keep_name(&store.layout, project, newest, now)?;
    for (name, id) in &plan.recovered {
        store.refs.set_ref(project.as_str(), name, Some(*id), now)?;
    }
    if !plan.cuts.is_empty() {
        let cuts: Vec<_> = plan.cuts.iter().copied().collect();
        store.boundary.cut_before(locked, project, &cuts, now)?;
    }
    store.histories.forget_lineage(project);
    // A running collection by stock git may delete objects that were unreachable so far. Without the index, the
    // next take looks up every object that it relies on.
    fsx::remove_file(&store.layout.index(project))?;
    store.refs.retreat(locked, project, newest, plan.tip, now)?;
    Ok(Some(newest))
}

/// Returns every copy of every object, if each pack has a valid idx. Fails with `Damaged` otherwise: a missing
/// object may be in a pack that a repair can read.
fn complete_copies(objects: &ObjectDb) -> Result<Copies> {
    let mut why = String::new();
    for _ in 0..LOOKS_MAX {
        let copies = objects.copies()?;
        match copies.packs.iter().find(|pack| !pack.is_there() || pack.idx_fault.is_some() || pack.fault.is_some()) {
            None => return Ok(copies),
            Some(pack) => why = format!("{} and its idx do not belong together", pack.name.display()),
        }
        std::thread::sleep(Duration::from_millis(LOOK_PAUSE_MS));
    }
    Err(Error::damaged("find the newest checkpoint", why).with_hint(Hint::Repair))
}

/// Saves the value of a project's ref, which is about to be replaced, in `repairs/`.
fn keep_name(layout: &Layout, project: &ProjectId, value: CheckpointId, now: Moment) -> Result<()> {
    let stamp = now.stamp();
    let names = (1..).map(|turn| if turn == 1 { stamp.clone() } else { format!("{stamp}-{turn}") });
    let dir = fsx::first_free(names.map(|name| layout.repairs().join(name)))?;
    let path = dir.join(Layout::ref_name(project));
    fsx::ensure_dir(path.parent().expect("below the directory of this repair"))?;
    fsx::replace(&path, format!("{value}\n").as_bytes(), Durability::Synced)?;
    fsx::sync_dir(&dir)
}
