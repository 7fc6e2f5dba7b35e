//! The arguments. Those of a command stand with the command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::ArgValueCompleter;

use crate::cmd;
use crate::cmd::complete::projects;
use crate::surface::Surface;

/// Shown below every help text.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 error or declined, 2 usage or could not,
            3 partly done, 4 not found, 5 busy, 130 stopped by Ctrl-C";

/// Shown below the help of piton itself.
const START: &str = "\
Examples:
  piton install claude   hook an agent up: its work can be undone from then on
  piton rollback         the checkpoints of this project
  piton rollback 1       back to the newest of them
  piton undo             back to before that";

/// The undo layer for coding agents: checkpoints of a working directory, and the way back to any of them
#[derive(Debug, Parser)]
#[command(name = "piton", version, after_help = format!("{START}\n\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    /// Without one it is `status`.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of all commands")]
pub(crate) struct Global {
    /// Run as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true, add = ArgValueCompleter::new(projects))]
    pub(crate) dir: Option<PathBuf>,
    /// The directory that holds the store [default: $PITON_BASE, $HERMES_HOME/checkpoints or ~/.hermes/checkpoints]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) base: Option<PathBuf>,
    /// The configuration file [default: $HERMES_HOME/config.yaml or ~/.hermes/config.yaml]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print errors and warnings only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more: everything that was left out, what a checkpoint holds, what each project takes
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Print without colours
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Turn automatic checkpoints on for this command
    #[arg(long, global = true)]
    pub(crate) checkpoints: bool,
    /// The place where the answer is read: commands are named as they work there
    #[arg(long, global = true, hide = true, value_enum, default_value_t)]
    pub(crate) surface: Surface,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Take(cmd::take::Take),
    Rollback(cmd::rollback::Rollback),
    Diff(cmd::diff::DiffArgs),
    Restore(cmd::restore::RestoreArgs),
    Undo(cmd::restore::Undo),
    Redo(cmd::restore::Redo),
    Show(cmd::show::Show),
    Session(cmd::session::Session),
    #[command(visible_alias = "list")]
    Status(cmd::status::StatusArgs),
    Prune(cmd::prune::Prune),
    Clear(cmd::clear::Clear),
    ClearLegacy(cmd::clear::ClearLegacy),
    Purge(cmd::purge::Purge),
    Config(cmd::config::ConfigArgs),
    Completions(cmd::completions::Completions),
    Man(cmd::completions::Man),
    #[command(hide = true)]
    Maintain(cmd::prune::Maintain),
    #[command(hide = true)]
    Finish(cmd::finish::Finish),
    Hook(cmd::hook::Hook),
    Install(cmd::install::Install),
    Uninstall(cmd::install::Uninstall),
    Doctor(cmd::doctor::Doctor),
    Verify(cmd::verify::Verify),
    Repair(cmd::repair::Repair),
}
