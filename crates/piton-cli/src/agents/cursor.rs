//! Cursor, which takes an empty reply for a denial.

use serde_json::json;

use super::event::{EventKind, Evidence, Keys, Meaning};
use super::guide::GuideFacts;
use super::setup::{Home, Piece, Setup, What};
use super::shared::{TEST_PROMPT, TEST_SESSION, TEST_TURN};
use super::spec::{AnswerSpec, CheckSpec, InstallSpec, PayloadSpec, Spec, ToolSpec};

/// Events at which Cursor asks for permission.
const ASKS: [&str; 3] = ["preToolUse", "beforeShellExecution", "beforeMCPExecution"];

pub(super) static SPEC: Spec = Spec {
    name: "cursor",
    title: "Cursor",
    programs: &["cursor", "cursor-agent"],
    home: Some(Home { variable: None, default: ".cursor", dir: "" }),
    rewinding: "in Cursor: edit that prompt and send it again",
    payload: PayloadSpec {
        evidence: |fields, _| {
            let has = |key: &str| fields.contains_key(key);
            match has("cursor_version") || (has("conversation_id") && has("generation_id")) {
                true => Evidence::Field,
                false => Evidence::No,
            }
        },
        events: &[
            ("sessionStart", Meaning::SessionStart),
            ("beforeSubmitPrompt", Meaning::Prompt),
            ("preToolUse", Meaning::Tool),
            ("beforeShellExecution", Meaning::ShellCommand),
            ("beforeMCPExecution", Meaning::ServerTool),
            ("stop", Meaning::TurnEnd),
            ("sessionEnd", Meaning::SessionEnd),
        ],
        keys: Keys {
            session: &[&["conversation_id"]],
            turn: &[&["generation_id"]],
            roots: &[&["workspace_roots"]],
            version: &[&["agent_version"], &["cursor_version"]],
            ..Keys::COMMON
        },
        salvaged: &["hook_event_name", "conversation_id", "generation_id", "cwd", "tool_name", "cursor_version"],
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec {
        readers: &["Read", "Grep", "Glob", "LS", "SemanticSearch", "WebSearch", "WebFetch", "ReadLints", "TodoWrite"],
        shells: &["Shell"],
    },
    answers: AnswerSpec {
        // An unreadable event may be one of those that ask for permission.
        go_on: Some(|event| match ASKS.contains(&event.name.as_str()) || event.kind == EventKind::Unreadable {
            true => json!({"permission": "allow"}),
            false => json!({}),
        }),
        deny: Some(|why| json!({"permission": "deny", "user_message": why, "agent_message": why})),
        ..AnswerSpec::DEFAULT
    },
    install: InstallSpec {
        events: &["sessionStart", "beforeSubmitPrompt", "preToolUse", "stop"],
        project_dir: Some(".cursor"),
        setup: |place| {
            let mut config = place.json_with_hooks("hooks.json");
            config.pieces.insert(0, Piece { keys: vec!["version"], what: What::Default(json!(1)) });
            Setup { configs: vec![config], ..Setup::default() }
        },
        todo: "restart Cursor",
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec {
        payload: |event, dir| {
            json!({
                "hook_event_name": event, "conversation_id": TEST_SESSION, "generation_id": TEST_TURN,
                "prompt": TEST_PROMPT, "workspace_roots": [dir], "cursor_version": "piton-doctor",
            })
        },
        ..CheckSpec::DEFAULT
    },
    guide: GuideFacts {
        trust: "No approval step is known. Restart Cursor.",
        notes: &[
            "`piton doctor` only calls the hook itself. If Cursor calls it too, `piton rollback` lists a checkpoint after \
             the first prompt.",
            "Cursor has checkpoints of its own, in its chat. piton's do not depend on the editor, and also cover changes \
             by shell commands.",
        ],
        ..GuideFacts::DEFAULT
    },
    ..Spec::DEFAULT
};
