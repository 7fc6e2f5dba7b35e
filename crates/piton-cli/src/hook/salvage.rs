//! Reads a JSON payload, and salvages fields from one that is truncated, too long or corrupt.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::agents::Agent;

/// Number of bytes that are searched for the fields: agents put them before long values.
const SEARCHED_BYTES_MAX: usize = 1 << 20;

/// A payload as far as it could be read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Payload {
    pub(super) fields: Map<String, Value>,
    /// True if the payload is not a complete JSON object, so that fields may be missing.
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

/// Returns the fields that can be found. Quotes inside a JSON string are escaped, so a field name between plain quotes
/// cannot come from inside another value.
fn salvage(bytes: &[u8]) -> Map<String, Value> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SEARCHED_BYTES_MAX)]);
    let names: BTreeSet<_> = Agent::all().flat_map(|agent| agent.payload.salvaged).collect();
    let found = names.into_iter().filter_map(|field| Some(((*field).to_owned(), find(&text, field)?.into())));
    found.collect()
}

fn find(text: &str, field: &str) -> Option<String> {
    let name = format!("\"{field}\"");
    text.match_indices(&name).find_map(|(at, _)| {
        let rest = text[at + name.len()..].trim_start().strip_prefix(':')?.trim_start();
        // Accepts a complete string only: a truncated path is another path.
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        values.next()?.ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_payload_still_has_agent_and_directory() {
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
    fn other_payloads_yield_no_fields_and_no_panic() {
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
