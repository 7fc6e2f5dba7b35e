//! Single bits flipped in every kind of file of a store: each is found or does not matter, and a repair recovers
//! everything that did not contain the bit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use piton::{History, Progress, Project, ReadData, RepairReport, Restore, RestoreOptions, RestoreTo, Settings, Store};
use testkit::Sandbox;

use crate::damaged::bytes_of;
use crate::kit::{Dice, cases, now};
use crate::repair::{all_checkpoints, assert_repaired, names_by_git, repair, reset};
use crate::verify::{Rich, verify};

/// Returns the objects that a flipped byte of a pack makes unreadable: the entry that contains it, and all deltas based
/// on that entry.
fn touched_by(sandbox: &Sandbox, pack: &Path, at: usize) -> BTreeSet<String> {
    let idx = pack.with_extension("idx");
    let listing = sandbox.store_git(&["verify-pack", "-v", idx.to_str().expect("UTF-8")]);
    let listing = String::from_utf8(listing).expect("text");
    let lines: Vec<Vec<&str>> = listing.lines().map(|line| line.split_whitespace().collect()).collect();
    let lines: Vec<_> = lines.iter().filter(|words| words.len() >= 5 && words[0].len() == 40).collect();
    let number = |word: &str| word.parse::<usize>().expect("a number");
    let mut touched = BTreeSet::new();
    for words in &lines {
        let start = number(words[4]);
        if (start..start + number(words[3])).contains(&at) {
            touched.insert(words[0].to_owned());
        }
    }
    loop {
        let more = lines.iter().filter(|words| words.len() > 6 && touched.contains(words[6]));
        let more: Vec<_> = more.map(|words| words[0].to_owned()).filter(|id| !touched.contains(id)).collect();
        if more.is_empty() {
            return touched;
        }
        touched.extend(more);
    }
}

/// Returns all objects that stock git reads, with their bytes.
fn all_objects(sandbox: &Sandbox) -> BTreeMap<String, Vec<u8>> {
    let listing = sandbox.store_git(&["cat-file", "--batch-all-objects", "--batch"]);
    let mut objects = BTreeMap::new();
    let mut rest = &listing[..];
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        let [id, _, size] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
        let size: usize = size.parse().expect("a size");
        objects.insert(id.to_owned(), rest[end + 1..][..size].to_vec());
        rest = &rest[end + 1 + size + 1..];
    }
    objects
}

/// Does everything that a user may do with a damaged store, except changing it.
fn use_it(sandbox: &Sandbox, dir: &Path) {
    let Ok(Some(store)) = Store::open_existing(&sandbox.base()) else { return };
    let project = Project::at(dir, Some(&sandbox.home())).expect("a project");
    let _ = History::of(&store, &project).and_then(|history| history.list());
    let (settings, progress) = (Settings::default(), Progress::default());
    let to = RestoreTo::Named("2");
    let _ = Restore::prepare(&store, &project, to, RestoreOptions::default(), &settings, now(), &progress);
}

struct Flips {
    rich: Rich,
    all: BTreeMap<PathBuf, Vec<u8>>,
    objects: BTreeMap<String, Vec<u8>>,
    names: BTreeSet<String>,
    ids: Vec<String>,
    touched: BTreeMap<PathBuf, BTreeMap<usize, BTreeSet<String>>>,
}

impl Flips {
    fn new() -> Self {
        let rich = Rich::new();
        let all = bytes_of(&rich.sandbox.base());
        let objects = all_objects(&rich.sandbox);
        let ids = all_checkpoints(&rich.sandbox);
        let names = names_by_git(&rich.sandbox);
        Self { rich, all, objects, names, ids, touched: BTreeMap::new() }
    }

    /// Flips one bit of one file and checks the store.
    fn flip(&mut self, path: &Path, at: usize, bit: usize, hide: bool) {
        let sandbox = &self.rich.sandbox;
        let shown = format!("{} byte {at} bit {bit}", path.strip_prefix(sandbox.base()).expect("below it").display());
        let is = |end: &str| path.extension().is_some_and(|found| found == end);
        let touched = if is("pack") {
            let known = self.touched.entry(path.to_owned()).or_default();
            known.entry(at).or_insert_with(|| touched_by(sandbox, path, at)).clone()
        } else if path.starts_with(sandbox.store().join("objects")) && !is("idx") {
            let (dir, name) = (path.parent().expect("a directory"), path.file_name().expect("a name"));
            let dir = dir.file_name().expect("a name").to_string_lossy().into_owned();
            BTreeSet::from([dir + &name.to_string_lossy()])
        } else {
            BTreeSet::new()
        };
        let mut bytes = self.all[path].clone();
        bytes[at] ^= 1 << bit;
        fs::remove_file(path).expect("a file");
        fs::write(path, bytes).expect("a file");
        self.check(path, &shown, &touched, hide);
        reset(&self.rich.sandbox, &self.all);
    }

    fn check(&self, path: &Path, shown: &str, touched: &BTreeSet<String>, hide: bool) {
        let sandbox = &self.rich.sandbox;
        let found = catch_unwind(AssertUnwindSafe(|| verify(sandbox, ReadData::All)));
        let found = found.unwrap_or_else(|_| panic!("a panic in verify: {shown}"));
        let must = path.extension().is_some_and(|end| end == "pack" || end == "idx") || shown.contains("indexes/");
        if found.findings.is_empty() {
            assert!(!must, "not found: {shown}");
            // One of the packed refs is overridden by a loose ref: under another name it does no harm.
            assert!(names_by_git(sandbox).is_superset(&self.names), "not found: {shown}");
            sandbox.assert_store_is_whole();
            return;
        }
        for dir in [sandbox.project(), self.rich.other.clone()] {
            let used = catch_unwind(AssertUnwindSafe(|| use_it(sandbox, &dir)));
            assert!(used.is_ok(), "a panic: {shown}");
        }
        let away = sandbox.root().join("away");
        if hide {
            fs::rename(sandbox.project(), &away).expect("a directory");
        }
        let report = catch_unwind(AssertUnwindSafe(|| repair(sandbox)));
        if hide {
            fs::rename(&away, sandbox.project()).expect("a directory");
        }
        let report = report.unwrap_or_else(|_| panic!("a panic in repair: {shown}"));
        assert_repaired(sandbox, &report, shown);
        self.check_kept(&report, shown, touched);
    }

    /// Asserts that every object without the flipped byte is intact, and that losses are named.
    fn check_kept(&self, report: &RepairReport, shown: &str, touched: &BTreeSet<String>) {
        let sandbox = &self.rich.sandbox;
        let after = all_objects(sandbox);
        for (id, bytes) in self.objects.iter().filter(|(id, _)| !touched.contains(*id)) {
            assert!(after.get(id) == Some(bytes), "{id} is lost: {shown}: {report:?}");
        }
        let found: BTreeSet<_> = all_checkpoints(sandbox).into_iter().collect();
        let told: BTreeSet<_> = report.lost.iter().filter_map(|loss| Some(loss.checkpoint?.to_string())).collect();
        for id in &self.ids {
            assert!(found.contains(id) || told.contains(id), "{id} is not named: {shown}: {report:?}");
        }
        if touched.iter().all(|id| after.contains_key(id)) && !told.is_empty() {
            // A dangling ref may have referred to a checkpoint.
            let is_name = ["refs", "shallow", "restores"].iter().any(|name| shown.contains(name));
            assert!(is_name && told.iter().all(|id| !self.ids.contains(id)), "nothing is lost: {shown}: {report:?}");
        }
    }
}

/// The library's own files of every kind, one bit at a time: verify finds what matters, nothing panics, and a repair
/// makes the store intact with everything that did not contain the bit.
#[test]
fn any_flipped_bit_is_found_and_repaired() {
    let mut flips = Flips::new();
    let is_data = |path: &&PathBuf| {
        let text = path.to_string_lossy();
        !["/info/", "/size", "/locks/", "/hooks/", ".last_prune", "description"].iter().any(|name| text.contains(name))
    };
    let mut by_kind: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in flips.all.keys().filter(is_data).filter(|path| !flips.all[*path].is_empty()) {
        let end = path.extension().filter(|end| *end == "pack" || *end == "idx");
        let kind =
            end.map_or_else(|| path.parent().expect("a directory").display().to_string(), |end| format!("{end:?}"));
        by_kind.entry(kind).or_default().push(path.clone());
    }
    let kinds: Vec<_> = by_kind.into_values().collect();
    assert!(kinds.len() >= 7, "{kinds:?}");
    let mut dice = Dice::new(7);
    for number in 0..usize::try_from(cases("PITON_FLIPS", 400)).expect("few") {
        let files = &kinds[number % kinds.len()];
        let path = files[dice.roll(files.len())].clone();
        let at = dice.roll(flips.all[&path].len());
        flips.flip(&path, at, dice.roll(8), number % 2 == 0);
    }
}
