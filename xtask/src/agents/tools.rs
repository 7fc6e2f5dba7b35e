//! The tools that an agent offers to its model, and calls of them that carry out a script.
//!
//! Names of tools and of their arguments come from the request itself, so that no agent is treated specially.

use serde_json::{Map, Value, json};

/// A tool as the request describes it.
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) schema: Value,
    /// True if it takes free text in place of arguments.
    pub(super) is_custom: bool,
    pub(super) namespace: Option<String>,
}

/// Next output of the scripted model.
#[derive(Debug, Clone)]
pub(super) enum Say {
    Text(String),
    /// Calls that the agent may carry out at the same time.
    Calls(Vec<ToolCall>),
}

#[derive(Debug, Clone)]
pub(super) struct ToolCall {
    pub(super) tool: String,
    pub(super) namespace: Option<String>,
    pub(super) arguments: Arguments,
}

#[derive(Debug, Clone)]
pub(super) enum Arguments {
    Json(Value),
    Text(String),
}

/// One step of a script.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Runs a command with the agent's shell tool.
    Shell(String),
    /// Runs several commands with the agent's shell tool, called in one reply.
    Parallel(Vec<String>),
    /// Writes a file with the agent's own tool for that. The path is relative to the project.
    Write { path: String, text: String },
    /// Starts a subagent with this prompt, and goes on without waiting for it.
    Background(String),
    /// Has a subagent carry out this prompt.
    Subagent(String),
    /// Calls a tool of the MCP server with this name.
    Mcp { server: &'static str, tool: &'static str, arguments: Value },
}

const SHELLS: [&str; 9] = [
    "Bash",
    "bash",
    "run_shell_command",
    "exec_command",
    "shell_command",
    "shell",
    "terminal",
    "execute_command",
    "run_command",
];
const AGENTS: [&str; 7] = ["Agent", "Task", "task", "agent", "delegate_task", "spawn_agent", "invoke_agent"];
/// Tools that find others, of agents that do not offer all at once.
const SEARCHES: [&str; 2] = ["ToolSearch", "tool_search"];
/// Answer to a script that needs a tool that the agent does not offer.
pub(super) const NO_TOOL: &str = "There is no such tool.";
const WRITERS: [&str; 7] = ["Write", "write_file", "write", "create_file", "create", "apply_patch", "patch"];

impl Step {
    /// Returns the number of results that the agent sends back.
    pub(super) fn results(&self) -> usize {
        match self {
            Self::Parallel(commands) => commands.len(),
            _ => 1,
        }
    }
}

fn find<'a>(tools: &'a [Tool], names: &[&str]) -> Option<&'a Tool> {
    names.iter().find_map(|name| tools.iter().find(|tool| tool.name == *name))
}

/// Returns true if the request offers tools that can carry out a script. Requests for titles and summaries do not.
pub(super) fn are_usable(tools: &[Tool]) -> bool {
    find(tools, &SHELLS).is_some()
}

/// Returns the call that carries out `step` in the project.
pub(super) fn call(step: &Step, tools: &[Tool], project: &str) -> Say {
    match step {
        Step::Shell(command) => call_shell(command, tools),
        Step::Parallel(commands) => {
            let calls = commands.iter().map(|command| call_shell(command, tools));
            Say::Calls(calls.flat_map(|say| if let Say::Calls(calls) = say { calls } else { Vec::new() }).collect())
        }
        Step::Background(prompt) => call_subagent(prompt, tools, true),
        Step::Subagent(prompt) => call_subagent(prompt, tools, false),
        Step::Mcp { server, tool, arguments } => call_mcp(server, tool, arguments, tools),
        Step::Write { path, text } => match find(tools, &WRITERS) {
            Some(tool) => call_writer(tool, path, text, project),
            None => call_shell(&format!("cat > '{path}' <<'END'\n{text}END"), tools),
        },
    }
}

fn call_shell(command: &str, tools: &[Tool]) -> Say {
    let Some(tool) = find(tools, &SHELLS) else { return Say::Text("There is no shell.".to_owned()) };
    let wanted = [(["command", "cmd"].as_slice(), command), (&["description"], "a step")];
    with_arguments(tool, Arguments::Json(fill(&tool.schema, &wanted)))
}

fn call_subagent(prompt: &str, tools: &[Tool], is_background: bool) -> Say {
    let Some(tool) = find(tools, &AGENTS) else { return search("spawn_agent", "spawn agent", tools) };
    let mut wanted = vec![
        (["prompt", "message", "goal", "task", "objective"].as_slice(), prompt),
        (&["description", "name", "task_name"], "a step"),
    ];
    let kinds = ["subagent_type", "agent_type", "agent_name"].as_slice();
    let is_listed = |name: &&str| tool.schema["properties"][*name]["enum"].is_array();
    if !kinds.iter().any(is_listed) {
        let kind = match tool.name.as_str() {
            "task" => Some("general"),
            "invoke_agent" => Some("generalist"),
            "spawn_agent" => None,
            _ => Some("general-purpose"),
        };
        wanted.extend(kind.map(|kind| (kinds, kind)));
    }
    let mut arguments = fill(&tool.schema, &wanted);
    if is_background {
        arguments["run_in_background"] = json!(true);
    }
    with_arguments(tool, Arguments::Json(arguments))
}

/// Agents put the name of the server into the name of the tool, or into its namespace.
fn call_mcp(server: &str, name: &str, arguments: &Value, tools: &[Tool]) -> Say {
    let is_it = |tool: &&Tool| {
        let full = format!("{}_{}", tool.namespace.as_deref().unwrap_or_default(), tool.name);
        full.contains(server) && full.ends_with(&format!("_{name}"))
    };
    match tools.iter().find(is_it) {
        Some(tool) => with_arguments(tool, Arguments::Json(arguments.clone())),
        None => search(&format!("mcp__{server}__{name}"), &format!("{server} {name}"), tools),
    }
}

/// Searches for a tool that the agent offers only then. The result does not count as a step.
fn search(name: &str, words: &str, tools: &[Tool]) -> Say {
    let Some(tool) = find(tools, &SEARCHES) else { return Say::Text(NO_TOOL.to_owned()) };
    let query = if tool.name == "ToolSearch" { format!("select:{name}") } else { words.to_owned() };
    let mut arguments = fill(&tool.schema, &[(["query"].as_slice(), query.as_str())]);
    if tool.name == "ToolSearch" {
        arguments["max_results"] = json!(5);
    }
    with_arguments(tool, Arguments::Json(arguments))
}

fn call_writer(tool: &Tool, path: &str, text: &str, project: &str) -> Say {
    if ["apply_patch", "patch"].contains(&tool.name.as_str()) {
        let added: String = text.lines().map(|line| format!("+{line}\n")).collect();
        let patch = format!("*** Begin Patch\n*** Add File: {path}\n{added}*** End Patch");
        if tool.is_custom {
            return with_arguments(tool, Arguments::Text(patch));
        }
        let wanted = [(["input", "patch", "patchText", "command"].as_slice(), patch.as_str()), (&["mode"], "patch")];
        return with_arguments(tool, Arguments::Json(fill(&tool.schema, &wanted)));
    }
    let path = format!("{project}/{path}");
    let wanted = [
        (["file_path", "filePath", "path", "absolute_path"].as_slice(), path.as_str()),
        (&["content", "contents", "file_text", "text"], text),
    ];
    with_arguments(tool, Arguments::Json(fill(&tool.schema, &wanted)))
}

fn with_arguments(tool: &Tool, arguments: Arguments) -> Say {
    Say::Calls(vec![ToolCall { tool: tool.name.clone(), namespace: tool.namespace.clone(), arguments }])
}

/// Returns the arguments for a tool: of each group of names the one that the schema has, then everything else that it
/// requires.
fn fill(schema: &Value, wanted: &[(&[&str], &str)]) -> Value {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let mut arguments = Map::new();
    for (names, value) in wanted {
        let Some(name) = names.iter().find(|name| properties.contains_key(**name)) else { continue };
        let is_list = properties[*name]["type"] == "array";
        let value = if is_list { json!(["bash", "-c", value]) } else { json!(value) };
        arguments.insert((*name).to_owned(), value);
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !arguments.contains_key(name) {
            arguments.insert(name.to_owned(), any(&schema["properties"][name]));
        }
    }
    Value::Object(arguments)
}

/// Returns a value that is valid for a JSON schema.
pub(super) fn any(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or_default();
    match kind.to_ascii_lowercase().as_str() {
        "boolean" => json!(false),
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or(json!(1)),
        "array" => json!([]),
        "object" => {
            let properties = schema["properties"].as_object();
            properties.into_iter().flatten().map(|(name, schema)| (name.clone(), any(schema))).collect()
        }
        _ => json!("a word"),
    }
}
