//! The `piton git` command.

use clap::{Args, Subcommand};
use piton::{
    GitDifference, GitItem, GitItemKind, GitLeft, GitRestoreOptions, GitRestoreOutcome, GitRestoreReport,
    GitStateMoment, GitStateReport, RecordedGitState, git_states, restore_git_state, show_git_state, undo_git_restore,
};

use crate::columns::counted;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{ID, Output, PartlyDone, local, painted, plain};
use crate::progress::{watch, watch_to_the_end};

/// Bring back branches, stashes, the index or the whole git repository
#[derive(Debug, Args)]
#[command(after_help = format!("\
With each checkpoint of a project in a git repository, piton records HEAD, all
refs, the stash, the index and the small files of `.git`, and keeps the objects.

Examples:
  piton git show             the recorded states
  piton git show 1           what differs now from the state at checkpoint 1
  piton git restore 1        bring back missing branches, tags and stash entries
  piton git undo             take that back

{EXIT_CODES}"))]
pub(crate) struct Git {
    #[command(subcommand)]
    verb: GitVerb,
}

#[derive(Debug, Subcommand)]
enum GitVerb {
    Show(GitShow),
    Restore(GitRestore),
    Undo(GitUndo),
}

/// Compare a recorded state of the repository with its current state
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton git show       the recorded states, the newest first
  piton git show 1     what differs now from the state at checkpoint 1
  piton git show 4f2a  the same, by the id of a checkpoint or of a state

{EXIT_CODES}"))]
struct GitShow {
    /// Number of a checkpoint in `piton rollback`, or the beginning of its id or of the id of a state
    #[arg(value_name = "N|ID")]
    checkpoint: Option<String>,
}

/// Bring back what the repository has lost since a checkpoint
#[derive(Debug, Args)]
#[command(after_help = format!("\
Without names: branches, tags, stash entries and worktrees that are missing. A
branch that exists and points elsewhere is put at refs/recovered/ID/NAME. A
deleted `.git` is rebuilt as a whole. No file of the project is touched.
With the index or HEAD, a merge, rebase or other operation that began since is
removed, and one that was in progress then comes back.

Examples:
  piton git restore 1                what is missing
  piton git restore 1 feature        this branch
  piton git restore 1 main --force   this branch, wherever it points now
  piton git restore 1 --index        what was staged, too
  piton git restore 1 --dry-run      only show what would come back

`piton git undo` takes it back. It refuses to run beside another git command.

{EXIT_CODES}"))]
struct GitRestore {
    /// Number of a checkpoint in `piton rollback`, or the beginning of its id or of the id of a state
    #[arg(value_name = "N|ID")]
    checkpoint: String,
    /// Branches, tags, stash entries (`stash@{0}`), worktrees or files of `.git`
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Restore what was staged, too
    #[arg(long)]
    index: bool,
    /// Restore HEAD, too
    #[arg(long)]
    head: bool,
    /// Restore everything: all refs, HEAD, the index and missing files of `.git`
    #[arg(long)]
    all: bool,
    /// Replace refs and files that exist and differ
    #[arg(long)]
    force: bool,
    /// Show what would come back, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Undo the last `piton git restore`; a second undo restores it again
#[derive(Debug, Args)]
#[command(after_help = format!("\
Items that changed since the restore are left as they are.

Example:
  piton git undo

{EXIT_CODES}"))]
struct GitUndo {
    /// Show what would be undone, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Number of items that are listed.
const PAGE: usize = 50;

pub(crate) fn run(args: &Git, context: &Context, output: &Output) -> anyhow::Result<()> {
    match &args.verb {
        GitVerb::Show(GitShow { checkpoint: None }) => run_list(context, output),
        GitVerb::Show(GitShow { checkpoint: Some(name) }) => run_show(name, context, output),
        GitVerb::Restore(args) => run_restore(args, context, output),
        GitVerb::Undo(args) => run_undo(args, context, output),
    }
}

fn run_list(context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    let states = git_states(&store, &project)?;
    output.json(&states);
    if states.is_empty() {
        output.text("No git state is recorded: the project is in no git repository, or has no checkpoint yet");
        return Ok(());
    }
    let most = if output.is_verbose { usize::MAX } else { PAGE };
    let mut lines: Vec<String> = states.iter().take(most).map(as_line).collect();
    let more = states.len().saturating_sub(most);
    lines.extend((more > 0).then(|| format!("  … and {more} more")));
    output.text(&lines.join("\n"));
    output.hint("`piton git show ID` says what differs now");
    Ok(())
}

/// Formats `4270a8c  2026-03-16 04:36  checkpoint 3`.
fn as_line(state: &RecordedGitState) -> String {
    let what = match (state.moment, state.row, state.checkpoint) {
        (GitStateMoment::BeforeChange, ..) => "before a change by `piton git`".to_owned(),
        (GitStateMoment::Within, _, Some(id)) => format!("within a turn, checkpoint {}", id.short()),
        (_, Some(row), _) => format!("checkpoint {row}"),
        (_, None, Some(id)) => format!("checkpoint {}", id.short()),
        _ => String::new(),
    };
    let cut = if state.cut_short { ", not complete" } else { "" };
    format!("  {}  {}  {what}{cut}", painted(&state.short_id, ID), local(state.time).date_and_time())
}

fn run_show(name: &str, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    let report = watch(output, |progress| show_git_state(&store, &project, name, progress))?;
    output.json(&report);
    let GitStateReport { recorded, differences, .. } = &report;
    output.text(&format!("Git state {}: {}", as_line(recorded).trim(), contents(&report)));
    if recorded.cut_short {
        output.text("It is not complete: `piton status` says what is missing");
    }
    if differences.is_empty() {
        output.text("The repository is as it was");
        return Ok(());
    }
    let most = if output.is_verbose { usize::MAX } else { PAGE };
    let mut lines: Vec<String> = differences.iter().take(most).map(difference).collect();
    let more = differences.len().saturating_sub(most);
    lines.extend((more > 0).then(|| format!("  … and {more} more")));
    output.text(&format!("Now it differs:\n{}", lines.join("\n")));
    let id = &recorded.short_id;
    let is_gone = |one: &&GitDifference| one.now.is_none() && one.then.is_some();
    if differences.iter().filter(is_gone).any(comes_by_default) {
        output.hint(&format!("`piton git restore {id}` brings back what is missing"));
    }
    let is_more = |one: &GitDifference| comes_with_all(one) && !(is_gone(&one) && comes_by_default(one));
    if differences.iter().any(|one| one.then.is_some() && is_more(one)) {
        output.hint(&format!(
            "`piton git restore {id} --all` brings back everything that is missing; with `--force`, also what differs"
        ));
    }
    let is_moved = |one: &GitDifference| matches!(one.kind, GitItemKind::Branch | GitItemKind::Tag);
    if differences.iter().any(|one| is_moved(one) && one.then.is_some() && one.now.is_some()) {
        output.hint(&format!(
            "`piton git restore {id}` puts a branch that points elsewhere now at refs/recovered/{id}/; with `--force` it \
             is set back"
        ));
    }
    if differences.iter().any(|one| one.kind == GitItemKind::Refs) {
        output.hint(&format!("`piton git restore {id} --all --force` brings all refs back as they were"));
    }
    Ok(())
}

/// Returns true for a missing part that a restore without options brings back.
fn comes_by_default(one: &GitDifference) -> bool {
    !comes_with_all(one) || one.kind == GitItemKind::Head
}

/// Returns true for a part that only `--all` or its name brings back.
fn comes_with_all(one: &GitDifference) -> bool {
    use GitItemKind::{File, Head, Index, Ref, Remote};
    matches!(one.kind, Head | Index | File | Ref | Remote)
}

/// Formats `ref: refs/heads/main; 2 branches, 0 tags, 1 stash entry`.
fn contents(report: &GitStateReport) -> String {
    if report.has_reftable {
        return "refs in a reftable, which is compared and brought back as a whole".to_owned();
    }
    let head = report.head.as_deref().map(plain).unwrap_or_default();
    let counts = [
        counted(report.branches, "branch").replace("branchs", "branches"),
        counted(report.tags, "tag"),
        counted(report.stashes, "stash entry").replace("entrys", "entries"),
    ];
    format!("{head}; {}", counts.join(", "))
}

fn difference(one: &GitDifference) -> String {
    let name = plain(&one.name);
    let kind = one.kind.word();
    let value = |text: &Option<String>| text.as_deref().map(short).unwrap_or_default();
    match (&one.then, &one.now) {
        (Some(_), None) if one.kind == GitItemKind::Objects => format!("  {name} are gone ({})", value(&one.then)),
        (Some(_), None) => format!("  {kind} {name} is gone ({})", value(&one.then)),
        (None, Some(_)) => format!("  {kind} {name} is new"),
        _ if matches!(one.kind, GitItemKind::Index | GitItemKind::File | GitItemKind::Refs) => {
            format!("  {kind} {name} differs")
        }
        _ => format!("  {kind} {name} is {}, was {}", value(&one.now), value(&one.then)),
    }
}

/// Shortens the id of an object.
fn short(value: &str) -> String {
    let is_id = matches!(value.len(), 40 | 64) && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { value[..7].to_owned() } else { plain(value) }
}

fn run_restore(args: &GitRestore, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    let options = GitRestoreOptions::default().names(&args.names).is_index(args.index).is_head(args.head);
    let options = options.is_all(args.all).is_forced(args.force).is_dry(args.dry_run);
    let (settings, now) = (&context.settings, Context::now());
    let report = watch_to_the_end(output, |progress| {
        restore_git_state(&store, &project, &args.checkpoint, options, settings, now, progress)
    })?;
    let is_plain = !args.all && !args.force && args.names.is_empty();
    if report.outcome == GitRestoreOutcome::NothingToDo && is_plain {
        output.json(&report);
        output.text("Nothing to do: no branch, tag, stash entry or worktree of it is missing");
        let id = report.state.short();
        output.hint(&format!("`piton git show {id}` lists what else differs; `--all` brings it back, too"));
        return Ok(());
    }
    tell(&report, "Restored", output)
}

fn run_undo(args: &GitUndo, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    let (settings, now) = (&context.settings, Context::now());
    let report =
        watch_to_the_end(output, |progress| undo_git_restore(&store, &project, args.dry_run, settings, now, progress))?;
    tell(&report, "Taken back", output)
}

fn tell(report: &GitRestoreReport, done: &str, output: &Output) -> anyhow::Result<()> {
    output.json(report);
    let mut lines: Vec<String> = report.restored.iter().map(item).collect();
    lines.extend(report.left.iter().map(left));
    match report.outcome {
        GitRestoreOutcome::NothingToDo => output.text("Nothing to do: nothing of it is missing"),
        GitRestoreOutcome::Planned => output.text(&format!("Would be {}:\n{}", done.to_lowercase(), lines.join("\n"))),
        _ if report.restored.is_empty() => output.text(&lines.join("\n")),
        _ => output.text(&format!("{done}:\n{}", lines.join("\n"))),
    }
    if report.left.iter().any(|left| left.kind == GitItemKind::Refs) {
        let id = report.state.short();
        output.hint(&format!("`piton git restore {id} --all --force` brings all refs back as they were"));
    }
    if let Some(before) = report.before {
        output.hint(&format!("the state before is {}; `piton git undo` returns to it", before.short()));
    }
    if report.outcome == GitRestoreOutcome::Partly { Err(PartlyDone.into()) } else { Ok(()) }
}

fn item(item: &GitItem) -> String {
    let (kind, name) = (item.kind.word(), plain(&item.name));
    match (&item.from, &item.to) {
        (Some(from), Some(to)) if item.kind != GitItemKind::Stash && short(from) != short(to) => {
            format!("  {kind} {name}: {} -> {}", short(from), short(to))
        }
        (_, None) => format!("  {kind} {name} removed"),
        (None, Some(to)) if item.kind == GitItemKind::Objects => format!("  {name}: {to}"),
        (None, Some(to)) if item.kind != GitItemKind::Stash => format!("  {kind} {name} at {}", short(to)),
        _ => format!("  {kind} {name}"),
    }
}

fn left(left: &GitLeft) -> String {
    format!("  LEFT  {} {}: {}", left.kind.word(), plain(&left.name), left.why)
}
