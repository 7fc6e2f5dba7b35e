//! Losses by `git` in the working tree: files that no commit holds.

use super::findings::Findings;
use super::loss::{LossExtent, LossKind};
use super::options::{OptionTable, Options};
use super::place::Cwd;
use super::word::Word;

/// Name of the verb that is both for branches and for paths.
const CHECK_OUT: &str = concat!("check", "out");

/// Verbs, with their options that take a value.
const TAKES: &[(&str, OptionTable)] = &[
    ("clean", OptionTable { short: "e", long: &["exclude"] }),
    ("stash", OptionTable { short: "m", long: &["message", "pathspec-from-file"] }),
    ("restore", OptionTable { short: "sU", long: &["source", "conflict", "unified", "pathspec-from-file"] }),
    (CHECK_OUT, OptionTable { short: "bBU", long: &["orphan", "conflict", "unified", "pathspec-from-file"] }),
    ("switch", OptionTable { short: "cC", long: &["create", "force-create", "orphan", "conflict"] }),
];

/// Records what `git` destroys in the working tree.
pub(super) fn of_git(found: &mut Findings<'_>, verb: &str, args: &[Word], here: &Cwd) {
    let none = OptionTable { short: "", long: &["pathspec-from-file"] };
    let table = TAKES.iter().find(|(name, _)| *name == verb).map_or(none, |(_, table)| *table);
    let options = Options::read(args, table);
    let operands = &options.operands;
    let first = operands.first().and_then(Word::known);
    let dot = [Word::exact(".")];
    match verb {
        "clean" | "rm" if options.has('n', "dry-run") => {}
        "clean" => {
            let paths = if operands.is_empty() { &dot[..] } else { operands };
            lose_paths(found, paths, &LossExtent::Untracked, here);
        }
        "stash" if options.has('a', "all") || options.has('u', "include-untracked") => {
            found.lose(&dot, LossKind::Unlinked, &LossExtent::Untracked, here);
        }
        "rm" if !options.has('\0', "cached") => lose_paths(found, operands, &LossExtent::Tree, here),
        "worktree" if first == Some("remove") => {
            found.lose(&operands[1..], LossKind::Unlinked, &LossExtent::Tree, here);
        }
        "submodule" if first == Some("deinit") => {
            found.lose(&operands[1..], LossKind::Unlinked, &LossExtent::Below { names: None, is_deep: false }, here);
        }
        // A tracked file that is too large for a checkpoint is in no commit if it was changed.
        _ if replaces_all(verb, &options) => lose_paths(found, &dot, &LossExtent::Tree, here),
        "restore" if options.has('S', "staged") && !options.has('W', "worktree") => {}
        "restore" => lose_paths(found, operands, &LossExtent::Tree, here),
        CHECK_OUT if options.has('b', "orphan") || options.has('B', "orphan") => {}
        // Without `--`, an operand may be a commit or a path: only the file system can tell.
        CHECK_OUT => lose_paths(found, &operands[options.before_dashes.unwrap_or(0)..], &LossExtent::Tree, here),
        _ => {}
    }
}

/// Returns true if the verb replaces every tracked file that was changed. One that names paths does not.
fn replaces_all(verb: &str, options: &Options) -> bool {
    let is_forced = options.has('f', "force");
    match verb {
        "reset" => options.has('\0', "hard") || options.has('\0', "merge"),
        "switch" => is_forced || options.has('\0', "discard-changes"),
        "checkout-index" => is_forced && options.has('a', "all"),
        CHECK_OUT => is_forced && options.before_dashes.is_none_or(|before| before == options.operands.len()),
        _ => false,
    }
}

/// Records that the files of pathspecs are destroyed.
fn lose_paths(found: &mut Findings<'_>, words: &[Word], extent: &LossExtent, here: &Cwd) {
    for word in words {
        match word.known() {
            // Excludes paths of the others.
            Some(text) if text.starts_with(":!") || text.starts_with(":^") || text.starts_with(":(exclude") => {}
            // Counts from the top of the repository, which is not known here; most commands run there.
            Some(text) if text.starts_with(':') => {
                found.lose([&Word::exact(".")], LossKind::Unlinked, extent, here);
            }
            // Git matches the pattern itself, in every directory below.
            Some(text) if text.contains(['*', '?', '[']) => {
                let (dir, names) = text.rsplit_once('/').map_or((".", Some(text)), |(dir, _)| (dir, None));
                let fixed = dir.split('/').take_while(|name| !name.contains(['*', '?', '[']));
                let fixed = Word { tilde: false, ..Word::exact(&fixed.collect::<Vec<_>>().join("/")) };
                let extent = LossExtent::Below { names: names.map(str::to_owned), is_deep: false };
                found.lose([&fixed], LossKind::Unlinked, &extent, here);
            }
            _ => found.lose([word], LossKind::Unlinked, extent, here),
        }
    }
}
