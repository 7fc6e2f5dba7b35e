//! Conversations of opencode, which forks them itself: through its server, which runs for that long.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::server::LoopbackServer;
use crate::conversation::{
    ChatMessage, ConversationSpec, CutRequest, Draft, ForkDatabase, MadeFork, WhyNot, check_version,
};
use crate::edit::files;

pub(super) const SPEC: ConversationSpec = ConversationSpec {
    versions: &["1.18."],
    plan,
    resume: |session| vec!["opencode".to_owned(), "--session".to_owned(), session.to_owned()],
    resume_inside: None,
    open_database: Some(|home, find_program| {
        let program = find_program("opencode").ok_or_else(not_found)?;
        Ok(Box::new(LoopbackServer::start(&program, home)?))
    }),
};

fn plan(request: &CutRequest<'_>) -> Result<Draft, WhyNot> {
    request.check_recorded_version(SPEC.versions)?;
    let program = (request.find_program)("opencode").ok_or_else(not_found)?;
    let (session, wanted) = (id(&request.turn.session)?, id(request.message()?)?);
    let project = request.project.to_owned();
    let server = LoopbackServer::start(&program, &project)?;
    let info = server.get(&project, &format!("/session/{session}"))?;
    check_version(info["version"].as_str().unwrap_or("unknown"), SPEC.versions)?;
    let dir = info["directory"].as_str().map(PathBuf::from);
    let all = messages(&server, &project, &session)?;
    // Of an unknown message, opencode forks everything.
    let is_it = |message: &Value| message["info"]["id"] == wanted.as_str() && message["info"]["role"] == "user";
    let count = all.iter().position(is_it).ok_or_else(|| WhyNot::new("the prompt is not in it"))?;
    if count == 0 {
        return Ok(Draft::nothing(dir));
    }
    let shown = all[..count].iter().filter_map(message).collect();
    let title = request.title.clone();
    let make = move || {
        let forked =
            server.send(&project, "POST", &format!("/session/{session}/fork"), &json!({"messageID": wanted}))?;
        let new = id(forked["id"].as_str().unwrap_or_default())?;
        let held = messages(&server, &project, &new)?;
        if held.len() != count {
            server.send(&project, "DELETE", &format!("/session/{new}"), &json!({}))?;
            return Err(WhyNot::new("opencode made a fork with other messages, which was removed again"));
        }
        server.send(&project, "PATCH", &format!("/session/{new}"), &json!({"title": title}))?;
        Ok(MadeFork { state: digest(&server, &project, &new)?, session: new })
    };
    Ok(Draft::of_call(dir, shown, make))
}

fn not_found() -> WhyNot {
    WhyNot::new("opencode is not on the search path")
}

/// Checks that a text can be a part of a path.
fn id(text: &str) -> Result<String, WhyNot> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { Ok(text.to_owned()) } else { Err(WhyNot::format(format!("the id {text:?}"))) }
}

fn messages(server: &LoopbackServer, dir: &Path, session: &str) -> Result<Vec<Value>, WhyNot> {
    let list = server.get(dir, &format!("/session/{session}/message"))?;
    list.as_array().cloned().ok_or_else(|| WhyNot::format("the messages of a session"))
}

fn message(value: &Value) -> Option<ChatMessage> {
    let parts = value["parts"].as_array().into_iter().flatten();
    let own = parts.filter(|part| part["type"] == "text" && part["synthetic"] != true);
    let text = own.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n");
    match value["info"]["role"].as_str()? {
        _ if text.trim().is_empty() => None,
        "user" => Some(ChatMessage::user(&text)),
        _ => Some(ChatMessage::agent(&text)),
    }
}

/// Returns a digest of the title and of all messages.
fn digest(server: &LoopbackServer, dir: &Path, session: &str) -> Result<String, WhyNot> {
    let info = server.get(dir, &format!("/session/{session}"))?;
    let all = messages(server, dir, session)?;
    Ok(files::sum(json!([info["title"], all]).to_string().as_bytes()))
}

impl ForkDatabase for LoopbackServer {
    fn state(&self, dir: &Path, session: &str) -> Result<Option<String>, WhyNot> {
        if !self.has(dir, &format!("/session/{}", id(session)?))? {
            return Ok(None);
        }
        digest(self, dir, session).map(Some)
    }

    fn remove(&self, dir: &Path, session: &str, state: &str) -> Result<bool, WhyNot> {
        if digest(self, dir, &id(session)?)? != state {
            return Ok(false);
        }
        self.send(dir, "DELETE", &format!("/session/{session}"), &json!({}))?;
        Ok(true)
    }
}
