//! Gemini `generateContent` and `streamGenerateContent`.

use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::model::Event;
use super::super::tools::{Arguments, Say, Tool, ToolCall};
use super::{fresh, json_reply, stream, tokens_of};

pub(super) fn parse(body: &Value) -> (Vec<Tool>, Vec<Event>) {
    let sets = body["tools"].as_array().into_iter().flatten();
    let declared = sets.flat_map(|set| set["functionDeclarations"].as_array().into_iter().flatten());
    let tools = declared.map(|tool| Tool {
        name: tool["name"].as_str().unwrap_or_default().to_owned(),
        schema: tool.get("parametersJsonSchema").or_else(|| tool.get("parameters")).cloned().unwrap_or_default(),
        is_custom: false,
        namespace: None,
    });
    let contents = body["contents"].as_array().into_iter().flatten();
    let users = contents.filter(|content| content["role"] == "user");
    let parts = users.flat_map(|content| content["parts"].as_array().into_iter().flatten());
    let events = parts.filter_map(|part| match part["text"].as_str() {
        Some(text) => Some(Event::User(text.to_owned())),
        None => part.get("functionResponse").map(|_| Event::ToolResult),
    });
    (tools.collect(), events.collect())
}

pub(super) fn reply(target: &str, body: &Value, say: &Say) -> Reply {
    let parts = match say {
        Say::Text(text) => vec![json!({"text": text})],
        Say::Calls(calls) => calls.iter().map(part).collect(),
    };
    let content = json!({"role": "model", "parts": parts});
    let tokens = tokens_of(body);
    let answer = json!({
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": 20, "totalTokenCount": tokens + 20},
        "modelVersion": "scripted", "responseId": fresh("r"),
    });
    match (target.contains(":streamGenerateContent"), target.contains("alt=sse")) {
        (true, true) => stream(&[answer], false, ""),
        (true, false) => json_reply(200, &json!([answer])),
        (false, _) => json_reply(200, &answer),
    }
}

fn part(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Json(value) => value.clone(),
        Arguments::Text(text) => json!({"input": text}),
    };
    let call = json!({"name": call.tool, "args": arguments, "id": fresh("fc")});
    json!({"functionCall": call, "thoughtSignature": "c2ln"})
}
