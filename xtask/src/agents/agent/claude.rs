//! Claude Code.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use super::super::install::{Package, Source};
use super::super::scratch::Scratch;
use super::{Agent, json_string, words};

pub(super) struct Claude;

const SETTINGS: &str = "{\n  \"permissions\": {\"allow\": [\"Bash(ls:*)\"]},\n  \"includeCoAuthoredBy\": false\n}\n";

impl Agent for Claude {
    fn package(&self) -> Package {
        Package { name: "claude", version: "2.1.325", source: Source::Npm("@anthropic-ai/claude-code") }
    }

    fn configure(&self, scratch: &Scratch) -> Result<()> {
        let trusted = json!({"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true});
        let state = json!({
            "hasCompletedOnboarding": true, "theme": "dark", "bypassPermissionsModeAccepted": true,
            "customApiKeyResponses": {"approved": ["test"], "rejected": []},
            "projects": {scratch.project_name(): trusted},
        });
        scratch.write_home(".claude.json", &format!("{state:#}"))?;
        scratch.write_home(".claude/settings.json", SETTINGS)
    }

    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)> {
        let on = || "1".to_owned();
        vec![
            ("ANTHROPIC_BASE_URL", scratch.model.url()),
            ("ANTHROPIC_API_KEY", "test".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", on()),
            ("DISABLE_AUTOUPDATER", on()),
            ("DISABLE_TELEMETRY", on()),
            ("DISABLE_ERROR_REPORTING", on()),
            // Root may skip permissions in a sandbox only.
            ("IS_SANDBOX", on()),
        ]
    }

    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String> {
        let mut line = words(&["claude", "-p", prompt, "--output-format", "stream-json", "--verbose"]);
        line.extend(words(&["--dangerously-skip-permissions"]));
        line.extend(session.into_iter().flat_map(|session| words(&["--resume", session])));
        line
    }

    fn headless_fork(&self, prompt: &str, session: &str) -> Option<Vec<String>> {
        let mut line = self.headless(prompt, Some(session));
        line.push("--fork-session".to_owned());
        Some(line)
    }

    fn session(&self, printed: &str) -> Option<String> {
        json_string(printed, "session_id")
    }

    fn interactive(&self) -> Vec<String> {
        words(&["claude", "--dangerously-skip-permissions"])
    }

    fn ready(&self) -> &'static [&'static str] {
        &["bypass permissions"]
    }

    fn questions(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[
            ("trust the files", &["Enter"]),
            ("Yes, I accept", &["Down", "Enter"]),
            ("use this API key", &["Up", "Enter"]),
        ]
    }

    fn rollback(&self) -> Option<&'static str> {
        Some("/rollback")
    }

    fn resumes_inside(&self) -> bool {
        true
    }

    fn clear(&self) -> &'static str {
        "/clear"
    }

    fn add_mcp_server(&self, scratch: &Scratch, name: &str, line: &[&str]) -> Result<bool> {
        let path = scratch.home.join(".claude.json");
        let mut state: Value = serde_json::from_slice(&fs::read(&path)?)?;
        state["mcpServers"][name] = json!({"type": "stdio", "command": line[0], "args": line[1..]});
        fs::write(&path, format!("{state:#}"))?;
        Ok(true)
    }

    fn mcp_answers(&self) -> [&'static [&'static str]; 2] {
        [&["Space", "Down", "Enter"], &["Escape"]]
    }

    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf> {
        vec![scratch.home.join(".claude/settings.json")]
    }
}
