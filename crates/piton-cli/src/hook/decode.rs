//! Decodes the bytes that an agent sends into a typed event. Pure: reads no file and no environment.
//!
//! The payload decides which agent sent it, because agents also run the hooks that they find in the settings of other
//! agents. The name on the command line only decides between agents with the same payload. For the same reason, a value
//! that is not where the agent puts it is looked for where the others do.

use std::path::PathBuf;

use piton::RewindMark;
use serde_json::Value;

use super::salvage::Payload;
use super::tools;
use crate::agents::Agent;
use crate::agents::event::{EventKind, Evidence, Fields, HookEvent, KeyPath, Keys, Meaning, ToolChange, field};

/// Decodes an event. `named` and `event_named` come from the command line.
pub(crate) fn decode(named: Agent, event_named: Option<&str>, bytes: &[u8]) -> HookEvent {
    let Payload { fields, is_cut } = Payload::read(bytes);
    let fields = Sent { agent: speaker(named, &fields), fields: &fields, is_cut };
    let name = fields.event_name().or_else(|| event_named.map(str::to_owned));
    let name = name.or_else(|| fields.guessed().map(str::to_owned)).unwrap_or_default();
    let roots = fields.list(|keys| keys.roots).into_iter().flatten();
    let roots: Vec<PathBuf> =
        roots.filter_map(Value::as_str).map(PathBuf::from).filter(|root| root.is_absolute()).collect();
    let cwd = fields.text(|keys| keys.cwd).map(PathBuf::from);
    let stamp = fields.fields.get("timestamp").filter(|stamp| stamp.is_string() || stamp.is_number());
    HookEvent {
        kind: fields.kind(&name),
        session: fields.text(|keys| keys.session).map(cut),
        turn: fields.turn().map(cut),
        parent: fields.text(|keys| keys.parent).map(cut),
        cwd: cwd.filter(|cwd| cwd.is_absolute()).or_else(|| roots.first().cloned()),
        roots,
        mark: fields.mark(),
        version: fields.text(|keys| keys.version).map(cut),
        is_continuation: (fields.agent.payload.is_continuation)(fields.fields),
        has_running_subagents: fields.has_running_subagents(),
        stamp: stamp.map(|stamp| cut(&stamp.to_string())),
        agent: fields.agent,
        name,
    }
}

/// Returns the agent that sent a payload to the hook of `named`: the one with the best evidence, the first of several.
fn speaker(named: Agent, fields: &Fields) -> Agent {
    let (mut speaker, mut best) = (named, Evidence::No);
    for agent in Agent::all() {
        let evidence = (agent.payload.evidence)(fields, named.name);
        if evidence > best {
            (speaker, best) = (agent, evidence);
        }
    }
    speaker
}

fn cut(name: &str) -> String {
    piton::bounded_name(name)
}

/// Fields of a payload, and the agent that sent them.
struct Sent<'a> {
    agent: Agent,
    fields: &'a Fields,
    is_cut: bool,
}

impl<'a> Sent<'a> {
    /// Returns the places of a value: those of this agent, then those of the others.
    fn places(&self, pick: fn(&Keys) -> &'static [KeyPath]) -> impl Iterator<Item = KeyPath> {
        let all = std::iter::once(self.agent).chain(Agent::all());
        all.flat_map(move |agent| pick(&agent.payload.keys).iter().copied())
    }

    /// Returns the first text. An empty one counts as missing if it is nested.
    fn text(&self, pick: fn(&Keys) -> &'static [KeyPath]) -> Option<&'a str> {
        let text = |path: KeyPath| field(self.fields, path).as_str().filter(|text| path.len() == 1 || !text.is_empty());
        self.places(pick).find_map(text)
    }

    fn list(&self, pick: fn(&Keys) -> &'static [KeyPath]) -> Option<&'a Vec<Value>> {
        self.places(pick).find_map(|path| field(self.fields, path).as_array())
    }

    /// Returns true if there is a value that is not nested.
    fn has(&self, pick: fn(&Keys) -> &'static [KeyPath]) -> bool {
        self.places(pick).any(|path| path.len() == 1 && self.fields.contains_key(path[0]))
    }

    fn event_name(&self) -> Option<String> {
        self.fields.get((self.agent.payload.event_key)(self.fields))?.as_str().map(str::to_owned)
    }

    /// Guesses the name of an event from its other fields.
    fn guessed(&self) -> Option<&'static str> {
        if self.has(|keys| keys.tool) && !self.has(|keys| keys.result) {
            return Some("before_tool");
        }
        self.has(|keys| keys.prompt).then_some("prompt")
    }

    fn turn(&self) -> Option<&'a str> {
        let is_turn = (self.agent.payload.is_turn_of_prompt)(self.fields);
        self.text(|keys| keys.turn).filter(|turn| is_turn && !turn.is_empty())
    }

    /// Returns the position needed to cut the conversation before this prompt later.
    fn mark(&self) -> RewindMark {
        let transcript = self.text(|keys| keys.transcript).map(PathBuf::from);
        let users = |messages: &Vec<Value>| messages.iter().filter(|message| message["role"] == "user").count() as u64;
        let stamp = self.fields.get("timestamp").and_then(|stamp| match stamp {
            Value::String(text) => Some(cut(text)),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        });
        let mut mark = RewindMark::default();
        mark.transcript = transcript.filter(|path| path.is_absolute());
        mark.message = self.turn().map(cut);
        mark.ordinal = self.list(|keys| keys.messages).map(users);
        mark.stamp = stamp;
        mark
    }

    /// Returns true if a subagent sent the payload.
    fn is_of_subagent(&self) -> bool {
        ["agent_id", "agentId"].iter().any(|key| self.fields.contains_key(*key))
    }

    /// Returns true if subagents go on in the background. Other background tasks, such as a server, may never end.
    fn has_running_subagents(&self) -> bool {
        let mut tasks = self.fields.get("background_tasks").and_then(Value::as_array).into_iter().flatten();
        tasks.any(|task| task["status"] == "running" && task["type"] == "subagent")
    }

    fn kind(&self, name: &str) -> EventKind {
        let events = std::iter::once(self.agent).chain(Agent::all()).flat_map(|agent| agent.payload.events);
        let meaning = events.into_iter().find(|(event, _)| *event == name).map(|(_, meaning)| *meaning);
        match meaning {
            Some(Meaning::Prompt) => (self.agent.payload.prompt)(self.prompt()),
            Some(Meaning::Rollback) => EventKind::Prompt { text: format!("/rollback {}", self.prompt()) },
            Some(Meaning::SessionStart) => EventKind::SessionStart,
            Some(Meaning::TurnEnd) if self.is_of_subagent() => EventKind::Other,
            Some(Meaning::TurnEnd) => EventKind::TurnEnd,
            Some(Meaning::SessionEnd) => EventKind::SessionEnd,
            Some(meaning @ (Meaning::Tool | Meaning::ShellCommand | Meaning::ServerTool)) => self.before_tool(meaning),
            None if name.is_empty() => EventKind::Unreadable,
            None => EventKind::Other,
        }
    }

    fn prompt(&self) -> String {
        if let Some(prompt) = self.text(|keys| keys.prompt) {
            return prompt.to_owned();
        }
        let parts = self.list(|keys| keys.prompt_parts).into_iter().flatten();
        let texts = parts.filter_map(|part| part.get("text")?.as_str().filter(|text| !text.is_empty()));
        texts.collect::<Vec<_>>().join("\n")
    }

    fn before_tool(&self, meaning: Meaning) -> EventKind {
        let tool = self.text(|keys| keys.tool);
        let mut inputs = self.places(|keys| keys.input).map(|path| field(self.fields, path));
        let mut input = inputs.find(|input| !input.is_null()).cloned().unwrap_or_default();
        // Arguments may be JSON in a string.
        if let Some(parsed) = input.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            input = parsed;
        }
        let tool = match meaning {
            Meaning::ShellCommand => {
                input = Value::Object(self.fields.clone());
                "Shell"
            }
            Meaning::ServerTool => "mcp",
            _ => tool.unwrap_or("a tool"),
        };
        // The part that was cut off may name any file.
        let change = if self.is_cut { ToolChange::Files(Vec::new()) } else { tools::change(self.agent, tool, &input) };
        EventKind::BeforeTool { tool: cut(tool), change }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
