//! Hermes: hooks and a plugin of ours in its YAML configuration, and consent that it stores in a file.

mod conversation;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::event::{EventKind, Evidence, Keys, Meaning, hook_event_name};
use super::guide::GuideFacts;
use super::setup::{
    Caller, ConfigFile, Home, Ours, OwnFile, Piece, Setup, SetupPlace, TIMEOUT_SECS, Trust, TrustInput, What, Whose,
};
use super::shared::{self, TEST_PROMPT, TEST_SESSION, TEST_TURN};
use super::spec::{AnswerSpec, CheckSpec, InstallSpec, PayloadSpec, Spec, ToolSpec, VersionSpec};
use crate::edit::Format;
use crate::surface::Surface;

/// Event with which the plugin passes on the text typed after `/piton`.
const COMMAND: &str = "piton_command";
const PLUGIN: &str = include_str!("texts/hermes/__init__.py");
const MANIFEST: &str = include_str!("texts/hermes/plugin.yaml");
/// Starts of the prompts with which Hermes has a copy of the conversation reviewed in the background, for itself.
const REVIEWS: [&str; 3] = [
    "Review the conversation above and update the skill library",
    "Review the conversation above and consider saving to memory",
    "Review the conversation above and update two things:",
];
/// File in which Hermes stores the consent to run hooks.
const CONSENT: &str = "shell-hooks-allowlist.json";

pub(super) static SPEC: Spec = Spec {
    name: "hermes",
    title: "Hermes",
    programs: &["hermes"],
    home: Some(Home { variable: Some("HERMES_HOME"), default: ".hermes", dir: "" }),
    surface: Surface::Plugin,
    rewinding: "in Hermes: `/undo` until that prompt is gone",
    conversation: Some(conversation::SPEC),
    payload: PayloadSpec {
        evidence: |fields, _| match hook_event_name(fields) {
            "pre_llm_call"
            | "pre_tool_call"
            | "on_session_start"
            | "post_llm_call"
            | "on_session_end"
            | "on_session_finalize"
            | COMMAND => Evidence::Name,
            _ => Evidence::No,
        },
        events: &[
            ("on_session_start", Meaning::SessionStart),
            ("pre_llm_call", Meaning::Prompt),
            (COMMAND, Meaning::Rollback),
            ("pre_tool_call", Meaning::Tool),
            ("post_llm_call", Meaning::TurnEnd),
            // Comes at the end of each turn, and alone if the turn was interrupted.
            ("on_session_end", Meaning::TurnEnd),
            ("on_session_finalize", Meaning::SessionEnd),
        ],
        keys: Keys {
            turn: &[&["prompt_id"], &["turn_id"], &["extra", "turn_id"]],
            prompt: &[&["prompt"], &["extra", "user_message"]],
            messages: &[&["extra", "conversation_history"]],
            ..Keys::COMMON
        },
        prompt: |text| match REVIEWS.iter().any(|words| text.starts_with(words)) {
            true => EventKind::Other,
            false => EventKind::Prompt { text },
        },
        tells_turn_ends: true,
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec {
        readers: &["read_file", "search_files", "web_search", "web_extract", "todo", "clarify", "session_search"],
        shells: &["terminal"],
    },
    // Set by the plugin, which runs inside the agent.
    version: VersionSpec { in_env: |env| env("PITON_HERMES_VERSION"), ..VersionSpec::DEFAULT },
    answers: AnswerSpec {
        context: Some(|_, text| json!({"context": text})),
        // Prompts cannot be answered, but the `/piton` command of the plugin can.
        reply: Some(|event, text| (event.name == COMMAND).then(|| json!({"text": text}))),
        ..AnswerSpec::DEFAULT
    },
    install: InstallSpec {
        events: &[
            "on_session_start",
            "pre_llm_call",
            "pre_tool_call",
            "post_llm_call",
            "on_session_finalize",
            "on_session_end",
        ],
        handler: |_, command| json!({"command": command, "timeout": TIMEOUT_SECS}),
        setup,
        todo: "start hermes in a terminal and say yes when it asks about the hooks (or use --trust)",
        consent: Some(consent),
        older_commands: &["rollback"],
        outdated_effect: "/piton may only list",
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec {
        runs_without_shell: true,
        payload: |event, dir| {
            json!({
                "hook_event_name": event, "tool_name": null, "tool_input": null, "session_id": TEST_SESSION,
                "cwd": dir, "extra": {"turn_id": TEST_TURN, "user_message": TEST_PROMPT},
            })
        },
        // The default base and piton's own configuration are in there.
        has_home: |home| {
            fs::read_dir(home).is_ok_and(|names| {
                names.flatten().any(|one| one.file_name() != "checkpoints" && one.file_name() != "config.yaml")
            })
        },
        trust,
        ..CheckSpec::DEFAULT
    },
    guide: GUIDE,
};

const GUIDE: GuideFacts = GuideFacts {
    tested: Some("0.19.0"),
    installs: "The hooks are in the sections `hooks:` and `plugins:`. `piton` in `plugins.enabled` makes Hermes load the \
               plugin; a list in braces is left alone, with a warning. The plugin sets `PITON_HERMES_VERSION` in Hermes' \
               environment.",
    trust: "Hermes asks before it runs a hook for the first time, and silently skips it if it cannot ask. Start it in a \
            terminal and say yes, or let `piton install hermes --trust` record the consent.",
    project: "not possible, because Hermes has no configuration per project.",
    restoring: "Hermes has a `/rollback` of its own, which restores from the same store and leaves files that were created \
                since. `hermes chat -q` has no commands: use a shell.",
    notes: &[
        "The store is the same, `~/.hermes/checkpoints`, and both programs may use it at the same time. Checkpoints of \
         Hermes are listed and can be restored; they are named after a tool and have no session. Garbage collection by \
         Hermes deletes nothing of piton's, but above its limits it rewrites a project's history, which changes the ids.",
        "`checkpoints.enabled` in `~/.hermes/config.yaml` switches Hermes' own checkpoints and piton's. To have only \
         piton's, leave it off, write a file with `piton --config FILE config init`, and install every agent with \
         `piton --config FILE install`. In a shell, pass `--config` yourself.",
        "`HERMES_CHECKPOINT_TIMEOUT` (10 to 60 seconds) is also piton's deadline, unless `deadline_ms` is set.",
        "A quick command of Hermes gets no arguments. One that an older piton installed (`quick_commands.piton`) is \
         removed by `piton install hermes` and reported by `piton doctor`.",
        "Hermes counts every model call as a turn, piton every prompt: one prompt with many changes does not push the \
         state before it out of the history.",
    ],
};

fn setup(place: &SetupPlace<'_>) -> Setup {
    let mut pieces = place.hooks();
    // A quick command gets no arguments, and would take precedence over the command of the plugin.
    pieces.push(Piece { keys: vec!["quick_commands", "piton"], what: What::Gone });
    pieces.push(Piece { keys: vec!["plugins", "enabled"], what: What::Word("piton") });
    let plugin = PLUGIN.replace("@COMMAND@", &place.command_words());
    let plugin = plugin.replace("@TIMEOUT_SECS@", &TIMEOUT_SECS.to_string());
    Setup {
        configs: vec![ConfigFile { path: place.dir.join("config.yaml"), format: Format::Yaml, pieces }],
        files: vec![
            OwnFile::command(place.dir.join("plugins/piton/plugin.yaml"), MANIFEST, &[]),
            OwnFile::command(place.dir.join("plugins/piton/__init__.py"), &plugin, &[]),
        ],
        ..Setup::default()
    }
}

/// Returns the consent that Hermes would ask for, in the format in which it stores it.
fn consent(home: &Path, caller: &Caller, now: &str) -> ConfigFile {
    let place = SetupPlace { hooks: SPEC.hook_format(), dir: home.to_owned(), whose: &Whose::User, caller };
    let piece = |event: &&'static str| {
        let command = place.command_line(event);
        let item = json!({"event": event, "command": command, "approved_at": now, "script_mtime_at_approval": null});
        Piece { keys: vec!["approvals"], what: What::Item(item) }
    };
    let pieces = SPEC.install.events.iter().map(piece).collect();
    ConfigFile { path: home.join(CONSENT), format: Format::Json, pieces }
}

fn trust(input: &TrustInput<'_>) -> Trust {
    let accepts_all = (input.env)("HERMES_ACCEPT_HOOKS").map(|value| value.to_ascii_lowercase());
    let accepts_all = matches!(accepts_all.as_deref(), Some("1" | "true" | "yes" | "on"));
    let settings = shared::read(input.config, Format::Yaml);
    if accepts_all || settings["hooks_auto_accept"] == Value::Bool(true) {
        return Trust::Yes;
    }
    let list = shared::read(&input.home.join(CONSENT), Format::Json);
    let approvals = list["approvals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_approved = |hook: &&Ours| {
        approvals.iter().any(|one| one["event"] == hook.event.as_str() && one["command"] == hook.command.as_str())
    };
    let approved = input.ours.iter().filter(is_approved).count();
    if approved == input.ours.len() {
        return Trust::Yes;
    }
    let what = format!("{approved} of {} hooks have consent, and hermes runs no other", input.ours.len());
    Trust::No(what, "start hermes in a terminal and say yes, or run `piton install hermes --trust`")
}
