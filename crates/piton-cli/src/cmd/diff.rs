//! The `piton diff` command, also available as `piton rollback diff`.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use anstyle::{AnsiColor, Style};
use clap::Args;
use piton::{Diff, Error, ErrorKind, FileDiff, History, Project, Store, diff};

use super::paths::{check_from_here, parse_paths};
use crate::columns;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{MINUS, Output, PLUS, misleads, painted, plain};
use crate::platform;
use crate::progress::watch;
use crate::remote::named::{FromProject, local_name};

/// Show what changed since a checkpoint, or between two
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton diff                 since the newest checkpoint
  piton diff 3               since checkpoint 3
  piton diff 3 1             from checkpoint 3 to checkpoint 1
  piton diff 3 -- src/       only in src/
  piton diff laptop/1        since a checkpoint of another machine

{EXIT_CODES}"))]
pub(crate) struct DiffArgs {
    /// From this checkpoint: number, id or mark, or NAME/N of another machine
    #[arg(value_name = "N|ID", default_value = "1")]
    from: String,
    /// To this one [default: the current files]
    #[arg(value_name = "N|ID")]
    to: Option<String>,
    /// Only these files and directories, relative to the project
    #[arg(value_name = "PATH", last = true)]
    paths: Vec<OsString>,
    #[command(flatten)]
    from_project: FromProject,
}

pub(crate) fn run(args: &DiffArgs, context: &Context, output: &Output) -> anyhow::Result<()> {
    let is_to_remote = args.to.as_deref().is_some_and(|to| to.contains('/'));
    let none = FromProject::default();
    // If neither is of another machine, the option is refused.
    let of_from = if args.from.contains('/') || !is_to_remote { &args.from_project } else { &none };
    let of_to = if is_to_remote { &args.from_project } else { &none };
    let from = local_name(&args.from, of_from, &[], context, output)?;
    let to = args.to.as_deref().map(|to| local_name(to, of_to, &[], context, output));
    show(&from, to.transpose()?.as_deref(), &args.paths, context, output)
}

pub(crate) fn show(
    from: &str,
    to: Option<&str>,
    paths: &[OsString],
    context: &Context,
    output: &Output,
) -> anyhow::Result<()> {
    let paths = parse_paths(paths)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    context.warn_of_interrupted_restore(&store, &project, output);
    check_from_here(&paths, &store, &project, context, output)?;
    let settings = &context.settings;
    let diff = watch(output, |progress| diff(&store, &project, (from, to), &paths, settings, progress))?;
    for path in &diff.unread {
        let path = String::from_utf8_lossy(path);
        output.warn(&format!("{} cannot be read, and was not compared", if path.is_empty() { "." } else { &path }));
    }
    if diff.files.is_empty() && diff.local.is_empty() {
        check_paths(&paths, (from, to), &store, &project)?;
    }
    name_ignored(&diff, output);
    output.json(&diff);
    if diff.files.is_empty() {
        output.text("Nothing differs");
        return Ok(());
    }
    let mut summary = summary(&diff);
    if !output.has_colours() {
        summary = anstream::adapter::strip_str(&summary).to_string();
    }
    output.page(&[summary.as_bytes(), b"\n", &shown(&diff.patch, output)].concat());
    Ok(())
}

/// Number of files out of scope that are named.
const IGNORED_MAX: usize = 8;

/// Names the files out of scope that differ. Their contents are not shown.
fn name_ignored(diff: &Diff, output: &Output) {
    if let Some(error) = &diff.local_error {
        output.warn(&format!("ignored files were not compared: {error}"));
    }
    if !diff.local.is_empty() {
        let names = diff.local.iter().take(IGNORED_MAX).map(|path| plain(&String::from_utf8_lossy(path)));
        let names = names.collect::<Vec<_>>().join(", ");
        let more = diff.local.len().saturating_sub(IGNORED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        output.hint(&format!("ignored files differ, too, and are not shown: {names}{more}"));
    }
}

/// Fails with `NotFound` if a path exists neither on the disk nor in the checkpoints. Otherwise a mistyped path would
/// look like an unchanged file.
fn check_paths(
    paths: &[Vec<u8>],
    (from, to): (&str, Option<&str>),
    store: &Store,
    project: &Project,
) -> piton::Result<()> {
    let is_here = |path: &[u8]| project.dir().join(platform::name_of_bytes(path)).symlink_metadata().is_ok();
    let missing: Vec<_> = paths.iter().filter(|path| !is_here(path)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let history = History::of(store, project)?;
    let mut held = history.files(history.find(from)?)?;
    if let Some(to) = to {
        held.extend(history.files(history.find(to)?)?);
    }
    let is_held = |path: &[u8]| {
        let is_it = |held: &Vec<u8>| matches!(held.strip_prefix(path), Some([] | [b'/', ..]));
        held.iter().any(is_it)
    };
    let Some(path) = missing.into_iter().find(|path| !is_held(path)) else { return Ok(()) };
    Err(Error::new(ErrorKind::NotFound, format!("find {}", String::from_utf8_lossy(path)))
        .because("there is no such file or directory, neither now nor in the checkpoint")
        .with_hint("`piton show --verbose` lists what a checkpoint holds; `piton diff N M` compares two checkpoints"))
}

/// Returns the path of a file; of a renamed one, both paths.
pub(super) fn summary_name(file: &FileDiff) -> String {
    let path = plain(&String::from_utf8_lossy(&file.path));
    file.old_path.as_ref().map_or(path.clone(), |old| format!("{} => {path}", plain(&String::from_utf8_lossy(old))))
}

/// Formats ` src/main.rs | 4 ++--` for each file, and the totals.
fn summary(diff: &Diff) -> String {
    let name = summary_name;
    let width = diff.files.iter().map(|file| columns::columns(&name(file))).max().unwrap_or(0).min(60);
    let mut text = String::new();
    for file in &diff.files {
        let marks = if file.is_binary { "Bin".to_owned() } else { bar(file.insertions, file.deletions) };
        let _ = writeln!(text, " {} | {marks}", columns::padded(&name(file), width));
    }
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let (plus, minus) = diff.totals();
    let files = diff.files.len() as u64;
    let _ = write!(text, " {files} file{} changed, {plus} insertion{}(+), ", plural(files), plural(plus));
    let _ = writeln!(text, "{minus} deletion{}(-)", plural(minus));
    text
}

fn bar(plus: u64, minus: u64) -> String {
    const WIDTH: u64 = 40;
    let total = plus + minus;
    let scaled = |count: u64| if total <= WIDTH { count } else { (count * WIDTH).div_ceil(total) };
    let marks = |mark: &str, count: u64| mark.repeat(usize::try_from(scaled(count)).unwrap_or(0));
    format!("{total} {}{}", painted(&marks("+", plus), PLUS), painted(&marks("-", minus), MINUS))
}

/// Returns the patch as it is printed. Programs get every byte; on a terminal, control characters are replaced, so that
/// file contents cannot control it.
pub(super) fn shown(patch: &[u8], output: &Output) -> Vec<u8> {
    let is_terminal = std::io::stdout().is_terminal();
    let patch = if is_terminal { Cow::Owned(without_control(patch)) } else { Cow::Borrowed(patch) };
    if output.has_colours() { coloured(&patch) } else { patch.into_owned() }
}

/// Replaces control characters by their Unicode symbols, and other misleading characters by U+FFFD.
pub(super) fn without_control(patch: &[u8]) -> Vec<u8> {
    let picture = |character: char| match character {
        '\n' | '\t' => character,
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        other if misleads(other) => '\u{fffd}',
        other => other,
    };
    String::from_utf8_lossy(patch).chars().map(picture).collect::<String>().into_bytes()
}

fn coloured(patch: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(patch.len() * 2);
    for line in patch.split_inclusive(|byte| *byte == b'\n') {
        let style = match line {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'd', b'i', b'f', b'f', ..] => Style::new().bold(),
            [b'@', ..] => AnsiColor::Cyan.on_default(),
            [b'+', ..] => AnsiColor::Green.on_default(),
            [b'-', ..] => AnsiColor::Red.on_default(),
            _ => Style::new(),
        };
        let end = line.len() - usize::from(line.ends_with(b"\n"));
        text.extend_from_slice(style.render().to_string().as_bytes());
        text.extend_from_slice(&line[..end]);
        text.extend_from_slice(style.render_reset().to_string().as_bytes());
        text.extend_from_slice(&line[end..]);
    }
    text
}
