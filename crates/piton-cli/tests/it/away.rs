//! File systems that disappear under a command at any moment: a real one on a loop device, shut down while it is in
//! use. If nothing can be mounted that way, these tests say so and pass.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Dice, Sandbox, clean_command, files_in, has_program};

use crate::fault_store::assert_held_or_reported;
use crate::kit::{Ran, command, ids, piton, spawn_piped, take_works};
use crate::restore_kill::prepare;
use crate::restore_kit::{assert_same, state_of};

/// Number of commands that must have been interrupted.
const CUTS: usize = 3;
/// Maximum number of attempts: most commands end before or after the cut.
const TRIES: usize = 1_000;

/// A separate file system mounted at a directory.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    fn mount(sandbox: &Sandbox, at: PathBuf) -> Option<Self> {
        let disk = Self { image: sandbox.root().join("disk.img"), at };
        fs::create_dir_all(&disk.at).expect("a directory");
        fs::File::create(&disk.image).and_then(|file| file.set_len(32 << 20)).expect("a file");
        let has_all = ["mkfs.ext4", "e2fsck", "xfs_io", "mount"].iter().all(|program| has_program(program));
        if !has_all || !disk.run("mkfs.ext4", &["-q", "-F"], &[&disk.image]) || !disk.attach() {
            let _ = writeln!(std::io::stderr(), "skipped: no file system can be mounted from a file here");
            return None;
        }
        assert!(disk.run("chmod", &["700"], &[&disk.at]));
        Some(disk)
    }

    fn run(&self, program: &str, args: &[&str], paths: &[&Path]) -> bool {
        clean_command(program).args(args).args(paths).output().is_ok_and(|done| done.status.success())
    }

    fn attach(&self) -> bool {
        // Both mkfs and e2fsck create a `lost+found`.
        self.run("mount", &["-t", "ext4", "-o", "loop"], &[&self.image, &self.at])
            && self.run("rm", &["-rf"], &[&self.at.join("lost+found")])
    }

    fn come_back(&self) {
        testkit::wait_for_maintenance(&self.at);
        assert!(self.run("umount", &[], &[&self.at]));
        // Its exit code is not 0 if it repaired something.
        let _ = self.run("e2fsck", &["-f", "-y"], &[&self.image]);
        assert!(self.attach());
    }

    /// Runs the command and shuts the disk down when `moment` returns: every call on the disk fails from then on, and
    /// data that was not synced is lost.
    fn goes_away_under(&self, sandbox: &Sandbox, args: &[&str], moment: impl FnOnce(&mut Child)) -> Ran {
        // Started beforehand: starting a process takes longer than many commands run.
        let mut switch = spawn_piped(clean_command("xfs_io").arg("-x").arg(&self.at));
        let mut child = spawn_piped(command(sandbox).args(args));
        moment(&mut child);
        switch.stdin.take().expect("a pipe").write_all(b"shutdown\n").expect("it reads");
        assert!(switch.wait().expect("it ends").success());
        assert!(fs::write(self.at.join("probe"), "").is_err(), "the disk is still there");
        let ran: Ran = child.wait_with_output().expect("it ends").into();
        assert!(ran.status.code().is_some() && !ran.stderr.contains("panicked"), "{ran:?}");
        if ![0, 3].contains(&ran.code()) {
            let report = ran.json();
            let message = report["error"]["message"].as_str();
            assert!(message.is_some_and(|text| text.starts_with("cannot ")), "{ran:?}");
        }
        ran
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.run("umount", &["-l"], &[&self.at]);
    }
}

/// Tries until enough commands were interrupted. Panics after too many attempts.
fn until_cut(what: &str, mut try_once: impl FnMut() -> bool) {
    let mut cuts = 0;
    for _ in 0..TRIES {
        cuts += usize::from(try_once());
        if cuts == CUTS {
            return;
        }
    }
    panic!("only {cuts} of {TRIES} {what} were cut short");
}

/// Random delays within a take and shortly after it, based on the speed of this machine.
struct Delays {
    usual: Duration,
    dice: Dice,
}

impl Delays {
    /// Measures undisturbed takes, each of a changed file.
    fn measure(sandbox: &Sandbox, file: &str) -> Self {
        let mut times = [0, 1, 2].map(|number| {
            sandbox.write(file, format!("measured {number}"));
            let began = Instant::now();
            piton(sandbox, ["take", "--json"]).done();
            began.elapsed()
        });
        times.sort();
        Self { usual: times[1], dice: Dice::new(11) }
    }

    fn wait(&mut self) {
        let micros = usize::try_from(self.usual.as_micros()).expect("not that long");
        sleep(Duration::from_micros(self.dice.roll(micros * 3 / 2 + 1) as u64));
    }
}

/// Blocks until a restore has written its intent, or has ended. The intent is on another disk.
fn wait_for_intent(sandbox: &Sandbox, child: &mut Child) {
    let is_there = || {
        fs::read_dir(sandbox.store().join("restores")).is_ok_and(|dir| {
            dir.flatten().any(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
        })
    };
    while !is_there() && child.try_wait().expect("a process of ours").is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn a_store_that_goes_away_in_the_middle_of_a_take_loses_nothing_that_was_acknowledged() {
    let sandbox = Sandbox::new();
    let Some(disk) = Disk::mount(&sandbox, sandbox.base()) else { return };
    sandbox.tree("a.txt = one\n dir/b.txt");
    let mut known = vec![take_works(&sandbox)];
    let mut delays = Delays::measure(&sandbox, "a.txt");
    let mut number = 0;
    until_cut("takes", || {
        number += 1;
        sandbox.write("a.txt", number.to_string());
        let ran = disk.goes_away_under(&sandbox, &["take", "--json"], |_| delays.wait());
        if ran.code() == 0 {
            known.push(ran.json()["id"].as_str().expect("an id").to_owned());
        }
        // While the disk is gone, every command reports it.
        assert_ne!(piton(&sandbox, ["take", "--json"]).code(), 0);
        disk.come_back();
        sandbox.assert_store_is_whole();
        known.push(take_works(&sandbox));
        let listed = ids(&sandbox);
        let newest = known.iter().rev().take(5);
        assert!(newest.clone().all(|id| listed.contains(id)), "{known:?} {listed:?}");
        ran.code() != 0
    });
}

#[test]
fn a_project_that_goes_away_in_the_middle_of_a_take_is_not_taken_for_empty() {
    let sandbox = Sandbox::new();
    let Some(disk) = Disk::mount(&sandbox, sandbox.project()) else { return };
    for number in 0..200 {
        sandbox.write(format!("dir-{number}/deep/file"), number.to_string());
    }
    take_works(&sandbox);
    let mut delays = Delays::measure(&sandbox, "dir-3/deep/file");
    let mut number = 0;
    until_cut("takes", || {
        number += 1;
        sandbox.write("dir-3/deep/file", number.to_string());
        let now = files_in(&sandbox.project());
        let ran = disk.goes_away_under(&sandbox, &["take", "--json"], |_| delays.wait());
        let mut is_cut = ran.code() != 0;
        if ran.code() == 0 {
            let report = ran.json();
            // A take that succeeds has a checkpoint, and its report names the files that were left out.
            let id = report["id"].as_str().unwrap_or_else(|| panic!("{report}"));
            assert_held_or_reported(&sandbox.held_by(id), &now, &report, "while it was away");
            is_cut = report["skipped"].as_array().is_some_and(|skipped| !skipped.is_empty());
        }
        let gone = piton(&sandbox, ["-C", "/", "prune", "--json"]).done().json();
        assert_eq!((&gone["deleted_orphan"], &gone["deleted_stale"]), (&Value::from(0), &Value::from(0)));
        disk.come_back();
        let newest = take_works(&sandbox);
        assert_eq!(sandbox.held_by(&newest), files_in(&sandbox.project()));
        is_cut
    });
}

#[test]
fn a_project_that_goes_away_in_the_middle_of_a_restore_can_be_finished_or_taken_back() {
    let sandbox = Sandbox::new();
    let Some(disk) = Disk::mount(&sandbox, sandbox.project()) else { return };
    let (id, target) = prepare(&sandbox);
    let before = state_of(&sandbox.project());
    let taken = piton(&sandbox, ["take", "--json"]).done().json();
    let before_id = taken["id"].as_str().expect("an id");
    let mut flags = ["--abort", "--continue"].into_iter().cycle();
    until_cut("restores", || {
        assert!(disk.run("sync", &["-f"], &[&disk.at]));
        let ran = disk.goes_away_under(&sandbox, &["--json", "restore", &id], |child| {
            wait_for_intent(&sandbox, child);
        });
        disk.come_back();
        let found = state_of(&sandbox.project());
        assert!(ran.code() != 0 || found == target, "{ran:?}");
        let is_cut = piton(&sandbox, ["rollback"]).stderr.contains("was cut short");
        if is_cut {
            let flag = flags.next().expect("one of two");
            let ended = piton(&sandbox, ["restore", flag]);
            let found = state_of(&sandbox.project());
            match (flag, ended.code()) {
                ("--abort", 0 | 3) => assert_same(&found, &before, flag),
                ("--continue", 0) => assert_same(&found, &target, flag),
                // Files that could not be read when the first attempt began are left alone, and every file is either
                // old or new.
                ("--continue", 3) => {
                    let is_known = |(path, what)| [&before, &target].iter().any(|all| all.get(path) == Some(what));
                    assert!(found.iter().all(is_known), "{found:?}");
                }
                _ => panic!("{ended:?}"),
            }
        } else if found != before {
            assert_same(&found, &target, "it came to its end");
        }
        piton(&sandbox, ["restore", before_id]).done();
        assert_same(&state_of(&sandbox.project()), &before, "what was taken before");
        is_cut
    });
}
