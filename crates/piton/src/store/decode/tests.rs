//! Hand-made packs: defects are found, and intact entries are read wherever they are.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use gix_odb::pack::data::entry::Header;

use super::super::pack::{IdxEntry, write_idx};
use super::*;
use crate::id::Checksum;

const TEXT: &[u8] = b"a text that is long enough for a delta to copy some of it\n";
/// Offset of the first entry.
const FIRST: u64 = HEADER_BYTES as u64;

/// Returns ids that sort by `number`.
fn id(number: usize) -> ObjectId {
    let mut bytes = [0; ID_BYTES];
    bytes[..2].copy_from_slice(&u16::try_from(number).expect("few").to_be_bytes());
    ObjectId::from_bytes(bytes)
}

fn deflated(contents: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(contents).and_then(|()| out.finish()).expect("a vector takes all")
}

fn sum_of(bytes: &[u8]) -> [u8; ID_BYTES] {
    let mut sum = Checksum::new();
    sum.update(bytes);
    sum.finish()
}

/// Returns bytes that do not compress.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..count).map(|_| next()).collect()
}

fn delta_between(base: &[u8], target: &[u8]) -> Vec<u8> {
    delta::DeltaBase::new(base.to_vec()).delta_to(target, usize::MAX).expect("there is no limit")
}

/// A pack, and an idx that names its entries `id(0)`, `id(1)` and so on.
struct HandMade {
    bytes: Vec<u8>,
    idx: Vec<IdxEntry>,
}

impl HandMade {
    fn new() -> Self {
        Self { bytes: b"PACK\0\0\0\x02\0\0\0\0".to_vec(), idx: Vec::new() }
    }

    fn of_files(contents: &[&[u8]]) -> Self {
        let mut made = Self::new();
        for contents in contents {
            made.add(Header::Blob, contents);
        }
        made
    }

    /// Adds an entry and returns its offset.
    fn add(&mut self, header: Header, contents: &[u8]) -> u64 {
        self.add_saying(header, contents.len() as u64, contents)
    }

    /// Like [`Self::add`], but the entry claims this size.
    fn add_saying(&mut self, header: Header, size: u64, contents: &[u8]) -> u64 {
        let offset = self.bytes.len() as u64;
        header.write_to(size, &mut self.bytes).expect("a vector takes all");
        self.bytes.extend(deflated(contents));
        self.idx.push(IdxEntry { id: id(self.idx.len()), crc: 0, offset });
        offset
    }

    fn add_delta(&mut self, base: u64, difference: &[u8]) -> u64 {
        let base_distance = self.bytes.len() as u64 - base;
        self.add(Header::OfsDelta { base_distance }, difference)
    }

    /// Flips a bit in the last byte of the last entry.
    fn damage_last(&mut self) {
        *self.bytes.last_mut().expect("an entry") ^= 1;
    }

    fn write(&self, dir: &Path) -> PathBuf {
        let name = dir.join("pack-made");
        let count = u32::try_from(self.idx.len()).expect("few").to_be_bytes();
        let body = [&self.bytes[..8], &count, &self.bytes[HEADER_BYTES..]].concat();
        let sum = sum_of(&body);
        fs::write(name.with_extension("pack"), [&body[..], &sum].concat()).expect("a pack");
        let mut idx = Vec::new();
        write_idx(&self.idx, sum, &mut idx).expect("a vector takes all");
        fs::write(name.with_extension("idx"), idx).expect("an idx");
        name
    }

    fn open(&self) -> (tempfile::TempDir, RawPack) {
        let temp = tempfile::tempdir().expect("a directory");
        let pack = RawPack::open(&self.write(temp.path()), 0).expect("a pack");
        (temp, pack)
    }
}

fn reopened(name: &Path) -> RawPack {
    RawPack::open(name, 0).expect("a pack")
}

fn nowhere(_: ObjectId) -> Option<InMemory> {
    None
}

/// Returns the object that the decoder reads at this offset, if any.
fn read(pack: &RawPack, start: u64) -> Option<(ObjectKind, Vec<u8>)> {
    let large = Mutex::new(());
    let object = Decoder::new(&large).object(pack, start, &nowhere).ok();
    object.map(|(kind, bytes)| (kind, bytes.to_vec()))
}

#[test]
fn an_idx_that_cannot_be_right_is_found_whatever_its_checksum_says() {
    let right = || HandMade::of_files(&[b"one", b"two", b"three"]);
    let end = right().bytes.len() as u64;
    let fault_of = |change: &dyn Fn(&mut [IdxEntry])| {
        let mut made = right();
        change(&mut made.idx);
        let (_temp, pack) = made.open();
        let known = made.idx.iter().all(|entry| pack.start_of(entry.id) == Some(entry.offset));
        assert!(known, "it is read all the same");
        pack.idx_fault
    };
    let wrong = |why: &'static str| Some(IdxFault::Wrong(why.into()));
    assert_eq!(fault_of(&|_| {}), None);
    assert_eq!(fault_of(&|idx| idx.swap(0, 2)), wrong("its ids are not in order"));
    for outside in [FIRST - 1, end, 1 << 40] {
        assert_eq!(fault_of(&|idx| idx[1].offset = outside), wrong("an offset is not in the pack"), "{outside}");
    }
    assert_eq!(fault_of(&|idx| idx[2].offset = idx[0].offset), wrong("two objects have the same place"));
}

#[test]
fn a_pack_that_does_not_begin_or_end_as_it_should_is_found() {
    let temp = tempfile::tempdir().expect("a directory");
    let name = HandMade::of_files(&[b"one"]).write(temp.path());
    let (path, idx) = (name.with_extension("pack"), name.with_extension("idx"));
    let right = fs::read(&path).expect("a pack");
    assert_eq!(reopened(&name).fault, None);
    let fault_of = |at: usize, byte: u8| {
        let mut bytes = right.clone();
        bytes[at] = byte;
        fs::write(&path, bytes).expect("a pack");
        reopened(&name).fault
    };
    assert_eq!(fault_of(0, b'p').as_deref(), Some("it does not begin as a pack does"));
    assert_eq!(fault_of(7, 9).as_deref(), Some("it does not begin as a pack does"), "no version of git's");
    let number = "its number of objects is not that of its idx";
    assert_eq!(fault_of(9, 1).as_deref(), Some(number), "65536 more");
    HandMade::of_files(&[b"two"]).write(temp.path());
    let sum = "its checksum is not the one that its idx names";
    assert_eq!(fault_of(0, b'P').as_deref(), Some(sum), "the idx is another pack's");
    let name = HandMade::new().write(temp.path());
    assert_eq!(reopened(&name).fault, None, "one that holds nothing is a pack");
    fs::remove_file(idx).expect("an idx");
    let empty = fs::read(&path).expect("a pack");
    fs::write(&path, &empty[1..]).expect("a pack");
    assert_eq!(reopened(&name).fault.as_deref(), Some("it is too short for a pack"));
}

#[test]
fn an_idx_without_a_pack_is_none() {
    let temp = tempfile::tempdir().expect("a directory");
    let name = HandMade::of_files(&[b"one"]).write(temp.path());
    assert!(reopened(&name).is_there());
    fs::remove_file(name.with_extension("pack")).expect("a pack");
    let pack = reopened(&name);
    assert!(!pack.is_there() && pack.fault.is_some() && pack.idx_fault.is_none());
}

#[test]
fn the_checksum_of_a_pack_is_of_all_that_stands_before_it() {
    let (temp, pack) = HandMade::of_files(&[&noise(WINDOW_BYTES + 50_000)]).open();
    let mut read = 0;
    assert_eq!(pack.has_valid_checksum(|bytes| read += bytes), Ok(true));
    assert_eq!(read, pack.end());
    let path = temp.path().join("pack-made.pack");
    let right = fs::read(&path).expect("a pack");
    for at in [20, WINDOW_BYTES + 20, right.len() - 1] {
        let mut bytes = right.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).expect("a pack");
        assert_eq!(reopened(&pack.name).has_valid_checksum(drop), Ok(false), "{at}");
    }
}

#[test]
fn what_ends_too_early_is_damaged_and_what_cannot_be_read_is_not() {
    let temp = tempfile::tempdir().expect("a directory");
    let name = temp.path().join("pack-made");
    fs::write(name.with_extension("pack"), "PACK").expect("a file");
    let pack = reopened(&name);
    assert_eq!((pack.count(), pack.trailer(), pack.unread()), (None, None, None));
    fs::remove_file(name.with_extension("pack")).expect("a file");
    // It can be opened, but not read.
    fs::create_dir(name.with_extension("pack")).expect("a directory");
    let pack = reopened(&name);
    assert!(pack.count().is_none() && pack.unread().is_some());
}

#[test]
fn entries_of_every_kind_are_read() {
    let mut made = HandMade::new();
    let target = [TEXT, b"and more"].concat();
    let mut kinds = Vec::new();
    for (header, kind) in [
        (Header::Commit, ObjectKind::Commit),
        (Header::Tree, ObjectKind::Tree),
        (Header::Blob, ObjectKind::Blob),
        (Header::Tag, ObjectKind::Tag),
    ] {
        let start = made.add(header, TEXT);
        let below = made.add_delta(start, &delta_between(TEXT, &target));
        kinds.push((start, below, kind));
    }
    let base_id = gix_hash::ObjectId::from_bytes_or_panic(id(0).as_bytes());
    let by_name = made.add(Header::RefDelta { base_id }, &delta_between(TEXT, &target));
    let (_temp, pack) = made.open();
    let large = Mutex::new(());
    let mut decoder = Decoder::new(&large);
    for (start, below, kind) in kinds {
        assert_eq!(read(&pack, start), Some((kind, TEXT.to_vec())));
        assert_eq!(read(&pack, below), Some((kind, target.clone())));
        assert_eq!((decoder.kind(&pack, start), decoder.kind(&pack, below)), (Some(kind), Some(kind)));
        let entry = decoder.whole_entry(&pack, start).expect("whole").expect("no delta");
        assert_eq!((entry.kind, entry.size), (kind, TEXT.len() as u64));
        let end = decoder.end_of(&pack, start).expect("whole");
        assert_eq!(pack.crc_of(entry.data..end), Ok(crc32fast::hash(&deflated(TEXT))));
        assert!(pack.crc_of(entry.data..pack.bytes + 1).is_err());
        assert!(decoder.whole_entry(&pack, below).expect("whole").is_none(), "it needs another");
        assert_eq!(decoder.identify(&pack, below, &nowhere).ok(), IdHasher::of(kind, &target).ok());
    }
    assert_eq!(read(&pack, by_name), Some((ObjectKind::Commit, target)));
    assert_eq!(decoder.kind(&pack, by_name), Some(ObjectKind::Commit));
}

#[test]
fn no_entry_begins_in_the_header_or_behind_the_end() {
    let mut made = HandMade::of_files(&[TEXT]);
    // Parsed as an entry, the version is the head of a blob.
    made.bytes[4..8].copy_from_slice(&[0x30; 4]);
    let (_temp, pack) = made.open();
    let large = Mutex::new(());
    let mut decoder = Decoder::new(&large);
    assert_eq!(decoder.kind(&pack, FIRST), Some(ObjectKind::Blob));
    for start in [4, FIRST - 1, pack.end(), pack.end() + 1] {
        assert_eq!(decoder.kind(&pack, start), None, "{start}");
    }
}

/// A pack is read in windows.
#[test]
fn an_entry_that_lies_across_two_pieces_is_read() {
    // Noise in letters: its Huffman table alone is longer than the rest of the first window.
    let letters: Vec<u8> = noise(2000).into_iter().map(|byte| byte % 90 + b' ').collect();
    let large = Mutex::new(());
    let assert_read = |before: usize, contents: &[u8]| {
        let mut made = HandMade::new();
        made.bytes.resize(HEADER_BYTES + WINDOW_BYTES - before, 0);
        let start = made.add(Header::Blob, contents);
        let (_temp, pack) = made.open();
        let mut decoder = Decoder::new(&large);
        decoder.fill_window(&pack, FIRST).expect("the first piece");
        let found = decoder.identify(&pack, start, &nowhere).expect("an object");
        assert_eq!(found, IdHasher::of(ObjectKind::Blob, contents).expect("no collision"), "{before}");
    };
    (1..150).for_each(|before| assert_read(before, &letters));
    assert_read(1, &noise(3 * WINDOW_BYTES));
}

#[test]
fn an_entry_is_as_long_as_it_says() {
    let zeros = vec![0; 1 << 20];
    let mut made = HandMade::new();
    let short = made.add_saying(Header::Blob, 5, b"four");
    let long = made.add_saying(Header::Blob, 4, &zeros);
    let right = made.add(Header::Blob, &zeros);
    let (_temp, pack) = made.open();
    assert_eq!((read(&pack, short), read(&pack, long)), (None, None));
    assert_eq!(read(&pack, right), Some((ObjectKind::Blob, zeros)));
    let large = Mutex::new(());
    let mut decoder = Decoder::new(&large);
    let (mut given, data) = (0, long + 1);
    let mut count = |bytes: &[u8]| {
        given += bytes.len();
        true
    };
    assert!(decoder.inflate(&pack, data, 4, &mut count).is_err());
    assert!(given <= 64 << 10, "no more is read than shows that it is wrong");
}

#[test]
fn what_is_cut_off_is_not_read() {
    let mut made = HandMade::of_files(&[TEXT]);
    made.bytes.truncate(made.bytes.len() - 6);
    let (_temp, pack) = made.open();
    assert_eq!(read(&pack, FIRST), None);
    assert!(Decoder::new(&Mutex::new(())).end_of(&pack, FIRST).is_err());
}

/// A corrupt base may be taken from elsewhere; the requested object itself may not.
#[test]
fn a_damaged_base_comes_from_elsewhere_and_a_damaged_object_does_not() {
    let [one, two] = [[TEXT, b"one"].concat(), [TEXT, b"two"].concat()];
    let elsewhere = |found: ObjectId| -> Option<InMemory> {
        let bytes = [TEXT, &one, &two].into_iter().enumerate().find(|(at, _)| id(*at) == found)?.1;
        Some((ObjectKind::Blob, Arc::new(bytes.to_vec())))
    };
    for damaged in 0..3 {
        let mut made = HandMade::new();
        let mut starts = Vec::new();
        for number in 0..3 {
            starts.push(match number {
                0 => made.add(Header::Blob, TEXT),
                1 => made.add_delta(starts[0], &delta_between(TEXT, &one)),
                _ => made.add_delta(starts[1], &delta_between(&one, &two)),
            });
            if number == damaged {
                made.damage_last();
            }
        }
        let (_temp, pack) = made.open();
        for (number, contents) in [TEXT, &one, &two].into_iter().enumerate() {
            let large = Mutex::new(());
            let found = Decoder::new(&large).object(&pack, starts[number], &elsewhere).ok();
            let want = (number != damaged).then(|| contents.to_vec());
            assert_eq!(found.map(|(_, bytes)| bytes.to_vec()), want, "{number} with {damaged} damaged");
            assert_eq!(read(&pack, starts[number]).is_some(), number < damaged, "{number} with {damaged} damaged");
        }
    }
}

#[test]
fn a_chain_of_deltas_is_read_up_to_the_limit() {
    let mut made = HandMade::new();
    let same = delta_between(TEXT, TEXT);
    let mut last = made.add(Header::Blob, TEXT);
    for _ in 0..CHAIN_MAX {
        last = made.add_delta(last, &same);
    }
    let one_more = made.add_delta(last, &same);
    let (_temp, pack) = made.open();
    assert_eq!(read(&pack, last), Some((ObjectKind::Blob, TEXT.to_vec())));
    assert_eq!(read(&pack, one_more), None);
}

#[test]
fn large_objects_wait_for_each_other_and_larger_ones_are_declined() {
    let large = Mutex::new(());
    let decoder = Decoder::new(&large);
    for (size, is_admitted, waits) in [
        (LARGE_BYTES, true, false),
        (LARGE_BYTES + 1, true, true),
        (DELTA_BYTES_MAX, true, true),
        (DELTA_BYTES_MAX + 1, false, false),
        (u64::MAX, false, false),
    ] {
        let mut guard = None;
        assert_eq!(decoder.admit(size, &mut guard).is_ok(), is_admitted, "{size}");
        assert_eq!((guard.is_some(), large.try_lock().is_err()), (waits, waits), "{size}");
    }
}

#[test]
fn no_more_is_kept_of_bases_than_there_is_room_for() {
    let (_temp, pack) = HandMade::of_files(&[TEXT]).open();
    let large = Mutex::new(());
    let mut decoder = Decoder::new(&large);
    let of_size = |bytes: usize| -> InMemory { (ObjectKind::Blob, Arc::new(vec![0; bytes])) };
    decoder.keep(&pack, 1, &of_size(CACHE_BYTES_MAX / 4 + 1));
    assert!(decoder.cache.is_empty(), "one that is large would take the room of many");
    let quarter = of_size(CACHE_BYTES_MAX / 4);
    for at in [1, 2, 2, 3, 4] {
        decoder.keep(&pack, at, &quarter);
    }
    assert_eq!((decoder.cache.len(), decoder.cache_bytes), (4, CACHE_BYTES_MAX), "there is room for four");
    decoder.keep(&pack, 5, &of_size(1));
    let kept = |at: u64| decoder.cache.contains_key(&(0, at));
    assert_eq!([1, 2, 3, 4, 5].map(kept), [false, true, true, true, true], "the oldest goes");
    assert_eq!(decoder.cache_bytes, CACHE_BYTES_MAX / 4 * 3 + 1);
}
