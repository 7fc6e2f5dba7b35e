//! Stores that Hermes wrote, created by the sequence of git commands that it runs, and bases of its older layout.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use testkit::{Dice, Sandbox, git};

use crate::kit::{command, ids, piton, run};

fn project_id(dir: &Path) -> String {
    let sum = Sha256::digest(dir.to_str().expect("UTF-8").as_bytes());
    sum.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Creates a store as Hermes does.
fn init(sandbox: &Sandbox) {
    for dir in ["indexes", "projects"] {
        fs::create_dir_all(sandbox.store().join(dir)).expect("a directory");
    }
    let made = git().args(["init", "-q", "--bare"]).arg(sandbox.store()).output().expect("git runs");
    assert!(made.status.success());
    sandbox.store_git(&["config", "gc.auto", "0"]);
    fs::write(sandbox.store().join("info/exclude"), "node_modules/\n.env\n").expect("the list");
}

fn write_record(sandbox: &Sandbox, more: &serde_json::Value) {
    let dir = sandbox.project();
    let mut record = json!({"workdir": dir, "created_at": 1_700_000_000.25, "last_touch": 1_700_000_000.25});
    let keys = record.as_object_mut().expect("an object");
    keys.extend(more.as_object().expect("an object").clone());
    let path = sandbox.store().join(format!("projects/{}.json", project_id(&dir)));
    fs::write(path, record.to_string()).expect("a record");
}

/// Takes a checkpoint as Hermes does.
fn hermes_takes(sandbox: &Sandbox, reason: &str) -> String {
    let project = project_id(&sandbox.project());
    let run = |args: &[&str]| {
        let output = sandbox.seed_git(&project, args);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let name = format!("refs/hermes/{project}");
    let newest = run(&["rev-parse", "--verify", "--quiet", &name]);
    write_record(sandbox, &json!({}));
    run(&["add", "-A"]).expect("all added");
    let tree = run(&["write-tree"]).expect("a tree");
    let mut args = vec!["commit-tree", &tree];
    args.extend(newest.iter().flat_map(|newest| ["-p", newest]));
    args.extend(["-m", reason, "--no-gpg-sign"]);
    let new = run(&args).expect("a commit");
    run(&["update-ref", &name, &new]).expect("a ref");
    new
}

/// Creates a sandbox with two checkpoints by Hermes, and a file changed since.
fn only_hermes() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n secret.txt = x");
    init(&sandbox);
    hermes_takes(&sandbox, "before write_file");
    sandbox.write("a.txt", "two");
    hermes_takes(&sandbox, "before patch");
    sandbox.write("a.txt", "three");
    sandbox
}

#[test]
fn every_command_works_on_a_store_that_only_hermes_has_written() {
    for args in [
        &["restore", "2", "--yes"][..],
        &["rollback", "2"],
        &["prune"],
        &["clear", "--force"],
        &["purge", "secret.txt", "--yes"],
        &["take"],
    ] {
        let sandbox = only_hermes();
        let ran = piton(&sandbox, args);
        assert_eq!(ran.code(), 0, "{args:?}: {ran:?}");
    }
    let sandbox = only_hermes();
    piton(&sandbox, ["restore", "2", "--yes"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "one");
    piton(&sandbox, ["undo", "--yes"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "three");
    // There is nothing to undo, and the message says so.
    let sandbox = only_hermes();
    assert!(piton(&sandbox, ["undo", "--yes"]).stderr.contains("nothing was restored"));
    for args in [&["verify"][..], &["doctor"]] {
        let ran = piton(&sandbox, args);
        assert!(!ran.stdout.is_empty() && !ran.stderr.contains("lock"), "{ran:?}");
    }
}

#[test]
fn a_restore_leaves_the_modes_of_what_hermes_made_as_they_are() {
    let sandbox = only_hermes();
    let config = sandbox.store().join("config");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).expect("permissions");
    piton(&sandbox, ["restore", "2", "--yes"]).done();
    assert_eq!(config.metadata().expect("a file").mode() & 0o777, 0o644);
}

/// G6, with loose objects: each takes a block on the disk but only a few bytes in a pack.
#[test]
fn loose_objects_are_packed_and_counted_by_their_bytes_before_a_checkpoint_goes() {
    let sandbox = Sandbox::new();
    init(&sandbox);
    for round in 0..8 {
        for file in 0..60 {
            sandbox.write(format!("dir/{file}"), format!("{round} {file}"));
        }
        hermes_takes(&sandbox, "before patch");
    }
    let before = ids(&sandbox);
    let mut bytes = 0;
    testkit::walk(&sandbox.store(), &mut |path| {
        let found = path.symlink_metadata().expect("what was just listed");
        bytes += if found.is_file() { found.len() } else { 0 };
    });
    assert_eq!(piton(&sandbox, ["status", "--json"]).done().json()["store_size_bytes"], bytes);
    sandbox.write("new", "new");
    let taken = run(command(&sandbox).env("PITON_MAX_TOTAL_SIZE_MB", "1").args(["take", "--json"])).done().json();
    assert_eq!(taken["outcome"], "taken");
    let pruned = piton(&sandbox, ["prune", "--max-size-mb", "1", "--json"]).done().json();
    assert_eq!(pruned["dropped_checkpoints"], 0);
    assert_eq!(ids(&sandbox)[1..], before);
    assert_eq!(sandbox.count_objects("commit"), 9);
}

/// P1.
#[test]
fn a_project_of_hermes_is_an_orphan_only_if_the_directory_around_it_is_the_same() {
    let around = |sandbox: &Sandbox| {
        let found = sandbox.project().parent().expect("a directory").metadata().expect("a directory");
        (found.dev(), found.ino())
    };
    for (dev_off, ino_off, is_noted, orphans) in [(0, 0, true, 1), (0, 1, true, 0), (1, 0, true, 0), (0, 0, false, 0)] {
        let sandbox = only_hermes();
        let (dev, ino) = around(&sandbox);
        let noted = json!({"workdir_parent_dev": dev + dev_off, "workdir_parent_ino": ino + ino_off});
        write_record(&sandbox, &if is_noted { noted } else { json!({}) });
        fs::remove_dir_all(sandbox.project()).expect("a directory");
        let mut prune = command(&sandbox);
        prune.current_dir(sandbox.root()).args(["prune", "--retention-days", "0", "--json"]);
        let report = run(&mut prune).done().json();
        assert_eq!(report["deleted_orphan"], orphans, "{dev_off} {ino_off} {is_noted}");
    }
}

/// Creates a repository of the older layout, and an archive of such.
fn older_layout(sandbox: &Sandbox) {
    let old = sandbox.base().join("0123456789abcdef");
    fs::create_dir_all(&old).expect("a directory");
    fs::write(old.join("HEAD"), "ref: refs/heads/master\n").expect("a file");
    fs::write(old.join("HERMES_WORKDIR"), sandbox.root().join("gone").to_str().expect("UTF-8")).expect("a file");
    let archive = sandbox.base().join("legacy-20200101-000000");
    fs::create_dir_all(&archive).expect("a directory");
    fs::write(archive.join("pack"), [7; 5_000]).expect("a file");
}

#[test]
fn what_older_layouts_left_is_shown_pruned_and_cleared_without_a_store() {
    let sandbox = Sandbox::new();
    older_layout(&sandbox);
    let status = piton(&sandbox, ["status", "--json"]).done().json();
    assert!(status["legacy_size_bytes"].as_u64().expect("a size") > 5_000, "{status}");
    assert_eq!(status["legacy_archives"].as_array().expect("a list").len(), 1);
    let pruned = piton(&sandbox, ["prune", "--json"]).done().json();
    assert_eq!((&pruned["scanned"], &pruned["deleted_orphan"]), (&json!(1), &json!(1)), "{pruned}");
    assert!(!sandbox.base().join("0123456789abcdef").exists());
    older_layout(&sandbox);
    let cleared = piton(&sandbox, ["clear-legacy", "--force", "--json"]).done().json();
    assert_eq!(cleared["bytes_freed"], 5_000);
    older_layout(&sandbox);
    let cleared = piton(&sandbox, ["clear", "--force", "--json"]).done().json();
    assert!(cleared["bytes_freed"].as_u64().expect("a size") > 5_000, "{cleared}");
    assert!(!sandbox.base().join("0123456789abcdef").exists());
    assert!(!sandbox.store().exists(), "nothing was made");
}

#[test]
fn clear_counts_what_it_removed_and_no_more() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "a");
    piton(&sandbox, ["take"]).done();
    run(command(&sandbox).args(["session", "list"])).done();
    let before = testkit::space::bytes_below(&sandbox.base());
    let freed = piton(&sandbox, ["clear", "--force", "--json"]).done().json()["bytes_freed"].as_u64();
    assert!(freed.expect("a size") <= before, "{freed:?} of {before}");
}

#[test]
fn the_exclude_list_that_git_itself_puts_there_is_none() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n .env = secret\n node_modules/x.js");
    init(&sandbox);
    let list = sandbox.store().join("info/exclude");
    fs::write(
        &list,
        "# git ls-files --others --exclude-from=.git/info/exclude\n# Lines that start with '#' are comments.\n",
    )
    .expect("the list");
    let id = piton(&sandbox, ["take", "--json"]).done().json()["id"].as_str().expect("an id").to_owned();
    let held: Vec<_> = sandbox.held_by(&id).into_keys().collect();
    assert_eq!(held, [b"a.txt".to_vec()]);
    // A user's own list is kept, whatever its content.
    fs::write(&list, "# mine\n").expect("the list");
    sandbox.write("a.txt", "changed");
    piton(&sandbox, ["take"]).done();
    assert_eq!(fs::read_to_string(&list).expect("the list"), "# mine\n");
}

/// T1.
#[test]
fn contents_that_are_damaged_in_the_store_are_written_again() {
    let sandbox = Sandbox::new();
    let contents = Dice::new(3).noise(20_000);
    sandbox.write("a", &contents);
    piton(&sandbox, ["take"]).done();
    let packs = sandbox.store().join("objects/pack");
    let pack = fs::read_dir(&packs).expect("packs").map(|entry| entry.expect("a name").path());
    let pack = pack.into_iter().find(|path| path.extension().is_some_and(|end| end == "pack")).expect("a pack");
    let mut bytes = fs::read(&pack).expect("a pack");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(&pack, bytes).expect("a pack");
    sandbox.write("b", &contents);
    let id = piton(&sandbox, ["take", "--json"]).done().json()["id"].as_str().expect("an id").to_owned();
    fs::remove_file(sandbox.path("b")).expect("a file");
    piton(&sandbox, ["restore", &id, "b", "--yes"]).done();
    assert_eq!(fs::read(sandbox.path("b")).expect("a file"), contents);
}

#[test]
fn the_timeout_of_hermes_is_the_deadline_where_none_is_set() {
    let sandbox = Sandbox::new();
    let deadline = |value: &str| {
        let answer = run(command(&sandbox).env("HERMES_CHECKPOINT_TIMEOUT", value).args(["config", "--json"])).done();
        answer.json().to_string()
    };
    for (value, deadline_ms) in [("20", "20000"), ("1", "10000"), ("900", "60000"), ("soon", "5000")] {
        assert!(deadline(value).contains(deadline_ms), "{value}: {}", deadline(value));
    }
}

/// T3.
#[test]
fn a_directory_that_cannot_be_read_any_more_is_named_as_unprotected() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n dir/b.txt");
    piton(&sandbox, ["take"]).done();
    sandbox.chmod("dir", 0o000);
    // Root reads everything.
    if fs::read_dir(sandbox.path("dir")).is_err() {
        let ran = piton(&sandbox, ["take"]).done();
        assert!(ran.stderr.contains("UNPROTECTED: dir/"), "{ran:?}");
        sandbox.write("a.txt", "changed");
        assert!(!piton(&sandbox, ["take"]).done().stderr.contains("UNPROTECTED"), "it is said once");
    }
    sandbox.chmod("dir", 0o755);
}
