//! Writing the pack that takes the place of others.
//!
//! Entries are copied as they are. When a group is tended, versions of one file become deltas of each other: the newest
//! stays whole, so that what is restored most is read fastest, and chains are short.

use std::collections::{HashMap, VecDeque};

use super::super::Objects;
use super::super::delta::{Base, CHAIN_MAX};
use super::super::pack::{Deflater, Form, LEVEL_SMALL, PackWriter, SealedPack};
use super::super::packs::{Pack, StoredForm};
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
type Place = (usize, usize);

/// What is to be written.
pub(super) struct Moving<'a> {
    pub(super) packs: &'a [Pack],
    pub(super) objects: &'a Objects,
    pub(super) marks: &'a HashMap<ObjectId, Mark>,
    /// The entries that move.
    pub(super) places: HashMap<ObjectId, Place>,
    /// Objects that stand in files of their own, and what those take.
    pub(super) loose: Vec<(ObjectId, u64)>,
    /// What was set aside for it: rather than grow beyond that, it gives up.
    pub(super) bytes_max: u64,
    /// Whether to give up.
    pub(super) is_over: &'a dyn Fn() -> bool,
    /// Told of each object that has been written, with what it took where it was.
    pub(super) moved: &'a dyn Fn(u64),
}

/// An object that is not there as a delta of another one that moves along.
struct Free {
    id: ObjectId,
    mark: Mark,
    place: Option<Place>,
    /// What it takes where it is.
    bytes: u64,
}

struct Candidate {
    id: ObjectId,
    kind: ObjectKind,
    base: Base,
    depth: u32,
}

/// The pack that is being written.
struct Out {
    writer: PackWriter,
    offsets: HashMap<ObjectId, u64>,
    deflater: Deflater,
    deflated: Vec<u8>,
    buffer: Vec<u8>,
}

impl Out {
    fn put(&mut self, id: ObjectId, form: Form, size: u64, deflated: &[u8]) -> Result<()> {
        let offset = self.writer.add(id, form, size, deflated)?;
        self.offsets.insert(id, offset);
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
        let mut out = Out {
            writer: PackWriter::begin(dirs)?,
            offsets: HashMap::new(),
            deflater: Deflater::new(LEVEL_SMALL),
            deflated: Vec::new(),
            buffer: Vec::new(),
        };
        let (mut free, bound, heights) = self.sort_out()?;
        if tend {
            free.sort_by_key(|one| (one.mark.kind as u8, one.mark.name, one.mark.order));
        }
        let mut window = VecDeque::new();
        for (count, one) in free.iter().enumerate() {
            if count % 16 == 0 && (self.is_over)() || self.is_too_large(&out) {
                return Ok(None);
            }
            if tend {
                self.put_tended(one, heights.get(&one.id).copied().unwrap_or(0), &mut window, &mut out)?;
            } else {
                self.put_whole(one, &mut out)?;
            }
            (self.moved)(one.bytes);
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
        let (mut free, mut bound) = (Vec::new(), Vec::new());
        let mut heights = Heights::new();
        let mut places: Vec<_> = self.places.iter().map(|(id, place)| (*place, *id)).collect();
        places.sort_unstable_by_key(|(place, _)| *place);
        // A delta comes after its base, so that going backwards each height is complete when it is passed on.
        for (place, id) in places.iter().rev() {
            match self.base_of(*place)? {
                Some(base) => {
                    bound.push(*place);
                    let height = heights.get(id).copied().unwrap_or(0) + 1;
                    let above = heights.entry(base).or_default();
                    *above = height.max(*above);
                }
                None => {
                    free.push(Free {
                        id: *id,
                        mark: self.marks[id],
                        place: Some(*place),
                        bytes: self.bytes_at(*place),
                    });
                }
            }
        }
        free.reverse();
        bound.reverse();
        let loose = self.loose.iter().filter(|(id, _)| !self.places.contains_key(id));
        free.extend(loose.map(|(id, bytes)| Free { id: *id, mark: self.marks[id], place: None, bytes: *bytes }));
        Ok((free, bound, heights))
    }

    fn bytes_at(&self, (pack, at): Place) -> u64 {
        self.packs[pack].entries[at].bytes()
    }

    /// The base of an entry, if it is a delta and the base moves along.
    fn base_of(&self, (pack, at): Place) -> Result<Option<ObjectId>> {
        let pack = &self.packs[pack];
        Ok(match pack.stored(at)?.form {
            StoredForm::Delta(base) => Some(pack.entries[base].id).filter(|base| self.places.contains_key(base)),
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
        let Some((pack, at)) = one.place else { return Ok(false) };
        let stored = self.packs[pack].stored(at)?;
        match stored.form {
            StoredForm::Whole(kind) if even_if_hasty || !stored.is_hasty() => {
                out.put(one.id, Form::Whole(kind), stored.size, stored.deflated)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn put_whole(&self, one: &Free, out: &mut Out) -> Result<()> {
        if self.put_copy(one, out, true)? {
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
                let offset = out.offsets[&base];
                out.put_plain(one.id, Form::Delta(offset), &delta)?;
                depth = base_depth + 1;
                is_written = true;
            }
        }
        if !is_written && !self.put_copy(one, out, false)? {
            out.put_plain(one.id, Form::Whole(kind), &bytes)?;
        }
        window.push_front(Candidate { id: one.id, kind, base: Base::new(bytes), depth });
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
        while let Some((pack, at)) = chain.last().copied() {
            let id = self.packs[pack].entries[at].id;
            let base = self.base_of((pack, at))?.filter(|_| !out.offsets.contains_key(&id));
            match base {
                Some(base) if !out.offsets.contains_key(&base) => chain.push(self.places[&base]),
                Some(base) => {
                    let stored = self.packs[pack].stored(at)?;
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

/// The smallest delta that the window has to offer: its bytes, its base and how deep that one is.
fn best_delta(
    bytes: &[u8],
    kind: ObjectKind,
    height: u32,
    window: &VecDeque<Candidate>,
) -> Option<(Vec<u8>, ObjectId, u32)> {
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
            best = Some((delta, candidate.id, candidate.depth));
        }
    }
    best
}
