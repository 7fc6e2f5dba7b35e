//! Versions of a kept file beyond the limits: which are released, and when.

use std::fs;
use std::path::PathBuf;

use testkit::Sandbox;

use crate::hook_kit::{bash, hook_command, prompt, send};
use crate::kept_kit::{execute, kept_files, with_settings};

/// Lets an agent run a command while copies may take one megabyte in all.
fn agent_runs(sandbox: &Sandbox, line: &str) {
    for event in [prompt(sandbox, "s", "p1", "go"), bash(sandbox, "s", "p1", line)] {
        let mut hook = hook_command(sandbox, &["claude"]);
        let ran = send(with_settings(&mut hook).env("PITON_KEEP_TOTAL_SIZE_MB", "1"), event);
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
    }
    execute(sandbox, line);
}

/// Contents of this many tenths of a megabyte.
fn tenths(count: usize, byte: u8) -> Vec<u8> {
    vec![byte; count * (1 << 20) / 10]
}

/// Returns the first byte of each kept file.
fn kept(sandbox: &Sandbox) -> Vec<u8> {
    let first = |path: PathBuf| fs::read(path).expect("a file").first().copied().unwrap_or_default();
    let mut all: Vec<u8> = kept_files(sandbox).into_iter().map(first).collect();
    all.sort_unstable();
    all
}

fn world() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("main.rs", "fn main() {}\n");
    sandbox
}

#[test]
fn a_version_that_is_linked_takes_no_room_from_older_copies() {
    let sandbox = world();
    let path = sandbox.home().join("f");
    fs::write(&path, tenths(7, b'a')).expect("a file");
    agent_runs(&sandbox, "truncate -s 0 ~/f");
    assert_eq!(kept(&sandbox), b"a");
    fs::write(&path, tenths(7, b'b')).expect("a file");
    agent_runs(&sandbox, "rm ~/f");
    assert_eq!(kept(&sandbox), b"ab");
}

#[test]
fn a_version_that_does_not_fit_leaves_the_older_ones() {
    let sandbox = world();
    let (path, other) = (sandbox.home().join("f"), sandbox.home().join("other"));
    fs::write(&other, tenths(5, b'o')).expect("a file");
    agent_runs(&sandbox, "truncate -s 0 ~/other");
    fs::write(&path, tenths(4, b'a')).expect("a file");
    agent_runs(&sandbox, "truncate -s 0 ~/f");
    assert_eq!(kept(&sandbox), b"ao");
    fs::write(&path, tenths(7, b'b')).expect("a file");
    agent_runs(&sandbox, "truncate -s 0 ~/f");
    if kept(&sandbox) != b"abo" {
        assert_eq!(kept(&sandbox), b"ao", "unless it was cloned, it is too large beside the other one");
    }
}

/// The first version is the one that the user made.
#[test]
fn beyond_the_limit_of_copies_the_versions_in_between_go_first() {
    let sandbox = world();
    let path = sandbox.home().join("f");
    for byte in *b"abcd" {
        fs::write(&path, tenths(3, byte)).expect("a file");
        agent_runs(&sandbox, "truncate -s 0 ~/f");
    }
    let kept = kept(&sandbox);
    assert!(kept == b"acd" || kept == b"abcd", "the latter if they are clones: {kept:?}");
    fs::write(&path, tenths(9, b'e')).expect("a file");
    agent_runs(&sandbox, "truncate -s 0 ~/f");
    let kept = self::kept(&sandbox);
    assert!(kept == b"e" || kept == b"abcde", "it is newer, and needs all the room: {kept:?}");
}

#[test]
fn of_many_versions_the_first_and_the_newest_ones_stay() {
    let sandbox = world();
    let path = sandbox.home().join("f");
    for byte in *b"abcdefghi" {
        fs::write(&path, [byte; 10]).expect("a file");
        agent_runs(&sandbox, "truncate -s 0 ~/f");
    }
    assert_eq!(kept(&sandbox), b"acdefghi");
}
