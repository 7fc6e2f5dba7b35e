//! The `piton rewind` command.

use std::io::IsTerminal as _;

use clap::Args;
use piton::{Checkpoint, CheckpointId, Error, ErrorKind, History, Project, RestoreTo, Store, TurnRecord, forks_dir};

use super::fork::{Companion, ConversationFork, ConversationJson, NoFork, prompt_at};
use super::restore::{self, How};
use crate::agents::Agent;
use crate::context::Context;
use crate::conversation::record::{ForkDatabases, ForkRecord, ForkRecords, ForkState};
use crate::conversation::{command_in, shell_line};
use crate::options::EXIT_CODES;
use crate::output::{Declined, Output, PartlyDone, plain};
use crate::platform;

/// Go back to before a prompt: the files, and the conversation in a fork of its session
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton rewind 2             files and conversation, before the prompt at 2
  piton rewind 2 --exec      and continue there at once
  piton rewind 2 --dry-run   only show what would be done
  piton rewind --list        the forks that were made
  piton rewind --clean       remove those that were never used

The old session is not changed. The files as they are now are saved first:
`piton undo` brings them back.

{EXIT_CODES}"))]
pub(crate) struct Rewind {
    /// Number of the checkpoint in `piton rollback`, the beginning of its id, its mark, or the name of a turn
    #[arg(value_name = "N|ID", required_unless_present_any = ["list", "clean"])]
    checkpoint: Option<String>,
    /// Restore the files, and make no fork
    #[arg(long, conflicts_with_all = ["conversation_only", "exec"])]
    files_only: bool,
    /// Make the fork, and leave the files as they are
    #[arg(long)]
    conversation_only: bool,
    /// Continue in the fork: replaces piton by the agent
    #[arg(long)]
    exec: bool,
    /// List the forks that piton made
    #[arg(long, conflicts_with_all = ["checkpoint", "files_only", "conversation_only", "exec", "clean"])]
    list: bool,
    /// Remove the forks that are still exactly as piton wrote them
    #[arg(long, conflicts_with_all = ["checkpoint", "files_only", "conversation_only", "exec"])]
    clean: bool,
    #[command(flatten)]
    how: How,
}

pub(crate) fn run(args: &Rewind, context: &Context, output: &Output) -> anyhow::Result<()> {
    let Some(name) = args.checkpoint.as_deref() else {
        return if args.clean { clean(args, context, output) } else { list(context, output) };
    };
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    let target = RewindTarget::find(&store, &project, name, args.how.session.as_deref())?;
    let mut fork = match &target.turn {
        _ if args.files_only => Err(NoFork::new(target.agent(), "it was not asked for")),
        Ok(turn) => ConversationFork::plan(turn, &store, &project),
        Err(why) => Err(why.clone()),
    };
    if args.conversation_only {
        return fork_only(args, &target, fork, context, output);
    }
    if let Err(why) = &fork
        && !args.files_only
        && !args.how.dry_run
    {
        agree_to_files_only(why, name, output)?;
    }
    let id = target.checkpoint.to_string();
    let companion = match &mut fork {
        Ok(fork) => Companion::Fork(fork),
        Err(why) => Companion::Stays(why),
    };
    let done = restore::restore_with(RestoreTo::Named(&id), &[], &args.how, companion, context, output);
    match fork {
        Ok(fork) if args.exec && !args.how.dry_run && done.is_ok() => exec(&fork),
        _ => done,
    }
}

/// Restores files, and makes a fork of the conversation if that is possible. The answer says how to continue, or why the
/// conversation stays.
pub(crate) fn restore_and_fork(name: &str, how: &How, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    let mut fork = match RewindTarget::find(&store, &project, name, how.session.as_deref())?.turn {
        Ok(turn) => ConversationFork::plan(&turn, &store, &project),
        Err(why) => Err(why),
    };
    let companion = match &mut fork {
        Ok(fork) => Companion::Fork(fork),
        Err(NoFork { agent: None, .. }) => Companion::Nothing,
        Err(why) => Companion::Stays(why),
    };
    restore::restore_with(RestoreTo::Named(name), &[], how, companion, context, output)
}

/// Checkpoint and prompt that are meant.
struct RewindTarget {
    checkpoint: CheckpointId,
    turn: Result<TurnRecord, NoFork>,
}

impl RewindTarget {
    /// Finds a checkpoint, or the turn of that name. Fails like a restore if there is neither.
    fn find(store: &Store, project: &Project, name: &str, session: Option<&str>) -> piton::Result<Self> {
        let history = History::of(store, project)?;
        let found = history.find(name).map(|checkpoint| Self::at(checkpoint, session));
        let is_named = |turn: &&TurnRecord| turn.turn == name;
        match found {
            Err(error) => {
                let rows = history.checkpoints().iter().filter(|checkpoint| checkpoint.is_row());
                let mut named = rows.filter_map(|row| Some((row.id, row.turns.iter().find(is_named)?.clone())));
                named.next().map(|(checkpoint, turn)| Self { checkpoint, turn: Ok(turn) }).ok_or(error)
            }
            found => found,
        }
    }

    fn at(checkpoint: &Checkpoint, session: Option<&str>) -> Self {
        Self { checkpoint: checkpoint.id, turn: prompt_at(checkpoint, session).cloned() }
    }

    fn agent(&self) -> Option<Agent> {
        self.turn.as_ref().ok().and_then(|turn| Agent::parse(turn.agent.as_deref()?))
    }
}

/// Asks whether the files alone should go back. Without a terminal they do not: the user asked for both.
fn agree_to_files_only(why: &NoFork, name: &str, output: &Output) -> anyhow::Result<()> {
    let is_terminal = !output.is_json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !is_terminal {
        return Err(Error::new(ErrorKind::NeedsConsent, "rewind the conversation")
            .because(format!("{}; nothing was touched", why.why.0))
            .with_hint(format!("`piton rewind {name} --files-only` restores the files"))
            .into());
    }
    output.warn(&format!("the conversation cannot be rewound: {}", why.why.0));
    if !output.confirmed("Go on with the files only? [y/N] ", "--files-only")? {
        return Err(Declined("nothing was touched", None).into());
    }
    Ok(())
}

/// JSON of a fork without a restore.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ForkOnlyJson {
    /// `forked`, or `planned` with `--dry-run`
    outcome: &'static str,
    /// checkpoint at which the prompt began
    id: CheckpointId,
    /// the conversation
    conversation: ConversationJson,
}

fn fork_only(
    args: &Rewind,
    target: &RewindTarget,
    fork: Result<ConversationFork, NoFork>,
    context: &Context,
    output: &Output,
) -> anyhow::Result<()> {
    let mut fork = fork.map_err(|no| {
        Error::new(ErrorKind::Invalid, "rewind the conversation").because(format!("{}; nothing was written", no.why.0))
    })?;
    let id = target.checkpoint;
    if args.how.dry_run {
        output.json(&ForkOnlyJson { outcome: "planned", id, conversation: fork.json(&context.dir) });
        output.text(&fork.preview().join("\n"));
        return Ok(());
    }
    fork.write()?;
    output.json(&ForkOnlyJson { outcome: "forked", id, conversation: fork.json(&context.dir) });
    output.text(&fork.lines(output.surface, &context.dir).join("\n"));
    if args.exec { exec(&fork) } else { Ok(()) }
}

/// Hands the terminal to the agent.
fn exec(fork: &ConversationFork) -> anyhow::Result<()> {
    let words = fork.words();
    let mut command = command_in(&words, fork.dir()).expect("a command has a program");
    let error = platform::become_program(&mut command);
    let program = words.first().cloned().unwrap_or_default();
    Err(Error::io("run", program, error).with_hint("the files and the fork are there; run the command above").into())
}

/// JSON of a fork that piton made.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ListedForkJson {
    /// name of the agent
    agent: String,
    /// session that was forked
    session: String,
    /// session of the fork
    forked_session: String,
    /// title of the fork
    title: String,
    /// time at which it was made, as in RFC 3339
    time: String,
    /// whether it is still as piton wrote it
    state: ForkState,
    /// reason why that cannot be checked, or null
    why_unknown: Option<String>,
    /// command for a shell that continues there
    command: String,
}

impl ListedForkJson {
    fn of(record: &ForkRecord, state: ForkState, why: Option<String>, context: &Context) -> Self {
        let spec = spec_of(record);
        let words = spec.map(|spec| (spec.resume)(&record.forked_session)).unwrap_or_default();
        Self {
            agent: record.agent.clone(),
            session: record.session.clone(),
            forked_session: record.forked_session.clone(),
            title: record.title.clone(),
            time: record.time.clone(),
            state,
            why_unknown: why,
            command: shell_line(&words, &record.directory, &context.dir),
        }
    }

    /// Formats `  2026-03-16 04:36  AGENT  before: add tests  (never used)`, and the command below it.
    fn text(&self) -> String {
        let state = match self.state {
            ForkState::Unused => "never used".to_owned(),
            ForkState::Continued => "continued: yours".to_owned(),
            ForkState::Gone => "gone".to_owned(),
            ForkState::Unknown => format!("cannot be checked: {}", self.why_unknown.as_deref().unwrap_or("unreadable")),
        };
        let when = self.time.get(..16).unwrap_or(&self.time).replace('T', " ");
        let head = format!("  {when}  {}  {}  ({})", plain(&self.agent), plain(&self.title), plain(&state));
        format!("{head}\n      {}", plain(&self.command))
    }
}

fn spec_of(record: &ForkRecord) -> Option<&'static crate::conversation::ConversationSpec> {
    Agent::parse(&record.agent).and_then(|agent| agent.spec().conversation.as_ref())
}

fn databases() -> ForkDatabases {
    ForkDatabases::new(spec_of, |name| Context::on_search_path(name))
}

/// Returns the records of forks that exist, or cannot be checked. A cleanup drops the records of others, and what a killed
/// process left of them.
fn known(
    context: &Context,
    databases: &mut ForkDatabases,
    is_cleanup: bool,
) -> piton::Result<Vec<(ForkRecord, ForkState, Option<String>)>> {
    let Some(store) = context.existing_store()? else { return Ok(Vec::new()) };
    let records = ForkRecords::new(forks_dir(&store));
    let mut known = Vec::new();
    for record in records.all() {
        let (state, why) = record.fork_state(databases);
        match state {
            ForkState::Gone if is_cleanup => {
                let _ = record.remove_own_dir();
                records.forget(&record)?;
            }
            ForkState::Gone => {}
            _ => known.push((record, state, why.map(|why| why.0))),
        }
    }
    Ok(known)
}

fn list(context: &Context, output: &Output) -> anyhow::Result<()> {
    let listed = known(context, &mut databases(), false)?;
    let listed: Vec<_> =
        listed.iter().map(|(record, state, why)| ListedForkJson::of(record, *state, why.clone(), context)).collect();
    output.json(&listed);
    if listed.is_empty() {
        output.text("No forks");
        return Ok(());
    }
    let lines: Vec<_> = listed.iter().map(ListedForkJson::text).collect();
    output.text(&format!("Forks of conversations, newest first:\n\n{}", lines.join("\n")));
    output.hint("`piton rewind --clean` removes those that were never used");
    Ok(())
}

/// JSON of a cleanup.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CleanJson {
    /// forks that were removed, or would be with `--dry-run`
    removed: Vec<ListedForkJson>,
    /// forks that were left: continued, or not to be checked
    left: Vec<ListedForkJson>,
}

fn clean(args: &Rewind, context: &Context, output: &Output) -> anyhow::Result<()> {
    let mut databases = databases();
    let known = known(context, &mut databases, !args.how.dry_run)?;
    let unused = known.iter().filter(|(_, state, _)| *state == ForkState::Unused).count();
    let is_terminal = !output.is_json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if unused > 0 && is_terminal && !args.how.yes && !args.how.dry_run {
        let question = format!("Remove {} that were never used? [y/N] ", crate::columns::counted(unused, "fork"));
        if !output.confirmed(&question, "--yes")? {
            return Err(Declined("nothing was removed", None).into());
        }
    }
    let (mut removed, mut left, mut failed) = (Vec::new(), Vec::new(), false);
    for (record, mut state, mut why) in known {
        if state == ForkState::Unused && !args.how.dry_run {
            match remove(&record, context, &mut databases) {
                Ok(true) => {}
                Ok(false) => state = ForkState::Continued,
                Err(error) => (state, why, failed) = (ForkState::Unknown, Some(error), true),
            }
        }
        let listed = ListedForkJson::of(&record, state, why, context);
        if state == ForkState::Unused { removed.push(listed) } else { left.push(listed) }
    }
    let report = CleanJson { removed, left };
    output.json(&report);
    let would = if args.how.dry_run { "Would remove" } else { "Removed" };
    let mut lines = vec![format!("{would} {}", crate::columns::counted(report.removed.len(), "fork"))];
    lines.extend(report.removed.iter().map(ListedForkJson::text));
    if !report.left.is_empty() {
        lines.push("Left as they are:".to_owned());
        lines.extend(report.left.iter().map(ListedForkJson::text));
    }
    output.text(&lines.join("\n"));
    if failed { Err(PartlyDone.into()) } else { Ok(()) }
}

/// Removes a fork if it is still as piton wrote it, and its record. Returns false if it is not.
fn remove(record: &ForkRecord, context: &Context, databases: &mut ForkDatabases) -> Result<bool, String> {
    let words = |error: Error| error.to_string();
    let removed = record.remove(databases)?;
    if removed {
        let store = context.existing_store().map_err(words)?;
        store.map_or(Ok(()), |store| ForkRecords::new(forks_dir(&store)).forget(record)).map_err(words)?;
    }
    Ok(removed)
}
