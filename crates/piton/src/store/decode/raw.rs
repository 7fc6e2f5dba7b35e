//! A pack and its idx as files, whole or not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gix_hash::Kind;
use gix_odb::pack;

use super::{HEADER_BYTES, TRAILER_BYTES, WINDOW_BYTES, Why};
use crate::error::{Error, Result, plain_io};
use crate::id::{Checksum, ID_BYTES, ObjectId};

/// A pack and its idx, as far as they can be read.
pub(in crate::store) struct RawPack {
    /// Tells it from the others that were opened with it.
    pub(super) number: u32,
    /// The name of both files without their ending.
    pub(in crate::store) name: PathBuf,
    file: Option<File>,
    /// The length of the pack.
    pub(in crate::store) bytes: u64,
    /// What the idx says, sorted by id.
    pub(in crate::store) ids: Vec<(ObjectId, u64)>,
    /// The places of `ids` in the order of the pack.
    order: Vec<u32>,
    /// What is wrong with the idx.
    pub(in crate::store) idx_fault: Option<IdxFault>,
    /// What is wrong with the pack, as far as can be told without reading all of it.
    pub(in crate::store) fault: Option<Why>,
    /// The reason why some of it could not be read. That is no damage: it may be whole, and be read another time.
    unread: OnceLock<String>,
}

/// What is wrong with an idx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum IdxFault {
    Missing,
    /// It can be read, or not: either way it is not to be trusted.
    Wrong(Why),
}

impl RawPack {
    /// Opens whatever is there under this name.
    pub(in crate::store) fn open(name: &Path, number: u32) -> Result<Self> {
        let mut pack = Self {
            number,
            name: name.to_owned(),
            file: None,
            bytes: 0,
            ids: Vec::new(),
            order: Vec::new(),
            idx_fault: None,
            fault: None,
            unread: OnceLock::new(),
        };
        let path = name.with_added_extension("pack");
        match File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((bytes, file)) => (pack.bytes, pack.file) = (bytes, Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => pack.fault = Some("it is not there".into()),
            Err(error) => return Err(Error::io("read", &path, error)),
        }
        let idx = pack.read_idx()?;
        if pack.fault.is_none() {
            pack.fault = pack.check_ends(idx).err();
        }
        Ok(pack)
    }

    /// Opens a pack to read entries whose places are known. Fails if it cannot be opened.
    pub(in crate::store) fn without_idx(name: &Path) -> Result<Self> {
        let path = name.with_added_extension("pack");
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, file) = opened.map_err(|error| Error::io("read", &path, error))?;
        Ok(Self {
            number: 0,
            name: name.to_owned(),
            file: Some(file),
            bytes,
            ids: Vec::new(),
            order: Vec::new(),
            idx_fault: None,
            fault: None,
            unread: OnceLock::new(),
        })
    }

    /// Whether there is a pack at all.
    pub(in crate::store) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the idx. The checksum of the pack that it was made for, if it can be trusted.
    fn read_idx(&mut self) -> Result<Option<[u8; ID_BYTES]>> {
        let path = self.name.with_added_extension("idx");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.idx_fault = Some(IdxFault::Missing);
                return Ok(None);
            }
            Err(error) => return Err(Error::io("read", &path, error)),
        };
        let is_whole = ends_in_checksum(&bytes);
        let idx = match pack::index::File::from_data(bytes, path, Kind::Sha1) {
            Ok(idx) => idx,
            Err(error) => {
                self.idx_fault = Some(IdxFault::Wrong(error.to_string().into()));
                return Ok(None);
            }
        };
        let id = |at| ObjectId::read(idx.oid_at_index(at).as_bytes());
        self.ids = (0..idx.num_objects()).filter_map(|at| Some((id(at)?, idx.pack_offset_at_index(at)))).collect();
        let is_sorted = self.ids.is_sorted_by(|one, other| one.0 <= other.0);
        if !is_sorted {
            self.ids.sort_unstable();
        }
        let last = self.bytes.saturating_sub(TRAILER_BYTES);
        let is_inside = |(_, start): &(ObjectId, u64)| (HEADER_BYTES as u64..last).contains(start);
        let is_placed = self.ids.iter().all(is_inside) || self.file.is_none();
        let count = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        self.order = (0..count).collect();
        self.order.sort_by_key(|at| self.ids[*at as usize].1);
        let mut starts = self.order.windows(2).map(|two| [0, 1].map(|at| self.ids[two[at] as usize].1));
        let fault = match () {
            () if !is_whole => Some("its checksum is wrong"),
            () if !is_sorted => Some("its ids are not in order"),
            () if !is_placed => Some("an offset is not in the pack"),
            () if starts.any(|[one, other]| one == other) => Some("two objects have the same place"),
            () => None,
        };
        self.idx_fault = fault.map(|why| IdxFault::Wrong(why.into()));
        Ok(is_whole.then(|| ObjectId::read(idx.pack_checksum().as_bytes())).flatten().map(|id| *id.as_bytes()))
    }

    /// The header, and the checksum at the end, which must be the one that the idx names.
    fn check_ends(&self, idx: Option<[u8; ID_BYTES]>) -> std::result::Result<(), Why> {
        if self.bytes < HEADER_BYTES as u64 + TRAILER_BYTES {
            return Err("it is too short for a pack".into());
        }
        let count = self.count().ok_or("it does not begin as a pack does")?;
        let trailer = self.trailer().ok_or("it cannot be read to its end")?;
        if self.idx_fault.is_none() && count as usize != self.ids.len() {
            return Err("it says that it holds another number of objects than its idx".into());
        }
        match idx {
            Some(idx) if idx != trailer => Err("its checksum is not the one that its idx names".into()),
            _ => Ok(()),
        }
    }

    pub(in crate::store) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file.read_exact_at(into, at).inspect_err(|error| {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                self.unread.get_or_init(|| plain_io(error));
            }
        })
    }

    /// Why the file system did not let some of it be read, if it did not.
    pub(in crate::store) fn unread(&self) -> Option<&str> {
        self.unread.get().map(String::as_str)
    }

    /// Whether the checksum at the end is right.
    pub(in crate::store) fn is_summed_right(&self, mut read: impl FnMut(u64)) -> std::result::Result<bool, Why> {
        let mut sum = Checksum::new();
        let mut buffer = vec![0; WINDOW_BYTES];
        let end = self.bytes.saturating_sub(TRAILER_BYTES);
        let mut at = 0;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            self.read_at(&mut buffer[..want], at).map_err(|error| error.to_string())?;
            sum.update(&buffer[..want]);
            at += want as u64;
            read(want as u64);
        }
        Ok(self.trailer() == Some(sum.finish()))
    }

    /// Where the idx says that an object is.
    pub(in crate::store) fn start_of(&self, id: ObjectId) -> Option<u64> {
        let at = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.ids[at].1)
    }

    /// Which object the idx says to be there.
    pub(in crate::store) fn id_at(&self, start: u64) -> Option<ObjectId> {
        let at = self.order.binary_search_by_key(&start, |at| self.ids[*at as usize].1).ok()?;
        Some(self.ids[self.order[at] as usize].0)
    }

    /// What the idx names, in the order of the pack.
    pub(in crate::store) fn in_order(&self) -> impl Iterator<Item = (ObjectId, u64)> {
        self.order.iter().map(|at| self.ids[*at as usize])
    }

    /// Takes over what was found out about which object is where.
    pub(in crate::store) fn learn(&mut self, found: &BTreeMap<u64, ObjectId>) {
        self.ids = found.iter().map(|(start, id)| (*id, *start)).collect();
        self.ids.sort_unstable();
        self.order = (0..u32::try_from(self.ids.len()).unwrap_or(u32::MAX)).collect();
        self.order.sort_by_key(|at| self.ids[*at as usize].1);
    }

    /// How many objects the header speaks of, if it is one.
    pub(in crate::store) fn count(&self) -> Option<u32> {
        let mut header = [0; HEADER_BYTES];
        self.read_at(&mut header, 0).ok()?;
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        (header.starts_with(b"PACK") && matches!(word(4), 2 | 3)).then(|| word(8))
    }

    /// The CRC-32 of a range of its bytes, as an idx has it of an entry.
    pub(in crate::store) fn crc_of(&self, range: std::ops::Range<u64>) -> std::result::Result<u32, Why> {
        if range.start > range.end || range.end > self.bytes {
            return Err("it ends too early".into());
        }
        let mut crc = crc32fast::Hasher::new();
        let mut buffer = vec![0; usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(WINDOW_BYTES)];
        let mut at = range.start;
        while at < range.end {
            let piece = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
            self.read_at(&mut buffer[..piece], at).map_err(|error| error.to_string())?;
            crc.update(&buffer[..piece]);
            at += piece as u64;
        }
        Ok(crc.finalize())
    }

    /// The checksum at the end.
    pub(in crate::store) fn trailer(&self) -> Option<[u8; ID_BYTES]> {
        let mut trailer = [0; ID_BYTES];
        self.read_at(&mut trailer, self.end()).ok()?;
        Some(trailer)
    }

    /// Where the entries end.
    pub(in crate::store) fn end(&self) -> u64 {
        self.bytes.saturating_sub(TRAILER_BYTES)
    }
}

/// Whether the last bytes are the checksum of all others, as in an idx, an index and what else git derives.
pub(in crate::store) fn ends_in_checksum(bytes: &[u8]) -> bool {
    bytes.split_last_chunk::<ID_BYTES>().is_some_and(|(body, end)| {
        let mut sum = Checksum::new();
        sum.update(body);
        sum.finish() == *end
    })
}
