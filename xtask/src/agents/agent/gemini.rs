//! Gemini CLI.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::super::install::{Package, Source};
use super::super::scratch::Scratch;
use super::{Agent, json_string, words};

pub(super) struct Gemini;

impl Agent for Gemini {
    fn package(&self) -> Package {
        Package { name: "gemini", version: "0.61.0", source: Source::Npm("@google/gemini-cli") }
    }

    fn configure(&self, scratch: &Scratch) -> Result<()> {
        let settings = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            // Its cleanup deletes sessions that were resumed in another minute as soon as another session starts.
            "general": {
                "enableAutoUpdate": false, "enableAutoUpdateNotification": false, "sessionRetention": {"enabled": false},
            },
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
            "model": {"name": "gemini-2.5-flash"},
        });
        scratch.write_home(".gemini/settings.json", &format!("{settings:#}"))
    }

    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)> {
        vec![
            ("GEMINI_API_KEY", "test".to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", scratch.model.url()),
            ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned()),
            ("GEMINI_TELEMETRY_ENABLED", "false".to_owned()),
        ]
    }

    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String> {
        let mut line = words(&["gemini", "-p", prompt, "--approval-mode", "yolo", "-o", "stream-json"]);
        line.extend(session.into_iter().flat_map(|session| words(&["--resume", session])));
        line
    }

    fn session(&self, printed: &str) -> Option<String> {
        json_string(printed, "session_id")
    }

    fn interactive(&self) -> Vec<String> {
        words(&["gemini", "--approval-mode", "yolo"])
    }

    fn ready(&self) -> &'static [&'static str] {
        &["Type your message"]
    }

    fn questions(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[("trust this folder", &["Enter"])]
    }

    fn rollback(&self) -> Option<&'static str> {
        Some("/rollback")
    }

    fn turn_end(&self) -> Option<&'static str> {
        Some("AfterAgent")
    }

    fn clear(&self) -> &'static str {
        "/clear"
    }

    fn compact(&self) -> &'static str {
        "/compress"
    }

    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf> {
        vec![scratch.home.join(".gemini/settings.json")]
    }
}
