//! The `piton rollback` command.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::Args;
use piton::{Change, Checkpoint, Error, ErrorKind, Event, History, Listed, Project, ProjectId, RestoreTo, Store};

use super::paths::parse_paths;
use super::restore::How;
use super::revert::RevertArgs;
use super::{diff, machines, restore, revert, rewind};
use crate::columns::{self, wrapped};
use crate::context::Context;
use crate::hints;
use crate::options::EXIT_CODES;
use crate::output::{ID, MINUS, Output, PLUS, WHO, local, painted, plain};
use crate::picker;
use crate::remote::named::{FromProject, local_name};
use crate::shell::quote;
use crate::surface::Surface;

/// List the checkpoints of this project, or go back to one of them
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton rollback                 pick a checkpoint; piped, the list
  piton rollback 2               restore checkpoint 2
  piton rollback 2 src/main.rs   restore one file from it
  piton rollback diff 2          what changed since
  piton rollback revert 2        take back only what the prompt at 2 did
  piton rollback --machine box   the checkpoints of another machine

{EXIT_CODES}"))]
pub(crate) struct Rollback {
    /// `N|ID`, the name of a mark or `NAME/N` of another machine, or `diff` or `revert` and then one of these
    #[arg(value_name = "N|ID")]
    what: Option<String>,
    /// Only these files and directories, relative to the project; after `diff` and `revert`, the checkpoint first
    #[arg(value_name = "PATH")]
    rest: Vec<OsString>,
    /// Number of checkpoints to list, newest first; 0 is all [default: 50; with --json: all]
    #[arg(long, value_name = "N", conflicts_with = "what")]
    limit: Option<usize>,
    /// List all checkpoints
    #[arg(long, conflicts_with_all = ["what", "limit"])]
    all: bool,
    /// List the ends and steps of turns, too, below the checkpoint from which the turn began
    #[arg(long, conflicts_with = "what")]
    steps: bool,
    /// List the checkpoints of another machine, from the remote
    #[arg(long, value_name = "NAME", conflicts_with_all = ["what", "steps"])]
    machine: Option<String>,
    #[command(flatten)]
    from: FromProject,
    #[command(flatten)]
    how: How,
}

pub(crate) fn run(args: &Rollback, context: &Context, output: &Output) -> anyhow::Result<()> {
    // A program gets the whole list, unless it sets a limit.
    let page = if output.is_json { 0 } else { PAGE };
    let most = Some(if args.all { 0 } else { args.limit.unwrap_or(page) }).filter(|most| *most > 0);
    let most = most.unwrap_or(usize::MAX);
    if let Some(machine) = &args.machine {
        if output.has_screen() && args.limit.is_none() && !args.all && args.how == How::default() {
            return picker::open_machine(machine, &args.from, context, output);
        }
        return machines::list(machine, &args.from, most, context, output);
    }
    let fetched = |name: &str, paths: &[OsString]| {
        local_name(name, &args.from, &parse_paths(paths)?, context, output).map(std::borrow::Cow::into_owned)
    };
    match (args.what.as_deref(), args.rest.split_first()) {
        (None, _) if output.has_screen() && !args.steps && args.how == How::default() && has_checkpoints(context)? => {
            picker::open(context, output)
        }
        (None, _) => list(most, args.steps, context, output),
        (Some("diff"), None) => diff::show("1", None, &[], context, output),
        (Some("diff"), Some((from, paths))) => {
            diff::show(&fetched(&from.to_string_lossy(), &[])?, None, paths, context, output)
        }
        (Some("revert"), None) => Err(Error::new(ErrorKind::Invalid, "revert a turn")
            .because("none is named")
            .with_hint("`piton rollback` lists the checkpoints that turns began from")
            .into()),
        (Some("revert"), Some((turn, paths))) => {
            let args = RevertArgs {
                turn: turn.to_string_lossy().into_owned(),
                paths: paths.to_vec(),
                across_sessions: args.how.across_sessions,
                dry_run: args.how.dry_run,
                yes: args.how.yes,
                ..RevertArgs::default()
            };
            revert::run(&args, context, output)
        }
        // Typed inside an agent: the answer says how to continue from there.
        (Some(name), None) if output.surface != Surface::Shell => {
            rewind::restore_and_fork(&fetched(name, &[])?, &args.how, context, output)
        }
        (Some(name), _) => {
            let name = fetched(name, &args.rest)?;
            restore::restore(RestoreTo::Named(&name), &args.rest, &args.how, context, output)
        }
    }
}

/// Returns true if the project has checkpoints.
fn has_checkpoints(context: &Context) -> anyhow::Result<bool> {
    let Some(store) = context.existing_store()? else { return Ok(false) };
    let project = context.project(Some(&store))?;
    Ok(!History::of(&store, &project)?.checkpoints().is_empty())
}

/// Commands suggested below the list, in the syntax of a shell.
const NEXT: [(&str, &str); 3] = [
    ("piton restore N", "restore to checkpoint N"),
    ("piton diff N", "preview changes since checkpoint N"),
    ("piton restore N FILE", "restore a single file from checkpoint N"),
];

/// Formats the suggested commands for this surface: in two columns, or, if the terminal is too narrow, on two lines
/// each.
fn next_lines(surface: Surface, columns: Option<usize>) -> String {
    let commands = NEXT.map(|(line, does)| (surface.command(line).unwrap_or_else(|| line.to_owned()), does));
    let widest = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let longest = commands.iter().map(|(_, does)| 2 + widest + 3 + does.len()).max().unwrap_or(0);
    let is_narrow = columns.is_some_and(|columns| columns < longest);
    let line = |(command, does): (String, &str)| {
        if is_narrow {
            format!("  {command}\n{}", wrapped(does, "      ", columns))
        } else {
            format!("  {command:<widest$}   {does}")
        }
    };
    commands.map(line).join("\n")
}

/// Default number of checkpoints in the list.
const PAGE: usize = 50;

/// Prints the newest `most` checkpoints. The suggested commands are printed for people only: a file
/// or a program gets just the list.
fn list(most: usize, with_steps: bool, context: &Context, output: &Output) -> anyhow::Result<()> {
    let mut older = 0;
    let store = context.existing_store()?;
    let project = context.project(store.as_ref())?;
    let list = match &store {
        Some(store) => {
            context.warn_of_interrupted_restore(store, &project, output);
            let history = History::of(store, &project)?;
            if let Some(damage) = history.damage() {
                output.warn(&format!("there are older checkpoints that cannot be read: {damage}"));
                output.hint(&hints::of(damage).unwrap_or_default());
            }
            for (mark, id) in history.unavailable_marks() {
                output
                    .warn(&format!("the checkpoint marked {} is unavailable: {id} is missing or damaged", plain(mark)));
            }
            older = history.rows().count().saturating_sub(most);
            history.list_newest(most)?
        }
        None => Vec::new(),
    };
    output.json(&list);
    let dir = plain(&project.dir().display().to_string());
    let mut missed = context.unprotected_turns();
    missed.retain(|turn| turn.project.as_deref() == Some(project.dir()));
    if list.is_empty() {
        let lines: String = missed.iter().map(|turn| format!("\n{}", missed_line(turn, output.columns()))).collect();
        output.text(&format!("No checkpoints found for {dir}{lines}"));
        output.hint(&if project.is_too_broad() {
            "none are taken of / and of home directories: go into a project, or name one with `-C DIR`".to_owned()
        } else {
            outer_hint(store.as_ref(), &project).unwrap_or_else(|| "`piton take` takes one".to_owned())
        });
        return Ok(());
    }
    let sessions: BTreeSet<_> = list.iter().filter_map(|listed| who(&listed.checkpoint)).collect();
    let columns = output.columns();
    let (mut missed, mut lines) = (missed.iter().peekable(), Vec::new());
    for listed in &list {
        let is_newer = |turn: &&Event| turn.time.secs >= listed.checkpoint.time.secs;
        while let Some(turn) = missed.next_if(is_newer) {
            lines.push(missed_line(turn, columns));
        }
        lines.push(as_line(listed, sessions.len() > 1, columns));
        let mut within: Vec<_> = listed.ends.iter().chain(&listed.steps).filter(|_| with_steps).collect();
        within.sort_by_key(|one| std::cmp::Reverse((one.time.secs, one.time.nanos)));
        lines.extend(within.into_iter().map(|one| line_within_turn(one, columns)));
    }
    lines.extend(missed.map(|turn| missed_line(turn, columns)));
    if older > 0 {
        let all = "piton rollback --all";
        let all = output.surface.command(all).unwrap_or_else(|| all.to_owned());
        lines.push(format!("  … {older} older: `{all}`"));
    }
    let mut text = format!("📸 Checkpoints for {dir}:\n\n{}", lines.join("\n"));
    if output.is_read_by_a_person() {
        text += &format!("\n\n{}", next_lines(output.surface, columns));
    }
    output.text(&text);
    Ok(())
}

/// Returns a hint that names an enclosing project with checkpoints, which the user may have meant.
fn outer_hint(store: Option<&Store>, project: &Project) -> Option<String> {
    let store = store?;
    let outer = project.dir().ancestors().skip(1).find(|dir| store.has_checkpoint(&ProjectId::of(dir)))?;
    let outer = quote(&outer.to_string_lossy());
    Some(format!("the project around it has some: `piton -C {outer} rollback`; `piton take` takes one of this"))
}

/// Formats a turn without a checkpoint, and so without a number: `     -------  2026-03-16 04:36  no checkpoint: the
/// store was busy`
fn missed_line(turn: &Event, columns: Option<usize>) -> String {
    let when = local(turn.time).date_and_time();
    let agent = turn.agent.as_deref().map(|agent| format!(" ({})", plain(agent))).unwrap_or_default();
    let line = format!("     -------  {when}  no checkpoint{agent}: {}", plain(&turn.what));
    columns.map_or_else(|| line.clone(), |columns| columns::cut(&line, columns))
}

/// Formats an end or a step of a turn, which has no number: `     4270a8c  2026-03-16 04:36  end of turn`
fn line_within_turn(end: &Checkpoint, columns: Option<usize>) -> String {
    let when = local(end.time).date_and_time();
    let reason = format!("  {when}  {}", plain(&end.reason));
    let start = format!("     {}", end.id.short());
    let room = columns.map(|columns| columns.saturating_sub(columns::columns(&start)));
    let reason = room.map_or_else(|| reason.clone(), |room| columns::cut(&reason, room));
    format!("     {}{reason}", painted(&end.id.short(), ID))
}

/// Minimum width of the reason; if there is less room, the columns after it are left out.
const REASON_COLUMNS_MIN: usize = 12;

/// Formats `  1. 4270a8c  2026-03-16 04:36  before patch  (1 file, +1/-0)`.
///
/// With several agents or sessions, the session is added. In a terminal, the line is cut to its width.
fn as_line(listed: &Listed, with_session: bool, columns: Option<usize>) -> String {
    let Listed { number, checkpoint, change, .. } = listed;
    let number = number.map(|number| number.to_string()).unwrap_or_default();
    let when = local(checkpoint.time).date_and_time();
    let who = who(checkpoint).filter(|_| with_session).map(|who| format!("  [{who}]")).unwrap_or_default();
    let (mut counts, mut who, mut reason) =
        (change.as_ref().map_or_else(|| "  (damaged)".to_owned(), counts), who, plain(&checkpoint.headline()));
    let mut earlier = earlier(checkpoint);
    let mut marks = marks(checkpoint);
    if checkpoint.facts.is_incomplete {
        counts.push_str("  incomplete");
    }
    if let Some(columns) = columns {
        let start = format!("{number:>3}. {}  {when}  ", checkpoint.id.short());
        let room = columns.saturating_sub(columns::columns(&start));
        let mut wanted = columns::columns(&reason).min(REASON_COLUMNS_MIN);
        for after in [&mut marks, &mut earlier, &mut counts, &mut who] {
            wanted += columns::columns(after);
            if wanted > room {
                wanted -= columns::columns(after);
                after.clear();
            }
        }
        let after = [&marks, &earlier, &counts, &who].map(|after| columns::columns(after)).iter().sum();
        reason = columns::cut(&reason, room.saturating_sub(after));
    }
    let counts = coloured(&counts);
    let (id, who) = (painted(&checkpoint.id.short(), ID), painted(&who, WHO));
    let marks = painted(&marks, ID);
    format!("{number:>3}. {id}  {when}  {reason}{marks}{earlier}{counts}{who}")
}

/// Formats `  <works, v2>`.
pub(crate) fn marks(checkpoint: &Checkpoint) -> String {
    let marks: Vec<_> = checkpoint.marks.iter().map(|mark| plain(mark)).collect();
    if marks.is_empty() { String::new() } else { format!("  <{}>", marks.join(", ")) }
}

/// Formats `  (+3 earlier prompts)`.
pub(crate) fn earlier(checkpoint: &Checkpoint) -> String {
    match checkpoint.earlier_prompts() {
        0 => String::new(),
        1 => "  (+1 earlier prompt)".to_owned(),
        more => format!("  (+{more} earlier prompts)"),
    }
}

/// Colours the counts of lines like a diff.
pub(super) fn coloured(counts: &str) -> String {
    let Some((start, plus, minus)) = counts.split_once('+').and_then(|(start, rest)| {
        let (plus, rest) = rest.split_once("/-")?;
        Some((start, plus, rest.strip_suffix(')')?))
    }) else {
        return counts.to_owned();
    };
    format!("{start}{PLUS}+{plus}{PLUS:#}/{MINUS}-{minus}{MINUS:#})")
}

/// Number of characters of a session id that are shown.
const SESSION_CHARS: usize = 8;

/// Returns the agent and the beginning of its session id.
pub(crate) fn who(checkpoint: &Checkpoint) -> Option<String> {
    let origin = checkpoint.newest_origin();
    let session: String = origin.session.as_deref().map(plain)?.chars().take(SESSION_CHARS).collect();
    Some(origin.agent.as_deref().map_or_else(|| session.clone(), |agent| format!("{} {session}", plain(agent))))
}

pub(crate) fn counts(change: &Change) -> String {
    match change {
        Change { files: 0, .. } => String::new(),
        Change { files: 1, insertions, deletions } => format!("  (1 file, +{insertions}/-{deletions})"),
        Change { files, insertions, deletions } => format!("  ({files} files, +{insertions}/-{deletions})"),
    }
}
