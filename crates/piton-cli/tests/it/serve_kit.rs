//! A client of `piton serve`: sends messages, and reads the answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command};

use crate::kit::{command, spawn_piped};

/// A server and its pipes. It is killed with the test.
pub(crate) struct Client {
    pub(crate) child: Child,
    to: Option<ChildStdin>,
    from: Option<BufReader<ChildStdout>>,
    ids: u64,
    /// Notifications that came before an answer.
    pub(crate) notifications: Vec<Value>,
}

impl Client {
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        Self::of(command(sandbox).arg("serve"))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = spawn_piped(command);
        let to = child.stdin.take();
        let from = child.stdout.take().map(BufReader::new);
        Self { child, to, from, ids: 0, notifications: Vec::new() }
    }

    /// Sends a line as it is.
    pub(crate) fn line(&mut self, line: &[u8]) {
        let to = self.to.as_mut().expect("open");
        to.write_all(line).and_then(|()| to.write_all(b"\n")).and_then(|()| to.flush()).expect("the server reads");
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.line(message.to_string().as_bytes());
    }

    /// Returns the next message, or `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.from.as_mut().expect("open").read_line(&mut line).expect("text");
        assert!(!line.contains(['\u{2028}', '\u{2029}']), "some clients end a line there: {line}");
        (read > 0).then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// Sends a request, and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.ids += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params}));
        self.ids
    }

    /// Returns the next answer. Notifications before it are kept.
    pub(crate) fn answer(&mut self) -> Value {
        loop {
            let message = self.next().expect("an answer");
            assert_eq!(message["jsonrpc"], "2.0", "{message}");
            if message.get("method").is_none() {
                return message;
            }
            self.notifications.push(message);
        }
    }

    /// Sends a request, and returns all of the answer.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        let answer = self.answer();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Sends a request, and returns its result.
    #[track_caller]
    pub(crate) fn result(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.call(method, params);
        answer.get("result").cloned().unwrap_or_else(|| panic!("{method} {params}: {answer}"))
    }

    /// Sends a request, and returns its error.
    #[track_caller]
    pub(crate) fn error(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.call(method, params);
        answer.get("error").cloned().unwrap_or_else(|| panic!("{method} {params}: {answer}"))
    }

    /// Closes stdin.
    pub(crate) fn close(&mut self) {
        self.to = None;
    }

    /// Closes both pipes at once, as the kernel does for a client that was killed, and waits for the end.
    pub(crate) fn vanish(mut self) -> ExitStatus {
        (self.to, self.from) = (None, None);
        self.child.wait().expect("it ends")
    }

    /// Closes stdin, and waits for the end. Asserts that nothing is left to read, on stderr neither.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.close();
        assert_eq!(self.next(), None, "a message too many");
        let mut stderr = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().expect("a pipe"), &mut stderr).expect("text");
        assert_eq!(stderr, "");
        self.child.wait().expect("it ends")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Another process that holds the gate of the store, so that a take waits until it is cancelled.
pub(crate) struct LockHolder(Child);

impl LockHolder {
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        Self::of(&sandbox.store().join("locks/gate"))
    }

    /// Takes the lock of this file.
    pub(crate) fn of(file: &Path) -> Self {
        let mut command = clean_command("flock");
        command.arg(file).arg("cat");
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("flock runs");
        // The output of `cat` was read with the lock held.
        holder.stdin.as_mut().expect("a pipe").write_all(b"x").expect("it reads");
        holder.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("it holds the lock");
        Self(holder)
    }
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
