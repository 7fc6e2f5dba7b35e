//! A rollback typed to an agent, and the agent's notice of it.

use std::fs;

use serde_json::{Value, json};
use testkit::Sandbox;

use crate::hook_kit::{checkpoints, event, hook, hook_command, journal, prompt, send};
use crate::kit::piton;

/// Creates a project with two checkpoints and a change since.
fn project(agent: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1\n b.txt = 1");
    hook(&sandbox, &[agent], said(&sandbox, agent, "t1", "begin"));
    sandbox.write("a.txt", "2");
    hook(&sandbox, &[agent], said(&sandbox, agent, "t2", "go on"));
    sandbox.tree("a.txt = 3\n b.txt = 3\n new.txt");
    sandbox
}

/// Returns the event for a prompt that the user submits to that agent.
fn said(sandbox: &Sandbox, agent: &str, turn: &str, text: &str) -> String {
    let cwd = sandbox.project();
    match agent {
        "gemini" => json!({"session_id": "s", "cwd": cwd, "hook_event_name": "BeforeAgent", "timestamp": turn, "prompt": text}),
        "copilot" => json!({"sessionId": "s", "cwd": cwd, "timestamp": turn, "prompt": text}),
        "codex" => {
            json!({"session_id": "s", "turn_id": turn, "cwd": cwd, "hook_event_name": "UserPromptSubmit", "prompt": text})
        }
        "hermes" => json!({"session_id": "s", "cwd": cwd, "hook_event_name": "pre_llm_call",
            "extra": {"turn_id": turn, "user_message": text}}),
        _ => return prompt(sandbox, "s", turn, text),
    }
    .to_string()
}

/// Returns the text that the user is shown in place of the model's answer.
#[track_caller]
fn shown(agent: &str, answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let (flag, value, text) = if agent == "copilot" {
        ("handled", json!(true), "responseContent")
    } else {
        ("decision", json!("block"), "reason")
    };
    assert_eq!(answer[flag], value);
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(2));
    let text = answer[text].as_str().expect("text");
    if agent == "copilot" {
        // Copilot renders Markdown, which leaves text between fences unchanged.
        let inner = text.strip_prefix("```\n").and_then(|text| text.strip_suffix("\n```"));
        return inner.unwrap_or_else(|| panic!("no fences: {text}")).to_owned();
    }
    text.to_owned()
}

#[test]
fn the_list_a_diff_a_restore_and_one_file_are_answered_without_the_model() {
    for agent in ["claude", "codex", "gemini", "qwen", "copilot"] {
        let sandbox = project(agent);
        let type_in =
            |turn: &str, text: &str| shown(agent, &hook(&sandbox, &[agent], said(&sandbox, agent, turn, text)));
        let as_command = |args: &[&str]| piton(&sandbox, args).stdout.trim_end().to_owned();
        // Codex passes on nothing that begins with a slash.
        let name = if agent == "codex" { "piton rollback" } else { "/rollback" };
        let next = format!(
            "  {name} N        restore to checkpoint N\n  {name} diff N   preview changes since checkpoint N\n  \
             {name} N FILE   restore a single file from checkpoint N"
        );
        let list = format!("{}\n\n{next}", as_command(&["rollback"]));
        assert_eq!(type_in("t3", "piton rollback"), list, "{agent}");
        assert_eq!(type_in("t4", "piton rollback diff 2"), as_command(&["rollback", "diff", "2"]), "{agent}");
        assert_eq!(checkpoints(&sandbox, &["turn"]).len(), 2, "numbers stay as they were shown");
        let planned = type_in("t4", "/rollback 2 --dry-run b.txt");
        assert!(planned.starts_with("Plan for ") && planned.contains("  write   b.txt"), "{agent}: {planned}");
        assert_eq!(fs::read_to_string(sandbox.path("b.txt")).expect("a file"), "3", "{agent}");
        assert!(type_in("t5", "/rollback 2 b.txt").starts_with("Restored to "), "{agent}");
        assert_eq!(fs::read_to_string(sandbox.path("b.txt")).expect("a file"), "1");
        assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "3");
        let restored = type_in("t6", " /rollback 2\n");
        assert!(restored.starts_with("Restored to "), "{agent}");
        let back = restored.split('`').find(|words| words.starts_with(name)).expect("a way back");
        assert!(
            restored.contains(&format!("is saved as {}: `{back}`", &back[name.len() + 1..])),
            "{agent}: {restored}"
        );
        assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "2");
        assert!(!sandbox.path("new.txt").exists(), "{agent}");
        let missing = type_in("t7", "/rollback 99");
        assert!(missing.contains("error: cannot find the checkpoint 99"), "{agent}");
        assert!(missing.contains(&format!("hint: `{name}` lists the checkpoints")), "{agent}: {missing}");
        assert!(type_in("t8", "/rollback --base=/x").contains("error: cannot take"), "{agent}");
    }
}

/// Returns the text that an agent sends in place of `/rollback ARGS`, with a command file of version 0.1.
fn expanded(agent: &str, arguments: &str) -> String {
    let (gemini, qwen, skill) = (
        include_str!("../../src/agents/texts/0.1/rollback.toml"),
        include_str!("data/commands-0.1/qwen.md"),
        include_str!("data/commands-0.1/copilot.md"),
    );
    let body = |text: &'static str| text.split_once("\n---\n").expect("a head").1.trim();
    let typed = if arguments.is_empty() { String::new() } else { format!("\n\n/rollback {arguments}") };
    match agent {
        "gemini" => gemini.split("\"\"\"").nth(1).expect("a prompt").trim_start().to_owned() + &typed,
        "copilot" => {
            let named = if arguments.is_empty() { String::new() } else { format!("\n\nARGUMENTS: {arguments}") };
            format!(
                "The user explicitly invoked the \"/rollback\" skill. Follow its instructions now.\n\n\
                 <skill-context name=\"rollback\">\nBase directory for this skill: /home/u/.copilot/skills/rollback\n\n\
                 {}\n{named}\n</skill-context>",
                body(skill)
            )
        }
        _ => body(qwen).to_owned() + &typed,
    }
}

#[test]
fn the_text_of_a_command_file_is_the_command_that_was_typed_and_no_turn() {
    for agent in ["claude", "gemini", "qwen", "copilot"] {
        let sandbox = project(agent);
        let type_in = |turn: &str, arguments: &str| {
            let sent = said(&sandbox, agent, turn, &expanded(agent, arguments));
            shown(agent, &hook(&sandbox, &[agent], sent))
        };
        assert!(type_in("t3", "").starts_with("📸 Checkpoints for "), "{agent}");
        assert!(type_in("t4", "diff 2").contains("diff --git a/a.txt b/a.txt"), "{agent}");
        assert!(type_in("t5", "2 b.txt").starts_with("Restored to "), "{agent}");
        assert_eq!(fs::read_to_string(sandbox.path("b.txt")).expect("a file"), "1", "{agent}");
        assert_eq!(checkpoints(&sandbox, &["kind"]), [["auto"], ["auto"], ["safety"]], "{agent}");
        // Copilot's skill is correct; the files of the others are of an older version, which doctor must learn of.
        let is_warned = journal(&sandbox).contains("the text of piton's own command file arrived as a prompt");
        assert_eq!(is_warned, agent != "copilot", "{agent}");
    }
}

#[test]
fn a_prompt_that_quotes_a_command_file_gets_its_checkpoint() {
    let sandbox = project("gemini");
    let quoted = format!("What does this mean?\n{}", expanded("gemini", "2"));
    assert_eq!(hook(&sandbox, &["gemini"], said(&sandbox, "gemini", "t3", &quoted)), "");
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "3");
    assert_eq!(checkpoints(&sandbox, &["kind"]).len(), 3);
    assert!(journal(&sandbox).contains("in a form that piton does not know"), "{}", journal(&sandbox));
}

#[test]
fn the_plugin_in_hermes_is_answered_with_what_works_there() {
    let sandbox = project("hermes");
    let type_in = |arguments: &str| {
        let sent = json!({"hook_event_name": "piton_command", "session_id": "s", "cwd": sandbox.project(), "prompt": arguments});
        let answer: Value = serde_json::from_str(&hook(&sandbox, &["hermes"], sent.to_string())).expect("JSON");
        answer["text"].as_str().expect("text").to_owned()
    };
    let list = type_in("");
    assert!(list.starts_with("📸 ") && list.contains("\n  /piton diff N   preview changes"), "{list}");
    let restored = type_in("2");
    assert!(restored.starts_with("Restored to ") && restored.contains(": `/piton "), "{restored}");
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "1");
    assert_eq!(checkpoints(&sandbox, &["kind"]), [["auto"], ["auto"], ["safety"]]);
    assert!(type_in("--base=/x").contains("error: cannot take"));
}

#[test]
fn two_hooks_for_one_prompt_go_back_once() {
    for agent in ["codex", "copilot"] {
        let sandbox = project(agent);
        let sent = said(&sandbox, agent, "t3", "/rollback 2");
        let answers: Vec<_> = std::thread::scope(|scope| {
            let both = [0, 1].map(|_| scope.spawn(|| send(&mut hook_command(&sandbox, &[agent]), &sent)));
            both.into_iter().map(|one| one.join().expect("an answer").stdout).collect()
        });
        assert_eq!(answers[0], answers[1], "{agent}");
        assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "1");
        assert_eq!(checkpoints(&sandbox, &["kind"]), [["auto"], ["auto"], ["safety"]], "{agent}");
    }
}

#[test]
fn agents_that_cannot_be_answered_for_get_their_checkpoint() {
    for agent in ["hermes", "plain"] {
        let sandbox = project(agent);
        assert_eq!(hook(&sandbox, &[agent], said(&sandbox, agent, "t3", "/rollback 1")), "", "{agent}");
        assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "3");
        assert_eq!(checkpoints(&sandbox, &["turn"]), [["t1"], ["t2"], ["t3"]]);
    }
}

#[test]
fn a_rollback_works_by_hand_when_automatic_checkpoints_are_off() {
    let sandbox = project("claude");
    let mut command = hook_command(&sandbox, &["claude"]);
    let ran = send(command.env("PITON_ENABLED", "0"), prompt(&sandbox, "s", "t3", "/rollback 2")).done();
    assert!(shown("claude", &ran.stdout).starts_with("Restored to "));
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "1");
}

#[test]
fn after_a_restore_the_agent_is_told_once_at_its_next_prompt() {
    let cases = [
        ("claude", "/hookSpecificOutput/additionalContext"),
        ("codex", "/hookSpecificOutput/additionalContext"),
        ("gemini", "/hookSpecificOutput/additionalContext"),
        ("copilot", "/additionalContext"),
        ("hermes", "/context"),
    ];
    for (agent, at) in cases {
        let sandbox = project(agent);
        piton(&sandbox, ["restore", "2", "-y"]).done();
        let answer = hook(&sandbox, &[agent], said(&sandbox, agent, "t3", "what now?"));
        let value: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{agent}: {error}: {answer:?}"));
        let text = value.pointer(at).and_then(Value::as_str).unwrap_or_else(|| panic!("{agent}: {answer}"));
        assert!(text.contains("Written: a.txt, b.txt. Removed: new.txt."), "{text}");
        assert_eq!(hook(&sandbox, &[agent], said(&sandbox, agent, "t4", "and now?")), "", "{agent}");
    }
}

#[test]
fn an_agent_is_not_told_where_its_user_does_not_want_it_or_it_was_not_there() {
    let sandbox = project("claude");
    let mut restore = crate::kit::command(&sandbox);
    crate::kit::run(restore.args(["restore", "2", "-y"]).env("PITON_TELL_AGENT", "false")).done();
    assert_eq!(hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t3", "x")), "");
    sandbox.write("a.txt", "4");
    piton(&sandbox, ["restore", "1", "-y"]).done();
    let mut command = hook_command(&sandbox, &["claude"]);
    let silent = send(command.env("PITON_TELL_AGENT", "false"), prompt(&sandbox, "s", "t4", "x")).done();
    assert_eq!(silent.stdout, "");
    assert_eq!(hook(&sandbox, &["claude"], prompt(&sandbox, "another", "t1", "x")), "");
    assert!(hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t5", "x")).contains("a.txt"));
    let stop = event(&sandbox, "s", "t5", "Stop", &json!({}));
    assert_eq!(hook(&sandbox, &["claude"], stop), "");
}
