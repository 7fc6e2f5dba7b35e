//! Writing packs in git's format: a pack and its idx.
//!
//! A pack is invisible until its idx is in place, and both are synced before: that is the first half of invariant S1. A
//! pack that is not published is removed, or has a name that readers ignore.
//!
//! Stock git's collection deletes every pack without reachable objects, except those with a `.keep` file. A pack is
//! therefore published under a `.keep` file, which is held until the ref has moved (see [`PublishedPacks`]).

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, SendError};
use std::thread;

use flate2::{Compress, Compression, FlushCompress, Status};
use tempfile::TempPath;

use gix_odb::pack::data::entry::Header;

use super::keeps::PublishedPacks;
use crate::error::{Error, Result};
use crate::fsx;
use crate::id::{Checksum, Collision, ID_BYTES, IdHasher, ObjectId, ObjectKind};
use crate::sys;

/// Compression level of takes, the fastest: new data may be dropped soon, and maintenance recompresses the rest.
pub(super) const LEVEL_FAST: u32 = 1;
/// Compression level of maintenance, which is git's default.
pub(super) const LEVEL_SMALL: u32 = 6;
/// Size at which a pack is full; only its last object exceeds it. A collection rewrites one pack after the other, and
/// needs room for one of them.
pub(super) const PACK_BYTES_MAX: u64 = 64 << 20;
/// Number of bytes of a large file that are read at a time.
const STREAM_BYTES: usize = 1 << 18;
/// Maximum number of such pieces that wait to be compressed.
const PIECES_AHEAD: usize = 8;
const SIGNATURE: &[u8; 4] = b"PACK";
pub(super) const HEADER_BYTES: usize = 12;
/// Size of one object in an idx: its id, its checksum, its offset.
pub(super) const IDX_ENTRY_BYTES: u64 = ID_BYTES as u64 + 8;
/// Size of an empty idx: signature, fan-out, two checksums.
const IDX_FIXED_BYTES: u64 = 8 + 256 * 4 + 2 * ID_BYTES as u64;
const IDX_SIGNATURE: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
/// First offset that is stored in the idx's table of 64-bit offsets.
const LARGE_OFFSET: u64 = 1 << 31;

/// An object in an idx.
pub(super) struct IdxEntry {
    pub(super) id: ObjectId,
    pub(super) crc: u32,
    pub(super) offset: u64,
}

/// The directory in which packs are published, and the one in which they are written. Both are on one file system.
#[derive(Debug, Clone)]
pub(super) struct PackDirs {
    pub(super) packs: PathBuf,
    pub(super) temporary: PathBuf,
}

/// A pack being written. Dropping it removes its file.
pub(super) struct PackWriter {
    dirs: PackDirs,
    path: TempPath,
    out: BufWriter<File>,
    offset: u64,
    entries: Vec<IdxEntry>,
    /// Running checksum of the pack, if the number of objects is known from the start.
    sum: Option<Checksum>,
}

/// A pack and its idx, complete and synced, under names that readers ignore. Dropping it removes both files.
pub(super) struct SealedPack {
    name: PathBuf,
    pack: TempPath,
    idx: TempPath,
    bytes: u64,
}

/// Representation of an entry in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The whole object.
    Whole(ObjectKind),
    /// A delta against the entry at this offset of the same pack.
    Delta(u64),
}

impl PackWriter {
    /// Reserves memory for exactly this many more entries.
    pub(super) fn reserve(&mut self, entries: usize) {
        self.entries.reserve_exact(entries);
    }

    pub(super) fn begin(dirs: &PackDirs) -> Result<Self> {
        let (file, path) = fsx::temp_file(&dirs.temporary)?.into_parts();
        let mut out = BufWriter::with_capacity(1 << 20, file);
        // Placeholder for the header: the number of objects is known only at the end.
        out.write_all(&[0; HEADER_BYTES]).map_err(|error| Error::io("write", &path, error))?;
        Ok(Self { dirs: dirs.clone(), path, out, offset: HEADER_BYTES as u64, entries: Vec::new(), sum: None })
    }

    /// Begins a pack of one large object, which need not be read again for the checksum of the pack.
    pub(super) fn begin_single(dirs: &PackDirs) -> Result<Self> {
        let mut sum = Checksum::new();
        sum.update(&pack_header(1));
        Ok(Self { sum: Some(sum), ..Self::begin(dirs)? })
    }

    /// Adds an entry of `size` bytes that the caller has compressed. Returns its offset.
    pub(super) fn add(&mut self, id: ObjectId, form: Form, size: u64, deflated: &[u8]) -> Result<u64> {
        self.sum = None;
        let offset = self.offset;
        let header = entry_header(form, offset, size);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header);
        crc.update(deflated);
        self.put(&header)?;
        self.put(deflated)?;
        self.note(id, crc, header.len() + deflated.len());
        Ok(offset)
    }

    /// Returns the offset of the next entry.
    pub(super) fn bytes_so_far(&self) -> u64 {
        self.offset
    }

    /// Returns the size that the pack would have if it were sealed at this point.
    pub(super) fn bytes(&self) -> u64 {
        self.offset + ID_BYTES as u64
    }

    /// Returns the size that the pack and its idx would have if they were sealed at this point.
    pub(super) fn bytes_with_idx(&self) -> u64 {
        self.bytes() + IDX_FIXED_BYTES + IDX_ENTRY_BYTES * self.entries.len() as u64
    }

    /// Returns the number of bytes of the pack that are already on disk.
    pub(super) fn bytes_written(&self) -> u64 {
        self.out.get_ref().metadata().map_or(0, |found| found.len())
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= PACK_BYTES_MAX
    }

    /// Adds a blob of `size` bytes while it is read, and returns its id. Returns `None`, and leaves the pack unchanged,
    /// if `read` fails or does not give exactly `size` bytes.
    pub(super) fn add_stream(
        &mut self,
        size: u64,
        read: &mut dyn Read,
    ) -> Result<Option<std::result::Result<ObjectId, Collision>>> {
        let header = entry_header(Form::Whole(ObjectKind::Blob), self.offset, size);
        let sum = self.sum.take().filter(|_| self.entries.is_empty());
        let mut entry = Counted { out: &mut self.out, crc: crc32fast::Hasher::new(), bytes: 0, sum };
        let done = entry.write_all(&header).and_then(|()| deflate_stream(size, read, &mut entry));
        let Counted { crc, bytes, sum, .. } = entry;
        match done {
            Ok(Some(Ok(id))) => {
                self.note(id, crc, bytes);
                self.sum = sum;
                Ok(Some(Ok(id)))
            }
            Ok(other) => self.rewind().map(|()| other),
            Err(error) => Err(Error::io("write", &self.path, error)),
        }
    }

    /// Adds a whole object whose compressed data, `bytes` bytes long, is copied in pieces from another pack.
    pub(super) fn add_copied(
        &mut self,
        id: ObjectId,
        kind: ObjectKind,
        size: u64,
        bytes: u64,
        mut piece_at: impl FnMut(&mut [u8], u64) -> io::Result<()>,
    ) -> Result<()> {
        self.sum = None;
        let header = entry_header(Form::Whole(kind), self.offset, size);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header);
        self.put(&header)?;
        let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(STREAM_BYTES)];
        let mut at = 0;
        while at < bytes {
            let piece = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(STREAM_BYTES);
            piece_at(&mut buffer[..piece], at)
                .map_err(|error| Error::damaged(format!("copy the object {id}"), error))?;
            crc.update(&buffer[..piece]);
            self.put(&buffer[..piece])?;
            at += piece as u64;
        }
        let written =
            header.len() + usize::try_from(bytes).map_err(|_| Error::damaged("copy an object", "too large"))?;
        self.note(id, crc, written);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| Error::io("write", &self.path, error))
    }

    fn note(&mut self, id: ObjectId, crc: crc32fast::Hasher, bytes: usize) {
        self.entries.push(IdxEntry { id, crc: crc.finalize(), offset: self.offset });
        self.offset += bytes as u64;
    }

    fn rewind(&mut self) -> Result<()> {
        let (offset, path) = (self.offset, &self.path);
        let rewound = self.out.flush().and_then(|()| {
            self.out.get_ref().set_len(offset)?;
            self.out.seek(SeekFrom::Start(offset)).map(drop)
        });
        rewound.map_err(|error| Error::io("write", path, error))
    }

    /// Completes the pack and its idx, and syncs both.
    pub(super) fn seal(mut self) -> Result<SealedPack> {
        let checksum = self.finish_pack().map_err(|error| Error::io("write", &self.path, error))?;
        let name = self.dirs.packs.join(format!("pack-{}", ObjectId::from_bytes(checksum)));
        let idx = synced_idx(&self.dirs.temporary, &mut self.entries, checksum)?;
        Ok(SealedPack { name, bytes: self.bytes_with_idx(), pack: self.path, idx })
    }

    /// Completes the pack without an idx, and syncs it.
    pub(super) fn into_file(mut self) -> Result<TempPath> {
        self.finish_pack().map_err(|error| Error::io("write", &self.path, error))?;
        Ok(self.path)
    }

    /// Writes the header and the trailing checksum, and syncs the pack. Reads the pack again to compute the checksum,
    /// unless it is known.
    fn finish_pack(&mut self) -> io::Result<[u8; ID_BYTES]> {
        let count = u32::try_from(self.entries.len()).map_err(|_| io::Error::other("too many objects for one pack"))?;
        self.out.flush()?;
        let file = self.out.get_mut();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&pack_header(count))?;
        if let Some(sum) = self.sum.take().filter(|_| count == 1) {
            let checksum = sum.finish();
            file.seek(SeekFrom::Start(self.offset))?;
            file.write_all(&checksum)?;
            sys::sync_file(file)?;
            return Ok(checksum);
        }
        file.seek(SeekFrom::Start(0))?;
        let mut checksum = Checksum::new();
        let mut buffer = vec![0; 1 << 18];
        let mut left = self.offset;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            file.read_exact(&mut buffer[..want])?;
            checksum.update(&buffer[..want]);
            left -= want as u64;
        }
        let checksum = checksum.finish();
        file.write_all(&checksum)?;
        sys::sync_file(file)?;
        Ok(checksum)
    }
}

impl SealedPack {
    /// Returns the name that both files will have, without an extension. It is made from the checksum of the pack.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the size of the pack and its idx.
    pub(super) fn bytes_with_idx(&self) -> u64 {
        self.bytes
    }

    /// Makes the packs visible, in this order: `.keep` files, packs, idxs, directory sync.
    pub(super) fn publish(all: Vec<Self>, dir: &Path) -> Result<PublishedPacks> {
        let mut published = PublishedPacks::default();
        let mut idxs = Vec::new();
        for sealed in all {
            published.keep(&sealed.name)?;
            fsx::persist(sealed.pack, &sealed.name.with_added_extension("pack"))?;
            idxs.push((sealed.idx, sealed.name));
        }
        for (idx, name) in idxs {
            fsx::persist(idx, &name.with_added_extension("idx"))?;
            published.names.push(name);
        }
        fsx::sync_dir(dir)?;
        Ok(published)
    }
}

/// Writes the idx of a pack that is in place, from the ids, checksums and offsets of its entries. On return the idx is
/// durable.
pub(super) fn write_idx_of(
    dirs: &PackDirs,
    name: &Path,
    found: impl Iterator<Item = (ObjectId, u32, u64)>,
    checksum: [u8; ID_BYTES],
) -> Result<()> {
    let mut entries: Vec<_> = found.map(|(id, crc, offset)| IdxEntry { id, crc, offset }).collect();
    fsx::persist(synced_idx(&dirs.temporary, &mut entries, checksum)?, &name.with_added_extension("idx"))?;
    fsx::sync_dir(&dirs.packs)
}

/// Writes an idx of these entries under a temporary name, complete and synced.
fn synced_idx(dir: &Path, entries: &mut [IdxEntry], pack: [u8; ID_BYTES]) -> Result<TempPath> {
    entries.sort_by_key(|entry| entry.id);
    let mut idx = fsx::temp_file(dir)?;
    let written = write_idx(entries, pack, &mut BufWriter::new(idx.as_file_mut()));
    let written = written.and_then(|()| sys::sync_file(idx.as_file()));
    written.map_err(|error| Error::io("write", idx.path(), error))?;
    Ok(idx.into_temp_path())
}

fn pack_header(count: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(SIGNATURE);
    header[4..8].copy_from_slice(&2_u32.to_be_bytes());
    header[8..].copy_from_slice(&count.to_be_bytes());
    header
}

fn entry_header(form: Form, offset: u64, size: u64) -> Vec<u8> {
    let header = match form {
        Form::Whole(ObjectKind::Commit) => Header::Commit,
        Form::Whole(ObjectKind::Tree) => Header::Tree,
        Form::Whole(ObjectKind::Blob) => Header::Blob,
        Form::Whole(ObjectKind::Tag) => Header::Tag,
        Form::Delta(base) => Header::OfsDelta { base_distance: offset - base },
    };
    let mut bytes = Vec::with_capacity(16);
    header.write_to(size, &mut bytes).expect("a vector takes all that is written to it");
    bytes
}

/// Writes an idx. The entries must be sorted by id.
pub(super) fn write_idx(entries: &[IdxEntry], pack: [u8; ID_BYTES], out: &mut impl Write) -> io::Result<()> {
    let mut checksum = Checksum::new();
    let mut put = |bytes: &[u8]| {
        checksum.update(bytes);
        out.write_all(bytes)
    };
    put(&IDX_SIGNATURE)?;
    let mut at = 0;
    for first_byte in 0..=255 {
        at += entries[at..].iter().take_while(|entry| entry.id.as_bytes()[0] == first_byte).count();
        put(&u32::try_from(at).map_err(io::Error::other)?.to_be_bytes())?;
    }
    for entry in entries {
        put(entry.id.as_bytes())?;
    }
    for entry in entries {
        put(&entry.crc.to_be_bytes())?;
    }
    let mut large = Vec::new();
    for entry in entries {
        let offset = if entry.offset < LARGE_OFFSET {
            entry.offset
        } else {
            large.push(entry.offset);
            LARGE_OFFSET + large.len() as u64 - 1
        };
        put(&u32::try_from(offset).map_err(io::Error::other)?.to_be_bytes())?;
    }
    for offset in large {
        put(&offset.to_be_bytes())?;
    }
    put(&pack)?;
    let checksum = checksum.finish();
    out.write_all(&checksum)?;
    out.flush()
}

/// Compresses whole buffers, one after the other, reusing the same state.
pub(super) struct Deflater {
    state: Compress,
}

impl Deflater {
    pub(super) fn new(level: u32) -> Self {
        Self { state: Compress::new(Compression::new(level), true) }
    }

    /// Replaces the contents of `out` with the compressed `bytes`.
    pub(super) fn deflate(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.state.reset();
        out.clear();
        out.reserve(bytes.len() / 2 + 128);
        loop {
            let done = usize::try_from(self.state.total_in()).map_err(io::Error::other)?;
            match self.state.compress_vec(&bytes[done..], out, FlushCompress::Finish)? {
                Status::StreamEnd => return Ok(()),
                Status::Ok | Status::BufError => out.reserve(out.capacity().max(4096)),
            }
        }
    }
}

/// Id of a streamed blob, or a hash collision. `None` if it could not be read with the expected size.
type StreamedId = Option<std::result::Result<ObjectId, Collision>>;

/// Calls `each` with the data from `read`, and returns the id of the blob. Returns `None` if reading fails or does not
/// give exactly `size` bytes: the fault is the file's, not the pack's.
fn read_stream(
    size: u64,
    read: &mut dyn Read,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<StreamedId> {
    let mut hasher = IdHasher::new(ObjectKind::Blob, size);
    let mut buffer = vec![0; STREAM_BYTES];
    let mut left = size;
    loop {
        match read.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => {
                let Some(rest) = left.checked_sub(got as u64) else { return Ok(None) };
                left = rest;
                hasher.update(&buffer[..got]);
                each(&buffer[..got])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
    }
    Ok((left == 0).then(|| hasher.finish()))
}

/// Returns the id of a blob without storing it.
pub(super) fn hash_stream(size: u64, read: &mut dyn Read) -> StreamedId {
    read_stream(size, read, |_| Ok(())).unwrap_or(None)
}

/// Compresses a blob while it is read. Another thread compresses, since that takes longer than everything else.
fn deflate_stream(size: u64, read: &mut dyn Read, out: &mut (impl Write + Send)) -> io::Result<StreamedId> {
    let encoder = Mutex::new(flate2::write::ZlibEncoder::new(out, Compression::new(LEVEL_FAST)));
    let deflate = |piece: &[u8]| encoder.lock().expect("no thread panics with it").write_all(piece);
    let id = thread::scope(|scope| {
        let (sender, pieces) = mpsc::sync_channel::<Vec<u8>>(PIECES_AHEAD);
        // If no thread could be spawned, the receiver is dropped and each send returns its piece.
        let deflating =
            thread::Builder::new().spawn_scoped(scope, move || pieces.iter().try_for_each(|piece| deflate(&piece)));
        let id = read_stream(size, read, |bytes| match sender.send(bytes.to_vec()) {
            Ok(()) => Ok(()),
            Err(_) if deflating.is_ok() => Err(io::Error::other("the pack could not be written")),
            Err(SendError(piece)) => deflate(&piece),
        });
        drop(sender);
        if let Ok(deflating) = deflating {
            deflating.join().expect("a thread of ours does not panic")?;
        }
        id
    })?;
    encoder.into_inner().expect("no thread panics with it").finish()?;
    Ok(id)
}

struct Counted<'a, W> {
    out: &'a mut W,
    crc: crc32fast::Hasher,
    bytes: usize,
    sum: Option<Checksum>,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc.update(&bytes[..written]);
        if let Some(sum) = &mut self.sum {
            sum.update(&bytes[..written]);
        }
        self.bytes += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_one(dir: &Path) -> PackDirs {
        PackDirs { packs: dir.to_owned(), temporary: dir.to_owned() }
    }

    /// Tests write no packs of 2 GiB, but a single large file makes one.
    #[test]
    fn offsets_beyond_two_gigabytes_stand_in_a_table_of_their_own() {
        let offsets = [12, LARGE_OFFSET - 1, LARGE_OFFSET, 1 << 40, 13, LARGE_OFFSET + 1];
        let id = |number: u8| ObjectId::from_bytes([number; ID_BYTES]);
        let entries: Vec<_> =
            (1..).zip(offsets).map(|(number, offset)| IdxEntry { id: id(number), crc: 7, offset }).collect();
        let mut bytes = Vec::new();
        write_idx(&entries, [9; ID_BYTES], &mut bytes).expect("a vector takes all");
        let idx = gix_odb::pack::index::File::from_data(bytes, PathBuf::new(), gix_hash::Kind::Sha1).expect("an idx");
        let read: Vec<_> = (0..idx.num_objects()).map(|at| idx.pack_offset_at_index(at)).collect();
        assert_eq!(read, offsets);
    }

    #[test]
    fn a_pack_is_full_at_its_limit_and_knows_what_it_takes() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut pack = PackWriter::begin(&in_one(dir.path())).expect("a pack");
        let id = |number: u8| ObjectId::from_bytes([number; ID_BYTES]);
        pack.add(id(1), Form::Whole(ObjectKind::Blob), 3, b"not compressed").expect("room");
        pack.add(id(2), Form::Whole(ObjectKind::Blob), 3, b"nor this").expect("room");
        let (all, written) = (pack.bytes_with_idx(), pack.bytes());
        assert!(!pack.is_full());
        pack.offset = PACK_BYTES_MAX - ID_BYTES as u64 - 1;
        assert!(!pack.is_full());
        pack.offset += 1;
        assert!(pack.is_full());
        pack.offset = written - ID_BYTES as u64;
        let sealed = pack.seal().expect("a pack");
        let length = |path: &Path| path.metadata().expect("a file").len();
        assert_eq!(length(&sealed.pack), written);
        assert_eq!(length(&sealed.pack) + length(&sealed.idx), all);
        assert_eq!(sealed.bytes_with_idx(), all);
    }

    /// A reader that returns its pieces and errors one by one.
    struct Fitful(std::collections::VecDeque<io::Result<&'static [u8]>>);

    impl Read for Fitful {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let mut piece = self.0.pop_front().unwrap_or(Ok(&[]))?;
            piece.read(into)
        }
    }

    /// A file may change or disappear while it is read.
    #[test]
    fn a_stream_of_another_size_leaves_the_pack_unchanged() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut pack = PackWriter::begin(&in_one(dir.path())).expect("a pack");
        let id = |text: &[u8]| IdHasher::of(ObjectKind::Blob, text).expect("no collision");
        let fault = |kind: io::ErrorKind| Err(io::Error::from(kind));
        for (number, pieces, size, added) in [
            (1, vec![Ok(&b"one"[..])], 3, Some(Ok(id(b"one")))),
            (2, vec![Ok(&b"a text that became shorter"[..])], 27, None),
            (3, vec![Ok(&b"a text that became longer"[..])], 24, None),
            (4, vec![Ok(b"t"), fault(io::ErrorKind::UnexpectedEof)], 1, None),
            (5, vec![Ok(b"f"), fault(io::ErrorKind::Interrupted), Ok(b"our")], 4, Some(Ok(id(b"four")))),
        ] {
            let before = pack.bytes_with_idx();
            let found = pack.add_stream(size, &mut Fitful(pieces.into())).expect("room");
            assert_eq!((found, pack.bytes_with_idx() > before), (added, added.is_some()), "{number}");
        }
        let sealed = vec![pack.seal().expect("a pack")];
        let name = SealedPack::publish(sealed, dir.path()).expect("a pack").names.remove(0);
        let read = super::super::decode::RawPack::open(&name, 0).expect("a pack");
        assert_eq!((&read.fault, &read.idx_fault, read.has_valid_checksum(drop)), (&None, &None, Ok(true)));
        let large = Mutex::new(());
        let mut decoder = super::super::decode::Decoder::new(&large);
        let held: Vec<_> = read.in_order().map(|(id, start)| (id, decoder.object(&read, start, &|_| None))).collect();
        let held: Vec<_> = held.into_iter().map(|(id, found)| (id, found.expect("whole").1.to_vec())).collect();
        assert_eq!(held, [&b"one"[..], b"four"].map(|text| (id(text), text.to_vec())));
    }
}
