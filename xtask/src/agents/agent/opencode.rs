//! opencode.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::super::install::{Package, Source};
use super::super::scratch::Scratch;
use super::super::wire::MODEL;
use super::{Agent, json_string, rows_of, words};

pub(super) struct Opencode;

impl Agent for Opencode {
    fn package(&self) -> Package {
        Package { name: "opencode", version: "1.18.33", source: Source::Npm("opencode-ai") }
    }

    fn configure(&self, scratch: &Scratch) -> Result<()> {
        let model = format!("scripted/{MODEL}");
        let url = scratch.model.url() + "/v1";
        let limits = json!({"name": MODEL, "tool_call": true, "limit": {"context": 200_000, "output": 8_000}});
        let settings = json!({
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": false, "share": "disabled", "model": model, "small_model": model, "permission": "allow",
            "provider": {"scripted": {
                "npm": "@ai-sdk/openai-compatible", "name": "scripted",
                "options": {"baseURL": url, "apiKey": "test"}, "models": {MODEL: limits},
            }},
        });
        scratch.write_home(".config/opencode/opencode.json", &format!("{settings:#}"))?;
        // It installs a package for plugins at startup, and retries for a minute if that fails. A lock file that names
        // the package satisfies it.
        let wanted = json!({"dependencies": {"@opencode-ai/plugin": "*"}});
        let lock = json!({"lockfileVersion": 3, "packages": {"": wanted}});
        scratch.write_home(".config/opencode/package.json", &wanted.to_string())?;
        scratch.write_home(".config/opencode/package-lock.json", &lock.to_string())?;
        Ok(fs::create_dir_all(scratch.home.join(".config/opencode/node_modules"))?)
    }

    fn environment(&self, _scratch: &Scratch) -> Vec<(&'static str, String)> {
        [
            "OPENCODE_DISABLE_MODELS_FETCH",
            "OPENCODE_DISABLE_AUTOUPDATE",
            "OPENCODE_DISABLE_LSP_DOWNLOAD",
            "OPENCODE_DISABLE_SHARE",
        ]
        .map(|name| (name, "1".to_owned()))
        .to_vec()
    }

    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String> {
        let mut line = words(&["opencode", "run", "--format", "json", "--auto"]);
        line.extend(session.into_iter().flat_map(|session| words(&["--session", session])));
        // It puts quotes around an argument with spaces, and joins arguments with a space.
        line.extend(prompt.split(' ').map(str::to_owned));
        line
    }

    fn headless_fork(&self, prompt: &str, session: &str) -> Option<Vec<String>> {
        let mut line = self.headless(prompt, Some(session));
        line.insert(2, "--fork".to_owned());
        Some(line)
    }

    fn session(&self, printed: &str) -> Option<String> {
        json_string(printed, "sessionID")
    }

    fn interactive(&self) -> Vec<String> {
        words(&["opencode"])
    }

    fn ready(&self) -> &'static [&'static str] {
        &["Ask anything"]
    }

    fn interrupt_keys(&self) -> &'static [&'static str] {
        &["Escape", "Escape"]
    }

    fn reports_interrupts(&self) -> bool {
        true
    }

    fn reports_errors(&self) -> bool {
        true
    }

    fn rollback(&self) -> Option<&'static str> {
        None
    }

    fn clear(&self) -> &'static str {
        "/new"
    }

    fn conversation(&self, scratch: &Scratch, session: &str) -> Result<Vec<u8>> {
        let queries = [
            ("SELECT * FROM session WHERE id = ?", session),
            ("SELECT * FROM message WHERE session_id = ? ORDER BY id", session),
            ("SELECT * FROM part WHERE session_id = ? ORDER BY id", session),
        ];
        rows_of(scratch, &scratch.home.join(".local/share/opencode/opencode.db"), &queries)
    }

    fn modes(&self, _scratch: &Scratch, _session: &str) -> Result<BTreeSet<u32>> {
        Ok(BTreeSet::new())
    }

    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf> {
        vec![scratch.home.join(".config/opencode/plugins/piton.js")]
    }
}
