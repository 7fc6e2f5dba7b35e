//! Rows beyond taking checkpoints: restore, list, hook, memory.
//!
//! A command that fails, or that the measured piton does not have, loses its row and gets a remark, but does not fail
//! the run.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::{Setup, pause_after_edit, wait_until_old};
use crate::contestants::{Column, Contestant, Piton, WARM_GIT_REF, WarmGit};
use crate::hermes;
use crate::measure::{self, isolated, settle};
use crate::report::{Call, Report, Row, Work};
use crate::trees::{self, Edited, Tree};

const HOOK_CALLS: u32 = 100;
/// Number of Python starts to time: Python takes many times as long to start, so fewer calls give a stable figure.
const PYTHON_CALLS: u32 = 10;
/// Number of takes of a changed file to time.
const CHANGE_CALLS: u32 = 20;
const CHECKPOINTS: usize = 20;
/// Names of the rows of an end of a turn, and of the take beside it.
pub(crate) const HOOK_AT_END: &str = "piton hook claude, at the end";
pub(crate) const TAKE_BESIDE_END: &str = "piton take";

/// Restores a copy of `tree`: after 10 edits, then after everything was deleted, beside git writing the same files
/// into an empty directory.
pub(crate) fn restore(setup: &Setup, tree: &Tree, git: &WarmGit, report: &mut Report) -> Result<()> {
    let copy = setup.scratch.join("restored");
    fs::create_dir_all(&copy)?;
    trees::copy(&tree.path, &copy)?;
    let mut piton = setup.piton(&copy, "restored.base");
    let rounds = setup.rounds.min(3);

    let mut row = Row::new(Work::RestoreTen, tree.size);
    wait_until_old();
    let files = trees::spread(&copy, &git.repository.files()?, 10)?;
    for _ in 0..rounds {
        let time = restore_ten(&mut piton, &files);
        if !record(&mut row, Column::Piton, time, report) {
            break;
        }
    }
    report.rows.push(row);

    let mut row = Row::new(Work::RestoreAll, tree.size);
    let checkout = setup.scratch.join("checkout");
    for round in 0..rounds {
        trees::remove(&checkout)?;
        fs::create_dir(&checkout)?;
        settle();
        let time = measure::timed(&mut git.checkout_command(&checkout)).map(|(time, _)| time);
        record(&mut row, Column::Git, time, report);
        if round == 0 || row.has(Column::Piton) {
            let expected = trees::count_files(&checkout)?;
            let time = restore_all(&mut piton, expected);
            record(&mut row, Column::Piton, time, report);
        }
    }
    report.rows.push(row);
    trees::remove(&checkout)?;
    trees::remove(&copy)?;
    piton.fresh()
}

/// Adds a time to the row. On failure, removes the contestant from the row, adds a remark and returns false.
fn record(row: &mut Row, column: Column, time: Result<Duration>, report: &mut Report) -> bool {
    let what = format!("{}, {}", row.label(), column.title());
    match report.keep(&what, time) {
        Some(time) => row.add(column, time),
        None => row.strike(column),
    }
    row.has(column)
}

/// Times a restore after 10 edits. The newest checkpoint holds the files before the edits, so `1` names it.
fn restore_ten(piton: &mut Piton, files: &[std::path::PathBuf]) -> Result<Duration> {
    piton.take()?;
    let mut edited = Vec::new();
    for file in files {
        let mut file = Edited::new(file.clone())?;
        file.append_line()?;
        edited.push(file);
    }
    pause_after_edit();
    settle();
    let (time, _) = measure::timed(&mut piton.command(&["restore", "1", "-y"]))?;
    ensure!(edited.iter().all(Edited::is_as_before), "an edited file was not restored");
    Ok(time)
}

fn restore_all(piton: &mut Piton, expected: u64) -> Result<Duration> {
    piton.take()?;
    for entry in fs::read_dir(&piton.tree)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    settle();
    let (time, _) = measure::timed(&mut piton.command(&["restore", "1", "-y"]))?;
    let restored = trees::count_files(&piton.tree)?;
    ensure!(restored == expected, "{restored} files restored, git wrote {expected}");
    Ok(time)
}

/// Times listing 20 checkpoints with the changes in each, beside the log and the 20 diffs that Hermes runs for it.
pub(crate) fn list(
    setup: &Setup,
    tree: &Tree,
    git: &mut WarmGit,
    edited: &mut Edited,
    report: &mut Report,
) -> Result<()> {
    let mut row = Row::new(Work::List, tree.size);
    let mut piton = setup.piton(&tree.path, "list.base");
    for _ in 0..CHECKPOINTS {
        edited.append_line()?;
        git.take()?;
        if report.keep("list, piton take", piton.take()).is_none() {
            report.rows.push(row);
            return Ok(());
        }
    }
    settle();
    for round in 0..setup.rounds {
        if round == 0 || row.has(Column::Piton) {
            record(&mut row, Column::Piton, list_of_piton(&piton), report);
        }
        let start = Instant::now();
        let listed = hermes::list(&git.repository, WARM_GIT_REF)?;
        let time = start.elapsed();
        ensure!(listed == CHECKPOINTS, "git lists {listed} checkpoints");
        row.add(Column::Hermes, time);
    }
    report.rows.push(row);
    piton.fresh()
}

fn list_of_piton(piton: &Piton) -> Result<Duration> {
    let (time, stdout) = measure::timed(&mut piton.command(&["rollback", "--json"]))?;
    let listed = String::from_utf8_lossy(&stdout).matches("\"short_id\"").count();
    ensure!(listed == CHECKPOINTS, "{listed} checkpoints listed, {CHECKPOINTS} taken");
    Ok(time)
}

/// Measures peak memory in a separate run, so that sampling does not slow down a timed run.
pub(crate) fn memory(setup: &Setup, tree: &Tree, report: &mut Report) -> Result<()> {
    let mut piton = setup.piton(&tree.path, "memory.base");
    let peak = measure::peak_memory_kib(&mut piton.take_command());
    if let Some(kib) = report.keep("memory", peak) {
        report.peaks_kib.push((tree.size, kib));
    }
    piton.fresh()
}

/// Times the hook at the end of a turn and a take alternately, both with nothing changed and with one changed file.
fn ends_of_turns(piton: &Piton, tree: &Path, tool: &str, report: &mut Report) -> Result<()> {
    let hook = || {
        let mut command = piton.hook_command(&["hook", "claude"]);
        // As Claude Code sets it for its hooks.
        command.env("AI_AGENT", "claude-code_2-1-325_agent");
        command
    };
    let end = tool.replace("PreToolUse", "Stop");
    measure::cpu_per_call(1, &tool.replace("PreToolUse", "UserPromptSubmit"), hook)?;
    let file = tree.join("changed-by-the-benchmark.txt");
    for (work, calls, is_changed) in [("nothing changed", HOOK_CALLS, false), ("one file changed", CHANGE_CALLS, true)]
    {
        let mut walls = [Vec::new(), Vec::new()];
        for number in 0..2 * calls {
            if is_changed {
                fs::write(&file, number.to_string())?;
            }
            let is_end = number % 2 == 1;
            let command = || if is_end { hook() } else { piton.hook_command(&["take"]) };
            let cost = measure::cpu_per_call(1, if is_end { &end } else { "" }, command)?;
            walls[usize::from(is_end)].extend(cost.wall);
        }
        for (name, wall) in [TAKE_BESIDE_END, HOOK_AT_END].iter().zip(walls) {
            report.calls.push(Call { name: format!("{name}, {work}"), cpu_ms: None, wall: wall.into() });
        }
    }
    fs::remove_file(&file).context("cannot remove the file")
}

/// Times a hook call that needs no checkpoint and one whose turn already has one, beside the two programs that such a
/// hook would start first if it were a script.
pub(crate) fn hook(setup: &Setup, tree: &Path, report: &mut Report) -> Result<()> {
    let mut piton = setup.piton(tree, "hook.base");
    report.keep("hook, piton take", piton.take());
    let event = format!(
        concat!(
            r#"{{"hook_event_name":"PreToolUse","tool_name":"Read","tool_input":{{"file_path":"x"}},"#,
            r#""session_id":"s","prompt_id":"p","cwd":"{}"}}"#
        ),
        tree.display()
    );
    let mut call = |name: &str, event: &str, calls: u32, command: &dyn Fn() -> Command| {
        let cost = report.keep(name, measure::cpu_per_call(calls, event, command));
        let cpu_ms = cost.as_ref().map(|cost| cost.cpu_ms);
        let wall = cost.map(|cost| cost.wall).unwrap_or_default();
        report.calls.push(Call { name: name.to_owned(), cpu_ms, wall: wall.into() });
    };
    call("piton hook claude", &event, HOOK_CALLS, &|| {
        let mut command = piton.command(&["hook", "claude"]);
        // Disabled, the hook would have nothing to decide.
        command.env("PITON_ENABLED", "true");
        command
    });
    // The first call takes the checkpoint of the turn, all later calls find it.
    let change = event.replace("\"Read\"", "\"Write\"");
    call("piton hook claude, once more in a turn", &change, HOOK_CALLS, &|| {
        let mut command = piton.command(&["hook", "claude"]);
        command.env("PITON_ENABLED", "true");
        command
    });
    call("git --version", "", HOOK_CALLS, &|| {
        let mut command = isolated("git", &setup.home);
        command.arg("--version");
        command
    });
    call("python3 -c pass", "", PYTHON_CALLS, &|| {
        let mut command = isolated("python3", &setup.home);
        command.args(["-c", "pass"]);
        command
    });
    let ends = ends_of_turns(&piton, tree, &event, report);
    report.keep("hook at the end of a turn", ends);
    piton.fresh()
}
