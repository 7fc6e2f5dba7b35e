//! A large index is not rewritten for a few changed files: it becomes outdated, and the record lists the affected
//! paths.

use std::fs;
use std::os::unix::fs::MetadataExt;

use piton::{Outcome, Settings};
use serde_json::{Value, json};
use testkit::Sandbox;

use crate::kit::{next_tick, project_id, settled, take_at, taken};
use crate::rescan::{bytes_read_by_take, note};

/// Files with paths so long that few of them make a large index.
pub(crate) fn bulk() -> String {
    let dir = vec!["d".repeat(200); 12].join("/");
    (0..450).map(|number| format!("{dir}/{number} = x\n")).collect()
}

fn large_project(tree: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tree(&format!("{tree}\n{}", bulk()));
    take_settled(&sandbox);
    assert!(fs::read(index_of(&sandbox)).expect("an index").len() > 1 << 20);
    sandbox
}

fn take_settled(sandbox: &Sandbox) -> Outcome {
    let outcome = take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled()).outcome;
    next_tick(sandbox);
    outcome
}

fn index_of(sandbox: &Sandbox) -> std::path::PathBuf {
    sandbox.store().join("indexes").join(project_id(sandbox))
}

/// Returns the inode of the index: a rewritten index has another one.
fn inode_of_index(sandbox: &Sandbox) -> u64 {
    index_of(sandbox).metadata().expect("an index").ino()
}

fn record_of(sandbox: &Sandbox) -> Value {
    let path = sandbox.store().join(format!("projects/{}.json", project_id(sandbox)));
    serde_json::from_slice(&fs::read(path).expect("a record")).expect("JSON")
}

fn paths_behind(sandbox: &Sandbox) -> Value {
    record_of(sandbox)["index_behind"]["paths"].clone()
}

#[test]
fn a_large_index_is_rewritten_only_for_many_changes() {
    let sandbox = large_project("a = 1\n dir/b = 1\n dir/c = 1\n z = 1");
    let index = inode_of_index(&sandbox);
    let expect = |what: &str, behind: Value| {
        let outcome = take_settled(&sandbox);
        assert!(matches!(outcome, Outcome::Taken(_)), "{what}");
        assert_eq!((inode_of_index(&sandbox), paths_behind(&sandbox)), (index, behind.clone()), "{what}");
        assert!(matches!(take_settled(&sandbox), Outcome::Unchanged(_)), "nothing after {what}");
        assert_eq!((inode_of_index(&sandbox), paths_behind(&sandbox)), (index, behind), "nothing after {what}");
        sandbox.assert_store_is_whole();
    };
    sandbox.write("a", "2");
    expect("an edit", json!(["a"]));
    sandbox.write("dir/new", "1");
    expect("a new file", json!(["a", "dir/new"]));
    fs::remove_file(sandbox.path("dir/b")).expect("a file");
    expect("a file that is gone", json!(["a", "dir/b", "dir/new"]));
    sandbox.write("a", "1");
    expect("an edit taken back", json!(["a", "dir/b", "dir/new"]));
    fs::remove_file(sandbox.path("z")).expect("a file");
    expect("the last file gone", json!(["a", "dir/b", "dir/new", "z"]));

    for number in 0..40 {
        sandbox.write(format!("more/{number}"), "1");
    }
    assert!(matches!(take_settled(&sandbox), Outcome::Taken(_)));
    assert_ne!(inode_of_index(&sandbox), index, "too many");
    assert_eq!(paths_behind(&sandbox), Value::Null);
}

#[test]
fn a_large_index_is_rewritten_if_a_note_cannot_describe_the_change() {
    let sandbox = large_project("a = 1\n dir/b = 1");
    let mut index = inode_of_index(&sandbox);
    let mut expect_another = |what: &str| {
        assert!(matches!(take_settled(&sandbox), Outcome::Taken(_)), "{what}");
        assert_ne!(std::mem::replace(&mut index, inode_of_index(&sandbox)), inode_of_index(&sandbox), "{what}");
        assert_eq!(paths_behind(&sandbox), Value::Null, "{what}");
    };
    sandbox.write("a", "x".repeat(200_000));
    expect_another("a large file");
    sandbox.write(".gitignore", ".gitignore\n*.gen\n");
    sandbox.write("a", "2");
    expect_another("rules that are not in it");
    let list = sandbox.store().join("info/exclude");
    fs::write(&list, [fs::read(&list).expect("the list"), b"*.other\n".to_vec()].concat()).expect("the list");
    sandbox.write("a", "3");
    expect_another("rules of the store");
    note(&sandbox, "index_boot", "another".into());
    sandbox.write("a", "4");
    expect_another("another run of the machine");
    fs::remove_dir_all(sandbox.path("dir")).expect("a directory");
    expect_another("a directory that is gone");
    let long = vec!["l".repeat(200); 12].join("/");
    for number in 0..8 {
        sandbox.write(format!("{long}/{number}"), "1");
    }
    expect_another("a long list");
}

#[test]
fn a_small_index_is_rewritten() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    take_settled(&sandbox);
    let index = inode_of_index(&sandbox);
    sandbox.write("a", "2");
    take_settled(&sandbox);
    assert_ne!(inode_of_index(&sandbox), index);
    assert_eq!(paths_behind(&sandbox), Value::Null);
}

/// C4.
#[test]
fn paths_at_which_the_index_is_behind_are_read_again() {
    let sandbox = large_project("a = 12\n dir/b = 123");
    sandbox.write("a", "34");
    take_settled(&sandbox);
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 2, "it alone");
    let noted = record_of(&sandbox)["index_behind"].clone();
    let mut more = noted.clone();
    more["paths"] = json!(["a", "dir/b"]);
    note(&sandbox, "index_behind", more);
    assert_eq!(bytes_read_by_take(&sandbox, settled()), 5, "what is noted counts, whatever the index says");
    for (key, other) in [("tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"), ("index", "another")] {
        sandbox.write("a", format!("with another {key}"));
        let mut wrong = noted.clone();
        wrong[key] = other.into();
        note(&sandbox, "index_behind", wrong);
        let index = inode_of_index(&sandbox);
        taken_whole(&sandbox);
        assert_ne!(
            inode_of_index(&sandbox),
            index,
            "another {key}: nothing is noted of this index and this checkpoint"
        );
        sandbox.write("a", "56");
        taken_whole(&sandbox);
    }
}

fn taken_whole(sandbox: &Sandbox) -> String {
    let report = take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled());
    next_tick(sandbox);
    sandbox.assert_store_is_whole();
    taken(&report)
}

/// C4. The files of a moved directory keep their timestamps, so they match the index again; by then garbage collection
/// may have removed their contents from the store.
#[test]
fn a_file_that_returns_after_its_objects_were_collected_is_stored_again() {
    let sandbox = large_project("dir/a = first\n dir/b = second");
    let aside = sandbox.root().join("aside");
    fs::rename(sandbox.path("dir"), &aside).expect("a rename");
    sandbox.write("dir/0", "1");
    let index = inode_of_index(&sandbox);
    taken_whole(&sandbox);
    assert_eq!(paths_behind(&sandbox), json!(["dir/0", "dir/a", "dir/b"]));
    let tip = sandbox.store_git(&["rev-parse", &format!("refs/hermes/{}", project_id(&sandbox))]);
    fs::write(sandbox.store().join("shallow"), tip).expect("the end of the history");
    sandbox.store_git(&["gc", "--quiet", "--prune=now"]);

    fs::remove_dir_all(sandbox.path("dir")).expect("a directory");
    fs::rename(&aside, sandbox.path("dir")).expect("a rename");
    let id = taken_whole(&sandbox);
    assert_eq!(inode_of_index(&sandbox), index, "the same index was at hand");
    for (path, text) in [("dir/a", "first"), ("dir/b", "second")] {
        assert_eq!(sandbox.store_git(&["cat-file", "blob", &format!("{id}:{path}")]), text.as_bytes());
    }
}
