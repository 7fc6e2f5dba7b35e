//! opencode: a plugin of ours passes its events to the hook.

mod conversation;
mod server;

use serde_json::json;

use super::event::{Evidence, Keys, Meaning, hook_event_name};
use super::guide::GuideFacts;
use super::setup::{Home, Ours, OwnFile, Setup, TIMEOUT_SECS};
use super::shared::{TEST_PROMPT, TEST_SESSION, TEST_TURN};
use super::spec::{AnswerSpec, CheckSpec, InstallSpec, PayloadSpec, Spec, ToolSpec, VersionSpec};
use crate::shell;

const PLUGIN: &str = include_str!("texts/piton.js");

pub(super) static SPEC: Spec = Spec {
    name: "opencode",
    title: "opencode",
    programs: &["opencode"],
    home: Some(Home { variable: Some("XDG_CONFIG_HOME"), default: ".config", dir: "opencode" }),
    rewinding: "in opencode: `/undo` until that prompt is gone",
    conversation: Some(conversation::SPEC),
    payload: PayloadSpec {
        evidence: |fields, _| match hook_event_name(fields) {
            "chat.message" | "tool.execute.before" | "event:session.created" | "event:session.idle" => Evidence::Name,
            _ => Evidence::No,
        },
        events: &[
            ("chat.message", Meaning::Prompt),
            ("tool.execute.before", Meaning::Tool),
            ("event:session.created", Meaning::SessionStart),
            ("event:session.idle", Meaning::TurnEnd),
            ("event:session.deleted", Meaning::SessionEnd),
        ],
        keys: Keys {
            session: &[
                &["input", "sessionID"],
                &["event", "properties", "sessionID"],
                &["event", "properties", "info", "id"],
            ],
            turn: &[&["output", "message", "id"]],
            parent: &[&["event", "properties", "info", "parentID"]],
            cwd: &[&["directory"]],
            // Sent for a new session.
            version: &[&["event", "properties", "info", "version"]],
            prompt: &[],
            prompt_parts: &[&["output", "parts"]],
            tool: &[&["input", "tool"]],
            input: &[&["output", "args"]],
            ..Keys::COMMON
        },
        salvaged: &["hook_event_name", "directory"],
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec {
        readers: &[
            "read",
            "grep",
            "glob",
            "list",
            "webfetch",
            "websearch",
            "codesearch",
            "todowrite",
            "todoread",
            "question",
        ],
        shells: &["bash"],
    },
    version: VersionSpec { packages: &["opencode-ai"], ..VersionSpec::DEFAULT },
    // The plugin adds the text to the prompt.
    answers: AnswerSpec { context: Some(|_, text| json!({"context": text})), ..AnswerSpec::DEFAULT },
    install: InstallSpec {
        events: &["chat.message", "tool.execute.before", "event:session.idle"],
        project_dir: Some(".opencode"),
        setup: |place| {
            let text = PLUGIN.replace("@COMMAND@", &place.command_words());
            let text = text.replace("@DEADLINE_MS@", &(TIMEOUT_SECS * 1000).to_string());
            let mark = "Written by `piton install opencode`";
            let path = place.dir.join("plugins/piton.js");
            let plugin = OwnFile { path, text, mark, older: &[], is_needed: true };
            Setup { files: vec![plugin], ..Setup::default() }
        },
        todo: "restart opencode; there is no /rollback in it: use `piton rollback` in a shell",
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec {
        runs_without_shell: true,
        payload: |event, dir| {
            json!({
                "hook_event_name": event, "directory": dir, "worktree": dir, "input": {"sessionID": TEST_SESSION},
                "output": {
                    "message": {"id": TEST_TURN, "role": "user"}, "parts": [{"type": "text", "text": TEST_PROMPT}],
                },
            })
        },
        commands,
        ..CheckSpec::DEFAULT
    },
    guide: GuideFacts {
        tested: Some("1.18.33"),
        trust: "No approval is needed. Restart opencode. It runs `npm install` in its configuration directory if there is \
                a plugin; without a network that takes a while.",
        restoring: "opencode sends every prompt to the model.",
        notes: &[
            "The plugin never throws an exception: in opencode that would block the tool. The text that it adds to a \
             prompt is not shown.",
        ],
        ..GuideFacts::DEFAULT
    },
    ..Spec::DEFAULT
};

/// Returns the command line in the text of the plugin.
fn commands(text: &str) -> Vec<Ours> {
    let list = text.lines().find_map(|line| line.strip_prefix("const COMMAND = ")?.strip_suffix(';'));
    let words = list.and_then(|list| serde_json::from_str::<Vec<String>>(list).ok()).unwrap_or_default();
    let command = words.iter().map(|word| shell::quote(word)).collect::<Vec<_>>().join(" ");
    // A plugin of an older version does not report the end of a turn.
    let ends = text.contains("session.idle").then_some("event:session.idle");
    let ours = |event: &str| Ours { event: event.to_owned(), command: command.clone(), at: Vec::new() };
    ["chat.message"].into_iter().chain(ends).map(ours).collect()
}
