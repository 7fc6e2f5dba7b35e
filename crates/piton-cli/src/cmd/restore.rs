//! The `piton restore` command, and code shared with `rollback`, `undo` and `redo`.

use std::ffi::OsString;
use std::io::IsTerminal as _;

use clap::Args;
use piton::session::RecordRewind;
use piton::{
    Checkpoint, CheckpointId, Error, ErrorKind, IgnoredFiles, Origin, OtherWork, Progress, Project, Restore,
    RestoreOptions, RestoreOutcome, RestorePlan, RestoreReport, RestoreTo, RulesChanged, Settings, Store, TurnRecord,
    tell_sessions, tell_sessions_of_rewind,
};

use super::fork::{Companion, ConversationFork, ConversationJson};
use super::paths::{check_from_here, parse_paths};
use crate::agents::Agent;
use crate::columns::counted;
use crate::context::Context;
use crate::maintenance;
use crate::options::EXIT_CODES;
use crate::output::{Declined, Output, PartlyDone, plain};
use crate::progress::watch;
use crate::remote::named::{FromProject, local_name};
use crate::surface::Surface;

/// Make files equal to a checkpoint again
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton restore 1                  everything, as it was at the newest one
  piton restore 4f2a src/main.rs   one file
  piton restore 2 --dry-run        only show what would be done
  piton restore 2 --keep-edits     take back turns since, keep your edits
  piton restore --continue         finish what was cut short
  piton restore laptop/1           as it was on another machine

The files as they are now are saved first: `piton undo` brings them back.

{EXIT_CODES}"))]
pub(crate) struct RestoreArgs {
    /// Its number in `piton rollback`, the beginning of its id, or its mark; NAME/N is one of another machine
    #[arg(value_name = "N|ID", required_unless_present_any = ["continue", "abort"])]
    pub(super) checkpoint: Option<String>,
    /// Only these files and directories, relative to the project
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<OsString>,
    #[command(flatten)]
    pub(super) how: How,
    #[command(flatten)]
    from: FromProject,
    /// Take back what the turns since then did, and keep your own edits
    #[arg(long, conflicts_with_all = ["continue", "abort", "force_uncovered"])]
    pub(crate) keep_edits: bool,
    /// With --keep-edits: leave the files in which your edits are in the way
    #[arg(long, requires = "keep_edits")]
    pub(super) skip_conflicts: bool,
    /// With --keep-edits: take back edits that cannot be told apart from those of a turn, too
    #[arg(long, requires = "keep_edits")]
    pub(super) with_own_edits: bool,
    /// Finish a restore that was cut short
    #[arg(long, conflicts_with_all = ["abort", "checkpoint"])]
    r#continue: bool,
    /// Go back to before a restore that was cut short
    #[arg(long, conflicts_with = "checkpoint")]
    abort: bool,
}

/// Undo the last restore; a second undo restores it again
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton undo\n\n{EXIT_CODES}"))]
pub(crate) struct Undo {
    #[command(flatten)]
    how: How,
}

/// Redo the restore that was undone
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton redo\n\n{EXIT_CODES}"))]
pub(crate) struct Redo {
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args, Clone, Default, PartialEq, Eq)]
pub(crate) struct How {
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Move files that no checkpoint covers (too large, ignored) aside, instead of leaving them in the way
    #[arg(long)]
    force_uncovered: bool,
    /// Also replace ignored files by the versions that were saved with the checkpoint
    #[arg(long, conflicts_with = "without_ignored")]
    with_ignored: bool,
    /// Leave ignored files that are missing
    #[arg(long)]
    without_ignored: bool,
    /// Take back what other sessions did since, too
    #[arg(long)]
    pub(super) across_sessions: bool,
    /// The session that asks; its own work may be taken back
    #[arg(long, value_name = "ID", hide = true)]
    pub(super) session: Option<String>,
}

impl How {
    fn ignored(&self) -> IgnoredFiles {
        match (self.with_ignored, self.without_ignored) {
            (true, _) => IgnoredFiles::With,
            (_, true) => IgnoredFiles::Without,
            _ => IgnoredFiles::Missing,
        }
    }
}

pub(crate) fn run(args: &RestoreArgs, context: &Context, output: &Output) -> anyhow::Result<()> {
    let name = match &args.checkpoint {
        Some(name) => Some(local_name(name, &args.from, &parse_paths(&args.paths)?, context, output)?),
        None => None,
    };
    let to = match (&name, args.r#continue) {
        (Some(name), _) => RestoreTo::Named(name),
        (None, true) => RestoreTo::Continue,
        (None, false) => RestoreTo::Abort,
    };
    restore(to, &args.paths, &args.how, context, output)
}

pub(crate) fn undo(args: &Undo, context: &Context, output: &Output) -> anyhow::Result<()> {
    restore(RestoreTo::Undo, &[], &args.how, context, output)
}

pub(crate) fn redo(args: &Redo, context: &Context, output: &Output) -> anyhow::Result<()> {
    restore(RestoreTo::Redo, &[], &args.how, context, output)
}

pub(crate) fn restore(
    to: RestoreTo<'_>,
    paths: &[OsString],
    how: &How,
    context: &Context,
    output: &Output,
) -> anyhow::Result<()> {
    restore_with(to, paths, how, Companion::Nothing, context, output)
}

/// Restores files, after the fork that goes with them was written.
pub(super) fn restore_with(
    to: RestoreTo<'_>,
    paths: &[OsString],
    how: &How,
    mut companion: Companion<'_>,
    context: &Context,
    output: &Output,
) -> anyhow::Result<()> {
    let paths = parse_paths(paths)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    check_from_here(&paths, &store, &project, context, output)?;
    let job = RestoreJob { store: &store, project: &project, to, context, output };
    let is_terminal = !output.is_json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let asks = is_terminal && !how.yes;
    let mut options = RestoreOptions::default()
        .paths(&paths)
        .move_uncovered_files(how.force_uncovered)
        .across_sessions(how.across_sessions)
        .ignored(how.ignored())
        .session(how.session.as_deref())
        .is_dry(true);
    let mut agreed = None;
    if how.dry_run || asks {
        let planned = watch(output, |progress| job.prepare(options, progress))?;
        if how.dry_run {
            let json = RestoreJson::new(&planned, planned.target(), how.session.as_deref());
            output.json(&json.with(companion.json(context)));
            output.text(&joined(plan_text(&planned, usize::MAX), companion.plan_lines()));
            return Ok(());
        }
        output.text(&joined(plan_text(&planned, 12), companion.plan_lines()));
        let (target, changes) = (planned.target().id, planned.plan().changes());
        // The plan lists the work of other sessions that it undoes, so confirming the plan agrees to that, too.
        options.across_sessions |= !planned.others().is_empty();
        // Do not hold the locks of the store while waiting for the answer.
        drop(planned);
        let question = if companion.is_nothing() { "Restore? [y/N] " } else { "Rewind? [y/N] " };
        if (changes > 0 || !companion.is_nothing()) && !output.confirmed(question, "--yes")? {
            return Err(Declined("nothing was touched", None).into());
        }
        agreed = Some(target);
    }
    options.is_dry = false;
    let report = match job.apply(options, agreed, &mut companion) {
        // `--yes` does not cover the work of other sessions.
        Err(error) if error.kind() == ErrorKind::NeedsConsent && is_terminal => {
            output.warn(&error.to_string());
            if !output.confirmed("Undo that, too? [y/N] ", "--across-sessions")? {
                return Err(Declined("nothing was touched", None).into());
            }
            job.apply(options.across_sessions(true), agreed, &mut companion)?
        }
        done => done?,
    };
    match &companion {
        Companion::Fork(fork) => tell_of_rewind(&context.settings, &store, &project, &report, fork),
        _ => tell_agents(&context.settings, &store, &project, &report),
    }
    maintenance::start_if_due(&store, &context.settings, context.config.as_deref());
    let json = RestoreJson::new(&report, &report.target, how.session.as_deref());
    output.json(&json.with(companion.json(context)));
    let place = if companion.is_nothing() { ReportFor::Restore } else { ReportFor::Rewind };
    let text = report_text(&report, &paths, output.surface, how.session.as_deref(), place);
    output.text(&joined(text, companion.lines(output.surface, context)));
    if output.was_interrupted() {
        output.hint("it was too late to stop");
    }
    match report.outcome {
        RestoreOutcome::Partly => Err(PartlyDone.into()),
        _ => Ok(()),
    }
}

/// Input of a restore: the store, the project and the target.
struct RestoreJob<'a> {
    store: &'a Store,
    project: &'a Project,
    to: RestoreTo<'a>,
    context: &'a Context,
    output: &'a Output,
}

impl<'a> RestoreJob<'a> {
    fn prepare(&self, options: RestoreOptions<'_>, progress: &Progress) -> piton::Result<Restore<'a>> {
        let settings = &self.context.settings;
        Restore::prepare(self.store, self.project, self.to, options, settings, Context::now(), progress)
    }

    /// Carries out the restore. Fails with `Busy` if the user agreed to another checkpoint, and with `Stopped` if
    /// interrupted before the first change.
    fn apply(
        &self,
        options: RestoreOptions<'_>,
        agreed: Option<CheckpointId>,
        companion: &mut Companion<'_>,
    ) -> piton::Result<RestoreReport> {
        watch(self.output, |progress| {
            let restore = self.prepare(options, progress)?;
            // A checkpoint may have been taken before the user answered: the same number is then another checkpoint.
            if agreed.is_some_and(|agreed| agreed != restore.target().id) {
                return Err(Error::new(ErrorKind::Busy, "restore")
                    .because("another checkpoint was taken meanwhile; nothing was touched")
                    .with_hint("look at the list again"));
            }
            // From here on, the restore cannot be interrupted.
            if progress.is_cancelled() {
                return Err(Error::new(ErrorKind::Stopped, "restore").because("stopped; no file was touched"));
            }
            // Without consent, the restore is refused below, and there is nothing to fork for.
            if restore.plan().changes() == 0 || restore.others().is_empty() || options.across_sessions {
                companion.write().map_err(not_forked)?;
            }
            let done = restore.apply_watched(progress);
            if done.is_err() {
                companion.take_back();
            }
            done
        })
    }
}

/// Returns the error for a fork that could not be written.
fn not_forked(error: anyhow::Error) -> Error {
    error.downcast::<Error>().unwrap_or_else(|error| {
        Error::new(ErrorKind::Io, "fork the conversation")
            .because(format!("{error:#}; no file was touched"))
            .with_hint("the files alone go back with the option for files only")
    })
}

fn joined(text: String, lines: Vec<String>) -> String {
    std::iter::once(text).chain(lines).collect::<Vec<_>>().join("\n")
}

pub(crate) fn shown(path: &[u8]) -> String {
    plain(&String::from_utf8_lossy(path))
}

fn plan_text(planned: &Restore<'_>, lines_max: usize) -> String {
    let (plan, target) = (planned.plan(), planned.target());
    let mut lines = plan_lines(plan);
    let all = lines.len();
    lines.truncate(lines_max);
    lines.extend(rules_lines(planned.rules()));
    if all > lines_max {
        lines.push(format!("  ... and {} more", all - lines_max));
    }
    lines.extend(planned.others().iter().flat_map(|other| other_lines(other, lines_max)));
    let count = count(plan);
    let headline = format!("Plan for {} ({}): {count}", target.id.short(), plain(&target.headline()));
    [headline].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

/// Returns the changes of a plan, one per line.
pub(crate) fn plan_lines(plan: &RestorePlan) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(plan.removed().map(|path| format!("  remove  {}", shown(path))));
    lines.extend(plan.moved_aside().iter().map(|(path, to)| format!("  aside   {} -> {}", shown(path), shown(to))));
    lines.extend(plan.written().map(|(path, is_new)| {
        let verb = if is_new { "create" } else { "write " };
        format!("  {verb}  {}", shown(path))
    }));
    lines.extend(plan.modes_changed().map(|(path, mode)| format!("  mode    {} to {mode:o}", shown(path))));
    let (made, dropped) = plan.directories();
    lines.extend(made.iter().map(|path| format!("  mkdir   {}/", shown(path))));
    lines.extend(dropped.iter().map(|path| format!("  rmdir   {}/ (if nothing is left in it)", shown(path))));
    lines.extend(plan.left().iter().map(|left| format!("  LEFT    {}: {}", shown(&left.path), left.why)));
    lines
}

/// Returns a line that names the files that restored ignore rules bring into scope.
fn rules_lines(rules: &RulesChanged) -> Vec<String> {
    let files = |paths: &[Vec<u8>]| {
        let names: Vec<_> = paths.iter().take(NAMED_MAX).map(|path| shown(path)).collect();
        let more = paths.len() - names.len();
        names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
    };
    match rules {
        RulesChanged { files: changed, rescoped, .. } if !rescoped.is_empty() => vec![format!(
            "Ignore rules changed ({}): in scope again, and restored with the rest: {}",
            files(changed),
            files(rescoped)
        )],
        RulesChanged { files: changed, is_cut_short: true, .. } => vec![format!(
            "Ignore rules changed ({}): too much came into scope to save it in the same run; restore once more for that",
            files(changed)
        )],
        _ => Vec::new(),
    }
}

/// Returns lines about files out of scope: those that came back, and those that differ.
fn ignored_lines(report: &RestoreReport) -> Vec<String> {
    let named = |paths: &[Vec<u8>]| {
        let names: Vec<_> = paths.iter().take(NAMED_MAX).map(|path| shown(path)).collect();
        let more = paths.len() - names.len();
        names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
    };
    let (written, kept, differing) = (&report.ignored_written, &report.kept_written, &report.ignored_differing);
    let mut lines = Vec::new();
    lines.extend((!written.is_empty()).then(|| format!("Ignored files among them: {}", named(written))));
    lines
        .extend((!kept.is_empty()).then(|| format!("Kept before a command destroyed them, and back: {}", named(kept))));
    lines.extend(
        (!differing.is_empty())
            .then(|| format!("Ignored files that differ stay (`--with-ignored` replaces them): {}", named(differing))),
    );
    lines.extend(
        report.ignored_unsaved.as_ref().map(|why| format!("Ignored files could not be saved first: {}", plain(why))),
    );
    lines
}

/// Maximum number of paths named in one line.
const NAMED_MAX: usize = 8;

/// Describes the work of another session that is undone: the agent, and up to `paths_max` paths.
pub(crate) fn other_lines(other: &OtherWork, paths_max: usize) -> Vec<String> {
    let mut lines =
        vec![format!("  ALSO TAKES BACK later work of {}: {}", plain(&other.label()), files(other.paths.len()))];
    lines.extend(other.paths.iter().take(paths_max).map(|path| format!("    {}", shown(path))));
    let more = other.paths.len().saturating_sub(paths_max);
    lines.extend((more > 0).then(|| format!("    ... and {more} more")));
    lines
}

fn count(plan: &RestorePlan) -> String {
    match plan.changes() {
        0 if plan.left().is_empty() => "nothing to do, the files are as they were".to_owned(),
        _ => {
            let (made, dropped) = plan.directories();
            let words = ["to write", "to remove", "to change", "to make", "to remove"];
            let counts = [plan.written().count(), plan.removed().count()];
            counts_text(counts, plan.modes_changed().count(), [made.len(), dropped.len()], words)
        }
    }
}

/// Formats counts of files (written, removed), changed modes and directories (made, removed). Counts of 0 are left out,
/// except for files.
fn counts_text(files_counts: [usize; 2], modes: usize, dirs: [usize; 2], words: [&str; 5]) -> String {
    let [written, removed] = files_counts.map(files);
    let mut text = format!("{written} {}, {removed} {}", words[0], words[1]);
    if modes > 0 {
        text += &format!(", {} {}", counted(modes, "mode"), words[2]);
    }
    for (count, word) in dirs.into_iter().zip(&words[3..]).filter(|(count, _)| *count > 0) {
        let directories = if count == 1 { "1 directory".to_owned() } else { format!("{count} directories") };
        text += &format!(", {directories} {word}");
    }
    text
}

pub(crate) fn files(count: usize) -> String {
    counted(count, "file")
}

/// Leaves a notice of the restore for the sessions of the project, unless `tell_agent` is off.
pub(crate) fn tell_agents(settings: &Settings, store: &Store, project: &Project, report: &RestoreReport) {
    if settings.tell_agent {
        // The restore has succeeded: a failed notice must not turn it into a failure.
        let _ = tell_sessions(store, project, report);
    }
}

/// Like [`tell_agents`], after a rewind: the old session is told that the conversation was forked.
pub(crate) fn tell_of_rewind(
    settings: &Settings,
    store: &Store,
    project: &Project,
    report: &RestoreReport,
    fork: &ConversationFork,
) {
    if settings.tell_agent {
        let _ = tell_sessions_of_rewind(store, project, report, fork.forked_session());
    }
}

/// Command whose result is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportFor {
    Restore,
    /// The conversation is described by the caller.
    Rewind,
}

/// Describes the result of a restore, limited to `paths` unless that is empty. Commands are worded for the surface.
/// `session` is the session that asked for the restore, if any.
pub(crate) fn report_text(
    report: &RestoreReport,
    paths: &[Vec<u8>],
    surface: Surface,
    session: Option<&str>,
    place: ReportFor,
) -> String {
    let names: Vec<_> = paths.iter().map(|path| shown(path)).collect();
    let target = format!("{} ({})", report.target.id.short(), plain(&report.target.headline()));
    if report.outcome == RestoreOutcome::NothingToDo {
        return match names.as_slice() {
            [] => format!("Nothing to do: the files are as they were at {target}"),
            [one] => format!("Nothing to do: {one} is as it was at {target}"),
            some => format!("Nothing to do: {} are as they were at {target}", some.join(", ")),
        };
    }
    let only = if names.is_empty() { String::new() } else { format!(", only {}", names.join(", ")) };
    let verb = if report.outcome == RestoreOutcome::Partly { "Partly restored" } else { "Restored" };
    let (counts, dirs) =
        ([report.written.len(), report.removed.len()], [report.made_dirs.len(), report.removed_dirs.len()]);
    let done = counts_text(counts, report.modes_changed, dirs, ["written", "removed", "changed", "made", "removed"]);
    let mut lines = vec![format!("{verb} to {target}{only}: {done}")];
    lines.extend(rules_lines(&report.rules));
    lines.extend(ignored_lines(report));
    lines.extend(
        report.moved_aside.iter().map(|(path, to)| format!("Moved aside: {} is now {}", shown(path), shown(to))),
    );
    if !report.left.is_empty() {
        lines.push("Left as they are:".to_owned());
        lines.extend(report.left.iter().map(|left| format!("  {}: {}", shown(&left.path), left.why)));
    }
    let Origin { agent, session, turn, .. } = talk(&report.target, session);
    if let (Some(session), Some(turn), ReportFor::Restore) = (session, turn, place) {
        lines.push(format!("Conversation at this checkpoint: session {}, turn {}", plain(&session), plain(&turn)));
        let agent = agent.as_deref().and_then(Agent::parse);
        lines.extend(agent.map(|agent| format!("  {}", agent.rewinding)));
    }
    lines.extend(report.record.as_ref().and_then(|done| record_line(&report.target, done)));
    if let Some(safety) = report.safety.map(|safety| safety.short()) {
        let line = format!("piton restore {safety}");
        let back = match surface.command(&line).filter(|_| surface != Surface::Shell) {
            Some(typed) => typed,
            None if report.can_undo => "piton undo".to_owned(),
            None => line,
        };
        lines.push(format!("The previous state is saved as {safety}: `{back}` goes back to it"));
    }
    if report.outcome == RestoreOutcome::Partly && report.safety.is_some() {
        let command = repeated(report);
        let command = surface.command(&command).unwrap_or(command);
        lines.push(format!("Numbers in the list have moved by one: `{command}` does the same again"));
    }
    lines.join("\n")
}

/// Returns the command that repeats the restore. It names the checkpoint by id, so that it stays valid if others are
/// taken.
fn repeated(report: &RestoreReport) -> String {
    let quoted = |path: &Vec<u8>| {
        let path = shown(path);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '@');
        let is_bare = !path.starts_with('-') && !path.is_empty() && path.chars().all(is_plain);
        if is_bare { path } else { format!("'{}'", path.replace('\'', "'\\''")) }
    };
    let paths: Vec<_> = report.paths.iter().map(quoted).collect();
    let dashes = if paths.iter().any(|path| path.starts_with("'-")) { " --" } else { "" };
    let mut command = format!("piton restore{dashes} {}", report.target.id.short());
    paths.iter().for_each(|path| command += &format!(" {path}"));
    command
}

/// Returns the origin of the newest turn that began from a checkpoint, preferably of the session that asks. The earlier
/// prompts changed nothing, or there would be another checkpoint.
fn talk(target: &Checkpoint, session: Option<&str>) -> Origin {
    // No prompt began from the end of a turn or from a step: a conversation that is cut there would lose the turn.
    if !target.is_row() {
        return Origin::default();
    }
    target.turn_of(session).map_or_else(|| target.facts.origin.clone(), TurnRecord::origin)
}

/// Returns a line about the session record if it was replaced or could not be.
fn record_line(target: &Checkpoint, done: &RecordRewind) -> Option<String> {
    let session = plain(target.facts.origin.session.as_deref()?);
    match done {
        RecordRewind::Replaced => Some(format!("The record of session {session} is as it was then, too")),
        RecordRewind::Unsaved => Some(format!(
            "The record of session {session} stays as it is: it changed meanwhile, or is too large to be saved first"
        )),
        RecordRewind::Failed(why) => Some(format!("The record of session {session} stays as it is: {}", plain(why))),
        _ => None,
    }
}

/// JSON of a restore or of its plan.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RestoreJson<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    /// place in the conversation that the checkpoint belongs to, or null
    rewind: Option<RewindJson>,
    /// the conversation, where it goes back, too
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<ConversationJson>,
}

/// JSON of a place in a conversation.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RewindJson {
    /// session of the conversation
    session: String,
    /// turn that began from the checkpoint
    turn: String,
}

impl<'a, R> RestoreJson<'a, R> {
    /// Returns the report of a revert, after which the conversation goes on.
    pub(super) fn without_rewind(report: &'a R) -> Self {
        Self { report, rewind: None, conversation: None }
    }

    pub(super) fn new(report: &'a R, target: &Checkpoint, session: Option<&str>) -> Self {
        let Origin { session, turn, .. } = talk(target, session);
        let rewind = session.zip(turn).map(|(session, turn)| RewindJson { session, turn });
        Self { report, rewind, conversation: None }
    }

    /// Adds the conversation.
    fn with(self, conversation: Option<ConversationJson>) -> Self {
        Self { conversation, ..self }
    }
}
