//! The `piton blame` command.

use std::ffi::OsString;

use clap::Args;
use piton::{History, blame_file};

use super::diff::without_control;
use super::paths::{check_from_here, parse_paths};
use super::period;
use crate::columns;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{FAINT, ID, Output, WHO, local, painted};

/// Show for each line of a file the turn that wrote it
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  piton blame src/main.rs

Each line begins with the number of the checkpoint before the turn that wrote
it (`piton log` and `piton show N` tell more), the agent, and the time. \"you\"
is an edit between turns, \"earlier\" was there before the oldest checkpoint, and
a question mark means that the end of the turn is not known.

{EXIT_CODES}"))]
pub(crate) struct Blame {
    /// The file, relative to the project
    #[arg(value_name = "FILE")]
    path: OsString,
}

/// Widest name of an agent.
const WHO_COLUMNS_MAX: usize = 12;

pub(crate) fn run(args: &Blame, context: &Context, output: &Output) -> anyhow::Result<()> {
    let paths = parse_paths(std::slice::from_ref(&args.path))?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    context.warn_of_interrupted_restore(&store, &project, output);
    check_from_here(&paths, &store, &project, context, output)?;
    let history = History::of(&store, &project)?;
    let blame = blame_file(&history, &store, &project, &context.settings, &paths[0])?;
    output.json(&blame);
    if blame.lines.is_empty() {
        output.text("The file is empty");
        return Ok(());
    }
    let labels: Vec<[String; 3]> = blame
        .periods
        .iter()
        .map(|period| {
            let when = period.time.map(|time| local(time).date_and_time()).unwrap_or_default();
            let number = if period.from.is_some() { period::name(period) } else { String::new() };
            [number, columns::cut(&period::who(period), WHO_COLUMNS_MAX), when]
        })
        .collect();
    let width = |at: usize| labels.iter().map(|label| columns::columns(&label[at])).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let digits = blame.lines.len().to_string().len();
    let mut text = Vec::new();
    for (line, number) in blame.lines.iter().zip(1..) {
        let [name, who, when] = &labels[line.period];
        let name = format!("{}{name}", " ".repeat(widths[0] - columns::columns(name)));
        let who = columns::padded(who, widths[1]);
        let when = columns::padded(when, widths[2]);
        let start = format!(
            "{} {} {when} {}",
            painted(&name, ID),
            painted(&who, WHO),
            painted(&format!("{number:>digits$}"), FAINT)
        );
        let start = if output.has_colours() { start } else { anstream::adapter::strip_str(&start).to_string() };
        text.extend_from_slice(start.as_bytes());
        text.extend_from_slice(b"  ");
        text.extend(if output.is_read_by_a_person() { without_control(&line.text) } else { line.text.clone() });
        text.push(b'\n');
    }
    output.page(&text);
    period::hints(blame.periods.iter(), &history, output);
    Ok(())
}
