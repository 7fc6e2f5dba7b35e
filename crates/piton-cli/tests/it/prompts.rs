//! Every prompt is in the list under its own words, and in the ledger with the data that a rewind of the conversation
//! needs.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{CAPTURED, bash, captured, event, hook, hook_command, prompt, send};
use crate::kit::{piton, run};

/// Returns the rows of the list, newest first.
fn rows(sandbox: &Sandbox) -> Vec<Value> {
    piton(sandbox, ["rollback", "--json"]).done().json().as_array().expect("a list").clone()
}

/// Returns a key of each prompt of a row.
fn of_prompts(row: &Value, key: &str) -> Vec<String> {
    let prompts = row["prompts"].as_array().expect("prompts");
    prompts.iter().map(|prompt| prompt[key].as_str().unwrap_or("-").to_owned()).collect()
}

/// Returns the ledger's lines about the project, oldest first.
fn ledger(sandbox: &Sandbox) -> Vec<Value> {
    let dir = sandbox.base().join("local/ledger");
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).expect("ledgers").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let text: String = files.iter().map(|file| fs::read_to_string(file).expect("a ledger")).collect();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Submits three questions, then an order after which the agent deletes a file.
fn four_prompts(sandbox: &Sandbox) {
    sandbox.tree("x.txt = 1\n y.txt = 2");
    let prompts = [("p1", "what is this?"), ("p2", "and that?"), ("p3", "why is\nthat so?"), ("p4", "delete it all")];
    for (turn, text) in prompts {
        hook(sandbox, &["claude"], prompt(sandbox, "s", turn, text));
    }
    hook(sandbox, &["claude"], bash(sandbox, "s", "p4", "rm x.txt"));
    fs::remove_file(sandbox.path("x.txt")).expect("a file");
}

#[test]
fn prompts_between_which_nothing_changed_are_all_at_one_row_under_their_words() {
    let sandbox = Sandbox::new();
    four_prompts(&sandbox);
    let rows = rows(&sandbox);
    assert_eq!(rows.len(), 1);
    assert_eq!(of_prompts(&rows[0], "turn"), ["p4", "p3", "p2", "p1"]);
    assert_eq!(of_prompts(&rows[0], "prompt"), ["delete it all", "why is", "and that?", "what is this?"]);
    assert_eq!(of_prompts(&rows[0], "agent"), ["claude"; 4]);
    assert_eq!((&rows[0]["turn"], &rows[0]["reason"]), (&json!("p4"), &json!("prompt: delete it all")));
    let list = piton(&sandbox, ["rollback"]).done().stdout;
    assert!(list.contains("prompt: delete it all  (+3 earlier prompts)"), "{list}");
    let shown = piton(&sandbox, ["show", "1"]).done().stdout;
    for words in ["prompt: delete it all", "prompt: why is", "prompt: and that?", "prompt: what is this?"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(of_prompts(&piton(&sandbox, ["show", "1", "--json"]).done().json(), "turn").len(), 4);
}

#[test]
fn the_conversation_after_a_restore_is_that_of_the_newest_prompt_of_the_row() {
    let sandbox = Sandbox::new();
    four_prompts(&sandbox);
    let report = piton(&sandbox, ["restore", "1", "--json"]).done().json();
    assert_eq!(report["rewind"], json!({"session": "s", "turn": "p4"}));
    fs::remove_file(sandbox.path("x.txt")).expect("a file");
    let said = piton(&sandbox, ["restore", "2", "-y"]).done().stdout;
    assert!(said.contains("session s, turn p4"), "{said}");
    assert!(said.contains("(prompt: delete it all)"), "{said}");
}

#[test]
fn the_words_of_prompts_are_not_in_the_store() {
    let sandbox = Sandbox::new();
    four_prompts(&sandbox);
    let log = String::from_utf8(sandbox.store_git(&["log", "--all", "--format=%B"])).expect("text");
    assert!(log.starts_with("prompt\n") && !log.contains("delete"), "{log}");
}

#[test]
fn prompts_after_a_take_by_hand_and_of_two_agents_are_at_its_row() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    piton(&sandbox, ["take", "-m", "my own words"]).done();
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p1", "first"));
    let codex =
        event(&sandbox, "c", "", "UserPromptSubmit", &json!({"prompt": "second", "turn_id": "t1", "prompt_id": null}));
    hook(&sandbox, &["codex"], codex);
    let rows = rows(&sandbox);
    assert_eq!((rows.len(), &rows[0]["kind"], &rows[0]["reason"]), (1, &json!("manual"), &json!("my own words")));
    assert_eq!(of_prompts(&rows[0], "agent"), ["codex", "claude"]);
    assert_eq!(of_prompts(&rows[0], "prompt"), ["second", "first"]);
    let list = piton(&sandbox, ["rollback"]).done().stdout;
    assert!(list.contains("my own words; prompt: second  (+1 earlier prompt)"), "{list}");
    // The hint is for the session that runs the restore.
    sandbox.write("x.txt", "2");
    let asked = piton(&sandbox, ["restore", "1", "--json", "--dry-run", "--session=s"]).done().json();
    assert_eq!(asked["rewind"], json!({"session": "s", "turn": "p1"}));
    let asked = piton(&sandbox, ["restore", "1", "--json", "--dry-run"]).done().json();
    assert_eq!(asked["rewind"], json!({"session": "c", "turn": "t1"}));
}

#[test]
fn the_setting_decides_how_much_of_a_prompt_is_stored_and_keys_are_masked() {
    let text = "use sk-ant-REDACTED\nsecond line";
    let cases = [("short", json!("use ***")), ("full", json!(text)), ("none", Value::Null)];
    for (amount, stored) in cases {
        let sandbox = Sandbox::new();
        sandbox.tree("x.txt = 1");
        let mut command = hook_command(&sandbox, &["claude"]);
        send(command.env("PITON_PROMPT_TEXT", amount), prompt(&sandbox, "s", "p1", text)).done();
        assert_eq!(ledger(&sandbox)[0]["prompt"], stored, "{amount}");
        assert_eq!(rows(&sandbox)[0]["prompts"][0]["prompt"], stored, "{amount}");
        let list = piton(&sandbox, ["rollback"]).done().stdout;
        assert!(!list.contains("second line"), "{amount}: {list}");
    }
}

#[test]
fn a_purge_removes_the_words_of_one_prompt_and_a_purge_of_a_path_keeps_the_others() {
    let sandbox = Sandbox::new();
    four_prompts(&sandbox);
    let purge = |args: &[&str]| run(crate::kit::command(&sandbox).arg("purge").args(args));
    purge(&["--prompt", "p9", "-y"]).failed(4);
    let said = purge(&["--prompt", "p4", "--dry-run"]).done().stdout;
    assert!(said.contains("delete it all"), "{said}");
    purge(&["--prompt", "p4", "-y"]).done();
    assert_eq!(of_prompts(&rows(&sandbox)[0], "prompt"), ["-", "why is", "and that?", "what is this?"]);
    testkit::walk(&sandbox.base(), &mut |path| {
        let bytes = fs::read(path).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("delete it all"), "{}", path.display());
    });
    purge(&["y.txt", "-y"]).done();
    assert_eq!(of_prompts(&rows(&sandbox)[0], "turn"), ["p4", "p3", "p2", "p1"]);
    sandbox.assert_store_is_whole();
}

#[test]
fn each_agents_prompt_leaves_what_a_rewind_needs() {
    for (agent, named) in CAPTURED.into_iter().filter(|(agent, _)| *agent != "crush") {
        let sandbox = Sandbox::new();
        sandbox.tree("x.txt = 0");
        for (at, (name, sent)) in captured(&sandbox, agent).into_iter().enumerate() {
            // The transcript grows as the agent writes to it.
            if let Some(path) = serde_json::from_str::<Value>(&sent).expect("JSON")["transcript_path"].as_str() {
                fs::create_dir_all(PathBuf::from(path).parent().expect("a directory")).expect("a directory");
                fs::write(path, "x".repeat(10 * (at + 1))).expect("a transcript");
            }
            hook(&sandbox, &[named, &name], &sent);
        }
        let lines = ledger(&sandbox);
        let prompts: Vec<_> = lines.iter().filter(|line| line["prompted"] == true).collect();
        assert_eq!(prompts.len(), if agent == "cursor" { 1 } else { 2 }, "{agent}: {lines:?}");
        let marks: &[(&str, [Value; 2])] = match agent {
            "claude" => &[
                ("message", [json!("4e1c5d00-d327-4daf-b9d2-e18a4119cffc"), Value::Null]),
                ("transcript_bytes", [json!(20), json!(120)]),
            ],
            "codex" => &[
                ("message", [json!("01a1de6a-9555-75c3-99b0-b3ab53ae0b9b"), Value::Null]),
                ("transcript_bytes", [json!(20), json!(110)]),
            ],
            "gemini" => &[("transcript_bytes", [json!(20), json!(130)])],
            "qwen" => &[
                ("message", [json!("d1f516b5-bf2e-4405-9747-2807cdf7cefc########0"), Value::Null]),
                ("transcript_bytes", [json!(30), json!(150)]),
            ],
            "copilot" => &[("stamp", [json!("1794733116707"), Value::Null])],
            "copilot-pascal" => &[("stamp", [json!("2026-11-15T08:58:33.456Z"), Value::Null])],
            "hermes" => &[("ordinal", [json!(1), json!(2)])],
            "opencode" => &[("message", [json!("msg_1de6adc67001ZGXnQ5Bxq24n2v"), Value::Null])],
            _ => &[("message", [json!("gen-1"), Value::Null])],
        };
        for (key, expected) in marks {
            for (at, (line, expected)) in prompts.iter().zip(expected).enumerate() {
                assert!(!line[key].is_null(), "{agent} {key} of prompt {at}: {line}");
                assert!(expected.is_null() || line[key] == *expected, "{agent} {key} of prompt {at}: {line}");
            }
        }
        for line in &prompts {
            for key in ["session", "turn", "time", "before", "tree", "prompt"] {
                assert!(line[key].is_string(), "{agent} {key}: {line}");
            }
            assert_eq!(line["agent"], named);
        }
    }
}

#[test]
fn a_prompt_after_which_nothing_changed_costs_one_line() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.txt = 1");
    for turn in ["p1", "p2", "p2", "p3"] {
        hook(&sandbox, &["claude"], prompt(&sandbox, "s", turn, "words"));
        hook(&sandbox, &["claude"], bash(&sandbox, "s", turn, "rm x.txt"));
    }
    let turns: Vec<_> = ledger(&sandbox).iter().map(|line| line["turn"].clone()).collect();
    assert_eq!(turns, ["p1", "p2", "p3"]);
}

#[test]
fn a_list_without_a_ledger_has_the_prompts_of_the_commits() {
    let sandbox = Sandbox::new();
    four_prompts(&sandbox);
    fs::remove_dir_all(sandbox.base().join("local")).expect("a ledger");
    let rows = rows(&sandbox);
    assert_eq!((of_prompts(&rows[0], "turn"), &rows[0]["reason"]), (vec!["p1".to_owned()], &json!("prompt")));
}

/// Gemini makes a prompt of the words with which another hook asks it to go on, and says so only at the end of that turn.
#[test]
fn a_prompt_that_gemini_made_of_a_hooks_words_is_not_listed_as_one() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let tell = |name: &str, more: Value| {
        let mut event =
            json!({"session_id": "s", "transcript_path": "/t", "cwd": sandbox.project(), "hook_event_name": name});
        event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        hook(&sandbox, &["gemini"], event.to_string());
    };
    tell("BeforeAgent", json!({"prompt": "typed"}));
    sandbox.write("a.txt", "2");
    tell("AfterAgent", json!({"prompt": "typed", "prompt_response": "x", "stop_hook_active": false}));
    tell("BeforeAgent", json!({"prompt": "run the checks"}));
    tell("AfterAgent", json!({"prompt": "typed", "prompt_response": "x", "stop_hook_active": true}));
    let list = piton(&sandbox, ["rollback", "--json"]).done().json();
    let prompts: Vec<_> = list.as_array().expect("a list").iter().map(|row| row["prompts"].clone()).collect();
    assert_eq!(prompts[0], json!([]), "{list}");
    assert_eq!((prompts.len(), &prompts[1][0]["prompt"]), (2, &json!("typed")), "{list}");
    assert!(!piton(&sandbox, ["rollback"]).done().stdout.contains("run the checks"));
}

#[test]
fn the_version_of_the_agent_is_read_from_its_transcript_as_soon_as_there_is_one() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let transcript = sandbox.root().join("s.jsonl");
    let tell = |name: &str, turn: &str| {
        let event = json!({
            "session_id": "s", "prompt_id": turn, "transcript_path": transcript, "cwd": sandbox.project(),
            "hook_event_name": name, "prompt": turn,
        });
        hook(&sandbox, &["claude"], event.to_string());
    };
    let versions = || {
        let list = piton(&sandbox, ["rollback", "--json"]).done().json();
        let prompts = list[0]["prompts"].as_array().expect("a list").clone();
        prompts.iter().map(|prompt| prompt["agent_version"].clone()).collect::<Vec<_>>()
    };
    tell("UserPromptSubmit", "t1");
    assert_eq!(versions(), [Value::Null]);
    let record = json!({"type": "user", "message": {"role": "user", "content": "t1"}, "version": "2.1.325"});
    fs::write(&transcript, format!("{record}\n")).expect("a file");
    tell("Stop", "t1");
    assert_eq!(versions(), ["2.1.325"]);
    // It is known from then on.
    fs::remove_file(&transcript).expect("a file");
    tell("UserPromptSubmit", "t2");
    assert_eq!(versions(), ["2.1.325", "2.1.325"]);
}
