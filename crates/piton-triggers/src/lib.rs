//! Analysis of shell commands: decides if they may change files, and in which directories.
//!
//! Before an agent runs a command, [`analyse`] decides if a checkpoint is due and for which directories. The command is
//! parsed as a shell would parse it, and every command in it is analysed: behind wrappers, in substitutions, loops,
//! functions and text that is evaluated again.
//!
//! - A1. A command is harmless only if all of its parts are known to be: there is a closed list of programs, including
//!   options. Input that cannot be parsed, exceeds a limit or is unknown counts as changing.
//! - A2. The work is bounded: length, nesting and the bytes given to the parser are limited, and the stack is large
//!   enough for the deepest input within those limits.
//! - A3. A changing command has at least one directory; the fallback is the one that it runs in.
//!
//! Nothing is read: no files, no environment, no clock. So symbolic links are not followed, aliases and functions of
//! the user's own shell are unknown, a name means the program that it usually means, and the values of variables and
//! the output of other programs are not guessed. This guards against accidents; it is not a sandbox.

mod findings;
mod git;
mod harmless;
mod heredoc;
mod limits;
mod loss;
mod losses;
mod losses_git;
mod options;
mod parse;
mod parts;
mod place;
mod runs;
mod scripts;
mod targets;
mod tools;
mod vars;
mod walk;
mod word;
mod wrappers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;

use findings::Findings;
pub use loss::{Loss, LossExtent, LossKind, Run};
use place::Cwd;
pub use runs::recipes;
use walk::Walker;

/// Length of a command up to which the caller's stack is enough for the deepest nesting.
const INLINE_MAX: usize = 512;
/// Stack size that is enough for one level of recursion per byte of the longest input, in the parser and in the walk.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Length limit of a summary, in characters.
const SUMMARY_CHARS: usize = 80;

/// Possible effect of a command on files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// True if it may change, create or remove files.
    pub may_change: bool,
    /// True if it contains a command whose purpose is to remove or replace files or git state, such as `rm`, `mv` or
    /// `git reset`, or if it cannot be parsed. A build that may do so is not meant.
    pub destroys: bool,
    /// Absolute directories in which it may do so, without duplicates; empty if it changes nothing.
    pub dirs: Vec<PathBuf>,
    /// Those of `dirs` that only contain an operand: nothing runs in them, and the command does not name them.
    pub holders: Vec<PathBuf>,
    /// Known prefixes of operands in `holders` whose end is unknown: `/x/build-` for `/x/build-*`. A prefix that ends
    /// with a slash means everything in that directory.
    pub starts: Vec<PathBuf>,
    /// Absolute paths of the known operands. One of them may itself be a directory, which only the file system can
    /// tell; it belongs to `dirs` then.
    pub paths: Vec<PathBuf>,
    /// What it destroys: files that are removed, replaced or written over.
    pub losses: Vec<Loss>,
    /// Directories in which it unpacks an archive over existing files. Only the archive names those files.
    pub unpacks: Vec<PathBuf>,
    /// Operands of destroying commands that are not known, shortened.
    pub unread: Vec<String>,
    /// Programs that it runs and whose text is not part of it.
    pub runs: Vec<Run>,
    /// One line with the first command that may change something, or the whole text if none does.
    pub summary: String,
}

/// Decides what `command` may change if it is run in `cwd`. `home` is the value of `~`.
///
/// Never panics and never fails: in doubt, the verdict is that `cwd` may change.
///
/// ```
/// use piton_triggers::analyse;
/// use std::path::{Path, PathBuf};
///
/// let home = Some(Path::new("/home/you"));
/// let verdict = analyse("cd ~/code && sudo rm -rf build", Path::new("/tmp"), home);
/// assert!(verdict.may_change);
/// assert_eq!(verdict.dirs, [PathBuf::from("/home/you/code")]);
/// assert!(!analyse("git status | head", Path::new("/tmp"), home).may_change);
/// ```
#[must_use]
pub fn analyse(command: &str, cwd: &Path, home: Option<&Path>) -> Verdict {
    if !limits::within(command) {
        return unsure(command, cwd);
    }
    if command.len() <= INLINE_MAX {
        return catch_unwind(AssertUnwindSafe(|| walk(command, cwd, home))).unwrap_or_else(|_| unsure(command, cwd));
    }
    thread::scope(|scope| {
        let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || walk(command, cwd, home));
        worker.ok().and_then(|worker| worker.join().ok())
    })
    .unwrap_or_else(|| unsure(command, cwd))
}

fn walk(command: &str, cwd: &Path, home: Option<&Path>) -> Verdict {
    let mut walker = Walker::new(home);
    walker.source(command, &Cwd::at(cwd));
    let may_change = walker.found.marks > 0;
    if !may_change {
        return Verdict { may_change, summary: one_line(command), ..Verdict::default() };
    }
    let mut found = walker.found;
    found.finish();
    if found.dirs.is_empty() {
        found.add([place::normalise(cwd)]);
    }
    let first = if found.first.is_empty() { command } else { &found.first };
    let summary = one_line(first);
    let is_held = |dir: &&PathBuf| !found.own_dirs.contains(*dir);
    let holders = found.dirs.iter().filter(is_held).cloned().collect();
    let destroys = found.destroys;
    found.finish_losses();
    let Findings { starts, dirs, paths, losses, unpacks, unread, runs, .. } = found;
    Verdict { may_change, destroys, dirs, holders, starts, paths, losses, unpacks, unread, runs, summary }
}

fn unsure(command: &str, cwd: &Path) -> Verdict {
    let (dirs, unread) = (vec![place::normalise(cwd)], vec![one_line(command)]);
    Verdict { may_change: true, destroys: true, dirs, summary: one_line(command), unread, ..Verdict::default() }
}

/// Returns the text on one line, without control characters, cut to `SUMMARY_CHARS`.
fn one_line(text: &str) -> String {
    let mut words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let mut line = String::new();
    while line.chars().count() <= SUMMARY_CHARS
        && let Some(word) = words.next()
    {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().take(SUMMARY_CHARS + 1));
    }
    if line.chars().count() > SUMMARY_CHARS {
        line = line.chars().take(SUMMARY_CHARS - 3).collect();
        line.push_str("...");
    }
    line
}
