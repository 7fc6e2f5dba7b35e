//! Writing the pack that replaces others.
//!
//! Entries are copied as they are. With `compress_well`, versions of one file become deltas of each other: the newest is stored
//! whole, so that the versions that are restored most are read fastest, and chains are short.

use std::collections::{HashMap, VecDeque};

use super::super::Objects;
use super::super::delta::{CHAIN_MAX, DeltaBase};
use super::super::marks::{Marks, NO_HOME, Slot, narrow};
use super::super::pack::{Deflater, Form, LEVEL_SMALL, PackWriter, SealedPack, hash_stream};
use super::super::packs::{Pack, PackEntry, Stored, StoredForm};
use super::plan::PACK_EXTRA_BYTES;
use crate::error::{Error, Result};
use crate::id::{ObjectId, ObjectKind};

/// Number of objects that a new one is compared with.
const WINDOW: usize = 12;
/// Memory limit of those objects.
const WINDOW_BYTES_MAX: usize = 48 << 20;
/// Maximum length of a delta chain. Git's own limit is 50.
const DEPTH_MAX: u32 = 24;
/// Sizes of objects for which deltas are tried. Smaller ones gain nothing, larger ones cost too much.
const DELTA_BYTES: std::ops::Range<usize> = 50..16 << 20;

/// Length of the longest delta chain that depends on an object, by its index among the places.
type Heights = HashMap<u32, u32>;

/// Index of a pack and index of an entry in it.
pub(super) type Place = (u32, u32);

/// Entries to move, each object once.
#[derive(Debug, Default)]
pub(super) struct EntryTable {
    /// Sorted by pack, and by position in the pack.
    sorted: Vec<Place>,
    /// Entries of objects without a home, which may be in several packs.
    homeless: HashMap<ObjectId, Place>,
}

impl EntryTable {
    /// Adds an entry. Entries must be added in ascending order of their places. Of an object without a home only the
    /// first entry is kept; an object with a home must be added once.
    pub(super) fn push(&mut self, place: Place, id: ObjectId, has_home: bool) {
        if has_home || !self.homeless.contains_key(&id) {
            self.sorted.push(place);
        }
        if !has_home {
            self.homeless.entry(id).or_insert(place);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Place> + ExactSizeIterator {
        self.sorted.iter().copied()
    }

    /// Returns true if this object is among the entries without a home.
    pub(super) fn has_homeless(&self, id: &ObjectId) -> bool {
        self.homeless.contains_key(id)
    }

    fn at(&self, index: u32) -> Place {
        self.sorted[index as usize]
    }

    fn index(&self, place: Place) -> Option<u32> {
        self.sorted.binary_search(&place).ok().map(narrow)
    }
}

/// Returns the entry at a place.
pub(super) fn entry_at(packs: &[Pack], (pack, at): Place) -> PackEntry {
    packs[pack as usize].entry(at as usize)
}

/// Input for a new pack.
pub(super) struct Moving<'a> {
    pub(super) packs: &'a [Pack],
    pub(super) objects: &'a Objects,
    pub(super) marks: &'a Marks,
    /// The entries to move.
    pub(super) places: &'a EntryTable,
    /// Loose objects to move, and the sizes of their files.
    pub(super) loose: Vec<(ObjectId, u64)>,
    /// Size limit of the new pack, which is the reserved space. Writing stops rather than exceed it.
    pub(super) bytes_max: u64,
    /// Returns true to cancel.
    pub(super) is_over: &'a dyn Fn() -> bool,
    /// Called for each object that was written, with the size that it had in its old place.
    pub(super) moved: &'a dyn Fn(u64),
}

/// An object that is not stored as a delta of another object that moves.
#[derive(Clone, Copy)]
struct Free {
    slot: Slot,
    source: EntrySource,
}

/// Current location of an object.
#[derive(Clone, Copy)]
enum EntrySource {
    /// Index among the places.
    InPack(u32),
    /// Index among the loose objects.
    Loose(u32),
}

struct Candidate {
    /// Offset in the new pack.
    offset: u64,
    kind: ObjectKind,
    base: DeltaBase,
    depth: u32,
}

/// The pack being written.
struct Out {
    writer: PackWriter,
    /// Offsets of the entries that moving deltas are based on, by index.
    offsets: HashMap<u32, u64>,
    bases: Heights,
    /// Offset of the last entry.
    last: u64,
    deflater: Deflater,
    deflated: Vec<u8>,
    buffer: Vec<u8>,
}

impl Out {
    fn put(&mut self, id: ObjectId, source: EntrySource, form: Form, size: u64, deflated: &[u8]) -> Result<()> {
        self.last = self.writer.add(id, form, size, deflated)?;
        if let EntrySource::InPack(index) = source
            && self.bases.contains_key(&index)
        {
            self.offsets.insert(index, self.last);
        }
        Ok(())
    }

    /// Compresses bytes and adds them.
    fn put_plain(&mut self, id: ObjectId, source: EntrySource, form: Form, bytes: &[u8]) -> Result<()> {
        self.deflate(bytes)?;
        let deflated = std::mem::take(&mut self.deflated);
        self.put(id, source, form, bytes.len() as u64, &deflated)?;
        self.deflated = deflated;
        Ok(())
    }

    fn deflate(&mut self, bytes: &[u8]) -> Result<usize> {
        let done = self.deflater.deflate(bytes, &mut self.deflated);
        done.map_err(|error| Error::damaged("compress an object", error))?;
        Ok(self.deflated.len())
    }
}

impl Moving<'_> {
    /// Writes all objects into one pack, synced and not yet visible. Returns `None` if it was cancelled or grew too
    /// large.
    pub(super) fn write(&self, dirs: &super::super::pack::PackDirs, compress_well: bool) -> Result<Option<SealedPack>> {
        let (mut free, bound, bases) = self.sort_out()?;
        let mut out = Out {
            writer: PackWriter::begin(dirs)?,
            offsets: HashMap::new(),
            bases,
            last: 0,
            deflater: Deflater::new(LEVEL_SMALL),
            deflated: Vec::new(),
            buffer: Vec::new(),
        };
        out.writer.reserve(free.len() + bound.len());
        if compress_well {
            free.sort_unstable_by_key(|one| self.marks.similarity_key(one.slot));
        }
        let mut window = VecDeque::new();
        for (count, one) in free.iter().enumerate() {
            if count % 16 == 0 && (self.is_over)() || self.is_too_large(&out) {
                return Ok(None);
            }
            if compress_well {
                let height = match one.source {
                    EntrySource::InPack(index) => out.bases.get(&index).copied().unwrap_or(0),
                    EntrySource::Loose(_) => 0,
                };
                self.put_compressed_well(one, height, &mut window, &mut out)?;
            } else {
                self.put_whole(one, &mut out)?;
            }
            (self.moved)(match one.source {
                EntrySource::InPack(index) => self.bytes_at(index),
                EntrySource::Loose(at) => self.loose[at as usize].1,
            });
        }
        drop(window);
        for index in bound {
            if self.is_too_large(&out) {
                return Ok(None);
            }
            self.put_delta(index, &mut out)?;
            (self.moved)(self.bytes_at(index));
        }
        if self.is_too_large(&out) { Ok(None) } else { out.writer.seal().map(Some) }
    }

    /// Returns true if the pack exceeds its size limit. It can, because a delta whose base does not move is written
    /// whole.
    fn is_too_large(&self, out: &Out) -> bool {
        out.writer.bytes_with_idx() + PACK_EXTRA_BYTES > self.bytes_max
    }

    /// Returns the objects that are not deltas of moving objects, the deltas that are, and the length of the delta
    /// chains that depend on each entry.
    fn sort_out(&self) -> Result<(Vec<Free>, Vec<u32>, Heights)> {
        let (mut free, mut bound) = (Vec::with_capacity(self.places.sorted.len() + self.loose.len()), Vec::new());
        let mut heights = Heights::new();
        // A delta comes after its base, so in reverse order each height is final when it is passed on to the base.
        for index in (0..narrow(self.places.sorted.len())).rev() {
            match self.base_of(index)? {
                Some(base) => {
                    bound.push(index);
                    let height = heights.get(&index).copied().unwrap_or(0) + 1;
                    let above = heights.entry(base).or_default();
                    *above = height.max(*above);
                }
                None => free.push(self.free(self.id_at(index), EntrySource::InPack(index))),
            }
        }
        free.reverse();
        bound.reverse();
        let loose = (0..).zip(&self.loose).filter(|(_, (id, _))| !self.places.has_homeless(id));
        free.extend(loose.map(|(at, (id, _))| self.free(*id, EntrySource::Loose(at))));
        Ok((free, bound, heights))
    }

    fn free(&self, id: ObjectId, source: EntrySource) -> Free {
        Free { slot: self.marks.find(&id).expect("only what is marked moves"), source }
    }

    fn id_at(&self, index: u32) -> ObjectId {
        entry_at(self.packs, self.places.at(index)).id
    }

    fn id_of(&self, one: &Free) -> ObjectId {
        match one.source {
            EntrySource::InPack(index) => self.id_at(index),
            EntrySource::Loose(at) => self.loose[at as usize].0,
        }
    }

    fn bytes_at(&self, index: u32) -> u64 {
        entry_at(self.packs, self.places.at(index)).bytes()
    }

    fn stored_at(&self, index: u32) -> Result<Stored<'_>> {
        let (pack, at) = self.places.at(index);
        self.packs[pack as usize].stored(at as usize)
    }

    /// Returns the index of the base of an entry, if it is a delta and its base moves, from this pack or from another.
    fn base_of(&self, index: u32) -> Result<Option<u32>> {
        let StoredForm::Delta(base) = self.stored_at(index)?.form else { return Ok(None) };
        let (pack, _) = self.places.at(index);
        let beside = (pack, narrow(base));
        Ok(self.places.index(beside).or_else(|| self.index_of(&entry_at(self.packs, beside).id)))
    }

    /// Returns the index of an object among the places, in any pack.
    fn index_of(&self, id: &ObjectId) -> Option<u32> {
        if let Some(place) = self.places.homeless.get(id) {
            return self.places.index(*place);
        }
        let home = self.marks.find(id).map(|slot| self.marks.home(slot)).filter(|home| *home != NO_HOME)?;
        let at = self.packs.get(home as usize)?.place_of(*id)?;
        self.places.index((home, narrow(at)))
    }

    /// Reads an object into `out.buffer` and returns its kind. Fails with `Damaged` if it is missing.
    fn read(&self, id: ObjectId, out: &mut Out) -> Result<ObjectKind> {
        let found = self.objects.read_any(id, &mut out.buffer)?;
        found.ok_or_else(|| Error::damaged(format!("read the object {id}"), "it is not in the store"))
    }

    /// Copies an entry unchanged, if it is stored whole. Returns false otherwise, or if it was compressed at the
    /// fastest level and `even_if_hasty` is false.
    fn put_copy(&self, one: &Free, out: &mut Out, even_if_hasty: bool) -> Result<bool> {
        let EntrySource::InPack(index) = one.source else { return Ok(false) };
        let stored = self.stored_at(index)?;
        match stored.form {
            StoredForm::Whole(kind) if even_if_hasty || !stored.is_hasty() => {
                out.put(self.id_of(one), one.source, Form::Whole(kind), stored.size, stored.deflated)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Writes a blob that is too large for memory: a packed one is checked and copied, a loose one is streamed. Returns
    /// false for all other objects and for blobs that stock git stored as deltas.
    fn put_large(&self, one: &Free, out: &mut Out) -> Result<bool> {
        if self.marks.kind(one.slot) != ObjectKind::Blob {
            return Ok(false);
        }
        let id = self.id_of(one);
        let damaged = || Error::damaged(format!("read the object {id}"), "it is not what was written");
        match one.source {
            EntrySource::InPack(index) => {
                let stored = self.stored_at(index)?;
                let StoredForm::Whole(kind) = stored.form else { return Ok(false) };
                if stored.size < DELTA_BYTES.end as u64 {
                    return Ok(false);
                }
                let mut read = flate2::read::ZlibDecoder::new(stored.deflated);
                if hash_stream(stored.size, &mut read) != Some(Ok(id)) {
                    return Err(damaged());
                }
                out.put(id, one.source, Form::Whole(kind), stored.size, stored.deflated)?;
            }
            EntrySource::Loose(_) => {
                if self.objects.blob_size(id)? < DELTA_BYTES.end as u64 {
                    return Ok(false);
                }
                let Some((size, mut read)) = self.objects.open_loose(id)? else { return Ok(false) };
                out.last = out.writer.bytes_so_far();
                if out.writer.add_stream(size, &mut read)? != Some(Ok(id)) {
                    return Err(damaged());
                }
            }
        }
        Ok(true)
    }

    fn put_whole(&self, one: &Free, out: &mut Out) -> Result<()> {
        if self.put_copy(one, out, true)? || self.put_large(one, out)? {
            return Ok(());
        }
        let id = self.id_of(one);
        let kind = self.read(id, out)?;
        let bytes = std::mem::take(&mut out.buffer);
        out.put_plain(id, one.source, Form::Whole(kind), &bytes)?;
        out.buffer = bytes;
        Ok(())
    }

    /// Writes an object as a delta of one that was written before, if that is smaller, and adds it to the window.
    fn put_compressed_well(
        &self,
        one: &Free,
        height: u32,
        window: &mut VecDeque<Candidate>,
        out: &mut Out,
    ) -> Result<()> {
        if self.put_large(one, out)? {
            return Ok(());
        }
        let (id, source) = (self.id_of(one), one.source);
        let kind = self.read(id, out)?;
        let bytes = std::mem::take(&mut out.buffer);
        if !DELTA_BYTES.contains(&bytes.len()) {
            if !self.put_copy(one, out, false)? {
                out.put_plain(id, source, Form::Whole(kind), &bytes)?;
            }
            out.buffer = bytes;
            return Ok(());
        }
        let best = best_delta(&bytes, kind, height, window);
        let mut depth = 0;
        let mut is_written = false;
        if let Some((delta, base, base_depth)) = best {
            // A delta that is not small in itself must be smaller than the whole object after compression.
            let is_smaller = delta.len() < bytes.len() / 4 || out.deflate(&delta)? < out.deflate(&bytes)?;
            if is_smaller {
                out.put_plain(id, source, Form::Delta(base), &delta)?;
                depth = base_depth + 1;
                is_written = true;
            }
        }
        if !is_written && !self.put_copy(one, out, false)? {
            out.put_plain(id, source, Form::Whole(kind), &bytes)?;
        }
        window.push_front(Candidate { offset: out.last, kind, base: DeltaBase::new(bytes), depth });
        let mut held = 0;
        let fits = window.iter().take(WINDOW).take_while(|candidate| {
            held += candidate.base.len();
            held <= WINDOW_BYTES_MAX
        });
        window.truncate(fits.count().max(1));
        Ok(())
    }

    /// Copies a delta unchanged, after its base.
    fn put_delta(&self, index: u32, out: &mut Out) -> Result<()> {
        let mut chain = vec![index];
        while let Some(index) = chain.last().copied() {
            let id = self.id_at(index);
            let base = self.base_of(index)?.filter(|_| !out.offsets.contains_key(&index));
            match base {
                Some(base) if !out.offsets.contains_key(&base) => chain.push(base),
                Some(base) => {
                    let (stored, form) = (self.stored_at(index)?, Form::Delta(out.offsets[&base]));
                    out.put(id, EntrySource::InPack(index), form, stored.size, stored.deflated)?;
                    chain.pop();
                }
                None => drop(chain.pop()),
            }
            if chain.len() > CHAIN_MAX {
                return Err(Error::damaged(format!("read the object {id}"), "its chain of deltas is too long"));
            }
        }
        Ok(())
    }
}

/// Returns the smallest delta against an object in the window: its bytes, the offset of its base and the depth of that
/// base.
fn best_delta(
    bytes: &[u8],
    kind: ObjectKind,
    height: u32,
    window: &VecDeque<Candidate>,
) -> Option<(Vec<u8>, u64, u32)> {
    let mut bytes_max = bytes.len() / 2;
    let mut best = None;
    for candidate in window {
        let is_deep = candidate.depth + 1 + height > DEPTH_MAX;
        if candidate.kind != kind || is_deep || candidate.base.len() < bytes.len() / 16 {
            continue;
        }
        if candidate.base.may_share(bytes)
            && let Some(delta) = candidate.base.delta_to(bytes, bytes_max)
        {
            bytes_max = delta.len().saturating_sub(1);
            best = Some((delta, candidate.offset, candidate.depth));
        }
    }
    best
}
