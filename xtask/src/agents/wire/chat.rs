//! OpenAI Chat Completions.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::model::Event;
use super::super::tools::{Arguments, Say, Tool, ToolCall};
use super::{fresh, json_reply, seconds, stream, text_of, tokens_of};

pub(super) fn parse(body: &Value) -> (Vec<Tool>, Vec<Event>) {
    let tools = body["tools"].as_array().into_iter().flatten().map(|tool| Tool {
        name: tool["function"]["name"].as_str().unwrap_or_default().to_owned(),
        schema: tool["function"]["parameters"].clone(),
        is_custom: false,
        namespace: None,
    });
    let messages = body["messages"].as_array().into_iter().flatten();
    let events = messages.filter_map(|message| match message["role"].as_str() {
        Some("tool") => Some(Event::ToolResult),
        Some("user") => Some(Event::User(text_of(&message["content"]))),
        _ => None,
    });
    (tools.collect(), events.collect())
}

pub(super) fn reply(body: &Value, say: &Say) -> Reply {
    let mut base = json!({"id": fresh("chatcmpl-"), "created": seconds(), "model": body["model"]});
    let tokens = tokens_of(body);
    let usage = json!({"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20});
    let (message, finish) = match say {
        Say::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Say::Calls(calls) => {
            let calls: Vec<_> = calls.iter().enumerate().map(|(index, call)| function(index, call)).collect();
            (json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool_calls")
        }
    };
    if body["stream"] != true {
        base["object"] = json!("chat.completion");
        base["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish}]);
        base["usage"] = usage;
        return json_reply(200, &base);
    }
    base["object"] = json!("chat.completion.chunk");
    let chunk = |choices: Value| {
        let mut chunk = base.clone();
        chunk["choices"] = choices;
        chunk
    };
    let mut last = chunk(json!([]));
    last["usage"] = usage;
    let events = [
        chunk(json!([{"index": 0, "delta": message, "finish_reason": null}])),
        chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish}])),
        last,
    ];
    stream(&events, false, "data: [DONE]\n\n")
}

fn function(index: usize, call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Json(value) => value.to_string(),
        Arguments::Text(text) => json!({"input": text}).to_string(),
    };
    let function = json!({"name": call.tool, "arguments": arguments});
    json!({"index": index, "id": fresh("call_"), "type": "function", "function": function})
}
