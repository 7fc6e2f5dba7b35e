//! The `piton turns` command.

use clap::Args;
use piton::{ListedTurn, list_turns};

use super::doctor;
use super::rollback::counts;
use crate::columns;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{Output, local, plain};

/// List the turns of agents in this project: what each prompt changed, from its start to its end
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton turns
  piton turns --limit 5 --json

{EXIT_CODES}"))]
pub(crate) struct Turns {
    /// Number of turns to list, newest first; 0 is all [default: 50; with --json: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Default number of turns in the list.
const PAGE: usize = 50;

pub(crate) fn run(args: &Turns, context: &Context, output: &Output) -> anyhow::Result<()> {
    let page = if output.is_json { 0 } else { PAGE };
    let most = Some(args.limit.unwrap_or(page)).filter(|most| *most > 0).unwrap_or(usize::MAX);
    let store = context.existing_store()?;
    let project = context.project(store.as_ref())?;
    let list = store.as_ref().map(|store| list_turns(store, &project, most)).transpose()?.unwrap_or_default();
    output.json(&list);
    let dir = plain(&project.dir().display().to_string());
    if list.is_empty() {
        output.text(&format!("No turns yet in {dir}"));
        output.hint("`piton install` lets an agent report its prompts; `piton doctor` checks that");
        return Ok(());
    }
    let lines: Vec<_> = list.iter().map(|turn| as_line(turn, output.columns())).collect();
    output.text(&format!(
        "Turns in {dir}, newest first; the number is that of the checkpoint before:\n\n{}",
        lines.join("\n")
    ));
    // Only those that matter to a turn in the list.
    let is_open = |agent: &str| {
        let own = |turn: &&ListedTurn| turn.record.agent.as_deref() == Some(agent);
        list.iter().find(own).is_some_and(|newest| newest.is_open_ended || newest.ended.is_none())
    };
    for one in doctor::agents_without_ends(context).into_iter().filter(|one| is_open(one.agent)) {
        output.hint(&format!("{} does not report the ends of turns: {}", one.agent, plain(&one.why)));
    }
    Ok(())
}

/// Formats `  1. 2026-03-16 04:36  prompt: fix it  (2 files, +3/-1)  AGENT, open-ended`.
fn as_line(turn: &ListedTurn, columns: Option<usize>) -> String {
    let number = turn.row.map_or_else(|| "   -".to_owned(), |row| format!("{row:>3}."));
    let when = turn.record.time.map(|time| local(time).date_and_time()).unwrap_or_default();
    let changed = turn.change.as_ref().map(counts).unwrap_or_default();
    let state = match (&turn.record.missed, turn.ended) {
        (Some(missed), _) if turn.before.is_none() => format!(", no checkpoint: {missed}"),
        _ if turn.before.is_none() => ", checkpoint gone".to_owned(),
        (_, None) => ", open".to_owned(),
        _ if turn.is_open_ended => ", open-ended".to_owned(),
        _ => String::new(),
    };
    let agent = turn.record.agent.as_deref().map_or_else(|| "agent".to_owned(), plain);
    let end = format!("{changed}  {agent}{state}");
    let start = format!("{number} {when}  ");
    let reason = plain(&turn.record.headline());
    let room = columns.map(|columns| columns.saturating_sub(columns::columns(&start) + columns::columns(&end)));
    let reason = room.map_or_else(|| reason.clone(), |room| columns::cut(&reason, room.max(12)));
    format!("{start}{reason}{end}")
}
