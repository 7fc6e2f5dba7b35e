//! Installation of each agent as data: file locations, hook events and formats, as measured. No file is accessed here.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::pieces::{Piece, What};
use crate::agents::Agent;
use crate::edit::Format;
use crate::shell;

/// Timeout after which an agent gives up on a hook: far below the default of each agent, far above the hook's own
/// deadline.
pub(crate) const TIMEOUT_SECS: u64 = 15;

const PLUGIN: &str = include_str!("texts/piton.js");
const ROLLBACK_MD: &str = include_str!("texts/rollback.md");
const ROLLBACK_TOML: &str = include_str!("texts/rollback.toml");
const ROLLBACK_TOML_0_1: &str = include_str!("texts/0.1/rollback.toml");
const ROLLBACK_QWEN: &str = include_str!("texts/rollback-qwen.md");
const ROLLBACK_SKILL: &str = include_str!("texts/SKILL.md");
const HERMES_PLUGIN: &str = include_str!("texts/hermes/__init__.py");
const HERMES_MANIFEST: &str = include_str!("texts/hermes/plugin.yaml");

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

/// Configuration directories of the agents, which environment variables may override.
#[derive(Debug, Clone)]
pub(crate) struct Homes {
    pub(crate) claude: PathBuf,
    pub(crate) codex: PathBuf,
    pub(crate) gemini: PathBuf,
    pub(crate) qwen: PathBuf,
    pub(crate) cursor: PathBuf,
    pub(crate) copilot: PathBuf,
    pub(crate) hermes: PathBuf,
    pub(crate) opencode: PathBuf,
    pub(crate) crush: PathBuf,
}

impl Homes {
    /// Returns the default directories below `home`, unless an environment variable names another one. `variable` looks
    /// up such a variable.
    pub(crate) fn new(home: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let or = |name: &str, dir: &str| variable(name).unwrap_or_else(|| home.join(dir));
        let config = or("XDG_CONFIG_HOME", ".config");
        Self {
            claude: or("CLAUDE_CONFIG_DIR", ".claude"),
            codex: or("CODEX_HOME", ".codex"),
            // Gemini creates `.gemini` in the directory that the variable names.
            gemini: variable("GEMINI_CLI_HOME").unwrap_or_else(|| home.to_owned()).join(".gemini"),
            qwen: home.join(".qwen"),
            cursor: home.join(".cursor"),
            copilot: or("COPILOT_HOME", ".copilot"),
            hermes: or("HERMES_HOME", ".hermes"),
            opencode: config.join("opencode"),
            crush: config.join("crush"),
        }
    }

    /// Returns the directory of one agent; `None` for `Agent::Plain`.
    pub(crate) fn of(&self, agent: Agent) -> Option<&Path> {
        Some(match agent {
            Agent::Claude => &self.claude,
            Agent::Codex => &self.codex,
            Agent::Gemini => &self.gemini,
            Agent::Cursor => &self.cursor,
            Agent::Opencode => &self.opencode,
            Agent::Hermes => &self.hermes,
            Agent::Qwen => &self.qwen,
            Agent::Crush => &self.crush,
            Agent::Copilot => &self.copilot,
            Agent::Plain => return None,
        })
    }
}

/// Everything to install for one agent.
#[derive(Debug)]
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

/// Returns the events at which an agent calls us. `piton doctor` fires the first one that is not about a session.
fn events(agent: Agent) -> &'static [&'static str] {
    match agent {
        // Codex would run an additional entry only after the user approved it.
        Agent::Codex => &["SessionStart", "UserPromptSubmit", "PreToolUse"],
        Agent::Claude | Agent::Qwen => &["SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd"],
        Agent::Gemini => &["SessionStart", "BeforeAgent", "BeforeTool", "AfterAgent", "SessionEnd"],
        Agent::Cursor => &["sessionStart", "beforeSubmitPrompt", "preToolUse"],
        Agent::Hermes => &["on_session_start", "pre_llm_call", "pre_tool_call", "post_llm_call", "on_session_finalize"],
        Agent::Crush => &["PreToolUse"],
        Agent::Copilot => &["sessionStart", "userPromptSubmitted", "preToolUse", "agentStop", "sessionEnd"],
        Agent::Opencode => &["chat.message", "tool.execute.before"],
        Agent::Plain => &[],
    }
}

/// Returns the event for a prompt, or the first event of an agent that has none.
pub(crate) fn prompt_event(agent: Agent) -> &'static str {
    events(agent).iter().find(|event| !event.to_ascii_lowercase().contains("session")).copied().unwrap_or_default()
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

/// Returns the command line of a hook.
fn command_line(agent: Agent, whose: &Whose, caller: &Caller, event: &str) -> String {
    let line = caller.line(&["hook", agent.name()]);
    match (agent, whose) {
        // If the program were removed, its failure would block every prompt.
        (Agent::Gemini, _) => line + shell::FAILS_OPEN,
        // Its events do not contain their name, and a failing hook denies the tool.
        (Agent::Copilot, _) => caller.line(&["hook", agent.name(), event]) + shell::FAILS_OPEN,
        // Copilot runs these hooks, too, and denies the tool if they fail.
        (Agent::Claude, Whose::Project(_)) => line + shell::FAILS_OPEN,
        _ => line,
    }
}

/// Returns one handler in the format of the agent.
fn handler(agent: Agent, event: &str, command: &str) -> Value {
    let is_tool = event.to_ascii_lowercase().contains("tool");
    let mut nested = match agent {
        Agent::Claude | Agent::Codex => json!({"type": "command", "command": command, "timeout": TIMEOUT_SECS}),
        Agent::Gemini | Agent::Qwen => {
            json!({"type": "command", "name": "piton", "command": command, "timeout": TIMEOUT_SECS * 1000})
        }
        Agent::Copilot => return json!({"type": "command", "command": command, "timeoutSec": TIMEOUT_SECS}),
        Agent::Hermes => return json!({"command": command, "timeout": TIMEOUT_SECS}),
        Agent::Cursor if !is_tool => return json!({"command": command, "timeout": TIMEOUT_SECS}),
        _ => return json!({"matcher": ".*", "command": command, "timeout": TIMEOUT_SECS}),
    };
    nested = json!([nested]);
    match (agent, is_tool) {
        (_, false) => json!({"hooks": nested}),
        (Agent::Claude, true) => json!({"matcher": "*", "hooks": nested}),
        (_, true) => json!({"matcher": ".*", "hooks": nested}),
    }
}

fn pieces(agent: Agent, whose: &Whose, caller: &Caller) -> Vec<Piece> {
    let piece = |event: &&'static str| Piece {
        keys: vec!["hooks", event],
        what: What::Item(handler(agent, event, &command_line(agent, whose, caller, event))),
    };
    let mut pieces: Vec<_> = events(agent).iter().map(piece).collect();
    match agent {
        Agent::Cursor => pieces.insert(0, Piece { keys: vec!["version"], what: What::Default(json!(1)) }),
        Agent::Hermes => {
            // A quick command gets no arguments, and would take precedence over the command of the plugin.
            pieces.push(Piece { keys: vec!["quick_commands", "piton"], what: What::Gone });
            pieces.push(Piece { keys: vec!["plugins", "enabled"], what: What::Word("piton") });
        }
        _ => {}
    }
    pieces
}

/// Returns the setup of an agent; `None` if it has no configuration of this scope, or is `Agent::Plain`.
pub(crate) fn setup(agent: Agent, whose: &Whose, homes: &Homes, caller: &Caller) -> Option<Setup> {
    let json = |path: PathBuf| ConfigFile { path, format: Format::Json, pieces: pieces(agent, whose, caller) };
    let rollback = |path: PathBuf, text: &str| OwnFile {
        path,
        text: text.to_owned(),
        mark: "Written by `piton install",
        older: match agent {
            Agent::Gemini => &[ROLLBACK_TOML_0_1],
            Agent::Qwen => &[ROLLBACK_MD],
            _ => &[],
        },
        is_needed: false,
    };
    let dir = match whose {
        Whose::User => homes.of(agent)?.to_owned(),
        Whose::Project(dir) => dir.join(project_dir(agent)?),
    };
    let (mut configs, mut files) = (Vec::new(), Vec::new());
    match agent {
        Agent::Claude | Agent::Qwen => {
            configs.push(json(dir.join("settings.json")));
            // Claude passes the typed text to the hook, Qwen the contents of the file.
            let text = if agent == Agent::Claude { ROLLBACK_MD } else { ROLLBACK_QWEN };
            files.push(rollback(dir.join("commands/rollback.md"), text));
        }
        Agent::Gemini => {
            configs.push(json(dir.join("settings.json")));
            files.push(rollback(dir.join("commands/rollback.toml"), ROLLBACK_TOML));
        }
        Agent::Codex | Agent::Cursor => configs.push(json(dir.join("hooks.json"))),
        Agent::Crush => {
            let name = if *whose == Whose::User { "crush.json" } else { ".crush.json" };
            configs.push(json(dir.join(name)));
        }
        Agent::Hermes => {
            let path = dir.join("config.yaml");
            configs.push(ConfigFile { path, format: Format::Yaml, pieces: pieces(agent, whose, caller) });
            let plugin = HERMES_PLUGIN.replace("@COMMAND@", &hook_words(agent, caller));
            let plugin = plugin.replace("@TIMEOUT_SECS@", &TIMEOUT_SECS.to_string());
            files.push(rollback(dir.join("plugins/piton/plugin.yaml"), HERMES_MANIFEST));
            files.push(rollback(dir.join("plugins/piton/__init__.py"), &plugin));
        }
        Agent::Opencode => {
            let text = PLUGIN.replace("@COMMAND@", &hook_words(agent, caller));
            let text = text.replace("@DEADLINE_MS@", &(TIMEOUT_SECS * 1000).to_string());
            let mark = "Written by `piton install opencode`";
            files.push(OwnFile { path: dir.join("plugins/piton.js"), text, mark, older: &[], is_needed: true });
        }
        Agent::Copilot => {
            let hooks = events(agent).iter().map(|event| {
                ((*event).to_owned(), json!([handler(agent, event, &command_line(agent, whose, caller, event))]))
            });
            let value = json!({"version": 1, "hooks": hooks.collect::<serde_json::Map<_, _>>()});
            let text = serde_json::to_string_pretty(&value).expect("plain data") + "\n";
            let path = dir.join("hooks/piton.json");
            files.push(OwnFile { path, text, mark: " hook copilot ", older: &[], is_needed: true });
            files.push(rollback(dir.join("skills/rollback/SKILL.md"), ROLLBACK_SKILL));
        }
        Agent::Plain => return None,
    }
    Some(Setup { configs, files, todo: todo(agent) })
}

/// Returns the words of the hook's command as a JSON list, which is valid JavaScript and Python, too.
fn hook_words(agent: Agent, caller: &Caller) -> String {
    let words = [caller.program.as_str(), "hook", agent.name()];
    let words: Vec<_> = words.into_iter().chain(caller.options.iter().map(String::as_str)).collect();
    json!(words).to_string()
}

/// Returns the directory of an agent below the root of a project; `None` if it has none.
fn project_dir(agent: Agent) -> Option<&'static str> {
    match agent {
        Agent::Claude => Some(".claude"),
        Agent::Codex => Some(".codex"),
        Agent::Gemini => Some(".gemini"),
        Agent::Qwen => Some(".qwen"),
        Agent::Cursor => Some(".cursor"),
        Agent::Opencode => Some(".opencode"),
        Agent::Crush => Some(""),
        Agent::Hermes | Agent::Copilot | Agent::Plain => None,
    }
}

/// Returns the consent that Hermes would ask for, in the format in which it stores it.
pub(crate) fn consent(homes: &Homes, caller: &Caller, now: &str) -> ConfigFile {
    let piece = |event: &&'static str| {
        let command = command_line(Agent::Hermes, &Whose::User, caller, event);
        let item = json!({"event": event, "command": command, "approved_at": now, "script_mtime_at_approval": null});
        Piece { keys: vec!["approvals"], what: What::Item(item) }
    };
    ConfigFile {
        path: homes.hermes.join("shell-hooks-allowlist.json"),
        format: Format::Json,
        pieces: events(Agent::Hermes).iter().map(piece).collect(),
    }
}

fn todo(agent: Agent) -> &'static str {
    match agent {
        Agent::Codex => "start codex and approve the hooks in /hooks: until then it does not run them",
        Agent::Gemini => "start gemini where you work and trust the folder: it runs hooks in trusted folders only",
        Agent::Hermes => "start hermes in a terminal and say yes when it asks about the hooks (or use --trust)",
        Agent::Cursor => "restart Cursor",
        Agent::Opencode => "restart opencode; there is no /rollback in it: use `piton rollback` in a shell",
        Agent::Claude | Agent::Qwen | Agent::Crush | Agent::Copilot | Agent::Plain => {
            "start a new session: running ones go on as they are"
        }
    }
}
