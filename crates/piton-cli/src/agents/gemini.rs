//! Gemini CLI, which runs hooks in trusted folders only.

mod conversation;

use std::path::Path;

use serde_json::{Value, json};

use super::event::{Evidence, Meaning, field, hook_event_name};
use super::guide::GuideFacts;
use super::setup::{Home, OwnFile, Setup, TIMEOUT_SECS, Trust, TrustInput};
use super::shared;
use super::spec::{AnswerSpec, CheckSpec, InstallSpec, PayloadSpec, Spec, ToolSpec, VersionSpec};
use crate::edit::Format;

const COMMAND_FILE: &str = include_str!("texts/rollback.toml");
const COMMAND_FILE_0_1: &str = include_str!("texts/0.1/rollback.toml");

pub(super) const READERS: &[&str] = &[
    "read_file",
    "read_many_files",
    "list_directory",
    "glob",
    "grep_search",
    "search_file_content",
    "web_fetch",
    "google_web_search",
    "web_search",
    "write_todos",
    "todo_write",
    "ask_user",
    "ask_user_question",
    "exit_plan_mode",
];

pub(super) static SPEC: Spec = Spec {
    name: "gemini",
    title: "Gemini CLI",
    programs: &["gemini"],
    // Gemini creates `.gemini` in the directory that the variable names.
    home: Some(Home { variable: Some("GEMINI_CLI_HOME"), default: "", dir: ".gemini" }),
    conversation: Some(conversation::SPEC),
    payload: PayloadSpec {
        evidence: |fields, _| match hook_event_name(fields) {
            "BeforeAgent" | "BeforeTool" | "AfterAgent" => Evidence::Name,
            _ => Evidence::No,
        },
        events: &[
            ("SessionStart", Meaning::SessionStart),
            ("BeforeAgent", Meaning::Prompt),
            ("BeforeTool", Meaning::Tool),
            ("AfterAgent", Meaning::TurnEnd),
            ("SessionEnd", Meaning::SessionEnd),
        ],
        // Other agents send this, too, but without a prompt event before it.
        is_continuation: |fields| *field(fields, &["stop_hook_active"]) == true,
        tells_turn_ends: true,
        ..PayloadSpec::DEFAULT
    },
    tools: ToolSpec { readers: READERS, shells: &["run_shell_command"] },
    version: VersionSpec { packages: &["@google/gemini-cli"], ..VersionSpec::DEFAULT },
    answers: AnswerSpec {
        context: Some(shared::additional_context),
        message_key: Some("systemMessage"),
        reply: Some(shared::block),
        ..AnswerSpec::DEFAULT
    },
    install: InstallSpec {
        events: &["SessionStart", "BeforeAgent", "BeforeTool", "AfterAgent", "SessionEnd"],
        project_dir: Some(".gemini"),
        // If the program were removed, its failure would block every prompt.
        fails_open: |_| true,
        handler,
        setup: |place| Setup {
            configs: vec![place.json_with_hooks("settings.json")],
            files: vec![OwnFile::command(place.dir.join("commands/rollback.toml"), COMMAND_FILE, &[COMMAND_FILE_0_1])],
            ..Setup::default()
        },
        todo: "start gemini where you work and trust the folder: it runs hooks in trusted folders only",
        asks_its_user: true,
        ..InstallSpec::DEFAULT
    },
    checks: CheckSpec {
        switched_off: |value| (value["hooksConfig"]["enabled"] == Value::Bool(false)).then_some("hooksConfig.enabled"),
        trust,
        ..CheckSpec::DEFAULT
    },
    guide: GuideFacts {
        tested: Some("0.61.0"),
        trust: "Hooks run in **trusted folders** only. Start `gemini` in your project and trust the folder.",
        restoring: "Gemini shows every answer of a hook as \"Agent execution blocked:\", with \"This request failed. Press F12 \
                    for diagnostics ...\" below it. Nothing failed.",
        notes: &[
            "Gemini sends the text of a command file to hooks, not the typed line. `commands/rollback.toml` consists of \
             `/rollback {{args}}` for that reason: do not change its `prompt`.",
            "If a hook of another program exits with code 2 at the end of a turn, Gemini continues with that hook's output \
             as a prompt. It is listed like a prompt of yours until that turn ends.",
            "The command in the configuration ends in `2>/dev/null || true`: Gemini would block every prompt if the \
             program were missing.",
        ],
        ..GuideFacts::DEFAULT
    },
    ..Spec::DEFAULT
};

/// Returns a handler with a name and a timeout in milliseconds.
pub(super) fn handler(event: &str, command: &str) -> Value {
    let handler = json!({"type": "command", "name": "piton", "command": command, "timeout": TIMEOUT_SECS * 1000});
    shared::group(event, ".*", &handler)
}

fn trust(input: &TrustInput<'_>) -> Trust {
    let settings = shared::read(&input.home.join("settings.json"), Format::Json);
    if settings["security"]["folderTrust"]["enabled"] == Value::Bool(false) {
        return Trust::Yes;
    }
    let folders = shared::read(&input.home.join("trustedFolders.json"), Format::Json);
    let mut known = Trust::Unknown;
    for (folder, word) in folders.as_object().into_iter().flatten() {
        let folder = Path::new(folder);
        match word.as_str() {
            Some("TRUST_FOLDER") if input.dir.starts_with(folder) => known = Trust::Yes,
            Some("TRUST_PARENT") if folder.parent().is_some_and(|parent| input.dir.starts_with(parent)) => {
                known = Trust::Yes;
            }
            Some("DO_NOT_TRUST") if input.dir == folder => {
                let what = "this folder is not trusted, and gemini runs no hooks in it".to_owned();
                return Trust::No(what, "trust it with /permissions in gemini, if you do");
            }
            _ => {}
        }
    }
    known
}
