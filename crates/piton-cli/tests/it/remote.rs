//! The commands for the remote, on two machines with one bucket: push, list, fetch, restore, join, lose everything.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use testkit::{Sandbox, clean_command, files_in};

use crate::kit::{PITON, run};
use crate::picker::Terminal;
use crate::remote_kit::Machine;

/// Returns two machines. The first has two checkpoints of three files, of which everything is pushed.
fn two_machines(sandbox: &Sandbox) -> (Machine<'_>, Machine<'_>) {
    let (box_, laptop) = (Machine::new(sandbox, "box"), Machine::new(sandbox, "laptop"));
    box_.write("a.txt", "one\n");
    box_.write("src/main.rs", "fn main() {}\n");
    box_.write("dir/50 %ü", "percent\n");
    box_.piton(&["take", "-m", "first"]).done();
    box_.write("a.txt", "two\n");
    box_.piton(&["take", "-m", "second"]).done();
    box_.piton(&["mark", "2", "good"]).done();
    box_.add();
    box_.piton(&["push"]).done();
    laptop.add();
    (box_, laptop)
}

#[test]
fn a_machine_with_the_bucket_and_the_phrase_restores_what_another_pushed() {
    let sandbox = Sandbox::new();
    let (box_, laptop) = two_machines(&sandbox);
    let machines = laptop.piton(&["machines", "--json"]).done().json();
    assert_eq!((&machines[0]["name"], &machines[0]["this"]), (&"box".into(), &false.into()), "{machines}");
    assert!(machines[0]["last_seen"].as_str().is_some_and(|time| time.starts_with("20")), "{machines}");
    let project = &machines[0]["projects"][0];
    assert_eq!((&project["name"], &project["checkpoints"]), (&"code".into(), &2.into()), "{machines}");
    let list = laptop.piton(&["rollback", "--machine", "box", "--project", "code", "--json"]).done().json();
    let rows: Vec<_> = list["checkpoints"].as_array().expect("a list").iter().map(|row| &row["reason"]).collect();
    assert_eq!(rows, ["second", "first"], "{list}");
    assert_eq!(list["checkpoints"][1]["name"], "box/2");
    assert_eq!(list["checkpoints"][1]["marks"][0], "good");
    laptop.piton(&["restore", "box/1", "--project", "code"]).done();
    assert_eq!(files_in(&laptop.project), files_in(&box_.project));
    laptop.piton(&["rollback", "box/good", "--project", "code"]).done();
    assert_eq!(laptop.read("a.txt").as_deref(), Some("one\n"));
    laptop.piton(&["undo"]).done();
    assert_eq!(laptop.read("a.txt").as_deref(), Some("two\n"));
    laptop.piton(&["verify"]).done();
}

#[test]
fn one_file_of_another_machine_is_printed_and_restored_alone() {
    let sandbox = Sandbox::new();
    let (_, laptop) = two_machines(&sandbox);
    laptop.write("own.txt", "mine\n");
    let cat = |path: &str| laptop.piton(&["cat", "box/2", path, "--project", "code"]).done().stdout;
    assert_eq!(cat("a.txt"), "one\n");
    let mut git = clean_command("git");
    git.arg("--git-dir").arg(laptop.base().join("store"));
    let all = run(git.args(["cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"])).done().stdout;
    assert_eq!(all.lines().filter(|kind| *kind == "blob").count(), 1, "no other file was fetched: {all}");
    assert_eq!(cat("dir/50 %ü"), "percent\n");
    laptop.piton(&["cat", "box/2", "missing", "--project", "code"]).failed(4);
    laptop.piton(&["restore", "box/1", "src", "--project", "code"]).done();
    assert_eq!(laptop.read("src/main.rs").as_deref(), Some("fn main() {}\n"));
    assert_eq!((laptop.read("own.txt").as_deref(), laptop.read("a.txt")), (Some("mine\n"), None));
}

#[test]
fn diff_show_export_and_fetch_take_the_name_of_another_machine() {
    let sandbox = Sandbox::new();
    let (_, laptop) = two_machines(&sandbox);
    let from = ["--project", "code"];
    let with = |line: &[&str]| laptop.piton(&[line, &from].concat()).done();
    let diff = with(&["diff", "box/2", "box/1", "--json"]).json();
    let paths: Vec<_> = diff["files"].as_array().expect("a list").iter().map(|file| &file["path"]).collect();
    assert_eq!(paths, ["a.txt"], "{diff}");
    assert_eq!(with(&["show", "box/2", "--json"]).json()["files"], 3);
    let to = sandbox.root().join("exported");
    with(&["export", "box/2", &to.display().to_string()]);
    assert_eq!(fs::read_to_string(to.join("a.txt")).expect("a file"), "one\n");
    let fetched = with(&["fetch", "box/2", "--json"]).json();
    assert_ne!(fetched["id"], Value::Null);
    fs::rename(laptop.bucket(), sandbox.root().join("away")).expect("the bucket goes");
    let id = fetched["id"].as_str().expect("an id");
    laptop.piton(&["restore", id]).done();
    assert_eq!(laptop.read("a.txt").as_deref(), Some("one\n"));
}

#[test]
fn the_picker_shows_and_restores_checkpoints_of_another_machine() {
    let sandbox = Sandbox::new();
    let (_, laptop) = two_machines(&sandbox);
    laptop.write("own.txt", "mine\n");
    let (home, project) = (laptop.home.display(), laptop.project.display());
    let set = format!("cd {project}; export HOME={home} PITON_REMOTE=false");
    let line = format!("{set}; {PITON} rollback --machine box --project code");
    let Some(terminal) = Terminal::open(&sandbox, (120, 35), &line) else { return };
    let screen = terminal.wait_for("2 checkpoints in");
    assert!(screen.contains("in box (/") && screen.contains("second") && screen.contains("first  <good>"), "{screen}");
    terminal.press(&["j"]).wait_for("-one");
    terminal.press(&["v"]).wait_for("these are checkpoints of box");
    terminal.press(&["Escape"]).wait_until_gone("these are");
    terminal.press(&["Enter"]).wait_for("3 files written, 1 removed");
    terminal.press(&["y"]).wait_for("Restored to");
    assert_eq!((laptop.read("a.txt").as_deref(), laptop.read("own.txt")), (Some("one\n"), None));
    terminal.press(&["u"]).wait_for("Undo: back to");
    terminal.press(&["y"]).wait_for("own.txt");
    terminal.press(&["q"]);
    terminal.is_clean(0);
    assert_eq!((laptop.read("a.txt"), laptop.read("own.txt").as_deref()), (None, Some("mine\n")));
    // Piped, it is the list.
    let list = laptop.piton(&["rollback", "--machine", "box", "--project", "code"]).done().stdout;
    assert!(list.contains("Checkpoints of"), "{list}");
}

#[test]
fn edits_are_kept_with_checkpoints_of_this_machine_only() {
    let sandbox = Sandbox::new();
    let (_, laptop) = two_machines(&sandbox);
    laptop.write("a.txt", "mine\n");
    let refused = laptop.piton(&["restore", "box/1", "--keep-edits", "--project", "code"]).failed(2);
    assert!(refused.stderr.contains("is a checkpoint of another machine"), "{refused:?}");
    assert!(refused.stderr.contains("`piton restore box/1`"), "{refused:?}");
    assert_eq!(laptop.read("a.txt").as_deref(), Some("mine\n"));
}

#[test]
fn a_lost_home_comes_back_from_the_bucket() {
    let sandbox = Sandbox::new();
    let (box_, _) = two_machines(&sandbox);
    let before = files_in(&box_.project);
    fs::remove_dir_all(&box_.home).expect("everything is lost");
    fs::create_dir_all(&box_.project).expect("a directory");
    box_.add();
    box_.piton(&["restore", "box/1"]).done();
    assert_eq!(files_in(&box_.project), before);
}

#[test]
fn names_of_nothing_are_told_apart() {
    let sandbox = Sandbox::new();
    let (_, laptop) = two_machines(&sandbox);
    let error = |line: &[&str], code: i32| {
        let said = laptop.piton(&[line, &["--json"]].concat());
        assert_eq!(said.code(), code, "{said:?}");
        said.json()["error"]["message"].as_str().expect("a message").to_owned()
    };
    assert!(error(&["restore", "nowhere/1"], 4).contains("the remote has box"), "the machines are named");
    assert!(error(&["restore", "box/1"], 4).contains("this project"), "it is another project");
    assert!(error(&["restore", "box/9", "--project", "code"], 4).contains("checkpoint 9"));
    assert!(error(&["restore", "1", "--project", "code"], 2).contains("--project"));
    assert!(error(&["fetch", "1"], 2).contains("MACHINE/N"));
    let alone = Machine::new(&sandbox, "alone");
    alone.piton(&["take"]).done();
    alone.piton(&["machines"]).failed(4);
    alone.piton(&["push"]).failed(4);
    alone.piton(&["restore", "box/1"]).failed(2);
}

#[test]
fn the_phrase_is_shown_once_or_written_for_the_owner_alone() {
    let sandbox = Sandbox::new();
    let machine = Machine::new(&sandbox, "box");
    let url = format!("file://{}", machine.bucket().display());
    let shown = machine.piton(&["remote", "add", &url]).done().stdout;
    let (_, after) = shown.split_once("Recovery phrase:").expect("a phrase");
    let words: Vec<_> = after.split("It opens").next().expect("words").split_whitespace().collect();
    assert!(words.len() >= 12, "{shown}");
    let kept = machine.base().join("local/remote/config.json");
    assert!(!fs::read_to_string(kept).expect("the configuration").contains(words[0]));
    let status = machine.piton(&["remote", "status", "--verbose"]).done().stdout;
    assert!(!status.contains(&words[..3].join(" ")), "{status}");

    let other = Machine::new(&sandbox, "other");
    let refused = other.piton(&["remote", "add", &url, "--json"]).json();
    assert_eq!(refused["error"]["kind"], "wrong_key", "{refused}");
    let wrong = sandbox.root().join("wrong");
    fs::write(&wrong, "abandon ".repeat(11) + "about\n").expect("a file");
    other.piton(&["remote", "add", &url, "--phrase-file", &wrong.display().to_string()]).failed(1);
    let made = sandbox.root().join("unused");
    other.piton(&["remote", "add", &url, "--phrase-out", &made.display().to_string()]).failed(1);
    assert!(!made.exists(), "no phrase was made, and no file stays");
    let right = sandbox.root().join("right");
    fs::write(&right, words.join(" ")).expect("a file");
    other.piton(&["remote", "add", &url, "--phrase-file", &right.display().to_string()]).done();

    let file = sandbox.root().join("second");
    machine.piton(&["remote", "key", "add", "--label", "for you", "--phrase-out", &file.display().to_string()]).done();
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    let keys = machine.piton(&["remote", "key", "--json"]).done().json();
    let slots = keys["slots"].as_array().expect("a list");
    let own = slots.iter().find(|slot| slot["label"] == "for you").unwrap_or_else(|| panic!("{keys}"));
    machine.piton(&["remote", "key", "remove", own["slot"].as_str().expect("an id"), "--yes"]).done();
    let third = Machine::new(&sandbox, "third");
    third.piton(&["remote", "add", &url, "--phrase-file", &file.display().to_string()]).failed(1);
    machine.piton(&["remote", "key", "rotate"]).done();
    third.piton(&["remote", "add", &url, "--phrase-file", &right.display().to_string()]).done();
}

#[test]
fn the_picker_shows_that_a_remote_was_rolled_back() {
    let sandbox = Sandbox::new();
    let (box_, laptop) = two_machines(&sandbox);
    let (bucket, away) = (box_.bucket(), sandbox.root().join("away"));
    assert!(clean_command("cp").arg("-a").arg(&bucket).arg(&away).status().expect("cp runs").success());
    box_.write("a.txt", "three\n");
    box_.piton(&["take"]).done();
    box_.piton(&["push"]).done();
    laptop.piton(&["machines"]).done();
    fs::remove_dir_all(&bucket).expect("the bucket goes");
    fs::rename(&away, &bucket).expect("an older one takes its place");
    let (home, project) = (laptop.home.display(), laptop.project.display());
    let set = format!("cd {project}; export HOME={home} PITON_REMOTE=false");
    let line = format!("{set}; {PITON} rollback --machine box --project code");
    let Some(terminal) = Terminal::open(&sandbox, (160, 35), &line) else { return };
    terminal.wait_for("the remote shows an older state");
    terminal.press(&["q"]);
    terminal.is_clean(0);
}

#[test]
fn a_failed_push_and_a_remote_that_was_rolled_back_are_shown_until_seen() {
    let sandbox = Sandbox::new();
    let (box_, laptop) = two_machines(&sandbox);
    let (bucket, away) = (box_.bucket(), sandbox.root().join("away"));
    let copied = clean_command("cp").arg("-a").arg(&bucket).arg(&away).status().expect("cp runs");
    assert!(copied.success());
    box_.write("a.txt", "three\n");
    box_.piton(&["take"]).done();
    let status = box_.piton(&["status", "--json"]).done().json();
    assert_eq!(status["remote"]["unpushed"][0]["checkpoints"], 1, "{status}");
    box_.piton(&["push"]).done();
    laptop.piton(&["machines"]).done();
    fs::remove_dir_all(&bucket).expect("the bucket goes");
    fs::rename(&away, &bucket).expect("an older one takes its place");
    let printed = laptop.piton(&["cat", "box/1", "a.txt", "--project", "code"]).done();
    assert!(printed.stderr.contains("warning: the remote shows an older state"), "{printed:?}");
    let shown = laptop.piton(&["status"]).done().stdout;
    assert!(shown.contains("remote: the remote shows an older state"), "{shown}");
    assert_eq!(laptop.piton(&["doctor", "--no-fire", "--json"]).json()["ok"], false);
    let seen = laptop.piton(&["status", "--ack"]).done().stdout;
    assert!(!seen.contains("older state"), "{seen}");

    fs::remove_dir_all(&bucket).expect("the bucket goes");
    fs::write(&bucket, "a file").expect("a file in its place");
    box_.write("a.txt", "four\n");
    box_.piton(&["take"]).done();
    box_.piton(&["push"]).failed(1);
    let status = box_.piton(&["status", "--json"]).done().json();
    assert!(status["remote"]["failure"].is_string() && status["remote"]["retry"].is_string(), "{status}");
    let problems = status["problems"].as_array().expect("a list");
    let is_told = |one: &Value| one["what"].as_str().is_some_and(|what| what.starts_with("not pushed: "));
    assert!(problems.iter().any(is_told), "{status}");
}

#[test]
fn the_remote_is_verified_repaired_collected_and_removed() {
    let sandbox = Sandbox::new();
    let (box_, laptop) = two_machines(&sandbox);
    assert_eq!(box_.piton(&["verify", "--remote", "--json"]).done().json()["findings"], Value::Array(Vec::new()));
    let packs = fs::read_dir(box_.bucket().join("pack")).expect("packs").flatten();
    let pack = packs.map(|entry| entry.path()).next().expect("a pack");
    let mut bytes = fs::read(&pack).expect("a pack");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&pack, &bytes).expect("a pack");
    let found = box_.piton(&["verify", "--remote", "--read-data", "--json"]);
    assert_eq!(found.code(), 1, "{found:?}");
    assert_ne!(found.json()["findings"], Value::Array(Vec::new()));
    box_.piton(&["repair", "--remote", "--read-data"]).done();
    box_.piton(&["verify", "--remote", "--read-data"]).done();
    laptop.piton(&["restore", "box/1", "--project", "code"]).done();
    assert_eq!(files_in(&laptop.project), files_in(&box_.project));
    let collected = box_.piton(&["prune", "--remote", "--json"]).done().json();
    assert_eq!(collected["deleted"], 0, "nothing is deleted by the first run: {collected}");

    let declined = run(&mut laptop.command(&["remote", "remove"]));
    assert_eq!(declined.code(), 1, "{declined:?}");
    laptop.piton(&["remote", "remove", "--yes"]).done();
    laptop.piton(&["machines"]).failed(4);
    let deleted = box_.piton(&["remote", "remove", "--delete-data", "--yes", "--json"]).done().json();
    assert!(deleted["deleted"].as_u64().is_some_and(|count| count > 3), "{deleted}");
}

#[test]
fn a_project_with_a_name_is_the_same_one_in_another_directory() {
    let sandbox = Sandbox::new();
    let (box_, laptop) = two_machines(&sandbox);
    laptop.piton(&["rollback", "--machine", "box"]).failed(4);
    for machine in [&box_, &laptop] {
        machine.piton(&["remote", "name", "website"]).done();
    }
    box_.write("a.txt", "three\n");
    box_.piton(&["take"]).done();
    box_.piton(&["push"]).done();
    laptop.piton(&["restore", "box/1"]).done();
    assert_eq!(laptop.read("a.txt").as_deref(), Some("three\n"));
}

/// The oracle is the same restore from the checkpoint that was fetched whole.
#[test]
fn paths_of_another_machine_are_restored_as_those_of_this_one() {
    let sandbox = Sandbox::new();
    let (box_, laptop) = (Machine::new(&sandbox, "box"), Machine::new(&sandbox, "laptop"));
    for path in ["a.txt", "dir/old", "dir/deep/old", "src/main.rs", "file"] {
        box_.write(path, path);
    }
    fs::create_dir_all(box_.project.join("empty/er")).expect("a directory");
    box_.piton(&["take"]).done();
    box_.add();
    box_.piton(&["push"]).done();
    laptop.add();
    for path in ["new", "dir/new", "fresh/one", "file/below", "src/main.rs", "a.txt", "build.pyc"] {
        laptop.write(path, "of the laptop");
    }
    let lists: [&[&str]; 12] = [
        &["empty"],
        &["empty/er"],
        &["new"],
        &["dir/new"],
        &["fresh"],
        &["fresh/one", "a.txt"],
        &["file/below"],
        &["file"],
        &["dir"],
        &["src"],
        &["nothing"],
        &["build.pyc"],
    ];
    let plan = |name: &str, more: &[&str], paths: &[&str]| {
        let planned = laptop.piton(&[&["restore", name, "--dry-run", "--json"], more, paths].concat());
        let mut json = planned.json();
        let keys: Vec<_> = json.as_object().expect("an object").keys().cloned().collect();
        for key in keys.iter().filter(|key| ["id", "target", "error"].contains(&&***key)) {
            json[key] = Value::Null;
        }
        (planned.code(), json)
    };
    let parts: Vec<_> = lists.iter().map(|paths| plan("box/1", &["--project", "code"], paths)).collect();
    let whole = laptop.piton(&["fetch", "box/1", "--project", "code", "--json"]).done().json();
    let whole = whole["id"].as_str().expect("an id");
    for (paths, part) in lists.iter().zip(parts) {
        assert_eq!(part, plan(whole, &[], paths), "{paths:?}");
    }
    laptop.piton(&["restore", "box/1", "empty", "new", "dir/new", "--project", "code"]).done();
    assert!(laptop.project.join("empty/er").is_dir() && laptop.project.join("dir").is_dir());
    assert_eq!((laptop.read("new"), laptop.read("dir/new")), (None, None));
    laptop.piton(&["undo"]).done();
    assert_eq!(laptop.read("new").as_deref(), Some("of the laptop"));
    laptop.piton(&["cat", "box/1", "new", "--project", "code"]).failed(4);
}

#[test]
fn what_is_pushed_under_a_new_name_counts_as_pushed() {
    let sandbox = Sandbox::new();
    let (box_, _) = two_machines(&sandbox);
    let unpushed = |line: &[&str]| {
        let status = box_.piton(line).done().json();
        let list = if line[0] == "status" { &status["remote"]["unpushed"] } else { &status["unpushed"] };
        list.as_array().expect("a list").iter().filter_map(|one| one["checkpoints"].as_u64()).sum::<u64>()
    };
    let both = || [unpushed(&["status", "--json"]), unpushed(&["remote", "status", "--json"])];
    for number in 1..=6 {
        box_.piton(&["remote", "name", &format!("name-{number}")]).done();
        assert_eq!(both(), [number + 1; 2], "nothing is pushed under the new name");
        box_.piton(&["push"]).done();
        box_.write("a.txt", &format!("{number}\n"));
        box_.piton(&["take"]).done();
        assert_eq!(both(), [1, 1], "name {number}");
        box_.piton(&["push"]).done();
        assert_eq!(both(), [0, 0], "name {number}");
    }
}

#[test]
fn a_fetch_into_a_directory_without_checkpoints_is_no_problem() {
    let sandbox = Sandbox::new();
    let (_, laptop) = two_machines(&sandbox);
    let problems = || laptop.piton(&["status", "--json"]).done().json()["problems"].clone();
    let before = problems();
    laptop.piton(&["cat", "box/1", "a.txt", "--project", "code"]).done();
    laptop.piton(&["fetch", "box/1", "--project", "code"]).done();
    assert_eq!(problems(), before);
    let status = laptop.piton(&["status", "--json"]).done().json();
    let project = &status["projects"][0];
    assert_eq!((&project["workdir"], &project["exists"]), (&laptop.project.to_str().into(), &true.into()), "{status}");
}

#[test]
fn an_unreadable_configuration_is_removed() {
    let sandbox = Sandbox::new();
    let (box_, _) = two_machines(&sandbox);
    let config = box_.base().join("local/remote/config.json");
    fs::write(&config, "{").expect("a file");
    let refused = box_.piton(&["push"]).failed(2);
    assert!(refused.stderr.contains("`piton remote remove`"), "{refused:?}");
    box_.piton(&["remote", "remove", "--delete-data", "--yes"]).failed(2);
    let removed = box_.piton(&["remote", "remove", "--yes", "--json"]).done().json();
    assert_eq!((&removed["url"], config.exists()), (&Value::Null, false), "{removed}");
    box_.add();
    box_.piton(&["push"]).done();
}

#[test]
fn a_purge_names_the_remote_that_still_holds_the_file() {
    let sandbox = Sandbox::new();
    let (box_, laptop) = two_machines(&sandbox);
    for machine in [&box_, &laptop] {
        machine.write("keys", "a secret\n");
        machine.piton(&["take"]).done();
    }
    let held = |machine: &Machine<'_>| {
        let purged = machine.piton(&["purge", "keys", "--yes", "--json"]);
        (purged.code(), purged.json()["still_held"].as_array().expect("a list").clone())
    };
    assert_eq!(held(&laptop), (0, Vec::new()), "it has pushed nothing");
    box_.piton(&["push"]).done();
    let (code, places) = held(&box_);
    assert_eq!((code, places.len()), (3, 1), "{places:?}");
    let url = format!("the remote file://{}", box_.bucket().display());
    assert!(places[0]["place"].as_str().is_some_and(|place| place.starts_with(&url)), "{places:?}");
    box_.write("keys", "another secret\n");
    box_.piton(&["take"]).done();
    assert_eq!(held(&box_), (0, Vec::new()), "it was not pushed");
}
