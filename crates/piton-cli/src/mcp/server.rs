//! Answers the messages of a client.

use std::collections::HashMap;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton::Progress;
use serde_json::{Map, Value, json};

use super::ask::{PersonAnswer, Questions};
use super::tools::{Effect, TOOLS, Tool};
use crate::options::Global;
use crate::output::Failure;
use crate::progress;
use crate::request::Request;
use crate::rpc::methods;
use crate::rpc::params::{self, DIRECTORY};
use crate::rpc::pool::Pool;
use crate::rpc::serve::{Run, notify_meanwhile, panicked, run_method};
use crate::rpc::wire::{self, LINE_BYTES_MAX, Message, Wire, code};
use crate::shell::quote_bytes;

/// Versions of the protocol, newest first.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", VERSION_WITH_BATCHES, "2024-11-05"];
/// The only version in which a server must accept batches. The next one removed them.
const VERSION_WITH_BATCHES: &str = "2025-03-26";
/// Interval at which the client is looked for while the last calls are worked on.
const CLIENT_POLL: Duration = Duration::from_millis(100);
/// Maximum number of questions about one call: a second one if the plan has changed meanwhile.
const QUESTIONS_PER_CALL_MAX: usize = 2;
/// Number of paths that a question names.
const PATHS_MAX: usize = 12;

const INSTRUCTIONS: &str = "Checkpoints of the working directory, which undo what an agent did. Take one before a risky change. \
Paths are relative to the root of the project. Restoring is up to the user: give them the plan.";

/// Answers a client until stdin ends.
pub(crate) fn serve(global: &Global, run: Run) -> ExitCode {
    // stderr is for the user of the client; a panic is in the answer.
    std::panic::set_hook(Box::new(|_| {}));
    let server = Arc::new(McpServer {
        wire: Wire::default(),
        running: Mutex::default(),
        questions: Questions::open(),
        can_ask: AtomicBool::new(false),
        takes_batches: AtomicBool::new(false),
        global: global.clone(),
        run,
    });
    let pool = Pool::default();
    wire::read_messages(|message| match message {
        Some(message) => server.receive(message, &pool),
        None => server.refuse(&Value::Null, code::REQUEST, format!("a message has more than {LINE_BYTES_MAX} bytes")),
    });
    server.questions.close();
    pool.finish(CLIENT_POLL, || {
        if server.wire.is_gone() {
            server.running().values().for_each(|request| request.cancel());
        }
    });
    ExitCode::SUCCESS
}

struct McpServer {
    wire: Wire,
    /// Calls without an answer, by id.
    running: Mutex<HashMap<String, Arc<Request>>>,
    questions: Questions,
    /// True if the client can ask a person.
    can_ask: AtomicBool,
    /// True if the version of the protocol has batches.
    takes_batches: AtomicBool,
    global: Global,
    run: Run,
}

impl McpServer {
    fn running(&self) -> MutexGuard<'_, HashMap<String, Arc<Request>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, id: &Value, code: i32, why: String) {
        self.wire.fail(id, code, &Failure::new("usage", why, None));
    }

    /// Answers a line. The messages of a batch are answered one by one, each in a line of its own.
    fn receive(self: &Arc<Self>, line: &[u8], pool: &Pool) {
        if self.takes_batches.load(Ordering::SeqCst)
            && line.trim_ascii_start().starts_with(b"[")
            && let Ok(batch) = serde_json::from_slice::<Vec<Value>>(line)
            && !batch.is_empty()
        {
            return batch.iter().for_each(|message| self.receive_one(message.to_string().as_bytes(), pool));
        }
        self.receive_one(line, pool);
    }

    fn receive_one(self: &Arc<Self>, line: &[u8], pool: &Pool) {
        match wire::parse(line) {
            Err((id, code, why)) => self.refuse(&id, code, format!("cannot read the message: {why}")),
            Ok(Message::Response { id, result }) => self.questions.answer(&id, result),
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                let request = params.get("requestId").and_then(|id| self.running().get(&id.to_string()).cloned());
                request.iter().for_each(|request| request.cancel());
            }
            Ok(Message::Notification { .. } | Message::InvalidNotification) => {}
            Ok(Message::Request { id, method, params }) => match method.as_str() {
                "initialize" => self.wire.answer(&id, &self.initialize(&params).to_string()),
                "ping" => self.wire.answer(&id, "{}"),
                "tools/list" => {
                    let tools: Vec<_> = TOOLS.iter().filter(|tool| self.offers(tool)).map(Tool::described).collect();
                    self.wire.answer(&id, &json!({"tools": tools}).to_string());
                }
                "tools/call" => self.submit(pool, line.len(), &id, params),
                other => self.refuse(&id, code::METHOD, format!("there is no method `{other}`")),
            },
        }
    }

    fn initialize(&self, params: &Map<String, Value>) -> Value {
        let wanted = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let version = VERSIONS.into_iter().find(|version| *version == wanted).unwrap_or(VERSIONS[0]);
        self.takes_batches.store(version == VERSION_WITH_BATCHES, Ordering::SeqCst);
        let elicitation = params.get("capabilities").and_then(|all| all.get("elicitation"));
        // A client that opens pages only, and shows no forms, says so.
        let shows_forms = |kinds: &Value| kinds.get("url").is_none() || kinds.get("form").is_some();
        self.can_ask.store(elicitation.is_some_and(|kinds| kinds.is_object() && shows_forms(kinds)), Ordering::SeqCst);
        json!({
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": false}},
            "serverInfo": {"name": "piton", "version": env!("CARGO_PKG_VERSION")},
            "instructions": INSTRUCTIONS,
        })
    }

    /// Returns true if the client gets a tool: `restore` only if a person can be asked.
    fn offers(&self, tool: &Tool) -> bool {
        tool.effect != Effect::Restore || self.can_ask.load(Ordering::SeqCst)
    }

    /// Has a call answered on another thread. `bytes` is the size of its message.
    fn submit(self: &Arc<Self>, pool: &Pool, bytes: usize, id: &Value, mut params: Map<String, Value>) {
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
        let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
            return self.refuse(id, code::PARAMS, format!("there is no tool `{name}`"));
        };
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return self.refuse(id, code::PARAMS, "`arguments` must be an object".to_owned()),
        };
        let token = params.get("_meta").and_then(|meta| meta.get("progressToken")).cloned();
        let (key, request) = (id.to_string(), Arc::new(Request::default()));
        let mut running = self.running();
        if running.contains_key(&key) {
            drop(running);
            return self.refuse(id, code::REQUEST, format!("the id {key} is in use"));
        }
        running.insert(key.clone(), Arc::clone(&request));
        drop(running);
        let (server, own, done) = (Arc::clone(self), id.clone(), key.clone());
        let job = move || {
            let call = || server.call(tool, arguments, &request);
            let result = catch_unwind(AssertUnwindSafe(|| match &token {
                Some(token) => server.notify_meanwhile(token, &request, call),
                None => call(),
            }));
            server.running().remove(&done);
            let result = result.unwrap_or_else(|panic| Err(panicked(&*panic)));
            // The client does not wait for the answer of a call that it cancelled.
            if !request.is_cancelled() {
                let mut result = result.unwrap_or_else(|failure| said(&in_words(&failure), true));
                let warnings = request.take_warnings().into_iter();
                if let Some(content) = result["content"].as_array_mut() {
                    content.extend(warnings.map(|text| text_item(&format!("warning: {text}"))));
                }
                server.wire.answer(&own, &result.to_string());
            }
        };
        if !pool.submit(Box::new(job), bytes) {
            self.running().remove(&key);
            self.refuse(id, code::FAILED, "too many calls are waiting".to_owned());
        }
    }

    /// Sends the progress of a call, by the token that the client gave with it. The number only counts the messages:
    /// a call may do several things, one after the other.
    fn notify_meanwhile<T>(&self, token: &Value, request: &Request, call: impl FnOnce() -> T) -> T {
        let sent = AtomicU64::new(0);
        let describe = |progress: &Progress, is_about_store| json!(progress::in_words(progress, is_about_store));
        let notify = |message: &Value| {
            let number = sent.fetch_add(1, Ordering::Relaxed) + 1;
            let params = json!({"progressToken": token, "progress": number, "message": message});
            self.wire.notify("notifications/progress", &params);
        };
        notify_meanwhile(request, describe, notify, call)
    }

    /// Returns the result of a call.
    fn call(&self, tool: &Tool, arguments: Map<String, Value>, request: &Arc<Request>) -> Result<Value, Failure> {
        let params = tool.parameters(arguments).map_err(|why| Failure::new("usage", why, None))?;
        if tool.effect == Effect::None {
            return self.run(tool, params, request).map(|report| structured(&report));
        }
        let mut plan = self.plan(tool, &params, request)?;
        if tool.effect == Effect::Plan || !self.offers(tool) {
            return Ok(planned(&plan, &params, "Nothing was changed."));
        }
        // By its id: the number may be another checkpoint's by now.
        let mut agreed = params.clone();
        agreed.insert("checkpoint".to_owned(), plan["id"].clone());
        for _ in 0..QUESTIONS_PER_CALL_MAX {
            if plan["outcome"] == "nothing_to_do" {
                return Ok(planned(&plan, &params, "Nothing was changed."));
            }
            match self.questions.ask(&question(&plan, &params), &self.wire, request) {
                PersonAnswer::Yes => {}
                PersonAnswer::No => return Ok(said("The user did not agree. Nothing was changed.", false)),
                PersonAnswer::NotAsked => {
                    let why = "Nothing was changed: the user has not answered earlier questions yet.";
                    return Ok(planned(&plan, &params, why));
                }
            }
            // The person agreed to the plan as it was shown, and may have gone on working meanwhile.
            let current = self.plan(tool, &agreed, request)?;
            if current == plan {
                return self.run(tool, agreed, request).map(|report| structured(&report));
            }
            plan = current;
        }
        Ok(planned(&plan, &params, "Nothing was changed: the files changed while the user was asked."))
    }

    /// Returns what a call would do. Changes nothing.
    fn plan(&self, tool: &Tool, params: &Map<String, Value>, request: &Arc<Request>) -> Result<Value, Failure> {
        let mut dry = params.clone();
        dry.insert("dry_run".to_owned(), json!(true));
        self.run(tool, dry, request)
    }

    /// Runs the method of a tool, and returns its report.
    fn run(&self, tool: &Tool, params: Map<String, Value>, request: &Arc<Request>) -> Result<Value, Failure> {
        // The advice is about methods, which the client does not know: it has the schema of the tool.
        let parsed = params::parse(&methods::all()[tool.method], params);
        let parsed = parsed.map_err(|failure| Failure { hint: None, ..failure })?;
        let report = run_method(parsed, request, &self.global, self.run).map_err(|(_, failure)| failure)?;
        serde_json::from_str(&report).map_err(|error| Failure::new("other", error.to_string(), None))
    }
}

fn text_item(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn said(text: &str, is_error: bool) -> Value {
    json!({"content": [text_item(text)], "isError": is_error})
}

/// Returns a report as text and as data. Data is an object in this protocol.
fn structured(report: &Value) -> Value {
    let data = if report.is_object() { report.clone() } else { json!({"items": report}) };
    json!({"content": [text_item(&report.to_string())], "structuredContent": data, "isError": false})
}

/// Returns a plan that is not carried out, why, and the command that does it.
fn planned(plan: &Value, params: &Map<String, Value>, why: &str) -> Value {
    let command = command_for(plan, params);
    let text = format!("{why} The user can restore by typing: {command}");
    let mut result = structured(&json!({"plan": plan, "command": command}));
    result["content"].as_array_mut().into_iter().for_each(|content| content.push(text_item(&text)));
    result
}

fn in_words(failure: &Failure) -> String {
    let hint = failure.hint.as_ref().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
    format!("{}{hint}", failure.message)
}

/// Returns the command that carries out exactly a plan, in one line. The parameters are those of the plan, so that they
/// are known to be valid.
fn command_for(plan: &Value, params: &Map<String, Value>) -> String {
    let mut params = params.clone();
    let mut named = |name: &str, is_list: bool| params::paths_of(&mut params, name, is_list).unwrap_or_default();
    let words = |paths: &[OsString]| -> String {
        paths.iter().map(|path| format!(" {}", quote_bytes(path.as_encoded_bytes()))).collect()
    };
    let dir = named(DIRECTORY, false).first().map(|dir| {
        let here = std::env::current_dir().unwrap_or_default();
        format!(" -C{}", words(&[here.join(dir).into_os_string()]))
    });
    let id: String = plan["id"].as_str().unwrap_or_default().chars().take(12).collect();
    // After `--`, no path is taken for an option.
    let paths = Some(words(&named("paths", true))).filter(|paths| !paths.is_empty()).map(|paths| format!(" --{paths}"));
    format!("piton{} restore {id}{}", dir.unwrap_or_default(), paths.unwrap_or_default())
}

/// Returns everything that a plan does to files and directories, a line for each.
fn changes(plan: &Value) -> Vec<String> {
    let all = |key: &str| plan[key].as_array().cloned().unwrap_or_default();
    let name = |value: &Value| crate::output::plain(value.as_str().unwrap_or_default());
    let lines =
        |verb: &'static str, key: &str| all(key).into_iter().map(move |path| format!("  {verb} {}", name(&path)));
    let modes =
        all("mode").into_iter().map(|one| format!("  set mode {} of {}", name(&one["mode"]), name(&one["path"])));
    let asides =
        all("moved_aside").into_iter().map(|one| format!("  rename {} to {}", name(&one["path"]), name(&one["name"])));
    let removed = lines("remove", "remove").chain(lines("remove the directory", "drop_dirs")).chain(asides);
    removed.chain(lines("write", "write")).chain(modes).chain(lines("make the directory", "make_dirs")).collect()
}

/// Returns the question about a plan.
fn question(plan: &Value, params: &Map<String, Value>) -> String {
    let count = |key: &str| plan[key].as_array().map_or(0, Vec::len);
    let modes = match count("mode") {
        0 => String::new(),
        modes => format!(", {modes} to get other permissions"),
    };
    let all = changes(plan);
    let more = (all.len() > PATHS_MAX).then(|| format!("  ... and {} more", all.len() - PATHS_MAX));
    let lines: Vec<String> = all.into_iter().take(PATHS_MAX).chain(more).collect();
    format!(
        "An agent wants to restore files. {} to write, {} to remove{modes}:\n{}\nWhat is there now is saved first; `piton undo` \
         brings it back. Without the agent: {}",
        crate::columns::counted(count("write"), "file"),
        count("remove"),
        lines.join("\n"),
        command_for(plan, params)
    )
}
