//! Classifies the tools of agents by name and arguments: the files that a call may change.
//!
//! Only tools on the closed list of their agent count as read-only. A tool that is new, or that comes from one of the
//! user's servers, counts as changing files until it is added.

use std::path::PathBuf;

use serde_json::Value;

use crate::agents::Agent;
use crate::agents::event::ToolChange;

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
    if agent.tools.readers.contains(&tool) {
        return ToolChange::Nothing;
    }
    let text = |key: &&str| input.get(*key).and_then(Value::as_str).filter(|text| !text.is_empty());
    // A user may give the tool of one agent to another.
    if Agent::all().any(|agent| agent.tools.shells.contains(&tool))
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
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n*** Move to: src/b.rs\n@@\n-x\n+y\n*** Add File: c d\n+z\n\
                     *** Delete File: /abs/e\n*** End Patch";
        let cases = [
            ("claude", "Read", json!({"file_path": "/x"}), ToolChange::Nothing),
            ("claude", "Write", json!({"file_path": "/x/y", "content": "z"}), files(&["/x/y"])),
            ("claude", "NotebookEdit", json!({"notebook_path": "/n.ipynb"}), files(&["/n.ipynb"])),
            ("claude", "Agent", json!({"prompt": "rm"}), files(&[])),
            ("claude", "PowerShell", json!({"command": "Remove-Item x"}), files(&[])),
            ("claude", "mcp__fs__read", json!({"path": "/x"}), files(&["/x"])),
            ("claude", "Bash", json!({"command": "rm x"}), command("rm x", None)),
            ("claude", "Bash", Value::Null, files(&[])),
            ("codex", "apply_patch", json!({"command": patch}), files(&["src/a.rs", "src/b.rs", "c d", "/abs/e"])),
            (
                "codex",
                "shell",
                json!({"command": ["bash", "-lc", "rm x"], "workdir": "/w"}),
                command("rm x", Some("/w")),
            ),
            ("codex", "shell", json!({"command": ["rm", "it's"]}), command(r"'rm' 'it'\''s'", None)),
            ("gemini", "replace", json!({"file_path": "a"}), files(&["a"])),
            ("gemini", "read_file", json!({}), ToolChange::Nothing),
            ("gemini", "run_shell_command", json!({"command": "ls", "directory": "d"}), command("ls", Some("d"))),
            ("qwen", "edit", json!({"file_path": "a"}), files(&["a"])),
            ("hermes", "patch", json!({"mode": "patch", "patch": "*** Update File: q"}), files(&["q"])),
            ("hermes", "terminal", json!({"command": "x", "workdir": "/w"}), command("x", Some("/w"))),
            ("opencode", "write", json!({"filePath": "/f"}), files(&["/f"])),
            ("opencode", "read", json!({"filePath": "/f"}), ToolChange::Nothing),
            ("crush", "multiedit", json!({"file_path": "f", "edits": [{"old_string": "x"}]}), files(&["f"])),
            ("copilot", "create", json!({"path": "/f"}), files(&["/f"])),
            ("copilot", "view", json!({"path": "/f"}), ToolChange::Nothing),
            ("cursor", "Shell", json!({"command": "rm a", "working_directory": "/p"}), command("rm a", Some("/p"))),
            ("cursor", "Delete", json!({"path": "/f"}), files(&["/f"])),
            // A name that is read-only in one agent may be a tool that writes in another.
            ("gemini", "Read", json!({}), files(&[])),
        ];
        for (agent, tool, input, expected) in cases {
            assert_eq!(change(Agent::named(agent), tool, &input), expected, "{agent} {tool} {input}");
        }
    }
}
