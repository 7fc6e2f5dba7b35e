//! The ends of turns as agents report them: checkpoints of what a turn left behind.

use std::fs;

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{bash, event, hook, prompt};
use crate::kit::piton;
use crate::older::older;

fn end(sandbox: &Sandbox, turn: &str, more: &Value) {
    assert_eq!(hook(sandbox, &["claude"], event(sandbox, "s", turn, "Stop", more)), "");
}

fn list(sandbox: &Sandbox) -> Vec<Value> {
    piton(sandbox, ["rollback", "--json"]).done().json().as_array().expect("a list").clone()
}

fn at(sandbox: &Sandbox, id: &Value, path: &str) -> String {
    let name = format!("{}:{path}", id.as_str().expect("an id"));
    String::from_utf8(sandbox.store_git(&["show", &name])).expect("text")
}

#[test]
fn the_end_that_an_agent_reports_does_not_contain_what_the_user_edits_after_it() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("a.txt", "of the agent");
    end(&sandbox, "t1", &json!({"background_tasks": []}));
    sandbox.write("a.txt", "of the user");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", "second"));
    let rows = list(&sandbox);
    let numbers: Vec<_> = rows.iter().map(|row| (row["number"].clone(), row["reason"].clone())).collect();
    assert_eq!(numbers, [(json!(1), json!("prompt: second")), (json!(2), json!("prompt: first"))]);
    let ends = rows[1]["ends"].as_array().expect("a list");
    assert_eq!((ends.len(), &ends[0]["kind"], &ends[0]["turn"]), (1, &json!("end"), &json!("t1")));
    assert_eq!(at(&sandbox, &ends[0]["id"], "a.txt"), "of the agent");
    assert_eq!(at(&sandbox, &rows[0]["id"], "a.txt"), "of the user");
    // It is shown on request, and named by its id.
    let id = ends[0]["short_id"].as_str().expect("an id");
    let shown = piton(&sandbox, ["rollback", "--steps"]).done().stdout;
    assert!(shown.lines().any(|line| line.starts_with(&format!("     {id}  ")) && line.ends_with("  end of turn")));
    assert!(!piton(&sandbox, ["rollback"]).done().stdout.contains(id));
    piton(&sandbox, ["restore", id, "--yes"]).done();
    assert_eq!(fs::read_to_string(sandbox.project().join("a.txt")).expect("a file"), "of the agent");
}

#[test]
fn a_subagent_does_not_end_the_turn_and_background_work_does_not_keep_it_open() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("a.txt", "1");
    end(&sandbox, "t1", &json!({"agent_id": "sub"}));
    hook(&sandbox, &["claude"], event(&sandbox, "s", "t1", "SubagentStop", &json!({"agent_id": "sub"})));
    assert_eq!(list(&sandbox)[0]["ends"], json!([]));
    let ended = || {
        let turns = piton(&sandbox, ["turns", "--json"]).done().json();
        (turns[0]["ended"].is_string(), at(&sandbox, &turns[0]["after"], "a.txt"))
    };
    // A server that never ends, and a subagent that outlives the turn.
    let server = json!({"id": "x", "type": "shell", "status": "running"});
    let subagent = json!({"id": "y", "type": "subagent", "status": "running"});
    end(&sandbox, "t1", &json!({"background_tasks": [server, subagent]}));
    assert_eq!(ended(), (true, "1".to_owned()));
    // Once the subagent is done, the agent goes on by itself. The last end counts.
    sandbox.write("a.txt", "2");
    let notification = "<task-notification>\n<task-id>y</task-id>\n</task-notification>";
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", notification));
    end(&sandbox, "t2", &json!({"background_tasks": [server]}));
    assert_eq!(ended(), (true, "2".to_owned()));
    assert_eq!(list(&sandbox).len(), 1);
}

#[test]
fn an_end_is_never_refused_whatever_its_checkpoint_comes_to() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0");
    hook(&sandbox, &["claude", "--fail-closed"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("a.txt", "1");
    // The store is in no state to take anything.
    fs::remove_dir_all(sandbox.store().join("objects")).expect("objects");
    fs::write(sandbox.store().join("objects"), "").expect("a file");
    let sent = event(&sandbox, "s", "t1", "Stop", &json!({}));
    assert_eq!(hook(&sandbox, &["claude", "--fail-closed"], sent), "");
}

#[test]
fn turns_are_listed_with_what_they_changed_and_without_what_the_user_did() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0");
    let turns = || piton(&sandbox, ["turns", "--json"]).done().json().as_array().expect("a list").clone();
    assert_eq!(turns(), Vec::<Value>::new());
    let empty = piton(&sandbox, ["turns"]).done();
    assert!(empty.stdout.starts_with("No turns yet in "), "{empty:?}");
    assert!(empty.stderr.contains("hint: `piton install` lets an agent report its prompts"), "{empty:?}");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    assert_eq!((&turns()[0]["ended"], &turns()[0]["open_ended"]), (&Value::Null, &json!(false)));
    sandbox.write("b.txt", "1\n2\n");
    end(&sandbox, "t1", &json!({}));
    sandbox.write("c.txt", "of the user\n");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", "second"));
    sandbox.write("d.txt", "an interrupted turn\n");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t3", "third"));
    let list = turns();
    let keys = |turn: &Value| {
        let of = |key: &str| turn[key].clone();
        (of("row"), of("turn"), of("prompt"), of("open_ended"), of("paths"), of("insertions"))
    };
    assert_eq!(keys(&list[0]), (json!(1), json!("t3"), json!("third"), json!(false), json!([]), Value::Null));
    assert_eq!(keys(&list[1]), (json!(2), json!("t2"), json!("second"), json!(true), json!(["d.txt"]), json!(1)));
    assert_eq!(keys(&list[2]), (json!(3), json!("t1"), json!("first"), json!(false), json!(["b.txt"]), json!(2)));
    assert!(list[2]["ended"].is_string() && list[1]["ended"].is_string() && list[0]["ended"].is_null());
    assert_eq!(list[1]["after"], list[0]["before"]);
    let shown = piton(&sandbox, ["turns", "--limit", "2"]).done().stdout;
    assert!(
        shown.contains("prompt: third  claude, open") && shown.contains("(1 file, +1/-0)  claude, open-ended"),
        "{shown}"
    );
    assert!(!shown.contains("prompt: first"), "{shown}");
}

#[test]
fn work_that_was_made_and_destroyed_in_one_turn_is_in_a_step() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("made.txt", "an hour of work");
    for command in ["cargo build", "ls"] {
        hook(&sandbox, &["claude"], bash(&sandbox, "s", "t1", command));
    }
    assert_eq!(list(&sandbox)[0]["steps"], json!([]), "nothing is destroyed");
    hook(&sandbox, &["claude"], bash(&sandbox, "s", "t1", "rm made.txt"));
    fs::remove_file(sandbox.project().join("made.txt")).expect("a file");
    end(&sandbox, "t1", &json!({}));
    let rows = list(&sandbox);
    assert_eq!((rows.len(), rows[0]["number"].clone()), (1, json!(1)), "a step is never a row");
    let step = &rows[0]["steps"][0];
    assert_eq!((&step["kind"], &step["reason"]), (&json!("step"), &json!("step before terminal: rm made.txt")));
    let turns = piton(&sandbox, ["turns", "--json"]).done().json();
    assert_eq!((&turns[0]["steps"][0]["id"], &turns[0]["steps"][0]["reason"]), (&step["id"], &step["reason"]));
    let id = step["short_id"].as_str().expect("an id");
    let shown = piton(&sandbox, ["rollback", "--steps"]).done().stdout;
    assert!(
        shown.lines().any(|line| line.contains(id) && line.ends_with("  step before terminal: rm made.txt")),
        "{shown}"
    );
    assert!(!piton(&sandbox, ["rollback"]).done().stdout.contains(id));
    piton(&sandbox, ["restore", id, "made.txt", "--yes"]).done();
    assert_eq!(fs::read_to_string(sandbox.project().join("made.txt")).expect("a file"), "an hour of work");
}

#[test]
fn the_setting_decides_before_which_commands_a_step_is_taken() {
    for (policy, wanted) in [("none", 0), ("destructive", 1), ("all", 2)] {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt = 0");
        let config = sandbox.home().join(".hermes/config.yaml");
        fs::create_dir_all(config.parent().expect("a directory")).expect("a directory");
        fs::write(config, format!("checkpoints:\n  enabled: true\n  steps: {policy}\n")).expect("a file");
        hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
        for (at, command) in ["cargo build", "git clean -fd"].iter().enumerate() {
            sandbox.write("a.txt", format!("work {at}"));
            hook(&sandbox, &["claude"], bash(&sandbox, "s", "t1", command));
        }
        assert_eq!(list(&sandbox)[0]["steps"].as_array().map(Vec::len), Some(wanted), "{policy}");
    }
}

/// Version 0.1 knows neither ends nor steps: it lists them as checkpoints like all others.
#[test]
fn version_0_1_lists_takes_restores_and_prunes_a_store_with_ends_and_steps() {
    let sandbox = Sandbox::new();
    let Some(older) = older(&sandbox) else { return };
    let older = older.with_max_snapshots(7);
    sandbox.tree("a.txt = 0");
    for turn in ["t1", "t2"] {
        hook(&sandbox, &["claude"], prompt(&sandbox, "s", turn, turn));
        sandbox.write("a.txt", format!("made in {turn}"));
        hook(&sandbox, &["claude"], bash(&sandbox, "s", turn, "rm a.txt"));
        sandbox.write("a.txt", format!("left by {turn}"));
        end(&sandbox, turn, &json!({}));
    }
    let listed = older.run(&["rollback", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(6), "{listed}");
    sandbox.write("a.txt", "by hand");
    older.run(&["take"]);
    older.run(&["restore", "3", "--yes"]);
    assert_eq!(fs::read_to_string(sandbox.project().join("a.txt")).expect("a file"), "made in t2");
    older.run(&["prune"]);
    sandbox.assert_store_is_whole();
    // The rows of this version, and its turns, are as before.
    let rows = list(&sandbox);
    let kinds: Vec<_> = rows.iter().map(|row| row["kind"].clone()).collect();
    assert_eq!(kinds, ["safety", "manual", "auto", "auto"], "{rows:?}");
    let turns = piton(&sandbox, ["turns", "--json"]).done().json();
    assert_eq!(at(&sandbox, &turns[0]["after"], "a.txt"), "left by t2");
    piton(&sandbox, ["verify"]).done();
}

#[test]
fn a_list_with_open_turns_says_that_the_agent_does_not_report_ends() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0");
    piton(&sandbox, ["install", "crush"]).done();
    let sent = json!({"event": "PreToolUse", "session_id": "s", "cwd": sandbox.project(), "tool_name": "bash",
        "tool_input": {"command": "rm a.txt"}});
    hook(&sandbox, &["crush"], sent.to_string());
    let listed = piton(&sandbox, ["turns"]).done();
    assert!(listed.stdout.contains("crush, open"), "{listed:?}");
    assert!(listed.stderr.contains("hint: crush does not report the ends of turns: crush has no event"), "{listed:?}");
    assert_eq!(piton(&sandbox, ["turns", "--json"]).done().json()[0]["ended"], Value::Null);
}

#[test]
fn a_restore_to_an_end_names_no_prompt_to_rewind_to_and_the_agent_is_told_of_the_turn() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 0");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("a.txt", "1");
    end(&sandbox, "t1", &json!({}));
    sandbox.write("a.txt", "2");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", "second"));
    sandbox.write("a.txt", "3");
    let id = list(&sandbox)[1]["ends"][0]["id"].as_str().expect("an id").to_owned();
    let restored = piton(&sandbox, ["restore", &id, "--yes", "--json"]).done().json();
    assert_eq!((&restored["outcome"], &restored["rewind"]), (&json!("restored"), &Value::Null));
    let told = hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t3", "third"));
    assert!(told.contains("were restored to the end of a turn, the checkpoint"), "{told}");
    // That of a row does.
    let row = list(&sandbox).last().expect("a row")["id"].as_str().expect("an id").to_owned();
    let restored = piton(&sandbox, ["restore", &row, "--yes", "--json"]).done().json();
    assert_eq!(restored["rewind"], json!({"session": "s", "turn": "t1"}));
}
