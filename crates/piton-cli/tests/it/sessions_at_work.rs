//! A restore asks before it undoes the work of sessions that are active, and of no others.

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{event, hook, hook_command, prompt, send};
use crate::kit::{Ran, command, piton, run};

/// Plays one turn of a session: a prompt, and then a file.
fn turn(sandbox: &Sandbox, agent: &str, session: &str, turn: &str, file: &str) {
    let ids = if agent == "codex" { json!({"turn_id": turn}) } else { json!({"prompt_id": turn}) };
    let mut more = json!({"prompt": format!("write {file}"), "prompt_id": null});
    more.as_object_mut().expect("an object").extend(ids.as_object().expect("an object").clone());
    hook(sandbox, &[agent], event(sandbox, session, "", "UserPromptSubmit", &more));
    sandbox.write(file, turn);
}

fn tell(sandbox: &Sandbox, agent: &str, session: &str, name: &str) {
    hook(sandbox, &[agent], event(sandbox, session, "", name, &json!({"prompt_id": null})));
}

/// Moves the start of the known sessions back by a minute: times are in seconds.
fn began_earlier(sandbox: &Sandbox) {
    testkit::walk(&sandbox.store().join("turns"), &mut |path| {
        let text = std::fs::read_to_string(path).expect("a note");
        let mut note: Value = serde_json::from_str(&text).expect("a note");
        note["started"] = json!(note["started"].as_i64().expect("a time") - 60);
        std::fs::write(path, note.to_string()).expect("a note");
    });
}

/// Types `/rollback N` in a session of Claude and returns the answer.
fn typed(sandbox: &Sandbox, session: &str, words: &str) -> Value {
    let said = hook(sandbox, &["claude"], prompt(sandbox, session, "typed", &format!("/rollback {words}")));
    serde_json::from_str(&said).expect("an answer")
}

fn others(sandbox: &Sandbox, args: &[&str]) -> Vec<Value> {
    let plan = piton(sandbox, ["restore", "--dry-run", "--json"].iter().chain(args)).done().json();
    plan["other_sessions"].as_array().expect("others").clone()
}

#[test]
fn the_session_before_a_clear_is_not_another_one() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "claude", "one", "p1", "a.txt");
    tell(&sandbox, "claude", "one", "SessionEnd");
    tell(&sandbox, "claude", "two", "SessionStart");
    turn(&sandbox, "claude", "two", "p2", "b.txt");
    let said = typed(&sandbox, "two", "2");
    assert!(said["reason"].as_str().expect("words").starts_with("Restored to "), "{said}");
    assert!(!sandbox.path("a.txt").exists() && !sandbox.path("b.txt").exists());
}

#[test]
fn a_session_that_is_heard_of_after_its_end_is_at_work_again() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "codex", "c", "t1", "a.txt");
    turn(&sandbox, "claude", "one", "p1", "b.txt");
    tell(&sandbox, "claude", "one", "SessionEnd");
    assert_eq!(others(&sandbox, &["2", "--session=c"]).len(), 0);
    turn(&sandbox, "claude", "one", "p2", "c.txt");
    assert_eq!(others(&sandbox, &["2", "--session=c"]).len(), 1);
}

#[test]
fn a_second_run_without_an_end_event_takes_over_from_the_first() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "codex", "one", "t1", "a.txt");
    turn(&sandbox, "codex", "two", "t2", "b.txt");
    assert_eq!(others(&sandbox, &["2", "--session=two"]), Vec::<Value>::new());
}

#[test]
fn two_terminals_with_one_agent_are_both_at_work() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "claude", "one", "p1", "a.txt");
    turn(&sandbox, "claude", "two", "p2", "b.txt");
    let found = others(&sandbox, &["2", "--session=two"]);
    assert_eq!((found.len(), &found[0]["session"], &found[0]["agent"]), (1, &json!("one"), &json!("claude")));
    assert_eq!(found[0]["paths"], json!(["a.txt"]));
}

#[test]
fn a_session_whose_turn_is_done_is_not_at_work_once_a_newer_one_has_begun() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "claude", "one", "p1", "a.txt");
    tell(&sandbox, "claude", "one", "Stop");
    turn(&sandbox, "claude", "two", "p2", "b.txt");
    assert_eq!(others(&sandbox, &["2", "--session=two"]), Vec::<Value>::new());
}

#[test]
fn the_only_session_that_followed_the_restored_one_is_taken_back_from_a_shell() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "codex", "one", "t1", "a.txt");
    began_earlier(&sandbox);
    turn(&sandbox, "codex", "two", "t2", "b.txt");
    assert_eq!(others(&sandbox, &["2"]), Vec::<Value>::new(), "a second run, without an end event of the first");
    // A restore in a later second is no sign of the first session. Times are in whole seconds, so nothing but the clock
    // tells them apart.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    piton(&sandbox, ["restore", "2", "-y"]).done();
    assert!(!sandbox.path("a.txt").exists() && !sandbox.path("b.txt").exists());
    turn(&sandbox, "codex", "two", "t3", "c.txt");
    let undo = piton(&sandbox, ["undo", "--dry-run", "--json"]).done().json();
    assert_eq!(undo["other_sessions"], json!([]), "an undo means the same sessions");
}

#[test]
fn the_session_after_a_clear_is_taken_back_from_a_shell_while_its_turn_is_open() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    piton(&sandbox, ["take", "-m", "before it all"]).done();
    turn(&sandbox, "claude", "one", "p1", "a.txt");
    tell(&sandbox, "claude", "one", "SessionEnd");
    tell(&sandbox, "claude", "two", "SessionStart");
    turn(&sandbox, "claude", "two", "p2", "b.txt");
    tell(&sandbox, "claude", "two", "SessionEnd");
    turn(&sandbox, "claude", "three", "p3", "c.txt");
    for row in ["1", "2", "3"] {
        assert_eq!(others(&sandbox, &[row]), Vec::<Value>::new(), "row {row}");
    }
}

#[test]
fn a_session_that_followed_is_another_one_while_the_first_or_a_third_is_at_work() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "claude", "one", "p1", "a.txt");
    turn(&sandbox, "claude", "two", "p2", "b.txt");
    assert_eq!(others(&sandbox, &["2"]).len(), 1, "two terminals");
    tell(&sandbox, "claude", "one", "SessionEnd");
    assert_eq!(others(&sandbox, &["2"]).len(), 0, "one of them is closed");
    turn(&sandbox, "claude", "three", "p3", "c.txt");
    assert_eq!(others(&sandbox, &["3"]).len(), 2, "two sessions at work, and neither is known to have followed");
}

#[test]
fn another_agent_does_not_follow_a_session_that_is_over() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "claude", "one", "p1", "a.txt");
    tell(&sandbox, "claude", "one", "SessionEnd");
    turn(&sandbox, "codex", "two", "t1", "b.txt");
    turn(&sandbox, "claude", "three", "p3", "c.txt");
    let found = others(&sandbox, &["3"]);
    assert_eq!((found.len(), &found[0]["agent"]), (1, &json!("codex")), "{found:?}");
}

#[test]
fn the_refusal_names_agent_and_time_and_the_plan_every_path() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "claude", "my-session", "p1", "a.txt");
    for number in 1..=8 {
        sandbox.write(format!("more/{number}.txt"), "x");
    }
    turn(&sandbox, "codex", "their-session", "t1", "late.txt");
    let ran: Ran = run(command(&sandbox).args(["restore", "2", "-y", "--session=my-session"]));
    let refused = ran.failed(1);
    assert!(refused.stderr.contains("later work of codex, last active 20"), "{refused:?}");
    assert!(!refused.stderr.contains("their-session"), "{refused:?}");
    let plan = piton(&sandbox, ["restore", "1", "--dry-run", "--session=my-session"]).done().stdout;
    assert!(plan.contains("ALSO TAKES BACK later work of codex, last active 20"), "{plan}");
    assert!(plan.contains(": 1 file\n    late.txt"), "what changed since the newest checkpoint is named: {plan}");
    let plan = piton(&sandbox, ["restore", "2", "--dry-run", "--session=their-session"]).done().stdout;
    for path in (1..=8).map(|number| format!("    more/{number}.txt")).chain(["    a.txt".to_owned()]) {
        assert!(plan.contains(&path), "{path}: {plan}");
    }
}

#[test]
fn a_prompt_that_found_nothing_to_take_counts_as_work() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    hook(&sandbox, &["claude"], prompt(&sandbox, "one", "p1", "only a question"));
    turn(&sandbox, "codex", "two", "t1", "a.txt");
    let found = others(&sandbox, &["1", "--session=one"]);
    assert_eq!((found.len(), &found[0]["agent"], &found[0]["paths"]), (1, &json!("codex"), &json!(["a.txt"])));
}

#[test]
fn a_session_without_an_event_for_long_is_not_at_work() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    turn(&sandbox, "claude", "one", "p1", "a.txt");
    turn(&sandbox, "codex", "two", "t1", "b.txt");
    assert_eq!(others(&sandbox, &["2", "--session=one"]).len(), 1);
    // The notes and the checkpoints get the timestamps of an hour ago.
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    testkit::walk(&sandbox.store().join("turns"), &mut |path| {
        let file = std::fs::File::options().write(true).open(path);
        file.and_then(|file| file.set_modified(hour_ago)).expect("a note");
    });
    let ledger = sandbox.base().join("local/ledger");
    testkit::walk(&ledger, &mut |path| {
        let text = std::fs::read_to_string(path).expect("a ledger");
        let old = text.lines().map(|line| {
            let mut line: Value = serde_json::from_str(line).expect("a line");
            line["time"] = json!("2026-01-01T00:00:00+00:00");
            format!("{line}\n")
        });
        std::fs::write(path, old.collect::<String>()).expect("a ledger");
    });
    assert_eq!(others(&sandbox, &["2", "--session=one"]).len(), 0);
    let plan = |minutes: &str| {
        let mut command = command(&sandbox);
        command
            .args(["restore", "2", "--dry-run", "--json", "--session=one"])
            .env("PITON_SESSION_IDLE_MINUTES", minutes);
        run(&mut command).done().json()["other_sessions"].as_array().map(Vec::len)
    };
    assert_eq!((plan("0"), plan("30")), (Some(1), Some(0)));
}

#[test]
fn switched_off_the_end_of_a_session_opens_nothing() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    for name in ["Stop", "SessionEnd"] {
        let mut off = hook_command(&sandbox, &["claude"]);
        send(off.env("PITON_ENABLED", "false"), event(&sandbox, "s", "t", name, &json!({}))).done();
    }
    assert!(!sandbox.base().exists());
}
