//! Checking a store: any damage to its files is found and named, nothing is changed, nothing panics.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use piton::{FindingKind, Progress, ReadData, Settings, Store, VerifyReport};
use testkit::Sandbox;

use crate::damaged::bytes_of;
use crate::kit::{Dice, project_id, take, take_with, taken};
use crate::repair::names_by_git;
use crate::upkeep::{collect, ids_of, packs};

pub(crate) fn verify(sandbox: &Sandbox, read: ReadData) -> VerifyReport {
    let store = Store::open_damaged(&sandbox.base()).expect("a base").expect("a store");
    piton::verify(&store, read, &Progress::default()).expect("a check")
}

pub(crate) fn kinds(report: &VerifyReport) -> Vec<FindingKind> {
    let mut kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
    kinds.dedup();
    kinds
}

/// A store with everything in it: two projects, a truncated history, packs with and without deltas, packed refs, a
/// loose object of stock git, an interrupted restore.
pub(crate) struct Rich {
    pub(crate) sandbox: Sandbox,
    pub(crate) other: PathBuf,
}

impl Rich {
    pub(crate) fn new() -> Self {
        let sandbox = Sandbox::new();
        let other = sandbox.other_project("other");
        let settings = Settings::default().max_snapshots(4.into());
        let step = |number: usize| {
            let text: String = (0..60).map(|line| format!("line {line} of something that changes little\n")).collect();
            sandbox.write("src/long.txt", format!("{text}{number}\n"));
            sandbox.write("notes", format!("{number}"));
            sandbox.write("deep/er/est", format!("at {}", number / 2));
            taken(&take_with(&sandbox, &sandbox.project(), &settings));
        };
        (0..5).for_each(step);
        for text in ["one", "two"] {
            fs::write(other.join("theirs"), text).expect("a file");
            fs::write(other.join("same"), "deeply").expect("a file");
            taken(&take_with(&sandbox, &other, &settings));
        }
        collect(&sandbox);
        (5..7).for_each(step);
        sandbox.store_git(&["pack-refs", "--all"]);
        step(7);
        sandbox.write("kept by stock git", "in a file of its own");
        let file = sandbox.path("kept by stock git");
        sandbox.store_git(&["hash-object", "-w", file.to_str().expect("UTF-8")]);
        taken(&take_with(&sandbox, &sandbox.project(), &settings));
        let rich = Self { sandbox, other };
        let ids = rich.ids();
        let intent = format!(r#"{{"target":"{}","safety":"{}","paths":[]}}"#, ids[1], ids[0]);
        fs::create_dir_all(rich.sandbox.store().join("restores")).expect("a directory");
        let path = rich.sandbox.store().join("restores").join(format!("{}.json", project_id(&rich.sandbox)));
        fs::write(path, intent).expect("an intent");
        rich
    }

    /// Returns the checkpoints of the first project, newest first.
    pub(crate) fn ids(&self) -> Vec<String> {
        ids_of(&self.sandbox, &self.sandbox.project())
    }

    pub(crate) fn other_ids(&self) -> Vec<String> {
        ids_of(&self.sandbox, &self.other)
    }

    /// Returns all files of the store except the locks.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = bytes_of(&self.sandbox.base());
        files.retain(|path, _| !path.components().any(|part| part.as_os_str() == "locks"));
        files
    }
}

#[test]
fn a_sound_store_is_whole_and_stays_as_it_is() {
    let rich = Rich::new();
    rich.sandbox.assert_store_is_whole();
    let before = rich.files();
    for read in [ReadData::No, ReadData::All, ReadData::Part { percent: 30.0, seed: 1 }] {
        let report = verify(&rich.sandbox, read);
        assert_eq!(report.findings, [], "{read:?}");
        assert_eq!(report.checkpoints, 6);
        assert_eq!(report.packs, packs(&rich.sandbox).len() as u64);
        assert!(report.objects > 0 && !report.was_stopped);
    }
    let all = verify(&rich.sandbox, ReadData::All);
    let listing = rich.sandbox.store_git(&["cat-file", "--batch-all-objects", "--batch-check"]);
    let objects = listing.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
    assert!(all.objects >= objects, "{} of {objects}", all.objects);
    assert!(rich.files() == before);
}

/// V2. The consequence of one flipped byte is reported in the user's terms.
#[test]
fn a_lost_blob_is_named_by_project_checkpoint_and_path() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n dir/lost = something\n dir/b = 1");
    taken(&take(&sandbox));
    let pack = packs(&sandbox).remove(0);
    sandbox.tree("a = 2");
    let second = taken(&take(&sandbox));
    sandbox.tree("dir/lost = changed");
    taken(&take(&sandbox));
    let ids = ids_of(&sandbox, &sandbox.project());
    let blob = String::from_utf8(sandbox.store_git(&["rev-parse", &format!("{second}:dir/lost")])).expect("an id");
    damage_object(&sandbox, &pack, blob.trim());
    assert!(verify(&sandbox, ReadData::No).is_whole(), "contents are not read unless asked for");
    let report = verify(&sandbox, ReadData::All);
    assert!(!report.is_whole());
    let finding = report.findings.iter().find(|one| one.kind == FindingKind::ObjectDamaged).expect("a finding");
    assert_eq!(finding.id.expect("an id").to_string(), blob.trim());
    let [affected] = &finding.affects[..] else { panic!("{finding:?}") };
    assert_eq!(affected.path.as_deref(), Some(&b"dir/lost"[..]));
    assert_eq!(affected.project.as_ref().map(ToString::to_string), Some(project_id(&sandbox)));
    let told: Vec<_> = affected.checkpoints.iter().map(|(number, id)| (*number, id.to_string())).collect();
    assert_eq!(told, [(2, ids[1].clone()), (3, ids[2].clone())]);
}

/// Flips a byte in the middle of an object, located with stock git's listing of the pack.
pub(crate) fn damage_object(sandbox: &Sandbox, pack: &Path, id: &str) {
    let idx = pack.with_extension("idx");
    let listing = sandbox.store_git(&["verify-pack", "-v", idx.to_str().expect("UTF-8")]);
    let listing = String::from_utf8(listing).expect("text");
    let line = listing.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{id} in {listing}"));
    let numbers: Vec<usize> =
        line.split_whitespace().skip(2).take(3).map(|word| word.parse().expect("a number")).collect();
    let mut bytes = fs::read(pack).expect("a pack");
    // The last four bytes of an entry are its checksum.
    bytes[numbers[2] + numbers[1] - 2] ^= 0x40;
    fs::write(pack, bytes).expect("a pack");
}

/// V1. Every file of the store missing, empty or truncated to half: found, unless it does not matter; and never a
/// panic.
#[test]
fn files_that_are_gone_empty_or_cut_off_are_found() {
    let rich = Rich::new();
    let all = bytes_of(&rich.sandbox.base());
    let names = names_by_git(&rich.sandbox);
    // Files that can be rebuilt without loss, and are if they are missing.
    let is_free = |path: &Path, how: &str| {
        let text = path.to_string_lossy();
        let is_gone_by_right =
            how == "gone" && ["/indexes/", "/projects/", "/restores/"].iter().any(|dir| text.contains(dir));
        is_gone_by_right
            || ["/info/", "/size", "/locks/", "/hooks/", ".last_prune"].iter().any(|name| text.contains(name))
    };
    for (path, bytes) in all.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        for how in ["gone", "empty", "cut off"] {
            fs::remove_file(path).expect("a file");
            match how {
                "gone" => {}
                "empty" => fs::write(path, b"").expect("a file"),
                _ => fs::write(path, &bytes[..bytes.len() / 2]).expect("a file"),
            }
            let report = verify(&rich.sandbox, ReadData::All);
            let shown = path.strip_prefix(rich.sandbox.base()).expect("below it").display();
            // The packed refs have an older value, and that there was a newer one cannot be determined.
            let is_older = how == "gone" && path.starts_with(rich.sandbox.store().join("refs"));
            if report.findings.is_empty() && !is_free(path, how) && !is_older {
                // Half of it may be enough: stock git must confirm that.
                assert!(names_by_git(&rich.sandbox).is_superset(&names), "{shown} {how}");
                rich.sandbox.assert_store_is_whole();
                assert!(
                    how == "cut off" && ["HEAD", "config"].iter().any(|name| path.ends_with(name)),
                    "{shown} {how}"
                );
            }
            let only_warned = ["/indexes/", "/config"].iter().any(|name| path.to_string_lossy().contains(name))
                || how == "gone" && path.extension().is_some_and(|end| end == "idx") && report.is_whole();
            let is_found = report.findings.is_empty() || only_warned || !report.is_whole();
            assert!(is_free(path, how) || is_found, "{shown} {how}: {:?}", report.findings);
            let _ = fs::remove_file(path);
            fs::write(path, bytes).expect("a file");
        }
    }
    assert_eq!(verify(&rich.sandbox, ReadData::All).findings, []);
}

/// A ref to another project's checkpoint would show it to the wrong user of the store.
#[test]
fn a_ref_that_names_the_checkpoint_of_another_project_is_found() {
    let rich = Rich::new();
    let path = rich.sandbox.store().join("refs/hermes").join(project_id(&rich.sandbox));
    fs::write(path, format!("{}\n", rich.other_ids()[0])).expect("a ref");
    assert_eq!(kinds(&verify(&rich.sandbox, ReadData::No)), [FindingKind::Ref]);
}

/// Entries cross the boundaries of the chunks in which a pack is read, and some are longer than a chunk.
#[test]
fn a_pack_of_many_pieces_is_read_to_its_end() {
    let (sandbox, mut dice) = (Sandbox::new(), Dice::new(7));
    for number in 0..2000 {
        sandbox.write(format!("{}/{number}", number % 40), dice.noise(300));
    }
    sandbox.write("large", dice.noise(900_000));
    taken(&take(&sandbox));
    let report = verify(&sandbox, ReadData::All);
    assert_eq!((report.findings, report.packs), (vec![], 1));
    assert!(report.bytes > 1_500_000, "{}", report.bytes);
}

/// A crafted idx, or a corrupt one with a recomputed checksum.
#[test]
fn an_object_under_the_name_of_another_is_found() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n dir/b = 2");
    taken(&take(&sandbox));
    let idx = packs(&sandbox)[0].with_extension("idx");
    let mut unseen = 0;
    for (how, mut swapped) in crate::damaged::swaps(&fs::read(&idx).expect("an idx")) {
        let end = swapped.len() - 20;
        let sum = sha1(&swapped[..end]);
        swapped[end..].copy_from_slice(&sum);
        fs::write(&idx, swapped).expect("an idx");
        assert!(!verify(&sandbox, ReadData::All).is_whole(), "{how}");
        unseen += usize::from(verify(&sandbox, ReadData::No).is_whole());
    }
    assert_eq!(unseen, 1, "without being read, the two files alone pass for each other");
}

/// Objects that people keep in a store with stock git are checked like checkpoints.
#[test]
fn tags_and_refs_to_trees_and_blobs_are_followed() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    taken(&take(&sandbox));
    let keep = |text: &str| {
        let file = sandbox.root().join("kept");
        fs::write(&file, text).expect("a file");
        let id = sandbox.store_git(&["hash-object", "-w", file.to_str().expect("UTF-8")]);
        String::from_utf8(id).expect("an id").trim().to_owned()
    };
    let (blob, in_tree, tagged) = (keep("a blob"), keep("in a tree"), keep("tagged"));
    let tree = [b"100644 file\0".to_vec(), from_hex(&in_tree)].concat();
    fs::write(sandbox.root().join("kept"), tree).expect("a file");
    let file = sandbox.root().join("kept").display().to_string();
    let tree = String::from_utf8(sandbox.store_git(&["hash-object", "-w", "-t", "tree", &file])).expect("an id");
    sandbox.store_git(&["update-ref", "refs/kept/blob", &blob]);
    sandbox.store_git(&["update-ref", "refs/kept/tree", tree.trim()]);
    sandbox.store_git(&["tag", "-a", "-m", "a tag", "kept", &tagged]);
    assert_eq!(verify(&sandbox, ReadData::All).findings, []);
    for id in [blob, in_tree, tagged] {
        let path = sandbox.store().join("objects").join(&id[..2]).join(&id[2..]);
        let bytes = fs::read(&path).expect("an object");
        fs::remove_file(&path).expect("an object");
        assert!(!verify(&sandbox, ReadData::No).is_whole(), "{id}");
        fs::write(&path, bytes).expect("an object");
    }
}

fn from_hex(id: &str) -> Vec<u8> {
    (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).expect("two digits")).collect()
}

/// A pack or ref that a take is writing, or has just written, is not reported as damage.
#[test]
fn a_check_beside_takes_finds_nothing() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    taken(&take(&sandbox));
    let over = std::sync::atomic::AtomicBool::new(false);
    let settings = Settings::default().max_snapshots(3.into());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0..60 {
                sandbox.write("a", format!("{number} more"));
                taken(&take_with(&sandbox, &sandbox.project(), &settings));
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            // A pack may be seen in the moment before its idx exists: that is a warning, not damage.
            let mut findings = verify(&sandbox, ReadData::All).findings;
            findings.retain(|finding| finding.kind != FindingKind::StrayPack);
            assert_eq!(findings, []);
        }
    });
}

#[test]
fn a_check_that_is_stopped_says_so() {
    let rich = Rich::new();
    let progress = Progress::default();
    progress.cancel();
    let store = Store::open_damaged(&rich.sandbox.base()).expect("a base").expect("a store");
    assert!(piton::verify(&store, ReadData::All, &progress).expect("a check").was_stopped);
}

/// A crafted pack: entries as given, under any ids.
pub(crate) struct HandMade {
    bytes: Vec<u8>,
    starts: Vec<u64>,
}

impl HandMade {
    pub(crate) fn new() -> Self {
        Self { bytes: b"PACK\0\0\0\x02\0\0\0\0".to_vec(), starts: Vec::new() }
    }

    /// Adds an entry: kind, claimed size, bytes between header and contents, contents.
    pub(crate) fn entry(mut self, kind: u8, size: u64, between: &[u8], contents: &[u8]) -> Self {
        self.starts.push(self.bytes.len() as u64);
        let mut head = vec![kind << 4 | u8::try_from(size & 0xf).expect("four bits")];
        let mut rest = size >> 4;
        while rest > 0 {
            *head.last_mut().expect("a byte") |= 0x80;
            head.push(u8::try_from(rest & 0x7f).expect("seven bits"));
            rest >>= 7;
        }
        let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        deflate.write_all(contents).expect("a vector");
        self.bytes.extend([head, between.to_vec(), deflate.finish().expect("a vector")].concat());
        self
    }

    /// Adds a delta of the entry before it.
    fn delta_of_last(self, contents: &[u8]) -> Self {
        let mut distance = self.bytes.len() as u64 - self.starts[self.starts.len() - 1];
        let mut between = vec![u8::try_from(distance & 0x7f).expect("seven bits")];
        while distance > 0x7f {
            distance = (distance >> 7) - 1;
            between.insert(0, 0x80 | u8::try_from(distance & 0x7f).expect("seven bits"));
        }
        self.entry(6, contents.len() as u64, &between, contents)
    }

    /// Writes the pack, with an idx that gives the entries these ids, if there are any.
    pub(crate) fn write(mut self, sandbox: &Sandbox, names: &[[u8; 20]]) {
        let count = u32::try_from(self.starts.len()).expect("few").to_be_bytes();
        self.bytes[8..12].copy_from_slice(&count);
        let sum = sha1(&self.bytes);
        self.bytes.extend(sum);
        let name: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = sandbox.store().join(format!("objects/pack/pack-{name}.pack"));
        fs::write(&path, &self.bytes).expect("a pack");
        if names.is_empty() {
            return;
        }
        let mut entries: Vec<_> = names.iter().zip(&self.starts).collect();
        entries.sort();
        let mut idx = b"\xfftOc\0\0\0\x02".to_vec();
        for first in 0..=255 {
            let below = entries.iter().filter(|(name, _)| name[0] <= first).count();
            idx.extend(u32::try_from(below).expect("few").to_be_bytes());
        }
        entries.iter().for_each(|(name, _)| idx.extend(*name));
        entries.iter().for_each(|_| idx.extend([0; 4]));
        entries.iter().for_each(|(_, start)| idx.extend(u32::try_from(**start).expect("small").to_be_bytes()));
        idx.extend(sum);
        idx.extend(sha1(&idx));
        fs::write(path.with_extension("idx"), idx).expect("an idx");
    }
}

pub(crate) fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut sum = sha1dc::Hasher::new();
    sum.update(bytes);
    sum.finalize().expect("no collision").into()
}

fn size(mut size: u64) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(size & 0x7f).expect("seven bits")];
    while size > 0x7f {
        *bytes.last_mut().expect("a byte") |= 0x80;
        size >>= 7;
        bytes.push(u8::try_from(size & 0x7f).expect("seven bits"));
    }
    bytes
}

pub(crate) fn delta(base: u64, target: u64, ops: &[u8]) -> Vec<u8> {
    [size(base), size(target), ops.to_vec()].concat()
}

/// Sizes that exceed memory, deltas of missing bases, of themselves and of each other, endless chains, endless growth.
/// With an idx that lists them, and without one.
#[test]
fn hostile_packs_are_read_within_limits() {
    const BASE: &[u8] = b"a base of sixty-four bytes, from which all that follows is copied";
    let length = BASE.len() as u64;
    let copy_all: Vec<u8> = vec![0x90, u8::try_from(length).expect("small")];
    let base = || HandMade::new().entry(3, length, b"", BASE);
    let small = delta(length, length, &copy_all);
    let small_size = small.len() as u64;
    let mut long_chain = base();
    for number in 0..10_100_u32 {
        let but_four = u8::try_from(length - 4).expect("small");
        let ops = [&[0x90, but_four, 4], &number.to_be_bytes()[..]].concat();
        long_chain = long_chain.delta_of_last(&delta(length, length, &ops));
    }
    // Each is sixteen times as long as the previous one, and the last has a gigabyte.
    let mut growing = base();
    let mut grown = length;
    for times in [16, 16, 16, 16, 300] {
        let copy = [&[0xf0], &u32::try_from(grown).expect("small").to_le_bytes()[..3]].concat();
        growing =
            growing.delta_of_last(&delta(grown, grown * times, &copy.repeat(usize::try_from(times).expect("few"))));
        grown *= times;
    }
    let packs = [
        base().entry(3, 1 << 60, b"", b"claims to be large"),
        base().entry(3, 4, b"", &vec![0; 1 << 20]),
        base().entry(7, small_size, &[7; 20], &small),
        base().entry(7, small_size, &[2; 20], &small).entry(7, small_size, &[1; 20], &small),
        base().entry(7, small_size, &[1; 20], &small),
        base().entry(6, small_size, &[0x00], &small),
        base().entry(6, small_size, &[0x7f], &small),
        base().entry(6, small_size, &[0xff; 11], &small),
        base().delta_of_last(&delta(length, 1 << 62, &copy_all)),
        base().delta_of_last(&delta(1 << 62, length, &copy_all)),
        base().delta_of_last(&delta(length, length, b"\0")),
        base().delta_of_last(&delta(length, length, b"\xff")),
        base().delta_of_last(b""),
        base().entry(5, 3, b"", b"???"),
        base().entry(0, 3, b"", b"???"),
        long_chain,
        growing,
    ];
    for (number, pack) in packs.into_iter().enumerate() {
        let bytes = pack.bytes.clone();
        for with_idx in [true, false] {
            let sandbox = Sandbox::new();
            sandbox.tree("a = 1");
            taken(&take(&sandbox));
            let pack = HandMade { bytes: bytes.clone(), starts: pack.starts.clone() };
            let name = |at: usize| {
                let mut name = [u8::try_from(at % 256).expect("a byte"); 20];
                name[1] = u8::try_from(at / 256 + at % 256).unwrap_or(255);
                name
            };
            let names: Vec<_> = (0..pack.starts.len()).map(name).collect();
            pack.write(&sandbox, if with_idx { &names } else { &[] });
            let report = verify(&sandbox, ReadData::All);
            assert_eq!(report.is_whole(), !with_idx, "{number}: {:?}", report.findings);
            assert!(!report.findings.is_empty(), "{number}");
            let repaired = crate::repair::repair(&sandbox);
            assert!(repaired.is_whole && repaired.lost.is_empty(), "{number}: {repaired:?}");
            sandbox.assert_store_is_whole();
            assert_eq!(verify(&sandbox, ReadData::All).findings, [], "{number}");
            let saved = sandbox.store_git(&["cat-file", "--batch-all-objects", "--batch-check"]);
            let size = format!("blob {length}");
            assert!(String::from_utf8(saved).expect("text").contains(&size), "{number}: what is whole was saved");
        }
    }
}
