//! The `piton cat` command.

use std::ffi::OsString;
use std::io::IsTerminal as _;

use clap::Args;
use piton::json::{AtPath, JsonPath};
use piton::{CheckpointFile, CheckpointId};

use super::diff::without_control;
use super::paths::{check_from_here, parse_paths};
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::Output;
use crate::remote::named::{FromProject, local_name};

/// Print one file of a checkpoint
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton cat 1 src/main.rs
  piton cat 4f2a logo.png > logo.png
  piton cat laptop/1 src/main.rs   of another machine

The target of a link is printed, as git does it. On a terminal, control
characters are replaced; anything else gets every byte.

{EXIT_CODES}"))]
pub(crate) struct Cat {
    /// Its number in `piton rollback`, the beginning of its id, or its mark; NAME/N is one of another machine
    #[arg(value_name = "N|ID")]
    checkpoint: String,
    /// The file, relative to the project
    #[arg(value_name = "PATH")]
    path: OsString,
    #[command(flatten)]
    from: FromProject,
}

piton::path_keys! {
    AtContents = "contents", "contents_bytes", "contents of the file; of a link, its target";
}

/// JSON of a file in a checkpoint.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CatJson<'a> {
    /// id of the checkpoint
    id: CheckpointId,
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    /// permission bits, as octal digits
    mode: String,
    /// true if it is a link
    link: bool,
    /// number of bytes
    bytes: u64,
    #[serde(flatten)]
    contents: JsonPath<'a, AtContents>,
}

pub(crate) fn run(args: &Cat, context: &Context, output: &Output) -> anyhow::Result<()> {
    let paths = parse_paths(std::slice::from_ref(&args.path))?;
    let name = local_name(&args.checkpoint, &args.from, &paths, context, output)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    check_from_here(&paths, &store, &project, context, output)?;
    let file = CheckpointFile::open(&store, &project, &name, &paths[0])?;
    if !output.is_json && !std::io::stdout().is_terminal() {
        output.stream(|out| file.write_to(out))?;
        return Ok(());
    }
    let mut contents = Vec::new();
    file.write_to(&mut contents)?;
    output.json(&CatJson {
        id: file.checkpoint.id,
        path: JsonPath::new(&file.path),
        mode: format!("{:o}", file.mode),
        link: file.is_link,
        bytes: file.bytes,
        contents: JsonPath::new(&contents),
    });
    output.page(&without_control(&contents));
    Ok(())
}
