//! The `piton status` command.

use clap::Args;
use piton::{Event, KeptStatus, Moment, Presence, ProjectStatus, Status, StatusProblem, Store, kept_status};

use super::doctor::{self, NoEnds};
use crate::columns::{counted, cut_start, padded, wrapped};
use crate::context::{ConfigPolicy, ConfigProblem, Context};
use crate::hints::{self, Problem};
use crate::install::programs::stale_hooks;
use crate::options::{EXIT_CODES, Global};
use crate::output::{BAD, Output, WARN, bytes, local, plain};
use crate::remote::health::known_remote;
use crate::remote::local::{self as remote, KnownRemote};
use crate::shell::quote;

/// Show the store: its size, its projects and problems
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton status
  piton status --limit 5
  piton status --ack       you have seen the unprotected turns and warnings
  piton status --verbose   with the size of each project alone

{EXIT_CODES}"))]
pub(crate) struct StatusArgs {
    /// Number of projects to show; 0 is all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Acknowledge the turns without a checkpoint and the warnings about the remote: they are not shown again
    #[arg(long)]
    ack: bool,
}

impl Default for StatusArgs {
    fn default() -> Self {
        Self { limit: 20, ack: false }
    }
}

/// Maximum and minimum width of the directory column. A terminal too narrow for the minimum gets a list instead of a
/// table.
const DIR_COLUMNS: usize = 60;
const DIR_COLUMNS_MIN: usize = 24;
/// Width of the other columns, with the longest state.
const BESIDE_COLUMNS: usize = 33;
const ALONE_COLUMNS: usize = 11;

/// Shows the status even if the configuration or the store has problems, and lists these.
pub(crate) fn run(args: &StatusArgs, global: &Global, output: &Output) -> anyhow::Result<()> {
    let context = Context::build(global, ConfigPolicy::Collect(output))?;
    let mut problems: Vec<_> = context.config_problems.iter().map(ConfigProblem::for_user).collect();
    let (store, damage) = context.store_or_its_rest()?;
    let mut status = match &store {
        Some(store) => Status::of(store, context.settings.total_bytes_max())?,
        None => match context.base_without_store()? {
            Some(base) => Status::of_base(&base)?,
            None => Status::of_nothing(&context.base),
        },
    };
    problems.extend(damage.iter().map(Problem::from));
    problems.extend(status.problems.iter().cloned().map(Problem::from));
    let seen = if args.ack { acknowledge(&context, store.as_ref())? } else { 0 };
    problems.extend(context.problems());
    let remote = known_remote(store.as_ref(), &mut problems);
    problems.extend(store.as_ref().map(stale_hooks).unwrap_or_default());
    status.problems = problems.into_iter().map(StatusProblem::from).collect();
    for one in &mut status.projects {
        one.restore_command = restore_command(one);
    }
    let unprotected = context.unprotected_turns();
    let unsaved = context.unsaved();
    let kept = store.as_ref().map(|store| kept_status(store, &context.settings)).unwrap_or_default();
    let no_ends = doctor::agents_without_ends(&context);
    let acknowledged = args.ack.then_some(seen);
    output.json(&StatusJson {
        status: &status,
        unprotected: &unprotected,
        unsaved: &unsaved,
        kept: &kept,
        no_ends: &no_ends,
        remote: remote.as_ref(),
        acknowledged,
    });
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let look = StatusStyle { limit, now: Context::now(), columns: output.columns(), with_alone: output.is_verbose };
    output.text(&as_text(&status, &look));
    if kept.files > 0 {
        output.text(&kept_line(&kept));
    }
    if let Some(remote) = &remote {
        output.text(&format!("\nRemote:          {}", plain(&remote.line())));
    }
    if !no_ends.is_empty() {
        let line = |one: &NoEnds| wrapped(&format!("{}: {}", one.agent, one.why), "  ", look.columns);
        let lines: Vec<_> = no_ends.iter().map(line).collect();
        output.text(&format!("\nEnds of turns that are not reported:\n{}", lines.join("\n")));
    }
    if args.ack {
        output.text(&format!("\nAcknowledged:    {}", counted(seen, "unprotected turn")));
    }
    Ok(())
}

/// Marks the unprotected turns and the warnings about the remote as seen. Returns the number of turns.
fn acknowledge(context: &Context, store: Option<&Store>) -> anyhow::Result<usize> {
    if let Some(store) = store {
        remote::acknowledge(store)?;
    }
    let seen = context.unprotected_turns().len();
    if (seen > 0 || !context.unsaved().is_empty()) && !context.journal().acknowledge(Context::now()) {
        return Err(piton::Error::new(piton::ErrorKind::Io, "acknowledge the unprotected turns")
            .because("the journal cannot be written")
            .with_hint("see who owns the base, and whether the disk is full")
            .into());
    }
    Ok(seen)
}

/// JSON of the status.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StatusJson<'a> {
    #[serde(flatten)]
    status: &'a Status,
    /// turns without a checkpoint, newest first
    unprotected: &'a [Event],
    /// files that a command was about to destroy and that could not be saved, newest first
    unsaved: &'a [Event],
    /// files that commands were about to destroy and that are kept
    kept: &'a KeptStatus,
    /// agents that are hooked up and do not report the ends of turns, each with the reason
    no_ends: &'a [NoEnds],
    /// the remote as this machine knows it, or null if there is none
    remote: Option<&'a KnownRemote>,
    /// with `--ack`: number of turns that were acknowledged
    #[serde(skip_serializing_if = "Option::is_none")]
    acknowledged: Option<usize>,
}

/// Layout of the output.
struct StatusStyle {
    limit: usize,
    now: Moment,
    /// Width of the terminal; `None` if the output goes to a file or a program.
    columns: Option<usize>,
    /// True to show the size that each project takes by itself.
    with_alone: bool,
}

impl StatusStyle {
    /// Returns the width of the directory column; `None` if there is no room for a table.
    fn dir_columns(&self) -> Option<usize> {
        let beside = BESIDE_COLUMNS + if self.with_alone { ALONE_COLUMNS } else { 0 };
        let room = self.columns.map_or(DIR_COLUMNS, |columns| columns.saturating_sub(beside));
        (room >= DIR_COLUMNS_MIN).then_some(room.min(DIR_COLUMNS))
    }
}

fn as_text(status: &Status, look: &StatusStyle) -> String {
    let mut lines = Vec::new();
    for problem in &status.problems {
        let what = wrapped(&plain(&problem.what), "  ", look.columns);
        lines.push(format!("{BAD}!{BAD:#} {BAD}{}{BAD:#}", what.trim_start()));
        lines.push(wrapped(&plain(&hints::words(&problem.hint)), "  ", look.columns));
    }
    if !status.problems.is_empty() {
        lines.push(String::new());
    }
    lines.push(format!("Checkpoint base: {}", plain(&status.base.display().to_string())));
    lines.push(format!("Total size:      {}", bytes(status.store_bytes + status.legacy_bytes)));
    lines.push(format!("  store/         {}", bytes(status.store_bytes)));
    lines.push(format!("  legacy-*       {}", bytes(status.legacy_bytes)));
    if status.reclaimable_bytes > 0 {
        lines.push(format!("  reclaimable    {} at the next maintenance", bytes(status.reclaimable_bytes)));
    }
    lines.push(format!("Projects:        {}", status.projects.len()));
    if !status.projects.is_empty() {
        lines.push(String::new());
        lines.extend(look.dir_columns().map(|columns| look.heading(columns)));
        lines.extend(status.projects.iter().take(look.limit).map(|project| look.line(project)));
        if status.projects.len() > look.limit {
            lines.push(format!("  ... and {} more (--limit 0 shows all)", status.projects.len() - look.limit));
        }
    }
    lines.extend(ignored_lines(status, look));
    lines.extend(deleted_lines(status));
    if !status.archives.is_empty() {
        lines.push(String::new());
        lines.push(format!("Legacy archives ({}):", status.archives.len()));
        lines.extend(
            status
                .archives
                .iter()
                .map(|archive| format!("  {:<43}  {:>10}", plain(&archive.name), bytes(archive.bytes))),
        );
        lines.push(String::new());
        lines.push("Clear with: piton clear-legacy".to_owned());
    }
    lines.join("\n")
}

/// Returns the line about kept files; empty if there are none.
fn kept_line(kept: &KeptStatus) -> String {
    let Some(expires) = kept.expires else { return String::new() };
    let (files, at) = (usize::try_from(kept.files).unwrap_or(usize::MAX), local(expires).date_and_time());
    let (all, held) = (bytes(kept.bytes), bytes(kept.held_bytes));
    let held = if kept.held_bytes == 0 { "taking no space".to_owned() } else { format!("taking {held}") };
    format!(
        "\nKept files:      {}, {all}, {held}; the first until {at} (`piton recover` lists them)",
        counted(files, "file")
    )
}

/// Names the ignored files that are saved with the newest checkpoints.
fn ignored_lines(status: &Status, look: &StatusStyle) -> Vec<String> {
    let with_ignored = status.projects.iter().take(look.limit).filter(|one| one.local.files > 0);
    let lines: Vec<String> = with_ignored.map(|one| ignored_line(one, look.columns)).collect();
    let heading = (!lines.is_empty()).then(|| [String::new(), "Ignored files that are saved, too:".to_owned()]);
    heading.into_iter().flatten().chain(lines).collect()
}

/// Number of ignored files that are named for each project.
const IGNORED_MAX: usize = 3;

fn ignored_line(status: &ProjectStatus, columns: Option<usize>) -> String {
    let dir = status.project.dir.as_ref().map_or_else(|| "(unknown)".to_owned(), |dir| dir.display().to_string());
    let named = status.local.named.iter().take(IGNORED_MAX);
    let names: Vec<_> = named.map(|path| String::from_utf8_lossy(path)).collect();
    let more = status.local.files.saturating_sub(names.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    wrapped(&plain(&format!("{dir}: {}{more}", names.join(", "))), "  ", columns)
}

/// Lists the projects that can be restored although their directory was deleted, each with the command for it.
fn deleted_lines(status: &Status) -> Vec<String> {
    let deleted: Vec<_> = status.projects.iter().filter_map(|one| Some((one, one.restore_command.as_ref()?))).collect();
    let mut lines = Vec::new();
    if !deleted.is_empty() {
        lines.extend([String::new(), format!("Deleted directories ({}):", deleted.len())]);
    }
    for (one, command) in deleted {
        let dir = one.project.dir.as_ref().map_or_else(String::new, |dir| plain(&dir.display().to_string()));
        lines.push(format!("  {dir}: gone, {}", counted(one.checkpoints, "checkpoint")));
        lines.push(format!("    bring it back with: {}", plain(command)));
    }
    lines
}

/// Returns the command that restores a deleted project; `None` if it is not deleted or has no checkpoints.
fn restore_command(status: &ProjectStatus) -> Option<String> {
    let dir = status.project.dir.as_ref().filter(|_| status.project.presence == Presence::Gone)?;
    (status.checkpoints > 0).then(|| format!("piton -C {} restore 1", quote(&dir.to_string_lossy())))
}

impl StatusStyle {
    fn heading(&self, dir_columns: usize) -> String {
        let alone = if self.with_alone { "      ALONE" } else { "" };
        format!("  {:<dir_columns$}  {:>7}{alone}  {:>12}  STATE", "WORKDIR", "COMMITS", "LAST TOUCH")
    }

    fn line(&self, status: &ProjectStatus) -> String {
        let project = &status.project;
        let dir = project.dir.as_ref().map_or_else(|| "(unknown)".to_owned(), |dir| plain(&dir.display().to_string()));
        let state = match project.presence {
            Presence::There => "live".to_owned(),
            Presence::Gone => format!("{WARN}orphan{WARN:#}"),
            _ => format!("{WARN}unseen{WARN:#}"),
        };
        let touched = project.last_touch.map_or_else(|| "—".to_owned(), |at| age(self.now.as_secs_f64() - at));
        let alone = bytes(status.bytes_alone);
        match self.dir_columns() {
            Some(columns) => {
                let dir = padded(&cut_start(&dir, columns), columns);
                let alone = if self.with_alone { format!("  {alone:>9}") } else { String::new() };
                format!("  {dir}  {:>7}{alone}  {touched:>12}  {state}", status.checkpoints)
            }
            None => {
                let dir = cut_start(&dir, self.columns.unwrap_or(usize::MAX).saturating_sub(2));
                let alone = if self.with_alone { format!(", {alone} alone") } else { String::new() };
                format!("  {dir}\n    {}{alone}, {touched}, {state}", counted(status.checkpoints, "checkpoint"))
            }
        }
    }
}

fn age(secs: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(86400.0, "d"), (3600.0, "h"), (60.0, "m")];
    if secs < 0.0 {
        return "now".to_owned();
    }
    match UNITS.iter().find(|(unit, _)| secs >= *unit) {
        Some((unit, letter)) => format!("{:.0}{letter} ago", (secs / unit).floor()),
        None => format!("{:.0}s ago", secs.floor()),
    }
}
