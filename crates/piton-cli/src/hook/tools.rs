//! Classifies the tools of agents by name and arguments: the files that a call may change.
//!
//! Only tools on these closed lists count as read-only. A tool that is new, or that comes from one of the user's
//! servers, counts as changing files until it is added.

use std::path::PathBuf;

use serde_json::Value;

use crate::agents::Agent;

/// The files that a tool call may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolChange {
    /// Nothing: the tool only reads.
    Nothing,
    /// These files, as given in the arguments, and perhaps others around the directory in which the tool runs.
    Files(Vec<PathBuf>),
    /// Any file that a shell command changes. It runs in `dir` if the call names a directory.
    Command { line: String, dir: Option<PathBuf> },
}

/// Read-only tools of Claude, then those of Copilot, which uses Claude's names where it sends Claude's payloads.
const CLAUDE_AND_COPILOT: &[&str] = &[
    "Read",
    "Grep",
    "Glob",
    "LS",
    "NotebookRead",
    "WebFetch",
    "WebSearch",
    "TodoRead",
    "TodoWrite",
    "BashOutput",
    "AskUserQuestion",
    "EnterPlanMode",
    "ExitPlanMode",
    "ListMcpResourcesTool",
    "ReadMcpResourceTool",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "ToolSearch",
    "CronList",
    // Copilot.
    "view",
    "grep",
    "glob",
    "web_fetch",
    "web_search",
    "read_bash",
    "list_bash",
    "report_intent",
    "ask_user",
];

/// Returns the read-only tools of an agent.
fn readers(agent: Agent) -> &'static [&'static str] {
    match agent {
        Agent::Claude | Agent::Copilot => CLAUDE_AND_COPILOT,
        Agent::Codex => &["update_plan", "view_image", "web_search", "read_file", "list_dir", "grep_files"],
        Agent::Gemini | Agent::Qwen => &[
            "read_file",
            "read_many_files",
            "list_directory",
            "glob",
            "grep_search",
            "search_file_content",
            "web_fetch",
            "google_web_search",
            "web_search",
            "write_todos",
            "todo_write",
            "ask_user",
            "ask_user_question",
            "exit_plan_mode",
        ],
        Agent::Hermes => {
            &["read_file", "search_files", "web_search", "web_extract", "todo", "clarify", "session_search"]
        }
        Agent::Opencode => &[
            "read",
            "grep",
            "glob",
            "list",
            "webfetch",
            "websearch",
            "codesearch",
            "todowrite",
            "todoread",
            "question",
        ],
        Agent::Cursor => {
            &["Read", "Grep", "Glob", "LS", "SemanticSearch", "WebSearch", "WebFetch", "ReadLints", "TodoWrite"]
        }
        Agent::Crush => &["view", "ls", "glob", "grep", "fetch", "web_fetch", "sourcegraph", "diagnostics", "todos"],
        Agent::Plain => &["read_file", "list_directory"],
    }
}

/// Tools that run a shell command line. PowerShell is another language and is not analysed: it may change any file.
const SHELLS: [&str; 10] = [
    "Bash",
    "bash",
    "Shell",
    "shell",
    "terminal",
    "run_shell_command",
    "exec_command",
    "shell_command",
    "local_shell",
    "execute_command",
];
/// Arguments that name the directory in which a shell runs.
const DIRECTORIES: [&str; 7] =
    ["workdir", "working_directory", "working_dir", "directory", "dir_path", "cwd", "workingDirectory"];
/// Arguments that name a file.
const PATHS: [&str; 9] = [
    "file_path",
    "path",
    "filePath",
    "notebook_path",
    "target_file",
    "absolute_path",
    "filename",
    "destination",
    "source",
];
/// Arguments that may contain a patch.
const PATCHES: [&str; 5] = ["command", "patch", "patchText", "input", "diff"];
/// Prefixes of the lines in a patch that name files.
const PATCHED: [&str; 4] = ["*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "];

/// Returns the files that a tool call may change.
pub(super) fn change(agent: Agent, tool: &str, input: &Value) -> ToolChange {
    if readers(agent).contains(&tool) {
        return ToolChange::Nothing;
    }
    let text = |key: &&str| input.get(*key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if SHELLS.contains(&tool)
        && let Some(line) = input.get("command").or_else(|| input.get("cmd")).and_then(command_line)
    {
        return ToolChange::Command { line, dir: DIRECTORIES.iter().find_map(text).map(PathBuf::from) };
    }
    let mut files: Vec<PathBuf> = PATHS.iter().filter_map(text).map(PathBuf::from).collect();
    let lists = ["paths", "files", "edits"].iter().filter_map(|key| input.get(*key)?.as_array()).flatten();
    files.extend(lists.filter_map(|one| {
        let named = || PATHS.iter().find_map(|key| one.get(*key)?.as_str());
        one.as_str().or_else(named).map(PathBuf::from)
    }));
    if tool.contains("patch") {
        let lines = PATCHES.iter().filter_map(text).chain(input.as_str()).flat_map(str::lines);
        files.extend(
            lines.filter_map(|line| PATCHED.iter().find_map(|mark| line.strip_prefix(mark))).map(PathBuf::from),
        );
    }
    files.dedup();
    ToolChange::Files(files)
}

/// Returns the command line of a shell tool. The argument is a string, or a list of words: a shell called with `-c` and
/// a line, or any other command, whose words are quoted. `None` if it is neither.
fn command_line(command: &Value) -> Option<String> {
    if let Some(line) = command.as_str() {
        return Some(line.to_owned());
    }
    let words: Vec<&str> = command.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    let is_shell = |program: &str| matches!(program.rsplit('/').next(), Some("bash" | "sh" | "zsh" | "dash"));
    match words[..] {
        [program, options, line] if is_shell(program) && options.starts_with('-') && options.ends_with('c') => {
            Some(line.to_owned())
        }
        _ => Some(words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect::<Vec<_>>().join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(names: &[&str]) -> ToolChange {
        ToolChange::Files(names.iter().map(PathBuf::from).collect())
    }

    fn command(line: &str, dir: Option<&str>) -> ToolChange {
        ToolChange::Command { line: line.to_owned(), dir: dir.map(PathBuf::from) }
    }

    #[test]
    fn each_tool_is_known_by_what_it_does() {
        use Agent::{Claude, Codex, Copilot, Crush, Cursor, Gemini, Hermes, Opencode, Qwen};
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n*** Move to: src/b.rs\n@@\n-x\n+y\n*** Add File: c d\n+z\n\
                     *** Delete File: /abs/e\n*** End Patch";
        let cases = [
            (Claude, "Read", json!({"file_path": "/x"}), ToolChange::Nothing),
            (Claude, "Write", json!({"file_path": "/x/y", "content": "z"}), files(&["/x/y"])),
            (Claude, "NotebookEdit", json!({"notebook_path": "/n.ipynb"}), files(&["/n.ipynb"])),
            (Claude, "Agent", json!({"prompt": "rm"}), files(&[])),
            (Claude, "PowerShell", json!({"command": "Remove-Item x"}), files(&[])),
            (Claude, "mcp__fs__read", json!({"path": "/x"}), files(&["/x"])),
            (Claude, "Bash", json!({"command": "rm x"}), command("rm x", None)),
            (Claude, "Bash", Value::Null, files(&[])),
            (Codex, "apply_patch", json!({"command": patch}), files(&["src/a.rs", "src/b.rs", "c d", "/abs/e"])),
            (Codex, "shell", json!({"command": ["bash", "-lc", "rm x"], "workdir": "/w"}), command("rm x", Some("/w"))),
            (Codex, "shell", json!({"command": ["rm", "it's"]}), command(r"'rm' 'it'\''s'", None)),
            (Gemini, "replace", json!({"file_path": "a"}), files(&["a"])),
            (Gemini, "read_file", json!({}), ToolChange::Nothing),
            (Gemini, "run_shell_command", json!({"command": "ls", "directory": "d"}), command("ls", Some("d"))),
            (Qwen, "edit", json!({"file_path": "a"}), files(&["a"])),
            (Hermes, "patch", json!({"mode": "patch", "patch": "*** Update File: q"}), files(&["q"])),
            (Hermes, "terminal", json!({"command": "x", "workdir": "/w"}), command("x", Some("/w"))),
            (Opencode, "write", json!({"filePath": "/f"}), files(&["/f"])),
            (Opencode, "read", json!({"filePath": "/f"}), ToolChange::Nothing),
            (Crush, "multiedit", json!({"file_path": "f", "edits": [{"old_string": "x"}]}), files(&["f"])),
            (Copilot, "create", json!({"path": "/f"}), files(&["/f"])),
            (Copilot, "view", json!({"path": "/f"}), ToolChange::Nothing),
            (Cursor, "Shell", json!({"command": "rm a", "working_directory": "/p"}), command("rm a", Some("/p"))),
            (Cursor, "Delete", json!({"path": "/f"}), files(&["/f"])),
            // A name that is read-only in one agent may be a tool that writes in another.
            (Gemini, "Read", json!({}), files(&[])),
        ];
        for (agent, tool, input, expected) in cases {
            assert_eq!(change(agent, tool, &input), expected, "{agent:?} {tool} {input}");
        }
    }
}
