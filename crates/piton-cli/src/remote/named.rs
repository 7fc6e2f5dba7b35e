//! Checkpoints of other machines by name: `NAME/N`, where N is a number, digits of an id or a mark. No mark and no local
//! name has a slash.

use std::borrow::Cow;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use piton::{CheckpointId, Error, ErrorKind, Progress};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::local;
use super::program::{RemoteCall, RemoteProgram};
use crate::context::Context;
use crate::output::Output;

/// The option that chooses a project of another machine.
#[derive(Debug, Args, Clone, Default, PartialEq, Eq)]
pub(crate) struct FromProject {
    /// With NAME/N: another project of that machine than this one, by its name, directory or id in `piton machines`
    #[arg(long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,
}

/// Result of a fetch.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FetchJson {
    /// id of the checkpoint in this store, by which all commands find it
    pub(crate) id: String,
    /// its id on the machine that took it
    pub(crate) original: String,
    /// name of that machine
    pub(crate) machine: String,
    /// number of objects that were received
    pub(crate) objects: u64,
    /// number of bytes that were received
    pub(crate) bytes: u64,
}

/// Returns the name by which the library finds a checkpoint: `name` itself, or for `NAME/N` the id of the checkpoint,
/// which is fetched first. With paths, only these are fetched: the result is to be used for them alone.
pub(crate) fn local_name<'a>(
    name: &'a str,
    from: &FromProject,
    paths: &[Vec<u8>],
    context: &Context,
    output: &Output,
) -> anyhow::Result<Cow<'a, str>> {
    let store = context.existing_store()?;
    match name.rsplit_once('/') {
        // Without a remote, it is a name that the library refuses.
        Some(_) if store.as_ref().is_some_and(local::is_configured) => {
            Ok(Cow::Owned(fetch(name, from, paths, context, output)?.id))
        }
        Some(_) if from.project.is_some() => Ok(Cow::Owned(fetch(name, from, paths, context, output)?.id)),
        None if from.project.is_some() => Err(Error::new(ErrorKind::Invalid, "use --project here")
            .because(format!("{name} is a checkpoint of this project"))
            .with_hint("it chooses a project of another machine, with a checkpoint such as `laptop/1`")
            .into()),
        _ => Ok(Cow::Borrowed(name)),
    }
}

/// Fails with `Invalid` for the name of a checkpoint on another machine: `what` completes "cannot …".
pub(crate) fn only_here(name: &str, what: &str) -> piton::Result<()> {
    match name.contains('/') {
        false => Ok(()),
        true => Err(Error::new(ErrorKind::Invalid, what)
            .because(format!(
                "{name} is a checkpoint of another machine, and the turns since then are known only there"
            ))
            .with_hint(format!("`piton restore {name}` restores all of its files; `piton undo` goes back"))),
    }
}

/// Fetches the checkpoint `NAME/N` into the store; with paths, only these.
pub(crate) fn fetch(
    name: &str,
    from: &FromProject,
    paths: &[Vec<u8>],
    context: &Context,
    output: &Output,
) -> anyhow::Result<FetchJson> {
    let Some((machine, checkpoint)) = name.rsplit_once('/') else {
        return Err(Error::new(ErrorKind::Invalid, format!("fetch {name}"))
            .because("a checkpoint of another machine is named MACHINE/N")
            .with_hint("`piton machines` lists the machines, `piton rollback --machine NAME` their checkpoints")
            .into());
    };
    let other = OtherMachine::of(machine, from, context)?;
    other.program.ask(&other.fetch_call(checkpoint, paths), output)
}

/// A machine whose checkpoints of a project are listed and fetched.
pub(crate) struct OtherMachine {
    program: RemoteProgram,
    /// Name of the machine.
    pub(crate) name: String,
    directory: PathBuf,
    from: FromProject,
    max_total_size_mb: u64,
}

impl OtherMachine {
    /// Returns the machine of this name; that there is one is found out later. Fails with `NotFound` without a remote.
    pub(crate) fn of(name: &str, from: &FromProject, context: &Context) -> piton::Result<Self> {
        Ok(Self {
            program: RemoteProgram::of(context)?,
            name: name.to_owned(),
            directory: context.dir.clone(),
            from: from.clone(),
            max_total_size_mb: context.settings.max_total_size_mb,
        })
    }

    fn call(&self, verb: &str) -> RemoteCall {
        RemoteCall::new(verb)
            .option("--machine", Some(&self.name))
            .option("--directory", Some(&self.directory))
            .option("--project", self.from.project.as_ref())
    }

    fn fetch_call(&self, checkpoint: &str, paths: &[Vec<u8>]) -> RemoteCall {
        let mut call = self
            .call("fetch")
            .option("--checkpoint", Some(checkpoint))
            .option("--max-total-size-mb", Some(self.max_total_size_mb.to_string()));
        // An empty path is the whole project.
        let paths = if paths.iter().any(Vec::is_empty) { &[] } else { paths };
        for path in paths {
            call = call.option("--path", Some(escape(path)));
        }
        call
    }

    /// Returns the checkpoints of the project, as the program lists them.
    pub(crate) fn list<T: DeserializeOwned>(&self, output: &Output) -> anyhow::Result<T> {
        self.program.ask(&self.call("list"), output)
    }

    /// Like [`Self::list`], but only counts the progress, and returns the warnings with the answer.
    pub(crate) fn list_with<T: DeserializeOwned>(&self, progress: &Progress) -> anyhow::Result<(T, Vec<String>)> {
        self.program.ask_with(&self.call("list"), progress)
    }

    /// Fetches a checkpoint, and returns its id in this store. The warnings are those of [`Self::list_with`].
    pub(crate) fn fetch_with(&self, id: CheckpointId, progress: &Progress) -> anyhow::Result<CheckpointId> {
        let (answer, _): (FetchJson, _) = self.program.ask_with(&self.fetch_call(&id.to_string(), &[]), progress)?;
        CheckpointId::from_hex(answer.id.as_bytes()).context("cannot read the answer of piton-remote")
    }
}

/// Returns a path in printable ASCII: each other byte and `%` as `%` and two hexadecimal digits.
fn escape(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        match byte {
            b' '..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_path_is_passed_on() {
        let all: Vec<u8> = (1..=255).collect();
        let text = escape(&all);
        assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
        assert_eq!(piton::json::unescape_path(&text), Some(all));
        assert_eq!(escape("a/50 % ü".as_bytes()), "a/50 %25 %c3%bc");
    }
}
