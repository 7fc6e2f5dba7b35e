//! Reading JSON that is whole, and what can be had of JSON that is not: cut off, too long, or damaged.

use serde_json::{Map, Value};

/// The fields by which an event is known. All are text.
const FIELDS: [&str; 14] = [
    "hook_event_name",
    "event",
    "session_id",
    "sessionId",
    "conversation_id",
    "prompt_id",
    "turn_id",
    "generation_id",
    "cwd",
    "directory",
    "tool_name",
    "toolName",
    "cursor_version",
    "agent_id",
];
/// The fields are looked for in that many bytes: agents put them before what is long.
const LOOKED_AT_MAX: usize = 1 << 20;

/// What was sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Payload {
    pub(super) fields: Map<String, Value>,
    /// Some of it is missing, or it was no JSON object at all.
    pub(super) is_cut: bool,
}

impl Payload {
    pub(super) fn read(bytes: &[u8]) -> Self {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Self { fields, is_cut: false },
            _ => Self { fields: salvage(bytes), is_cut: true },
        }
    }
}

/// The fields that can be found. Text within text has its quotes escaped, so that a name in quotes is a name.
fn salvage(bytes: &[u8]) -> Map<String, Value> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT_MAX)]);
    let found = FIELDS.iter().filter_map(|field| Some(((*field).to_owned(), find(&text, field)?.into())));
    found.collect()
}

fn find(text: &str, field: &str) -> Option<String> {
    let name = format!("\"{field}\"");
    text.match_indices(&name).find_map(|(at, _)| {
        let rest = text[at + name.len()..].trim_start().strip_prefix(':')?.trim_start();
        // Only a text whose end is there.
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        values.next()?.ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_still_tells_who_and_where() {
        let whole = r#"{"session_id":"s","cwd":"/p/a \"b\"","hook_event_name" : "PreToolUse","tool_name":"Write","tool_input":{"file_path":"/p/x","content":"say \"cwd\": \"/evil\" and"#;
        let payload = Payload::read(whole.as_bytes());
        assert!(payload.is_cut);
        assert_eq!(payload.fields["cwd"], "/p/a \"b\"");
        assert_eq!(payload.fields["hook_event_name"], "PreToolUse");
        assert_eq!(payload.fields["tool_name"], "Write");
        assert!(!payload.fields.contains_key("file_path"));
        assert!(Payload::read(br#"{"cwd":"/p/a"#).fields.is_empty(), "a name that is cut off is another name");
    }

    #[test]
    fn anything_else_is_nothing_and_no_panic() {
        let deep = "[".repeat(100_000);
        for bytes in
            [&b""[..], b"\xff\xfe\x00", b"[]", b"7", b"null", b"{\"cwd\"", b"{\"cwd\":", b"{\"cwd\":7", deep.as_bytes()]
        {
            let payload = Payload::read(bytes);
            assert!(payload.is_cut && payload.fields.is_empty());
        }
        let broken = Payload::read(b"{\"cwd\":\"/p\",\"x\":\"\xff\"}");
        assert_eq!(broken.fields["cwd"], "/p");
    }
}
