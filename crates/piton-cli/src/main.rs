//! The command `piton`. Thin: arguments become one call of the library, whose report is printed.

mod cli;
mod cmd;
mod context;
mod output;
mod progress;

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
        Command::Take(args) => cmd::take::run(args, &context, &output),
        Command::Rollback(args) => cmd::rollback::run(args, &context, &output),
        Command::Diff(args) => cmd::diff::run(args, &context, &output),
        Command::Restore(args) => cmd::restore::run(args, &context, &output),
        Command::Undo(args) => cmd::restore::undo(args, &context, &output),
        Command::Redo(args) => cmd::restore::redo(args, &context, &output),
        Command::Show(args) => cmd::show::run(args, &context, &output),
        Command::Verify(args) => cmd::verify::run(args, &context, &output),
        Command::Repair(args) => cmd::repair::run(args, &context, &output),
    });
    match done {
        Ok(()) => output.done(),
        Err(error) => output.error(&error),
    }
}
