//! Purging a path from every checkpoint: its contents are gone from every byte of the store, and everything else stays.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;

use serde_json::Value;
use testkit::{Dice, Held, Sandbox};

use crate::kit::{Ran, ids, in_dir, piton, run, spawn_piped, take_works};

pub(crate) const SECRET: &str = "correct-horse-battery-staple";

/// Returns the places in the store that contain these bytes: in files as they are, and in objects.
pub(crate) fn found(sandbox: &Sandbox, wanted: &[u8]) -> Vec<String> {
    let holds = |bytes: &[u8]| bytes.windows(wanted.len()).any(|window| window == wanted);
    let mut found = Vec::new();
    testkit::walk(&sandbox.base(), &mut |path| {
        if path.is_file() && holds(&fs::read(path).expect("a file")) {
            found.push(path.display().to_string());
        }
    });
    let all = sandbox.store_git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)"]);
    for line in String::from_utf8(all).expect("text").lines() {
        let (id, kind) = line.split_once(' ').expect("two words");
        if holds(&sandbox.store_git(&["cat-file", kind, id])) {
            found.push(line.to_owned());
        }
    }
    found
}

fn secret(dice: &mut Dice) -> Vec<u8> {
    // Large enough to be the base of a delta, and never the same.
    let mut text: Vec<u8> = (0..200).flat_map(|line| format!("key {line} = {}\n", dice.roll(9)).into_bytes()).collect();
    text.extend(SECRET.as_bytes());
    text.extend(format!("-{}\n", dice.roll(1 << 30)).as_bytes());
    text
}

/// Takes checkpoints of a secret file that changes, among others that do not contain the secret; returns the ids,
/// newest first.
pub(crate) fn takes(sandbox: &Sandbox, count: usize) -> Vec<String> {
    let mut dice = Dice::new(7);
    for number in 0..count {
        sandbox.write("dir/keys", secret(&mut dice));
        sandbox.write("dir/other", format!("other {}", number / 2));
        sandbox.write("a.txt", format!("{}{number}", "a line\n".repeat(100)));
        piton(sandbox, ["take", "--json", "-m", &format!("take {number}")]).done();
    }
    ids(sandbox)
}

pub(crate) fn without_secret(held: BTreeMap<Vec<u8>, Held>) -> BTreeMap<Vec<u8>, Held> {
    held.into_iter().filter(|(path, _)| path != b"dir/keys").collect()
}

/// Returns the entries of the list without ids.
fn told(sandbox: &Sandbox) -> Vec<(Value, Value, Value)> {
    let list = piton(sandbox, ["rollback", "--json"]).done().json();
    let line = |one: &Value| (one["time"].clone(), one["reason"].clone(), one["kind"].clone());
    list.as_array().expect("a list").iter().map(line).collect()
}

/// X2.
#[test]
fn a_purged_file_is_gone_from_every_byte_and_nothing_else_is() {
    // As takes leave it; truncated; deltas based on the secret; packed refs.
    for case in 0..5 {
        let sandbox = Sandbox::new();
        let before_all = takes(&sandbox, if case == 1 { 25 } else { 6 });
        match case {
            2 => drop(piton(&sandbox, ["prune", "--json"]).done()),
            3 => drop(sandbox.store_git(&["repack", "-adf", "--depth=50", "--window=50", "-q"])),
            4 => {
                sandbox.store_git(&["pack-refs", "--all"]);
                sandbox.store_git(&["multi-pack-index", "write"]);
                let pack = &sandbox.store().join("objects/pack");
                let name = fs::read_dir(pack)
                    .expect("packs")
                    .flatten()
                    .find(|entry| entry.path().extension().is_some_and(|end| end == "pack"));
                fs::write(name.expect("a pack").path().with_extension("keep"), "").expect("a file");
            }
            _ => {}
        }
        assert!(!found(&sandbox, SECRET.as_bytes()).is_empty());
        let (held, times): (Vec<_>, _) = (before_all.iter().map(|id| sandbox.held_by(id)).collect(), told(&sandbox));
        let report = piton(&sandbox, ["purge", "--json", "-y", "dir/keys"]).done().json();
        sandbox.assert_store_is_whole();
        assert_eq!(found(&sandbox, SECRET.as_bytes()), [""; 0], "case {case}");
        let after_all = ids(&sandbox);
        assert_eq!(told(&sandbox), times, "case {case}");
        let pairs = report["rewritten"].as_array().expect("a list");
        let rewritten: BTreeMap<&str, &str> = pairs
            .iter()
            .map(|pair| (pair["old"].as_str().expect("an id"), pair["new"].as_str().expect("an id")))
            .collect();
        for ((old, new), held) in before_all.iter().zip(&after_all).zip(held) {
            assert_eq!(rewritten[old.as_str()], new);
            assert!(sandbox.held_by(new) == without_secret(held), "case {case}: {new}");
        }
        assert_eq!((before_all.len(), report["gone"].as_u64()), (after_all.len(), Some(after_all.len() as u64)));
        assert_eq!(report["still_held"], Value::Array(Vec::new()));
        // The file itself still exists, and the next take stores it again.
        assert!(sandbox.path("dir/keys").exists());
        let again = take_works(&sandbox);
        assert_eq!(ids(&sandbox)[0], again);
    }
}

/// X1.
#[test]
fn checkpoints_before_the_first_that_held_it_keep_their_ids() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    let first = take_works(&sandbox);
    sandbox.tree("a.txt = two\n dir/keys = correct-horse-battery-staple");
    take_works(&sandbox);
    let report = piton(&sandbox, ["purge", "--json", "-y", "dir"]).done().json();
    assert_eq!(report["rewritten"].as_array().map(Vec::len), Some(1));
    assert_eq!(ids(&sandbox)[1], first);
    assert_eq!(found(&sandbox, SECRET.as_bytes()), [""; 0]);
}

#[test]
fn a_path_that_no_checkpoint_holds_is_not_found_and_nothing_changes() {
    let sandbox = Sandbox::new();
    let before = takes(&sandbox, 3);
    assert!(piton(&sandbox, ["purge", "-y", "nowhere"]).failed(4).stderr.contains("no checkpoint of this project"));
    assert!(piton(&sandbox, ["purge", "-y", "../other"]).failed(2).stderr.contains("cannot use the path"));
    piton(&sandbox, ["purge", "--dry-run", "dir/keys"]).done();
    assert_eq!(piton(&sandbox, ["purge", "dir/keys"]).code(), 1, "it was not agreed to");
    assert_eq!(ids(&sandbox), before);
}

#[test]
fn the_same_contents_elsewhere_are_reported_and_stay() {
    let sandbox = Sandbox::new();
    let other = sandbox.other_project("other");
    sandbox.tree("keys = correct-horse-battery-staple\n a.txt");
    fs::write(other.join("copy"), SECRET).expect("a file");
    take_works(&sandbox);
    let kept = run(in_dir(&sandbox, &other).args(["take", "--json"])).done().json()["id"].clone();
    let ran = piton(&sandbox, ["purge", "--json", "-y", "keys"]);
    assert_eq!(ran.code(), 3, "{ran:?}");
    let report = ran.json();
    let place = report["still_held"][0]["place"].as_str().expect("a place").to_owned();
    assert!(place.starts_with("copy in checkpoint ") && place.ends_with("/other"), "{place}");
    assert_eq!(report["gone"], 0);
    assert_eq!(sandbox.held_by(kept.as_str().expect("an id"))[&b"copy"[..]], Held::File(false, SECRET.into()));
}

#[test]
fn every_place_of_the_same_contents_is_named_once() {
    let sandbox = Sandbox::new();
    let secret = |path: &str| sandbox.write(path, SECRET);
    ["keys", "copy.json", "a/one", "b/one", "a.txt"].into_iter().for_each(secret);
    take_works(&sandbox);
    sandbox.tree("a.txt = other");
    take_works(&sandbox);
    let other = sandbox.other_project("other");
    fs::write(other.join("copy.json"), SECRET).expect("a file");
    run(in_dir(&sandbox, &other).args(["take"])).done();
    let ran = piton(&sandbox, ["purge", "--json", "-y", "keys"]);
    assert_eq!((ran.code(), &ran.json()["gone"]), (3, &serde_json::json!(0)), "{ran:?}");
    let (new, own) = (ids(&sandbox), sandbox.project());
    let place =
        |path: &str, id: &str, dir: &std::path::Path| format!("{path} in checkpoint {} of {}", &id[..7], dir.display());
    let json = ran.json();
    let told: Vec<_> = json["still_held"].as_array().expect("a list").iter().map(|one| one["place"].as_str()).collect();
    let of_other = run(in_dir(&sandbox, &other).args(["rollback", "--json"])).done().json();
    let mut want = [
        place("copy.json", &new[0], &own),
        place("a/one", &new[0], &own),
        place("b/one", &new[0], &own),
        place("a.txt", &new[1], &own),
        place("copy.json", of_other[0]["id"].as_str().expect("an id"), &other),
    ];
    want.sort();
    assert_eq!(told, want.iter().map(|place| Some(place.as_str())).collect::<Vec<_>>());
}

#[test]
fn the_places_that_are_named_have_a_limit() {
    let sandbox = Sandbox::new();
    sandbox.write("keys", SECRET);
    (0..23).for_each(|number| sandbox.write(format!("copy-{number}"), SECRET));
    take_works(&sandbox);
    let said = piton(&sandbox, ["purge", "-y", "keys"]).stderr;
    assert_eq!(said.matches("are still there: copy-").count(), 20, "{said}");
    assert!(said.contains("and in 3 other places"), "{said}");
}

#[test]
fn a_purge_waits_for_a_restore_that_was_cut_short() {
    let sandbox = Sandbox::new();
    let before = takes(&sandbox, 3);
    let project = sandbox.store_git(&["for-each-ref", "--format=%(refname:lstrip=2)"]);
    let intents = sandbox.store().join("restores");
    fs::create_dir_all(&intents).expect("a directory");
    let intent = intents.join(format!("{}.json", String::from_utf8_lossy(&project).trim()));
    let text = serde_json::json!({"target": before[1], "safety": before[0], "paths": []}).to_string();
    fs::write(&intent, text).expect("a file");
    let ran = piton(&sandbox, ["purge", "-y", "dir/keys"]).failed(5);
    assert!(ran.stderr.contains("a restore of this project was cut short"), "{ran:?}");
    assert_eq!(ids(&sandbox), before);
    fs::remove_file(intent).expect("a file");
    piton(&sandbox, ["purge", "-y", "dir/keys"]).done();
}

#[test]
fn undo_and_restore_go_on_after_a_purge() {
    let sandbox = Sandbox::new();
    takes(&sandbox, 3);
    let now = testkit::files_in(&sandbox.project());
    piton(&sandbox, ["restore", "3", "-y"]).done();
    piton(&sandbox, ["purge", "-y", "dir/keys"]).done();
    // Partly done: the purged file stays as it is.
    assert_eq!(piton(&sandbox, ["undo", "-y"]).code(), 3);
    let after = testkit::files_in(&sandbox.project());
    // Purged contents cannot come back, and the current file is not changed without a checkpoint of it.
    assert_eq!(without_secret(after), without_secret(now));
    sandbox.assert_store_is_whole();
    take_works(&sandbox);
}

/// X3.
#[test]
fn a_restore_after_a_purge_leaves_the_file_where_it_is() {
    // Two checkpoints of piton's; then with the first one replaced by a stock git commit, which has no metadata.
    for is_stock in [false, true] {
        let sandbox = Sandbox::new();
        sandbox.tree("config/keys.json = key one\n secrets/a = a\n secrets/b = b\n main.rs = one");
        let id = take_works(&sandbox);
        if is_stock {
            let git = |args: &[&str]| String::from_utf8(sandbox.store_git(args)).expect("text").trim().to_owned();
            let name = git(&["for-each-ref", "--format=%(refname)"]);
            let stock = git(&["commit-tree", "-m", "before patch", &format!("{id}^{{tree}}")]);
            git(&["update-ref", &name, &stock]);
        }
        sandbox.tree("config/keys.json = key two\n main.rs = two");
        take_works(&sandbox);
        sandbox.tree("secrets/b = changed\n made-since");
        piton(&sandbox, ["purge", "-y", "config/keys.json", "secrets"]).done();
        let shown = piton(&sandbox, ["show", "1"]).done().stdout;
        assert!(shown.contains("config/keys.json (purged)") && shown.contains("secrets/ (purged, 2 files)"), "{shown}");
        let before = testkit::files_in(&sandbox.project());
        let ran = piton(&sandbox, ["restore", "2", "-y", "--json"]);
        assert_eq!(ran.code(), 3, "{ran:?}");
        let reason = "it was there, and a purge took it out of the checkpoint";
        let left = |path: &str| serde_json::json!({"path": path, "why": "purged", "reason": reason});
        assert_eq!(ran.json()["left"], Value::from(["config/keys.json", "secrets/a", "secrets/b"].map(left).to_vec()));
        assert_eq!(ran.json()["removed_paths"], serde_json::json!(["made-since"]));
        let after = testkit::files_in(&sandbox.project());
        for path in ["config/keys.json", "secrets/a", "secrets/b"] {
            assert_eq!(after.get(path.as_bytes()), before.get(path.as_bytes()), "{path}");
        }
        assert_eq!(fs::read_to_string(sandbox.path("main.rs")).expect("a file"), "one");
        sandbox.assert_store_is_whole();
    }
}

/// The suggested command contains everything that is already in the list.
#[test]
fn a_purge_says_how_to_keep_the_file_out_and_that_works() {
    let sandbox = Sandbox::new();
    sandbox.tree("it's [a] key = one\n kept.txt\n data.sqlite");
    piton(&sandbox, ["config", "set", "exclude", "*.sqlite"]).done();
    let take = || piton(&sandbox, ["take", "--json"]).done().json()["id"].as_str().expect("an id").to_owned();
    take();
    let purged = piton(&sandbox, ["purge", "-y", "it's [a] key"]).done();
    let words = "later checkpoints, also those that a restore takes, hold it again unless it is excluded or ignored";
    assert!(purged.stderr.contains(words), "{purged:?}");
    let told = purged.stderr.split('`').nth(1).expect("a command").strip_prefix("piton ").expect("ours").to_owned();
    let ours = in_dir(&sandbox, &sandbox.project());
    let mut shell = testkit::clean_command("/bin/sh");
    shell.envs(ours.get_envs().filter_map(|(key, value)| Some((key, value?)))).current_dir(sandbox.project());
    run(shell.arg("-c").arg(format!("{} {told}", ours.get_program().display()))).done();
    let list = piton(&sandbox, ["config", "get", "exclude", "--json"]).done().json();
    assert_eq!(list["value"], serde_json::json!(["*.sqlite", "/it's \\[a\\] key"]));
    sandbox.tree("kept.txt = changed");
    assert_eq!(sandbox.held_by(&take()).into_keys().collect::<Vec<_>>(), [b"kept.txt".to_vec()]);
    // A file that is gone from the disk cannot be stored again.
    sandbox.tree("b.txt");
    take();
    fs::remove_file(sandbox.path("b.txt")).expect("a file");
    let purged = piton(&sandbox, ["purge", "-y", "b.txt"]).done();
    assert_eq!(purged.stderr, "");
}

#[test]
fn a_dry_run_names_paths_as_the_run_itself_does() {
    let sandbox = Sandbox::new();
    let name = "a\tb\u{1b}.txt";
    sandbox.write(name, "x");
    sandbox.write("kept.txt", "y");
    take_works(&sandbox);
    let dry = piton(&sandbox, ["purge", "--dry-run", "--json", name]).done().json();
    let real = piton(&sandbox, ["purge", "--yes", "--json", name]).done().json();
    assert_eq!((&dry["paths"], &real["paths"]), (&serde_json::json!([name]), &serde_json::json!([name])));
}

#[test]
fn with_quiet_there_is_no_question_about_an_unprinted_plan() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n b.txt");
    take_works(&sandbox);
    for (args, agree) in [(&["-q", "purge", "b.txt"][..], "--yes"), (&["-q", "clear"], "--force")] {
        let mut command = in_dir(&sandbox, &sandbox.project());
        let mut child = spawn_piped(command.args(args));
        // The command may have declined before it reads this.
        let _ = child.stdin.take().expect("a pipe").write_all(b"y\n");
        let ran = Ran::from(child.wait_with_output().expect("it ends"));
        assert_eq!((ran.code(), ran.stdout.as_str()), (1, ""), "{ran:?}");
        assert!(ran.stderr.contains(agree) && !ran.stderr.contains("[y/N]"), "{ran:?}");
        assert_eq!(ids(&sandbox).len(), 1);
        piton(&sandbox, args.iter().chain(&[agree])).done();
    }
}

#[test]
fn a_purge_of_an_ignored_file_asks_and_is_counted() {
    let sandbox = Sandbox::new();
    sandbox.write(".gitignore", ".env\n");
    sandbox.write(".env", format!("KEY={SECRET}\n"));
    piton(&sandbox, ["take"]).done();
    let held = || piton(&sandbox, ["purge", ".env", "--dry-run", "--json"]).json()["local"].clone();
    let plan = piton(&sandbox, ["purge", ".env", "--dry-run", "--json"]).done().json();
    assert_eq!(
        (&plan["checkpoints"], &plan["local"], &plan["paths"]),
        (&0.into(), &1.into(), &serde_json::json!([".env"]))
    );
    let text = piton(&sandbox, ["purge", ".env", "--dry-run"]).done().stdout;
    assert!(text.contains("cannot be undone") && text.contains("  .env"), "{text}");
    for args in [&["purge", ".env"][..], &["purge", ".env", "--json"]] {
        let declined = piton(&sandbox, args);
        assert_eq!((declined.code(), held()), (1, 1.into()), "{declined:?}");
    }
    let report = piton(&sandbox, ["purge", ".env", "--yes", "--json"]).done().json();
    assert_eq!((&report["gone"], &report["paths"]), (&1.into(), &serde_json::json!([".env"])));
    assert_eq!(piton(&sandbox, ["purge", ".env", "--yes"]).code(), 4);
}

#[test]
fn a_path_that_only_kept_files_hold_is_reported_with_their_names() {
    let sandbox = crate::kept_kit::world();
    let piton = |args: &[&str]| crate::kept_kit::piton(&sandbox, args);
    crate::kept_kit::agent_runs(&sandbox, "rm big.bin ~/thesis.txt");
    let (big, thesis) = (sandbox.project().join("big.bin"), sandbox.home().join("thesis.txt"));
    for path in ["big.bin", big.to_str().expect("UTF-8"), thesis.to_str().expect("UTF-8")] {
        let ran = piton(&["purge", path, "--yes", "--json"]);
        let place = ran.json()["still_held"][0]["place"].as_str().unwrap_or_default().to_owned();
        assert!(ran.code() == 3 && place.contains("in the kept files k-"), "{path}: {ran:?}");
        let text = piton(&["purge", path, "--yes"]);
        assert!(text.stderr.contains("piton prune --kept"), "{path}: {text:?}");
    }
    let in_scope = sandbox.project().join("keep.txt");
    let report = piton(&["purge", in_scope.to_str().expect("UTF-8"), "--yes", "--json"]).done().json();
    assert_eq!(report["paths"], serde_json::json!(["keep.txt"]));
    assert_eq!(piton(&["purge", "nothing", "--yes"]).code(), 4);
}
