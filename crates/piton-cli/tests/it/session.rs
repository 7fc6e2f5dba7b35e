//! `piton session`: commands of agents and people, many of them at once.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::kit::{Ran, command, piton, spawn_piped};

/// Starts `piton session` with these arguments and this stdin.
fn start(sandbox: &Sandbox, args: &[&str], given: &[u8]) -> Child {
    let mut command = command(sandbox);
    command.arg("session").args(args);
    let mut child = spawn_piped(&mut command);
    // A command may exit without reading all of its stdin.
    let _ = child.stdin.take().expect("a pipe").write_all(given);
    child
}

fn session(sandbox: &Sandbox, args: &[&str], given: &str) -> Ran {
    start(sandbox, args, given.as_bytes()).wait_with_output().expect("the process ends").into()
}

fn file(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.base().join(name)).expect("a file")
}

#[test]
fn a_record_is_written_read_updated_listed_and_deleted() {
    let sandbox = Sandbox::new();
    let said = session(&sandbox, &["write", "b"], "task: mend it\nnote: 'yes'\n").done();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("Record b is written\n", ""));
    let said = session(&sandbox, &["write", "a", "--json"], "{\"task\": \"t\"}").done().json();
    assert_eq!(said, json!({"id": "a", "outcome": "written"}));
    let said = session(&sandbox, &["update", "b", "--json"], "progress: [one]").done().json();
    assert_eq!(said, json!({"id": "b", "outcome": "updated"}));
    assert_eq!(session(&sandbox, &["list"], "").done().stdout, "a\nb\n");
    assert_eq!(session(&sandbox, &["list", "--json"], "").done().json(), json!({"ids": ["a", "b"]}));
    assert_eq!(session(&sandbox, &["read", "b"], "").done().stdout, file(&sandbox, "b.yaml"));
    let read = session(&sandbox, &["read", "b", "--json"], "").done().json();
    assert_eq!((&read["id"], &read["completed"], &read["automatic"]), (&json!("b"), &json!(false), &json!(false)));
    assert_eq!((&read["record"]["note"], &read["record"]["progress"]), (&json!("yes"), &json!(["one"])));
    assert_eq!(session(&sandbox, &["delete", "b"], "").done().stdout, "Deleted: b\n");
    assert_eq!(session(&sandbox, &["delete", "b", "--json"], "").done().json(), json!({"id": "b", "deleted": false}));
    assert_eq!(session(&sandbox, &["list", "--quiet"], "").done().stdout, "");
    let mode = |path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode(sandbox.base()), mode(sandbox.base().join("a.yaml"))), (0o700, 0o600));
}

#[test]
fn every_failure_has_its_code_and_says_what_to_do() {
    let sandbox = Sandbox::new();
    for id in ["../x", "/x", "", ".x", "a\n", "nul.txt", "store", "legacy-x", "piton.log"] {
        for verb in ["write", "read", "update", "delete"] {
            let ran = session(&sandbox, &[verb, id], "task: t").failed(2);
            assert!(ran.stderr.contains("as the id of a session: ") && ran.stderr.contains("hint: "), "{ran:?}");
        }
    }
    let ran = session(&sandbox, &["write", "s"], "task: t\nx: [1\ny: 2\n").failed(2);
    assert!(ran.stderr.contains("line 3"), "{ran:?}");
    session(&sandbox, &["write", "s"], "").failed(2);
    session(&sandbox, &["write", "s"], "note: x").failed(2);
    session(&sandbox, &["write", "s"], &"x".repeat(3 << 20)).failed(2);
    session(&sandbox, &["update", "s"], "a: 1").failed(4);
    session(&sandbox, &["read", "s"], "").failed(4);
    let error = session(&sandbox, &["read", "s", "--json"], "");
    assert_eq!((error.code(), &error.json()["error"]["kind"]), (4, &json!("not_found")));
    assert!(!sandbox.base().exists());
    session(&sandbox, &["write", "s"], "task: t").done();
    fs::write(sandbox.base().join("s.yaml"), "task: [").expect("a file");
    let ran = session(&sandbox, &["read", "s"], "").failed(1);
    assert!(ran.stderr.contains("line ") && ran.stderr.contains("gc"), "{ran:?}");
}

#[test]
fn the_block_to_go_on_with_is_printed_unless_the_task_is_completed() {
    let sandbox = Sandbox::new();
    session(&sandbox, &["write", "s"], "task: mend it\nprogress: [{step: look, status: pending}]\n").done();
    let said = session(&sandbox, &["read", "s", "--resume"], "").done().stdout;
    assert!(said.ends_with("\nTask: mend it\nOpen:\n- look [pending]\n"), "{said}");
    let block = session(&sandbox, &["read", "s", "--resume", "--json"], "").done().json();
    assert_eq!((&block["id"], block["resume"].as_str()), (&json!("s"), Some(said.as_str())));
    session(&sandbox, &["update", "s"], "status: completed").done();
    let ran = session(&sandbox, &["read", "s", "--resume"], "").failed(4);
    assert!(ran.stderr.contains("its task is completed\nhint: `piton session read s` shows the record"), "{ran:?}");
    session(&sandbox, &["read", "s"], "").done();
}

#[test]
fn an_automatic_record_gives_way() {
    let sandbox = Sandbox::new();
    assert_eq!(
        session(&sandbox, &["write", "s", "--auto", "--json"], "task: guess").done().json()["outcome"],
        "written"
    );
    assert_eq!(session(&sandbox, &["read", "s", "--json"], "").done().json()["automatic"], true);
    session(&sandbox, &["write", "s"], "task: mine").done();
    let declined = session(&sandbox, &["write", "s", "--auto", "--json"], "task: guess").done().json();
    assert_eq!(declined, json!({"id": "s", "outcome": "declined"}));
    let said = session(&sandbox, &["update", "s", "--auto"], "task: guess").done().stdout;
    assert!(said.contains("is not updated: the existing one was written by an agent"), "{said}");
    assert!(file(&sandbox, "s.yaml").starts_with("task: mine\n"));
}

#[test]
fn gc_says_what_went_and_what_was_put_aside() {
    let sandbox = Sandbox::new();
    session(&sandbox, &["write", "fine"], "task: t").done();
    fs::write(sandbox.base().join("old.yaml"), "task: t\nupdated: 2020-01-01\n").expect("a file");
    fs::write(sandbox.base().join("half.yaml"), "task: [").expect("a file");
    let said = session(&sandbox, &["gc", "--json"], "").done().json();
    assert_eq!((&said["removed"], &said["removed_damaged"]), (&json!(["old"]), &json!([])));
    let aside = &said["damaged"][0];
    assert_eq!(aside["id"], "half");
    assert!(aside["why"].as_str().is_some_and(|why| why.starts_with("line ")), "{said}");
    assert_eq!(file(&sandbox, aside["file"].as_str().expect("a name")), "task: [");
    assert_eq!(session(&sandbox, &["gc"], "").done().stdout, "Nothing to remove\n");
    fs::write(sandbox.base().join("half.yaml"), "task: [").expect("a file");
    let ran = session(&sandbox, &["gc", "--max-age-days", "100000"], "").done();
    assert!(ran.stderr.starts_with("warning: the record half cannot be read (line "), "{ran:?}");
    session(&sandbox, &["gc", "--max-age-days", "-1"], "").failed(2);
    assert_eq!(session(&sandbox, &["list"], "").done().stdout, "fine\n");
}

#[test]
fn every_help_text_has_an_example_and_the_exit_codes() {
    let sandbox = Sandbox::new();
    for verb in ["write", "read", "update", "delete", "list", "gc"] {
        let help = piton(&sandbox, ["session", verb, "--help"]).done().stdout;
        assert!(help.contains(&format!("piton session {verb}")) && help.contains("Exit codes: 0 done"), "{help}");
    }
}

/// Takes a checkpoint for a session, as a hook does.
fn take_for_session(sandbox: &Sandbox, session: &str) {
    use ::piton::{CheckpointKind, Moment, Origin, Progress, Project, Request, Settings, Store, take};
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let now = Moment { secs: i64::try_from(since.as_secs()).expect("not that late"), nanos: 0, offset_secs: 0 };
    let origin = Origin::default().session(session);
    let request = Request::default().reason("a hook").kind(CheckpointKind::Manual).origin(origin);
    let store = Store::open_or_create(&sandbox.base(), now).expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    take(&store, &project, &request, &Settings::default(), now, &Progress::default()).expect("a checkpoint");
}

#[test]
fn a_restore_says_what_became_of_the_record() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    session(&sandbox, &["write", "talk"], "task: first").done();
    take_for_session(&sandbox, "talk");
    sandbox.write("a", "2");
    session(&sandbox, &["write", "talk"], "task: second").done();
    let said = piton(&sandbox, ["restore", "1"]).done().stdout;
    assert!(said.contains("The record of session talk is as it was then, too\n"), "{said}");
    assert!(file(&sandbox, "talk.yaml").starts_with("task: first\n"));
    let report = piton(&sandbox, ["undo", "--json"]).done().json();
    assert_eq!(report["record"], "replaced");
    assert!(file(&sandbox, "talk.yaml").starts_with("task: second\n"));
    sandbox.write("a", "3");
    piton(&sandbox, ["take"]).done();
    sandbox.write("a", "4");
    assert_eq!(piton(&sandbox, ["restore", "1", "--json"]).done().json()["record"], Value::Null);
}

const PROCESSES: usize = 12;
const ROUNDS: usize = 8;

/// N2. With and without a store, and while it is being created: no update is lost, and a reader never sees a partial
/// record.
#[test]
fn no_update_of_many_processes_is_lost() {
    let sandbox = Sandbox::new();
    session(&sandbox, &["write", "s"], "task: t\nstate: {}\n").done();
    sandbox.write("a", "1");
    std::thread::scope(|scope| {
        for worker in 0..PROCESSES {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let given = format!("progress: ['{worker}-{round}']\nstate: {{w{worker}: {round}}}\n");
                    session(sandbox, &["update", "s"], &given).done();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..ROUNDS * 4 {
                let read = session(&sandbox, &["read", "s", "--json"], "").done().json();
                assert_eq!(read["record"]["task"], "t");
                assert!(file(&sandbox, "s.yaml").contains("\nupdated: "));
            }
        });
        scope.spawn(|| piton(&sandbox, ["take"]).done());
    });
    let record = session(&sandbox, &["read", "s", "--json"], "").done().json()["record"].clone();
    let mut noted: Vec<_> = record["progress"].as_array().expect("a list").iter().map(ToString::to_string).collect();
    noted.sort();
    noted.dedup();
    assert_eq!(noted.len(), PROCESSES * ROUNDS);
    assert!((0..PROCESSES).all(|worker| record["state"][format!("w{worker}")] == ROUNDS - 1), "{record}");
}

/// Processes killed while they write leave the old record or the new one.
#[test]
fn a_killed_process_leaves_a_whole_record() {
    let sandbox = Sandbox::new();
    session(&sandbox, &["write", "s"], "task: t\n").done();
    let given = format!("progress: [{}]", "x".repeat(5000));
    let mut times = [(); 5].map(|()| {
        let began = Instant::now();
        session(&sandbox, &["update", "s"], &given).done();
        began.elapsed()
    });
    times.sort();
    let mut killed = 0;
    for round in 0..60 {
        let mut child = start(&sandbox, &["update", "s"], given.as_bytes());
        // From its start to after its end, based on the time of an undisturbed run on this machine.
        std::thread::sleep(times[2] * round / 40);
        child.kill().expect("a process of ours");
        let ended = child.wait().expect("a process of ours");
        killed += u32::from(round > 0 && ended.signal() == Some(9));
        session(&sandbox, &["read", "s"], "").done();
    }
    assert!(killed >= 5, "only {killed} were killed midway");
    session(&sandbox, &["update", "s"], "status: completed").done();
}
