//! Paths that a command and the scripts that it runs are about to destroy.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use piton::triggers::{self, Loss, LossExtent, LossKind, Run, Verdict};
use piton::{KeepRequest, Settings, without_secrets};

use super::{foreign, touched};

/// Size up to which a script is read.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;
/// Number of names that are searched for files which an archive may replace.
const NAMES_MAX: usize = 5_000;
/// Number of programs that are read for one command, and the depth to which they may run each other.
const RUNS_MAX: usize = 32;
const RUNS_DEPTH_MAX: usize = 4;

/// Paths that a tool is about to destroy.
pub(super) enum Destroyed {
    /// Losses that the command causes.
    Command(Box<Verdict>),
    /// These files may be written over.
    Files(Vec<PathBuf>),
    /// The event does not say.
    Unknown,
}

impl Destroyed {
    /// Returns the request to keep these paths. Files that a tool writes below the session's directory `root` are left
    /// out unless they are large: smaller ones are in checkpoints or saved with them.
    pub(super) fn request(&self, root: Option<&Path>, settings: &Settings, home: Option<&Path>) -> KeepRequest {
        match self {
            Self::Command(verdict) => by(verdict, settings, home),
            Self::Files(files) => {
                let bytes_max = sure_bytes_max(settings);
                let is_large = |file: &PathBuf| {
                    file.metadata().is_ok_and(|found| bytes_max.is_some_and(|bytes_max| found.len() > bytes_max))
                };
                let is_outside = |file: &PathBuf| root.is_none_or(|root| !file.starts_with(root));
                let files = files.iter().filter(|file| is_large(file) || is_outside(file)).cloned();
                let losses = files.map(|file| Loss::file(file, LossKind::Rewritten)).collect();
                KeepRequest::new(losses, Vec::new(), "before a tool that writes files")
            }
            Self::Unknown => KeepRequest::default(),
        }
    }
}

/// Returns the size up to which every file is saved, in scope or ignored. Returns `None` if there is no limit. A larger
/// file that a checkpoint holds is not kept again.
fn sure_bytes_max(settings: &Settings) -> Option<u64> {
    let in_scope = Some(settings.max_file_size_mb).filter(|mb| *mb > 0);
    in_scope.into_iter().chain([settings.keep_file_size_mb]).min().map(|mb| mb << 20)
}

/// Adds to a verdict what the scripts, make targets and package scripts destroy that the command runs, and those that they
/// run, if they are text. Returns the paths that those touch which destroy something.
pub(super) fn read_programs(verdict: &mut Verdict, home: Option<&Path>) -> Vec<PathBuf> {
    let mut touched = Vec::new();
    let mut runs: Vec<(Run, usize)> = verdict.runs.iter().map(|run| (run.clone(), 0)).collect();
    let mut at = 0;
    while let Some((run, depth)) = runs.get(at).cloned() {
        at += 1;
        match text_of(&run) {
            Some(Text::Shell { text, cwd }) => {
                let inner = triggers::analyse(&text, &cwd, home);
                if inner.destroys {
                    touched.extend(touched::by(&inner));
                }
                verdict.destroys |= inner.destroys;
                verdict.losses.extend(inner.losses);
                verdict.unread.extend(inner.unread);
                verdict.unpacks.extend(inner.unpacks);
                for inner in inner.runs {
                    if depth < RUNS_DEPTH_MAX && runs.len() < RUNS_MAX {
                        let is_new = !runs.iter().any(|(known, _)| *known == inner);
                        runs.extend(is_new.then_some((inner, depth + 1)));
                    } else if destroys_by_name(&inner) {
                        verdict.unread.push(name_of(&inner));
                    }
                }
            }
            Some(Text::Foreign { text, cwd }) => {
                verdict.losses.extend(foreign::losses(&text, &cwd, home));
                if let Some(call) = foreign::destroying_call(&text) {
                    verdict.destroys = true;
                    verdict.unread.push(format!("{} ({call})", name_of(&run)));
                }
            }
            None if destroys_by_name(&run) => verdict.unread.push(name_of(&run)),
            None => {}
        }
    }
    touched
}

/// Returns what a command destroys.
fn by(verdict: &Verdict, settings: &Settings, home: Option<&Path>) -> KeepRequest {
    let (losses, mut unread) = (verdict.losses.clone(), verdict.unread.clone());
    let bytes_max = sure_bytes_max(settings);
    for dir in &verdict.unpacks {
        if let Some(file) = find_unsaved(dir, bytes_max, home) {
            unread.push(format!("an archive that may replace files such as {}", file.display()));
        }
    }
    for dir in losses.iter().filter_map(unknown_copy) {
        if let Some(file) = find_unsaved(dir, bytes_max, home) {
            unread.push(format!("a copy that may replace files such as {}", file.display()));
        }
    }
    let mut named = HashSet::new();
    let unread = unread.iter().map(|what| without_secrets(what)).filter(|what| named.insert(what.clone())).collect();
    KeepRequest::new(losses, unread, without_secrets(&verdict.summary))
}

/// Returns the directory in which a copy may replace any file, because the command makes first what it copies.
fn unknown_copy(loss: &Loss) -> Option<&Path> {
    let LossExtent::Onto { sources, merges: true } = &loss.extent else { return None };
    let is_unknown = |source: &PathBuf| {
        let name = source.file_name().unwrap_or_default();
        match name.to_string_lossy().contains('*') {
            true => source.parent().is_some_and(|dir| !dir.exists()),
            false => !source.exists() && loss.path.join(name).is_dir(),
        }
    };
    (loss.path.is_dir() && sources.iter().any(is_unknown)).then_some(&loss.path)
}

/// Returns a file below a directory that is too large for checkpoints, or any file directly in the home directory, which
/// is not a project. Directories of git, and names after the first `NAMES_MAX`, are not searched.
fn find_unsaved(dir: &Path, bytes_max: Option<u64>, home: Option<&Path>) -> Option<PathBuf> {
    let (mut dirs, mut names) = (vec![dir.to_owned()], 0);
    while let Some(next) = dirs.pop() {
        let is_home = home == Some(next.as_path());
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            names += 1;
            if names > NAMES_MAX {
                return None;
            }
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() && entry.file_name() != ".git" && !is_home {
                dirs.push(entry.path());
            }
            if found.is_file() && (is_home || bytes_max.is_some_and(|bytes_max| found.len() > bytes_max)) {
                return Some(entry.path());
            }
        }
    }
    None
}

enum Text {
    Shell { text: String, cwd: PathBuf },
    Foreign { text: String, cwd: PathBuf },
}

/// Returns the text of a program. Returns `None` if it is not there, too long or not text.
fn text_of(run: &Run) -> Option<Text> {
    match run {
        Run::Script { path, cwd } => {
            let text = read(path)?;
            let first = text.lines().next().unwrap_or_default();
            let is_shell = !first.starts_with("#!") || first.contains("sh");
            let cwd = cwd.clone();
            Some(if is_shell { Text::Shell { text, cwd } } else { Text::Foreign { text, cwd } })
        }
        Run::Make { cwd, file, targets } => {
            let files = ["GNUmakefile", "makefile", "Makefile"].map(|name| cwd.join(name));
            let file = file.clone().or_else(|| files.into_iter().find(|file| file.is_file()))?;
            let text = triggers::recipes(&read(&file)?, targets)?;
            Some(Text::Shell { text, cwd: cwd.clone() })
        }
        Run::Package { cwd, script } => {
            let json: serde_json::Value = serde_json::from_str(&read(&cwd.join("package.json"))?).ok()?;
            let one = |name: &str| json["scripts"][name].as_str().map(str::to_owned);
            let names = [format!("pre{script}"), script.clone(), format!("post{script}")];
            let text = names.iter().filter_map(|name| one(name)).collect::<Vec<_>>().join("\n");
            one(script).map(|_| Text::Shell { text, cwd: cwd.clone() })
        }
        Run::Foreign { path, text, cwd, .. } => {
            let text = text.clone().or_else(|| read(path.as_ref()?))?;
            Some(Text::Foreign { text, cwd: cwd.clone() })
        }
        _ => None,
    }
}

/// Returns true if the name of a program says that it destroys something: an unreadable one is reported. Other programs
/// are not: most of them build or test.
fn destroys_by_name(run: &Run) -> bool {
    let name = name_of(run).to_lowercase();
    ["clean", "clear", "reset", "purge", "wipe", "remove", "delete", "drop", "destroy", "prune", "nuke", "fresh"]
        .iter()
        .any(|word| name.contains(word))
}

fn name_of(run: &Run) -> String {
    let file = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match run {
        Run::Script { path, .. } => file(path),
        Run::Make { targets, .. } => format!("make {}", targets.join(" ")),
        Run::Package { script, .. } => format!("npm run {script}"),
        Run::Foreign { program, path: Some(path), .. } => format!("{program} {}", file(path)),
        Run::Foreign { program, .. } => program.clone(),
        _ => String::new(),
    }
}

/// Reads a text file of limited size. Does not wait for one that is a pipe.
fn read(path: &Path) -> Option<String> {
    let size = path.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    if size > SCRIPT_BYTES_MAX {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(SCRIPT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}
