//! Garbage collection of a bucket.

use std::time::Duration;

use testkit::Dice;

use crate::kit::{Machine, Place};

const NOW: [&str; 5] = ["collect", "--grace-secs", "0", "--lease-secs", "3600"];

/// A machine that changes a large file, and drops all but the newest checkpoint of each: what it sent before is garbage.
fn push_and_drop(machine: &Machine, dice: &mut Dice, times: usize) {
    for number in 0..times {
        machine.write("large", dice.noise(100 << 10));
        machine.take(&format!("take {number}"));
        machine.run(&["push"]);
    }
}

/// B13: by the lease of a machine that has not seen the tomb, and by its age.
#[test]
fn garbage_goes_in_two_runs_and_only_after_every_machine_has_seen_it() {
    let place = Place::server();
    let (first, phrase) = Machine::first("alpha", &place);
    let mut dice = Dice::new(13);
    push_and_drop(&first, &mut dice, 3);
    let orphan = "pack/0123456789abcdef0123456789abcdef";
    place.put(orphan, Some(b"left by a killed push".to_vec()));
    let other = Machine::joining("beta", &place, &phrase);
    other.write("a", "1");
    other.take("one");
    other.run(&["push"]);

    let report = first.run(&NOW);
    assert_eq!((&report["marked"], &report["deleted"]), (&1.into(), &0.into()), "{report}");
    assert!(place.below("pack/").iter().any(|key| key == orphan));
    let report = first.run(&NOW);
    assert_eq!(report["deleted"], 0, "no machine has seen the tomb: {report}");
    assert!(report["waiting"].to_string().contains("has not seen"), "{report}");
    assert_eq!(report["marked"], 0, "it is not marked twice");
    for machine in [&first, &other] {
        machine.write("b", &machine.name);
        machine.take("more");
        machine.run(&["push"]);
    }
    let report = first.run(&["collect", "--grace-secs", "3600", "--lease-secs", "3600"]);
    assert_eq!(report["deleted"], 0, "it is too young: {report}");
    let report = first.run(&NOW);
    assert_eq!(report["deleted"], 1, "{report}");
    assert!(place.below("pack/").iter().all(|key| key != orphan) && place.below("tomb/").is_empty());
    assert_eq!(other.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
    // A machine that is away is not waited for once its lease has run out.
    place.put(orphan, Some(b"another".to_vec()));
    first.run(&NOW);
    std::thread::sleep(Duration::from_millis(1100));
    let report = first.run(&["collect", "--grace-secs", "0", "--lease-secs", "1"]);
    assert_eq!(report["deleted"], 1, "{report}");
}

/// Listings come in pages of 1,000.
#[test]
fn any_number_of_objects_is_collected() {
    let place = Place::server();
    let (first, _phrase) = Machine::first("alpha", &place);
    push_and_drop(&first, &mut Dice::new(14), 1);
    for number in 0..1100 {
        place.put(&format!("pack/{number:032x}"), Some(vec![0]));
    }
    assert_eq!(first.run(&NOW)["marked"], 1100);
    push_and_drop(&first, &mut Dice::new(15), 1);
    assert_eq!(first.run(&NOW)["deleted"], 1100);
    assert_eq!(first.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
}

/// B10: a machine that relied on what is about to go sends it again.
#[test]
fn a_pack_that_comes_into_use_again_is_kept_or_sent_again() {
    let place = Place::server();
    let (first, phrase) = Machine::first("alpha", &place);
    let contents = Dice::new(17).noise(300 << 10);
    first.clone_of("https://example.com/a/b");
    first.write("large", &contents);
    first.take("one");
    first.run(&["push"]);
    // The machine is gone, and its ref with it.
    for key in place.below("ref/").iter().chain(&place.below("writer/")) {
        place.put(key, None);
    }
    let collector = Machine::joining("collector", &place, &phrase);
    assert!(collector.run(&NOW)["marked"].as_u64().expect("a number") > 0);
    let other = Machine::joining("beta", &place, &phrase);
    other.clone_of("https://example.com/a/b");
    other.write("large", &contents);
    other.take("one");
    other.run(&["push"]);
    let report = collector.run(&NOW);
    assert!(report["deleted"].as_u64().expect("a number") > 0, "{report}");
    assert_eq!(other.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
    let id = collector.fetch("beta", "1", &["--project", "project"]);
    collector.restore(&id, &[]);
    assert_eq!(std::fs::read(collector.project().join("large")).expect("a file"), contents);
}

#[test]
fn refs_of_machines_that_push_no_more_expire_and_their_packs_go() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (first, phrase) = Machine::first("alpha", &place);
    push_and_drop(&first, &mut Dice::new(19), 2);
    server.set(testkit::s3::Hostility { clock_secs: 100 * 24 * 3600, ..Default::default() });
    let other = Machine::joining("beta", &place, &phrase);
    other.write("a", "1");
    other.take("one");
    other.run(&["push"]);
    let report = other.run(&NOW);
    assert_eq!(report["refs_expired"], 1, "{report}");
    other.write("a", "2");
    other.take("two");
    other.run(&["push"]);
    let report = other.run(&NOW);
    assert!(report["deleted"].as_u64().expect("a number") >= 3, "{report}");
    assert_eq!(other.run(&["machines"]).as_array().map(Vec::len), Some(1));
    assert_eq!(other.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
}

/// Indexes are merged when there are many, and packs of which little is used are replaced.
#[test]
fn a_long_history_keeps_few_indexes_and_stays_restorable() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    let mut dice = Dice::new(23);
    for number in 0..30 {
        first.write("a", format!("{number}"));
        first.write(&format!("b{number}"), dice.noise(2000));
        first.take(&format!("take {number}"));
        first.run(&["push"]);
    }
    let reader = Machine::joining("beta", &place, &phrase);
    let report = reader.run(&["verify", "--read-data"]);
    assert_eq!(report["findings"], serde_json::json!([]));
    reader.run(&NOW);
    for machine in [&first, &reader] {
        machine.write("z", &machine.name);
        machine.take("z");
        machine.run(&["push"]);
    }
    let before = place.below("idx/").len();
    assert!(reader.run(&NOW)["deleted"].as_u64().expect("a number") > 0);
    assert!(place.below("idx/").len() <= 10 && before > 10, "{before} {}", place.below("idx/").len());
    assert_eq!(reader.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
    let id = reader.fetch("alpha", "12", &["--project", "project"]);
    reader.restore(&id, &[]);
}

/// Takes a checkpoint, and pushes it as it is done after a take.
fn push_in_background(machine: &Machine, text: &str) {
    machine.write("a", text);
    machine.take(text);
    machine.run(&["push", "--background"]);
}

/// Only where it is allowed, and once a day for all machines together.
#[test]
fn garbage_is_collected_by_pushes_in_the_background() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let orphan = |number: u8| format!("pack/{number:032x}");
    let (first, phrase) = Machine::first("alpha", &place);
    let file = first.sandbox.root().join("phrase");
    std::fs::write(&file, &phrase).expect("a file");
    let careful = Machine::new("careful", &place);
    careful.run(&["add", &place.url(), "--phrase-file", file.to_str().expect("a path"), "--no-collect"]);
    let other = Machine::joining("beta", &place, &phrase);
    place.put(&orphan(1), Some(vec![1]));
    push_in_background(&careful, "one");
    assert_eq!(place.below("tomb/").len(), 0, "it may not delete");
    let refused = careful.fails(&["collect"]);
    assert!(refused.0 == "invalid" && refused.1.contains("--no-collect"), "{refused:?}");
    push_in_background(&first, "one");
    assert_eq!(place.below("tomb/").len(), 1);
    place.put(&orphan(2), Some(vec![2]));
    push_in_background(&first, "two");
    push_in_background(&other, "one");
    assert_eq!(place.below("tomb/").len(), 1, "one machine has done so today");

    // A day later. A machine that cannot do so says it once, and not that its push failed.
    server.set(testkit::s3::Hostility { clock_secs: 24 * 3600 + 60, ..Default::default() });
    let bad = place.below("ref/").into_iter().find(|key| key.contains(&own_refs(&other)[0][..32])).expect("a ref");
    let bytes = place.get(&bad);
    place.put(&bad, Some(vec![0; 100]));
    for text in ["three", "four"] {
        first.edit_state(|state| state["collected_secs"] = 0.into());
        push_in_background(&first, text);
        first.edit_state(|state| {
            let warnings = state["warnings"].as_array().expect("a list");
            let told = warnings.iter().filter(|one| one.to_string().contains("is not collected")).count();
            assert_eq!((told, state["failure"].as_str()), (1, Some("")), "{state}");
        });
    }
    assert!(place.keys().contains(&orphan(1)));
    place.put(&bad, Some(bytes));
    first.edit_state(|state| state["collected_secs"] = 0.into());
    push_in_background(&first, "five");
    assert!(!place.keys().contains(&orphan(1)) && place.keys().contains(&orphan(2)), "{:?}", place.below("pack/"));
    assert_eq!(place.below("tomb/").len(), 1);
    assert_eq!(first.run(&["verify", "--read-data"])["refs"], 3);
}

/// A ref expires with the lease of its machine. One that comes back has nothing new to push.
#[test]
fn a_machine_that_comes_back_pushes_its_expired_refs_again() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (first, phrase) = Machine::first("alpha", &place);
    push_and_drop(&first, &mut Dice::new(37), 2);
    server.set(testkit::s3::Hostility { clock_secs: 100 * 24 * 3600, ..Default::default() });
    let other = Machine::joining("beta", &place, &phrase);
    assert_eq!(other.run(&NOW)["refs_expired"], 1);
    first.edit_state(|state| state["leased_secs"] = 0.into());
    let pushed = first.run(&["push"]);
    assert_eq!(pushed["projects"][0]["checkpoints"], 2, "{pushed}");
    assert!(pushed["warnings"].to_string().contains("is gone from the remote"), "{pushed}");
    assert_eq!(other.run(&["machines"])[0]["projects"][0]["checkpoints"], 2);
    assert_eq!(other.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
}

/// Returns the names in the cache of a machine.
fn cached(machine: &Machine) -> Vec<String> {
    let dir = machine.base().join("local/remote/cache");
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn the_cache_has_only_indexes_that_refs_name() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    let reader = Machine::joining("beta", &place, &phrase);
    let mut dice = Dice::new(31);
    for number in 0..20 {
        // As a killed push leaves them.
        let dir = first.base().join("local/remote/cache");
        for name in ["sent-0123456789abcdef", "tmp_abc"] {
            assert!(number == 0 || std::fs::write(dir.join(name), "").is_ok());
        }
        push_and_drop(&first, &mut dice, 1);
        reader.fetch("alpha", "1", &["--project", "project"]);
        let (own, read) = (cached(&first), cached(&reader));
        assert!(own.iter().all(|name| name.starts_with("idx-")), "{own:?}");
        assert!((1..=8).contains(&own.len()), "an index for each push, merged when there are eight: {own:?}");
        assert!(!read.is_empty() && read.iter().all(|name| own.contains(name)), "{read:?} {own:?}");
    }
    // A machine that reads many refs at once: to collect, and for its own first push of many files.
    push_and_drop(&first, &mut dice, 9);
    for at in 0..250 {
        reader.write(&format!("f{at}"), dice.noise(20));
    }
    reader.take("many");
    reader.run(&["push"]);
    let is_named = |name: &String| cached(&first).contains(name) || name.contains(&own_refs(&reader)[0]);
    assert!(cached(&reader).iter().all(is_named), "{:?}", cached(&reader));
    push_and_drop(&first, &mut dice, 9);
    reader.run(&NOW);
    assert!(cached(&reader).iter().all(is_named), "{:?}", cached(&reader));
    // The ref is gone, as after its machine has expired.
    for key in place.below("ref/").iter().filter(|key| !own_refs(&reader)[0].contains(&key[4..].replace('/', "-"))) {
        place.put(key, None);
    }
    reader.run(&["machines"]);
    let (left, own) = (cached(&reader), own_refs(&reader));
    assert!(!left.is_empty() && left.iter().all(|name| name.contains(&own[0])), "{left:?}");
}

/// Returns the refs of a machine, as names in the cache have them.
fn own_refs(machine: &Machine) -> Vec<String> {
    let text = std::fs::read(machine.base().join("local/remote/state.json")).expect("a state");
    let state: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    state["refs"].as_object().expect("refs").keys().map(|key| key["ref/".len()..].replace('/', "-")).collect()
}
