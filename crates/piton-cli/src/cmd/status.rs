//! `piton status`

use clap::Args;
use piton::{Moment, Presence, ProjectStatus, Status, StatusProblem};
use serde_json::{Value, json};

use crate::cli::EXIT_CODES;
use crate::context::Context;
use crate::output::{Output, bytes, plain};

/// Show the store: what it takes, for which projects, and what is wrong
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton status --limit 5\n\n{EXIT_CODES}"))]
pub(crate) struct StatusArgs {
    /// How many projects to show; 0 is all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

impl Default for StatusArgs {
    fn default() -> Self {
        Self { limit: 20 }
    }
}

/// How wide a directory may be in the table.
const DIR_COLUMNS: usize = 60;

pub(crate) fn run(args: &StatusArgs, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.existing_store()?;
    let status = match &store {
        Some(store) => Status::of(store, context.settings.total_bytes_max())?,
        None => Status {
            base: context.base.clone(),
            store_bytes: 0,
            legacy_bytes: 0,
            reclaimable_bytes: 0,
            projects: Vec::new(),
            archives: Vec::new(),
            problems: Vec::new(),
        },
    };
    let mut problems = status.problems.clone();
    problems.extend(context.problems());
    output.json(&as_json(&status, &problems));
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    output.text(&as_text(&status, &problems, limit, Context::now()));
    Ok(())
}

fn as_text(status: &Status, problems: &[StatusProblem], limit: usize, now: Moment) -> String {
    let mut lines = Vec::new();
    for problem in problems {
        lines.push(format!("! {}", plain(&problem.what)));
        lines.push(format!("  {}", plain(&problem.hint)));
    }
    if !problems.is_empty() {
        lines.push(String::new());
    }
    lines.push(format!("Checkpoint base: {}", plain(&status.base.display().to_string())));
    lines.push(format!("Total size:      {}", bytes(status.store_bytes + status.legacy_bytes)));
    lines.push(format!("  store/         {}", bytes(status.store_bytes)));
    lines.push(format!("  legacy-*       {}", bytes(status.legacy_bytes)));
    if status.reclaimable_bytes > 0 {
        lines.push(format!("  to give back   {} at the next maintenance", bytes(status.reclaimable_bytes)));
    }
    lines.push(format!("Projects:        {}", status.projects.len()));
    if !status.projects.is_empty() {
        lines.push(String::new());
        lines.push(format!(
            "  {:<DIR_COLUMNS$}  {:>7}  {:>9}  {:>10}  STATE",
            "WORKDIR", "COMMITS", "ALONE", "LAST TOUCH"
        ));
        lines.extend(status.projects.iter().take(limit).map(|project| as_line(project, now)));
        if status.projects.len() > limit {
            lines.push(format!("  ... and {} more (--limit 0 shows all)", status.projects.len() - limit));
        }
    }
    if !status.archives.is_empty() {
        lines.push(String::new());
        lines.push(format!("Legacy archives ({}):", status.archives.len()));
        lines.extend(
            status.archives.iter().map(|archive| format!("  {:<46}  {}", plain(&archive.name), bytes(archive.bytes))),
        );
        lines.push(String::new());
        lines.push("Clear with: piton clear-legacy".to_owned());
    }
    lines.join("\n")
}

fn as_line(status: &ProjectStatus, now: Moment) -> String {
    let project = &status.project;
    let dir = project.dir.as_ref().map_or_else(|| "(unknown)".to_owned(), |dir| plain(&dir.display().to_string()));
    let length = dir.chars().count();
    let dir = match length.checked_sub(DIR_COLUMNS) {
        Some(over) if over > 0 => {
            dir.chars().skip(over + 1).fold("…".to_owned(), |text, character| text + &character.to_string())
        }
        _ => dir,
    };
    let state = match project.presence {
        Presence::There => "live",
        Presence::Gone => "orphan",
        Presence::Unknown => "unseen",
    };
    let touched = project.last_touch.map_or_else(|| "—".to_owned(), |at| age(now.as_secs_f64() - at));
    format!(
        "  {dir:<DIR_COLUMNS$}  {:>7}  {:>9}  {touched:>10}  {state}",
        status.checkpoints,
        bytes(status.bytes_alone)
    )
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

fn as_json(status: &Status, problems: &[StatusProblem]) -> Value {
    json!({
        "base": status.base.to_string_lossy(),
        "store_size_bytes": status.store_bytes,
        "legacy_size_bytes": status.legacy_bytes,
        "total_size_bytes": status.store_bytes + status.legacy_bytes,
        "reclaimable_bytes": status.reclaimable_bytes,
        "project_count": status.projects.len(),
        "projects": status.projects.iter().map(project_json).collect::<Vec<_>>(),
        "legacy_archives": status.archives.iter().map(|archive| json!({
            "name": archive.name, "size_bytes": archive.bytes, "mtime": archive.mtime,
        })).collect::<Vec<_>>(),
        "problems": problems.iter().map(|problem| json!({"what": problem.what, "hint": problem.hint})).collect::<Vec<_>>(),
    })
}

fn project_json(status: &ProjectStatus) -> Value {
    let project = &status.project;
    json!({
        "hash": project.id.to_string(),
        "workdir": project.dir.as_ref().map(|dir| dir.to_string_lossy()),
        "exists": project.presence == Presence::There,
        "presence": match project.presence {
            Presence::There => "there",
            Presence::Gone => "gone",
            Presence::Unknown => "unknown",
        },
        "created_at": project.created_at,
        "last_touch": project.last_touch,
        "commits": status.checkpoints,
        "bytes_alone": status.bytes_alone,
    })
}
