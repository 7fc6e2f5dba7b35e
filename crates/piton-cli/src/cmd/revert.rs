//! The `piton revert` command, and `piton restore --keep-edits`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::IsTerminal as _;

use clap::Args;
use piton::{
    Checkpoint, Error, ErrorKind, Hint, History, InTheWay, Project, RevertConflict, RevertOptions, RevertOutcome,
    RevertReport, Store, Turn, list_turns, restore_keeping_edits, revert, tell_sessions_of_revert,
};

use super::hunks;
use super::paths::{check_from_here, parse_paths};
use super::restore::{RestoreArgs, RestoreJson, files, shown};
use crate::context::Context;
use crate::maintenance;
use crate::options::EXIT_CODES;
use crate::output::{Declined, Output, PartlyDone, Said, plain};
use crate::platform;
use crate::progress::watch;
use crate::remote::named::only_here;
use crate::surface::Surface;

/// Take back one turn, and keep everything that came later
#[derive(Debug, Args, Default)]
#[command(after_help = format!("\
Examples:
  piton revert 2                    what the prompt at row 2 of the list changed
  piton revert 2 src/main.rs        only in one file
  piton revert 2 -p                 only the hunks that you choose
  piton revert 2 --dry-run          only show what would be done

Later turns and your own edits stay. If they changed the same lines, nothing is
written.
The files as they are now are saved first: `piton undo` brings them back.

{EXIT_CODES}"))]
pub(crate) struct RevertArgs {
    /// The turn: the number or id of the checkpoint that it began from, or its own id
    #[arg(value_name = "N|ID|TURN")]
    pub(super) turn: String,
    /// Only these files and directories, relative to the project
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<OsString>,
    /// Choose hunks in the terminal
    #[arg(short, long, conflicts_with_all = ["hunk", "dry_run", "yes"])]
    pub(super) patch: bool,
    /// Only the hunk of FILE at this line of the file at the end of the turn; repeats
    #[arg(long, value_name = "FILE:LINE")]
    pub(super) hunk: Vec<OsString>,
    /// Take back what does not conflict, and leave the rest
    #[arg(long)]
    pub(super) skip_conflicts: bool,
    /// Take back a turn whose end was not reported, with your own edits until the next prompt
    #[arg(long)]
    pub(super) with_own_edits: bool,
    /// Take back what other sessions did at the same time, too
    #[arg(long)]
    pub(super) across_sessions: bool,
    /// The agent, if prompts of several began from the checkpoint
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
}

pub(crate) fn run(args: &RevertArgs, context: &Context, output: &Output) -> anyhow::Result<()> {
    let paths = parse_paths(&args.paths)?;
    let hunks = parse_hunks(&args.hunk)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    check_from_here(&paths, &store, &project, context, output)?;
    let turn = History::of(&store, &project)?.turn(&args.turn, args.agent.as_deref());
    let turn = turn.map_err(|error| without_checkpoint(&args.turn, &store, &project).unwrap_or(error))?;
    let options = RevertOptions::default()
        .paths(&paths)
        .hunks(&hunks)
        .skip_conflicts(args.skip_conflicts)
        .with_own_edits(args.with_own_edits)
        .across_sessions(args.across_sessions)
        .is_dry(args.dry_run);
    let job = RevertJob { store: &store, project: &project, subject: RevertSubject::Turn(&turn), context, output };
    if !args.patch {
        return job.carry_out(options, args.yes);
    }
    if !job.is_terminal() {
        return Err(Error::new(ErrorKind::Invalid, "choose hunks")
            .because("this is not a terminal")
            .with_hint("`--hunk FILE:LINE` names a hunk")
            .into());
    }
    let (planned, options) = job.plan_with_consent(options.skip_conflicts(true))?;
    if planned.outcome == RevertOutcome::NothingToDo {
        output.text(&job.report_text(&planned));
        return Ok(());
    }
    let Some(chosen) = hunks::choose(&job.patches_of_turn(&turn, &paths)?, output)? else {
        return Err(Declined("nothing was chosen, and nothing was touched", None).into());
    };
    let options = options.paths(&chosen.paths).hunks(&chosen.hunks).skip_conflicts(args.skip_conflicts);
    job.carry_out(options, true)
}

/// Returns the error for a turn, named by its own id, that has no checkpoint; `None` for every other name.
fn without_checkpoint(name: &str, store: &Store, project: &Project) -> Option<Error> {
    let turns = list_turns(store, project, usize::MAX).ok()?;
    let turn = turns.iter().find(|turn| turn.record.turn == name && turn.before.is_none())?;
    let why = match turn.record.missed.as_deref() {
        Some("empty") => "the directory was empty at its prompt, so that it has no checkpoint".to_owned(),
        Some(missed) => format!("it has no checkpoint: {missed}"),
        None => "its checkpoint is gone".to_owned(),
    };
    let error = Error::new(ErrorKind::NotFound, format!("revert the turn {name}")).because(why);
    Some(error.with_hint("`piton turns` lists the turns"))
}

/// Runs `piton restore --keep-edits`: takes back every turn since a checkpoint, and keeps the user's edits.
pub(crate) fn run_keep_edits(args: &RestoreArgs, context: &Context, output: &Output) -> anyhow::Result<()> {
    let name = args.checkpoint.as_deref().unwrap_or_default();
    only_here(name, "keep edits")?;
    let paths = parse_paths(&args.paths)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    check_from_here(&paths, &store, &project, context, output)?;
    // By id: another checkpoint may be taken before the user answers.
    let target = History::of(&store, &project)?.find(name)?.clone();
    let options = RevertOptions::default()
        .paths(&paths)
        .skip_conflicts(args.skip_conflicts)
        .with_own_edits(args.with_own_edits)
        .across_sessions(args.how.across_sessions)
        .session(args.how.session.as_deref())
        .is_dry(args.how.dry_run);
    let job = RevertJob { store: &store, project: &project, subject: RevertSubject::Since(&target), context, output };
    job.carry_out(options, args.how.yes)
}

#[derive(Clone, Copy)]
enum RevertSubject<'a> {
    Turn(&'a Turn),
    Since(&'a Checkpoint),
}

/// Input of a revert.
struct RevertJob<'a> {
    store: &'a Store,
    project: &'a Project,
    subject: RevertSubject<'a>,
    context: &'a Context,
    output: &'a Output,
}

impl RevertJob<'_> {
    fn run(&self, options: RevertOptions<'_>) -> piton::Result<RevertReport> {
        let Self { store, project, subject, context, output } = *self;
        let (settings, now) = (&context.settings, Context::now());
        watch(output, |progress| match subject {
            RevertSubject::Turn(turn) => revert(store, project, turn, options, settings, now, progress),
            RevertSubject::Since(target) => {
                let name = target.id.to_string();
                restore_keeping_edits(store, project, &name, options, settings, now, progress)
            }
        })
    }

    fn is_terminal(&self) -> bool {
        !self.output.is_json && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Makes the plan, and asks for the consent that it needs. Returns the options with that consent.
    fn plan_with_consent<'o>(
        &self,
        mut options: RevertOptions<'o>,
    ) -> anyhow::Result<(RevertReport, RevertOptions<'o>)> {
        loop {
            let error = match self.run(options.is_dry(true)) {
                Ok(planned) => return Ok((planned, options)),
                Err(error) => error,
            };
            let (consent, option) = match error.hint() {
                Some(Hint::RevertWithOwnEdits) => (&mut options.with_own_edits, "--with-own-edits"),
                Some(Hint::RevertAcrossSessions) => (&mut options.across_sessions, "--across-sessions"),
                _ => return Err(error.into()),
            };
            self.output.warn(&error.to_string());
            if !self.output.confirmed("Undo that, too? [y/N] ", option)? {
                return Err(Declined("nothing was touched", None).into());
            }
            *consent = true;
        }
    }

    /// Plans, asks in a terminal unless `yes`, and carries the plan out.
    fn carry_out(&self, mut options: RevertOptions<'_>, yes: bool) -> anyhow::Result<()> {
        let output = self.output;
        if self.is_terminal() && !options.is_dry {
            let planned;
            (planned, options) = self.plan_with_consent(options)?;
            let is_over = planned.outcome == RevertOutcome::Conflict || planned.paths.is_empty();
            if is_over || !yes {
                output.text(&self.report_text(&planned));
            }
            match planned.outcome {
                RevertOutcome::Conflict => return Err(Said(1).into()),
                RevertOutcome::Partly if is_over => return Err(PartlyDone.into()),
                _ if is_over => return Ok(()),
                _ => {}
            }
            let question = match self.subject {
                RevertSubject::Turn(_) => "Revert? [y/N] ",
                RevertSubject::Since(_) => "Restore? [y/N] ",
            };
            if !yes && !output.confirmed(question, "--yes")? {
                return Err(Declined("nothing was touched", None).into());
            }
        }
        let report = self.run(options)?;
        if report.restore.is_some() {
            if self.context.settings.tell_agent {
                // The files are changed: a failed notice must not turn that into a failure.
                let _ = tell_sessions_of_revert(self.store, self.project, &report);
            }
            maintenance::start_if_due(self.store, &self.context.settings, self.context.config.as_deref());
        }
        match self.subject {
            RevertSubject::Turn(_) => output.json(&RestoreJson::without_rewind(&report)),
            RevertSubject::Since(target) => output.json(&RestoreJson::new(&report, target, options.session)),
        }
        output.text(&self.report_text(&report));
        match report.outcome {
            RevertOutcome::Conflict => Err(Said(1).into()),
            RevertOutcome::Partly => Err(PartlyDone.into()),
            _ => Ok(()),
        }
    }

    /// Returns the changes of a turn, by file.
    fn patches_of_turn(&self, turn: &Turn, paths: &[Vec<u8>]) -> anyhow::Result<Vec<hunks::FilePatch>> {
        let settings = &self.context.settings;
        let (from, to) = turn_ends(turn);
        let ends = (from.as_str(), to.as_deref());
        let diff =
            watch(self.output, |progress| piton::diff(self.store, self.project, ends, paths, settings, progress))?;
        Ok(hunks::split(&diff))
    }

    fn report_text(&self, report: &RevertReport) -> String {
        let name = match self.subject {
            RevertSubject::Turn(turn) => plain(&turn.record.headline()),
            RevertSubject::Since(target) => format!("{} ({})", target.id.short(), plain(&target.headline())),
        };
        report_text(&name, report, self.output.surface)
    }
}

/// Returns the names of the checkpoints at which a turn began and ended. The end is `None` if it is the current files.
pub(crate) fn turn_ends(turn: &Turn) -> (String, Option<String>) {
    let end = match turn.end {
        piton::TurnEnd::Reported(end) | piton::TurnEnd::OpenEnded(end) => Some(end.to_string()),
        _ => None,
    };
    (turn.before.to_string(), end)
}

/// Parses `FILE:LINE`.
fn parse_hunks(typed: &[OsString]) -> anyhow::Result<Vec<(Vec<u8>, BTreeSet<usize>)>> {
    let mut hunks: BTreeMap<Vec<u8>, BTreeSet<usize>> = BTreeMap::new();
    for hunk in typed {
        let invalid = || {
            Error::new(ErrorKind::Invalid, format!("use the hunk {:?}", shown(hunk.as_encoded_bytes())))
                .because("a hunk is a file and a line, such as src/main.rs:12")
        };
        let at = hunk.as_encoded_bytes().iter().rposition(|byte| *byte == b':').ok_or_else(invalid)?;
        let (file, line) = (&hunk.as_encoded_bytes()[..at], &hunk.as_encoded_bytes()[at + 1..]);
        let line = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok()).ok_or_else(invalid)?;
        let file = parse_paths(&[platform::name_of_bytes(file).to_owned()])?.remove(0);
        hunks.entry(file).or_default().insert(line);
    }
    Ok(hunks.into_iter().collect())
}

/// Describes the result of a revert, or its plan. `name` is that of the turn, or of the checkpoint that is restored.
pub(crate) fn report_text(name: &str, report: &RevertReport, surface: Surface) -> String {
    let count = files(report.paths.len());
    let is_turn = report.scope == piton::RevertScope::Turn;
    let (done, partly) = if is_turn {
        (format!("Reverted {name}"), format!("Partly reverted {name}"))
    } else {
        (format!("Restored to {name}, and kept your edits"), format!("Partly restored to {name}"))
    };
    let mut lines = vec![match (report.outcome, report.is_dry) {
        (RevertOutcome::NothingToDo, _) if is_turn => {
            format!("Nothing to do: the files contain no change of {name}")
        }
        (RevertOutcome::NothingToDo, _) => format!("Nothing to do: the files contain no change of a turn since {name}"),
        (RevertOutcome::Conflict, _) if is_turn => {
            format!("Nothing was touched: later changes are in the way of {name}")
        }
        (RevertOutcome::Conflict, _) => format!("Nothing was touched: your edits are in the way of {name}"),
        (_, true) => format!("Plan for {name}: {count} to change"),
        (RevertOutcome::Partly, false) => format!("{partly}: {count} changed"),
        (_, false) => format!("{done}: {count} changed"),
    }];
    if report.outcome != RevertOutcome::Conflict {
        lines.extend(report.paths.iter().map(|path| format!("  {}", shown(path))));
    }
    lines.extend(report.conflicts.iter().map(conflict_line));
    if report.outcome == RevertOutcome::Conflict && !report.paths.is_empty() {
        lines.push(format!("`--skip-conflicts` takes back the rest: {count}"));
    }
    if let Some(restored) = &report.restore {
        lines.extend(restored.left.iter().map(|left| format!("  LEFT    {}: {}", shown(&left.path), left.why)));
        lines.extend(restored.safety.map(|safety| {
            let line = format!("piton restore {}", safety.short());
            let back = surface.command(&line).filter(|_| surface != Surface::Shell);
            let back = back.unwrap_or_else(|| "piton undo".to_owned());
            format!("The previous state is saved as {}: `{back}` goes back to it", safety.short())
        }));
    }
    lines.join("\n")
}

pub(crate) fn conflict_line(conflict: &RevertConflict) -> String {
    let path = shown(&conflict.conflict.path);
    let lines: Vec<_> = conflict
        .lines()
        .iter()
        .map(|[first, last]| match last {
            last if last <= first => format!("line {first}"),
            last => format!("lines {first} to {last}"),
        })
        .collect();
    let place = if lines.is_empty() { conflict.conflict.reason.to_string() } else { lines.join(", ") };
    let by: Vec<_> = conflict
        .in_the_way
        .iter()
        .map(|by| match by {
            InTheWay::Turn(turn) => plain(&turn.headline()),
            _ => "your edits".to_owned(),
        })
        .collect();
    let by = if by.is_empty() { String::new() } else { format!("; changed since by {}", by.join(", ")) };
    format!("  CONFLICT {path}: {place}{by}")
}
