//! The `piton recover` command.

use std::ffi::OsString;

use clap::Args;
use piton::{LostItem, LostKind, RecoverOptions, RecoverOutcome, RecoverReport, recover};

use super::paths::{check_from_here, parse_paths};
use super::period;
use super::restore::{files, shown, tell_agents};
use crate::columns::{self, counted};
use crate::context::Context;
use crate::maintenance;
use crate::options::EXIT_CODES;
use crate::output::{ID, Output, PartlyDone, bytes, painted};
use crate::progress::watch;
use crate::shell;

/// List the files that were lost, and bring them back
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton recover                  what is missing since the last prompt
  piton recover --all            what any checkpoint holds and is missing now
  piton recover src/main.rs      bring it back
  piton recover .env             an ignored file, saved with the checkpoints
  piton recover src/ --dry-run   only say what would come back

Of each file it is the newest version in a checkpoint; of a file that is there,
the newest that differs from it. No file is removed, and the files as they are
now are saved first: `piton undo` takes it back.

{EXIT_CODES}"))]
pub(crate) struct Recover {
    /// Bring back these files, and what is missing below these directories; relative to the project
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// List what was lost since this checkpoint [default: since the last prompt]
    #[arg(long, value_name = "N|ID", conflicts_with = "all")]
    since: Option<String>,
    /// List what was lost since the oldest checkpoint
    #[arg(long)]
    all: bool,
    /// Take the versions from this checkpoint
    #[arg(long, value_name = "N|ID", requires = "paths")]
    from: Option<String>,
    /// Say what would come back, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Number of files that are listed.
const PAGE: usize = 50;

pub(crate) fn run(args: &Recover, context: &Context, output: &Output) -> anyhow::Result<()> {
    let paths = parse_paths(&args.paths)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    context.warn_of_interrupted_restore(&store, &project, output);
    check_from_here(&paths, &store, &project, context, output)?;
    let options = RecoverOptions::default().paths(&paths).is_all(args.all).is_dry(args.dry_run);
    let options = options.since(args.since.as_deref()).from(args.from.as_deref());
    let settings = &context.settings;
    let report = watch(output, |progress| recover(&store, &project, options, settings, Context::now(), progress))?;
    if let Some(restore) = &report.restore {
        tell_agents(settings, &store, &project, restore);
        maintenance::start_if_due(&store, settings, context.config.as_deref());
    }
    output.json(&report);
    match report.outcome {
        RecoverOutcome::NothingLost if paths.is_empty() => {
            output.text("Nothing lost: every file of these checkpoints is there");
        }
        RecoverOutcome::NothingLost => output.text("Nothing to do: every version in a checkpoint is the current one"),
        RecoverOutcome::Listed => list(&report, output),
        _ => done(&report, output),
    }
    if report.older > 0 && paths.is_empty() {
        output.hint(&format!("`piton recover --all` also lists {} lost earlier", files(report.older)));
    }
    if output.was_interrupted() && report.restore.is_some() {
        output.hint("it was too late to stop");
    }
    if report.outcome == RecoverOutcome::Partly { Err(PartlyDone.into()) } else { Ok(()) }
}

fn list(report: &RecoverReport, output: &Output) {
    let most = if output.is_verbose { usize::MAX } else { PAGE };
    let width = report.items.iter().take(most).map(|item| columns::columns(&shown(&item.path))).max().unwrap_or(0);
    let mut lines: Vec<String> =
        report.items.iter().take(most).map(|item| as_line(item, width.min(50), output)).collect();
    let more = report.items.len().saturating_sub(most);
    lines.extend((more > 0).then(|| format!("  … and {more} more")));
    let in_git = report.items.iter().filter(|item| item.git_state.is_some()).count();
    let count = files(report.items.len() - in_git);
    let parts = counted(in_git, "part");
    let what = match (report.items.len() - in_git, in_git) {
        (_, 0) => format!("{count} that a checkpoint holds, the last lost first"),
        (0, _) => format!("{parts} of the git repository that a recorded state has"),
        _ => format!("{count} that a checkpoint holds, and {parts} of the git repository"),
    };
    output.text(&format!("{what}:\n\n{}", lines.join("\n")));
    if in_git < report.items.len() {
        output.hint("`piton recover PATH...` brings them back; `piton cat N PATH` prints one");
    }
    if let Some(state) = report.items.iter().find_map(|item| item.git_state) {
        output.hint(&format!("`piton git restore {}` brings back what the git repository lacks", state.short()));
    }
}

/// Formats `  2. src/main.rs  1.2 kB  prompt: clean it up`.
fn as_line(item: &LostItem, width: usize, output: &Output) -> String {
    if let Some(state) = item.git_state {
        let (kind, name) = (item.kind.word(), shown(&item.path));
        let id = state.short();
        let named = if item.kind == LostKind::Repository { String::new() } else { format!(" {}", shell::quote(&name)) };
        return format!("     {kind} {name}: `piton git restore {id}{named}`");
    }
    let name = item.row.map_or_else(|| format!("{:>4}", item.from.short()), |row| format!("{row:>3}."));
    let lost = item.lost.as_ref().map_or_else(|| "since the newest checkpoint".to_owned(), period::headline);
    let lost = if item.is_replaced { "there is another version now".to_owned() } else { lost };
    let ignored = if item.kind == LostKind::Local { "ignored, " } else { "" };
    let rest = format!("{}  {ignored}{}", bytes(item.bytes), lost);
    let line = format!(" {}  {rest}", columns::padded(&shown(&item.path), width));
    let room = output.columns().map(|columns| columns.saturating_sub(columns::columns(&name)));
    let line = room.map_or_else(|| line.clone(), |room| columns::cut(&line, room));
    format!("{}{line}", painted(&name, ID))
}

fn done(report: &RecoverReport, output: &Output) {
    let Some(restore) = &report.restore else { return };
    let mut lines: Vec<String> = restore.written.iter().take(PAGE).map(|path| format!("  {}", shown(path))).collect();
    let more = restore.written.len().saturating_sub(PAGE);
    lines.extend((more > 0).then(|| format!("  … and {more} more")));
    lines.extend(restore.left.iter().map(|left| format!("  LEFT  {}: {}", shown(&left.path), left.why)));
    output.text(&format!("Recovered {}:\n{}", files(restore.written.len()), lines.join("\n")));
    if restore.can_undo {
        output.hint("`piton undo` takes it back");
    }
}
