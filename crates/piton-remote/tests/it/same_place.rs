//! A bucket that is not the one that was added: an empty mount point, an emptied bucket, another repository.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use crate::kit::{Machine, Place};

/// Returns a directory with a repository to which two machines have pushed, and the phrase.
fn filled() -> (Place, [Machine; 2], String) {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    let other = Machine::joining("beta", &place, &phrase);
    for machine in [&first, &other] {
        push(machine, "one");
    }
    (place, [first, other], phrase)
}

fn push(machine: &Machine, text: &str) {
    machine.write("a", text);
    machine.take(text);
    machine.run(&["push"]);
}

/// Takes a checkpoint, and returns the kind of the error with which its push fails.
fn push_fails(machine: &Machine, text: &str) -> String {
    machine.write("a", text);
    machine.take(text);
    machine.fails(&["push"]).0
}

fn root(place: &Place) -> PathBuf {
    let Place::Directory(dir) = place else { unreachable!() };
    dir.path().join("bucket")
}

fn findings(machine: &Machine) -> Vec<String> {
    let report = machine.run(&["verify", "--read-data"]);
    let findings = report["findings"].as_array().expect("findings");
    findings.iter().map(|one| one["key"].as_str().expect("a key").to_owned()).collect()
}

#[test]
fn nothing_is_pushed_into_an_empty_mount_point() {
    let (place, [first, other], _) = filled();
    let (bucket, away) = (root(&place), root(&place).with_file_name("away"));
    fs::rename(&bucket, &away).expect("the disk goes");
    assert_eq!(push_fails(&first, "two"), "unavailable");
    let answer = String::from_utf8(first.output(&["push"]).stdout).expect("text");
    assert!(answer.contains("is the disk mounted?") && answer.contains("piton remote status"), "{answer}");
    assert_eq!(other.fails(&["machines"]).0, "unavailable");
    assert!(!bucket.exists(), "only `add` creates the directory");
    fs::create_dir(&bucket).expect("a mount point");
    assert_eq!(first.fails(&["push"]).0, "damaged");
    assert_eq!(first.fails(&["machines"]).0, "damaged");
    assert_eq!(first.fails(&["collect"]).0, "damaged");
    let dir = other.project();
    let list = ["list", "--machine", "alpha", "--project", "project", "--directory", dir.to_str().expect("a path")];
    assert_eq!(other.fails(&list).0, "damaged");
    assert_eq!(place.keys(), [""; 0], "nothing was written there");
    fs::remove_dir(&bucket).and_then(|()| fs::rename(&away, &bucket)).expect("the disk is back");
    first.run(&["push"]);
    assert_eq!(other.run(&list)["rows"].as_array().map(Vec::len), Some(2));
    assert_eq!(findings(&other), [""; 0]);
}

#[test]
fn a_bucket_that_was_emptied_is_filled_again_by_a_repair_only() {
    let (place, [first, other], phrase) = filled();
    other.run(&["remove", "--delete-data"]);
    assert_eq!(push_fails(&first, "two"), "damaged");
    assert_eq!(place.keys(), [""; 0], "nothing was written there");
    let repaired = first.run(&["repair"]);
    assert!(repaired["left"].to_string().contains("no recovery phrase opens"), "{repaired}");
    let reader = Machine::new("reader", &place);
    let file = reader.sandbox.root().join("phrase");
    fs::write(&file, &phrase).expect("a file");
    let args = ["add", &place.url(), "--phrase-file", file.to_str().expect("a path")];
    assert_eq!(reader.fails(&args).0, "wrong_key");
    let added = first.run(&["key-add"])["phrase"].as_str().expect("a phrase").to_owned();
    reader.join(&place, &added);
    assert_eq!(reader.run(&["machines"])[0]["projects"][0]["checkpoints"], 2);
    assert_eq!(findings(&reader), [""; 0]);
}

#[test]
fn a_lost_or_changed_description_is_found_and_written_again() {
    let (place, [first, _other], phrase) = filled();
    let whole = place.get("piton.json");
    let text = String::from_utf8(whole.clone()).expect("text");
    let id = text.split('"').find(|word| word.len() == 32).expect("an id");
    let changes = [
        None,
        Some("{".to_owned()),
        Some(text.replace(id, "0123456789abcdef0123456789abcdef")),
        Some(text.replace("true", "false")),
    ];
    for change in changes {
        place.put("piton.json", change.clone().map(String::into_bytes));
        assert_eq!(findings(&first), ["piton.json"], "{change:?}");
        if change.is_none() {
            let stranger = Machine::new("stranger", &place);
            assert_eq!(stranger.fails(&["add", &place.url()]).0, "damaged");
        }
        assert_eq!(first.run(&["repair"])["left"], json!([]), "{change:?}");
        assert_eq!(place.get("piton.json"), whole);
        Machine::joining("later", &place, &phrase);
    }
}

#[test]
fn a_phrase_for_a_remote_that_calls_itself_unencrypted_is_refused() {
    let (place, [first, _other], phrase) = filled();
    let text = String::from_utf8(place.get("piton.json")).expect("text");
    place.put("piton.json", Some(text.replace("true", "false").into_bytes()));
    let joining = Machine::new("gamma", &place);
    for machine in [&joining, &first] {
        let file = machine.sandbox.root().join("phrase");
        fs::write(&file, &phrase).expect("a file");
        let args = ["add", &place.url(), "--phrase-file", file.to_str().expect("a path")];
        let (kind, message) = machine.fails(&args);
        assert!(kind == "invalid" && message.contains("not encrypted"), "{message}");
    }
    assert_eq!(joining.fails(&["status"]).0, "not_found");
}

#[test]
fn a_changed_slot_is_found_and_can_be_replaced() {
    let (place, [first, _other], phrase) = filled();
    let slot = place.below("key/").remove(0);
    let whole = String::from_utf8(place.get(&slot)).expect("text");
    let sealed = whole.split("\"sealed\":\"").nth(1).expect("a keyring");
    place.put(&slot, Some(whole.replace(&sealed[..20], "0123456789abcdef0123").into_bytes()));
    assert_eq!(findings(&first), [slot.as_str(), "key/"]);
    assert_eq!(first.fails(&["key-rotate"]).0, "invalid", "no phrase would open it");
    assert_eq!(first.fails(&["key-remove", &slot[4..]]).0, "invalid", "no phrase would open it");
    let added = first.run(&["key-add"])["phrase"].as_str().expect("a phrase").to_owned();
    assert_eq!(first.run(&["key-remove", &slot[4..]])["slots"], 1);
    assert_eq!(findings(&first), [""; 0]);
    let reader = Machine::joining("reader", &place, &added);
    assert_eq!(reader.run(&["machines"]).as_array().map(Vec::len), Some(2));
    let late = Machine::new("late", &place);
    fs::write(late.sandbox.root().join("phrase"), &phrase).expect("a file");
    let file = late.sandbox.root().join("phrase");
    assert_eq!(late.fails(&["add", &place.url(), "--phrase-file", file.to_str().expect("a path")]).0, "wrong_key");
}

#[test]
fn another_repository_in_its_place_is_neither_written_nor_repaired_nor_deleted() {
    let (place, [first, _other], _) = filled();
    let (theirs, ..) = filled();
    for entry in fs::read_dir(root(&place)).expect("a bucket").flatten() {
        if entry.path().is_dir() {
            fs::remove_dir_all(entry.path()).expect("a directory");
        } else {
            fs::remove_file(entry.path()).expect("a file");
        }
    }
    let copied = std::process::Command::new("cp").arg("-a").arg(root(&theirs).join(".")).arg(root(&place)).status();
    assert!(copied.expect("cp").success());
    let before = place.keys();
    assert_eq!(push_fails(&first, "two"), "damaged");
    for args in [&["repair"][..], &["collect"], &["machines"], &["remove", "--delete-data"], &["key-rotate"]] {
        assert_eq!(first.fails(args).0, "damaged", "{args:?}");
    }
    assert_eq!(place.keys(), before);
}

/// As after a clock that was ahead, and was set right because a store refused it.
#[test]
fn a_next_attempt_in_the_far_future_keeps_no_push_waiting() {
    let (_place, [first, _], _) = filled();
    let in_secs = |secs: u64| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
        first.edit_state(|state| state["retry_secs"] = (now + secs).into());
        first.run(&["push", "--background"])
    };
    assert_eq!(in_secs(600)["waiting"], true);
    assert_eq!(in_secs(10 * 24 * 3600)["unchanged"], 1);
}
