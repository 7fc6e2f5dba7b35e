//! Qwen Code.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::super::install::{Package, Source};
use super::super::scratch::Scratch;
use super::super::wire::MODEL;
use super::{Agent, json_string, words};

pub(super) struct Qwen;

impl Agent for Qwen {
    fn package(&self) -> Package {
        Package { name: "qwen", version: "0.24.4", source: Source::Npm("@qwen-code/qwen-code") }
    }

    fn configure(&self, scratch: &Scratch) -> Result<()> {
        let settings = json!({
            "security": {"auth": {"selectedType": "openai"}},
            "general": {"enableAutoUpdate": false, "disableAutoUpdate": true},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
            "model": {"name": MODEL},
        });
        scratch.write_home(".qwen/settings.json", &format!("{settings:#}"))
    }

    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)> {
        vec![
            ("OPENAI_API_KEY", "test".to_owned()),
            ("OPENAI_BASE_URL", scratch.model.url() + "/v1"),
            ("OPENAI_MODEL", MODEL.to_owned()),
        ]
    }

    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String> {
        let mut line = words(&["qwen", prompt, "--approval-mode", "yolo", "-o", "stream-json"]);
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
        words(&["qwen", "--approval-mode", "yolo"])
    }

    fn ready(&self) -> &'static [&'static str] {
        &["Type your message"]
    }

    fn background(&self) -> &'static [&'static str] {
        &["[SUGGESTION MODE", "Managed memory has"]
    }

    fn rollback(&self) -> Option<&'static str> {
        Some("/rollback")
    }

    fn turn_end(&self) -> Option<&'static str> {
        Some("Stop")
    }

    fn clear(&self) -> &'static str {
        "/clear"
    }

    fn compact(&self) -> &'static str {
        "/compress"
    }

    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf> {
        vec![scratch.home.join(".qwen/settings.json")]
    }
}
