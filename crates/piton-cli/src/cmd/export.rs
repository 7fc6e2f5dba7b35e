//! The `piton export` command.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;
use piton::{Error, ErrorKind, export, export_tar, turn_patch};

use super::diff::shown;
use crate::columns::counted;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{Output, bytes, plain};
use crate::progress::watch;
use crate::remote::named::{FromProject, local_name};

/// Write the files of a checkpoint to a new directory, or a turn as a patch
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton export 3 ../as-it-was
  piton export 3 --tar | tar -x -C /tmp/there
  piton export 3 --patch | git apply   what the turn from checkpoint 3 did

The directory gets its name when it is complete. Until then it is called
DIR.piton-incomplete-..., which can be deleted if the export was killed.

{EXIT_CODES}"))]
pub(crate) struct ExportArgs {
    /// Its number in `piton rollback`, the beginning of its id, or its mark; NAME/N is one of another machine;
    /// with --patch also a turn
    #[arg(value_name = "N|ID")]
    checkpoint: String,
    /// The directory, which must not exist
    #[arg(value_name = "DIR", required_unless_present_any = ["patch", "tar"], conflicts_with_all = ["patch", "tar"])]
    target: Option<PathBuf>,
    /// Print what the turn that began there changed, from its start to its end, for `git apply`
    #[arg(long, conflicts_with = "tar")]
    patch: bool,
    /// With --patch: the agent, if turns of several began there
    #[arg(long, value_name = "AGENT", requires = "patch")]
    agent: Option<String>,
    /// Print a tar archive
    #[arg(long, conflicts_with = "json")]
    tar: bool,
    #[command(flatten)]
    from: FromProject,
}

pub(crate) fn run(args: &ExportArgs, context: &Context, output: &Output) -> anyhow::Result<()> {
    let name = local_name(&args.checkpoint, &args.from, &[], context, output)?;
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    context.warn_of_interrupted_restore(&store, &project, output);
    let name = &*name;
    if args.patch {
        let (agent, settings) = (args.agent.as_deref(), &context.settings);
        let diff = watch(output, |progress| turn_patch(&store, &project, name, agent, settings, progress))?;
        output.json(&diff);
        output.page(&shown(&diff.patch, output));
        return Ok(());
    }
    let Some(dir) = &args.target else {
        if std::io::stdout().is_terminal() {
            return Err(Error::new(ErrorKind::Invalid, "print an archive to a terminal")
                .with_hint("`piton export N --tar > FILE` writes it to a file")
                .into());
        }
        watch(output, |progress| output.stream(|out| export_tar(&store, &project, name, out, progress)))?;
        return Ok(());
    };
    let dir = context.dir.join(dir);
    let report = watch(output, |progress| export(&store, &project, name, &dir, progress))?;
    output.json(&report);
    let cloned = if report.cloned > 0 { format!(", {} of them cloned", report.cloned) } else { String::new() };
    let (id, files) = (report.checkpoint.id.short(), counted(report.files, "file"));
    let dir = plain(&report.dir.display().to_string());
    output.text(&format!("Exported {id} to {dir}: {files}, {}{cloned}", bytes(report.bytes)));
    Ok(())
}
