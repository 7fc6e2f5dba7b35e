//! Garbage collection: freeing the space of unreachable objects while other processes take checkpoints.
//!
//! Invariants, which hold between any two system calls:
//!
//! - G2. A reachable object has at least one copy that readers see: the pack that replaces others is published and
//!   synced before they are unlinked.
//! - G3. Packs are unlinked only under `store` exclusive, after the names were read again and every object that is
//!   reachable from them by then was rescued. A take that found an object under `store` shared therefore keeps it.
//! - G4. The extra space is that of one pack: packs are rewritten one after the other, or small ones together. Under a
//!   size limit, packs are merged only up to a size that fits in the part of the limit that is reserved for collections
//!   (`size`). A group that does not fit waits, unless the collection must make room.
//!
//! A collection that is killed at any point leaves duplicates or temporary files, which the next one finds.

mod plan;
mod write;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::keeps::PublishedPacks;
use super::lock::{Exclusive, GcLock};
use super::marks::{NO_HOME, narrow};
use super::object_db::ObjectDb;
use super::pack::SealedPack;
use super::packs::Pack;
use super::reachability::{Reachability, not_whole};
use super::size::{self, bytes_of};
use super::stale_locals::drop_stale_locals;
use super::sweep::{self, is_old};
use super::{Objects, Room, Store, StoreLock, beside};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::ObjectId;
use crate::progress::Progress;
use crate::time::Moment;

pub(crate) use plan::GcGoal;
use plan::{Bounds, Group, PACK_EXTRA_BYTES, PackState};
use write::{EntryTable, Moving, entry_at};

/// Number of attempts to get the exclusive lock. Takes have priority.
const TRIES_MAX: u32 = 40;
/// Result of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GcReport {
    /// Number of bytes by which the store shrank on disk.
    pub bytes_freed: u64,
    /// True if work is left for the next collection, for example because other processes used the store the whole time,
    /// or because it was cancelled or lacked space.
    pub left_some: bool,
}

/// A garbage collection in progress.
pub(super) struct Collection<'a> {
    pub(super) store: &'a Store,
    pub(super) held: &'a GcLock,
    /// The reachable objects, which must be kept.
    pub(super) reach: Reachability,
    pub(super) now: Moment,
    pub(super) progress: &'a Progress,
    /// Size limit of the store, including the packs that the collection writes.
    pub(super) bytes_max: u64,
    /// True if the collection continues even while takes wait for room.
    pub(super) is_urgent: bool,
    /// True if unreachable files that stock git wrote within the last hour are removed, too.
    pub(super) even_young: bool,
    /// The packs that the plan is based on, without those that the collection itself has unlinked.
    pub(super) relied: HashSet<PathBuf>,
}

impl<'a> Collection<'a> {
    /// Returns a collection that yields to takes and keeps young files, without a size limit.
    pub(super) fn new(
        store: &'a Store,
        held: &'a GcLock,
        reach: Reachability,
        now: Moment,
        progress: &'a Progress,
    ) -> Self {
        let (bytes_max, is_urgent, even_young) = (u64::MAX, false, false);
        Self { store, held, reach, now, progress, bytes_max, is_urgent, even_young, relied: HashSet::new() }
    }
}

/// Marks every object that is reachable at this moment.
pub(super) fn reach_all(store: &Store, objects: &Objects) -> Result<Reachability> {
    let roots = store.catalog.roots()?;
    let mut reach = Reachability::new(store.objects.ids()?, roots.ends.clone());
    reach.all_roots(objects, &roots);
    Ok(reach)
}

/// Frees the space of unreachable objects, within the size limit of the store. Fails with `Damaged` if a reachable
/// object is missing.
pub(crate) fn collect_garbage(
    store: &Store,
    held: &GcLock,
    goal: GcGoal,
    bytes_max: Option<u64>,
    now: Moment,
    progress: &Progress,
) -> Result<GcReport> {
    // Only a collection unlinks objects, and the caller holds the lock for it, so no object disappears.
    drop_stale_locals(store, now)?;
    let objects = store.objects.open(&StoreLock::none())?;
    let reach = reach_all(store, &objects)?;
    drop(objects);
    let bytes_max = bytes_max.unwrap_or(u64::MAX);
    Collection { bytes_max, ..Collection::new(store, held, reach, now, progress) }.run(goal)
}

/// Removes every unreachable byte, no matter how much has to be rewritten for it. Fails with `Busy` if other
/// processes use the store the whole time.
pub(crate) fn collect_every(store: &Store, held: &GcLock, now: Moment, progress: &Progress) -> Result<()> {
    drop_stale_locals(store, now)?;
    let reach = reach_all(store, &store.objects.open(&StoreLock::none())?)?;
    let bytes_max = u64::MAX;
    let collection = Collection::new(store, held, reach, now, progress);
    let collection = Collection { bytes_max, is_urgent: true, even_young: true, ..collection };
    if collection.run(GcGoal::Every)?.left_some {
        return Err(Error::new(ErrorKind::Busy, "remove unreachable objects")
            .because("other processes keep using the store")
            .with_hint(Hint::PruneLater));
    }
    Ok(())
}

impl Collection<'_> {
    pub(super) fn run(mut self, goal: GcGoal) -> Result<GcReport> {
        self.reach.check_whole()?;
        let mut done = GcReport::default();
        let before = self.store.size.count_bytes()?;
        if !self.is_urgent && !self.settle()? {
            return Ok(GcReport { left_some: true, ..done });
        }
        let packs = self.store.objects.packs()?;
        self.relied = packs.iter().map(|pack| pack.name.clone()).collect();
        let loose = self.store.objects.loose_ids()?;
        self.find_homes(&packs, &loose)?;
        self.forget_dropped_boundaries()?;
        let states: Vec<_> = (0..packs.len()).map(|at| self.state(&packs, at, goal)).collect::<Result<_>>()?;
        let groups = plan::plan(&states, goal, Bounds::new(self.bytes_max));
        let bytes_of_group = |group: &Group| group.packs.iter().map(|at| packs[*at].bytes).sum::<u64>();
        self.progress.begin_store_phase(groups.iter().map(bytes_of_group).sum());
        let mut no_space = None;
        for group in &groups {
            // A group that could not be unlinked takes twice its space: one at a time is enough.
            if done.left_some || self.is_over() {
                done.left_some = true;
                break;
            }
            let before = self.progress.store_bytes_done.load(Ordering::Relaxed);
            match self.replace(&packs, group, &mut done) {
                Ok(()) => {}
                // The next group may need less space.
                Err(error) if error.kind() == ErrorKind::Full => no_space = Some(error),
                Err(error) => return Err(error),
            }
            // Bytes that did not have to be moved count as done, too.
            self.progress.store_bytes_done.store(before + bytes_of_group(group), Ordering::Relaxed);
        }
        // Loose objects that were packed here, by index in `loose`, in addition to those that have a home.
        let mut packed = vec![false; loose.len()];
        if matches!(goal, GcGoal::All | GcGoal::Every) {
            match self.pack_loose(&packs, &loose, &mut packed, &mut done) {
                Err(error) if error.kind() == ErrorKind::Full => no_space = Some(error),
                result => result?,
            }
        }
        self.sweep(&loose, &packed, &mut done)?;
        done.bytes_freed = before.saturating_sub(self.store.size.count_bytes()?);
        match no_space {
            Some(error) if done.bytes_freed == 0 => Err(error),
            Some(_) => Ok(GcReport { left_some: true, ..done }),
            None => Ok(done),
        }
    }

    /// Removes leftovers of killed processes and recounts the size of the store, so that no space reserved for
    /// collections is in use. Returns false if other processes used the store the whole time.
    fn settle(&self) -> Result<bool> {
        let Some(alone) = self.exclude()? else { return Ok(false) };
        sweep::remove_left_overs(self.store, self.now, self.even_young)?;
        self.store.size.recount(&alone).map(|_| true)
    }

    /// Returns true if the collection should end soon: it was cancelled, or a take waits for room.
    fn is_over(&self) -> bool {
        self.progress.is_cancelled() || !self.is_urgent && self.store.locks.has_waiter()
    }

    /// Records the home of each reachable object, the pack whose copy is kept: a pack with a `.keep` file of the user,
    /// otherwise the newest pack. Fails with `Damaged` if an object is neither packed nor loose.
    fn find_homes(&mut self, packs: &[Pack], loose: &[ObjectId]) -> Result<()> {
        let mut order: Vec<_> = (0..packs.len()).collect();
        order.sort_by_key(|at| !packs[*at].is_kept);
        let marks = &mut self.reach.marks;
        for at in order {
            for entry in packs[at].entries() {
                if let Some(slot) = marks.find(&entry.id).filter(|slot| marks.home(*slot) == NO_HOME) {
                    marks.set_home(slot, narrow(at));
                }
            }
        }
        let is_lost = |(id, slot): &(ObjectId, _)| marks.home(*slot) == NO_HOME && loose.binary_search(id).is_err();
        match marks.iter().find(is_lost) {
            None => Ok(()),
            Some((id, _)) => Err(not_whole(format!("the object {id} is not in the store"))),
        }
    }

    /// Returns true if this pack's copy of the object is kept. An object that became reachable after the collection
    /// began has no home yet, so any copy of it is kept.
    fn stays(&self, pack: usize, id: &ObjectId) -> bool {
        let marks = &self.reach.marks;
        marks.find(id).is_some_and(|slot| [NO_HOME, narrow(pack)].contains(&marks.home(slot)))
    }

    /// Returns true if the object is reachable and was found in a pack when the collection began.
    fn has_home(&self, id: &ObjectId) -> bool {
        let marks = &self.reach.marks;
        marks.find(id).is_some_and(|slot| marks.home(slot) != NO_HOME)
    }

    /// Returns true if only local files need the object.
    fn is_local(&self, id: &ObjectId) -> bool {
        self.reach.marks.find(id).is_some_and(|slot| self.reach.marks.is_local(slot))
    }

    fn state(&self, packs: &[Pack], at: usize, goal: GcGoal) -> Result<PackState> {
        let pack = &packs[at];
        let mut state = PackState { is_kept: pack.is_kept, ..PackState::default() };
        for entry in pack.entries() {
            let stays = self.stays(at, &entry.id);
            *(if stays { &mut state.live_bytes } else { &mut state.dead_bytes }) += entry.bytes();
            if stays && self.is_local(&entry.id) {
                state.local_bytes += entry.bytes();
            }
        }
        if matches!(goal, GcGoal::All | GcGoal::Every) {
            // All entries of a pack were written by one process at one compression level, so a sample of at most 256 is
            // enough.
            for entry in (0..pack.len()).step_by(pack.len() / 256 + 1) {
                state.is_hasty |= pack.stored(entry)?.is_hasty();
            }
        }
        Ok(state)
    }

    /// Returns the entries of these packs that satisfy `is_meant`, each object once.
    fn places(&self, packs: &[Pack], of: &[usize], is_meant: impl Fn(usize, &ObjectId) -> bool) -> EntryTable {
        let mut places = EntryTable::default();
        let mut of = of.to_vec();
        of.sort_unstable();
        for pack in of {
            let meant = packs[pack].entries().enumerate().filter(|(_, entry)| is_meant(pack, &entry.id));
            meant.for_each(|(at, entry)| places.push((narrow(pack), narrow(at)), entry.id, self.has_home(&entry.id)));
        }
        places
    }

    /// Writes the replacement of a group of packs, and unlinks the group.
    fn replace(&mut self, packs: &[Pack], group: &Group, done: &mut GcReport) -> Result<()> {
        // Z2: local files and everything else go to packs of their own.
        let parts = [false, true].map(|local| {
            self.places(packs, &group.packs, |pack, id| self.stays(pack, id) && self.is_local(id) == local)
        });
        let mut new = PublishedPacks::default();
        for places in parts.iter().filter(|places| !places.is_empty()) {
            let bytes = places.iter().map(|place| entry_at(packs, place).bytes()).sum::<u64>();
            let Some(published) = self.write(packs, places, Vec::new(), bytes, group.compress_well)? else {
                // Without room for this group, the next one may still fit.
                done.left_some |= self.is_over();
                return Ok(());
            };
            new.merge(published);
        }
        let Some(_alone) = self.alone()? else {
            done.left_some = true;
            return Ok(());
        };
        // Stock git updates the mtime of a pack when it relies on an object in it that no ref points to yet.
        if group.packs.iter().any(|at| packs[*at].is_freshened()) {
            done.left_some = true;
            return Ok(());
        }
        let left: Vec<_> = group.packs.iter().copied().filter(|at| !new.names.contains(&packs[*at].name)).collect();
        // Objects with a home in the group were moved, and those with another home stay there. The rest may have become
        // reachable since.
        let is_named_since = |_, id: &ObjectId| {
            self.reach.marks.contains(id) && !self.has_home(id) && !parts.iter().any(|places| places.has_homeless(id))
        };
        let behind = [false, true]
            .map(|local| self.places(packs, &left, |pack, id| is_named_since(pack, id) && self.is_local(id) == local));
        // Packs are named by their contents: a pack that is rescued in full gets the same name.
        let mut rescued = PublishedPacks::default();
        for places in &behind {
            rescued.merge(self.rescue(packs, places)?);
        }
        self.store.objects.remove_overviews()?;
        for pack in left.into_iter().filter(|at| !rescued.names.contains(&packs[*at].name)) {
            self.relied.remove(&packs[pack].name);
            self.store.objects.unlink_pack(&packs[pack].name)?;
        }
        Ok(())
    }

    /// Writes these entries and loose objects, about `bytes` bytes, into a pack and publishes it. Returns `None` if it
    /// was cancelled or there is no room.
    fn write(
        &self,
        packs: &[Pack],
        places: &EntryTable,
        loose: Vec<(ObjectId, u64)>,
        bytes: u64,
        compress_well: bool,
    ) -> Result<Option<PublishedPacks>> {
        let bytes = (bytes + PACK_EXTRA_BYTES).max(size::collection_bytes(self.bytes_max));
        if self.store.size.reserve_to_collect(bytes, self.bytes_max, self.is_urgent)? == Room::Lacking {
            return Ok(None);
        }
        // Reopened for each group: the packs of the previous group are gone.
        let objects = &self.store.objects.open(&StoreLock::none())?;
        let marks = &self.reach.marks;
        let bytes_max = if self.is_urgent { u64::MAX } else { bytes };
        let (is_over, moved) = (&|| self.is_over(), &|bytes| self.progress.advance_store(bytes));
        let moving = Moving { packs, objects, marks, places, loose, bytes_max, is_over, moved };
        let sealed = moving.write(&self.store.layout.pack_dirs(), compress_well)?;
        let new = sealed.map(|sealed| SealedPack::publish(vec![sealed], &self.store.layout.packs())).transpose()?;
        self.store.size.give_back(bytes, self.bytes_max)?;
        Ok(new)
    }

    /// Takes the exclusive lock on objects and marks what is reachable by then. Returns `None` if the lock is not
    /// available or nothing may be unlinked.
    ///
    /// Stock git does not take these locks. While it collects, and after it has deleted packs that the plan relies on,
    /// nothing may be unlinked: the copy that is to be kept may be the one that stock git deletes.
    fn alone(&mut self) -> Result<Option<Exclusive>> {
        let Some(alone) = self.exclude()? else { return Ok(None) };
        let there: HashSet<_> = self.store.objects.pack_names()?.into_iter().collect();
        if !self.relied.iter().all(|pack| there.contains(pack)) {
            return Ok(None);
        }
        let fresh = self.store.objects.open(&StoreLock::none())?;
        self.reach.all_roots(&fresh, &self.store.catalog.roots()?);
        self.reach.check_whole()?;
        Ok(Some(alone))
    }

    fn exclude(&self) -> Result<Option<Exclusive>> {
        for attempt in 0..TRIES_MAX {
            if let Some(alone) = self.store.locks.exclude(self.held)?
                && !beside::git_collects(&self.store.layout, self.now)
            {
                return Ok(Some(alone));
            }
            if self.is_over() {
                break;
            }
            std::thread::sleep(Duration::from_millis(u64::from(attempt.min(10)) * 10 + 5));
        }
        Ok(None)
    }

    /// Writes copies of entries that became reachable after the collection began.
    fn rescue(&self, packs: &[Pack], places: &EntryTable) -> Result<PublishedPacks> {
        if places.is_empty() {
            return Ok(PublishedPacks::default());
        }
        let objects = &self.store.objects.open(&StoreLock::none())?;
        let marks = &self.reach.marks;
        let (loose, bytes_max, moved) = (Vec::new(), u64::MAX, &|_| {});
        let moving = Moving { packs, objects, marks, places, loose, bytes_max, is_over: &|| false, moved };
        let sealed = moving.write(&self.store.layout.pack_dirs(), false)?.expect("this one is never cancelled");
        SealedPack::publish(vec![sealed], &self.store.layout.packs())
    }

    /// Moves loose objects into packs, one pack after the other.
    fn pack_loose(
        &mut self,
        packs: &[Pack],
        loose: &[ObjectId],
        packed: &mut [bool],
        done: &mut GcReport,
    ) -> Result<()> {
        let marks = &self.reach.marks;
        let needed = loose.iter().filter_map(|id| Some((id, marks.find(id)?)));
        let mut needed: Vec<_> = needed.filter(|(_, slot)| marks.home(*slot) == NO_HOME).collect();
        needed.sort_by_key(|(_, slot)| (marks.is_local(*slot), marks.similarity_key(*slot)));
        let path_of = |id: &ObjectId| self.store.layout.loose_object(id);
        let needed: Vec<_> = needed.into_iter().map(|(id, _)| (*id, bytes_of(&path_of(id)))).collect();
        if !needed.is_empty() {
            self.progress.begin_store_phase(needed.iter().map(|(_, bytes)| bytes).sum());
        }
        let pack_bytes = Bounds::new(self.bytes_max).pack_bytes;
        let mut bytes = needed.first().map_or(0, |(_, bytes)| *bytes);
        let batches: Vec<Vec<_>> = needed
            .chunk_by(|(one, _), (other, more)| {
                let fits = bytes + more <= pack_bytes && self.is_local(one) == self.is_local(other);
                bytes = if fits { bytes + more } else { *more };
                fits
            })
            .map(<[_]>::to_vec)
            .collect();
        for batch in batches {
            let bytes = batch.iter().map(|(_, bytes)| bytes).sum();
            let Some(_published) = self.write(packs, &EntryTable::default(), batch.clone(), bytes, true)? else {
                done.left_some = true;
                break;
            };
            let places = batch.iter().filter_map(|(id, _)| loose.binary_search(id).ok());
            places.for_each(|at| packed[at] = true);
            let Some(_alone) = self.alone()? else {
                done.left_some = true;
                break;
            };
            batch.iter().try_for_each(|(id, _)| fsx::remove_file(&self.store.layout.loose_object(id)))?;
        }
        Ok(())
    }

    /// Removes loose objects that are also packed or that are unreachable, and leftovers of killed processes.
    fn sweep(&mut self, loose: &[ObjectId], packed: &[bool], done: &mut GcReport) -> Result<()> {
        let Some(alone) = self.alone()? else {
            done.left_some = true;
            return Ok(());
        };
        let path_of = |id: &ObjectId| self.store.layout.loose_object(id);
        let is_dead =
            |id: &ObjectId| !self.reach.marks.contains(id) && (self.even_young || is_old(&path_of(id), self.now));
        let goes = loose.iter().zip(packed).filter(|(id, packed)| **packed || self.has_home(id) || is_dead(id));
        let goes: Vec<_> = goes.map(|(id, _)| id).collect();
        if !goes.is_empty() {
            self.store.objects.remove_overviews()?;
        }
        goes.into_iter().try_for_each(|id| fsx::remove_file(&path_of(id)))?;
        sweep::remove_left_overs(self.store, self.now, self.even_young)?;
        self.store.size.recount(&alone).map(drop)
    }

    /// Removes the boundaries of histories that are unreachable. Stock git complains about a `shallow` entry whose
    /// commit is missing.
    fn forget_dropped_boundaries(&self) -> Result<()> {
        let is_dropped = |id: &&ObjectId| !self.reach.marks.contains(id);
        let dropped: HashSet<_> = self.reach.boundary.iter().filter(is_dropped).copied().collect();
        if dropped.is_empty() { Ok(()) } else { self.store.boundary.forget(&dropped, self.now) }
    }
}

/// Returns true if there are so many small packs that lookups get slow or space is wasted.
pub(crate) fn has_many_packs(objects: &ObjectDb, bytes_max: Option<u64>) -> bool {
    let bounds = Bounds::new(bytes_max.unwrap_or(u64::MAX));
    bounds.has_many(count_small_packs(objects, bounds))
}

/// Returns true if small packs have piled up unmerged, so that merging them frees space for a take.
pub(super) fn has_too_many_packs(objects: &ObjectDb, bytes_max: u64) -> bool {
    let bounds = Bounds::new(bytes_max);
    bounds.has_too_many(count_small_packs(objects, bounds))
}

fn count_small_packs(objects: &ObjectDb, bounds: Bounds) -> usize {
    let is_small = |name: &&PathBuf| bounds.is_small(bytes_of(&name.with_added_extension("pack")));
    let names = objects.pack_names().unwrap_or_default();
    // Every take calls this: if there are few packs, their sizes are not read.
    if bounds.has_many(names.len()) { names.iter().filter(is_small).count() } else { 0 }
}

#[cfg(test)]
mod tests;
