//! A project whose first checkpoint takes longer than a prompt may wait.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::agent::Agent;
use super::super::scratch::Scratch;
use super::super::tools::Step;
use super::{Run, restore_to};

const FIRST: &str = "add a line";
const NEXT: &str = "drop the sources";
const DIRS: usize = 90;
const FILES_PER_DIR: usize = 500;
/// The first checkpoint of this many files takes longer, every later one less than the usual limit.
const SHORT_DEADLINE_MS: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn is_the_one(agent: &dyn Agent) -> bool {
    agent.package().name == "gemini"
}

/// The first checkpoint is completed in the background, and the next turn is protected.
pub(super) fn large_project(run: &mut Run) -> Result<()> {
    for dir in 0..DIRS {
        for file in 0..FILES_PER_DIR {
            run.scratch.write_project(&format!("many/{dir}/{file}.txt"), format!("{dir} {file}\n").as_bytes())?;
        }
    }
    run.scratch.install()?;
    run.scratch.agent.approve_hooks(&run.scratch)?;
    let config = run.scratch.home.join(".hermes/config.yaml");
    let text = super::read(&config);
    let line = "checkpoints:\n";
    ensure!(text.contains(line), "no settings in {}: {text}", config.display());
    let short = text.replace(line, &format!("{line}  deadline_ms: {SHORT_DEADLINE_MS}\n"));
    std::fs::write(&config, short).context("cannot write the settings")?;
    run.scratch.prompt(FIRST, vec![Step::Shell("echo line >> README.md".to_owned())])?;
    std::fs::write(&config, text).context("cannot write the settings")?;

    run.check("late", |scratch| wait_for_row(scratch));
    let before = run.scratch.state();
    run.scratch.prompt(NEXT, vec![Step::Shell("rm -r src many/1 && echo other > many/2/2.txt".to_owned())])?;
    run.check("late-next", |scratch| {
        ensure!(scratch.state() != before, "the agent did not delete anything");
        let row = scratch.row_of(NEXT)?;
        restore_to(scratch, &row.short_id, &before)
    });
    Ok(())
}

/// Waits until the checkpoint of the first prompt is complete. It has the state as of the prompt: the line that the
/// agent added is not in it.
fn wait_for_row(scratch: &Scratch) -> Result<()> {
    let began = Instant::now();
    let row = loop {
        match scratch.row_of(FIRST) {
            Ok(row) => break row,
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    };
    let shown = scratch.piton_json(&["show", &row.short_id])?;
    let files = shown["files"].as_u64().unwrap_or_default();
    ensure!(files >= (DIRS * FILES_PER_DIR) as u64, "the checkpoint has {files} files");
    Ok(())
}
