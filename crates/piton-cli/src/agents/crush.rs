//! Crush, which reports no prompts.

use serde_json::{Value, json};

use super::event::{Evidence, Meaning, hook_event_name};
use super::guide::GuideFacts;
use super::setup::{Home, Setup, Whose};
use super::shared::TEST_SESSION;
use super::spec::{CheckSpec, InstallSpec, PayloadSpec, Spec, ToolSpec};

pub(super) static SPEC: Spec = Spec {
    name: "crush",
    title: "Crush",
    programs: &["crush"],
    home: Some(Home { variable: Some("XDG_CONFIG_HOME"), default: ".config", dir: "crush" }),
    payload: PayloadSpec {
        // Other programs may use piton's own event format, which has the same field.
        evidence: |fields, named| {
            let has_event = fields.get("event").is_some_and(Value::is_string);
            match hook_event_name(fields).is_empty() && named != "plain" && has_event {
                true => Evidence::Name,
                false => Evidence::No,
            }
        },
        event_key: |_| "event",
        events: &[("PreToolUse", Meaning::Tool)],
        salvaged: &["event", "session_id", "cwd", "tool_name"],
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec {
        readers: &["view", "ls", "glob", "grep", "fetch", "web_fetch", "sourcegraph", "diagnostics", "todos"],
        shells: &["bash"],
    },
    install: InstallSpec {
        events: &["PreToolUse"],
        project_dir: Some(""),
        setup: |place| {
            let name = if *place.whose == Whose::User { "crush.json" } else { ".crush.json" };
            Setup { configs: vec![place.json_with_hooks(name)], ..Setup::default() }
        },
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec {
        payload: |event, dir| {
            json!({
                "event": event, "session_id": TEST_SESSION, "cwd": dir, "tool_name": "bash",
                "tool_input": {"command": "rm -rf file.txt"},
            })
        },
        ..CheckSpec::DEFAULT
    },
    guide: GuideFacts {
        trust: "No approval step is known.",
        notes: &[
            "Crush does not report prompts to hooks: the checkpoint is taken before the first tool of a session that may \
             change files, and again before the first one after a pause of a minute.",
        ],
        ..GuideFacts::DEFAULT
    },
    ..Spec::DEFAULT
};
