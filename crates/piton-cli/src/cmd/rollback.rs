//! `piton rollback`

use clap::Args;
use piton::{Change, History, Listed};
use serde_json::{Value, json};

use crate::cli::EXIT_CODES;
use crate::context::Context;
use crate::output::{Output, local, plain};

/// List the checkpoints of this project
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton rollback\n\n{EXIT_CODES}"))]
pub(crate) struct Rollback {}

pub(crate) fn run(_: &Rollback, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.existing_store()?;
    let project = context.project(store.as_ref())?;
    let list = match &store {
        Some(store) => History::of(store, &project)?.list()?,
        None => Vec::new(),
    };
    output.json(&list.iter().map(as_json).collect());
    let dir = plain(&project.dir().display().to_string());
    if list.is_empty() {
        output.text(&format!("No checkpoints found for {dir}"));
        output.hint("`piton take` takes one");
        return Ok(());
    }
    let lines: Vec<_> = list.iter().map(as_line).collect();
    output.text(&format!("📸 Checkpoints for {dir}:\n\n{}", lines.join("\n")));
    Ok(())
}

/// `  1. 4270a8c  2026-03-16 04:36  before patch  (1 file, +1/-0)`
fn as_line(listed: &Listed) -> String {
    let Listed { number, checkpoint, change } = listed;
    let when = local(checkpoint.time).date_and_time();
    format!("{number:>3}. {}  {when}  {}{}", checkpoint.id.short(), plain(&checkpoint.reason), counts(change))
}

fn counts(change: &Change) -> String {
    match change {
        Change { files: 0, .. } => String::new(),
        Change { files: 1, insertions, deletions } => format!("  (1 file, +{insertions}/-{deletions})"),
        Change { files, insertions, deletions } => format!("  ({files} files, +{insertions}/-{deletions})"),
    }
}

fn as_json(listed: &Listed) -> Value {
    let Listed { number, checkpoint, change } = listed;
    let origin = &checkpoint.facts.origin;
    json!({
        "number": number,
        "id": checkpoint.id.to_string(),
        "short_id": checkpoint.id.short(),
        "time": checkpoint.time.to_string(),
        "reason": checkpoint.reason,
        "files_changed": change.files,
        "insertions": change.insertions,
        "deletions": change.deletions,
        "agent": origin.agent,
        "session": origin.session,
        "turn": origin.turn,
        "kind": checkpoint.facts.kind.word(),
    })
}
