//! The `piton remote key` command: the recovery phrases that open a remote.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use piton::json::JsonPathOption;
use serde::{Deserialize, Serialize};

use crate::columns::counted;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{Declined, Output, plain};
use crate::remote::phrase::{AtPhraseFile, PhraseFile, tell_phrase};
use crate::remote::program::{RemoteCall, RemoteProgram};

/// Manage the recovery phrases that open the remote; without a verb, list them
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton remote key
  piton remote key add --label laptop
  piton remote key rotate

{EXIT_CODES}"))]
pub(crate) struct Key {
    #[command(subcommand)]
    verb: Option<KeyVerb>,
}

#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// List the phrases: the id and the label of each
    #[command(after_help = format!("Example:\n  piton remote key list\n\n{EXIT_CODES}"))]
    List,
    Add(KeyAdd),
    Remove(KeyRemove),
    /// Replace the key for everything that is pushed from now on; the phrases stay
    #[command(after_help = format!("Example:\n  piton remote key rotate\n\n{EXIT_CODES}"))]
    Rotate,
}

/// Make another phrase, for another machine or person
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton remote key add --label laptop
  piton remote key add --phrase-out phrase.txt

{EXIT_CODES}"))]
struct KeyAdd {
    /// Purpose of the phrase, such as the name of a machine
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    /// Write the phrase to this file, which must not exist, instead of showing it
    #[arg(long, value_name = "FILE")]
    phrase_out: Option<PathBuf>,
}

/// Remove a phrase, and replace the key that it opened
#[derive(Debug, Args)]
#[command(after_help = format!("\
Example:
  piton remote key remove 5f3c9a

What was pushed until now stays readable for those who could read it.

{EXIT_CODES}"))]
struct KeyRemove {
    /// Its id in `piton remote key`
    #[arg(value_name = "SLOT")]
    slot: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// JSON of `remote key list`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeyListJson {
    /// false if the remote has no keys
    encrypted: bool,
    /// number of keys: one, and one more for each time the key was replaced
    #[serde(default)]
    keys: u64,
    /// the phrases that open it
    slots: Vec<KeySlot>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KeySlot {
    /// id of the phrase
    slot: String,
    /// what it is for, or null if that cannot be read
    label: Option<String>,
}

#[derive(Deserialize)]
struct KeyAddAnswer {
    slot: String,
    phrase: String,
}

/// JSON of `remote key add`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeyAddJson<'a> {
    /// id of the phrase
    slot: &'a str,
    /// the phrase, or null if it was written to a file; it is not shown again
    phrase: Option<&'a str>,
    #[serde(flatten)]
    file: JsonPathOption<'a, AtPhraseFile>,
}

/// JSON of `remote key remove` and `remote key rotate`.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeyChangeJson {
    /// number of keys, the new one included
    keys: u64,
    /// number of phrases that open the remote
    slots: u64,
}

pub(super) fn run(args: &Key, context: &Context, output: &Output) -> anyhow::Result<()> {
    let program = RemoteProgram::of(context)?;
    match &args.verb {
        None | Some(KeyVerb::List) => list(&program, output),
        Some(KeyVerb::Add(add)) => run_add(add, &program, context, output),
        Some(KeyVerb::Remove(remove)) => {
            let question = "Remove this phrase, and replace the key that it opened? [y/N] ";
            if !remove.yes && !output.confirmed(question, "--yes")? {
                return Err(Declined("nothing was removed", Some("`--yes` does not ask")).into());
            }
            changed(&RemoteCall::new("key-remove").arg("--").arg(&remove.slot), "Removed; ", &program, output)
        }
        Some(KeyVerb::Rotate) => changed(&RemoteCall::new("key-rotate"), "", &program, output),
    }
}

fn list(program: &RemoteProgram, output: &Output) -> anyhow::Result<()> {
    let keys: KeyListJson = program.ask(&RemoteCall::new("keys"), output)?;
    output.json(&keys);
    if !keys.encrypted {
        output.text("The remote is not encrypted: there are no keys");
        return Ok(());
    }
    let line = |one: &KeySlot| format!("  {}  {}", one.slot, one.label.as_deref().unwrap_or("(cannot be read)"));
    let lines: Vec<_> = keys.slots.iter().map(|one| plain(&line(one)).trim_end().to_owned()).collect();
    let open = if keys.slots.len() == 1 { "opens" } else { "open" };
    output.text(&format!("{} {open} the remote:\n{}", counted(keys.slots.len(), "phrase"), lines.join("\n")));
    Ok(())
}

fn run_add(args: &KeyAdd, program: &RemoteProgram, context: &Context, output: &Output) -> anyhow::Result<()> {
    let phrase_out = args.phrase_out.as_deref().map(|file| PhraseFile::create(&context.dir.join(file))).transpose()?;
    let call = RemoteCall::new("key-add").option("--label", args.label.as_ref());
    let answer: KeyAddAnswer = program.ask(&call, output)?;
    let written = phrase_out.map(|file| file.keep(&answer.phrase)).transpose()?;
    let phrase = Some(answer.phrase.as_str()).filter(|_| written.is_none());
    output.json(&KeyAddJson { slot: &answer.slot, phrase, file: JsonPathOption::of(written.as_deref()) });
    output.text(&format!("Added the phrase {}", plain(&answer.slot)));
    if let Some(file) = &written {
        output.text(&format!("Recovery phrase: in {}", plain(&file.display().to_string())));
    }
    tell_phrase(phrase, output);
    Ok(())
}

fn changed(call: &RemoteCall, start: &str, program: &RemoteProgram, output: &Output) -> anyhow::Result<()> {
    let report: KeyChangeJson = program.ask(call, output)?;
    output.json(&report);
    let phrases = counted(report.slots, "phrase");
    output.text(&format!("{start}a new key seals what is pushed from now on; {phrases} to open it"));
    output.hint("other machines join again: `piton remote add` with the same URL and their phrase");
    Ok(())
}
