//! File systems that hang, and that go away under a command: a real one on a loop device, shut down in the middle. Where
//! nothing can be mounted these tests say so and pass.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testkit::{Sandbox, clean_command, files_in, has_program};

use crate::fault_store::assert_held_or_reported;
use crate::hook_kit::{bash, checkpoints, hook, journal, prompt};
use crate::kit::{PITON, Ran, ids, in_dir, piton, run, take_works};
use crate::restore_kill::prepare;
use crate::restore_kit::{assert_same, exits, state_of, text};

/// A file system of its own at a directory.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    fn mount(sandbox: &Sandbox, at: PathBuf) -> Option<Self> {
        let image = sandbox.root().join("disk.img");
        fs::create_dir_all(&at).expect("a directory");
        let disk = Self { image, at };
        fs::File::create(&disk.image).and_then(|file| file.set_len(32 << 20)).expect("a file");
        let is_there = ["mkfs.ext4", "e2fsck", "xfs_io", "mount", "strace"].iter().all(|program| has_program(program))
            && disk.run("mkfs.ext4", &["-q", "-F"], &[&disk.image])
            && disk.run("mount", &["-t", "ext4", "-o", "loop"], &[&disk.image, &disk.at]);
        assert!(is_there || std::env::var_os("PITON_TEST_ALL").is_none(), "cannot mount, and PITON_TEST_ALL is set");
        if !is_there {
            let _ = writeln!(std::io::stderr(), "skipped: nothing can be mounted here");
            return None;
        }
        let _ = fs::remove_dir(disk.at.join("lost+found"));
        clean_command("chmod").arg("700").arg(&disk.at).status().expect("chmod runs");
        Some(disk)
    }

    fn run(&self, program: &str, args: &[&str], paths: &[&Path]) -> bool {
        clean_command(program).args(args).args(paths).output().is_ok_and(|done| done.status.success())
    }

    /// Every call on it fails from now on, and what was not synced is lost.
    fn go_away(&self) {
        assert!(self.run("xfs_io", &["-x", "-c", "shutdown"], &[&self.at]));
    }

    fn come_back(&self) {
        testkit::wait_for_maintenance(&self.at);
        assert!(self.run("umount", &[], &[&self.at]));
        let _ = self.run("e2fsck", &["-f", "-y"], &[&self.image]);
        assert!(self.run("mount", &["-t", "ext4", "-o", "loop"], &[&self.image, &self.at]));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.run("umount", &["-l"], &[&self.at]);
    }
}

/// A command that was stopped before one of its system calls.
struct Stopped {
    strace: Child,
    pid: String,
}

impl Stopped {
    /// `None` where it came to its end before.
    fn before(sandbox: &Sandbox, call: &str, nth: usize, args: &[&str]) -> Option<Self> {
        let log = sandbox.root().join("stop.log");
        let _ = fs::remove_file(&log);
        let mut strace = clean_command("strace");
        strace.args([
            "-f",
            "-qq",
            "-e",
            &format!("trace={call}"),
            "-e",
            &format!("inject={call}:signal=STOP:when={nth}"),
        ]);
        strace.arg("-o").arg(&log).arg(PITON).args(args);
        strace.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.project());
        let mut strace = strace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("strace runs");
        let children = format!("/proc/{0}/task/{0}/children", strace.id());
        loop {
            let pid = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
            // The thread that makes the call is through with it when it stands still.
            let stands = format!("{pid} --- stopped by SIGSTOP ---");
            if !pid.is_empty() && fs::read_to_string(&log).unwrap_or_default().contains(&stands) {
                return Some(Self { strace, pid });
            }
            if strace.try_wait().expect("a child").is_some() {
                return None;
            }
            std::thread::yield_now();
        }
    }

    fn signal(&self, name: &str) {
        assert!(clean_command("kill").args([&format!("-{name}"), &self.pid]).status().expect("kill runs").success());
    }

    /// Lets it go on to its end.
    fn go_on(self) -> Ran {
        self.signal("CONT");
        self.strace.wait_with_output().expect("it ends").into()
    }
}

fn assert_honest(ran: &Ran, when: &str) {
    assert!(ran.status.code().is_some() && !ran.stderr.contains("panicked"), "{when}: {ran:?}");
    if ran.code() != 0 && ran.code() != 3 {
        let report = ran.json();
        assert!(report["error"]["message"].as_str().is_some_and(|text| text.starts_with("cannot ")), "{when}: {ran:?}");
    }
}

#[test]
fn a_store_that_goes_away_in_the_middle_of_a_take_loses_nothing_that_was_acknowledged() {
    let sandbox = Sandbox::new();
    let Some(disk) = Disk::mount(&sandbox, sandbox.base()) else { return };
    sandbox.tree("a.txt = one\n dir/b.txt");
    let mut known = vec![take_works(&sandbox)];
    let mut failed = 0;
    for (call, nth) in
        [("write", 2), ("fsync", 1), ("fsync", 2), ("fsync", 3), ("renameat", 1), ("renameat", 3), ("rename", 1)]
    {
        let when = format!("{call} {nth}");
        sandbox.write("a.txt", &when);
        let Some(stopped) = Stopped::before(&sandbox, call, nth, &["take", "--json"]) else { continue };
        disk.go_away();
        let ran = stopped.go_on();
        assert_honest(&ran, &when);
        failed += usize::from(ran.code() != 0);
        if ran.code() == 0 {
            known.push(ran.json()["id"].as_str().expect("an id").to_owned());
        }
        // While it is away, everything says so.
        assert_ne!(piton(&sandbox, ["take", "--json"]).code(), 0, "{when}");
        disk.come_back();
        sandbox.assert_store_is_whole();
        known.push(take_works(&sandbox));
        let listed = ids(&sandbox);
        assert!(known.iter().all(|id| listed.contains(id)), "{when}: {listed:?}");
    }
    assert!(failed >= 4, "only {failed} takes were cut short");
}

#[test]
fn a_project_that_goes_away_in_the_middle_of_a_take_is_not_taken_for_empty() {
    let sandbox = Sandbox::new();
    let Some(disk) = Disk::mount(&sandbox, sandbox.project()) else { return };
    for number in 0..8 {
        sandbox.write(format!("dir-{number}/deep/file"), number.to_string());
    }
    let old = take_works(&sandbox);
    for (call, nth) in
        [("openat2", 1), ("openat2", 3), ("getdents64", 1), ("getdents64", 9), ("statx", 12), ("fsync", 1)]
    {
        let when = format!("{call} {nth}");
        sandbox.write("dir-3/deep/file", &when);
        let now = files_in(&sandbox.project());
        let Some(stopped) = Stopped::before(&sandbox, call, nth, &["take", "--json"]) else { continue };
        disk.go_away();
        let ran = stopped.go_on();
        assert_honest(&ran, &when);
        if ran.code() == 0 {
            let report = ran.json();
            // What was left out is named; nothing at all is no checkpoint.
            let id = report["id"].as_str().unwrap_or_else(|| panic!("{when}: {report}"));
            assert_held_or_reported(&sandbox.held_by(id), &now, &report, &when);
        }
        let gone = piton(&sandbox, ["-C", "/", "prune", "--json"]).done().json();
        assert_eq!((&gone["deleted_orphan"], &gone["deleted_stale"]), (&Value::from(0), &Value::from(0)), "{when}");
        disk.come_back();
        take_works(&sandbox);
        assert!(ids(&sandbox).contains(&old), "{when}");
    }
}

#[test]
fn a_project_that_goes_away_in_the_middle_of_a_restore_can_be_finished_or_taken_back() {
    for (call, nth, flag) in [
        ("renameat2", 1, "--abort"),
        ("symlinkat", 1, "--continue"),
        ("unlinkat", 3, "--abort"),
        ("syncfs", 1, "--continue"),
    ] {
        let sandbox = Sandbox::new();
        let Some(disk) = Disk::mount(&sandbox, sandbox.project()) else { return };
        let (id, target) = prepare(&sandbox);
        let before = state_of(&sandbox.project());
        clean_command("sync").arg("-f").arg(sandbox.project()).status().expect("sync runs");
        let when = format!("{call} {nth}");
        let stopped = Stopped::before(&sandbox, call, nth, &["--json", "restore", &id]);
        let stopped = stopped.unwrap_or_else(|| panic!("{when} never came"));
        disk.go_away();
        let ran = stopped.go_on();
        assert_honest(&ran, &when);
        disk.come_back();
        let found = state_of(&sandbox.project());
        assert!(ran.code() != 0 || found == target, "{when}: {ran:?}");
        let list = exits(&sandbox, &["rollback"], 0);
        let when = format!("{when}: {ran:?} {}", text(&list.stderr));
        if text(&list.stderr).contains("was cut short") {
            exits(&sandbox, &["restore", flag], 0);
            let want = if flag == "--abort" { &before } else { &target };
            assert_same(&state_of(&sandbox.project()), want, &when);
        } else if found != before {
            assert_same(&found, &target, &when);
        }
    }
}

#[test]
fn a_take_that_hangs_holds_up_nobody_but_its_own_project() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    let old = take_works(&sandbox);
    sandbox.tree("a.txt = two");
    let other = sandbox.other_project("other");
    for (call, nth) in [("openat2", 1), ("fsync", 1), ("renameat", 1)] {
        let stopped = Stopped::before(&sandbox, call, nth, &["take", "--json"]).expect("it is stopped");
        fs::write(other.join("b.txt"), format!("{call} {nth}")).expect("a file");
        assert_eq!(run(in_dir(&sandbox, &other).args(["take", "--json"])).done().json()["outcome"], "taken");
        assert!(ids(&sandbox).contains(&old));
        piton(&sandbox, ["status", "--json"]).done();
        let mut waiting = in_dir(&sandbox, &sandbox.project());
        waiting.arg("hook").arg("claude").env("PITON_ENABLED", "1").env("PITON_DEADLINE_MS", "30");
        let ran = crate::hook_kit::send(&mut waiting, bash(&sandbox, "s", call, "rm a.txt"));
        assert_eq!((ran.code(), ran.stdout.as_str()), (0, ""), "{ran:?}");
        assert!(journal(&sandbox).contains(&format!("turn={call} ")), "{}", journal(&sandbox));
        stopped.signal("KILL");
        stopped.strace.wait_with_output().expect("it ends");
        take_works(&sandbox);
        sandbox.write("a.txt", call);
    }
}

/// A hook whose system calls on this path (on all, if there is none) hang, the first time.
fn slow_hook(sandbox: &Sandbox, calls: &str, path: Option<&Path>) -> Ran {
    // Longer than the deadline: whoever waits for it has its checkpoint in the end, and nothing in the journal.
    let mut strace: Command = clean_command("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={calls}:delay_enter=3000000:when=1")]);
    if let Some(path) = path {
        strace.arg("-P").arg(path);
    }
    strace.args([PITON, "hook", "claude"]).env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.root());
    strace.env("PITON_ENABLED", "1").env("PITON_DEADLINE_MS", "30");
    crate::hook_kit::send(&mut strace, bash(sandbox, "s", "slow", "rm a.txt"))
}

#[test]
fn a_hook_keeps_its_deadline_whatever_hangs_and_what_it_missed_is_on_record() {
    if !has_program("strace") {
        return;
    }
    // What hangs: a call on a path below the project or the home, or any such call.
    let cases = [
        ("statx", "project"),
        ("openat", "project"),
        ("readlink", "project"),
        ("getdents64", "project"),
        ("getdents64", "project/dir"),
        ("openat", "home/.hermes/config.yaml"),
        ("flock", ""),
        ("fsync", ""),
        ("renameat", ""),
    ];
    std::thread::scope(|scope| {
        let workers = cases.map(|(calls, path)| scope.spawn(move || assert_deadline_is_kept(calls, path)));
        for worker in workers {
            worker.join().expect("a deadline that is kept");
        }
    });
}

fn assert_deadline_is_kept(calls: &str, path: &str) {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n dir/b.txt");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t", "x"));
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints:\n  max_files: 1000\n").expect("a file");
    sandbox.write("a.txt", "two");
    let ran = slow_hook(&sandbox, calls, Some(sandbox.root().join(path)).filter(|_| !path.is_empty()).as_deref());
    assert_eq!((ran.code(), ran.stdout.as_str()), (0, ""), "{calls} {path}: {ran:?}");
    let is_taken = checkpoints(&sandbox, &["turn"]).len() > 1;
    assert!(!is_taken && journal(&sandbox).contains("turn=slow "), "{calls} {path}: {}", journal(&sandbox));
    // Nothing is left of it.
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "last", "rm a.txt"));
    assert_eq!(checkpoints(&sandbox, &["turn"]).last(), Some(&vec!["last".to_owned()]), "{calls} {path}");
    sandbox.assert_store_is_whole();
}
