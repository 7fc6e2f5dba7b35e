//! Conversations of Copilot CLI: `session-state/<session>/events.jsonl`, a log with one event a line.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::conversation::transcript::{Transcript, parse, replace_id};
use crate::conversation::{ChatMessage, ConversationSpec, CutRequest, Draft, WhyNot, check_version};

pub(super) const SPEC: ConversationSpec = ConversationSpec {
    versions: &["1.0."],
    plan,
    resume: |session| vec!["copilot".to_owned(), format!("--resume={session}")],
    resume_inside: Some(|session| format!("/resume {session}")),
    open_database: None,
};

/// Events at the end of a turn that are about the process, not about the conversation.
fn is_of_process(value: &Value) -> bool {
    let kind = value["type"].as_str().unwrap_or_default();
    kind.starts_with("hook.") || kind == "session.resume" || kind == "session.shutdown"
}

fn plan(request: &CutRequest<'_>) -> Result<Draft, WhyNot> {
    let old = &request.turn.session;
    if old.is_empty() || old.contains('/') || old.starts_with('.') {
        return Err(crate::conversation::not_marked());
    }
    let dir = request.home.join("session-state").join(old);
    let transcript = Transcript::read(&dir.join("events.jsonl"))?;
    let stamp = request.turn.mark.stamp.as_deref().ok_or_else(crate::conversation::not_marked)?;
    let is_hook = |line: &[u8]| {
        let value = parse(line).unwrap_or_default();
        let time = &value["data"]["input"]["timestamp"];
        let is_time = time.as_str() == Some(stamp) || time.as_number().is_some_and(|time| time.to_string() == stamp);
        value["type"] == "hook.start" && value["data"]["hookType"] == "userPromptSubmitted" && is_time
    };
    let hook = transcript.lines().find(|(_, line)| is_hook(line)).map(|(range, _)| range.start);
    let end = hook.ok_or_else(|| WhyNot::new("the prompt is not in it"))?;
    let mut records = transcript.records(end)?;
    let first = records.first().map(|(_, value)| value.clone()).unwrap_or_default();
    let start = &first["data"];
    if first["type"] != "session.start" || start["sessionId"] != old.as_str() {
        return Err(WhyNot::format("it does not begin with its session"));
    }
    check_version(start["copilotVersion"].as_str().unwrap_or("unknown"), SPEC.versions)?;
    let cwd = start["context"]["cwd"].as_str().map(PathBuf::from);
    while records.last().is_some_and(|(_, value)| is_of_process(value)) {
        records.pop();
    }
    let is_prompt = |value: &Value| value["type"] == "user.message" && value["agentId"].is_null();
    if !records.iter().any(|(_, value)| is_prompt(value)) {
        return Ok(Draft::nothing(cwd));
    }
    let messages = records.iter().filter_map(|(_, value)| message(value)).collect();
    let new = uuid::Uuid::new_v4().to_string();
    let mut bytes = Vec::new();
    for (range, _) in &records {
        bytes.extend_from_slice(&replace_id(&transcript.bytes[range.clone()], &["sessionId"], old, &new));
    }
    let new_dir = dir.with_file_name(&new);
    let mut files = Vec::new();
    // Copilot makes this file again if it is missing.
    if let Ok(workspace) = Transcript::read(&dir.join("workspace.yaml")) {
        let text = workspace_of_fork(&String::from_utf8_lossy(&workspace.bytes), old, &new, &request.title);
        files.push(workspace.sibling(new_dir.join("workspace.yaml"), text.into_bytes()));
    }
    files.push(transcript.sibling(new_dir.join("events.jsonl"), bytes));
    Ok(Draft::of_files(cwd, messages, new, files))
}

/// Returns the file that describes a session, with another id and title. A JSON string is valid YAML.
fn workspace_of_fork(text: &str, old: &str, new: &str, title: &str) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some(("id", id)) if id.trim() == old => format!("id: {new}\n"),
        Some(("name", _)) => format!("name: {}\n", json!(title)),
        Some(("user_named", _)) => "user_named: true\n".to_owned(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn message(value: &Value) -> Option<ChatMessage> {
    let text =
        value["data"]["content"].as_str().filter(|text| !text.trim().is_empty() && value["agentId"].is_null())?;
    match value["type"].as_str()? {
        "user.message" => Some(ChatMessage::user(text)),
        "assistant.message" => Some(ChatMessage::agent(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_a_fork_has_its_own_id_and_title() {
        let text = "id: old\ncwd: /p/a: b\nname: what\nuser_named: false\n";
        let want = "id: new\ncwd: /p/a: b\nname: \"before: \\\"x\\\"\"\nuser_named: true\n";
        assert_eq!(workspace_of_fork(text, "old", "new", "before: \"x\""), want);
    }
}
