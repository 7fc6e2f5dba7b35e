//! Marks on objects, in arrays parallel to a sorted list of ids: 29 bytes for each object of the store, marked or not,
//! and 4 or 8 more once homes or ranks are recorded. A hash table takes up to three times as much.
//!
//! Objects that are not in the list are rare (they appeared after it was made) and go into a hash table.

use std::collections::HashMap;

use crate::id::{ObjectId, ObjectKind};

/// Index of the dropped checkpoint with which an object becomes unreachable, or `NEVER`.
pub(super) type ReachRank = u32;
pub(super) const NEVER: ReachRank = ReachRank::MAX;

/// The object has not been found in any pack.
pub(super) const NO_HOME: u32 = u32::MAX;

const UNMARKED: u8 = u8::MAX;

/// Index of an object's mark in the arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

impl Slot {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Marks of the reachable objects.
#[derive(Debug)]
pub(super) struct Marks {
    /// Sorted, without duplicates.
    ids: Vec<ObjectId>,
    /// Index of the first id with each first byte, followed by the number of ids.
    first: [u32; 257],
    /// Slots of ids that are not in the list.
    others: HashMap<ObjectId, u32>,
    /// Kind of each marked object, by slot.
    kinds: Vec<u8>,
    /// Hash of the path: files with similar names have similar hashes, and their contents may be similar.
    names: Vec<u32>,
    /// Number of objects that were marked before: of the versions of one file, the newest has the lowest.
    orders: Vec<u32>,
    /// Empty as long as all ranks are `NEVER`.
    ranks: Vec<ReachRank>,
    /// Index of the pack whose copy of the object is kept, in the list of a collection. Empty as long as none is known.
    homes: Vec<u32>,
    /// By slot: true for an object that was marked for local files. Empty as long as none is.
    locals: Vec<bool>,
    count: u32,
    /// True while objects are marked for local files.
    pub(super) marks_local: bool,
}

impl Marks {
    /// Returns marks for these objects, none of which is marked yet. Other objects can be marked as well, at a higher
    /// cost.
    pub(super) fn new(mut ids: Vec<ObjectId>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        ids.shrink_to_fit();
        // Git counts the objects of a pack with 32 bits.
        ids.truncate(u32::MAX as usize / 2);
        let mut first = [0; 257];
        let mut begin = 0;
        for byte in 0..=255_u8 {
            begin += ids[begin..].partition_point(|id| id.as_bytes()[0] <= byte);
            first[usize::from(byte) + 1] = narrow(begin);
        }
        let (kinds, names, orders) = (vec![UNMARKED; ids.len()], vec![0; ids.len()], vec![0; ids.len()]);
        let (others, ranks, homes, locals) = (HashMap::new(), Vec::new(), Vec::new(), Vec::new());
        Self { ids, first, others, kinds, names, orders, ranks, homes, locals, count: 0, marks_local: false }
    }

    /// Returns the slot of an object, marked or not; `None` if it has no slot.
    fn slot_of(&self, id: &ObjectId) -> Option<usize> {
        let byte = usize::from(id.as_bytes()[0]);
        let (begin, end) = (self.first[byte] as usize, self.first[byte + 1] as usize);
        match self.ids[begin..end].binary_search(id) {
            Ok(at) => Some(begin + at),
            Err(_) => self.others.get(id).map(|slot| *slot as usize),
        }
    }

    /// Returns the slot of an object if it is marked.
    pub(super) fn find(&self, id: &ObjectId) -> Option<Slot> {
        self.slot_of(id).filter(|slot| self.kinds[*slot] != UNMARKED).map(|slot| Slot(narrow(slot)))
    }

    /// Returns the slot of an object, marked or not.
    pub(super) fn any_slot(&self, id: &ObjectId) -> Option<Slot> {
        self.slot_of(id).map(|slot| Slot(narrow(slot)))
    }

    pub(super) fn contains(&self, id: &ObjectId) -> bool {
        self.find(id).is_some()
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.kinds.len()
    }

    /// Marks an object. An object that is already marked keeps its mark.
    pub(super) fn insert(&mut self, id: ObjectId, kind: ObjectKind, name: u32, rank: ReachRank) {
        let slot = self.slot_of(&id).unwrap_or_else(|| {
            let slot = self.kinds.len();
            self.others.insert(id, narrow(slot));
            self.kinds.push(UNMARKED);
            self.names.push(0);
            self.orders.push(0);
            slot
        });
        if self.kinds[slot] != UNMARKED {
            return;
        }
        (self.kinds[slot], self.names[slot], self.orders[slot]) = (kind as u8, name, self.count);
        if rank != NEVER {
            self.ranks.resize(self.kinds.len(), NEVER);
            self.ranks[slot] = rank;
        }
        if self.marks_local {
            self.locals.resize(self.kinds.len(), false);
            self.locals[slot] = true;
        }
        self.count += 1;
    }

    pub(super) fn kind(&self, slot: Slot) -> ObjectKind {
        let kinds = [ObjectKind::Blob, ObjectKind::Tree, ObjectKind::Commit, ObjectKind::Tag];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == self.kinds[slot.index()]);
        kind.expect("the slot of an object that is marked")
    }

    /// Sort key that puts the versions of one file next to each other, the newest first.
    pub(super) fn similarity_key(&self, slot: Slot) -> (u8, u32, u32) {
        let at = slot.index();
        (self.kinds[at], self.names[at], self.orders[at])
    }

    pub(super) fn rank(&self, slot: Slot) -> ReachRank {
        self.ranks.get(slot.index()).copied().unwrap_or(NEVER)
    }

    /// Returns true if only local files need the object.
    pub(super) fn is_local(&self, slot: Slot) -> bool {
        self.locals.get(slot.index()).copied().unwrap_or(false)
    }

    pub(super) fn home(&self, slot: Slot) -> u32 {
        self.homes.get(slot.index()).copied().unwrap_or(NO_HOME)
    }

    pub(super) fn set_home(&mut self, slot: Slot, home: u32) {
        self.homes.resize(self.kinds.len(), NO_HOME);
        self.homes[slot.index()] = home;
    }

    /// Returns the marked objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ObjectId, Slot)> {
        let listed = self.ids.iter().zip(0..).map(|(id, slot)| (*id, Slot(slot)));
        let others = self.others.iter().map(|(id, slot)| (*id, Slot(*slot)));
        listed.chain(others).filter(|(_, slot)| self.kinds[slot.index()] != UNMARKED)
    }

    /// Removes the marks of objects with a rank below `first_kept`.
    pub(super) fn unmark_before(&mut self, first_kept: ReachRank) {
        let going = self.kinds.iter_mut().zip(&self.ranks).filter(|(_, rank)| **rank < first_kept);
        going.for_each(|(kind, _)| *kind = UNMARKED);
    }

    /// Removes all marks. The slots stay.
    pub(super) fn clear(&mut self) {
        self.kinds.fill(UNMARKED);
        self.ranks.clear();
        self.homes.clear();
        self.locals.clear();
        self.count = 0;
    }
}

/// Narrows an index of a pack, an entry or a slot. Git counts the entries of a pack with 32 bits, too.
pub(super) fn narrow(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(NO_HOME - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u8, last: u8) -> ObjectId {
        let mut bytes = [7; 20];
        (bytes[0], bytes[19]) = (first, last);
        ObjectId::from_bytes(bytes)
    }

    #[test]
    fn marks_are_found_in_the_list_and_beside_it() {
        let listed = [id(0, 1), id(0, 2), id(9, 0), id(255, 255), id(9, 0)];
        let mut marks = Marks::new(listed.to_vec());
        assert_eq!((marks.slots(), marks.iter().count()), (4, 0));
        let other = id(9, 1);
        assert!(!listed.iter().chain([&other]).any(|id| marks.contains(id)));
        marks.insert(id(255, 255), ObjectKind::Tree, 5, NEVER);
        marks.insert(other, ObjectKind::Tag, 6, 3);
        marks.insert(other, ObjectKind::Blob, 8, 1);
        marks.insert(id(0, 2), ObjectKind::Commit, 7, 0);
        let slot = |id| marks.find(&id).expect("a mark");
        assert_eq!(marks.similarity_key(slot(other)), (ObjectKind::Tag as u8, 6, 1), "the first mark stays");
        assert_eq!([id(255, 255), other, id(0, 2)].map(|id| marks.rank(slot(id))), [NEVER, 3, 0]);
        assert_eq!(marks.kind(slot(id(0, 2))), ObjectKind::Commit);
        assert_eq!(marks.iter().map(|(id, _)| id).collect::<Vec<_>>(), [id(0, 2), id(255, 255), other]);
        let (home, unknown) = (slot(other), slot(id(0, 2)));
        marks.set_home(home, 2);
        assert_eq!((marks.home(home), marks.home(unknown)), (2, NO_HOME));
        marks.unmark_before(1);
        assert!(!marks.contains(&id(0, 2)) && marks.contains(&other) && marks.contains(&id(255, 255)));
        marks.clear();
        assert_eq!((marks.slots(), marks.iter().count()), (5, 0));
        marks.insert(other, ObjectKind::Blob, 0, NEVER);
        let slot = marks.find(&other).expect("a mark");
        assert_eq!((marks.rank(slot), marks.home(slot)), (NEVER, NO_HOME));
    }
}
