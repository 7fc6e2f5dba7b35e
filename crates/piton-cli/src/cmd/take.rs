//! The `piton take` command.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use piton::{
    CheckpointKind, Error, ErrorKind, Manager, Outcome, Report, Request, Settings, Skipped, WhySkipped, grouped, take,
};

use crate::agents::Agent;
use crate::columns::counted;
use crate::context::Context;
use crate::hints;
use crate::maintenance;
use crate::options::EXIT_CODES;
use crate::output::{FAINT, ID, Output, bytes, local, plain};
use crate::progress::watch;

/// Take a checkpoint now
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton take
  piton take -m \"before the big rename\"

{EXIT_CODES}"))]
pub(crate) struct Take {
    /// Why it is taken
    #[arg(short = 'm', long = "reason", value_name = "REASON", default_value = "manual")]
    reason: String,
    /// Take it for an agent that waits: within `deadline_ms`, and in the background from then on
    #[arg(long)]
    automatic: bool,
}

/// Maximum number of lines about skipped files printed without `--verbose`.
const LINES_MAX: usize = 20;

pub(crate) fn run(args: &Take, context: &Context, output: &Output) -> anyhow::Result<()> {
    let began = Instant::now();
    let now = Context::now();
    let store = context.store(now)?;
    let project = context.project(Some(&store))?;
    context.warn_of_interrupted_restore(&store, &project, output);
    let settings = &context.settings;
    let report = if args.automatic {
        take_within_deadline(&args.reason, project.dir(), context)?
    } else {
        let request = Request::default().reason(args.reason.clone()).kind(CheckpointKind::Manual).count_left_out(true);
        watch(output, |progress| take(&store, &project, &request, settings, now, progress))?
    };
    if matches!(report.outcome, Outcome::Skipped(WhySkipped::Deadline | WhySkipped::Busy)) && output.was_interrupted() {
        let error = Error::new(ErrorKind::Stopped, "take a checkpoint");
        return Err(error.because("stopped; nothing was written").into());
    }
    maintenance::start_if_due(&store, &context.settings, context.config.as_deref());
    let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    output.json(&TakeJson { report: &report, elapsed_ms });
    if matches!(report.outcome, Outcome::Taken(_) | Outcome::Unchanged(_)) {
        context.journal().note_protected(project.dir(), now);
    }
    let headline = match report.outcome {
        Outcome::Taken(id) => format!(
            "Taken: {ID}{}{ID:#}  {}  {}  ({} of {}, {elapsed_ms} ms)",
            id.short(),
            local(now).date_and_time(),
            plain(&args.reason),
            counted(report.files, "file"),
            plain(&project.dir().display().to_string()),
        ),
        Outcome::Unchanged(id) => {
            format!("Unchanged since {ID}{}{ID:#} ({})", id.short(), counted(report.files, "file"))
        }
        Outcome::Skipped(why) => format!("Not taken: {}", explain(why, settings)),
        _ => "Not taken".to_owned(),
    };
    output.text(&headline);
    if let Outcome::Skipped(why) = report.outcome {
        let is_late = args.automatic && why == WhySkipped::Deadline;
        output.hint(if is_late { "it is being completed in the background" } else { next(why) });
    }
    print_left_out(&report, output);
    tell_of_local_files(&report, output);
    if report.unprotected {
        output.warn("UNPROTECTED: the ignore rules of this project leave out all or nearly all of its files");
        output.hint("name what you want kept under `include:` in the configuration, or fix .gitignore");
    }
    for dir in &report.dropped_out {
        let dir = plain(&String::from_utf8_lossy(dir));
        output.warn(&format!("UNPROTECTED: {dir}/ cannot be read any more, and is not in this checkpoint"));
        output.hint("let your user read it, then take again; the checkpoint before still holds it");
    }
    if let Some(lost) = report.lost {
        let what = format!("checkpoint {} of {} is gone", lost.short(), plain(&project.dir().display().to_string()));
        let what = format!("{what}: another program deleted it; the project went on without it");
        context.journal().note_warning(what.clone(), now);
        output.warn(&what);
        output.hint("`piton rollback` shows what is left; `piton verify` looks for more");
    }
    if let Some(problem) = &report.git.problem {
        output.warn(&plain(problem));
    }
    if let Some(index) = &report.unread_index {
        output.warn(&format!("{} cannot be read: what git tracks and a rule leaves out was left out", index.display()));
        output.hint("let your user read it, then take again; `--verbose` shows what was left out");
    }
    if matches!(report.outcome, Outcome::Taken(_)) {
        // Last, so that the new process takes no processor time from this one.
        maintenance::start_push(&store, &context.settings, context.config.as_deref());
    }
    Ok(())
}

/// Takes a checkpoint for an agent, whether automatic checkpoints are switched on or not. Starts a process that completes
/// it if it runs out of time. What is missing is in the journal.
fn take_within_deadline(reason: &str, dir: &Path, context: &Context) -> piton::Result<Report> {
    let settings = context.settings.clone().enabled(true);
    let manager = Manager::new(&context.base, context.home.as_deref(), settings)
        .for_agent(Agent::PLAIN.name)
        .with_journal(context.journal())
        .with_hints(hints::words);
    let ensured = manager.ensure_checkpoint(dir, reason, Context::now());
    if ensured.is_unfinished {
        maintenance::start_finish(&context.base, context.named_config(), &ensured.dir);
    }
    ensured.report
}

fn explain(why: WhySkipped, settings: &Settings) -> String {
    match why {
        WhySkipped::TooManyFiles => format!("{why} ({})", grouped(settings.max_files)),
        WhySkipped::StoreFull => format!("{why} ({} MB)", grouped(settings.max_total_size_mb)),
        _ => why.to_string(),
    }
}

/// Returns a hint for the user.
fn next(why: WhySkipped) -> &'static str {
    match why {
        WhySkipped::Disabled => "`piton config set enabled true` turns them on",
        WhySkipped::TooBroad => "go into a project, or name one with `-C DIR`",
        WhySkipped::AlreadyThisTurn => "the next prompt has its own",
        WhySkipped::Empty => "`piton take --verbose` shows what was left out, and why",
        WhySkipped::TooManyFiles => {
            "leave directories out with .gitignore or `exclude`, or raise the limit with `piton config set max_files N`"
        }
        WhySkipped::Deadline => "try again, or raise deadline_ms",
        WhySkipped::StoreFull => {
            "`piton status` shows what takes the space; `piton config set max_total_size_mb N` raises the limit"
        }
        _ => "try again",
    }
}

/// Explains once what is saved of files out of scope.
pub(crate) const FIRST_LOCAL_FILES: &str = "small files out of scope (ignored, excluded, `.env`) are saved with each checkpoint \
    from now on, in the store on this machine only; `piton config set keep_ignored false` turns it off";

/// Reports the files out of scope that were saved.
fn tell_of_local_files(report: &Report, output: &Output) {
    let Some(local) = &report.local else { return };
    if local.files > 0 && matches!(report.outcome, Outcome::Taken(_)) {
        output.text(&format!(
            "{FAINT}Saved with it, out of scope: {} ({}){FAINT:#}",
            counted(local.files, "small file"),
            bytes(local.bytes)
        ));
    }
    if let Some(problem) = local.problem() {
        output.warn(&plain(&problem));
    }
    if local.is_first {
        output.hint(FIRST_LOCAL_FILES);
    }
}

/// Lists the skipped files. `.git` directories are always skipped, and listed with `--verbose` only.
fn print_left_out(report: &Report, output: &Output) {
    let is_shown = |skipped: &&Skipped| output.is_verbose || skipped.why != piton::SkipReason::GitDir;
    let shown: Vec<_> = report.skipped.iter().filter(is_shown).collect();
    if shown.is_empty() {
        return;
    }
    let lines_max = if output.is_verbose { usize::MAX } else { LINES_MAX };
    let mut lines = vec![format!("{FAINT}Left out:{FAINT:#}")];
    // Unexpected reasons come first.
    let (surprises, others): (Vec<&Skipped>, Vec<_>) = shown.iter().partition(|skipped| skipped.why.is_a_surprise());
    lines.extend(
        surprises.iter().chain(&others).take(lines_max).map(|skipped| format!("  {}", plain(&skipped.to_string()))),
    );
    if shown.len() > lines_max {
        lines.push(format!("  ... and {} more (--verbose shows all)", shown.len() - lines_max));
    }
    output.text(&lines.join("\n"));
}

/// JSON of a take.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TakeJson<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// duration in milliseconds
    elapsed_ms: u64,
}
