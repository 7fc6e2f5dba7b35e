//! Hermes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;

use super::super::install::{Package, Source};
use super::super::scratch::Scratch;
use super::super::wire::MODEL;
use super::{Agent, rows_of, words};

pub(super) struct Hermes;

impl Agent for Hermes {
    fn package(&self) -> Package {
        Package { name: "hermes", version: "0.19.0", source: Source::Pypi("hermes-agent") }
    }

    fn configure(&self, scratch: &Scratch) -> Result<()> {
        let url = scratch.model.url();
        let settings = format!(
            "# my hermes\nmodel:\n  default: {MODEL}\n  provider: custom\n  base_url: {url}/v1\n  api_key: test\n  \
             context_length: 200000\nupdates:\n  check: false\nsecurity:\n  allow_lazy_installs: false\n  \
             tirith_enabled: false\n"
        );
        scratch.write_home(".hermes/config.yaml", &settings)
    }

    fn install_options(&self) -> &'static [&'static str] {
        &["--trust"]
    }

    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)> {
        vec![
            ("OPENAI_API_KEY", "test".to_owned()),
            ("OPENAI_BASE_URL", scratch.model.url() + "/v1"),
            ("HERMES_HOME", scratch.home.join(".hermes").display().to_string()),
        ]
    }

    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String> {
        let mut line = words(&["hermes", "chat", "-q", prompt, "-Q", "--yolo"]);
        line.extend(session.into_iter().flat_map(|session| words(&["--resume", session])));
        line
    }

    fn session(&self, printed: &str) -> Option<String> {
        printed.split("session_id:").nth(1)?.split_whitespace().next().map(str::to_owned)
    }

    fn interactive(&self) -> Vec<String> {
        words(&["hermes", "chat", "--yolo"])
    }

    fn ready(&self) -> &'static [&'static str] {
        &["❯"]
    }

    fn background(&self) -> &'static [&'static str] {
        &["Review the conversation above"]
    }

    fn interrupt_keys(&self) -> &'static [&'static str] {
        &["C-c"]
    }

    fn reports_interrupts(&self) -> bool {
        true
    }

    fn rollback(&self) -> Option<&'static str> {
        Some("/piton")
    }

    fn resumes_inside(&self) -> bool {
        true
    }

    fn clear(&self) -> &'static str {
        "/new"
    }

    fn clear_keys(&self) -> &'static [&'static str] {
        &["Enter"]
    }

    fn conversation(&self, scratch: &Scratch, session: &str) -> Result<Vec<u8>> {
        let queries = [
            // When the session was last used is not part of it.
            (
                "SELECT id, source, model, model_config, system_prompt, parent_session_id, started_at, message_count, cwd, title FROM \
              sessions WHERE id = ?",
                session,
            ),
            ("SELECT * FROM messages WHERE session_id = ? ORDER BY id", session),
        ];
        rows_of(scratch, &scratch.home.join(".hermes/state.db"), &queries)
    }

    fn compact(&self) -> &'static str {
        "/compress"
    }

    fn modes(&self, _scratch: &Scratch, _session: &str) -> Result<BTreeSet<u32>> {
        Ok(BTreeSet::new())
    }

    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf> {
        vec![scratch.home.join(".hermes/config.yaml")]
    }
}
