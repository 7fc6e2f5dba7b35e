//! Events as `hook` decodes them, and the vocabulary in which an agent's file describes its payloads.

use std::path::PathBuf;

use piton::RewindMark;
use serde_json::{Map, Value};

use super::Agent;

/// Fields of a payload.
pub(crate) type Fields = Map<String, Value>;
/// Keys that lead from the root of a payload to a value.
pub(crate) type KeyPath = &'static [&'static str];

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
    /// True at the end of a turn whose subagents go on in the background.
    pub(crate) has_running_subagents: bool,
    /// Position of the event in the agent's transcript.
    pub(crate) mark: RewindMark,
}

/// Decoded meaning of an event.
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

/// The files that a tool call may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolChange {
    /// Nothing: the tool only reads.
    Nothing,
    /// These files, as given in the arguments, and perhaps others around the directory in which the tool runs.
    Files(Vec<PathBuf>),
    /// Any file that a shell command changes. It runs in `dir` if the call names a directory.
    Command { line: String, dir: Option<PathBuf> },
}

/// Meaning of an event's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Prompt,
    /// A command of our own plugin in the agent: its prompt is the arguments of a rollback.
    Rollback,
    /// A tool is about to run.
    Tool,
    /// A shell command is about to run, whose arguments are fields of the payload itself.
    ShellCommand,
    /// A tool of one of the user's servers is about to run.
    ServerTool,
    SessionStart,
    TurnEnd,
    SessionEnd,
}

/// Strength of the evidence that a payload is from an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Evidence {
    No,
    /// The name of the event.
    Name,
    /// A field that only this agent sends.
    Field,
}

/// Places of values in a payload. The first one that exists counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    pub(crate) session: &'static [KeyPath],
    pub(crate) turn: &'static [KeyPath],
    pub(crate) parent: &'static [KeyPath],
    pub(crate) cwd: &'static [KeyPath],
    /// Lists of other directories.
    pub(crate) roots: &'static [KeyPath],
    pub(crate) version: &'static [KeyPath],
    pub(crate) prompt: &'static [KeyPath],
    /// Lists of parts of a prompt, each with a `text`.
    pub(crate) prompt_parts: &'static [KeyPath],
    /// Lists of the messages so far, including the prompt.
    pub(crate) messages: &'static [KeyPath],
    pub(crate) transcript: &'static [KeyPath],
    pub(crate) tool: &'static [KeyPath],
    pub(crate) input: &'static [KeyPath],
    /// Results of a tool, which only an event after the tool has.
    pub(crate) result: &'static [KeyPath],
}

impl Keys {
    /// The field names that most agents use.
    pub(super) const COMMON: Self = Self {
        session: &[&["session_id"]],
        turn: &[&["prompt_id"], &["turn_id"]],
        parent: &[],
        cwd: &[&["cwd"]],
        roots: &[],
        version: &[&["agent_version"]],
        prompt: &[&["prompt"]],
        prompt_parts: &[],
        messages: &[],
        transcript: &[&["transcript_path"]],
        tool: &[&["tool_name"]],
        input: &[&["tool_input"]],
        result: &[&["tool_result"], &["tool_response"]],
    };
}

/// Returns the value at a path; `Null` if there is none.
pub(crate) fn field<'a>(fields: &'a Fields, path: &[&str]) -> &'a Value {
    let Some((first, rest)) = path.split_first() else { return &Value::Null };
    rest.iter().fold(fields.get(*first).unwrap_or(&Value::Null), |value, name| &value[*name])
}

/// Returns the name of the event in the field that most agents use.
pub(super) fn hook_event_name(fields: &Fields) -> &str {
    fields.get("hook_event_name").and_then(Value::as_str).unwrap_or_default()
}
