//! Conversations of Qwen Code: `projects/<directory>/chats/<session>.jsonl`, one record a line, which form a tree.

use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::conversation::chain::{self, ChainNode};
use crate::conversation::transcript::{self, Transcript, text_of};
use crate::conversation::{ChatMessage, ConversationSpec, CutRequest, Draft, WhyNot, check_version};

pub(super) const SPEC: ConversationSpec = ConversationSpec {
    versions: &["0.24."],
    plan,
    resume: |session| vec!["qwen".to_owned(), "--resume".to_owned(), session.to_owned()],
    resume_inside: None,
    open_database: None,
};

fn plan(request: &CutRequest<'_>) -> Result<Draft, WhyNot> {
    let path = request.transcript().ok_or_else(crate::conversation::not_marked)?;
    let Some(recorded) = request.transcript_bytes() else {
        request.check_recorded_version(SPEC.versions)?;
        return Ok(Draft::nothing(None));
    };
    let transcript = Transcript::read(path)?;
    let end = transcript.prefix(recorded)?;
    let mut values = transcript.records(end)?;
    // The prompt is the next record of the user: it says which branch it continues.
    let after = transcript.lines().skip_while(|(range, _)| range.start < end);
    let prompt =
        after.filter_map(|(range, line)| Some((range, transcript::parse(line)?))).find(|(_, value)| is_prompt(value));
    let count = values.len();
    values.extend(prompt);
    let old = &request.turn.session;
    for (_, value) in &values {
        check_version(value["version"].as_str().unwrap_or("unknown"), SPEC.versions)?;
        if value["sessionId"] != old.as_str() {
            return Err(WhyNot::format("a record of another session"));
        }
    }
    let nodes: Vec<ChainNode> = values.iter().map(|(range, value)| node(value, range.clone())).collect();
    let leaf = match nodes.get(count) {
        Some(prompt) => prompt.parent.as_deref(),
        None => nodes.last().and_then(|last| last.id.as_deref()),
    };
    let kept = chain::past(&nodes, &nodes[..count], leaf)?;
    let dir = values.last().and_then(|(_, value)| value["cwd"].as_str()).map(PathBuf::from);
    if !kept.iter().any(|node| node.is_prompt) {
        return Ok(Draft::nothing(dir));
    }
    let is_kept = |range: &Range<usize>| kept.iter().any(|node| node.range == *range);
    let messages =
        values[..count].iter().filter(|(range, _)| is_kept(range)).filter_map(|(_, value)| message(value)).collect();
    let new = uuid::Uuid::new_v4().to_string();
    let mut bytes = Vec::new();
    for node in &kept {
        let line = transcript::replace_id(&transcript.bytes[node.range.clone()], &["sessionId"], old, &new);
        if transcript::parse(&line).is_none_or(|value| value["sessionId"] != new.as_str()) {
            return Err(WhyNot::format("a record without its session"));
        }
        bytes.extend_from_slice(&line);
    }
    // As Qwen itself names a fork.
    let title = json!({
        "uuid": uuid::Uuid::new_v4().to_string(), "parentUuid": leaf, "sessionId": new, "timestamp": request.now.to_string(),
        "type": "system", "subtype": "custom_title", "cwd": dir, "version": values[0].1["version"],
        "systemPayload": {"customTitle": request.title, "titleSource": "manual"},
    });
    bytes.extend_from_slice(format!("{title}\n").as_bytes());
    let file = transcript.sibling(transcript.beside(&format!("{new}.jsonl")), bytes);
    Ok(Draft::of_files(dir, messages, new, vec![file]))
}

fn is_prompt(value: &Value) -> bool {
    value["type"] == "user" && value["subtype"].is_null()
}

fn node(value: &Value, range: Range<usize>) -> ChainNode {
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    ChainNode { range, id: text("uuid"), parent: text("parentUuid"), is_prompt: is_prompt(value), is_dropped: false }
}

fn message(value: &Value) -> Option<ChatMessage> {
    let text = text_of(&value["message"]["parts"]);
    match value["type"].as_str()? {
        _ if text.trim().is_empty() => None,
        "user" if value["subtype"].is_null() => Some(ChatMessage::user(&text)),
        "assistant" => Some(ChatMessage::agent(&text)),
        _ => None,
    }
}
