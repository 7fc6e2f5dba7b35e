//! Keeping a store small: garbage collection, merging packs, deltas, the limit on its size.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use piton::{
    History, Maintained, Outcome, Policy, Progress, Project, PruneReport, Settings, Store, WhySkipped, maintain, prune,
};
use testkit::Sandbox;

use crate::kit::{Dice, now, take_with, taken};

pub(crate) fn store_of(sandbox: &Sandbox) -> Store {
    Store::open_existing(&sandbox.base()).expect("a base").expect("a store")
}

/// Prunes with rules that drop no project, up to 20 times, until at most one pack is left.
pub(crate) fn collect(sandbox: &Sandbox) -> PruneReport {
    let policy = Policy::default().retention_days(0).delete_orphans(false).total_bytes_max(None);
    let mut whole = PruneReport::default();
    // A process that another test starts inherits the locks for a moment: garbage collection then gives up, and
    // continues the next time.
    for _ in 0..20 {
        let mut report = prune(&store_of(sandbox), &policy, now(), &Progress::default()).expect("a prune");
        assert_eq!(report.problems, [""; 0]);
        report.bytes_freed += whole.bytes_freed;
        whole = report;
        if packs(sandbox).len() <= 1 {
            break;
        }
    }
    whole
}

pub(crate) fn ids_of(sandbox: &Sandbox, dir: &Path) -> Vec<String> {
    let project = Project::at(dir, None).expect("a project");
    let history = History::of(&store_of(sandbox), &project).expect("a history");
    history.checkpoints().iter().map(|checkpoint| checkpoint.id.to_string()).collect()
}

pub(crate) fn packs(sandbox: &Sandbox) -> Vec<PathBuf> {
    let names = fs::read_dir(sandbox.store().join("objects/pack")).expect("packs");
    let packs = names.map(|entry| entry.expect("an entry").path());
    packs.filter(|path| path.extension().is_some_and(|end| end == "pack")).collect()
}

/// Returns text that looks like a program, of about that many lines.
fn source(dice: &mut Dice, lines: usize) -> String {
    const WORDS: [&str; 12] =
        ["let", "fn", "match", "store", "pack", "index", "self", "return", "if", "else", "Vec::new()", "=>"];
    let line = |dice: &mut Dice| (0..4 + dice.roll(6)).map(|_| dice.pick(&WORDS)).collect::<Vec<_>>().join(" ");
    (0..lines).map(|number| format!("    {} // {number}\n", line(dice))).collect()
}

/// Changes some source files of a project, as before each take.
fn change(dir: &Path, dice: &mut Dice, files: usize, changed: usize) {
    for _ in 0..changed {
        let path = dir.join(format!("src/m{}/f{}.rs", dice.roll(5), dice.roll(files)));
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        let text = fs::read_to_string(&path).unwrap_or_else(|_| source(dice, 200));
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let at = dice.roll(lines.len());
        lines[at] = source(dice, 1).trim_end().to_owned();
        if dice.roll(4) == 0 {
            lines.insert(at, "    inserted".to_owned());
        }
        fs::write(path, lines.join("\n") + "\n").expect("a file");
    }
}

#[test]
fn a_collection_keeps_every_checkpoint_byte_for_byte_and_stock_git_agrees() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(1);
    let settings = Settings::default().max_snapshots(10.into());
    for _ in 0..45 {
        change(&sandbox.project(), &mut dice, 8, 6);
        fs::write(sandbox.project().join("noise"), dice.noise(3000)).expect("a file");
        taken(&take_with(&sandbox, &sandbox.project(), &settings));
    }
    let ids = ids_of(&sandbox, &sandbox.project());
    assert_eq!(ids.len(), 10);
    let before: Vec<_> = ids.iter().map(|id| sandbox.held_by(id)).collect();
    let report = collect(&sandbox);
    assert!(report.bytes_freed > 100_000, "{report:?}");
    assert_eq!(packs(&sandbox).len(), 1);
    sandbox.assert_store_is_whole();
    assert_eq!(ids_of(&sandbox, &sandbox.project()), ids);
    let after: Vec<_> = ids.iter().map(|id| sandbox.held_by(id)).collect();
    assert!(before == after);
    let idx = packs(&sandbox)[0].with_extension("idx");
    let listing = sandbox.store_git(&["verify-pack", "-v", idx.to_str().expect("UTF-8")]);
    let listing = String::from_utf8(listing).expect("text");
    assert!(listing.contains("chain length = 1: "), "versions of one file are deltas:\n{listing}");
    assert!(!listing.contains("chain length = 25: "), "chains are bounded");
    assert_eq!(collect(&sandbox).bytes_freed, 0, "there is nothing left to do");
}

#[test]
fn older_versions_of_a_file_lean_on_newer_ones() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(2);
    for _ in 0..6 {
        change(&sandbox.project(), &mut dice, 1, 5);
        taken(&take_with(&sandbox, &sandbox.project(), &Settings::default()));
    }
    collect(&sandbox);
    // Age of each blob: the number of checkpoints since it was last in use.
    let mut ages = BTreeMap::new();
    for (age, id) in ids_of(&sandbox, &sandbox.project()).iter().enumerate() {
        let tree = String::from_utf8(sandbox.store_git(&["ls-tree", "-r", id])).expect("text");
        for line in tree.lines() {
            ages.entry(line.split_whitespace().nth(2).expect("an id").to_owned()).or_insert(age);
        }
    }
    let idx = packs(&sandbox)[0].with_extension("idx");
    let listing = sandbox.store_git(&["verify-pack", "-v", idx.to_str().expect("UTF-8")]);
    let listing = String::from_utf8(listing).expect("text");
    let (mut old, mut leaning, mut newest_whole) = (0, 0, 0);
    for words in listing.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
        let Some(age) = words.first().and_then(|id| ages.get(*id)) else { continue };
        let base = words.get(6).map(|base| ages.get(*base).expect("contents lean on contents"));
        assert!(base.is_none_or(|base| base <= age), "{words:?} leans on what is older:\n{listing}");
        old += usize::from(*age > 0);
        leaning += usize::from(*age > 0 && base.is_some());
        // Files of one name in several directories may be deltas of each other: at least one of them is stored whole.
        newest_whole += usize::from(*age == 0 && base.is_none());
    }
    assert!(newest_whole >= 1 && leaning * 2 > old, "{leaning} of {old} lean on another:\n{listing}");
}

#[test]
fn packs_merge_when_there_are_many_and_only_then() {
    let sandbox = Sandbox::new();
    let settings = Settings::default().max_snapshots(100.into()).auto_prune(false);
    let take = |number: usize| {
        fs::write(sandbox.project().join("count"), number.to_string()).expect("a file");
        taken(&take_with(&sandbox, &sandbox.project(), &settings));
    };
    (0..32).for_each(take);
    let done = maintain(&store_of(&sandbox), &settings, now(), &Progress::default()).expect("maintenance");
    assert_eq!((done, packs(&sandbox).len()), (Maintained::Nothing, 32));
    (32..40).for_each(take);
    let mut done = Maintained::Nothing;
    for _ in 0..20 {
        if packs(&sandbox).len() > 2 {
            done = maintain(&store_of(&sandbox), &settings, now(), &Progress::default()).expect("maintenance");
        }
    }
    assert!(matches!(done, Maintained::Tidied(_)), "{done:?}");
    assert!(packs(&sandbox).len() <= 2, "{}", packs(&sandbox).len());
    assert_eq!(ids_of(&sandbox, &sandbox.project()).len(), 40);
    sandbox.assert_store_is_whole();
}

#[test]
fn after_500_takes_the_store_is_about_as_small_as_stock_git_makes_it() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(3);
    let settings = Settings::default().max_snapshots(20.into()).auto_prune(false);
    let store = |sandbox: &Sandbox| store_of(sandbox);
    change(&sandbox.project(), &mut dice, 40, 200);
    for number in 0..500 {
        change(&sandbox.project(), &mut dice, 40, 3);
        taken(&take_with(&sandbox, &sandbox.project(), &settings));
        if number % 40 == 0 {
            maintain(&store(&sandbox), &settings, now(), &Progress::default()).expect("maintenance");
        }
    }
    let ids = ids_of(&sandbox, &sandbox.project());
    assert_eq!(ids.len(), 20);
    collect(&sandbox);
    let objects = |sandbox: &Sandbox| {
        let mut bytes = 0;
        testkit::walk(&sandbox.store().join("objects"), &mut |path| {
            bytes += path.symlink_metadata().map_or(0, |found| if found.is_dir() { 0 } else { found.len() });
        });
        bytes
    };
    let ours = objects(&sandbox);
    sandbox.assert_store_is_whole();
    sandbox.store_git(&["gc", "--aggressive", "--prune=now", "--quiet"]);
    let theirs = objects(&sandbox);
    assert!(ours * 10 <= theirs * 13, "{ours} bytes, and git makes it {theirs}");
    assert_eq!(ids_of(&sandbox, &sandbox.project()), ids);
}

#[test]
fn a_checkpoint_that_is_larger_than_the_limit_is_declined_and_nothing_is_dropped_for_it() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(5);
    let settings = Settings::default().max_total_size_mb(1);
    for number in 0..5 {
        fs::write(sandbox.project().join("small"), number.to_string()).expect("a file");
        taken(&take_with(&sandbox, &sandbox.project(), &settings));
    }
    let ids = ids_of(&sandbox, &sandbox.project());
    fs::write(sandbox.project().join("large"), dice.noise(2 << 20)).expect("a file");
    let report = take_with(&sandbox, &sandbox.project(), &settings);
    assert_eq!(report.outcome, Outcome::Skipped(WhySkipped::StoreFull));
    assert_eq!(ids_of(&sandbox, &sandbox.project()), ids);
    assert_eq!(sandbox.temporary_files(), Vec::<PathBuf>::new());
    fs::remove_file(sandbox.project().join("large")).expect("a file");
    fs::write(sandbox.project().join("small"), "again").expect("a file");
    taken(&take_with(&sandbox, &sandbox.project(), &settings));
}

#[test]
fn what_only_a_log_of_stock_git_names_stays() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.project().join("file"), "one").expect("a file");
    let id = taken(&take_with(&sandbox, &sandbox.project(), &Settings::default()));
    let tree = String::from_utf8(sandbox.store_git(&["rev-parse", &format!("{id}^{{tree}}")])).expect("an id");
    let commit = |words: &str| {
        let id = sandbox.store_git(&["commit-tree", tree.trim(), "-m", words]);
        String::from_utf8(id).expect("an id").trim().to_owned()
    };
    let (old, new) = (commit("old"), commit("new"));
    for id in [&old, &new] {
        sandbox.store_git(&["update-ref", "--create-reflog", "-m", "a move", "refs/heads/mine", id]);
    }
    let policy = Policy::default().retention_days(0).delete_orphans(false).total_bytes_max(None);
    // A day later, so that nothing is kept because it is young.
    let later = piton::Moment { secs: now().secs + 86_400, ..now() };
    prune(&store_of(&sandbox), &policy, later, &Progress::default()).expect("a prune");
    sandbox.store_git(&["cat-file", "-e", &old]);
    sandbox.assert_store_is_whole();
}
