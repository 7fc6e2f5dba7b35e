//! Going on with a project whose newest checkpoint another program deleted.
//!
//! Two collections of stock git beside each other can do that: one deletes commits that no ref leads to yet, and the other
//! program makes the ref lead there a moment later. Only an object that is in no place is gone: one that is damaged, or may
//! be in a pack that cannot be read, is left to a repair, which may bring it back.

use std::time::Duration;

use super::copies::{Copies, Found};
use super::layout::Layout;
use super::repair::RefPlan;
use super::{DAMAGED_HINT, Objects, ProjectLock, Store, StoreLock};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ProjectId};
use crate::time::Moment;

/// Stock git puts a pack in place before its idx: such a pair is looked at again so often, with pauses.
const LOOKS_MAX: u32 = 20;
const LOOK_PAUSE_MS: u64 = 10;

impl Store {
    /// Makes the ref of a project lead to the newest checkpoint that is left, if the one that it names is gone. Returns the
    /// lost id; `None` if the newest checkpoint is there, or there never was one.
    ///
    /// The old value of the ref is kept in `repairs/`. Fails with `Damaged` if a repair may bring the checkpoint back.
    pub(crate) fn salvage_newest(
        &self,
        locked: &ProjectLock,
        project: &ProjectId,
        objects: &Objects,
        now: Moment,
    ) -> Result<Option<CheckpointId>> {
        let Some(newest) = self.newest(project)? else { return Ok(None) };
        match objects.checkpoint(newest) {
            Err(error) if error.kind() == ErrorKind::Damaged => {}
            read => return read.map(|_| None),
        }
        let copies = self.complete_copies()?;
        if self.newest(project)? != Some(newest) {
            return Ok(None);
        }
        match copies.read(&mut copies.decoder(), newest) {
            Found::Missing => {}
            // Moved to another pack meanwhile, or damaged.
            Found::Whole(_) => return Ok(None),
            Found::Damaged(why) => {
                let what = format!("read the object {newest}");
                return Err(Error::damaged(what, why.to_string()).with_hint(DAMAGED_HINT));
            }
        }
        copies.refuse_unread()?;
        let plan = RefPlan::new(self, &copies, project, newest)?;
        self.keep_name(project, newest, now)?;
        for (name, id) in &plan.recovered {
            self.set_ref(project.as_str(), name, Some(*id), now)?;
        }
        for cut in &plan.cuts {
            self.cut_before(locked, project, *cut, now)?;
        }
        self.forget_lineage(project);
        // A collection of stock git's that is under way may delete what no ref led to until now: nothing of it is relied upon
        // without being looked for.
        fsx::remove_file(&self.layout.index(project))?;
        self.retreat(locked, project, newest, plan.tip, now)?;
        Ok(Some(newest))
    }

    /// Every copy of every object, where each pack has its idx. Fails with `Damaged` otherwise: what is not found may be in
    /// a pack that a repair can read again.
    fn complete_copies(&self) -> Result<Copies> {
        let mut why = String::new();
        for _ in 0..LOOKS_MAX {
            let copies = self.copies()?;
            match copies.packs.iter().find(|pack| !pack.is_there() || pack.idx_fault.is_some() || pack.fault.is_some())
            {
                None => return Ok(copies),
                Some(pack) => why = format!("{} and its idx do not belong together", pack.name.display()),
            }
            std::thread::sleep(Duration::from_millis(LOOK_PAUSE_MS));
        }
        Err(Error::damaged("find the newest checkpoint", why).with_hint(DAMAGED_HINT))
    }

    /// Keeps the value of a project's ref that is about to be replaced.
    fn keep_name(&self, project: &ProjectId, value: CheckpointId, now: Moment) -> Result<()> {
        let stamp = now.stamp();
        let names = (1..).map(|turn| if turn == 1 { stamp.clone() } else { format!("{stamp}-{turn}") });
        let dir = fsx::first_free(names.map(|name| self.layout.repairs().join(name)))?;
        let path = dir.join(Layout::ref_name(project));
        fsx::ensure_dir(path.parent().expect("below the directory of this repair"))?;
        fsx::replace(&path, format!("{value}\n").as_bytes(), Durability::Synced)?;
        fsx::sync_dir(&dir)
    }

    /// Returns true if a checkpoint can be read now.
    pub(crate) fn is_readable(&self, id: CheckpointId) -> Result<bool> {
        match self.objects(&StoreLock::none())?.checkpoint(id) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Damaged => Ok(false),
            Err(error) => Err(error),
        }
    }
}
