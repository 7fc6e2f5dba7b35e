//! The coding agents that piton knows, by name. What each sends to a hook is in `hook`; where each keeps its
//! configuration is the installer's business.

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
    /// Anything else that can run a command before it changes files, in piton's own plain form.
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

    /// Its name on the command line, in checkpoints and in the journal.
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

    /// What to do in the agent so that the talk goes back as well. No agent lets another program do that.
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

    /// Returns whether its hooks tell of the end of each turn. Codex asks for approval of each new hook: there it is not relied on.
    pub(crate) fn tells_turn_ends(self) -> bool {
        matches!(self, Self::Claude | Self::Gemini | Self::Qwen | Self::Hermes | Self::Copilot)
    }

    /// The agent of that name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }
}
