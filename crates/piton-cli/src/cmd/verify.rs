//! The `piton verify` command.

use clap::Args;
use piton::json::keyword;
use piton::{Affected, Finding, ReadData, Severity, VerifyReport, grouped};

use crate::columns::counted;
use crate::context::Context;
use crate::interrupt;
use crate::options::EXIT_CODES;
use crate::output::{Output, Said, plain};
use crate::progress::watch_store;

/// Check the store: is every checkpoint whole?
#[derive(Debug, Args)]
#[command(after_help = format!(
    "Examples:\n  piton verify\n  piton verify --read-data\n  piton verify --read-data-subset 5%\n\n\
     Exits with 0 if the store is whole, with 1 if something is damaged.\n\n{EXIT_CODES}"
))]
pub(crate) struct Verify {
    /// Read and hash again everything that is stored, not only what leads to it
    #[arg(long)]
    read_data: bool,
    /// The same for a part of it. Each day has another part, and all days together come to everything
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, conflicts_with = "read_data")]
    read_data_subset: Option<f64>,
}

/// Maximum number of findings printed without `--verbose`.
const FINDINGS_MAX: usize = 20;
/// Maximum number of affected paths printed for each finding.
const AFFECTED_MAX: usize = 5;
const DAY_SECS: i64 = 24 * 60 * 60;

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    number
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| "a number above 0, up to 100%".to_owned())
}

pub(crate) fn run(args: &Verify, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_as_it_is()?;
    let read = match args.read_data_subset {
        _ if args.read_data => ReadData::All,
        Some(percent) => {
            let day = Context::now().secs.div_euclid(DAY_SECS);
            ReadData::Part { percent, seed: u64::try_from(day).unwrap_or(0) }
        }
        None => ReadData::No,
    };
    let report = watch_store(output, |progress| piton::verify(&store, read, progress))?;
    output.json(&report);
    output.text(&as_text(&report, output.is_verbose));
    if report.was_stopped {
        output.hint("what was not checked may be corrupt: run `piton verify` again");
        return Err(Said(interrupt::exit_code()).into());
    }
    if report.is_whole() {
        if read == ReadData::No {
            output.hint("`piton verify --read-data` reads the contents of all files, too");
        }
        return Ok(());
    }
    output.hint("`piton repair --dry-run` shows what can be done");
    Err(Said(1).into())
}

fn as_text(report: &VerifyReport, is_verbose: bool) -> String {
    let (findings_max, affected_max) = if is_verbose { (usize::MAX, usize::MAX) } else { (FINDINGS_MAX, AFFECTED_MAX) };
    let mut lines = Vec::new();
    for finding in report.findings.iter().take(findings_max) {
        lines.push(line(finding));
        for affected in finding.affects.iter().take(affected_max) {
            lines.push(format!("  {}", costs(affected)));
        }
        if finding.affects.len() > affected_max {
            lines.push(format!("  ... and {} more (--verbose shows all)", finding.affects.len() - affected_max));
        }
    }
    if report.findings.len() > findings_max {
        lines.push(format!("... and {} more (--verbose shows all)", report.findings.len() - findings_max));
    }
    let damaged = report.findings.iter().filter(|finding| finding.severity == Severity::Damage).count();
    let verdict = match damaged {
        0 if report.was_stopped => "STOPPED: nothing wrong so far".to_owned(),
        0 => "Whole".to_owned(),
        count => format!("DAMAGED: {}", counted(count, "finding")),
    };
    lines.push(format!(
        "{verdict} ({}, {}, {}{})",
        counted(report.checkpoints, "checkpoint"),
        counted(report.objects, "object"),
        counted(report.packs, "pack"),
        if report.bytes > 0 { format!(", {} bytes read", grouped(report.bytes)) } else { String::new() },
    ));
    lines.join("\n")
}

pub(crate) fn line(finding: &Finding) -> String {
    let what = keyword(&finding.kind).replace('_', " ");
    let path = finding.path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default();
    let id = finding.id.map(|id| format!(" {id}")).unwrap_or_default();
    plain(&format!("{}: {what}{id}{path}: {}", keyword(&finding.severity), finding.why))
}

fn costs(affected: &Affected) -> String {
    let numbers: Vec<_> =
        affected.checkpoints.iter().map(|(number, id)| format!("{number} ({})", id.short())).collect();
    let of = affected.dir.as_ref().map_or_else(|| affected.name.clone(), |dir| dir.display().to_string());
    // The root tree, on which all paths depend, has an empty path.
    let path = affected.path.as_deref().filter(|path| !path.is_empty());
    let what = path.map_or("all".into(), String::from_utf8_lossy);
    plain(&format!("{what} in checkpoint {} of {of}", numbers.join(", ")))
}
