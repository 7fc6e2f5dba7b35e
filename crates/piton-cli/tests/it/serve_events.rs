//! The method `event` of `piton serve`: a program that reports the turns of its agent.

use std::fs;

use serde_json::json;
use testkit::Sandbox;

use crate::kit::piton;
use crate::serve_kit::Client;

/// Returns a project with a checkpoint and a change since.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    piton(&sandbox, ["take", "-m", "first"]).done();
    sandbox.write("a.txt", "one\ntwo\n");
    sandbox
}

#[test]
fn a_turn_is_taken_back_by_a_program() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    let mut client = Client::start(&sandbox);
    let dir = sandbox.project();
    let event = |event: &str, turn: &str| json!({"payload": {"event": event, "cwd": dir, "session_id": "s", "turn_id": turn, "prompt": format!("do {turn}")}});
    for (turn, text) in [("t1", "one\ntwo\n"), ("t2", "one\ntwo\nthree\n")] {
        let begun = client.result("event", &event("prompt", turn));
        assert_eq!((&begun["protected"], &begun["missed"]), (&json!(true), &json!(null)), "{begun}");
        sandbox.write("a.txt", text);
        sandbox.write(format!("{turn}.txt"), turn);
        client.result("event", &event("turn_end", turn));
    }
    let turns = client.result("turns", &json!({"directory": dir}));
    assert_eq!((&turns[0]["prompt"], &turns[0]["open_ended"]), (&json!("do t2"), &json!(false)), "{turns}");
    let reverted = client.result("revert", &json!({"directory": dir, "turn": "t2"}));
    assert_eq!(reverted["outcome"], "restored", "{reverted}");
    assert_eq!(fs::read_to_string(dir.join("a.txt")).expect("a file"), "one\ntwo\n");
    assert!(!dir.join("t2.txt").exists() && dir.join("t1.txt").exists());
    client.result("undo", &json!({"directory": dir}));
    assert_eq!(fs::read_to_string(dir.join("a.txt")).expect("a file"), "one\ntwo\nthree\n");
    assert!(client.end().success());
}

/// A turn that began in an empty directory has nothing to go back to: the error says so, and does not take its id for
/// that of a checkpoint.
#[test]
fn a_turn_without_a_checkpoint_is_refused_for_that_reason() {
    let sandbox = Sandbox::new();
    let dir = sandbox.project();
    let mut client = Client::start(&sandbox);
    let payload = json!({"event": "prompt", "cwd": dir, "session_id": "s", "turn_id": "t1", "prompt": "begin"});
    client.result("event", &json!({"payload": payload}));
    sandbox.write("a.txt", "one\n");
    client.result("take", &json!({"directory": dir}));
    let error = client.error("revert", &json!({"directory": dir, "turn": "t1"}));
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("the turn t1") && message.contains("was empty at its prompt"), "{error}");
    assert_eq!(error["data"]["kind"], "not_found", "{error}");
    let error = client.error("revert", &json!({"directory": dir, "turn": "t2"}));
    assert_eq!(error["data"]["kind"], "invalid", "{error}");
    assert!(client.end().success());
}

/// The end of a turn is a checkpoint without a number.
#[test]
fn mark_and_unmark_return_the_number_of_the_list() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    let mut client = Client::start(&sandbox);
    let event = |event: &str| json!({"payload": {"event": event, "cwd": sandbox.project(), "session_id": "s", "turn_id": "t", "prompt": "go"}});
    client.result("event", &event("prompt"));
    sandbox.write("a.txt", "two\n");
    client.result("event", &event("turn_end"));
    sandbox.write("a.txt", "three\n");
    client.result("take", &json!({}));
    let list = client.result("list", &json!({}));
    let rows = list.as_array().expect("a list");
    assert_eq!(rows.len(), 2, "{list}");
    for row in rows {
        let marked = client.result("mark", &json!({"checkpoint": row["number"], "name": "good"}));
        assert_eq!((&marked["id"], &marked["number"]), (&row["id"], &row["number"]), "{marked}");
        let unmarked = client.result("unmark", &json!({"name": "good"}));
        assert_eq!((&unmarked["id"], &unmarked["number"]), (&row["id"], &row["number"]), "{unmarked}");
    }
}

/// Two agents at work: what the other one has done since is not taken back without consent.
#[test]
fn an_open_turn_of_a_program_counts_as_open() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\n");
    let mut client = Client::start(&sandbox);
    for session in ["A", "B"] {
        let payload = json!({"event": "prompt", "cwd": sandbox.project(), "session_id": session, "turn_id": session, "prompt": "go"});
        assert_eq!(client.result("event", &json!({"payload": payload}))["protected"], true);
        sandbox.write(format!("{session}.txt"), session);
    }
    let list = client.result("list", &json!({}));
    let first = list.as_array().expect("a list").iter().find(|row| row["session"] == "A").expect("a row");
    let plan = client.result("restore", &json!({"checkpoint": first["id"], "dry_run": true}));
    assert_eq!(plan["other_sessions"][0]["session"], "B", "{plan}");
    let error = client.error("restore", &json!({"checkpoint": first["id"]}));
    assert_eq!(error["data"]["kind"], "needs_consent", "{error}");
    assert!(sandbox.project().join("B.txt").exists());
}

/// An event that protects no directory, or another one than the agent's, is not answered as protected.
#[test]
fn an_event_is_refused_unless_it_has_a_known_name_and_a_directory() {
    let sandbox = sandbox();
    let mut client = Client::start(&sandbox);
    let before = client.result("list", &json!({}));
    let file = sandbox.project().join("a.txt");
    let dir = sandbox.project();
    for (event, cwd) in [
        (json!("prompt"), json!("/no/such/dir")),
        (json!("prompt"), json!(file)),
        (json!("prompt"), json!(7)),
        (json!("prompt"), json!(null)),
        (json!("prompt"), json!(".")),
        (json!("promt"), json!(dir)),
        (json!(7), json!(dir)),
        (json!(null), json!(dir)),
    ] {
        let payload = json!({"event": event, "cwd": cwd, "session_id": "s", "turn_id": "t", "prompt": "go"});
        let error = client.error("event", &json!({"payload": payload}));
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32602), &json!("usage")), "{payload}: {error}");
    }
    for missing in ["event", "cwd"] {
        let mut payload = json!({"event": "prompt", "cwd": dir, "session_id": "s", "turn_id": "t", "prompt": "go"});
        payload.as_object_mut().expect("an object").remove(missing);
        assert_eq!(client.error("event", &json!({"payload": payload}))["code"], -32602, "{missing}");
    }
    let other =
        json!({"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/no/such/dir", "prompt": "go"});
    assert_eq!(client.error("event", &json!({"agent": "claude", "payload": other}))["code"], -32602);
    assert_eq!(client.result("list", &json!({})), before, "no checkpoint of another directory");
    assert_eq!(client.result("turns", &json!({})), json!([]), "and no turn");
    for event in ["session_start", "prompt", "before_tool", "turn_end", "session_end"] {
        let payload = json!({"event": event, "cwd": dir, "session_id": "s", "turn_id": "t", "tool_name": "write"});
        assert_eq!(client.result("event", &json!({"payload": payload}))["protected"], true, "{event}");
    }
}

#[test]
fn a_turn_whose_checkpoint_is_missing_is_not_protected_by_its_next_event() {
    let sandbox = sandbox();
    fs::create_dir_all(sandbox.home().join(".hermes")).expect("a directory");
    fs::write(sandbox.home().join(".hermes/config.yaml"), "checkpoints: {max_files: 1}\n").expect("a file");
    sandbox.write("b.txt", "1");
    sandbox.write("c.txt", "1");
    let mut client = Client::start(&sandbox);
    for event in ["prompt", "before_tool", "before_tool"] {
        let payload =
            json!({"event": event, "cwd": sandbox.project(), "session_id": "s", "turn_id": "t", "tool_name": "write"});
        let answer = client.result("event", &json!({"payload": payload}));
        assert!(answer["protected"] == false && answer["missed"].is_string(), "{event}: {answer}");
    }
}
