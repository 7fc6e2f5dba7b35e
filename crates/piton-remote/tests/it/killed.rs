//! Pushes that are killed at each of their requests, and machines that are copies of each other.

use std::process::Command;

use testkit::Dice;

use crate::kit::{Machine, Place};

fn kill(pid: u32) {
    Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill");
}

/// B10, B11: before each request, and after the server has done what it asks.
#[test]
fn a_push_may_be_killed_at_each_request() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (machine, phrase) = Machine::first("alpha", &place);
    let reader = Machine::joining("beta", &place, &phrase);
    let mut dice = Dice::new(29);
    let (mut kills, mut number) = (0, 0);
    for after in [false, true] {
        for nth in 1..20 {
            number += 1;
            machine.write(&format!("file-{}", number % 5), dice.noise(3000));
            machine.take(&format!("take {number}"));
            let mut child = machine.spawn(&["push"]);
            let pid = child.id();
            server.kill_at("alpha", nth, after, move || kill(pid));
            let status = child.wait().expect("the program");
            server.spare("alpha");
            let report = reader.run(&["verify", "--read-data"]);
            assert_eq!(report["findings"], serde_json::json!([]), "request {nth}, after {after}");
            if status.success() {
                break;
            }
            kills += 1;
            let pushed = machine.run(&["push"]);
            assert_eq!(
                pushed["warnings"],
                serde_json::json!([]),
                "request {nth}, after {after}: it knows its own writes"
            );
        }
    }
    assert!(kills >= 8, "{kills}");
    assert_eq!(reader.run(&["machines"]).as_array().map(Vec::len), Some(1), "one machine has one id");
}

/// B11.
#[test]
fn a_copy_of_a_machine_gets_an_id_of_its_own_and_nothing_is_lost() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("image", &place);
    first.write("a", "0");
    first.take("zero");
    first.run(&["push"]);
    // The same host name, as for two sandboxes of one image.
    let copy = first.copy(&place);
    let mut taken = Vec::new();
    for round in 0..3 {
        copy.write("b", format!("{round}"));
        taken.push(copy.take("in the copy"));
        first.write("b", format!("-{round}"));
        taken.push(first.take("in the first"));
        first.run(&["push"]);
        copy.run(&["push"]);
    }
    let reader = Machine::joining("reader", &place, &phrase);
    let machines = reader.run(&["machines"]);
    assert!(machines.as_array().is_some_and(|all| all.len() >= 2), "{machines}");
    let newest = |text: &str| machines.to_string().matches(text).count();
    assert!(newest("image-") >= 2, "{machines}");
    assert_eq!(reader.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
    // Every checkpoint of either can be fetched, from whichever id it was pushed under.
    for id in taken {
        let names: Vec<_> =
            machines.as_array().expect("machines").iter().filter_map(|one| one["name"].as_str()).collect();
        let project = reader.project();
        let fetched = names.iter().any(|name| {
            let (id, project) = (id.to_string(), project.to_str().expect("a path"));
            let args =
                ["fetch", "--machine", name, "--checkpoint", &id, "--directory", project, "--project", "project"];
            reader.output(&args).status.success()
        });
        assert!(fetched, "{id}");
    }
    let other_host = Machine::new("elsewhere", &place);
    first.copy_base_to(&other_host);
    other_host.write("c", "1");
    other_host.take("on another host");
    let pushed = other_host.run(&["push"]);
    assert!(pushed["warnings"].to_string().contains("new id"), "{pushed}");
}

/// A host without `/proc` had no name in older versions.
#[test]
fn a_host_that_gets_a_name_stays_the_same_machine() {
    let place = Place::directory();
    let (machine, _phrase) = Machine::first("alpha", &place);
    let config = machine.base().join("local/remote/config.json");
    let text = std::fs::read_to_string(&config).expect("a file");
    assert!(text.contains("\"host\": \"alpha\""), "{text}");
    std::fs::write(&config, text.replace("\"host\": \"alpha\"", "\"host\": \"machine\"")).expect("a file");
    machine.write("a", "1");
    machine.take("one");
    assert_eq!(machine.run(&["push"])["warnings"], serde_json::json!([]));
    assert_eq!(std::fs::read_to_string(&config).expect("a file"), text);
}

#[test]
fn an_interrupted_first_push_goes_on_where_it_stopped() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (machine, _phrase) = Machine::first("alpha", &place);
    let mut dice = Dice::new(31);
    for number in 0..18 {
        machine.write(&format!("file-{number}"), dice.noise(9 << 20));
    }
    machine.take("large");
    let mut child = machine.spawn(&["push"]);
    let pid = child.id();
    // Lease, listing of refs, then a pack in several parts: somewhere in the third pack.
    server.kill_at("alpha", 30, false, move || kill(pid));
    assert!(!child.wait().expect("the program").success());
    server.spare("alpha");
    let packs = place.below("pack/").len();
    assert!(packs >= 1, "some packs were sent");
    let pushed = machine.run(&["push"]);
    let sent = pushed["bytes_sent"].as_u64().expect("a number");
    assert!(sent < 17 * (9 << 20), "{sent} bytes were sent again, {packs} packs were there");
    assert!(pushed["projects"][0]["found"].as_u64().expect("a number") > 0, "{pushed}");
    assert_eq!(machine.run(&["verify"])["findings"], serde_json::json!([]));
}

/// B11: what a reading process notes does not undo what a push wrote meanwhile.
#[test]
fn a_listing_that_lasts_longer_than_a_push_forgets_nothing_of_it() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (machine, phrase) = Machine::first("alpha", &place);
    let other = Machine::joining("beta", &place, &phrase);
    for one in [&machine, &other] {
        one.write("a", &one.name);
        one.take("one");
        one.run(&["push"]);
    }
    machine.write("a", "2");
    machine.take("two");
    let push = std::sync::Mutex::new(machine.command(&["push"]));
    server.kill_at("alpha", 3, false, move || {
        assert!(push.lock().expect("no panic").output().expect("the program").status.success());
    });
    machine.run(&["machines"]);
    machine.write("a", "3");
    machine.take("three");
    assert_eq!(machine.run(&["push"])["warnings"], serde_json::json!([]));
    assert_eq!(machine.run(&["machines"]).as_array().map(Vec::len), Some(2));
}

/// B11: the copy pushes while the objects of the machine are on their way.
#[test]
fn a_copy_that_pushes_meanwhile_keeps_its_checkpoints() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (first, _phrase) = Machine::first("image", &place);
    first.write("a", "0");
    first.take("zero");
    first.run(&["push"]);
    let copy = first.copy(&place);
    copy.write("a", "in the copy");
    let in_copy = copy.take("in the copy").to_string();
    first.write("a", "in the first");
    first.take("in the first");
    let push = std::sync::Mutex::new(copy.command(&["push"]));
    // The ref is read, then a pack is sent.
    server.kill_at("image", 2, false, move || {
        assert!(push.lock().expect("no panic").output().expect("the program").status.success());
    });
    let pushed = first.run(&["push"]);
    assert!(pushed["warnings"].to_string().contains("new id"), "{pushed}");
    let machines = first.run(&["machines"]);
    let dir = first.project();
    let has_it = |machine: &serde_json::Value| {
        let list = ["list", "--machine", machine["name"].as_str().expect("a name"), "--directory"];
        let rows = first.run(&[&list[..], &[dir.to_str().expect("a path")]].concat());
        rows.to_string().contains(&in_copy)
    };
    assert!(machines.as_array().expect("machines").iter().any(has_it), "{machines}");
}
