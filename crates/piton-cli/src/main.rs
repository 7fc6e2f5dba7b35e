//! The command `piton`. Thin: arguments become one call of the library, whose report is printed.

mod cli;
mod cmd;
mod context;
mod output;
mod picker;
mod progress;
mod upkeep;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::output::Output;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    let output = Output::new(&cli.global);
    let done = Context::new(&cli.global, &output).and_then(|context| match &cli.command {
        None => cmd::status::run(&cmd::status::StatusArgs::default(), &context, &output),
        Some(Command::Take(args)) => cmd::take::run(args, &context, &output),
        Some(Command::Rollback(args)) => cmd::rollback::run(args, &context, &output),
        Some(Command::Diff(args)) => cmd::diff::run(args, &context, &output),
        Some(Command::Restore(args)) => cmd::restore::run(args, &context, &output),
        Some(Command::Undo(args)) => cmd::restore::undo(args, &context, &output),
        Some(Command::Redo(args)) => cmd::restore::redo(args, &context, &output),
        Some(Command::Show(args)) => cmd::show::run(args, &context, &output),
        Some(Command::Status(args)) => cmd::status::run(args, &context, &output),
        Some(Command::Prune(args)) => cmd::prune::run(args, &context, &output),
        Some(Command::Clear(args)) => cmd::clear::run(args, &context, &output),
        Some(Command::ClearLegacy(args)) => cmd::clear::run_legacy(args, &context, &output),
        Some(Command::Purge(args)) => cmd::purge::run(args, &context, &output),
        Some(Command::Maintain(args)) => cmd::prune::run_maintain(args, &context, &output),
    });
    match done {
        Ok(()) => output.done(),
        Err(error) => output.error(&error),
    }
}
