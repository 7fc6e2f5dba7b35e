//! Decodes the bytes that an agent sends into a typed event. Pure: reads no file and no environment.
//!
//! The payload decides which agent sent it, because agents also run the hooks that they find in the settings of other
//! agents. The name on the command line only decides between agents with the same payload.

use std::path::PathBuf;

use piton::RewindMark;
use serde_json::{Map, Value};

use super::salvage::Payload;
use super::tools::{self, ToolChange};
use crate::agents::Agent;

/// Event with which the plugin in Hermes passes on the text typed after `/piton`.
pub(crate) const HERMES_COMMAND: &str = "piton_command";
/// Start of a prompt that Claude generates itself when a background task ends.
const TASK_NOTIFICATION: &str = "<task-notification>";

/// Event sent by an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookEvent {
    /// Agent that sent the event.
    pub(crate) agent: Agent,
    /// The agent's name for the event.
    pub(crate) name: String,
    pub(crate) kind: EventKind,
    pub(crate) session: Option<String>,
    /// The agent's name for the turn. `None` if it sends none, or if the name is not that of a prompt.
    pub(crate) turn: Option<String>,
    /// Session that started this one as a subagent.
    pub(crate) parent: Option<String>,
    /// The agent's current directory.
    pub(crate) cwd: Option<PathBuf>,
    /// Other directories that the agent works in.
    pub(crate) roots: Vec<PathBuf>,
    /// Timestamp that distinguishes two calls for one prompt from two prompts.
    pub(crate) stamp: Option<String>,
    /// The agent's version, if it sends one.
    pub(crate) version: Option<String>,
    /// True at the end of a turn that the agent began by itself, with the text of another program's hook as the prompt.
    pub(crate) is_continuation: bool,
    /// Position of the event in the agent's transcript.
    pub(crate) mark: RewindMark,
}

/// Meaning of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The user sent a prompt.
    Prompt { text: String },
    /// The agent continues its turn by itself, under a new name for it.
    Continuation,
    /// A tool is about to run.
    BeforeTool { tool: String, change: ToolChange },
    /// A session starts or is resumed.
    SessionStart,
    /// The agent has finished with a prompt.
    TurnEnd,
    /// A session ended.
    SessionEnd,
    /// Not relevant to piton.
    Other,
    /// The payload could not be understood.
    Unreadable,
}

/// Decodes an event. `named` and `event_named` come from the command line.
pub(crate) fn decode(named: Agent, event_named: Option<&str>, bytes: &[u8]) -> HookEvent {
    let Payload { fields, is_cut } = Payload::read(bytes);
    let agent = speaker(named, &fields);
    let name = event_name(agent, &fields).or_else(|| event_named.map(str::to_owned));
    let name = name.or_else(|| guessed(&fields).map(str::to_owned)).unwrap_or_default();
    let input = field(&fields, &["input"]);
    let opencode_session = || {
        let created = field(&fields, &["event", "properties"]);
        text(input, "sessionID").or_else(|| text(created, "sessionID")).or_else(|| text(&created["info"], "id"))
    };
    let session = ["parentAgentId", "session_id", "sessionId", "conversation_id"]
        .iter()
        .find_map(|key| fields.get(*key)?.as_str())
        .or_else(opencode_session);
    let roots = field(&fields, &["workspace_roots"]).as_array().into_iter().flatten();
    let roots: Vec<PathBuf> =
        roots.filter_map(Value::as_str).map(PathBuf::from).filter(|root| root.is_absolute()).collect();
    let cwd = ["cwd", "directory"].iter().find_map(|key| fields.get(*key)?.as_str()).map(PathBuf::from);
    let stamp = fields.get("timestamp").filter(|stamp| stamp.is_string() || stamp.is_number());
    HookEvent {
        kind: kind(agent, &name, &fields, is_cut),
        session: session.map(cut),
        turn: turn(agent, &fields).map(cut),
        parent: text(field(&fields, &["event", "properties", "info"]), "parentID").map(cut),
        cwd: cwd.filter(|cwd| cwd.is_absolute()).or_else(|| roots.first().cloned()),
        roots,
        mark: mark(agent, &fields),
        version: version(&fields).map(cut),
        // Other agents send this, too, but without a prompt event before it.
        is_continuation: agent == Agent::Gemini && field(&fields, &["stop_hook_active"]) == true,
        stamp: stamp.map(|stamp| cut(&stamp.to_string())),
        agent,
        name,
    }
}

fn version(fields: &Map<String, Value>) -> Option<&str> {
    let own = ["agent_version", "cursor_version"].iter().find_map(|key| fields.get(*key)?.as_str());
    // Sent by opencode for a new session.
    own.or_else(|| text(field(fields, &["event", "properties", "info"]), "version"))
}

fn field<'a>(fields: &'a Map<String, Value>, path: &[&str]) -> &'a Value {
    let (first, rest) = path.split_first().expect("a path has a first name");
    rest.iter().fold(fields.get(*first).unwrap_or(&Value::Null), |value, name| &value[*name])
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str().filter(|text| !text.is_empty())
}

fn cut(name: &str) -> String {
    piton::bounded_name(name)
}

fn speaker(named: Agent, fields: &Map<String, Value>) -> Agent {
    let has = |key: &str| fields.contains_key(key);
    let name = fields.get("hook_event_name").and_then(Value::as_str).unwrap_or_default();
    if has("cursor_version") || (has("conversation_id") && has("generation_id")) {
        return Agent::Cursor;
    }
    if has("sessionId") && !has("session_id") {
        return Agent::Copilot;
    }
    match name {
        "BeforeAgent" | "BeforeTool" | "AfterAgent" => Agent::Gemini,
        "pre_llm_call"
        | "pre_tool_call"
        | "on_session_start"
        | "post_llm_call"
        | "on_session_finalize"
        | HERMES_COMMAND => Agent::Hermes,
        "chat.message" | "tool.execute.before" | "event:session.created" | "event:session.idle" => Agent::Opencode,
        "" if named != Agent::Plain && fields.get("event").is_some_and(Value::is_string) => Agent::Crush,
        // Copilot sends the same payload as Claude to hooks that it finds in Claude's settings, except for the
        // transcript.
        "UserPromptSubmit" | "PreToolUse" | "SessionStart" | "Stop" | "SessionEnd"
            if named == Agent::Claude && has("timestamp") && !has("transcript_path") =>
        {
            Agent::Copilot
        }
        _ => named,
    }
}

fn event_name(agent: Agent, fields: &Map<String, Value>) -> Option<String> {
    let key = match agent {
        Agent::Crush => "event",
        Agent::Plain if !fields.contains_key("hook_event_name") => "event",
        Agent::Copilot if fields.contains_key("hookName") => "hookName",
        _ => "hook_event_name",
    };
    fields.get(key)?.as_str().map(str::to_owned)
}

/// Guesses the name of an event from its other fields.
fn guessed(fields: &Map<String, Value>) -> Option<&'static str> {
    let has = |key: &str| fields.contains_key(key);
    let is_over = has("toolResult") || has("tool_result") || has("tool_response");
    match () {
        () if (has("toolName") || has("tool_name")) && !is_over => Some("before_tool"),
        () if has("prompt") => Some("prompt"),
        () => None,
    }
}

fn turn(agent: Agent, fields: &Map<String, Value>) -> Option<&str> {
    // A subagent of Codex has its own turns within that of the user's prompt.
    if agent == Agent::Codex && fields.contains_key("agent_id") {
        return None;
    }
    let keys = ["prompt_id", "turn_id", "generation_id"];
    let own = keys.iter().find_map(|key| fields.get(*key)?.as_str());
    let turn = own.or_else(|| text(field(fields, &["extra"]), "turn_id"));
    turn.or_else(|| text(field(fields, &["output", "message"]), "id")).filter(|turn| !turn.is_empty())
}

/// Returns the position needed to cut the conversation before this prompt later.
fn mark(agent: Agent, fields: &Map<String, Value>) -> RewindMark {
    let transcript = fields.get("transcript_path").and_then(Value::as_str).map(PathBuf::from);
    // A prompt of Hermes contains all messages so far, including its own.
    let messages = field(fields, &["extra", "conversation_history"]).as_array();
    let users = |messages: &Vec<Value>| messages.iter().filter(|message| message["role"] == "user").count() as u64;
    let stamp = fields.get("timestamp").and_then(|stamp| match stamp {
        Value::String(text) => Some(cut(text)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    });
    RewindMark {
        transcript: transcript.filter(|path| path.is_absolute()),
        transcript_bytes: None,
        message: turn(agent, fields).map(cut),
        ordinal: messages.map(users),
        stamp,
    }
}

fn kind(agent: Agent, name: &str, fields: &Map<String, Value>, is_cut: bool) -> EventKind {
    match name {
        "UserPromptSubmit"
        | "BeforeAgent"
        | "userPromptSubmitted"
        | "pre_llm_call"
        | "chat.message"
        | "beforeSubmitPrompt"
        | "prompt" => match prompt(fields) {
            // Qwen sends the event again after each tool, with an empty prompt.
            text if agent == Agent::Qwen && text.is_empty() => EventKind::Other,
            text if agent == Agent::Claude && text.trim_start().starts_with(TASK_NOTIFICATION) => {
                EventKind::Continuation
            }
            text => EventKind::Prompt { text },
        },
        HERMES_COMMAND => EventKind::Prompt { text: format!("/rollback {}", prompt(fields)) },
        "PreToolUse"
        | "BeforeTool"
        | "preToolUse"
        | "pre_tool_call"
        | "tool.execute.before"
        | "beforeShellExecution"
        | "beforeMCPExecution"
        | "before_tool" => before_tool(agent, name, fields, is_cut),
        "SessionStart" | "sessionStart" | "on_session_start" | "event:session.created" | "session_start" => {
            EventKind::SessionStart
        }
        // The end of a subagent's work has other event names, or carries the subagent's id.
        "Stop" | "StopFailure" | "AfterAgent" | "agentStop" | "post_llm_call" | "event:session.idle" | "stop"
        | "turn_end" => EventKind::TurnEnd,
        "SessionEnd" | "sessionEnd" | "on_session_finalize" | "event:session.deleted" | "session_end" => {
            EventKind::SessionEnd
        }
        "" => EventKind::Unreadable,
        _ => EventKind::Other,
    }
}

fn prompt(fields: &Map<String, Value>) -> String {
    let own = fields.get("prompt").and_then(Value::as_str);
    if let Some(prompt) = own.or_else(|| text(field(fields, &["extra"]), "user_message")) {
        return prompt.to_owned();
    }
    let parts = field(fields, &["output", "parts"]).as_array().into_iter().flatten();
    parts.filter_map(|part| text(part, "text")).collect::<Vec<_>>().join("\n")
}

fn before_tool(agent: Agent, name: &str, fields: &Map<String, Value>, is_cut: bool) -> EventKind {
    let tool = ["tool_name", "toolName"].iter().find_map(|key| fields.get(*key)?.as_str());
    let tool = tool.or_else(|| text(field(fields, &["input"]), "tool"));
    let given = ["tool_input", "toolArgs"].iter().find_map(|key| fields.get(*key));
    let mut input = given.unwrap_or_else(|| field(fields, &["output", "args"])).clone();
    // Arguments may be JSON in a string.
    if let Some(parsed) = input.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        input = parsed;
    }
    let tool = match name {
        "beforeShellExecution" => {
            input = Value::Object(fields.clone());
            "Shell"
        }
        "beforeMCPExecution" => "mcp",
        _ => tool.unwrap_or("a tool"),
    };
    // The part that was cut off may name any file.
    let change = if is_cut { ToolChange::Files(Vec::new()) } else { tools::change(agent, tool, &input) };
    EventKind::BeforeTool { tool: cut(tool), change }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
