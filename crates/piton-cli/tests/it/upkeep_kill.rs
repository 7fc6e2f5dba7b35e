//! Maintenance, purges and repairs killed before any system call, or with any call failing: the store is intact, no
//! checkpoint that must exist is lost, and the next run gives the result of an undisturbed one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use testkit::{Dice, Sandbox};

use crate::fault_store::{Files, answer};
use crate::faults::Mounted;
use crate::kit::{Ran, assert_no_half_pack, ids, in_dir, piton, run, take_works};
use crate::purge::{SECRET, found, takes, without_secret};
use crate::sweep::{After, Scene, fail, kill};
use crate::verify::damage;

/// A store in which a prune has everything to do, and one command to run on it.
struct Upkeep {
    sandbox: Sandbox,
    args: &'static [&'static str],
    environment: Vec<(&'static str, &'static str)>,
    /// Checkpoints that must exist after any fault.
    must_stay: BTreeMap<String, Files>,
    /// Result of a run without a fault.
    wanted: EndState,
}

/// State of a store: packs, loose objects, bytes, temporary files.
type EndState = (usize, usize, u64, Vec<PathBuf>);

impl Upkeep {
    /// Creates a store with packs that are unreachable as a whole or in part, loose objects of stock git, packed refs,
    /// an orphan and a leftover temporary file.
    fn new(args: &'static [&'static str], environment: Vec<(&'static str, &'static str)>, noise_bytes: usize) -> Self {
        let sandbox = Sandbox::new();
        let mut dice = Dice::new(3);
        let gone = sandbox.other_project("gone");
        fs::write(gone.join("file"), dice.noise(9_000)).expect("a file");
        run(in_dir(&sandbox, &gone).args(["take", "--json"])).done();
        for number in 0..9 {
            sandbox.write("count", number.to_string());
            sandbox.write("noise", dice.noise(noise_bytes));
            sandbox.write("text", format!("{}{}", "a line of text\n".repeat(80), number));
            if number % 3 == 0 {
                sandbox.write(format!("stays-{number}"), dice.noise(2_000));
            }
            run(in_dir(&sandbox, &sandbox.project()).env("PITON_MAX_SNAPSHOTS", "4").args(["take", "--json"])).done();
            if number == 4 {
                sandbox.store_git(&["pack-refs", "--all"]);
            }
        }
        fs::remove_dir_all(gone).expect("a directory");
        let own = sandbox.root().join("own");
        fs::write(&own, dice.noise(1_000)).expect("a file");
        let blob = sandbox.store_git(&["hash-object", "-w", own.to_str().expect("UTF-8")]);
        let blob = String::from_utf8(blob).expect("an id").trim().to_owned();
        sandbox.store_git(&["update-ref", "refs/tags/own", &blob]);
        fs::write(&own, dice.noise(1_000)).expect("a file");
        sandbox.store_git(&["hash-object", "-w", own.to_str().expect("UTF-8")]);
        testkit::walk(&sandbox.store().join("objects"), &mut |path| {
            if path.file_name().is_some_and(|name| name.len() == 38) {
                let old = SystemTime::now() - Duration::from_secs(9000);
                File::open(path).and_then(|file| file.set_modified(old)).expect("a time");
            }
        });
        fs::write(sandbox.store().join("objects/pack/tmp_killed"), dice.noise(5_000)).expect("a file");
        fs::write(sandbox.base().join(".last_prune"), "0").expect("a mark");
        let newest = ids(&sandbox);
        let must_stay = newest.iter().map(|id| (id.clone(), sandbox.held_by(id))).collect();
        Self { sandbox, args, environment, must_stay, wanted: EndState::default() }
    }

    /// Asserts that the checkpoints that must exist do, unchanged.
    fn check_store(&self, point: &str) {
        assert_no_half_pack(&self.sandbox);
        self.sandbox.assert_store_is_whole();
        let listed = ids(&self.sandbox);
        for (id, held) in &self.must_stay {
            assert!(listed.contains(id), "{point}: {id} is gone");
            assert!(self.sandbox.held_by(id) == *held, "{point}: {id} is another one");
        }
        self.sandbox.store_git(&["cat-file", "-e", "refs/tags/own"]);
        let verified = piton(&self.sandbox, ["verify", "--json"]);
        assert_eq!(verified.code(), 0, "{point}: {verified:?}");
    }

    /// Prunes and returns the resulting state. Twice: loose objects become a pack, which the next prune merges with
    /// others.
    fn prune(&self, point: &str) -> EndState {
        for _ in 0..2 {
            let ran = piton(&self.sandbox, ["prune", "--json"]);
            assert_eq!(ran.code(), 0, "{point}: {ran:?}");
        }
        self.check_store(point);
        let (mut packs, mut loose, mut bytes) = (0, 0, 0);
        testkit::walk(&self.sandbox.store().join("objects"), &mut |path| {
            packs += usize::from(path.extension().is_some_and(|end| end == "pack"));
            loose += usize::from(path.file_name().is_some_and(|name| name.len() == 38));
            bytes += path.symlink_metadata().map_or(0, |found| if found.is_dir() { 0 } else { found.len() });
        });
        (packs, loose, bytes, self.sandbox.temporary_files())
    }
}

impl Scene for Upkeep {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.args.to_vec()
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        self.environment.clone()
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        self.wanted = self.prune("undisturbed");
    }

    fn check(&self, after: &After<'_>) {
        answer(after);
        let (point, wanted) = (format!("{after:?}"), &self.wanted);
        self.check_store(&point);
        let end = self.prune(&point);
        // A killed take may or may not have stored its checkpoint.
        if self.args[0] != "take" {
            assert_eq!((end.0, end.1, &end.3), (wanted.0, wanted.1, &wanted.3), "{point}");
            // The choice of delta bases depends on the order in which packs are merged.
            assert!(end.2.abs_diff(wanted.2) * 20 <= wanted.2, "{point}: {} bytes, and {} otherwise", end.2, wanted.2);
        }
    }
}

const PRUNE: &[&str] = &["prune", "--json"];
const MAINTAIN: &[&str] = &["maintain", "--json"];

/// G2.
#[test]
fn a_prune_may_be_killed_anywhere_and_the_next_finishes_it() {
    assert!(kill(|| Upkeep::new(PRUNE, Vec::new(), 3_000)).felt >= 10);
}

#[test]
fn automatic_maintenance_may_be_killed_anywhere() {
    assert!(kill(|| Upkeep::new(MAINTAIN, Vec::new(), 3_000)).felt >= 10);
}

/// Creates a store in which a take has no room and must free some.
fn at_the_limit() -> Upkeep {
    let mut upkeep = Upkeep::new(&["take", "--json"], vec![("PITON_MAX_TOTAL_SIZE_MB", "1")], 40_000);
    let newest = ids(&upkeep.sandbox)[0].clone();
    upkeep.must_stay.retain(|id, _| *id == newest);
    // The take must free more than all unreachable objects, and less than what only the older checkpoints hold.
    let room = (1 << 20) - testkit::space::bytes_below(&upkeep.sandbox.store());
    let length = usize::try_from(room + 260_000).expect("not that much");
    upkeep.sandbox.write("large", Dice::new(9).noise(length));
    fs::remove_file(upkeep.sandbox.store().join("size")).expect("a note");
    // Background maintenance would be killed instead.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    fs::write(upkeep.sandbox.base().join(".last_prune"), now.to_string()).expect("a mark");
    upkeep
}

#[test]
fn a_take_that_makes_room_may_be_killed_anywhere() {
    assert!(kill(at_the_limit).felt >= 7);
}

#[test]
fn a_take_that_makes_room_survives_the_failure_of_any_call() {
    assert!(fail(at_the_limit).felt >= 7);
}

#[test]
fn a_prune_survives_the_failure_of_any_call() {
    assert!(fail(|| Upkeep::new(PRUNE, Vec::new(), 3_000)).felt >= 7);
}

#[test]
fn automatic_maintenance_survives_the_failure_of_any_call() {
    assert!(fail(|| Upkeep::new(MAINTAIN, Vec::new(), 3_000)).felt >= 7);
}

#[test]
fn a_prune_on_a_disk_that_is_full_to_the_last_byte_gives_space_back() {
    let sandbox = Sandbox::new();
    let base = sandbox.base();
    let Some(_disk) = Mounted::tmpfs(&base, "size=6m,mode=700") else { return };
    let mut dice = Dice::new(5);
    for number in 0..24 {
        sandbox.write("noise", dice.noise(150_000));
        sandbox.write("count", number.to_string());
        run(in_dir(&sandbox, &sandbox.project()).env("PITON_MAX_SNAPSHOTS", "3").args(["take", "--json"])).done();
    }
    let other = sandbox.other_project("gone");
    fs::write(other.join("file"), dice.noise(60_000)).expect("a file");
    run(in_dir(&sandbox, &other).args(["take", "--json"])).done();
    sandbox.store_git(&["pack-refs", "--all"]);
    fs::remove_dir_all(other).expect("a directory");
    let kept: Vec<_> = ids(&sandbox).into_iter().map(|id| (sandbox.held_by(&id), id)).collect();
    let filler = sandbox.base().join("filler.yaml");
    fs::write(&filler, vec![1; 8 << 20]).expect_err("the disk is full now");
    let report = piton(&sandbox, ["prune", "--json"]);
    assert_eq!(report.code(), 0, "{report:?}");
    let report = report.json();
    assert_eq!(report["deleted_orphan"], 1, "{report}");
    assert!(report["bytes_freed"].as_u64().is_some_and(|freed| freed > 2_000_000), "{report}");
    sandbox.assert_store_is_whole();
    for (held, id) in kept {
        assert!(sandbox.held_by(&id) == held);
    }
    take_works(&sandbox);
}

/// Purging a secret from every checkpoint.
struct Purge {
    sandbox: Sandbox,
    /// Content of each checkpoint, oldest first, before and after the purge.
    before: Vec<Files>,
    purged: Vec<Files>,
}

impl Purge {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let mut before: Vec<_> = takes(&sandbox, 4).iter().map(|id| sandbox.held_by(id)).collect();
        before.reverse();
        let purged = before.iter().cloned().map(without_secret).collect();
        Self { sandbox, before, purged }
    }

    fn held(&self) -> Vec<Files> {
        ids(&self.sandbox).iter().rev().map(|id| self.sandbox.held_by(id)).collect()
    }
}

impl Scene for Purge {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["purge", "--json", "-y", "dir/keys"]
    }

    fn check(&self, after: &After<'_>) {
        let sandbox = &self.sandbox;
        let report = answer(after);
        sandbox.assert_store_is_whole();
        let held = self.held();
        assert!(held == self.before || held == self.purged, "{after:?}");
        let is_gone = || found(sandbox, SECRET.as_bytes()).is_empty();
        assert!(!(after.is_done() && report.is_some()) || is_gone(), "it is still there: {after:?}");
        let next = piton(sandbox, ["purge", "--json", "-y", "dir/keys"]);
        // If the refs were already changed, the path finds nothing more: a prune does the rest.
        assert!([0, 4].contains(&next.code()), "{next:?} after {after:?}");
        piton(sandbox, ["prune", "--json"]).done();
        assert!(self.held() == self.purged, "{after:?}");
        assert!(is_gone(), "it is still there after another purge: {after:?}");
        sandbox.assert_store_is_whole();
        take_works(sandbox);
    }
}

#[test]
fn a_purge_may_be_killed_anywhere_and_the_next_finishes_it() {
    assert!(kill(Purge::new).felt >= 10);
}

#[test]
fn a_purge_survives_the_failure_of_any_call() {
    assert!(fail(Purge::new).felt >= 10);
}

/// Repair of a store of two projects with several kinds of damage.
struct Repair {
    sandbox: Sandbox,
    wanted: String,
}

impl Repair {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let other = sandbox.other_project("other");
        fs::write(other.join("theirs"), "1").expect("a file");
        run(in_dir(&sandbox, &other).arg("take")).done();
        let mut all = Vec::new();
        for text in ["1", "2", "3", "4"] {
            sandbox.write("a", text);
            sandbox.write("b", format!("{text} b"));
            all.push(take_works(&sandbox));
        }
        damage(&sandbox, &format!("{}:a", all[1]));
        damage(&sandbox, &format!("{}:b", all[3]));
        fs::remove_file(crate::verify::packs(&sandbox)[0].with_extension("idx")).expect("an idx");
        fs::write(sandbox.store().join("config"), "").expect("a file");
        Self { sandbox, wanted: String::new() }
    }

    /// Returns the refs, and the ends of histories.
    fn end(&self) -> String {
        let refs = String::from_utf8(self.sandbox.store_git(&["for-each-ref"])).expect("text");
        refs + &fs::read_to_string(self.sandbox.store().join("shallow")).expect("a file")
    }
}

impl Scene for Repair {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["repair", "--json"]
    }

    fn undisturbed(&mut self, ran: Ran) {
        assert_eq!(ran.code(), 3, "{ran:?}");
        self.wanted = self.end();
    }

    fn check(&self, after: &After<'_>) {
        let report = answer(after).unwrap_or_default();
        let again = piton(&self.sandbox, ["repair", "--json"]);
        assert!([0, 3].contains(&again.code()), "{again:?} after {after:?}");
        // Files of the project that cannot be read cannot restore any contents, and are named.
        let is_blind = |step: &serde_json::Value| step["step"] == "not_readable";
        let is_blind = report["steps"].as_array().is_some_and(|steps| steps.iter().any(is_blind));
        assert!(self.end() == self.wanted || is_blind && !after.is_kill(), "{again:?} after {after:?}");
        piton(&self.sandbox, ["verify", "--read-data"]).done();
        self.sandbox.assert_store_is_whole();
    }
}

/// V5.
#[test]
fn a_repair_may_be_killed_anywhere_and_the_next_comes_to_the_same() {
    assert!(kill(Repair::new).felt >= 10);
}

#[test]
fn a_repair_that_cannot_read_takes_nothing_for_damage() {
    assert!(fail(Repair::new).felt >= 10);
}
