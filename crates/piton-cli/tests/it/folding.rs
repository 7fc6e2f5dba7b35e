//! Names on file systems that fold case or Unicode forms, as those of macOS: scope, planner and restore. Through FUSE.

use std::fs;

use serde_json::Value;
use testkit::fuse::{FuseMount, Quirk};
use testkit::{Sandbox, clean_command, git, os};

use crate::restore_kit::{State, assert_same, exits, json, state_of, text};

const CAFE: &str = "caf\u{e9}";
const CAFE_DECOMPOSED: &str = "cafe\u{301}";

/// Mounts a file system with these quirks on the project.
fn mount(sandbox: &Sandbox, quirks: &[Quirk]) -> Option<FuseMount> {
    FuseMount::new(&sandbox.project(), quirks)
}

fn names(state: &State) -> Vec<String> {
    state.keys().map(|path| text(path)).collect()
}

fn take(sandbox: &Sandbox) -> String {
    json(sandbox, &["take"], 0)["id"].as_str().expect("an id").to_owned()
}

fn left(report: &Value) -> Vec<String> {
    let left = report["left"].as_array().expect("a list");
    left.iter().map(|left| format!("{}: {}", left["path"].as_str().expect("a path"), left["why"])).collect()
}

/// Each pair of spellings, and the quirk by which they are one name.
const PAIRS: [(Quirk, &str, &str); 2] =
    [(Quirk::FoldsCase, "Name", "nAME"), (Quirk::FoldsForms, CAFE, CAFE_DECOMPOSED)];

#[test]
fn another_spelling_of_a_file_and_of_a_directory_comes_back_exactly() {
    for (quirk, one, other) in PAIRS {
        let sandbox = Sandbox::new();
        let Some(_mounted) = mount(&sandbox, &[quirk]) else { return };
        sandbox.tree(&format!("{one} = 1\n d{one}/in = 1\n d{one}/deep/{one} = 1\n same = 1"));
        let (id, first) = (take(&sandbox), state_of(&sandbox.project()));
        fs::remove_file(sandbox.path(one)).expect("a file");
        fs::remove_dir_all(sandbox.path(format!("d{one}"))).expect("a directory");
        sandbox.tree(&format!("{other} = 2\n d{other}/in = 2\n d{other}/deep/{other} = 1"));
        let second = state_of(&sandbox.project());
        assert!(names(&second).contains(&format!("d{other}/deep/{other}")), "{:?}", names(&second));
        json(&sandbox, &["restore", &id], 0);
        assert_same(&state_of(&sandbox.project()), &first, "restored");
        exits(&sandbox, &["undo"], 0);
        assert_same(&state_of(&sandbox.project()), &second, "undone");
        exits(&sandbox, &["redo"], 0);
        assert_same(&state_of(&sandbox.project()), &first, "redone");
        sandbox.assert_store_is_whole();
    }
}

/// An agent renames a file so that only its case changes, and writes it: one file, never none.
#[test]
fn one_file_under_its_other_spelling_is_restored_alone() {
    for (quirk, one, other) in PAIRS {
        let sandbox = Sandbox::new();
        let Some(_mounted) = mount(&sandbox, &[quirk]) else { return };
        sandbox.tree(&format!("{one} = 1\n same = 1"));
        let id = take(&sandbox);
        fs::remove_file(sandbox.path(one)).expect("a file");
        sandbox.tree(&format!("{other} = 2\n same = 2"));
        let report = json(&sandbox, &["restore", &id, one], 3);
        assert_eq!(left(&report), [format!("{one}: \"in_the_way\"")], "{report:#}");
        let now = state_of(&sandbox.project());
        assert_eq!(
            names(&now),
            ["same", other]
                .map(str::to_owned)
                .into_iter()
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        assert_eq!(fs::read(sandbox.path(other)).expect("the file of the user"), b"2", "it is not overwritten");
        json(&sandbox, &["restore", &id, one, other], 0);
        assert_eq!(fs::read(sandbox.path("same")).expect("a file"), b"2", "not named, not touched");
        assert!(names(&state_of(&sandbox.project())).contains(&one.to_owned()), "the old spelling is back");
        assert_eq!(fs::read(sandbox.path(one)).expect("a file"), b"1");
    }
}

/// A checkpoint of a file system on which both names are files, restored on one where they are one.
#[test]
fn of_two_files_that_are_one_here_the_second_is_reported_and_nothing_is_overwritten() {
    for (quirk, one, other) in PAIRS {
        let sandbox = Sandbox::new();
        sandbox.tree(&format!("{one} = first\n {other} = second\n d{one}/a = a\n d{other}/b = b\n e = e"));
        let id = take(&sandbox);
        let Some(_mounted) = mount(&sandbox, &[quirk]) else { return };
        sandbox.tree("e = here");
        let before = state_of(&sandbox.project());
        let report = json(&sandbox, &["restore", &id], 3);
        let words = left(&report);
        let mut spellings = [one, other];
        spellings.sort_unstable();
        assert!(words.contains(&format!("{}: \"in_the_way\"", spellings[1])), "{report:#}");
        assert!(words.iter().any(|word| word.starts_with(&format!("d{}", spellings[1]))), "{report:#}");
        let now = state_of(&sandbox.project());
        let first = if spellings[0] == one { "first" } else { "second" };
        assert_eq!(fs::read(sandbox.path(spellings[0])).expect("the first"), first.as_bytes());
        assert_eq!(names(&now).iter().filter(|name| *name == one || *name == other).count(), 1, "{:?}", names(&now));
        assert_eq!(fs::read(sandbox.path("e")).expect("the others"), b"e");
        exits(&sandbox, &["undo"], 0);
        assert_same(&state_of(&sandbox.project()), &before, "undone");
    }
}

/// HFS+ lists a decomposed name, whatever was written: what is listed comes back.
#[test]
fn names_that_are_stored_in_another_form_come_back_as_they_are_listed() {
    let sandbox = Sandbox::new();
    let Some(_mounted) = mount(&sandbox, &[Quirk::StoresDecomposed, Quirk::FoldsCase]) else { return };
    sandbox.tree(&format!("{CAFE} = 1\n d{CAFE}/in = 1"));
    let (id, first) = (take(&sandbox), state_of(&sandbox.project()));
    assert!(names(&first).contains(&CAFE_DECOMPOSED.to_owned()), "{:?}", names(&first));
    sandbox.tree(&format!("{CAFE} = 2\n d{CAFE}/new = 2"));
    fs::remove_file(sandbox.path(format!("d{CAFE}/in"))).expect("a file");
    let second = state_of(&sandbox.project());
    json(&sandbox, &["restore", &id], 0);
    assert_same(&state_of(&sandbox.project()), &first, "restored");
    assert_eq!(json(&sandbox, &["restore", &id, "--dry-run"], 0)["outcome"], "nothing_to_do");
    exits(&sandbox, &["undo"], 0);
    assert_same(&state_of(&sandbox.project()), &second, "undone");
}

/// The directory of the user's repository, in any spelling, is never taken, and `.GIT` in a checkpoint never written.
#[test]
fn the_repository_is_out_of_scope_in_every_spelling() {
    let sandbox = Sandbox::new();
    let Some(_mounted) = mount(&sandbox, &[Quirk::FoldsCase]) else { return };
    let dir = sandbox.project();
    assert!(git().args(["init", "-q"]).arg(&dir).status().expect("git runs").success());
    let folded = git().arg("-C").arg(&dir).args(["config", "core.ignorecase"]).output().expect("git runs");
    assert_eq!(text(&folded.stdout).trim(), "true", "git, too, finds that names fold here");
    fs::rename(dir.join(".git"), dir.join("moved"))
        .and_then(|()| fs::rename(dir.join("moved"), dir.join(".GIT")))
        .expect("a rename");
    sandbox.tree("a = 1");
    let id = take(&sandbox);
    let held = sandbox.held_by(&id);
    assert_eq!(held.keys().map(|path| os(path)).collect::<Vec<_>>(), ["a"], "{held:?}");
    let status = clean_command("git").arg("-C").arg(&dir).args(["status", "--short"]).output().expect("git runs");
    assert_eq!(text(&status.stdout), "?? a\n");
}
