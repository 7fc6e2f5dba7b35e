//! The `piton verify` command.

use clap::Args;
use piton::json::keyword;
use piton::{Affected, Error, ErrorKind, Finding, ReadData, Severity, VerifyReport, grouped};
use serde::{Deserialize, Serialize};

use crate::columns::counted;
use crate::context::Context;
use crate::interrupt;
use crate::options::EXIT_CODES;
use crate::output::{Output, Said, bytes, plain};
use crate::progress::watch_store;
use crate::remote::program::{RemoteCall, RemoteProgram};

/// Check the store: is every checkpoint intact?
#[derive(Debug, Args)]
#[command(after_help = format!(
    "Examples:\n  piton verify\n  piton verify --read-data\n  piton verify --read-data-subset 5%\n  \
     piton verify --remote               check what was pushed\n\n\
     Exits with 0 if the store is intact, with 1 if something is damaged.\n\n{EXIT_CODES}"
))]
pub(crate) struct Verify {
    /// Read and hash all data, too, not only the structure that leads to it
    #[arg(long)]
    read_data: bool,
    /// The same for a part of the data, another one each day, so that in time everything is covered
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, conflicts_with = "read_data")]
    read_data_subset: Option<f64>,
    /// Check the remote instead; with --read-data, every byte of it
    #[arg(long, conflicts_with = "read_data_subset")]
    remote: bool,
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
    if args.remote {
        return run_remote(args, context, output);
    }
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
    // A program asked for a verdict, and this is none. A person sees what was found until Ctrl-C.
    if report.was_stopped && output.request().is_some() {
        return Err(Error::new(ErrorKind::Stopped, "verify all of the store").because("it was cancelled").into());
    }
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

/// A finding in the remote.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RemoteFindingJson {
    /// name of the object in the remote
    key: String,
    /// what is wrong with it
    what: String,
    /// checkpoints that cannot be restored because of it
    affects: Vec<String>,
}

/// JSON of `--remote`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RemoteVerifyJson {
    /// number of refs, one for each project of each machine
    refs: u64,
    /// number of checkpoints
    checkpoints: u64,
    /// number of packs
    packs: u64,
    /// size of the packs in bytes
    bytes: u64,
    /// what is wrong
    findings: Vec<RemoteFindingJson>,
}

fn run_remote(args: &Verify, context: &Context, output: &Output) -> anyhow::Result<()> {
    let call = RemoteCall::new("verify").flag("--read-data", args.read_data);
    let report: RemoteVerifyJson = RemoteProgram::of(context)?.ask(&call, output)?;
    output.json(&report);
    let mut lines = remote_lines(&report.findings, output.is_verbose);
    let verdict = match report.findings.len() {
        0 => "The remote is whole".to_owned(),
        count => format!("DAMAGED: {} in the remote", counted(count, "finding")),
    };
    let (checkpoints, packs) = (counted(report.checkpoints, "checkpoint"), counted(report.packs, "pack"));
    lines.push(format!("{verdict} ({checkpoints}, {packs}, {})", bytes(report.bytes)));
    output.text(&lines.join("\n"));
    match (report.findings.is_empty(), args.read_data) {
        (true, true) => return Ok(()),
        (true, false) => {
            output.hint("`piton verify --remote --read-data` downloads and checks every byte");
            return Ok(());
        }
        (false, _) => output.hint("`piton repair --remote` sends again what this machine has"),
    }
    Err(Said(1).into())
}

/// Lists findings in the remote, and what they affect.
pub(super) fn remote_lines(findings: &[RemoteFindingJson], is_verbose: bool) -> Vec<String> {
    let (findings_max, affected_max) = if is_verbose { (usize::MAX, usize::MAX) } else { (FINDINGS_MAX, AFFECTED_MAX) };
    let mut lines = Vec::new();
    for finding in findings.iter().take(findings_max) {
        lines.push(plain(&format!("damage: {}: {}", finding.key, finding.what)));
        lines.extend(finding.affects.iter().take(affected_max).map(|affected| format!("  {}", plain(affected))));
        let more = finding.affects.len().saturating_sub(affected_max);
        lines.extend((more > 0).then(|| format!("  ... and {more} more (--verbose shows all)")));
    }
    let more = findings.len().saturating_sub(findings_max);
    lines.extend((more > 0).then(|| format!("... and {more} more (--verbose shows all)")));
    lines
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
