//! Simulating an agent: events in, answers out.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::Value;
use testkit::Sandbox;

use crate::kit::{Ran, in_dir, piton, spawn_piped};

/// Every agent with captured payloads, and its name on the command line.
pub(crate) const CAPTURED: [(&str, &str); 10] = [
    ("claude", "claude"),
    ("codex", "codex"),
    ("gemini", "gemini"),
    ("qwen", "qwen"),
    ("copilot", "copilot"),
    ("copilot-pascal", "copilot"),
    ("hermes", "hermes"),
    ("opencode", "opencode"),
    ("cursor", "cursor"),
    ("crush", "crush"),
];

/// Returns the captured events of one agent in order: the event's name, and its payload adapted to this sandbox.
pub(crate) fn captured(sandbox: &Sandbox, agent: &str) -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data/hooks").join(agent);
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).expect("payloads").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let project = sandbox.project().to_str().expect("UTF-8").to_owned();
    let home = sandbox.home().to_str().expect("UTF-8").to_owned();
    let read = |path: &PathBuf| {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("UTF-8");
        let event = name.split_once('-').expect("a number and a name").1.to_owned();
        let text = fs::read_to_string(path).expect("a payload");
        (event, text.replace("/home/u/p", &project).replace("/home/u", &home))
    };
    files.iter().map(read).collect()
}

/// Returns `piton hook` with these arguments, enabled. Its deadline is as long as a hook may have; tests of the
/// deadline set another one.
pub(crate) fn hook_command(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = in_dir(sandbox, &sandbox.root());
    command.arg("hook").args(args).env("PITON_ENABLED", "true").env("PITON_DEADLINE_MS", "10000");
    command
}

/// Starts the command and sends the payload to its stdin.
pub(crate) fn start(command: &mut Command, sent: &[u8]) -> Child {
    let mut child = spawn_piped(command);
    child.stdin.take().expect("a pipe").write_all(sent).expect("it reads all that is sent");
    child
}

/// Sends an event and returns the answer.
pub(crate) fn send(command: &mut Command, sent: impl AsRef<[u8]>) -> Ran {
    start(command, sent.as_ref()).wait_with_output().expect("it ends").into()
}

/// Sends an event, asserts exit code 0 and an empty stderr, and returns stdout.
#[track_caller]
pub(crate) fn hook(sandbox: &Sandbox, args: &[&str], sent: impl AsRef<[u8]>) -> String {
    let ran = send(&mut hook_command(sandbox, args), sent);
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
    ran.stdout
}

/// Returns a payload in the format of Claude, Codex and Qwen.
pub(crate) fn event(sandbox: &Sandbox, session: &str, turn: &str, name: &str, more: &Value) -> String {
    let mut event = serde_json::json!({
        "session_id": session, "prompt_id": turn, "transcript_path": "/t", "cwd": sandbox.project(), "hook_event_name": name,
    });
    let fields = event.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    event.to_string()
}

/// Returns the event for a prompt that the user submits to Claude.
pub(crate) fn prompt(sandbox: &Sandbox, session: &str, turn: &str, text: &str) -> String {
    event(sandbox, session, turn, "UserPromptSubmit", &serde_json::json!({"prompt": text}))
}

/// Returns the event for a command that Claude is about to run.
pub(crate) fn bash(sandbox: &Sandbox, session: &str, turn: &str, line: &str) -> String {
    let more = serde_json::json!({"tool_name": "Bash", "tool_input": {"command": line}});
    event(sandbox, session, turn, "PreToolUse", &more)
}

/// Returns these keys of the project's checkpoints, oldest first.
#[track_caller]
pub(crate) fn checkpoints(sandbox: &Sandbox, keys: &[&str]) -> Vec<Vec<String>> {
    checkpoints_of(sandbox, &sandbox.project(), keys)
}

/// Like [`checkpoints`], for any directory.
#[track_caller]
pub(crate) fn checkpoints_of(sandbox: &Sandbox, dir: &Path, keys: &[&str]) -> Vec<Vec<String>> {
    let list = piton(sandbox, ["-C", dir.to_str().expect("UTF-8"), "rollback", "--json"]).done().json();
    let shown = |one: &Value| keys.iter().map(|key| one[*key].as_str().unwrap_or("-").to_owned()).collect();
    list.as_array().expect("a list").iter().rev().map(shown).collect()
}

/// Returns the content of the journal, from any of its locations.
pub(crate) fn journal(sandbox: &Sandbox) -> String {
    let places = [sandbox.base(), sandbox.home().join(".local/state/piton"), sandbox.root().join("tmp/piton-0")];
    places.iter().filter_map(|dir| fs::read_to_string(dir.join("piton.log")).ok()).collect()
}
