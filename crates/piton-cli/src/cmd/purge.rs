//! The `piton purge` command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use piton::json::{AtPaths, JsonPaths};
use piton::{
    History, Project, PurgePlan, PurgeReport, Store, find_prompt, plan_purge, purge, purge_outside, purge_prompt,
};

use super::paths::{check_from_here, parse_paths};
use crate::columns::counted;
use crate::context::Context;
use crate::options::EXIT_CODES;
use crate::output::{Declined, ID, Output, PartlyDone, bytes, plain};
use crate::platform;
use crate::progress::watch_to_the_end;
use crate::remote::local::holder_of;

/// Maximum number of places listed that still hold the same contents.
const PLACES_MAX: usize = 20;

/// Remove a file, such as a secret, from every checkpoint of this project for good
#[derive(Debug, Args)]
#[command(after_help = format!("\
This is the only command that rewrites history: checkpoints that held the file
get new ids, which are listed. The file itself stays where it is. Keep it out of
later checkpoints with `exclude:` in the configuration or .gitignore.

Examples:
  piton purge config/keys.json
  piton purge secrets/ --dry-run
  piton purge --prompt 4e1c5d00   the text of one prompt; ids stay

{EXIT_CODES}"))]
pub(crate) struct Purge {
    /// Files and directories, relative to the project, or absolute
    #[arg(value_name = "PATH", required_unless_present = "prompt")]
    paths: Vec<OsString>,
    /// Remove the text of one prompt instead: its turn in `piton show`, or at least its first 4 characters
    #[arg(long, value_name = "TURN", conflicts_with = "paths")]
    prompt: Option<String>,
    /// Show what would be rewritten, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(args: &Purge, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    let project = context.project(Some(&store))?;
    if let Some(turn) = &args.prompt {
        return forget_prompt(turn, args, &store, &project, output);
    }
    let (inside, outside) = by_place(&args.paths, &project);
    match (inside.as_slice(), outside.as_slice()) {
        ([], outside) => return tell(&purge_outside(&store, outside)?, output),
        (_, []) => {}
        _ => {
            let error = piton::Error::new(piton::ErrorKind::Invalid, "purge paths of the project and others at once");
            return Err(error.with_hint("name the paths of one place at a time").into());
        }
    }
    let paths = parse_paths(&inside)?;
    check_from_here(&paths, &store, &project, context, output)?;
    let plan = plan_purge(&store, &project, &paths)?;
    if args.dry_run {
        let PurgePlan { checkpoints, local, paths, .. } = &plan;
        let (checkpoints, local) = (*checkpoints, *local);
        output.json(&PurgePlanJson { dry_run: true, checkpoints, local, paths: JsonPaths::new(paths) });
    }
    if !plan.paths.is_empty() {
        output.text(&as_question(&plan));
    }
    if args.dry_run {
        return Ok(());
    }
    if !plan.paths.is_empty() && !args.yes && !output.confirmed("Purge? [y/N] ", "--yes")? {
        return Err(Declined("nothing was changed", Some("`--yes` does not ask")).into());
    }
    let mut report = watch_to_the_end(output, |progress| purge(&store, &project, &paths, Context::now(), progress))?;
    let is_pushed = add_remote(&mut report, &store, output);
    let told = tell(&report, output);
    if is_pushed {
        output.hint(
            "replace the secret: in the remote it goes for certain only with everything else, by `piton remote remove \
             --delete-data`",
        );
    }
    if paths.iter().any(|path| project.dir().join(platform::name_of_bytes(path)).symlink_metadata().is_ok()) {
        let keep_out = keep_out(&context.settings.exclude, &paths);
        let how = keep_out.unwrap_or_else(|| "`exclude:` in the configuration".to_owned());
        output.hint(&format!(
            "the file stays where it is: later checkpoints, also those that a restore takes, hold it again unless it is \
             excluded or ignored: {how}"
        ));
    }
    told
}

/// Prints the report.
fn tell(report: &PurgeReport, output: &Output) -> anyhow::Result<()> {
    output.json(report);
    output.text(&as_text(report));
    for (id, place) in report.still_held.iter().take(PLACES_MAX) {
        output.warn(&format!("the same contents ({}) are still there: {place}", id.short()));
    }
    if let Some(more) = report.still_held.len().checked_sub(PLACES_MAX).filter(|more| *more > 0) {
        let places = counted(more, "other place");
        output.warn(&format!("and in {places}, which `--json` lists"));
    }
    if report.still_held.iter().any(|(_, place)| place.contains(" in the kept files ")) {
        output.hint("`piton prune --kept` frees all kept files");
    }
    if report.still_held.is_empty() { Ok(()) } else { Err(PartlyDone.into()) }
}

/// Adds the remote to the places that hold the contents, if checkpoints with them were pushed. Returns true if so.
fn add_remote(report: &mut PurgeReport, store: &Store, output: &Output) -> bool {
    let before: Vec<_> = report.rewritten.iter().map(|(old, _)| *old).collect();
    let holder = holder_of(store, &before).unwrap_or_else(|error| {
        output.warn(&error.to_string());
        None
    });
    let Some(url) = &holder else { return false };
    let place = format!("the remote {url}, in what was pushed before");
    report.still_held.extend(report.contents.iter().map(|id| (*id, place.clone())));
    true
}

/// Sorts the paths on the command line: those of the project, relative to it, and absolute ones outside of it.
fn by_place(typed: &[OsString], project: &Project) -> (Vec<OsString>, Vec<PathBuf>) {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for path in typed.iter().map(Path::new) {
        // The links before the last component lead to the project.
        let parent = path.parent().filter(|_| path.is_absolute()).and_then(|parent| parent.canonicalize().ok());
        let full = parent.zip(path.file_name()).map_or_else(|| path.to_owned(), |(parent, name)| parent.join(name));
        match full.strip_prefix(project.dir()) {
            Ok(below) if !below.as_os_str().is_empty() => inside.push(below.as_os_str().to_owned()),
            Err(_) if path.is_absolute() => outside.push(full),
            _ => inside.push(path.as_os_str().to_owned()),
        }
    }
    (inside, outside)
}

/// Formats what will be lost.
fn as_question(plan: &PurgePlan) -> String {
    let shown = plan.paths.iter().map(|path| format!("  {}", plain(&String::from_utf8_lossy(path))));
    let names = shown.collect::<Vec<_>>().join("\n");
    let rewritten = match plan.checkpoints {
        0 => None,
        1 => Some("1 checkpoint, which gets a new id".to_owned()),
        many => Some(format!("{many} checkpoints, which get new ids")),
    };
    let local = (plan.local > 0).then(|| format!("the ignored files of {}", counted(plan.local, "checkpoint")));
    let from = rewritten.into_iter().chain(local).collect::<Vec<_>>().join(", and out of ");
    format!("This removes from {from}, and cannot be undone:\n{names}")
}

/// Removes the text of one prompt.
fn forget_prompt(name: &str, args: &Purge, store: &Store, project: &Project, output: &Output) -> anyhow::Result<()> {
    let turn = find_prompt(store, project, name)?;
    let in_reason = History::of(store, project)?
        .checkpoints()
        .iter()
        .any(|one| one.facts.origin.turn.as_ref() == Some(&turn.turn) && one.reason.starts_with("prompt: "));
    let json = |dry_run: bool| PurgePromptJson { dry_run, session: &turn.session, turn: &turn.turn };
    output.text(&format!("This removes, and cannot be undone:\n  {}", plain(&turn.headline())));
    if args.dry_run {
        output.json(&json(true));
        return Ok(());
    }
    if !args.yes && !output.confirmed("Purge? [y/N] ", "--yes")? {
        return Err(Declined("nothing was changed", Some("`--yes` does not ask")).into());
    }
    purge_prompt(store, project, &turn.turn)?;
    output.json(&json(false));
    output.text(&format!("Purged: the words of turn {} are gone", plain(&turn.turn)));
    if in_reason {
        output.warn("the reason of a checkpoint that an older piton took still quotes the prompt");
        return Err(PartlyDone.into());
    }
    Ok(())
}

/// Returns the command that adds the paths to the exclude list. `None` if one of them cannot be written there: items
/// are separated by commas.
fn keep_out(excluded: &[String], paths: &[Vec<u8>]) -> Option<String> {
    let mut items = excluded.to_vec();
    for path in paths {
        let path = std::str::from_utf8(path).ok()?;
        let mut pattern = "/".to_owned();
        for character in path.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        items.push(pattern);
    }
    let list = items.join(",");
    let is_typed = items.iter().all(|item| !item.contains(',') && !item.ends_with(' ')) && plain(&list) == list;
    is_typed.then(|| format!("`piton config set exclude '{}'`", list.replace('\'', "'\\''")))
}

fn as_text(report: &PurgeReport) -> String {
    if report.paths.is_empty() {
        return "Nothing purged: no checkpoint of this project holds it".to_owned();
    }
    let mut lines = vec![format!(
        "Purged: {} gone from {}, {} freed",
        if report.gone == 1 { "1 content is".to_owned() } else { format!("{} contents are", report.gone) },
        counted(report.rewritten.len(), "checkpoint"),
        bytes(report.bytes_freed)
    )];
    lines.extend((!report.rewritten.is_empty()).then(|| "Checkpoints with new ids:".to_owned()));
    lines.extend(
        report.rewritten.iter().map(|(old, new)| format!("  {} is now {ID}{}{ID:#}", old.short(), new.short())),
    );
    lines.join("\n")
}

/// JSON of a purge that was not carried out.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PurgePlanJson<'a> {
    /// true
    dry_run: bool,
    /// number of checkpoints that would get new ids
    checkpoints: usize,
    /// number of checkpoints whose ignored files include one of the paths
    local: usize,
    #[serde(flatten)]
    paths: JsonPaths<'a, AtPaths>,
}

/// JSON of the purge of a prompt.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PurgePromptJson<'a> {
    /// true if nothing was changed
    dry_run: bool,
    /// session of the prompt
    session: &'a str,
    /// turn of the prompt
    turn: &'a str,
}
