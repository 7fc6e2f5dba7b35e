//! Checkpoints of other machines by name: `NAME/N`, where N is a number, digits of an id or a mark. No mark and no local
//! name has a slash.

use std::borrow::Cow;

use clap::Args;
use piton::{Error, ErrorKind};
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
    // An empty path is the whole project.
    let paths = if paths.iter().any(Vec::is_empty) { &[] } else { paths };
    let mut call = RemoteCall::new("fetch")
        .option("--machine", Some(machine))
        .option("--checkpoint", Some(checkpoint))
        .option("--directory", Some(&context.dir))
        .option("--project", from.project.as_ref())
        .option("--max-total-size-mb", Some(context.settings.max_total_size_mb.to_string()));
    for path in paths {
        call = call.option("--path", Some(escape(path)));
    }
    RemoteProgram::of(context)?.ask(&call, output)
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
