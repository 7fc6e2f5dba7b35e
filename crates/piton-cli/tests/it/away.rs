//! File systems that go away under a command, at any moment: a real one on a loop device, shut down while it is at work.
//! Where nothing can be mounted that way, these tests say so and pass.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use testkit::{Dice, Sandbox, clean_command, files_in, has_program};

use crate::fault_store::assert_held_or_reported;
use crate::kit::{Ran, command, ids, piton, spawn_piped, take_works};
use crate::restore_kill::prepare;
use crate::restore_kit::{assert_same, state_of};

/// So many commands must have been cut short.
const CUTS: usize = 3;
/// So many are tried: most end before or after.
const TRIES: usize = 60;

/// A file system of its own at a directory.
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
        // Both mkfs and e2fsck make one.
        self.run("mount", &["-t", "ext4", "-o", "loop"], &[&self.image, &self.at])
            && self.run("rm", &["-rf"], &[&self.at.join("lost+found")])
    }

    /// Every call on it fails from now on, and what was not synced is lost.
    fn go_away(&self) {
        assert!(self.run("xfs_io", &["-x", "-c", "shutdown"], &[&self.at]));
    }

    fn come_back(&self) {
        testkit::wait_for_maintenance(&self.at);
        assert!(self.run("umount", &[], &[&self.at]));
        // It says so if there was something to mend.
        let _ = self.run("e2fsck", &["-f", "-y"], &[&self.image]);
        assert!(self.attach());
    }

    /// Runs the command, and goes away while it is at work or soon after.
    fn goes_away_under(&self, sandbox: &Sandbox, after: Duration, args: &[&str]) -> Ran {
        let child = spawn_piped(command(sandbox).args(args));
        sleep(after);
        self.go_away();
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

/// Tries until so many were cut short, each after some time: more and more of it, as nobody knows how fast this machine is.
fn until_cut(what: &str, mut try_once: impl FnMut(Duration) -> bool) {
    let mut dice = Dice::new(11);
    let mut cuts = 0;
    for nth in 0..TRIES {
        cuts += usize::from(try_once(Duration::from_micros(dice.roll(8_000 + 1_000 * nth) as u64)));
        if cuts == CUTS {
            return;
        }
    }
    panic!("only {cuts} of {TRIES} {what} were cut short");
}

#[test]
fn a_store_that_goes_away_in_the_middle_of_a_take_loses_nothing_that_was_acknowledged() {
    let sandbox = Sandbox::new();
    let Some(disk) = Disk::mount(&sandbox, sandbox.base()) else { return };
    sandbox.tree("a.txt = one\n dir/b.txt");
    let mut known = vec![take_works(&sandbox)];
    let mut number = 0;
    until_cut("takes", |after| {
        number += 1;
        sandbox.write("a.txt", number.to_string());
        let ran = disk.goes_away_under(&sandbox, after, &["take", "--json"]);
        if ran.code() == 0 {
            known.push(ran.json()["id"].as_str().expect("an id").to_owned());
        }
        // While it is away, everything says so.
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
    let mut number = 0;
    until_cut("takes", |after| {
        number += 1;
        sandbox.write("dir-3/deep/file", number.to_string());
        let now = files_in(&sandbox.project());
        let ran = disk.goes_away_under(&sandbox, after, &["take", "--json"]);
        let mut is_cut = ran.code() != 0;
        if ran.code() == 0 {
            let report = ran.json();
            // What was left out is named; nothing at all is no checkpoint.
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
    until_cut("restores", |after| {
        assert!(disk.run("sync", &["-f"], &[&disk.at]));
        let ran = disk.goes_away_under(&sandbox, after, &["--json", "restore", &id]);
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
                // What could not be read when the first try began is left, and nothing is neither old nor new.
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
