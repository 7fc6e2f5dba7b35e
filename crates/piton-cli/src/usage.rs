//! Messages for usage errors: the problem, its reason and a hint.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Returns the message and the hint for an error of the argument parser. `piton` describes the command line.
pub(crate) fn in_words(error: &clap::Error, piton: clap::Command) -> (String, String) {
    let command = command(piton);
    let all = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    let one = |kind| all(kind).join(" and ");
    let argument = one(ContextKind::InvalidArg).replace("...", "");
    let value = one(ContextKind::InvalidValue);
    let what = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            format!("cannot run `{command} {}`: there is no such command", one(ContextKind::InvalidSubcommand))
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            format!("cannot use {argument}: there is no such option")
        }
        ErrorKind::UnknownArgument => format!("cannot use {argument:?}: `{command}` takes no more words"),
        ErrorKind::InvalidValue => match (value.as_str(), all(ContextKind::ValidValue).join(", ").as_str()) {
            ("", "") => format!("cannot use {argument} alone: it needs a value"),
            (value, valid) => format!("cannot use {value:?} for {argument}: it must be one of {valid}"),
        },
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map_or_else(String::new, |why| format!(": {}", reason(why)));
            format!("cannot use {value:?} for {argument}{why}")
        }
        ErrorKind::TooManyValues => format!("cannot use {value:?} for {argument}: it takes no value"),
        ErrorKind::MissingRequiredArgument => format!("cannot run `{command}` without {argument}"),
        ErrorKind::ArgumentConflict => match one(ContextKind::PriorArg) {
            prior if prior.is_empty() || prior == argument => format!("cannot use {argument} more than once"),
            prior => format!("cannot use {argument} together with {prior}"),
        },
        _ => {
            let text = error.render().to_string();
            let lines = text.trim_start_matches("error: ").lines().take_while(|line| !line.is_empty());
            format!("cannot read the command line: {}", lines.map(str::trim).collect::<Vec<_>>().join(" "))
        }
    };
    let suggested = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let suggested = suggested.into_iter().flat_map(all).map(|word| format!("`{word}`")).collect::<Vec<_>>();
    let meant = if suggested.is_empty() { String::new() } else { format!("did you mean {}? ", suggested.join(" or ")) };
    (what, format!("{meant}`{command} --help` shows the usage"))
}

/// Returns the reason why a value is refused. For numbers, the text of the standard library is replaced by a simpler
/// one.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    match error.downcast_ref::<std::num::ParseIntError>().map(std::num::ParseIntError::kind) {
        Some(PosOverflow) => "the number is too large".to_owned(),
        Some(NegOverflow) => "the number is too small".to_owned(),
        Some(_) => "it must be a whole number, 0 or more".to_owned(),
        None => error.to_string(),
    }
}

/// Returns the command that was meant, as far as the arguments tell.
fn command(mut command: clap::Command) -> String {
    let mut names = vec![command.get_name().to_owned()];
    for word in std::env::args_os().skip(1) {
        if let Some(inner) = command.find_subcommand(&word).cloned() {
            names.push(inner.get_name().to_owned());
            command = inner;
        }
    }
    names.join(" ")
}
