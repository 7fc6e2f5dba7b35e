//! Writing the pack that takes the place of others.
//!
//! Entries are copied as they are. When a group is tended, versions of one file become deltas of each other: the newest
//! stays whole, so that what is restored most is read fastest, and chains are short.

use std::collections::{HashMap, VecDeque};

use super::super::Objects;
use super::super::delta::{Base, CHAIN_MAX};
use super::super::pack::{Deflater, Form, LEVEL_SMALL, PackWriter, SealedPack, hash_stream};
use super::super::packs::{Pack, PackEntry, StoredForm};
use super::super::reach::Mark;
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

/// How long the chains of deltas are that hang on an object.
type Heights = HashMap<ObjectId, u32>;

/// An entry by its pack and its place there.
pub(super) type Place = (u32, u32);

/// Entries by the ids of their objects, sorted: half of what a hash table of them takes.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<(ObjectId, Place)>);

impl Places {
    /// Each object once, wherever it stands more often.
    pub(super) fn new(mut places: Vec<(ObjectId, Place)>) -> Self {
        places.sort_unstable();
        places.dedup_by_key(|(id, _)| *id);
        Self(places)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(ObjectId, Place)> {
        self.0.iter()
    }

    pub(super) fn find(&self, id: &ObjectId) -> Option<Place> {
        self.0.binary_search_by_key(id, |(id, _)| *id).ok().map(|at| self.0[at].1)
    }
}

/// The entry at a place.
pub(super) fn entry_at(packs: &[Pack], (pack, at): Place) -> &PackEntry {
    &packs[pack as usize].entries[at as usize]
}

/// What is to be written.
pub(super) struct Moving<'a> {
    pub(super) packs: &'a [Pack],
    pub(super) objects: &'a Objects,
    pub(super) marks: &'a HashMap<ObjectId, Mark>,
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
struct Free {
    id: ObjectId,
    kind: ObjectKind,
    name: u32,
    order: u32,
    stands: Stands,
}

/// Where an object stands.
#[derive(Clone, Copy)]
enum Stands {
    InPack(Place),
    /// In a file of its own, which takes so much.
    Loose(u64),
}

impl Free {
    fn new(id: ObjectId, mark: &Mark, stands: Stands) -> Self {
        Self { id, kind: mark.kind, name: mark.name, order: mark.order, stands }
    }
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
    /// Where those stand that deltas move along with.
    offsets: HashMap<ObjectId, u64>,
    bases: Heights,
    /// Where the last one stands.
    last: u64,
    deflater: Deflater,
    deflated: Vec<u8>,
    buffer: Vec<u8>,
}

impl Out {
    fn put(&mut self, id: ObjectId, form: Form, size: u64, deflated: &[u8]) -> Result<()> {
        self.last = self.writer.add(id, form, size, deflated)?;
        if self.bases.contains_key(&id) {
            self.offsets.insert(id, self.last);
        }
        Ok(())
    }

    /// Adds bytes that are not compressed yet.
    fn put_plain(&mut self, id: ObjectId, form: Form, bytes: &[u8]) -> Result<()> {
        self.deflate(bytes)?;
        let deflated = std::mem::take(&mut self.deflated);
        self.put(id, form, bytes.len() as u64, &deflated)?;
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
        if tend {
            free.sort_unstable_by_key(|one| (one.kind as u8, one.name, one.order));
        }
        let mut window = VecDeque::new();
        for (count, one) in free.iter().enumerate() {
            if count % 16 == 0 && (self.is_over)() || self.is_too_large(&out) {
                return Ok(None);
            }
            if tend {
                let height = out.bases.get(&one.id).copied().unwrap_or(0);
                self.put_tended(one, height, &mut window, &mut out)?;
            } else {
                self.put_whole(one, &mut out)?;
            }
            (self.moved)(match one.stands {
                Stands::InPack(place) => self.bytes_at(place),
                Stands::Loose(bytes) => bytes,
            });
        }
        drop(window);
        for place in bound {
            if self.is_too_large(&out) {
                return Ok(None);
            }
            self.put_bound(place, &mut out)?;
            (self.moved)(self.bytes_at(place));
        }
        if self.is_too_large(&out) { Ok(None) } else { out.writer.seal().map(Some) }
    }

    /// What was a delta of something that does not move along is written as a whole, and takes more than it did.
    fn is_too_large(&self, out: &Out) -> bool {
        out.writer.bytes_with_idx() + PACK_EXTRA_BYTES > self.bytes_max
    }

    /// Those that stand by themselves, those that are deltas of others that move along, and how long the chains are that
    /// hang on each.
    fn sort_out(&self) -> Result<(Vec<Free>, Vec<Place>, Heights)> {
        let mut order: Vec<u32> = (0..).take(self.places.0.len()).collect();
        order.sort_unstable_by_key(|at| self.places.0[*at as usize].1);
        let (mut free, mut bound) = (Vec::with_capacity(order.len() + self.loose.len()), Vec::new());
        let mut heights = Heights::new();
        // A delta comes after its base, so that going backwards each height is complete when it is passed on.
        for (id, place) in order.iter().rev().map(|at| &self.places.0[*at as usize]) {
            match self.base_of(*place)? {
                Some(base) => {
                    bound.push(*place);
                    let height = heights.get(id).copied().unwrap_or(0) + 1;
                    let above = heights.entry(base).or_default();
                    *above = height.max(*above);
                }
                None => free.push(Free::new(*id, &self.marks[id], Stands::InPack(*place))),
            }
        }
        free.reverse();
        bound.reverse();
        let loose = self.loose.iter().filter(|(id, _)| self.places.find(id).is_none());
        free.extend(loose.map(|(id, bytes)| Free::new(*id, &self.marks[id], Stands::Loose(*bytes))));
        Ok((free, bound, heights))
    }

    fn bytes_at(&self, place: Place) -> u64 {
        entry_at(self.packs, place).bytes()
    }

    /// The base of an entry, if it is a delta and the base moves along.
    fn base_of(&self, (pack, at): Place) -> Result<Option<ObjectId>> {
        let pack = &self.packs[pack as usize];
        Ok(match pack.stored(at as usize)?.form {
            StoredForm::Delta(base) => Some(pack.entries[base].id).filter(|base| self.places.find(base).is_some()),
            StoredForm::Whole(_) => None,
        })
    }

    /// The bytes of an object, and its kind.
    fn read(&self, id: ObjectId, out: &mut Out) -> Result<ObjectKind> {
        let found = self.objects.read_any(id, &mut out.buffer)?;
        found.ok_or_else(|| Error::damaged(format!("read the object {id}"), "it is not in the store"))
    }

    /// Copies an object as it is, if it stands there as a whole.
    fn put_copy(&self, one: &Free, out: &mut Out, even_if_hasty: bool) -> Result<bool> {
        let Stands::InPack((pack, at)) = one.stands else { return Ok(false) };
        let stored = self.packs[pack as usize].stored(at as usize)?;
        match stored.form {
            StoredForm::Whole(kind) if even_if_hasty || !stored.is_hasty() => {
                out.put(one.id, Form::Whole(kind), stored.size, stored.deflated)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Writes a file that is too large to be held in memory, as it stands or as it is read. False for all others, and for
    /// those that stock git stored as deltas.
    fn put_large(&self, one: &Free, out: &mut Out) -> Result<bool> {
        if one.kind != ObjectKind::Blob {
            return Ok(false);
        }
        let damaged = || Error::damaged(format!("read the object {}", one.id), "it is not what was written");
        match one.stands {
            Stands::InPack((pack, at)) => {
                let stored = self.packs[pack as usize].stored(at as usize)?;
                let StoredForm::Whole(kind) = stored.form else { return Ok(false) };
                if stored.size < DELTA_BYTES.end as u64 {
                    return Ok(false);
                }
                let mut read = flate2::read::ZlibDecoder::new(stored.deflated);
                if hash_stream(stored.size, &mut read) != Some(Ok(one.id)) {
                    return Err(damaged());
                }
                out.put(one.id, Form::Whole(kind), stored.size, stored.deflated)?;
            }
            Stands::Loose(_) => {
                if self.objects.blob_size(one.id)? < DELTA_BYTES.end as u64 {
                    return Ok(false);
                }
                let Some((size, mut read)) = self.objects.open_loose(one.id)? else { return Ok(false) };
                out.last = out.writer.bytes_so_far();
                if out.writer.add_stream(size, &mut read)? != Some(Ok(one.id)) {
                    return Err(damaged());
                }
                if out.bases.contains_key(&one.id) {
                    out.offsets.insert(one.id, out.last);
                }
            }
        }
        Ok(true)
    }

    fn put_whole(&self, one: &Free, out: &mut Out) -> Result<()> {
        if self.put_copy(one, out, true)? || self.put_large(one, out)? {
            return Ok(());
        }
        let kind = self.read(one.id, out)?;
        let bytes = std::mem::take(&mut out.buffer);
        out.put_plain(one.id, Form::Whole(kind), &bytes)?;
        out.buffer = bytes;
        Ok(())
    }

    /// Writes an object as a delta of one that was written before, where that is smaller.
    fn put_tended(&self, one: &Free, height: u32, window: &mut VecDeque<Candidate>, out: &mut Out) -> Result<()> {
        if self.put_large(one, out)? {
            return Ok(());
        }
        let kind = self.read(one.id, out)?;
        let bytes = std::mem::take(&mut out.buffer);
        if !DELTA_BYTES.contains(&bytes.len()) {
            if !self.put_copy(one, out, false)? {
                out.put_plain(one.id, Form::Whole(kind), &bytes)?;
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
                out.put_plain(one.id, Form::Delta(base), &delta)?;
                depth = base_depth + 1;
                is_written = true;
            }
        }
        if !is_written && !self.put_copy(one, out, false)? {
            out.put_plain(one.id, Form::Whole(kind), &bytes)?;
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
    fn put_bound(&self, place: Place, out: &mut Out) -> Result<()> {
        let mut chain = vec![place];
        while let Some(place) = chain.last().copied() {
            let id = entry_at(self.packs, place).id;
            let base = self.base_of(place)?.filter(|_| !out.offsets.contains_key(&id));
            match base {
                Some(base) if !out.offsets.contains_key(&base) => {
                    chain.push(self.places.find(&base).expect("a base that moves along"));
                }
                Some(base) => {
                    let stored = self.packs[place.0 as usize].stored(place.1 as usize)?;
                    out.put(id, Form::Delta(out.offsets[&base]), stored.size, stored.deflated)?;
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
