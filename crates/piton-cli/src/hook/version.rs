//! Finds the version of the agent that runs the hook, if the event does not contain it.
//!
//! The version is recorded because a later rewind must know which version wrote the transcript. It is looked up once
//! per session, in this order: a variable that the agent sets for its children, the package that the agent's process
//! was started from, and the head of the transcript. A few small files are read; whatever is missing or of another form
//! is passed over.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::within::within;
use crate::agents::event::HookEvent;
use crate::agents::is_version;
use crate::agents::setup::Homes;
use crate::agents::spec::VersionText;
use crate::context::Context;
use crate::platform::{self, Process};

/// Size of the part of a transcript that is read.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Size of the largest `package.json` that is read.
const PACKAGE_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of processes between the hook and the agent: shells, and the agent's own launcher.
const PARENTS_MAX: usize = 5;
/// Timeout for looking at those processes.
const PROCESSES_PATIENCE: Duration = Duration::from_millis(500);
/// Maximum number of directories between a program and its `package.json`.
const DIRS_MAX: usize = 5;
/// Number of arguments of a process that may name its script.
const SCRIPTS_MAX: usize = 2;

/// Returns the version of the agent that sent an event.
pub(super) fn find(event: &HookEvent) -> Option<String> {
    let spec = &event.agent.version;
    let packages = spec.packages;
    let of_process = || within(PROCESSES_PATIENCE, move || of_process(packages)).flatten();
    let found = (spec.in_env)(&Context::text).or_else(of_process).or_else(|| of_transcript(event));
    found.filter(|version| is_version(version))
}

/// Returns the version of the package that a parent of this process was started from.
fn of_process(names: &[&str]) -> Option<String> {
    let mut pid = platform::parent_id();
    for _ in 0..PARENTS_MAX {
        if names.is_empty() || pid <= 1 {
            return None;
        }
        let process = platform::process(pid)?;
        pid = process.parent;
        if let Some(version) = programs(process).iter().find_map(|program| of_program(program, names)) {
            return Some(version);
        }
    }
    None
}

/// Returns the program of a process, and the script that it may run.
fn programs(process: Process) -> Vec<PathBuf> {
    let scripts = process.arguments.into_iter().map(PathBuf::from).filter(|word| word.is_absolute()).take(SCRIPTS_MAX);
    process.program.into_iter().chain(scripts).collect()
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
    let spec = &event.agent.version;
    if spec.in_transcript == VersionText::Nowhere {
        return None;
    }
    let home = Context::home().map(|home| Homes::new(&home, Context::variable));
    let home = home.as_ref().and_then(|homes| homes.of(event.agent));
    let bytes = head(&(spec.transcript)(event, home)?, HEAD_BYTES_MAX)?;
    let text = String::from_utf8_lossy(&bytes);
    match spec.in_transcript {
        VersionText::Nowhere => None,
        VersionText::Records => of_records(&text),
        VersionText::FirstLine(key) => of_first_line(&text, key),
    }
}

/// Returns the version in the first record that has one.
fn of_records(head: &str) -> Option<String> {
    let record = |line: &str| serde_json::from_str::<Value>(line).ok();
    head.lines().filter_map(record).find_map(|record| record["version"].as_str().map(str::to_owned))
}

/// Returns the text of a key in the first line, which may be cut: a quote within a string is escaped, so that this is a
/// key.
fn of_first_line(head: &str, key: &str) -> Option<String> {
    let after = head.lines().next()?.split_once(&format!("\"{key}\":\""))?.1;
    after.split_once('"').map(|(version, _)| version.to_owned())
}

/// Returns the beginning of a regular file.
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
    use crate::agents::Agent;

    #[test]
    fn versions_are_read_from_what_agents_write() {
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
    fn the_package_of_a_script_is_found_through_links_and_by_its_name_only() {
        let temp = tempfile::tempdir().expect("a directory");
        let package = temp.path().join("lib/node_modules/@google/gemini-cli");
        fs::create_dir_all(package.join("bundle")).expect("directories");
        fs::write(package.join("bundle/gemini.js"), "").expect("a file");
        fs::write(package.join("package.json"), r#"{"name":"@google/gemini-cli","version":"0.61.0"}"#).expect("a file");
        let link = temp.path().join("gemini");
        std::os::unix::fs::symlink(package.join("bundle/gemini.js"), &link).expect("a link");
        assert_eq!(of_program(&link, Agent::named("gemini").version.packages).as_deref(), Some("0.61.0"));
        assert_eq!(of_program(&link, Agent::named("qwen").version.packages), None);
        assert_eq!(of_program(&temp.path().join("gone"), Agent::named("gemini").version.packages), None);
    }
}
