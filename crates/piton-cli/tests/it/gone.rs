//! Projects whose whole directory was deleted: their checkpoints are kept, and can restore it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, files_in};

use crate::faults::Mounted;
use crate::kit::{PITON, Ran, in_dir, piton, run, run_under_strace};

/// Runs the command from the parent directory of the project, with `-C` and the project's path.
fn at(sandbox: &Sandbox, args: &[&str]) -> Ran {
    run(in_dir(sandbox, &sandbox.root()).arg("-C").arg(sandbox.project()).args(args))
}

/// Creates a project with two checkpoints and deletes its directory.
fn deleted() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n*run.sh\nsrc/deep/b.txt\nempty/\nlink -> a.txt");
    piton(&sandbox, ["take"]).done();
    sandbox.tree("a.txt = two\nc.txt");
    piton(&sandbox, ["take"]).done();
    fs::remove_dir_all(sandbox.project()).expect("the project goes");
    sandbox
}

fn record_of(sandbox: &Sandbox, dir: &Path) -> std::path::PathBuf {
    let records = fs::read_dir(sandbox.store().join("projects")).expect("records").flatten().map(|entry| entry.path());
    let is_its = |path: &std::path::PathBuf| {
        fs::read_to_string(path).expect("a record").contains(&format!("{:?}", dir.display().to_string()))
    };
    records.into_iter().find(is_its).expect("its record")
}

/// P1.
#[test]
fn an_automatic_prune_keeps_a_deleted_project_until_it_was_unused_for_the_retention() {
    let sandbox = deleted();
    let other = sandbox.other_project("other");
    fs::write(other.join("file"), "x").expect("a file");
    run(in_dir(&sandbox, &other).arg("take")).done();
    testkit::wait_for_maintenance(&sandbox.root());
    let record = record_of(&sandbox, &sandbox.project());
    let maintain = || {
        let _ = fs::remove_file(sandbox.base().join(".last_prune"));
        run(in_dir(&sandbox, &other).args(["maintain", "--json"])).done().json()
    };
    let done = maintain();
    assert_eq!((&done["done"], &done["report"]["deleted_orphan"]), (&json!("pruned"), &json!(0)), "{done}");
    assert_eq!(at(&sandbox, &["rollback", "--json"]).done().json().as_array().map(Vec::len), Some(2));

    let mut old: Value = serde_json::from_slice(&fs::read(&record).expect("a record")).expect("JSON");
    old["last_touch"] = json!(old["last_touch"].as_f64().expect("a time") - 8.0 * 86400.0);
    fs::write(&record, old.to_string()).expect("a record");
    let done = maintain();
    assert_eq!(done["report"]["deleted_orphan"], 1, "{done}");
    assert!(!record.exists());
}

#[test]
fn a_prune_by_hand_drops_a_deleted_project_at_once_and_names_it() {
    let sandbox = deleted();
    let report = run(in_dir(&sandbox, &sandbox.root()).args(["prune", "--json"])).done().json();
    let name = sandbox.project().display().to_string();
    assert_eq!(report["dropped"], json!([{"name": name, "why": "orphan"}]), "{report}");
    let sandbox = deleted();
    let text = run(in_dir(&sandbox, &sandbox.root()).arg("prune")).done().stdout;
    assert!(text.contains(&format!("  orphan  {}", sandbox.project().display())), "{text}");
}

#[test]
fn a_deleted_directory_is_listed_compared_and_restored_from_outside() {
    let sandbox = deleted();
    assert!(at(&sandbox, &["rollback"]).done().stdout.contains("  2. "));
    assert!(at(&sandbox, &["show", "2"]).done().stdout.contains("Files:"));
    let diff = at(&sandbox, &["diff", "1", "--json"]).done().json();
    assert_eq!((&diff["files_changed"], &diff["files"][0]["status"]), (&json!(5), &json!("deleted")), "{diff}");
    let dry = at(&sandbox, &["restore", "1", "--dry-run", "--json"]).done().json();
    assert_eq!((&dry["written"], &dry["write"][0]), (&json!(5), &json!("a.txt")), "{dry}");
    assert!(!sandbox.project().exists(), "a dry run makes nothing");

    let report = at(&sandbox, &["restore", "2", "-y", "--json"]).done().json();
    assert_eq!((&report["outcome"], &report["left"]), (&json!("restored"), &json!([])), "{report}");
    let held = sandbox.held_by(report["id"].as_str().expect("an id"));
    assert_eq!(files_in(&sandbox.project()), held);
    assert!(sandbox.path("empty").is_dir() && held.len() == 4);
    assert!(at(&sandbox, &["undo", "-y"]).done().stdout.contains("Restored"));
    assert_eq!(files_in(&sandbox.project()).len(), 0, "undo goes back to a directory without files");
    at(&sandbox, &["undo", "-y"]).done();
    assert_eq!(files_in(&sandbox.project()), held, "and undo of that brings them back");
    sandbox.assert_store_is_whole();
}

#[test]
fn undo_works_in_a_directory_that_was_deleted_after_a_restore() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    piton(&sandbox, ["take"]).done();
    sandbox.tree("a.txt = two");
    piton(&sandbox, ["restore", "1", "-y"]).done();
    fs::remove_dir_all(sandbox.project()).expect("the project goes");
    at(&sandbox, &["undo", "-y"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "two");
}

#[test]
fn a_shell_that_stands_in_the_deleted_directory_can_restore_it_and_take_refuses() {
    let sandbox = Sandbox::new();
    sandbox.tree("sub/a.txt");
    piton(&sandbox, ["take"]).done();
    let line = format!("cd sub && rm -rf {} && exec {PITON} \"$@\"", sandbox.project().display());
    let shell = |args: &[&str]| {
        let mut shell = clean_command("sh");
        shell.env("HOME", sandbox.home()).current_dir(sandbox.project()).args(["-c", &line, "sh"]).args(args);
        run(&mut shell)
    };
    let refused = shell(&["take"]).failed(2);
    assert!(refused.stderr.contains("the directory was deleted") && refused.stderr.contains("hint: "), "{refused:?}");
    fs::create_dir_all(sandbox.path("sub")).expect("directories");
    shell(&["restore", "1", "-y"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("sub/a.txt")).expect("a file"), "sub/a.txt");
}

#[test]
fn status_names_a_deleted_project_and_the_command_that_brings_it_back() {
    let sandbox = deleted();
    let status = run(in_dir(&sandbox, &sandbox.root()).args(["status", "--json"])).done().json();
    let command = format!("piton -C {} restore 1", sandbox.project().display());
    let project = &status["projects"][0];
    assert_eq!((&project["presence"], &project["commits"]), (&json!("gone"), &json!(2)), "{status}");
    assert_eq!(project["restore_command"], json!(command), "{status}");
    let text = run(in_dir(&sandbox, &sandbox.root()).arg("status")).done().stdout;
    assert!(text.contains("gone, 2 checkpoints") && text.contains(&command), "{text}");
}

#[test]
fn a_directory_that_never_had_a_checkpoint_and_a_file_are_still_refused() {
    let sandbox = deleted();
    for (name, why) in [("nowhere", "there is no such directory"), ("file", "it is not a directory")] {
        let path = sandbox.root().join(name);
        fs::write(sandbox.root().join("file"), "x").expect("a file");
        let ran = run(in_dir(&sandbox, &sandbox.root()).arg("-C").arg(&path).arg("rollback")).failed(1);
        assert!(ran.stderr.contains(why), "{ran:?}");
    }
}

#[test]
fn nothing_is_restored_onto_the_disk_below_one_that_is_not_mounted() {
    let sandbox = Sandbox::new();
    let place = sandbox.root().join("media");
    let Some(disk) = Mounted::tmpfs(&place, "size=1m") else { return };
    let project = place.join("project");
    fs::create_dir(&project).expect("a directory");
    fs::write(project.join("a"), "a").expect("a file");
    run(in_dir(&sandbox, &project).arg("take")).done();
    drop(disk);
    let restore = || run(in_dir(&sandbox, &sandbox.root()).arg("-C").arg(&project).args(["restore", "1", "-y"]));
    let refused = restore().failed(2);
    assert!(refused.stderr.contains("the disk that it was on") && !project.exists(), "{refused:?}");
    fs::create_dir(&project).expect("a directory");
    restore().done();
    assert_eq!(fs::read_to_string(project.join("a")).expect("a file"), "a");
}

/// R4: killed at every system call that writes, a restore of a deleted directory leaves a state from which the next
/// command can complete it.
#[test]
fn a_restore_of_a_deleted_directory_that_is_killed_can_be_finished() {
    if !testkit::has_program("strace") {
        return;
    }
    let sandbox = deleted();
    let saved = sandbox.root().join("saved");
    crate::kit::replace_dir(&sandbox.base(), &saved);
    let target = {
        let list = at(&sandbox, &["rollback", "--json"]).done().json();
        list[1]["id"].as_str().expect("an id").to_owned()
    };
    let args = ["-C", &sandbox.project().display().to_string(), "restore", &target, "-y"].map(str::to_owned);
    let mut finished = 0;
    for call in ["mkdir", "mkdirat", "renameat2", "rename", "linkat", "unlinkat", "unlink", "syncfs", "fsync"] {
        for nth in 1..8 {
            crate::kit::replace_dir(&saved, &sandbox.base());
            let _ = fs::remove_dir_all(sandbox.project());
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            let ran = run_under_strace(&sandbox, &["-e", &inject], &args);
            if !ran.was_killed() {
                break;
            }
            finished += 1;
            let go_on = at(&sandbox, &["restore", "--continue", "-y"]);
            if go_on.code() != 0 {
                at(&sandbox, &["restore", &target, "-y"]).done();
            }
            assert_eq!(files_in(&sandbox.project()), sandbox.held_by(&target), "killed at {call} {nth}");
            sandbox.assert_store_is_whole();
        }
    }
    assert!(finished >= 8, "{finished}");
}
