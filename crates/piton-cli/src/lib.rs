//! The command `piton`. Each command turns its arguments into one call of the library and prints the report.
//!
//! This is a library only so that fuzzers reach the code that reads bytes from outside. [`main`] is the only function
//! to use.

mod agents;
mod cli;
mod cmd;
mod columns;
mod complete;
mod context;
mod conversation;
mod edit;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod hints;
mod hook;
mod install;
mod interrupt;
mod maintenance;
mod mcp;
mod options;
mod output;
mod picker;
mod platform;
mod printable;
mod progress;
mod remote;
mod request;
mod rpc;
mod self_test;
mod shell;
mod surface;
mod usage;

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::CompleteEnv;

use crate::cli::{Cli, Command};
use crate::cmd::status::StatusArgs;
use crate::context::{ConfigPolicy, Context};
use crate::install::programs::stale_hooks;
use crate::options::Global;
use crate::output::Output;

/// Runs the command given by the arguments of this process. Returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    CompleteEnv::with_factory(complete::command).var(cmd::completions::VARIABLE).complete();
    let cli = match Cli::parse_quickly() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && cmd::hook::is_called_by_agent() => return cmd::hook::usage_error(&error),
        Err(error) => return output::misused(&error, Cli::command()),
    };
    run(&cli.command.unwrap_or_else(|| Command::Status(StatusArgs::default())), &cli.global)
}

/// Runs a command, and returns its exit code.
fn run(command: &Command, global: &Global) -> ExitCode {
    match command {
        // Prints an answer of its own, and works even if the directory is missing or the settings are invalid.
        Command::Hook(args) => return cmd::hook::run(args, global),
        Command::Serve(_) => return rpc::serve::serve(&context::with_absolute_paths(global), carry_out),
        Command::Mcp(_) => return mcp::server::serve(&context::with_absolute_paths(global), carry_out),
        _ => {}
    }
    let output = Output::new(global);
    match carry_out(command, global, &output) {
        Ok(()) => output.done(),
        Err(error) => output.error(&error),
    }
}

/// Runs a command that prints a report, with the context that it needs.
fn carry_out(command: &Command, global: &Global, output: &Output) -> anyhow::Result<()> {
    let build = |policy: ConfigPolicy<'_>, work: &dyn Fn(&Context) -> anyhow::Result<()>| {
        let context = Context::build(global, policy)?;
        let done = work(&context);
        warn_of_stale_hooks(&context, output);
        done
    };
    let strict = |work: &dyn Fn(&Context) -> anyhow::Result<()>| build(ConfigPolicy::Strict(output), work);
    let rescue = |work: &dyn Fn(&Context) -> anyhow::Result<()>| build(ConfigPolicy::Warn(output), work);
    match command {
        Command::Hook(_) | Command::Serve(_) | Command::Mcp(_) => anyhow::bail!("cannot run this command here"),
        Command::Status(args) => cmd::status::run(args, global, output),
        Command::Doctor(args) => cmd::doctor::run(args, global, output),
        Command::Config(args) => cmd::config::run(args, global, output),
        Command::Maintain(_) => cmd::prune::run_maintain(global, output),
        Command::Finish(_) => cmd::finish::run(global, output),
        Command::Push(args) if args.background => cmd::push::run_background(global),
        Command::Rollback(args) => rescue(&|context| cmd::rollback::run(args, context, output)),
        Command::Diff(args) => rescue(&|context| cmd::diff::run(args, context, output)),
        Command::Restore(args) if args.keep_edits => {
            rescue(&|context| cmd::revert::run_keep_edits(args, context, output))
        }
        Command::Restore(args) => rescue(&|context| cmd::restore::run(args, context, output)),
        Command::Rewind(args) => rescue(&|context| cmd::rewind::run(args, context, output)),
        Command::Revert(args) => rescue(&|context| cmd::revert::run(args, context, output)),
        Command::Undo(args) => rescue(&|context| cmd::restore::undo(args, context, output)),
        Command::Redo(args) => rescue(&|context| cmd::restore::redo(args, context, output)),
        Command::Show(args) => rescue(&|context| cmd::show::run(args, context, output)),
        Command::Log(args) => rescue(&|context| cmd::log::run(args, context, output)),
        Command::Blame(args) => rescue(&|context| cmd::blame::run(args, context, output)),
        Command::Search(args) => rescue(&|context| cmd::search::run(args, context, output)),
        Command::Recover(args) => rescue(&|context| cmd::recover::run(args, context, output)),
        Command::Git(args) => rescue(&|context| cmd::git::run(args, context, output)),
        Command::Cat(args) => rescue(&|context| cmd::cat::run(args, context, output)),
        Command::Export(args) => rescue(&|context| cmd::export::run(args, context, output)),
        Command::Machines(args) => rescue(&|context| cmd::machines::run(args, context, output)),
        Command::Fetch(args) => rescue(&|context| cmd::push::run_fetch(args, context, output)),
        Command::Turns(args) => rescue(&|context| cmd::turns::run(args, context, output)),
        Command::Remote(args) => strict(&|context| cmd::remote::run(args, context, output)),
        Command::Push(args) => strict(&|context| cmd::push::run(args, context, output)),
        Command::Take(args) => strict(&|context| cmd::take::run(args, context, output)),
        Command::Prune(args) => strict(&|context| cmd::prune::run(args, context, output)),
        Command::Clear(args) => strict(&|context| cmd::clear::run(args, context, output)),
        Command::ClearLegacy(args) => strict(&|context| cmd::clear::run_legacy(args, context, output)),
        Command::Mark(args) => strict(&|context| cmd::mark::run(args, context, output)),
        Command::Unmark(args) => strict(&|context| cmd::mark::run_unmark(args, context, output)),
        Command::Purge(args) => strict(&|context| cmd::purge::run(args, context, output)),
        Command::Session(args) => strict(&|context| cmd::session::run(args, context, output)),
        Command::Install(args) => strict(&|context| cmd::install::run(args, context, output)),
        Command::Uninstall(args) => strict(&|context| cmd::install::undo(args, context, output)),
        Command::Verify(args) => strict(&|context| cmd::verify::run(args, context, output)),
        Command::Repair(args) => strict(&|context| cmd::repair::run(args, context, output)),
        Command::Completions(args) => cmd::completions::run(args, output),
        Command::Man(args) => cmd::completions::run_man(args, Cli::command(), output),
    }
}

/// Warns a person, not a program that sent a request, if agents call a program that is missing or older than this one.
fn warn_of_stale_hooks(context: &Context, output: &Output) {
    if output.request().is_some() {
        return;
    }
    let store = context.existing_store().ok().flatten();
    for problem in store.iter().flat_map(stale_hooks) {
        output.warn(&problem.what);
        output.hint(&problem.hint);
    }
}
