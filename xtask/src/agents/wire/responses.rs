//! OpenAI Responses.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::model::Event;
use super::super::tools::{Arguments, Say, Tool, ToolCall};
use super::{fresh, json_reply, seconds, stream, text_of};

pub(super) fn parse(body: &Value) -> (Vec<Tool>, Vec<Event>) {
    let mut tools = Vec::new();
    body["tools"].as_array().into_iter().flatten().for_each(|tool| add(&mut tools, tool, None));
    let mut events = Vec::new();
    if let Some(text) = body["input"].as_str() {
        events.push(Event::User(text.to_owned()));
    }
    for item in body["input"].as_array().into_iter().flatten() {
        let kind = item["type"].as_str().unwrap_or("message");
        match kind {
            // Some models get their tools in the conversation.
            "additional_tools" => {
                item["tools"].as_array().into_iter().flatten().for_each(|tool| add(&mut tools, tool, None));
            }
            // Tools that the model has searched for: not a result of a step.
            "tool_search_output" => {
                item["tools"].as_array().into_iter().flatten().for_each(|tool| add(&mut tools, tool, None));
            }
            "message" if item["role"] == "user" => events.push(Event::User(text_of(&item["content"]))),
            _ if kind.ends_with("_output") => events.push(Event::ToolResult),
            _ => {}
        }
    }
    (tools, events)
}

fn add(tools: &mut Vec<Tool>, tool: &Value, namespace: Option<&str>) {
    let name = tool["name"].as_str().unwrap_or_default();
    match tool["type"].as_str() {
        Some(kind @ ("function" | "custom")) => tools.push(Tool {
            name: name.to_owned(),
            schema: tool["parameters"].clone(),
            is_custom: kind == "custom",
            namespace: namespace.map(str::to_owned),
        }),
        Some(kind @ "tool_search") => tools.push(Tool {
            name: kind.to_owned(),
            schema: tool["parameters"].clone(),
            is_custom: false,
            namespace: None,
        }),
        Some("namespace") => {
            tool["tools"].as_array().into_iter().flatten().for_each(|tool| add(tools, tool, Some(name)));
        }
        _ => {}
    }
}

pub(super) fn reply(body: &Value, say: &Say) -> Reply {
    let items: Vec<_> = match say {
        Say::Text(text) => vec![message(text)],
        Say::Calls(calls) => calls.iter().map(item).collect(),
    };
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120,
    });
    let response = json!({
        "id": fresh("resp_"), "object": "response", "created_at": seconds(), "status": "completed",
        "model": body["model"], "output": items, "usage": usage, "error": null, "incomplete_details": null,
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
    });
    if body["stream"] != true {
        return json_reply(200, &response);
    }
    let mut created = response.clone();
    created["status"] = json!("in_progress");
    created["output"] = json!([]);
    created["usage"] = json!(null);
    let mut events = vec![json!({"type": "response.created", "response": created})];
    events.extend(items.iter().enumerate().flat_map(|(index, item)| events_of(index, item)));
    events.push(json!({"type": "response.completed", "response": response}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    stream(&events, true, "")
}

/// Returns the events with which an item of the output arrives.
fn events_of(index: usize, item: &Value) -> Vec<Value> {
    let at = json!({"output_index": index, "item_id": item["id"]});
    let event = |kind: &str, more: Value| {
        let mut event = at.clone();
        event["type"] = json!(kind);
        more.as_object().into_iter().flatten().for_each(|(key, value)| event[key] = value.clone());
        event
    };
    let mut added = item.clone();
    added["status"] = json!("in_progress");
    let mut events = Vec::new();
    match item["type"].as_str() {
        Some("message") => {
            let text = &item["content"][0]["text"];
            added["content"] = json!([]);
            let empty = json!({"type": "output_text", "text": "", "annotations": []});
            events.push(event("response.output_item.added", json!({"item": added})));
            events.push(event("response.content_part.added", json!({"content_index": 0, "part": empty})));
            events.push(event("response.output_text.delta", json!({"content_index": 0, "delta": text})));
            events.push(event("response.output_text.done", json!({"content_index": 0, "text": text})));
            let part = json!({"content_index": 0, "part": item["content"][0]});
            events.push(event("response.content_part.done", part));
        }
        Some("tool_search_call") => events.push(event("response.output_item.added", json!({"item": added}))),
        Some("custom_tool_call") => {
            added["input"] = json!("");
            events.push(event("response.output_item.added", json!({"item": added})));
            events.push(event("response.custom_tool_call_input.delta", json!({"delta": item["input"]})));
            events.push(event("response.custom_tool_call_input.done", json!({"input": item["input"]})));
        }
        _ => {
            added["arguments"] = json!("");
            events.push(event("response.output_item.added", json!({"item": added})));
            events.push(event("response.function_call_arguments.delta", json!({"delta": item["arguments"]})));
            let done = json!({"arguments": item["arguments"], "name": item["name"]});
            events.push(event("response.function_call_arguments.done", done));
        }
    }
    events.push(event("response.output_item.done", json!({"item": item})));
    events
}

fn message(text: &str) -> Value {
    json!({
        "type": "message", "id": fresh("msg_"), "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    })
}

fn item(call: &ToolCall) -> Value {
    let mut item = json!({"call_id": fresh("call_"), "name": call.tool, "status": "completed"});
    match &call.arguments {
        Arguments::Json(arguments) if call.tool == "tool_search" => {
            return json!({
                "type": "tool_search_call", "id": fresh("ts_"), "call_id": fresh("call_"), "status": "completed",
                "execution": "client", "arguments": arguments,
            });
        }
        Arguments::Json(value) => {
            item["type"] = json!("function_call");
            item["id"] = json!(fresh("fc_"));
            item["arguments"] = json!(value.to_string());
        }
        Arguments::Text(text) => {
            item["type"] = json!("custom_tool_call");
            item["id"] = json!(fresh("ctc_"));
            item["input"] = json!(text);
        }
    }
    if let Some(namespace) = &call.namespace {
        item["namespace"] = json!(namespace);
    }
    item
}
