//! Format of the stat cache: git's index file, a sorted list of paths with object ids and stat data.
//!
//! Implemented here because a cache must be fast: a library takes 31 to 41 ms to write 86,000 entries, and does not support
//! untrusted entries.

use std::io::{self, Write};
use std::sync::mpsc::{self, SendError, SyncSender};
use std::thread;

use super::super::manifest::{Child, DirNode, FileNode, Manifest};
use crate::id::{Checksum, ID_BYTES, ObjectId, hex};
use crate::sys::{FileTime, Kind, Stat};

pub(in crate::worktree) const SIGNATURE: &[u8; 4] = b"DIRC";
pub(in crate::worktree) const HEADER_BYTES: usize = 12;
/// Size of the stat data: times, device, inode, mode, owners and size. The id and the flags follow.
pub(in crate::worktree) const STAT_BYTES: usize = 40;
/// Offset of the mode in the stat data.
const MODE_AT: usize = 24;
/// Offset of the size in the stat data.
const SIZE_AT: usize = 36;
const FIXED_BYTES: usize = STAT_BYTES + ID_BYTES + 2;
/// Size limit of an entry without its path: it is padded to a multiple of eight.
const ENTRY_BYTES_MAX: usize = FIXED_BYTES + 8;
/// Size limit of the tree entry of a directory without its name: two numbers and an id.
const TREE_BYTES_MAX: usize = 64;
const NAME_LENGTH_MASK: u16 = 0xfff;
pub(in crate::worktree) const EXTENDED_FLAG: u16 = 0x4000;
const STAGE_MASK: u16 = 0x3000;

/// One entry, borrowed from the bytes of the file.
#[derive(Clone, Copy)]
pub(in crate::worktree) struct CachedEntry<'a> {
    stat: &'a [u8; STAT_BYTES],
    pub(in crate::worktree) id: ObjectId,
    pub(super) path: &'a [u8],
}

/// Encodes the part of a [`Stat`] that an entry stores.
fn encode_stat(stat: &Stat, is_trusted: bool) -> [u8; STAT_BYTES] {
    // The format has 32 bits for each field, which is enough to detect a change.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to what the format holds")]
    let fields = [
        stat.ctime.secs as u32,
        stat.ctime.nanos,
        stat.mtime.secs as u32,
        stat.mtime.nanos,
        stat.dev as u32,
        stat.ino as u32,
        mode(stat),
        stat.uid,
        stat.gid,
        if is_trusted { cut_size(stat.size) } else { 0 },
    ];
    let mut bytes = [0; STAT_BYTES];
    for (into, field) in bytes.chunks_exact_mut(4).zip(fields) {
        into.copy_from_slice(&field.to_be_bytes());
    }
    bytes
}

/// Returns a size as an entry stores it. Only an empty file has 0, because 0 otherwise marks an untrusted entry.
#[expect(clippy::cast_possible_truncation, reason = "cut to what the format holds")]
fn cut_size(size: u64) -> u32 {
    if size > 0 && size as u32 == 0 { 1 << 31 } else { size as u32 }
}

fn mode(stat: &Stat) -> u32 {
    match stat.kind {
        Kind::Link => 0o120_000,
        _ if stat.mode & 0o100 != 0 => 0o100_755,
        _ => 0o100_644,
    }
}

/// Returns the stat data of a file that an entry would compare, as text.
pub(super) fn stat_text(stat: &Stat) -> String {
    // Skips the device number in the middle: see below.
    let bytes = encode_stat(stat, true);
    hex(bytes[..16].iter().chain(&bytes[20..]))
}

impl CachedEntry<'_> {
    /// Returns true if the stat data of a file equals that of the entry.
    ///
    /// The device number is not compared: it changes with the order in which disks are found. Size 0 marks an untrusted
    /// entry unless its contents are really empty: otherwise a file that was emptied since would match it.
    pub(in crate::worktree) fn agrees_with(&self, stat: &Stat) -> bool {
        let now = encode_stat(stat, true);
        self.is_trusted() && self.stat[..16] == now[..16] && self.stat[20..] == now[20..]
    }

    /// Returns true unless the entry was written as one that never matches.
    pub(super) fn is_trusted(&self) -> bool {
        self.stat[SIZE_AT..] != [0; 4] || self.id == ObjectId::EMPTY_BLOB
    }

    /// Returns the stat data of the entry. Fields are cut to what the format holds, and the permission bits are those
    /// that git knows; encoded again, the data is the same.
    pub(super) fn stat(&self) -> Stat {
        let field =
            |at: usize| u32::from_be_bytes([self.stat[at], self.stat[at + 1], self.stat[at + 2], self.stat[at + 3]]);
        let time = |at: usize| FileTime { secs: i64::from(field(at)), nanos: field(at + 4) };
        let (kind, mode) = match field(MODE_AT) {
            0o120_000 => (Kind::Link, 0o777),
            0o100_755 => (Kind::File, 0o755),
            _ => (Kind::File, 0o644),
        };
        Stat {
            kind,
            mode,
            size: u64::from(field(SIZE_AT)),
            mtime: time(8),
            ctime: time(0),
            dev: u64::from(field(16)),
            ino: u64::from(field(20)),
            links: 1,
            uid: field(28),
            gid: field(32),
        }
    }

    /// Returns true if the entry has the size of the file.
    pub(in crate::worktree) fn has_size_of(&self, stat: &Stat) -> bool {
        self.stat[SIZE_AT..] == cut_size(stat.size).to_be_bytes()
    }
}

/// Parses the header. Returns the number of entries, and true if names are prefix-compressed (version 4).
pub(in crate::worktree) fn read_header(bytes: &[u8]) -> Option<(usize, bool)> {
    let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    if !bytes.starts_with(SIGNATURE) {
        return None;
    }
    let version = word(4)?;
    let count = usize::try_from(word(8)?).ok()?;
    (matches!(version, 2..=4) && count <= bytes.len() / FIXED_BYTES).then_some((count, version == 4))
}

fn read_fixed(bytes: &[u8]) -> Option<(&[u8; STAT_BYTES], ObjectId, u16, &[u8])> {
    let (stat, rest) = bytes.split_first_chunk::<STAT_BYTES>()?;
    let (id, rest) = rest.split_first_chunk::<ID_BYTES>()?;
    let (flags, rest) = rest.split_first_chunk::<2>()?;
    Some((stat, ObjectId::from_bytes(*id), u16::from_be_bytes(*flags), rest))
}

/// Returns the entry at this offset, in an index that [`read_own`] has accepted.
pub(super) fn entry_at(bytes: &[u8], place: u32) -> CachedEntry<'_> {
    let rest = &bytes[place as usize..];
    let read = read_fixed(rest).and_then(|(stat, id, flags, after)| {
        Some(CachedEntry { stat, id, path: after.get(..name_bytes(flags, after)?)? })
    });
    read.expect("read_own has found an entry in this place")
}

fn name_bytes(flags: u16, after: &[u8]) -> Option<usize> {
    match flags & NAME_LENGTH_MASK {
        NAME_LENGTH_MASK => after.iter().position(|byte| *byte == 0),
        length => Some(usize::from(length)),
    }
}

/// Calls `each` with the offset and the path of every entry of an index that piton wrote, in order. Returns the bytes
/// after them, or `None` if anything differs from the way piton writes it.
pub(super) fn read_own<'a>(bytes: &'a [u8], mut each: impl FnMut(u32, &'a [u8])) -> Option<&'a [u8]> {
    let body = bytes.get(..bytes.len().checked_sub(ID_BYTES)?)?;
    let (count, false) = read_header(body)? else {
        return None;
    };
    let mut rest = &body[HEADER_BYTES..];
    let mut last: &[u8] = b"";
    for _ in 0..count {
        let (_, _, flags, after) = read_fixed(rest)?;
        if flags & (EXTENDED_FLAG | STAGE_MASK) != 0 {
            return None;
        }
        let length = name_bytes(flags, after)?;
        let path = after.get(..length)?;
        if path <= last {
            return None;
        }
        last = path;
        each(u32::try_from(body.len() - rest.len()).ok()?, path);
        rest = rest.get(padded(length)..)?;
    }
    Some(rest)
}

/// Returns the length of an entry: the name is followed by at least one NUL, up to a multiple of eight.
fn padded(name_bytes: usize) -> usize {
    (FIXED_BYTES + name_bytes) / 8 * 8 + 8
}

/// Returns the bytes of one extension.
pub(in crate::worktree) fn extension<'a>(mut rest: &'a [u8], wanted: &[u8; 4]) -> Option<&'a [u8]> {
    loop {
        let (name, after) = rest.split_first_chunk::<4>()?;
        let (size, after) = after.split_first_chunk::<4>()?;
        let (data, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*size)).ok()?)?;
        if name == wanted {
            return Some(data);
        }
        rest = after;
    }
}

/// Returns an upper limit of the size of the index of these files.
pub(crate) fn index_bytes_max(manifest: &Manifest) -> u64 {
    let entries = |dir: &DirNode| dir.files.len() * (ENTRY_BYTES_MAX + dir.path.len() + 1) + dir.names.len();
    let dirs = manifest.dirs.iter().map(|dir| entries(dir) + dir.path.len() + TREE_BYTES_MAX);
    dirs.sum::<usize>() as u64 + ENTRY_BYTES_MAX as u64
}

/// Checksums that identify an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexSums {
    /// Checksum that git puts at the end.
    pub(crate) checksum: ObjectId,
    /// CRC-32 of everything before it: a tenth of the work, and enough to detect accidents.
    pub(crate) crc: u32,
}

/// Writes the index of a scan: every file with its id, and the trees of all directories (`trees`, in the order of the
/// manifest). The entry of a file for which `is_trusted` returns false never matches.
pub(super) fn write_index(
    manifest: &Manifest,
    trees: &[Option<ObjectId>],
    is_trusted: impl Fn(&Stat) -> bool,
    mut out: impl Write,
) -> io::Result<IndexSums> {
    let sums = thread::scope(|scope| {
        let (sender, pieces) = mpsc::sync_channel::<Vec<u8>>(PIECES_AHEAD);
        // If no thread can be started, the receiver is dropped, and the writing thread computes the checksums, too.
        let summing = thread::Builder::new().spawn_scoped(scope, move || {
            let mut sums = Sums::default();
            pieces.iter().for_each(|piece| sums.add(&piece));
            sums
        });
        let mut summed = ChecksumWriter { out: &mut out, buffer: Vec::new(), sender, left: Sums::default() };
        write_all(manifest, trees, &is_trusted, &mut summed)?;
        summed.drain(Vec::new())?;
        let ChecksumWriter { sender, left, .. } = summed;
        drop(sender);
        io::Result::Ok(summing.map_or(left, |thread| thread.join().expect("a thread of ours does not panic")))
    })?;
    let (checksum, crc) = (sums.checksum.finish(), sums.crc.finalize());
    out.write_all(&checksum)?;
    out.flush()?;
    Ok(IndexSums { checksum: ObjectId::from_bytes(checksum), crc })
}

/// Writes everything but the checksum at the end.
fn write_all(
    manifest: &Manifest,
    trees: &[Option<ObjectId>],
    is_trusted: &impl Fn(&Stat) -> bool,
    out: &mut ChecksumWriter<impl Write>,
) -> io::Result<()> {
    let count = u32::try_from(manifest.files()).map_err(|_| io::Error::other("too many files for an index"))?;
    out.put(SIGNATURE)?;
    out.put(&2_u32.to_be_bytes())?;
    out.put(&count.to_be_bytes())?;
    let mut extension = Vec::new();
    if !manifest.dirs.is_empty() {
        write_dirs(manifest, trees, is_trusted, out, &mut extension)?;
    }
    out.put(b"TREE")?;
    out.put(&u32::try_from(extension.len()).map_err(io::Error::other)?.to_be_bytes())?;
    out.put(&extension)
}

/// Walks the directories in the order of paths, without recursion. Entries are written at once; the tree extension is
/// collected in `extension`.
fn write_dirs(
    manifest: &Manifest,
    trees: &[Option<ObjectId>],
    is_trusted: &impl Fn(&Stat) -> bool,
    out: &mut ChecksumWriter<impl Write>,
    extension: &mut Vec<u8>,
) -> io::Result<()> {
    let mut counts = vec![0_u64; manifest.dirs.len()];
    for (at, dir) in manifest.dirs.iter().enumerate().rev() {
        counts[at] = dir.files.len() as u64 + dir.dirs.iter().map(|dir| counts[*dir]).sum::<u64>();
    }
    write_tree_header(manifest, trees, &counts, 0, extension);
    let mut open = vec![manifest.children(0).into_iter()];
    let mut prefixes: Vec<&[u8]> = vec![b""];
    while let Some(children) = open.last_mut() {
        match children.next() {
            Some(Child::File(name, file)) => write_entry(prefixes[prefixes.len() - 1], name, file, is_trusted, out)?,
            Some(Child::Dir(dir)) => {
                if trees[dir].is_some() {
                    write_tree_header(manifest, trees, &counts, dir, extension);
                    open.push(manifest.children(dir).into_iter());
                    prefixes.push(&manifest.dirs[dir].path);
                }
            }
            None => {
                open.pop();
                prefixes.pop();
            }
        }
    }
    Ok(())
}

fn write_tree_header(manifest: &Manifest, trees: &[Option<ObjectId>], counts: &[u64], dir: usize, out: &mut Vec<u8>) {
    let below = manifest.dirs[dir].dirs.iter().filter(|dir| trees[**dir].is_some()).count();
    out.extend_from_slice(manifest.dirs[dir].name());
    match trees[dir] {
        Some(tree) => {
            out.extend_from_slice(format!("\0{} {below}\n", counts[dir]).as_bytes());
            out.extend_from_slice(tree.as_bytes());
        }
        None => out.extend_from_slice(format!("\0-1 {below}\n").as_bytes()),
    }
}

fn write_entry(
    dir: &[u8],
    name: &[u8],
    file: &FileNode,
    is_trusted: &impl Fn(&Stat) -> bool,
    out: &mut ChecksumWriter<impl Write>,
) -> io::Result<()> {
    let id = file.id.ok_or_else(|| io::Error::other("a file without an id"))?;
    let length = dir.len() + usize::from(!dir.is_empty()) + name.len();
    let flags = u16::try_from(length).unwrap_or(u16::MAX).min(NAME_LENGTH_MASK);
    let entry = &mut out.buffer;
    entry.extend_from_slice(&encode_stat(&file.stat, is_trusted(&file.stat)));
    entry.extend_from_slice(id.as_bytes());
    entry.extend_from_slice(&flags.to_be_bytes());
    entry.extend_from_slice(dir);
    if !dir.is_empty() {
        entry.push(b'/');
    }
    entry.extend_from_slice(name);
    out.put(&[0; 8][..padded(length) - FIXED_BYTES - length])
}

/// Size of one write: file systems handle large writes faster.
const PIECE_BYTES: usize = 1 << 18;
/// Number of pieces that may wait for the checksum thread.
const PIECES_AHEAD: usize = 8;

/// Returns a buffer for a piece, with room for the entry that exceeds it.
fn piece() -> Vec<u8> {
    Vec::with_capacity(PIECE_BYTES + (PIECE_BYTES >> 3))
}

/// Writer of large pieces that another thread computes the checksums of, which takes as long as writing them.
struct ChecksumWriter<W> {
    out: W,
    buffer: Vec<u8>,
    sender: SyncSender<Vec<u8>>,
    /// Checksums of the pieces that the other thread did not receive.
    left: Sums,
}

#[derive(Default)]
struct Sums {
    checksum: Checksum,
    crc: crc32fast::Hasher,
}

impl Sums {
    fn add(&mut self, bytes: &[u8]) {
        self.checksum.update(bytes);
        self.crc.update(bytes);
    }
}

impl<W: Write> ChecksumWriter<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES { self.drain(piece()) } else { Ok(()) }
    }

    /// Writes the buffer, and continues with `next`.
    fn drain(&mut self, next: Vec<u8>) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        if let Err(SendError(piece)) = self.sender.send(std::mem::replace(&mut self.buffer, next)) {
            self.left.add(&piece);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{IdHasher, ObjectKind};

    fn stat(size: u64) -> Stat {
        let time = FileTime { secs: 1_700_000_000, nanos: 5 };
        Stat { kind: Kind::File, mode: 0o644, size, mtime: time, ctime: time, dev: 1, ino: 2, uid: 3, gid: 4, links: 1 }
    }

    /// Returns true if an entry of `contents` agrees with a file of another size that changed within the same tick.
    fn agrees(contents: &[u8], is_trusted: bool, size_now: u64) -> bool {
        let bytes = encode_stat(&stat(contents.len() as u64), is_trusted);
        let id = IdHasher::of(ObjectKind::Blob, contents).expect("no collision");
        CachedEntry { stat: &bytes, id, path: b"a" }.agrees_with(&stat(size_now))
    }

    #[test]
    fn an_entry_that_cannot_be_trusted_agrees_with_nothing() {
        assert!(agrees(b"four", true, 4));
        assert!(!agrees(b"four", true, 5));
        assert!(!agrees(b"four", false, 4));
        // Emptied within the same tick: its size is that of an untrusted entry.
        assert!(!agrees(b"four", false, 0));
        assert!(agrees(b"", false, 0));
        assert!(!agrees(b"", false, 4));
    }

    #[test]
    fn the_stat_data_of_an_entry_is_encoded_as_it_was() {
        let plain = stat(4);
        let others = [
            Stat { mode: 0o755, ..plain },
            Stat { kind: Kind::Link, mode: 0o777, ..plain },
            Stat { size: 5 << 32, ino: u64::MAX, dev: u64::MAX, ..plain },
            Stat { mtime: FileTime { secs: -1, nanos: 999_999_999 }, ..plain },
        ];
        for stat in [plain].iter().chain(&others) {
            for is_trusted in [true, false] {
                let bytes = encode_stat(stat, is_trusted);
                let entry = CachedEntry { stat: &bytes, id: ObjectId::from_bytes([1; 20]), path: b"a" };
                assert_eq!(encode_stat(&entry.stat(), true), bytes, "{stat:?}");
                assert_eq!(entry.is_trusted(), is_trusted);
            }
        }
    }

    #[test]
    fn only_an_empty_file_has_the_size_of_none() {
        assert_eq!([0, 1, 5 << 30, 4 << 30, 8 << 30].map(cut_size), [0, 1, 1 << 30, 1 << 31, 1 << 31]);
    }
}
