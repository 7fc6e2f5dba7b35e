//! The method `event`: what an agent does, as its hook would report it.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::agents::Agent;
use crate::hook::{Call, dir_of, respond_to};
use crate::options::Global;
use crate::output::Failure;

/// An event of an agent, as `piton hook` reads it from stdin.
pub(super) struct AgentEvent {
    agent: Agent,
    payload: Vec<u8>,
}

impl AgentEvent {
    /// Parses the parameters of `event`. Fails with `usage` if one is unknown, missing or of the wrong type, if a `plain`
    /// event has a name that does not exist, and if the agent's directory does not exist: its checkpoint would be that
    /// of another directory.
    pub(super) fn parse(mut params: Map<String, Value>) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::new("usage", format!("cannot run `event`: {what}"), None);
        let agent = match params.remove("agent") {
            None | Some(Value::Null) => Agent::PLAIN,
            Some(Value::String(name)) => Agent::parse(&name).ok_or_else(|| wrong("there is no such agent"))?,
            Some(_) => return Err(wrong("`agent` must be a text")),
        };
        let payload = match params.remove("payload") {
            Some(Value::Object(payload)) if params.is_empty() => payload,
            Some(Value::Object(_)) => return Err(wrong("it takes `agent` and `payload` only")),
            _ => return Err(wrong("`payload` must be an object")),
        };
        if agent == Agent::PLAIN {
            check_name(&payload).map_err(|what| wrong(&what))?;
        }
        let cwd = payload.get("cwd").and_then(Value::as_str).map(PathBuf::from).filter(|cwd| cwd.is_absolute());
        let payload = Value::Object(payload).to_string().into_bytes();
        // Other agents may have another name for it.
        let dir = if agent == Agent::PLAIN { cwd } else { dir_of(agent, &payload) };
        match dir {
            Some(dir) if dir.is_dir() => Ok(Self { agent, payload }),
            Some(dir) => Err(wrong(&format!("there is no directory {}", dir.display()))),
            None => Err(wrong("`cwd` in `payload` must be the absolute path of a directory")),
        }
    }

    /// Acts on the event, and returns the report. A program that sends events wants checkpoints: they are switched on.
    pub(super) fn report(&self, global: &Global) -> String {
        let global = Global { checkpoints: true, request: None, ..global.clone() };
        let (agent, global) = (self.agent, &global);
        let call = Call { agent, event: None, global, fail_closed: false, wants_proof: true, complaint: None };
        let reply = respond_to(&call, &self.payload);
        json!({"protected": reply.missed.is_none(), "missed": reply.missed, "answer": reply.stdout}).to_string()
    }
}

/// Fails if the name of a `plain` event is missing or unknown: no checkpoint would be taken for it.
fn check_name(payload: &Map<String, Value>) -> Result<(), String> {
    let spec = &Agent::PLAIN.payload;
    let key = (spec.event_key)(payload);
    let name = payload.get(key).and_then(Value::as_str);
    if name.is_some_and(|name| spec.events.iter().any(|(known, _)| *known == name)) {
        return Ok(());
    }
    let known: Vec<_> = spec.events.iter().map(|(known, _)| format!("`{known}`")).collect();
    Err(format!("`{key}` in `payload` must be one of {}", known.join(", ")))
}
