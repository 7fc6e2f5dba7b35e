//! First checkpoints that exceed the deadline: a background process completes them as of the prompt, and if it fails at
//! any point, the next one continues.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::SystemTime;

use piton::{Project, Settings};
use serde_json::{Value, json};
use testkit::{Dice, Sandbox, clean_command, files_in, has_program, wait_for_maintenance};

use crate::fault_store::answer;
use crate::hook_kit::{bash, checkpoints, hook_command, journal, prompt, send};
use crate::kit::{PITON, Ran, assert_no_half_pack, command, ids, in_dir, piton, run, spawn_piped, take_works};
use crate::sweep::{After, Scene, fail, kill};

/// Blocks until the clock that stamps files is well past the timestamps of all written files.
fn settle(sandbox: &Sandbox) {
    let path = sandbox.root().join("clock");
    let stamp = || {
        fs::write(&path, "tick").expect("a file");
        let stat = path.metadata().expect("a file");
        i128::from(stat.ctime()) * 1_000_000_000 + i128::from(stat.ctime_nsec())
    };
    let first = stamp();
    while stamp() < first + 150_000_000 {}
}

fn project(sandbox: &Sandbox) -> Project {
    Project::at(&sandbox.project(), None).expect("a project")
}

/// Creates a store, and a project with these files whose first checkpoint just timed out.
fn unfinished(tree: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let other = sandbox.other_project("other");
    fs::write(other.join("theirs"), "1").expect("a file");
    run(in_dir(&sandbox, &other).arg("take")).done();
    sandbox.tree(tree);
    settle(&sandbox);
    ask(&sandbox);
    sandbox
}

/// Writes the request for a checkpoint as of this moment.
fn ask(sandbox: &Sandbox) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let request = json!({
        "reason": "prompt: x", "agent": "claude", "session": "s", "turn": "t", "after": ids(sandbox).first(),
        "secs": now.as_secs(), "nanos": now.subsec_nanos(), "offset_secs": 0, "told": true,
    });
    let dir = sandbox.base().join("local/unfinished");
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join(format!("{}.json", project(sandbox).id())), request.to_string()).expect("a file");
}

fn finish(sandbox: &Sandbox) -> Value {
    piton(sandbox, ["finish", "--checkpoints", "--json"]).done().json()
}

/// Returns the files of unfinished checkpoints; none are left once there is a checkpoint.
fn remains(sandbox: &Sandbox) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in ["local/unfinished", "store/refs/unfinished"] {
        testkit::walk(&sandbox.base().join(dir), &mut |path| found.push(path.to_owned()));
    }
    found.retain(|path| path.is_file());
    found
}

fn status(sandbox: &Sandbox) -> Value {
    piton(sandbox, ["status", "--json"]).done().json()
}

/// Creates a project that no machine takes in a millisecond.
fn many_files(sandbox: &Sandbox) {
    for number in 0..3_000 {
        sandbox.write(format!("dir-{}/file-{number}", number % 60), format!("{number}\n").repeat(20));
    }
    settle(sandbox);
}

fn hasty(sandbox: &Sandbox, sent: String) -> Ran {
    send(hook_command(sandbox, &["claude"]).env("PITON_DEADLINE_MS", "1"), sent)
}

#[test]
fn a_first_checkpoint_that_is_too_slow_is_completed_and_the_next_turn_does_not_pay_again() {
    let sandbox = Sandbox::new();
    many_files(&sandbox);
    let said = hasty(&sandbox, prompt(&sandbox, "s", "t1", "first")).done();
    let message = serde_json::from_str::<Value>(&said.stdout).expect("an answer")["systemMessage"].clone();
    assert!(message.as_str().is_some_and(|text| text.contains("completed in the background")), "{said:?}");
    wait_for_maintenance(&sandbox.root());
    assert_eq!(checkpoints(&sandbox, &["turn", "reason"]), [["t1", "prompt: first"]], "{}", journal(&sandbox));
    let newest = ids(&sandbox)[0].clone();
    assert_eq!(sandbox.held_by(&newest), files_in(&sandbox.project()));
    let list = piton(&sandbox, ["rollback", "--json"]).json();
    assert_eq!(list[0]["incomplete"], false, "nothing changed meanwhile");
    assert_eq!(status(&sandbox)["unprotected"], json!([]), "the turn has its checkpoint");
    assert_eq!(remains(&sandbox), Vec::<PathBuf>::new());
    sandbox.assert_store_is_whole();
    // The next turn costs one scan that reads nothing: given enough time, the files are known.
    let next = send(&mut hook_command(&sandbox, &["claude"]), prompt(&sandbox, "s", "t2", "second")).done();
    assert_eq!((next.stdout.as_str(), ids(&sandbox)), ("", vec![newest]));
    assert_eq!(status(&sandbox)["unprotected"], json!([]));
}

#[test]
fn an_automatic_take_that_is_too_slow_is_completed_as_well() {
    let sandbox = Sandbox::new();
    many_files(&sandbox);
    let mut hasty = command(&sandbox);
    hasty.args(["take", "--automatic", "-m", "before a tool", "--json"]).env("PITON_DEADLINE_MS", "1");
    let report = run(&mut hasty).done().json();
    assert_eq!((&report["outcome"], &report["why"]), (&json!("skipped"), &json!("deadline")));
    wait_for_maintenance(&sandbox.root());
    assert_eq!(checkpoints(&sandbox, &["kind", "reason"]), [["auto", "before a tool"]], "{}", journal(&sandbox));
    assert_eq!(sandbox.held_by(&ids(&sandbox)[0]), files_in(&sandbox.project()));
    assert_eq!(remains(&sandbox), Vec::<PathBuf>::new());
    let why = status(&sandbox)["unprotected"][0]["why"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("deadline_ms")), "the agent did not wait for it: {why}");
    let again = piton(&sandbox, ["take", "--automatic", "--json"]).done().json();
    assert_eq!(again["outcome"], "unchanged", "also if automatic checkpoints are not switched on");
}

#[test]
fn while_a_checkpoint_is_being_completed_a_hook_does_not_compete_with_it() {
    let sandbox = unfinished("a.txt = one\n dir/b.txt = two");
    let lock = sandbox.store().join(format!("locks/{}.finish", project(&sandbox).id()));
    let held = File::create(lock).expect("a lock");
    held.lock().expect("the lock");
    let ran = send(&mut hook_command(&sandbox, &["claude"]), bash(&sandbox, "s", "t", "rm a.txt")).done();
    assert_eq!((ran.stdout.as_str(), ids(&sandbox).len()), ("", 0), "{ran:?}");
    let why = status(&sandbox)["unprotected"][0]["why"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("still being completed")), "{why}");
    drop(held);
    // The background process is gone: the hook takes the checkpoint, and nothing is left to be completed.
    send(&mut hook_command(&sandbox, &["claude"]), bash(&sandbox, "s", "t", "rm a.txt")).done();
    assert_eq!((ids(&sandbox).len(), remains(&sandbox)), (1, Vec::new()));
    assert_eq!(status(&sandbox)["unprotected"], json!([]), "the same turn has its checkpoint");
}

#[test]
fn what_changed_after_the_prompt_is_left_out_named_and_left_alone_by_a_restore() {
    let sandbox = unfinished(
        "stays.txt = old\n edited.txt = old\n gone.txt = old\n dir/stays = old\n dir/edited = old\n moved/inner/file = old\n \
         *run = old",
    );
    let before = files_in(&sandbox.project());
    sandbox.tree("edited.txt = by the agent\n dir/edited = by the agent\n new.txt = new\n made/deep/file = new");
    fs::remove_file(sandbox.path("gone.txt")).expect("a file");
    fs::rename(sandbox.path("moved/inner"), sandbox.path("elsewhere")).expect("a directory");
    let id = finish(&sandbox)["id"].as_str().expect("an id").to_owned();
    let shown = piton(&sandbox, ["show", "1", "--json"]).done().json();
    assert_eq!(
        (&shown["incomplete"], &shown["turn"], &shown["reason"]),
        (&json!(true), &json!("t"), &json!("prompt: x"))
    );
    let mut changing: Vec<_> = shown["skipped"].as_array().expect("a list").iter().collect();
    changing.retain(|skipped| skipped["why"] == "changing");
    let names: Vec<_> = changing.iter().map(|skipped| skipped["path"].as_str().expect("a path")).collect();
    assert_eq!(names, ["dir/edited", "edited.txt", "elsewhere/", "made/", "moved/", "new.txt"]);
    let held = sandbox.held_by(&id);
    for name in ["stays.txt", "dir/stays", "run"] {
        assert_eq!(held.get(name.as_bytes()), before.get(name.as_bytes()), "{name}");
    }
    assert_eq!(held.len(), 3, "{held:?}");
    let list = piton(&sandbox, ["rollback"]).done().stdout;
    assert!(list.contains("prompt: x") && list.contains("incomplete"), "{list}");
    // The agent continues.
    sandbox.tree("stays.txt = broken\n edited.txt = once more\n later.txt = later\n dir/later = later");
    fs::remove_file(sandbox.path("run")).expect("a file");
    let restored = piton(&sandbox, ["restore", "1", "-y", "--json"]);
    assert_eq!(restored.code(), 3, "some of it is left: {restored:?}");
    let restored = restored.json();
    let now = files_in(&sandbox.project());
    for name in ["stays.txt", "dir/stays", "run"] {
        assert_eq!(now.get(name.as_bytes()), before.get(name.as_bytes()), "{name}");
    }
    let text = |name: &str| fs::read_to_string(sandbox.path(name)).ok();
    assert_eq!(text("edited.txt").as_deref(), Some("once more"));
    assert_eq!(text("new.txt").as_deref(), Some("new"));
    assert_eq!(text("made/deep/file").as_deref(), Some("new"));
    assert_eq!(text("elsewhere/file").as_deref(), Some("old"));
    assert_eq!((text("later.txt"), text("dir/later")), (None, None), "what was made since is removed");
    let left: Vec<_> = restored["left"].as_array().expect("a list").iter().map(|left| left["path"].clone()).collect();
    for name in ["edited.txt", "new.txt", "dir/edited", "made/deep/file", "elsewhere/file"] {
        assert!(left.contains(&json!(name)), "{name} is not named: {left:?}");
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn a_take_and_a_clear_need_not_wait_for_the_completion() {
    if !has_program("strace") {
        return;
    }
    for args in [&["take", "--json"][..], &["clear", "--force", "--json"]] {
        let sandbox = unfinished("start = 1");
        for number in 0..400 {
            sandbox.write(format!("file-{number}"), number.to_string());
        }
        settle(&sandbox);
        ask(&sandbox);
        // So slow that a process that waits for its end gives up because the store is busy.
        let mut strace = clean_command("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=openat2", "-e", "inject=openat2:delay_enter=200000"]);
        strace.args([PITON, "finish", "--checkpoints", "--json"]).env("HOME", sandbox.home());
        let child = spawn_piped(strace.current_dir(sandbox.project()));
        let lock = sandbox.store().join(format!("locks/{}", project(&sandbox).id()));
        // Without trying the lock: the process would take that for another one at work.
        let is_at_work = || {
            let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
            fs::metadata(&lock).is_ok_and(|file| locks.contains(&format!(":{} ", file.ino())))
        };
        while !is_at_work() {
            std::thread::yield_now();
        }
        piton(&sandbox, args).done();
        let ran = Ran::from(child.wait_with_output().expect("it ends"));
        assert!(!ran.stdout.contains("finished"), "{args:?}: {ran:?}");
        if args[0] == "take" {
            assert_eq!((ids(&sandbox).len(), remains(&sandbox)), (1, Vec::new()));
            sandbox.assert_store_is_whole();
        }
    }
}

/// A process that completes a checkpoint.
struct Finish {
    sandbox: Sandbox,
}

impl Finish {
    fn new() -> Self {
        Self { sandbox: unfinished("a.txt = one\n dir/b.txt = two\n dir/deep/c.txt = three\n *run = four") }
    }
}

impl Scene for Finish {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["finish", "--checkpoints", "--json"]
    }

    fn check(&self, after: &After<'_>) {
        answer(after);
        let sandbox = &self.sandbox;
        assert_no_half_pack(sandbox);
        sandbox.assert_store_is_whole();
        finish(sandbox);
        let held = sandbox.held_by(&ids(sandbox)[0]);
        let missed = if after.is_kill() { 0 } else { files_in(&sandbox.project()).len() - held.len() };
        assert!(held == files_in(&sandbox.project()) || missed > 0, "{after:?}");
        assert_eq!(piton(sandbox, ["verify", "--json"]).code(), 0, "{after:?}");
        take_works(sandbox);
        assert_eq!(remains(sandbox), Vec::<PathBuf>::new(), "{after:?}");
    }
}

#[test]
fn a_completion_may_be_killed_anywhere_and_the_next_finishes_it() {
    assert!(kill(Finish::new).felt >= 7);
}

#[test]
fn a_completion_survives_the_failure_of_any_call() {
    assert!(fail(Finish::new).felt >= 5);
}

#[test]
fn a_completion_that_is_killed_at_random_leaves_nothing_that_stops_the_next() {
    let sandbox = unfinished("start = 1");
    let mut dice = Dice::new(11);
    for number in 0..12 {
        sandbox.write(format!("noise-{number}"), dice.noise(300_000));
    }
    settle(&sandbox);
    ask(&sandbox);
    for round in 0..8 {
        let mut command = in_dir(&sandbox, &sandbox.project());
        let mut child = spawn_piped(command.args(["finish", "--checkpoints"]));
        for _ in 0..dice.roll(40) {
            let _ = ids(&sandbox);
        }
        let _ = child.kill();
        child.wait().expect("it ends");
        sandbox.assert_store_is_whole();
        assert!(ids(&sandbox).len() <= 1, "round {round}");
    }
    finish(&sandbox);
    assert_eq!(sandbox.held_by(&ids(&sandbox)[0]), files_in(&sandbox.project()));
    assert_eq!(remains(&sandbox), Vec::<PathBuf>::new());
}

#[test]
fn a_store_that_is_busy_is_called_busy_and_nothing_is_left_to_be_completed() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    take_works(&sandbox);
    sandbox.write("a.txt", "two");
    let held = File::create(sandbox.store().join(format!("locks/{}", project(&sandbox).id()))).expect("a lock");
    held.lock().expect("the lock");
    hasty(&sandbox, prompt(&sandbox, "s", "t1", "first")).done();
    let why = status(&sandbox)["unprotected"][0]["why"].as_str().expect("a reason").to_owned();
    assert!(why.contains("the store was busy") && !why.contains("longer"), "{why}");
    assert_eq!(remains(&sandbox), Vec::<PathBuf>::new());
    drop(held);
    assert!(Settings::default().deadline_ms > 1);
    send(&mut hook_command(&sandbox, &["claude"]), bash(&sandbox, "s", "t1", "rm a.txt")).done();
    assert_eq!((ids(&sandbox).len(), &status(&sandbox)["unprotected"]), (2, &json!([])));
}
