//! Conversations of Gemini CLI: `tmp/<project>/chats/session-<time>-<id>.jsonl`, a log whose records replace earlier ones.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::conversation::transcript::{Transcript, replace, text_of};
use crate::conversation::{ChatMessage, ConversationSpec, CutRequest, Draft, WhyNot};

pub(super) const SPEC: ConversationSpec = ConversationSpec {
    versions: &["0.61."],
    plan,
    resume: |session| vec!["gemini".to_owned(), "--resume".to_owned(), session.to_owned()],
    resume_inside: None,
    open_database: None,
};

fn plan(request: &CutRequest<'_>) -> Result<Draft, WhyNot> {
    request.check_recorded_version(SPEC.versions)?;
    let path = request.transcript().ok_or_else(crate::conversation::not_marked)?;
    let dir = project_dir(path);
    let Some(recorded) = request.transcript_bytes() else {
        return Ok(Draft::nothing(dir));
    };
    let transcript = Transcript::read(path)?;
    let end = transcript.prefix(recorded)?;
    let records = transcript.records(end)?;
    let old = &request.turn.session;
    let Some((_, header)) = records.first() else {
        return Ok(Draft::nothing(dir));
    };
    if header["sessionId"] != old.as_str() || header["kind"] != "main" {
        return Err(WhyNot::format("it does not begin with its session"));
    }
    check_times(&records.iter().map(|(_, value)| value).collect::<Vec<_>>(), request)?;
    let messages = replay(records.iter().map(|(_, value)| value))?;
    let is_asked =
        |message: &&(String, Option<ChatMessage>)| message.1.as_ref().is_some_and(|message| message.by == "user");
    if !messages.iter().any(|message| is_asked(&message)) {
        return Ok(Draft::nothing(dir));
    }
    let new = uuid::Uuid::new_v4().to_string();
    let mut bytes = replace(&transcript.bytes[..end], old.as_bytes(), new.as_bytes());
    bytes.extend_from_slice(format!("{}\n", json!({"$set": {"summary": request.title}})).as_bytes());
    let stamp = request.now.to_string();
    let minute = stamp.get(..16).unwrap_or(&stamp).replace(':', "-");
    let name = format!("session-{minute}-{}.jsonl", &new[..8]);
    let file = transcript.sibling(transcript.beside(&name), bytes);
    let messages = messages.into_iter().filter_map(|(_, message)| message).collect();
    let warning = is_resumed(path, old).then(|| RESUMED.to_owned());
    Ok(Draft { warning, ..Draft::of_files(dir, messages, new, vec![file]) })
}

/// Warning about a session that Gemini itself deletes.
const RESUMED: &str = "Gemini CLI deletes sessions that were resumed once when another session starts, as the fork does. To keep the \
                       old one, set `general.sessionRetention.enabled` to false in its settings before you start it";

/// Returns true if the session was resumed in another minute: then there is a second file for it without messages, for
/// which Gemini deletes every file of the session.
fn is_resumed(path: &Path, session: &str) -> bool {
    let end = format!("-{}.jsonl", session.get(..8).unwrap_or(session));
    let others = path.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    let others = others.map(|entry| entry.path()).filter(|other| other != path);
    others.filter_map(|other| Some(other.file_name()?.to_string_lossy().ends_with(&end))).any(|is_own| is_own)
}

/// Returns the directory for which Gemini keeps the chats, in which alone it finds them.
fn project_dir(path: &Path) -> Option<PathBuf> {
    let root = path.parent()?.parent()?.join(".project_root");
    let text = fs::read_to_string(root).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n'))).filter(|dir| dir.is_absolute())
}

/// Fails if a message before the cut is later than the prompt: then the file was rewritten, and its length says nothing.
fn check_times(records: &[&Value], request: &CutRequest<'_>) -> Result<(), WhyNot> {
    let Some(asked) = request.turn.mark.stamp.as_deref() else { return Ok(()) };
    let is_later = |value: &&&Value| value["timestamp"].as_str().is_some_and(|time| time > asked);
    match records.iter().find(is_later) {
        Some(_) => Err(WhyNot::new("it was rewritten since the prompt")),
        None => Ok(()),
    }
}

/// Returns the ids and texts of the messages that the log amounts to.
fn replay<'a>(records: impl Iterator<Item = &'a Value>) -> Result<Vec<(String, Option<ChatMessage>)>, WhyNot> {
    let mut all: Vec<(String, Option<ChatMessage>)> = Vec::new();
    let put = |all: &mut Vec<(String, Option<ChatMessage>)>, value: &Value| {
        let id = value["id"].as_str().unwrap_or_default().to_owned();
        let text = text_of(&value["content"]);
        let message = match value["type"].as_str() {
            // Text that the agent adds by itself is in tags.
            Some("user") if !text.trim().is_empty() && !text.starts_with("<session_context>") => {
                Some(ChatMessage::user(&text))
            }
            Some("gemini") if !text.trim().is_empty() => Some(ChatMessage::agent(&text)),
            _ => None,
        };
        match all.iter_mut().find(|(known, _)| *known == id && !id.is_empty()) {
            Some(known) => known.1 = message,
            None => all.push((id, message)),
        }
    };
    for value in records {
        if let Some(list) = value["$set"]["messages"].as_array() {
            all.clear();
            list.iter().for_each(|message| put(&mut all, message));
        } else if let Some(id) = value["$rewindTo"].as_str() {
            let at = all.iter().position(|(known, _)| known == id);
            all.truncate(at.ok_or_else(|| WhyNot::format("a rewind to an unknown message"))?);
        } else if value.get("type").is_some() {
            put(&mut all, value);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::transcript::parse;

    #[test]
    fn a_log_is_replayed_with_its_rewinds() {
        let lines = [
            r#"{"sessionId":"s","kind":"main"}"#,
            r#"{"$set":{"messages":[{"id":"0","type":"user","content":[{"text":"<session_context>x"}]}]}}"#,
            r#"{"id":"1","type":"user","content":[{"text":"one"}]}"#,
            r#"{"id":"2","type":"gemini","content":""}"#,
            r#"{"id":"2","type":"gemini","content":"done"}"#,
            r#"{"id":"3","type":"user","content":[{"text":"two"}]}"#,
            r#"{"$rewindTo":"3"}"#,
            r#"{"id":"4","type":"user","content":[{"text":"three"}]}"#,
        ];
        let values: Vec<Value> = lines.iter().map(|line| parse(line.as_bytes()).expect("JSON")).collect();
        let texts: Vec<_> = replay(values.iter()).expect("known").into_iter().filter_map(|(_, one)| one).collect();
        assert_eq!(texts, [ChatMessage::user("one"), ChatMessage::agent("done"), ChatMessage::user("three")]);
        assert!(replay([json!({"$rewindTo": "9"})].iter()).is_err());
    }
}
