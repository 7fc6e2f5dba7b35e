//! The `piton prune` command, and the maintenance that runs in the background.

use std::path::{Path, PathBuf};

use clap::Args;
use piton::json::keyword;
use piton::{
    KnownProject, Maintained, Policy, PruneAction, PrunePlan, PruneReport, PruneTarget, Store, forget, maintain,
    plan_forget, plan_prune, plan_prune_base, plan_prune_rules, prune, prune_base, release_kept,
};

use crate::columns::counted;
use crate::context::{ConfigPolicy, ConfigProblem, Context};
use crate::interrupt;
use crate::options::{EXIT_CODES, Global};
use crate::output::{Declined, Output, PartlyDone, Said, bytes, plain};
use crate::progress::watch_store;
use crate::remote::program::{RemoteCall, RemoteProgram};

/// Drop projects that are gone or no longer used, keep the store within its limit, and free the space
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton prune --dry-run            only show what would be dropped
  piton prune --retention-days 3   also drop projects not used for three days
  piton prune --forget ~/code      forget one project, with its checkpoints
  piton prune --kept               release all kept files
  piton prune --remote             free space in the remote

{EXIT_CODES}"))]
pub(crate) struct Prune {
    /// Drop projects and archives that were not used for this many days; 0 is never [default: retention_days]
    #[arg(long, value_name = "DAYS")]
    retention_days: Option<u64>,
    /// Size limit of the store in MB; 0 is no limit [default: max_total_size_mb]
    #[arg(long, value_name = "MB")]
    max_size_mb: Option<u64>,
    /// Keep projects whose directory is gone
    #[arg(long)]
    keep_orphans: bool,
    /// Forget only the project in exactly this directory, with all its checkpoints. No file in it is touched
    #[arg(long, value_name = "DIR", conflicts_with_all = ["retention_days", "max_size_mb", "keep_orphans"])]
    forget: Option<PathBuf>,
    /// Release only the files that were kept before commands destroyed them
    #[arg(long, conflicts_with_all = ["retention_days", "max_size_mb", "keep_orphans", "forget"])]
    kept: bool,
    /// Delete unreferenced objects from the remote: one run marks them, a run a day later deletes them
    #[arg(long, conflicts_with_all = ["retention_days", "max_size_mb", "keep_orphans", "forget", "kept", "dry_run"])]
    remote: bool,
    /// Show what would be dropped, and drop nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before marked checkpoints are dropped
    #[arg(short, long)]
    yes: bool,
}

/// Do the maintenance that is due (run by piton itself, in the background)
#[derive(Debug, Args)]
pub(crate) struct Maintain {}

pub(crate) fn run(args: &Prune, context: &Context, output: &Output) -> anyhow::Result<()> {
    if args.remote {
        return run_remote(context, output);
    }
    let settings = context
        .settings
        .clone()
        .retention_days(args.retention_days.unwrap_or(context.settings.retention_days))
        .max_total_size_mb(args.max_size_mb.unwrap_or(context.settings.max_total_size_mb))
        .delete_orphans(context.settings.delete_orphans && !args.keep_orphans);
    let policy = Policy::from(&settings);
    let Some(store) = context.existing_store()? else {
        return run_without_store(args, &policy, context, output);
    };
    if args.kept {
        return run_kept(&store, args, output);
    }
    if let Some(dir) = &args.forget {
        return run_forget(&store, &context.dir.join(dir), args, output);
    }
    if args.dry_run {
        let plan = plan_prune(&store, &policy, Context::now())?;
        output.json(&plan);
        output.text(&plan_text(&plan));
        return Ok(());
    }
    if !args.yes {
        let plan = plan_prune_rules(&store, &policy, Context::now())?;
        let goes = |project: &&KnownProject| {
            plan.drops.iter().any(|drop| drop.what == PruneTarget::Project(project.id.clone()))
        };
        ask_for_marks(plan.inventory.projects.iter().filter(goes), output)?;
    }
    let report = watch_store(output, |progress| prune(&store, &policy, Context::now(), progress))?;
    output.json(&report);
    output.text(&report_text(&report));
    for problem in &report.problems {
        output.warn(problem);
    }
    if output.was_interrupted() {
        output.warn("stopped; what was done so far is kept");
        return Err(Said(interrupt::exit_code()).into());
    }
    if report.problems.is_empty() { Ok(()) } else { Err(PartlyDone.into()) }
}

/// Prunes the leftovers of older layouts in a base that has no store.
fn run_without_store(args: &Prune, policy: &Policy, context: &Context, output: &Output) -> anyhow::Result<()> {
    let base = context.base_without_store()?;
    let plan = base.as_ref().map(|base| plan_prune_base(base, policy, Context::now())).transpose()?;
    let Some((base, plan)) = base.zip(plan).filter(|(_, plan)| !plan.inventory.is_empty()) else {
        output.json(&PruneReport::default());
        output.text(&format!("There is no store in {}", context.base.display()));
        return Ok(());
    };
    if args.dry_run {
        output.json(&plan);
        output.text(&plan_text(&plan));
        return Ok(());
    }
    let report = prune_base(&base, policy, Context::now())?;
    output.json(&report);
    output.text(&report_text(&report));
    report.problems.iter().for_each(|problem| output.warn(problem));
    if report.problems.is_empty() { Ok(()) } else { Err(PartlyDone.into()) }
}

/// Names the marks of projects that are about to be dropped, and asks.
fn ask_for_marks<'a>(projects: impl Iterator<Item = &'a KnownProject>, output: &Output) -> anyhow::Result<()> {
    let marked = projects.filter(|project| !project.marks.is_empty()).map(|project| {
        let dir = project.dir.as_ref().map_or_else(|| project.id.to_string(), |dir| dir.display().to_string());
        format!("  {}: {}", plain(&dir), plain(&project.marks.join(", ")))
    });
    let marked: Vec<_> = marked.collect();
    if marked.is_empty() {
        return Ok(());
    }
    output.text(&format!("These have marked checkpoints, which go with them:\n{}", marked.join("\n")));
    if output.confirmed("Drop them? [y/N] ", "--yes")? {
        return Ok(());
    }
    Err(Declined("nothing was dropped", Some("`--yes` does not ask; `piton unmark NAME` removes a mark")).into())
}

/// JSON of `--remote`.
#[derive(serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CollectJson {
    /// number of objects that a later run deletes
    marked: u64,
    /// number of objects that were deleted
    deleted: u64,
    /// number of bytes freed
    bytes_freed: u64,
    /// number of refs that were dropped, of machines that have not pushed for a long time
    refs_expired: u64,
    /// why something that was marked is not deleted yet
    waiting: Vec<String>,
}

/// Collects garbage in the remote.
fn run_remote(context: &Context, output: &Output) -> anyhow::Result<()> {
    let report: CollectJson = RemoteProgram::of(context)?.ask(&RemoteCall::new("collect"), output)?;
    output.json(&report);
    let (marked, deleted) = (counted(report.marked, "object"), counted(report.deleted, "object"));
    let mut lines = vec![format!("Deleted {deleted}, freed {}; marked {marked}", bytes(report.bytes_freed))];
    if report.refs_expired > 0 {
        lines.push(format!("Dropped {} of machines that no longer push", counted(report.refs_expired, "ref")));
    }
    lines.extend(report.waiting.iter().map(|why| format!("Waiting: {}", plain(why))));
    output.text(&lines.join("\n"));
    Ok(())
}

/// Releases all kept files.
fn run_kept(store: &Store, args: &Prune, output: &Output) -> anyhow::Result<()> {
    let report = release_kept(store, args.dry_run)?;
    output.json(&ReleasedJson { released: report.released, bytes_freed: report.bytes_freed, dry_run: args.dry_run });
    let paths = counted(usize::try_from(report.released).unwrap_or(usize::MAX), "path");
    let verb = if args.dry_run { "Would release" } else { "Released" };
    output.text(&format!("{verb} the kept files of {paths}: {} freed", bytes(report.bytes_freed)));
    Ok(())
}

/// JSON of `--kept`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReleasedJson {
    /// number of paths whose kept files were released
    released: u64,
    /// number of bytes freed: copies, and files that had no other name left
    bytes_freed: u64,
    /// true if nothing was released
    dry_run: bool,
}

fn run_forget(store: &Store, dir: &Path, args: &Prune, output: &Output) -> anyhow::Result<()> {
    let is_dry = args.dry_run;
    if !is_dry && !args.yes {
        let plan = plan_forget(store, dir)?;
        ask_for_marks(plan.iter(), output)?;
    }
    let report = watch_store(output, |progress| forget(store, dir, is_dry, Context::now(), progress))?;
    output.json(&ForgetJson { report: &report, dry_run: is_dry });
    for one in &report.dropped {
        let (verb, name) = (if is_dry { "Would forget" } else { "Forgot" }, plain(&one.name));
        output.text(&format!("{verb} {name} and all its checkpoints; no file in it is touched"));
    }
    for problem in &report.problems {
        output.warn(problem);
    }
    if report.problems.is_empty() { Ok(()) } else { Err(PartlyDone.into()) }
}

/// JSON of `--forget`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ForgetJson<'a> {
    #[serde(flatten)]
    report: &'a PruneReport,
    /// true if nothing was dropped
    dry_run: bool,
}

/// Runs maintenance. Prints no messages, because it runs in the background: problems, including mistakes in the
/// configuration, are recorded in the journal and shown by `piton status`. Otherwise such a mistake would stop all
/// pruning unnoticed.
pub(crate) fn run_maintain(global: &Global, output: &Output) -> anyhow::Result<()> {
    crate::platform::detach();
    let context = Context::build(global, ConfigPolicy::Background)?;
    let mut problems = context.config_problems.iter().map(ConfigProblem::for_journal).collect();
    let done = maintain_store(&context, &mut problems);
    for problem in &problems {
        context.journal().note_warning(format!("maintenance: {problem}"), Context::now());
    }
    output.json(&done?);
    Ok(())
}

/// Does the maintenance that is due, and returns a report. Errors are returned and added to `problems`.
fn maintain_store(context: &Context, problems: &mut Vec<String>) -> anyhow::Result<Maintained> {
    let done = context.existing_store().and_then(|store| match store {
        Some(store) => maintain(&store, &context.settings, Context::now(), &piton::Progress::default()),
        None => Ok(Maintained::Nothing),
    });
    match &done {
        Err(error) => problems.push(error.to_string()),
        Ok(Maintained::Pruned(report)) => problems.extend(report.problems.iter().cloned()),
        Ok(_) => {}
    }
    Ok(done?)
}

fn what(goes: &PruneTarget, plan: &PrunePlan) -> String {
    plain(&plan.inventory.name_of(goes))
}

/// Formats `, with the marks works, v2`.
fn marks_of(goes: &PruneTarget, plan: &PrunePlan) -> String {
    let PruneTarget::Project(id) = goes else { return String::new() };
    let project = plan.inventory.projects.iter().find(|project| project.id == *id && !project.marks.is_empty());
    project.map(|project| format!(", with the marks {}", plain(&project.marks.join(", ")))).unwrap_or_default()
}

fn plan_text(plan: &PrunePlan) -> String {
    let line = |drop: &PruneAction| {
        format!("  {:<7} {}{}", keyword(&drop.why), what(&drop.what, plan), marks_of(&drop.what, plan))
    };
    let mut lines: Vec<_> = plan.drops.iter().map(line).collect();
    match &plan.over_size {
        Some(counts) => lines.extend(counts.iter().map(|(id, count)| {
            format!(
                "  size    {} (the oldest: {})",
                what(&PruneTarget::Project(id.clone()), plan),
                counted(*count, "checkpoint")
            )
        })),
        None => lines.push("  The newest checkpoints alone are larger than the limit: nothing more can go".to_owned()),
    }
    if lines.is_empty() {
        return "Nothing would be dropped".to_owned();
    }
    lines.insert(0, "Would drop:".to_owned());
    lines.join("\n")
}

fn report_text(report: &PruneReport) -> String {
    let mut lines = vec![
        format!("Scanned:          {}", report.scanned),
        format!("Deleted orphan:   {}", report.deleted_orphan),
        format!("Deleted stale:    {}", report.deleted_stale),
    ];
    if report.deleted_archives > 0 {
        lines.push(format!("Deleted archives: {}", report.deleted_archives));
    }
    if report.dropped_checkpoints > 0 {
        lines.push(format!("Dropped for size: {} checkpoints", report.dropped_checkpoints));
    }
    lines.push(format!("Errors:           {}", report.problems.len()));
    lines.push(format!("Reclaimed:        {}", bytes(report.bytes_freed)));
    if !report.dropped.is_empty() {
        lines.extend([String::new(), "Dropped:".to_owned()]);
    }
    lines.extend(report.dropped.iter().map(|one| format!("  {:<7} {}", keyword(&one.why), plain(&one.name))));
    lines.join("\n")
}
