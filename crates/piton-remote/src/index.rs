//! Indexes: where objects are. An index names packs, its own and those of other machines, and the place of objects in
//! them. It is immutable.
//!
//! Contents, compressed: the length of the head in 4 bytes, the head as JSON (`packs`), then for each object the number of
//! its pack (4 bytes), its kind (1), the first byte and the length of its entry (8 each, big-endian) and its id (20).

use std::collections::HashMap;
use std::io::{Read as _, Write as _};

use piton::{ObjectId, ObjectKind};
use serde::{Deserialize, Serialize};

use crate::error::{RemoteError, Result};
use crate::keys::{hex, unhex};
use crate::seal::SealHead;

const ENTRY_BYTES: usize = 4 + 1 + 8 + 8 + 20;
/// Size limit of an index that is read: 25 million objects.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// A pack in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PackInfo {
    /// Name of the object below `pack/`.
    pub(crate) name: String,
    /// Size of the object.
    pub(crate) bytes: u64,
    /// Head of the sealed object, with which a part of it can be opened; empty in the clear.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) head: String,
    /// Machine that sent it.
    pub(crate) writer: String,
}

impl PackInfo {
    pub(crate) fn new(name: String, bytes: u64, head: Option<&SealHead>, writer: &str) -> Self {
        Self { name, bytes, head: head.map(|head| hex(head.bytes())).unwrap_or_default(), writer: writer.to_owned() }
    }

    pub(crate) fn seal_head(&self) -> Option<SealHead> {
        SealHead::read(&unhex(&self.head)?)
    }
}

/// Place of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectPlace {
    /// Number of the pack in the index.
    pub(crate) pack: u32,
    pub(crate) kind: ObjectKind,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Places of objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    pub(crate) packs: Vec<PackInfo>,
    numbers: HashMap<String, u32>,
    pub(crate) places: HashMap<ObjectId, ObjectPlace>,
}

#[derive(Serialize, Deserialize)]
struct IndexHead {
    packs: Vec<PackInfo>,
}

impl Index {
    /// Returns the number of a pack, which is added if it is new.
    pub(crate) fn pack(&mut self, pack: &PackInfo) -> u32 {
        if let Some(number) = self.numbers.get(&pack.name) {
            return *number;
        }
        let number = u32::try_from(self.packs.len()).expect("fewer packs than objects");
        self.numbers.insert(pack.name.clone(), number);
        self.packs.push(pack.clone());
        number
    }

    pub(crate) fn get(&self, id: &ObjectId) -> Option<(&PackInfo, ObjectPlace)> {
        let place = self.places.get(id)?;
        Some((self.packs.get(usize::try_from(place.pack).ok()?)?, *place))
    }

    /// Adds an object at a place in a pack, unless it has one.
    pub(crate) fn add(&mut self, id: ObjectId, pack: &PackInfo, place: ObjectPlace) {
        let pack = self.pack(pack);
        self.places.entry(id).or_insert(ObjectPlace { pack, ..place });
    }

    /// Adds everything in another index. Places that are known stay.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (id, place) in &other.places {
            if let Some(pack) = other.packs.get(place.pack as usize) {
                self.add(*id, pack, *place);
            }
        }
    }

    /// Returns the bytes of the index, for sealing.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = serde_json::to_vec(&IndexHead { packs: self.packs.clone() }).expect("text");
        let mut entries: Vec<_> = self.places.iter().collect();
        entries.sort_by_key(|(id, place)| (place.pack, place.offset, **id));
        let mut plain = Vec::with_capacity(4 + head.len() + entries.len() * ENTRY_BYTES);
        plain.extend_from_slice(&u32::try_from(head.len()).expect("a short head").to_be_bytes());
        plain.extend_from_slice(&head);
        for (id, place) in entries {
            plain.extend_from_slice(&place.pack.to_be_bytes());
            plain.push(kind_number(place.kind));
            plain.extend_from_slice(&place.offset.to_be_bytes());
            plain.extend_from_slice(&place.bytes.to_be_bytes());
            plain.extend_from_slice(id.as_bytes());
        }
        deflate(&plain)
    }

    /// Reads the bytes of an index. `key` is its name, for the error.
    pub(crate) fn decode(key: &str, bytes: &[u8]) -> Result<Self> {
        let bad = || RemoteError::damaged(key, "it is not an index");
        let plain = inflate(key, bytes, INDEX_BYTES_MAX)?;
        let (length, rest) = plain.split_first_chunk::<4>().ok_or_else(bad)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| bad())?;
        let (head, rest) = rest.split_at_checked(length).ok_or_else(bad)?;
        let head: IndexHead = serde_json::from_slice(head).map_err(|_| bad())?;
        if rest.len() % ENTRY_BYTES != 0 {
            return Err(bad());
        }
        let mut index = Self::default();
        for pack in &head.packs {
            index.pack(pack);
        }
        for entry in rest.chunks_exact(ENTRY_BYTES) {
            let number = |at: usize| u64::from_be_bytes(*entry[at..].first_chunk().expect("8 bytes"));
            let pack = u32::from_be_bytes(*entry.first_chunk().expect("4 bytes"));
            let kind = kind_of(entry[4]).ok_or_else(bad)?;
            let id = ObjectId::read(&entry[21..]).expect("20 bytes");
            if pack as usize >= index.packs.len() {
                return Err(bad());
            }
            index.places.insert(id, ObjectPlace { pack, kind, offset: number(5), bytes: number(13) });
        }
        Ok(index)
    }
}

fn kind_number(kind: ObjectKind) -> u8 {
    match kind {
        ObjectKind::Commit => 1,
        ObjectKind::Tree => 2,
        ObjectKind::Blob => 3,
        ObjectKind::Tag => 4,
    }
}

fn kind_of(number: u8) -> Option<ObjectKind> {
    [ObjectKind::Commit, ObjectKind::Tree, ObjectKind::Blob].into_iter().find(|kind| kind_number(*kind) == number)
}

/// Compresses bytes.
pub(crate) fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a vector takes all that is written to it")
}

/// Reverses [`deflate`]. Fails with `Damaged` above a limit.
pub(crate) fn inflate(key: &str, bytes: &[u8], bytes_max: u64) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    let read = flate2::read::ZlibDecoder::new(bytes).take(bytes_max + 1).read_to_end(&mut plain);
    match read {
        Ok(length) if length as u64 <= bytes_max => Ok(plain),
        _ => Err(RemoteError::damaged(key, "it cannot be decompressed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_reads_as_it_was_written() {
        let pack = |name: &str| PackInfo::new(name.to_owned(), 9, None, "w");
        let place = |offset| ObjectPlace { pack: 0, kind: ObjectKind::Blob, offset, bytes: 7 };
        let id = |number| ObjectId::from_bytes([number; 20]);
        let mut index = Index::default();
        index.add(id(1), &pack("a"), place(12));
        index.add(id(2), &pack("b"), place(1 << 40));
        index.add(id(1), &pack("b"), place(99));
        let read = Index::decode("x", &index.encode()).expect("an index");
        assert_eq!((read.packs.clone(), read.places.clone()), (index.packs.clone(), index.places.clone()));
        assert_eq!(read.get(&id(1)).expect("a place").0.name, "a");
        let mut both = Index::default();
        both.add(id(3), &pack("b"), place(5));
        both.merge(&read);
        assert_eq!(both.get(&id(2)).expect("a place").0.name, "b");
        assert_eq!((both.packs.len(), both.places.len()), (2, 3));
        let bytes = index.encode();
        for length in [0, 3, bytes.len() / 2, bytes.len() - 1] {
            assert!(Index::decode("x", &bytes[..length]).is_err(), "{length}");
        }
    }
}
