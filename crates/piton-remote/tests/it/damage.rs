//! A bucket that was changed: everything is found and named, and what a machine still has is sent again.

use serde_json::Value;
use testkit::Dice;

use crate::kit::{Machine, Place};

/// Returns a bucket with some packs, the machine that filled it, and the phrase.
fn filled() -> (Place, Machine, String) {
    let place = Place::directory();
    let (machine, phrase) = Machine::first("alpha", &place);
    let mut dice = Dice::new(7);
    for number in 0..3 {
        machine.write(&format!("file-{number}"), dice.noise(200 << 10));
        machine.take(&format!("take {number}"));
        machine.run(&["push"]);
    }
    (place, machine, phrase)
}

fn findings(machine: &Machine) -> Vec<(String, String)> {
    let report = machine.run(&["verify", "--read-data"]);
    let text = |one: &Value, key: &str| one[key].as_str().expect("text").to_owned();
    report["findings"].as_array().expect("findings").iter().map(|one| (text(one, "key"), text(one, "what"))).collect()
}

#[test]
fn a_changed_object_is_found_named_and_sent_again() {
    let flip = |place: &Place, key: &str, at: usize| {
        let mut bytes = place.get(key);
        bytes[at] ^= 0x40;
        place.put(key, Some(bytes));
    };
    type Damage = fn(&Place, &dyn Fn(&Place, &str, usize)) -> String;
    let cases: [(&str, Damage); 7] = [
        ("a flipped byte", |place, flip| {
            let key = place.below("pack/").remove(0);
            flip(place, &key, 70_000);
            key
        }),
        ("swapped packs", |place, _| {
            let keys = place.below("pack/");
            let (one, two) = (place.get(&keys[0]), place.get(&keys[1]));
            place.put(&keys[0], Some(two));
            place.put(&keys[1], Some(one));
            keys[0].clone()
        }),
        ("swapped frames", |place, _| {
            let key = place.below("pack/").remove(0);
            let mut bytes = place.get(&key);
            let frame = (64 << 10) + 16;
            let (one, two) = bytes[32..].split_at_mut(frame);
            one.swap_with_slice(&mut two[..frame]);
            place.put(&key, Some(bytes));
            key
        }),
        ("a truncated pack", |place, _| {
            let key = place.below("pack/").remove(1);
            let bytes = place.get(&key);
            place.put(&key, Some(bytes[..bytes.len() / 2].to_vec()));
            key
        }),
        ("a missing pack", |place, _| {
            let key = place.below("pack/").remove(2);
            place.put(&key, None);
            key
        }),
        ("a changed index", |place, flip| {
            let key = place.below("idx/").remove(0);
            flip(place, &key, 40);
            key
        }),
        ("a missing index", |place, _| {
            let key = place.below("idx/").remove(1);
            place.put(&key, None);
            key
        }),
    ];
    for (what, damage) in cases {
        let (place, machine, phrase) = filled();
        assert_eq!(findings(&machine), [], "{what}");
        let key = damage(&place, &flip);
        let found = findings(&machine);
        assert!(found.iter().any(|(named, _)| *named == key), "{what}: {key} is not among {found:?}");
        let repaired = machine.run(&["repair", "--read-data"]);
        assert_eq!(repaired["left"], serde_json::json!([]), "{what}");
        assert_eq!(findings(&machine), [], "{what}");
        let other = Machine::joining("beta", &place, &phrase);
        for number in ["1", "2", "3"] {
            other.fetch("alpha", number, &["--project", "project"]);
        }
    }
}

/// Swaps two objects.
fn swap(place: &Place, one: &str, other: &str) {
    let (first, second) = (place.get(one), place.get(other));
    place.put(one, Some(second));
    place.put(other, Some(first));
}

/// Makes a second project in the same home, and pushes it.
fn push_second_project(machine: &mut Machine) {
    let dir = machine.sandbox.root().join("second");
    std::fs::create_dir(&dir).expect("a directory");
    machine.directory = Some(dir);
    machine.write("other", "another project");
    machine.take("second");
    machine.run(&["push"]);
}

/// A file that two fetched checkpoints share is lost with the pack of the first.
#[test]
fn a_second_fetch_brings_back_what_the_store_has_lost_since() {
    let (place, machine, phrase) = filled();
    let then = crate::kit::state(&machine.project());
    let other = Machine::joining("beta", &place, &phrase);
    other.fetch("alpha", "1", &["--project", "project", "--path", "file-0"]);
    let lost = packs_of(&other);
    let id = other.fetch("alpha", "1", &["--project", "project"]);
    for pack in &lost {
        std::fs::remove_file(pack).and_then(|()| std::fs::remove_file(pack.with_extension("idx"))).expect("a pack");
    }
    assert!(!lost.is_empty() && packs_of(&other).len() == 1, "{lost:?}");
    for _ in 0..2 {
        assert_eq!(other.fetch("alpha", "1", &["--project", "project"]), id);
        assert_eq!(packs_of(&other).len(), 2, "one pack has what was lost");
    }
    other.restore(&id, &[]);
    assert_eq!(crate::kit::state(&other.project()), then);
}

/// An object opens under the name that it was written under only.
#[test]
fn refs_under_other_names_are_found_and_never_restored() {
    for option in [&[][..], &["--no-encryption"]] {
        let place = Place::directory();
        let mut machine = Machine::new("alpha", &place);
        let url = place.url();
        machine.run(&[&["add", &url][..], option].concat());
        machine.write("a", "1");
        machine.take("one");
        machine.run(&["push"]);
        push_second_project(&mut machine);
        let refs = place.below("ref/");
        let parts: Vec<_> = refs[0].split('/').collect();
        let copied = format!("ref/{}/{:032x}/{}", parts[1], 0, parts[3]);
        if let Place::Directory(dir) = &place {
            std::fs::create_dir(dir.path().join(format!("bucket/ref/{}/{:032x}", parts[1], 0))).expect("a directory");
        }
        assert_eq!(findings(&machine), []);
        swap(&place, &refs[0], &refs[1]);
        let found = findings(&machine);
        assert!(refs.iter().all(|key| found.iter().any(|(named, _)| named == key)), "{found:?}");
        let dir = machine.project();
        let dir = dir.to_str().expect("a path");
        let (kind, _) = machine.fails(&["fetch", "--machine", "alpha", "--checkpoint", "1", "--directory", dir]);
        assert!(["damaged", "not_found"].contains(&&*kind), "{kind}");
        swap(&place, &refs[0], &refs[1]);
        place.put(&copied, Some(place.get(&refs[0])));
        assert!(findings(&machine).iter().any(|(named, _)| *named == copied));
        place.put(&copied, None);
        assert_eq!(findings(&machine), []);
    }
}

#[test]
fn an_older_ref_is_noticed_by_readers_and_by_its_writer() {
    let (place, machine, phrase) = filled();
    let key = place.below("ref/").remove(0);
    let old = place.get(&key);
    machine.write("more", "1");
    machine.take("more");
    machine.run(&["push"]);
    let reader = Machine::joining("beta", &place, &phrase);
    reader.run(&["machines"]);
    assert_eq!(reader.run(&["status"])["warnings"], serde_json::json!([]));
    place.put(&key, Some(old));
    reader.run(&["machines"]);
    let warnings = reader.run(&["status"])["warnings"].to_string();
    assert!(warnings.contains("rolled back"), "{warnings}");
    // B11: the writer takes a new id, and pushes everything under it.
    machine.write("more", "2");
    machine.take("still more");
    let pushed = machine.run(&["push"]);
    assert!(pushed["warnings"].to_string().contains("rolled back"), "{pushed}");
    let machines = reader.run(&["machines"]);
    assert_eq!(machines.as_array().map(Vec::len), Some(2), "{machines}");
    place.put(&key, None);
    reader.run(&["machines"]);
    assert!(reader.run(&["status"])["warnings"].to_string().contains("gone"), "a lost ref is noticed");
}

#[test]
fn a_ref_that_is_gone_is_pushed_again() {
    let (place, machine, phrase) = filled();
    place.put(&place.below("ref/").remove(0), None);
    machine.write("more", "1");
    machine.take("more");
    let pushed = machine.run(&["push"]);
    assert!(pushed["warnings"].to_string().contains("gone"), "{pushed}");
    let reader = Machine::joining("beta", &place, &phrase);
    assert_eq!(reader.run(&["machines"])[0]["projects"][0]["checkpoints"], 4);
    assert_eq!(findings(&reader), []);
}

/// The other way round: a store that lost everything gets it back from the remote.
#[test]
fn what_a_damaged_store_has_lost_is_fetched_back() {
    let (_place, machine, _) = filled();
    let then = crate::kit::state(&machine.project());
    let packs = machine.base().join("store/objects/pack");
    for entry in std::fs::read_dir(&packs).expect("packs").flatten() {
        std::fs::remove_file(entry.path()).expect("a file");
    }
    std::fs::remove_file(machine.project().join("file-0")).expect("a file");
    let now = piton::Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };
    let store = piton::Store::open_damaged(&machine.base()).expect("a base").expect("a store");
    let settings = piton::Settings::default();
    piton::repair(&store, piton::RepairOptions::new(&settings), now, &piton::Progress::default()).expect("a repair");
    let id = machine.fetch("alpha", "1", &[]);
    machine.restore(&id, &[]);
    assert_eq!(crate::kit::state(&machine.project()), then);
}

#[test]
fn another_phrase_another_place_and_a_future_format_are_told_apart() {
    let (place, _machine, _) = filled();
    let other_place = Place::directory();
    let (_other, other_phrase) = Machine::first("other", &other_place);
    let stranger = Machine::new("stranger", &place);
    let file = stranger.sandbox.root().join("phrase");
    std::fs::write(&file, other_phrase).expect("a file");
    let file = file.to_str().expect("a path").to_owned();
    assert_eq!(stranger.fails(&["add", &place.url(), "--phrase-file", &file]).0, "wrong_key");
    assert_eq!(stranger.fails(&["add", &place.url()]).0, "wrong_key");
    assert_eq!(stranger.fails(&["status"]).0, "not_found");
    assert_eq!(stranger.fails(&["add", "ftp://x/y"]).0, "invalid");
    assert_eq!(stranger.fails(&["add", "file:///nowhere/at/all"]).0, "io");
    let text = String::from_utf8(place.get("piton.json")).expect("text").replace("\"format\": 1", "\"format\": 9");
    place.put("piton.json", Some(text.into_bytes()));
    let (kind, message) = stranger.fails(&["add", &place.url(), "--phrase-file", &file]);
    assert!(kind == "invalid" && message.contains("format 9"), "{message}");
}

/// Also what a restore does not need: the head of a pack, and in the clear its header and its checksum.
#[test]
fn every_byte_of_a_pack_is_checked() {
    for is_sealed in [true, false] {
        let place = Place::directory();
        let machine = Machine::new("alpha", &place);
        let url = place.url();
        machine.run(&[&["add", &*url][..], if is_sealed { &[] } else { &["--no-encryption"] }].concat());
        machine.write("a", "1");
        machine.take("one");
        machine.run(&["push"]);
        let key = place.below("pack/").remove(0);
        let whole = place.get(&key);
        let end = whole.len() - 1;
        for at in [0, 7, 11, 15, 31, 32, end / 2, end - 20, end - 19, end] {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            place.put(&key, Some(changed));
            let found: Vec<_> = findings(&machine).into_iter().map(|(key, _)| key).collect();
            assert_eq!(found, [&*key], "byte {at}, sealed: {is_sealed}");
        }
        place.put(&key, Some(whole));
        assert_eq!(findings(&machine), []);
    }
}

/// Returns the packs of a store.
fn packs_of(machine: &Machine) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(machine.base().join("store/objects/pack")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|name| name == "pack")).collect()
}

/// Whichever of the two comes first.
#[test]
fn a_damaged_project_keeps_no_other_project_from_being_pushed() {
    for is_first_damaged in [true, false] {
        let place = Place::directory();
        let (mut machine, phrase) = Machine::first("alpha", &place);
        let second = machine.sandbox.root().join("second");
        std::fs::create_dir(&second).expect("a directory");
        let dirs = [machine.project(), second];
        let mut packs = Vec::new();
        for dir in &dirs {
            let before = packs_of(&machine);
            machine.directory = Some(dir.clone());
            machine.write("a", dir.to_str().expect("a path"));
            machine.take("one");
            packs.push(packs_of(&machine).into_iter().filter(|pack| !before.contains(pack)).collect::<Vec<_>>());
        }
        for pack in &packs[usize::from(!is_first_damaged)] {
            let bytes = std::fs::read(pack).expect("a pack").len();
            std::fs::remove_file(pack).expect("a pack");
            std::fs::write(pack, vec![0; bytes]).expect("a pack");
        }
        let damaged = &dirs[usize::from(!is_first_damaged)];
        let whole = &dirs[usize::from(is_first_damaged)];
        let (kind, message) = machine.fails(&["push"]);
        assert!(kind == "damaged" && message.contains(damaged.to_str().expect("a path")), "{kind}: {message}");
        let status = machine.run(&["status"]);
        assert!(status["failure"].as_str().expect("text").contains("push"), "{status}");
        assert_eq!(status["problem"], Value::Null, "{status}");
        let reader = Machine::joining("beta", &place, &phrase);
        let machines = reader.run(&["machines"]);
        let projects = machines[0]["projects"].as_array().expect("projects");
        assert_eq!(projects.len(), 1, "{machines}");
        assert_eq!(projects[0]["directory"], whole.to_str().expect("a path"), "{machines}");
        assert_eq!(reader.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
    }
}
