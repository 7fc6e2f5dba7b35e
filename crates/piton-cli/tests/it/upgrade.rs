//! Upgrades that move the program or leave an older one in its place: the hooks still call the old path.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{Sandbox, clean_command};

use crate::kit::{PITON, Ran, command, run};

/// Puts this program into a directory of its own, as a package does.
fn program_in(sandbox: &Sandbox, name: &str) -> PathBuf {
    sandbox.write("a.txt", "one\n");
    sandbox.copy_of_program(PITON, name)
}

fn call(sandbox: &Sandbox, program: &Path, arguments: &[&str]) -> Ran {
    let mut command = clean_command(program);
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.project());
    run(command.args(arguments))
}

/// Asserts that commands by hand, `status` and `doctor` say this about the hooks of claude.
#[track_caller]
fn all_say(sandbox: &Sandbox, program: &Path, words: &str) {
    for arguments in [&["take"][..], &["rollback"], &["diff", "1"], &["restore", "1", "--dry-run"]] {
        let ran = call(sandbox, program, arguments).done();
        assert!(ran.stderr.contains("warning: the hooks of claude call "), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains("hint: `piton install claude` puts the path right"), "{arguments:?}: {ran:?}");
    }
    let status = call(sandbox, program, &["status", "--json"]).done().json();
    assert!(status["problems"].to_string().contains(words), "{status:#}");
    let doctor = call(sandbox, program, &["doctor", "--json", "--no-fire"]).json();
    assert_eq!(doctor["ok"], false, "{doctor:#}");
    assert!(claude(&doctor)["problems"].to_string().contains(words), "{doctor:#}");
}

fn claude(doctor: &Value) -> &Value {
    doctor["agents"].as_array().into_iter().flatten().find(|one| one["agent"] == "claude").expect("claude")
}

/// Asserts that nothing is said about hooks.
#[track_caller]
fn all_is_well(sandbox: &Sandbox, program: &Path) {
    for arguments in [&["take"][..], &["rollback"]] {
        let ran = call(sandbox, program, arguments).done();
        assert!(!ran.stderr.contains("hooks"), "{arguments:?}: {ran:?}");
    }
    let doctor = call(sandbox, program, &["doctor", "--json"]).json();
    assert_eq!(claude(&doctor)["problems"].as_array().map(Vec::len), Some(0), "{doctor:#}");
}

#[test]
fn hooks_that_call_a_program_that_moved_are_named_until_they_are_installed_again() {
    let sandbox = Sandbox::new();
    let old = program_in(&sandbox, "piton-1");
    call(&sandbox, &old, &["install", "claude"]).done();
    all_is_well(&sandbox, &old);
    let new = program_in(&sandbox, "piton-2");
    // Both are there, in the same version: either will do.
    all_is_well(&sandbox, &new);
    fs::remove_dir_all(sandbox.root().join("piton-1")).expect("a directory");
    all_say(&sandbox, &new, "which is not there");
    call(&sandbox, &new, &["install", "claude"]).done();
    all_is_well(&sandbox, &new);
    call(&sandbox, &new, &["uninstall", "claude"]).done();
    fs::remove_dir_all(sandbox.root().join("piton-2")).expect("a directory");
    let ran = run(command(&sandbox).arg("take")).done();
    assert!(!ran.stderr.contains("hooks"), "{ran:?}");
}

#[test]
fn hooks_that_call_an_older_program_or_one_that_does_not_run_are_named() {
    let sandbox = Sandbox::new();
    let old = program_in(&sandbox, "piton-1");
    call(&sandbox, &old, &["install", "claude"]).done();
    let new = program_in(&sandbox, "piton-2");
    fs::remove_file(&old).expect("a file");
    sandbox.write_program(&old, "#!/bin/sh\necho piton 0.0.9\n");
    all_say(&sandbox, &new, "which is piton 0.0.9; this is piton ");
    fs::remove_file(&old).expect("a file");
    sandbox.write_program(&old, "#!/bin/sh\necho piton 99.0.0\n");
    let ran = call(&sandbox, &new, &["take"]).done();
    assert!(!ran.stderr.contains("hooks"), "a newer one will do: {ran:?}");
    fs::remove_file(&old).expect("a file");
    sandbox.write_program(&old, "#!/no/such/interpreter\n");
    all_say(&sandbox, &new, "which does not say its version: it cannot be started");
}

/// Records of versions that did not note the program get it with the next installation, though nothing else changes.
#[test]
fn a_record_without_the_program_is_completed_by_the_next_installation() {
    let sandbox = Sandbox::new();
    run(command(&sandbox).args(["install", "claude"])).done();
    let record = sandbox.base().join("store/installs/claude.json");
    let written = fs::read_to_string(&record).expect("a record");
    let mut value: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(value.as_object_mut().and_then(|keys| keys.remove("program")), Some(PITON.into()));
    fs::write(&record, value.to_string()).expect("a file");
    let said = run(command(&sandbox).args(["install", "claude"])).done().stdout;
    assert!(said.contains("already installed"), "{said}");
    assert_eq!(fs::read_to_string(&record).expect("a record"), written);
}

/// A project may name any program, and its author may be another person: it is not run.
#[test]
fn a_program_that_only_the_project_names_is_not_run() {
    let sandbox = Sandbox::new();
    let trap = sandbox.root().join("trap");
    fs::create_dir(&trap).expect("a directory");
    let script = format!("#!/bin/sh\ntouch {}/ran\necho piton 0.0.9\n", trap.display());
    sandbox.write_program(&trap.join("piton"), &script);
    let hook = format!("{} hook claude", trap.join("piton").display());
    let item = serde_json::json!([{"hooks": [{"type": "command", "command": hook}]}]);
    fs::create_dir(sandbox.project().join(".claude")).expect("a directory");
    let settings = serde_json::json!({"hooks": {"UserPromptSubmit": item}}).to_string();
    fs::write(sandbox.project().join(".claude/settings.json"), settings).expect("a file");
    run(command(&sandbox).arg("take")).done();
    let doctor = run(command(&sandbox).args(["doctor", "--json"])).json();
    assert_eq!(claude(&doctor)["installed"], true, "{doctor:#}");
    assert!(!trap.join("ran").exists(), "{doctor:#}");
}
