//! Git's index file: a sorted list of paths with object ids and what the file system said of each file.
//!
//! It is ours as the stat cache of a project, and the user's own git keeps one in which we look up what it tracks. Read
//! and written by hand because a cache must be quick: a library takes 40 ms to write 80,000 entries, and knows nothing
//! of entries that cannot be trusted.

use std::io::{self, Write};
use std::sync::mpsc::{self, SendError, SyncSender};
use std::thread;

use super::manifest::{Child, DirNode, FileNode, Manifest};
use crate::id::{Checksum, ID_BYTES, ObjectId, hex};
use crate::sys::{FileTime, Kind, Stat};

const SIGNATURE: &[u8; 4] = b"DIRC";
const HEADER_BYTES: usize = 12;
/// Times, numbers, mode, owners and size of the file; then the id and the flags.
const STAT_BYTES: usize = 40;
/// Where the size stands among them.
const SIZE_AT: usize = 36;
/// The length of an id in repositories that use the longer hash.
const LONG_ID_BYTES: usize = 32;
const FIXED_BYTES: usize = STAT_BYTES + ID_BYTES + 2;
/// What an entry takes besides its path: it is filled up to a multiple of eight.
const ENTRY_BYTES_MAX: usize = FIXED_BYTES + 8;
/// What the tree of a directory takes besides its name: two numbers and an id.
const TREE_BYTES_MAX: usize = 64;
const NAME_LENGTH_MASK: u16 = 0xfff;
const EXTENDED_FLAG: u16 = 0x4000;
const STAGE_MASK: u16 = 0x3000;

/// One entry, still in the bytes of the file.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    stat: &'a [u8; STAT_BYTES],
    pub(super) id: ObjectId,
    pub(super) path: &'a [u8],
}

/// The part of a [`Stat`] that an entry keeps, as it stands in the file.
fn encode_stat(stat: &Stat, is_trusted: bool) -> [u8; STAT_BYTES] {
    // The file has room for 32 bits of each, and nobody needs more to see that something changed.
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

/// A size as an entry has it. Only an empty file has 0, which stands for no trust otherwise.
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

/// What the file system said of a file, in a form that can be kept as text. None where it could not be believed later.
pub(super) fn fingerprint(stat: &Stat, began_nanos: i128) -> Option<String> {
    is_settled(stat.ctime, began_nanos).then(|| text_of(stat))
}

/// Returns whether it still says the same as when the fingerprint was made.
pub(super) fn has_fingerprint(stat: &Stat, fingerprint: &str) -> bool {
    text_of(stat) == fingerprint
}

fn text_of(stat: &Stat) -> String {
    // The number of the device, in the middle, does not count: see below.
    let bytes = encode_stat(stat, true);
    hex(bytes[..16].iter().chain(&bytes[20..]))
}

impl Entry<'_> {
    /// Returns whether the file system says of a file now what it said when this entry was made.
    ///
    /// The number of the device does not count: it changes with the order in which disks are found. The size 0 is that
    /// of an entry which cannot be trusted, unless its contents are empty indeed: a file that was emptied since would
    /// agree with it otherwise.
    pub(super) fn agrees_with(&self, stat: &Stat) -> bool {
        let now = encode_stat(stat, true);
        let is_trusted = self.stat[SIZE_AT..] != [0; 4] || self.id == ObjectId::EMPTY_BLOB;
        is_trusted && self.stat[..16] == now[..16] && self.stat[20..] == now[20..]
    }

    /// Returns whether the file had the size that it has now.
    pub(super) fn has_size_of(&self, stat: &Stat) -> bool {
        self.stat[SIZE_AT..] == cut_size(stat.size).to_be_bytes()
    }
}

/// Returns whether a later edit of the file would show in what the file system says of it.
///
/// Equal size and time are not enough. A file written twice within one tick of the file system's clock keeps its time,
/// so an entry whose file changed no earlier than the scan that recorded it cannot be told from a later edit. The clock
/// that stamps files lags behind the one that `began` is read from by up to 10 ms; file systems that count in seconds,
/// or in pairs of them, show no nanoseconds at all.
pub(crate) fn is_settled(changed: FileTime, began_nanos: i128) -> bool {
    const TICK_NANOS: i128 = 100_000_000;
    const COARSE_NANOS: i128 = 3_000_000_000;
    let margin = |time: FileTime| if time.nanos == 0 { COARSE_NANOS } else { TICK_NANOS };
    changed.as_nanos() + margin(changed) < began_nanos
}

/// Reads the header; gives the number of entries and whether names are shortened (version 4).
fn read_header(bytes: &[u8]) -> Option<(usize, bool)> {
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

/// One entry of an index that [`read_own`] has been through, by its place.
pub(super) fn entry_at(bytes: &[u8], place: u32) -> Entry<'_> {
    let rest = &bytes[place as usize..];
    let read = read_fixed(rest)
        .and_then(|(stat, id, flags, after)| Some(Entry { stat, id, path: after.get(..name_bytes(flags, after)?)? }));
    read.expect("read_own has found an entry in this place")
}

fn name_bytes(flags: u16, after: &[u8]) -> Option<usize> {
    match flags & NAME_LENGTH_MASK {
        NAME_LENGTH_MASK => after.iter().position(|byte| *byte == 0),
        length => Some(usize::from(length)),
    }
}

/// Calls `each` with the place and the path of every entry of an index that piton wrote, in order, and returns what
/// follows them. `None` where anything is not as piton writes it.
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

/// The length of an entry: at least one NUL after the name, up to a multiple of eight.
fn padded(name_bytes: usize) -> usize {
    (FIXED_BYTES + name_bytes) / 8 * 8 + 8
}

/// The paths in an index of the user's own git, whatever its version and its hash. Stops at the first thing that makes
/// no sense, and gives what came before: it is only asked for exceptions.
///
/// With the paths comes the checksum of a shared index that holds the rest, if there is one. The file does not say which
/// hash it uses: only with the right one does it end where it should.
///
/// All paths together come to `paths_bytes_max` bytes at most: where names are shortened, a small file can name paths
/// without end.
pub(super) fn read_paths(bytes: &[u8], paths_bytes_max: usize) -> (Vec<Box<[u8]>>, Option<String>) {
    let read = |id_bytes| {
        let mut paths = Vec::new();
        let rest = read_header(bytes).and_then(|(count, shortened)| {
            read_entries(bytes, count, shortened, id_bytes, paths_bytes_max, &mut paths)
        });
        let is_whole = rest.is_some_and(|rest| after_extensions(rest, id_bytes) == Some(id_bytes));
        (is_whole, (paths, rest.and_then(|rest| shared_index(rest, id_bytes))))
    };
    let (is_whole, found) = read(ID_BYTES);
    if is_whole {
        return found;
    }
    let (is_whole, other) = read(LONG_ID_BYTES);
    if is_whole { other } else { found }
}

/// Returns how many bytes follow the extensions.
fn after_extensions(mut rest: &[u8], id_bytes: usize) -> Option<usize> {
    while rest.len() > id_bytes {
        let (size, after) = rest.get(4..)?.split_first_chunk::<4>()?;
        rest = after.get(usize::try_from(u32::from_be_bytes(*size)).ok()?..)?;
    }
    Some(rest.len())
}

fn read_entries<'a>(
    bytes: &'a [u8],
    count: usize,
    shortened: bool,
    id_bytes: usize,
    mut bytes_left: usize,
    paths: &mut Vec<Box<[u8]>>,
) -> Option<&'a [u8]> {
    let mut rest = &bytes[HEADER_BYTES..];
    for _ in 0..count {
        let start = rest;
        let (flags, mut after) = rest.get(STAT_BYTES + id_bytes..)?.split_first_chunk::<2>()?;
        if u16::from_be_bytes(*flags) & EXTENDED_FLAG != 0 {
            after = after.get(2..)?;
        }
        let mut path = Vec::new();
        if shortened {
            let cut;
            (cut, after) = read_offset(after)?;
            let before: &[u8] = paths.last().map_or(b"", |path| path);
            path.extend_from_slice(before.get(..before.len().checked_sub(cut)?)?);
        }
        let end = after.iter().position(|byte| *byte == 0)?;
        path.extend_from_slice(&after[..end]);
        rest = if shortened {
            &after[end + 1..]
        } else {
            let before_name = start.len() - after.len();
            start.get((before_name + end) / 8 * 8 + 8..)?
        };
        bytes_left = bytes_left.checked_sub(path.len())?;
        paths.push(path.into());
    }
    Some(rest)
}

/// A number in git's variable-length form, as version 4 has it before each name.
fn read_offset(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let mut value = usize::from(first & 0x7f);
    let mut more = first & 0x80 != 0;
    while more {
        let (next, after) = rest.split_first()?;
        value = value.checked_add(1)?.checked_mul(128)? | usize::from(next & 0x7f);
        more = next & 0x80 != 0;
        rest = after;
    }
    Some((value, rest))
}

/// The id in the extension `link`: a split index keeps most entries in a file of that name.
fn shared_index(rest: &[u8], id_bytes: usize) -> Option<String> {
    Some(hex(extension(rest, b"link")?.get(..id_bytes)?))
}

/// The bytes of one extension.
pub(super) fn extension<'a>(mut rest: &'a [u8], wanted: &[u8; 4]) -> Option<&'a [u8]> {
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

/// How long an index of these files is, at most.
pub(crate) fn index_bytes_max(manifest: &Manifest) -> u64 {
    let entries = |dir: &DirNode| dir.files.len() * (ENTRY_BYTES_MAX + dir.path.len() + 1) + dir.names.len();
    let dirs = manifest.dirs.iter().map(|dir| entries(dir) + dir.path.len() + TREE_BYTES_MAX);
    dirs.sum::<usize>() as u64 + ENTRY_BYTES_MAX as u64
}

/// By what an index is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexSums {
    /// What git puts at its end.
    pub(crate) checksum: ObjectId,
    /// CRC-32 of all before that: a tenth of the work, and enough to find accidents.
    pub(crate) crc: u32,
}

/// Writes the index of a scan: every file with its id, and the trees of all directories (`trees`, by their place in the
/// manifest).
pub(crate) fn write_index(
    manifest: &Manifest,
    trees: &[Option<ObjectId>],
    began_nanos: i128,
    mut out: impl Write,
) -> io::Result<IndexSums> {
    let sums = thread::scope(|scope| {
        let (sender, pieces) = mpsc::sync_channel::<Vec<u8>>(PIECES_AHEAD);
        // Where no thread is to be had, nobody receives, and whoever writes sums up, too.
        let summing = thread::Builder::new().spawn_scoped(scope, move || {
            let mut sums = Sums::default();
            pieces.iter().for_each(|piece| sums.add(&piece));
            sums
        });
        let mut summed = Summed { out: &mut out, buffer: Vec::new(), sender, left: Sums::default() };
        write_all(manifest, trees, began_nanos, &mut summed)?;
        summed.drain(Vec::new())?;
        let Summed { sender, left, .. } = summed;
        drop(sender);
        io::Result::Ok(summing.map_or(left, |thread| thread.join().expect("a thread of ours does not panic")))
    })?;
    let (checksum, crc) = (sums.checksum.finish(), sums.crc.finalize());
    out.write_all(&checksum)?;
    out.flush()?;
    Ok(IndexSums { checksum: ObjectId::from_bytes(checksum), crc })
}

/// Everything but the checksum at the end.
fn write_all(
    manifest: &Manifest,
    trees: &[Option<ObjectId>],
    began_nanos: i128,
    out: &mut Summed<impl Write>,
) -> io::Result<()> {
    let count = u32::try_from(manifest.files()).map_err(|_| io::Error::other("too many files for an index"))?;
    out.put(SIGNATURE)?;
    out.put(&2_u32.to_be_bytes())?;
    out.put(&count.to_be_bytes())?;
    let mut extension = Vec::new();
    if !manifest.dirs.is_empty() {
        write_dirs(manifest, trees, began_nanos, out, &mut extension)?;
    }
    out.put(b"TREE")?;
    out.put(&u32::try_from(extension.len()).map_err(io::Error::other)?.to_be_bytes())?;
    out.put(&extension)
}

/// Walks the directories in the order of paths, without recursion: entries go out as they come, the extension with the
/// trees is put together from the end.
fn write_dirs(
    manifest: &Manifest,
    trees: &[Option<ObjectId>],
    began_nanos: i128,
    out: &mut Summed<impl Write>,
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
            Some(Child::File(name, file)) => write_entry(prefixes[prefixes.len() - 1], name, file, began_nanos, out)?,
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
    began_nanos: i128,
    out: &mut Summed<impl Write>,
) -> io::Result<()> {
    let id = file.id.ok_or_else(|| io::Error::other("a file without an id"))?;
    let length = dir.len() + usize::from(!dir.is_empty()) + name.len();
    let flags = u16::try_from(length).unwrap_or(u16::MAX).min(NAME_LENGTH_MASK);
    let entry = &mut out.buffer;
    entry.extend_from_slice(&encode_stat(&file.stat, is_settled(file.stat.ctime, began_nanos)));
    entry.extend_from_slice(id.as_bytes());
    entry.extend_from_slice(&flags.to_be_bytes());
    entry.extend_from_slice(dir);
    if !dir.is_empty() {
        entry.push(b'/');
    }
    entry.extend_from_slice(name);
    out.put(&[0; 8][..padded(length) - FIXED_BYTES - length])
}

/// So much is written at a time: file systems take large pieces more quickly.
const PIECE_BYTES: usize = 1 << 18;
/// So many pieces wait to be summed up, at most.
const PIECES_AHEAD: usize = 8;

/// Room for a piece, and for what goes beyond.
fn piece() -> Vec<u8> {
    Vec::with_capacity(PIECE_BYTES + (PIECE_BYTES >> 3))
}

/// Writes in large pieces, which another thread sums up: that takes as long as writing them.
struct Summed<W> {
    out: W,
    buffer: Vec<u8>,
    sender: SyncSender<Vec<u8>>,
    /// Of the pieces that nobody took.
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

impl<W: Write> Summed<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES { self.drain(piece()) } else { Ok(()) }
    }

    /// Writes what there is, and goes on with `next`.
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

    /// Returns whether an entry of `contents`, found that size, agrees with a file that has another size within the same tick.
    fn agrees(contents: &[u8], is_trusted: bool, size_now: u64) -> bool {
        let bytes = encode_stat(&stat(contents.len() as u64), is_trusted);
        let id = IdHasher::of(ObjectKind::Blob, contents).expect("no collision");
        Entry { stat: &bytes, id, path: b"a" }.agrees_with(&stat(size_now))
    }

    #[test]
    fn an_entry_that_cannot_be_trusted_agrees_with_nothing() {
        assert!(agrees(b"four", true, 4));
        assert!(!agrees(b"four", true, 5));
        assert!(!agrees(b"four", false, 4));
        // Emptied within the same tick: the size is that of an entry which is not trusted.
        assert!(!agrees(b"four", false, 0));
        assert!(agrees(b"", false, 0));
        assert!(!agrees(b"", false, 4));
    }

    #[test]
    fn only_an_empty_file_has_the_size_of_none() {
        assert_eq!([0, 1, 5 << 30, 4 << 30, 8 << 30].map(cut_size), [0, 1, 1 << 30, 1 << 31, 1 << 31]);
    }

    #[test]
    fn shortened_names_take_no_more_memory_than_they_may() {
        // One name of a thousand bytes, and a thousand more that are the same but for what they add: nothing.
        let entry = |cut: u8, name: &[u8]| [&[0; FIXED_BYTES][..], &[cut], name, &[0]].concat();
        let count = 1001_u32;
        let mut index = [&SIGNATURE[..], &4_u32.to_be_bytes(), &count.to_be_bytes()].concat();
        index.extend(entry(0, &[b'x'; 1000]));
        (1..count).for_each(|_| index.extend(entry(0, b"")));
        index.extend([0; ID_BYTES]);
        let bytes = |max| read_paths(&index, max).0.iter().map(|path| path.len()).sum::<usize>();
        assert_eq!(bytes(usize::MAX), 1_001_000);
        assert_eq!(bytes(50_999), 50_000);
    }

    #[test]
    fn a_file_is_settled_once_the_clock_that_stamps_files_has_moved_on() {
        let fine = stat(4);
        let changed = fine.ctime.as_nanos();
        assert!(!is_settled(fine.ctime, changed) && !is_settled(fine.ctime, changed - 1));
        assert!(!is_settled(fine.ctime, changed + 100_000_000) && is_settled(fine.ctime, changed + 100_000_001));
        // A file system without nanoseconds counts in seconds, or in pairs of them.
        let coarse = Stat { ctime: FileTime { nanos: 0, ..fine.ctime }, ..fine };
        let changed = coarse.ctime.as_nanos();
        assert!(
            !is_settled(coarse.ctime, changed + 2_999_999_999) && is_settled(coarse.ctime, changed + 3_000_000_001)
        );
    }
}
