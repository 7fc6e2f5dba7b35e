//! The description of one agent: everything that piton knows about it. Each agent's file holds one [`Spec`].

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::event::{EventKind, Evidence, Fields, HookEvent, Keys, Meaning};
use super::guide::GuideFacts;
use super::setup::{
    Caller, ConfigFile, EnvLookup, Home, HookFormat, Ours, Setup, SetupPlace, Trust, TrustInput, Whose,
};
use super::shared;
use crate::conversation::ConversationSpec;
use crate::surface::Surface;

/// A coding agent.
pub(crate) struct Spec {
    /// Its name on the command line, in checkpoints and in the journal.
    pub(crate) name: &'static str,
    /// Its name in texts.
    pub(crate) title: &'static str,
    /// Names of its program on the search path.
    pub(crate) programs: &'static [&'static str],
    /// Its configuration directory. `None` if it cannot be installed.
    pub(crate) home: Option<Home>,
    /// The surface on which answers of the hook are read.
    pub(crate) surface: Surface,
    /// Instructions for rewinding the conversation inside the agent.
    pub(crate) rewinding: &'static str,
    /// Forks of its conversations; `None` if piton cannot make any.
    pub(crate) conversation: Option<ConversationSpec>,
    pub(crate) payload: PayloadSpec,
    pub(crate) tools: ToolSpec,
    pub(crate) version: VersionSpec,
    pub(crate) answers: AnswerSpec,
    pub(crate) install: InstallSpec,
    pub(crate) checks: CheckSpec,
    pub(crate) guide: GuideFacts,
}

/// Payloads that the agent sends.
pub(crate) struct PayloadSpec {
    /// Returns the evidence that a payload is from this agent, sent to the hook of the agent of that name.
    pub(crate) evidence: fn(&Fields, &str) -> Evidence,
    /// Returns the field that holds the event's name.
    pub(crate) event_key: fn(&Fields) -> &'static str,
    /// Names of its events. Others are not relevant to piton.
    pub(crate) events: &'static [(&'static str, Meaning)],
    pub(crate) keys: Keys,
    /// Fields with a string as their value that are searched for in a truncated payload.
    pub(crate) salvaged: &'static [&'static str],
    /// Returns the meaning of a prompt with this text.
    pub(crate) prompt: fn(String) -> EventKind,
    /// Returns true if the turn that the payload names is that of a prompt.
    pub(crate) is_turn_of_prompt: fn(&Fields) -> bool,
    /// Returns true at the end of a turn that the agent began by itself.
    pub(crate) is_continuation: fn(&Fields) -> bool,
    /// True if its hooks report the end of each turn, and can be counted on to.
    pub(crate) tells_turn_ends: bool,
    /// The text that the agent puts around the contents of a command file of ours.
    pub(crate) command_wrap: Option<CommandWrap>,
}

/// Text around the contents of a command file, when an agent sends that in place of the typed line.
pub(crate) struct CommandWrap {
    /// Words at the beginning of the prompt.
    pub(crate) words: &'static str,
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
    /// Beginning of a line before the contents that is not part of them.
    pub(crate) line: &'static str,
}

/// Tools of the agent.
pub(crate) struct ToolSpec {
    /// Read-only tools. A tool that is not listed counts as changing files.
    pub(crate) readers: &'static [&'static str],
    /// Tools that run a shell command line. PowerShell is another language and is not analysed: it may change any file.
    pub(crate) shells: &'static [&'static str],
}

/// Places of the agent's version, where the event does not contain it.
pub(crate) struct VersionSpec {
    /// Returns the version from variables that the agent sets for its children.
    pub(crate) in_env: fn(EnvLookup<'_>) -> Option<String>,
    /// Names of the packages that contain the agent's program.
    pub(crate) packages: &'static [&'static str],
    pub(crate) in_transcript: VersionText,
    /// Returns the transcript; the path is the agent's configuration directory.
    pub(crate) transcript: fn(&HookEvent, Option<&Path>) -> Option<PathBuf>,
}

/// Position of the version in a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionText {
    Nowhere,
    /// The `version` of the first record that has one.
    Records,
    /// This key in the first line.
    FirstLine(&'static str),
}

/// Replies of the hook, in the format of the agent.
pub(crate) struct AnswerSpec {
    /// Returns the reply that lets the agent continue; `None` if an empty one does.
    pub(crate) go_on: Option<fn(&HookEvent) -> Value>,
    /// Returns the part of a denial that is written to stdout; `None` if the exit code is enough.
    pub(crate) deny: Option<fn(&str) -> Value>,
    /// Returns the reply to an event of this name that passes a text to the model; `None` if there is none.
    pub(crate) context: Option<fn(&str, &str) -> Value>,
    /// Key of a message that the agent shows to its user.
    pub(crate) message_key: Option<&'static str>,
    /// Returns a reply that answers a prompt in place of the model; `None` if the agent does not support that.
    pub(crate) reply: Option<fn(&HookEvent, &str) -> Option<Value>>,
}

/// Installation of the hooks.
pub(crate) struct InstallSpec {
    /// Events at which the agent calls us. `piton doctor` fires the first one that is not about a session.
    pub(crate) events: &'static [&'static str],
    /// Directory below the root of a project. `None` if the agent has no configuration there.
    pub(crate) project_dir: Option<&'static str>,
    /// Alternative to an installation in a project, if that is not possible.
    pub(crate) instead_of_project: Option<&'static str>,
    /// Returns true if the command line must succeed even if the program is missing.
    pub(crate) fails_open: fn(&Whose) -> bool,
    /// True if the command line contains the event's name, because the payload does not.
    pub(crate) names_event: bool,
    /// Returns the handler for an event and a command line.
    pub(crate) handler: fn(&str, &str) -> Value,
    /// Returns the files to install and to change.
    pub(crate) setup: fn(&SetupPlace<'_>) -> Setup,
    /// Steps left to the user after an installation.
    pub(crate) todo: &'static str,
    /// Returns the file with the user's consent, for the given time in RFC 3339.
    pub(crate) consent: Option<fn(&Path, &Caller, &str) -> ConfigFile>,
    /// True if the agent asks its user for trust, and nothing else can answer.
    pub(crate) asks_its_user: bool,
    /// Commands other than `hook` with which older versions were installed.
    pub(crate) older_commands: &'static [&'static str],
    /// Effect of an entry of an older version.
    pub(crate) outdated_effect: &'static str,
}

/// Checks of `piton doctor`.
pub(crate) struct CheckSpec {
    /// True if the agent runs the command without a shell.
    pub(crate) runs_without_shell: bool,
    /// Returns the payload of an event of this name in a directory.
    pub(crate) payload: fn(&str, &str) -> Value,
    /// Returns true if the agent itself created its configuration directory.
    pub(crate) has_home: fn(&Path) -> bool,
    /// Returns the key in a configuration that switches all hooks off.
    pub(crate) switched_off: fn(&Value) -> Option<&'static str>,
    pub(crate) trust: fn(&TrustInput<'_>) -> Trust,
    /// Returns the command lines in a file that is ours as a whole, ours or not.
    pub(crate) commands: fn(&str) -> Vec<Ours>,
}

impl Spec {
    /// An agent that sends and accepts what most agents do.
    pub(super) const DEFAULT: Self = Self {
        name: "",
        title: "",
        programs: &[],
        home: None,
        surface: Surface::Slash,
        rewinding: "the agent is told at its next prompt, where it listens; a new session is the sure way",
        conversation: None,
        payload: PayloadSpec::DEFAULT,
        tools: ToolSpec { readers: &[], shells: &[] },
        version: VersionSpec::DEFAULT,
        answers: AnswerSpec::DEFAULT,
        install: InstallSpec::DEFAULT,
        checks: CheckSpec::DEFAULT,
        guide: GuideFacts::DEFAULT,
    };

    /// Returns the format of the handlers that an installation writes.
    pub(super) fn hook_format(&self) -> HookFormat {
        let InstallSpec { events, names_event, fails_open, handler, .. } = self.install;
        HookFormat { agent: self.name, events, names_event, fails_open, handler }
    }
}

impl PayloadSpec {
    pub(super) const DEFAULT: Self = Self {
        evidence: |_, _| Evidence::No,
        event_key: |_| "hook_event_name",
        events: &[],
        keys: Keys::COMMON,
        salvaged: &["hook_event_name", "session_id", "cwd", "tool_name"],
        prompt: |text| EventKind::Prompt { text },
        is_turn_of_prompt: |_| true,
        is_continuation: |_| false,
        tells_turn_ends: false,
        command_wrap: None,
    };
}

impl VersionSpec {
    pub(super) const DEFAULT: Self = Self {
        in_env: |_| None,
        packages: &[],
        in_transcript: VersionText::Nowhere,
        transcript: |event, _| event.mark.transcript.clone(),
    };
}

impl AnswerSpec {
    pub(super) const DEFAULT: Self = Self { go_on: None, deny: None, context: None, message_key: None, reply: None };
}

impl InstallSpec {
    pub(super) const DEFAULT: Self = Self {
        events: &[],
        project_dir: None,
        instead_of_project: None,
        fails_open: |_| false,
        names_event: false,
        handler: shared::flat_handler,
        setup: |_| Setup::default(),
        todo: shared::NEW_SESSION,
        consent: None,
        asks_its_user: false,
        older_commands: &[],
        outdated_effect: "",
    };
}

impl CheckSpec {
    pub(super) const DEFAULT: Self = Self {
        runs_without_shell: false,
        payload: shared::prompt_payload,
        has_home: Path::is_dir,
        switched_off: |_| None,
        trust: |_| Trust::Yes,
        commands: |_| Vec::new(),
    };
}
