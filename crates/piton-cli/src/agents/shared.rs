//! Formats that several agents share.

use std::path::Path;

use serde_json::{Value, json};

use super::event::{HookEvent, Meaning};
use super::setup::TIMEOUT_SECS;
use crate::edit::{Config, Format, files};

pub(super) const NEW_SESSION: &str = "start a new session: running ones are not affected";

/// The events of Claude Code, which others have adopted.
pub(super) const EVENTS: &[(&str, Meaning)] = &[
    ("SessionStart", Meaning::SessionStart),
    ("UserPromptSubmit", Meaning::Prompt),
    ("PreToolUse", Meaning::Tool),
    // The end of a subagent's work has other event names, or carries the subagent's id.
    ("Stop", Meaning::TurnEnd),
    ("StopFailure", Meaning::TurnEnd),
    ("SessionEnd", Meaning::SessionEnd),
];

/// Returns a reply that passes a text to the model.
pub(super) fn additional_context(event: &str, text: &str) -> Value {
    json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
}

/// Returns a reply that answers a prompt in place of the model.
#[expect(clippy::unnecessary_wraps, reason = "not every agent has such a reply")]
pub(super) fn block(_: &HookEvent, text: &str) -> Option<Value> {
    Some(json!({"decision": "block", "reason": text}))
}

fn is_about_a_tool(event: &str) -> bool {
    event.to_ascii_lowercase().contains("tool")
}

/// Returns a handler that is an item of the event's list itself.
pub(super) fn flat_handler(event: &str, command: &str) -> Value {
    if is_about_a_tool(event) {
        json!({"matcher": ".*", "command": command, "timeout": TIMEOUT_SECS})
    } else {
        json!({"command": command, "timeout": TIMEOUT_SECS})
    }
}

/// Returns a group that holds the handler, with a matcher if the event is about a tool.
pub(super) fn group(event: &str, matcher: &str, handler: &Value) -> Value {
    if is_about_a_tool(event) { json!({"matcher": matcher, "hooks": [handler]}) } else { json!({"hooks": [handler]}) }
}

/// Returns a prompt event for a test.
pub(super) fn prompt_payload(event: &str, dir: &str) -> Value {
    json!({
        "hook_event_name": event, "session_id": TEST_SESSION, "prompt_id": TEST_TURN, "turn_id": TEST_TURN, "cwd": dir,
        "prompt": TEST_PROMPT,
    })
}

pub(super) const TEST_SESSION: &str = "piton-doctor";
pub(super) const TEST_TURN: &str = "piton-doctor-1";
pub(super) const TEST_PROMPT: &str = "a test of piton doctor";

/// Returns the value of a configuration file; `Null` if it cannot be read.
pub(super) fn read(path: &Path, format: Format) -> Value {
    let text = files::read(path).ok().flatten().unwrap_or_default();
    Config::parse(&text, format).map_or(Value::Null, |config| config.value())
}
