//! Garbage collection of a bucket.

use std::time::Duration;

use testkit::Dice;
use testkit::s3::Hostility;

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
    server.set(Hostility { clock_secs: 100 * 24 * 3600, ..Default::default() });
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
    server.set(Hostility { clock_secs: 24 * 3600 + 60, ..Default::default() });
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
    server.set(Hostility { clock_secs: 100 * 24 * 3600, ..Default::default() });
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

/// B10: what a push has sent before it was interrupted is deleted while it goes on, at each of its requests.
#[test]
fn a_push_that_goes_on_relies_on_no_pack_that_is_deleted_meanwhile() {
    let mut deleted = 0;
    for nth in 3..=7 {
        let place = Place::server();
        let Place::Server(server) = &place else { unreachable!() };
        let (machine, _phrase) = Machine::first("alpha", &place);
        machine.write("a", Dice::new(41).noise(5000));
        machine.take("one");
        let mut child = machine.spawn(&["push"]);
        let pid = child.id().to_string();
        // Lease, description, ref, listing of refs, pack, index: the ref is not written yet.
        server.kill_at("alpha", 8, false, move || {
            drop(std::process::Command::new("kill").args(["-9", &pid]).status());
        });
        assert!(!child.wait().expect("the program").success());
        server.spare("alpha");
        assert_eq!((place.below("pack/").len(), place.below("ref/").len()), (1, 0));
        let collect = ["collect", "--grace-secs", "0", "--lease-secs", "0"];
        assert!(machine.run(&collect)["marked"].as_u64().expect("a number") >= 1);
        let mut collector = machine.command(&collect);
        collector.env("AWS_ACCESS_KEY_ID", "collector");
        let collector = std::sync::Mutex::new(collector);
        let (sender, report) = std::sync::mpsc::channel();
        server.kill_at("alpha", nth, false, move || {
            let output = collector.lock().expect("no panic").output().expect("the program");
            drop(sender.send(serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")));
        });
        machine.run(&["push"]);
        server.spare("alpha");
        deleted += report.try_recv().map_or(0, |report| report["deleted"].as_u64().expect("a number"));
        assert_eq!(machine.run(&["verify", "--read-data"])["findings"], serde_json::json!([]), "request {nth}");
    }
    assert!(deleted > 0, "nothing was deleted: the test shows nothing");
}

/// Two machines with the same file, the first of which has pushed it. The credentials of the second are in a file: it
/// pushes in this process, too, which has other variables.
fn clones(place: &Place) -> [Machine; 2] {
    let (first, phrase) = Machine::first("alpha", place);
    let other = Machine::joining("beta", place, &phrase);
    for machine in [&first, &other] {
        machine.clone_of("https://example.com/a/b");
        machine.write("large", Dice::new(43).noise(50 << 10));
        machine.take("one");
    }
    first.run(&["push"]);
    let file = other.sandbox.root().join("credentials");
    std::fs::write(&file, "[default]\naws_access_key_id = other\naws_secret_access_key = s\n").expect("a file");
    let (endpoint, file) = (place.endpoint().expect("a server"), file.to_str().expect("a path"));
    other.run(&["add", &place.url(), "--endpoint", &endpoint, "--credentials-file", file, "--region", "x"]);
    [first, other]
}

/// Pushes from `other`, and stops it at a request until the refs of `first` have expired and its packs are deleted. From
/// then on, the server is as `hostility` says. The first ten requests are: lease (three requests), the ref, the listing
/// of refs, the ref and the index of the first, a pack, an index and the tombs. From then on, the pack of the first is
/// relied on.
fn push_and_delete_meanwhile(
    place: &Place,
    [first, other]: &[Machine; 2],
    nth: u64,
    hostility: Hostility,
) -> piton_remote::Result<piton_remote::PushReport> {
    let Place::Server(server) = place else { unreachable!() };
    let expired = [place.below("ref/"), place.below("writer/")].concat();
    let ((begins, has_begun), (ends, has_ended)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    server.kill_at("other", nth, false, move || {
        begins.send(()).expect("the test waits");
        has_ended.recv().expect("the test sends");
    });
    let store = other.store();
    std::thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            let pushed = push_that_began_days_ago(&store);
            // If there were fewer requests, nothing is waited for.
            server.spare("other");
            pushed
        });
        has_begun.recv().expect("a request");
        expired.iter().for_each(|key| place.put(key, None));
        let collect = ["collect", "--grace-secs", "0", "--lease-secs", "0"];
        assert!(first.run(&collect)["marked"].as_u64() > Some(0) && first.run(&collect)["deleted"].as_u64() > Some(0));
        server.set(hostility);
        ends.send(()).expect("the server waits");
        pushing.join().expect("no panic")
    })
}

/// B10: while a machine is suspended, only the clock of the calendar goes on.
#[test]
fn a_machine_that_was_suspended_before_its_ref_sends_again_what_went_meanwhile() {
    for nth in [11, 14, 18] {
        let place = Place::server();
        let machines = clones(&place);
        push_and_delete_meanwhile(&place, &machines, nth, Hostility::default()).expect("a push");
        assert_eq!(machines[1].run(&["verify", "--read-data"])["findings"], serde_json::json!([]), "request {nth}");
        assert_eq!(place.below("ref/").len(), 1);
    }
}

/// B10: the push fails before it has seen what went, after its ref was written, too.
#[test]
fn a_push_that_failed_before_it_looked_for_its_packs_is_completed_by_the_next() {
    let mut written = 0;
    for nth in [12, 15, 18] {
        let place = Place::server();
        let Place::Server(server) = &place else { unreachable!() };
        let machines = clones(&place);
        let unavailable = Hostility { unavailable: 1000, ..Hostility::default() };
        push_and_delete_meanwhile(&place, &machines, nth, unavailable).expect_err("the server is away");
        server.set(Hostility::default());
        written += place.below("ref/").len();
        assert_eq!(machines[1].run(&["push"])["unchanged"], 0, "request {nth}");
        assert_eq!(machines[1].run(&["verify", "--read-data"])["findings"], serde_json::json!([]), "request {nth}");
        assert_eq!(machines[1].run(&["push"])["unchanged"], 1, "request {nth}");
    }
    assert!(written > 0, "no ref was written before");
}

fn push_that_began_days_ago(store: &piton::Store) -> piton_remote::Result<piton_remote::PushReport> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let request = piton_remote::PushRequest {
        directories: Vec::new(),
        prompt_text: piton::PromptText::None,
        now_secs: i64::try_from(now).expect("a time") - 3 * 24 * 3600,
        host: "beta".to_owned(),
        lease_secs: piton_remote::LEASE_SECS,
        avoid: Default::default(),
        again: Default::default(),
    };
    let local = piton_remote::LocalDir::of(store);
    let held = local.lock().expect("a lock");
    piton_remote::push(store, &local, &held, &request, &piton_remote::Meter::default())
}

/// Pushes in the background a day later, and returns the number of warnings about the collection.
fn warnings_of_a_day(machine: &Machine, day: &str) -> usize {
    machine.edit_state(|state| state["collected_secs"] = 0.into());
    push_in_background(machine, day);
    let mut told = 0;
    machine.edit_state(|state| {
        let warnings = state["warnings"].as_array().expect("a list");
        told = warnings.iter().filter(|one| one.to_string().contains("is not collected")).count();
        assert_eq!(state["failure"], "", "day {day}: the push has succeeded");
    });
    told
}

/// On one day, a server that deletes nothing looks like one that does not answer.
#[test]
fn a_collection_that_fails_for_days_is_told() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (machine, _phrase) = Machine::first("alpha", &place);
    machine.write("a", "0");
    machine.take("zero");
    machine.run(&["push"]);
    let days = [(true, 0), (true, 0), (false, 0), (true, 0), (true, 0), (true, 1), (true, 1)];
    for (day, (is_off, expected)) in days.into_iter().enumerate() {
        server.set(Hostility { undeletable: is_off.then_some(""), ..Hostility::default() });
        assert_eq!(warnings_of_a_day(&machine, &format!("{day}")), expected, "day {day}");
    }
}

/// The rest of the collection works.
#[test]
fn objects_that_are_not_deleted_for_days_are_told() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (machine, _phrase) = Machine::first("alpha", &place);
    machine.write("a", "0");
    machine.take("zero");
    machine.run(&["push"]);
    place.put("pack/0123456789abcdef0123456789abcdef", Some(vec![1]));
    // On the first day, the pack is listed in a tomb.
    for (day, expected) in (0..).zip([0, 0, 0, 1]) {
        let clock_secs = day * (24 * 3600 + 600);
        server.set(Hostility { clock_secs, undeletable: Some("/pack/"), ..Hostility::default() });
        assert_eq!(warnings_of_a_day(&machine, &format!("{day}")), expected, "day {day}");
    }
    assert!(place.keys().iter().any(|key| key.starts_with("pack/0123")) && place.below("tomb/").len() == 1);
}

/// A push into a directory that is killed leaves a file beside the packs.
#[test]
fn what_a_killed_write_leaves_in_a_directory_is_collected() {
    let place = Place::directory();
    let (machine, _phrase) = Machine::first("alpha", &place);
    push_and_drop(&machine, &mut Dice::new(47), 1);
    let (old, young) = ("pack/.tmp-old", "pack/.tmp-young");
    for (key, age_secs) in [(old, 2 * 24 * 3600), (young, 0)] {
        place.put(key, Some(vec![0; 1000]));
        let Place::Directory(dir) = &place else { unreachable!() };
        let file = std::fs::File::options().append(true).open(dir.path().join("bucket").join(key)).expect("a file");
        let then = std::time::SystemTime::now() - Duration::from_secs(age_secs);
        file.set_modified(then).expect("a time");
    }
    let collect = ["collect", "--grace-secs", "0", "--lease-secs", "0"];
    assert_eq!(machine.run(&collect)["marked"], 1);
    assert_eq!(machine.run(&collect)["deleted"], 1);
    assert!(place.keys().iter().any(|key| key == young) && !place.keys().iter().any(|key| key == old));
    assert_eq!(machine.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
}
