//! `piton serve`: reads requests, has each answered on a thread of its own, and writes the answers.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use piton::Progress;
use serde_json::{Map, Value, json};

use super::contract;
use super::methods::{self, Method};
use super::params::{self, Parsed};
use super::pool::{Pool, WAITING_MAX, WORKERS_MAX};
use super::wire::{self, LINE_BYTES_MAX, Message, PROTOCOL, Wire, code};
use crate::agents::Agent;
use crate::cli::Command;
use crate::hook::{Call, respond_to};
use crate::options::Global;
use crate::output::{Failure, Output};
use crate::progress;
use crate::request::Request;

/// Interval between notifications of the progress of a request.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Interval at which the client is looked for while the last requests are worked on.
const CLIENT_POLL: Duration = Duration::from_millis(100);

/// Runs one command. The output is that of a request.
pub(crate) type Run = fn(&Command, &Global, &Output) -> anyhow::Result<()>;

/// Answers requests until stdin ends. Fails if the client was gone before all of them were answered.
pub(crate) fn serve(global: &Global, run: Run) -> ExitCode {
    // stderr is for the user of the client; a panic is in the answer.
    std::panic::set_hook(Box::new(|_| {}));
    let server =
        RpcServer { inner: Arc::new(ServerState { wire: Wire::default(), running: Mutex::default(), run }), global };
    let pool = Pool::default();
    wire::read_messages(|message| match message {
        Some(message) => server.receive(message, &pool),
        None => {
            let why = format!("cannot read a message of more than {LINE_BYTES_MAX} bytes");
            server.inner.wire.fail(&Value::Null, code::REQUEST, &Failure::new("usage", why, None));
        }
    });
    let (inner, mut cancelled) = (&server.inner, 0);
    pool.finish(CLIENT_POLL, || {
        if inner.wire.is_gone() {
            inner.running().values().for_each(|request| request.cancel());
            cancelled += inner.running().len();
        }
    });
    if cancelled == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct RpcServer<'a> {
    inner: Arc<ServerState>,
    global: &'a Global,
}

/// State that the threads share.
struct ServerState {
    wire: Wire,
    /// Requests without an answer, by id.
    running: Mutex<HashMap<String, Arc<Request>>>,
    run: Run,
}

impl ServerState {
    fn running(&self) -> MutexGuard<'_, HashMap<String, Arc<Request>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RpcServer<'_> {
    fn receive(&self, line: &[u8], pool: &Pool) {
        let wire = &self.inner.wire;
        let refuse = |id: &Value, code, why: String| wire.fail(id, code, &Failure::new("usage", why, None));
        match wire::parse(line) {
            Err((id, code, why)) => refuse(&id, code, format!("cannot read the message: {why}")),
            Ok(Message::Notification { method, params }) if method == "$/cancelRequest" => {
                if let Some(request) =
                    params.get("id").and_then(|id| self.inner.running().get(&id.to_string()).cloned())
                {
                    request.cancel();
                }
            }
            // Unknown notifications may come from later versions; answers have no request here.
            Ok(Message::Notification { .. } | Message::Response { .. }) => {}
            Ok(Message::Request { id, method, params }) => match method.as_str() {
                "initialize" => match initialize(&params, self.global) {
                    Ok(result) => wire.answer(&id, &result.to_string()),
                    Err(failure) => wire.fail(&id, code::PARAMS, &failure),
                },
                "rpc.discover" => wire.answer(&id, &contract::document().to_string()),
                "event" => match event_of(params) {
                    Ok(event) => self.submit(pool, &id, Request::default(), Work::Event(event)),
                    Err(failure) => wire.fail(&id, code::PARAMS, &failure),
                },
                name => match methods::all().get(name) {
                    None => refuse(&id, code::METHOD, format!("cannot run `{name}`: there is no such method")),
                    Some(method) => self.submit_method(pool, &id, method, params),
                },
            },
        }
    }

    fn submit_method(&self, pool: &Pool, id: &Value, method: &'static Method, params: Map<String, Value>) {
        match params::parse(method, params) {
            Err(failure) => self.inner.wire.fail(id, code::PARAMS, &failure),
            Ok(mut parsed) => {
                let request = Request::with_input(std::mem::take(&mut parsed.input));
                self.submit(pool, id, request, Work::Method(Box::new(parsed)));
            }
        }
    }

    /// Has a request answered on another thread.
    fn submit(&self, pool: &Pool, id: &Value, request: Request, work: Work) {
        let (key, request) = (id.to_string(), Arc::new(request));
        let mut running = self.inner.running();
        if running.contains_key(&key) {
            drop(running);
            let why = format!("cannot use the id {key} again before its first request is answered");
            return self.inner.wire.fail(id, code::REQUEST, &Failure::new("usage", why, None));
        }
        running.insert(key.clone(), Arc::clone(&request));
        drop(running);
        let (inner, own, global) = (Arc::clone(&self.inner), id.clone(), self.global.clone());
        let done = key.clone();
        let job = move || {
            let result = catch_unwind(AssertUnwindSafe(|| inner.work(&own, &request, &global, work)));
            // First forgotten, then answered: the client may use the id again.
            inner.running().remove(&done);
            match result.unwrap_or_else(|panic| Err((code::INTERNAL, panicked(&*panic)))) {
                Ok(report) => inner.wire.answer(&own, &report),
                Err((code, failure)) => inner.wire.fail(&own, code, &failure),
            }
        };
        if !pool.submit(Box::new(job)) {
            self.inner.running().remove(&key);
            let why = format!("cannot take more requests: {WAITING_MAX} are waiting");
            self.inner.wire.fail(
                id,
                code::FAILED,
                &Failure::new("busy", why, Some("wait for answers, then try again")),
            );
        }
    }
}

/// What a request asks for.
enum Work {
    Method(Box<Parsed>),
    Event(AgentEvent),
}

/// Report of a command as JSON, or the code and the words of its error.
pub(crate) type MethodAnswer = Result<String, (i32, Failure)>;

impl ServerState {
    /// Returns the result of a request, as JSON, or the code and the words of its error.
    fn work(&self, id: &Value, request: &Arc<Request>, global: &Global, work: Work) -> MethodAnswer {
        if request.is_cancelled() {
            return Err((code::CANCELLED, Failure::new("stopped", "cannot begin: the request was cancelled", None)));
        }
        match work {
            Work::Event(event) => Ok(event.report(global)),
            Work::Method(parsed) => {
                let wants_progress = parsed.wants_progress;
                let work = || run_method(*parsed, request, global, self.run);
                let describe = |progress: &Progress, is_about_store| counters(id, progress, is_about_store);
                let notify = |now: &Value| self.wire.notify("progress", now);
                let answer = if wants_progress { notify_meanwhile(request, describe, notify, work) } else { work() };
                for warning in request.take_warnings() {
                    self.wire.notify("warning", &json!({"id": id, "message": warning}));
                }
                answer
            }
        }
    }
}

/// Sends the progress of a request to the client, with `notify`, until the work ends. Nothing is sent twice.
pub(crate) fn notify_meanwhile<T>(
    request: &Request,
    describe: impl Fn(&Progress, bool) -> Value + Sync,
    notify: impl Fn(&Value) + Sync,
    work: impl FnOnce() -> T,
) -> T {
    struct Done<'a>(&'a AtomicBool, Option<thread::Thread>);

    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
            self.1.iter().for_each(thread::Thread::unpark);
        }
    }

    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        let ticker = thread::Builder::new().spawn_scoped(threads, || {
            let mut last = Value::Null;
            loop {
                thread::park_timeout(PROGRESS_INTERVAL);
                if done.load(Ordering::SeqCst) {
                    return;
                }
                let Some((progress, is_about_store)) = request.progress() else { continue };
                let now = describe(&progress, is_about_store);
                if now != last {
                    notify(&now);
                    last = now;
                }
            }
        });
        // Also if the work panics: the scope would wait for the ticker forever.
        let _done = Done(&done, ticker.ok().map(|ticker| ticker.thread().clone()));
        work()
    })
}

/// Runs a command for a request. Returns its report as JSON, or the code and the words of its error.
pub(crate) fn run_method(parsed: Parsed, request: &Arc<Request>, global: &Global, run: Run) -> MethodAnswer {
    let mut global = global.clone();
    global.dir = parsed.directory.or(global.dir);
    global.request = Some(Arc::clone(request));
    let done = run(&parsed.command, &global, &Output::new(&global));
    let failure = done.err().and_then(|error| Failure::of(&error).0);
    match (failure, request.take_answer()) {
        (Some(failure), _) if failure.kind == "stopped" => Err((code::CANCELLED, failure)),
        (Some(failure), _) => Err((code::FAILED, failure)),
        (None, Some(report)) => Ok(report),
        (None, None) => Err((code::INTERNAL, Failure::new("other", "the command ended without a report", None))),
    }
}

pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Failure::new("other", format!("an error in piton itself: {words}"), Some("please report it"))
}

fn counters(id: &Value, progress: &Progress, is_about_store: bool) -> Value {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    json!({
        "id": id,
        "message": progress::in_words(progress, is_about_store),
        "files_found": load(&progress.files_found),
        "bytes_to_read": load(&progress.bytes_to_read),
        "bytes_read": load(&progress.bytes_read),
        "files_to_write": load(&progress.files_to_write),
        "files_written": load(&progress.files_written),
        "bytes_to_write": load(&progress.bytes_to_write),
        "bytes_written": load(&progress.bytes_written),
        "store_bytes": load(&progress.store_bytes),
        "store_bytes_done": load(&progress.store_bytes_done),
    })
}

/// Answers the handshake: the versions and limits of this program.
fn initialize(params: &Map<String, Value>, global: &Global) -> Result<Value, Failure> {
    let wanted = params.get("protocol").cloned().unwrap_or(json!(PROTOCOL));
    if wanted != json!(PROTOCOL) {
        let why = format!("cannot speak version {wanted} of the protocol: this is piton {}", env!("CARGO_PKG_VERSION"));
        let hint = format!("it speaks version {PROTOCOL}");
        return Err(Failure::new("unsupported_protocol", why, Some(&hint)));
    }
    let methods: Vec<&str> =
        ["initialize", "event", "rpc.discover"].into_iter().chain(methods::all().keys().map(String::as_str)).collect();
    Ok(json!({
        "protocol": PROTOCOL,
        "name": "piton",
        "version": env!("CARGO_PKG_VERSION"),
        "base": global.base.as_ref().map(|base| base.to_string_lossy()),
        "methods": methods,
        "limits": {"line_bytes": LINE_BYTES_MAX, "at_a_time": WORKERS_MAX, "waiting": WAITING_MAX},
    }))
}

/// An event of an agent, as `piton hook` reads it from stdin.
struct AgentEvent {
    agent: Agent,
    payload: Vec<u8>,
}

fn event_of(mut params: Map<String, Value>) -> Result<AgentEvent, Failure> {
    let wrong = |what: &str| Failure::new("usage", format!("cannot run `event`: {what}"), None);
    let agent = match params.remove("agent") {
        None | Some(Value::Null) => Agent::PLAIN,
        Some(Value::String(name)) => Agent::parse(&name).ok_or_else(|| wrong("there is no such agent"))?,
        Some(_) => return Err(wrong("`agent` must be a text")),
    };
    match params.remove("payload") {
        Some(payload @ Value::Object(_)) if params.is_empty() => {
            Ok(AgentEvent { agent, payload: payload.to_string().into_bytes() })
        }
        Some(Value::Object(_)) => Err(wrong("it takes `agent` and `payload` only")),
        _ => Err(wrong("`payload` must be an object")),
    }
}

impl AgentEvent {
    /// Acts on the event, and returns the report. A program that sends events wants checkpoints: they are switched on.
    fn report(&self, global: &Global) -> String {
        let global = Global { checkpoints: true, request: None, ..global.clone() };
        let call = Call { agent: self.agent, event: None, global: &global, fail_closed: false, complaint: None };
        let reply = respond_to(&call, &self.payload);
        json!({"protected": reply.missed.is_none(), "missed": reply.missed, "answer": reply.stdout}).to_string()
    }
}
