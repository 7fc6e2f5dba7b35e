//! The command `piton`. Each command turns its arguments into one call of the library and prints the report.
//!
//! This is a library only so that fuzzers reach the code that reads bytes from outside. [`main`] is the only function
//! to use.

mod agents;
mod cli;
mod cmd;
mod columns;
mod context;
mod edit;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod hints;
mod hook;
mod install;
mod interrupt;
mod maintenance;
mod output;
mod picker;
mod progress;
mod shell;
mod surface;
mod usage;

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::output::Output;

/// Runs the command given by the arguments of this process. Returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    CompleteEnv::with_factory(Cli::command).var(cmd::completions::VARIABLE).complete();
    let cli = match Cli::parse_quickly() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && cmd::hook::is_hook_invocation() => return cmd::hook::usage_error(&error),
        Err(error) => return output::misused(&error),
    };
    // A hook must work even if the directory is missing or the settings are invalid.
    if let Some(Command::Hook(args)) = &cli.command {
        return cmd::hook::run(args, &cli.global);
    }
    let output = Output::new(&cli.global);
    if let Some(Command::Doctor(args)) = &cli.command {
        return cmd::doctor::run(args, &cli.global, &output);
    }
    if let Some(Command::Config(args)) = &cli.command {
        return cmd::config::run(args, &cli.global, &output);
    }
    if let Some(Command::Maintain(_)) = &cli.command {
        return cmd::prune::run_maintain(&cli.global, &output);
    }
    if let Some(Command::Finish(_)) = &cli.command {
        return cmd::finish::run(&cli.global, &output);
    }
    let done = match &cli.command {
        None => cmd::status::run(&cmd::status::StatusArgs::default(), &cli.global, &output),
        Some(Command::Status(args)) => cmd::status::run(args, &cli.global, &output),
        Some(command) => {
            let context = if is_rescue(command) { Context::forgiving } else { Context::new };
            context(&cli.global, &output).and_then(|context| with_context(command, &context, &output))
        }
    };
    match done {
        Ok(()) => output.done(),
        Err(error) => output.error(&error),
    }
}

/// Returns true for the commands that show checkpoints and restore files.
fn is_rescue(command: &Command) -> bool {
    use Command::{Diff, Redo, Restore, Rollback, Show, Undo};
    matches!(command, Rollback(_) | Restore(_) | Undo(_) | Redo(_) | Diff(_) | Show(_))
}

/// Runs a command that needs a context.
fn with_context(command: &Command, context: &Context, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Take(args) => cmd::take::run(args, context, output),
        Command::Rollback(args) => cmd::rollback::run(args, context, output),
        Command::Diff(args) => cmd::diff::run(args, context, output),
        Command::Restore(args) => cmd::restore::run(args, context, output),
        Command::Undo(args) => cmd::restore::undo(args, context, output),
        Command::Redo(args) => cmd::restore::redo(args, context, output),
        Command::Show(args) => cmd::show::run(args, context, output),
        Command::Prune(args) => cmd::prune::run(args, context, output),
        Command::Clear(args) => cmd::clear::run(args, context, output),
        Command::ClearLegacy(args) => cmd::clear::run_legacy(args, context, output),
        Command::Completions(args) => cmd::completions::run(args, output),
        Command::Man(args) => cmd::completions::run_man(args, output),
        Command::Purge(args) => cmd::purge::run(args, context, output),
        Command::Session(args) => cmd::session::run(args, context, output),
        Command::Install(args) => cmd::install::run(args, context, output),
        Command::Uninstall(args) => cmd::install::undo(args, context, output),
        Command::Verify(args) => cmd::verify::run(args, context, output),
        Command::Repair(args) => cmd::repair::run(args, context, output),
        Command::Status(_)
        | Command::Hook(_)
        | Command::Doctor(_)
        | Command::Config(_)
        | Command::Maintain(_)
        | Command::Finish(_) => Ok(()),
    }
}
