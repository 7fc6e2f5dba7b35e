//! Turns without a checkpoint: they stay visible until the user has acknowledged them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};

use super::super::scratch::{Scratch, read_text};
use super::super::tools::Step;
use super::Run;

const GOOD: &str = "add a line";
const LOST: &str = "remove the sources";

fn remove() -> Vec<Step> {
    vec![Step::Shell("rm -r src".to_owned())]
}

/// The agent kills a hook that exceeds the agent's timeout because it waits for the locks of the store, which this
/// process holds.
pub(super) fn killed_hook(run: &mut Run) -> Result<()> {
    let scratch = &mut run.scratch;
    scratch.install()?;
    scratch.agent.approve_hooks(scratch)?;
    scratch.prompt(GOOD, vec![Step::Shell("echo line >> README.md".to_owned())])?;
    shorten_limit(scratch)?;
    scratch.agent.approve_hooks(scratch)?;
    let locks = hold_locks(scratch)?;
    let done = scratch.prompt(LOST, remove());
    drop(locks);
    done?;
    ensure!(!scratch.project.join("src").exists(), "the agent did not carry out the prompt");
    run.check("killed", |scratch| is_visible(scratch));
    Ok(())
}

/// Sets the timeout of the hooks in the agent's configuration to one second.
fn shorten_limit(scratch: &Scratch) -> Result<()> {
    for file in scratch.agent.hook_files(scratch) {
        let text = read_text(&file)?;
        let mut short = text.clone();
        for (key, from, to) in [
            ("\"timeout\": ", "15000", "1000"),
            ("\"timeout\": ", "15", "1"),
            ("\"timeoutSec\": ", "15", "1"),
            ("timeout: ", "15", "1"),
            ("DEADLINE_MS = ", "15000", "1000"),
        ] {
            short = short.replace(&format!("{key}{from}"), &format!("{key}{to}"));
        }
        ensure!(short != text, "no time limit in {}", file.display());
        fs::write(&file, short)?;
    }
    Ok(())
}

/// Acquires every lock of the store, as a working process does.
fn hold_locks(scratch: &Scratch) -> Result<Vec<File>> {
    let dir = scratch.base().join("store/locks");
    let mut held = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        flock(&file, FlockOperation::LockExclusive).with_context(|| format!("cannot lock {}", path.display()))?;
        held.push(file);
    }
    ensure!(!held.is_empty(), "there are no locks in {}", dir.display());
    Ok(held)
}

/// A store on a file system that is mounted read-only.
pub(super) fn read_only_store(run: &mut Run) -> Result<()> {
    let base = run.scratch.base();
    run.scratch.protect()?;
    run.scratch.prompt(GOOD, vec![Step::Shell("echo line >> README.md".to_owned())])?;
    if !mount(&["--bind"], &base) {
        run.skip("read-only", "mounting is not permitted here");
        return Ok(());
    }
    let done = if remount(&base) { run.scratch.prompt(LOST, remove()) } else { Ok(()) };
    let unmounted = Command::new("umount").arg(&base).status().is_ok_and(|status| status.success());
    ensure!(unmounted, "cannot unmount {}", base.display());
    done?;
    ensure!(!run.scratch.project.join("src").exists(), "the agent did not carry out the prompt");
    run.check("read-only", |scratch| is_visible(scratch));
    Ok(())
}

fn mount(options: &[&str], dir: &Path) -> bool {
    let mut mount = Command::new("mount");
    mount.args(options).arg(dir).arg(dir).stdin(Stdio::null()).stderr(Stdio::null());
    mount.status().is_ok_and(|status| status.success())
}

fn remount(dir: &Path) -> bool {
    let mut mount = Command::new("mount");
    mount.args(["-o", "remount,bind,ro"]).arg(dir).stdin(Stdio::null());
    mount.status().is_ok_and(|status| status.success())
}

/// Fails unless the turn is in `piton status` once and on an unnumbered line of the list, and disappears from both with
/// `--ack`.
fn is_visible(scratch: &Scratch) -> Result<()> {
    let agent = scratch.agent.package().name;
    let status = scratch.piton_json(&["status"])?;
    let turns = status["unprotected"].as_array().context("`piton status --json` has no `unprotected`")?;
    let agents: Vec<_> = turns.iter().map(|turn| turn["agent"].as_str().unwrap_or_default()).collect();
    ensure!(agents == [agent], "one turn has no checkpoint, `piton status` shows those of {agents:?}");
    let line = unprotected_line(scratch)?.context("no line in `piton rollback` for the turn")?;
    let is_numbered = line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    ensure!(!is_numbered && line.contains(agent), "the line of the turn in `piton rollback` is {line}");
    scratch.piton(&["status", "--ack"])?.ok("piton status --ack")?;
    let line = unprotected_line(scratch)?;
    ensure!(line.is_none(), "after `piton status --ack` the list has {line:?}");
    Ok(())
}

fn unprotected_line(scratch: &Scratch) -> Result<Option<String>> {
    let list = scratch.piton(&["rollback"])?.ok("piton rollback")?.out;
    Ok(list.lines().find(|line| line.contains("no checkpoint")).map(str::to_owned))
}
