//! Codex, which runs only hooks that the user has approved, each by the hash of its definition.

mod app_server;
mod conversation;

use serde_json::json;

use super::guide::GuideFacts;
use super::setup::{Home, Ours, Setup, TIMEOUT_SECS, Trust, TrustInput};
use super::shared;
use super::spec::{AnswerSpec, CheckSpec, InstallSpec, PayloadSpec, Spec, ToolSpec, VersionSpec, VersionText};
use crate::edit::files;
use crate::surface::Surface;

pub(super) static SPEC: Spec = Spec {
    name: "codex",
    title: "Codex",
    programs: &["codex"],
    home: Some(Home { variable: Some("CODEX_HOME"), default: ".codex", dir: "" }),
    surface: Surface::Prompt,
    rewinding: "in Codex: Esc twice, then choose that prompt",
    conversation: Some(conversation::SPEC),
    payload: PayloadSpec {
        events: shared::EVENTS,
        salvaged: &["hook_event_name", "session_id", "turn_id", "cwd", "tool_name", "agent_id"],
        // A subagent has its own turns within that of the user's prompt.
        is_turn_of_prompt: |fields| !fields.contains_key("agent_id"),
        // The end of a turn is one more hook to approve, so it is not counted on.
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec {
        readers: &["update_plan", "view_image", "web_search", "read_file", "list_dir", "grep_files"],
        shells: &["shell", "exec_command", "shell_command", "local_shell"],
    },
    version: VersionSpec { in_transcript: VersionText::FirstLine("cli_version"), ..VersionSpec::DEFAULT },
    answers: AnswerSpec {
        context: Some(shared::additional_context),
        reply: Some(shared::block),
        ..AnswerSpec::DEFAULT
    },
    install: InstallSpec {
        // Each entry runs only after the user approved it. Until then a turn ends at the next prompt.
        events: &["SessionStart", "UserPromptSubmit", "PreToolUse", "Stop"],
        project_dir: Some(".codex"),
        handler: |event, command| {
            let handler = json!({"type": "command", "command": command, "timeout": TIMEOUT_SECS});
            shared::group(event, ".*", &handler)
        },
        setup: |place| Setup { configs: vec![place.json_with_hooks("hooks.json")], ..Setup::default() },
        todo: "start codex and approve the hooks in /hooks: until then it does not run them",
        asks_its_user: true,
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec { trust, ..CheckSpec::DEFAULT },
    guide: GuideFacts {
        tested: Some("0.166.0"),
        trust: "**Codex runs no hook that you have not approved.** Start `codex`, open `/hooks` and approve piton's. Until \
                then hooks are skipped, in `codex exec` without a message; `piton doctor` reports it. Approval applies to \
                the exact command: approve it again if piton moves to another path. Installing again from the same path \
                leaves the hooks unchanged, byte for byte.",
        restoring: "Slash commands do not reach hooks in Codex. `codex exec --json` does not show the answer: use a shell.",
        notes: &[
            "`write_stdin` (typing into a running program) does not call the hook. The checkpoint at the prompt covers it.",
            "If piton is installed for the user and for the project, each hook runs twice. The second call finds that the \
             turn has its checkpoint and costs a few milliseconds.",
        ],
        ..GuideFacts::DEFAULT
    },
};

/// Checks the approvals: Codex identifies a hook by file, event and index, and stores the hash of the approved
/// definition.
fn trust(input: &TrustInput<'_>) -> Trust {
    let text = files::read(&input.home.join("config.toml")).ok().flatten().unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    let states = table.get("hooks").and_then(|hooks| hooks.get("state")).and_then(toml::Value::as_table);
    let real = input.config.canonicalize().unwrap_or_else(|_| input.config.to_owned());
    let is_approved = |hook: &&Ours| {
        let place = |at: usize| hook.at.get(at).copied().unwrap_or_default();
        let name = format!(":{}:{}:{}", snake_case(&hook.event), place(0), place(1));
        let names = [input.config, &real].map(|path| format!("{}{name}", path.display()));
        states.into_iter().flatten().any(|(key, state)| {
            names.iter().any(|name| key.ends_with(name))
                && state.get("trusted_hash").is_some()
                && state.get("enabled").and_then(toml::Value::as_bool) != Some(false)
        })
    };
    let approved = input.ours.iter().filter(is_approved).count();
    if approved == input.ours.len() {
        return Trust::Yes;
    }
    let what = format!("{approved} of {} hooks are approved, and codex runs no other", input.ours.len());
    Trust::No(what, "start codex and approve them in /hooks")
}

fn snake_case(event: &str) -> String {
    let mut text = String::new();
    for character in event.chars() {
        if character.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}
