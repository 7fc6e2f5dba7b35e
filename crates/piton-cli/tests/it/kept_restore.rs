//! Kept files in restores, undos and the upkeep of the store.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::journal;
use crate::hook_kit::prompt;
use crate::kept_kit::{
    agent_runs, announce, everything, execute, files_below, hooked, kept_files, large, piton, world,
};

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|name| name.as_str().expect("a text")).collect()
}

fn without_times(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<u8>, u32)> {
    let all = everything(sandbox).into_iter().map(|(path, state)| (path, state.bytes, state.mode));
    all.filter(|(path, ..)| path.starts_with(sandbox.project())).collect()
}

fn dirs_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let dirs = entries.filter(|entry| entry.file_type().expect("a type").is_dir()).map(|entry| entry.path());
    dirs.flat_map(|dir| [dir.clone()].into_iter().chain(dirs_below(&dir)).collect::<Vec<_>>()).collect()
}

/// R5: by every command that restores, with the whole tree as it was before and after.
#[test]
fn missing_kept_files_come_back_with_a_restore_go_with_undo_and_come_back_with_redo() {
    for (line, args, kept) in [
        ("rm big.bin", &["rollback", "1"][..], &["big.bin"][..]),
        ("rm -rf data src", &["restore", "1", "--yes"], &["data/deep/other.bin", "data/set.bin"]),
        ("rm -rf two && rm keep.txt", &["rollback", "1"], &["two/a.bin", "two/b.bin"]),
        ("rm big.bin copy.bin", &["restore", "1", "copy.bin", "--yes"], &["copy.bin"]),
        ("find . -name '*.bin' -delete", &["restore", "1", "data", "--yes"], &["data/deep/other.bin", "data/set.bin"]),
    ] {
        let sandbox = world();
        let before = without_times(&sandbox);
        agent_runs(&sandbox, line);
        let (lost, lost_dirs) = (without_times(&sandbox), dirs_below(&sandbox.project()));
        let dry: Vec<&str> =
            args.iter().copied().filter(|arg| *arg != "--yes").chain(["--dry-run", "--json"]).collect();
        let plan = piton(&sandbox, &dry).done().json();
        assert_eq!(names(&plan["kept"]), kept, "{line}: {plan}");
        assert!(kept.iter().all(|name| names(&plan["write"]).contains(name)), "{line}: {plan}");
        assert_eq!(without_times(&sandbox), lost, "{line}: a plan writes nothing");
        let report = piton(&sandbox, &[args, &["--json"]].concat()).done().json();
        assert_eq!((&report["outcome"], names(&report["kept_written"])), (&json!("restored"), kept.to_vec()), "{line}");
        assert!(kept.iter().all(|name| names(&report["written_paths"]).contains(name)), "{line}: {report}");
        let restored = without_times(&sandbox);
        if args.len() < 3 || args[2] == "--yes" {
            assert_eq!(restored, before, "{line}");
        }
        let undone = piton(&sandbox, &["undo", "--json"]).done().json();
        assert!(kept.iter().all(|name| names(&undone["removed_paths"]).contains(name)), "{line}: {undone}");
        assert_eq!((without_times(&sandbox), dirs_below(&sandbox.project())), (lost.clone(), lost_dirs), "{line}");
        let redone = piton(&sandbox, &["redo", "--json"]).done().json();
        assert_eq!(names(&redone["kept_written"]), kept, "{line}: {redone}");
        assert_eq!(without_times(&sandbox), restored, "{line}");
        piton(&sandbox, &["undo"]).done();
        assert_eq!(without_times(&sandbox), lost, "{line}: and once more");
    }
}

#[test]
fn a_restore_leaves_kept_files_alone_without_ignored_and_says_which_differ() {
    let sandbox = world();
    agent_runs(&sandbox, "rm big.bin keep.txt && echo other > data/set.bin");
    let report = piton(&sandbox, &["restore", "1", "--yes", "--without-ignored", "--json"]).done().json();
    assert_eq!((names(&report["written_paths"]), names(&report["kept_written"])), (vec!["keep.txt"], vec![]));
    assert!(!sandbox.project().join("big.bin").exists());
    let plan = piton(&sandbox, &["restore", "2", "--dry-run", "--json"]).done().json();
    assert_eq!(names(&plan["kept"]), ["big.bin"]);
    let text = piton(&sandbox, &["restore", "2", "--yes"]).done();
    assert!(text.stdout.contains("Kept before a command destroyed them, and back: big.bin"), "{text:?}");
    assert_eq!(fs::read(sandbox.project().join("big.bin")).expect("a file"), large(0));
    assert!(
        text.stdout.contains("Ignored files that differ stay (`--with-ignored` replaces them): data/set.bin"),
        "{text:?}"
    );
    assert_eq!(fs::read_to_string(sandbox.project().join("data/set.bin")).expect("a file"), "other\n", "it was there");
}

/// The version that is closest to the checkpoint comes back, and none that was lost before it.
#[test]
fn of_several_versions_the_oldest_since_the_checkpoint_comes_back() {
    let sandbox = world();
    let big = sandbox.project().join("big.bin");
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    announce(&sandbox, "rm big.bin two/a.bin");
    execute(&sandbox, "rm big.bin two/a.bin");
    fs::write(&big, large(40)).expect("a file");
    announce(&sandbox, "rm big.bin");
    execute(&sandbox, "rm big.bin; echo 2 > keep.txt");
    // Sets and checkpoints have times in seconds.
    let past = std::time::SystemTime::now() + std::time::Duration::from_millis(1_100);
    while std::time::SystemTime::now() < past {
        std::thread::yield_now();
    }
    hooked(&sandbox, &prompt(&sandbox, "s", "p2", "go on"));
    execute(&sandbox, "echo 3 > keep.txt");
    let report = piton(&sandbox, &["rollback", "1", "--json"]).done().json();
    assert_eq!(names(&report["kept_written"]), [] as [&str; 0], "both were gone by then: {report}");
    piton(&sandbox, &["rollback", "3", "--json"]).done();
    assert_eq!(fs::read(&big).expect("a file"), large(0), "not the one that was made since");
    assert_eq!(fs::read(sandbox.project().join("two/a.bin")).expect("a file"), large(4));
}

/// R1: an undo removes a file only if it can be brought back.
#[test]
fn an_undo_keeps_a_file_whose_kept_version_has_expired_and_leaves_one_that_was_changed() {
    let sandbox = world();
    agent_runs(&sandbox, "rm big.bin copy.bin");
    piton(&sandbox, &["rollback", "1"]).done();
    piton(&sandbox, &["prune", "--kept"]).done();
    fs::write(sandbox.project().join("copy.bin"), large(41)).expect("a file");
    piton(&sandbox, &["undo", "--json"]).done();
    assert!(!sandbox.project().join("big.bin").exists(), "{}", journal(&sandbox));
    assert_eq!(fs::read(sandbox.project().join("copy.bin")).expect("a file"), large(41));
    piton(&sandbox, &["redo"]).done();
    assert_eq!(fs::read(sandbox.project().join("big.bin")).expect("a file"), large(0), "it was kept again");
}

#[test]
fn nothing_is_written_through_a_link_that_took_the_place_of_a_directory() {
    let sandbox = world();
    let elsewhere = sandbox.home().join("elsewhere");
    fs::create_dir_all(elsewhere.join("deep")).expect("directories");
    agent_runs(&sandbox, "rm -rf data");
    std::os::unix::fs::symlink(&elsewhere, sandbox.project().join("data")).expect("a link");
    for args in [&["recover", "data"][..], &["rollback", "1"]] {
        let ran = piton(&sandbox, args);
        assert_eq!(ran.code(), 3, "{args:?}: {ran:?}");
        assert_eq!(files_below(&elsewhere).len(), 0, "{args:?}: {ran:?}");
    }
}

#[test]
fn a_project_that_was_deleted_comes_back_with_its_large_files() {
    let sandbox = world();
    let before = without_times(&sandbox);
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    let line = format!("cd .. && rm -rf {}", sandbox.project().display());
    announce(&sandbox, &line);
    execute(&sandbox, &line);
    let mut command = crate::kit::in_dir(&sandbox, &sandbox.home());
    let dir = sandbox.project().to_str().expect("UTF-8").to_owned();
    let ran: crate::kit::Ran = crate::kept_kit::with_settings(&mut command)
        .args(["-C", &dir, "rollback", "1"])
        .output()
        .expect("piton")
        .into();
    ran.done();
    assert_eq!(without_times(&sandbox), before);
}

fn set_dir(sandbox: &Sandbox) -> PathBuf {
    let sets = fs::read_dir(sandbox.base().join("local/files")).expect("sets").flatten().map(|entry| entry.path());
    sets.into_iter().find(|path| path.join("manifest").exists()).expect("a set")
}

/// V1, U8.
#[test]
fn verify_doctor_and_repair_name_kept_files_that_are_lost_or_without_a_list() {
    let sandbox = world();
    agent_runs(&sandbox, "rm -rf data");
    piton(&sandbox, &["verify"]).done();
    let lost = kept_files(&sandbox).into_iter().find(|path| path.ends_with("deep/other.bin")).expect("kept");
    fs::remove_file(&lost).expect("removed");
    let verified = piton(&sandbox, &["verify", "--json"]);
    let finding = &verified.json()["findings"][0];
    assert_eq!((verified.code(), &finding["kind"]), (1, &json!("kept")), "{verified:?}");
    assert!(finding["path"].as_str().is_some_and(|path| path.ends_with("deep/other.bin")), "{finding}");
    let doctor = piton(&sandbox, &["doctor", "--no-fire"]);
    assert!(doctor.stdout.contains("1 of the kept files cannot be read"), "{doctor:?}");
    let dry = piton(&sandbox, &["repair", "--dry-run", "--json"]).json();
    assert_eq!((&dry["whole"], &dry["steps"][0]["step"]), (&json!(false), &json!("kept_set_aside")), "{dry}");
    piton(&sandbox, &["repair"]).done();
    piton(&sandbox, &["verify"]).done();
    piton(&sandbox, &["recover", "data/set.bin"]).done();
    assert_eq!(fs::read(sandbox.project().join("data/set.bin")).expect("a file"), large(2), "the other one stays");
    let set = set_dir(&sandbox);
    fs::write(set.join("manifest"), "no list").expect("a file");
    assert_eq!(piton(&sandbox, &["verify"]).code(), 1);
    piton(&sandbox, &["repair"]).done();
    piton(&sandbox, &["verify"]).done();
    let name = set.file_name().expect("a name").to_str().expect("UTF-8");
    let aside = set.with_file_name(format!("damaged.{name}"));
    assert!(aside.join("data").exists(), "nothing is destroyed");
    piton(&sandbox, &["prune", "--kept"]).done();
    assert!(!aside.exists());
}

#[test]
fn purge_names_kept_copies_of_the_path_and_of_the_contents() {
    let sandbox = world();
    fs::write(sandbox.home().join("copy of keep"), "1").expect("a file");
    agent_runs(&sandbox, "rm ~/'copy of keep'");
    let report = piton(&sandbox, &["purge", "keep.txt", "--yes", "--json"]);
    let place = report.json()["still_held"][0]["place"].as_str().expect("a place").to_owned();
    assert_eq!((report.code(), &report.json()["gone"]), (3, &json!(0)), "{report:?}");
    assert!(place.contains("copy of keep in the kept files k-"), "{place}");
    piton(&sandbox, &["prune", "--kept"]).done();
}

/// A list of what is lost begins with the last turn; files elsewhere that were lost long ago are counted.
#[test]
fn recover_lists_files_elsewhere_of_the_last_turn_and_all_of_them_on_request() {
    let sandbox = world();
    agent_runs(&sandbox, "rm ~/thesis.txt && echo x > ~/notes.db");
    let items = |args: &[&str]| {
        let report = piton(&sandbox, args).done().json();
        let path = |item: &Value| item["path"].as_str().expect("a path").rsplit('/').next().expect("a name").to_owned();
        let items: Vec<_> = report["items"].as_array().expect("items").iter().map(path).collect();
        (items, report["older"].as_u64().expect("a number"))
    };
    let both = vec!["thesis.txt".to_owned(), "notes.db".to_owned()];
    assert_eq!(items(&["recover", "--json"]), (both.clone(), 0), "the missing one first");
    let past = std::time::SystemTime::now() + std::time::Duration::from_millis(1_100);
    while std::time::SystemTime::now() < past {
        std::thread::yield_now();
    }
    sandbox.write("keep.txt", "2");
    hooked(&sandbox, &prompt(&sandbox, "s", "p2", "go on"));
    assert_eq!(items(&["recover", "--json"]), (vec![], 1), "only the missing one counts");
    assert_eq!(items(&["recover", "--all", "--json"]), (both, 0));
}

#[test]
fn a_file_in_no_project_that_was_kept_is_not_called_unprotected() {
    let sandbox = world();
    agent_runs(&sandbox, "rm ~/thesis.txt");
    assert!(!journal(&sandbox).contains("is in no project"), "{}", journal(&sandbox));
    fs::write(sandbox.home().join("thesis.txt"), "again\n").expect("a file");
    for _ in 0..2 {
        announce(&sandbox, "rm ~/thesis.txt");
    }
    assert!(!journal(&sandbox).contains("is in no project"), "{}", journal(&sandbox));
    announce(&sandbox, "chmod 600 ~/notes.db");
    assert_eq!(journal(&sandbox).matches("notes.db is in no project").count(), 1, "{}", journal(&sandbox));
}
