//! Projects side by side: a command on one of them does not affect the protection of the others.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{hook_command, send};
use crate::kit::{in_dir, run};

/// Creates `code/` with three projects: the agent's own, one that is a git repository, and one without a marker.
fn code() -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::new();
    let code = sandbox.home().join("code");
    for name in ["mine", "other", "third"] {
        fs::create_dir_all(code.join(name).join("src")).expect("directories");
        fs::write(code.join(name).join("src/a.txt"), name).expect("a file");
    }
    fs::create_dir(code.join("other/.git")).expect("a marker");
    (sandbox, code)
}

/// Sends the event of an agent that is about to run a command.
fn before(sandbox: &Sandbox, cwd: &Path, line: &str, turn: &str) {
    let event = json!({
        "hook_event_name": "PreToolUse", "session_id": "s", "prompt_id": turn, "cwd": cwd, "transcript_path": "/t",
        "tool_name": "Bash", "tool_input": {"command": line},
    });
    send(&mut hook_command(sandbox, &["claude"]), event.to_string()).done();
}

/// Returns the directories that have checkpoints, with their number.
fn protected(sandbox: &Sandbox) -> Vec<(PathBuf, u64)> {
    let status = run(in_dir(sandbox, &sandbox.root()).args(["status", "--json"])).done().json();
    let projects = status["projects"].as_array().expect("a list");
    let one =
        |one: &Value| (one["workdir"].as_str().expect("a directory").into(), one["commits"].as_u64().expect("count"));
    let mut all: Vec<_> = projects.iter().map(one).collect();
    all.sort();
    all
}

fn warnings(sandbox: &Sandbox) -> String {
    run(in_dir(sandbox, &sandbox.root()).args(["status", "--json"])).done().json()["problems"].to_string()
}

#[test]
fn removing_a_directory_beside_the_project_protects_that_directory_and_not_the_one_around_it() {
    for line in
        ["rm -rf ../other", "rm -rf ../other/", "cd .. && rm -rf other", "rm -rf ../oth*", "mv ../other ../renamed"]
    {
        let (sandbox, code) = code();
        before(&sandbox, &code.join("mine"), line, "t");
        let expected = vec![(code.join("mine"), 1), (code.join("other"), 1)];
        assert_eq!(protected(&sandbox), expected, "{line}");
    }
}

#[test]
fn a_glob_beside_the_project_protects_each_directory_that_it_means() {
    let (sandbox, code) = code();
    before(&sandbox, &code.join("mine"), "rm -rf ../*", "t");
    let expected = ["mine", "other", "third"].map(|name| (code.join(name), 1));
    assert_eq!(protected(&sandbox), expected);
}

#[test]
fn a_file_outside_of_every_project_is_named_and_makes_no_project_of_the_directory_around_it() {
    let (sandbox, code) = code();
    fs::write(code.join("notes.txt"), "notes").expect("a file");
    before(&sandbox, &code.join("mine"), "chmod +x ../notes.txt ../not-there.txt", "t");
    assert_eq!(protected(&sandbox), [(code.join("mine"), 1)]);
    let named = format!("{} is in no project", code.join("notes.txt").display());
    assert!(warnings(&sandbox).contains(&named) && !warnings(&sandbox).contains("not-there"), "{}", warnings(&sandbox));
}

#[test]
fn a_file_in_a_directory_without_projects_is_protected_with_that_directory() {
    let (sandbox, code) = code();
    let notes = sandbox.home().join("notes");
    fs::create_dir_all(notes.join("old")).expect("directories");
    fs::write(notes.join("a.txt"), "a").expect("a file");
    before(&sandbox, &code.join("mine"), &format!("rm {}", notes.join("a.txt").display()), "t");
    assert_eq!(protected(&sandbox), [(code.join("mine"), 1), (notes, 1)]);
}

#[test]
fn a_file_that_is_yet_to_be_made_makes_no_project_of_what_is_around_it() {
    let (sandbox, code) = code();
    let event = json!({
        "hook_event_name": "PreToolUse", "session_id": "s", "prompt_id": "t", "cwd": code.join("mine"),
        "transcript_path": "/t", "tool_name": "Write", "tool_input": {"file_path": code.join("new/src/main.rs")},
    });
    send(&mut hook_command(&sandbox, &["claude"]), event.to_string()).done();
    assert_eq!(protected(&sandbox), [(code.join("mine"), 1)]);
}

#[test]
fn a_directory_that_was_refused_is_not_recorded_and_stands_for_nothing() {
    let (sandbox, code) = code();
    let third = code.join("third");
    let take = |dir: &Path, max: &str| run(in_dir(&sandbox, dir).env("PITON_MAX_FILES", max).args(["take", "--json"]));
    assert_eq!(take(&code, "2").done().json()["why"], "too_many_files");
    assert_eq!(protected(&sandbox), []);
    assert_eq!(take(&third.join("src"), "2").done().json()["files"], 1, "a project of its own");
    assert_eq!(protected(&sandbox), [(third.join("src"), 1)]);
    // The same turn does not retry, but the next one does.
    fs::write(code.join("Makefile"), "").expect("a marker");
    let refused = |turn: &str| {
        let event = json!({
            "hook_event_name": "PreToolUse", "session_id": "s", "prompt_id": turn, "cwd": code, "transcript_path": "/t",
            "tool_name": "Bash", "tool_input": {"command": "make"},
        });
        send(hook_command(&sandbox, &["claude"]).env("PITON_MAX_FILES", "2"), event.to_string()).done();
        let log = fs::read_to_string(sandbox.base().join("piton.log")).unwrap_or_default();
        log.matches("max_files").count()
    };
    assert_eq!([refused("1"), refused("1"), refused("2")], [1, 1, 2]);
}

#[test]
fn a_marker_that_is_nearer_than_a_known_directory_wins() {
    let (sandbox, code) = code();
    run(in_dir(&sandbox, &code).arg("take")).done();
    for (dir, project) in [("other/src", "other"), ("third/src", "."), ("mine", ".")] {
        fs::write(code.join(dir).join("new.txt"), dir).expect("a file");
        run(in_dir(&sandbox, &code.join(dir)).arg("take")).done();
        let (last, _) = protected(&sandbox)
            .into_iter()
            .find(|(dir, _)| *dir == code.join(project).components().collect::<PathBuf>())
            .expect(dir);
        assert!(last.starts_with(&code));
    }
    assert_eq!(protected(&sandbox), [(code.clone(), 3), (code.join("other"), 1)]);
    // A restore in the repository leaves the project beside it alone.
    fs::write(code.join("third/src/a.txt"), "edited by hand").expect("a file");
    fs::write(code.join("other/src/a.txt"), "edited by an agent").expect("a file");
    run(in_dir(&sandbox, &code.join("other")).args(["restore", "1", "-y"])).done();
    assert_eq!(fs::read_to_string(code.join("third/src/a.txt")).expect("a file"), "edited by hand");
    assert_eq!(fs::read_to_string(code.join("other/src/a.txt")).expect("a file"), "other");
}

#[test]
fn a_directory_that_was_recorded_by_mistake_is_named_and_can_be_forgotten() {
    let (sandbox, code) = code();
    for dir in [&code, &code.join("other")] {
        run(in_dir(&sandbox, dir).arg("take")).done();
    }
    let hint = format!("`piton prune --forget {}`", code.display());
    assert!(warnings(&sandbox).contains(&hint), "{}", warnings(&sandbox));
    let doctor = run(in_dir(&sandbox, &sandbox.root()).args(["doctor", "--json"]));
    assert!(doctor.stdout.contains(&hint), "{doctor:?}");

    let forget = |args: &[&str]| {
        run(in_dir(&sandbox, &sandbox.root()).args(["prune", "--json", "--forget"]).arg(&code).args(args))
    };
    let dry = forget(&["--dry-run"]).done().json();
    assert_eq!(dry["dropped"], json!([{"name": code.to_str(), "why": "forgotten"}]), "{dry}");
    assert_eq!(protected(&sandbox).len(), 2, "a dry run forgets nothing");
    forget(&[]).done();
    assert_eq!(protected(&sandbox), [(code.join("other"), 1)]);
    assert_eq!(fs::read_to_string(code.join("mine/src/a.txt")).expect("a file"), "mine");
    assert_eq!(forget(&[]).code(), 4, "there is nothing more to forget");
    sandbox.assert_store_is_whole();

    // A record that an earlier version wrote without a checkpoint.
    let record = fs::read_dir(sandbox.store().join("projects")).expect("records").flatten().next().expect("one").path();
    let text = fs::read_to_string(&record).expect("a record");
    let mut bare: Value = serde_json::from_str(&text).expect("JSON");
    for key in ["index", "rules", "hidden_rules", "index_crc"] {
        bare.as_object_mut().expect("an object").remove(key);
    }
    bare["workdir"] = json!(code);
    let id = piton::ProjectId::of(&code);
    fs::write(record.with_file_name(format!("{id}.json")), bare.to_string()).expect("a record");
    assert!(warnings(&sandbox).contains("has no checkpoint"), "{}", warnings(&sandbox));
    fs::write(code.join("third/src/new.txt"), "x").expect("a file");
    run(in_dir(&sandbox, &code.join("third")).arg("take")).done();
    assert!(protected(&sandbox).contains(&(code.join("third"), 1)), "{:?}", protected(&sandbox));
    forget(&[]).done();
    assert!(!warnings(&sandbox).contains("has no checkpoint"));
}
