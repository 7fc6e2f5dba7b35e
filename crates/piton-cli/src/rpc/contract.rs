//! The contract as an OpenRPC document: `docs/schema/rpc.json`, and the answer to `rpc.discover`.

use serde_json::{Value, json};

use super::methods::{self, Method, Param, ParamKind};
use super::params::{DIRECTORY, PROGRESS};
use super::wire::PROTOCOL;
use super::wire::code;

/// Commands that print what another command prints.
const AS_ANOTHER: [(&str, &str); 6] = [
    ("git-undo", "git-restore"),
    ("undo", "restore"),
    ("redo", "restore"),
    ("unmark", "mark"),
    ("clear-legacy", "clear"),
    ("list", "rollback"),
];

const DESCRIPTION: &str = "JSON-RPC 2.0 over stdin and stdout, one message a line, as `piton serve` speaks it. A method is a \
command of piton, its result is what that command prints with `--json`. Requests are worked on at the same time; wait for the \
answer of one on which the next depends. A parameter that is a path has a second one for its exact bytes, if they are not \
UTF-8: `path_bytes` beside `path`, printable ASCII, in which each other byte and `%` are `%` and two hexadecimal digits. \
Unknown parameters are refused. Methods, parameters and keys may be added under the same protocol version, but none is removed.";

/// Returns the document.
pub(crate) fn document() -> Value {
    let own = [initialize(), event(), discover()];
    let commands = methods::all().values().map(method);
    json!({
        "openrpc": "1.3.2",
        "info": {"title": "piton serve", "version": PROTOCOL.to_string(), "description": DESCRIPTION},
        "methods": own.into_iter().chain(commands).collect::<Vec<_>>(),
        "components": {"errors": errors()},
        "x-notifications-to-server": [{
            "name": "$/cancelRequest",
            "description": "Cancels a request, which is then answered with the error `cancelled`, or with its result if \
                            it was too late.",
            "params": [{"name": "id", "required": true, "schema": {"type": ["string", "number"]}}],
        }],
        "x-notifications-to-client": notifications(),
    })
}

fn method(method: &Method) -> Value {
    let common = [
        param(
            DIRECTORY,
            "Directory in which the command runs; the default is that of the server",
            false,
            &json!({"type": "string"}),
        ),
        bytes_of(DIRECTORY, &json!({"type": "string"})),
        param(PROGRESS, "Send notifications of the progress", false, &json!({"type": "boolean"})),
    ];
    let input = method
        .input
        .map(|name| param(name, "The record, as an object or as YAML", true, &json!({"type": ["object", "string"]})));
    let own = method.params.iter().flat_map(params);
    let words = method.words.join("-");
    let name = if method.name == "list" { "list" } else { &words };
    let schema = AS_ANOTHER.iter().find(|(from, _)| *from == name).map_or(name, |(_, to)| to);
    json!({
        "name": method.name,
        "summary": method.summary,
        "paramStructure": "by-name",
        "params": common.into_iter().chain(input).chain(own).collect::<Vec<_>>(),
        "result": {"name": "report", "schema": {"$ref": format!("{schema}.json")}},
        "errors": errors().as_object().into_iter().flat_map(|all| all.keys()).map(reference).collect::<Vec<_>>(),
    })
}

fn reference(name: &String) -> Value {
    json!({"$ref": format!("#/components/errors/{name}")})
}

fn param(name: &str, help: &str, is_required: bool, schema: &Value) -> Value {
    json!({"name": name, "description": help, "required": is_required, "schema": schema})
}

fn bytes_of(name: &str, schema: &Value) -> Value {
    param(&format!("{name}_bytes"), &format!("The exact bytes of `{name}`, escaped"), false, schema)
}

/// Returns the parameters for one option: one, or two for a path.
fn params(own: &Param) -> Vec<Value> {
    let one = match own.kind {
        ParamKind::Flag => json!({"type": "boolean"}),
        ParamKind::Number => match &own.range {
            Some(range) => json!({"type": "integer", "minimum": range.start(), "maximum": range.end()}),
            None => json!({"type": "integer", "minimum": 0}),
        },
        ParamKind::Checkpoint => json!({"type": ["string", "integer"]}),
        ParamKind::Text | ParamKind::Path => json!({"type": "string"}),
    };
    let list = |items: Value| if own.is_list { json!({"type": "array", "items": items}) } else { items };
    let mut schema = list(one);
    if let Some(default) = &own.default {
        schema["default"] = default.clone();
    }
    // A path may be given by its bytes alone.
    let is_required = own.is_required && own.kind != ParamKind::Path;
    let first = param(&own.name, &own.help, is_required, &schema);
    let second = (own.kind == ParamKind::Path).then(|| {
        let items = if own.is_list { json!({"type": ["string", "null"]}) } else { json!({"type": "string"}) };
        bytes_of(&own.name, &list(items))
    });
    [first].into_iter().chain(second).collect()
}

/// Returns one parameter of a method, or two for a path. Empty if there is none of that name.
pub(crate) fn params_of(method: &Method, name: &str) -> Vec<Value> {
    method.params.iter().filter(|own| own.name == name).flat_map(params).collect()
}

fn initialize() -> Value {
    json!({
        "name": "initialize",
        "summary": "Agree on a version of the protocol; without it, the version is 1",
        "paramStructure": "by-name",
        "params": [param("protocol", "Version that the client speaks", false, &json!({"type": "integer"}))],
        "result": {"name": "server", "schema": {
            "type": "object",
            "required": ["protocol", "name", "version", "methods", "limits"],
            "properties": {
                "protocol": {"type": "integer", "description": "version of the protocol"},
                "name": {"type": "string", "description": "`piton`"},
                "version": {"type": "string", "description": "version of the program"},
                "base": {"type": ["string", "null"], "description": "base that the server was started with, if any"},
                "methods": {"type": "array", "items": {"type": "string"}, "description": "names of all methods"},
                "limits": {
                    "type": "object",
                    "required": ["line_bytes", "at_a_time", "waiting"],
                    "properties": {
                        "line_bytes": {"type": "integer", "description": "longest message"},
                        "at_a_time": {"type": "integer", "description": "requests that are worked on at a time"},
                        "waiting": {"type": "integer", "description": "requests that may wait"},
                        "waiting_bytes": {"type": "integer", "description": "size of their messages, in all"},
                    },
                },
            },
        }},
        "errors": [reference(&"params".to_owned())],
    })
}

fn event() -> Value {
    json!({
        "name": "event",
        "summary": "Report what an agent does, as its hook would: the start and end of a turn, a tool. Takes the checkpoint \
                    that the event calls for, once per turn, whether automatic checkpoints are switched on or not",
        "paramStructure": "by-name",
        "params": [
            param("agent", "Name of the agent; the default is `plain`", false, &json!({"type": "string"})),
            param("payload", "The event, in the format of the agent. Of `plain`: event (`session_start`, `prompt`, \
                `before_tool`, `turn_end` or `session_end`), cwd (the absolute path of a directory), session_id, turn_id, prompt, \
                tool_name, tool_input", true,
                &json!({"type": "object"})),
        ],
        "result": {"name": "report", "schema": {
            "type": "object",
            "required": ["protected", "missed", "answer"],
            "properties": {
                "protected": {"type": "boolean", "description": "false if a checkpoint was called for and is missing"},
                "missed": {"type": ["string", "null"], "description": "why it is missing"},
                "answer": {"type": "string", "description": "what the hook would answer the agent"},
            },
        }},
        "errors": [reference(&"params".to_owned())],
    })
}

fn discover() -> Value {
    json!({
        "name": "rpc.discover",
        "summary": "This document",
        "paramStructure": "by-name",
        "params": [],
        "result": {"name": "document", "schema": {"type": "object"}},
        "errors": [],
    })
}

fn errors() -> Value {
    let data = "`data` has `kind`, `message` and `hint`, as `error.json` describes them";
    let protocol = "and the kind `unsupported_protocol` of `initialize`";
    json!({
        "parse": {"code": code::PARSE, "message": "The line is not JSON"},
        "request": {"code": code::REQUEST, "message": "The message is not a request, is too long, or its id is in use"},
        "method": {"code": code::METHOD, "message": "There is no such method"},
        "params": {"code": code::PARAMS, "message": format!("The parameters do not fit the method; {data}, {protocol}")},
        "internal": {"code": code::INTERNAL, "message": "An error in piton itself; other requests go on"},
        "failed": {"code": code::FAILED, "message": format!("The command failed; {data}")},
        "cancelled": {"code": code::CANCELLED, "message": format!("The request was cancelled; {data}")},
    })
}

fn notifications() -> Value {
    let id = || param("id", "Id of the request", true, &json!({"type": ["string", "number"]}));
    let message = |help: &str| param("message", help, true, &json!({"type": "string"}));
    let counters = [
        "files_found",
        "bytes_to_read",
        "bytes_read",
        "files_to_write",
        "files_written",
        "bytes_to_write",
        "bytes_written",
        "store_bytes",
        "store_bytes_done",
    ];
    let counters = counters.map(|name| param(name, "", true, &json!({"type": "integer"})));
    let progress: Vec<_> = [id(), message("The progress in words")].into_iter().chain(counters).collect();
    json!([
        {"name": "progress", "description": "The progress of a request that asked for it, while it changes", "params": progress},
        {"name": "warning", "description": "A warning of a request, before its answer", "params": [id(), message("The warning")]},
    ])
}
