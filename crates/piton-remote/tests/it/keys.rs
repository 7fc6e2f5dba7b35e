//! Keys and recovery phrases: no key that a phrase opened is ever lost.

use std::process::Command;

use crate::kit::{Machine, Place};

/// Takes and pushes a checkpoint of a file with this text.
fn push(machine: &Machine, text: &str) {
    machine.write("a", text);
    machine.take(text);
    machine.run(&["push"]);
}

/// Returns the number of checkpoints of each machine, as a new machine with the phrase sees them.
fn seen(place: &Place, phrase: &str) -> Vec<(String, u64)> {
    let reader = Machine::joining("reader", place, phrase);
    assert_eq!(reader.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
    let machines = reader.run(&["machines"]);
    let count = |one: &serde_json::Value| one["projects"][0]["checkpoints"].as_u64().expect("a number");
    let mut seen: Vec<_> = machines
        .as_array()
        .expect("machines")
        .iter()
        .map(|one| (one["name"].as_str().expect("a name").to_owned(), count(one)))
        .collect();
    seen.sort();
    seen
}

fn pair(name: &str, count: u64) -> (String, u64) {
    (name.to_owned(), count)
}

#[test]
fn a_machine_with_an_old_keyring_does_not_replace_a_newer_one() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    push(&first, "one");
    let other = Machine::joining("beta", &place, &phrase);
    let slot = first.run(&["key-add", "--label", "office"])["slot"].as_str().expect("a slot").to_owned();
    first.run(&["key-rotate"]);
    push(&first, "two");
    for args in [&["key-rotate"][..], &["key-add"], &["key-remove", &slot]] {
        let (kind, message) = other.fails(args);
        assert!(kind == "wrong_key" && message.contains("newer key"), "{args:?}: {message}");
    }
    assert_eq!(seen(&place, &phrase), [pair("alpha", 2)]);
    other.join(&place, &phrase);
    assert_eq!(other.run(&["key-rotate"])["keys"], 3);
    push(&other, "one");
    assert_eq!(seen(&place, &phrase), [pair("alpha", 2), pair("beta", 1)]);
    assert_eq!(first.fails(&["key-add"]).0, "wrong_key");
    first.join(&place, &phrase);
    let added = first.run(&["key-add"])["phrase"].as_str().expect("a phrase").to_owned();
    push(&first, "three");
    assert_eq!(seen(&place, &added), [pair("alpha", 3), pair("beta", 1)]);
}

/// As two machines leave it that replace the key at the same moment: the slots have the key of one of them only.
#[test]
fn joining_again_keeps_the_keys_that_only_this_machine_has() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    push(&first, "one");
    let other = Machine::joining("beta", &place, &phrase);
    let key = place.below("key/").remove(0);
    let before = place.get(&key);
    first.run(&["key-rotate"]);
    push(&first, "two");
    place.put(&key, Some(before));
    other.run(&["key-rotate"]);
    push(&other, "one");
    first.join(&place, &phrase);
    push(&first, "three");
    assert_eq!(seen(&place, &phrase), [pair("alpha", 3), pair("beta", 1)]);
}

/// A remote with three phrases, the third of which is being removed, as a machine leaves it that is killed when the first
/// of the other two slots is written. Returns the machine, the slot that is removed, the slot that was written, and the
/// phrases of the other slot, of that one and of the removed one.
fn interrupted_removal(place: &Place) -> (Machine, [String; 2], [String; 3]) {
    let Place::Server(server) = place else { unreachable!() };
    let (machine, phrase) = Machine::first("alpha", place);
    push(&machine, "one");
    let of_first = place.below("key/").remove(0)["key/".len()..].to_owned();
    let mut slots = vec![(of_first, phrase)];
    for label in ["office", "lost"] {
        let added = machine.run(&["key-add", "--label", label]);
        let text = |key: &str| added[key].as_str().expect("text").to_owned();
        slots.push((text("slot"), text("phrase")));
    }
    let (removed, removed_phrase) = slots.pop().expect("three");
    let contents = || slots.iter().map(|(slot, _)| place.get(&format!("key/{slot}"))).collect::<Vec<_>>();
    let before = contents();
    for nth in 1..40 {
        let mut child = machine.spawn(&["key-remove", &removed]);
        let pid = child.id().to_string();
        server.kill_at("alpha", nth, false, move || {
            drop(Command::new("kill").args(["-9", &pid]).status());
        });
        assert!(!child.wait().expect("the program").success(), "request {nth}");
        server.spare("alpha");
        let written: Vec<_> = contents().iter().zip(&before).map(|(now, before)| now != before).collect();
        assert_ne!(written, [true, true]);
        if let Some(at) = written.iter().position(|is_written| *is_written) {
            let (written, phrase) = slots.remove(at);
            let (_, other_phrase) = slots.remove(0);
            return (machine, [removed, written], [other_phrase, phrase, removed_phrase]);
        }
    }
    panic!("no slot was written");
}

#[test]
fn a_removal_that_was_interrupted_is_completed_by_the_next() {
    let place = Place::server();
    let (machine, [removed, _], [other, written, gone]) = interrupted_removal(&place);
    machine.join(&place, &other);
    machine.run(&["key-remove", &removed]);
    push(&machine, "two");
    for phrase in [&other, &written] {
        assert_eq!(seen(&place, phrase), [pair("alpha", 2)]);
    }
    let late = Machine::new("late", &place);
    let file = late.sandbox.root().join("phrase");
    std::fs::write(&file, gone).expect("a file");
    let refused = late.fails(&["add", &place.url(), "--phrase-file", file.to_str().expect("a path")]);
    assert_eq!(refused.0, "wrong_key");
    machine.run(&["key-add"]);
}

/// The machine that was interrupted is gone.
#[test]
fn a_slot_with_an_unknown_key_can_be_removed() {
    let place = Place::server();
    let (_machine, [removed, written], [other, ..]) = interrupted_removal(&place);
    let second = Machine::joining("beta", &place, &other);
    let (kind, message) = second.fails(&["key-remove", &removed]);
    assert!(kind == "wrong_key" && message.contains(&written), "{message}");
    second.run(&["key-remove", &written]);
    second.run(&["key-remove", &removed]);
    push(&second, "two");
    assert_eq!(seen(&place, &other), [pair("alpha", 1), pair("beta", 1)]);
}
