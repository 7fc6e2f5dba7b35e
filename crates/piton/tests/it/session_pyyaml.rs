//! PyYAML, which agents read and write session records with, as the oracle: values that piton does not change are the
//! same to it afterwards, and it reads everything that piton writes.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use piton::session::{RecordAuthor, RecordChange, SessionId, Sessions};
use testkit::{Sandbox, has_program};

use crate::kit::now;

const PYYAML: &str = "pyyaml==6.0.2";

/// Returns a Python with PyYAML, in a directory that outlives the run. Returns `None` if it is not available; panics if
/// everything must be tested.
fn python() -> Option<PathBuf> {
    if !has_program("python3") {
        return skipped("python3 is missing");
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pyyaml");
    fs::create_dir_all(&dir).expect("a directory");
    let lock = File::create(dir.join("lock")).expect("a file");
    lock.lock().expect("a lock");
    let (python, made) = (dir.join("venv/bin/python3"), dir.join(format!("made-{PYYAML}")));
    if !made.exists() {
        // Inherits the environment of the test run, which may configure the package index.
        let venv = Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir.join("venv")).output();
        let pip = Command::new(&python).args(["-m", "pip", "install", "--quiet", PYYAML]).output();
        let works = |ran: &std::io::Result<std::process::Output>| ran.as_ref().is_ok_and(|ran| ran.status.success());
        if !works(&venv) || !works(&pip) {
            let must = std::env::var_os("PITON_TEST_ALL").is_some();
            assert!(!must, "{PYYAML} cannot be installed, and PITON_TEST_ALL is set: {venv:?} {pip:?}");
            return skipped(&format!("{PYYAML} cannot be installed: {venv:?} {pip:?}"));
        }
        fs::write(&made, "").expect("a file");
    }
    Some(python)
}

fn skipped(why: &str) -> Option<PathBuf> {
    let _ = writeln!(std::io::stderr(), "skipped: PyYAML is not asked, {why}");
    None
}

/// Runs the script, which must find no difference, and returns the number of cases that it prints.
fn script(python: &Path, verb: &str, dir: &Path) -> usize {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/session_pyyaml.py");
    let output = testkit::clean_command(python).arg(source).arg(verb).arg(dir).output().expect("python runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}", said.chars().take(6000).collect::<String>());
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0)
}

fn id(number: usize) -> SessionId {
    SessionId::parse(&number.to_string()).expect("a number")
}

/// Creates the base; the script's files are beside it.
fn base(sandbox: &Sandbox) -> PathBuf {
    fs::create_dir_all(sandbox.base()).expect("a base");
    // The files that the script writes are not records, but with a store in it the base is recognised as piton's.
    piton::Store::open_or_create(&sandbox.base(), now()).expect("a store");
    sandbox.base()
}

/// N3.
#[test]
fn what_an_update_does_not_touch_is_the_same_to_pyyaml() {
    let Some(python) = python() else { return };
    let sandbox = Sandbox::new();
    let base = base(&sandbox);
    let cases = script(&python, "make", &base);
    assert!(cases > 150, "{cases}");
    let sessions = Sessions::in_base(&base);
    for number in 0..cases {
        for given in ["progress: [new]\nstate: {fresh: 1}\n", "{}"] {
            let changed = sessions.update(&id(number), given.as_bytes(), RecordAuthor::Agent, now());
            let text = || fs::read_to_string(base.join(format!("{number}.yaml"))).unwrap_or_default();
            assert_eq!(changed.unwrap_or_else(|error| panic!("{error}\n{}", text())), RecordChange::Done);
        }
    }
    script(&python, "check", &base);
}

#[test]
fn what_is_given_as_json_is_the_same_to_pyyaml() {
    let Some(python) = python() else { return };
    let sandbox = Sandbox::new();
    let base = base(&sandbox);
    let cases = script(&python, "given", &base);
    assert!(cases > 80, "{cases}");
    let sessions = Sessions::in_base(&base);
    for number in 0..cases {
        let given = fs::read(base.join(format!("{number}.json"))).expect("what the script wrote");
        sessions.write(&id(number), &given, RecordAuthor::Agent, now()).expect("a record");
        // Only numbers that JSON readers cannot represent are returned as text.
        let record = sessions.read(&id(number)).expect("readable").expect("a record").to_json();
        let value: serde_json::Value = serde_json::from_slice(&given).expect("JSON");
        let same = value.as_object().expect("an object").iter().all(|(key, value)| record[key] == *value);
        assert!(same || number == 0, "{value}\n{record}");
    }
    script(&python, "check", &base);
}
