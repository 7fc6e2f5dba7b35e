//! What every bucket must do: a directory, the server of these tests, and any other server.
//!
//! `PITON_REMOTE_URL` (`s3://bucket/prefix`), `PITON_REMOTE_ENDPOINT`, and `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or
//! `AZURE_STORAGE_ACCOUNT_NAME` and `AZURE_STORAGE_ACCOUNT_KEY`, name one; `cargo xtask remote` starts several.

use std::fs;

use testkit::Dice;

use crate::kit::{Machine, Place, state};

fn exercise(place: &Place) {
    let (first, phrase) = Machine::first("alpha", place);
    let mut dice = Dice::new(41);
    first.clone_of("https://example.com/a/b");
    // One pack is sent in several parts.
    for number in 0..5 {
        first.write(&format!("large/{number}"), dice.noise(6 << 20));
    }
    first.write("ä ö/ü %+&=?", "a name that has to be escaped");
    first.take("one");
    let then = state(&first.project());
    first.write("large/0", dice.noise(1000));
    first.take("two");
    assert_eq!(first.run(&["push"])["projects"][0]["checkpoints"], 2);
    assert_eq!(first.run(&["status"])["problem"], serde_json::Value::Null);

    let second = Machine::joining("beta", place, &phrase);
    second.clone_of("https://example.com/a/b");
    let one = second.fetch("alpha", "2", &["--path", "large/3"]);
    second.restore(&one, &[b"large/3".to_vec()]);
    assert_eq!(fs::read(second.project().join("large/3")).ok(), fs::read(first.project().join("large/3")).ok());
    let all = second.fetch("alpha", "2", &[]);
    second.restore(&all, &[]);
    assert_eq!(state(&second.project()), then);
    assert_eq!(second.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));

    // Twelve pushes: indexes are merged, and the old ones are deleted in two runs.
    for number in 0..12 {
        first.write("small", format!("{number}"));
        first.take("small");
        first.run(&["push"]);
    }
    let collect = ["collect", "--grace-secs", "0", "--lease-secs", "3600"];
    assert!(second.run(&collect)["marked"].as_u64() > Some(0));
    for machine in [&first, &second] {
        machine.write("more", &machine.name);
        machine.take("more");
        machine.run(&["push"]);
    }
    assert!(second.run(&collect)["deleted"].as_u64() > Some(0));
    assert_eq!(first.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
    let machines = first.run(&["machines"]);
    assert_eq!(machines.as_array().map(Vec::len), Some(2), "{machines}");
    assert!(second.run(&["remove", "--delete-data"])["deleted"].as_u64() > Some(10));
    assert_eq!(first.fails(&["machines"]).0, "damaged");
    assert!(first.run(&["status"])["problem"]["message"].to_string().contains("no repository"));
}

#[test]
fn a_directory_and_a_server_keep_the_contract() {
    exercise(&Place::directory());
    exercise(&Place::server());
    exercise(&Place::google());
}

#[test]
fn the_server_that_the_environment_names_keeps_the_contract() {
    let Some(place) = Place::named() else {
        println!("skipped: PITON_REMOTE_URL names no server");
        return;
    };
    exercise(&place);
}
