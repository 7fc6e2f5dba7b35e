//! System calls that hang, as on a network that has gone: the agent does not wait for them.

use std::fs;
use std::path::Path;

use testkit::{Sandbox, clean_command, has_program};

use crate::hook_kit::{bash, checkpoints, hook, journal, prompt};
use crate::kit::{PITON, Ran};

/// A hook whose system calls on this path (on all, if there is none) hang, the first time.
fn slow_hook(sandbox: &Sandbox, calls: &str, path: Option<&Path>) -> Ran {
    // Longer than the deadline: whoever waits for it has its checkpoint in the end, and nothing in the journal.
    let mut strace = clean_command("strace");
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
