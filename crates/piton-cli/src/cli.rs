//! Global command-line arguments and the list of commands. The arguments of a command are defined in the command's
//! module.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches as _, Parser, Subcommand};
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
    Mark(cmd::mark::Mark),
    Unmark(cmd::mark::Unmark),
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

impl Cli {
    /// Parses the arguments of this process.
    ///
    /// Building the clap description of all commands takes longer than a hook that has nothing to do. The commands that
    /// agents call (`hook` and `take`) are therefore tried alone first. That parser accepts nothing that the full one
    /// rejects, and gives the same result; help and everything that it does not accept are left to the full parser.
    pub(crate) fn parse_quickly() -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        Self::parse_alone(&arguments).map_or_else(|| Self::try_parse_from(arguments), Ok)
    }

    /// Parses the arguments of a command that can be parsed alone. Returns `None` for all other commands, for invalid
    /// arguments and for help.
    fn parse_alone(arguments: &[OsString]) -> Option<Self> {
        let augment = |name: &str| match name {
            "hook" => Some(cmd::hook::Hook::augment_args(clap::Command::new("hook"))),
            "take" => Some(cmd::take::Take::augment_args(clap::Command::new("take"))),
            _ => None,
        };
        let alone = arguments.iter().skip(1).filter_map(|word| word.to_str()).find_map(augment)?;
        let root = clap::Command::new("piton").disable_help_flag(true).disable_help_subcommand(true);
        let parser = Global::augment_args(root).subcommand(alone.disable_help_flag(true));
        let mut matches = parser.try_get_matches_from(arguments).ok()?;
        Self::from_arg_matches_mut(&mut matches).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn parsed(cli: Option<&Cli>) -> String {
        format!("{cli:?}")
    }

    #[test]
    fn a_command_parsed_alone_is_as_parsed_among_all() {
        for line in [
            "piton hook claude",
            "piton --base /b -C /t hook claude PreToolUse --fail-closed",
            "piton hook -C/t claude --config=/c --checkpoints --surface chat",
            "piton hook -- claude",
            "piton -C hook hook claude",
            "piton hook take",
            "piton take --json",
            "piton -q take -C /t --base=/b",
            "piton take -v --no-color before the change",
            "piton -C take",
        ] {
            let arguments = words(line);
            let alone = Cli::parse_alone(&arguments);
            let whole = Cli::try_parse_from(&arguments).ok();
            assert!(alone.is_none() || parsed(alone.as_ref()) == parsed(whole.as_ref()), "{line}");
        }
        for line in ["piton --base /b -C /t hook claude", "piton take --json", "piton -C /t take --json"] {
            assert!(Cli::parse_alone(&words(line)).is_some(), "{line}");
        }
    }

    #[test]
    fn help_mistakes_and_other_commands_are_left_to_the_whole_parser() {
        for line in [
            "piton",
            "piton status",
            "piton hook",
            "piton hook --help",
            "piton take -h",
            "piton help take",
            "piton --version take",
            "piton restore take",
            "piton -C hook take",
            "piton take --no-such-option",
            "piton take -q -v",
        ] {
            assert!(Cli::parse_alone(&words(line)).is_none(), "{line}");
        }
    }
}
