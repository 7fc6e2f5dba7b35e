//! The `piton log` command.

use std::ffi::OsString;

use clap::Args;
use piton::{Change, Error, ErrorKind, FileDiff, Hint, History, LogEntry, LogOptions, log};

use super::diff::{shown, summary_name};
use super::paths::{check_from_here, parse_paths};
use super::period;
use super::rollback::counts;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{MINUS, Output, PLUS, painted, plain};
use crate::progress::watch;

/// List the turns, and your edits between them, that changed files
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton log                  every turn, and what it changed
  piton log src/main.rs      who changed this file, and when
  piton log -p -- src/       with the changes themselves

The number is that of the checkpoint before the change: `piton restore N PATH`
goes back to before it. Changes since the newest checkpoint: `piton diff`.

{EXIT_CODES}"))]
pub(crate) struct Log {
    /// Only these files and directories, relative to the project
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Show the changes as a patch
    #[arg(short, long)]
    patch: bool,
    /// Number of entries, newest first; 0 is all [default: 50; with --json: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Default number of entries.
const PAGE: usize = 50;
/// Number of files that are named below an entry.
const FILES_MAX: usize = 8;

pub(crate) fn run(args: &Log, context: &Context, output: &Output) -> anyhow::Result<()> {
    let paths = parse_paths(&args.paths)?;
    let most = args.limit.unwrap_or(if output.is_json { 0 } else { PAGE });
    let most = if most == 0 { usize::MAX } else { most };
    let store = context.existing_store()?;
    let project = context.project(store.as_ref())?;
    let dir = plain(&project.dir().display().to_string());
    let history = store.as_ref().map(|store| History::of(store, &project)).transpose()?;
    let (Some(store), Some(history)) = (store, history.filter(|history| !history.checkpoints().is_empty())) else {
        output.json(&[(); 0]);
        output.text(&format!("No checkpoints found for {dir}"));
        output.hint("`piton take` takes one; `piton install` lets an agent take them");
        return Ok(());
    };
    context.warn_of_interrupted_restore(&store, &project, output);
    check_from_here(&paths, &store, &project, context, output)?;
    // One more than is shown, to know whether there are more.
    let options = LogOptions::default().paths(&paths).most(most.saturating_add(1)).with_patch(args.patch);
    let mut found = watch(output, |progress| log(&history, &options, progress))?;
    let has_more = found.entries.len() > most;
    found.entries.truncate(most);
    if !found.unread.is_empty() {
        output.warn(&format!(
            "{} cannot be read and are left out",
            crate::columns::counted(found.unread.len(), "change")
        ));
    }
    if found.entries.is_empty() && !paths.is_empty() {
        check_known(&paths, &history)?;
    }
    output.json(&found.entries);
    if found.entries.is_empty() {
        let what = if paths.is_empty() { dir } else { names(&paths) };
        output.text(&format!(
            "No change of {what} between checkpoints; `piton diff` shows what changed since the newest"
        ));
        return Ok(());
    }
    let mut text = Vec::new();
    for entry in &found.entries {
        let (insertions, deletions) = entry.totals();
        let change = Change { files: entry.files.len() as u64, insertions, deletions };
        let line = period::as_line(&entry.period, &counts(&change), output.columns());
        let below = if args.patch { Vec::new() } else { file_lines(entry, output) };
        let lines: Vec<String> = [line].into_iter().chain(below).collect();
        let lines = lines.join("\n");
        let lines = if output.has_colours() { lines } else { anstream::adapter::strip_str(&lines).to_string() };
        text.extend_from_slice(lines.as_bytes());
        text.push(b'\n');
        if let Some(patch) = &entry.patch {
            text.push(b'\n');
            text.extend(shown(patch, output));
            text.push(b'\n');
        }
    }
    output.page(&text);
    if has_more {
        output.hint("there are older ones: `piton log --limit 0`");
    }
    period::hints(found.entries.iter().map(|entry| &entry.period), &history, output);
    Ok(())
}

/// Names the changed files, ignored ones last, a few unless `--verbose` is given.
fn file_lines(entry: &LogEntry, output: &Output) -> Vec<String> {
    let most = if output.is_verbose { usize::MAX } else { FILES_MAX };
    let line = |file: &FileDiff| {
        let counts = if file.is_binary {
            "Bin".to_owned()
        } else {
            format!(
                "{} {}",
                painted(&format!("+{}", file.insertions), PLUS),
                painted(&format!("-{}", file.deletions), MINUS)
            )
        };
        format!("     {}  {counts}", summary_name(file))
    };
    let more = entry.files.len().saturating_sub(most);
    let more = (more > 0).then(|| format!("     … and {more} more"));
    let ignored_more = entry.local.len().saturating_sub(most);
    let ignored_more = (ignored_more > 0).then(|| format!("     … and {ignored_more} more ignored files"));
    let ignored = entry.local.iter().take(most);
    let ignored = ignored.map(|path| format!("     {}  (ignored)", plain(&String::from_utf8_lossy(path))));
    entry.files.iter().take(most).map(line).chain(more).chain(ignored).chain(ignored_more).collect()
}

/// Fails with `NotFound` if no checkpoint holds any of the paths: they may be mistyped.
fn check_known(paths: &[Vec<u8>], history: &History) -> piton::Result<()> {
    for path in paths {
        if history.versions(path)?.iter().all(Option::is_none) && !history.has_local(path)? {
            return Err(Error::new(ErrorKind::NotFound, format!("find {}", names(std::slice::from_ref(path))))
                .because("no checkpoint holds such a file or directory")
                .with_hint(Hint::ListFiles));
        }
    }
    Ok(())
}

pub(super) fn names(paths: &[Vec<u8>]) -> String {
    paths.iter().map(|path| plain(&String::from_utf8_lossy(path))).collect::<Vec<_>>().join(", ")
}
