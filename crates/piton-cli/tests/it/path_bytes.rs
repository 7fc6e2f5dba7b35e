//! Paths that are not UTF-8, in the JSON of every command that prints paths.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::kit::{command, piton, run};

/// Returns a project with a file in a directory and an ignored file, all with names that are not UTF-8.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let dir = sandbox.project().join(OsStr::from_bytes(b"d\xff"));
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join(OsStr::from_bytes(b"a \xfe")), "one\n").expect("a file");
    fs::write(sandbox.project().join(OsStr::from_bytes(b"x\xff.log")), "log\n").expect("a file");
    sandbox.write(".gitignore", "*.log\n");
    sandbox.write("plain", "plain\n");
    sandbox
}

fn file(sandbox: &Sandbox) -> std::path::PathBuf {
    sandbox.project().join(OsStr::from_bytes(b"d\xff/a \xfe"))
}

fn said(sandbox: &Sandbox, args: &[&str]) -> Value {
    piton(sandbox, args.iter().chain(&["--json"])).json()
}

#[test]
fn a_path_that_is_not_utf_8_has_its_exact_bytes_in_every_report() {
    let sandbox = sandbox();
    let taken = said(&sandbox, &["take"]);
    assert_eq!(
        taken["skipped"],
        json!([{"path": "x\u{fffd}.log", "path_bytes": "x%ff.log", "why": "ignored", "files": 1}])
    );

    let shown = said(&sandbox, &["show", "1"]);
    assert_eq!(shown["paths"], json!([".gitignore", "d\u{fffd}/a \u{fffd}", "plain"]));
    assert_eq!(shown["paths_bytes"], json!([null, "d%ff/a%20%fe", null]));
    assert_eq!((&shown["empty_dirs"], shown.get("empty_dirs_bytes")), (&json!([]), None));

    let later = sandbox.project().join(OsStr::from_bytes(b"later\xff"));
    fs::write(&later, "later\n").expect("a file");
    fs::write(file(&sandbox), "two\n").expect("a file");
    let diff = said(&sandbox, &["diff"]);
    let names = |one: &Value| (one["path"].clone(), one["path_bytes"].clone(), one["status"].clone());
    let files: Vec<_> = diff["files"].as_array().expect("a list").iter().map(names).collect();
    let changed = (json!("d\u{fffd}/a \u{fffd}"), json!("d%ff/a%20%fe"), json!("modified"));
    assert_eq!(files, [changed, (json!("later\u{fffd}"), json!("later%ff"), json!("added"))]);

    let plan = said(&sandbox, &["restore", "1", "--dry-run"]);
    assert_eq!((&plan["write_bytes"], &plan["remove_bytes"]), (&json!(["d%ff/a%20%fe"]), &json!(["later%ff"])));
    assert_eq!(plan.get("make_dirs_bytes"), None);

    let done = said(&sandbox, &["restore", "1"]);
    assert_eq!(done["written_paths_bytes"], json!(["d%ff/a%20%fe"]));
    assert_eq!(done["removed_paths_bytes"], json!(["later%ff"]));

    let purged = said(&sandbox, &["purge", "plain", "--dry-run"]);
    assert_eq!((&purged["paths"], purged.get("paths_bytes")), (&json!(["plain"]), None));
}

#[test]
fn a_file_that_is_left_and_is_not_utf_8_has_its_exact_bytes() {
    let sandbox = sandbox();
    said(&sandbox, &["take"]);
    // A file that no checkpoint covers stands where a restored one belongs.
    fs::remove_file(file(&sandbox)).expect("a file");
    sandbox.write(".gitignore", "*.log\na *\n");
    fs::write(file(&sandbox), "of another kind\n").expect("a file");
    let report = said(&sandbox, &["restore", "1", "d\u{fffd}"]);
    assert_eq!(report["error"]["kind"], "not_found", "{report}");
    let paths = [OsStr::from_bytes(b"restore"), OsStr::new("1"), OsStr::from_bytes(b"d\xff"), OsStr::new("--json")];
    let report = piton(&sandbox, paths).json();
    assert_eq!(report["left"][0]["path"], "d\u{fffd}/a \u{fffd}", "{report}");
    assert_eq!(report["left"][0]["path_bytes"], "d%ff/a%20%fe", "{report}");
    assert_eq!(report["left"][0]["why"], "ignored", "{report}");
}

#[test]
fn a_project_whose_directory_is_not_utf_8_has_its_exact_bytes_in_the_status() {
    let sandbox = Sandbox::new();
    let dir = sandbox.project().join(OsStr::from_bytes(b"p\xff"));
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("Cargo.toml"), "").expect("a file");
    run(command(&sandbox).arg("-C").arg(&dir).args(["take", "--json"])).done();
    let status = said(&sandbox, &["status"]);
    let project = &status["projects"][0];
    assert!(project["workdir"].as_str().is_some_and(|dir| dir.ends_with("/p\u{fffd}")), "{project}");
    assert!(project["workdir_bytes"].as_str().is_some_and(|dir| dir.ends_with("/p%ff")), "{project}");
    assert_eq!(status.get("base_bytes"), None);
}
