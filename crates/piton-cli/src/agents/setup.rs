//! Vocabulary of an installation: the files and entries that an agent needs, as plain data. No file is accessed here.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Agent;
use crate::edit::Format;
use crate::shell;

/// Timeout after which an agent gives up on a hook: far below the default of each agent, far above the hook's own
/// deadline.
pub(crate) const TIMEOUT_SECS: u64 = 15;
/// Text that every command file of ours contains, and no other file.
const MARK: &str = "Written by `piton install";

/// Looks up an environment variable. Returns `None` if it is not set, empty, or not UTF-8.
pub(crate) type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Scope of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    User,
    Project(PathBuf),
}

impl Whose {
    pub(crate) fn project(&self) -> Option<&Path> {
        match self {
            Self::User => None,
            Self::Project(dir) => Some(dir),
        }
    }
}

/// Location of an agent's configuration directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    /// Environment variable that overrides the default.
    pub(crate) variable: Option<&'static str>,
    /// Default, below the user's home directory.
    pub(crate) default: &'static str,
    /// Directory within it.
    pub(crate) dir: &'static str,
}

impl Home {
    fn path(&self, home: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
        let below = |path: PathBuf, dir: &str| if dir.is_empty() { path } else { path.join(dir) };
        let base = self.variable.and_then(variable).unwrap_or_else(|| below(home.to_owned(), self.default));
        below(base, self.dir)
    }
}

/// Configuration directories of the agents.
#[derive(Debug, Clone)]
pub(crate) struct Homes(Vec<(Agent, PathBuf)>);

impl Homes {
    /// Returns the default directories below `home`, unless an environment variable names another one. `variable` looks
    /// up such a variable.
    pub(crate) fn new(home: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let path = |agent: Agent| Some((agent, agent.home?.path(home, &variable)));
        Self(Agent::all().filter_map(path).collect())
    }

    /// Returns the directory of one agent; `None` if it has none.
    pub(crate) fn of(&self, agent: Agent) -> Option<&Path> {
        self.0.iter().find(|(other, _)| *other == agent).map(|(_, path)| path.as_path())
    }
}

/// One entry that an agent's configuration needs.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Keys from the root to the entry, or to the list that holds it.
    pub(crate) keys: Vec<&'static str>,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// One item of the list at the keys.
    Item(Value),
    /// A value without which the agent ignores the file; an existing value is kept, whatever it is.
    Default(Value),
    /// One string in the list at the keys. It is a name of ours, so an equal string counts as ours even if the user
    /// added it.
    Word(&'static str),
    /// A value that an older version wrote at the keys, which is removed.
    Gone,
}

/// One command line of ours in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ours {
    pub(crate) event: String,
    pub(crate) command: String,
    /// Its index in each list that contains it, outermost first.
    pub(crate) at: Vec<usize>,
}

/// Everything to install for one agent.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    pub(crate) configs: Vec<ConfigFile>,
    pub(crate) files: Vec<OwnFile>,
    /// Steps left to the user, in one line.
    pub(crate) todo: &'static str,
}

/// A configuration file of the agent or the user, and the pieces that we add to it.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) pieces: Vec<Piece>,
}

/// A file that belongs to us as a whole.
#[derive(Debug)]
pub(crate) struct OwnFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Text that every version of it contains, and no other file.
    pub(crate) mark: &'static str,
    /// Contents that older versions of piton wrote.
    pub(crate) older: &'static [&'static str],
    /// True if the agent is not protected without it; false if it is a convenience.
    pub(crate) is_needed: bool,
}

impl OwnFile {
    /// Returns a file that makes a command of ours known to the agent.
    pub(super) fn command(path: PathBuf, text: &str, older: &'static [&'static str]) -> Self {
        Self { path, text: text.to_owned(), mark: MARK, older, is_needed: false }
    }
}

/// Program and options with which a configuration calls piton.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    pub(crate) program: String,
    /// Base and configuration, if they are not the default ones. They are passed as options because an agent may run
    /// hooks in an environment other than its user's.
    pub(crate) options: Vec<String>,
}

impl Caller {
    /// Returns the command line with these words.
    fn line(&self, words: &[&str]) -> String {
        let program = [self.program.as_str()];
        let options = self.options.iter().map(String::as_str);
        let all: Vec<_> = program.iter().chain(words).copied().chain(options).map(shell::quote).collect();
        all.join(" ")
    }
}

/// Handlers that an agent's configuration needs.
pub(crate) struct HookFormat {
    /// Name of the agent on the command line.
    pub(super) agent: &'static str,
    pub(super) events: &'static [&'static str],
    /// True if the command line contains the event's name.
    pub(super) names_event: bool,
    /// Returns true if the command line must succeed even if the program is missing.
    pub(super) fails_open: fn(&Whose) -> bool,
    /// Returns the handler for an event and a command line.
    pub(super) handler: fn(&str, &str) -> Value,
}

/// Directory and scope for which an agent's setup is made.
pub(crate) struct SetupPlace<'a> {
    pub(super) hooks: HookFormat,
    pub(super) dir: PathBuf,
    pub(super) whose: &'a Whose,
    pub(super) caller: &'a Caller,
}

impl SetupPlace<'_> {
    /// Returns the command line of the hook for an event.
    pub(super) fn command_line(&self, event: &str) -> String {
        let words = ["hook", self.hooks.agent, event];
        let line = self.caller.line(&words[..if self.hooks.names_event { 3 } else { 2 }]);
        if (self.hooks.fails_open)(self.whose) { line + shell::FAILS_OPEN } else { line }
    }

    /// Returns the words of the hook's command as a JSON list, which is valid JavaScript and Python, too.
    pub(super) fn command_words(&self) -> String {
        let words = [self.caller.program.as_str(), "hook", self.hooks.agent];
        let words: Vec<_> = words.into_iter().chain(self.caller.options.iter().map(String::as_str)).collect();
        json!(words).to_string()
    }

    /// Returns the handler of an event in the format of the agent.
    pub(super) fn handler(&self, event: &str) -> Value {
        (self.hooks.handler)(event, &self.command_line(event))
    }

    /// Returns one entry for each event.
    pub(super) fn hooks(&self) -> Vec<Piece> {
        let piece = |event: &&'static str| Piece { keys: vec!["hooks", event], what: What::Item(self.handler(event)) };
        self.hooks.events.iter().map(piece).collect()
    }

    /// Returns the JSON configuration of that name with the hooks in it.
    pub(super) fn json_with_hooks(&self, name: &str) -> ConfigFile {
        ConfigFile { path: self.dir.join(name), format: Format::Json, pieces: self.hooks() }
    }
}

/// State of the user's approval of our hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    Yes,
    /// The problem, and its fix.
    No(String, &'static str),
    /// Not decided: the agent will ask the user.
    Unknown,
}

/// Input of the check that the user has approved our hooks.
pub(crate) struct TrustInput<'a> {
    /// Configuration directory of the agent.
    pub(crate) home: &'a Path,
    /// File in which the hooks were found.
    pub(crate) config: &'a Path,
    pub(crate) ours: &'a [Ours],
    /// Project for which it is checked.
    pub(crate) dir: &'a Path,
    pub(crate) env: EnvLookup<'a>,
}
