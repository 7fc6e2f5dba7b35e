//! Writing the pack that takes the place of others.
//!
//! Entries are copied as they are. When a group is tended, versions of one file become deltas of each other: the newest
//! stays whole, so that what is restored most is read fastest, and chains are short.

use std::collections::{HashMap, VecDeque};

use super::super::Objects;
use super::super::delta::{Base, CHAIN_MAX};
use super::super::marks::{Marks, NO_HOME, Slot, narrow};
use super::super::pack::{Deflater, Form, LEVEL_SMALL, PackWriter, SealedPack, hash_stream};
use super::super::packs::{Pack, PackEntry, Stored, StoredForm};
use super::plan::PACK_EXTRA_BYTES;
use crate::error::{Error, Result};
use crate::id::{ObjectId, ObjectKind};

/// How many objects a new one is compared with.
const WINDOW: usize = 12;
/// What those may come to in memory.
const WINDOW_BYTES_MAX: usize = 48 << 20;
/// How many deltas must be applied for one object, at most. Git's own limit is 50.
const DEPTH_MAX: u32 = 24;
/// Smaller ones gain nothing, larger ones cost too much.
const DELTA_BYTES: std::ops::Range<usize> = 50..16 << 20;

/// How long the chains of deltas are that hang on an object, by its index among the places.
type Heights = HashMap<u32, u32>;

/// An entry by its pack and its place there.
pub(super) type Place = (u32, u32);

/// Entries that move, each object once.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// In the order of the packs, and of the entries in them.
    sorted: Vec<Place>,
    /// Those of objects without a home, which may stand in several packs.
    homeless: HashMap<ObjectId, Place>,
}

impl Places {
    /// Adds an entry, after those in packs before it and before it in the same pack. Of an object without a home the first
    /// counts; one with a home is added once.
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

    /// Returns true if an object without a home is among them.
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

/// The entry at a place.
pub(super) fn entry_at(packs: &[Pack], (pack, at): Place) -> PackEntry {
    packs[pack as usize].entry(at as usize)
}

/// What is to be written.
pub(super) struct Moving<'a> {
    pub(super) packs: &'a [Pack],
    pub(super) objects: &'a Objects,
    pub(super) marks: &'a Marks,
    /// The entries that move.
    pub(super) places: &'a Places,
    /// Objects that stand in files of their own, and what those take.
    pub(super) loose: Vec<(ObjectId, u64)>,
    /// What was set aside for it: rather than grow beyond that, it gives up.
    pub(super) bytes_max: u64,
    /// True to give up.
    pub(super) is_over: &'a dyn Fn() -> bool,
    /// Told of each object that has been written, with what it took where it was.
    pub(super) moved: &'a dyn Fn(u64),
}

/// An object that is not there as a delta of another one that moves along.
#[derive(Clone, Copy)]
struct Free {
    slot: Slot,
    stands: Stands,
}

/// Where an object stands.
#[derive(Clone, Copy)]
enum Stands {
    /// By its index among the places.
    InPack(u32),
    /// In a file of its own, by its index among those.
    Loose(u32),
}

struct Candidate {
    /// Where it stands in the new pack.
    offset: u64,
    kind: ObjectKind,
    base: Base,
    depth: u32,
}

/// The pack that is being written.
struct Out {
    writer: PackWriter,
    /// Where those stand that deltas move along with, by index.
    offsets: HashMap<u32, u64>,
    bases: Heights,
    /// Where the last one stands.
    last: u64,
    deflater: Deflater,
    deflated: Vec<u8>,
    buffer: Vec<u8>,
}

impl Out {
    fn put(&mut self, id: ObjectId, stands: Stands, form: Form, size: u64, deflated: &[u8]) -> Result<()> {
        self.last = self.writer.add(id, form, size, deflated)?;
        if let Stands::InPack(index) = stands
            && self.bases.contains_key(&index)
        {
            self.offsets.insert(index, self.last);
        }
        Ok(())
    }

    /// Adds bytes that are not compressed yet.
    fn put_plain(&mut self, id: ObjectId, stands: Stands, form: Form, bytes: &[u8]) -> Result<()> {
        self.deflate(bytes)?;
        let deflated = std::mem::take(&mut self.deflated);
        self.put(id, stands, form, bytes.len() as u64, &deflated)?;
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
    /// Writes all of it into one pack, synced and not yet visible. `None` when it was stopped, or got too large.
    pub(super) fn write(&self, dirs: &super::super::pack::PackDirs, tend: bool) -> Result<Option<SealedPack>> {
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
        if tend {
            free.sort_unstable_by_key(|one| self.marks.likeness(one.slot));
        }
        let mut window = VecDeque::new();
        for (count, one) in free.iter().enumerate() {
            if count % 16 == 0 && (self.is_over)() || self.is_too_large(&out) {
                return Ok(None);
            }
            if tend {
                let height = match one.stands {
                    Stands::InPack(index) => out.bases.get(&index).copied().unwrap_or(0),
                    Stands::Loose(_) => 0,
                };
                self.put_tended(one, height, &mut window, &mut out)?;
            } else {
                self.put_whole(one, &mut out)?;
            }
            (self.moved)(match one.stands {
                Stands::InPack(index) => self.bytes_at(index),
                Stands::Loose(at) => self.loose[at as usize].1,
            });
        }
        drop(window);
        for index in bound {
            if self.is_too_large(&out) {
                return Ok(None);
            }
            self.put_bound(index, &mut out)?;
            (self.moved)(self.bytes_at(index));
        }
        if self.is_too_large(&out) { Ok(None) } else { out.writer.seal().map(Some) }
    }

    /// What was a delta of something that does not move along is written as a whole, and takes more than it did.
    fn is_too_large(&self, out: &Out) -> bool {
        out.writer.bytes_with_idx() + PACK_EXTRA_BYTES > self.bytes_max
    }

    /// Those that stand by themselves, those that are deltas of others that move along, and how long the chains are that
    /// hang on each.
    fn sort_out(&self) -> Result<(Vec<Free>, Vec<u32>, Heights)> {
        let (mut free, mut bound) = (Vec::with_capacity(self.places.sorted.len() + self.loose.len()), Vec::new());
        let mut heights = Heights::new();
        // A delta comes after its base, so that going backwards each height is complete when it is passed on.
        for index in (0..narrow(self.places.sorted.len())).rev() {
            match self.base_of(index)? {
                Some(base) => {
                    bound.push(index);
                    let height = heights.get(&index).copied().unwrap_or(0) + 1;
                    let above = heights.entry(base).or_default();
                    *above = height.max(*above);
                }
                None => free.push(self.free(self.id_at(index), Stands::InPack(index))),
            }
        }
        free.reverse();
        bound.reverse();
        let loose = (0..).zip(&self.loose).filter(|(_, (id, _))| !self.places.has_homeless(id));
        free.extend(loose.map(|(at, (id, _))| self.free(*id, Stands::Loose(at))));
        Ok((free, bound, heights))
    }

    fn free(&self, id: ObjectId, stands: Stands) -> Free {
        Free { slot: self.marks.find(&id).expect("only what is marked moves"), stands }
    }

    fn id_at(&self, index: u32) -> ObjectId {
        entry_at(self.packs, self.places.at(index)).id
    }

    fn id_of(&self, one: &Free) -> ObjectId {
        match one.stands {
            Stands::InPack(index) => self.id_at(index),
            Stands::Loose(at) => self.loose[at as usize].0,
        }
    }

    fn bytes_at(&self, index: u32) -> u64 {
        entry_at(self.packs, self.places.at(index)).bytes()
    }

    fn stored_at(&self, index: u32) -> Result<Stored<'_>> {
        let (pack, at) = self.places.at(index);
        self.packs[pack as usize].stored(at as usize)
    }

    /// The index of the base of an entry, if it is a delta and the base moves along, from this pack or from another.
    fn base_of(&self, index: u32) -> Result<Option<u32>> {
        let StoredForm::Delta(base) = self.stored_at(index)?.form else { return Ok(None) };
        let (pack, _) = self.places.at(index);
        let beside = (pack, narrow(base));
        Ok(self.places.index(beside).or_else(|| self.index_of(&entry_at(self.packs, beside).id)))
    }

    /// The index of an object among the places, wherever it stands.
    fn index_of(&self, id: &ObjectId) -> Option<u32> {
        if let Some(place) = self.places.homeless.get(id) {
            return self.places.index(*place);
        }
        let home = self.marks.find(id).map(|slot| self.marks.home(slot)).filter(|home| *home != NO_HOME)?;
        let at = self.packs.get(home as usize)?.place_of(id)?;
        self.places.index((home, narrow(at)))
    }

    /// The bytes of an object, and its kind.
    fn read(&self, id: ObjectId, out: &mut Out) -> Result<ObjectKind> {
        let found = self.objects.read_any(id, &mut out.buffer)?;
        found.ok_or_else(|| Error::damaged(format!("read the object {id}"), "it is not in the store"))
    }

    /// Copies an object as it is, if it stands there as a whole.
    fn put_copy(&self, one: &Free, out: &mut Out, even_if_hasty: bool) -> Result<bool> {
        let Stands::InPack(index) = one.stands else { return Ok(false) };
        let stored = self.stored_at(index)?;
        match stored.form {
            StoredForm::Whole(kind) if even_if_hasty || !stored.is_hasty() => {
                out.put(self.id_of(one), one.stands, Form::Whole(kind), stored.size, stored.deflated)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Writes a file that is too large to be held in memory, as it stands or as it is read. False for all others, and for
    /// those that stock git stored as deltas.
    fn put_large(&self, one: &Free, out: &mut Out) -> Result<bool> {
        if self.marks.kind(one.slot) != ObjectKind::Blob {
            return Ok(false);
        }
        let id = self.id_of(one);
        let damaged = || Error::damaged(format!("read the object {id}"), "it is not what was written");
        match one.stands {
            Stands::InPack(index) => {
                let stored = self.stored_at(index)?;
                let StoredForm::Whole(kind) = stored.form else { return Ok(false) };
                if stored.size < DELTA_BYTES.end as u64 {
                    return Ok(false);
                }
                let mut read = flate2::read::ZlibDecoder::new(stored.deflated);
                if hash_stream(stored.size, &mut read) != Some(Ok(id)) {
                    return Err(damaged());
                }
                out.put(id, one.stands, Form::Whole(kind), stored.size, stored.deflated)?;
            }
            Stands::Loose(_) => {
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
        out.put_plain(id, one.stands, Form::Whole(kind), &bytes)?;
        out.buffer = bytes;
        Ok(())
    }

    /// Writes an object as a delta of one that was written before, where that is smaller.
    fn put_tended(&self, one: &Free, height: u32, window: &mut VecDeque<Candidate>, out: &mut Out) -> Result<()> {
        if self.put_large(one, out)? {
            return Ok(());
        }
        let (id, stands) = (self.id_of(one), one.stands);
        let kind = self.read(id, out)?;
        let bytes = std::mem::take(&mut out.buffer);
        if !DELTA_BYTES.contains(&bytes.len()) {
            if !self.put_copy(one, out, false)? {
                out.put_plain(id, stands, Form::Whole(kind), &bytes)?;
            }
            out.buffer = bytes;
            return Ok(());
        }
        let best = best_delta(&bytes, kind, height, window);
        let mut depth = 0;
        let mut is_written = false;
        if let Some((delta, base, base_depth)) = best {
            // A delta that is not small by itself must beat the whole after compression.
            let is_smaller = delta.len() < bytes.len() / 4 || out.deflate(&delta)? < out.deflate(&bytes)?;
            if is_smaller {
                out.put_plain(id, stands, Form::Delta(base), &delta)?;
                depth = base_depth + 1;
                is_written = true;
            }
        }
        if !is_written && !self.put_copy(one, out, false)? {
            out.put_plain(id, stands, Form::Whole(kind), &bytes)?;
        }
        window.push_front(Candidate { offset: out.last, kind, base: Base::new(bytes), depth });
        let mut held = 0;
        let fits = window.iter().take(WINDOW).take_while(|candidate| {
            held += candidate.base.len();
            held <= WINDOW_BYTES_MAX
        });
        window.truncate(fits.count().max(1));
        Ok(())
    }

    /// Copies a delta as it is, after its base.
    fn put_bound(&self, index: u32, out: &mut Out) -> Result<()> {
        let mut chain = vec![index];
        while let Some(index) = chain.last().copied() {
            let id = self.id_at(index);
            let base = self.base_of(index)?.filter(|_| !out.offsets.contains_key(&index));
            match base {
                Some(base) if !out.offsets.contains_key(&base) => chain.push(base),
                Some(base) => {
                    let (stored, form) = (self.stored_at(index)?, Form::Delta(out.offsets[&base]));
                    out.put(id, Stands::InPack(index), form, stored.size, stored.deflated)?;
                    chain.pop();
                }
                None => drop(chain.pop()),
            }
            if chain.len() > CHAIN_MAX {
                return Err(Error::damaged(format!("read the object {id}"), "there is no end to its deltas"));
            }
        }
        Ok(())
    }
}

/// The smallest delta that the window has to offer: its bytes, where its base stands and how deep that one is.
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
