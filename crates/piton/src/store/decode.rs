//! Reads one pack, corrupt or not. Nothing in it is trusted before it was checked, and no claimed size makes the reader
//! allocate more memory than there is data to read.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use flate2::{Decompress, FlushDecompress, Status};

use super::delta::{self, CHAIN_MAX};
use super::pack::HEADER_BYTES;
use super::pack_entry::{EntryHead, HEAD_BYTES_MAX, HeadForm};
use crate::id::{ID_BYTES, IdHasher, ObjectId, ObjectKind};

mod raw;

pub(super) use raw::{IdxFault, RawPack, ends_in_checksum};

/// Largest object that is built from deltas. Git stores no delta of an object above half of this.
const DELTA_BYTES_MAX: u64 = 1 << 30;
/// At most one object above this size is in memory at a time, whatever the number of threads.
const LARGE_BYTES: u64 = 32 << 20;
/// Size in bytes of each thread's cache of delta bases.
const CACHE_BYTES_MAX: usize = 32 << 20;
const WINDOW_BYTES: usize = 256 << 10;
const TRAILER_BYTES: u64 = ID_BYTES as u64;

/// Description of a defect.
pub(super) type Why = Cow<'static, str>;

/// Head of a pack entry.
struct Head {
    form: HeadForm,
    /// Number of bytes after inflating.
    size: u64,
    /// Offset of the compressed bytes.
    data: u64,
}

/// An entry that is not a delta.
pub(super) struct WholeEntry {
    pub(super) kind: ObjectKind,
    /// Number of bytes of the object.
    pub(super) size: u64,
    /// Offset of the compressed bytes.
    pub(super) data: u64,
}

/// An object in memory.
pub(super) type InMemory = (ObjectKind, Arc<Vec<u8>>);
/// Fallback for an object that is corrupt in the pack or missing from it.
pub(super) type Elsewhere<'a> = dyn Fn(ObjectId) -> Option<InMemory> + 'a;

/// Decodes entries on one thread.
pub(super) struct Decoder<'a> {
    inflate: Decompress,
    out: Vec<u8>,
    window: Vec<u8>,
    /// Number of the pack that the window shows, and the offset of its first byte.
    window_at: Option<(u32, u64)>,
    cache: HashMap<(u32, u64), InMemory>,
    cached: VecDeque<(u32, u64)>,
    cache_bytes: usize,
    large: &'a Mutex<()>,
}

impl<'a> Decoder<'a> {
    /// Returns a decoder. Decoders that share `large` do not hold large objects in memory at the same time.
    pub(super) fn new(large: &'a Mutex<()>) -> Self {
        Self {
            inflate: Decompress::new(true),
            out: vec![0; 64 << 10],
            window: Vec::new(),
            window_at: None,
            cache: HashMap::new(),
            cached: VecDeque::new(),
            cache_bytes: 0,
            large,
        }
    }

    /// Returns the id of the object at `start`, computed from its contents. An entry that is not a delta is streamed
    /// and never in memory as a whole.
    pub(super) fn identify(&mut self, pack: &RawPack, start: u64, elsewhere: &Elsewhere<'_>) -> Result<ObjectId, Why> {
        let head = self.head(pack, start)?;
        let id = if let HeadForm::Whole(kind) = head.form {
            let mut hasher = IdHasher::new(kind, head.size);
            self.inflate(pack, head.data, head.size, &mut |bytes| {
                hasher.update(bytes);
                true
            })?;
            hasher.finish()
        } else {
            let (kind, bytes) = self.object(pack, start, elsewhere)?;
            IdHasher::of(kind, &bytes)
        };
        id.map_err(|collision| collision.to_string().into())
    }

    /// Returns the head of an entry that is not a delta; `None` for a delta.
    pub(super) fn whole_entry(&mut self, pack: &RawPack, start: u64) -> Result<Option<WholeEntry>, Why> {
        let head = self.head(pack, start)?;
        let HeadForm::Whole(kind) = head.form else { return Ok(None) };
        Ok(Some(WholeEntry { kind, size: head.size, data: head.data }))
    }

    /// Returns the offset at which the entry at `start` ends.
    pub(super) fn end_of(&mut self, pack: &RawPack, start: u64) -> Result<u64, Why> {
        let head = self.head(pack, start)?;
        self.inflate(pack, head.data, head.size, &mut |_| true)
    }

    /// Returns the kind of the object at `start`, from the heads of the entries in its delta chain.
    pub(super) fn kind(&mut self, pack: &RawPack, mut start: u64) -> Option<ObjectKind> {
        for _ in 0..CHAIN_MAX {
            match self.head(pack, start).ok()?.form {
                HeadForm::Whole(kind) => return Some(kind),
                HeadForm::OfEntry(base) => start = base,
                HeadForm::OfObject(base) => start = pack.start_of(base)?,
            }
        }
        None
    }

    /// Returns the object at `start`. The caller must check that it has the expected id. If a base is corrupt or
    /// missing, `elsewhere` is asked for it.
    pub(super) fn object(&mut self, pack: &RawPack, start: u64, elsewhere: &Elsewhere<'_>) -> Result<InMemory, Why> {
        let mut guard = None;
        // Deltas of the chain, the outermost first. No recursion: a chain may be longer than a stack.
        let mut chain = Vec::new();
        let mut at = start;
        let mut base = loop {
            if let Some(cached) = self.cache.get(&(pack.number, at)) {
                break cached.clone();
            }
            match self.link(pack, at, &mut guard) {
                Ok(Link::End(object)) => {
                    self.keep(pack, at, &object);
                    break object;
                }
                Ok(Link::Delta { head, base }) => {
                    chain.push((at, head));
                    match base {
                        Base::At(base) => at = base,
                        Base::Object(id) => break elsewhere(id).ok_or("its base is not in the pack")?,
                    }
                }
                Err(why) if chain.is_empty() => return Err(why),
                Err(why) => break pack.id_at(at).and_then(elsewhere).ok_or(format!("its base is damaged: {why}"))?,
            }
            if chain.len() > CHAIN_MAX {
                return Err("its chain of deltas is too long".into());
            }
        };
        while let Some((at, head)) = chain.pop() {
            base = match self.apply(pack, &head, &base, &mut guard) {
                Ok(object) => object,
                Err(why) if chain.is_empty() => return Err(why),
                Err(why) => pack.id_at(at).and_then(elsewhere).ok_or(format!("its base is damaged: {why}"))?,
            };
            self.keep(pack, at, &base);
        }
        Ok(base)
    }

    /// Reads one entry of a delta chain.
    fn link(&mut self, pack: &RawPack, at: u64, guard: &mut Option<MutexGuard<'a, ()>>) -> Result<Link, Why> {
        let head = self.head(pack, at)?;
        let base = match head.form {
            HeadForm::Whole(kind) => {
                let bytes = self.inflate_all(pack, &head, guard)?;
                return Ok(Link::End((kind, Arc::new(bytes))));
            }
            HeadForm::OfEntry(base) => Base::At(base),
            HeadForm::OfObject(id) => pack.start_of(id).map_or(Base::Object(id), Base::At),
        };
        Ok(Link::Delta { head, base })
    }

    fn apply(
        &mut self,
        pack: &RawPack,
        head: &Head,
        base: &InMemory,
        guard: &mut Option<MutexGuard<'a, ()>>,
    ) -> Result<InMemory, Why> {
        let difference = self.inflate_all(pack, head, guard)?;
        let size = delta::target_size(&difference).ok_or("its delta is invalid")?;
        self.admit(size, guard)?;
        let bytes = delta::apply(&base.1, &difference).ok_or("its delta is invalid")?;
        Ok((base.0, Arc::new(bytes)))
    }

    /// Blocks until no other decoder holds a large object, if this one is large. Fails if `size` is above
    /// `DELTA_BYTES_MAX`.
    fn admit(&self, size: u64, guard: &mut Option<MutexGuard<'a, ()>>) -> Result<(), Why> {
        if size > DELTA_BYTES_MAX {
            return Err("it is larger than any object that git keeps in this way".into());
        }
        if size > LARGE_BYTES && guard.is_none() {
            *guard = Some(self.large.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        }
        Ok(())
    }

    fn keep(&mut self, pack: &RawPack, at: u64, object: &InMemory) {
        let key = (pack.number, at);
        if object.1.len() > CACHE_BYTES_MAX / 4 || self.cache.contains_key(&key) {
            return;
        }
        self.cache_bytes += object.1.len();
        self.cache.insert(key, object.clone());
        self.cached.push_back(key);
        while self.cache_bytes > CACHE_BYTES_MAX {
            let Some(gone) = self.cached.pop_front().and_then(|oldest| self.cache.remove(&oldest)) else { break };
            self.cache_bytes -= gone.1.len();
        }
    }

    fn inflate_all(
        &mut self,
        pack: &RawPack,
        head: &Head,
        guard: &mut Option<MutexGuard<'a, ()>>,
    ) -> Result<Vec<u8>, Why> {
        self.admit(head.size, guard)?;
        // The claimed size is not allocated up front: there may be less data.
        let mut all = Vec::new();
        self.inflate(pack, head.data, head.size, &mut |bytes| {
            all.extend_from_slice(bytes);
            true
        })?;
        Ok(all)
    }

    /// Inflates the data at `start`, which must be exactly `size` bytes, and returns the offset at which it ends. Fails
    /// once `each` returns false.
    pub(super) fn inflate(
        &mut self,
        pack: &RawPack,
        start: u64,
        size: u64,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64, Why> {
        let mut out = std::mem::take(&mut self.out);
        self.inflate.reset(true);
        let done = loop {
            let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
            if let Err(error) = self.fill_window(pack, start + read) {
                break Err(error.to_string().into());
            }
            let input = window_from(&self.window, self.window_at, start + read);
            let is_end = input.is_empty();
            let status = self.inflate.decompress(input, &mut out, FlushDecompress::None);
            let fresh = usize::try_from(self.inflate.total_out() - written).unwrap_or(0);
            let is_stuck = fresh == 0 && self.inflate.total_in() == read;
            let goes_on = fresh == 0 || each(&out[..fresh.min(out.len())]);
            match status {
                _ if !goes_on => break Err("reading it was cancelled".into()),
                _ if self.inflate.total_out() > size => break Err("it is longer than it says".into()),
                Ok(Status::StreamEnd) if self.inflate.total_out() == size => break Ok(start + self.inflate.total_in()),
                Ok(Status::StreamEnd) => break Err("it is shorter than it says".into()),
                Ok(_) if is_stuck && is_end => break Err("it ends too early".into()),
                Ok(_) if is_stuck => break Err("it does not go on".into()),
                Ok(_) => {}
                Err(error) => break Err(error.to_string().into()),
            }
        };
        self.out = out;
        done
    }

    /// Reads the head of the entry at `start`.
    fn head(&mut self, pack: &RawPack, start: u64) -> Result<Head, Why> {
        if start < HEADER_BYTES as u64 || start >= pack.end() {
            return Err("its place is not in the pack".into());
        }
        self.fill_window(pack, start).map_err(|error| error.to_string())?;
        let head = EntryHead::parse(window_from(&self.window, self.window_at, start), start)?;
        Ok(Head { form: head.form, size: head.size, data: start + head.bytes as u64 })
    }

    /// Loads the bytes at `at` into the window, unless it holds them.
    fn fill_window(&mut self, pack: &RawPack, at: u64) -> io::Result<()> {
        let of = pack.number;
        // The window must hold a whole head.
        let last = (at + HEAD_BYTES_MAX as u64).min(pack.end());
        if self.window_at.is_some_and(|(pack, start)| {
            pack == of && start <= at && at < pack_end(start, &self.window) && last <= pack_end(start, &self.window)
        }) {
            return Ok(());
        }
        let want = usize::try_from(pack.end().saturating_sub(at)).unwrap_or(usize::MAX).min(WINDOW_BYTES);
        self.window_at = None;
        self.window.resize(want, 0);
        pack.read_at(&mut self.window, at)?;
        self.window_at = Some((of, at));
        Ok(())
    }
}

fn window_from(window: &[u8], shows: Option<(u32, u64)>, at: u64) -> &[u8] {
    let skip = shows.and_then(|(_, start)| usize::try_from(at.checked_sub(start)?).ok());
    skip.and_then(|skip| window.get(skip..)).unwrap_or_default()
}

fn pack_end(start: u64, window: &[u8]) -> u64 {
    start + window.len() as u64
}

enum Link {
    End(InMemory),
    Delta { head: Head, base: Base },
}

enum Base {
    At(u64),
    Object(ObjectId),
}

#[cfg(test)]
mod tests;
