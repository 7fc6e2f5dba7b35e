//! The coding agents that piton knows, by name. The events that each sends to a hook are in `hook`, the locations of
//! its configuration in `install`.

use std::path::Path;

use crate::shell;

/// A coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Agent {
    Claude,
    Codex,
    Gemini,
    Cursor,
    Opencode,
    Hermes,
    Qwen,
    Crush,
    Copilot,
    /// Any other program that can run a command before it changes files. Uses piton's own event format.
    Plain,
}

impl Agent {
    pub(crate) const ALL: [Self; 10] = [
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Cursor,
        Self::Opencode,
        Self::Hermes,
        Self::Qwen,
        Self::Crush,
        Self::Copilot,
        Self::Plain,
    ];

    /// Returns its name on the command line, in checkpoints and in the journal.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
            Self::Opencode => "opencode",
            Self::Hermes => "hermes",
            Self::Qwen => "qwen",
            Self::Crush => "crush",
            Self::Copilot => "copilot",
            Self::Plain => "plain",
        }
    }

    /// Returns instructions for rewinding the conversation in the agent, which no agent lets another program do.
    pub(crate) fn rewinding(self) -> &'static str {
        match self {
            Self::Claude => "in Claude Code: `/rewind`, choose that prompt, restore the conversation only",
            Self::Codex => "in Codex: Esc twice, then choose that prompt",
            Self::Opencode => "in opencode: `/undo` until that prompt is gone",
            Self::Cursor => "in Cursor: edit that prompt and send it again",
            Self::Hermes => "in Hermes: `/undo` until that prompt is gone",
            Self::Gemini | Self::Qwen | Self::Crush | Self::Copilot | Self::Plain => {
                "the agent is told at its next prompt, where it listens; a new session is the sure way"
            }
        }
    }

    /// Returns true if its hooks report the end of each turn. Codex requires approval of each new hook, so it is not
    /// counted on there.
    pub(crate) fn tells_turn_ends(self) -> bool {
        matches!(self, Self::Claude | Self::Gemini | Self::Qwen | Self::Hermes | Self::Copilot)
    }

    /// Returns the agent of that name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }

    /// Returns true if a command line is one that an installer of ours wrote: a call of piton and nothing else. It contains
    /// nothing that a shell would interpret, except for [`shell::FAILS_OPEN`], so that it is safe to run it as a test.
    pub(crate) fn is_own_command(self, line: &str) -> bool {
        let line = line.strip_suffix(shell::FAILS_OPEN).unwrap_or(line);
        let Some(words) = shell::words(line) else { return false };
        if words.iter().map(|word| shell::quote(word)).collect::<Vec<_>>().join(" ") != line {
            return false;
        }
        match &words[..] {
            [program, verb, name, ..] if verb == "hook" && name == self.name() => is_piton(program),
            [program, verb, ..] if verb == "rollback" && self == Self::Hermes => is_piton(program),
            _ => false,
        }
    }
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
            assert!(Agent::Claude.is_own_command(line), "{line}");
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
            assert!(!Agent::Claude.is_own_command(line), "{line}");
        }
    }
}
