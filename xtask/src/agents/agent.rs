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

/// An agent, and how to run it. Does not know what is checked.
pub(super) trait Agent: Sync {
    fn package(&self) -> Package;

    /// Writes the configuration of a user who has the agent but not piton.
    fn configure(&self, scratch: &Scratch) -> Result<()>;

    /// Gives the consent that the agent asks its user for before it runs hooks.
    fn approve_hooks(&self, _scratch: &Scratch) -> Result<()> {
        Ok(())
    }

    /// Returns further arguments for `piton install`.
    fn install_options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the environment variables with which the agent runs.
    fn environment(&self, scratch: &Scratch) -> Vec<(&'static str, String)>;

    /// Returns the command line for one prompt without a terminal, in a new session or in `session`.
    fn headless(&self, prompt: &str, session: Option<&str>) -> Vec<String>;

    /// Returns the session of a headless run, from its output.
    fn session(&self, printed: &str) -> Option<String>;

    /// Returns the command line of the terminal interface.
    fn interactive(&self) -> Vec<String>;

    /// Returns texts on the screen once the agent waits for a prompt.
    fn ready(&self) -> &'static [&'static str];

    /// Returns questions at the start, by texts on the screen, and the keys that answer them.
    fn questions(&self) -> &'static [(&'static str, &'static [&'static str])] {
        &[]
    }

    /// Returns the event at the end of a turn with which a hook can make the agent continue, if the agent then reports
    /// a prompt.
    fn turn_end(&self) -> Option<&'static str> {
        None
    }

    /// Returns the keys that interrupt a turn in the terminal interface.
    fn interrupt_keys(&self) -> &'static [&'static str] {
        &["Escape"]
    }

    /// Returns true if the agent reports the end of a turn that was interrupted while a command ran.
    fn reports_interrupts(&self) -> bool {
        false
    }

    /// Returns true if the agent reports the end of a turn in which the model answered with an error.
    fn reports_errors(&self) -> bool {
        false
    }

    /// Returns the start of the last message in calls of the model that the agent makes for itself, such as suggestions
    /// and memory.
    fn background(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the text before the arguments of a rollback typed as a prompt; `None` if the agent does not support
    /// that.
    fn rollback(&self) -> Option<&'static str>;

    /// Returns the command that starts a new session in the terminal interface.
    fn clear(&self) -> &'static str;

    /// Returns the keys that confirm it.
    fn clear_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the files that contain the hook's command and its timeout.
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

/// Returns the words of a command line.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Returns the value of the first string with this key in lines of JSON.
fn json_string(printed: &str, key: &str) -> Option<String> {
    let mark = format!("\"{key}\":");
    let rest = printed.split(&mark).nth(1)?.trim_start().strip_prefix('"')?;
    rest.split('"').next().map(str::to_owned)
}
