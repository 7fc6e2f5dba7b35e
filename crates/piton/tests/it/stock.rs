//! Stock git and piton's garbage collection on one store, in any order: they agree, and neither loses what the other
//! keeps.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use piton::Settings;
use testkit::{Held, Sandbox};

use crate::kit::{Dice, cases, take, take_with, taken};
use crate::upkeep::{collect, ids_of, packs};
use crate::verify::{HandMade, delta};

/// Maintenance commands that people run on a repository. The commands of an entry form one step.
const STEPS: [&[&[&str]]; 15] = [
    &[&["gc", "--quiet"]],
    &[&["gc", "--quiet", "--prune=now"]],
    &[&["gc", "--quiet", "--no-cruft", "--prune=now"]],
    &[&["gc", "--quiet", "--cruft", "--prune=2.weeks.ago"]],
    &[&["repack", "-a", "-d", "-q"]],
    &[&["repack", "-d", "-q"]],
    &[&["repack", "-a", "-d", "-b", "-q", "--write-midx"]],
    &[&["multi-pack-index", "write", "--bitmap", "--no-progress"]],
    &[&["multi-pack-index", "write", "--no-progress"]],
    &[&["commit-graph", "write", "--reachable", "--no-progress"]],
    &[&["commit-graph", "write", "--reachable", "--split", "--no-progress"]],
    &[&["maintenance", "run", "--quiet", "--task=gc"]],
    &[&["maintenance", "run", "--quiet", "--task=incremental-repack", "--task=loose-objects", "--task=pack-refs"]],
    &[&["pack-refs", "--all"]],
    &[&["prune", "--expire=now"]],
];

/// Refs that a user keeps in the store with stock git, and all checkpoints ever taken.
struct Kept {
    sandbox: Sandbox,
    /// Content by ref.
    refs: BTreeMap<String, BTreeMap<Vec<u8>, Held>>,
    checkpoints: BTreeMap<String, BTreeMap<Vec<u8>, Held>>,
}

const SETTINGS: fn() -> Settings = || Settings::default().max_snapshots(4.into());

impl Kept {
    fn new() -> Self {
        Self { sandbox: Sandbox::new(), refs: BTreeMap::new(), checkpoints: BTreeMap::new() }
    }

    fn dirs(&self) -> [PathBuf; 2] {
        [self.sandbox.project(), self.sandbox.other_project("other")]
    }

    fn take(&mut self, dir: &Path, dice: &mut Dice) {
        for _ in 0..2 {
            let bytes = 100 + dice.roll(5000);
            fs::write(dir.join(format!("f{}", dice.roll(5))), dice.noise(bytes)).expect("a file");
        }
        fs::write(dir.join("text"), format!("{}{}", "a line\n".repeat(300), dice.roll(1 << 20))).expect("a file");
        let id = taken(&take_with(&self.sandbox, dir, &SETTINGS()));
        let held = self.sandbox.held_by(&id);
        self.checkpoints.insert(id, held);
    }

    /// Creates a user's own branch, tag or note: loose objects, and refs that are not piton's.
    fn own(&mut self, dice: &mut Dice) {
        let file = self.sandbox.root().join("own");
        fs::write(&file, dice.noise(2000)).expect("a file");
        let git = |args: &[&str]| String::from_utf8(self.sandbox.store_git(args)).expect("text").trim().to_owned();
        let blob = git(&["hash-object", "-w", file.to_str().expect("UTF-8")]);
        git(&["read-tree", "--empty"]);
        git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},own-{}", dice.roll(1000))]);
        let tree = git(&["write-tree"]);
        fs::remove_file(self.sandbox.store().join("index")).expect("git's own index");
        let commit = git(&["commit-tree", "-m", "own", &tree]);
        let number = dice.roll(3);
        let name = match dice.roll(3) {
            0 => {
                git(&["update-ref", &format!("refs/heads/own-{number}"), &commit]);
                format!("refs/heads/own-{number}")
            }
            1 => {
                git(&["tag", "-f", "-a", "-m", "own", &format!("own-{number}"), &commit]);
                format!("refs/tags/own-{number}")
            }
            // The user keeps one of piton's checkpoints.
            _ => {
                let newest = ids_of(&self.sandbox, &self.sandbox.project()).first().cloned().unwrap_or(commit);
                git(&["update-ref", &format!("refs/keep/{number}"), &newest]);
                format!("refs/keep/{number}")
            }
        };
        let held = self.sandbox.held_by(&name);
        self.refs.insert(name, held);
    }

    /// Marks a pack with `.keep`, so that stock git leaves it alone.
    fn keep_a_pack(&self, dice: &mut Dice) {
        let packs = packs(&self.sandbox);
        if !packs.is_empty() {
            File::create(packs[dice.roll(packs.len())].with_extension("keep")).expect("a file");
        }
    }

    fn check(&self, step: &str) {
        self.sandbox.assert_store_is_whole();
        for dir in self.dirs() {
            for id in ids_of(&self.sandbox, &dir) {
                assert!(self.sandbox.held_by(&id) == self.checkpoints[&id], "{step}: {id}");
            }
        }
        for (name, held) in &self.refs {
            assert!(self.sandbox.held_by(name) == *held, "{step}: {name}");
        }
    }
}

#[test]
fn stock_git_and_our_collections_agree_in_any_order() {
    let first = cases("PITON_STOCK_FIRST", 0);
    for seed in first..first + cases("PITON_STOCK_CASES", 3) {
        let mut dice = Dice::new(seed + 1);
        let mut kept = Kept::new();
        let dirs = kept.dirs();
        dirs.iter().for_each(|dir| kept.take(dir, &mut dice));
        for number in 0..cases("PITON_STOCK_STEPS", 28) {
            let step = match dice.roll(10) {
                0..3 => {
                    let dir = dirs[dice.roll(2)].clone();
                    (0..1 + dice.roll(3)).for_each(|_| kept.take(&dir, &mut dice));
                    "take".to_owned()
                }
                3 => {
                    kept.own(&mut dice);
                    "own".to_owned()
                }
                4 if dice.roll(3) == 0 => {
                    kept.keep_a_pack(&mut dice);
                    "keep".to_owned()
                }
                4..7 => {
                    collect(&kept.sandbox);
                    "prune".to_owned()
                }
                _ => {
                    let step = dice.pick(&STEPS);
                    step.iter().for_each(|args| drop(kept.sandbox.store_git(args)));
                    format!("{step:?}")
                }
            };
            kept.check(&format!("case {seed}, step {number}: {step}"));
        }
    }
}

/// G1.
#[test]
fn a_branch_on_a_checkpoint_keeps_it_when_the_project_drops_it() {
    let mut kept = Kept::new();
    let (mut dice, dir) = (Dice::new(1), kept.sandbox.project());
    // Twice: the second branch refers to a history that is already truncated.
    for branch in ["refs/heads/one", "refs/heads/two"] {
        (0..6).for_each(|_| kept.take(&dir, &mut dice));
        let newest = ids_of(&kept.sandbox, &dir)[0].clone();
        kept.sandbox.store_git(&["update-ref", branch, &newest]);
        kept.refs.insert(branch.to_owned(), kept.checkpoints[&newest].clone());
    }
    (0..6).for_each(|_| kept.take(&dir, &mut dice));
    kept.check("takes");
    collect(&kept.sandbox);
    kept.check("prune");
}

fn log_of(sandbox: &Sandbox, name: &str) -> String {
    String::from_utf8(sandbox.store_git(&["log", "--format=%H", name])).expect("text")
}

#[test]
fn what_only_a_log_of_stock_git_names_stays() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.project().join("a"), "one").expect("a file");
    taken(&take_with(&sandbox, &sandbox.project(), &Settings::default()));
    let tree = String::from_utf8(sandbox.store_git(&["mktree"])).expect("text");
    let commit = |words: &str| {
        let id = sandbox.store_git(&["commit-tree", "-m", words, tree.trim()]);
        let id = String::from_utf8(id).expect("text").trim().to_owned();
        let file = sandbox.store().join("objects").join(&id[..2]).join(&id[2..]);
        let file = File::options().read(true).open(file).expect("a loose object");
        file.set_modified(SystemTime::now() - Duration::from_secs(9000)).expect("a time");
        sandbox.store_git(&["-c", "core.logAllRefUpdates=always", "update-ref", "-m", "a move", "refs/heads/own", &id]);
        id
    };
    let (first, second) = (commit("first"), commit("second"));
    collect(&sandbox);
    sandbox.assert_store_is_whole();
    assert_eq!(log_of(&sandbox, "own@{1}").trim(), first);
    assert_eq!(log_of(&sandbox, "own").trim(), second);
}

#[test]
fn a_project_whose_ref_is_packed_is_forgotten_for_good_and_its_neighbours_are_not() {
    let sandbox = Sandbox::new();
    let (gone, stays) = (sandbox.other_project("gone"), sandbox.project());
    for dir in [&gone, &stays] {
        fs::write(dir.join("a"), dir.display().to_string()).expect("a file");
        taken(&take_with(&sandbox, dir, &Settings::default()));
    }
    sandbox.store_git(&["tag", "-a", "-m", "own", "own", &ids_of(&sandbox, &stays)[0]]);
    sandbox.store_git(&["pack-refs", "--all"]);
    let kept = ids_of(&sandbox, &stays);
    fs::remove_dir_all(&gone).expect("a directory");
    let policy = piton::Policy::default().retention_days(0).delete_orphans(true).total_bytes_max(None);
    let report =
        piton::prune(&crate::upkeep::store_of(&sandbox), &policy, crate::kit::now(), &piton::Progress::default())
            .expect("a prune");
    assert_eq!((report.scanned, report.deleted_orphan, report.problems.len()), (2, 1, 0), "{report:?}");
    assert_eq!(ids_of(&sandbox, &stays), kept);
    let refs = String::from_utf8(sandbox.store_git(&["for-each-ref", "--format=%(refname)"])).expect("text");
    assert_eq!(refs.lines().filter(|name| name.starts_with("refs/hermes/")).count(), 1, "{refs}");
    assert!(refs.contains("refs/tags/own"), "{refs}");
    sandbox.assert_store_is_whole();
    sandbox.store_git(&["gc", "--quiet", "--prune=now"]);
    assert_eq!(ids_of(&sandbox, &stays), kept);
}

/// A fetch that completes a thin pack appends the bases at its end.
#[test]
fn deltas_that_stand_before_their_bases_are_kept() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    taken(&take(&sandbox));
    let long: String = (0..200).map(|line| format!("line {line} that does not change\n")).collect();
    let texts = [long.clone(), format!("{long}1"), format!("{long}12")];
    let ids: Vec<_> = texts
        .iter()
        .map(|text| {
            let file = sandbox.root().join("text");
            fs::write(&file, text).expect("a file");
            let id = sandbox.store_git(&["hash-object", file.to_str().expect("UTF-8")]);
            piton::ObjectId::from_hex(id.trim_ascii()).expect("an id")
        })
        .collect();
    let bytes = |at: usize| texts[at].len() as u64;
    let grown = |at: usize| {
        let [low, high, ..] = u32::try_from(bytes(at - 1)).expect("short").to_le_bytes();
        let last = texts[at].as_bytes()[texts[at].len() - 1];
        delta(bytes(at - 1), bytes(at), &[0xb0, low, high, 1, last])
    };
    let mut made = HandMade::new();
    for at in [2, 1] {
        made = made.entry(7, grown(at).len() as u64, ids[at - 1].as_bytes(), &grown(at));
    }
    made.entry(3, bytes(0), b"", texts[0].as_bytes()).write(&sandbox, &[]);
    let is_new = |pack: &PathBuf| !pack.with_extension("idx").exists();
    let pack = packs(&sandbox).into_iter().find(is_new).expect("the pack");
    sandbox.store_git(&["index-pack", pack.to_str().expect("UTF-8")]);
    for (at, id) in ids.iter().enumerate() {
        sandbox.store_git(&["update-ref", &format!("refs/kept/{at}"), &id.to_string()]);
    }
    collect(&sandbox);
    for (id, text) in ids.iter().zip(&texts) {
        assert!(sandbox.store_git(&["cat-file", "blob", &id.to_string()]) == text.as_bytes(), "{id}");
    }
    assert_eq!(packs(&sandbox).len(), 1);
    sandbox.assert_store_is_whole();
}
