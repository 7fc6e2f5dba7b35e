//! The command line: the list of commands. The arguments of a command are defined in the command's module.

use std::ffi::OsString;

use clap::{Args, FromArgMatches as _, Parser, Subcommand};

use crate::cmd;
use crate::options::{EXIT_CODES, Global};

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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Take(cmd::take::Take),
    Rollback(cmd::rollback::Rollback),
    Diff(cmd::diff::DiffArgs),
    Restore(cmd::restore::RestoreArgs),
    Rewind(cmd::rewind::Rewind),
    Revert(cmd::revert::RevertArgs),
    Undo(cmd::restore::Undo),
    Redo(cmd::restore::Redo),
    Show(cmd::show::Show),
    Log(cmd::log::Log),
    Blame(cmd::blame::Blame),
    Search(cmd::search::Search),
    Recover(cmd::recover::Recover),
    Git(cmd::git::Git),
    Cat(cmd::cat::Cat),
    Export(cmd::export::ExportArgs),
    Turns(cmd::turns::Turns),
    Mark(cmd::mark::Mark),
    Unmark(cmd::mark::Unmark),
    Session(cmd::session::Session),
    Remote(cmd::remote::RemoteArgs),
    Push(cmd::push::Push),
    Fetch(cmd::push::Fetch),
    Machines(cmd::machines::Machines),
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
    Serve(cmd::serve::Serve),
    Mcp(cmd::mcp::Mcp),
    Verify(cmd::verify::Verify),
    Repair(cmd::repair::Repair),
}

impl Cli {
    /// Parses the arguments of this process.
    ///
    /// Building the clap description of all commands takes longer than a hook that has nothing to do. The commands that are
    /// called most are therefore tried alone first. That parser accepts nothing that the full one rejects, and gives the
    /// same result; help and everything that it does not accept are left to the full parser.
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
            "rollback" => Some(cmd::rollback::Rollback::augment_args(clap::Command::new("rollback"))),
            "restore" => Some(cmd::restore::RestoreArgs::augment_args(clap::Command::new("restore"))),
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
            "piton rollback",
            "piton rollback diff 2 -- a",
            "piton --json rollback --limit 3",
            "piton restore take",
            "piton restore 2 src --dry-run",
            "piton restore --continue",
        ] {
            let arguments = words(line);
            let alone = Cli::parse_alone(&arguments);
            let whole = Cli::try_parse_from(&arguments).ok();
            assert!(alone.is_none() || parsed(alone.as_ref()) == parsed(whole.as_ref()), "{line}");
        }
        for line in [
            "piton --base /b -C /t hook claude",
            "piton take --json",
            "piton -C /t take --json",
            "piton rollback",
            "piton restore 1",
        ] {
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
            "piton undo take",
            "piton -C hook take",
            "piton take --no-such-option",
            "piton rollback -h",
            "piton restore 1 --continue --abort",
            "piton take -q -v",
        ] {
            assert!(Cli::parse_alone(&words(line)).is_none(), "{line}");
        }
    }
}
