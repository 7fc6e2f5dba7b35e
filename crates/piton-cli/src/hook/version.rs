//! The version of the agent that runs the hook, where the event does not tell it.
//!
//! It is noted for a later rewind of the conversation: which version wrote the transcript. Looked for once per session, in this
//! order: a variable that the agent sets for its children, the package that the agent's process was started from, and the
//! head of the transcript. A few small files are read; whatever is missing or of another form is passed over.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::decode::HookEvent;
use crate::agents::Agent;
use crate::context::Context;

/// The part of a transcript that is read.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// The largest `package.json` that is read.
const PACKAGE_BYTES_MAX: u64 = 64 << 10;
/// Processes between the hook and the agent: shells, and the agent's own launcher.
const PARENTS_MAX: usize = 5;
/// Directories between a program and its `package.json`.
const DIRS_MAX: usize = 5;
/// Arguments of a process that may name its script.
const SCRIPTS_MAX: usize = 2;
const VERSION_BYTES_MAX: usize = 64;

/// Returns the version of the agent that sent an event.
pub(super) fn find(event: &HookEvent) -> Option<String> {
    let found = of_environment(event.agent).or_else(|| of_process(event.agent)).or_else(|| of_transcript(event));
    found.filter(|version| is_version(version))
}

fn is_version(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".-+_".contains(c);
    text.len() <= VERSION_BYTES_MAX && text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(is_part)
}

fn of_environment(agent: Agent) -> Option<String> {
    match agent {
        Agent::Claude => of_ai_agent(&Context::text("AI_AGENT")?),
        // The one that runs may be newer than the one that was installed.
        Agent::Copilot => Context::variable("COPILOT_CLI_RESOLVED_DIST_DIR")
            .and_then(|dir| dir.file_name()?.to_str().map(str::to_owned))
            .filter(|name| is_version(name))
            .or_else(|| Context::text("COPILOT_CLI_BINARY_VERSION")),
        Agent::Qwen => Context::text("QWEN_CODE_STARTUP_VERSION"),
        // Set by the plugin, which runs inside the agent.
        Agent::Hermes => Context::text("PITON_HERMES_VERSION"),
        _ => None,
    }
}

/// `claude-code_2-1-325_harness` is 2.1.325.
fn of_ai_agent(text: &str) -> Option<String> {
    let version = text.strip_prefix("claude-code_")?.split('_').next()?;
    let is_plain = version.split('-').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    is_plain.then(|| version.replace('-', "."))
}

/// The names of the packages that hold an agent's program.
fn packages(agent: Agent) -> &'static [&'static str] {
    match agent {
        Agent::Claude => &["@anthropic-ai/claude-code", "@anthropic-ai/claude-code-linux-x64"],
        Agent::Gemini => &["@google/gemini-cli"],
        Agent::Qwen => &["@qwen-code/qwen-code"],
        Agent::Copilot => &["@github/copilot", "@github/copilot-linux-x64", "@github/copilot-linux-arm64"],
        Agent::Opencode => &["opencode-ai"],
        _ => &[],
    }
}

/// The version of the package that a parent of this process was started from.
fn of_process(agent: Agent) -> Option<String> {
    let names = packages(agent);
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..PARENTS_MAX {
        if names.is_empty() || pid <= 1 {
            return None;
        }
        let process = Path::new("/proc").join(pid.to_string());
        if let Some(version) = programs(&process).iter().find_map(|program| of_program(program, names)) {
            return Some(version);
        }
        pid = parent(&fs::read_to_string(process.join("stat")).ok()?)?;
    }
    None
}

/// The program of a process, and the script that it may run.
fn programs(process: &Path) -> Vec<PathBuf> {
    let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
    let arguments = arguments.split(|byte| *byte == 0).skip(1).filter_map(|word| std::str::from_utf8(word).ok());
    let scripts = arguments.map(PathBuf::from).filter(|word| word.is_absolute()).take(SCRIPTS_MAX);
    fs::read_link(process.join("exe")).into_iter().chain(scripts).collect()
}

/// The parent's id in `/proc/<pid>/stat`. The name of the program before it may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn of_program(program: &Path, names: &[&str]) -> Option<String> {
    let program = program.canonicalize().ok()?;
    let package = |dir: &Path| -> Option<Value> {
        serde_json::from_slice(&head(&dir.join("package.json"), PACKAGE_BYTES_MAX)?).ok()
    };
    let mut found = program.ancestors().skip(1).take(DIRS_MAX).filter_map(package);
    let found = found.find(|package| package["name"].as_str().is_some_and(|name| names.contains(&name)))?;
    found["version"].as_str().map(str::to_owned)
}

fn of_transcript(event: &HookEvent) -> Option<String> {
    let text = |path: &Path| head(path, HEAD_BYTES_MAX).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let transcript = event.mark.transcript.as_deref();
    match event.agent {
        Agent::Claude | Agent::Qwen => of_records(&text(transcript?)?),
        Agent::Codex => of_first_line(&text(transcript?)?, "cli_version"),
        Agent::Copilot => of_first_line(&text(&copilot_events(event)?)?, "copilotVersion"),
        _ => None,
    }
}

/// The version in the first record that has one.
fn of_records(head: &str) -> Option<String> {
    let record = |line: &str| serde_json::from_str::<Value>(line).ok();
    head.lines().filter_map(record).find_map(|record| record["version"].as_str().map(str::to_owned))
}

/// The text of a key in the first line, which may be cut: a quote within a string is escaped, so that this is a key.
fn of_first_line(head: &str, key: &str) -> Option<String> {
    let after = head.lines().next()?.split_once(&format!("\"{key}\":\""))?.1;
    after.split_once('"').map(|(version, _)| version.to_owned())
}

/// Copilot tells of its file only at the end of a turn.
fn copilot_events(event: &HookEvent) -> Option<PathBuf> {
    let session = event.session.as_deref().filter(|session| !session.contains('/') && !session.starts_with('.'))?;
    let home = Context::variable("COPILOT_HOME").or_else(|| Some(Context::home()?.join(".copilot")))?;
    Some(home.join("session-state").join(session).join("events.jsonl"))
}

/// The beginning of a regular file.
fn head(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    // Opening anything else may wait for another process.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_agents_write() {
        assert_eq!(of_ai_agent("claude-code_2-1-325_harness").as_deref(), Some("2.1.325"));
        assert_eq!(of_ai_agent("claude-code_2-1-325").as_deref(), Some("2.1.325"));
        for other in ["claude-code", "claude-code_", "claude-code_2-x_a", "other_1-2-3_agent", ""] {
            assert_eq!(of_ai_agent(other), None, "{other}");
        }
        let codex =
            r#"{"type":"session_meta","payload":{"id":"x","cli_version":"0.166.0","base_instructions":{"text":"cut"#;
        assert_eq!(of_first_line(codex, "cli_version").as_deref(), Some("0.166.0"));
        assert_eq!(of_first_line("{}\n{\"cli_version\":\"1\"}", "cli_version"), None, "another line says nothing");
        assert_eq!(of_first_line(r#"{"text":"\"cli_version\":\"9\""}"#, "cli_version"), None, "words of the user");
        let claude =
            "{\"type\":\"mode\"}\n{\"type\":\"user\",\"message\":{\"version\":\"9\"},\"version\":\"2.1.325\"}\n{\"cut";
        assert_eq!(of_records(claude).as_deref(), Some("2.1.325"));
        assert_eq!(of_records("not JSON\n\n{\"version\":7}"), None);
    }

    #[test]
    fn only_versions_are_taken_for_one() {
        for version in ["2.1.325", "0.24.4-nightly.1+b_2"] {
            assert!(is_version(version), "{version}");
        }
        for other in ["", "unknown", "1 2", "v1", &"1".repeat(65)] {
            assert!(!is_version(other), "{other}");
        }
    }

    #[test]
    fn the_package_of_a_script_is_found_through_links_and_by_its_name_only() {
        let temp = tempfile::tempdir().expect("a directory");
        let package = temp.path().join("lib/node_modules/@google/gemini-cli");
        fs::create_dir_all(package.join("bundle")).expect("directories");
        fs::write(package.join("bundle/gemini.js"), "").expect("a file");
        fs::write(package.join("package.json"), r#"{"name":"@google/gemini-cli","version":"0.61.0"}"#).expect("a file");
        let link = temp.path().join("gemini");
        std::os::unix::fs::symlink(package.join("bundle/gemini.js"), &link).expect("a link");
        assert_eq!(of_program(&link, packages(Agent::Gemini)).as_deref(), Some("0.61.0"));
        assert_eq!(of_program(&link, packages(Agent::Qwen)), None);
        assert_eq!(of_program(&temp.path().join("gone"), packages(Agent::Gemini)), None);
    }

    #[test]
    fn a_parent_is_read_behind_any_name() {
        assert_eq!(parent("7 (a) b (c)) S 42 7 7 0"), Some(42));
        assert_eq!(parent("7 (a"), None);
    }
}
