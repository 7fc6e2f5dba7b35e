//! The end of a turn: reported, interrupted, or never reached.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::agent::Agent;
use super::super::scratch::Scratch;
use super::super::terminal::Terminal;
use super::super::tools::Step;
use super::Run;

const MAKE: &str = "make a file and drop it again";
const NEXT: &str = "add a line to the readme";
const HANG: &str = "start something that does not end";
const FAIL: &str = "ask for something that the model refuses";
const DELEGATE: &str = "let a subagent do the rest";
const SUBTASK: &str = "write the file that is written late";
const LAST: &str = "what is left";
/// File that shows that the command of a turn has begun.
const BEGUN: &str = "begun.txt";
/// Some agents do not wait for the hook at the end.
const PATIENCE: Duration = Duration::from_secs(30);

fn shell(command: &str) -> Step {
    Step::Shell(command.to_owned())
}

/// Writes a file and hangs.
fn hang() -> Vec<Step> {
    vec![shell(&format!("echo begun > {BEGUN} && sleep 100"))]
}

/// Returns the turn with this prompt as `piton turns --json` lists it.
fn turn(scratch: &Scratch, prompt: &str) -> Result<Value> {
    let turns = scratch.piton_json(&["turns"])?;
    let found = turns.as_array().into_iter().flatten().find(|turn| turn["prompt"] == prompt);
    found.cloned().with_context(|| format!("no turn with the prompt `{prompt}`: {turns}"))
}

fn wait_for_end(scratch: &Scratch, prompt: &str) -> Result<Value> {
    let began = Instant::now();
    loop {
        let turn = turn(scratch, prompt)?;
        if turn["ended"].is_string() {
            return Ok(turn);
        }
        ensure!(began.elapsed() < PATIENCE, "the end of `{prompt}` was not reported: {turn}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn has_path(turn: &Value, path: &str) -> bool {
    turn["paths"].as_array().is_some_and(|paths| paths.contains(&json!(path)))
}

/// Two turns with an edit of the user between them, then a turn that is killed.
pub(super) fn reported(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let write = Step::Write { path: "made.txt".to_owned(), text: "made in this turn\n".to_owned() };
    run.scratch.prompt(MAKE, vec![write, shell("rm made.txt"), shell("echo kept > kept.txt")])?;
    run.check("end", |scratch| {
        let turn = wait_for_end(scratch, MAKE)?;
        ensure!(turn["open_ended"] == false && turn["row"].is_u64(), "{turn}");
        ensure!(has_path(&turn, "kept.txt") && !has_path(&turn, "made.txt"), "{turn}");
        Ok(())
    });
    run.check("step", |scratch| {
        let steps = turn(scratch, MAKE)?["steps"].clone();
        let id = steps[0]["id"].as_str().with_context(|| format!("no step: {steps}"))?.to_owned();
        scratch.piton(&["restore", &id, "made.txt", "-y"])?.ok("piton restore")?;
        ensure!(scratch.project.join("made.txt").exists(), "made.txt did not come back");
        Ok(())
    });
    run.scratch.write_project("user.txt", b"an edit of the user\n")?;
    run.scratch.prompt(NEXT, vec![shell("echo line >> README.md")])?;
    run.check("end-edit", |scratch| {
        let (first, next) = (wait_for_end(scratch, MAKE)?, wait_for_end(scratch, NEXT)?);
        ensure!(has_path(&next, "README.md"), "{next}");
        ensure!(!has_path(&first, "user.txt") && !has_path(&next, "user.txt"), "the user's edit: {first} {next}");
        ensure!(scratch.rows()?.iter().all(|row| row.kind != "end" && row.kind != "step"), "an end is numbered");
        Ok(())
    });
    run.scratch.kill_during(HANG, hang(), BEGUN)?;
    run.scratch.forget_session();
    run.check("end-killed", |scratch| {
        let killed = turn(scratch, HANG)?;
        ensure!(killed["ended"].is_null() && killed["open_ended"] == false, "it cannot have ended: {killed}");
        scratch.prompt(LAST, Vec::new())?;
        ensure!(turn(scratch, LAST)?["row"].is_u64(), "the next prompt has no row");
        Ok(())
    });
    Ok(())
}

/// A turn in which the model answers with an error.
pub(super) fn failed(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    run.scratch.prompt(NEXT, vec![shell("echo line >> README.md")])?;
    run.scratch.fail_during(FAIL, vec![shell(&format!("echo begun > {BEGUN}"))])?;
    run.check("end-error", |scratch| {
        ensure!(scratch.project.join(BEGUN).exists(), "the agent did not run the command");
        let is_reported = scratch.agent.reports_errors();
        if is_reported {
            wait_for_end(scratch, FAIL)?;
        }
        scratch.write_project("user.txt", b"an edit of the user\n")?;
        scratch.prompt(LAST, Vec::new())?;
        let turn = turn(scratch, FAIL)?;
        ensure!(has_path(&turn, BEGUN), "{turn}");
        ensure!(turn["open_ended"] == !is_reported && has_path(&turn, "user.txt") != is_reported, "{turn}");
        Ok(())
    });
    Ok(())
}

/// A turn that the user interrupts while a command runs, in the terminal interface.
pub(super) fn interrupted(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let mut terminal = Terminal::start(&run.scratch)?;
    terminal.interrupt_during(&run.scratch, HANG, hang(), BEGUN)?;
    run.scratch.write_project("user.txt", b"an edit of the user\n")?;
    terminal.prompt(&run.scratch, LAST, Vec::new())?;
    run.check("interrupted", |scratch| {
        let turn = turn(scratch, HANG)?;
        ensure!(has_path(&turn, BEGUN), "{turn}");
        // Without a report, the edit cannot be told apart from the agent's.
        let is_reported = scratch.agent.reports_interrupts();
        ensure!(turn["open_ended"] == !is_reported && has_path(&turn, "user.txt") != is_reported, "{turn}");
        Ok(())
    });
    Ok(())
}

/// Returns true for the agent whose subagents go on after the turn that started them has ended.
pub(super) fn has_background_subagents(agent: &dyn Agent) -> bool {
    agent.package().name == "claude"
}

/// A subagent that works on after the end of its turn was reported.
pub(super) fn outlived(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let wait = format!("echo begun > {BEGUN}; while ! test -e go.txt; do sleep 0.2; done; echo late > late.txt");
    run.scratch.model.set_subagent(SUBTASK, vec![shell(&wait)]);
    let mut terminal = Terminal::start(&run.scratch)?;
    terminal.prompt(&run.scratch, DELEGATE, vec![Step::Background(SUBTASK.to_owned())])?;
    run.check("outlived", |scratch| {
        let first = wait_for_end(scratch, DELEGATE)?;
        ensure!(!has_path(&first, "late.txt"), "{first}");
        wait_for_file(scratch, BEGUN)?;
        scratch.write_project("go.txt", b"")?;
        wait_for_file(scratch, "late.txt")?;
        terminal.rest()?;
        scratch.write_project("user.txt", b"an edit of the user\n")?;
        terminal.prompt(scratch, LAST, Vec::new())?;
        let turns = scratch.piton_json(&["turns"])?;
        let prompts: Vec<_> = turns.as_array().into_iter().flatten().map(|turn| turn["prompt"].clone()).collect();
        ensure!(prompts == [json!(LAST), json!(DELEGATE)], "{turns}");
        let turn = turn(scratch, DELEGATE)?;
        ensure!(has_path(&turn, "late.txt") && !has_path(&turn, "user.txt"), "{turn}");
        ensure!(turn["open_ended"] == false, "{turn}");
        Ok(())
    });
    Ok(())
}

fn wait_for_file(scratch: &Scratch, name: &str) -> Result<()> {
    let began = Instant::now();
    while !scratch.project.join(name).exists() {
        ensure!(began.elapsed() < PATIENCE, "{name} was not written");
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
