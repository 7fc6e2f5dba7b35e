//! Keys that a later version wrote into a record stay there when this version rewrites it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{bash, hook, prompt};
use crate::kit::piton;

const KEY: &str = "of a later version";

fn value() -> Value {
    json!({"deep": [1, null, "x"]})
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a record")).expect("JSON")
}

/// Adds a key to a record.
fn add(path: &Path) {
    let mut record = read(path);
    record[KEY] = value();
    fs::write(path, record.to_string()).expect("a file");
}

/// Returns the only file in a directory.
fn only_in(dir: &Path) -> PathBuf {
    let mut files = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let first = files.next().expect("a file");
    assert_eq!(files.next(), None);
    first
}

#[test]
fn unknown_keys_of_a_project_survive_take_restore_and_prune() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    piton(&sandbox, ["take"]).done();
    let record = only_in(&sandbox.store().join("projects"));
    add(&record);
    sandbox.write("a.txt", "two\n");
    for args in [&["take"][..], &["restore", "2", "--yes"], &["undo", "--yes"], &["prune"]] {
        let before = fs::read(&record).expect("a record");
        piton(&sandbox, args).done();
        assert!(args == ["prune"] || fs::read(&record).expect("a record") != before, "{args:?} rewrites the record");
        assert_eq!(read(&record)[KEY], value(), "{args:?}");
    }
}

#[test]
fn unknown_keys_of_a_session_survive_its_next_turn() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    let note = only_in(&sandbox.store().join("turns"));
    add(&note);
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", "second"));
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t2", "rm a.txt"));
    assert_eq!((&read(&note)["turn"], &read(&note)[KEY]), (&json!("t2"), &value()));
}

#[test]
fn unknown_keys_of_a_notice_survive_another_restore() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("a.txt", "two\n");
    piton(&sandbox, ["restore", "1", "--yes"]).done();
    let notice = only_in(&sandbox.store().join("notices"));
    add(&notice);
    piton(&sandbox, ["undo", "--yes"]).done();
    assert_eq!(read(&notice)[KEY], value());
}
