//! The command `piton`. Thin: arguments become one call of the library, whose report is printed.

mod agents;
mod cli;
mod cmd;
mod context;
mod hook;
mod install;
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
        Err(error) if error.use_stderr() && cmd::hook::is_meant() => return cmd::hook::misused(&error),
        Err(error) => return output::usage(&error),
    };
    // Needs no directory that exists and no settings that are right.
    if let Command::Hook(args) = &cli.command {
        return cmd::hook::run(args, &cli.global);
    }
    let output = Output::new(&cli.global);
    if let Command::Doctor(args) = &cli.command {
        return cmd::doctor::run(args, &cli.global, &output);
    }
    let done = Context::new(&cli.global, &output).and_then(|context| match &cli.command {
        Command::Take(args) => cmd::take::run(args, &context, &output),
        Command::Rollback(args) => cmd::rollback::run(args, &context, &output),
        Command::Diff(args) => cmd::diff::run(args, &context, &output),
        Command::Restore(args) => cmd::restore::run(args, &context, &output),
        Command::Undo(args) => cmd::restore::undo(args, &context, &output),
        Command::Redo(args) => cmd::restore::redo(args, &context, &output),
        Command::Show(args) => cmd::show::run(args, &context, &output),
        Command::Hook(_) | Command::Doctor(_) => Ok(()),
        Command::Install(args) => cmd::install::run(args, &context, &output),
        Command::Uninstall(args) => cmd::install::undo(args, &context, &output),
    });
    match done {
        Ok(()) => output.done(),
        Err(error) => output.error(&error),
    }
}
