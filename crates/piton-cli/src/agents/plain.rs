//! Any other program that can run a command before it changes files. Uses piton's own event format.

use super::event::Meaning;
use super::spec::{PayloadSpec, Spec, ToolSpec};

pub(super) static SPEC: Spec = Spec {
    name: "plain",
    title: "your agent",
    payload: PayloadSpec {
        event_key: |fields| if fields.contains_key("hook_event_name") { "hook_event_name" } else { "event" },
        events: &[
            ("session_start", Meaning::SessionStart),
            ("prompt", Meaning::Prompt),
            ("before_tool", Meaning::Tool),
            ("turn_end", Meaning::TurnEnd),
            ("session_end", Meaning::SessionEnd),
        ],
        tells_turn_ends: true,
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec { readers: &["read_file", "list_directory"], shells: &["execute_command"] },
    ..Spec::DEFAULT
};
