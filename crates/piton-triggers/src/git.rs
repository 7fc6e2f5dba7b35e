//! `git`: verbs that only read, those that destroy files or git state, and the directories that they change.

use super::findings::Findings;
use super::harmless::options_avoid;
use super::losses_git;
use super::place::Cwd;
use super::word::Word;

/// Verbs that leave the working tree alone with any arguments, except for options that name an output file or a
/// program. `fetch` changes only what is inside `.git`.
const READS: &[&str] = &[
    "status",
    "log",
    "diff",
    "show",
    "rev-parse",
    "ls-files",
    "ls-tree",
    "ls-remote",
    "blame",
    "annotate",
    "grep",
    "describe",
    "rev-list",
    "shortlog",
    "cat-file",
    "name-rev",
    "merge-base",
    "for-each-ref",
    "show-ref",
    "show-branch",
    "diff-tree",
    "diff-index",
    "diff-files",
    "var",
    "version",
    "help",
    "count-objects",
    "check-ignore",
    "check-attr",
    "check-ref-format",
    "check-mailmap",
    "whatchanged",
    "cherry",
    "range-diff",
    "verify-commit",
    "verify-tag",
    "fetch",
    "get-tar-commit-id",
    "patch-id",
];

/// Long options of those verbs that write a file or run a program.
const WRITES: &[&str] = &["output", "output-directory", "open-files-in-pager", "upload-pack", "exec", "ext-diff"];

/// Settings for `-c` that start no program.
const SETTINGS: &[&str] = &["color.", "advice.", "user.", "core.quotepath", "core.abbrev", "diff.renames", "log.date"];

/// Verbs that change something and keep what was there: neither files nor commits are lost. `branch` and `tag` do, unless
/// they delete or force.
const KEEPS: &[&str] = &[
    "add",
    "archive",
    "branch",
    "bundle",
    "clone",
    "commit",
    "commit-tree",
    "config",
    "format-patch",
    "hash-object",
    "init",
    "mktree",
    "push",
    "stage",
    "tag",
    "write-tree",
];

/// Verbs whose operands may name a path outside the current directory.
const PLACES: &[&str] = &["clone", "init", "worktree", "submodule"];

pub(super) fn run(found: &mut Findings<'_>, args: &[Word], cwd: &Cwd) {
    let mut here = cwd.clone();
    let mut unsure = false;
    let mut at = 0;
    while let Some(word) = args.get(at).filter(|word| word.maybe_option()) {
        at += 1;
        let text = word.text.as_str();
        match text {
            "-C" => {
                if let Some(dir) = args.get(at) {
                    here = here.moved(dir, found.home);
                }
                at += 1;
            }
            "-c" => {
                unsure |= !args.get(at).is_some_and(setting_is_plain);
                at += 1;
            }
            "--no-pager"
            | "-P"
            | "-p"
            | "--paginate"
            | "--no-optional-locks"
            | "--literal-pathspecs"
            | "--bare"
            | "--no-replace-objects" => {}
            "--version" | "--help" | "-v" | "-h" if !word.open => return,
            "--git-dir" | "--work-tree" | "--namespace" => {
                place(found, text, args.get(at), &here);
                at += 1;
            }
            _ if text.starts_with("--git-dir=") || text.starts_with("--work-tree=") => {
                let value = text.split_once('=').map_or("", |(_, value)| value);
                place(found, text, Some(&Word { text: value.into(), ..word.clone() }), &here);
            }
            _ => unsure = true,
        }
    }
    let Some(verb) = args.get(at) else {
        if unsure {
            found.mark(&here);
        }
        return;
    };
    let rest = &args[at + 1..];
    if !unsure && verb.known().is_some_and(|verb| reads(verb, rest)) {
        return;
    }
    let is_forced = |word: &Word| {
        let text = word.text.as_str();
        let is_short = text.starts_with('-') && !text.starts_with("--") && text.contains(['d', 'D', 'f', 'M', 'C']);
        is_short || ["--delete", "--force"].iter().any(|long| text.starts_with(long))
    };
    let may_force = matches!(verb.text.as_str(), "branch" | "tag");
    let keeps = verb.known().is_some_and(|verb| KEEPS.contains(&verb)) && !(may_force && rest.iter().any(is_forced));
    found.destroys |= !keeps;
    found.mark(&here);
    losses_git::of_git(found, &verb.text, rest, &here);
    if PLACES.contains(&verb.text.as_str()) {
        let operands = rest.iter().filter(|word| !word.maybe_option() && !word.text.contains(':'));
        operands.for_each(|word| found.mark_target(word, &here));
    }
}

/// Handles the option for a working tree elsewhere. Its directory is added only if something in the command changes
/// files.
fn place(found: &mut Findings<'_>, option: &str, dir: Option<&Word>, cwd: &Cwd) {
    if let Some(dir) = dir.filter(|_| option.starts_with("--work-tree")) {
        let text = format!("{}/", dir.text.trim_end_matches('/'));
        found.hint(Word { text: text.clone(), full: text, ..dir.clone() }, cwd);
        found.guessing = true;
    }
}

fn setting_is_plain(word: &Word) -> bool {
    let text = word.text.to_lowercase();
    let pager = matches!(word.known(), Some("core.pager=cat" | "core.pager=less" | "core.pager="));
    pager || SETTINGS.iter().any(|start| text.starts_with(start))
}

/// Returns true if the option is followed by the name of one branch and nothing else.
fn names_one_branch(args: &[Word]) -> bool {
    matches!(args, [_, name] if !name.splits && !name.maybe_option() && name.known().is_some())
}

/// Returns true if a verb with these arguments leaves files alone.
fn reads(verb: &str, args: &[Word]) -> bool {
    let first = args.first().and_then(Word::known).unwrap_or("");
    let none = args.is_empty();
    let operands = args.iter().filter(|word| !word.text.starts_with('-')).count();
    let has = |names: &[&str]| {
        args.iter().any(|word| names.iter().any(|name| word.known().is_some_and(|text| text.starts_with(name))))
    };
    let avoids = |bad: &str, bad_long: &[&str]| options_avoid(args, bad, "", bad_long, usize::MAX);
    match verb {
        _ if READS.contains(&verb) => avoids(if verb == "grep" { "O" } else { "" }, WRITES),
        "branch" => {
            let lists = ["--list", "-l", "--contains", "--merged", "--no-merged", "--points-at", "--show-current"];
            (operands == 0 || has(&lists))
                && avoids("dDmMcCfut", &["delete", "move", "copy", "force", "set-upstream-to", "unset-upstream"])
                && avoids("", &["edit-description", "track", "create-reflog"])
        }
        "tag" => {
            (none || has(&["-l", "--list", "-n", "--contains", "--points-at", "--merged"]))
                && avoids("dfasumFe", &["delete", "force", "annotate", "sign", "local-user", "message", "file", "edit"])
        }
        "remote" => none || first == "-v" && operands == 0 || matches!(first, "show" | "get-url"),
        "config" => {
            let asks = ["--get", "--list", "-l"].iter().any(|name| has(&[name])) || matches!(first, "get" | "list");
            let writes = has(&["--unset", "--add", "--replace", "--remove", "--rename", "-e", "--edit", "--file"]);
            !writes && args.iter().all(|word| !word.splits) && (asks || (operands == 1 && args.len() == 1))
        }
        // Creates a branch at the same commit: no file changes.
        _ if verb == concat!("check", "out") => first == "-b" && names_one_branch(args),
        "switch" => matches!(first, "-c" | "--create") && names_one_branch(args),
        "stash" => matches!(first, "list" | "show") && avoids("", WRITES),
        "worktree" | "sparse-checkout" => first == "list",
        "submodule" => matches!(first, "status" | "summary"),
        "notes" => none || matches!(first, "list" | "show"),
        "reflog" => none || (matches!(first, "show" | "list" | "exists") && avoids("", WRITES)),
        "bisect" => first == "log",
        "bundle" => matches!(first, "verify" | "list-heads"),
        "symbolic-ref" => operands == 1 && avoids("dm", &["delete"]),
        "hash-object" => avoids("w", &[]),
        _ => false,
    }
}
