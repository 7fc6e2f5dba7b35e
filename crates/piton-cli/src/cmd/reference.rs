//! Generates `docs/REFERENCE.md` from the definitions that the program itself uses.

use std::fmt::Write as _;

use clap::{Arg, Command};
use piton::Settings;

use crate::options::EXIT_CODES;

/// Tables of the keys that `--json` prints, by command: generated from the types that are printed. They are a stable
/// interface: keys may be added, but are never removed.
const KEYS: &str = include_str!("json_keys.md");

/// Commands that print what another command prints, or something else than a report.
const AS_ANOTHER: [(&str, &str); 12] = [
    ("rollback", "JSON with a checkpoint: as `restore`; with `diff`: as `diff`."),
    ("undo", "JSON: as `restore`."),
    ("redo", "JSON: as `restore`."),
    ("git undo", "JSON: as `git restore`."),
    ("remote key list", "JSON: as `remote key`."),
    ("remote key remove", "JSON: as `remote key rotate`."),
    ("unmark", "JSON: as `mark`."),
    ("clear-legacy", "JSON: as `clear`."),
    ("hook", "JSON: what the agent expects, with and without `--json`."),
    ("uninstall", "JSON: as `install`."),
    ("mcp", "JSON: the messages of the protocol, with and without `--json`."),
    ("serve", "JSON: the messages of the protocol, with and without `--json`."),
];

/// Returns the tables of keys of a command, without a line end at their end.
fn keys(command: &str) -> Option<String> {
    let heading = format!("# {command}\n");
    let table = KEYS.split("\n\n#").map(|section| format!("#{}", section.trim_start_matches('#')));
    let table = table.filter_map(|section| section.strip_prefix(&heading).map(|table| table.trim().to_owned())).next();
    let other = AS_ANOTHER.iter().find(|(name, _)| *name == command).map(|(_, text)| (*text).to_owned());
    let texts: Vec<_> = table.into_iter().chain(other).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

const INTRODUCTION: &str = "\
# Reference

Every command, as the program itself has it: this page is what `piton man --markdown` prints, and a test keeps it so.

Text is for people, `--json` is for programs: one line on stdout, with the keys that are named below. Keys may be added, but
none is removed. `docs/schema` has a JSON Schema of the output of each command. A path is text, in which bytes that are not UTF-8
are U+FFFD; its exact bytes are then in a second key, `path_bytes` beside `path`: printable ASCII, in which each other byte
and `%` are `%` and two hexadecimal digits. `--json` never asks: an operation that needs consent is declined. An
error is printed on stdout, with the same exit code as without `--json`.

Colours are there on a terminal only, and not with `--no-color`, `NO_COLOR` or `CLICOLOR=0`; `CLICOLOR_FORCE=1` has them
anywhere. Lines are cut to the width of a terminal; what goes to a file or a program is never cut.
";

/// Returns the whole page.
pub(crate) fn page(mut piton: Command) -> String {
    piton.build();
    let mut page = INTRODUCTION.to_owned();
    let _ = write!(page, "\n```text\n{EXIT_CODES}\n```\n");
    let _ = write!(page, "\n## Errors\n\n{}\n", keys("error").unwrap_or_default());
    let global: Vec<_> = piton.get_arguments().filter(|arg| arg.is_global_set() && !arg.is_hide_set()).collect();
    let _ = write!(page, "\n## Options of all commands\n\n{}", table(&global));
    let _ = write!(page, "\n## Settings\n\n{SETTINGS}\n{}", settings());
    for command in piton.get_subcommands() {
        section(&mut page, "", command);
    }
    page
}

const SETTINGS: &str = "\
Section `checkpoints:` of `~/.hermes/config.yaml`; the environment variable `PITON_<KEY>` goes before the file. `piton config`
shows the values in force and where each is from; `piton config set KEY VALUE` changes one.
";

/// Returns the table of settings with their defaults.
fn settings() -> String {
    let defaults = Settings::default();
    let rows =
        Settings::TABLE.iter().map(|row| format!("| `{}` | `{}` | {} |\n", row.key, defaults.get(row.key), row.help));
    format!("| key | default | configures |\n|---|---|---|\n{}", rows.collect::<String>())
}

fn section(page: &mut String, around: &str, command: &Command) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{around}{}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n## piton {name}\n\n{}.\n", about.trim_end_matches('.'));
    let aliases: Vec<_> = command.get_visible_aliases().map(|alias| format!("`piton {around}{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = write!(page, "\nAlso called {}.\n", aliases.join(", "));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = write!(page, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    let own = |arg: &&Arg| !arg.is_global_set() && !arg.is_hide_set() && arg.get_id() != "help";
    let own: Vec<_> = command.get_arguments().filter(own).collect();
    if !own.is_empty() {
        let _ = write!(page, "\n{}", table(&own));
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let after = after.replace(EXIT_CODES, "");
    if !after.trim().is_empty() {
        let _ = write!(page, "\n```text\n{}\n```\n", after.trim());
    }
    if let Some(keys) = keys(&name) {
        let _ = write!(
            page,
            "
{keys}
"
        );
    }
    for below in command.get_subcommands() {
        section(page, &format!("{name} "), below);
    }
}

fn table(args: &[&Arg]) -> String {
    let mut text = "| option | |\n|---|---|\n".to_owned();
    for arg in args {
        let names = [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
        let mut name = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let values = arg.get_value_names().unwrap_or_default().join(" ");
        if arg.get_action().takes_values() {
            let sign = if name.is_empty() { "" } else { " " };
            let _ = write!(name, "{sign}{values}");
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let choices = arg.get_possible_values();
        let choices: Vec<_> = choices.iter().map(|value| format!("`{}`", value.get_name())).collect();
        let choices = if choices.is_empty() || !arg.get_action().takes_values() || arg.is_hide_possible_values_set() {
            String::new()
        } else {
            format!(": {}", choices.join(", "))
        };
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default = if defaults.is_empty() || !arg.get_action().takes_values() {
            String::new()
        } else {
            format!(" [default: {}]", defaults.join(" "))
        };
        let line = format!("`{name}` \u{0} {help}{choices}{default}").replace('|', "\\|").replace('\u{0}', "|");
        let _ = writeln!(text, "| {line} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;
    use crate::columns;

    fn each(command: &Command, around: &str, visit: &mut dyn FnMut(&str, &Command)) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
            let name = format!("{around}{}", below.get_name());
            visit(&name, below);
            each(below, &format!("{name} "), visit);
        }
    }

    #[test]
    fn every_command_has_an_example_exit_codes_and_keys() {
        let mut piton = Cli::command();
        piton.build();
        each(&piton, "", &mut |name, command| {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Exit codes: "), "{name} names no exit codes");
            assert!(after.contains("Example"), "{name} has no example");
            assert!(after.contains(&format!("piton {name}")), "the example of {name} does not use it");
            let is_group = command.get_subcommands().next().is_some() && name != "config";
            assert!(is_group || keys(name).is_some(), "the JSON of {name} is not described");
            for line in after.lines() {
                assert!(columns::columns(line) <= 80, "{name}: {line}");
            }
        });
    }
}
