//! The tools, as a table: the method behind each, and the parameters that a model may give.

use serde_json::{Map, Value, json};

use crate::rpc::contract::params_of;
use crate::rpc::methods;
use crate::rpc::params::DIRECTORY;

/// A tool.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// Method that it calls.
    pub(super) method: &'static str,
    params: &'static [&'static str],
    description: &'static str,
    pub(super) effect: Effect,
}

/// What a tool does beyond reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Reads only, or adds to the store.
    None,
    /// Says what a restore would do.
    Plan,
    /// Changes files, after a person agreed.
    Restore,
}

pub(super) const TOOLS: [Tool; 8] = [
    Tool {
        name: "take",
        method: "take",
        params: &["reason"],
        description: "Take a checkpoint of the project now, before a risky change. It can be restored later.",
        effect: Effect::None,
    },
    Tool {
        name: "list",
        method: "list",
        params: &["limit"],
        description: "List the checkpoints of the project, newest first: number, id, time, reason, what changed.",
        effect: Effect::None,
    },
    Tool {
        name: "diff",
        method: "diff",
        params: &["from", "to", "paths"],
        description: "Show what changed since a checkpoint, or between two, as a patch.",
        effect: Effect::None,
    },
    Tool {
        name: "log",
        method: "log",
        params: &["paths", "patch", "limit"],
        description: "List the turns of agents, and the user's edits between them, that changed files.",
        effect: Effect::None,
    },
    Tool {
        name: "blame",
        method: "blame",
        params: &["path"],
        description: "Show for each line of a file the turn that wrote it, or that it was the user.",
        effect: Effect::None,
    },
    Tool {
        name: "search",
        method: "search",
        params: &["text", "paths", "regex", "contents", "prompts", "all"],
        description: "Find the turns in which a text appeared in files or vanished from them.",
        effect: Effect::None,
    },
    Tool {
        name: "restore_plan",
        method: "restore",
        params: &["checkpoint", "paths"],
        description: "Show what a restore to a checkpoint would do, and the command with which the user does it. Changes nothing.",
        effect: Effect::Plan,
    },
    Tool {
        name: "restore",
        method: "restore",
        params: &["checkpoint", "paths"],
        description: "Make the project's files equal to a checkpoint again. The user is shown the plan and asked first. \
                      What is there now is saved, and the user can undo it.",
        effect: Effect::Restore,
    },
];

impl Tool {
    /// Returns the tool as the client lists it.
    pub(super) fn described(&self) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        let directory =
            json!({"type": "string", "description": "Directory of the project; the default is that of the server"});
        properties.insert(DIRECTORY.to_owned(), directory);
        for name in self.params {
            for param in params_of(&methods::all()[self.method], name) {
                let mut schema = param["schema"].clone();
                schema["description"] = param["description"].clone();
                properties.insert(param["name"].as_str().unwrap_or_default().to_owned(), schema);
            }
            // A command restores without a checkpoint only to go on with an interrupted restore.
            let is_needed = ["checkpoint", "text", "path"].contains(name);
            required.extend(is_needed.then_some(*name));
        }
        let is_read_only = self.effect != Effect::Restore && self.name != "take";
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            },
            "annotations": {
                "readOnlyHint": is_read_only, "destructiveHint": self.effect == Effect::Restore, "openWorldHint": false,
            },
        })
    }

    /// Returns the parameters of the method. Fails with the name of one that the tool does not have.
    pub(super) fn parameters(&self, arguments: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let is_known = |name: &str| {
            let plain = name.strip_suffix("_bytes").unwrap_or(name);
            plain == DIRECTORY || self.params.contains(&plain)
        };
        match arguments.keys().find(|name| !is_known(name)) {
            Some(unknown) => Err(format!("cannot call `{}`: there is no parameter `{unknown}`", self.name)),
            None => Ok(arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Y2: no tool has a parameter that reaches beyond the project's own files.
    #[test]
    fn no_tool_reaches_other_sessions_or_what_is_out_of_scope() {
        let forbidden =
            ["across_sessions", "with_ignored", "force_uncovered", "yes", "session", "continue", "abort", "target"];
        for tool in &TOOLS {
            let described = tool.described().to_string();
            for name in forbidden {
                assert!(!described.contains(&format!("\"{name}\"")), "{} has {name}", tool.name);
                let given = Map::from_iter([(name.to_owned(), json!(true))]);
                assert!(tool.parameters(given).is_err(), "{} takes {name}", tool.name);
            }
            assert!(!["purge", "git.restore", "clear", "prune"].contains(&tool.method));
        }
    }

    #[test]
    fn every_parameter_of_a_tool_is_one_of_its_method() {
        for tool in &TOOLS {
            for name in tool.params {
                assert!(!params_of(&methods::all()[tool.method], name).is_empty(), "{} {name}", tool.name);
            }
        }
    }
}
