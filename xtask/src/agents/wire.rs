//! The interfaces of model servers: Anthropic Messages, OpenAI Responses and Chat Completions, Gemini.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use serde_json::{Value, json};

use super::http::Reply;
use super::model::Event;
use super::tools::{Say, Tool};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

impl Api {
    /// Returns the interface that a path belongs to; `None` if it is not a call of the model.
    pub(super) fn of(target: &str) -> Option<Self> {
        let path = target.split('?').next().unwrap_or_default();
        let ends = |end: &str| path.ends_with(end);
        match () {
            () if ends("/messages") => Some(Self::Anthropic),
            () if ends("/chat/completions") => Some(Self::Chat),
            () if ends("/responses") => Some(Self::Responses),
            () if ends(":generateContent") || ends(":streamGenerateContent") => Some(Self::Gemini),
            () => None,
        }
    }

    /// Returns the tools that a request offers, and its conversation.
    pub(super) fn parse(self, body: &Value) -> (Vec<Tool>, Vec<Event>) {
        match self {
            Self::Anthropic => anthropic::parse(body),
            Self::Chat => chat::parse(body),
            Self::Responses => responses::parse(body),
            Self::Gemini => gemini::parse(body),
        }
    }

    /// Returns the schema that the answer has to follow, if the request asks for JSON.
    pub(super) fn schema(self, body: &Value) -> Option<Value> {
        let found = match self {
            Self::Anthropic => first(body, &["/output_config/format/schema", "/output_format/schema"]),
            Self::Chat => first(body, &["/response_format/json_schema/schema"]),
            Self::Responses => first(body, &["/text/format/schema"]),
            Self::Gemini => first(body, &["/generationConfig/responseJsonSchema", "/generationConfig/responseSchema"]),
        };
        found.cloned()
    }

    pub(super) fn reply(self, target: &str, body: &Value, say: &Say) -> Reply {
        match self {
            Self::Anthropic => anthropic::reply(body, say),
            Self::Chat => chat::reply(body, say),
            Self::Responses => responses::reply(body, say),
            Self::Gemini => gemini::reply(target, body, say),
        }
    }
}

fn first<'a>(body: &'a Value, pointers: &[&str]) -> Option<&'a Value> {
    pointers.iter().find_map(|pointer| body.pointer(pointer)).filter(|schema| schema.is_object())
}

/// Returns the answer to a request that is not a call of the model.
pub(super) fn stub(method: &str, target: &str) -> Reply {
    let path = target.split('?').next().unwrap_or_default();
    match method {
        "POST" if path.ends_with("/count_tokens") => json_reply(200, &json!({"input_tokens": 100})),
        "POST" if path.ends_with(":countTokens") => json_reply(200, &json!({"totalTokens": 100})),
        "GET" if path.trim_end_matches('/').ends_with("/models") => json_reply(200, &models()),
        "GET" => json_reply(404, &json!({"error": {"type": "not_found_error", "message": "there is no such path"}})),
        _ => json_reply(200, &json!({})),
    }
}

fn models() -> Value {
    let model = json!({
        "id": MODEL, "object": "model", "type": "model", "name": MODEL, "display_name": MODEL, "created": 1,
        "created_at": "2026-01-01T00:00:00Z", "owned_by": "test",
    });
    json!({"object": "list", "data": [model], "models": [], "has_more": false, "first_id": MODEL, "last_id": MODEL})
}

/// Returns an error that is not worth a retry, in a form that the agents of all interfaces understand.
pub(super) fn refusal() -> Reply {
    let message = "the scripted model refuses this request";
    let error = json!({"type": "invalid_request_error", "code": 400, "status": "INVALID_ARGUMENT", "message": message});
    json_reply(400, &json!({"type": "error", "error": error}))
}

/// Name of the model, for agents that let the user choose one.
pub(super) const MODEL: &str = "scripted-model";

fn json_reply(status: u16, value: &Value) -> Reply {
    Reply { status, content_type: "application/json", body: value.to_string().into_bytes() }
}

/// Returns a stream of server-sent events. `is_named` puts the `type` of each before it.
fn stream(events: &[Value], is_named: bool, last: &str) -> Reply {
    let mut body = String::new();
    for event in events {
        if let Some(name) = event["type"].as_str().filter(|_| is_named) {
            body += &format!("event: {name}\n");
        }
        body += &format!("data: {event}\n\n");
    }
    body += last;
    Reply { status: 200, content_type: "text/event-stream", body: body.into_bytes() }
}

/// Returns the text of a message, which is a string or a list of parts.
fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let parts = content.as_array().into_iter().flatten();
    let texts: Vec<_> = parts.filter_map(|part| part.as_str().or_else(|| part["text"].as_str())).collect();
    texts.join("\n")
}

/// Returns a unique identifier.
fn fresh(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    format!("{prefix}{:08x}{since:016x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns an estimate of the tokens of a request, by which agents decide whether a summary is shorter.
fn tokens_of(body: &Value) -> usize {
    body.to_string().len() / 4
}

fn seconds() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
