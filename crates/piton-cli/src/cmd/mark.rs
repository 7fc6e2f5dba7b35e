//! The `piton mark` and `piton unmark` commands.

use clap::Args;
use piton::{MarkOutcome, MarkReport, mark, unmark};

use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{ID, Output, local, painted, plain};

/// Name a checkpoint, and keep it until the name is removed
#[derive(Debug, Args)]
#[command(after_help = format!("\
No limit drops a marked checkpoint. Its name works wherever its number or id
does: `piton restore NAME`.

Examples:
  piton mark 1 before-the-move
  piton mark 4f2a works --move   give the name to another checkpoint

{EXIT_CODES}"))]
pub(crate) struct Mark {
    /// Its number in `piton rollback`, the beginning of its id, or another name of it
    #[arg(value_name = "N|ID")]
    checkpoint: String,
    /// At most 64 characters, no slash; not a number, 4 to 64 hexadecimal digits, `diff` or `revert`
    #[arg(value_name = "NAME")]
    name: String,
    /// Take the name from the checkpoint that has it
    #[arg(long = "move")]
    may_move: bool,
}

/// Remove a name from a checkpoint, which is then dropped like any other
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton unmark before-the-move\n\n{EXIT_CODES}"))]
pub(crate) struct Unmark {
    /// The name
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) fn run(args: &Mark, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    let report = mark(&store, &project, &args.checkpoint, &args.name, args.may_move, Context::now())?;
    output.json(&report);
    let name = plain(&report.mark);
    let before = report.previous.map(|previous| format!("; {} had this name", previous.short())).unwrap_or_default();
    output.text(&match report.outcome {
        MarkOutcome::Unchanged => format!("{} is marked {name} already", described(&report)),
        _ => format!("Marked {} as {name}{before}", described(&report)),
    });
    Ok(())
}

pub(crate) fn run_unmark(args: &Unmark, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    let report = unmark(&store, &project, &args.name, Context::now())?;
    output.json(&report);
    output.text(&format!("Removed the mark {} from {}", plain(&report.mark), described(&report)));
    if !report.is_kept {
        output.hint(&format!(
            "only the mark has kept this checkpoint; until the next collection, `git --git-dir={} show {}` has it",
            store.git_dir().display(),
            report.id.short()
        ));
    }
    Ok(())
}

/// Formats `checkpoint 3, 4270a8c of 2026-03-16 04:36`.
fn described(report: &MarkReport) -> String {
    let number = report.number.map(|number| format!("checkpoint {number}, ")).unwrap_or_default();
    let when = report.checkpoint.as_ref().map(|one| format!(" of {}", local(one.time).date_and_time()));
    format!("{number}{}{}", painted(&report.id.short(), ID), when.unwrap_or_default())
}
