//! Conversations of Claude Code: `projects/<directory>/<session>.jsonl`, one record a line, which form a tree.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::conversation::chain::{self, ChainNode};
use crate::conversation::transcript::{self, Transcript, text_of};
use crate::conversation::{ChatMessage, ConversationSpec, CutRequest, Draft, WhyNot, check_version};

pub(super) const SPEC: ConversationSpec = ConversationSpec {
    versions: &["2.1."],
    plan,
    resume: |session| vec!["claude".to_owned(), "--resume".to_owned(), session.to_owned()],
    resume_inside: Some(|session| format!("/resume {session}")),
    open_database: None,
};

/// Records that name the last prompt or one that waits, which may be one that is cut off.
const DROPPED: [&str; 3] = ["last-prompt", "queue-operation", "custom-title"];

/// A record, as far as a fork needs it.
struct ReadRecord {
    node: ChainNode,
    prompt_id: Option<String>,
    message: Option<ChatMessage>,
    dir: Option<PathBuf>,
    version: Option<String>,
    /// Number of the turn that the record begins; `None` if it begins none, or the version does not count them.
    turn_index: Option<u64>,
}

/// The records up to a prompt, which is the last of them.
struct UpToPrompt {
    reads: Vec<ReadRecord>,
    /// True if records of earlier prompts have the same id.
    is_id_shared: bool,
}

/// Reads a conversation up to the prompt with this id. Lines behind it may be damaged.
///
/// In a fork that Claude Code makes, all prompts before it get the id of the first prompt in the fork: the last turn counts.
fn read_up_to(transcript: &Transcript, wanted: &str) -> Result<UpToPrompt, WhyNot> {
    let mut reads: Vec<ReadRecord> = Vec::new();
    let (mut found, mut damaged, mut is_id_shared) = (None::<usize>, None, false);
    for (number, (range, line)) in transcript.lines().enumerate() {
        let Some(value) = transcript::parse(line) else {
            damaged = damaged.or(Some(number));
            if found.is_none() {
                break;
            }
            continue;
        };
        let read = read(&value, range);
        if read.node.is_prompt && read.prompt_id.as_deref() == Some(wanted) {
            let is_later = found.is_none_or(|found| read.turn_index > reads[found].turn_index);
            if is_later && let Some(damaged) = damaged {
                return Err(WhyNot::new(format!("its line {} is damaged", damaged + 1)));
            }
            if is_later {
                is_id_shared = found.is_some();
                found = Some(reads.len());
            }
        }
        reads.push(read);
    }
    match (found, damaged) {
        (Some(found), _) => {
            reads.truncate(found + 1);
            Ok(UpToPrompt { reads, is_id_shared })
        }
        (None, Some(damaged)) => Err(WhyNot::new(format!("its line {} is damaged", damaged + 1))),
        (None, None) => Err(WhyNot::new("the prompt is not in it")),
    }
}

/// Finds the file of the session. The path in the event names a file that does not exist if the session was resumed in
/// another directory.
fn find(request: &CutRequest<'_>) -> Result<PathBuf, WhyNot> {
    let session = &request.turn.session;
    if let Some(path) = request.transcript().filter(|path| path.is_file()) {
        return Ok(path.to_owned());
    }
    let is_name = !session.is_empty() && !session.contains('/') && !session.starts_with('.');
    let dirs = fs::read_dir(request.home.join("projects")).into_iter().flatten().flatten();
    let mut found =
        dirs.map(|dir| dir.path().join(format!("{session}.jsonl"))).filter(|path| is_name && path.is_file());
    found.next().ok_or_else(|| WhyNot::new(format!("there is no session {session} in {}", request.home.display())))
}

fn plan(request: &CutRequest<'_>) -> Result<Draft, WhyNot> {
    let transcript = Transcript::read(&find(request)?)?;
    let wanted = request.message()?;
    let UpToPrompt { reads, is_id_shared } = read_up_to(&transcript, wanted)?;
    let prompt = reads.len() - 1;
    for version in reads.iter().filter_map(|read| read.version.as_deref()) {
        check_version(version, SPEC.versions)?;
    }
    let nodes: Vec<ChainNode> = reads.iter().map(|read| read.node.clone()).collect();
    let kept = chain::before(&nodes, prompt)?;
    let is_kept = |read: &&ReadRecord| kept.iter().any(|node| node.range == read.node.range);
    let dir = reads[prompt].dir.clone();
    let messages: Vec<_> = reads[..prompt].iter().filter(is_kept).filter_map(|read| read.message.clone()).collect();
    if !kept.iter().any(|node| node.is_prompt) {
        return Ok(Draft::nothing(dir));
    }
    let (old, new) = (&request.turn.session, uuid::Uuid::new_v4().to_string());
    let mut bytes = Vec::new();
    for node in kept {
        let line = transcript::replace_id(&transcript.bytes[node.range.clone()], &["sessionId"], old, &new);
        let value = transcript::parse(&line).ok_or_else(|| WhyNot::format("a line"))?;
        if value.get("sessionId").is_some_and(|id| *id != new.as_str()) {
            return Err(WhyNot::format("a record of another session"));
        }
        bytes.extend_from_slice(&line);
    }
    if !is_id_shared && transcript::find(&bytes, format!("\"promptId\":\"{wanted}\"").as_bytes()).is_some() {
        return Err(WhyNot::format("records of the prompt stand before it"));
    }
    let title = json!({"type": "custom-title", "customTitle": request.title, "sessionId": new});
    bytes.extend_from_slice(format!("{title}\n").as_bytes());
    let file = transcript.sibling(transcript.beside(&format!("{new}.jsonl")), bytes);
    Ok(Draft::of_files(dir, messages, new, vec![file]))
}

fn read(value: &Value, range: Range<usize>) -> ReadRecord {
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let kind = value["type"].as_str().unwrap_or_default();
    let is = |key: &str| value[key] == true;
    let content = &value["message"]["content"];
    let is_result = content.as_array().is_some_and(|parts| parts.iter().any(|part| part["type"] == "tool_result"));
    let is_prompt = kind == "user"
        && value["promptId"].is_string()
        && !is("isSidechain")
        && !is("isMeta")
        && !is("isCompactSummary")
        && !is_result;
    let shown = text_of(content);
    let message = match kind {
        _ if shown.trim().is_empty() || is("isSidechain") || is("isMeta") || is_result => None,
        "user" => Some(ChatMessage::user(&shown)),
        "assistant" => Some(ChatMessage::agent(&shown)),
        _ => None,
    };
    let id = text("uuid");
    // After a compaction, the first record names what was before it under another key.
    let parent = text("parentUuid").or_else(|| text("logicalParentUuid")).filter(|_| id.is_some());
    let node = ChainNode { range, id, parent, is_prompt, is_dropped: DROPPED.contains(&kind) };
    ReadRecord {
        node,
        prompt_id: text("promptId"),
        message,
        dir: text("cwd").map(PathBuf::from),
        version: text("version"),
        turn_index: value["turnPosition"]["turnIndex"].as_u64(),
    }
}
