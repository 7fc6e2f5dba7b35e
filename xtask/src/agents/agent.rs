//! The agents: what each needs to run against the scripted model, headless and in its terminal interface.

mod claude;
mod codex;
mod copilot;
mod gemini;
mod hermes;
mod opencode;
mod qwen;

use std::path::PathBuf;

use anyhow::Result;

use super::install::Package;
use super::scratch::Scratch;

/// An agent, and how it is driven. Nothing in here knows what is checked.
pub(super) trait Agent: Sync {
    fn package(&self) -> Package;

    /// Writes the configuration of a user who has the agent and not piton.
    fn configure(&self, scratch: &Scratch) -> Result<()>;

    /// Gives the consent that the agent asks its user for before it runs hooks.
    fn approve_hooks(&self, _scratch: &Scratch) -> Result<()> {
        Ok(())
    }

    /// Further words for `piton install`.
    fn install_options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Variables of the environment in which the agent runs.
    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)>;

    /// The command line for one prompt without a terminal, in a new session or in `session`.
    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String>;

    /// The session of a headless run, from what it printed.
    fn session(&self, printed: &str) -> Option<String>;

    /// The command line of the terminal interface.
    fn interactive(&self) -> Vec<String>;

    /// Words on the screen once the agent waits for a prompt.
    fn ready(&self) -> &'static [&'static str];

    /// Questions at the start, by words on the screen, and the keys that answer them.
    fn questions(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[]
    }

    /// The event at the end of a turn with which a hook can make the agent go on, where the agent then tells of a prompt.
    fn turn_end(&self) -> Option<&'static str> {
        None
    }

    /// First words of the last message in calls of the model that the agent makes for itself: suggestions, memory.
    fn background(&self) -> &'static [&'static str] {
        &[]
    }

    /// The words before the arguments of a rollback typed as a prompt; `None` if the agent has no way.
    fn rollback(&self) -> Option<&'static str>;

    /// The command that begins a new session in the terminal interface.
    fn clear(&self) -> &'static str;

    /// The keys that confirm it.
    fn clear_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// The files that name the hook, and its time limit.
    fn hook_files(&self, scratch: &Scratch) -> Vec<PathBuf>;
}

pub(super) const ALL: [&dyn Agent; 7] = [
    &claude::Claude,
    &codex::Codex,
    &gemini::Gemini,
    &opencode::Opencode,
    &hermes::Hermes,
    &qwen::Qwen,
    &copilot::Copilot,
];

/// The words of a command line.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The value of the first string with this key in lines of JSON.
fn json_string(printed: &str, key: &str) -> Option<String> {
    let mark = format!("\"{key}\":");
    let rest = printed.split(&mark).nth(1)?.trim_start().strip_prefix('"')?;
    rest.split('"').next().map(str::to_owned)
}
