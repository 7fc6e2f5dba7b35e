//! The `piton show` command.

use clap::Args;
use piton::json::{AtPaths, JsonPaths};
use piton::{
    Change, Checkpoint, CheckpointKind, History, Listed, LocalFiles, RecordedGitState, Skipped, TurnRecord, git_states,
    grouped, local_files,
};

use crate::columns::counted;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{ID, MINUS, Output, PLUS, bytes, local, plain};
use crate::remote::named::{FromProject, local_name};

/// Show one checkpoint: why and when it was taken, what it holds, what it left out
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  piton show 1\n  piton show 4f2a --verbose   with the names of all files\n\n{EXIT_CODES}"))]
pub(crate) struct Show {
    /// Its number in `piton rollback`, the beginning of its id, or its mark; NAME/N is one of another machine
    #[arg(value_name = "N|ID")]
    checkpoint: String,
    #[command(flatten)]
    from: FromProject,
}

pub(crate) fn run(args: &Show, context: &Context, output: &Output) -> anyhow::Result<()> {
    let name = local_name(&args.checkpoint, &args.from, &[], context, output)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    context.warn_of_interrupted_restore(&store, &project, output);
    let history = History::of(&store, &project)?;
    let checkpoint = history.find(&name)?;
    let listed = history.listed(checkpoint)?;
    let files = history.files(checkpoint)?;
    let local = local_files(&store, &project, checkpoint.id)?;
    let states = git_states(&store, &project)?;
    let states: Vec<_> = states.into_iter().filter(|state| state.checkpoint == Some(checkpoint.id)).collect();
    output.json(&ShowJson {
        listed: &listed,
        git_states: &states,
        files: files.len(),
        empty_dirs: JsonPaths::new(&checkpoint.facts.empty_dirs),
        skipped: &checkpoint.facts.skipped,
        paths: JsonPaths::new(&files),
        local: local.as_ref(),
    });
    let mut text = as_text(&listed, checkpoint, &files, output.is_verbose);
    if let Some(local) = &local {
        text = format!("{text}\n{}", local_text(local, output.is_verbose));
    }
    output.text(&text);
    if !states.is_empty() {
        let ids: Vec<_> = states.iter().map(|state| state.short_id.as_str()).collect();
        output.text(&format!("Git state: {}", ids.join(", ")));
    }
    Ok(())
}

piton::path_keys! {
    AtEmptyDirs = "empty_dirs", "empty_dirs_bytes", "directories without files";
}

/// JSON of one checkpoint.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ShowJson<'a> {
    #[serde(flatten)]
    listed: &'a Listed,
    /// recorded states of the git repository at this checkpoint, the newest first
    git_states: &'a [RecordedGitState],
    /// number of files
    files: usize,
    #[serde(flatten)]
    empty_dirs: JsonPaths<'a, AtEmptyDirs>,
    /// files and directories that were left out
    skipped: &'a [Skipped],
    #[serde(flatten)]
    paths: JsonPaths<'a, AtPaths>,
    /// small files out of scope that were saved with it, or null
    local: Option<&'a LocalFiles>,
}

/// Number of files out of scope that are named without `--verbose`.
const LOCAL_NAMED_MAX: usize = 20;

/// Names the files out of scope that were saved with the checkpoint.
fn local_text(local: &LocalFiles, is_verbose: bool) -> String {
    let most = if is_verbose { usize::MAX } else { LOCAL_NAMED_MAX };
    let incomplete = if local.is_incomplete { ", not all" } else { "" };
    let mut lines = vec![format!("Saved with it, out of scope{incomplete}:")];
    let named = local.files.iter().take(most);
    lines.extend(named.map(|(path, size)| format!("  {} ({})", plain(&String::from_utf8_lossy(path)), bytes(*size))));
    let more = local.files.len().saturating_sub(most);
    lines.extend((more > 0).then(|| format!("  ... and {more} more (--verbose shows all)")));
    lines.join("\n")
}

/// Lists the turns that began from the checkpoint, unless the headline already shows the only one.
fn turn_lines(checkpoint: &Checkpoint) -> Vec<String> {
    let is_told = checkpoint.facts.kind == CheckpointKind::Auto && checkpoint.turns.len() == 1;
    if checkpoint.turns.is_empty() || is_told {
        return Vec::new();
    }
    let line = |turn: &TurnRecord| {
        let when = turn.time.map(|time| local(time).date_and_time()).unwrap_or_default();
        let agent = turn.agent.as_deref().unwrap_or("agent");
        format!("  {when}  {}  [{} turn {}]", plain(&turn.headline()), plain(agent), plain(&turn.turn))
    };
    ["Turns from here, newest first:".to_owned()].into_iter().chain(checkpoint.turns.iter().map(line)).collect()
}

fn as_text(listed: &Listed, checkpoint: &Checkpoint, files: &[Vec<u8>], is_verbose: bool) -> String {
    let facts = &checkpoint.facts;
    let mut lines = vec![
        match listed.number {
            Some(number) => format!("Checkpoint {number}  {ID}{}{ID:#}", checkpoint.id),
            None => format!("Checkpoint  {ID}{}{ID:#}", checkpoint.id),
        },
        format!("Reason:    {}", plain(&checkpoint.reason_or_prompt())),
        format!("Time:      {}", local(checkpoint.time).date_and_time()),
        format!("Kind:      {}", facts.kind.word()),
    ];
    if !checkpoint.marks.is_empty() {
        lines.push(format!("Marks:     {}", plain(&checkpoint.marks.join(", "))));
    }
    let origin = checkpoint.newest_origin();
    let origin = [("Agent:    ", &origin.agent), ("Session:  ", &origin.session), ("Turn:     ", &origin.turn)];
    lines.extend(origin.iter().filter_map(|(label, value)| Some(format!("{label} {}", plain(value.as_deref()?)))));
    lines.extend(turn_lines(checkpoint));
    if facts.is_incomplete {
        lines.push(
            "Incomplete: files that changed before it was complete are left out, deleted ones are missing".to_owned(),
        );
    }
    lines.push(format!("Files:     {}", grouped(files.len() as u64)));
    lines.push(match listed.change {
        Some(Change { files, insertions, deletions }) => {
            let files = counted(files, "file");
            format!("Changed:   {files}, {PLUS}+{insertions}{PLUS:#}/{MINUS}-{deletions}{MINUS:#}")
        }
        None => "Changed:   unknown: it or the one before is damaged".to_owned(),
    });
    if !facts.empty_dirs.is_empty() {
        lines.push(format!(
            "Empty:     {}",
            if facts.empty_dirs.len() == 1 {
                "1 directory".to_owned()
            } else {
                format!("{} directories", grouped(facts.empty_dirs.len() as u64))
            }
        ));
    }
    if !facts.skipped.is_empty() {
        lines.push("Left out:".to_owned());
        lines.extend(facts.skipped.iter().map(|skipped| format!("  {}", plain(&skipped.to_string()))));
    }
    if is_verbose {
        lines.push("Holds:".to_owned());
        lines.extend(files.iter().map(|path| format!("  {}", plain(&String::from_utf8_lossy(path)))));
    }
    lines.join("\n")
}
