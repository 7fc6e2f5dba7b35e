//! Claude Code.

mod conversation;

use serde_json::{Value, json};

use super::event::EventKind;
use super::guide::GuideFacts;
use super::setup::{Home, OwnFile, Setup, TIMEOUT_SECS, Whose};
use super::shared;
use super::spec::{AnswerSpec, CheckSpec, InstallSpec, PayloadSpec, Spec, ToolSpec, VersionSpec, VersionText};

pub(super) const COMMAND_FILE: &str = include_str!("texts/rollback.md");
/// Start of a prompt that Claude generates itself when a background task ends.
const TASK_NOTIFICATION: &str = "<task-notification>";

/// Read-only tools of Claude, then those of Copilot, which uses Claude's names where it sends Claude's payloads.
pub(super) const READERS: &[&str] = &[
    "Read",
    "Grep",
    "Glob",
    "LS",
    "NotebookRead",
    "WebFetch",
    "WebSearch",
    "TodoRead",
    "TodoWrite",
    "BashOutput",
    "AskUserQuestion",
    "EnterPlanMode",
    "ExitPlanMode",
    "ListMcpResourcesTool",
    "ReadMcpResourceTool",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "ToolSearch",
    "CronList",
    // Copilot.
    "view",
    "grep",
    "glob",
    "web_fetch",
    "web_search",
    "read_bash",
    "list_bash",
    "report_intent",
    "ask_user",
];

pub(super) static SPEC: Spec = Spec {
    name: "claude",
    title: "Claude Code",
    programs: &["claude"],
    home: Some(Home { variable: Some("CLAUDE_CONFIG_DIR"), default: ".claude", dir: "" }),
    rewinding: "in Claude Code: `/rewind`, choose that prompt, restore the conversation only",
    conversation: Some(conversation::SPEC),
    payload: PayloadSpec {
        events: shared::EVENTS,
        salvaged: &["hook_event_name", "session_id", "prompt_id", "cwd", "tool_name"],
        prompt: |text| match text.trim_start().starts_with(TASK_NOTIFICATION) {
            true => EventKind::Continuation,
            false => EventKind::Prompt { text },
        },
        tells_turn_ends: true,
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec { readers: READERS, shells: &["Bash"] },
    version: VersionSpec {
        in_env: |env| of_ai_agent(&env("AI_AGENT")?),
        packages: &["@anthropic-ai/claude-code", "@anthropic-ai/claude-code-linux-x64"],
        in_transcript: VersionText::Records,
        ..VersionSpec::DEFAULT
    },
    answers: AnswerSpec {
        context: Some(shared::additional_context),
        message_key: Some("systemMessage"),
        reply: Some(shared::block),
        ..AnswerSpec::DEFAULT
    },
    install: InstallSpec {
        events: &["SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd"],
        project_dir: Some(".claude"),
        // Copilot runs the hooks of a project, too, and denies the tool if they fail.
        fails_open: |whose| matches!(whose, Whose::Project(_)),
        handler: |event, command| {
            let handler = json!({"type": "command", "command": command, "timeout": TIMEOUT_SECS});
            shared::group(event, "*", &handler)
        },
        setup: |place| Setup {
            configs: vec![place.json_with_hooks("settings.json")],
            files: vec![OwnFile::command(place.dir.join("commands/rollback.md"), COMMAND_FILE, &[])],
            ..Setup::default()
        },
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec { switched_off: all_hooks_disabled, ..CheckSpec::DEFAULT },
    guide: GuideFacts {
        tested: Some("2.1.325"),
        trust: "No approval is needed.",
        notes: &[
            "Claude Code has checkpoints of its own, which cover its editing tools only: not shell commands, your own \
             changes or other sessions. Use `/rewind` for the conversation and piton for the files.",
            "When a background task ends, Claude starts a prompt of its own. Its changes belong to the turn of your \
             last prompt.",
            "Copilot and Cursor also run hooks that they find in Claude's settings. piton recognises them by their \
             payload and answers in their format.",
        ],
        ..GuideFacts::DEFAULT
    },
    ..Spec::DEFAULT
};

/// Returns the switch that disables all hooks, if it is set.
pub(super) fn all_hooks_disabled(value: &Value) -> Option<&'static str> {
    (value["disableAllHooks"] == Value::Bool(true)).then_some("disableAllHooks")
}

/// Returns the version in a text such as `claude-code_2-1-325_harness`, which is 2.1.325.
fn of_ai_agent(text: &str) -> Option<String> {
    let version = text.strip_prefix("claude-code_")?.split('_').next()?;
    let is_plain = version.split('-').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    is_plain.then(|| version.replace('-', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_variable_that_claude_sets() {
        assert_eq!(of_ai_agent("claude-code_2-1-325_harness").as_deref(), Some("2.1.325"));
        assert_eq!(of_ai_agent("claude-code_2-1-325").as_deref(), Some("2.1.325"));
        for other in ["claude-code", "claude-code_", "claude-code_2-x_a", "other_1-2-3_agent", ""] {
            assert_eq!(of_ai_agent(other), None, "{other}");
        }
    }
}
