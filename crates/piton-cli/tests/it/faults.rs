//! Failures of the file system: a full or read-only disk, too few descriptors or threads, unreadable files, leftovers
//! of killed processes. Single calls that fail are in `fault_store`, `upkeep_kill` and others.
//!
//! On any failure, the command reports it in words, existing data stays intact, and the next take works.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use testkit::{Sandbox, clean_command, has_program};

use crate::kit::{PITON, Ran, ids, in_dir, piton, run, take_under_strace, take_works};

#[test]
fn a_take_does_without_the_threads_that_it_cannot_have() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    for nth in ["1", "2", "3", "1+"] {
        for n in 0..20 {
            sandbox.write(format!("{n}.txt"), format!("{nth} {n}"));
        }
        let inject = format!("inject=clone,clone3:error=EAGAIN:when={nth}");
        let ran = take_under_strace(&sandbox, ["-o", "/dev/null", "-e", &inject]).done();
        assert_eq!(ran.json()["outcome"], "taken");
        let id = take_works(&sandbox);
        assert_eq!(ran.json()["id"], Value::from(id));
    }
}

/// A separate file system for the base, unmounted on drop.
pub(crate) struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    /// Mounts a tmpfs. Returns `None` if this user may not mount.
    pub(crate) fn tmpfs(at: &'a Path, options: &str) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory");
        let mounted = mount(&["-t", "tmpfs", "-o", options, "tmpfs"], at);
        assert!(mounted || std::env::var_os("PITON_TEST_ALL").is_none(), "cannot mount, and PITON_TEST_ALL is set");
        mounted.then_some(Self(at))
    }

    pub(crate) fn remount(&self, options: &str) {
        assert!(mount(&["-o", &format!("remount,{options}")], self.0), "mounted before");
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = clean_command("umount").arg("-l").arg(self.0).status();
    }
}

fn mount(args: &[&str], at: &Path) -> bool {
    has_program("mount") && clean_command("mount").args(args).arg(at).output().is_ok_and(|done| done.status.success())
}

/// Returns bytes that do not compress.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect()
}

#[track_caller]
fn assert_full(ran: &Ran) {
    assert_eq!(ran.code(), 1, "{ran:?}");
    let error = &ran.json()["error"];
    assert_eq!(error["kind"], "full", "{ran:?}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("no space left")), "{ran:?}");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("free some disk space")), "{ran:?}");
}

#[test]
fn a_full_disk_is_named_and_costs_nothing_but_the_new_checkpoint() {
    let sandbox = Sandbox::new();
    let base = sandbox.base();
    let Some(disk) = Mounted::tmpfs(&base, "size=2m,mode=700") else { return };
    sandbox.write("a.bin", noise(1, 500_000));
    let old = take_works(&sandbox);
    sandbox.write("b.bin", noise(2, 3_000_000));
    assert_full(&piton(&sandbox, ["take", "--json"]));
    assert!(sandbox.temporary_files().is_empty(), "{:?}", sandbox.temporary_files());
    sandbox.assert_store_is_whole();
    assert_eq!(ids(&sandbox), [old.as_str()]);
    disk.remount("size=20m");
    take_works(&sandbox);
}

#[test]
fn a_disk_without_inodes_is_named_and_the_store_is_made_once_there_are_some() {
    let sandbox = Sandbox::new();
    let base = sandbox.base();
    for inodes in [4, 10, 16, 20, 24, 26, 28, 30] {
        let Some(disk) = Mounted::tmpfs(&base, &format!("size=2m,mode=700,nr_inodes={inodes}")) else { return };
        sandbox.write("a.txt", "a");
        let ran = piton(&sandbox, ["take", "--json"]);
        if ran.code() != 0 {
            assert_full(&ran);
        }
        disk.remount("nr_inodes=200");
        take_works(&sandbox);
        assert!(sandbox.temporary_files().is_empty(), "{:?}", sandbox.temporary_files());
    }
}

#[test]
fn a_read_only_store_is_read_and_says_why_it_takes_nothing() {
    let sandbox = Sandbox::new();
    let base = sandbox.base();
    let Some(disk) = Mounted::tmpfs(&base, "size=4m,mode=700") else { return };
    sandbox.tree("a.txt = one");
    let old = take_works(&sandbox);
    sandbox.tree("a.txt = two");
    disk.remount("ro");
    let ran = piton(&sandbox, ["take"]).failed(1);
    assert!(ran.stderr.contains("error: cannot ") && ran.stderr.contains("read-only"), "{ran:?}");
    assert_eq!(ids(&sandbox), [old.as_str()]);
    assert!(piton(&sandbox, ["show", "1"]).done().stdout.contains(&old));
    disk.remount("rw");
    take_works(&sandbox);
}

#[test]
fn few_descriptors_are_enough_or_the_error_says_so() {
    let sandbox = Sandbox::new();
    for n in 0..60 {
        sandbox.write(format!("dir-{n}/deep/er/file"), format!("{n}"));
    }
    for limit in 4..24 {
        let line = format!("ulimit -n {limit}; exec {PITON} take --json");
        let mut shell = clean_command("sh");
        let ran = run(shell.env("HOME", sandbox.home()).current_dir(sandbox.project()).args(["-c", &line]));
        assert!(!ran.stderr.contains("panicked"), "{limit}: {ran:?}");
        // With too few descriptors the program loader itself fails.
        if ran.code() == 0 {
            let report = ran.json();
            assert_eq!((&report["files"], &report["skipped"]), (&Value::from(60), &Value::from([""; 0])), "{limit}");
        } else if ran.code() != 127 {
            assert_eq!(ran.code(), 1, "{limit}: {ran:?}");
            assert!(ran.json()["error"]["message"].as_str().is_some_and(|text| text.starts_with("cannot ")), "{ran:?}");
        }
    }
    take_works(&sandbox);
}

/// However deep the tree is, few of its directories are open at a time.
#[test]
fn a_deep_tree_needs_no_more_descriptors_than_a_wide_one() {
    let sandbox = Sandbox::new();
    // Each directory has a sibling on both sides, for which its parent is kept open.
    let deep = (0..150).fold(String::new(), |path, _| {
        sandbox.write(format!("{path}a/file"), "1");
        sandbox.write(format!("{path}c/file"), "1");
        path + "b/"
    });
    sandbox.write(format!("{deep}file"), "1");
    let line = format!("ulimit -n 100; exec {PITON} take --json");
    let mut shell = clean_command("sh");
    let ran = run(shell.env("HOME", sandbox.home()).current_dir(sandbox.project()).args(["-c", &line])).done();
    assert_eq!(ran.json()["files"], 301);
}

/// Returns a command that runs as a user who may not read everything: `nobody`, if the tests run as root.
fn unprivileged(sandbox: &Sandbox) -> Option<Command> {
    if fs::metadata(sandbox.home()).expect("a home").uid() != 0 {
        return Some(in_dir(sandbox, &sandbox.project()));
    }
    if !has_program("setpriv") {
        return None;
    }
    // The program and the sandbox must be accessible to `nobody`.
    let copy = sandbox.copy_of_program(PITON, "");
    fs::set_permissions(sandbox.root(), Permissions::from_mode(0o755)).expect("permissions");
    clean_command("chown").arg("-R").arg("65534:65534").arg(sandbox.root()).status().expect("chown runs");
    let mut command = clean_command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(copy);
    command.env("HOME", sandbox.home()).current_dir(sandbox.project());
    Some(command)
}

#[test]
fn what_may_not_be_read_is_reported_and_the_rest_is_taken() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n secret\n closed/b.txt\n unlisted/c.txt\n open/d.txt");
    let Some(mut take) = unprivileged(&sandbox) else { return };
    sandbox.chmod("secret", 0o000);
    sandbox.chmod("closed", 0o000);
    sandbox.chmod("unlisted", 0o300);
    let ran = run(take.args(["take", "--json"])).done();
    let report = ran.json();
    assert_eq!((&report["outcome"], &report["files"]), (&Value::from("taken"), &Value::from(2)), "{report}");
    let left_out = |path: &str| {
        let found = report["skipped"].as_array().expect("a list").iter().find(|one| one["path"] == path);
        found.is_some_and(|one| one["why"] == "unreadable")
    };
    for path in ["secret", "closed/", "unlisted/"] {
        assert!(left_out(path), "{path}: {report}");
    }
    for dir in ["closed", "unlisted"] {
        sandbox.chmod(dir, 0o700);
    }
}

/// F3.
#[test]
fn what_killed_processes_left_is_swept_after_an_hour() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    take_works(&sandbox);
    let old = SystemTime::now() - Duration::from_secs(3700);
    let place = |name: &str, time| {
        for dir in ["", "info", "objects/pack", "indexes", "projects"] {
            let file = File::create(sandbox.store().join(dir).join(name)).expect("a file");
            file.set_modified(time).expect("a time");
        }
    };
    place("tmp_old", old);
    place("tmp_young", SystemTime::now());
    place("not_temporary", old);
    sandbox.tree("a.txt = two");
    take_works(&sandbox);
    let count = |name: &str| {
        let mut count = 0;
        testkit::walk(&sandbox.store(), &mut |path| count += usize::from(path.ends_with(name)));
        count
    };
    assert_eq!((count("tmp_old"), count("tmp_young"), count("not_temporary")), (0, 5, 5));
}
