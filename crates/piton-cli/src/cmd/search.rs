//! The `piton search` command.

use std::ffi::OsString;

use clap::Args;
use piton::{ContentMatch, History, SearchEntry, SearchOptions, search};

use super::log::names;
use super::paths::{check_from_here, parse_paths};
use super::period;
use crate::columns;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{MINUS, Output, PLUS, Said, painted, plain};
use crate::progress::watch;
use crate::shell::quote;

/// Find the turns in which a text appeared or vanished
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton search parse_header             where the function came and went
  piton search 'fn \\w+_header' --regex
  piton search parse_header -- src/     only in src/
  piton search header --prompts         what you asked for

A file counts if the text is in it more or less often than before, as for
`git log -S`. Prompts, reasons and the paths of changed files are searched,
too; of ignored files the paths alone. The number is that of the checkpoint
before the turn: `piton revert N` takes the turn back, `piton restore N PATH`
brings a file back.

Exit code 4: the text was not found.
{EXIT_CODES}"))]
pub(crate) struct Search {
    /// The text
    #[arg(value_name = "TEXT")]
    text: String,
    /// Only these files and directories, relative to the project
    #[arg(value_name = "PATH", last = true)]
    paths: Vec<OsString>,
    /// TEXT is a regular expression
    #[arg(long)]
    regex: bool,
    /// Search contents and paths only
    #[arg(long, conflicts_with = "prompts")]
    contents: bool,
    /// Search prompts and reasons only
    #[arg(long)]
    prompts: bool,
    /// Search the contents of the oldest checkpoint, too
    #[arg(long, conflicts_with = "prompts")]
    all: bool,
}

/// Number of lines that are shown of one file.
const LINES_MAX: usize = 4;

pub(crate) fn run(args: &Search, context: &Context, output: &Output) -> anyhow::Result<()> {
    let paths = parse_paths(&args.paths)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    context.warn_of_interrupted_restore(&store, &project, output);
    check_from_here(&paths, &store, &project, context, output)?;
    let history = History::of(&store, &project)?;
    let options = SearchOptions::default().paths(&paths).is_regex(args.regex).in_oldest(args.all);
    let options = options.within(!args.prompts, !args.contents);
    let report = watch(output, |progress| search(&history, &args.text, &options, progress))?;
    if !report.unread.is_empty() {
        let changes = columns::counted(report.unread.len(), "change");
        output.warn(&format!("{changes} cannot be read and were not searched"));
    }
    if !report.too_large.is_empty() {
        output.warn(&format!("not searched, because they are larger than 64 MB: {}", names(&report.too_large)));
    }
    output.json(&report.entries);
    if report.entries.is_empty() {
        let count = columns::counted(history.checkpoints().len(), "checkpoint");
        output.text(&format!("{} was not found in the changes between {count}", plain(&args.text)));
        if !args.all && !args.prompts {
            output
                .hint("`--all` searches the oldest checkpoint, too; `piton diff` shows what changed since the newest");
        }
        return Err(Said(4).into());
    }
    let lines: Vec<String> = report.entries.iter().flat_map(|entry| entry_lines(entry, output)).collect();
    let text = lines.join("\n") + "\n";
    let text = if output.has_colours() { text } else { anstream::adapter::strip_str(&text).to_string() };
    output.page(text.as_bytes());
    if let Some(hint) = report.entries.iter().find_map(bring_back) {
        output.hint(&hint);
    }
    Ok(())
}

/// Returns the commands that bring back a text that vanished.
fn bring_back(entry: &SearchEntry) -> Option<String> {
    let gone = entry.contents.iter().find(|found| found.after < found.before)?;
    let (name, path) = (period::name(&entry.period), quote(&String::from_utf8_lossy(&gone.path)));
    let from =
        gone.from.filter(|from| Some(*from) != entry.period.from).map_or_else(|| name.clone(), |from| from.short());
    let restore = format!("`piton restore {from} {path}` brings back the whole file");
    if entry.period.turn.is_none() {
        return Some(restore);
    }
    Some(format!("`piton revert {name} {path}` takes back what that turn did to the file; {restore}"))
}

fn entry_lines(entry: &SearchEntry, output: &Output) -> Vec<String> {
    let mut lines = vec![period::as_line(&entry.period, "", output.columns())];
    for found in &entry.contents {
        lines.extend(content_lines(found, output));
    }
    let only_paths = entry.paths.iter().filter(|path| !entry.contents.iter().any(|found| found.path == **path));
    lines.extend(only_paths.map(|path| format!("     {}  (path)", plain(&String::from_utf8_lossy(path)))));
    lines.extend(
        entry.local.iter().map(|path| format!("     {}  (path, ignored)", plain(&String::from_utf8_lossy(path)))),
    );
    let reasons = entry.texts.iter().filter(|text| !text.is_prompt);
    lines.extend(reasons.map(|reason| format!("     reason: {}", plain(&reason.text))));
    lines
}

fn content_lines(found: &ContentMatch, output: &Output) -> Vec<String> {
    let path = plain(&String::from_utf8_lossy(&found.path));
    let verb = match (found.before, found.after) {
        (0, _) => "appeared".to_owned(),
        (_, 0) => "vanished".to_owned(),
        (before, after) => format!("{before} -> {after}"),
    };
    let most = if output.is_verbose { usize::MAX } else { LINES_MAX };
    let line = |line: &piton::MatchLine| {
        let (sign, style) = if line.added { ('+', PLUS) } else { ('-', MINUS) };
        let text = format!("       {sign}{}: {}", line.line, plain(line.text.trim()));
        painted(&output.columns().map_or_else(|| text.clone(), |columns| columns::cut(&text, columns)), style)
    };
    let more = found.lines.len().saturating_sub(most);
    let more = (more > 0).then(|| format!("       … and {more} more"));
    let lines = found.lines.iter().take(most).map(line);
    [format!("     {path}  {verb}")].into_iter().chain(lines).chain(more).collect()
}
