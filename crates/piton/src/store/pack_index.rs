//! The idx of a pack: the offset of every object, by id and by offset.
//!
//! The one reader of idx files, for collections, which need intact packs, and for verify and repair, which read corrupt
//! ones. It checks the format only; the callers decide which defects they accept.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use gix_hash::Kind;
use gix_odb::pack::index;

use crate::id::{ID_BYTES, ObjectId};

/// Offsets of the objects of one pack.
#[derive(Debug, Default)]
pub(super) struct PackIndex {
    /// Sorted by id.
    entries: Vec<(ObjectId, u64)>,
    /// Positions in `entries`, sorted by offset.
    order: Vec<u32>,
}

/// The contents of an idx file.
pub(super) struct IdxFile {
    pub(super) index: PackIndex,
    /// False if the ids in the file are not in order, as they must be.
    pub(super) is_sorted: bool,
    /// Checksum of the pack that the idx was made for.
    pub(super) pack_checksum: [u8; ID_BYTES],
}

impl IdxFile {
    /// Maps the idx at `path` and reads it. Does not verify its checksum. Fails with a description of the defect.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        Ok(Self::read(&index::File::at(path, Kind::Sha1).map_err(|error| error.to_string())?))
    }

    /// Reads the contents of the idx at `path`. Does not verify its checksum.
    pub(super) fn parse(bytes: Vec<u8>, path: PathBuf) -> Result<Self, String> {
        Ok(Self::read(&index::File::from_data(bytes, path, Kind::Sha1).map_err(|error| error.to_string())?))
    }

    fn read<T: Deref<Target = [u8]> + Sync>(file: &index::File<T>) -> Self {
        let entries: Vec<_> =
            (0..file.num_objects()).map(|at| (id_at(file, at), file.pack_offset_at_index(at))).collect();
        let is_sorted = entries.is_sorted_by_key(|(id, _)| *id);
        let checksum = file.pack_checksum();
        let pack_checksum = *checksum.as_bytes().first_chunk().expect("a checksum of 20 bytes");
        Self { index: PackIndex::new(entries), is_sorted, pack_checksum }
    }
}

/// Returns the ids in the idx at `path`; `None` if it cannot be read.
pub(super) fn read_ids(path: &Path) -> Option<Vec<ObjectId>> {
    let file = index::File::at(path, Kind::Sha1).ok()?;
    Some((0..file.num_objects()).map(|at| id_at(&file, at)).collect())
}

/// Returns the offset of one object according to the idx at `path`; `None` if the object is not in it or the idx cannot
/// be read. Reads the idx only as far as the search needs.
pub(super) fn find(path: &Path, id: ObjectId) -> Option<u64> {
    let file = index::File::at(path, Kind::Sha1).ok()?;
    let at = file.lookup(gix_hash::ObjectId::Sha1(*id.as_bytes()))?;
    Some(file.pack_offset_at_index(at))
}

fn id_at<T: Deref<Target = [u8]> + Sync>(file: &index::File<T>, at: u32) -> ObjectId {
    ObjectId::read(file.oid_at_index(at).as_bytes()).expect("an idx of ids of 20 bytes")
}

impl PackIndex {
    /// Returns the index of these objects and offsets.
    pub(super) fn new(mut entries: Vec<(ObjectId, u64)>) -> Self {
        if !entries.is_sorted_by_key(|(id, _)| *id) {
            entries.sort_unstable();
        }
        let mut order: Vec<u32> = (0..u32::try_from(entries.len()).unwrap_or(u32::MAX)).collect();
        order.sort_by_key(|at| entries[*at as usize].1);
        Self { entries, order }
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the object at this place in the order of the pack, and its offset.
    pub(super) fn at(&self, place: usize) -> (ObjectId, u64) {
        self.entries[self.order[place] as usize]
    }

    /// Returns the objects and their offsets in the order of the pack.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (ObjectId, u64)> {
        (0..self.len()).map(|place| self.at(place))
    }

    /// Returns the place of the object at this offset in the order of the pack.
    pub(super) fn place_at(&self, start: u64) -> Option<usize> {
        self.order.binary_search_by_key(&start, |at| self.entries[*at as usize].1).ok()
    }

    /// Returns the offset of an object.
    pub(super) fn start_of(&self, id: ObjectId) -> Option<u64> {
        let at = self.entries.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.entries[at].1)
    }

    /// Returns true if all offsets are in this range.
    pub(super) fn is_within(&self, range: std::ops::Range<u64>) -> bool {
        self.entries.iter().all(|(_, start)| range.contains(start))
    }

    /// Returns true if two objects have the same offset.
    pub(super) fn has_shared_offsets(&self) -> bool {
        self.order.windows(2).any(|two| self.entries[two[0] as usize].1 == self.entries[two[1] as usize].1)
    }
}
