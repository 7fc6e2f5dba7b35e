//! The `piton recover` command.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;
use piton::{
    BackReport, Left, LostElsewhere, LostItem, LostKind, Progress, Project, RecoverOptions, RecoverOutcome,
    RecoverReport, Store, WhyLeft, lost_elsewhere, recover, recover_outside, undo_recovery,
};

use super::paths::{check_from_here, parse_paths};
use super::period;
use super::restore::{files, shown, tell_agents};
use crate::columns::{self, counted};
use crate::context::Context;
use crate::maintenance;
use crate::options::EXIT_CODES;
use crate::output::{Declined, ID, Output, PartlyDone, bytes, painted, plain};
use crate::progress::watch;
use crate::shell;

/// List the files that were lost, and bring them back
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton recover                  what is missing since the last prompt
  piton recover --all            what any checkpoint holds and is missing now
  piton recover src/main.rs      bring it back
  piton recover .env             an ignored file, saved with the checkpoints
  piton recover src/ --dry-run   only show what would come back
  piton recover ~/data/big.bin   a file outside of the project

A missing file comes back in its newest version: from a checkpoint, or as it
was kept before a command destroyed it. A file that exists comes back in the
newest version that differs. No file is removed, and the current files are saved
first: the output names the command that undoes the recovery, `piton undo` or
`piton recover --undo ID`.

{EXIT_CODES}"))]
pub(crate) struct Recover {
    /// Bring back these files, and missing files below these directories; relative to the project, or absolute
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// List what was lost since this checkpoint [default: since the last prompt]
    #[arg(long, value_name = "N|ID", conflicts_with = "all")]
    since: Option<String>,
    /// List what was lost since the oldest checkpoint
    #[arg(long)]
    all: bool,
    /// Take the versions from this checkpoint, or from what was kept under this name
    #[arg(long, value_name = "N|ID", requires = "paths")]
    from: Option<String>,
    /// Undo a recovery of kept files
    #[arg(long, value_name = "ID", conflicts_with_all = ["paths", "since", "all", "from", "dry_run"])]
    undo: Option<String>,
    /// Show what would come back, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before files outside of every project are written
    #[arg(short, long)]
    yes: bool,
}

/// Number of files that are listed.
const PAGE: usize = 50;
/// Number of files that are listed because they changed.
const CHANGED_PAGE: usize = 20;

pub(crate) fn run(args: &Recover, context: &Context, output: &Output) -> anyhow::Result<()> {
    let store = context.store_with_checkpoints()?;
    if let Some(id) = &args.undo {
        return take_back(id, &store, context, output);
    }
    let (outside, typed): (Vec<OsString>, Vec<OsString>) =
        args.paths.iter().cloned().partition(|path| Path::new(path).is_absolute());
    let here = context.project(Some(&store));
    let own_dir = here.as_ref().ok().map(|here| here.dir().to_owned());
    let place = match outside.as_slice() {
        [] => RecoverPlace { project: here?, paths: parse_paths(&typed)?, outside: Vec::new() },
        _ if typed.is_empty() => place_of(&outside, here.ok(), &store, context)?,
        _ => return Err(mixed("absolute paths and paths of the project").into()),
    };
    context.warn_of_interrupted_restore(&store, &place.project, output);
    let options = RecoverOptions::default().paths(&place.paths).is_all(args.all).is_dry(args.dry_run);
    let options = options.since(args.since.as_deref()).from(args.from.as_deref());
    let (settings, home, now) = (&context.settings, context.home.as_deref(), Context::now());
    let is_outside = !place.outside.is_empty();
    let report = if is_outside {
        let recovered = |is_dry: bool, progress: &Progress| {
            let options = options.is_dry(is_dry);
            recover_outside(&store, &place.outside, options, settings, home, now, progress)
        };
        if !args.dry_run {
            agree(&recovered(true, &Progress::default())?, args.yes, output)?;
        }
        watch(output, |progress| recovered(args.dry_run, progress))?
    } else {
        check_from_here(&place.paths, &store, &place.project, context, output)?;
        watch(output, |progress| recover(&store, &place.project, options, settings, now, progress))?
    };
    if let Some(restore) = &report.restore {
        tell_agents(settings, &store, &place.project, restore);
        maintenance::start_if_due(&store, settings, context.config.as_deref());
    }
    let place_dir = Some(place.project.dir()).filter(|dir| own_dir.as_deref() != Some(*dir));
    let elsewhere = match args.paths.as_slice() {
        [] => watch(output, |progress| lost_elsewhere(&store, &place.project, settings, now, progress))?,
        _ => Vec::new(),
    };
    output.json(&RecoverJson { report: &report, elsewhere: &elsewhere });
    if report.outcome != RecoverOutcome::NothingLost || elsewhere.is_empty() {
        tell(&report, args.paths.is_empty(), place_dir, output)?;
    }
    tell_elsewhere(&elsewhere, output);
    Ok(())
}

/// Names other projects that the same turn destroyed something in.
fn tell_elsewhere(elsewhere: &[LostElsewhere], output: &Output) {
    let line = |one: &LostElsewhere| {
        let dir = path_shown(&one.dir);
        format!("  {} in {dir}: `piton -C {} recover`", files(one.files), shell::quote(&dir))
    };
    if !elsewhere.is_empty() {
        let lines: Vec<String> = elsewhere.iter().map(line).collect();
        output.text(&format!("Lost in other projects by the last turn:\n\n{}", lines.join("\n")));
    }
}

/// JSON of a list or a recovery.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RecoverJson<'a> {
    #[serde(flatten)]
    report: &'a RecoverReport,
    /// other projects in which the last turn lost files, which `piton -C DIR recover` lists and brings back
    elsewhere: &'a [LostElsewhere],
}

/// Prints the report. `elsewhere` is the project's directory, if it is not the one that commands are about here.
fn tell(report: &RecoverReport, is_list: bool, elsewhere: Option<&Path>, output: &Output) -> anyhow::Result<()> {
    match report.outcome {
        RecoverOutcome::NothingLost if is_list => {
            output.text("Nothing lost: every file of these checkpoints is there");
        }
        RecoverOutcome::NothingLost => output.text("Nothing to do: every version that was saved is the current one"),
        RecoverOutcome::Listed => list(report, output),
        _ => done(report, elsewhere, output),
    }
    if report.older > 0 && is_list {
        output.hint(&format!("`piton recover --all` also lists {} lost earlier", files(report.older)));
    }
    if output.was_interrupted() && report.restore.is_some() {
        output.hint("it was too late to stop");
    }
    if report.outcome == RecoverOutcome::Partly { Err(PartlyDone.into()) } else { Ok(()) }
}

/// Meaning of the paths on the command line.
struct RecoverPlace {
    project: Project,
    /// Paths in the project.
    paths: Vec<Vec<u8>>,
    /// Paths in no project.
    outside: Vec<PathBuf>,
}

/// Finds the project of absolute paths: the one that has checkpoints and that they are in. Paths in none are outside.
fn place_of(
    typed: &[OsString],
    here: Option<Project>,
    store: &Store,
    context: &Context,
) -> anyhow::Result<RecoverPlace> {
    let home = context.home.as_deref();
    let project_of = |path: &Path| {
        let dir = path.ancestors().find(|dir| dir.is_dir())?;
        let around = Project::around(dir, Some(store), home).ok();
        let gone = || Project::gone(path, store, home);
        gone().or(around).filter(|project| store.has_checkpoint(project.id()))
    };
    let paths: Vec<PathBuf> = typed.iter().map(PathBuf::from).collect();
    let projects: Vec<Option<Project>> = paths.iter().map(|path| project_of(path)).collect();
    let first = projects.first().cloned().flatten();
    if projects.iter().any(|project| *project != first) {
        return Err(mixed("paths of several projects, or of one and none").into());
    }
    let Some(project) = first else {
        let project = here.or_else(|| Project::at(Path::new("/"), home).ok());
        let project = project.ok_or_else(|| mixed("these paths"))?;
        return Ok(RecoverPlace { project, paths: Vec::new(), outside: paths });
    };
    let below = |path: &PathBuf| {
        // The links before the last component lead to the project.
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        let path = parent.zip(path.file_name()).map_or_else(|| path.clone(), |(parent, name)| parent.join(name));
        let below = path.strip_prefix(project.dir()).unwrap_or(Path::new(""));
        // The project itself.
        if below.as_os_str().is_empty() { ".".into() } else { below.as_os_str().to_owned() }
    };
    let relative: Vec<OsString> = paths.iter().map(below).collect();
    Ok(RecoverPlace { paths: parse_paths(&relative)?, project, outside: Vec::new() })
}

fn mixed(what: &str) -> piton::Error {
    piton::Error::new(piton::ErrorKind::Invalid, format!("recover {what} at once"))
        .with_hint("name the paths of one place at a time")
}

/// Asks before files outside of every project are written.
fn agree(plan: &RecoverReport, is_agreed: bool, output: &Output) -> anyhow::Result<()> {
    if is_agreed || plan.items.is_empty() {
        return Ok(());
    }
    let declined = || Declined("nothing was recovered", Some("`--yes` agrees to write outside of every project"));
    if !std::io::stdin().is_terminal() {
        return Err(declined().into());
    }
    list(plan, output);
    if output.confirmed("Bring them back? [y/N] ", "--yes")? { Ok(()) } else { Err(declined().into()) }
}

/// Undoes a recovery of kept files.
fn take_back(id: &str, store: &Store, context: &Context, output: &Output) -> anyhow::Result<()> {
    let report = undo_recovery(store, id, &context.settings, context.home.as_deref(), Context::now())?;
    output.json(&UndoneJson::from(&report));
    let mut lines: Vec<String> = report.files.iter().take(PAGE).map(|path| format!("  {}", path_shown(path))).collect();
    lines.extend(report.left.iter().map(|(path, why)| format!("  LEFT  {}: {why}", path_shown(path))));
    output.text(&format!("As before the recovery: {}\n{}", files(report.files.len()), lines.join("\n")));
    if report.left.is_empty() { Ok(()) } else { Err(PartlyDone.into()) }
}

fn path_shown(path: &Path) -> String {
    plain(&path.display().to_string())
}

/// JSON of `--undo`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UndoneJson {
    /// files that are as they were before the recovery
    files: Vec<String>,
    /// files that were left as they are
    left: Vec<LeftAsIs>,
}

/// File that was left.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LeftAsIs {
    /// path
    path: String,
    /// reason
    why: String,
}

impl From<&BackReport> for UndoneJson {
    fn from(report: &BackReport) -> Self {
        let text = |path: &PathBuf| path.display().to_string();
        let left = report.left.iter().map(|(path, why)| LeftAsIs { path: text(path), why: why.clone() });
        Self { files: report.files.iter().map(text).collect(), left: left.collect() }
    }
}

fn list(report: &RecoverReport, output: &Output) {
    let most = if output.is_verbose { usize::MAX } else { PAGE };
    let most_changed = if output.is_verbose { usize::MAX } else { CHANGED_PAGE };
    let (changed, lost): (Vec<&LostItem>, Vec<_>) = report.items.iter().partition(|item| is_changed(item));
    let listed = || lost.iter().take(most).chain(changed.iter().take(most_changed));
    let width = listed().map(|item| columns::columns(&shown(&item.path))).max().unwrap_or(0).min(50);
    let line = |item: &&LostItem| as_line(item, width, output);
    let more = |count: usize, most: usize, what: &str| {
        count.checked_sub(most).filter(|more| *more > 0).map(|more| format!("  … and {more} more{what}"))
    };
    let mut lines: Vec<String> = lost.iter().take(most).map(line).collect();
    lines.extend(more(lost.len(), most, ""));
    lines.extend(changed.iter().take(most_changed).map(line));
    lines.extend(more(changed.len(), most_changed, " that changed"));
    let in_git = report.items.iter().filter(|item| item.git_state.is_some()).count();
    let kept = report.items.iter().filter(|item| item.kind == LostKind::Kept).count();
    let held = lost.len() - in_git - kept;
    let parts = [
        (held > 0).then(|| format!("{} that a checkpoint holds", files(held))),
        (kept > 0).then(|| format!("{} kept before a command destroyed them", counted(kept, "path"))),
        (in_git > 0).then(|| format!("{} of the git repository that a recorded state has", counted(in_git, "part"))),
        (!changed.is_empty()).then(|| format!("{} that changed", files(changed.len()))),
    ];
    let what = parts.into_iter().flatten().collect::<Vec<_>>().join(", and ");
    let order = if in_git > 0 || lost.is_empty() { "" } else { ", the last lost first" };
    output.text(&format!("{what}{order}:\n\n{}", lines.join("\n")));
    if in_git < report.items.len() {
        output.hint("`piton recover PATH...` brings them back; `piton cat N PATH` prints one");
    }
    if let Some(state) = report.items.iter().find_map(|item| item.git_state) {
        output.hint(&format!("`piton git restore {}` brings back what the git repository lacks", state.short()));
    }
}

/// Returns true for a file that is there in another version than the checkpoint's.
fn is_changed(item: &LostItem) -> bool {
    item.is_replaced && matches!(item.kind, LostKind::File | LostKind::Local)
}

/// Formats `  2. src/main.rs  1.2 kB  prompt: clean it up`.
fn as_line(item: &LostItem, width: usize, output: &Output) -> String {
    if let Some(state) = item.git_state {
        let (kind, name) = (item.kind.word(), shown(&item.path));
        let id = state.short();
        let named = if item.kind == LostKind::Repository { String::new() } else { format!(" {}", shell::quote(&name)) };
        if item.kind == LostKind::Refs {
            return format!("     refs in a {name} differ: `piton git restore {id} --all --force`");
        }
        if item.kind == LostKind::Objects {
            return format!("     {name} are missing: `piton git restore {id}`");
        }
        let moved = if item.is_replaced { " points elsewhere" } else { "" };
        return format!("     {kind} {name}{moved}: `piton git restore {id}{named}`");
    }
    let name = item.row.map_or_else(|| format!("{:>4}", item.from.short()), |row| format!("{row:>3}."));
    let lost = match (&item.lost, &item.command) {
        (_, Some(command)) => format!("kept before {}", plain(command)),
        (Some(lost), None) => period::headline(lost),
        (None, None) => "since the newest checkpoint".to_owned(),
    };
    let lost = if item.is_replaced { "there is another version now".to_owned() } else { lost };
    let lost = if item.is_changed { format!("{lost} (changed since)") } else { lost };
    let count = if item.files == 1 {
        String::new()
    } else {
        format!("{}, ", files(usize::try_from(item.files).unwrap_or(usize::MAX)))
    };
    let ignored = if item.kind == LostKind::Local { "ignored, " } else { "" };
    let rest = format!("{count}{}  {ignored}{}", bytes(item.bytes), lost);
    let line = format!(" {}  {rest}", columns::padded(&shown(&item.path), width));
    let room = output.columns().map(|columns| columns.saturating_sub(columns::columns(&name)));
    let line = room.map_or_else(|| line.clone(), |room| columns::cut(&line, room));
    format!("{}{line}", painted(&name, ID))
}

fn done(report: &RecoverReport, elsewhere: Option<&Path>, output: &Output) {
    let (restore, kept) = (report.restore.as_ref(), report.kept.as_ref());
    let written = restore.into_iter().flat_map(|restore| restore.written.iter().map(|path| shown(path)));
    let back = kept.into_iter().flat_map(|kept| kept.files.iter().map(|path| path_shown(path)));
    let all: Vec<String> = written.chain(back).collect();
    let mut lines: Vec<String> = all.iter().take(PAGE).map(|path| format!("  {path}")).collect();
    let more = all.len().saturating_sub(PAGE);
    lines.extend((more > 0).then(|| format!("  … and {more} more")));
    let left = restore.into_iter().flat_map(|restore| &restore.left);
    lines.extend(left.map(|left| format!("  LEFT  {}: {}", shown(&left.path), left.why)));
    let left = kept.into_iter().flat_map(|kept| &kept.left);
    lines.extend(left.map(|(path, why)| format!("  LEFT  {}: {}", path_shown(path), plain(why))));
    output.text(&format!("Recovered {}:\n{}", files(all.len()), lines.join("\n")));
    let is_in_the_way = |left: &Left| left.why == WhyLeft::InTheWay;
    if restore.is_some_and(|restore| restore.left.iter().any(is_in_the_way))
        || kept.is_some_and(|kept| kept.left.iter().any(|(_, why)| why.ends_with("is in the way")))
    {
        output.hint("rename what is in the way, and repeat the command");
    }
    if restore.is_some_and(|restore| restore.can_undo) {
        let place = elsewhere.map(|dir| format!("-C {} ", shell::quote(&path_shown(dir)))).unwrap_or_default();
        output.hint(&format!("`piton {place}undo` takes it back"));
    }
    if let Some(id) = kept.and_then(|kept| kept.id.as_ref()) {
        output.hint(&format!("`piton recover --undo {id}` takes it back"));
    }
}
