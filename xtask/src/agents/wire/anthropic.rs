//! Anthropic Messages.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::model::Event;
use super::super::tools::{Arguments, Say, Tool, ToolCall};
use super::{fresh, json_reply, stream, text_of};

pub(super) fn parse(body: &Value) -> (Vec<Tool>, Vec<Event>) {
    let tools = body["tools"].as_array().into_iter().flatten().map(|tool| Tool {
        name: tool["name"].as_str().unwrap_or_default().to_owned(),
        schema: tool["input_schema"].clone(),
        is_custom: false,
        namespace: None,
    });
    let mut events = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "user") {
        let content = &message["content"];
        let parts = content.as_array().into_iter().flatten();
        // Tools that the model has searched for are not a result of a step.
        let is_search = |part: &Value| part["content"][0]["type"] == "tool_reference";
        let results = parts.filter(|part| part["type"] == "tool_result" && !is_search(part)).count();
        events.extend((0..results).map(|_| Event::ToolResult));
        let text = text_of(content);
        events.extend((!text.is_empty()).then_some(Event::User(text)));
    }
    (tools.collect(), events)
}

pub(super) fn reply(body: &Value, say: &Say) -> Reply {
    let (blocks, stop) = match say {
        Say::Text(text) => (vec![json!({"type": "text", "text": text})], "end_turn"),
        Say::Calls(calls) => (calls.iter().map(block).collect(), "tool_use"),
    };
    let usage = json!({
        "input_tokens": 100, "output_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    });
    let mut message = json!({
        "id": fresh("msg_01"), "type": "message", "role": "assistant", "model": body["model"], "content": blocks,
        "stop_reason": stop, "stop_sequence": null, "usage": usage,
    });
    if body["stream"] != true {
        return json_reply(200, &message);
    }
    message["content"] = json!([]);
    message["stop_reason"] = json!(null);
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, block) in blocks.iter().enumerate() {
        let (start, delta) = match block["type"].as_str() {
            Some("text") => (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": block["text"]})),
            _ => {
                let mut start = block.clone();
                start["input"] = json!({});
                (start, json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}))
            }
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({
        "type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 20},
    }));
    events.push(json!({"type": "message_stop"}));
    stream(&events, true, "")
}

fn block(call: &ToolCall) -> Value {
    let input = match &call.arguments {
        Arguments::Json(value) => value.clone(),
        Arguments::Text(text) => json!({"input": text}),
    };
    json!({"type": "tool_use", "id": fresh("toolu_01"), "name": call.tool, "input": input})
}
