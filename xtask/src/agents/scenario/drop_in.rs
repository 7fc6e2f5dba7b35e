//! Hermes with the Python module of piton in place of its own checkpoint manager.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::agent::Agent;
use super::super::scratch::Scratch;
use super::super::terminal::Terminal;
use super::super::tools::Step;
use super::{Run, read, same};
use crate::workspace::workspace_root;

/// Replaces the module when it is imported.
const MODULE: &str = "import sys\n\nimport piton.checkpoints\n\nsys.modules[__name__] = piton.checkpoints\n";
/// Reasons that Hermes gives, newest first: it takes a checkpoint before each tool that changes files.
const REASONS: [&str; 4] =
    ["before terminal: rm added", "before write_file", "before terminal: rm -r src", "before write_file"];
const FIRST: &str = "write the notes and drop the sources";
const SECOND: &str = "write the notes once more";

pub(super) fn is_hermes(agent: &dyn Agent) -> bool {
    agent.package().name == "hermes"
}

/// Installs Hermes once more, with the module replaced. Programs, packages and the cache share their files by hard links.
fn put_in_place(scratch: &mut Scratch, programs: &[PathBuf]) -> Result<()> {
    let installed = programs.iter().filter_map(|dir| dir.parent()).find(|root| root.join("bin/hermes").exists());
    let installed = installed.context("the program is not found")?;
    let own = scratch.root.join("hermes");
    let line = ["cp", "-al", &installed.display().to_string(), &own.display().to_string()].map(str::to_owned);
    scratch.run(&line, "copy")?.ok("cp")?;
    let program = own.join("bin/hermes");
    let text = fs::read_to_string(&program)?;
    let (_, script) = text.split_once('\n').context("the program is not a script")?;
    replace(&program, &format!("#!{}\n{script}", own.join("bin/python").display()))?;
    let packages = packages_in(&own.join("lib")).context("no packages beside the program")?;
    replace(&packages.join("tools/checkpoint_manager.py"), MODULE)?;
    copy(&workspace_root().join("packages/python/piton"), &packages.join("piton"))?;
    scratch.search_first(&own.join("bin"))?;
    let config = scratch.home.join(".hermes/config.yaml");
    fs::write(&config, fs::read_to_string(&config)? + "checkpoints:\n  enabled: true\n")?;
    Ok(())
}

/// Writes a new file in place of one that other directories share.
fn replace(path: &Path, text: &str) -> Result<()> {
    let mode = fs::metadata(path)?.permissions();
    fs::remove_file(path)?;
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, mode)?)
}

fn packages_in(lib: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(lib).ok()?.flatten();
    entries.map(|entry| entry.path().join("site-packages")).find(|dir| dir.join("tools/checkpoint_manager.py").exists())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let from = entry?.path();
        if from.is_file() {
            fs::copy(&from, to.join(from.file_name().context("no name")?))?;
        }
    }
    Ok(())
}

/// Two prompts in which Hermes takes checkpoints before its tools, then `/rollback` to each.
pub(super) fn rollback(run: &mut Run) -> Result<()> {
    let programs = run.settings.cache.programs(run.scratch.agent);
    put_in_place(&mut run.scratch, &programs)?;
    let log = run.scratch.record_calls()?;
    let mut terminal = Terminal::start(&run.scratch)?;
    let first = run.scratch.state();
    let write = |text: &str| Step::Write { path: "README.md".to_owned(), text: text.to_owned() };
    let change = "rm -r src && echo new > added.txt && chmod 644 run.sh && mkdir made";
    terminal.prompt(&run.scratch, FIRST, vec![write("notes\n"), Step::Shell(change.to_owned())])?;
    let second = run.scratch.state();
    terminal.prompt(
        &run.scratch,
        SECOND,
        vec![write("more notes\n"), Step::Shell("rm added.txt run.sh".to_owned())],
    )?;
    ensure!(first != second && second != run.scratch.state(), "the agent did not change the files");
    run.check("drop-in", |scratch| {
        ensure!(read(&log).lines().any(|line| line.contains("serve")), "piton was not started: {}", log.display());
        let reasons: Vec<_> = scratch.rows()?.into_iter().map(|row| row.reason).collect();
        let is_it = |(reason, want): (&String, &&str)| reason.starts_with(*want);
        ensure!(reasons.len() == 4 && reasons.iter().zip(&REASONS).all(is_it), "the rows are {reasons:?}");
        Ok(())
    });
    let rows = run.scratch.rows()?;
    let mut type_in = |line: &str, answer: &str| {
        terminal.send(line)?;
        terminal.wait_for(answer, || Ok(()))?;
        terminal.rest()
    };
    run.check("drop-in-list", |_| type_in("/rollback", "before write_file"));
    run.check("drop-in-restore", |scratch| {
        type_in("/rollback 2", "Restored to checkpoint")?;
        same(&scratch.state(), &second, "after `/rollback 2`")?;
        let oldest = &rows.last().context("no row")?.short_id;
        type_in(&format!("/rollback {oldest}"), &format!("Restored to checkpoint {oldest:.8}"))?;
        same(&scratch.state(), &first, "after a rollback to the first turn")
    });
    Ok(())
}
