//! Keys and recovery phrases: no key that a phrase opened is ever lost.

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
