//! Recovery from a kill: starts this program, kills it at moments spread over its run, and checks what is left.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use piton::{Progress, RestoreTo};

use super::check::Verdict::Ok as Works;
use super::check::{Checks, VerdictInWords};
use super::exact::{TestProject, fill, wreck};

/// Runs the checks, with this number of kills of each command.
pub(super) fn all(root: &Path, kills: u32, checks: &mut Checks<'_>) {
    let progress = checks.progress;
    checks.add("killed take", || takes(root, kills, progress));
    checks.add("killed restore", || restores(root, kills, progress));
}

/// Fails once the self-test was cancelled.
fn go_on(progress: &Progress) -> Result<(), String> {
    if progress.is_cancelled() { Err("cancelled".to_owned()) } else { Ok(()) }
}

/// Starts a command of this program in a place.
fn start(place: &TestProject, args: &[&str]) -> Result<Child, String> {
    let program = env::current_exe().map_err(|error| format!("cannot find the program: {error}"))?;
    let mut command = Command::new(program);
    command.arg("--base").arg(place.store.base()).arg("-C").arg(place.project.dir()).args(["--config", "/dev/null"]);
    command.args(args).env_clear().env("HOME", place.store.base()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("cannot start the program: {error}"))
}

/// Runs a command to its end, and returns its duration.
fn time(place: &TestProject, args: &[&str]) -> Result<Duration, String> {
    let began = Instant::now();
    let status = start(place, args)?.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(began.elapsed()) } else { Err(format!("`piton {}` failed: {status}", args[0])) }
}

/// Starts a command, and kills it after this time. Returns true if it was still running.
fn kill(place: &TestProject, args: &[&str], after: Duration) -> Result<bool, String> {
    let mut child = start(place, args)?;
    thread::sleep(after);
    let was_running = child.try_wait().map_err(|error| error.to_string())?.is_none();
    let _ = child.kill();
    let _ = child.wait();
    Ok(was_running)
}

fn takes(root: &Path, kills: u32, progress: &Progress) -> Result<VerdictInWords, String> {
    let place = TestProject::new(root, "killed-take")?;
    fill(place.project.dir(), &[])?;
    let change = |at: u32| {
        let write =
            |name: u32| fs::write(place.project.dir().join(format!("deep/er/{name}.txt")), format!("{at} {name}\n"));
        (0..50).try_for_each(write).map_err(|error| error.to_string())
    };
    let usual = time(&place, &["take"])?;
    let mut killed = 0;
    for part in 1..=kills {
        go_on(progress)?;
        change(part)?;
        killed += u32::from(kill(&place, &["take"], usual * part / kills)?);
        let now = place.tree()?;
        let id = place.take().map_err(|why| format!("after a kill, {why}"))?;
        fs::write(place.project.dir().join("deep/er/0.txt"), "changed\n").map_err(|error| error.to_string())?;
        place.restore(RestoreTo::Named(&id))?;
        place.compare(&now, "after a killed take and a restore")?;
    }
    place.verify()?;
    Ok((Works, format!("killed {killed} times at work: the next take is complete, and the store is whole")))
}

fn restores(root: &Path, kills: u32, progress: &Progress) -> Result<VerdictInWords, String> {
    let place = TestProject::new(root, "killed-restore")?;
    fill(place.project.dir(), &[])?;
    let before = place.tree()?;
    let id = place.take()?;
    wreck(place.project.dir())?;
    let after = place.tree()?;
    let usual = time(&place, &["restore", &id, "--yes"])?;
    place.compare(&before, "after a restore")?;
    place.restore(RestoreTo::Undo)?;
    place.compare(&after, "after an undo")?;
    let (mut killed, mut continued) = (0, 0);
    for part in 1..=kills {
        go_on(progress)?;
        killed += u32::from(kill(&place, &["restore", &id, "--yes"], usual * part / kills)?);
        let unfinished = place.store.interrupted_restore(place.project.id()).map_err(|error| error.to_string())?;
        if unfinished.is_some() {
            continued += 1;
            place.restore(RestoreTo::Continue)?;
            place.compare(&before, "after a killed restore was continued")?;
        } else if place.compare(&before, "").is_err() {
            // Killed before the first change, or after the last one.
            place.compare(&after, "after a restore that was killed before it began")?;
            continue;
        }
        place.restore(RestoreTo::Undo)?;
        place.compare(&after, "after a killed restore was undone")?;
    }
    place.verify()?;
    let words = format!(
        "killed {killed} times at work, {continued} of them with files half restored: every state came back exactly"
    );
    Ok((Works, words))
}
