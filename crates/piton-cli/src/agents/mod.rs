//! The coding agents that piton knows. Each has one file, with everything about it; the table below lists them.
//!
//! `event` and `setup` are the vocabulary of these files, which `hook` and `install` share. To add an agent, write its
//! file, declare it, and add it to the table.

mod claude;
mod codex;
mod copilot;
mod crush;
mod cursor;
pub(crate) mod event;
mod gemini;
pub(crate) mod guide;
mod hermes;
mod opencode;
mod plain;
mod qwen;
pub(crate) mod setup;
mod shared;
pub(crate) mod spec;

use std::fmt;
use std::ops::Deref;
use std::path::Path;

use self::event::Meaning;
use self::setup::{Caller, Homes, Setup, SetupPlace, Whose};
use self::spec::Spec;
use crate::shell;

/// Maximum length of a version.
const VERSION_BYTES_MAX: usize = 64;

/// A coding agent: a row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Agent(&'static Spec);

impl Agent {
    /// The table, in the order in which agents are shown.
    const TABLE: &[Self] = &[
        Self(&claude::SPEC),
        Self(&codex::SPEC),
        Self(&gemini::SPEC),
        Self(&cursor::SPEC),
        Self(&opencode::SPEC),
        Self(&hermes::SPEC),
        Self(&qwen::SPEC),
        Self(&crush::SPEC),
        Self(&copilot::SPEC),
        Self::PLAIN,
    ];
    /// Any other program, which uses piton's own event format.
    pub(crate) const PLAIN: Self = Self(&plain::SPEC);

    /// Returns the agents of the table.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.iter().copied()
    }

    /// Returns the agents that can be installed.
    pub(crate) fn installable() -> impl Iterator<Item = Self> {
        Self::all().filter(|agent| agent.home.is_some())
    }

    /// Returns the agent of that name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::all().find(|agent| agent.name == name)
    }

    /// Returns the agent of that name, for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn named(name: &str) -> Self {
        Self::parse(name).expect("an agent of the table")
    }

    /// Returns its description, which lives as long as the program.
    pub(crate) fn spec(self) -> &'static Spec {
        self.0
    }

    /// Returns the event for a prompt, or the first event of an agent that has none.
    pub(crate) fn prompt_event(self) -> &'static str {
        let is_about_session = |event: &str| event.to_ascii_lowercase().contains("session");
        self.install.events.iter().find(|event| !is_about_session(event)).copied().unwrap_or_default()
    }

    /// Returns the installed events that report the end of a turn.
    pub(crate) fn end_events(self) -> impl Iterator<Item = &'static str> {
        let is_end = move |event: &&str| self.payload.events.contains(&(*event, Meaning::TurnEnd));
        self.install.events.iter().copied().filter(is_end)
    }

    /// Returns the setup of an agent; `None` if it has no configuration of this scope.
    pub(crate) fn setup(self, whose: &Whose, homes: &Homes, caller: &Caller) -> Option<Setup> {
        let home = homes.of(self)?;
        let dir = match whose {
            Whose::User => home.to_owned(),
            Whose::Project(dir) => dir.join(self.install.project_dir?),
        };
        let setup = (self.install.setup)(&SetupPlace { hooks: self.hook_format(), dir, whose, caller });
        Some(Setup { todo: self.install.todo, ..setup })
    }

    /// Returns true if a command line is one that an installer of ours wrote: a call of piton and nothing else. It
    /// contains nothing that a shell would interpret, except for [`shell::FAILS_OPEN`], so that it is safe to run it as
    /// a test.
    pub(crate) fn is_own_command(self, line: &str) -> bool {
        let line = line.strip_suffix(shell::FAILS_OPEN).unwrap_or(line);
        let Some(words) = shell::words(line) else { return false };
        if words.iter().map(|word| shell::quote(word)).collect::<Vec<_>>().join(" ") != line {
            return false;
        }
        match &words[..] {
            [program, verb, name, ..] if verb == "hook" && name == self.name => is_piton(program),
            [program, verb, ..] if self.install.older_commands.contains(&verb.as_str()) => is_piton(program),
            _ => false,
        }
    }
}

impl Deref for Agent {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        self.0
    }
}

impl PartialEq for Agent {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Agent {}

impl fmt::Debug for Agent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// Returns true if a text has the form of a version.
pub(crate) fn is_version(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".-+_".contains(c);
    text.len() <= VERSION_BYTES_MAX && text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(is_part)
}

fn is_piton(program: &str) -> bool {
    let path = Path::new(program);
    path.is_absolute() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("piton"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_call_of_piton_is_ours() {
        for line in
            ["/a/piton hook claude", "'/a b/piton' hook claude 2>/dev/null || true", "/a/piton-0.2 hook claude x"]
        {
            assert!(Agent::named("claude").is_own_command(line), "{line}");
        }
        for line in [
            "piton hook claude",
            "nice /a/piton hook claude",
            "/a/piton hook codex",
            "/a/piton take",
            "/a/x hook claude",
            "/a/piton hook claude ; x",
            "/a/piton hook claude && x",
            "/a/piton hook claude $(x)",
            "/a/piton hook claude \"`x`\"",
            "/a/piton hook claude\nx",
            "/a/piton hook claude > /etc/passwd",
            "/a/piton hook claude 2>/dev/null || true; x",
        ] {
            assert!(!Agent::named("claude").is_own_command(line), "{line}");
        }
    }

    #[test]
    fn only_versions_are_taken_for_one() {
        for version in ["2.1.325", "0.24.4-nightly.1+b_2"] {
            assert!(is_version(version), "{version}");
        }
        for other in ["", "unknown", "1 2", "v1", &"1".repeat(65)] {
            assert!(!is_version(other), "{other}");
        }
    }

    #[test]
    fn an_events_name_means_the_same_to_all_agents() {
        let all: Vec<_> = Agent::all().flat_map(|agent| agent.payload.events).collect();
        for (name, meaning) in &all {
            assert!(all.iter().all(|(other, meant)| other != name || meant == meaning), "{name}");
        }
    }
}
