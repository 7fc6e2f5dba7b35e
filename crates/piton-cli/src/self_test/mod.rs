//! `piton doctor --self-test`: what the file system at hand can do, and whether piton keeps its promises on it. Everything
//! happens in a temporary directory, with a store of its own; no file of the user is touched.
//!
//! `probe` asks the file system, `exact` takes, restores and undoes, `crash` kills the program itself at work.

mod check;
mod crash;
mod exact;
mod probe;
mod tree;

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use piton::json::{AtDir, JsonPath, keyword};
use piton::{Error, ErrorKind};

use self::check::{Checks, SelfCheck, Verdict, elapsed_ms};
use crate::output::{Output, Said, plain};
use crate::platform;
use crate::progress::watch;

/// Beginning of the names of the directories of tests.
const PREFIX: &str = ".piton-self-test-";
/// File in the directory of a test that is locked while the test runs.
const RUNNING: &str = "running";
/// Space that a test may need.
const ROOM_BYTES: usize = 8 << 20;
/// Number of attempts to remove the directory of the test, and the time between them.
const REMOVALS_MAX: u32 = 100;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(50);

/// JSON of the self-test.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SelfTestJson<'a> {
    /// true if no check failed
    ok: bool,
    #[serde(flatten)]
    dir: JsonPath<'a, AtDir>,
    /// type of the file system and its mount options, or null if they are not known
    file_system: Option<String>,
    /// version of piton
    version: &'static str,
    /// operating system and architecture
    platform: String,
    /// the checks
    checks: &'a [SelfCheck],
    /// duration in milliseconds
    elapsed_ms: u64,
}

/// Runs all checks in a directory of the file system to be tested, with this number of kills of each command.
pub(crate) fn run(dir: &Path, kills: u32, output: &Output) -> anyhow::Result<()> {
    let began = Instant::now();
    remove_abandoned(dir);
    let scratch = tempfile::Builder::new().prefix(PREFIX).tempdir_in(dir).map_err(|error| {
        Error::new(ErrorKind::Io, "make a directory in")
            .with_path(dir)
            .because(error)
            .with_hint("name a directory of the file system to be tested, in which you can write")
    })?;
    let root = scratch.path().canonicalize().unwrap_or_else(|_| scratch.path().to_owned());
    reserve(&root, dir)?;
    // Fails where there are no locks: the checks say so.
    let running = platform::open_lock(&root.join(RUNNING)).and_then(|file| Ok(file.try_lock().map(|()| file)?));
    let file_system = platform::file_system_of(&root);
    let (checks, is_cancelled) = watch(output, |progress| {
        let mut checks = Checks::new(progress);
        let names = probe::all(&root, &mut checks);
        exact::all(&root, &names, &mut checks);
        crash::all(&root, kills, &mut checks);
        // Also after a signal: the directory is the user's.
        remove(&scratch.keep());
        drop(running);
        (checks.all, progress.is_cancelled())
    });
    if is_cancelled {
        return Err(Error::new(ErrorKind::Stopped, "finish the self-test").because("it was cancelled").into());
    }
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Failed).count();
    output.json(&SelfTestJson {
        ok: failed == 0,
        dir: JsonPath::of(dir),
        file_system: file_system.clone(),
        version: env!("CARGO_PKG_VERSION"),
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        checks: &checks,
        elapsed_ms: elapsed_ms(began),
    });
    output.text(&as_text(dir, file_system, &checks));
    if failed > 0 {
        output.hint(
            "keep the project, or the store (`--base DIR`), on another file system; `--json` is for a bug report",
        );
        return Err(Said(1).into());
    }
    Ok(())
}

/// Fails with `Full` if there is no room for a test: its checks would blame the file system.
fn reserve(root: &Path, dir: &Path) -> Result<(), Error> {
    let path = root.join("room");
    let failed = |error| Error::io("run a self-test in", dir, error);
    fs::write(&path, vec![0; ROOM_BYTES]).and_then(|()| fs::remove_file(&path)).map_err(failed)
}

/// Removes the directories of tests that were killed, whose locks are free.
fn remove_abandoned(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_of_test = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        // A test that has just begun has no such file yet.
        let running = is_of_test.then(|| fs::File::open(entry.path().join(RUNNING)).ok()).flatten();
        if running.is_some_and(|running| running.try_lock().is_ok()) {
            remove(&entry.path());
        }
    }
}

/// Removes the directory of a test. A command that was killed may have started maintenance, which still writes there.
fn remove(dir: &Path) {
    for _ in 0..REMOVALS_MAX {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(BETWEEN_REMOVALS),
            _ => return,
        }
    }
}

fn as_text(dir: &Path, file_system: Option<String>, checks: &[SelfCheck]) -> String {
    let on = file_system.map(|name| format!(" ({name})")).unwrap_or_default();
    let mut lines = vec![format!("Self-test in {}{on}", plain(&dir.display().to_string()))];
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    lines.extend(checks.iter().map(|check| {
        let verdict = match check.verdict {
            Verdict::Failed => "FAILED".to_owned(),
            other => keyword(&other),
        };
        format!("  {:<width$}  {verdict:<7}  {}", check.name, plain(&check.what))
    }));
    let count = |verdict: Verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    lines.push(match (count(Verdict::Failed), count(Verdict::Limited)) {
        (0, 0) => "All promises hold here".to_owned(),
        (0, _) => "All promises hold here, within the limits that are named".to_owned(),
        (failed, _) => format!("{failed} of {} checks failed: piton does not keep all its promises here", checks.len()),
    });
    lines.join("\n")
}
