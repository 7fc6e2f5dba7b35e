//! Several machines with one bucket: listing, restoring, identity of projects, cost.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use testkit::Dice;

use crate::kit::{Machine, Place, state};

const URL: &str = "https://example.com/you/code.git";

/// A project with all that a checkpoint holds.
fn fill(machine: &Machine) {
    machine.clone_of(URL);
    machine.write("src/main.rs", "fn main() {}\n");
    machine.write("src/deep/er/x", "x");
    machine.write("tool", "#!/bin/sh\n");
    machine.write("empty", "");
    fs::set_permissions(machine.project().join("tool"), fs::Permissions::from_mode(0o750)).expect("a mode");
    fs::create_dir(machine.project().join("hollow")).expect("a directory");
    symlink("src/main.rs", machine.project().join("link")).expect("a link");
}

/// B10, B11: by the directory and by the server.
#[test]
fn a_second_machine_lists_and_restores_what_the_first_pushed() {
    for place in [Place::directory(), Place::server()] {
        let (first, phrase) = Machine::first("alpha", &place);
        fill(&first);
        first.take("one");
        let then = state(&first.project());
        first.write("src/main.rs", "fn main() { panic!() }\n");
        fs::remove_file(first.project().join("tool")).expect("a file");
        first.take("two");
        let pushed = first.run(&["push"]);
        assert_eq!(pushed["projects"][0]["checkpoints"], 2, "{pushed}");
        let again = first.run(&["push"]);
        assert_eq!((&again["unchanged"], &again["bytes_sent"]), (&1.into(), &0.into()));

        let second = Machine::joining("beta", &place, &phrase);
        let machines = second.run(&["machines"]);
        assert_eq!(machines[0]["name"], "alpha", "{machines}");
        assert_eq!(machines[0]["this"], false);
        assert_eq!(machines[0]["projects"][0]["checkpoints"], 2);
        second.clone_of("git@example.com:you/code");
        let dir = second.project();
        let listed = second.run(&["list", "--machine", "alpha", "--directory", dir.to_str().expect("a path")]);
        let reasons: Vec<_> =
            listed["rows"].as_array().expect("rows").iter().map(|row| row["reason"].as_str()).collect();
        assert_eq!(reasons, [Some("two"), Some("one")]);

        second.write("own", "work of the second machine");
        second.take("own work");
        let id = second.fetch("alpha", "2", &[]);
        second.restore(&id, &[]);
        assert_eq!(state(&second.project()), then);
        assert_eq!(second.fetch("alpha", "2", &[]), id, "a second fetch finds it");
        let history =
            piton::History::of(&second.store(), &piton::Project::at(&dir, None).expect("a project")).expect("a list");
        assert!(
            history.checkpoints().iter().all(|one| one.reason != "one" && one.reason != "two"),
            "it is in no history"
        );
        let verified = second.run(&["verify", "--read-data"]);
        assert_eq!(verified["findings"], serde_json::json!([]));
    }
}

#[test]
fn one_file_is_fetched_and_restored_alone() {
    let place = Place::server();
    let (first, phrase) = Machine::first("alpha", &place);
    fill(&first);
    first.take("one");
    first.run(&["push"]);
    let second = Machine::joining("beta", &place, &phrase);
    second.clone_of(URL);
    second.write("src/main.rs", "changed");
    second.write("other", "stays");
    second.take("before");
    let id = second.fetch("alpha", "1", &["--path", "src/main.rs"]);
    second.restore(&id, &[b"src/main.rs".to_vec()]);
    assert_eq!(fs::read(second.project().join("src/main.rs")).expect("a file"), b"fn main() {}\n");
    assert_eq!(fs::read(second.project().join("other")).expect("a file"), b"stays");
    let id = second.fetch("alpha", "1", &["--path", "tool", "--path", "src/deep"]);
    second.restore(&id, &[b"tool".to_vec(), b"src/deep".to_vec()]);
    let mode = fs::metadata(second.project().join("tool")).expect("a file").permissions().mode();
    assert_eq!((mode & 0o777, second.project().join("src/deep/er/x").is_file()), (0o750, true));
    let dir = second.project();
    let dir = dir.to_str().expect("a path");
    for path in ["nothing", "src/main.rs/x", "src/nothing"] {
        let args = ["fetch", "--machine", "alpha", "--checkpoint", "1", "--directory", dir, "--path", path];
        assert_eq!(second.fails(&args).0, "not_found", "{path}");
    }
    for (machine, checkpoint) in [("gamma", "1"), ("alpha", "7"), ("alpha", "ffffffff")] {
        let args = ["fetch", "--machine", machine, "--checkpoint", checkpoint, "--directory", dir];
        assert_eq!(second.fails(&args).0, "not_found", "{machine}/{checkpoint}");
    }
}

/// The requests and the bytes of a machine that has never read anything of the bucket but its description.
/// `PITON_REMOTE_PROJECT_MB` is the size of the project.
#[test]
fn one_file_of_a_large_project_takes_five_requests_and_little_more_than_its_bytes() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (first, phrase) = Machine::first("alpha", &place);
    first.clone_of(URL);
    let mut dice = Dice::new(3);
    let megabytes = std::env::var("PITON_REMOTE_PROJECT_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    for number in 0..megabytes {
        first.write(&format!("data/{}/file-{number}", number % 10), dice.noise(1 << 20));
    }
    let wanted = dice.noise(3 << 20);
    first.write("data/5/deep/wanted", &wanted);
    first.take("one");
    first.run(&["push"]);
    let second = Machine::joining("beta", &place, &phrase);
    second.clone_of(URL);
    let (requests, bytes) = (server.requests_of("beta"), server.bytes_out());
    let id = second.fetch("alpha", "1", &["--path", "data/5/deep/wanted"]);
    let (requests, bytes) = (server.requests_of("beta") - requests, server.bytes_out() - bytes);
    assert!(requests <= 5, "{requests} requests");
    assert!(bytes <= 2 * wanted.len() as u64, "{bytes} bytes");
    second.restore(&id, &[b"data/5/deep/wanted".to_vec()]);
    assert_eq!(fs::read(second.project().join("data/5/deep/wanted")).expect("a file"), wanted);
}

#[test]
fn clones_of_one_repository_cost_little_more_than_one() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("m0", &place);
    let noise = Dice::new(5).noise(2 << 20);
    let fill = |machine: &Machine| {
        machine.clone_of(URL);
        for (number, part) in noise.chunks(64 << 10).enumerate() {
            machine.write(&format!("dir-{}/file-{number}", number % 4), part);
        }
        machine.take("clone");
        machine.run(&["push"]);
    };
    fill(&first);
    let one = place.bytes();
    let mut machines = vec![first];
    for number in 1..20 {
        let machine = Machine::joining(&format!("m{number}"), &place, &phrase);
        fill(&machine);
        machines.push(machine);
    }
    let all = place.bytes();
    assert!(all <= one + one / 10, "{all} bytes for twenty, {one} for one");
    // Each can be restored, also from a machine that sent nothing itself.
    machines[0].fetch("m19", "1", &[]);
    assert_eq!(machines[0].run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
}

/// A later push looks at what others sent if it has much to send, however few objects that is, and in another project, too.
#[test]
fn one_large_file_that_another_machine_has_pushed_is_not_sent_again() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    let second = Machine::joining("beta", &place, &phrase);
    for (machine, name) in [(&first, "alpha"), (&second, "beta")] {
        machine.write("name", name);
        machine.take("one");
        machine.run(&["push"]);
    }
    let large = Dice::new(7).noise(1 << 20);
    let push_large = |machine: &Machine| {
        let before = place.bytes();
        machine.write("large", &large);
        machine.take("two");
        let pushed = machine.run(&["push"]);
        (place.bytes() - before, pushed["projects"][0]["found"].as_u64())
    };
    let (sent, found) = push_large(&first);
    assert!(sent > 1 << 20 && found == Some(0), "{sent} bytes, {found:?} found");
    let (sent, found) = push_large(&second);
    assert!(sent < 64 << 10 && found == Some(1), "{sent} bytes, {found:?} found");
    let id = first.fetch("beta", "1", &["--project", "project"]);
    first.restore(&id, &[]);
    assert_eq!(fs::read(first.project().join("name")).expect("a file"), b"beta");
}

/// Two of the reported losses took the home directory with the store in it.
#[test]
fn after_the_home_is_gone_everything_that_was_pushed_is_back() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("laptop", &place);
    fill(&first);
    first.take("one");
    let then = state(&first.project());
    first.run(&["push"]);
    drop(first);
    let second = Machine::joining("laptop", &place, &phrase);
    let machines = second.run(&["machines"]);
    assert_eq!(machines[0]["projects"][0]["name"], "project", "{machines}");
    let id = second.fetch("laptop", "1", &["--project", "project"]);
    second.restore(&id, &[]);
    assert_eq!(state(&second.project()), then);
}

#[test]
fn a_project_without_a_repository_is_found_by_its_name() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    first.write("a", "1");
    first.take("one");
    let dir = first.project();
    first.run(&["name", dir.to_str().expect("a path"), "my-app"]);
    first.run(&["push"]);
    let second = Machine::joining("beta", &place, &phrase);
    let dir = second.project();
    let dir = dir.to_str().expect("a path");
    let listed = second.fails(&["list", "--machine", "alpha", "--directory", dir]);
    assert!(listed.0 == "not_found" && listed.1.contains("my-app"), "{listed:?}");
    second.run(&["name", dir, "my-app"]);
    assert_eq!(
        second.run(&["list", "--machine", "alpha", "--directory", dir])["rows"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn marks_that_were_set_after_a_push_are_pushed() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (first, phrase) = Machine::first("alpha", &place);
    first.write("a", "1");
    first.take("one");
    first.run(&["push"]);
    let second = Machine::joining("beta", &place, &phrase);
    let dir = second.project();
    let fetch = ["fetch", "--machine", "alpha", "--checkpoint", "good", "--project", "project", "--directory"];
    let fetch = [&fetch[..], &[dir.to_str().expect("a path")]].concat();
    assert_eq!(second.fails(&fetch).0, "not_found");
    first.mark("1", "good");
    let pushed = first.run(&["push"]);
    assert_eq!((&pushed["projects"][0]["objects"], &pushed["bytes_sent"]), (&0.into(), &0.into()), "{pushed}");
    second.run(&fetch);
    let requests = server.requests_of("alpha");
    assert_eq!(first.run(&["push"])["unchanged"], 1);
    assert_eq!(server.requests_of("alpha"), requests, "with nothing new, nothing is asked");
}

/// With and without a phrase.
#[test]
fn adding_again_applies_the_options_that_are_given() {
    let place = Place::server();
    let endpoint = place.endpoint().expect("a server");
    let (first, phrase) = Machine::first("alpha", &place);
    let (url, config) = (place.url(), first.base().join("local/remote/config.json"));
    let config = || serde_json::from_slice::<serde_json::Value>(&fs::read(&config).expect("a file")).expect("JSON");
    first.write("a", "1");
    first.take("one");
    first.run(&["push"]);
    let before = config();
    let (kind, message) = first.fails(&["add", &url]);
    assert!(kind == "invalid" && message.contains("already"), "{message}");
    let credentials = first.sandbox.home().join(".aws/credentials");
    fs::create_dir_all(credentials.parent().expect("a directory")).expect("a directory");
    fs::write(&credentials, "[work]\naws_access_key_id = alpha\naws_secret_access_key = secret\n").expect("a file");
    let options = ["--machine", "new", "--limit-kib", "5000", "--no-collect", "--profile", "work", "--region", "eu"];
    first.run(&[&["add", &url, "--endpoint", &endpoint][..], &options].concat());
    let after = config();
    assert_eq!(
        (&after["machine"], &after["limit_kib"], &after["collects"]),
        (&"new".into(), &5000.into(), &false.into())
    );
    assert_eq!(after["location"]["credentials"]["profile"], "work");
    assert_eq!((&after["location"]["endpoint"], &after["location"]["region"]), (&endpoint.into(), &"eu".into()));
    assert_eq!((&after["writer"], &after["repository"]), (&before["writer"], &before["repository"]));
    first.join(&place, &phrase);
    assert_eq!(config(), after, "what is not given stays");
    let file = first.sandbox.root().join("phrase");
    let file = file.to_str().expect("a path");
    first.run(&["add", &url, "--phrase-file", file, "--collect", "--limit-kib", "0", "--machine", "newer"]);
    assert_eq!((&config()["collects"], &config()["limit_kib"]), (&true.into(), &0.into()));
    // A profile that does not exist is not stored.
    assert_eq!(first.fails(&["add", &url, "--profile", "none"]).0, "credentials");
    assert_eq!(config()["location"], after["location"]);
    first.run(&["push"]);
    assert_eq!(first.run(&["machines"])[0]["name"], "newer");
}

#[cfg(target_os = "linux")]
#[test]
fn directories_that_differ_in_bytes_that_are_no_text_are_two_projects() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::directory();
    let (mut first, phrase) = Machine::first("alpha", &place);
    for (name, text) in [(&b"pro\xffj"[..], "ff"), (b"pro\xfej", "fe")] {
        let dir = first.sandbox.root().join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir(&dir).expect("a directory");
        first.directory = Some(dir);
        first.write("a", text);
        first.take(text);
        first.run(&["push"]);
    }
    assert_eq!(place.below("ref/").len(), 2);
    assert_eq!(first.run(&["status"])["unpushed"], serde_json::json!([]));
    let second = Machine::joining("beta", &place, &phrase);
    let mut read = Vec::new();
    for project in second.run(&["machines"])[0]["projects"].as_array().expect("projects") {
        let id = second.fetch("alpha", "1", &["--project", project["id"].as_str().expect("an id")]);
        second.restore(&id, &[]);
        read.push(fs::read_to_string(second.project().join("a")).expect("a file"));
    }
    read.sort();
    assert_eq!(read, ["fe", "ff"]);
}

#[test]
fn keys_have_slots_and_can_be_replaced() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    first.write("a", "1");
    first.take("one");
    first.run(&["push"]);
    let added = first.run(&["key-add", "--label", "office"]);
    let other = added["phrase"].as_str().expect("a phrase").to_owned();
    let second = Machine::joining("beta", &place, &other);
    assert_eq!(second.run(&["machines"]).as_array().map(Vec::len), Some(1));
    let slot = added["slot"].as_str().expect("a slot");
    assert_eq!(first.run(&["key-remove", slot])["keys"], 2);
    let third = Machine::new("gamma", &place);
    let file = third.sandbox.root().join("phrase");
    fs::write(&file, &other).expect("a file");
    let file = file.to_str().expect("a path").to_owned();
    assert_eq!(third.fails(&["add", &place.url(), "--phrase-file", &file]).0, "wrong_key");
    first.write("a", "2");
    first.take("two");
    first.run(&["push"]);
    // What was written since is sealed with a key that the removed slot never held.
    assert_eq!(second.fails(&["machines"]).0, "wrong_key");
    // A machine that had joined before reads the keys again with a phrase that still holds.
    let early = Machine::joining("early", &place, &phrase);
    first.run(&["key-rotate"]);
    first.write("a", "3");
    first.take("three");
    first.run(&["push"]);
    assert_eq!(early.fails(&["machines"]).0, "wrong_key");
    early.join(&place, &phrase);
    assert_eq!(early.run(&["machines"])[0]["projects"][0]["checkpoints"], 3);
    let fourth = Machine::joining("delta", &place, &phrase);
    let machines = fourth.run(&["machines"]);
    assert_eq!(machines[0]["projects"][0]["checkpoints"], 3);
    assert_eq!(fourth.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
    let last = first.run(&["keys"])["slots"][0]["slot"].as_str().expect("a slot").to_owned();
    assert_eq!(first.fails(&["key-remove", &last]).0, "invalid");
}

fn stock_git(dir: &std::path::Path, args: &[&str]) -> Vec<u8> {
    let output = testkit::git().current_dir(dir).args(args).output().expect("git");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Stock git is the oracle: a repository without encryption is made of its packs.
#[test]
fn packs_in_the_clear_are_read_by_stock_git() {
    let place = Place::directory();
    let first = Machine::new("alpha", &place);
    first.run(&["add", &place.url(), "--no-encryption"]);
    fill(&first);
    let id = first.take("one");
    first.run(&["push"]);
    let git = first.sandbox.root().join("git");
    stock_git(&first.sandbox.root(), &["init", "--bare", "-q", git.to_str().expect("a path")]);
    for key in place.below("pack/") {
        let file = git.join("objects/pack").join(format!("pack-{}.pack", &key[5..]));
        fs::write(&file, place.get(&key)).expect("a pack");
        stock_git(&git, &["index-pack", file.to_str().expect("a path")]);
    }
    stock_git(&git, &["fsck", "--strict", &id.to_string()]);
    let text = stock_git(&git, &["show", &format!("{id}:src/main.rs")]);
    assert_eq!(text, b"fn main() {}\n");
    let second = Machine::new("beta", &place);
    second.run(&["add", &place.url()]);
    assert_eq!(second.run(&["verify", "--read-data"])["findings"], serde_json::json!([]));
}

/// A take that finds the lock held starts no process: the one that holds it must not have read the store yet.
#[test]
fn a_push_in_the_background_holds_its_start_until_it_begins() {
    let place = Place::server();
    let Place::Server(server) = &place else { unreachable!() };
    let (machine, _phrase) = Machine::first("alpha", &place);
    machine.write("a", "1");
    machine.take("one");
    let open = |name: &str| {
        let path = machine.base().join("local/remote").join(name);
        fs::File::options().create(true).append(true).open(path).expect("a file")
    };
    let (start, push) = (open("start.lock"), open("push.lock"));
    start.lock().and_then(|()| push.lock()).expect("locks");
    let mut child = machine.command(&["push", "--background"]).stdin(start).spawn().expect("the program");
    assert!(open("start.lock").try_lock().is_err(), "another process pushes, and this one waits for it");
    let (path, seen) = (machine.base().join("local/remote/start.lock"), std::sync::mpsc::channel());
    server.kill_at("alpha", 1, false, move || {
        let is_free = fs::File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
        seen.0.send(is_free).expect("the test waits");
    });
    drop(push);
    assert!(seen.1.recv().expect("a request"), "it is released before the first request");
    assert!(child.wait().expect("the program").success());
    assert_eq!(machine.run(&["machines"])[0]["projects"][0]["checkpoints"], 1);
}

/// As after `git remote add origin` in a project that was pushed before.
#[test]
fn a_directory_whose_project_got_another_identity_is_one_project() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    first.write("a", "1");
    first.take("one");
    first.run(&["push"]);
    let before = place.below("ref/").remove(0);
    first.clone_of(URL);
    first.write("a", "2");
    first.take("two");
    first.run(&["push"]);
    assert_eq!(place.below("ref/").len(), 2);
    let second = Machine::joining("beta", &place, &phrase);
    let projects = second.run(&["machines"])[0]["projects"].clone();
    assert_eq!((projects.as_array().map(Vec::len), &projects[0]["checkpoints"]), (Some(1), &2.into()), "{projects}");
    let id = second.fetch("alpha", "1", &["--project", "project"]);
    second.restore(&id, &[]);
    assert_eq!(fs::read_to_string(second.project().join("a")).expect("a file"), "2");
    // By its id, the earlier one is found still.
    let earlier = before.split('/').nth(1).expect("an id");
    let id = second.fetch("alpha", "1", &["--project", earlier]);
    second.restore(&id, &[]);
    assert_eq!(fs::read_to_string(second.project().join("a")).expect("a file"), "1");
}

/// The directory for temporary files may be small, and in memory.
#[test]
fn a_fetch_needs_no_room_beside_the_base() {
    let place = Place::directory();
    let (first, phrase) = Machine::first("alpha", &place);
    first.write("a", "1");
    first.take("one");
    first.run(&["push"]);
    let second = Machine::joining("beta", &place, &phrase);
    let dir = second.project();
    let fetch = ["fetch", "--machine", "alpha", "--checkpoint", "1", "--project", "project", "--directory"];
    let output = second.command(&fetch).arg(dir).env("TMPDIR", "/nowhere/at/all").output().expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
