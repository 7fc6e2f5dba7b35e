//! The scripted model: a server with the interfaces of the agents' models, which follows the script of a check.
//!
//! A check sets a prompt and the steps that answer it. The reply to a request is a function of the request alone: the
//! last message of the user that contains the prompt is found, and the number of tool results after it selects the
//! step. Every request is kept, in memory and as a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::http::{Reply, Request, Server};
use super::tools::{self, Say, Step, Tool};
use super::wire::{self, Api};

/// Part of a conversation that matters to a script.
pub(super) enum Event {
    User(String),
    ToolResult,
}

/// A prompt and its answer.
#[derive(Debug, Clone, Default)]
struct Script {
    prompt: String,
    steps: Vec<Step>,
    /// Final text of the turn; `None` if the model answers with an error.
    ending: Option<String>,
}

/// A request that reached the model.
#[derive(Debug, Clone)]
pub(super) struct Call {
    body: String,
}

impl Call {
    /// Returns true if a string of the request contains `words`.
    pub(super) fn holds(&self, words: &str) -> bool {
        let escaped = Value::from(words).to_string();
        self.body.contains(escaped.trim_matches('"'))
    }
}

#[derive(Default)]
struct State {
    script: Script,
    /// Answer to a subagent.
    subagent: Script,
    /// Text of the answer to all other requests, such as summaries.
    otherwise: Option<String>,
    calls: Vec<Call>,
    /// Number of all requests, including those that are not calls of the model.
    requests: usize,
}

impl State {
    /// Returns the script for a conversation: that of the subagent if its first message is the subagent's prompt.
    fn script_for(&self, events: &[Event]) -> &Script {
        let is_subagents = |event: &Event| match event {
            Event::User(text) => !self.subagent.prompt.is_empty() && text.contains(&self.subagent.prompt),
            Event::ToolResult => false,
        };
        if events.iter().any(is_subagents) { &self.subagent } else { &self.script }
    }
}

/// A running model; stopped when dropped.
pub(super) struct Model {
    server: Server,
    state: Arc<Mutex<State>>,
}

impl Model {
    /// Starts a model for one project. Requests are written to `log`. Calls whose last message begins with one of the
    /// texts in `background` are answered but not counted.
    pub(super) fn start(project: String, log: PathBuf, background: &'static [&'static str]) -> Result<Self> {
        fs::create_dir_all(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let server = Server::start(move |request| answer(request, &shared, &project, &log, background))?;
        Ok(Self { server, state })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    /// Sets the answer to `prompt`: the steps one after the other, then `ending`.
    pub(super) fn set_script(&self, prompt: &str, steps: Vec<Step>, ending: &str) {
        lock(&self.state).script = Script { prompt: prompt.to_owned(), steps, ending: Some(ending.to_owned()) };
    }

    /// Sets the answer to `prompt`: the steps one after the other, then an error.
    pub(super) fn set_failing_script(&self, prompt: &str, steps: Vec<Step>) {
        lock(&self.state).script = Script { prompt: prompt.to_owned(), steps, ending: None };
    }

    /// Sets the answer to the prompt of a subagent.
    pub(super) fn set_subagent(&self, prompt: &str, steps: Vec<Step>) {
        let ending = Some("The subagent is done.".to_owned());
        lock(&self.state).subagent = Script { prompt: prompt.to_owned(), steps, ending };
    }

    /// Sets the answer to requests that no script is about: without one, and with no other script, it is all that the
    /// model says.
    pub(super) fn answer_all_with(&self, text: &str) {
        let mut state = lock(&self.state);
        (state.script, state.otherwise) = (Script::default(), Some(text.to_owned()));
    }

    /// Returns the calls so far, oldest first.
    pub(super) fn calls(&self) -> Vec<Call> {
        lock(&self.state).calls.clone()
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.state).calls.len()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(request: &Request, state: &Mutex<State>, project: &str, log: &Path, background: &[&str]) -> Reply {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let api = if request.method == "POST" { Api::of(&request.target) } else { None };
    let mut held = lock(state);
    held.requests += 1;
    let number = held.requests;
    let reply = match api {
        Some(api) => {
            let (tools, events) = api.parse(&body);
            let is_background = is_of(&events, background);
            if !is_background {
                held.calls.push(Call { body: String::from_utf8_lossy(&request.body).into_owned() });
            }
            let script = if is_background { Script::default() } else { held.script_for(&events).clone() };
            let otherwise = held.otherwise.clone().unwrap_or_else(|| "All right.".to_owned());
            drop(held);
            let say = match api.schema(&body).filter(|_| !tools::are_usable(&tools)) {
                Some(schema) => Some(Say::Text(tools::any(&schema).to_string())),
                None => decide(&script, &tools, &events, project, otherwise),
            };
            say.map_or_else(wire::refusal, |say| api.reply(&request.target, &body, &say))
        }
        None => wire::stub(&request.method, &request.target),
    };
    let name = request.target.split('?').next().unwrap_or_default().replace(|c: char| !c.is_alphanumeric(), "_");
    let kept = json!({
        "method": request.method, "target": request.target, "body": body,
        "status": reply.status, "reply": String::from_utf8_lossy(&reply.body),
    });
    let _ = fs::write(log.join(format!("{number:03}{name:.60}.json")), format!("{kept:#}"));
    reply
}

/// Returns true if the last message of the user begins with one of these texts.
fn is_of(events: &[Event], background: &[&str]) -> bool {
    let last = events.iter().rev().find_map(|event| match event {
        Event::User(text) => Some(text),
        Event::ToolResult => None,
    });
    last.is_some_and(|text| background.iter().any(|words| text.starts_with(words)))
}

/// Returns the next output, which is `otherwise` if the script is not about this request; `None` if it is an error.
fn decide(script: &Script, tools: &[Tool], events: &[Event], project: &str, otherwise: String) -> Option<Say> {
    let is_prompt = |event: &Event| match event {
        Event::User(text) => text.contains(&script.prompt),
        Event::ToolResult => false,
    };
    let asked = if script.prompt.is_empty() { None } else { events.iter().rposition(is_prompt) };
    let (Some(asked), true) = (asked, tools::are_usable(tools)) else {
        return Some(Say::Text(otherwise));
    };
    let done = events[asked..].iter().filter(|event| matches!(event, Event::ToolResult)).count();
    let mut results = 0;
    let next = script.steps.iter().find(|step| {
        results += step.results();
        results > done
    });
    match next {
        Some(step) => Some(tools::call(step, tools, project)),
        None => script.ending.clone().map(Say::Text),
    }
}
