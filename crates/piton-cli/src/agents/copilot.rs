//! Copilot CLI, which also runs the hooks in Claude's settings, and denies a tool whose hook fails.

mod conversation;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::claude;
use super::event::{Evidence, Fields, HookEvent, Keys, Meaning, hook_event_name};
use super::guide::GuideFacts;
use super::setup::{Home, Ours, OwnFile, Setup, TIMEOUT_SECS};
use super::shared::{TEST_PROMPT, TEST_SESSION};
use super::spec::{
    AnswerSpec, CheckSpec, CommandWrap, InstallSpec, PayloadSpec, Spec, ToolSpec, VersionSpec, VersionText,
};

const SKILL: &str = include_str!("texts/SKILL.md");

pub(super) static SPEC: Spec = Spec {
    name: "copilot",
    title: "Copilot CLI",
    programs: &["copilot"],
    home: Some(Home { variable: Some("COPILOT_HOME"), default: ".copilot", dir: "" }),
    conversation: Some(conversation::SPEC),
    payload: PayloadSpec {
        evidence,
        event_key: |fields| if fields.contains_key("hookName") { "hookName" } else { "hook_event_name" },
        events: &[
            ("sessionStart", Meaning::SessionStart),
            ("userPromptSubmitted", Meaning::Prompt),
            ("preToolUse", Meaning::Tool),
            ("agentStop", Meaning::TurnEnd),
            ("sessionEnd", Meaning::SessionEnd),
        ],
        keys: Keys {
            session: &[&["parentAgentId"], &["session_id"], &["sessionId"]],
            tool: &[&["tool_name"], &["toolName"]],
            input: &[&["tool_input"], &["toolArgs"]],
            result: &[&["toolResult"]],
            ..Keys::COMMON
        },
        salvaged: &["sessionId", "cwd", "toolName"],
        tells_turn_ends: true,
        command_wrap: Some(CommandWrap {
            words: "The user explicitly invoked the \"/rollback\" skill",
            open: "<skill-context name=\"rollback\">",
            close: "</skill-context>",
            line: "Base directory for this skill:",
        }),
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec { readers: claude::READERS, shells: &["bash"] },
    version: VersionSpec {
        // The one that runs may be newer than the one that was installed.
        in_env: |env| {
            let dir = env("COPILOT_CLI_RESOLVED_DIST_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
            let name = dir.and_then(|dir| Some(dir.file_name()?.to_str()?.to_owned()));
            name.filter(|name| super::is_version(name)).or_else(|| env("COPILOT_CLI_BINARY_VERSION"))
        },
        packages: &["@github/copilot", "@github/copilot-linux-x64", "@github/copilot-linux-arm64"],
        in_transcript: VersionText::FirstLine("copilotVersion"),
        transcript,
    },
    answers: AnswerSpec {
        context: Some(|_, text| json!({"additionalContext": text})),
        reply: Some(|_, text| Some(json!({"handled": true, "responseContent": fenced(text)}))),
        ..AnswerSpec::DEFAULT
    },
    install: InstallSpec {
        events: &["sessionStart", "userPromptSubmitted", "preToolUse", "agentStop", "sessionEnd"],
        instead_of_project: Some("in one, it runs what `piton install claude --project` puts in"),
        fails_open: |_| true,
        names_event: true,
        handler: |_, command| json!({"type": "command", "command": command, "timeoutSec": TIMEOUT_SECS}),
        setup: |place| {
            let hooks = SPEC.install.events.iter().map(|event| ((*event).to_owned(), json!([place.handler(event)])));
            let value = json!({"version": 1, "hooks": hooks.collect::<Map<_, _>>()});
            let text = serde_json::to_string_pretty(&value).expect("plain data") + "\n";
            let path = place.dir.join("hooks/piton.json");
            let hooks = OwnFile { path, text, mark: " hook copilot ", older: &[], is_needed: true };
            let skill = OwnFile::command(place.dir.join("skills/rollback/SKILL.md"), SKILL, &[]);
            Setup { files: vec![hooks, skill], ..Setup::default() }
        },
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec {
        payload: |_, dir| json!({"sessionId": TEST_SESSION, "timestamp": 0, "cwd": dir, "prompt": TEST_PROMPT}),
        commands,
        ..CheckSpec::DEFAULT
    },
    guide: GuideFacts {
        tested: Some("1.0.102"),
        trust: "No approval is needed. `copilot -p` runs the hooks in any folder. The terminal interface asks whether you \
                trust a folder before it starts, and runs the hooks whether or not it may remember the answer.",
        project: "not supported. Copilot would read `.github/hooks/` of the project, but piton installs for the user only.",
        notes: &[
            "In the terminal interface, `/rollback` is a skill: Copilot sends the skill's text with the typed arguments at \
             its end, and the hook finds them there. Answers are code blocks, because Copilot renders Markdown.",
            "Copilot denies a tool whose hook fails. piton always exits with 0, and the command has `|| true` in case the \
             program is missing.",
        ],
        ..GuideFacts::DEFAULT
    },
    ..Spec::DEFAULT
};

/// Copilot sends the same payload as Claude to hooks that it finds in Claude's settings, except for the transcript.
fn evidence(fields: &Fields, named: &str) -> Evidence {
    let has = |key: &str| fields.contains_key(key);
    match hook_event_name(fields) {
        _ if has("sessionId") && !has("session_id") => Evidence::Field,
        "UserPromptSubmit" | "PreToolUse" | "SessionStart" | "Stop" | "SessionEnd"
            if named == "claude" && has("timestamp") && !has("transcript_path") =>
        {
            Evidence::Name
        }
        // Only this one has a transcript.
        "Stop" if named == "claude" && has("timestamp") && has("stop_reason") => Evidence::Name,
        _ => Evidence::No,
    }
}

/// Returns the file of a session. Copilot names it only at the end of a turn.
fn transcript(event: &HookEvent, home: Option<&Path>) -> Option<PathBuf> {
    let session = event.session.as_deref().filter(|session| !session.contains('/') && !session.starts_with('.'))?;
    Some(home?.join("session-state").join(session).join("events.jsonl"))
}

/// Returns the text as a fenced code block. Copilot renders Markdown, which joins lines, collapses spaces and drops
/// anything that looks like a tag.
fn fenced(text: &str) -> String {
    // The fence is longer than any run of backticks in the text.
    let ticks = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((ticks + 1).max(3));
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// Returns the command lines in the file of hooks.
fn commands(text: &str) -> Vec<Ours> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let events = value["hooks"].as_object().into_iter().flatten();
    let ours = |(event, list): (&String, &Value)| {
        Some(Ours { event: event.clone(), command: list[0]["command"].as_str()?.to_owned(), at: vec![0] })
    };
    events.filter_map(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_does_not_touch_what_copilot_shows() {
        assert_eq!(fenced("  1. <N>  `x`\n"), "```\n  1. <N>  `x`\n```");
        assert_eq!(fenced("+````md\n+```"), "`````\n+````md\n+```\n`````");
    }
}
