//! Sessions in the agent's terminal interface: `/rollback` typed as a prompt, `/clear` and restarts.

use anyhow::{Context, Result, ensure};
use testkit::state::State;

use super::super::scratch::Scratch;
use super::super::terminal::Terminal;
use super::super::tools::Step;
use super::{Run, expect_rows, expect_told, restore_to, same, sessions};

const ADD: &str = "add a file and a line";
const DROP: &str = "drop the sources";
const NEXT: &str = "what is left";
const REWRITE: &str = "write the readme from the start";

fn shell(command: &str) -> Vec<Step> {
    vec![Step::Shell(command.to_owned())]
}

/// Two prompts, then every form of the command, then a prompt at which the agent is notified.
pub(super) fn rollback(run: &mut Run) -> Result<()> {
    let command = run.scratch.agent.rollback().context("the agent has no such command")?;
    run.scratch.protect()?;
    let mut terminal = Terminal::start(&run.scratch)?;
    let first = run.scratch.state();
    terminal.prompt(&run.scratch, ADD, shell("echo line >> README.md && echo new > added.txt"))?;
    let second = run.scratch.state();
    terminal.prompt(&run.scratch, DROP, shell("rm -r src && echo other > run.sh && echo later > later.txt"))?;
    ensure!(first != second && second != run.scratch.state(), "the agent did not change the files");
    run.check("rows", |scratch| expect_rows(scratch, &[DROP, ADD]));

    let count = run.scratch.model.count();
    let mut type_in = |scratch: &Scratch, words: &str, answer: &str| {
        let count = scratch.model.count();
        terminal.send(format!("{command} {words}").trim())?;
        terminal.wait_for(answer, || {
            ensure!(scratch.model.count() == count, "it went to the model");
            Ok(())
        })?;
        terminal.rest()
    };
    run.check("typed-list", |scratch| type_in(scratch, "", "Checkpoints for"));
    run.check("typed-diff", |scratch| {
        let row = scratch.row_of(DROP)?.number;
        type_in(scratch, &format!("diff {row}"), "later.txt")
    });
    run.check("typed-new-file", |scratch| {
        let row = scratch.row_of(DROP)?;
        type_in(scratch, &format!("{} later.txt", row.number), "later.txt: ")?;
        ensure!(!scratch.project.join("later.txt").exists(), "later.txt is still there");
        Ok(())
    });
    run.check("typed-file", |scratch| {
        let row = scratch.row_of(DROP)?;
        type_in(scratch, &format!("{} run.sh", row.number), "only run.sh")?;
        let (now, path) = (scratch.state(), b"run.sh".as_slice());
        ensure!(now.get(path) == second.get(path), "run.sh is not as before");
        ensure!(!scratch.project.join("src").exists(), "more than one file was restored");
        Ok(())
    });
    run.check("typed-restore", |scratch| {
        let row = scratch.row_of(ADD)?;
        type_in(scratch, &row.number.to_string(), &format!("Restored to {}", row.short_id))?;
        same(&scratch.state(), &first, "after the typed restore")
    });
    run.check("no-calls", |scratch| {
        let more = scratch.model.count() - count;
        ensure!(more == 0, "the model was called {more} times: {}", scratch.root.join("log/requests").display());
        let rows = scratch.rows()?;
        let taken = rows.iter().find(|row| row.reason.contains("rollback ") && row.kind == "auto");
        ensure!(taken.is_none(), "a typed command has a checkpoint: {taken:?}");
        Ok(())
    });
    let count = run.scratch.model.count();
    let told = terminal.prompt(&run.scratch, NEXT, Vec::new());
    run.check("told", |scratch| told.and_then(|()| expect_told(scratch, count, NEXT, "added.txt")));
    Ok(())
}

/// A new session in the same terminal, and one after a restart: the user's own earlier work does not count as another
/// session's.
pub(super) fn clear(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let mut terminal = Terminal::start(&run.scratch)?;
    let first = run.scratch.state();
    terminal.prompt(&run.scratch, ADD, shell("echo line >> README.md && echo new > added.txt"))?;
    terminal.send(run.scratch.agent.clear())?;
    terminal.rest()?;
    run.scratch.agent.clear_keys().iter().try_for_each(|key| terminal.key(key))?;
    terminal.rest()?;
    let second = run.scratch.state();
    terminal.prompt(&run.scratch, DROP, shell("rm -r src && echo other > run.sh"))?;
    ensure!(first != second && second != run.scratch.state(), "the agent did not change the files");
    run.check("clear", |scratch| {
        let sessions = sessions(scratch)?;
        ensure!(sessions.len() == 2, "the sessions before and after are {sessions:?}");
        let ids = scratch.prompt_ids()?;
        ensure!(ids.len() == 2, "two prompts have the rows {ids:?}");
        go_back(scratch, terminal, &ids[1], &first)
    });

    let mut terminal = Terminal::start(&run.scratch)?;
    let third = run.scratch.state();
    terminal.prompt(&run.scratch, REWRITE, shell("echo rewritten > README.md"))?;
    drop(terminal);
    let mut terminal = Terminal::start(&run.scratch)?;
    terminal.prompt(&run.scratch, NEXT, shell("echo again > again.txt"))?;
    run.check("restart", |scratch| {
        let ids = scratch.prompt_ids()?;
        let id = ids.get(1).context("no row for the prompt before the restart")?;
        go_back(scratch, terminal, id, &third)
    });
    Ok(())
}

/// Restores a checkpoint of an earlier session while the session that followed it is open: by a command typed in that
/// session, or from a shell if the agent has no such command.
fn go_back(scratch: &Scratch, mut terminal: Terminal, id: &str, want: &State) -> Result<()> {
    let Some(command) = scratch.agent.rollback() else {
        return restore_to(scratch, id, want);
    };
    terminal.send(&format!("{command} {id}"))?;
    terminal.wait_for(&format!("Restored to {id}"), || Ok(()))?;
    terminal.rest()?;
    same(&scratch.state(), want, &format!("after `{command} {id}`"))
}
