//! Generates `docs/REFERENCE.md` from the definitions that the program itself uses.

use std::fmt::Write as _;

use clap::{Arg, Command};
use piton::Settings;

use crate::cli::EXIT_CODES;

/// Keys that `--json` prints, by command. They are a stable interface: keys may be added, but are never removed.
const JSON: [(&str, &str); 30] = [
    (
        "take",
        "`outcome` (`taken`, `unchanged`, `skipped`), `why` (null, `disabled`, `too_broad`, `already_this_turn`, `empty`, \
         `too_many_files`, `deadline`, `busy`, `being_completed`, `store_full`), `id`, `short_id`, `files`, `skipped` (a list of `path`, `why`, \
         `files`), `unprotected`, `lost` (the newest checkpoint, if another program deleted it, or null), `elapsed_ms`",
    ),
    (
        "rollback",
        "the list, complete unless `--limit` is given: an array of `number`, `id`, `short_id`, `time` (RFC 3339), `reason`, `files_changed`, `insertions`, \
         `deletions`, `agent`, `session`, `turn`, `kind` (`auto`, `manual`, `safety`), `incomplete`, `prompts` (newest first, a list of \
         `session`, `turn`, `agent`, `agent_version`, `prompt`, `time`). With a checkpoint: as `restore`; \
         with `diff`: as `diff`",
    ),
    (
        "diff",
        "`files_changed`, `insertions`, `deletions`, `files` (a list of `path`, `old_path`, `status`, `insertions`, \
         `deletions`, `binary`), `diff`",
    ),
    ("restore", RESTORE),
    ("undo", "as `restore`"),
    ("redo", "as `restore`"),
    (
        "show",
        "`number`, `id`, `short_id`, `time`, `reason`, `kind`, `agent`, `session`, `turn`, `incomplete`, `prompts` (as in `rollback`), `files`, `files_changed`, \
         `insertions`, `deletions`, `empty_dirs`, `skipped` (a list of `path`, `why`, `files`), `paths`",
    ),
    ("session write", "`id`, `outcome` (`written`, `declined`)"),
    ("session update", "`id`, `outcome` (`updated`, `declined`)"),
    ("session read", "`id`, `completed`, `automatic`, `record`; with `--resume`: `id`, `resume`"),
    ("session delete", "`id`, `deleted`"),
    ("session list", "`ids`"),
    ("session gc", "`removed`, `damaged` (a list of `id`, `file`, `why`), `removed_damaged`"),
    (
        "status",
        "`base`, `store_size_bytes`, `legacy_size_bytes`, `total_size_bytes`, `reclaimable_bytes`, `project_count`, \
         `projects` (a list of `hash`, `workdir`, `exists`, `presence`, `created_at`, `last_touch`, `commits`, \
         `bytes_alone`, `restore_command` (null, or the command that makes a deleted directory again)), \
         `legacy_archives` (a list of `name`, `size_bytes`, `mtime`), `problems` (a list of `what`, `hint`), \
         `unprotected` (a list of `time`, `agent`, `session`, `turn`, `project`, `why`); with `--ack`: `acknowledged`",
    ),
    (
        "prune",
        "`scanned`, `deleted_orphan`, `deleted_stale`, `errors`, `bytes_freed`, `deleted_archives`, \
         `dropped_checkpoints`, `problems`, `dropped` (a list of `name`, `why`); with `--dry-run`: `dry_run`, `scanned`, `deleted_orphan`, `deleted_stale`, \
         `errors`, `bytes_freed`, `drops` (a list of `what`, `name`, `why`), `over_size`",
    ),
    ("clear", "`bytes_freed`"),
    ("clear-legacy", "`bytes_freed`"),
    (
        "purge",
        "`paths`, `gone`, `rewritten` (a list of `old`, `new`), `still_held` (a list of `id`, `place`), `bytes_freed`; \
         with `--dry-run`: `dry_run`, `checkpoints`, `paths`; with `--prompt`: `dry_run`, `session`, `turn`",
    ),
    ("verify", "`whole`, `stopped`, `checked` (`packs`, `objects`, `checkpoints`, `bytes`), `findings`"),
    ("repair", "`dry_run`, `whole`, `steps`, `healed`, `lost`, `moved_aside`, `findings`"),
    ("config", "`file`, `settings` (by name: `value`, `source`)"),
    ("config get", "`key`, `value`"),
    ("config set", "`key`, `value`, `file`, `changed`"),
    ("config init", "`file`"),
    ("completions", "`script`"),
    ("man", "`page`; with `--dir`: `dir`"),
    ("hook", "what the agent expects, with and without `--json`"),
    ("install", INSTALL),
    ("uninstall", "as `install`"),
    (
        "doctor",
        "`ok`, `agents` (a list of `agent`, `found`, `installed`, `trusted`, `fired`, `last_event`, `unprotected_turns`, \
         `problems`), `problems` (a list of `what`, `hint`)",
    ),
];

const RESTORE: &str = "\
`outcome` (`restored`, `partly`, `nothing_to_do`), `id`, `safety_id`, `written`, `removed`, `left` (a list of `path`, `why`, `reason`), \
`rewind` (null or `session`, `turn`), `record`, `moved_aside` (a list of `path`, `name`), `modes` (how many changed), \
`made_dirs`, `removed_dirs`, `rules` (`files`, `rescoped`, `cut_short`: what restored ignore rules brought into scope), \
`can_undo`, `written_paths`, `removed_paths`; \
with `--dry-run`: `dry_run`, `outcome`, `id`, `safety_id`, `written`, `removed`, `rewind`, `write`, `remove`, `mode`, \
`make_dirs`, `drop_dirs`, `left`, `moved_aside`, `rules`, \
`other_sessions` (a list of `session`, `agent`, `last_active`, `checkpoints`, `paths`)";

const INSTALL: &str = "\
`dry_run`, `enabled` (turned on), `disabled` (put back), `agents` (a list of `agent`, `outcome` (`installed`, `updated`, `unchanged`, `removed`, `absent`), \
`files` (a list of `path`, `change`, `copy`), `left` (a list of `what`, `why`), `todo`), `diff`";

const INTRODUCTION: &str = "\
# Reference

Every command, as the program itself has it: this page is what `piton man --markdown` prints, and a test keeps it so.

Text is for people, `--json` is for programs: one line on stdout, with the keys that are named below. More may follow, none
goes away. An error is `{\"error\": {\"kind\", \"message\", \"hint\"}}` on stdout, with the same exit code as without
`--json`; `kind` is one of `usage`, `invalid`, `not_found`, `ambiguous`, `busy`, `damaged`, `not_ours`, `full`, `io`,
`stopped`, `needs_consent`, `declined`, `other`. Nothing is asked then: what would have to be agreed to is declined.

Colours are there on a terminal only, and not with `--no-color`, `NO_COLOR` or `CLICOLOR=0`; `CLICOLOR_FORCE=1` has them
anywhere. Lines are cut to the width of a terminal; what goes to a file or a program is never cut.
";

/// Returns the whole page.
pub(crate) fn page(mut piton: Command) -> String {
    piton.build();
    let mut page = INTRODUCTION.to_owned();
    let _ = write!(page, "\n```text\n{EXIT_CODES}\n```\n");
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
    let keys = JSON.iter().find(|(command, _)| *command == name);
    if let Some((_, keys)) = keys {
        let _ = write!(page, "\nJSON: {keys}.\n");
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
            assert!(is_group || JSON.iter().any(|(known, _)| *known == name), "the JSON of {name} is not described");
            for line in after.lines() {
                assert!(columns::columns(line) <= 80, "{name}: {line}");
            }
        });
    }
}
