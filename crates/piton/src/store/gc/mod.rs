//! Giving back the space that nothing refers to, while others take checkpoints.
//!
//! They hold between any two system calls:
//!
//! - G2. An object that can be reached stands in at least one place that readers see: what replaces packs is published
//!   and synced before they are unlinked.
//! - G3. Packs are unlinked under `store` exclusive only, after the names were read once more and whatever they lead to
//!   by then was rescued. A take that found an object under `store` shared therefore keeps it.
//! - G4. The extra space is that of one pack: packs are rewritten one after the other, or small ones together. Under a
//!   limit, packs are merged only to such a size that this fits in the part of it that is the collection's (`size`), and
//!   what does not fit waits, unless room must be made.
//!
//! Killed at any point, a collection leaves duplicates or temporary files, and the next one finds them.

mod plan;
mod write;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::keeps::PublishedPacks;
use super::lock::{Exclusive, GcLock};
use super::marks::{NO_HOME, narrow};
use super::pack::SealedPack;
use super::packs::Pack;
use super::reach::{Reach, not_whole};
use super::{Objects, Room, Store, StoreLock, size};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::ObjectId;
use crate::sys;
use crate::time::Moment;

pub(crate) use plan::Aim;
use plan::{Bounds, Group, PACK_EXTRA_BYTES, PackState};
use write::{Moving, Places, entry_at};

/// Stock git does not know our locks: what it wrote so recently may be about to be named.
const YOUNG_SECS: i128 = 60 * 60;
/// How often the exclusive lock is tried for. Takes go first.
const TRIES_MAX: u32 = 40;
/// Everything that belongs to a pack. The idx goes first: without it nobody looks at the rest.
pub(super) const PACK_FILES: [&str; 7] = ["idx", "bitmap", "rev", "mtimes", "promisor", "keep", "pack"];

/// How far long work on the store has come, for whoever watches it from another thread; and the way to stop it.
#[derive(Debug, Default)]
pub struct Watch {
    /// Bytes that have to be looked at.
    pub total: AtomicU64,
    /// Bytes that were.
    pub done: AtomicU64,
    /// Set it, and the work ends soon. What was done stays done, and what was not is done next time.
    pub stop: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Work of so many bytes begins. There may have been other work before it.
    pub(super) fn begin(&self, bytes: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What a collection came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    /// What came free on the disk.
    pub bytes_freed: u64,
    /// True if others were at work all the time, so that something is left for the next one.
    pub left_some: bool,
}

/// One collection.
pub(super) struct Collection<'a> {
    pub(super) store: &'a Store,
    pub(super) held: &'a GcLock,
    /// What must stay.
    pub(super) reach: Reach,
    pub(super) now: Moment,
    pub(super) watch: &'a Watch,
    /// How large the store may be, with what the collection writes.
    pub(super) bytes_max: u64,
    /// True if it goes on where others wait.
    pub(super) is_urgent: bool,
    /// True if what stock git wrote a moment ago may go, too.
    pub(super) even_young: bool,
    /// The packs by which it was planned and that it has not unlinked itself.
    pub(super) relied: HashSet<PathBuf>,
}

impl Store {
    /// Everything that can be reached now.
    pub(super) fn reach_all(&self, objects: &Objects) -> Result<Reach> {
        let roots = self.roots()?;
        let mut reach = Reach::new(self.ids()?, roots.ends.clone());
        reach.all_roots(objects, &roots);
        Ok(reach)
    }

    /// Gives back what nothing refers to, within the limit for the size of the store.
    pub(crate) fn collect(
        &self,
        held: &GcLock,
        aim: Aim,
        bytes_max: Option<u64>,
        now: Moment,
        watch: &Watch,
    ) -> Result<Collected> {
        // Only a collection unlinks, and this is the one: what is there stays there.
        let objects = self.objects(&StoreLock::none())?;
        let reach = self.reach_all(&objects)?;
        drop(objects);
        let bytes_max = bytes_max.unwrap_or(u64::MAX);
        Collection {
            store: self,
            held,
            reach,
            now,
            watch,
            bytes_max,
            is_urgent: false,
            even_young: false,
            relied: HashSet::new(),
        }
        .run(aim)
    }
}

impl Store {
    /// Removes every byte that nothing refers to, however much has to be written anew for it.
    pub(crate) fn collect_every(&self, held: &GcLock, now: Moment, watch: &Watch) -> Result<()> {
        let reach = self.reach_all(&self.objects(&StoreLock::none())?)?;
        let bytes_max = u64::MAX;
        let collection = Collection {
            store: self,
            held,
            reach,
            now,
            watch,
            bytes_max,
            is_urgent: true,
            even_young: true,
            relied: HashSet::new(),
        };
        if collection.run(Aim::Every)?.left_some {
            return Err(Error::new(ErrorKind::Busy, "remove what nothing refers to")
                .because("other processes use the store all the time")
                .with_hint("run `piton prune` when they have ended"));
        }
        Ok(())
    }
}

impl Collection<'_> {
    pub(super) fn run(mut self, aim: Aim) -> Result<Collected> {
        self.reach.check_whole()?;
        let mut done = Collected::default();
        let before = self.store.count_bytes()?;
        if !self.is_urgent && !self.settle()? {
            return Ok(Collected { left_some: true, ..done });
        }
        let packs = self.store.packs()?;
        self.relied = packs.iter().map(|pack| pack.name.clone()).collect();
        let loose = self.store.loose_ids()?;
        self.find_homes(&packs, &loose)?;
        self.forget_dropped_boundaries()?;
        let states: Vec<_> = (0..packs.len()).map(|at| self.state(&packs, at, aim)).collect::<Result<_>>()?;
        let groups = plan::plan(&states, aim, Bounds::new(self.bytes_max));
        let bytes_of_group = |group: &Group| group.packs.iter().map(|at| packs[*at].bytes).sum::<u64>();
        self.watch.begin(groups.iter().map(bytes_of_group).sum());
        let mut no_space = None;
        for group in &groups {
            // A group that could not be unlinked stands there twice: one at a time is enough.
            if done.left_some || self.is_over() {
                done.left_some = true;
                break;
            }
            let before = self.watch.done.load(Ordering::Relaxed);
            match self.replace(&packs, group, &mut done) {
                Ok(()) => {}
                // The next one may need less.
                Err(error) if error.kind() == ErrorKind::Full => no_space = Some(error),
                Err(error) => return Err(error),
            }
            // What did not have to be moved is done with, too.
            self.watch.done.store(before + bytes_of_group(group), Ordering::Relaxed);
        }
        // Besides those that have a home, by their places in `loose`.
        let mut packed = vec![false; loose.len()];
        if matches!(aim, Aim::All | Aim::Every) {
            match self.pack_loose(&packs, &loose, &mut packed, &mut done) {
                Err(error) if error.kind() == ErrorKind::Full => no_space = Some(error),
                result => result?,
            }
        }
        self.sweep(&loose, &packed, &mut done)?;
        done.bytes_freed = before.saturating_sub(self.store.count_bytes()?);
        match no_space {
            Some(error) if done.bytes_freed == 0 => Err(error),
            Some(_) => Ok(Collected { left_some: true, ..done }),
            None => Ok(done),
        }
    }

    /// Removes what killed ones left and counts the rest: nothing else of the collection's part may be in use. `false` where
    /// others were at work all the time.
    fn settle(&self) -> Result<bool> {
        let Some(alone) = self.exclude()? else { return Ok(false) };
        self.store.remove_left_overs(self.now, self.even_young)?;
        self.store.recount(&alone).map(|_| true)
    }

    /// Returns whether to end soon: somebody said so, or a take that needs room waits.
    fn is_over(&self) -> bool {
        self.watch.is_stopped() || !self.is_urgent && self.store.somebody_waits()
    }

    /// Notes in which pack each object that must stay is to be found: one that stock git keeps, else the newest.
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

    /// Returns whether this pack's copy of the object is the one that stays. What was named only since the collection began has
    /// no home yet: any copy stays then.
    fn stays(&self, pack: usize, id: &ObjectId) -> bool {
        let marks = &self.reach.marks;
        marks.find(id).is_some_and(|slot| [NO_HOME, narrow(pack)].contains(&marks.home(slot)))
    }

    /// Returns whether an object that must stay was found in a pack when the collection began.
    fn has_home(&self, id: &ObjectId) -> bool {
        let marks = &self.reach.marks;
        marks.find(id).is_some_and(|slot| marks.home(slot) != NO_HOME)
    }

    fn state(&self, packs: &[Pack], at: usize, aim: Aim) -> Result<PackState> {
        let pack = &packs[at];
        let mut state = PackState { is_kept: pack.is_kept, ..PackState::default() };
        for entry in pack.entries() {
            let stays = self.stays(at, &entry.id);
            *(if stays { &mut state.live_bytes } else { &mut state.dead_bytes }) += entry.bytes();
        }
        if matches!(aim, Aim::All | Aim::Every) {
            // A pack was written at one time, by one way: some entries speak for all.
            for entry in (0..pack.len()).step_by(pack.len() / 256 + 1) {
                state.is_hasty |= pack.stored(entry)?.is_hasty();
            }
        }
        Ok(state)
    }

    /// The entries of these packs that a test chooses, each object once.
    fn places(&self, packs: &[Pack], of: &[usize], is_meant: impl Fn(usize, &ObjectId) -> bool) -> Places {
        let mut places = Places::default();
        let mut of = of.to_vec();
        of.sort_unstable();
        for pack in of {
            let meant = packs[pack].entries().enumerate().filter(|(_, entry)| is_meant(pack, &entry.id));
            meant.for_each(|(at, entry)| places.push((narrow(pack), narrow(at)), entry.id, self.has_home(&entry.id)));
        }
        places
    }

    /// Writes what replaces a group, and unlinks the group.
    fn replace(&mut self, packs: &[Pack], group: &Group, done: &mut Collected) -> Result<()> {
        let places = self.places(packs, &group.packs, |pack, id| self.stays(pack, id));
        let mut new = PublishedPacks::default();
        if !places.is_empty() {
            let bytes = places.iter().map(|place| entry_at(packs, place).bytes()).sum::<u64>();
            let Some(published) = self.write(packs, &places, Vec::new(), bytes, group.tend)? else {
                // What there is no room for may be the next one's turn.
                done.left_some |= self.is_over();
                return Ok(());
            };
            new = published;
        }
        let Some(_alone) = self.alone()? else {
            done.left_some = true;
            return Ok(());
        };
        // Stock git sets the time of a pack whose objects it relies upon and does not write again, as yet unnamed.
        if group.packs.iter().any(|at| packs[*at].is_freshened()) {
            done.left_some = true;
            return Ok(());
        }
        let left: Vec<_> = group.packs.iter().copied().filter(|at| !new.names.contains(&packs[*at].name)).collect();
        // What has a home in the group was moved, and what has another one stays there. The rest may be named since.
        let is_named_since =
            |_, id: &ObjectId| self.reach.marks.contains(id) && !self.has_home(id) && !places.has_homeless(id);
        let behind = self.places(packs, &left, is_named_since);
        // A pack is named by its contents: one that is rescued whole takes its own place.
        let rescued = self.rescue(packs, &behind)?;
        self.store.remove_overviews()?;
        for pack in left.into_iter().filter(|at| !rescued.names.contains(&packs[*at].name)) {
            self.relied.remove(&packs[pack].name);
            self.store.unlink_pack(&packs[pack].name)?;
        }
        Ok(())
    }

    /// Writes a pack of these, about so many bytes, and makes it visible. `None` when it was stopped, or where there is no
    /// room for it.
    fn write(
        &self,
        packs: &[Pack],
        places: &Places,
        loose: Vec<(ObjectId, u64)>,
        bytes: u64,
        tend: bool,
    ) -> Result<Option<PublishedPacks>> {
        let bytes = (bytes + PACK_EXTRA_BYTES).max(size::collection_bytes(self.bytes_max));
        if self.store.reserve_to_collect(bytes, self.bytes_max, self.is_urgent)? == Room::Lacking {
            return Ok(None);
        }
        // Opened anew for each group: packs of the one before are gone.
        let objects = &self.store.objects(&StoreLock::none())?;
        let marks = &self.reach.marks;
        let bytes_max = if self.is_urgent { u64::MAX } else { bytes };
        let (is_over, moved) = (&|| self.is_over(), &|bytes| self.watch.advance(bytes));
        let moving = Moving { packs, objects, marks, places, loose, bytes_max, is_over, moved };
        let sealed = moving.write(&self.store.layout.pack_dirs(), tend)?;
        let new = sealed.map(|sealed| SealedPack::publish(vec![sealed], &self.store.layout.packs())).transpose()?;
        self.store.give_back(bytes, self.bytes_max)?;
        Ok(new)
    }

    /// Waits until nobody else reads or writes objects, and reads the names once more.
    ///
    /// Stock git knows none of these locks. While it collects, and where it has deleted packs that the plan relies upon,
    /// nothing may be unlinked: the copy that is to stay may be the one that it deletes.
    fn alone(&mut self) -> Result<Option<Exclusive>> {
        let Some(alone) = self.exclude()? else { return Ok(None) };
        let there: HashSet<_> = self.store.pack_names()?.into_iter().collect();
        if !self.relied.iter().all(|pack| there.contains(pack)) {
            return Ok(None);
        }
        let fresh = self.store.objects(&StoreLock::none())?;
        self.reach.all_roots(&fresh, &self.store.roots()?);
        self.reach.check_whole()?;
        Ok(Some(alone))
    }

    fn exclude(&self) -> Result<Option<Exclusive>> {
        for attempt in 0..TRIES_MAX {
            if let Some(alone) = self.store.exclude(self.held)?
                && !self.store.git_collects(self.now)
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

    /// Writes those of the entries anew that came to be named after the collection had begun.
    fn rescue(&self, packs: &[Pack], places: &Places) -> Result<PublishedPacks> {
        if places.is_empty() {
            return Ok(PublishedPacks::default());
        }
        let objects = &self.store.objects(&StoreLock::none())?;
        let marks = &self.reach.marks;
        let (loose, bytes_max, moved) = (Vec::new(), u64::MAX, &|_| {});
        let moving = Moving { packs, objects, marks, places, loose, bytes_max, is_over: &|| false, moved };
        let sealed = moving.write(&self.store.layout.pack_dirs(), false)?.expect("nobody stops this one");
        SealedPack::publish(vec![sealed], &self.store.layout.packs())
    }

    /// Objects in files of their own go into packs, one after the other.
    fn pack_loose(
        &mut self,
        packs: &[Pack],
        loose: &[ObjectId],
        packed: &mut [bool],
        done: &mut Collected,
    ) -> Result<()> {
        let marks = &self.reach.marks;
        let needed = loose.iter().filter_map(|id| Some((id, marks.find(id)?)));
        let mut needed: Vec<_> = needed.filter(|(_, slot)| marks.home(*slot) == NO_HOME).collect();
        needed.sort_by_key(|(_, slot)| marks.likeness(*slot));
        let path_of = |id: &ObjectId| self.store.layout.loose_object(id);
        let needed: Vec<_> = needed.into_iter().map(|(id, _)| (*id, Store::bytes_of(&path_of(id)))).collect();
        if !needed.is_empty() {
            self.watch.begin(needed.iter().map(|(_, bytes)| bytes).sum());
        }
        let pack_bytes = Bounds::new(self.bytes_max).pack_bytes;
        let mut bytes = needed.first().map_or(0, |(_, bytes)| *bytes);
        let batches: Vec<Vec<_>> = needed
            .chunk_by(|_, (_, more)| {
                let fits = bytes + more <= pack_bytes;
                bytes = if fits { bytes + more } else { *more };
                fits
            })
            .map(<[_]>::to_vec)
            .collect();
        for batch in batches {
            let bytes = batch.iter().map(|(_, bytes)| bytes).sum();
            let Some(_published) = self.write(packs, &Places::default(), batch.clone(), bytes, true)? else {
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

    /// Removes objects in files of their own that are in a pack as well or that nothing refers to, and what killed
    /// processes left.
    fn sweep(&mut self, loose: &[ObjectId], packed: &[bool], done: &mut Collected) -> Result<()> {
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
            self.store.remove_overviews()?;
        }
        goes.into_iter().try_for_each(|id| fsx::remove_file(&path_of(id)))?;
        self.store.remove_left_overs(self.now, self.even_young)?;
        self.store.recount(&alone).map(drop)
    }

    /// A history that nothing refers to any more needs no end. Stock git minds one that names a commit that is not there.
    fn forget_dropped_boundaries(&self) -> Result<()> {
        let is_dropped = |id: &&ObjectId| !self.reach.marks.contains(id);
        let dropped: HashSet<_> = self.reach.boundary.iter().filter(is_dropped).copied().collect();
        if dropped.is_empty() { Ok(()) } else { self.store.forget_boundaries(&dropped, self.now) }
    }
}

/// Returns whether a file was written so long ago that whoever did has ended.
pub(super) fn is_old(path: &Path, now: Moment) -> bool {
    fsx::is_older(path, YOUNG_SECS, now)
}

/// Stock git makes its packs read-only; ours are their owner's to write.
fn is_writable(path: &Path) -> bool {
    sys::stat_path(path).is_ok_and(|stat| stat.mode & 0o200 != 0)
}

impl Store {
    /// Removes a pack. Readers that have it open keep it; those that come after see the others.
    fn unlink_pack(&self, name: &Path) -> Result<()> {
        PACK_FILES.iter().try_for_each(|ending| fsx::remove_file(&name.with_added_extension(ending)))
    }

    /// Removes what stock git made over several packs and over all commits: it would name what is about to go.
    fn remove_overviews(&self) -> Result<()> {
        fsx::remove_beginning_with("multi-pack-index", &self.layout.packs())?;
        self.remove_commit_graph()
    }

    /// Removes what stock git made over all commits, before a history is cut or commits go. Git can make it again.
    pub(super) fn remove_commit_graph(&self) -> Result<()> {
        fsx::remove_beginning_with("commit-graph", &self.layout.object_info())
    }

    /// Objects in files of their own, sorted: what stock git wrote.
    pub(super) fn loose_ids(&self) -> Result<Vec<ObjectId>> {
        let mut found = Vec::new();
        for first in fsx::names_in(&self.layout.objects())?.into_iter().filter(|name| name.len() == 2) {
            let dir = self.layout.objects().join(&first);
            for rest in fsx::names_in(&dir)? {
                let name = format!("{}{}", first.to_string_lossy(), rest.to_string_lossy());
                found.extend(ObjectId::from_hex(name.as_bytes()));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Returns whether there are more small packs than lookups should have to go through, or than space should be lost to.
    pub(crate) fn has_many_packs(&self, bytes_max: Option<u64>) -> bool {
        let bounds = Bounds::new(bytes_max.unwrap_or(u64::MAX));
        bounds.has_many(self.count_small_packs(bounds))
    }

    /// Returns whether nobody has come to merge them, so that a take that needs room finds some there.
    pub(super) fn has_too_many_packs(&self, bytes_max: u64) -> bool {
        let bounds = Bounds::new(bytes_max);
        bounds.has_too_many(self.count_small_packs(bounds))
    }

    fn count_small_packs(&self, bounds: Bounds) -> usize {
        let is_small = |name: &&PathBuf| bounds.is_small(Self::bytes_of(&name.with_added_extension("pack")));
        let names = self.pack_names().unwrap_or_default();
        // Every take asks: where there are few, nobody looks at them.
        if bounds.has_many(names.len()) { names.iter().filter(is_small).count() } else { 0 }
    }

    /// Removes what belongs to nobody. Nobody of ours is at work: whatever is ours is abandoned.
    pub(super) fn remove_left_overs(&self, now: Moment, even_young: bool) -> Result<()> {
        self.own_keeps()?.iter().try_for_each(|keep| fsx::remove_file(keep))?;
        let whole: HashSet<_> = self.pack_names()?.into_iter().collect();
        for dir in self.layout.with_temporaries_of_lockers() {
            for name in fsx::names_in(&dir)? {
                let (path, bytes) = (dir.join(&name), name.as_encoded_bytes());
                let is_temporary = bytes.starts_with(fsx::TEMP_PREFIX.as_bytes());
                // Stock git's temporary names have more to them.
                let is_ours = is_temporary && !bytes[fsx::TEMP_PREFIX.len()..].contains(&b'_');
                let has_no_idx =
                    path.extension().is_some_and(|end| end == "pack") && !whole.contains(&path.with_extension(""));
                let is_ours = is_ours || has_no_idx && is_writable(&path);
                if is_ours || (is_temporary || has_no_idx) && (even_young || is_old(&path, now)) {
                    fsx::remove_file(&path)?;
                }
            }
        }
        self.remove_stale_locks(now)
    }

    /// What a file takes; 0 where there is none.
    pub(super) fn bytes_of(path: &Path) -> u64 {
        sys::stat_path(path).map_or(0, |stat| stat.size)
    }
}

#[cfg(test)]
mod tests;
