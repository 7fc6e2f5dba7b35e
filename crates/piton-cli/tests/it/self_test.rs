//! `piton doctor --self-test`: on the file system of the tests, on others where they can be mounted, and with calls that
//! fail as they do on a file system that cannot do something.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::fuse::{FuseMount, Quirk};
use testkit::{Sandbox, clean_command, has_program};

use crate::kit::{PITON, Ran, command, interruptible, run, spawn_piped};

fn self_test(sandbox: &Sandbox, dir: &Path) -> Ran {
    run(command(sandbox).args(["doctor", "--json", "--self-test"]).arg(dir))
}

/// Like [`self_test`], with fewer kills: for what it says about the file system.
fn short_self_test(sandbox: &Sandbox, dir: &Path) -> Ran {
    run(command(sandbox).args(["doctor", "--json", "--kills", "3", "--self-test"]).arg(dir))
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("a list");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {report:#}"))
}

#[test]
fn every_promise_holds_here_and_nothing_is_left() {
    let sandbox = Sandbox::new();
    let report = self_test(&sandbox, &sandbox.project()).done().json();
    assert_eq!(report["ok"], true, "{report:#}");
    assert!(report["checks"].as_array().expect("a list").len() >= 14, "{report:#}");
    assert!(check(&report, "killed restore")["what"].as_str().expect("words").starts_with("killed "), "{report:#}");
    assert_eq!(fs::read_dir(sandbox.project()).expect("a directory").count(), 0, "it removes its directory");
    assert!(!sandbox.base().exists(), "the user's own store is not touched");
    let said = run(command(&sandbox).args(["doctor", "--self-test"])).done().stdout;
    assert!(said.contains("All promises hold here"), "{said}");
}

/// Each call that a poor file system refuses, the check that finds it, and its verdict.
#[test]
fn what_a_file_system_cannot_do_is_named() {
    if !has_program("strace") {
        return;
    }
    for (inject, name, verdict) in [
        ("renameat2:error=EINVAL", "exchange", "limited"),
        ("flock:error=ENOLCK", "locks", "failed"),
        ("fsync:error=EIO", "sync", "failed"),
        ("fchmod:error=EPERM", "modes", "failed"),
        ("symlinkat,symlink:error=EPERM", "links", "limited"),
        ("rename:error=EPERM", "rename", "failed"),
    ] {
        let sandbox = Sandbox::new();
        let mut strace = clean_command("strace");
        strace.args(["-qq", "-o", "/dev/null", "-e", &format!("inject={inject}"), PITON]);
        strace.args(["doctor", "--json", "--kills", "3", "--self-test"]).arg(sandbox.project());
        let ran = run(strace.env("HOME", sandbox.home()).current_dir(sandbox.root()));
        let report = ran.json();
        assert_eq!(check(&report, name)["verdict"], verdict, "{inject}: {report:#}");
        assert_eq!(report["ok"] == false, ran.code() == 1, "{inject}: {report:#}");
        if verdict == "failed" {
            assert_eq!(report["ok"], false, "{inject}");
        }
    }
}

/// A quirk, the check that finds it, its verdict, and words that it says. All other checks of the file system pass.
type QuirkCase = (Quirk, &'static str, &'static str, &'static str);

const NAME_QUIRKS: [QuirkCase; 5] = [
    (Quirk::FoldsCase, "case", "limited", "differ only in case are one file"),
    (Quirk::FoldsForms, "normalisation", "limited", "differ only in their Unicode form are one file"),
    (Quirk::StoresDecomposed, "normalisation", "limited", "listed in another form"),
    (Quirk::LossyNames, "names", "failed", "names are changed: colons, a dot at the end"),
    (Quirk::Utf8Only, "names", "limited", "no names with bytes that are not UTF-8"),
];
const WRITE_QUIRKS: [QuirkCase; 5] = [
    (Quirk::NoLocks, "locks", "failed", "locks do not work"),
    (Quirk::IdleLocks, "locks", "failed", "a second process gets it, too"),
    (Quirk::NoRename, "rename", "failed", "cannot be replaced"),
    (Quirk::NoExchange, "exchange", "limited", "cannot be exchanged"),
    (Quirk::NoSync, "sync", "failed", "cannot be synced"),
];
const NODE_QUIRKS: [QuirkCase; 4] = [
    (Quirk::NoModes, "modes", "failed", "permissions cannot be set"),
    (Quirk::NoLinks, "links", "limited", "there are no symbolic links"),
    (Quirk::CoarseTimes, "times", "limited", "times of files"),
    (Quirk::TextMode, "bytes", "failed", "changes contents"),
];

/// The checks that use piton, which fail where the file system fails.
const PROMISES: [&str; 3] = ["take and restore", "killed take", "killed restore"];

/// Runs the self-test on a file system with each of these quirks in turn.
fn with_quirks(quirks: &[QuirkCase]) {
    let sandbox = Sandbox::new();
    let dir = sandbox.root().join("fuse");
    for (quirk, name, verdict, words) in quirks {
        let Some(mounted) = FuseMount::new(&dir, &[*quirk]) else { return };
        let report = short_self_test(&sandbox, mounted.dir()).json();
        let found = check(&report, name);
        assert_eq!(found["verdict"], *verdict, "{quirk:?}: {report:#}");
        assert!(found["what"].as_str().is_some_and(|what| what.contains(words)), "{quirk:?}: {report:#}");
        assert_eq!(report["ok"], *verdict != "failed", "{quirk:?}: {report:#}");
        for other in report["checks"].as_array().expect("a list").iter().filter(|other| other["name"] != *name) {
            let is_promise = PROMISES.iter().any(|promise| other["name"] == *promise);
            // An exchange is a rename, too.
            let is_expected = *quirk == Quirk::NoRename && other["name"] == "exchange";
            let may_fail = is_expected || (is_promise && *verdict == "failed");
            assert!(other["verdict"] == "ok" || may_fail, "{quirk:?}: {report:#}");
        }
        let left: Vec<_> = fs::read_dir(&dir).expect("a directory").flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{quirk:?}: it removes its directory: {left:?}");
    }
}

#[test]
fn a_file_system_without_faults_keeps_every_promise_through_fuse() {
    let sandbox = Sandbox::new();
    let Some(mounted) = FuseMount::new(&sandbox.root().join("fuse"), &[]) else { return };
    let report = self_test(&sandbox, mounted.dir()).done().json();
    let all_ok = report["checks"].as_array().expect("a list").iter().all(|check| check["verdict"] == "ok");
    assert!(all_ok && report["ok"] == true, "{report:#}");
}

#[test]
fn what_is_said_about_names_is_right() {
    with_quirks(&NAME_QUIRKS);
}

#[test]
fn what_is_said_about_locks_renames_and_syncs_is_right() {
    with_quirks(&WRITE_QUIRKS);
}

#[test]
fn what_is_said_about_modes_links_times_and_bytes_is_right() {
    with_quirks(&NODE_QUIRKS);
}

/// Mounts a new file system of a kind on a file, and runs the self-test there.
fn on(sandbox: &Sandbox, kind: &str) -> Option<Value> {
    let (image, mount) = (sandbox.root().join(format!("{kind}.img")), sandbox.root().join(kind));
    fs::create_dir(&mount).expect("a directory");
    let ok = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    let is_mounted = match kind {
        "tmpfs" => ok(clean_command("mount").args(["-t", "tmpfs", "none"]).arg(&mount)),
        "overlay" => {
            // The upper directory of an overlay cannot be on an overlay, which the tests may run on.
            let tmpfs = mount.with_file_name("overlay-tmpfs");
            fs::create_dir(&tmpfs).expect("a directory");
            ok(clean_command("mount").args(["-t", "tmpfs", "none"]).arg(&tmpfs)) && {
                let [lower, upper, work] = ["lower", "upper", "work"].map(|name| tmpfs.join(name));
                [&lower, &upper, &work].into_iter().for_each(|dir| fs::create_dir(dir).expect("a directory"));
                let options =
                    format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
                ok(clean_command("mount").args(["-t", "overlay", "none", "-o", &options]).arg(&mount))
            }
        }
        kind => {
            let file = fs::File::create(&image).expect("a file");
            file.set_len(400 << 20).expect("room");
            ok(clean_command(format!("mkfs.{kind}")).arg("-q").arg(&image))
                && ok(clean_command("mount").args(["-o", "loop"]).arg(&image).arg(&mount))
        }
    };
    let report = is_mounted.then(|| self_test(sandbox, &mount).json());
    for dir in [&mount, &mount.with_file_name("overlay-tmpfs")] {
        let _ = clean_command("umount").arg(dir).output();
    }
    report
}

#[test]
fn the_promises_hold_on_other_file_systems() {
    for kind in ["tmpfs", "overlay", "ext4", "xfs", "btrfs"] {
        let sandbox = Sandbox::new();
        let Some(report) = on(&sandbox, kind) else {
            assert!(
                std::env::var_os("PITON_TEST_ALL").is_none(),
                "{kind} cannot be mounted, and PITON_TEST_ALL is set"
            );
            testkit::note_skipped(&format!("{kind} cannot be mounted"));
            continue;
        };
        assert_eq!(report["ok"], true, "{kind}: {report:#}");
        assert!(report["file_system"].as_str().is_some_and(|name| name.starts_with(kind)), "{kind}: {report:#}");
    }
}

/// A full disk says nothing about the file system.
#[test]
fn a_full_disk_is_an_error_and_no_verdict() {
    let sandbox = Sandbox::new();
    let full = sandbox.root().join("full");
    fs::create_dir(&full).expect("a directory");
    let mut mount = clean_command("mount");
    if !mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&full).output().is_ok_and(|ran| ran.status.success()) {
        return testkit::note_skipped("tmpfs cannot be mounted");
    }
    let report = short_self_test(&sandbox, &full).json();
    let left = fs::read_dir(&full).expect("a directory").count();
    let _ = clean_command("umount").arg(&full).output();
    assert_eq!((&report["error"]["kind"], left), (&Value::from("full"), 0), "{report:#}");
}

/// A test that was killed cannot remove its directory: the next one does. That of a test at work stays.
#[test]
fn the_directory_of_a_killed_test_is_removed_by_the_next_one() {
    let sandbox = Sandbox::new();
    let of_test = |name: &str| {
        let dir = sandbox.project().join(format!(".piton-self-test-{name}"));
        fs::create_dir_all(dir.join("exact/base")).expect("a directory");
        fs::File::create(dir.join("running")).expect("a file")
    };
    drop(of_test("killed"));
    let at_work = of_test("at-work");
    at_work.lock().expect("a lock");
    fs::create_dir(sandbox.project().join(".piton-self-test-mine")).expect("a directory");
    assert_eq!(short_self_test(&sandbox, &sandbox.project()).json()["ok"], true);
    let left = fs::read_dir(sandbox.project()).expect("a directory").flatten().map(|entry| entry.file_name());
    let left: std::collections::BTreeSet<_> = left.collect();
    assert_eq!(left, [".piton-self-test-at-work", ".piton-self-test-mine"].map(Into::into).into());
}

/// The directory of the test is removed after a signal, too.
#[test]
fn a_self_test_that_is_stopped_leaves_nothing_behind() {
    for signal in ["-INT", "-TERM"] {
        let sandbox = Sandbox::new();
        let mut command = command(&sandbox);
        let mut child = spawn_piped(&mut interruptible(command.args(["doctor", "--kills", "1000", "--self-test"])));
        let left = || fs::read_dir(sandbox.project()).expect("a directory").flatten().map(|entry| entry.path());
        // It is at work once the checks with kills have begun.
        while !left().any(|dir| dir.join("killed-take/base").is_dir()) {
            assert!(child.try_wait().expect("a process").is_none(), "it ended");
            std::thread::yield_now();
        }
        assert!(clean_command("kill").arg(signal).arg(child.id().to_string()).status().expect("it runs").success());
        assert!(!child.wait().expect("it ends").success());
        assert_eq!(left().collect::<Vec<_>>(), Vec::<PathBuf>::new(), "{signal}");
    }
}
