//! Names and addresses that a user gives: of machines, projects and servers.

use std::fs;

use serde_json::Value;

use crate::kit::{BUCKET, Machine, Place};

const URL: &str = "https://example.com/a/web";

fn writer(machine: &Machine) -> String {
    let config = fs::read(machine.base().join("local/remote/config.json")).expect("a configuration");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    config["writer"].as_str().expect("an id").to_owned()
}

/// Runs the program, and returns the kind and the hint of its error.
fn refused(machine: &Machine, args: &[&str], endpoint: Option<&str>) -> (String, String) {
    let mut command = machine.command(args);
    if let Some(endpoint) = endpoint {
        command.env("AWS_ENDPOINT_URL", endpoint);
    }
    let output = command.output().expect("the program");
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)));
    let text = |key: &str| answer["error"][key].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("hint"))
}

#[test]
fn a_name_that_machines_shows_is_accepted_in_a_project() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("box", &place);
    first.clone_of(URL);
    let other = Machine::joining("box", &place, &phrase);
    for machine in [&first, &other] {
        machine.write("a", "1");
        machine.take("one");
        machine.run(&["push"]);
    }
    let here = Machine::joining("laptop", &place, &phrase);
    here.clone_of(URL);
    let shown = |machine: &Machine| format!("box-{}", &writer(machine)[..4]);
    let machines = here.run(&["machines"]);
    let names: Vec<_> = machines.as_array().expect("a list").iter().map(|one| one["name"].as_str()).collect();
    assert!(names.contains(&Some(&shown(&first))) && names.contains(&Some(&shown(&other))), "{names:?}");
    let dir = here.project();
    let list =
        |name: &str| ["list", "--machine", name, "--directory", dir.to_str().expect("a path")].map(str::to_owned);
    let run = |name: &str| here.run(&list(name).each_ref().map(String::as_str));
    for name in [&*shown(&first), "box"] {
        assert_eq!(run(name)["rows"].as_array().map(Vec::len), Some(1), "{name}");
    }
    here.fetch(&shown(&first), "1", &[]);
    let wrong = list(&shown(&other));
    assert_eq!(here.fails(&wrong.each_ref().map(String::as_str)).0, "not_found", "it has not pushed this project");
}

#[test]
fn a_project_is_chosen_by_its_name_its_directory_or_enough_of_its_id() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    first.write("a", "1");
    first.take("one");
    first.run(&["push"]);
    let here = Machine::joining("beta", &place, &phrase);
    let id = here.run(&["machines"])[0]["projects"][0]["id"].as_str().expect("an id").to_owned();
    let theirs = first.project();
    let accepted = ["project", theirs.to_str().expect("a path"), &id, &id[..4], &id[..10]];
    let dir = here.project();
    let args = |name: &str| {
        ["list", "--machine", "alpha", "--directory", dir.to_str().expect("a path"), &format!("--project={name}")]
            .map(str::to_owned)
    };
    for name in accepted {
        here.run(&args(name).each_ref().map(String::as_str));
    }
    for name in ["", &id[..1], &id[..3], "zzzz", &format!("{id}0")] {
        assert_eq!(here.fails(&args(name).each_ref().map(String::as_str)).0, "not_found", "{name:?}");
    }
}

#[test]
fn a_machine_has_a_name_that_can_be_typed() {
    let place = Place::directory();
    let (_first, phrase) = Machine::first("alpha", &place);
    let here = Machine::new("beta", &place);
    let file = here.sandbox.root().join("phrase");
    fs::write(&file, &phrase).expect("a file");
    let (url, file) = (place.url(), file.to_str().expect("a path").to_owned());
    for name in ["", "-x", "a/b", "4711", &"x".repeat(65)] {
        let (kind, hint) = refused(&here, &["add", &url, "--phrase-file", &file, &format!("--machine={name}")], None);
        assert_eq!((&*kind, hint.is_empty()), ("invalid", false), "{name:?}");
    }
    let long = "ü".repeat(64);
    assert_eq!(here.run(&["add", &url, "--phrase-file", &file, "--machine", &long])["machine"], long);
    // The name of a host is not chosen for this, and must not keep a machine out.
    let numbered = Machine::joining("4711", &place, &phrase);
    assert_eq!(numbered.run(&["status"])["machine"], "machine-4711");
}

/// The library writes such names in another way.
#[test]
fn a_prefix_may_have_any_characters() {
    for prefix in ["büro/a", "a//b", "a ~%25/[b]{c}#^*?|\"<>`/./.."] {
        let place = Place::server();
        let url = format!("s3://{BUCKET}/{prefix}");
        let first = Machine::new("alpha", &place);
        let phrase = first.run(&["add", &url])["phrase"].as_str().expect("a phrase").to_owned();
        first.write("a", "1");
        first.take("one");
        first.run(&["push"]);
        let second = Machine::new("beta", &place);
        let file = second.sandbox.root().join("phrase");
        fs::write(&file, phrase).expect("a file");
        second.run(&["add", &url, "--phrase-file", file.to_str().expect("a path")]);
        assert_eq!(second.run(&["machines"])[0]["projects"][0]["checkpoints"], 1, "{prefix}");
        let id = second.fetch("alpha", "1", &["--project", "project"]);
        second.restore(&id, &[]);
        assert_eq!(fs::read(second.project().join("a")).expect("a file"), b"1", "{prefix}");
        assert_eq!(second.run(&["verify", "--read-data"])["findings"], serde_json::json!([]), "{prefix}");
        assert!(second.run(&["remove", "--delete-data"])["deleted"].as_u64() > Some(4), "{prefix}");
        assert_eq!(place.keys(), [""; 0], "{prefix}");
    }
}

#[test]
fn the_address_of_a_server_is_a_url() {
    let place = Place::directory();
    let here = Machine::new("alpha", &place);
    for endpoint in ["127.0.0.1:5599", "localhost", "ftp://127.0.0.1", "http://", "https:///x", "http://a b", ""] {
        let args = ["add", "s3://bucket/x", "--no-encryption", &format!("--endpoint={endpoint}")].map(str::to_owned);
        let (kind, hint) = refused(&here, &args.each_ref().map(String::as_str), None);
        assert_eq!((&*kind, hint.contains("https://")), ("invalid", true), "{endpoint:?}: {hint}");
    }
    let (kind, _) = refused(&here, &["add", "s3://bucket/x", "--no-encryption"], Some("127.0.0.1:5599"));
    assert_eq!(kind, "invalid", "it is in the environment");
}

/// Nothing listens on the first port.
const CLOSED: &str = "http://127.0.0.1:1";

#[test]
fn only_a_push_is_tried_again_later() {
    let place = Place::server();
    let (machine, _phrase) = Machine::first("alpha", &place);
    machine.write("a", "1");
    machine.take("one");
    machine.run(&["push"]);
    let new = Machine::new("beta", &place);
    machine.write("a", "2");
    machine.take("two");
    std::thread::scope(|threads| {
        let asked =
            [(&new, vec!["add", "s3://bucket/a/prefix"]), (&machine, vec!["machines"]), (&machine, vec!["push"])];
        let asked = asked.map(|(machine, args)| {
            let mut command = machine.command(&args);
            command.env("AWS_ENDPOINT_URL", CLOSED).stdout(std::process::Stdio::piped());
            let child = command.spawn().expect("the program");
            (args, threads.spawn(move || child.wait_with_output().expect("the program")))
        });
        for (args, output) in asked {
            let output = output.join().expect("an answer");
            let error = serde_json::from_slice::<Value>(&output.stdout).expect("JSON")["error"].clone();
            let hint = error["hint"].as_str().expect("a hint");
            assert_eq!(error["kind"], "unavailable", "{args:?}: {error}");
            assert_eq!(hint.contains("later"), args == ["push"], "{args:?}: {hint}");
            assert_eq!(hint.contains("try again"), args != ["push"], "{args:?}: {hint}");
        }
    });
}

/// No user can write there, the superuser neither.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_may_not_be_written_is_denied() {
    let here = Machine::new("alpha", &Place::directory());
    let (kind, hint) = refused(&here, &["add", "file:///sys/piton", "--no-encryption"], None);
    assert_eq!((&*kind, hint.contains("right to read and write")), ("denied", true), "{hint}");
}

/// They would be left unused, and others taken from the environment.
#[test]
fn a_source_of_credentials_that_a_provider_does_not_have_is_refused() {
    let machine = Machine::new("alpha", &Place::directory());
    for args in [
        ["add", "gs://b/p", "--profile", "x"],
        ["add", "az://b/p", "--profile", "x"],
        ["add", "az://b/p", "--credentials-file", "/x"],
    ] {
        let (kind, hint) = refused(&machine, &args, None);
        assert!(kind == "invalid" && hint.contains("environment"), "{args:?}: {kind}: {hint}");
    }
}

/// As behind a sign-in page of a network.
#[test]
fn an_address_that_answers_with_something_else_is_named() {
    let place = Place::server();
    place.put("piton.json", Some(b"<html>".to_vec()));
    let (kind, hint) = refused(&Machine::new("alpha", &place), &["add", &place.url()], None);
    assert!(kind == "damaged" && hint.contains("address"), "{kind}: {hint}");
}
