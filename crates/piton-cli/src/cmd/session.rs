//! The `piton session` command.

use std::io::{IsTerminal as _, Read as _};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use piton::session::{RECORD_BYTES_MAX, Record, RecordAuthor, RecordChange, SessionGcReport, SessionId, Sessions};
use piton::{Error, ErrorKind};
use serde_json::Value;

use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{Output, plain};

/// Keep an agent's notes about its task, so that it can continue later
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  echo 'task: fix the login' | piton session write login
  echo 'progress: [{{step: tests, status: done}}]' | piton session update login
  piton session read login --resume

A record is a YAML file in the base. `task` is required; piton knows
status, progress, state, decisions, blocked and unresolved; all other keys are
kept as they are.

{EXIT_CODES}"))]
pub(crate) struct Session {
    #[command(subcommand)]
    verb: SessionVerb,
}

#[derive(Debug, Subcommand)]
enum SessionVerb {
    Write(Write),
    Read(Read),
    Update(Update),
    Delete(Delete),
    List(SessionListArgs),
    Gc(Gc),
}

/// Write a record, given on stdin as YAML or JSON, in place of an existing one
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  echo 'task: fix the login' | piton session write login

{EXIT_CODES}"))]
struct Write {
    /// The record's name
    #[arg(value_name = "ID", allow_hyphen_values = true)]
    id: String,
    /// Mark it as not written by an agent. Such a record does not replace one that an agent wrote
    #[arg(long)]
    auto: bool,
}

/// Print a record
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  piton session read login --resume

{EXIT_CODES}"))]
struct Read {
    /// The record's name
    #[arg(value_name = "ID", allow_hyphen_values = true)]
    id: String,
    /// Print what an agent needs to continue, in at most 4,000 characters. A completed task is not found
    #[arg(long)]
    resume: bool,
}

/// Update a record with YAML or JSON from stdin
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  echo 'progress: [{{step: tests, status: done}}]' | piton session update login

`progress` and `decisions` are added to, `state` is merged key by key, every
other key is replaced.

{EXIT_CODES}"))]
struct Update {
    /// The record's name
    #[arg(value_name = "ID", allow_hyphen_values = true)]
    id: String,
    /// Leave a record alone that an agent wrote
    #[arg(long)]
    auto: bool,
}

/// Remove a record, if it exists
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton session delete login\n\n{EXIT_CODES}"))]
struct Delete {
    /// The record's name
    #[arg(value_name = "ID", allow_hyphen_values = true)]
    id: String,
}

/// List the records
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton session list\n\n{EXIT_CODES}"))]
struct SessionListArgs {}

/// Remove records that were completed more than a day ago, and those not changed for a long time
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  piton session gc --max-age-days 30

A file that cannot be read as a record is put aside as ID.yaml.damaged-TIME,
and removed as many days later.

{EXIT_CODES}"))]
struct Gc {
    /// After how many days without a change
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    max_age_days: u64,
}

pub(crate) fn run(args: &Session, context: &Context, output: &Output) -> anyhow::Result<()> {
    let sessions = Sessions::in_base(&context.base);
    match &args.verb {
        SessionVerb::Write(args) => {
            let id = SessionId::parse(&args.id)?;
            let done = sessions.write(&id, &given(output)?, author(args.auto), Context::now())?;
            say_changed(&id, "written", done, output);
        }
        SessionVerb::Update(args) => {
            let id = SessionId::parse(&args.id)?;
            let done = sessions.update(&id, &given(output)?, author(args.auto), Context::now())?;
            say_changed(&id, "updated", done, output);
        }
        SessionVerb::Read(args) => read(args, &sessions, output)?,
        SessionVerb::Delete(args) => {
            let id = SessionId::parse(&args.id)?;
            let deleted = sessions.delete(&id)?;
            output.json(&DeletedJson { id: &id, deleted });
            output.text(&if deleted { format!("Deleted: {id}") } else { format!("There is no record {id}") });
        }
        SessionVerb::List(SessionListArgs {}) => {
            let ids = sessions.list()?;
            output.json(&SessionListJson { ids: &ids });
            ids.iter().for_each(|id| output.text(id.as_str()));
            if ids.is_empty() {
                output.hint("there are no session records; `piton session write ID` writes one");
            }
        }
        SessionVerb::Gc(args) => {
            let collected = sessions.collect_garbage(args.max_age_days, Context::now())?;
            say_collected(&collected, output);
        }
    }
    Ok(())
}

fn author(is_automatic: bool) -> RecordAuthor {
    if is_automatic { RecordAuthor::Automatic } else { RecordAuthor::Agent }
}

/// Reads stdin, or the input of the request. Stops one byte after the size limit of a record, which is enough to detect
/// that it is too large.
fn given(output: &Output) -> anyhow::Result<Vec<u8>> {
    if let Some(request) = output.request() {
        return Ok(request.input.clone());
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        bail!(
            "cannot read a record from the terminal\nhint: give it on stdin, like `piton session write ID < record.yaml`"
        );
    }
    let mut bytes = Vec::new();
    stdin.lock().take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes).context("cannot read stdin")?;
    Ok(bytes)
}

fn say_changed(id: &SessionId, done: &str, changed: RecordChange, output: &Output) {
    let outcome = match changed {
        RecordChange::Done => done,
        RecordChange::Declined => "declined",
    };
    output.json(&ChangedJson { id, outcome });
    output.text(&match changed {
        RecordChange::Done => format!("Record {id} is {done}"),
        RecordChange::Declined => {
            format!("Record {id} is not {done}: the existing one was written by an agent, and is kept")
        }
    });
}

fn read(args: &Read, sessions: &Sessions, output: &Output) -> anyhow::Result<()> {
    let id = SessionId::parse(&args.id)?;
    let record = sessions.read(&id)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("find the session record {id}"))
            .because("there is none of that name, or it is not a mapping")
            .with_hint("`piton session list` lists the records")
    })?;
    if args.resume {
        let block = record.resume(&id).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("continue the session {id}"))
                .because("its task is completed")
                .with_hint(format!("`piton session read {id}` shows the record; `piton session list` shows the others"))
        })?;
        output.json(&ResumeJson { id: &id, resume: &block });
        output.text(block.trim_end());
        return Ok(());
    }
    output.json(&ReadJson {
        id: &id,
        completed: record.is_completed(),
        automatic: record.is_automatic(),
        record: record.to_json(),
    });
    output.text(Record::to_yaml(&record).trim_end_matches('\n'));
    Ok(())
}

fn say_collected(collected: &SessionGcReport, output: &Output) {
    let SessionGcReport { removed, put_aside, removed_damaged, .. } = collected;
    output.json(collected);
    removed.iter().for_each(|id| output.text(&format!("Removed: {id}")));
    removed_damaged.iter().for_each(|name| output.text(&format!("Removed: {}", plain(name))));
    for aside in put_aside {
        output.warn(&format!("the record {} cannot be read ({}); it is now {}", aside.id, aside.why, aside.name));
    }
    if removed.is_empty() && removed_damaged.is_empty() && put_aside.is_empty() {
        output.text("Nothing to remove");
    }
}

/// JSON of `write` and `update`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ChangedJson<'a> {
    id: &'a SessionId,
    /// `written` or `updated`, or `declined` if an agent's record stays
    outcome: &'a str,
}

/// JSON of `read`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReadJson<'a> {
    id: &'a SessionId,
    /// true if the task is completed
    completed: bool,
    /// true if the record was not written by an agent
    automatic: bool,
    /// the record
    record: Value,
}

/// JSON of `read --resume`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ResumeJson<'a> {
    id: &'a SessionId,
    /// text with which an agent continues
    resume: &'a str,
}

/// JSON of `delete`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DeletedJson<'a> {
    id: &'a SessionId,
    /// true if there was one
    deleted: bool,
}

/// JSON of `list`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SessionListJson<'a> {
    /// ids of the records
    ids: &'a [SessionId],
}
