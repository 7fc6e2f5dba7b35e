//! The methods: every command of the command line that a program can use, with its options and arguments as parameters.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use clap::{Arg, ArgAction, Args as _, FromArgMatches as _, Subcommand as _};
use serde_json::Value;

use crate::cli::Command;
use crate::options::Global;
use crate::output::Failure;

/// Commands that are not methods, and the reason.
const NOT_OFFERED: [(&str, &str); 10] = [
    ("hook", "the method `event` takes what an agent reports"),
    ("install", "changes the configurations of agents"),
    ("uninstall", "changes the configurations of agents"),
    ("completions", "for shells"),
    ("man", "for people"),
    ("config", "settings belong to the user"),
    ("remote", "keys and credentials belong to the user"),
    ("serve", "it is this"),
    ("mcp", "another protocol"),
    ("help", "for people"),
];

/// Options that are not parameters, by command (`*`: every command), and the reason.
const NOT_PARAMETERS: [(&str, &str, &str); 14] = [
    ("*", "help", "for people"),
    ("*", "with-ignored", "contents outside the scope are shown on a terminal only"),
    ("*", "exec", "a program starts its own processes"),
    ("export", "tar", "an archive is not JSON"),
    ("push", "background", "started by piton itself"),
    ("revert", "patch", "chooses in the terminal; `hunk` names hunks"),
    ("rollback", "what", "`restore`, `diff` and `revert` are methods of their own"),
    ("rollback", "rest", "as `what`"),
    ("rollback", "dry-run", "as `what`"),
    ("rollback", "yes", "as `what`"),
    ("rollback", "force-uncovered", "as `what`"),
    ("rollback", "across-sessions", "as `what`"),
    ("rollback", "without-ignored", "as `what`"),
    ("rollback", "session", "as `what`"),
];

/// Methods with another name than their command. `list` is what the command prints without arguments.
const RENAMED: [(&str, &str); 1] = [("rollback", "list")];

/// Methods whose command reads stdin, and the parameter in place of it.
const INPUTS: [(&str, &str); 2] = [("session.write", "record"), ("session.update", "record")];

/// Ranges of numbers, by method and parameter, where it is not 0 or more. clap does not tell them.
const RANGES: [(&str, &str, RangeInclusive<u64>); 1] = [("doctor", "kills", 1..=1000)];

/// Advice after a parameter that does not fit.
pub(super) const PARAMETERS: &str = "`rpc.discover` returns the methods and their parameters";

/// A command as a method.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: String,
    /// First line of the command's help.
    pub(crate) summary: String,
    /// Words of the command: `session write`.
    pub(crate) words: Vec<String>,
    pub(crate) params: Vec<Param>,
    /// Name of the parameter that the command reads in place of stdin.
    pub(crate) input: Option<&'static str>,
    parser: Mutex<clap::Command>,
}

/// An option or argument as a parameter.
#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    /// Name of the option; arguments have one, too, so that their values cannot be mistaken for options.
    pub(crate) option: String,
    pub(crate) kind: ParamKind,
    pub(crate) is_list: bool,
    pub(crate) is_required: bool,
    pub(crate) help: String,
    pub(crate) default: Option<Value>,
    /// Range of a number, if it is not 0 or more.
    pub(crate) range: Option<RangeInclusive<u64>>,
}

/// Type of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParamKind {
    Flag,
    Number,
    Text,
    /// Number, id or mark of a checkpoint: a text or a number.
    Checkpoint,
    /// A path, with its exact bytes in a second parameter if they are not UTF-8.
    Path,
}

/// Returns all methods by name.
pub(crate) fn all() -> &'static BTreeMap<String, Method> {
    static ALL: OnceLock<BTreeMap<String, Method>> = OnceLock::new();
    ALL.get_or_init(|| {
        let piton = Command::augment_subcommands(clap::Command::new("piton"));
        let mut methods = BTreeMap::new();
        for command in piton.get_subcommands() {
            let name = command.get_name();
            if command.is_hide_set() || NOT_OFFERED.iter().any(|(other, _)| *other == name) {
                continue;
            }
            let inner: Vec<_> = command.get_subcommands().filter(|inner| inner.get_name() != "help").collect();
            let made: Vec<Method> = if inner.is_empty() {
                vec![Method::new(&[name], command)]
            } else {
                inner.into_iter().map(|inner| Method::new(&[name, inner.get_name()], inner)).collect()
            };
            methods.extend(made.into_iter().map(|method| (method.name.clone(), method)));
        }
        methods
    })
}

impl Method {
    fn new(words: &[&str], command: &clap::Command) -> Self {
        let own = words.join(".");
        let name = RENAMED.iter().find(|(from, _)| *from == own).map_or(own.clone(), |(_, to)| (*to).to_owned());
        let is_offered = |arg: &&Arg| {
            let option = option_of(arg);
            !NOT_PARAMETERS.iter().any(|(of, other, _)| (*of == own || *of == "*") && *other == option)
        };
        let params = command.get_arguments().filter(is_offered).map(|arg| Param::new(&own, arg)).collect();
        let mut parser = with_options_only(command.clone());
        for word in words[..words.len() - 1].iter().rev() {
            parser = clap::Command::new((*word).to_owned()).subcommand(parser).disable_help_subcommand(true);
        }
        let root = clap::Command::new("piton").disable_help_flag(true).disable_help_subcommand(true);
        let parser = Global::augment_args(root).subcommand(parser);
        let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
        let input = INPUTS.iter().find(|(of, _)| *of == name).map(|(_, input)| *input);
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self { name, summary, words, params, input, parser: Mutex::new(parser) }
    }

    /// Returns the command with these options.
    pub(crate) fn parse(&self, options: Vec<OsString>) -> Result<Command, Failure> {
        let line = ["piton", "--json"].into_iter().map(OsString::from);
        let line = line.chain(self.words.iter().map(OsString::from)).chain(options);
        let mut parser = self.parser.lock().unwrap_or_else(PoisonError::into_inner);
        let matches = parser.try_get_matches_from_mut(line);
        drop(parser);
        let refused = |error: clap::Error| Failure::new("usage", in_words(&error, &self.name), Some(PARAMETERS));
        Command::from_arg_matches(&matches.map_err(refused)?).map_err(refused)
    }
}

impl Param {
    fn new(method: &str, arg: &Arg) -> Self {
        let option = option_of(arg);
        let parser = arg.get_value_parser().type_id();
        let is = |one: TypeId| parser == one;
        let numbers = [TypeId::of::<u64>(), TypeId::of::<usize>(), TypeId::of::<u32>(), TypeId::of::<i64>()];
        let names_checkpoint =
            arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.starts_with("N|")));
        let kind = match arg.get_action() {
            ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count => ParamKind::Flag,
            _ if numbers.into_iter().any(is) => ParamKind::Number,
            _ if is(TypeId::of::<OsString>()) || is(TypeId::of::<PathBuf>()) => ParamKind::Path,
            _ if names_checkpoint => ParamKind::Checkpoint,
            _ => ParamKind::Text,
        };
        let default = arg.get_default_values().first().filter(|_| kind != ParamKind::Flag);
        let default =
            default.map(|value| value.to_string_lossy().into_owned()).map(|value| match value.parse::<u64>() {
                Ok(number) if kind == ParamKind::Number => number.into(),
                _ => Value::from(value),
            });
        let range = RANGES.iter().find(|(of, name, _)| *of == method && *name == option).map(|(_, _, range)| range);
        Self {
            name: option.replace('-', "_"),
            kind,
            is_list: matches!(arg.get_action(), ArgAction::Append),
            is_required: arg.is_required_set(),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            default,
            range: range.cloned(),
            option,
        }
    }
}

/// Returns the name of an option, or of an argument as an option.
fn option_of(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| arg.get_id().as_str().replace('_', "-"), str::to_owned)
}

/// Turns the arguments of a command into options, so that every value is given as `--name=value`: nothing that a program
/// sends is taken for an option, and `--` has no meaning.
fn with_options_only(command: clap::Command) -> clap::Command {
    let command = command.disable_help_flag(true).disable_help_subcommand(true);
    command.mut_args(|arg| {
        if !arg.is_positional() {
            return arg;
        }
        let option = option_of(&arg);
        arg.last(false).trailing_var_arg(false).long(option)
    })
}

/// Returns an error of clap in the words of a method: parameters, not options.
fn in_words(error: &clap::Error, method: &str) -> String {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let all = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![param_of(text)],
        Some(ContextValue::Strings(texts)) => texts.iter().map(|text| param_of(text)).collect(),
        _ => Vec::new(),
    };
    let one = |kind| all(kind).join(" and ");
    let param = one(ContextKind::InvalidArg);
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    match error.kind() {
        ErrorKind::MissingRequiredArgument => format!("cannot run `{method}` without {param}"),
        ErrorKind::ArgumentConflict => {
            format!("cannot run `{method}` with {param} together with {}", one(ContextKind::PriorArg))
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let why = std::error::Error::source(error).map_or_else(String::new, |why| format!(": {why}"));
            format!("cannot run `{method}`: {value:?} is not valid for {param}{why}")
        }
        kind => format!("cannot run `{method}`: {kind}"),
    }
}

/// Returns the name of the parameter in `--dry-run` or `--checkpoint <N|ID>`.
fn param_of(shown: &str) -> String {
    let name = shown.trim_start_matches('-').split([' ', '=', '<']).next().unwrap_or_default();
    format!("`{}`", name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_a_method_or_has_a_reason_not_to_be() {
        let piton = Command::augment_subcommands(clap::Command::new("piton"));
        for command in piton.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let is_method = all().values().any(|method| method.words[0] == name);
            let is_left_out = NOT_OFFERED.iter().any(|(other, _)| *other == name);
            assert!(is_method != is_left_out, "{name}");
        }
        for (of, option, _) in NOT_PARAMETERS.iter().filter(|(of, _, _)| *of != "*") {
            let method = all().values().find(|method| method.words[0] == *of).expect(of);
            assert!(method.params.iter().all(|param| param.option != *option), "{of} {option}");
        }
    }

    #[test]
    fn a_range_is_the_one_that_the_command_demands() {
        for (method, name, range) in RANGES {
            let parse = |number: u64| {
                let others = if method == "doctor" { vec!["--self-test=.".into()] } else { Vec::new() };
                let option = OsString::from(format!("--{name}={number}"));
                all()[method].parse(others.into_iter().chain([option]).collect()).is_ok()
            };
            let (start, end) = range.into_inner();
            assert!(parse(start) && parse(end) && !parse(start - 1) && !parse(end + 1), "{method} {name}");
        }
    }

    #[test]
    fn a_value_is_never_taken_for_an_option() {
        let parse = |method: &str, options: &[&str]| {
            all()[method].parse(options.iter().map(OsString::from).collect()).map(|command| format!("{command:?}"))
        };
        let search = parse("search", &["--text=--regex", "--paths=--all", "--paths=-"]).expect("valid");
        assert!(search.contains(r#"text: "--regex""#) && search.contains(r#"["--all", "-"]"#), "{search}");
        assert!(search.contains("regex: false") && search.contains("all: false"), "{search}");
        let diff = parse("diff", &["--from=2", "--paths=--"]).expect("valid");
        assert!(diff.contains(r#"from: "2""#) && diff.contains(r#"paths: ["--"]"#), "{diff}");
        let missing = parse("search", &[]).expect_err("no text").message;
        assert_eq!(missing, "cannot run `search` without `text`");
        let conflict = parse("restore", &["--checkpoint=1", "--continue"]).expect_err("two targets").message;
        assert!(conflict.contains("`continue`") && conflict.contains("`checkpoint`"), "{conflict}");
        let number = parse("turns", &["--limit=many"]).expect_err("no number").message;
        assert!(number.contains("`limit`"), "{number}");
    }
}
