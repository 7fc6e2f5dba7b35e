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
use super::event::AgentEvent;
use super::methods;
use super::params::{self, Parsed};
use super::pool::{Pool, WAITING_BYTES_MAX, WAITING_MAX, WORKERS_MAX};
use super::wire::{self, LINE_BYTES_MAX, Message, PROTOCOL, Wire, code};
use crate::cli::Command;
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
    let inner = Arc::new(ServerState { wire: Wire::default(), running: Mutex::default(), run });
    let server = RpcServer { inner, global, notifications: AtomicU64::new(0) };
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
    /// Number of notifications that were worked on.
    notifications: AtomicU64,
}

/// State that the threads share.
struct ServerState {
    wire: Wire,
    /// Requests without an answer, by id.
    running: Mutex<HashMap<String, Arc<Request>>>,
    run: Run,
}

impl ServerState {
    /// Answers a request. Does nothing for a notification, which has no id.
    fn answer(&self, id: Option<&Value>, answer: MethodAnswer) {
        match (id, answer) {
            (None, _) => {}
            (Some(id), Ok(report)) => self.wire.answer(id, &report),
            (Some(id), Err((code, failure))) => self.wire.fail(id, code, &failure),
        }
    }

    fn refuse(&self, id: Option<&Value>, code: i32, why: String) {
        self.answer(id, Err((code, Failure::new("usage", why, None))));
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Arc<Request>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RpcServer<'_> {
    fn receive(&self, line: &[u8], pool: &Pool) {
        match wire::parse(line) {
            Err((id, code, why)) => self.inner.refuse(Some(&id), code, format!("cannot read the message: {why}")),
            Ok(Message::Notification { method, params }) if method == "$/cancelRequest" => {
                if let Some(request) =
                    params.get("id").and_then(|id| self.inner.running().get(&id.to_string()).cloned())
                {
                    request.cancel();
                }
            }
            Ok(Message::Notification { method, params }) => self.begin(pool, line.len(), None, &method, params),
            Ok(Message::Request { id, method, params }) => self.begin(pool, line.len(), Some(&id), &method, params),
            // Answers have no request here.
            Ok(Message::InvalidNotification | Message::Response { .. }) => {}
        }
    }

    /// Answers a request, or has it answered on another thread. A notification, which has no id, is worked on in the same
    /// way and never answered; an unknown one may come from a later version. `bytes` is the size of the message.
    fn begin(&self, pool: &Pool, bytes: usize, id: Option<&Value>, method: &str, params: Map<String, Value>) {
        let inner = &self.inner;
        let failed = |failure: Failure| inner.answer(id, Err((code::PARAMS, failure)));
        match method {
            "initialize" | "rpc.discover" => {
                let result = match method {
                    "initialize" => initialize(params, self.global),
                    _ => no_more(method, &params).map(|()| contract::document()),
                };
                inner.answer(id, result.map(|result| result.to_string()).map_err(|failure| (code::PARAMS, failure)));
            }
            "event" => match AgentEvent::parse(params) {
                Ok(event) => self.submit(pool, bytes, id, Request::default(), Work::Event(event)),
                Err(failure) => failed(failure),
            },
            name => match methods::all().get(name).map(|method| params::parse(method, params)) {
                None => {
                    let why = format!("cannot run `{name}`: there is no such method");
                    inner.refuse(id, code::METHOD, why);
                }
                Some(Err(failure)) => failed(failure),
                Some(Ok(mut parsed)) => {
                    let request = Request::with_input(std::mem::take(&mut parsed.input));
                    self.submit(pool, bytes, id, request, Work::Method(Box::new(parsed)));
                }
            },
        }
    }

    /// Has a request or a notification worked on by another thread.
    fn submit(&self, pool: &Pool, bytes: usize, id: Option<&Value>, request: Request, work: Work) {
        let notifications = &self.notifications;
        let key = id.map_or_else(
            // Not JSON, so that it is the key of no id.
            || format!("notification {}", notifications.fetch_add(1, Ordering::Relaxed)),
            Value::to_string,
        );
        let request = Arc::new(request);
        let mut running = self.inner.running();
        if running.contains_key(&key) {
            drop(running);
            let why = format!("cannot use the id {key} again before its first request is answered");
            return self.inner.refuse(id, code::REQUEST, why);
        }
        running.insert(key.clone(), Arc::clone(&request));
        drop(running);
        let (inner, own, global) = (Arc::clone(&self.inner), id.cloned(), self.global.clone());
        let done = key.clone();
        let job = move || {
            let result = catch_unwind(AssertUnwindSafe(|| inner.work(own.as_ref(), &request, &global, work)));
            // First forgotten, then answered: the client may use the id again.
            inner.running().remove(&done);
            inner.answer(own.as_ref(), result.unwrap_or_else(|panic| Err((code::INTERNAL, panicked(&*panic)))));
        };
        if !pool.submit(Box::new(job), bytes) {
            self.inner.running().remove(&key);
            let why = "cannot take more requests: too many are waiting";
            let failure = Failure::new("busy", why, Some("wait for answers, then try again"));
            self.inner.answer(id, Err((code::FAILED, failure)));
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
    fn work(&self, id: Option<&Value>, request: &Arc<Request>, global: &Global, work: Work) -> MethodAnswer {
        if request.is_cancelled() {
            return Err((code::CANCELLED, Failure::new("stopped", "cannot begin: the request was cancelled", None)));
        }
        match work {
            Work::Event(event) => Ok(event.report(global)),
            Work::Method(parsed) => {
                let wants_progress = parsed.wants_progress && id.is_some();
                let work = || run_method(*parsed, request, global, self.run);
                let describe = |progress: &Progress, is_about_store| counters(id, progress, is_about_store);
                let notify = |now: &Value| self.wire.notify("progress", now);
                let answer = if wants_progress { notify_meanwhile(request, describe, notify, work) } else { work() };
                for warning in request.take_warnings().into_iter().filter(|_| id.is_some()) {
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

fn counters(id: Option<&Value>, progress: &Progress, is_about_store: bool) -> Value {
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

/// Fails with `usage` if a parameter is left over.
fn no_more(method: &str, params: &Map<String, Value>) -> Result<(), Failure> {
    let unknown = |name| Failure::new("usage", format!("cannot run `{method}`: there is no parameter `{name}`"), None);
    params.keys().next().map_or(Ok(()), |name| Err(unknown(name)))
}

/// Answers the handshake: the versions and limits of this program.
fn initialize(mut params: Map<String, Value>, global: &Global) -> Result<Value, Failure> {
    let wanted = match params.remove("protocol") {
        None | Some(Value::Null) => json!(PROTOCOL),
        Some(wanted) if wanted.is_i64() || wanted.is_u64() => wanted,
        Some(_) => {
            return Err(Failure::new("usage", "cannot run `initialize`: `protocol` must be a whole number", None));
        }
    };
    no_more("initialize", &params)?;
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
        "limits": {"line_bytes": LINE_BYTES_MAX, "at_a_time": WORKERS_MAX, "waiting": WAITING_MAX,
            "waiting_bytes": WAITING_BYTES_MAX},
    }))
}
