//! System calls that hang, as on a network that has gone, or that are slow: the agent does not wait for them, and on a
//! slow disk the result is the same.

use std::fs;

use testkit::{Sandbox, clean_command, has_program};

use crate::hook_kit::{bash, checkpoints, hook, journal, prompt, send};
use crate::kit::{PITON, Ran, piton, take_works};

/// Runs a hook whose first such call on this path (on any path, if it is empty) hangs.
fn hook_that_hangs(sandbox: &Sandbox, call: &str, path: &str) -> Ran {
    // Longer than the deadline: a hook that waited for the call would take its checkpoint in the end and write nothing
    // to the journal. Only that call is intercepted; all others are as fast as usual.
    let mut strace = clean_command("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "--seccomp-bpf", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:delay_enter=3000000:when=1")]);
    if !path.is_empty() {
        strace.arg("-P").arg(sandbox.root().join(path));
    }
    strace.args([PITON, "hook", "claude"]).env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.root());
    strace.env("PITON_ENABLED", "1").env("PITON_DEADLINE_MS", "30");
    send(&mut strace, bash(sandbox, "s", "slow", "rm a.txt"))
}

/// H3.
#[test]
fn a_hook_keeps_its_deadline_whatever_hangs_and_what_it_missed_is_on_record() {
    if !has_program("strace") {
        return;
    }
    let cases = [
        ("statx", "project"),
        ("?open,openat2", "project"),
        ("readlink", "project"),
        ("getdents64", "project"),
        ("getdents64", "project/dir"),
        ("openat", "home/.hermes/config.yaml"),
        ("flock", ""),
        ("fsync", ""),
        ("renameat", ""),
    ];
    // They mostly wait. More at once would compete for processor time.
    for cases in cases.chunks(3) {
        std::thread::scope(|scope| {
            for (call, path) in cases {
                scope.spawn(move || assert_deadline_is_kept(call, path));
            }
        });
    }
}

fn assert_deadline_is_kept(call: &str, path: &str) {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n dir/b.txt");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t", "x"));
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints:\n  max_files: 1000\n").expect("a file");
    sandbox.write("a.txt", "two");
    let ran = hook_that_hangs(&sandbox, call, path);
    assert_eq!((ran.code(), ran.stdout.as_str()), (0, ""), "{call} {path}: {ran:?}");
    let is_taken = checkpoints(&sandbox, &["turn"]).len() > 1;
    assert!(!is_taken && journal(&sandbox).contains("turn=slow "), "{call} {path}: {}", journal(&sandbox));
    // No lock or partial state is left behind.
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "last", "rm a.txt"));
    assert_eq!(checkpoints(&sandbox, &["turn"]).last(), Some(&vec!["last".to_owned()]), "{call} {path}");
    sandbox.assert_store_is_whole();
}

#[test]
fn a_slow_disk_changes_nothing_but_the_time() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n dir/b.txt = two");
    let first = take_works(&sandbox);
    sandbox.tree("a.txt = three\n new.txt = four");
    let slowly = |args: &[&str]| -> Ran {
        let mut strace = clean_command("strace");
        let calls = "openat,openat2,getdents64,read,write,fsync,rename,renameat,renameat2,unlinkat,flock";
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={calls}:delay_enter=3000")]);
        strace.arg(PITON).args(args).env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.project());
        Ran::from(strace.output().expect("strace runs")).done()
    };
    let second = slowly(&["take", "--json"]).json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(sandbox.held_by(&second), testkit::files_in(&sandbox.project()));
    slowly(&["restore", &first, "--json"]);
    assert_eq!(testkit::files_in(&sandbox.project()), sandbox.held_by(&first));
    slowly(&["undo", "--json"]);
    assert_eq!(testkit::files_in(&sandbox.project()), sandbox.held_by(&second));
    slowly(&["prune", "--json"]);
    assert_eq!(
        slowly(&["verify", "--read-data", "--json"]).json(),
        piton(&sandbox, ["verify", "--read-data", "--json"]).json()
    );
    sandbox.assert_store_is_whole();
}
