//! Asks the user of the client for consent, through MCP elicitation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::request::Request;
use crate::rpc::pool::WORKERS_MAX;
use crate::rpc::wire::Wire;

/// Interval at which a cancellation is noticed while a person thinks.
const POLL: Duration = Duration::from_millis(50);

/// Maximum number of open questions. Each occupies a worker, and the other workers are for calls that ask nothing.
const OPEN_MAX: usize = WORKERS_MAX / 2;

/// Answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PersonAnswer {
    Yes,
    /// Everything but a clear yes: a refusal, an error of the client, a cancellation, the end of the input.
    No,
    /// Too many other questions are open; this one was not asked.
    NotAsked,
}

/// Receivers of the answers, by the id of the question.
type OpenQuestions = HashMap<String, Sender<Result<Value, Value>>>;

/// Questions without an answer. Closed once no answer can come any more.
#[derive(Default)]
pub(super) struct Questions {
    asked: Mutex<Option<OpenQuestions>>,
    count: AtomicU64,
}

impl Questions {
    pub(super) fn open() -> Self {
        Self { asked: Mutex::new(Some(HashMap::new())), ..Self::default() }
    }

    fn asked(&self) -> MutexGuard<'_, Option<OpenQuestions>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the person to agree to a restore, and blocks until there is an answer.
    pub(super) fn ask(&self, message: &str, wire: &Wire, request: &Request) -> PersonAnswer {
        let id = json!(format!("piton-{}", self.count.fetch_add(1, Ordering::SeqCst) + 1));
        let (answer, answered) = mpsc::channel();
        match self.asked().as_mut() {
            Some(asked) if asked.len() >= OPEN_MAX => return PersonAnswer::NotAsked,
            Some(asked) => drop(asked.insert(id.to_string(), answer)),
            None => return PersonAnswer::No,
        }
        let schema = json!({
            "type": "object",
            "properties": {"restore": {"type": "boolean", "title": "Restore", "description": "Restore the files as described"}},
            "required": ["restore"],
        });
        wire.ask(&id, "elicitation/create", &json!({"message": message, "requestedSchema": schema}));
        loop {
            match answered.recv_timeout(POLL) {
                Ok(Ok(result)) if result["action"] == "accept" && result["content"]["restore"] == true => {
                    return PersonAnswer::Yes;
                }
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return PersonAnswer::No,
                Err(RecvTimeoutError::Timeout) if request.is_cancelled() => {
                    self.asked().as_mut().and_then(|asked| asked.remove(&id.to_string()));
                    // A yes would have no effect any more.
                    let params = json!({"requestId": id, "reason": "the call that asked was cancelled"});
                    wire.notify("notifications/cancelled", &params);
                    return PersonAnswer::No;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Passes an answer of the client on to the question. Ignores answers to no question.
    pub(super) fn answer(&self, id: &Value, result: Result<Value, Value>) {
        let asked = self.asked().as_mut().and_then(|asked| asked.remove(&id.to_string()));
        if let Some(asked) = asked {
            let _ = asked.send(result);
        }
    }

    /// Answers every question with a no, also later ones.
    pub(super) fn close(&self) {
        *self.asked() = None;
    }
}
