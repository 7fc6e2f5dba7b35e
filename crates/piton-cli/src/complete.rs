//! Completion for shells. Nothing is changed, and an error yields no candidates.
//!
//! The name of an argument's value decides its candidates, so that a new command gets them without further work.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Arg, ArgMatches, CommandFactory as _, FromArgMatches as _};
use clap_complete::engine::{CompletionCandidate, ValueCompleter};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, PathCompleter};
use piton::{Checkpoint, History, Project, Store};

use crate::agents::Agent;
use crate::cli::Cli;
use crate::context::{ConfigPolicy, Context};
use crate::options::Global;
use crate::output::{Output, local, plain};
use crate::platform;
use crate::shell;

/// Maximum number of paths to search, because the user is waiting for the completion.
const PATHS_MAX: usize = 200_000;

/// Returns the description of the command line, with candidates for the arguments.
pub(crate) fn command() -> clap::Command {
    let piton = Cli::command().mut_arg("dir", |dir| dir.add(ArgValueCompleter::new(projects)));
    piton.mut_subcommands(completed)
}

/// Adds candidates to the arguments of a command and of the commands in it.
fn completed(command: clap::Command) -> clap::Command {
    let name = command.get_name().to_owned();
    command.mut_args(|argument| with_candidates(&name, argument)).mut_subcommands(completed)
}

/// Adds candidates to an argument of a command, if there are any.
fn with_candidates(command: &str, argument: Arg) -> Arg {
    let value = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match (command, argument.get_id().as_str(), value.as_deref()) {
        ("hook", "agent", _) => argument.add(ArgValueCandidates::new(agents)),
        ("unmark", "name", _) => argument.add(ArgValueCandidates::new(marks)),
        ("rollback", "rest", _) => argument.add(ArgValueCompleter::new(after_rollback)),
        ("diff", "from" | "to", _) => argument.add(ArgValueCompleter::new(checkpoints_or_paths)),
        (_, _, Some("N|ID" | "N|ID|TURN")) => argument.add(ArgValueCandidates::new(checkpoints)),
        (_, _, Some("PATH")) => argument.add(ArgValueCompleter::new(paths)),
        (_, _, Some("FILE")) if argument.is_positional() => argument.add(ArgValueCompleter::new(paths)),
        _ => argument,
    }
}

/// Returns the checkpoints of the project: numbers, with id, time and reason as help.
fn checkpoints() -> Vec<CompletionCandidate> {
    let list = Line::read().place().map(|(_, _, history)| history.rows().cloned().collect::<Vec<_>>());
    let candidate = |(at, checkpoint): (usize, Checkpoint)| {
        let help = format!(
            "{}  {}  {}",
            checkpoint.id.short(),
            local(checkpoint.time).date_and_time(),
            plain(&checkpoint.headline())
        );
        CompletionCandidate::new((at + 1).to_string()).help(Some(help.into())).display_order(Some(at))
    };
    list.unwrap_or_default().into_iter().enumerate().map(candidate).chain(marks()).collect()
}

/// Returns the marks of the project.
fn marks() -> Vec<CompletionCandidate> {
    let history = Line::read().place().map(|(_, _, history)| history);
    let marks = history.iter().flat_map(History::checkpoints).flat_map(|one| &one.marks);
    marks.map(CompletionCandidate::new).collect()
}

fn checkpoints_from(typed: &OsStr) -> Vec<CompletionCandidate> {
    let starts = |one: &CompletionCandidate| one.get_value().as_encoded_bytes().starts_with(typed.as_encoded_bytes());
    checkpoints().into_iter().filter(starts).collect()
}

/// Returns paths below the project: from the checkpoint that the line names, or else from all of them, and from the
/// disk.
fn paths(current: &OsStr) -> Vec<CompletionCandidate> {
    let line = Line::read();
    let Some((_, project, history)) = line.place() else { return Vec::new() };
    let named = line.words().iter().find_map(|word| history.find(word.to_str()?).ok());
    let wanted = named.map_or(history.checkpoints(), std::slice::from_ref);
    let (mut found, mut seen) = (BTreeSet::new(), 0);
    let typed = current.as_encoded_bytes();
    for checkpoint in wanted {
        let files = history.files(checkpoint).unwrap_or_default();
        seen += files.len();
        for file in files.iter().filter(|file| file.starts_with(typed)) {
            let more = file[typed.len()..].iter().position(|byte| *byte == b'/');
            found.insert(file[..more.map_or(file.len(), |at| typed.len() + at + 1)].to_vec());
        }
        if seen > PATHS_MAX {
            break;
        }
    }
    let there = PathCompleter::any().current_dir(project.dir()).complete(current);
    let new = there.into_iter().filter(|one| !found.contains(one.get_value().as_encoded_bytes())).collect::<Vec<_>>();
    found.into_iter().map(|path| CompletionCandidate::new(platform::name_from_bytes(path))).chain(new).collect()
}

/// Returns candidates for the words after the first one of `rollback`: a checkpoint after `diff` and
/// `revert`, otherwise paths.
fn after_rollback(current: &OsStr) -> Vec<CompletionCandidate> {
    match &Line::read().words()[..] {
        [what] if what == "diff" || what == "revert" => checkpoints_from(current),
        _ => paths(current),
    }
}

/// Returns checkpoints to compare; after `--`, paths.
fn checkpoints_or_paths(current: &OsStr) -> Vec<CompletionCandidate> {
    if Line::read().is_escaped { paths(current) } else { checkpoints_from(current) }
}

/// Returns the directories of known projects, and those on the disk.
fn projects(current: &OsStr) -> Vec<CompletionCandidate> {
    let known = Line::read().context().and_then(|context| {
        let store = context.existing_store().ok()??;
        Some(store.known_projects().ok()?.iter().filter_map(|id| store.dir_of(id)).collect::<Vec<_>>())
    });
    let typed = in_full(current.to_owned());
    let known = known.unwrap_or_default().into_iter().filter(|dir| dir.is_dir());
    let known = known.filter(|dir| dir.as_os_str().as_encoded_bytes().starts_with(typed.as_encoded_bytes()));
    let known = known.map(|dir| CompletionCandidate::new(dir).help(Some("project".into())));
    PathCompleter::dir().complete(current).into_iter().chain(known).collect()
}

/// Returns the names of the agents that can call a hook.
fn agents() -> Vec<CompletionCandidate> {
    Agent::all().map(|agent| CompletionCandidate::new(agent.name)).collect()
}

/// The command line before the word to complete.
struct Line {
    /// `None` if it cannot be parsed.
    matches: Option<ArgMatches>,
    global: Global,
    /// True after `--`: the next word is not an option.
    is_escaped: bool,
}

impl Line {
    /// Reads the words after `--` as they were typed. The shell passes the index of the word to complete; the default
    /// is the last one.
    fn read() -> Self {
        let mut words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
        let index = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse().ok());
        words.truncate(index.unwrap_or(words.len().saturating_sub(1)));
        let is_escaped = words.iter().any(|word| word == "--");
        let matches = Cli::command().ignore_errors(true).try_get_matches_from(words.into_iter().map(in_full)).ok();
        let global = matches.as_ref().and_then(|matches| Global::from_arg_matches(matches).ok()).unwrap_or_default();
        Self { matches, global, is_escaped }
    }

    /// Returns the positional arguments of the command.
    fn words(&self) -> Vec<OsString> {
        let Some((_, command)) = self.matches.as_ref().and_then(ArgMatches::subcommand) else { return Vec::new() };
        let of = |name: &str| command.try_get_raw(name).ok().flatten().into_iter().flatten().map(OsStr::to_owned);
        ["what", "checkpoint", "from", "rest"].into_iter().flat_map(of).collect()
    }

    fn context(&self) -> Option<Context> {
        let output = Output::new(&Global { quiet: true, ..Global::default() });
        Context::build(&self.global, ConfigPolicy::Collect(&output)).ok()
    }

    fn place(&self) -> Option<(Store, Project, History)> {
        let context = self.context()?;
        let store = context.existing_store().ok()??;
        let project = context.project(Some(&store)).ok()?;
        let history = History::of(&store, &project).ok()?;
        Some((store, project, history))
    }
}

/// Returns a word as the shell would pass it: without quotes, and with `~` expanded.
fn in_full(word: OsString) -> OsString {
    let tail = word.to_str().and_then(|word| word.strip_prefix("~/").map(str::to_owned));
    let plain = |word: &str| match shell::words(word)?.as_slice() {
        [word] => Some(OsString::from(word)),
        _ => None,
    };
    match (tail, Context::home()) {
        (Some(tail), Some(home)) => home.join(plain(&tail).map_or_else(|| PathBuf::from(&tail), PathBuf::from)).into(),
        _ => word.to_str().and_then(plain).unwrap_or(word),
    }
}
