//! Making room: drops the oldest checkpoints, taking the projects in turn, exactly as many as needed. Local files are
//! dropped first, then steps of turns, ends of turns, rows beyond the newest ones, and other rows.
//!
//! - G5. The newest checkpoint and the newest row of a project are never dropped, nor a marked checkpoint, nor any
//!   checkpoint of a project with an interrupted restore.
//! - G6. No checkpoint is dropped without need: the space that each one holds alone is known before the first is
//!   dropped, and unreachable entries and leftover files are removed first, after loose objects were packed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::gc::{Collection, GcGoal, has_too_many_packs, reach_all};
use super::intents::Intents;
use super::lock::GcLock;
use super::marks::{NEVER, ReachRank};
use super::object_db::ObjectDb;
use super::reachability::{ReachRoots, Reachability};
use super::retention::ROWS_AUTO;
use super::size::{bytes_max_of_takes, bytes_of};
use super::stale_locals::drop_stale_locals;
use super::sweep::{self, is_old};
use super::{Checkpoint, CheckpointKind, Cut, LocalRef, Objects, Pin, PinName, Store, StoreLock};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::progress::Progress;
use crate::time::Moment;

/// Maximum number of rounds. The freed space is known except for a few bytes (blocks, deltas that lose their base),
/// which a second round corrects.
const ROUNDS_MAX: u32 = 8;

/// Result of making room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MakeRoomOutcome {
    /// There is enough room, after this many checkpoints were dropped.
    Enough { dropped: u64 },
    /// Not enough room can be made: the newest checkpoints alone take too much. Earlier rounds may have dropped
    /// checkpoints.
    Impossible { dropped: u64 },
    /// Cancelled by the caller.
    Stopped { dropped: u64 },
}

/// The checkpoints of all projects.
type ProjectHistories = BTreeMap<ProjectId, ProjectHistory>;

/// The checkpoints of one project.
#[derive(Default)]
struct ProjectHistory {
    /// From the newest to the end of the history.
    chain: Vec<Checkpoint>,
    pins: Vec<Pin>,
    locals: Vec<LocalRef>,
}

impl ProjectHistory {
    fn ids(&self) -> HashSet<CheckpointId> {
        self.chain.iter().map(|one| one.id).collect()
    }

    /// Returns the local files that may be dropped, the oldest first, each with the time of its checkpoint. The newest
    /// and those of marked checkpoints are not among them.
    fn droppable_locals(&self) -> Vec<(i64, &LocalRef)> {
        let marked: HashSet<_> = self.pins.iter().filter(|pin| pin.name.is_mark()).map(|pin| pin.id).collect();
        // The history is in order; the time tells about the others.
        let mut places: HashMap<_, _> =
            self.pins.iter().filter_map(|pin| Some((pin.id, (0, pin.name.time()?.moment().secs)))).collect();
        let chain = self.chain.iter().rev().zip(1_usize..);
        places.extend(chain.map(|(one, place)| (one.id, (place, one.time.secs))));
        let place = |local: &LocalRef| places.get(&local.checkpoint).copied().unwrap_or_default();
        let mut all: Vec<_> = self.locals.iter().collect();
        all.sort_by_key(|local| (place(local), local.checkpoint));
        all.pop();
        all.retain(|local| !marked.contains(&local.checkpoint));
        all.into_iter().map(|local| (place(local).1, local)).collect()
    }

    /// Returns all checkpoints that are not marked, newest first, each with its class and its time. Without the newest
    /// checkpoint, and without the newest row.
    fn droppable(&self) -> Vec<(DropClass, i64, CheckpointId)> {
        let marked: HashSet<_> = self.pins.iter().filter(|pin| pin.name.is_mark()).map(|pin| pin.id).collect();
        let chain = self.chain.iter().map(|one| (DropClass::of(one.facts.kind), one.time.secs, one.id));
        let ids = self.ids();
        let mut beyond: Vec<_> = self.pins.iter().filter(|pin| !ids.contains(&pin.id)).collect();
        beyond.sort_by_key(|pin| std::cmp::Reverse(pin.name.time()));
        let beyond = beyond.into_iter().filter_map(|pin| match pin.name {
            PinName::Mark(_) => None,
            PinName::Row(time) => Some((DropClass::Row, time.moment().secs, pin.id)),
            PinName::End(time) => Some((DropClass::End, time.moment().secs, pin.id)),
            PinName::Step(time) | PinName::Fetched(time) => Some((DropClass::Step, time.moment().secs, pin.id)),
        });
        let mut rows = 0;
        let mut all = Vec::new();
        for (at, (class, secs, id)) in chain.chain(beyond).enumerate() {
            let is_row = class == DropClass::Row;
            rows += u64::from(is_row);
            let class = if is_row && rows > ROWS_AUTO { DropClass::OldRow } else { class };
            let is_newest = at == 0 || is_row && rows == 1;
            if !is_newest && !marked.contains(&id) {
                all.push((class, secs, id));
            }
        }
        all
    }
}

/// Classes of checkpoints, in the order in which they are dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum DropClass {
    Local,
    Step,
    End,
    /// Row beyond the newest ones.
    OldRow,
    Row,
}

impl DropClass {
    /// Returns the class of a checkpoint of this kind among the newest ones.
    fn of(kind: CheckpointKind) -> Self {
        match kind {
            CheckpointKind::Step => Self::Step,
            CheckpointKind::End => Self::End,
            CheckpointKind::Auto | CheckpointKind::Manual | CheckpointKind::Safety => Self::Row,
        }
    }
}

/// A checkpoint that may be dropped, or its local files.
struct DropCandidate<'a> {
    project: &'a ProjectId,
    id: CheckpointId,
    /// State of the local files, if only those are dropped.
    local: Option<ObjectId>,
}

/// Shrinks the store until `bytes` more bytes fit within `bytes_max`. Fails with `Busy` if other processes keep
/// writing to it.
pub(crate) fn make_room(
    store: &Store,
    held: &GcLock,
    bytes: u64,
    bytes_max: u64,
    now: Moment,
    progress: &Progress,
) -> Result<MakeRoomOutcome> {
    let collect = |reach, goal| {
        Collection { bytes_max, is_urgent: true, ..Collection::new(store, held, reach, now, progress) }.run(goal)
    };
    drop_stale_locals(store, now)?;
    let (mut dropped, mut has_merged, mut has_packed) = (0, false, false);
    // Space for collections is left free if possible, but no checkpoint is refused for it.
    let mut limit = bytes_max_of_takes(bytes_max);
    for _ in 0..ROUNDS_MAX {
        if progress.is_cancelled() {
            return Ok(MakeRoomOutcome::Stopped { dropped });
        }
        let size = tidy_up(store, held, now)?;
        let Some(lacking) = size.saturating_add(bytes).checked_sub(limit).filter(|lacking| *lacking > 0) else {
            return Ok(MakeRoomOutcome::Enough { dropped });
        };
        if !has_merged && has_too_many_packs(&store.objects, bytes_max) {
            has_merged = true;
            collect(reach_all(store, &store.objects.open(&StoreLock::none())?)?, GcGoal::Merge)?;
            continue;
        }
        // Loose objects, as Hermes leaves them, take more space than packed ones.
        if !has_packed && !store.objects.loose_ids()?.is_empty() {
            has_packed = true;
            collect(reach_all(store, &store.objects.open(&StoreLock::none())?)?, GcGoal::All)?;
            continue;
        }
        let roots = store.catalog.roots()?;
        let objects = store.objects.open(&StoreLock::none())?;
        let histories = histories(&objects, &roots)?;
        if cut_loose_pins(store, &roots, &histories, now)? {
            continue;
        }
        let order = drop_order(&store.intents, &histories)?;
        let mut reach = rank(&store.objects, &objects, &roots, &histories, &order)?;
        drop(objects);
        let Some(count) = gains(&store.objects, &reach, order.len(), now)?.how_many(lacking) else {
            if limit == bytes_max {
                return Ok(MakeRoomOutcome::Impossible { dropped });
            }
            limit = bytes_max;
            continue;
        };
        if !drop_all(store, &order[..count], now)? {
            continue;
        }
        dropped += order[..count].iter().filter(|one| one.local.is_none()).count() as u64;
        let first_kept = ReachRank::try_from(count).unwrap_or(NEVER);
        reach.marks.unmark_before(first_kept);
        collect(reach, GcGoal::Free(lacking))?;
    }
    Err(Error::new(ErrorKind::Busy, "make room in the store")
        .because("other processes keep writing to it")
        .with_hint("try again"))
}

/// Drops the oldest local files until all of them together take at most `bytes_max`. Returns the number of checkpoints
/// that lost theirs. The space is freed by the next collection.
pub(crate) fn limit_locals(store: &Store, _held: &GcLock, bytes_max: u64, now: Moment) -> Result<usize> {
    drop_stale_locals(store, now)?;
    let roots = store.catalog.roots()?;
    if roots.locals.is_empty() {
        return Ok(0);
    }
    let objects = store.objects.open(&StoreLock::none())?;
    let histories = histories(&objects, &roots)?;
    let mut order = drop_order(&store.intents, &histories)?;
    order.retain(|one| one.local.is_some());
    let reach = rank(&store.objects, &objects, &roots, &histories, &order)?;
    drop(objects);
    let gains = gains(&store.objects, &reach, order.len(), now)?;
    let Some(lacking) = gains.local_bytes.checked_sub(bytes_max) else { return Ok(0) };
    let freed = |count: &usize| gains.freed[..*count].iter().sum::<u64>() >= lacking;
    let count = (0..order.len()).find(freed).unwrap_or(order.len());
    Ok(if drop_all(store, &order[..count], now)? { count } else { 0 })
}

/// Returns the number of checkpoints of each project that would be dropped to shrink the store to `bytes_max`.
/// Returns `None` if it cannot shrink that far.
pub(crate) fn would_drop(store: &Store, bytes_max: u64, now: Moment) -> Result<Option<BTreeMap<ProjectId, usize>>> {
    let size = store.size.count_bytes()?;
    if size <= bytes_max_of_takes(bytes_max) {
        return Ok(Some(BTreeMap::new()));
    }
    let held = store.locks.share()?;
    let roots = store.catalog.roots()?;
    let objects = store.objects.open(&held)?;
    let histories = histories(&objects, &roots)?;
    let order = drop_order(&store.intents, &histories)?;
    let reach = rank(&store.objects, &objects, &roots, &histories, &order)?;
    let gains = gains(&store.objects, &reach, order.len(), now)?;
    let within = |limit| gains.how_many(size.saturating_sub(limit));
    let count = within(bytes_max_of_takes(bytes_max)).or_else(|| within(bytes_max));
    Ok(count.map(|count| counted(&order[..count])))
}

/// Computes the space that each dropped checkpoint frees. Recent unreachable loose objects, to which stock git may
/// be about to point a ref, are not counted: they are not removed.
fn gains<'a>(objects: &ObjectDb, reach: &'a Reachability, droppable: usize, now: Moment) -> Result<Gains<'a>> {
    let mut gains = Gains::new(reach, droppable);
    for pack in objects.packs()? {
        pack.entries().for_each(|entry| gains.add(&entry.id, entry.bytes()));
    }
    for id in objects.loose_ids()? {
        let path = objects.layout.loose_object(&id);
        if reach.marks.contains(&id) || is_old(&path, now) {
            gains.add(&id, bytes_of(&path));
        }
    }
    Ok(gains)
}

/// Removes leftovers of killed processes, and counts the size of the store. If other processes use the store for
/// too long, only counts: the temporary files may be theirs, and data that they are about to write is missed.
fn tidy_up(store: &Store, held: &GcLock, now: Moment) -> Result<u64> {
    match store.locks.exclude_patiently(held)? {
        Some(alone) => sweep::remove_left_overs(store, now, false).and_then(|()| store.size.recount(&alone)),
        None => store.size.recount_beside_others(),
    }
}

/// Returns the checkpoints that may be dropped, in order: class by class, the oldest of each project, then the next of
/// each.
fn drop_order<'a>(intents: &Intents, histories: &'a ProjectHistories) -> Result<Vec<DropCandidate<'a>>> {
    let mut order = Vec::new();
    for (project, history) in histories {
        if intents.get(project)?.is_some() {
            continue;
        }
        let mut turns: HashMap<_, usize> = HashMap::new();
        for (class, secs, id) in history.droppable().into_iter().rev() {
            let turn = turns.entry(class).or_default();
            order.push(((class, *turn, secs), DropCandidate { project, id, local: None }));
            *turn += 1;
        }
        for (turn, (secs, local)) in history.droppable_locals().into_iter().enumerate() {
            let candidate = DropCandidate { project, id: local.checkpoint, local: Some(local.state) };
            order.push(((DropClass::Local, turn, secs), candidate));
        }
    }
    order.sort_by_key(|(place, one)| (*place, one.id));
    Ok(order.into_iter().map(|(_, one)| one).collect())
}

/// Marks every object with the rank of the checkpoint with which it becomes unreachable.
fn rank(
    db: &ObjectDb,
    objects: &Objects,
    roots: &ReachRoots,
    histories: &ProjectHistories,
    order: &[DropCandidate<'_>],
) -> Result<Reachability> {
    let mut reach = Reachability::new(db.ids()?, roots.ends.clone());
    reach.other_roots(objects, roots);
    let ranked: Vec<(_, ReachRank)> = order.iter().zip(0..).collect();
    let checkpoints = ranked.iter().filter(|(one, _)| one.local.is_none());
    let ranks: HashMap<_, ReachRank> = checkpoints.map(|(one, rank)| (one.id, *rank)).collect();
    let locals: HashSet<_> = order.iter().filter(|one| one.local.is_some()).map(|one| one.id).collect();
    for history in histories.values() {
        let all = history.chain.iter().map(|one| one.id).chain(history.pins.iter().map(|pin| pin.id));
        all.filter(|id| !ranks.contains_key(id)).for_each(|id| reach.commit_alone(objects, id, NEVER));
        let stays = history.locals.iter().filter(|local| !locals.contains(&local.checkpoint));
        stays.for_each(|local| reach.local_files(objects, local.state, NEVER));
    }
    // In reverse order, since an object becomes unreachable with the last checkpoint that holds it.
    for (one, rank) in ranked.into_iter().rev() {
        match one.local {
            None => reach.commit_alone(objects, one.id, rank),
            Some(state) => reach.local_files(objects, state, rank),
        }
    }
    reach.check_whole()?;
    Ok(reach)
}

/// Drops the checkpoints. Returns false if a restore that may need one of them has begun meanwhile.
fn drop_all(store: &Store, dropped: &[DropCandidate<'_>], now: Moment) -> Result<bool> {
    let (locals, checkpoints): (Vec<_>, Vec<_>) = dropped.iter().partition(|one| one.local.is_some());
    let goes: HashSet<_> = checkpoints.iter().map(|one| one.id).collect();
    for project in dropped.iter().map(|one| one.project).collect::<BTreeSet<_>>() {
        let held = store.locks.share()?;
        let locked = store.locks.lock_project(&held, project)?;
        if store.intents.get(project)?.is_some() {
            return Ok(false);
        }
        for local in locals.iter().filter(|local| local.project == project) {
            store.locals.remove(&locked, project, local.id, now)?;
        }
        // A take may have followed: it may have dropped some of them, too.
        let chain = chain(store, &held, project)?;
        let pins = store.pins.of(project)?;
        let kept = chain.iter().position(|one| goes.contains(&one.id)).unwrap_or(chain.len());
        let (kept, rest) = chain.split_at(kept);
        let Some(end) = kept.last().map(|end| end.id) else { return Ok(false) };
        let is_gone = |pin: &&Pin| !pin.name.is_mark() && goes.contains(&pin.id);
        if !rest.is_empty() {
            store.histories.forget_lineage(project);
        }
        let cut = Cut {
            pins: &pins,
            end: (!rest.is_empty()).then_some(end),
            kept: &|| Ok(kept.iter().map(|one| one.id).collect()),
            pinned: pinned(rest, &goes, &pins),
            unpinned: pins.iter().filter(is_gone).map(|pin| pin.name.clone()).collect(),
        };
        store.pins.cut(&locked, project, cut, now)?;
    }
    Ok(true)
}

/// Returns the checkpoints of the cut-off part of a history that are kept although newer ones are dropped, the oldest
/// first. A checkpoint that only its mark keeps is not among them.
fn pinned<'a>(rest: &'a [Checkpoint], goes: &HashSet<CheckpointId>, pins: &[Pin]) -> Vec<&'a Checkpoint> {
    let is_marked = |id| pins.iter().any(|pin| pin.name.is_mark() && pin.id == id);
    let class = |at: usize| DropClass::of(rest[at].facts.kind);
    let newer_goes = |at: usize| (0..at).any(|newer| goes.contains(&rest[newer].id) && class(newer) == class(at));
    let stays = |at: &usize| !(goes.contains(&rest[*at].id) || is_marked(rest[*at].id) && newer_goes(*at));
    (0..rest.len()).rev().filter(stays).map(|at| &rest[at]).collect()
}

fn histories(objects: &Objects, roots: &ReachRoots) -> Result<ProjectHistories> {
    let mut all = ProjectHistories::new();
    for (project, newest) in &roots.projects {
        all.entry(project.clone()).or_default().chain = objects.history(Some(*newest), &roots.ends)?;
    }
    for (project, pins) in &roots.pins {
        all.entry(project.clone()).or_default().pins.clone_from(pins);
    }
    for (project, locals) in &roots.locals {
        all.entry(project.clone()).or_default().locals.clone_from(locals);
    }
    Ok(all)
}

/// Ends the pins that are not part of a history at themselves, so that nothing older counts as reachable. Returns false
/// if all of them are ended already.
fn cut_loose_pins(store: &Store, roots: &ReachRoots, histories: &ProjectHistories, now: Moment) -> Result<bool> {
    let mut was_cut = false;
    for (project, history) in histories {
        let ids = history.ids();
        let is_loose = |pin: &Pin| !ids.contains(&pin.id) && !roots.ends.contains(&pin.id);
        if history.pins.iter().any(is_loose) {
            let held = store.locks.share()?;
            let locked = store.locks.lock_project(&held, project)?;
            let chain = chain(store, &held, project)?.into_iter().map(|one| one.id).collect();
            store.pins.cut_loose(&locked, project, &chain, now)?;
            was_cut = true;
        }
    }
    Ok(was_cut)
}

/// Returns a project's history at this moment, newest first. The caller holds the project's lock.
fn chain(store: &Store, held: &StoreLock, project: &ProjectId) -> Result<Vec<Checkpoint>> {
    let objects = store.objects.open(held)?;
    store.histories.from(&objects, store.refs.newest(project)?)?.whole()
}

fn counted(dropped: &[DropCandidate<'_>]) -> BTreeMap<ProjectId, usize> {
    let mut counts = BTreeMap::new();
    for one in dropped.iter().filter(|one| one.local.is_none()) {
        *counts.entry(one.project.clone()).or_default() += 1;
    }
    counts
}

/// Space that is freed by each dropped checkpoint, in the order in which they are dropped.
struct Gains<'a> {
    reach: &'a Reachability,
    freed: Vec<u64>,
    free_anyway: u64,
    /// Size of all local files.
    local_bytes: u64,
    /// By slot: true if a copy of the object was counted. Any further copy is freed anyway.
    is_counted: Vec<bool>,
}

impl<'a> Gains<'a> {
    fn new(reach: &'a Reachability, droppable: usize) -> Self {
        Self {
            reach,
            freed: vec![0; droppable],
            free_anyway: 0,
            local_bytes: 0,
            is_counted: vec![false; reach.marks.slots()],
        }
    }

    /// Counts one copy of an object.
    fn add(&mut self, id: &ObjectId, bytes: u64) {
        let marks = &self.reach.marks;
        let first = marks.find(id).filter(|slot| !std::mem::replace(&mut self.is_counted[slot.index()], true));
        if first.is_some_and(|slot| marks.is_local(slot)) {
            self.local_bytes += bytes;
        }
        match first.map(|slot| marks.rank(slot)) {
            None => self.free_anyway += bytes,
            Some(NEVER) => {}
            Some(rank) => self.freed[rank as usize] += bytes,
        }
    }

    /// Returns the number of checkpoints that must be dropped to free `lacking` bytes; `None` if all of them free less.
    /// The space of unreachable objects is freed anyway.
    fn how_many(&self, lacking: u64) -> Option<usize> {
        let mut sum = self.free_anyway;
        let mut count = 0;
        while sum < lacking {
            sum += self.freed.get(count)?;
            count += 1;
        }
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::id::ObjectKind;

    /// G6: exactly as many as needed.
    #[test]
    fn only_as_many_as_needed_are_dropped_and_garbage_first() {
        let id = |number: u8| ObjectId::from_bytes([number; 20]);
        let mut reach = Reachability::new(vec![id(1), id(4)], HashSet::new());
        for (number, rank) in [(1, 0), (2, 1), (3, NEVER)] {
            reach.marks.insert(id(number), ObjectKind::Blob, 0, rank);
        }
        // The fourth object is unreachable, and the first has two copies.
        let mut gains = Gains::new(&reach, 2);
        for (id, bytes) in [(id(1), 10), (id(2), 20), (id(3), 40), (id(4), 5), (id(1), 7)] {
            gains.add(&id, bytes);
        }
        for (lacking, expected) in
            [(0, Some(0)), (12, Some(0)), (13, Some(1)), (22, Some(1)), (23, Some(2)), (42, Some(2)), (43, None)]
        {
            assert_eq!(gains.how_many(lacking), expected, "{lacking}");
        }
    }
}
