//! The `piton machines` command, and the list of checkpoints of another machine (`piton rollback --machine`).

use clap::Args;
use piton::{Moment, SentCheckpoint};
use serde::{Deserialize, Serialize};

use crate::columns::{self, counted};
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{ID, Output, local, painted, plain};
use crate::remote::named::{FromProject, OtherMachine};
use crate::remote::program::{RemoteCall, RemoteProgram};
use crate::shell::quote;

/// List the machines that push to the remote, and their projects
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton machines\n\n{EXIT_CODES}"))]
pub(crate) struct Machines {}

#[derive(Deserialize)]
struct MachineAnswer {
    name: String,
    this: bool,
    last_seen_secs: i64,
    projects: Vec<MachineProject>,
}

/// JSON of one machine.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MachineJson {
    /// name of the machine
    name: String,
    /// true for this one
    this: bool,
    /// time of its last push, by its own clock, as in RFC 3339
    last_seen: Moment,
    /// its projects
    projects: Vec<MachineProject>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MachineProject {
    /// id of the project in the remote, the same on every machine
    id: String,
    /// name of the project
    name: String,
    /// its directory on that machine
    directory: String,
    /// number of its checkpoints in the list
    checkpoints: usize,
}

fn at(secs: i64, offset_secs: i32) -> Moment {
    Moment { secs, nanos: 0, offset_secs }
}

pub(crate) fn run(_args: &Machines, context: &Context, output: &Output) -> anyhow::Result<()> {
    let answer: Vec<MachineAnswer> = RemoteProgram::of(context)?.ask(&RemoteCall::new("machines"), output)?;
    let shown = |one: MachineAnswer| MachineJson {
        name: one.name,
        this: one.this,
        last_seen: local(at(one.last_seen_secs, 0)),
        projects: one.projects,
    };
    let machines: Vec<_> = answer.into_iter().map(shown).collect();
    output.json(&machines);
    if machines.is_empty() {
        output.text("No machine has pushed yet");
        output.hint("`piton push` pushes the checkpoints of this one");
        return Ok(());
    }
    output.text(&machines.iter().map(machine_text).collect::<Vec<_>>().join("\n"));
    output.hint("`piton rollback --machine NAME` lists the checkpoints of this project on a machine");
    Ok(())
}

fn machine_text(machine: &MachineJson) -> String {
    let this = if machine.this { " (this machine)" } else { "" };
    let headline = format!("{}{this}, last push {}", plain(&machine.name), machine.last_seen.date_and_time());
    let line = |one: &MachineProject| {
        let checkpoints = counted(one.checkpoints, "checkpoint");
        format!("  {}: {checkpoints} of {}", plain(&one.name), plain(&one.directory))
    };
    std::iter::once(headline).chain(machine.projects.iter().map(line)).collect::<Vec<_>>().join("\n")
}

/// Checkpoints of a machine, as `piton-remote` lists them.
#[derive(Deserialize)]
pub(crate) struct ListAnswer {
    machine: String,
    project: MachineProject,
    pub(crate) rows: Vec<SentCheckpoint>,
}

/// JSON of `rollback --machine`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MachineListJson {
    /// name of the machine
    machine: String,
    /// the project there
    project: MachineProject,
    /// its checkpoints, newest first
    checkpoints: Vec<MachineRow>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MachineRow {
    /// number in this list
    number: usize,
    /// the name by which other commands take it: `NAME/N`
    name: String,
    /// id on that machine
    id: String,
    /// when it was taken, as in RFC 3339
    time: Moment,
    /// why it was taken
    reason: String,
    /// number of files, or null if it is not known
    files: Option<u64>,
    /// the agent that it was taken for, or null
    agent: Option<String>,
    /// prompts that began from it, newest first
    prompts: Vec<String>,
    /// names that the user gave it
    marks: Vec<String>,
}

/// Lists the newest `most` checkpoints of a machine.
pub(crate) fn list(
    machine: &str,
    from: &FromProject,
    most: usize,
    context: &Context,
    output: &Output,
) -> anyhow::Result<()> {
    let answer: ListAnswer = OtherMachine::of(machine, from, context)?.list(output)?;
    let older = answer.rows.len().saturating_sub(most);
    let machine = answer.machine;
    let row = |(index, one): (usize, SentCheckpoint)| MachineRow {
        number: index + 1,
        name: format!("{machine}/{}", index + 1),
        id: one.id.to_string(),
        time: at(one.secs, one.offset_secs),
        reason: one.reason,
        files: one.files,
        agent: one.agent,
        prompts: one.prompts,
        marks: one.marks,
    };
    let checkpoints = answer.rows.into_iter().take(most).enumerate().map(row).collect();
    let list = MachineListJson { machine: machine.clone(), project: answer.project, checkpoints };
    output.json(&list);
    output.text(&list_text(&list, older, from, output));
    Ok(())
}

fn list_text(list: &MachineListJson, older: usize, from: &FromProject, output: &Output) -> String {
    let (machine, project) = (plain(&list.machine), &list.project);
    if list.checkpoints.is_empty() {
        return format!("No checkpoints of {} on {machine}", plain(&project.directory));
    }
    let mut lines: Vec<_> = list.checkpoints.iter().map(|row| row_text(row, output.columns())).collect();
    if older > 0 {
        lines.push(format!("  … {older} older: `piton rollback --machine {machine} --all`"));
    }
    let mut text = format!("📸 Checkpoints of {} on {machine}:\n\n{}", plain(&project.directory), lines.join("\n"));
    if output.is_read_by_a_person() {
        let option = from.project.as_ref().map(|name| format!(" --project {}", quote(name))).unwrap_or_default();
        let verbs = [("restore", "restore to checkpoint N of that machine"), ("diff", "preview changes since it")];
        let next = verbs.map(|(verb, does)| format!("  piton {verb} {machine}/N{option}   {does}"));
        text += &format!("\n\n{}", next.join("\n"));
    }
    text
}

/// Formats `  1. 4270a8c  2026-03-16 04:36  before patch  <mark>  (12 files)`.
fn row_text(row: &MachineRow, columns: Option<usize>) -> String {
    let (id, when) = (row.id.chars().take(7).collect::<String>(), local(row.time).date_and_time());
    let why = plain(row.prompts.first().unwrap_or(&row.reason));
    let marks = if row.marks.is_empty() { String::new() } else { format!("  <{}>", plain(&row.marks.join(", "))) };
    let files = row.files.map(|files| format!("  ({})", counted(files, "file"))).unwrap_or_default();
    let start = format!("{:>3}. {id}  {when}  ", row.number);
    let room = columns.map(|columns| columns.saturating_sub(columns::columns(&format!("{start}{marks}{files}"))));
    let why = room.map_or(why.clone(), |room| columns::cut(&why, room));
    format!("{:>3}. {}  {when}  {why}{marks}{files}", row.number, painted(&id, ID))
}
