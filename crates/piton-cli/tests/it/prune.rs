//! Projects that pruning drops and keeps, with real directories, disks and records.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::faults::Mounted;
use crate::kit::{Ran, ids, in_dir, piton, run, take_works};

/// Creates another project with one checkpoint. Returns its record.
fn take_in(sandbox: &Sandbox, dir: &Path) -> PathBuf {
    fs::create_dir_all(dir).expect("a directory");
    fs::write(dir.join("file"), dir.display().to_string()).expect("a file");
    run(in_dir(sandbox, dir).args(["take", "--json"])).done();
    let records = fs::read_dir(sandbox.store().join("projects")).expect("records").flatten().map(|entry| entry.path());
    let is_its = |path: &PathBuf| {
        fs::read_to_string(path).expect("a record").contains(&format!("{:?}", dir.display().to_string()))
    };
    records.into_iter().find(is_its).expect("its record")
}

fn edit(record: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(record).expect("a record")).expect("JSON");
    change(&mut value);
    fs::write(record, value.to_string()).expect("a record");
}

fn prune(sandbox: &Sandbox, args: &[&str]) -> Value {
    piton(sandbox, ["prune", "--json"].iter().chain(args)).done().json()
}

/// Returns every entry below a directory: name, contents and modification time.
fn bytes_of(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut all = Vec::new();
    testkit::walk(dir, &mut |path| {
        let stat = path.symlink_metadata().expect("a file");
        let bytes = if stat.is_file() { fs::read(path).expect("a file") } else { Vec::new() };
        all.push((path.to_owned(), bytes, stat.modified().expect("a time")));
    });
    all.sort();
    all
}

fn days_ago(days: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60)
}

/// P1.
#[test]
fn only_a_directory_that_is_gone_from_a_place_that_is_there_makes_an_orphan() {
    let sandbox = Sandbox::new();
    let at = |name: &str| sandbox.root().join(name);
    sandbox.tree("a.txt");
    take_works(&sandbox);
    let deleted = take_in(&sandbox, &at("place/deleted"));
    take_in(&sandbox, &at("place/stays"));
    let parent_gone = take_in(&sandbox, &at("away/project"));
    let other_device = take_in(&sandbox, &at("place/unplugged"));
    edit(&other_device, |record| record["parent_device"] = json!(987_654));
    let old_record = take_in(&sandbox, &at("place/old-record"));
    let old_empty = take_in(&sandbox, &at("mount/project"));
    for record in [&old_record, &old_empty] {
        // Records of version 0.1 contain only the device.
        let keys = ["workdir_parent_dev", "workdir_parent_ino"];
        edit(record, |record| record.as_object_mut().expect("a record").retain(|key, _| !keys.contains(&key.as_str())));
    }
    for dir in ["place/deleted", "away", "place/unplugged", "place/old-record", "mount/project"] {
        fs::remove_dir_all(at(dir)).expect("a directory");
    }
    let before = bytes_of(&sandbox.base());
    let dry = prune(&sandbox, &["--dry-run"]);
    assert_eq!((&dry["scanned"], &dry["deleted_orphan"]), (&json!(7), &json!(2)), "{dry}");
    assert_eq!(prune(&sandbox, &["--dry-run", "--max-size-mb", "1"])["dry_run"], true);
    assert!(bytes_of(&sandbox.base()) == before, "a dry run changes not one byte");
    let report = prune(&sandbox, &["--keep-orphans"]);
    assert_eq!((&report["scanned"], &report["deleted_orphan"]), (&json!(7), &json!(0)), "{report}");
    let report = prune(&sandbox, &[]);
    assert_eq!(
        (&report["scanned"], &report["deleted_orphan"], &report["deleted_stale"]),
        (&json!(7), &json!(2), &json!(0))
    );
    assert!(!deleted.exists() && !old_record.exists(), "{report}");
    assert!(parent_gone.exists() && other_device.exists() && old_empty.exists(), "{report}");
    sandbox.assert_store_is_whole();
    assert_eq!(ids(&sandbox).len(), 1);
}

#[test]
fn a_disk_that_is_not_mounted_is_not_a_deleted_project() {
    let sandbox = Sandbox::new();
    let (inside, right_at) = (sandbox.root().join("media/inside"), sandbox.root().join("media/at"));
    let Some(disk) = Mounted::tmpfs(&inside, "size=1m") else { return };
    let Some(other) = Mounted::tmpfs(&right_at, "size=1m") else { return };
    let records = [take_in(&sandbox, &inside.join("project")), take_in(&sandbox, &right_at)];
    drop((disk, other));
    // Automounters remove the mount point, too.
    fs::remove_dir(&right_at).expect("an empty directory");
    fs::write(inside.join("something"), "else").expect("a file");
    let report = prune(&sandbox, &[]);
    assert_eq!(report["deleted_orphan"], 0, "{report}");
    assert!(records.iter().all(|record| record.exists()));
}

#[test]
fn an_old_project_is_dropped_unless_it_is_used_or_being_restored() {
    let sandbox = Sandbox::new();
    let record = |name: &str, days: f64| {
        let record = take_in(&sandbox, &sandbox.root().join(name));
        edit(&record, |record| {
            record["last_touch"] = json!(record["last_touch"].as_f64().expect("a time") - days * 86_400.0);
            record["their key"] = json!({"deep": [1]});
        });
        record
    };
    let (old, young, used, restoring) =
        (record("old", 8.0), record("young", 6.0), record("used", 8.0), record("restoring", 9.0));
    run(in_dir(&sandbox, &sandbox.root().join("used")).args(["take", "--json"])).done();
    let kept: Value = serde_json::from_slice(&fs::read(&used).expect("a record")).expect("JSON");
    assert_eq!(kept["their key"], json!({"deep": [1]}), "unknown keys survive");
    let list = run(in_dir(&sandbox, &sandbox.root().join("restoring")).args(["rollback", "--json"])).done().json();
    fs::create_dir_all(sandbox.store().join("restores")).expect("a directory");
    let intent = json!({"target": list[0]["id"], "safety": list[0]["id"], "paths": []});
    let intent_path = sandbox.store().join("restores").join(restoring.file_name().expect("a name"));
    fs::write(&intent_path, intent.to_string()).expect("a file");
    assert_eq!(prune(&sandbox, &["--dry-run"])["deleted_stale"], 1);
    let report = prune(&sandbox, &[]);
    assert_eq!((&report["scanned"], &report["deleted_stale"]), (&json!(4), &json!(1)), "{report}");
    assert!(!old.exists() && young.exists() && used.exists() && restoring.exists());
    assert_eq!(prune(&sandbox, &["--retention-days", "0"])["deleted_stale"], 0);
    // If the directory is gone, there is no restore left to complete.
    fs::remove_dir_all(sandbox.root().join("restoring")).expect("a directory");
    assert_eq!(prune(&sandbox, &[])["deleted_orphan"], 1);
    assert!(!intent_path.exists());
    assert_eq!(prune(&sandbox, &["--retention-days", "3"])["deleted_stale"], 1);
    assert!(!young.exists() && used.exists());
    sandbox.assert_store_is_whole();
}

/// Creates four repositories of the older layout, and two session records.
fn old_layout(sandbox: &Sandbox) {
    for number in 0..4 {
        let dir = sandbox.other_project(&format!("old-{number}"));
        fs::write(dir.join("file"), number.to_string()).expect("a file");
        let repository = sandbox.base().join(format!("{number:016x}"));
        fs::create_dir_all(&repository).expect("a directory");
        let git = |args: &[&str]| {
            let output = testkit::git().env("GIT_DIR", &repository).env("GIT_WORK_TREE", &dir).args(args).output();
            assert!(output.expect("git runs").status.success(), "{args:?}");
        };
        git(&["init", "-q"]);
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "old"]);
        fs::write(repository.join("HERMES_WORKDIR"), dir.display().to_string()).expect("a file");
    }
    for name in ["one", "two"] {
        fs::write(sandbox.base().join(format!("{name}.yaml")), format!("task: {name}\n")).expect("a record");
    }
}

fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.base()).expect("a base").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_old_layout_is_moved_aside_swept_by_age_and_session_records_stay() {
    let sandbox = Sandbox::new();
    old_layout(&sandbox);
    sandbox.tree("a.txt");
    take_works(&sandbox);
    let archive = names(&sandbox).into_iter().find(|name| name.starts_with("legacy-")).expect("an archive");
    assert_eq!(names(&sandbox), [".last_prune", archive.as_str(), "one.yaml", "store", "two.yaml"]);
    assert_eq!(fs::read_dir(sandbox.base().join(&archive)).expect("an archive").count(), 4);
    let status = piton(&sandbox, ["status", "--json"]).done().json();
    assert_eq!(status["legacy_archives"][0]["name"], archive.as_str());
    assert_eq!(prune(&sandbox, &[])["deleted_archives"], 0);
    let set_age = |days| {
        let dir = File::open(sandbox.base().join(&archive)).expect("an archive");
        dir.set_modified(days_ago(days)).expect("a time");
    };
    set_age(6);
    assert_eq!(prune(&sandbox, &[])["deleted_archives"], 0);
    set_age(8);
    assert_eq!(prune(&sandbox, &["--retention-days", "0"])["deleted_archives"], 0);
    assert_eq!(prune(&sandbox, &[])["deleted_archives"], 1);
    assert_eq!(names(&sandbox), [".last_prune", "one.yaml", "store", "two.yaml"]);
    assert_eq!(fs::read_to_string(sandbox.base().join("one.yaml")).expect("a record"), "task: one\n");
    assert_eq!(ids(&sandbox).len(), 1);
}

#[test]
fn old_repositories_beside_a_store_go_as_orphans_or_by_age() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    take_works(&sandbox);
    old_layout(&sandbox);
    fs::remove_dir_all(sandbox.root().join("old-0")).expect("a directory");
    let old = sandbox.base().join(format!("{:016x}", 1));
    for name in ["HEAD", "index", "refs", "objects", "logs/HEAD", "HERMES_WORKDIR", ""] {
        if let Ok(file) = File::open(old.join(name)) {
            file.set_modified(days_ago(8)).expect("a time");
        }
    }
    // Not a repository of the older layout, in spite of its name.
    fs::create_dir(sandbox.base().join("0123456789abcdef")).expect("a directory");
    let report = prune(&sandbox, &[]);
    assert_eq!((&report["deleted_orphan"], &report["deleted_stale"]), (&json!(1), &json!(1)), "{report}");
    assert_eq!(names(&sandbox).len(), 2 + 2 + 2 + 1, "{:?}", names(&sandbox));
    assert!(sandbox.base().join("0123456789abcdef").exists());
}

#[test]
fn the_mark_of_the_last_prune_decides_and_what_makes_no_sense_counts_as_never() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    take_works(&sandbox);
    let mark = sandbox.base().join(".last_prune");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let maintain = |text: &str| {
        fs::write(&mark, text).expect("a mark");
        piton(&sandbox, ["maintain", "--json"]).done().json()["done"].clone()
    };
    assert_eq!(maintain(&now.to_string()), "nothing");
    assert_eq!(maintain(&(now - 23.0 * 3600.0).to_string()), "nothing");
    for never in [&(now - 25.0 * 3600.0).to_string(), "garbage", "", "inf", "NaN", "\u{0}", &(now + 1e9).to_string()] {
        assert_eq!(maintain(never), "pruned", "{never:?}");
        let marked: f64 = fs::read_to_string(&mark).expect("a mark").trim().parse().expect("a number");
        assert!(marked >= now && marked < now + 1000.0, "{marked}");
    }
    fs::write(&mark, "garbage").expect("a mark");
    let mut off = in_dir(&sandbox, &sandbox.project());
    assert_eq!(run(off.env("PITON_AUTO_PRUNE", "false").args(["maintain", "--json"])).done().json()["done"], "nothing");
    assert_eq!(fs::read_to_string(&mark).expect("a mark"), "garbage");
}

/// The output of maintenance is not read by anyone: an invalid setting must neither silently end pruning nor drop more
/// than configured.
#[test]
fn a_mistake_in_the_configuration_does_not_end_pruning_and_lets_nothing_more_go() {
    let sandbox = Sandbox::new();
    let config = sandbox.home().join(".hermes/config.yaml");
    let record = take_in(&sandbox, &sandbox.root().join("old"));
    edit(&record, |record| {
        record["last_touch"] = json!(record["last_touch"].as_f64().expect("a time") - 8.0 * 86_400.0);
    });
    // Long enough ago to be due, and not so long that no project is dropped because of its age.
    let days_ago = days_ago(2).duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let maintain = |text: &[u8]| {
        fs::write(sandbox.base().join(".last_prune"), days_ago.to_string()).expect("a mark");
        fs::write(&config, text).expect("a file");
        piton(&sandbox, ["maintain", "--json"]).done().json()["done"].clone()
    };
    assert_eq!(maintain(b"checkpoints:\n  retention_days: 1y\n"), "pruned");
    assert!(record.exists(), "it is not known how long it was to be kept");
    for nothing in [&b"checkpoints:\n  auto_prune: flase\n"[..], b"checkpoints: [\n", b"\xff\xfe"] {
        assert_eq!(maintain(nothing), "nothing", "{nothing:?}");
    }
    assert_eq!(maintain(b"checkpoints:\n  max_files: many\n"), "pruned");
    assert!(!record.exists());
    let text = crate::hook_kit::journal(&sandbox);
    for words in ["retention_days: expected", "auto_prune: expected", "cannot read", "max_files: expected"] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    fs::remove_dir_all(sandbox.store()).expect("a store");
    std::os::unix::fs::symlink("store", sandbox.store()).expect("a link to itself");
    assert_eq!(piton(&sandbox, ["maintain"]).code(), 1);
    let text = crate::hook_kit::journal(&sandbox);
    assert!(text.contains("maintenance: cannot open the store"), "{text}");
}

#[test]
fn clear_removes_checkpoints_and_archives_and_nothing_else() {
    let sandbox = Sandbox::new();
    old_layout(&sandbox);
    sandbox.tree("a.txt");
    take_works(&sandbox);
    let before = bytes_of(&sandbox.base());
    let declined = piton(&sandbox, ["clear"]);
    assert_eq!((declined.code(), declined.stderr.contains("declined")), (1, true), "{declined:?}");
    assert_eq!(piton(&sandbox, ["clear", "--json"]).code(), 1);
    assert_eq!(piton(&sandbox, ["clear-legacy"]).code(), 1);
    assert!(bytes_of(&sandbox.base()) == before, "declined: not one byte is other than before");
    assert!(piton(&sandbox, ["clear", "-f"]).done().stdout.contains("Removed"));
    assert_eq!(names(&sandbox), ["one.yaml", "two.yaml"]);
    assert!(piton(&sandbox, ["clear", "-f"]).done().stdout.contains("Nothing to clear"));
    take_works(&sandbox);
    assert_eq!(ids(&sandbox).len(), 1);
}

/// P2.
#[test]
fn clear_touches_nothing_in_a_directory_that_is_not_pitons() {
    let sandbox = Sandbox::new();
    let home = sandbox.other_project("somebodys-home");
    let base = home.to_str().expect("UTF-8");
    let clear = || piton(&sandbox, ["clear", "-f", "--base", base]);
    fs::create_dir_all(home.join("legacy-20240101-101010")).expect("a directory");
    fs::write(home.join("legacy-20240101-101010/thesis"), "years of work").expect("a file");
    let refused = |ran: Ran, before: Vec<_>| {
        assert_eq!(ran.code(), 2, "{ran:?}");
        assert!(ran.stderr.contains("it is not what piton makes"), "{ran:?}");
        assert!(bytes_of(&home) == before);
    };
    // A foreign bare repository.
    assert!(testkit::git().args(["init", "-q", "--bare"]).arg(home.join("store")).status().expect("git").success());
    let before = bytes_of(&home);
    refused(clear(), before);
    // A piton store with foreign files in it.
    fs::remove_dir_all(home.join("store")).expect("a directory");
    fs::rename(home.join("legacy-20240101-101010"), sandbox.root().join("x")).expect("a move");
    sandbox.tree("a.txt");
    run(in_dir(&sandbox, &sandbox.project()).args(["take", "--base", base])).done();
    fs::rename(sandbox.root().join("x"), home.join("legacy-20240101-101010")).expect("a move");
    fs::write(home.join("store/thesis"), "years of work").expect("a file");
    let before = bytes_of(&home);
    refused(clear(), before);
}

#[test]
fn a_clear_that_was_cut_short_is_finished_by_the_next_prune() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    take_works(&sandbox);
    fs::rename(sandbox.store(), sandbox.base().join(".clearing")).expect("a move");
    take_works(&sandbox);
    prune(&sandbox, &[]);
    assert!(!sandbox.base().join(".clearing").exists());
    assert_eq!(ids(&sandbox).len(), 1);
}

#[test]
fn what_a_killed_take_left_makes_room_before_any_checkpoint_goes() {
    let sandbox = Sandbox::new();
    let take = || {
        run(in_dir(&sandbox, &sandbox.project()).env("PITON_MAX_TOTAL_SIZE_MB", "2").args(["take", "--json"])).done()
    };
    for number in 0..5 {
        sandbox.write("a.txt", number.to_string());
        assert_eq!(take().json()["outcome"], "taken");
    }
    fs::write(sandbox.store().join("objects/pack/tmp_abcdef"), vec![1; 2 << 20]).expect("a file");
    // The next take recounts everything.
    fs::remove_file(sandbox.store().join("size")).expect("a note");
    sandbox.write("a.txt", "more");
    assert_eq!(take().json()["outcome"], "taken");
    assert_eq!(ids(&sandbox).len(), 6, "no checkpoint was dropped");
    assert!(sandbox.temporary_files().is_empty());
}
