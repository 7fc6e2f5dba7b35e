//! Codex.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::install::{Package, Source};
use super::super::scratch::Scratch;
use super::{Agent, json_string, rows_of, words};

pub(super) struct Codex;

const SETTINGS: &str = r#"model = "gpt-5.5"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
cli_auth_credentials_store = "file"

[analytics]
enabled = false

[feedback]
enabled = false

[otel]
exporter = "none"
trace_exporter = "none"
metrics_exporter = "none"

[model_providers.scripted]
name = "scripted"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = false
"#;

impl Agent for Codex {
    fn package(&self) -> Package {
        Package { name: "codex", version: "0.166.0", source: Source::Npm("@openai/codex") }
    }

    fn configure(&self, scratch: &Scratch) -> Result<()> {
        let url = scratch.model.url();
        let project = scratch.project_name();
        let more = format!("base_url = \"{url}/v1\"\n\n[projects.\"{project}\"]\ntrust_level = \"trusted\"\n");
        scratch.write_home(".codex/config.toml", &(SETTINGS.to_owned() + &more))
    }

    /// Writes what an approval in `/hooks` writes: a hash over each event, matcher and handler.
    fn approve_hooks(&self, scratch: &Scratch) -> Result<()> {
        let hooks = scratch.home.join(".codex/hooks.json");
        let text = fs::read_to_string(&hooks).with_context(|| format!("cannot read {}", hooks.display()))?;
        let parsed: Value = serde_json::from_str(&text)?;
        let config = scratch.home.join(".codex/config.toml");
        let before = fs::read_to_string(&config)?;
        // Removes approvals of an earlier form of the hooks.
        let mut state = before.split("\n[hooks.state.").next().unwrap_or_default().to_owned();
        for (event, groups) in parsed["hooks"].as_object().into_iter().flatten() {
            let label = snake_case(event);
            for (at, group) in groups.as_array().into_iter().flatten().enumerate() {
                for (index, handler) in group["hooks"].as_array().into_iter().flatten().enumerate() {
                    let name = format!("{}:{label}:{at}:{index}", hooks.display());
                    let hash = approval(&label, &group["matcher"], handler);
                    state += &format!("\n[hooks.state.\"{name}\"]\ntrusted_hash = \"sha256:{hash}\"\n");
                }
            }
        }
        fs::write(&config, state).with_context(|| format!("cannot write {}", config.display()))
    }

    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)> {
        let home = scratch.home.join(".codex").display().to_string();
        vec![("OPENAI_API_KEY", "test".to_owned()), ("CODEX_HOME", home)]
    }

    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String> {
        let mut line = words(&["codex", "exec"]);
        line.extend(session.map(|_| "resume".to_owned()));
        line.extend(words(&["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]));
        line.extend(session.map(str::to_owned));
        line.push(prompt.to_owned());
        line
    }

    fn headless_fork(&self, prompt: &str, session: &str) -> Option<Vec<String>> {
        let mut line = self.headless(prompt, Some(session));
        line.iter_mut().filter(|word| *word == "resume").for_each(|word| "fork".clone_into(word));
        Some(line)
    }

    fn session(&self, printed: &str) -> Option<String> {
        json_string(printed, "thread_id")
    }

    fn interactive(&self) -> Vec<String> {
        words(&["codex", "--dangerously-bypass-approvals-and-sandbox"])
    }

    fn ready(&self) -> &'static [&'static str] {
        &["GPT-5.5 default"]
    }

    fn questions(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[("Try new model", &["Down", "Enter"])]
    }

    fn rollback(&self) -> Option<&'static str> {
        Some("piton rollback")
    }

    fn resumes_inside(&self) -> bool {
        true
    }

    fn clear(&self) -> &'static str {
        "/clear"
    }

    fn add_mcp_server(&self, scratch: &Scratch, name: &str, line: &[&str]) -> Result<bool> {
        let path = scratch.home.join(".codex/config.toml");
        let (program, arguments) = (json!(line[0]), json!(line[1..]));
        let more = format!("\n[mcp_servers.{name}]\ncommand = {program}\nargs = {arguments}\n");
        fs::write(&path, fs::read_to_string(&path)? + &more)?;
        Ok(true)
    }

    fn title(&self, scratch: &Scratch, session: &str) -> Result<Vec<u8>> {
        let query = ("SELECT name FROM threads WHERE id = ?", session);
        rows_of(scratch, &scratch.home.join(".codex/state_5.sqlite"), &[query])
    }

    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf> {
        vec![scratch.home.join(".codex/hooks.json")]
    }
}

/// Converts `UserPromptSubmit` to `user_prompt_submit`.
fn snake_case(event: &str) -> String {
    let mut name = String::new();
    for (at, letter) in event.char_indices() {
        if letter.is_uppercase() && at > 0 {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// Returns the hash by which Codex recognises an approved hook, over JSON with sorted keys.
fn approval(label: &str, matcher: &Value, handler: &Value) -> String {
    // The timeout at the end of a session is one second, whatever is configured.
    let configured = handler.get("timeout").cloned().unwrap_or(json!(600));
    let timeout = if label == "session_end" { json!(1) } else { configured };
    let hook = json!({"async": false, "command": handler["command"], "timeout": timeout, "type": "command"});
    let mut identity = json!({"event_name": label, "hooks": [hook]});
    if !matcher.is_null() {
        identity["matcher"] = matcher.clone();
    }
    Sha256::digest(identity.to_string().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
