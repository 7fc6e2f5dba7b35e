//! How `piton-remote` is found and started: its version, signals, and takes that do not wait for it.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use testkit::{Sandbox, clean_command};

use crate::kit::{PITON, Ran, in_dir, interruptible, piton, run, spawn_piped};
use crate::picker::Terminal;
use crate::remote_kit::{Machine, beside};

/// Returns a copy of the program, with the sandbox's home and a search path without piton.
fn copy(sandbox: &Sandbox, program: &Path) -> Command {
    let mut command = clean_command(program);
    command.env("HOME", sandbox.home()).env("TZ", "UTC").env("PATH", "/usr/bin:/bin").current_dir(sandbox.project());
    command
}

/// Two minutes, far more than a process needs to start.
const TRIES_MAX: usize = 24_000;
const POLLS_MAX: usize = 2_400;

/// Waits until a file has a line. The process that writes it runs in the background.
fn line_in(path: &Path) -> String {
    for _ in 0..TRIES_MAX {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
    panic!("{} was never written", path.display());
}

fn kill(signal: &str, pid: &str) {
    let killed = clean_command("kill").args([signal, pid]).status().expect("kill runs");
    assert!(killed.success());
}

/// Pretends that a remote was added to the store, which exists.
fn configure(sandbox: &Sandbox) {
    let dir = sandbox.base().join("local/remote");
    fs::create_dir_all(&dir).expect("a directory");
    let config = r#"{"location": {"url": "file:///nowhere"}, "machine": "box"}"#;
    fs::write(dir.join("config.json"), config).expect("a file");
}

/// Returns a sandbox whose store has a remote.
fn with_remote() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    piton(&sandbox, ["take"]).done();
    configure(&sandbox);
    sandbox
}

#[test]
fn a_missing_program_and_one_of_another_version_are_told() {
    let sandbox = with_remote();
    let program = beside(&sandbox, None);
    let missing = run(copy(&sandbox, &program).arg("machines")).failed(4);
    assert!(missing.stderr.contains("find the program piton-remote"), "{missing:?}");
    assert!(missing.stderr.contains("cargo install --path crates/piton-remote"), "{missing:?}");
    beside(&sandbox, Some("echo piton-remote 99.0.0"));
    let other = run(copy(&sandbox, &program).arg("machines")).failed(2);
    assert!(other.stderr.contains("99.0.0") && other.stderr.contains(env!("CARGO_PKG_VERSION")), "{other:?}");
}

/// The script in place of the program: answers the question for its version, and then does something else.
fn script(then: &str) -> String {
    format!("[ \"$1\" = --version ] && {{ echo piton-remote {}; exit; }}\n{then}", env!("CARGO_PKG_VERSION"))
}

#[test]
fn an_answer_that_is_none_and_an_error_are_told() {
    let sandbox = with_remote();
    let program =
        beside(&sandbox, Some(&script("echo '{\"done\":1,\"total\":2}' >&2; echo 'it panicked' >&2; exit 101")));
    let broken = run(copy(&sandbox, &program).arg("machines")).failed(1);
    assert!(broken.stderr.contains("it panicked") && !broken.stderr.contains("total"), "{broken:?}");
    let error =
        r#"echo '{"error":{"kind":"clock","message":"cannot push: the clocks differ","hint":"set it"}}'; exit 1"#;
    beside(&sandbox, Some(&script(error)));
    let told = run(copy(&sandbox, &program).args(["push", "--json"]));
    assert_eq!(told.code(), 1, "{told:?}");
    let error = &told.json()["error"];
    assert_eq!((&error["kind"], &error["hint"]), (&"clock".into(), &"set it".into()), "{told:?}");
}

#[test]
fn a_signal_ends_the_program_too() {
    let sandbox = with_remote();
    let (started, ended) = (sandbox.root().join("started"), sandbox.root().join("ended"));
    let waits = format!(
        "trap 'echo ended > {}; exit 143' TERM\necho started > {}\nwhile :; do sleep 0.01; done",
        ended.display(),
        started.display()
    );
    let program = beside(&sandbox, Some(&script(&waits)));
    let child = spawn_piped(&mut interruptible(copy(&sandbox, &program).arg("push")));
    line_in(&started);
    kill("-INT", &child.id().to_string());
    let ran = Ran::from(child.wait_with_output().expect("it ends"));
    assert_eq!(ran.code(), 130, "{ran:?}");
    assert_eq!(line_in(&ended), "ended");
}

#[test]
fn takes_and_hooks_do_not_wait_for_a_push_and_start_one_after_each_checkpoint() {
    let sandbox = Sandbox::new();
    let pid = sandbox.root().join("pid");
    let hangs = format!("echo $$ \"$@\" > {}\nexec sleep 1000", pid.display());
    let program = beside(&sandbox, Some(&script(&hangs)));
    sandbox.write("a.txt", "one\n");
    run(copy(&sandbox, &program).arg("take")).done();
    configure(&sandbox);
    // Nothing is new, or it is switched off: nothing is started, so that the next one writes the file.
    run(copy(&sandbox, &program).arg("take")).done();
    sandbox.write("a.txt", "two\n");
    run(copy(&sandbox, &program).env("PITON_REMOTE", "false").arg("take")).done();
    assert!(!pid.exists());
    sandbox.write("a.txt", "three\n");
    run(copy(&sandbox, &program).args(["take", "--json"])).done();
    let started = |event: Option<&str>| {
        let words = line_in(&pid);
        let words: Vec<_> = words.split(' ').collect();
        fs::remove_file(&pid).expect("a file");
        let session = clean_command("ps").args(["-o", "sid=", "-p", words[0]]).output().expect("ps runs");
        let session = String::from_utf8_lossy(&session.stdout).trim().to_owned();
        kill("-KILL", words[0]);
        // It has the lock until it is gone.
        start_lock(&sandbox).lock().expect("a lock");
        assert_eq!(session, words[0], "it has a session of its own");
        assert_eq!(words[1], "--base", "{words:?}");
        assert!(words.contains(&"push") && words.contains(&"--background"), "{event:?}: {words:?}");
    };
    started(None);
    for (event, text) in [("UserPromptSubmit", "four\n"), ("Stop", "five\n")] {
        sandbox.write("a.txt", text);
        let dir = sandbox.project();
        let payload = serde_json::json!({"hook_event_name": event, "session_id": "s", "prompt_id": "p", "prompt": "go", "cwd": dir});
        let mut command = copy(&sandbox, &program);
        let mut child = spawn_piped(command.env("PITON_ENABLED", "true").args(["hook", "claude"]));
        child.stdin.take().expect("a pipe").write_all(payload.to_string().as_bytes()).expect("it reads");
        let ran = Ran::from(child.wait_with_output().expect("it ends")).done();
        assert_eq!(ran.stderr, "");
        started(Some(event));
    }
}

fn start_lock(sandbox: &Sandbox) -> fs::File {
    let path = sandbox.base().join("local/remote/start.lock");
    fs::File::options().create(true).append(true).open(path).expect("a file")
}

#[test]
fn takes_start_one_process_until_it_begins_to_push() {
    let sandbox = with_remote();
    let pids = sandbox.root().join("pids");
    let counts = format!("echo $$ >> {}", pids.display());
    let program = beside(&sandbox, Some(&script(&counts)));
    let take = |text: &str| {
        sandbox.write("a.txt", text);
        run(copy(&sandbox, &program).arg("take")).done();
    };
    // As a process that was started holds it.
    let held = start_lock(&sandbox);
    held.lock().expect("a lock");
    for text in ["two\n", "three\n", "four\n"] {
        take(text);
    }
    drop(held);
    take("five\n");
    line_in(&pids);
    // That process has ended, or holds the lock until then.
    start_lock(&sandbox).lock().expect("a lock");
    assert_eq!(fs::read_to_string(&pids).expect("a file").lines().count(), 1);
}

#[test]
fn the_phrase_is_asked_for_on_a_terminal() {
    let sandbox = Sandbox::new();
    let machine = Machine::new(&sandbox, "box");
    machine.add();
    let phrase = fs::read_to_string(machine.phrase()).expect("a phrase");
    let url = format!("file://{}", machine.bucket().display());
    let line = format!("{PITON} remote add {url} --machine other");
    let Some(terminal) = Terminal::open(&sandbox, (100, 40), &line) else { return };
    terminal.wait_for("Recovery phrase of this remote:");
    terminal.press(&[phrase.trim(), "Enter"]).wait_for("Joined");
    terminal.wait_for("exit=0");
}

#[test]
fn a_new_checkpoint_is_pushed_by_itself() {
    let sandbox = Sandbox::new();
    let machine = Machine::new(&sandbox, "box");
    machine.add();
    machine.write("a.txt", "one\n");
    let mut take = in_dir(&sandbox, &machine.project);
    run(take.env("HOME", &machine.home).arg("take")).done();
    let is_pushed = || {
        let status = machine.piton(&["status", "--json"]).done().json();
        assert!(status["remote"]["failure"].is_null(), "{status}");
        std::thread::sleep(std::time::Duration::from_millis(50));
        status["remote"]["unpushed"].as_array().is_some_and(Vec::is_empty)
    };
    let packs = machine.bucket().join("pack");
    fs::create_dir_all(&packs).expect("a directory");
    fs::write(packs.join("0123456789abcdef0123456789abcdef"), "left by a kill").expect("a file");
    assert!((0..POLLS_MAX).any(|_| is_pushed()), "nothing was pushed");
    let is_collected = || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::read_dir(machine.bucket().join("tomb")).is_ok_and(|found| found.count() > 0)
    };
    assert!((0..POLLS_MAX).any(|_| is_collected()), "the garbage was not found");
    let other = Machine::new(&sandbox, "other");
    other.add();
    other.piton(&["restore", "box/1", "--project", "code"]).done();
    assert_eq!(other.read("a.txt").as_deref(), Some("one\n"));
    machine.piton(&["push", "--wait"]).done();
}
