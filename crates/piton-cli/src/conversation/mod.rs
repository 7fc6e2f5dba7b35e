//! Conversations of agents, and forks of them that end before a prompt.
//!
//! - D1. A conversation is never changed. A fork has names of its own, which did not exist before.
//! - D2. A fork is complete, checked and synced before any file of the project changes: a crash in between leaves a fork
//!   and nothing else.
//! - D3. Only a fork that is still exactly as it was written is removed.
//!
//! The formats are private to the agents. A version that was not tested, a record of another form and a file that is cut
//! short are reasons to make no fork ([`WhyNot`]), and never an error of a restore.
//!
//! This module has the types and the code that all agents share. The code of each agent is in that agent's directory.

pub(crate) mod chain;
pub(crate) mod draft;
pub(crate) mod record;
mod temporary;
pub(crate) mod transcript;

use std::path::{Path, PathBuf};
use std::process::Command;

use piton::{Moment, TurnRecord};

pub(crate) use self::draft::{Draft, DraftBody, MadeFork, NewFile};

/// Larger conversations are not forked: all of it is read, and written once more.
pub(crate) const CONVERSATION_BYTES_MAX: u64 = 128 << 20;
/// Maximum number of characters of a prompt in the title of a fork.
const TITLE_CHARS_MAX: usize = 60;

/// Reason why a conversation is not forked. Completes "the conversation stays as it is: …".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WhyNot(pub(crate) String);

impl WhyNot {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Returns the reason for a conversation that contains something unknown.
    pub(crate) fn format(what: impl std::fmt::Display) -> Self {
        Self(format!("it is in a format that piton does not know: {what}"))
    }

    /// Returns the reason for a conversation of more than [`CONVERSATION_BYTES_MAX`] bytes.
    pub(crate) fn too_large() -> Self {
        Self(format!("it is larger than {} MB", CONVERSATION_BYTES_MAX >> 20))
    }

    /// Returns the reason for a file that cannot be read.
    pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Self(format!("cannot read {}: {error}", path.display()))
    }
}

/// A prompt before which a conversation is cut.
pub(crate) struct CutRequest<'a> {
    /// The turn of the prompt.
    pub(crate) turn: &'a TurnRecord,
    /// Configuration directory of the agent.
    pub(crate) home: &'a Path,
    /// Directory of the project.
    pub(crate) project: &'a Path,
    /// Title of the fork.
    pub(crate) title: String,
    pub(crate) now: Moment,
    /// Returns the path of a program on the search path.
    pub(crate) find_program: fn(&str) -> Option<PathBuf>,
}

impl CutRequest<'_> {
    /// Returns the file of the conversation as the agent named it at the prompt.
    pub(crate) fn transcript(&self) -> Option<&Path> {
        self.turn.mark.transcript.as_deref()
    }

    /// Returns the agent's id of the prompt. Fails if none was recorded.
    pub(crate) fn message(&self) -> Result<&str, WhyNot> {
        let own = self.turn.mark.message.as_deref();
        own.or(Some(self.turn.turn.as_str()).filter(|turn| !turn.is_empty())).ok_or_else(not_marked)
    }

    /// Returns the length of the transcript at the prompt; `None` if there was no transcript yet.
    pub(crate) fn transcript_bytes(&self) -> Option<u64> {
        self.turn.mark.transcript_bytes
    }

    /// Fails unless the version of the agent, as recorded at the prompt, is one of these.
    pub(crate) fn check_recorded_version(&self, known: &[&str]) -> Result<(), WhyNot> {
        match self.turn.agent_version.as_deref() {
            Some(version) => check_version(version, known),
            None => Err(WhyNot::new("the version of the agent that wrote it is not known")),
        }
    }
}

/// Returns the reason for a prompt without a recorded place in its conversation.
pub(crate) fn not_marked() -> WhyNot {
    WhyNot::new("its place in the conversation was not recorded at the prompt")
}

/// Fails unless a version begins with one of these, such as `2.1.`.
pub(crate) fn check_version(version: &str, known: &[&str]) -> Result<(), WhyNot> {
    if is_known_version(version, known) {
        return Ok(());
    }
    let known: Vec<_> = known.iter().map(|known| format!("{known}x")).collect();
    Err(WhyNot::new(format!("it was written by version {version}, and piton knows {}", known.join(" and "))))
}

/// Returns true if a version begins with one of these.
pub(crate) fn is_known_version(version: &str, known: &[&str]) -> bool {
    known.iter().any(|known| version.starts_with(known))
}

/// A message of a conversation, for people.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ChatMessage {
    /// `user` or `agent`
    pub(crate) by: &'static str,
    /// beginning of the text
    pub(crate) text: String,
}

/// Maximum number of characters of a message that are kept for a preview.
const MESSAGE_CHARS_MAX: usize = 2_000;

impl ChatMessage {
    pub(crate) fn user(text: &str) -> Self {
        Self { by: "user", text: text.chars().take(MESSAGE_CHARS_MAX).collect() }
    }

    pub(crate) fn agent(text: &str) -> Self {
        Self { by: "agent", text: text.chars().take(MESSAGE_CHARS_MAX).collect() }
    }
}

/// Returns the title of a fork that ends before a prompt.
pub(crate) fn title(turn: &TurnRecord) -> String {
    let prompt = turn.prompt.as_deref().and_then(|prompt| prompt.lines().next()).unwrap_or("a prompt").trim();
    let mut short: String = prompt.chars().filter(|c| !c.is_control()).take(TITLE_CHARS_MAX).collect();
    if prompt.chars().count() > TITLE_CHARS_MAX {
        short.push('…');
    }
    format!("before: {short}")
}

/// Conversations of one agent.
pub(crate) struct ConversationSpec {
    /// Beginnings of the versions whose format was tested.
    pub(crate) versions: &'static [&'static str],
    /// Plans a fork. Writes nothing.
    pub(crate) plan: fn(&CutRequest<'_>) -> Result<Draft, WhyNot>,
    /// Returns the command that continues in a session.
    pub(crate) resume: fn(&str) -> Vec<String>,
    /// Returns the text that continues in a session, typed inside the agent.
    pub(crate) resume_inside: Option<fn(&str) -> String>,
    /// Opens the database in which the agent itself stores forks; `None` if forks are files.
    pub(crate) open_database: Option<OpenDatabase>,
}

/// Opens the database of an agent, by its configuration directory and a search for programs.
pub(crate) type OpenDatabase = fn(&Path, fn(&str) -> Option<PathBuf>) -> Result<Box<dyn ForkDatabase>, WhyNot>;

/// A database in which an agent stores its sessions, open for any number of requests. `dir` is the directory in which the
/// agent works in that session.
pub(crate) trait ForkDatabase {
    /// Returns a digest of everything in a session; `None` if there is no such session.
    fn state(&self, dir: &Path, session: &str) -> Result<Option<String>, WhyNot>;

    /// Removes a session if its digest is this one. Returns false if it is not.
    fn remove(&self, dir: &Path, session: &str, state: &str) -> Result<bool, WhyNot>;
}

/// Formats a command as a line for a shell that is in `here`.
pub(crate) fn shell_line(words: &[String], dir: &Path, here: &Path) -> String {
    let line: Vec<_> = words.iter().map(|word| crate::shell::quote(word)).collect();
    let line = line.join(" ");
    if dir == here { line } else { format!("cd {} && {line}", crate::shell::quote(&dir.to_string_lossy())) }
}

/// Returns the command with its arguments, to be run in a directory.
pub(crate) fn command_in(words: &[String], dir: &Path) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir).env("PWD", dir);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        let of = |prompt: &str| {
            let mut turn = TurnRecord::default();
            turn.prompt = Some(prompt.to_owned());
            title(&turn)
        };
        assert_eq!(of("add tests\nand docs"), "before: add tests");
        assert_eq!(of("a\tb\u{1b}c"), "before: abc");
        assert_eq!(of(&"ä".repeat(61)), format!("before: {}…", "ä".repeat(60)));
        assert_eq!(title(&TurnRecord::default()), "before: a prompt");
    }

    #[test]
    fn only_tested_versions_are_known() {
        assert_eq!(check_version("2.1.400", &["2.1."]), Ok(()));
        for version in ["2.10.0", "2.2.0", "3.0.0", "", "unknown"] {
            assert!(check_version(version, &["2.1."]).is_err(), "{version}");
        }
    }
}
