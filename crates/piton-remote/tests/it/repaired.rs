//! Damage to what machines say about themselves: it is found, hides nothing else, and its machine writes it again.

use serde_json::{Value, json};

use crate::kit::{Machine, Place};

fn push(machine: &Machine, text: &str) -> Value {
    machine.write("a", text);
    machine.take(text);
    machine.run(&["push"])
}

/// Returns a bucket to which two machines have pushed, and the phrase.
fn filled() -> (Place, [Machine; 2], String) {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    let other = Machine::joining("beta", &place, &phrase);
    for machine in [&first, &other] {
        push(machine, "one");
    }
    (place, [first, other], phrase)
}

fn flip(place: &Place, key: &str) {
    let mut bytes = place.get(key);
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    place.put(key, Some(bytes));
}

/// Returns the id of a machine as a writer.
fn writer(machine: &Machine) -> String {
    let config = std::fs::read(machine.base().join("local/remote/config.json")).expect("a file");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    config["writer"].as_str().expect("an id").to_owned()
}

/// Returns the ref of the only project of a machine.
fn ref_of(place: &Place, machine: &Machine) -> String {
    place.below("ref/").into_iter().find(|key| key.contains(&writer(machine))).expect("a ref")
}

fn findings(machine: &Machine) -> Vec<(String, String)> {
    let report = machine.run(&["verify", "--read-data"]);
    let text = |one: &Value, key: &str| one[key].as_str().expect("text").to_owned();
    report["findings"].as_array().expect("findings").iter().map(|one| (text(one, "key"), text(one, "what"))).collect()
}

/// Fails the test unless there is one finding, about this object.
#[track_caller]
fn assert_found(machine: &Machine, key: &str, what: &str) {
    let found = findings(machine);
    assert!(matches!(&found[..], [(named, why)] if named == key && why.contains(what)), "{key}, {what}: {found:?}");
}

/// Repairs the remote, after which nothing is wrong for any machine.
#[track_caller]
fn assert_repaired(machine: &Machine, other: &Machine) {
    let repaired = machine.run(&["repair", "--read-data"]);
    assert_eq!(repaired["left"], json!([]), "{repaired}");
    assert_eq!(findings(machine), []);
    assert_eq!(findings(other), []);
}

/// Returns the machines that one lists, with the number of checkpoints of each, and what it says beside.
fn listed(machine: &Machine) -> (Vec<(String, u64)>, String) {
    let output = machine.output(&["machines"]);
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let one = |one: &Value| {
        let count = one["projects"][0]["checkpoints"].as_u64().expect("a number");
        (one["name"].as_str().expect("a name").to_owned(), count)
    };
    let mut all: Vec<_> = all.as_array().unwrap_or_else(|| panic!("{all}")).iter().map(one).collect();
    all.sort();
    (all, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn pair(name: &str, count: u64) -> (String, u64) {
    (name.to_owned(), count)
}

#[test]
fn a_corrupt_ref_hides_no_other_machine_and_is_pushed_again() {
    let (place, [first, other], _) = filled();
    let key = ref_of(&place, &first);
    flip(&place, &key);
    let (machines, said) = listed(&other);
    assert_eq!(machines, [pair("beta", 1)]);
    assert!(said.contains("not shown") && said.contains(&key), "{said}");
    first.fetch("beta", "1", &["--project", "project"]);
    let dir = other.project();
    let list = ["list", "--machine", "alpha", "--project", "project", "--directory", dir.to_str().expect("a path")];
    assert_eq!(other.fails(&list).0, "damaged");
    let pushed = push(&first, "two");
    assert!(pushed["warnings"].to_string().contains("corrupt"), "{pushed}");
    assert_eq!(listed(&other).0, [pair("alpha", 2), pair("beta", 1)]);
    assert_eq!(findings(&other), []);
}

#[test]
fn a_ref_that_was_deleted_is_missed_by_every_machine_and_written_again() {
    let (place, [first, other], _) = filled();
    // The lease names the ref from its second write on.
    first.run(&["push", "--lease-secs", "0"]);
    let key = ref_of(&place, &first);
    place.put(&key, None);
    assert_found(&first, &key, "it is missing; `piton repair --remote` writes");
    assert_found(&other, &key, "it is missing; `piton repair --remote` on alpha");
    assert_repaired(&first, &other);
    assert_eq!(listed(&other).0, [pair("alpha", 1), pair("beta", 1)]);
    // One that is corrupt, without a new checkpoint.
    flip(&place, &key);
    assert_found(&other, &key, "on alpha");
    assert_ne!(other.run(&["repair"])["left"], json!([]));
    assert_repaired(&first, &other);
}

/// A project that got another name has another ref.
#[test]
fn a_lost_ref_of_a_former_name_is_forgotten() {
    let (place, [first, other], _) = filled();
    let key = ref_of(&place, &first);
    first.run(&["name", first.project().to_str().expect("a path"), "site"]);
    push(&first, "two");
    flip(&place, &key);
    assert_found(&first, &key, "was changed");
    assert_repaired(&first, &other);
    assert_eq!(listed(&other).0, [pair("alpha", 2), pair("beta", 1)]);
    // As of a project whose checkpoints are gone from the store.
    let gone = key.replace(&key[4..36], "0123456789abcdef0123456789abcdef");
    first.edit_state(|state| state["refs"][&gone] = json!({"sequence": 5, "nonces": ["x"], "directory": "/gone"}));
    assert_found(&first, &gone, "it is missing");
    assert_repaired(&first, &other);
}

#[test]
fn packs_that_a_repair_cannot_send_again_are_left() {
    let (place, [first, other], _) = filled();
    place.below("pack/").iter().for_each(|key| flip(&place, key));
    let repaired = other.run(&["repair", "--read-data"]);
    let left = repaired["left"].to_string();
    assert!(left.contains("pack/") && left.contains("alpha:") && !left.contains("beta:"), "{repaired}");
    assert_repaired(&first, &other);
}

const COLLECT: [&str; 5] = ["collect", "--grace-secs", "0", "--lease-secs", "3600"];

#[test]
fn a_corrupt_tomb_stops_no_push_and_goes() {
    let (place, [first, other], _) = filled();
    let orphan = "pack/00000000000000000000000000000000";
    for repairs in [true, false] {
        place.put(orphan, Some(b"left by a killed push".to_vec()));
        assert_eq!(first.run(&COLLECT)["marked"], 1);
        let tomb = place.below("tomb/").remove(0);
        flip(&place, &tomb);
        push(&first, &format!("two {repairs}"));
        assert_found(&other, &tomb, "`piton repair --remote` deletes it");
        if repairs {
            assert_repaired(&other, &first);
            assert_eq!(place.below("tomb/"), [""; 0]);
        }
        assert_eq!(first.run(&COLLECT)["marked"], 1, "in a new tomb");
        assert_eq!(findings(&first), []);
        for machine in [&first, &other] {
            push(machine, &format!("three {repairs}"));
        }
        assert_eq!(first.run(&COLLECT)["deleted"], 1);
    }
}

#[test]
fn a_corrupt_or_lost_lease_is_written_again_and_keeps_garbage_until_then() {
    let (place, [first, other], _) = filled();
    let lease = format!("writer/{}", writer(&first));
    place.put("pack/00000000000000000000000000000000", Some(b"left by a killed push".to_vec()));
    other.run(&COLLECT);
    push(&other, "two");
    flip(&place, &lease);
    let waiting = other.run(&COLLECT)["waiting"].to_string();
    assert!(waiting.contains(&lease), "{waiting}");
    assert_found(&first, &lease, "`piton repair --remote` writes");
    assert_found(&other, &lease, "on the machine that pushed it");
    assert_repaired(&first, &other);
    flip(&place, &lease);
    first.write("a", "three");
    first.take("three");
    assert_eq!(first.run(&["push", "--lease-secs", "0"])["warnings"], json!([]));
    assert_eq!(findings(&other), []);
    place.put(&lease, None);
    assert_found(&first, &lease, "it is missing");
    assert_repaired(&first, &other);
    assert_eq!(listed(&other).0, [pair("alpha", 2), pair("beta", 2)]);
}

#[test]
fn an_older_ref_is_a_finding_and_every_command_that_reads_it_says_so() {
    let (place, [first, other], _) = filled();
    let key = ref_of(&place, &first);
    let old = place.get(&key);
    push(&first, "two");
    assert_eq!(listed(&other), (vec![pair("alpha", 2), pair("beta", 1)], String::new()));
    place.put(&key, Some(old));
    for machine in [&first, &other] {
        assert_found(machine, &key, "rolled back");
        assert_found(machine, &key, "rolled back");
    }
    let dir = other.project();
    let output = other.output(&[
        "list",
        "--machine",
        "alpha",
        "--project",
        "project",
        "--directory",
        dir.to_str().expect("a path"),
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("{\"warning\":") && said.contains("rolled back"), "{said}");
    assert_repaired(&first, &other);
    let (machines, _) = listed(&other);
    assert!(machines.iter().any(|(name, count)| name.starts_with("alpha-") && *count == 2), "{machines:?}");
}

/// What has happened and is over is shown by `status` until it is acknowledged.
#[test]
fn notices_of_the_past_are_no_damage() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("image", &place);
    push(&first, "one");
    let copy = first.copy(&place);
    push(&first, "two");
    copy.write("a", "three");
    copy.take("three");
    assert!(copy.run(&["push"])["warnings"].to_string().contains("new id"));
    assert!(copy.run(&["status"])["warnings"].to_string().contains("new id"));
    let reader = Machine::joining("reader", &place, &phrase);
    for machine in [&copy, &first, &reader] {
        assert_eq!(findings(machine), []);
    }
}

#[test]
fn swapped_and_corrupt_indexes_are_written_again_at_once() {
    let place = Place::directory();
    let (mut first, phrase) = Machine::first("alpha", &place);
    let other = Machine::joining("beta", &place, &phrase);
    push(&first, "one");
    push(&first, "two");
    let dir = first.sandbox.root().join("second");
    std::fs::create_dir(&dir).expect("a directory");
    first.directory = Some(dir);
    push(&first, "another project");
    let indexes = place.below("idx/");
    assert_eq!(indexes.len(), 3);
    for (one, two) in [(0, 1), (1, 2)] {
        let (first, second) = (place.get(&indexes[one]), place.get(&indexes[two]));
        place.put(&indexes[one], Some(second));
        place.put(&indexes[two], Some(first));
    }
    let found = findings(&other);
    assert!(indexes.iter().all(|key| found.iter().any(|(named, _)| named == key)), "{found:?}");
    assert_repaired(&first, &other);
    for project in ["project", "second"] {
        other.fetch("alpha", "1", &["--project", project]);
    }
}

/// At each request of the check, another machine pushes.
#[test]
fn a_check_finds_nothing_missing_while_another_machine_pushes() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (machine, phrase) = Machine::first("alpha", &place);
    push(&machine, "0");
    let reader = Machine::joining("beta", &place, &phrase);
    for nth in 1..=16 {
        machine.write("a", format!("at {nth}"));
        machine.take("more");
        let command = std::sync::Mutex::new(machine.command(&["push"]));
        server.kill_at("beta", nth, false, move || {
            assert!(command.lock().expect("no panic").output().expect("the program").status.success());
        });
        let before = server.requests_of("beta");
        assert_eq!(reader.run(&["verify"])["findings"], json!([]), "request {nth}");
        assert!(server.requests_of("beta") - before > nth, "nothing was pushed meanwhile");
    }
}
