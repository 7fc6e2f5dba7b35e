//! Which shell commands may change files, and where.
//!
//! Before an agent runs a command, [`analyse`] decides whether a checkpoint is due and for which directories. The
//! command is parsed as a shell would parse it, and every command in it is looked at: behind wrappers, in
//! substitutions, loops, functions and texts that are run again.
//!
//! - A1. A command counts as harmless only if all of its parts are known to be: a closed list of programs, options
//!   included. What cannot be parsed, is over a limit or is not known counts as changing.
//! - A2. The work has a bound: length, nesting and the bytes given to the parser are limited, and the stack is large
//!   enough for the deepest input within those limits.
//! - A3. A changing command has at least one directory; where nothing better is known it is the one it runs in.
//!
//! Nothing is read: no files, no environment, no clock. So symbolic links are not followed, aliases and functions of
//! the user's own shell are not known, a name means the program it usually means, and what a variable or another
//! program's output will hold is not guessed. This guards against accidents; it is no sandbox.

mod git;
mod harmless;
mod heredoc;
mod invoke;
mod limits;
mod parse;
mod parts;
mod place;
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

use place::Cwd;
use walk::Walker;

/// Up to this length the caller's stack is enough for the deepest nesting.
const INLINE_MAX: usize = 512;
/// Enough for one level of recursion per byte of the longest input, in the parser and in the walk.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Longest summary, in characters.
const SUMMARY_CHARS: usize = 80;

/// What a command may do to files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// It may change, create or remove files.
    pub may_change: bool,
    /// Absolute directories in which it may do so, each once; empty when it changes nothing.
    pub dirs: Vec<PathBuf>,
    /// Those of `dirs` that are there only because an operand lies in them: nothing runs in them, and the command names
    /// something in them, not them.
    pub holders: Vec<PathBuf>,
    /// The beginnings of operands in `holders` that are not known to their end: `/x/build-` of `/x/build-*`. One that ends
    /// with a slash stands for everything in that directory.
    pub starts: Vec<PathBuf>,
    /// Absolute paths of the operands that are known. One of them may itself be a directory: only a look at the disk
    /// tells, and then it belongs to `dirs`.
    pub paths: Vec<PathBuf>,
    /// One line that names the first command that may change something, or the whole when none does.
    pub summary: String,
}

/// Decides what `command` may change when it is run in `cwd`. `home` is what `~` stands for.
///
/// Never panics and never fails: in doubt the answer is that `cwd` may change.
///
/// ```
/// use piton::triggers::analyse;
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
    let may_change = walker.marks > 0;
    if !may_change {
        return Verdict { may_change, summary: one_line(command), ..Verdict::default() };
    }
    walker.finish();
    if walker.dirs.is_empty() {
        walker.add([place::normalise(cwd)]);
    }
    let first = if walker.first.is_empty() { command } else { &walker.first };
    let summary = one_line(first);
    let is_held = |dir: &&PathBuf| !walker.own_dirs.contains(*dir);
    let holders = walker.dirs.iter().filter(is_held).cloned().collect();
    Verdict { may_change, summary, holders, starts: walker.starts, dirs: walker.dirs, paths: walker.paths }
}

fn unsure(command: &str, cwd: &Path) -> Verdict {
    let dirs = vec![place::normalise(cwd)];
    Verdict { may_change: true, dirs, summary: one_line(command), ..Verdict::default() }
}

/// The text on one line, without control characters, cut at a length that fits a list.
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
