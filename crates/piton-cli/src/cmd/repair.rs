//! The `piton repair` command.

use clap::Args;
use piton::{Loss, RepairOptions, RepairReport, RepairStep, repair};
use serde::{Deserialize, Serialize};

use super::push::{self, PushJson};
use super::verify::{RemoteFindingJson, line, remote_lines};
use crate::columns::counted;
use crate::context::Context;
use crate::hints;
use crate::options::EXIT_CODES;
use crate::output::{Output, PartlyDone, Said, plain};
use crate::progress::watch_store;
use crate::remote::program::{RemoteCall, RemoteProgram};

/// Repair the store: keep what is intact, recover what can be found, and report what is lost
#[derive(Debug, Args)]
#[command(after_help = format!(
    "Examples:\n  piton repair --dry-run\n  piton repair\n  \
     piton repair --remote   send again what is damaged in the remote\n\n\
     Nothing is destroyed: removed files are moved to <base>/store/repairs/<time>/.\n\
     Exits with 0 if the store is intact and nothing is lost, with 3 if it is intact\n\
     and something is lost, with 1 if it could not be repaired.\n\n{EXIT_CODES}"
))]
pub(crate) struct Repair {
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Repair the remote instead: send again what is missing or corrupt there and intact here
    #[arg(long, conflicts_with = "dry_run")]
    remote: bool,
    /// With --remote: read every byte there first
    #[arg(long, requires = "remote")]
    read_data: bool,
}

/// Maximum number of losses printed without `--verbose`.
const LINES_MAX: usize = 30;

pub(crate) fn run(args: &Repair, context: &Context, output: &Output) -> anyhow::Result<()> {
    if args.remote {
        return run_remote(args, context, output);
    }
    let store = context.store_as_it_is()?;
    let options = RepairOptions::new(&context.settings).home(context.home.as_deref()).is_dry(args.dry_run);
    let mut report = watch_store(output, |progress| repair(&store, options, Context::now(), progress))?;
    report.steps.iter_mut().for_each(add_hint);
    output.json(&report);
    output.text(&as_text(&report, args.dry_run, output.is_verbose));
    match (report.is_whole, report.lost.is_empty()) {
        (false, _) => Err(Said(1).into()),
        (true, false) => Err(PartlyDone.into()),
        (true, true) => Ok(()),
    }
}

/// JSON of `--remote`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RemoteRepairJson {
    /// what was wrong
    found: Vec<RemoteFindingJson>,
    /// what was sent again
    sent: PushJson,
    /// what is still wrong: no machine but the one that pushed it can have it
    left: Vec<RemoteFindingJson>,
}

fn run_remote(args: &Repair, context: &Context, output: &Output) -> anyhow::Result<()> {
    let prompt_text = Some(context.settings.prompt_text.word());
    let call = RemoteCall::new("repair").flag("--read-data", args.read_data).option("--prompt-text", prompt_text);
    let report: RemoteRepairJson = RemoteProgram::of(context)?.ask(&call, output)?;
    output.json(&report);
    if report.found.is_empty() {
        output.text("The remote is whole: there is nothing to do");
        return Ok(());
    }
    let mut lines = remote_lines(&report.found, output.is_verbose);
    lines.push(push::text(&report.sent));
    if report.left.is_empty() {
        lines.push("Repaired: no damage is left".to_owned());
    } else {
        lines.push("Left:".to_owned());
        lines.extend(remote_lines(&report.left, output.is_verbose));
    }
    output.text(&lines.join("\n"));
    if report.left.is_empty() {
        return Ok(());
    }
    output.hint("`piton repair --remote` on the machine that pushed it sends it again");
    Err(PartlyDone.into())
}

fn as_text(report: &RepairReport, is_dry: bool, is_verbose: bool) -> String {
    let lines_max = if is_verbose { usize::MAX } else { LINES_MAX };
    let step = |step: &RepairStep| format!("{}: {} ({})", step.what.replace('_', " "), step.about, step.detail);
    let mut lines: Vec<_> = report.steps.iter().map(|one| plain(&step(one))).collect();
    if report.healed > 0 {
        lines.push(format!("Recovered: {}", counted(report.healed, "object")));
    }
    if !report.lost.is_empty() {
        lines.push("Lost:".to_owned());
        lines.extend(report.lost.iter().take(lines_max).map(|loss| format!("  {}", plain(&lost(loss)))));
        if report.lost.len() > lines_max {
            lines.push(format!("  ... and {} more (--verbose shows all)", report.lost.len() - lines_max));
        }
    }
    if !report.moved_aside.is_empty() && is_verbose {
        lines.push("Put aside:".to_owned());
        lines.extend(report.moved_aside.iter().map(|path| format!("  {}", plain(&path.display().to_string()))));
    }
    if !report.is_whole {
        lines.extend(report.findings.iter().take(lines_max).map(line));
    }
    let verdict = match (is_dry, report.is_whole) {
        (_, true) if report.steps.is_empty() => "Whole: there is nothing to do",
        (true, _) => "Nothing was changed",
        (false, true) if report.lost.is_empty() => "Repaired: no damage is left",
        (false, true) => "Repaired, with losses",
        (false, false) => "STILL DAMAGED",
    };
    lines.push(verdict.to_owned());
    lines.join("\n")
}

/// Moves the hint of a step to its details.
fn add_hint(step: &mut RepairStep) {
    if let Some(hint) = step.hint.take() {
        step.detail = format!("{}; {}", step.detail, hints::words(&hint));
    }
}

fn lost(loss: &Loss) -> String {
    let path = loss.path.as_deref().map(|path| format!(" of {}", String::from_utf8_lossy(path))).unwrap_or_default();
    let checkpoint = loss.checkpoint.map(|id| format!(", checkpoint {}", id.short())).unwrap_or_default();
    let project = loss.project.as_ref().map(|id| format!(", project {id}")).unwrap_or_default();
    format!("{}{path}{checkpoint}{project}", loss.what)
}
