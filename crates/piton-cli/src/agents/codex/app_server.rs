//! Requests to the app server of Codex. It forks threads that are forks themselves and begin with a part of another
//! file, and it sets titles, which are only in its database.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::conversation::{CutRequest, Draft, MadeFork, WhyNot};

/// Time to wait for one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same for a title, which a rewind can do without.
const TITLE_PATIENCE: Duration = Duration::from_secs(5);
/// Marks a fork of which piton knows no more than that Codex made it: it is never removed.
const NOT_COMPARED: &str = "made by codex";

/// Plans a fork before the turn that is named. The fork is empty if nothing is before it.
pub(super) fn plan(request: &CutRequest<'_>, dir: Option<PathBuf>, is_own_turn: bool) -> Result<Draft, WhyNot> {
    let program = (request.find_program)("codex").ok_or_else(|| WhyNot::new("codex is not on the search path"))?;
    let (thread, turn) = (request.turn.session.clone(), request.message()?.to_owned());
    if !is_own_turn {
        return Err(WhyNot::new("the prompt is not in it"));
    }
    let (title, home) = (request.title.clone(), request.home.to_owned());
    let cwd = dir.clone().unwrap_or_else(|| request.project.to_owned());
    let make = move || {
        let mut server = AppServer::connect(&program, &home, &cwd, PATIENCE)?;
        let forked =
            server.ask("thread/fork", &json!({"threadId": thread, "beforeTurnId": turn, "excludeTurns": true}))?;
        let session = forked["thread"]["id"].as_str().ok_or_else(|| WhyNot::format("the answer of codex"))?.to_owned();
        // A title is a convenience.
        let _ = server.set_title(&session, &title);
        Ok(MadeFork { session, state: NOT_COMPARED.to_owned() })
    };
    Ok(Draft::of_call(dir, Vec::new(), make))
}

/// Returns a call that gives a fork its title; `None` if Codex is not installed.
pub(super) fn title_setter(
    request: &CutRequest<'_>,
    dir: Option<&Path>,
    fork: &str,
) -> Option<impl FnOnce() + 'static> {
    let program = (request.find_program)("codex")?;
    let (home, cwd) = (request.home.to_owned(), dir.unwrap_or(request.project).to_owned());
    let (fork, title) = (fork.to_owned(), request.title.clone());
    Some(move || {
        let server = AppServer::connect(&program, &home, &cwd, TITLE_PATIENCE);
        let _ = server.and_then(|mut server| server.set_title(&fork, &title));
    })
}

/// A running server, which is killed when this is dropped: the fork is on disk once it is answered.
struct AppServer {
    child: Child,
    answers: mpsc::Receiver<Value>,
    next_id: u64,
    /// Time to wait for one answer.
    patience: Duration,
}

impl AppServer {
    /// Starts the server for a configuration directory, in `cwd`.
    fn connect(program: &Path, home: &Path, cwd: &Path, patience: Duration) -> Result<Self, WhyNot> {
        let mut command = Command::new(program);
        let mut server = Self::start(command.arg("app-server").current_dir(cwd).env("CODEX_HOME", home), patience)?;
        let client = json!({"name": "piton", "version": env!("CARGO_PKG_VERSION")});
        server.ask("initialize", &json!({"clientInfo": client, "capabilities": {"experimentalApi": true}}))?;
        server.send(&json!({"method": "initialized"}))?;
        Ok(server)
    }

    fn set_title(&mut self, thread: &str, title: &str) -> Result<(), WhyNot> {
        self.ask("thread/name/set", &json!({"threadId": thread, "name": title})).map(drop)
    }

    fn start(command: &mut Command, patience: Duration) -> Result<Self, WhyNot> {
        let failed = |error: std::io::Error| WhyNot::new(format!("cannot run codex: {error}"));
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let out = child.stdout.take().ok_or_else(|| WhyNot::new("codex has no output"))?;
        let (send, answers) = mpsc::channel();
        thread::Builder::new()
            .spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let value = serde_json::from_str(&line).unwrap_or(Value::Null);
                    if send.send(value).is_err() {
                        return;
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self { child, answers, next_id: 0, patience })
    }

    fn send(&mut self, message: &Value) -> Result<(), WhyNot> {
        let stdin = self.child.stdin.as_mut().ok_or_else(|| WhyNot::new("codex has no input"))?;
        writeln!(stdin, "{message}").map_err(|error| WhyNot::new(format!("cannot talk to codex: {error}")))
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Result<Value, WhyNot> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"id": id, "method": method, "params": parameters}))?;
        loop {
            let answer = self.answers.recv_timeout(self.patience);
            let answer = answer.map_err(|_| WhyNot::new(format!("codex did not answer {method}")))?;
            if answer["id"] != id {
                continue;
            }
            return match answer["error"]["message"].as_str() {
                Some(error) => Err(WhyNot::new(format!("codex refused {method}: {error}"))),
                None => Ok(answer["result"].clone()),
            };
        }
    }
}

impl Drop for AppServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
