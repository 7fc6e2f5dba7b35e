//! Conversations of Codex: `sessions/<date>/rollout-<time>-<thread>.jsonl`, a log with one record a line.

use std::path::PathBuf;

use piton::Moment;
use serde_json::{Value, json};

use super::app_server;
use crate::conversation::transcript::{Transcript, parse, replace_id, text_of};
use crate::conversation::{ChatMessage, ConversationSpec, CutRequest, Draft, WhyNot, check_version};

pub(super) const SPEC: ConversationSpec = ConversationSpec {
    versions: &["0.166."],
    plan,
    resume: |session| vec!["codex".to_owned(), "resume".to_owned(), session.to_owned()],
    resume_inside: Some(|session| format!("/resume {session}")),
    open_database: None,
};

fn plan(request: &CutRequest<'_>) -> Result<Draft, WhyNot> {
    let path = request.transcript().ok_or_else(crate::conversation::not_marked)?;
    let transcript = Transcript::read(path)?;
    let wanted = request.message()?;
    let is_start = |line: &[u8]| {
        let value = parse(line).unwrap_or_default();
        let payload = &value["payload"];
        value["type"] == "event_msg" && payload["type"] == "task_started" && turn_of(payload) == Some(wanted)
    };
    let start = transcript.lines().find(|(_, line)| is_start(line)).map(|(range, _)| range.start);
    let first = transcript.lines().next().and_then(|(_, line)| parse(line)).unwrap_or_default();
    let meta = &first["payload"];
    if first["type"] != "session_meta" || meta["id"] != request.turn.session.as_str() {
        return Err(WhyNot::format("it does not begin with its session"));
    }
    check_version(meta["cli_version"].as_str().unwrap_or("unknown"), SPEC.versions)?;
    let dir = meta["cwd"].as_str().map(PathBuf::from);
    if !meta["history_base"].is_null() {
        return app_server::plan(request, dir, start.is_some());
    }
    match meta["history_mode"].as_str() {
        None | Some("paginated" | "legacy") => {}
        Some(mode) => return Err(WhyNot::format(format!("its history is {mode}"))),
    }
    let Some(end) = start else { return Err(WhyNot::new("the prompt is not in it")) };
    let records = transcript.records(end)?;
    let messages: Vec<_> = records.iter().filter_map(|(_, value)| message(value)).collect();
    if !records.iter().any(|(_, value)| value["payload"]["type"] == "task_started") {
        return Ok(Draft::nothing(dir));
    }
    let (old, new) = (&request.turn.session, uuid::Uuid::now_v7().to_string());
    let mut bytes = fork_meta(&transcript.bytes[records[0].0.clone()], old, &new)?;
    for (range, _) in &records[1..] {
        bytes.extend_from_slice(&replace_id(&transcript.bytes[range.clone()], &["thread_id", "session_id"], old, &new));
    }
    let name = format!("rollout-{}-{new}.jsonl", file_time(request.now));
    let file = transcript.sibling(transcript.beside(&name), bytes);
    let set_title = app_server::title_setter(request, dir.as_deref(), &new);
    let draft = Draft::of_files(dir, messages, new, vec![file]);
    Ok(if let Some(set_title) = set_title { draft.titled_by(set_title) } else { draft })
}

/// Returns the id of the turn that an event starts.
fn turn_of(payload: &Value) -> Option<&str> {
    payload["turn_id"].as_str().or_else(|| payload["turn_attribution"]["turn_id"].as_str())
}

/// Returns the first record with another id, which names the thread that it was forked from.
fn fork_meta(line: &[u8], old: &str, new: &str) -> Result<Vec<u8>, WhyNot> {
    let mut value = parse(line).ok_or_else(|| WhyNot::format("its first line"))?;
    let meta = value["payload"].as_object_mut().ok_or_else(|| WhyNot::format("its first line"))?;
    meta.insert("id".to_owned(), json!(new));
    if meta.contains_key("session_id") {
        meta.insert("session_id".to_owned(), json!(new));
    }
    meta.insert("forked_from_id".to_owned(), json!(old));
    Ok(format!("{value}\n").into_bytes())
}

/// Formats a time as in the names of these files.
fn file_time(now: Moment) -> String {
    let stamp = now.to_string();
    stamp.get(..19).unwrap_or(&stamp).replace(':', "-")
}

fn message(value: &Value) -> Option<ChatMessage> {
    let payload = &value["payload"];
    if value["type"] != "response_item" || payload["type"] != "message" {
        return None;
    }
    let text = text_of(&payload["content"]);
    match payload["role"].as_str()? {
        // Text that the agent adds by itself is in tags.
        "user" if !text.trim_start().starts_with('<') => Some(ChatMessage::user(&text)),
        "assistant" => Some(ChatMessage::agent(&text)),
        _ => None,
    }
}
