//! All copies of all objects, packed and loose, intact or not. Used by verify and repair.
//!
//! An object may have several copies. It is lost only if none of them is intact.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::decode::{Decoder, InMemory, RawPack, Why};
use super::layout::Layout;
use super::loose::{self, LooseFault};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::progress::Progress;
use crate::threads;

/// Number of pack entries per unit of work.
const CHUNK: usize = 256;
/// Size limit for a loose object that is read into memory.
const LOOSE_BYTES_MAX: u64 = 1 << 30;

/// The objects whose data is read and hashed again.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ReadData {
    /// None. Only commits, trees and the existence of objects are checked.
    No,
    /// All objects.
    All,
    /// A percentage of the objects. Calls with consecutive seeds eventually cover all of them.
    Part {
        /// Percentage of the objects, up to 100.
        percent: f64,
        /// Selects the part.
        seed: u64,
    },
}

impl ReadData {
    /// Returns true if this sample covers the object, or the pack with this checksum.
    fn covers(self, id: &ObjectId) -> bool {
        match self {
            Self::No => false,
            Self::All => true,
            Self::Part { percent, seed } => {
                // Ids are uniformly distributed. The parts of consecutive seeds are adjacent ranges on a circle.
                const CIRCLE: u64 = 1 << 16;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the circle")]
                let width = (CIRCLE as f64 * percent / 100.0).ceil().clamp(1.0, CIRCLE as f64) as u64;
                let start = seed.wrapping_mul(width) % CIRCLE;
                let at = u64::from(id.as_bytes()[0]) << 8 | u64::from(id.as_bytes()[1]);
                (at + CIRCLE - start) % CIRCLE < width
            }
        }
    }
}

/// Location at which an object is listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ObjectPlace {
    /// Index of the pack and offset in it.
    Packed(usize, u64),
    /// Path of a loose object.
    Loose(PathBuf),
}

/// A corrupt or unreadable copy.
#[derive(Debug, Clone)]
pub(super) struct BadCopy {
    pub(super) id: ObjectId,
    pub(super) place: ObjectPlace,
    pub(super) why: Why,
}

/// Result of reading and hashing copies.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) bad: Vec<BadCopy>,
    /// Packs with a checksum mismatch or a read error, by index.
    pub(super) bad_packs: BTreeMap<usize, Why>,
    pub(super) was_stopped: bool,
}

/// Result of looking up an object.
#[derive(Debug, Clone)]
pub(super) enum CopyLookup {
    Whole(InMemory),
    Missing,
    Damaged(Why),
}

pub(super) struct Copies {
    pub(super) packs: Vec<RawPack>,
    pub(super) loose: HashMap<ObjectId, PathBuf>,
    /// Copies known to be bad.
    bad: HashSet<ObjectPlace>,
    large: Mutex<()>,
    /// The first loose object that could not be read because of an I/O error, and the error.
    unread: OnceLock<(PathBuf, String)>,
}

impl Copies {
    /// Lists every pack and loose object, including packs without an idx and idxs without a pack.
    pub(super) fn list(layout: &Layout) -> Result<Self> {
        let dir = layout.packs();
        let mut names = BTreeSet::new();
        for name in fsx::names_in(&dir)? {
            let path = dir.join(&name);
            let is_pack = path.extension().is_some_and(|end| end == "pack" || end == "idx");
            if is_pack && name.as_encoded_bytes().starts_with(b"pack-") {
                names.insert(path.with_extension(""));
            }
        }
        let packs = names.iter().zip(0..).map(|(name, number)| RawPack::open(name, number)).collect::<Result<_>>()?;
        Ok(Self {
            packs,
            loose: loose::ids(&layout.objects())?.into_iter().map(|id| (id, layout.loose_object(&id))).collect(),
            bad: HashSet::new(),
            large: Mutex::new(()),
            unread: OnceLock::new(),
        })
    }

    /// Fails with `Io` if a pack or a loose object could not be read because of an I/O error. Such data is not known to
    /// be corrupt, so nothing may be removed on account of it.
    pub(super) fn refuse_unread(&self) -> Result<()> {
        let packed = self.packs.iter().find_map(|pack| Some((pack.name.as_path(), pack.unread()?)));
        let loose = self.unread.get().map(|(path, why)| (path.as_path(), why.as_str()));
        let Some((path, why)) = packed.or(loose) else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Io, format!("read {}", path.display()))
            .because(why.to_owned())
            .with_hint(Hint::RepairCopy))
    }

    /// Returns the reason why a loose object could not be read. The first I/O error is remembered for `refuse_unread`.
    fn note_fault(&self, path: &Path, fault: LooseFault) -> Why {
        match fault {
            LooseFault::Wrong(why) => why,
            LooseFault::Unread(error) => {
                let why = crate::error::plain_io(&error);
                let _ = self.unread.set((path.to_owned(), why.clone()));
                why.into()
            }
        }
    }

    pub(super) fn decoder(&self) -> Decoder<'_> {
        Decoder::new(&self.large)
    }

    /// Returns every location at which an object is listed, bad copies included.
    pub(super) fn places(&self, id: ObjectId) -> impl Iterator<Item = ObjectPlace> {
        let packed = self.packs.iter().enumerate().filter(|(_, pack)| pack.is_there());
        let packed = packed.filter_map(move |(at, pack)| Some(ObjectPlace::Packed(at, pack.start_of(id)?)));
        packed.chain(self.loose.get(&id).cloned().map(ObjectPlace::Loose))
    }

    /// Returns true if there is a copy that is not known to be bad.
    pub(super) fn has(&self, id: ObjectId) -> bool {
        self.places(id).any(|place| !self.bad.contains(&place))
    }

    /// Returns true if the copy is known to be bad.
    pub(super) fn is_bad(&self, place: &ObjectPlace) -> bool {
        self.bad.contains(place)
    }

    /// Returns true if there is any copy, intact or not.
    pub(super) fn has_any(&self, id: ObjectId) -> bool {
        self.places(id).next().is_some()
    }

    /// Reads an object from its first intact copy. If there is none, reports the fault of the first copy.
    pub(super) fn read(&self, decoder: &mut Decoder<'_>, id: ObjectId) -> CopyLookup {
        let mut fault = None;
        for place in self.places(id) {
            match self.read_at(decoder, &place, id) {
                Ok(object) => return CopyLookup::Whole(object),
                Err(why) => drop(fault.get_or_insert(why)),
            }
        }
        fault.map_or(CopyLookup::Missing, CopyLookup::Damaged)
    }

    fn read_at(
        &self,
        decoder: &mut Decoder<'_>,
        place: &ObjectPlace,
        id: ObjectId,
    ) -> std::result::Result<InMemory, Why> {
        let (kind, bytes) = match place {
            ObjectPlace::Packed(pack, start) => decoder.object(&self.packs[*pack], *start, &|_| None)?,
            ObjectPlace::Loose(path) => {
                let mut bytes = Vec::new();
                let read = loose::read(path, LOOSE_BYTES_MAX, &mut |_, _, piece| bytes.extend_from_slice(piece));
                let kind = read.map_err(|fault| self.note_fault(path, fault))?;
                (kind, Arc::new(bytes))
            }
        };
        match IdHasher::of(kind, &bytes) {
            Ok(found) if found == id => Ok((kind, bytes)),
            _ => Err(NOT_ITS_NAME.into()),
        }
    }

    /// Clears the bad mark of a copy that is intact under its new name.
    pub(super) fn acquit(&mut self, place: &ObjectPlace) {
        self.bad.remove(place);
    }

    /// Returns the kind of a loose object from its header, or `None` if the header cannot be read.
    pub(super) fn kind_of_loose(path: &Path) -> Option<ObjectKind> {
        let mut kind = None;
        let _ = loose::read(path, 0, &mut |found, _, _| kind = Some(found));
        kind
    }

    /// Reads and hashes all copies that the sample covers, on all cores, and marks the bad ones.
    pub(super) fn check(&mut self, sample: ReadData, progress: &Progress) -> Checked {
        let work = self.work(sample);
        progress.begin_store_phase(work.iter().map(|item| item.bytes).sum());
        let next = AtomicUsize::new(0);
        let this = &*self;
        let parts = threads::together(threads::cores().min(work.len()), |_| {
            let mut decoder = this.decoder();
            let mut checked = Checked::default();
            while let Some(item) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                if progress.is_cancelled() {
                    checked.was_stopped = true;
                    break;
                }
                this.check_item(item, &mut decoder, progress, &mut checked);
            }
            checked
        });
        let mut all = Checked::default();
        for part in parts {
            all.objects += part.objects;
            all.bytes += part.bytes;
            all.bad.extend(part.bad);
            all.bad_packs.extend(part.bad_packs);
            all.was_stopped |= part.was_stopped;
        }
        all.bad.sort_by(|one, other| (&one.place, one.id).cmp(&(&other.place, other.id)));
        self.bad.extend(all.bad.iter().map(|bad| bad.place.clone()));
        all
    }

    fn work(&self, sample: ReadData) -> Vec<Item> {
        let mut work = Vec::new();
        for (at, pack) in self.packs.iter().enumerate().filter(|(_, pack)| pack.is_there()) {
            let name = pack.name.file_name().and_then(|name| name.to_str()?.strip_prefix("pack-"));
            let name = name.and_then(|name| ObjectId::from_hex(name.as_bytes()));
            // A pack whose name holds no checksum is part of every sample.
            if sample != ReadData::No && name.is_none_or(|name| sample.covers(&name)) {
                work.push(Item { what: What::Sum(at), bytes: pack.bytes });
            }
            let mut entries: Vec<_> = pack.in_order().collect();
            let ends: Vec<_> = entries.iter().skip(1).map(|(_, start)| *start).chain([pack.end()]).collect();
            let sizes: HashMap<_, _> =
                entries.iter().zip(ends).map(|((_, start), end)| (*start, end.saturating_sub(*start))).collect();
            entries.retain(|(id, _)| sample.covers(id));
            for chunk in entries.chunks(CHUNK) {
                let bytes = chunk.iter().map(|(_, start)| sizes[start]).sum();
                work.push(Item { what: What::Entries(at, chunk.to_vec()), bytes });
            }
        }
        let mut loose: Vec<_> = self.loose.iter().filter(|(id, _)| sample.covers(id)).collect();
        loose.sort();
        let bytes = |path: &PathBuf| path.metadata().map_or(0, |found| found.len());
        work.extend(
            loose.into_iter().map(|(id, path)| Item { bytes: bytes(path), what: What::Loose(*id, path.clone()) }),
        );
        work
    }

    fn check_item(&self, item: &Item, decoder: &mut Decoder<'_>, progress: &Progress, checked: &mut Checked) {
        let did = |bytes: u64| {
            progress.advance_store(bytes);
        };
        let fit = |id: ObjectId, found: std::result::Result<ObjectId, Why>| match found {
            Ok(found) if found == id => None,
            Ok(_) => Some(NOT_ITS_NAME.into()),
            Err(why) => Some(why),
        };
        match &item.what {
            What::Sum(at) => {
                let fault = match self.packs[*at].has_valid_checksum(did) {
                    Ok(true) => None,
                    Ok(false) => Some("its checksum is wrong".into()),
                    Err(why) => Some(why),
                };
                checked.bad_packs.extend(fault.map(|why| (*at, why)));
            }
            What::Entries(at, entries) => {
                for (id, start) in entries {
                    // Entries may be large, and cancelling must not take long.
                    if progress.is_cancelled() {
                        checked.was_stopped = true;
                        return;
                    }
                    let found = decoder.identify(&self.packs[*at], *start, &|_| None);
                    let place = ObjectPlace::Packed(*at, *start);
                    checked.bad.extend(fit(*id, found).map(|why| BadCopy { id: *id, place, why }));
                    checked.objects += 1;
                }
                checked.bytes += item.bytes;
                did(item.bytes);
            }
            What::Loose(id, path) => {
                let place = ObjectPlace::Loose(path.clone());
                let found = loose::identify(path).map_err(|fault| self.note_fault(path, fault));
                checked.bad.extend(fit(*id, found).map(|why| BadCopy { id: *id, place, why }));
                checked.objects += 1;
                checked.bytes += item.bytes;
                did(item.bytes);
            }
        }
    }
}

const NOT_ITS_NAME: &str = "it is not what was written under this name";

struct Item {
    what: What,
    bytes: u64,
}

enum What {
    Sum(usize),
    Entries(usize, Vec<(ObjectId, u64)>),
    Loose(ObjectId, PathBuf),
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn an_object_in_a_file_of_its_own_is_what_it_says_to_the_last_byte() {
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("object");
        let deflated = |bytes: &[u8]| {
            let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(bytes).and_then(|()| out.finish()).expect("a vector takes all")
        };
        let whole = deflated(b"blob 5\0hello");
        for (bytes, is_right) in [
            (whole.clone(), true),
            ([&whole[..], b"x"].concat(), false),
            (whole[..whole.len() - 1].to_vec(), false),
            (deflated(b"blob 6\0hello"), false),
            (deflated(b"blob 4\0hello"), false),
            (deflated(b"blop 5\0hello"), false),
            (deflated(b"blob five\0hello"), false),
            (deflated(&[b'b'; 100]), false),
            (b"hello".to_vec(), false),
            (Vec::new(), false),
        ] {
            std::fs::write(&path, &bytes).expect("a file");
            let found = loose::identify(&path).ok();
            assert_eq!(found, IdHasher::of(ObjectKind::Blob, b"hello").ok().filter(|_| is_right), "{bytes:?}");
        }
        std::fs::write(&path, &whole).expect("a file");
        let read = |bytes_max| loose::read(&path, bytes_max, &mut |_, _, _| {}).is_ok();
        assert_eq!((read(5), read(4)), (true, false), "no more is read than is asked for");
    }

    #[test]
    fn samples_of_consecutive_days_cover_everything() {
        for percent in [0.001_f64, 5.0, 33.0, 100.0] {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 65536")]
            let days = ((100.0 / percent).ceil() as u64).min(65536);
            let covered = |first: u8, second: u8, day: u64| {
                let mut id = [0; 20];
                (id[0], id[1]) = (first, second);
                ReadData::Part { percent, seed: 700 + day }.covers(&ObjectId::from_bytes(id))
            };
            let step = if days > 100 { 251 } else { 17 };
            for at in (0..=65535_u16).step_by(step) {
                let [first, second] = at.to_be_bytes();
                assert!((0..days).any(|day| covered(first, second, day)), "{percent} {at}");
            }
            let of_one_day = (0..=65535_u16).filter(|at| covered(at.to_be_bytes()[0], at.to_be_bytes()[1], 3)).count();
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let part = of_one_day as f64 / 655.36;
            assert!(part >= percent && part < percent + 0.01, "{percent}: {part}");
        }
    }
}
