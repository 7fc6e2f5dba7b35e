//! A restore that is cut short: killed at every system call that changes something, and by a full disk.
//!
//! `PITON_CRASH_POINTS` says at how many calls; without it, as many as fit into a minute.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use testkit::{Sandbox, clean_command, has_program};

use crate::restore_kit::{State, assert_same, difference, exits, in_sandbox, json, leftovers, piton, state_of, text};

/// Between two of these nothing changes, neither in the project nor in the store.
const CHANGING: &str = "openat,write,pwrite64,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,symlinkat,\
    link,linkat,chmod,fchmod,fchmodat,ftruncate,fsync,fdatasync,syncfs,utimensat,flock";

/// Whether strace is there and may be used.
fn can_trace() -> bool {
    let traces = has_program("strace")
        && clean_command("strace").args(["-o", "/dev/null", "true"]).output().is_ok_and(|ran| ran.status.success());
    if !traces {
        skips("strace cannot be used here");
    }
    traces
}

fn skips(why: &str) {
    assert!(std::env::var_os("PITON_TEST_ALL").is_none(), "PITON_TEST_ALL is set, and {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Everything that a restore can have to do. Returns the checkpoint to restore, and what it holds.
fn prepare(sandbox: &Sandbox) -> (String, State) {
    sandbox
        .tree("changed = 1\n gone = 1\n deep/er/gone = 1\n deep/er/changed = 1\n link -> one\n dir-to-file/in/x = 1");
    sandbox.tree(
        "file-to-dir = 1\n mode = 1\n empty/in/\n *run = 1\n .gitignore = *.ig\\n\n kept.ig = 1\n link-to-file -> x",
    );
    sandbox.tree("dir-mode/x = 1\n to-link = 1");
    for (path, mode) in [("mode", 0o600), ("dir-mode", 0o700), ("deep/er/gone", 0o444), ("empty", 0o750)] {
        sandbox.chmod(path, mode);
    }
    sandbox.write("large", vec![b'x'; 300_000]);
    let (id, before) =
        (json(sandbox, &["take"], 0)["id"].as_str().expect("an id").to_owned(), state_of(&sandbox.project()));
    for path in ["gone", "deep/er/gone", "link", "file-to-dir", "link-to-file", "to-link"] {
        fs::remove_file(sandbox.path(path)).expect("a file");
    }
    for path in ["dir-to-file", "empty"] {
        fs::remove_dir_all(sandbox.path(path)).expect("a directory");
    }
    sandbox.tree("changed = 2\n deep/er/changed = 2\n link -> two\n dir-to-file = 2\n file-to-dir/a/b = 2\n made = 2");
    sandbox
        .tree("made-dir/sub/one = 2\n made-dir/two = 2\n made-empty/\n kept.ig = 2\n link-to-file = 2\n to-link -> y");
    sandbox.write("large", vec![b'y'; 300_000]);
    for (path, mode) in [("mode", 0o644), ("run", 0o644), ("dir-mode", 0o755), ("made-dir", 0o700)] {
        sandbox.chmod(path, mode);
    }
    // What is ignored stays as it is now.
    let mut target = before;
    target.insert(b"kept.ig".to_vec(), state_of(&sandbox.project())[&b"kept.ig"[..]].clone());
    (id, target)
}

/// Runs the command under strace, which kills it at a call.
fn restore_killed_at(sandbox: &Sandbox, what: &str, point: Option<&Point>, log: &Path) -> std::process::ExitStatus {
    let mut command = clean_command("strace");
    command.args(["-f", "-o"]).arg(log).args(["-e", &format!("trace={CHANGING}")]);
    if let Some((name, count)) = point {
        command.args(["-e", &format!("inject={name}:signal=KILL:when={count}")]);
    }
    command.arg(env!("CARGO_BIN_EXE_piton")).args(["restore", what]);
    in_sandbox(sandbox, &mut command).output().expect("strace runs").status
}

/// The project and the base, to be put back under the same paths: the name of a project is made from its path.
struct Aside(Vec<(PathBuf, PathBuf)>);

impl Aside {
    fn copy(sandbox: &Sandbox, name: &str) -> Self {
        let pairs = [sandbox.project(), sandbox.home()].map(|dir| (dir.clone(), dir.with_extension(name)));
        for (dir, aside) in &pairs {
            let _ = fs::remove_dir_all(aside);
            copy(dir, aside);
        }
        Self(pairs.into())
    }

    fn put_back(&self) {
        for (dir, aside) in &self.0 {
            fs::remove_dir_all(dir).expect("the old one");
            copy(aside, dir);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    assert!(clean_command("cp").arg("-a").args([from, to]).status().expect("cp runs").success());
}

#[test]
fn a_kill_at_any_call_leaves_a_restore_that_can_be_finished_or_taken_back() {
    if !can_trace() {
        return;
    }
    let sandbox = Sandbox::new();
    let (id, target) = prepare(&sandbox);
    let before = state_of(&sandbox.project());
    let start = Aside::copy(&sandbox, "start");
    let log = sandbox.root().join("log");
    assert!(restore_killed_at(&sandbox, &id, None, &log).success());
    assert_same(&state_of(&sandbox.project()), &target, "without a kill");
    let calls = calls_in(&log);
    let points = std::env::var("PITON_CRASH_POINTS").ok().and_then(|points| points.parse().ok()).unwrap_or(200);
    let (mut cut_short, mut partly) = (0, 0);
    // The beginning is the same for all commands: libraries, the configuration.
    for (number, point) in calls.iter().rev().take(points).enumerate() {
        let when = format!("{} {}", point.0, point.1);
        start.put_back();
        restore_killed_at(&sandbox, &id, Some(point), &log);
        let found = state_of(&sandbox.project());
        let list = exits(&sandbox, &["rollback"], 0);
        if !text(&list.stderr).contains("was cut short") {
            let is_whole = found == before || found == target;
            assert!(is_whole, "killed at {when}, and nobody says so: {}", difference(&found, &target));
            assert_eq!(leftovers(&sandbox), [""; 0], "killed at {when}");
            continue;
        }
        cut_short += 1;
        partly += usize::from(found != before && found != target);
        exits(&sandbox, &["restore", "1"], 2);
        exits(&sandbox, &["undo"], 2);
        assert_same(&state_of(&sandbox.project()), &found, &format!("refused at {when}"));
        let killed = Aside::copy(&sandbox, "killed");
        for (flag, want) in [("--continue", &target), ("--abort", &before)] {
            if flag == "--abort" {
                killed.put_back();
            }
            let output = piton(&sandbox, &["restore", flag]);
            let words = format!("{flag} after a kill at {when}: {}{}", text(&output.stdout), text(&output.stderr));
            assert_same(&state_of(&sandbox.project()), want, &words);
            assert_eq!(output.status.code(), Some(0), "{words}");
            assert!(!text(&exits(&sandbox, &["rollback"], 0).stderr).contains("cut short"), "{words}");
            if number % 10 == 0 && flag == "--continue" {
                exits(&sandbox, &["undo"], 0);
                assert_same(&state_of(&sandbox.project()), &before, &format!("undo after {words}"));
            }
        }
    }
    assert!(cut_short > 40 && partly > 30, "{cut_short} of {} kills cut it short, {partly} in the middle", calls.len());
    sandbox.assert_store_is_whole();
}

#[test]
fn going_on_or_back_can_be_killed_like_the_restore_itself() {
    if !can_trace() {
        return;
    }
    let sandbox = Sandbox::new();
    let (id, target) = prepare(&sandbox);
    let before = state_of(&sandbox.project());
    let log = sandbox.root().join("log");
    restore_killed_at(&sandbox, &id, Some(&("symlinkat".to_owned(), 1)), &log);
    let found = state_of(&sandbox.project());
    assert!(found != before && found != target, "killed in the middle");
    let killed = Aside::copy(&sandbox, "killed");
    for (flag, points) in [("--continue", 20), ("--abort", 20)] {
        killed.put_back();
        assert!(restore_killed_at(&sandbox, flag, None, &log).success(), "{flag}");
        let calls = calls_in(&log);
        // From the last ones backwards, in steps.
        for point in calls.iter().rev().step_by((calls.len() / 2 / points).max(1)).take(points) {
            for (last, want) in [("--continue", &target), ("--abort", &before)] {
                killed.put_back();
                restore_killed_at(&sandbox, flag, Some(point), &log);
                let output = piton(&sandbox, &["restore", last]);
                let words = format!("{flag}, killed at {point:?}, then {last}: {}", text(&output.stderr));
                // What was killed in its very end is over. Going on with going back is going back.
                let is_over = output.status.code() == Some(4);
                let now = state_of(&sandbox.project());
                let goes_back = flag == "--abort" && now == before;
                let want = if goes_back || (is_over && flag == "--abort") { &before } else { want };
                assert_same(&now, if is_over && flag == "--continue" { &target } else { want }, &words);
                assert!(is_over || output.status.success(), "{words}");
            }
        }
    }
}

/// A call by its name, and which one of this name it is in its thread: so strace counts.
type Point = (String, usize);

/// The calls that were made, in their order.
fn calls_in(log: &Path) -> Vec<Point> {
    let log = fs::read_to_string(log).expect("what strace wrote");
    let mut counts = std::collections::HashMap::<(&str, &str), usize>::new();
    let mut calls: Vec<Point> = Vec::new();
    for line in log.lines().filter(|line| !line.contains("resumed>")) {
        let Some((thread, name)) = line.split_once('(').and_then(|(start, _)| start.split_once(' ')) else { continue };
        let count = counts.entry((thread, name.trim())).or_default();
        *count += 1;
        let call = (name.trim().to_owned(), *count);
        if !calls.contains(&call) {
            calls.push(call);
        }
    }
    calls
}

/// A file system of a megabyte, for as long as this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Option<Self> {
        let mount = clean_command("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&at).output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = clean_command("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_in_the_middle_is_partly_done_and_undone() {
    let sandbox = Sandbox::new();
    let Some(_disk) = SmallDisk::mount(sandbox.project()) else {
        return skips("nothing can be mounted here");
    };
    sandbox.tree(".gitignore = *.ig\\n\n small = 1");
    for n in 0..8 {
        sandbox.write(format!("dir{}/{n}", n % 2), vec![b'0' + n; 90_000]);
    }
    let id = json(&sandbox, &["take"], 0)["id"].as_str().expect("an id").to_owned();
    let target = state_of(&sandbox.project());
    for n in 0..8 {
        fs::remove_file(sandbox.path(format!("dir{}/{n}", n % 2))).expect("a file");
    }
    sandbox.write("small", "2");
    sandbox.write("dir0/made", "2");
    sandbox.write("filler.ig", vec![b'f'; 700_000]);
    let before = state_of(&sandbox.project());
    let report = json(&sandbox, &["restore", &id], 3);
    let left = report["left"].as_array().expect("a list");
    let written = report["written"].as_u64().expect("a count");
    assert!(written > 0 && !left.is_empty(), "{report}");
    assert_eq!(written + left.len() as u64, 9, "{report}");
    assert!(left.iter().all(|left| left["why"] == "failed"), "{report}");
    let now = state_of(&sandbox.project());
    for left in left {
        assert!(!now.contains_key(left["path"].as_str().expect("a path").as_bytes()), "half a file: {left}");
    }
    assert_eq!(leftovers(&sandbox), [""; 0]);
    exits(&sandbox, &["undo"], 0);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
    fs::remove_file(sandbox.path("filler.ig")).expect("a file");
    exits(&sandbox, &["restore", &id], 0);
    assert_same(&state_of(&sandbox.project()), &target, "with space again");
}
