//! Copilot CLI.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::super::install::{Package, Source};
use super::super::scratch::Scratch;
use super::{Agent, json_string, words};

pub(super) struct Copilot;

impl Agent for Copilot {
    fn package(&self) -> Package {
        Package { name: "copilot", version: "1.0.102", source: Source::Npm("@github/copilot") }
    }

    fn configure(&self, scratch: &Scratch) -> Result<()> {
        let trusted = [scratch.project_name()];
        let settings = json!({"trusted_folders": trusted, "trustedFolders": trusted});
        scratch.write_home(".copilot/config.json", &format!("{settings:#}"))
    }

    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)> {
        vec![
            ("COPILOT_OFFLINE", "true".to_owned()),
            ("COPILOT_PROVIDER_BASE_URL", scratch.model.url() + "/v1"),
            ("COPILOT_PROVIDER_API_KEY", "test".to_owned()),
            ("COPILOT_PROVIDER_TYPE", "openai".to_owned()),
            ("COPILOT_PROVIDER_WIRE_API", "completions".to_owned()),
            ("COPILOT_MODEL", "gpt-5.1".to_owned()),
            ("COPILOT_AUTO_UPDATE", "false".to_owned()),
            ("COPILOT_HOME", scratch.home.join(".copilot").display().to_string()),
        ]
    }

    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String> {
        let mut line = words(&["copilot", "-p", prompt, "--allow-all-tools", "--allow-all-paths"]);
        line.extend(words(&["--output-format", "json", "--no-auto-update", "--disable-client-telemetry"]));
        line.extend(session.map(|session| format!("--resume={session}")));
        line
    }

    fn session(&self, printed: &str) -> Option<String> {
        json_string(printed, "sessionId")
    }

    fn interactive(&self) -> Vec<String> {
        words(&["copilot", "--allow-all-tools", "--allow-all-paths", "--no-auto-update"])
    }

    fn ready(&self) -> &'static [&'static str] {
        &["/ commands", "Enter @"]
    }

    fn interrupt_keys(&self) -> &'static [&'static str] {
        &["Escape", "Escape"]
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

    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf> {
        vec![scratch.home.join(".copilot/hooks/piton.json")]
    }
}
