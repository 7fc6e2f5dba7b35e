//! A fork of the conversation that goes with a restore: planned before it, written when it begins, reported after it.

use std::path::{Path, PathBuf};

use piton::{Checkpoint, Project, Store, TurnRecord, forks_dir};

use crate::agents::Agent;
use crate::agents::setup::Homes;
use crate::context::Context;
use crate::conversation::draft::WrittenFork;
use crate::conversation::record::{ForkRecord, ForkRecords};
use crate::conversation::{self, ChatMessage, ConversationSpec, CutRequest, Draft, DraftBody, WhyNot};
use crate::output::plain;
use crate::surface::Surface;

/// Number of messages that are shown of a conversation.
const SHOWN_MESSAGES: usize = 6;
/// Maximum number of characters that are shown of a message.
const SHOWN_CHARS: usize = 200;

/// Reason why there is no fork, and the agent that it is about.
#[derive(Debug, Clone)]
pub(crate) struct NoFork {
    pub(crate) agent: Option<Agent>,
    pub(crate) why: WhyNot,
}

impl NoFork {
    pub(crate) fn new(agent: Option<Agent>, why: impl Into<String>) -> Self {
        Self { agent, why: WhyNot::new(why) }
    }
}

/// A fork of a conversation.
pub(crate) struct ConversationFork {
    agent: Agent,
    spec: &'static ConversationSpec,
    turn: TurnRecord,
    title: String,
    /// Configuration directory of the agent.
    home: PathBuf,
    /// Directory in which the agent continues.
    dir: PathBuf,
    messages: Vec<ChatMessage>,
    warning: Option<String>,
    /// `None` once it was written.
    body: Option<DraftBody>,
    records: ForkRecords,
    written: Option<WrittenFork>,
}

/// JSON of a conversation that goes back with the files, or does not.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum ConversationJson {
    Forked(ForkedJson),
    Stays(StaysJson),
}

/// JSON of a fork.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ForkedJson {
    /// name of the agent
    agent: String,
    /// session that was forked
    session: String,
    /// session that ends before the prompt, or null: before the first prompt there is none, and a dry run makes none
    forked_session: Option<String>,
    /// command for a shell that continues there, or null in a dry run
    command: Option<String>,
    /// what to know before the agent is started there, or null
    warning: Option<String>,
    /// last messages before the prompt, oldest first
    messages: Vec<ChatMessage>,
}

/// JSON of a conversation that stays as it is.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StaysJson {
    /// name of the agent, or null if no prompt is known
    agent: Option<String>,
    /// reason why there is no fork
    why_not: String,
}

impl ConversationFork {
    /// Plans a fork that ends before a prompt. Writes nothing.
    pub(crate) fn plan(turn: &TurnRecord, store: &Store, project: &Project) -> Result<Self, NoFork> {
        let agent = turn.agent.as_deref().and_then(Agent::parse);
        let Some(agent) = agent else { return Err(NoFork::new(None, "piton does not know its agent")) };
        let not = |why: WhyNot| NoFork { agent: Some(agent), why };
        let Some(spec) = agent.spec().conversation.as_ref() else {
            return Err(not(WhyNot::new(format!("piton cannot fork conversations of {}", agent.title))));
        };
        let homes = Context::home().map(|home| Homes::new(&home, Context::variable));
        let home = homes.as_ref().and_then(|homes| homes.of(agent));
        let Some(home) = home else { return Err(not(WhyNot::new("there is no home directory"))) };
        let title = conversation::title(turn);
        let request = CutRequest {
            turn,
            home,
            project: project.dir(),
            title: title.clone(),
            now: Context::now(),
            find_program: |name| Context::on_search_path(name),
        };
        let Draft { dir, messages, warning, body } = (spec.plan)(&request).map_err(not)?;
        let dir = dir.filter(|dir| dir.is_absolute()).unwrap_or_else(|| project.dir().to_owned());
        let (turn, home, body) = (turn.clone(), home.to_owned(), Some(body));
        let records = ForkRecords::new(forks_dir(store));
        Ok(Self { agent, spec, turn, title, home, dir, messages, warning, body, records, written: None })
    }

    /// Writes the fork and syncs it. Does nothing if it was written.
    pub(crate) fn write(&mut self) -> anyhow::Result<()> {
        let Some(body) = self.body.take() else { return Ok(()) };
        let record = ForkRecord {
            agent: self.agent.name.to_owned(),
            session: self.turn.session.clone(),
            turn: self.turn.turn.clone(),
            title: self.title.clone(),
            directory: self.dir.clone(),
            home: self.home.clone(),
            ..ForkRecord::default()
        };
        self.written = WrittenFork::write(body, record.stamped(Context::now()), &self.records)?;
        Ok(())
    }

    /// Removes the fork again, because the restore that it goes with failed. Best effort: `piton rewind --list` shows
    /// one that stays.
    pub(crate) fn take_back(&mut self) {
        if let Some(written) = self.written.take() {
            let _ = written.remove(&self.records);
        }
    }

    /// Returns the session of the fork, once it was written.
    pub(crate) fn forked_session(&self) -> Option<&str> {
        self.written.as_ref().map(|written| written.session.as_str())
    }

    /// Returns the words of the command that continues: in the fork, or in a new session if nothing was before the prompt.
    pub(crate) fn words(&self) -> Vec<String> {
        match self.forked_session() {
            Some(session) => (self.spec.resume)(session),
            None => vec![self.agent.programs.first().copied().unwrap_or(self.agent.name).to_owned()],
        }
    }

    /// Returns the directory in which the agent continues.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn is_planned(&self) -> bool {
        self.body.is_some()
    }

    /// Returns the JSON. A fork that is not written yet has neither a session nor a command.
    pub(crate) fn json(&self, here: &Path) -> ConversationJson {
        let command = (!self.is_planned()).then(|| conversation::shell_line(&self.words(), &self.dir, here));
        ConversationJson::Forked(ForkedJson {
            agent: self.agent.name.to_owned(),
            session: self.turn.session.clone(),
            forked_session: self.forked_session().map(str::to_owned),
            command,
            warning: self.warning.clone(),
            messages: self.last_messages().to_vec(),
        })
    }

    fn last_messages(&self) -> &[ChatMessage] {
        &self.messages[self.messages.len().saturating_sub(SHOWN_MESSAGES)..]
    }

    /// Returns the last messages before the prompt, one line each.
    pub(crate) fn preview(&self) -> Vec<String> {
        let line = |message: &ChatMessage| {
            let text: String = plain(&message.text.split_whitespace().collect::<Vec<_>>().join(" "));
            let short: String = text.chars().take(SHOWN_CHARS).collect();
            let more = if text.chars().count() > SHOWN_CHARS { "…" } else { "" };
            let by = if message.by == "user" { "you" } else { self.agent.title };
            format!("  {by}: {short}{more}")
        };
        match self.last_messages() {
            [] => vec![format!("Conversation: nothing was said before that prompt in {}", self.agent.title)],
            last => {
                let all = self.messages.len();
                let of = if all > last.len() {
                    format!(", the last {} of {all} messages", last.len())
                } else {
                    String::new()
                };
                let head = format!("Conversation with {} before that prompt{of}:", self.agent.title);
                std::iter::once(head).chain(last.iter().map(line)).collect()
            }
        }
    }

    /// Returns the lines that say where to continue, for a reader at `surface` who is in `here`.
    pub(crate) fn lines(&self, surface: Surface, here: &Path) -> Vec<String> {
        let title = self.agent.title;
        let command = plain(&conversation::shell_line(&self.words(), &self.dir, here));
        let Some(session) = self.forked_session() else {
            return vec![
                format!("Nothing was said before that prompt: a new session is the same. Start it with"),
                format!("  {command}"),
            ];
        };
        let mut lines = vec![
            format!("Conversation: forked before that prompt as session {} ({})", plain(session), plain(&self.title)),
            format!("Continue there with\n  {command}"),
        ];
        if let Some(inside) = self.spec.resume_inside.filter(|_| surface != Surface::Shell) {
            lines.push(format!("or, in {title}, {}", plain(&inside(session))));
        }
        lines.push("The old session is unchanged".to_owned());
        lines.extend(self.warning.iter().map(|warning| format!("Note: {warning}")));
        lines
    }
}

impl NoFork {
    pub(crate) fn json(&self) -> ConversationJson {
        let agent = self.agent.map(|agent| agent.name.to_owned());
        ConversationJson::Stays(StaysJson { agent, why_not: self.why.0.clone() })
    }

    /// Returns the lines that say that the conversation stays, and what to type instead.
    pub(crate) fn lines(&self) -> Vec<String> {
        let instead = self.agent.map(|agent| format!("  {}", agent.rewinding));
        std::iter::once(format!("The conversation stays as it is: {}", plain(&self.why.0))).chain(instead).collect()
    }
}

/// The conversation that goes with a restore.
pub(super) enum Companion<'a> {
    /// Only files are restored.
    Nothing,
    /// A fork of the conversation is made first.
    Fork(&'a mut ConversationFork),
    /// There is no fork, and the report says why.
    Stays(&'a NoFork),
}

impl Companion<'_> {
    /// Writes the fork. It is synced on return.
    pub(super) fn write(&mut self) -> anyhow::Result<()> {
        if let Self::Fork(fork) = self { fork.write() } else { Ok(()) }
    }

    pub(super) fn take_back(&mut self) {
        if let Self::Fork(fork) = self {
            fork.take_back();
        }
    }

    pub(super) fn json(&self, context: &Context) -> Option<ConversationJson> {
        match self {
            Self::Nothing => None,
            Self::Fork(fork) => Some(fork.json(&context.dir)),
            Self::Stays(no) => Some(no.json()),
        }
    }

    pub(super) fn plan_lines(&self) -> Vec<String> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Fork(fork) => fork.preview(),
            Self::Stays(no) => no.lines(),
        }
    }

    pub(super) fn lines(&self, surface: Surface, context: &Context) -> Vec<String> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Fork(fork) => fork.lines(surface, &context.dir),
            Self::Stays(no) => no.lines(),
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// Returns the prompt that began from a checkpoint: the newest, preferably of this session.
pub(crate) fn prompt_at<'a>(checkpoint: &'a Checkpoint, session: Option<&str>) -> Result<&'a TurnRecord, NoFork> {
    let prompts = || checkpoint.turns.iter().filter(|turn| turn.prompted);
    let own = session.and_then(|session| prompts().find(|turn| turn.session == session));
    let found = own.or_else(|| prompts().next()).filter(|_| checkpoint.is_row());
    found.ok_or_else(|| NoFork::new(None, "no prompt began at this checkpoint"))
}
