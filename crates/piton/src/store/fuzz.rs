//! Fuzz targets of the store: packs, deltas, commits, trees, and the small files beside them. See `crate::fuzz`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use gix_hash::Kind;
use tempfile::TempDir;

use super::decode::{Decoder, Elsewhere, RawPack};
use super::delta::{self, DeltaBase};
use super::pack::{Deflater, HEADER_BYTES, IdxEntry, LEVEL_FAST, write_idx};
use super::{NewCheckpoint, SessionKey, Store, commit as commits, tree as trees};
use crate::fuzz::two;
use crate::id::{Checksum, ID_BYTES, IdHasher, ObjectId, ObjectKind, ProjectId};
use crate::relpath;
use crate::time::Moment;

const ID: ObjectId = ObjectId::from_bytes([7; ID_BYTES]);
const NOW: Moment = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// Objects that claim a larger size are read by `decode` only: the library allocates the claimed size.
const CLAIMED_BYTES_MAX: u64 = 16 << 20;

fn project() -> ProjectId {
    ProjectId::parse("0123456789abcdef").expect("sixteen digits")
}

thread_local! {
    /// One store for all inputs of a thread: each input overwrites the files of the one before.
    static STORE: (TempDir, Store) = {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open_or_create(&temp.path().join("base"), NOW).expect("a store");
        for dir in [store.layout.turns(), store.layout.notices(), store.layout.intents()] {
            fs::create_dir_all(dir).expect("a directory");
        }
        (temp, store)
    };
}

/// Encodes a target as a delta of a base, and reads it back.
pub(crate) fn delta(bytes: &[u8]) {
    let (base, target) = two(bytes);
    let prepared = DeltaBase::new(base.to_vec());
    let made = prepared.delta_to(target, usize::MAX).expect("there is no limit");
    assert_eq!(delta::apply(base, &made).as_deref(), Some(target), "a delta gives back its target");
    assert_eq!(delta::target_size(&made), Some(target.len() as u64));
    let is_short = |made: Vec<u8>| made.len() <= target.len() / 2;
    assert!(prepared.delta_to(target, target.len() / 2).is_none_or(is_short));
    if let Some(applied) = delta::apply(base, target) {
        assert_eq!(delta::target_size(target), Some(applied.len() as u64));
    }
}

/// Parses checkpoints and commits of stock git.
pub(crate) fn commit(bytes: &[u8]) {
    let is_valid = commits::is_valid_commit(bytes);
    let (tree, parents) = commits::parents_and_tree(bytes);
    let _ = (commits::time_of(bytes), commits::project_of(bytes));
    if let Ok(theirs) = gix_object::CommitRef::from_bytes(bytes, Kind::Sha1) {
        assert!(is_valid, "the library reads it");
        assert_eq!(tree.map(|tree| tree.to_string()), Some(theirs.tree().to_string()));
        assert!(parents.iter().map(ToString::to_string).eq(theirs.parents().map(|parent| parent.to_string())));
    }
    let Ok(read) = commits::parse(ID, bytes) else { return };
    let encode = |read: &super::Checkpoint| {
        let (project, facts) = (&project(), &read.facts);
        NewCheckpoint { tree: read.tree, parent: read.parent, time: read.time, reason: &read.reason, facts, project }
            .encode()
    };
    let written = encode(&read);
    let again = commits::parse(ID, &written).expect("what was just written");
    assert_eq!(again.facts, read.facts, "what is known of a checkpoint comes back");
    assert_eq!((again.tree, again.parent), (read.tree, read.parent));
    assert_eq!((again.time.secs, again.time.offset_secs), (read.time.secs.max(0), read.time.offset_secs));
    assert_eq!(encode(&again), written);
    assert!(commits::is_valid_commit(&written) && commits::project_of(&written) == Some(project()));
    gix_object::CommitRef::from_bytes(&written, Kind::Sha1).expect("the library reads what piton writes");
}

/// Parses trees.
pub(crate) fn tree(bytes: &[u8]) {
    let all: Vec<_> = trees::entries(bytes).map(|entry| (entry.name, entry.id)).collect();
    let Ok(read) = trees::parse(ID, bytes) else { return };
    assert!(trees::is_valid_tree(bytes));
    assert!(read.iter().map(|entry| (&*entry.name, entry.id)).eq(all), "both ways to read it see the same");
    assert!(read.iter().all(|entry| relpath::is_allowed(&entry.name)));
    let mut written = Vec::new();
    read.iter().for_each(|entry| trees::push_entry(&mut written, entry.mode, &entry.name, entry.id));
    assert_eq!(trees::parse(ID, &written).ok().as_ref(), Some(&read));
    let theirs = gix_object::TreeRef::from_bytes(&written, Kind::Sha1).expect("the library reads what piton writes");
    assert!(theirs.entries.iter().map(|entry| &**entry.filename).eq(read.iter().map(|entry| &*entry.name)));
}

/// Parses the small files of the store. The first byte selects the file.
pub(crate) fn notes(bytes: &[u8]) {
    let Some((which, text)) = bytes.split_first() else { return };
    STORE.with(|(_, store)| note(store, which % 8, text));
}

fn note(store: &Store, which: u8, text: &[u8]) {
    let (layout, project, key) = (&store.layout, &project(), &SessionKey::new("claude", "s"));
    let put = |path: &Path| fs::write(path, text).expect("a file that can be written");
    match which {
        0 => {
            put(&layout.reference(project));
            let newest = store.refs.newest(project);
            fs::remove_file(layout.reference(project)).expect("just written");
            assert!(!matches!(newest, Ok(None)), "a ref that is there names a checkpoint, or is damaged");
        }
        1 => {
            put(&layout.packed_refs());
            let newest = match store.refs.newest(project) {
                Err(error) => return assert_eq!(error.kind(), crate::ErrorKind::Damaged, "a file that can be read"),
                Ok(newest) => newest,
            };
            let line = newest.map(|id| format!("{id} refs/hermes/{project}").to_ascii_lowercase());
            let is_there = |line: &String| String::from_utf8_lossy(text).to_ascii_lowercase().contains(line);
            assert!(line.as_ref().is_none_or(is_there));
        }
        2 => {
            put(&layout.shallow());
            let lines = text.split(|byte| *byte == b'\n').count();
            assert!(store.boundary.ends().expect("a file that can be read").len() <= lines);
        }
        3 => {
            put(&layout.record(project));
            let mut record = store.records.get(project);
            assert!(record.dir().is_none_or(|dir| dir.is_absolute()));
            let _ = (record.created_at(), record.last_touch(), record.parent_device(), record.has_finished_take());
            record.touch(Path::new("/p"), None, NOW);
            record.set_turn("s", "t");
            for key in ["index", "rules"] {
                record.cache_note_mut().insert(key.to_owned(), "x".into());
            }
            assert!(record.has_turn("s", "t") && record.knows_session("s"));
            assert!(record.last_touch() == Some(NOW.as_secs_f64()) && record.has_finished_take());
        }
        4 => {
            put(&layout.intent(project));
            let _ = store.intents.get(project);
        }
        5 => {
            put(&layout.turns().join(key.file_name()));
            let Some(note) = store.turns.get(key) else { return };
            store.turns.save(key, &note).expect("a file that can be written");
            assert_eq!(store.turns.get(key).as_ref(), Some(&note), "a note comes back as it was");
        }
        6 => {
            put(&layout.notices().join(key.file_name()));
            let Some(notice) = store.turns.take_notice(key) else { return };
            store.turns.leave_notice(key, notice.clone()).expect("a file that can be written");
            let again = store.turns.take_notice(key).expect("just left");
            assert!(again.written.len() + again.removed.len() <= 50 && again.headline == notice.headline);
        }
        _ => {
            put(&layout.last_prune());
            assert!(store.base_dir.last_prune().is_none_or(f64::is_finite));
        }
    }
}

/// Reads a pack and its idx. The first byte selects whether the rest is both files or the entries of a generated pack.
pub(crate) fn pack(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    if which % 2 == 0 {
        let (idx, pack) = two(rest);
        STORE.with(|(_, store)| read_pack(store, pack, idx, true));
    } else {
        let made = MadePack::from(rest);
        let idx = idx_of(made.starts.iter().map(|start| (named_by(*start), *start)), &made.bytes);
        STORE.with(|(_, store)| read_pack(store, &made.bytes, &idx, made.has_names));
    }
}

fn named_by(start: u64) -> ObjectId {
    IdHasher::of(ObjectKind::Blob, &start.to_be_bytes()).expect("no collision")
}

fn idx_of(entries: impl Iterator<Item = (ObjectId, u64)>, pack: &[u8]) -> Vec<u8> {
    let mut entries: Vec<_> = entries.map(|(id, offset)| IdxEntry { id, crc: 0, offset }).collect();
    entries.sort_by_key(|entry| entry.id);
    let mut idx = Vec::new();
    let checksum = pack.last_chunk().expect("a pack ends in its checksum");
    write_idx(&entries, *checksum, &mut idx).expect("memory takes everything");
    idx
}

/// A generated pack with valid compression and checksums.
struct MadePack {
    bytes: Vec<u8>,
    starts: Vec<u64>,
    /// True if an entry names its base by id.
    has_names: bool,
}

impl MadePack {
    /// Builds a pack from consecutive entries: a byte each for the kind, the base, the faults and the length, followed
    /// by the contents to compress.
    fn from(mut rest: &[u8]) -> Self {
        let mut deflater = Deflater::new(LEVEL_FAST);
        let mut made = Self { bytes: vec![0; HEADER_BYTES], starts: Vec::new(), has_names: false };
        let mut deflated = Vec::new();
        while let Some(([kind, base, wrong, length], after)) = rest.split_first_chunk::<4>() {
            let (contents, after) = after.split_at(usize::from(*length).min(after.len()));
            rest = after;
            let said = if wrong & 1 == 0 { contents.len() } else { contents.len() + usize::from(*wrong) };
            made.begin(kind & 7, said, usize::from(*base));
            deflater.deflate(contents, &mut deflated).expect("memory takes everything");
            made.bytes.extend_from_slice(if wrong & 2 == 0 { &deflated } else { contents });
        }
        made.bytes[..4].copy_from_slice(b"PACK");
        made.bytes[7] = 2;
        let count = u32::try_from(made.starts.len()).expect("few entries");
        made.bytes[8..HEADER_BYTES].copy_from_slice(&count.to_be_bytes());
        let mut sum = Checksum::new();
        sum.update(&made.bytes);
        made.bytes.extend_from_slice(&sum.finish());
        made
    }

    /// Writes the header of an entry.
    fn begin(&mut self, kind: u8, said: usize, base: usize) {
        let start = self.bytes.len() as u64;
        let seven = |bits: usize| u8::try_from(bits & 0x7f).expect("seven bits");
        let mut size = said >> 4;
        self.bytes.push(kind << 4 | (seven(said) & 0x0f) | if size > 0 { 0x80 } else { 0 });
        while size > 0 {
            let low = seven(size);
            size >>= 7;
            self.bytes.push(low | if size > 0 { 0x80 } else { 0 });
        }
        let earlier = self.starts.get(base).copied().unwrap_or(start.saturating_sub(base as u64));
        match kind {
            6 => push_distance(&mut self.bytes, start - earlier),
            7 => self.bytes.extend_from_slice(named_by(earlier).as_bytes()),
            _ => {}
        }
        self.has_names |= kind == 7;
        self.starts.push(start);
    }
}

/// Encodes a distance as git does: the highest seven bits first, minus one for each byte that follows.
fn push_distance(out: &mut Vec<u8>, mut distance: u64) {
    let mut digits = vec![u8::try_from(distance & 0x7f).expect("seven bits")];
    while distance >> 7 > 0 {
        distance = (distance >> 7) - 1;
        digits.push(0x80 | u8::try_from(distance & 0x7f).expect("seven bits"));
    }
    out.extend(digits.iter().rev());
}

/// Reads every entry in all ways, and then reads the intact objects again with the library, under their real ids.
fn read_pack(store: &Store, pack: &[u8], idx: &[u8], has_names: bool) {
    let name = store.layout.packs().join("pack-0123456789abcdef0123456789abcdef01234567");
    let put = |ending: &str, bytes: &[u8]| {
        let path = name.with_added_extension(ending);
        // Removed rather than overwritten: a pack may still be mapped into memory.
        let _ = fs::remove_file(&path);
        fs::write(path, bytes).expect("a file that can be written");
    };
    put("pack", pack);
    put("idx", idx);
    let raw = RawPack::open(&name, 0).expect("files that can be read");
    let whole = super::packs::Pack::open(&name);
    if let Ok(whole) = &whole {
        (0..whole.len()).for_each(|at| drop(whole.stored(at).map(|stored| stored.is_hasty())));
    }
    drop(whole);
    let _ = raw.has_valid_checksum(|_| {});
    let large = Mutex::new(());
    let (mut decoder, elsewhere): (_, &Elsewhere<'_>) = (Decoder::new(&large), &|_| None);
    let mut found = BTreeMap::new();
    let named: Vec<u64> = raw.in_order().map(|(_, start)| start).take(64).collect();
    for start in named {
        let (id, end) = (decoder.identify(&raw, start, elsewhere), decoder.end_of(&raw, start));
        let _ = decoder.whole_entry(&raw, start);
        let Ok((kind, bytes)) = decoder.object(&raw, start, elsewhere) else { continue };
        assert_eq!(decoder.kind(&raw, start), Some(kind));
        assert!(end.is_ok_and(|end| start < end && end <= raw.end()));
        assert_eq!(IdHasher::of(kind, &bytes).ok(), id.clone().ok(), "it is named by what it holds");
        found.extend(id.ok().map(|id| (id, (kind, bytes, start))));
    }
    let is_small = found.values().all(|(_, bytes, _)| (bytes.len() as u64) < CLAIMED_BYTES_MAX);
    if raw.count().is_none() || !is_small || found.is_empty() {
        return;
    }
    put("idx", &idx_of(found.iter().map(|(id, (_, _, start))| (*id, *start)), pack));
    let held = store.locks.share().expect("no other process");
    let objects = store.objects.open(&held).expect("a store that can be read");
    let mut buffer = Vec::new();
    for (id, (kind, bytes, _)) in &found {
        match objects.read_any(*id, &mut buffer) {
            Ok(read) => assert_eq!((read, &buffer), (Some(*kind), &**bytes), "the library reads the same"),
            // A base that is named by id is looked up in the idx, which holds different ids by then.
            Err(error) => assert!(has_names, "the library cannot read it: {error}"),
        }
    }
}
