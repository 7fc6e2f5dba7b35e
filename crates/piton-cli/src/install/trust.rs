//! Checks that the user has approved the hooks of an agent, by the agent's own files. Read only.

use std::path::Path;

use serde_json::Value;

use super::pieces::Ours;
use super::setup::Homes;
use crate::agents::Agent;
use crate::edit::{Config, Format, files};

/// State of the approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    Yes,
    /// The problem, and its fix.
    No(String, &'static str),
    /// Not decided: the agent will ask the user.
    Unknown,
}

/// Returns the state of the approval; `dir` is the project for which it is checked.
pub(crate) fn trust(agent: Agent, homes: &Homes, config: &Path, ours: &[Ours], dir: &Path, accepts_all: bool) -> Trust {
    match agent {
        Agent::Codex => codex(&homes.codex, config, ours),
        Agent::Hermes => hermes(homes, config, ours, accepts_all),
        Agent::Gemini => gemini(&homes.gemini, dir),
        _ => Trust::Yes,
    }
}

/// Codex identifies a hook by file, event and index, and stores the hash of the approved definition.
fn codex(home: &Path, config: &Path, ours: &[Ours]) -> Trust {
    let text = files::read(&home.join("config.toml")).ok().flatten().unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    let states = table.get("hooks").and_then(|hooks| hooks.get("state")).and_then(toml::Value::as_table);
    let real = config.canonicalize().unwrap_or_else(|_| config.to_owned());
    let is_approved = |hook: &&Ours| {
        let place = |at: usize| hook.at.get(at).copied().unwrap_or_default();
        let name = format!(":{}:{}:{}", snake_case(&hook.event), place(0), place(1));
        let names = [config, &real].map(|path| format!("{}{name}", path.display()));
        states.into_iter().flatten().any(|(key, state)| {
            names.iter().any(|name| key.ends_with(name))
                && state.get("trusted_hash").is_some()
                && state.get("enabled").and_then(toml::Value::as_bool) != Some(false)
        })
    };
    let approved = ours.iter().filter(is_approved).count();
    if approved == ours.len() {
        return Trust::Yes;
    }
    let what = format!("{approved} of {} hooks are approved, and codex runs no other", ours.len());
    Trust::No(what, "start codex and approve them in /hooks")
}

fn snake_case(event: &str) -> String {
    let mut text = String::new();
    for character in event.chars() {
        if character.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

fn hermes(homes: &Homes, config: &Path, ours: &[Ours], accepts_all: bool) -> Trust {
    let settings = read(config, Format::Yaml);
    if accepts_all || settings["hooks_auto_accept"] == Value::Bool(true) {
        return Trust::Yes;
    }
    let list = read(&homes.hermes.join("shell-hooks-allowlist.json"), Format::Json);
    let approvals = list["approvals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_approved = |hook: &&Ours| {
        approvals.iter().any(|one| one["event"] == hook.event.as_str() && one["command"] == hook.command.as_str())
    };
    let approved = ours.iter().filter(is_approved).count();
    if approved == ours.len() {
        return Trust::Yes;
    }
    let what = format!("{approved} of {} hooks have consent, and hermes runs no other", ours.len());
    Trust::No(what, "start hermes in a terminal and say yes, or run `piton install hermes --trust`")
}

fn gemini(home: &Path, dir: &Path) -> Trust {
    let settings = read(&home.join("settings.json"), Format::Json);
    if settings["security"]["folderTrust"]["enabled"] == Value::Bool(false) {
        return Trust::Yes;
    }
    let folders = read(&home.join("trustedFolders.json"), Format::Json);
    let mut known = Trust::Unknown;
    for (folder, word) in folders.as_object().into_iter().flatten() {
        let folder = Path::new(folder);
        match word.as_str() {
            Some("TRUST_FOLDER") if dir.starts_with(folder) => known = Trust::Yes,
            Some("TRUST_PARENT") if folder.parent().is_some_and(|parent| dir.starts_with(parent)) => known = Trust::Yes,
            Some("DO_NOT_TRUST") if dir == folder => {
                let what = "this folder is not trusted, and gemini runs no hooks in it".to_owned();
                return Trust::No(what, "trust it with /permissions in gemini, if you do");
            }
            _ => {}
        }
    }
    known
}

fn read(path: &Path, format: Format) -> Value {
    let text = files::read(path).ok().flatten().unwrap_or_default();
    Config::parse(&text, format).map_or(Value::Null, |config| config.value())
}
