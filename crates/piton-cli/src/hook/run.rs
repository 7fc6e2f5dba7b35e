//! Acts on an event: takes a checkpoint, runs a rollback, or does nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use piton::{
    Ensured, Event, KeepReport, Level, Manager, Outcome, Project, Report, Store, TurnStart, WhySkipped, triggers,
    without_secrets,
};

use super::answer;
use super::decode::decode;
use super::destroyed::{self, Destroyed};
use super::input;
use super::touched;
use super::typed_command::{self, TypedPlace};
use super::version;
use super::within::within;
use crate::agents::Agent;
use crate::agents::event::{EventKind, HookEvent, ToolChange};
use crate::cmd::take::FIRST_LOCAL_FILES;
use crate::columns::counted;
use crate::context::{self, ConfigPolicy, ConfigProblem, Context};
use crate::hints;
use crate::maintenance;
use crate::options::Global;
use crate::output::plain;

/// Maximum deadline. Agents are configured to wait 15 seconds, and reading stdin may have taken two of them.
const DEADLINE_MS_MAX: u64 = 10_000;
/// Time that a take has to stop by itself after the deadline. Work that still runs after that is abandoned.
const GRACE: Duration = Duration::from_millis(500);
/// Least time for keeping, of the grace: a checkpoint that had to wait may leave none.
const KEEP_TIME_MIN: Duration = Duration::from_millis(250);
/// Timeout for recording a missed checkpoint, after everything else has timed out: a silent delay of two seconds is
/// better than an unprotected turn that is not on record.
const RECORD_PATIENCE: Duration = Duration::from_secs(2);
/// Reason of a checkpoint that is taken for a prompt. The text of the prompt is in the ledger.
const PROMPT: &str = "prompt";
/// Maximum number of directories that one call protects.
const DIRS_MAX: usize = 32;

/// Arguments of the command line.
pub(crate) struct Call<'a> {
    pub(crate) agent: Agent,
    pub(crate) event: Option<&'a str>,
    pub(crate) global: &'a Global,
    pub(crate) fail_closed: bool,
    /// True if the caller relies on [`Reply::missed`]: in a turn whose checkpoint failed earlier, it is set again.
    pub(crate) wants_proof: bool,
    /// Error in the command line. It is recorded as a warning, since the agent cannot fix it.
    pub(crate) complaint: Option<String>,
}

/// Output and exit code for the agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: u8,
    /// Reason why the agent continues without a checkpoint.
    pub(crate) missed: Option<String>,
}

/// Action for an event.
enum HookAction {
    /// A session starts: record its directory.
    Start,
    /// Take a checkpoint before the agent works on a prompt.
    Prompt(String),
    /// The agent has finished with a prompt: record that, and take a checkpoint of what it left.
    TurnEnd,
    /// A session ended: record that.
    End,
    /// Take a checkpoint before a tool that may change files.
    Tool { reason: String, touched: Vec<PathBuf>, destroys: bool, destroyed: Destroyed },
    /// The turn continues under another name.
    Continue,
    /// Run a rollback instead of passing the prompt to the model.
    Rollback(Vec<String>),
}

/// Reads the event, acts on it and returns the answer. Never fails.
pub(crate) fn respond(call: &Call<'_>) -> Reply {
    // Some agents show stderr to the user, and some treat it as a refusal.
    std::panic::set_hook(Box::new(|_| {}));
    let bytes = catch_unwind(input::read).unwrap_or_default();
    respond_to(call, &bytes)
}

/// Returns the directory that a payload names as the agent's own. The directory may not exist.
pub(crate) fn dir_of(agent: Agent, bytes: &[u8]) -> Option<PathBuf> {
    decode(agent, None, bytes).cwd
}

/// Acts on an event and returns the answer. Never fails.
pub(crate) fn respond_to(call: &Call<'_>, bytes: &[u8]) -> Reply {
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(call.agent, call.event, bytes)));
    let event = decoded.unwrap_or_else(|_| decode(call.agent, call.event, b""));
    let go_on = Reply { stdout: answer::go_on(&event), ..Reply::default() };
    let replied = catch_unwind(AssertUnwindSafe(|| act(call, &event)));
    let replied = replied.map(Option::unwrap_or_default).unwrap_or_else(|_| {
        let missed = asks_for_protection(&event).then(|| "an error in piton itself".to_owned());
        Reply { missed, ..Reply::default() }
    });
    match replied {
        Reply { stdout, code: 0, missed, .. } if stdout.is_empty() => Reply { missed, ..go_on },
        replied => replied,
    }
}

/// Returns the reply; its text is empty if it is just the one that lets the agent continue.
fn act(call: &Call<'_>, event: &HookEvent) -> Option<Reply> {
    let began = Instant::now();
    let left = |deadline_ms: u64| {
        let limit = Duration::from_millis(deadline_ms.min(DEADLINE_MS_MAX)) + GRACE;
        limit.saturating_sub(began.elapsed())
    };
    // Even reading the project or the configuration may hang.
    let (theirs, global) = (event.clone(), call.global.clone());
    let prepared = within(left(context::hook_deadline_ms()), move || prepare(&theirs, &global));
    let Some(prepared) = prepared else {
        let is_strict = call.fail_closed && matches!(event.kind, EventKind::BeforeTool { .. });
        return reply(event, is_strict, on_timeout(call, event, None));
    };
    let (here, doing, around) = prepared?;
    let limit = match doing {
        HookAction::Rollback(_) => typed_command::PATIENCE + GRACE,
        _ => left(around.settings.deadline_ms),
    };
    let is_strict = call.fail_closed && around.settings.enabled && matches!(doing, HookAction::Tool { .. });
    let task = Task {
        event: event.clone(),
        doing,
        here,
        around: around.clone(),
        complaint: call.complaint.clone(),
        wants_proof: is_strict || call.wants_proof,
        began,
    };
    let done = within(limit, move || task.run());
    reply(event, is_strict, done.unwrap_or_else(|| on_timeout(call, event, Some(around))))
}

/// Returns the agent's directory, the action and the hook's environment; `None` if there is nothing to do.
fn prepare(event: &HookEvent, global: &Global) -> Option<(Option<PathBuf>, HookAction, Context)> {
    let here = place(event);
    let doing = catch_unwind(AssertUnwindSafe(|| doing(event, here.as_deref())));
    let doing = doing.unwrap_or_else(|_| Some(unreadable()))?;
    // With this policy, it does not fail.
    Some((here, doing, Context::build(global, ConfigPolicy::Hook).ok()?))
}

fn reply(event: &HookEvent, is_strict: bool, done: HookResult) -> Option<Reply> {
    match done.missed {
        Some(why) if is_strict => {
            let why = format!("piton: no checkpoint could be taken, and --fail-closed is set: {}", plain(&why));
            let stdout = answer::stop(event, &why);
            Some(Reply { stdout, stderr: format!("{why}\n"), code: 2, missed: Some(why) })
        }
        missed => Some(Reply { stdout: done.answer.unwrap_or_default(), missed, ..Reply::default() }),
    }
}

/// Returns the agent's current directory.
fn place(event: &HookEvent) -> Option<PathBuf> {
    event.cwd.clone().filter(|cwd| cwd.is_dir()).or_else(|| std::env::current_dir().ok())
}

/// Returns the action for an event; `None` if there is nothing to do. Opens no file.
fn doing(event: &HookEvent, here: Option<&Path>) -> Option<HookAction> {
    match &event.kind {
        EventKind::Other | EventKind::BeforeTool { change: ToolChange::Nothing, .. } => None,
        EventKind::SessionStart => Some(HookAction::Start),
        EventKind::Continuation => Some(HookAction::Continue),
        EventKind::TurnEnd => Some(HookAction::TurnEnd),
        EventKind::SessionEnd => Some(HookAction::End),
        EventKind::Unreadable => Some(unreadable()),
        EventKind::Prompt { text } => {
            Some(typed_words(event, text).map_or_else(|| HookAction::Prompt(text.clone()), HookAction::Rollback))
        }
        EventKind::BeforeTool { tool, change: ToolChange::Files(files) } => {
            let home = Context::home();
            let absolute = |file: &PathBuf| match (file.strip_prefix("~"), &home) {
                (Ok(below), Some(home)) => Some(home.join(below)),
                _ => Some(here?.join(file)),
            };
            let touched = touched::one_per_dir(files.iter().filter_map(absolute));
            let reason = format!("before {}", plain(tool));
            Some(HookAction::Tool {
                reason,
                touched,
                destroys: false,
                destroyed: Destroyed::Files(files.iter().filter_map(absolute).collect()),
            })
        }
        EventKind::BeforeTool { change: ToolChange::Command { line, dir }, .. } => {
            let here = here.unwrap_or(Path::new("/"));
            let at = dir.as_ref().map_or_else(|| here.to_owned(), |dir| here.join(dir));
            let verdict = triggers::analyse(line, &at, Context::home().as_deref());
            verdict.may_change.then(|| HookAction::Tool {
                reason: format!("before terminal: {}", without_secrets(&verdict.summary)),
                touched: [at].into_iter().chain(touched::by(&verdict)).collect(),
                destroys: verdict.destroys,
                destroyed: Destroyed::Command(Box::new(verdict)),
            })
        }
    }
}

/// Returns the arguments of a rollback, if the prompt is one and the agent lets a hook answer it.
fn typed_words(event: &HookEvent, prompt: &str) -> Option<Vec<String>> {
    typed_command::rollback(prompt).filter(|_| answer::block_prompt_with(event, "").is_some())
}

/// Returns true if the event alone calls for a checkpoint.
fn asks_for_protection(event: &HookEvent) -> bool {
    match &event.kind {
        EventKind::SessionStart
        | EventKind::Continuation
        | EventKind::TurnEnd
        | EventKind::SessionEnd
        | EventKind::Other => false,
        EventKind::BeforeTool { change: ToolChange::Nothing, .. } => false,
        EventKind::Prompt { text } => typed_words(event, text).is_none(),
        EventKind::BeforeTool { .. } | EventKind::Unreadable => true,
    }
}

fn unreadable() -> HookAction {
    let reason = "before something that piton could not read".to_owned();
    HookAction::Tool { reason, touched: Vec::new(), destroys: true, destroyed: Destroyed::Unknown }
}

/// Owned input of the work, so that its thread can be abandoned.
struct Task {
    event: HookEvent,
    doing: HookAction,
    here: Option<PathBuf>,
    around: Context,
    complaint: Option<String>,
    /// True if an earlier failure in the same turn counts as a missed checkpoint.
    wants_proof: bool,
    /// When the hook began.
    began: Instant,
}

/// Result of the work.
struct HookResult {
    answer: Option<String>,
    /// Reason why the agent continues without a checkpoint.
    missed: Option<String>,
}

/// Result of ensuring the checkpoints.
#[derive(Default)]
struct Protected {
    /// Reason why the agent continues without a checkpoint.
    missed: Option<String>,
    /// Projects whose checkpoints are being completed in the background.
    unfinished: Vec<PathBuf>,
    /// True if the store has its first files out of scope.
    has_first_local: bool,
    /// Results, by directory.
    ensured: Vec<Ensured>,
    /// As in [`KeepRequest`].
    current: Option<Vec<PathBuf>>,
}

fn is_skipped(one: &Ensured, why: WhySkipped) -> bool {
    one.report.as_ref().is_ok_and(|report| report.outcome == Outcome::Skipped(why))
}

const NOTHING: HookResult = HookResult { answer: None, missed: None };

impl Task {
    fn run(mut self) -> HookResult {
        let mut settings = self.around.settings.clone();
        settings.deadline_ms = settings.deadline_ms.min(DEADLINE_MS_MAX);
        let is_enabled = settings.enabled;
        let base = &self.around.base;
        let mut manager = Manager::new(base, self.around.home.as_deref(), settings)
            .for_agent(self.event.agent.name)
            .with_journal(self.around.journal())
            .with_hints(hints::words);
        self.enter_turn(&mut manager);
        self.learn_version(&mut manager);
        self.read_programs();
        let problems: Vec<_> = self.around.config_problems.iter().map(ConfigProblem::for_journal).collect();
        let problems = problems.into_iter().chain(self.complaint.take());
        let own_text = self.own_text_problem();
        for problem in problems.chain(own_text.clone()) {
            manager.note_warning(problem, Context::now());
        }
        match &self.doing {
            HookAction::Rollback(words) => self.rollback(&manager, words, own_text.as_deref()),
            _ if !is_enabled => NOTHING,
            HookAction::Start | HookAction::Continue | HookAction::End => NOTHING,
            HookAction::TurnEnd => {
                let ends = manager.take_turn_end(Context::now());
                for one in ends.iter().filter(|one| one.is_unfinished) {
                    maintenance::start_finish(&self.around.base, self.around.config.as_deref(), &one.dir);
                }
                self.push(&manager, ends.iter());
                NOTHING
            }
            HookAction::Prompt(_) => {
                let killed = manager.note_killed_hooks(Context::now());
                manager.expire_kept(Context::now());
                let Protected { missed, unfinished, has_first_local, .. } = self.protect(&manager, PROMPT, &[]);
                let notice =
                    answer::accepts_context(&self.event).then(|| manager.take_notice(Context::now())).flatten();
                let context = notice.map(|notice| answer::words(&notice));
                let message = self.message(&manager, &unfinished, killed.len(), has_first_local);
                let told = message.and_then(|text| answer::with_message(&self.event, &text, context.as_deref()));
                let answer = told.or_else(|| answer::with_context(&self.event, &context?));
                HookResult { answer, missed }
            }
            HookAction::Tool { reason, touched, destroyed, .. } => {
                let Protected { missed, unfinished, has_first_local, ensured, current } =
                    self.protect(&manager, reason, touched);
                let kept = self.keep(&manager, destroyed, current);
                manager.note_outside(&ensured, &kept, Context::now());
                let message = self.message(&manager, &unfinished, 0, has_first_local);
                HookResult { answer: message.and_then(|text| answer::with_message(&self.event, &text, None)), missed }
            }
        }
    }

    /// Reads the programs that the command runs: what they change and destroy counts as its own.
    fn read_programs(&mut self) {
        if let HookAction::Tool { touched, destroys, destroyed: Destroyed::Command(verdict), .. } = &mut self.doing {
            touched.extend(destroyed::read_programs(verdict, self.around.home.as_deref()));
            *destroys |= verdict.destroys;
        }
    }

    /// Keeps what the command is about to destroy, in the time that is left, or in `KEEP_TIME_MIN`.
    fn keep(&self, manager: &Manager, destroyed: &Destroyed, current: Option<Vec<PathBuf>>) -> KeepReport {
        let limit = Duration::from_millis(self.around.settings.deadline_ms.min(DEADLINE_MS_MAX));
        let left = limit.saturating_sub(self.began.elapsed()).max(KEEP_TIME_MIN);
        let left = u64::try_from(left.as_millis()).unwrap_or(0);
        let root = manager.root().or(self.here.as_deref());
        let mut request = destroyed.request(root, manager.settings(), self.around.home.as_deref());
        request.current = current;
        manager.keep_files(request, left, Context::now())
    }

    fn own_text_problem(&self) -> Option<String> {
        let EventKind::Prompt { text } = &self.event.kind else { return None };
        typed_command::own_text_problem(self.event.agent, text)
    }

    /// Returns the message for the user, if the agent can show one. Each fact is reported once.
    fn message(
        &self,
        manager: &Manager,
        unfinished: &[PathBuf],
        killed: usize,
        has_first_local: bool,
    ) -> Option<String> {
        answer::with_message(&self.event, "", None)?;
        let late = unfinished.iter().find(|dir| manager.is_to_be_told(dir)).map(|dir| {
            format!(
                "piton: the checkpoint of {} takes longer than a prompt may wait. It is being completed in the background; \
                 files that change before that are not protected in this turn.",
                plain(&dir.display().to_string())
            )
        });
        let killed = (killed > 0).then(|| {
            let turns = counted(killed, "earlier turn");
            format!("piton: {turns} ran without a checkpoint, as the hook was stopped. `piton status` shows more.")
        });
        let first = has_first_local.then(|| format!("piton: {FIRST_LOCAL_FILES}."));
        let all: Vec<_> = late.into_iter().chain(killed).chain(first).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }

    fn enter_turn(&self, manager: &mut Manager) {
        let Some(session) = &self.event.session else {
            return;
        };
        let (now, turn, here) = (Context::now(), self.event.turn.as_deref(), self.here.as_deref());
        match &self.doing {
            HookAction::Start => manager.start_session(session, self.event.parent.as_deref(), here, now),
            HookAction::Prompt(prompt) => manager.start_turn(session, self.turn_start(prompt), now),
            HookAction::TurnEnd if self.event.is_continuation => manager.end_continuation(session, now),
            HookAction::TurnEnd if self.event.has_running_subagents => {
                manager.end_turn_with_subagents(session, turn, now);
            }
            HookAction::TurnEnd => manager.end_turn(session, turn, now),
            HookAction::End => manager.end_session(session, now),
            HookAction::Tool { .. } => manager.continue_turn(session, turn, now),
            HookAction::Continue => manager.continue_turn_as(session, turn, now),
            HookAction::Rollback(_) => {}
        }
    }

    /// Records the agent's version with the turn. At the first prompt of a session there may be no file to read it from
    /// yet.
    fn learn_version(&self, manager: &mut Manager) {
        let told = || self.event.version.clone();
        match self.doing {
            _ if self.event.session.is_none() => {}
            HookAction::Start => manager.learn_agent_version(told),
            HookAction::Prompt(_) | HookAction::TurnEnd => {
                manager.learn_agent_version(|| told().or_else(|| version::find(&self.event)));
            }
            HookAction::End | HookAction::Tool { .. } | HookAction::Continue | HookAction::Rollback(_) => {}
        }
    }

    fn turn_start(&self, prompt: &str) -> TurnStart {
        let mut start = TurnStart::default();
        start.name.clone_from(&self.event.turn);
        start.dir.clone_from(&self.here);
        start.prompt = Some(prompt.to_owned());
        start.agent_version.clone_from(&self.event.version);
        start.mark.clone_from(&self.event.mark);
        start.tells_end = self.event.agent.payload.tells_turn_ends;
        start
    }

    /// Ensures a checkpoint of the session's directory, the current one and everything touched.
    fn protect(&self, manager: &Manager, reason: &str, touched: &[PathBuf]) -> Protected {
        // The session's directory comes first: directories within it are then known to belong to its project.
        let all = manager.root().into_iter().chain(self.here.as_deref());
        let all = all.chain(self.event.roots.iter().chain(touched).map(PathBuf::as_path));
        let mut dirs: Vec<PathBuf> = Vec::new();
        let base = Some(&self.around.base).filter(|base| !base.as_os_str().is_empty());
        let is_ours = |dir: &Path| base.is_some_and(|base| dir.starts_with(base));
        let is_system = |dir: &Path| {
            let store = || base.and_then(|base| Store::open_existing(base).ok().flatten());
            piton::is_system_dir(dir)
                && Project::protecting(dir, store().as_ref(), self.around.home.as_deref()).is_none()
        };
        for dir in all.filter(|dir| !touched::is_in_shared_dir(dir) && !is_ours(dir) && !is_system(dir)) {
            if !dirs.iter().any(|known| known == dir) && dirs.len() < DIRS_MAX {
                dirs.push(dir.to_owned());
            }
        }
        let now = Context::now();
        if dirs.is_empty() {
            let why = "the agent works in a directory that all users share, or of the system, which is never taken"
                .to_owned();
            manager.note_declined(self.here.as_deref(), why.clone(), now);
            return Protected { missed: Some(why), ..Protected::default() };
        }
        let ensured = manager.ensure_checkpoints(&dirs, reason, now);
        if ensured.iter().any(|one| one.checkpoint().is_some())
            && let Ok(Some(store)) = Store::open_existing(&self.around.base)
        {
            maintenance::start_if_due(&store, manager.settings(), self.around.named_config());
        }
        for one in ensured.iter().filter(|one| one.is_unfinished) {
            maintenance::start_finish(&self.around.base, self.around.named_config(), &one.dir);
        }
        let mut steps = Vec::new();
        let wants_step = matches!(&self.doing, HookAction::Tool { destroys, .. } if manager.wants_step(*destroys));
        if wants_step {
            // The others have had their checkpoint at this moment.
            let is_first = |one: &&Ensured| !is_skipped(one, WhySkipped::AlreadyThisTurn);
            let taken: Vec<_> = ensured.iter().filter(is_first).map(|one| one.dir.clone()).collect();
            let within: Vec<_> = touched.iter().filter(|dir| dirs.contains(dir)).cloned().collect();
            steps = manager.take_steps(&within, &taken, reason, now);
        }
        self.push(manager, ensured.iter().chain(&steps));
        let held = ensured.iter().chain(&steps).filter(|one| one.checkpoint().is_some());
        let current = wants_step.then(|| held.map(|one| one.dir.clone()).collect());
        let unfinished = ensured.iter().filter(|one| one.is_unfinished || is_skipped(one, WhySkipped::BeingCompleted));
        let unfinished = unfinished.map(|one| one.dir.clone()).collect();
        let missed = manager.unprotected(&ensured).into_iter().next().map(|(_, why)| why);
        let local = |one: &Ensured| one.report.as_ref().ok().and_then(|report| report.local.clone());
        let has_first_local = ensured.iter().filter_map(local).any(|local| local.is_first);
        if missed.is_some() || !self.wants_proof {
            return Protected { missed, unfinished, has_first_local, ensured, current };
        }
        // An earlier attempt in this turn may have failed.
        let is_unprotected = ensured.iter().any(|one| one.checkpoint().is_none() && manager.is_unprotected(&one.dir));
        let missed = is_unprotected.then(|| "this turn has no checkpoint; `piton status` says why".to_owned());
        Protected { missed, unfinished, has_first_local, ensured, current }
    }

    /// Starts a push in the background if one of these checkpoints is new.
    fn push<'a>(&self, manager: &Manager, mut ensured: impl Iterator<Item = &'a Ensured>) {
        let is_new = |one: &Ensured| matches!(one.report, Ok(Report { outcome: Outcome::Taken(_), .. }));
        if ensured.any(is_new)
            && let Ok(Some(store)) = Store::open_existing(&self.around.base)
        {
            maintenance::start_push(&store, manager.settings(), self.around.named_config());
        }
    }

    /// Runs a rollback. `problem` is appended to its output as a warning.
    fn rollback(&self, manager: &Manager, words: &[String], problem: Option<&str>) -> HookResult {
        let root = self.event.session.as_ref().and_then(|session| manager.root_of(session));
        let Some(dir) = root.or_else(|| self.here.clone()) else {
            return NOTHING;
        };
        let (base, config, session) =
            (self.around.base.clone(), self.around.named_config().map(Path::to_owned), self.event.session.clone());
        let place = TypedPlace { dir, base, config, session, surface: self.event.agent.surface };
        let run = || typed_command::run(&place, words);
        // Two hooks for one prompt must not roll back twice. Without a name for the prompt they cannot be told apart.
        let names = [&self.event.turn, &self.event.stamp].map(|name| name.as_deref().unwrap_or_default());
        let text = match &self.event.session {
            Some(session) if typed_command::changes_files(words) && names != [""; 2] => {
                manager.answer_once(session, &format!("{} {}", names.join(" "), words.join(" ")), run)
            }
            _ => run(),
        };
        let text = problem.map_or(text.clone(), |problem| format!("{text}\nwarning: {problem}"));
        HookResult { answer: answer::block_prompt_with(&self.event, &text), missed: None }
    }
}

/// Records a timeout, at level `Unprotected` only if the event called for a checkpoint. Waits no longer than
/// `RECORD_PATIENCE`, since the disk may be what hangs.
fn on_timeout(call: &Call<'_>, event: &HookEvent, around: Option<Context>) -> HookResult {
    let why = "the hook did not come to an end: it took too long, or failed".to_owned();
    let level = if asks_for_protection(event) { Level::Unprotected } else { Level::Warning };
    let mut noted = Event::new(Context::now(), level, why.clone());
    noted.agent = Some(event.agent.name.to_owned());
    noted.session = event.session.clone();
    noted.turn = event.turn.clone();
    noted.project = event.cwd.clone();
    let global = call.global.clone();
    within(RECORD_PATIENCE, move || {
        match around {
            // With checkpoints switched off, nothing was missed.
            Some(around) => around.settings.enabled && around.journal().note(&noted),
            None => context::journal_of(&global).note(&noted),
        }
    });
    HookResult { answer: None, missed: Some(why) }
}
