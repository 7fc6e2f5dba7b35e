//! A pack and its idx as files, corrupt or not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::super::pack_index::{IdxFile, PackIndex};
use super::{HEADER_BYTES, TRAILER_BYTES, WINDOW_BYTES, Why};
use crate::error::{Error, Result, plain_io};
use crate::id::{Checksum, ID_BYTES, ObjectId};
use crate::sys;

/// A pack and its idx, as far as they can be read.
pub(in crate::store) struct RawPack {
    /// Distinguishes the packs that were opened together.
    pub(super) number: u32,
    /// Path of both files without their extensions.
    pub(in crate::store) name: PathBuf,
    file: Option<File>,
    /// Length of the pack file.
    pub(in crate::store) bytes: u64,
    /// Contents of the idx, or of the pack itself after [`RawPack::learn`].
    index: PackIndex,
    /// Defect of the idx.
    pub(in crate::store) idx_fault: Option<IdxFault>,
    /// Defect of the pack, as far as can be found without reading all of it.
    pub(in crate::store) fault: Option<Why>,
    /// First I/O error while reading the pack. It does not mean corruption: the file may be intact and readable at
    /// another time.
    unread: OnceLock<String>,
}

/// A defect of an idx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum IdxFault {
    Missing,
    /// The idx is corrupt, whether or not it could be parsed, and must not be trusted.
    Wrong(Why),
}

impl RawPack {
    /// Opens the pack and the idx of this name. A missing or corrupt file is recorded as a fault; any other I/O error
    /// is returned.
    pub(in crate::store) fn open(name: &Path, number: u32) -> Result<Self> {
        let mut pack = Self {
            number,
            name: name.to_owned(),
            file: None,
            bytes: 0,
            index: PackIndex::default(),
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

    /// Opens a pack to read entries whose offsets are known, without its idx. Fails if the pack cannot be opened.
    pub(in crate::store) fn without_idx(name: &Path) -> Result<Self> {
        let path = name.with_added_extension("pack");
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, file) = opened.map_err(|error| Error::io("read", &path, error))?;
        Ok(Self {
            number: 0,
            name: name.to_owned(),
            file: Some(file),
            bytes,
            index: PackIndex::default(),
            idx_fault: None,
            fault: None,
            unread: OnceLock::new(),
        })
    }

    /// Returns true if the pack file exists.
    pub(in crate::store) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the idx. Returns the checksum of the pack that it was made for, if the idx passes its own checksum.
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
        let idx = match IdxFile::parse(bytes, path) {
            Ok(idx) => idx,
            Err(error) => {
                self.idx_fault = Some(IdxFault::Wrong(error.into()));
                return Ok(None);
            }
        };
        self.index = idx.index;
        let is_placed = self.file.is_none() || self.index.is_within(HEADER_BYTES as u64..self.end());
        let fault = match () {
            () if !is_whole => Some("its checksum is wrong"),
            () if !idx.is_sorted => Some("its ids are not in order"),
            () if !is_placed => Some("an offset is not in the pack"),
            () if self.index.has_shared_offsets() => Some("two objects have the same place"),
            () => None,
        };
        self.idx_fault = fault.map(|why| IdxFault::Wrong(why.into()));
        Ok(is_whole.then_some(idx.pack_checksum))
    }

    /// Checks the header and the trailing checksum, which must be the one that the idx names.
    fn check_ends(&self, idx: Option<[u8; ID_BYTES]>) -> std::result::Result<(), Why> {
        if self.bytes < HEADER_BYTES as u64 + TRAILER_BYTES {
            return Err("it is too short for a pack".into());
        }
        let count = self.count().ok_or("it does not begin as a pack does")?;
        let trailer = self.trailer().ok_or("it cannot be read to its end")?;
        if self.idx_fault.is_none() && count as usize != self.index.len() {
            return Err("its number of objects is not that of its idx".into());
        }
        match idx {
            Some(idx) if idx != trailer => Err("its checksum is not the one that its idx names".into()),
            _ => Ok(()),
        }
    }

    pub(in crate::store) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        sys::read_exact_at(file, into, at).inspect_err(|error| {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                self.unread.get_or_init(|| plain_io(error));
            }
        })
    }

    /// Returns the first I/O error other than an early end of the file, if there was one.
    pub(in crate::store) fn unread(&self) -> Option<&str> {
        self.unread.get().map(String::as_str)
    }

    /// Returns true if the trailing checksum matches the contents. Calls `read` with the number of bytes of each piece.
    pub(in crate::store) fn has_valid_checksum(&self, mut read: impl FnMut(u64)) -> std::result::Result<bool, Why> {
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

    /// Returns the offset of an object according to the idx.
    pub(in crate::store) fn start_of(&self, id: ObjectId) -> Option<u64> {
        self.index.start_of(id)
    }

    /// Returns the id of the object at an offset according to the idx.
    pub(in crate::store) fn id_at(&self, start: u64) -> Option<ObjectId> {
        Some(self.index.at(self.index.place_at(start)?).0)
    }

    /// Returns the entries of the idx in the order of their offsets.
    pub(in crate::store) fn in_order(&self) -> impl Iterator<Item = (ObjectId, u64)> {
        self.index.in_order()
    }

    /// Replaces the entries of the idx by `found`, a map from offset to id.
    pub(in crate::store) fn learn(&mut self, found: &BTreeMap<u64, ObjectId>) {
        self.index = PackIndex::new(found.iter().map(|(start, id)| (*id, *start)).collect());
    }

    /// Returns the number of objects in the header; `None` if the header is invalid.
    pub(in crate::store) fn count(&self) -> Option<u32> {
        let mut header = [0; HEADER_BYTES];
        self.read_at(&mut header, 0).ok()?;
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        (header.starts_with(b"PACK") && matches!(word(4), 2 | 3)).then(|| word(8))
    }

    /// Returns the CRC-32 of a range of bytes, as the idx stores it for each entry.
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

    /// Returns the trailing checksum.
    pub(in crate::store) fn trailer(&self) -> Option<[u8; ID_BYTES]> {
        let mut trailer = [0; ID_BYTES];
        self.read_at(&mut trailer, self.end()).ok()?;
        Some(trailer)
    }

    /// Returns the offset at which the entries end.
    pub(in crate::store) fn end(&self) -> u64 {
        self.bytes.saturating_sub(TRAILER_BYTES)
    }
}

/// Returns true if the last 20 bytes are the checksum of all others, as in an idx, an index and other files that git
/// derives.
pub(in crate::store) fn ends_in_checksum(bytes: &[u8]) -> bool {
    bytes.split_last_chunk::<ID_BYTES>().is_some_and(|(body, end)| {
        let mut sum = Checksum::new();
        sum.update(body);
        sum.finish() == *end
    })
}
