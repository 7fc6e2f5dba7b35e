//! Turns without a checkpoint: each is shown once, in the status and in the list, until the user acknowledges it.

use std::fs;

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command, has_program};

use crate::faults::Mounted;
use crate::hook_kit::{bash, captured, checkpoints, hook, hook_command, journal, prompt, send};
use crate::kit::{PITON, Ran, in_dir, piton, run};

fn unprotected(sandbox: &Sandbox) -> Vec<Value> {
    let status = piton(sandbox, ["status", "--json"]).done().json();
    status["unprotected"].as_array().expect("a list").clone()
}

fn turns(sandbox: &Sandbox) -> Vec<String> {
    unprotected(sandbox).iter().map(|one| one["turn"].as_str().expect("a turn").to_owned()).collect()
}

/// Runs a hook that is killed before its first call of this kind.
fn killed(sandbox: &Sandbox, call: &str, sent: &str) -> Ran {
    let mut strace = clean_command("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=KILL:when=1"), PITON, "hook", "claude"]);
    strace.env("HOME", sandbox.home()).env("TZ", "UTC").env("PITON_ENABLED", "1").env("PITON_DEADLINE_MS", "10000");
    send(strace.current_dir(sandbox.root()), sent)
}

#[test]
fn a_hook_that_is_killed_is_told_of_by_the_next_one_by_status_and_by_the_list() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("a.txt", "two");
    assert!(killed(&sandbox, "fsync", &prompt(&sandbox, "s", "t2", "second")).was_killed());
    // Status records this one, so the next hook reports only the one after it.
    assert_eq!(turns(&sandbox), ["t2"]);
    assert!(killed(&sandbox, "fsync", &prompt(&sandbox, "s", "t3", "third")).was_killed());
    let said = hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t4", "fourth"));
    let said: Value = serde_json::from_str(&said).expect("an answer");
    let message = said["systemMessage"].as_str().expect("a message");
    assert!(message.contains("1 earlier turn ran without a checkpoint"), "{message}");
    assert_eq!(turns(&sandbox), ["t3", "t2"]);
    assert!(unprotected(&sandbox)[0]["why"].as_str().is_some_and(|why| why.contains("the hook was stopped")));
    assert_eq!(hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t5", "fifth")), "", "it is told once");
    // No file changed between the fourth and the fifth prompt, so they share a checkpoint.
    assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"], ["t5"]]);
    let list = piton(&sandbox, ["rollback"]).done().stdout;
    let lines: Vec<_> = list.lines().filter(|line| line.contains("no checkpoint (claude): ")).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| !line.contains('.')), "{list}");
    assert_eq!(piton(&sandbox, ["rollback", "--json"]).json().as_array().map(Vec::len), Some(2), "checkpoints alone");
}

/// A hook that was killed after its checkpoint was taken has missed nothing.
#[test]
fn a_hook_that_is_killed_at_its_very_end_has_protected_its_turn() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("a.txt", "two");
    let ran = killed(&sandbox, "exit_group", &prompt(&sandbox, "s", "t2", "second"));
    assert!(ran.was_killed(), "{ran:?}");
    assert_eq!((turns(&sandbox), checkpoints(&sandbox, &["turn"]).len()), (Vec::new(), 2));
}

#[test]
fn an_unprotected_turn_stays_until_it_is_acknowledged_or_expires() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n b.txt = two");
    let fails = |turn: &str| {
        let mut command = hook_command(&sandbox, &["claude"]);
        send(command.env("PITON_MAX_FILES", "1"), prompt(&sandbox, "s", turn, "x")).done();
        send(command.env("PITON_MAX_FILES", "1"), bash(&sandbox, "s", turn, "rm a.txt")).done();
    };
    fails("t1");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", "x"));
    fails("t3");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t4", "x"));
    assert_eq!(turns(&sandbox), ["t3", "t1"], "that it works again does not bring them back");
    let text = piton(&sandbox, ["status"]).done().stdout;
    assert!(text.contains("2 turns ran without a checkpoint") && text.contains("piton status --ack"), "{text}");
    let one = &unprotected(&sandbox)[1];
    assert_eq!(
        (&one["agent"], &one["session"], &one["project"]),
        (&json!("claude"), &json!("s"), &json!(sandbox.project()))
    );
    let none: &[Value] = &[];
    let log = sandbox.base().join("piton.log");
    let old = fs::read_to_string(&log).expect("a journal");
    // A year earlier, according to the journal alone.
    let year = &old[..4];
    let earlier = old.replace(&format!("{year}-"), &format!("{}-", year.parse::<u32>().expect("a year") - 1));
    fs::write(&log, earlier).expect("a file");
    assert_eq!(unprotected(&sandbox), none, "retention_days have passed");
    fs::write(&log, old).expect("a file");
    let acknowledged = piton(&sandbox, ["status", "--ack", "--json"]).done().json();
    assert_eq!((&acknowledged["acknowledged"], &acknowledged["unprotected"]), (&json!(2), &json!([])));
    assert_eq!(
        (unprotected(&sandbox), piton(&sandbox, ["rollback"]).stdout.contains("no checkpoint")),
        (none.to_vec(), false)
    );
    fails("t5");
    assert_eq!(turns(&sandbox), ["t5"], "what came later was not seen");
}

#[test]
fn a_turn_counts_once_whatever_its_tools_try_also_on_a_store_that_cannot_be_written() {
    for agent in ["gemini", "copilot", "opencode", "claude"] {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt = one");
        let base = sandbox.base();
        let Some(disk) = Mounted::tmpfs(&base, "size=8m,mode=700") else { return };
        hook(&sandbox, &["claude"], prompt(&sandbox, "before", "t", "x"));
        sandbox.write("a.txt", "two");
        disk.remount("ro");
        let all = captured(&sandbox, agent);
        let second = all.iter().rposition(|(name, _)| is_prompt(name)).expect("a prompt");
        for (event, sent) in &all[..second] {
            let mut command = hook_command(&sandbox, &[agent, event]);
            send(&mut command, sent).done();
        }
        let prompts = all[..second].iter().filter(|(name, _)| is_prompt(name)).count();
        let found = unprotected(&sandbox);
        assert_eq!((prompts, found.len()), (1, 1), "{agent}: {found:?}\n{}", journal(&sandbox));
        assert!(fs::read_to_string(base.join("piton.log")).is_err(), "it is where it can be written");
        piton(&sandbox, ["status", "--ack"]).done();
        assert_eq!(unprotected(&sandbox).len(), 0, "{agent}: seen is seen, on a store that cannot be written too");
    }
}

fn is_prompt(event: &str) -> bool {
    ["UserPromptSubmit", "BeforeAgent", "userPromptSubmitted", "chat.message"].contains(&event)
}

#[test]
fn a_session_in_the_home_directory_or_in_tmp_does_not_make_doctor_fail() {
    let sandbox = Sandbox::new();
    let shared = sandbox.root().join("shared");
    fs::create_dir(&shared).expect("a directory");
    fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).expect("permissions");
    run(in_dir(&sandbox, &sandbox.project()).args(["install", "claude"])).done();
    let doctor = || run(in_dir(&sandbox, &sandbox.project()).args(["doctor", "--no-fire", "--json"]));
    let before = doctor();
    for (dir, turn) in [(sandbox.home(), "t1"), (shared, "t2")] {
        let sent = json!({"session_id": "s", "prompt_id": turn, "cwd": dir, "hook_event_name": "UserPromptSubmit", "prompt": "x"});
        hook(&sandbox, &["claude"], sent.to_string());
    }
    assert_eq!(turns(&sandbox), ["t2", "t1"], "they are shown");
    let after = doctor();
    assert_eq!((after.code(), &after.json()["problems"]), (before.code(), &before.json()["problems"]));
    assert_eq!(after.json()["agents"][0]["problems"], before.json()["agents"][0]["problems"]);
    assert_eq!(after.json()["agents"][0]["unprotected_turns"], 0);
}
