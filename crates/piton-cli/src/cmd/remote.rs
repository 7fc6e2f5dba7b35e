//! The `piton remote` command: the bucket to which checkpoints are pushed.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use piton::json::JsonPathOption;
use piton::{Error, ErrorKind, Moment};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::remote_key::{self, Key};
use crate::columns::counted;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{Declined, Output, Relayed, plain};
use crate::remote::local::{UnpushedProject, moment};
use crate::remote::phrase::{AtPhraseFile, PhraseFile, read_phrase, tell_phrase};
use crate::remote::program::{RemoteCall, RemoteProgram};

/// Keep a copy of all checkpoints in a bucket, where other machines find them
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton remote add s3://bucket/piton        with AWS_ACCESS_KEY_ID and the like
  piton remote add file:///mnt/disk/piton   a directory on another disk
  piton remote status
  piton remote key add --label laptop       a phrase for another machine

New checkpoints are pushed in the background. Everything is encrypted on this
machine before it is sent.

{EXIT_CODES}"))]
pub(crate) struct RemoteArgs {
    #[command(subcommand)]
    verb: RemoteVerb,
}

#[derive(Debug, Subcommand)]
enum RemoteVerb {
    Add(Add),
    Status(RemoteStatusArgs),
    Remove(Remove),
    Key(Key),
    Name(Name),
}

/// Add a remote, or join the one that other machines use
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton remote add s3://bucket/piton --phrase-out phrase.txt
  piton remote add s3://bucket/piton --phrase-file phrase.txt   join it
  piton remote add s3://bucket/piton --endpoint https://s3.example.org
  piton remote add gs://bucket/piton --credentials-file key.json

The first machine gets a recovery phrase, which opens the remote: keep it where
this machine is not. Other machines join with it, or are asked for it. Only the
place of credentials is stored, never their value.

{EXIT_CODES}"))]
struct Add {
    /// s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY
    #[arg(value_name = "URL")]
    url: String,
    /// Address of a server that is not the provider's own
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Take the credentials from this profile in ~/.aws/credentials
    #[arg(long, value_name = "PROFILE", conflicts_with = "credentials_file")]
    profile: Option<String>,
    /// Take the credentials from this file
    #[arg(long, value_name = "FILE")]
    credentials_file: Option<PathBuf>,
    /// Read the recovery phrase from this file; `-` is stdin
    #[arg(long, value_name = "FILE")]
    phrase_file: Option<PathBuf>,
    /// Write a new recovery phrase to this file, which must not exist, instead of showing it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["phrase_file", "no_encryption"])]
    phrase_out: Option<PathBuf>,
    /// Make a repository of plain git packs, which all who read the bucket can read
    #[arg(long, conflicts_with = "phrase_file")]
    no_encryption: bool,
    /// Name of this machine [default: its host name]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Upload limit in KiB per second; 0 is none
    #[arg(long, value_name = "KIB")]
    limit_kib: Option<u64>,
    /// Never delete anything: for credentials that do not permit it
    #[arg(long)]
    no_collect: bool,
    /// Delete unreferenced objects again, after --no-collect
    #[arg(long, conflicts_with = "no_collect")]
    collect: bool,
}

/// Show the remote, whether it can be reached, and what is not pushed yet
#[derive(Debug, Args)]
#[command(after_help = format!("Example:\n  piton remote status\n\n{EXIT_CODES}"))]
struct RemoteStatusArgs {}

/// Forget the remote here; what was pushed stays there
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton remote remove
  piton remote remove --delete-data   delete what all machines pushed

{EXIT_CODES}"))]
struct Remove {
    /// Delete everything in it, of all machines
    #[arg(long)]
    delete_data: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Give this project a name, the same on each machine
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  piton remote name website

A project is the same one on another machine by this name, else by its git
repository, else by its path.

{EXIT_CODES}"))]
struct Name {
    /// The name
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) fn run(args: &RemoteArgs, context: &Context, output: &Output) -> anyhow::Result<()> {
    match &args.verb {
        RemoteVerb::Add(add) => run_add(add, context, output),
        RemoteVerb::Status(_) => run_status(context, output),
        RemoteVerb::Remove(remove) => run_remove(remove, context, output),
        RemoteVerb::Key(key) => remote_key::run(key, context, output),
        RemoteVerb::Name(name) => run_name(name, context, output),
    }
}

#[derive(Deserialize)]
struct AddAnswer {
    url: String,
    machine: String,
    encrypted: bool,
    created: bool,
    phrase: Option<String>,
}

/// JSON of `remote add`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RemoteAddJson<'a> {
    /// place of the remote
    url: &'a str,
    /// name of this machine there
    machine: &'a str,
    /// true if everything is encrypted before it is sent
    encrypted: bool,
    /// true if the remote is new, false if other machines use it
    created: bool,
    /// the recovery phrase of a new remote, or null; it is not shown again
    phrase: Option<&'a str>,
    #[serde(flatten)]
    file: JsonPathOption<'a, AtPhraseFile>,
}

fn run_add(args: &Add, context: &Context, output: &Output) -> anyhow::Result<()> {
    let program = RemoteProgram::find(&context.base)?;
    let phrase = args.phrase_file.as_deref().map(|file| read_phrase(file, context, output)).transpose()?;
    let phrase_out = args.phrase_out.as_deref().map(|file| PhraseFile::create(&context.dir.join(file))).transpose()?;
    let answer = match program.ask(&add_call(args, context, phrase.as_deref()), output) {
        Err(error) if phrase.is_none() && needs_phrase(&error) && can_ask(output) => {
            let typed = output.asked("Recovery phrase of this remote: ")?.unwrap_or_default();
            program.ask(&add_call(args, context, Some(&typed)), output)
        }
        answer => answer,
    };
    let answer: AddAnswer = answer?;
    let written = match (phrase_out, &answer.phrase) {
        (Some(file), Some(phrase)) => Some(file.keep(phrase)?),
        _ => None,
    };
    let phrase = answer.phrase.as_deref().filter(|_| written.is_none());
    output.json(&RemoteAddJson {
        url: &answer.url,
        machine: &answer.machine,
        encrypted: answer.encrypted,
        created: answer.created,
        phrase,
        file: JsonPathOption::of(written.as_deref()),
    });
    let verb = if answer.created { "Added" } else { "Joined" };
    output.text(&format!("{verb} {}; this machine is {}", plain(&answer.url), plain(&answer.machine)));
    if let Some(file) = &written {
        output.text(&format!("Recovery phrase: in {}", plain(&file.display().to_string())));
    }
    tell_phrase(phrase, output);
    if !answer.encrypted {
        output.warn("nothing is encrypted: all who can read the bucket can read the files");
    }
    let next = if answer.created {
        "`piton push` sends the existing checkpoints; new ones are sent in the background"
    } else {
        "`piton machines` lists the machines, `piton rollback --machine NAME` their checkpoints of this project"
    };
    output.hint(next);
    Ok(())
}

fn add_call(args: &Add, context: &Context, phrase: Option<&str>) -> RemoteCall {
    RemoteCall::new("add")
        .option("--endpoint", args.endpoint.as_ref())
        .option("--region", args.region.as_ref())
        .option("--profile", args.profile.as_ref())
        .option("--credentials-file", args.credentials_file.as_ref().map(|file| context.dir.join(file)))
        .option("--phrase-file", phrase.map(|_| "-"))
        .option("--machine", args.machine.as_ref())
        .option("--limit-kib", args.limit_kib.map(|limit| limit.to_string()))
        .flag("--no-encryption", args.no_encryption)
        .flag("--no-collect", args.no_collect)
        .flag("--collect", args.collect)
        .arg("--")
        .arg(&args.url)
        .input(phrase.unwrap_or_default())
}

fn needs_phrase(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|Relayed(failure)| failure.kind == "wrong_key")
}

fn can_ask(output: &Output) -> bool {
    !output.is_json && !output.is_quiet && std::io::stdin().is_terminal()
}

#[derive(Deserialize)]
struct StatusAnswer {
    url: String,
    endpoint: Option<String>,
    credentials: Value,
    machine: String,
    encrypted: bool,
    collects: bool,
    unpushed: Vec<UnpushedProject>,
    pushed_secs: i64,
    failure: String,
    retry_secs: i64,
    warnings: Vec<String>,
    problem: Option<RemoteProblem>,
}

/// JSON of `remote status`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RemoteStatusJson {
    /// place of the remote
    url: String,
    /// address of the server, or null for that of the provider
    endpoint: Option<String>,
    /// where credentials come from: `environment`, `profile NAME` or `file PATH`
    credentials: String,
    /// name of this machine
    machine: String,
    /// true if everything is encrypted before it is sent
    encrypted: bool,
    /// true if this machine deletes unreferenced objects
    collects: bool,
    /// projects with checkpoints that are not pushed yet
    unpushed: Vec<UnpushedProject>,
    /// time of the last push that succeeded, or null
    pushed: Option<Moment>,
    /// why the last push failed, or null if it did not
    failure: Option<String>,
    /// time before which no automatic push is tried, or null
    retry: Option<Moment>,
    /// findings to look at, such as a remote that was rolled back; until `piton status --ack`
    warnings: Vec<String>,
    /// why the remote cannot be reached now, or null
    problem: Option<RemoteProblem>,
}

/// Reason that the remote cannot be reached.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RemoteProblem {
    /// kind of failure, as in errors
    kind: String,
    /// description
    message: String,
    /// what to do next, or null
    hint: Option<String>,
}

/// Shown below the status, so that it is known what is not saved elsewhere.
const NEVER_SENT: &str = "files out of scope, kept files and git state";

fn run_status(context: &Context, output: &Output) -> anyhow::Result<()> {
    let answer: StatusAnswer = RemoteProgram::of(context)?.ask(&RemoteCall::new("status"), output)?;
    let credentials = match &answer.credentials {
        Value::Object(from) => {
            from.iter().map(|(kind, value)| format!("{kind} {}", value.as_str().unwrap_or_default())).collect()
        }
        _ => "environment".to_owned(),
    };
    let status = RemoteStatusJson {
        url: answer.url,
        endpoint: answer.endpoint,
        credentials,
        machine: answer.machine,
        encrypted: answer.encrypted,
        collects: answer.collects,
        unpushed: answer.unpushed,
        pushed: moment(answer.pushed_secs),
        failure: Some(answer.failure).filter(|failure| !failure.is_empty()),
        retry: moment(answer.retry_secs),
        warnings: answer.warnings,
        problem: answer.problem,
    };
    output.json(&status);
    output.text(&status_text(&status, context));
    for warning in &status.warnings {
        output.warn(warning);
    }
    if !status.warnings.is_empty() {
        output.hint("`piton status --ack` once you have seen this");
    }
    let Some(problem) = &status.problem else { return Ok(()) };
    if problem.kind == "credentials" {
        output.warn(&format!("not pushed: no credentials in this environment ({})", problem.message));
    } else {
        output.warn(&problem.message);
    }
    if let Some(hint) = &problem.hint {
        output.hint(hint);
    }
    Ok(())
}

fn status_text(status: &RemoteStatusJson, context: &Context) -> String {
    let mut lines = vec![format!("Remote:       {}", status.url)];
    lines.extend(status.endpoint.as_ref().map(|endpoint| format!("Server:       {endpoint}")));
    lines.push(format!("Machine:      {}", status.machine));
    lines.push(format!("Encrypted:    {}", if status.encrypted { "yes" } else { "NO" }));
    let needs_none = status.url.starts_with("file:");
    lines.push(format!("Credentials:  {}", if needs_none { "none needed" } else { &status.credentials }));
    lines.push(format!("Deletes:      {}", if status.collects { "unreferenced objects" } else { "nothing" }));
    let automatic = if context.settings.remote { "after each checkpoint" } else { "off (`remote: false`)" };
    lines.push(format!("Automatic:    {automatic}"));
    let pushed = status.pushed.map_or_else(|| "never".to_owned(), Moment::date_and_time);
    lines.push(format!("Last push:    {pushed}"));
    lines.extend(status.failure.as_ref().map(|failure| format!("Last failure: {failure}")));
    lines.extend(status.retry.map(|at| format!("Next attempt: after {}", at.date_and_time())));
    let count: usize = status.unpushed.iter().map(|one| one.checkpoints).sum();
    let unpushed = if count == 0 { "nothing".to_owned() } else { counted(count, "checkpoint") };
    lines.push(format!("Not pushed:   {unpushed}"));
    let line = |one: &UnpushedProject| format!("  {}: {}", one.directory, counted(one.checkpoints, "checkpoint"));
    lines.extend(status.unpushed.iter().map(line));
    lines.push(format!("Never sent:   {NEVER_SENT}"));
    lines.iter().map(|line| plain(line)).collect::<Vec<_>>().join("\n")
}

/// JSON of `remote remove`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RemoteRemoveJson {
    /// place of the remote, or null if its configuration could not be read
    url: Option<String>,
    /// number of objects that were deleted there
    deleted: u64,
}

fn run_remove(args: &Remove, context: &Context, output: &Output) -> anyhow::Result<()> {
    let program = RemoteProgram::of(context)?;
    if !args.yes {
        let question = if args.delete_data {
            "Delete everything that all machines have pushed there? [y/N] "
        } else {
            "Forget the remote and its key on this machine? The phrase opens it again. [y/N] "
        };
        if !output.confirmed(question, "--yes")? {
            return Err(Declined("nothing was removed", Some("`--yes` does not ask")).into());
        }
    }
    let call = RemoteCall::new("remove").flag("--delete-data", args.delete_data);
    let report: RemoteRemoveJson = program.ask(&call, output)?;
    output.json(&report);
    let what = match args.delete_data {
        true => format!("{} there deleted", counted(report.deleted, "object")),
        false => "what was pushed stays there".to_owned(),
    };
    let url = report.url.as_deref().map_or_else(|| "the remote".to_owned(), plain);
    output.text(&format!("Removed {url}; {what}"));
    Ok(())
}

/// JSON of `remote name`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RemoteNameJson {
    /// directory of the project
    directory: String,
    /// its name
    name: String,
}

fn run_name(args: &Name, context: &Context, output: &Output) -> anyhow::Result<()> {
    if args.name.trim().is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "use an empty name").into());
    }
    let program = RemoteProgram::of(context)?;
    let project = context.project(context.existing_store()?.as_ref())?;
    let call = RemoteCall::new("name").arg("--").arg(project.dir()).arg(&args.name);
    let report: RemoteNameJson = program.ask(&call, output)?;
    output.json(&report);
    output.text(&format!("{} is {} on all machines", plain(&report.directory), plain(&report.name)));
    output.hint("give it the same name on the other machines; the next push uses it");
    Ok(())
}
