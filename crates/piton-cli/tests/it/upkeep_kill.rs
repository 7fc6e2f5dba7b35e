//! Maintenance killed before any system call that changes something, or told no by any of them: the store is whole, no
//! checkpoint is lost that must be there, and the next prune ends where an undisturbed one ends.
//!
//! `PITON_CRASH_POINTS` sets how many points of each call are tried at most.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use testkit::{Dice, Held, Sandbox, clean_command, has_program};

use crate::faults::{FAILING, Mounted};
use crate::kit::{PITON, Ran, assert_no_half_pack, in_dir, piton, replace_dir, run, system_calls};

/// Calls that change what is on the disk, or who holds a lock.
const CHANGING: [&str; 17] = [
    "chmod",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "link",
    "linkat",
    "mkdir",
    "pwrite64",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "unlink",
    "unlinkat",
    "utimensat",
    "write",
];
/// How many points of each are tried.
const POINTS_MAX: usize = 10;

fn points(count: usize) -> BTreeSet<usize> {
    let more = std::env::var("PITON_CRASH_POINTS").ok();
    let most = more.map_or(POINTS_MAX, |more| more.parse().expect("PITON_CRASH_POINTS is a number")).max(2);
    if count <= most { (1..=count).collect() } else { (0..most).map(|at| 1 + at * (count - 1) / (most - 1)).collect() }
}

/// A store in which a prune has everything to do, and one command to run on it.
struct Case {
    sandbox: Sandbox,
    args: &'static [&'static str],
    environment: Vec<(&'static str, &'static str)>,
    /// What must be there, whatever happens.
    must_stay: BTreeMap<String, BTreeMap<Vec<u8>, Held>>,
}

/// What a store comes to: packs, loose objects, bytes, temporary files.
type EndState = (usize, usize, u64, Vec<PathBuf>);

impl Case {
    /// Dead packs, packs of which some is dead, loose objects of stock git, packed refs, an orphan, a left-over.
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
        let newest = crate::kit::ids(&sandbox);
        let must_stay = newest.iter().map(|id| (id.clone(), sandbox.held_by(id))).collect();
        Self { sandbox, args, environment, must_stay }
    }

    fn under_strace<S: AsRef<OsStr>>(&self, strace_args: impl IntoIterator<Item = S>) -> Ran {
        let mut command = clean_command("strace");
        command.args(["-f", "-qq"]).args(strace_args).arg(PITON).args(self.args);
        run(self.place(&mut command))
    }

    fn place<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("HOME", self.sandbox.home()).env("TZ", "UTC").current_dir(self.sandbox.project());
        command.envs(self.environment.iter().copied())
    }

    /// What must be there is there, as it was.
    fn check(&self, point: &str) {
        assert_no_half_pack(&self.sandbox);
        self.sandbox.assert_store_is_whole();
        let listed = crate::kit::ids(&self.sandbox);
        for (id, held) in &self.must_stay {
            assert!(listed.contains(id), "{point}: {id} is gone");
            assert!(self.sandbox.held_by(id) == *held, "{point}: {id} is another one");
        }
        self.sandbox.store_git(&["cat-file", "-e", "refs/tags/own"]);
        let verified = piton(&self.sandbox, ["verify", "--json"]);
        assert_eq!(verified.code(), 0, "{point}: {verified:?}");
    }

    /// Prunes, and says what that came to. Twice: loose objects become a pack, which the next one merges with others.
    fn prune(&self, point: &str) -> EndState {
        for _ in 0..2 {
            let ran = piton(&self.sandbox, ["prune", "--json"]);
            assert_eq!(ran.code(), 0, "{point}: {ran:?}");
        }
        self.check(point);
        let (mut packs, mut loose, mut bytes) = (0, 0, 0);
        testkit::walk(&self.sandbox.store().join("objects"), &mut |path| {
            packs += usize::from(path.extension().is_some_and(|end| end == "pack"));
            loose += usize::from(path.file_name().is_some_and(|name| name.len() == 38));
            bytes += path.symlink_metadata().map_or(0, |found| if found.is_dir() { 0 } else { found.len() });
        });
        (packs, loose, bytes, self.sandbox.temporary_files())
    }

    /// Where an undisturbed run ends, with the system calls that it makes.
    fn undisturbed(&self) -> (EndState, Vec<(String, usize)>) {
        let log = self.sandbox.root().join("strace.log");
        self.under_strace([OsStr::new("-o"), log.as_os_str()]).done();
        (self.prune("undisturbed"), system_calls(&log))
    }

    /// Runs it from the same state again and again, each time with another injection.
    fn sweep(&self, injections: impl Fn(&str, usize) -> Vec<String>) -> usize {
        let (home, before) = (self.sandbox.home(), self.sandbox.root().join("before"));
        replace_dir(&home, &before);
        let (wanted, calls) = self.undisturbed();
        let mut hit = 0;
        for inject in calls.iter().flat_map(|(call, count)| injections(call, *count)) {
            replace_dir(&before, &home);
            let ran = self.under_strace(["-o", "/dev/null", "-e", &inject]);
            assert!(!ran.stderr.contains("panicked"), "{inject}: {ran:?}");
            hit += usize::from(!ran.status.success());
            testkit::wait_for_maintenance(&self.sandbox.root());
            self.check(&inject);
            self.check_end(&inject, &wanted);
        }
        hit
    }

    fn check_end(&self, inject: &str, wanted: &EndState) {
        let end = self.prune(inject);
        // A take that is killed may have made its checkpoint or not.
        if self.args[0] != "take" {
            assert_eq!((end.0, end.1, &end.3), (wanted.0, wanted.1, &wanted.3), "{inject}");
            // What is a delta of what depends on which packs were merged first.
            assert!(end.2.abs_diff(wanted.2) * 20 <= wanted.2, "{inject}: {} bytes, and {} otherwise", end.2, wanted.2);
        }
    }
}

fn kills(call: &str, count: usize) -> Vec<String> {
    if !CHANGING.contains(&call) {
        return Vec::new();
    }
    points(count).into_iter().map(|point| format!("inject={call}:signal=KILL:when={point}")).collect()
}

fn failures(call: &str, count: usize) -> Vec<String> {
    let errors = FAILING.iter().find(|(name, _)| *name == call).map_or(&[][..], |(_, errors)| *errors);
    let all = errors.iter().flat_map(|error| {
        points(count).into_iter().step_by(2).map(move |point| format!("inject={call}:error={error}:when={point}"))
    });
    let denied = ["unlink", "rename", "openat"].contains(&call).then_some(["EACCES", "EMFILE"]).into_iter().flatten();
    let denied = denied.filter(|error| call == "openat" || *error == "EACCES").flat_map(|error| {
        points(count).into_iter().step_by(2).map(move |point| format!("inject={call}:error={error}:when={point}"))
    });
    all.chain(denied).collect()
}

const PRUNE: &[&str] = &["prune", "--json"];

#[test]
fn a_prune_may_be_killed_before_any_system_call_and_the_next_finishes_it() {
    if has_program("strace") {
        let killed = Case::new(PRUNE, Vec::new(), 3_000).sweep(kills);
        assert!(killed >= 50, "only {killed} points");
    }
}

#[test]
fn automatic_maintenance_may_be_killed_before_any_system_call() {
    if has_program("strace") {
        let killed = Case::new(&["maintain", "--json"], Vec::new(), 3_000).sweep(kills);
        assert!(killed >= 50, "only {killed} points");
    }
}

#[test]
fn a_take_that_makes_room_may_be_killed_before_any_system_call() {
    if !has_program("strace") {
        return;
    }
    let mut case = Case::new(&["take", "--json"], vec![("PITON_MAX_TOTAL_SIZE_MB", "1")], 40_000);
    let newest = crate::kit::ids(&case.sandbox)[0].clone();
    case.must_stay.retain(|id, _| *id == newest);
    // More than what is dead, and less than what all but the newest hold besides.
    let room = (1 << 20) - testkit::space::bytes_below(&case.sandbox.store());
    let length = usize::try_from(room + 260_000).expect("not that much");
    case.sandbox.write("large", Dice::new(9).noise(length));
    fs::remove_file(case.sandbox.store().join("size")).expect("a note");
    // Maintenance beside it would be killed instead.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    fs::write(case.sandbox.base().join(".last_prune"), now.to_string()).expect("a mark");
    let aside = case.sandbox.root().join("aside");
    replace_dir(&case.sandbox.home(), &aside);
    assert_eq!(run(case.place(&mut clean_command(PITON)).args(case.args)).done().json()["outcome"], "taken");
    assert!(crate::kit::ids(&case.sandbox).len() < 5, "there was no room to be made");
    replace_dir(&aside, &case.sandbox.home());
    let killed = case.sweep(kills);
    assert!(killed >= 25, "only {killed} points");
}

#[test]
fn a_prune_survives_the_failure_of_any_call_that_writes() {
    if has_program("strace") {
        let failed = Case::new(PRUNE, Vec::new(), 3_000).sweep(failures);
        assert!(failed >= 20, "only {failed} failures");
    }
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
    let kept: Vec<_> = crate::kit::ids(&sandbox).into_iter().map(|id| (sandbox.held_by(&id), id)).collect();
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
    crate::kit::take_works(&sandbox);
}
