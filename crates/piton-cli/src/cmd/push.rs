//! The `piton push` and `piton fetch` commands.

use clap::Args;
use piton::PromptText;
use serde::{Deserialize, Serialize};

use crate::columns::counted;
use crate::context::{ConfigPolicy, Context};
use crate::options::{EXIT_CODES, Global};
use crate::output::{ID, Output, bytes, plain};
use crate::platform;
use crate::remote::named::{self, FromProject};
use crate::remote::program::{RemoteCall, RemoteProgram};

/// Send the checkpoints of all projects that are not in the remote yet
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton push
  piton push --wait   at the end of a job, before the machine goes away

Checkpoints are pushed in the background after they are taken; this does it now,
and says how it went. Files out of scope, kept files and git state are never
sent.

{EXIT_CODES}"))]
pub(crate) struct Push {
    /// If another process pushes, wait for it, and push what is left
    #[arg(long)]
    wait: bool,
    /// Started by piton itself, in the background
    #[arg(long, hide = true, conflicts_with = "wait")]
    pub(crate) background: bool,
}

/// Copy a checkpoint of another machine into the store, to use it without the network
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton fetch laptop/1
  piton fetch laptop/1 --project website

`piton restore laptop/1` fetches by itself.

{EXIT_CODES}"))]
pub(crate) struct Fetch {
    /// Machine and checkpoint: number in `piton rollback --machine NAME`, the beginning of its id, or its mark
    #[arg(value_name = "NAME/N")]
    checkpoint: String,
    #[command(flatten)]
    from: FromProject,
}

/// JSON of a push.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PushJson {
    /// projects of which something was sent
    projects: Vec<PushedJson>,
    /// number of projects of which nothing was new
    unchanged: u64,
    /// number of bytes that were sent
    bytes_sent: u64,
    /// findings to look at
    warnings: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PushedJson {
    /// directory of the project
    directory: String,
    /// number of its checkpoints in the remote
    checkpoints: usize,
    /// number of objects that were sent
    objects: usize,
    /// number of objects that another machine had sent before
    found: u64,
}

pub(crate) fn run(args: &Push, context: &Context, output: &Output) -> anyhow::Result<()> {
    let call = push_call(context.settings.prompt_text).flag("--wait", args.wait);
    let report: PushJson = RemoteProgram::of(context)?.ask(&call, output)?;
    output.json(&report);
    output.text(&text(&report));
    report.warnings.iter().for_each(|warning| output.warn(warning));
    Ok(())
}

pub(crate) fn text(report: &PushJson) -> String {
    if report.projects.is_empty() {
        return "Nothing new to push".to_owned();
    }
    let line = |one: &PushedJson| {
        let found = if one.found > 0 { format!(", {} there already", one.found) } else { String::new() };
        let (checkpoints, objects) = (counted(one.checkpoints, "checkpoint"), counted(one.objects, "object"));
        format!("  {}: {checkpoints}, {objects} sent{found}", plain(&one.directory))
    };
    let lines: Vec<_> = report.projects.iter().map(line).collect();
    format!("Pushed {}:\n{}", bytes(report.bytes_sent), lines.join("\n"))
}

fn push_call(prompt_text: PromptText) -> RemoteCall {
    RemoteCall::new("push").option("--prompt-text", Some(prompt_text.word()))
}

/// Becomes the program that pushes. Prints nothing, because it runs in the background: a failed push is recorded by that
/// program, and shown by `piton status`.
pub(crate) fn run_background(global: &Global) -> anyhow::Result<()> {
    platform::detach();
    let context = Context::build(global, ConfigPolicy::Background)?;
    if !context.settings.remote {
        return Ok(());
    }
    // If the configuration cannot be read, it may say that prompts stay here.
    let prompt_text = match context.config_problems.is_empty() {
        true => context.settings.prompt_text,
        false => PromptText::None,
    };
    // `piton status` sees for itself that the program is missing.
    if RemoteProgram::path().is_none() {
        return Ok(());
    }
    let program = RemoteProgram::find(&context.base).inspect_err(|error| {
        context.journal().note_warning(format!("push: {error}"), Context::now());
    })?;
    let mut command = program.command(&push_call(prompt_text).flag("--background", true));
    Err(platform::become_program(command.current_dir("/")).into())
}

pub(crate) fn run_fetch(args: &Fetch, context: &Context, output: &Output) -> anyhow::Result<()> {
    let report = named::fetch(&args.checkpoint, &args.from, &[], context, output)?;
    output.json(&report);
    let objects = counted(report.objects, "object");
    let short: String = report.id.chars().take(7).collect();
    let name = plain(&args.checkpoint);
    output.text(&format!("Fetched {name} as {ID}{short}{ID:#}: {objects}, {}", bytes(report.bytes)));
    output.hint(&format!("`piton restore {short}` brings it back, also without the network"));
    Ok(())
}
