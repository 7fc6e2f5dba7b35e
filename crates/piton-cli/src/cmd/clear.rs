//! The `piton clear` and `piton clear-legacy` commands.

use clap::Args;
use piton::{Status, clear, clear_base, clear_legacy};

use crate::columns::counted;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{CouldNot, Declined, Output, bytes, plain};

/// Remove all checkpoints of all projects
#[derive(Debug, Args)]
#[command(after_help = format!("\
Lists what will be removed, asks, and removes it. Session records and your
projects are not touched.

Examples:
  piton clear
  piton clear --force

{EXIT_CODES}"))]
pub(crate) struct Clear {
    /// Do not ask
    #[arg(short, long)]
    force: bool,
}

/// Remove the remains of older layouts (legacy-*)
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton clear-legacy\n\n{EXIT_CODES}"))]
pub(crate) struct ClearLegacy {
    /// Do not ask
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(args: &Clear, context: &Context, output: &Output) -> anyhow::Result<()> {
    let (Some(store), _) = context.store_or_its_rest()? else { return run_without_store(args, context, output) };
    let status = Status::of(&store, None)?;
    let checkpoints: usize = status.projects.iter().map(|project| project.checkpoints).sum();
    output.text(&format!(
        "This removes {} of {} and {} ({}) from {}",
        counted(checkpoints, "checkpoint"),
        counted(status.projects.len(), "project"),
        counted(status.archives.len(), "legacy archive"),
        bytes(status.store_bytes + status.legacy_bytes),
        context.base.display(),
    ));
    let marks: Vec<_> = status.projects.iter().flat_map(|one| &one.project.marks).map(|mark| plain(mark)).collect();
    if !marks.is_empty() {
        output.text(&format!(
            "{} marked: {}",
            if marks.len() == 1 { "One is" } else { "Of these are" },
            marks.join(", ")
        ));
    }
    confirm(args.force, output)?;
    report(clear(&store), output)
}

/// Removes the remains of older layouts from a base without a store.
fn run_without_store(args: &Clear, context: &Context, output: &Output) -> anyhow::Result<()> {
    let Some(base) = context.base_without_store()? else { return nothing(context, output) };
    let status = Status::of_base(&base)?;
    if status.legacy_bytes == 0 && status.archives.is_empty() {
        return nothing(context, output);
    }
    let place = context.base.display();
    output.text(&format!("This removes what older layouts left ({}) from {place}", bytes(status.legacy_bytes)));
    confirm(args.force, output)?;
    report(clear_base(&base), output)
}

pub(crate) fn run_legacy(args: &ClearLegacy, context: &Context, output: &Output) -> anyhow::Result<()> {
    let (Some(store), archives) = (match context.store_or_its_rest()?.0 {
        Some(store) => (Some(store.clone()), Status::of(&store, None)?.archives),
        None => match context.base_without_store()? {
            Some(base) => (Some(base.clone()), Status::of_base(&base)?.archives),
            None => (None, Vec::new()),
        },
    }) else {
        return nothing(context, output);
    };
    if archives.is_empty() {
        return nothing(context, output);
    }
    let names: Vec<_> =
        archives.iter().map(|archive| format!("  {}  {}", archive.name, bytes(archive.bytes))).collect();
    output.text(&format!("This removes from {}:\n{}", context.base.display(), names.join("\n")));
    confirm(args.force, output)?;
    report(clear_legacy(&store), output)
}

fn nothing(context: &Context, output: &Output) -> anyhow::Result<()> {
    output.json(&ClearJson { bytes_freed: 0 });
    output.text(&format!("Nothing to clear in {}", context.base.display()));
    Ok(())
}

fn confirm(force: bool, output: &Output) -> anyhow::Result<()> {
    if force || output.confirmed("Remove? [y/N] ", "--force")? {
        return Ok(());
    }
    Err(Declined("nothing was removed", Some("`--force` does not ask")).into())
}

fn report(removed: piton::Result<u64>, output: &Output) -> anyhow::Result<()> {
    let freed = removed.map_err(CouldNot)?;
    output.json(&ClearJson { bytes_freed: freed });
    output.text(&format!("Removed; freed {}", bytes(freed)));
    Ok(())
}

/// JSON of both commands.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClearJson {
    /// number of bytes freed
    bytes_freed: u64,
}
