//! `piton mcp` in an agent: the model takes, lists and restores with its tools.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::super::agent::Agent;
use super::super::scratch::Scratch;
use super::super::terminal::Terminal;
use super::super::tools::Step;
use super::rewind::expect_held;
use super::{Run, same};

const SERVER: &str = "piton";

pub(super) fn has_mcp(agent: &dyn Agent) -> bool {
    ["claude", "codex"].contains(&agent.package().name)
}

/// Returns true for an agent that asks its user in the mode of this suite: Codex refuses by itself if it may do everything.
pub(super) fn asks(agent: &dyn Agent) -> bool {
    agent.package().name == "claude"
}

fn tool(tool: &'static str, arguments: Value) -> Step {
    Step::Mcp { server: SERVER, tool, arguments }
}

/// Without hooks: everything is done by the model and its tools.
pub(super) fn tools(run: &mut Run) -> Result<()> {
    let scratch = &mut run.scratch;
    let is_added = scratch.agent.add_mcp_server(scratch, SERVER, &["piton", "mcp"])?;
    ensure!(is_added, "the configuration of MCP servers is not known");
    let before = scratch.state();
    let (asked, reason) = ("save it first and then add a line", "before the lineword");
    let steps = vec![
        tool("take", json!({"reason": reason})),
        Step::Shell("echo line >> README.md && echo new > added.txt && rm -r src".to_owned()),
    ];
    scratch.prompt(asked, steps)?;
    ensure!(scratch.state() != before, "the agent did not change the files");
    run.check("mcp-take", |scratch| {
        let rows = scratch.rows()?;
        ensure!(rows.len() == 1 && rows[0].reason == reason, "{rows:?}");
        Ok(())
    });
    run.check("mcp-list", |scratch| {
        let count = scratch.model.count();
        scratch.forget_session();
        scratch.prompt("which checkpoints are there", vec![tool("list", json!({}))])?;
        expect_held(scratch, count, "which checkpoints are there", reason, true)
    });
    run.check("mcp-restore", |scratch| {
        let (now, count) = (scratch.state(), scratch.model.count());
        let asked = "bring back what was there";
        scratch.prompt(asked, vec![tool("restore", json!({"checkpoint": 1}))])?;
        // No person can be asked here.
        same(&scratch.state(), &now, "after a restore that no person agreed to")?;
        expect_held(scratch, count, asked, "The user did not agree. Nothing was changed.", true)
    });
    Ok(())
}

/// In the terminal interface the agent shows the plan, and restores only if the user agrees.
pub(super) fn agreed(run: &mut Run) -> Result<()> {
    let scratch = &mut run.scratch;
    let is_added = scratch.agent.add_mcp_server(scratch, SERVER, &["piton", "mcp"])?;
    ensure!(is_added, "the configuration of MCP servers is not known");
    let before = scratch.state();
    scratch.piton(&["take", "-m", "by hand"])?.ok("piton take")?;
    let mut terminal = Terminal::start(scratch)?;
    let asked = "drop the sources";
    terminal.prompt(scratch, asked, vec![Step::Shell("rm -r src && echo new > added.txt".to_owned())])?;
    let now = scratch.state();
    ensure!(now != before, "the agent did not change the files");
    run.check("mcp-refused", |scratch| {
        ask_for_restore(&mut terminal, scratch, "bring back the sources", "It was refused.")?;
        terminal.keys(scratch.agent.mcp_answers()[1])?;
        terminal.wait_for("It was refused.", || Ok(()))?;
        same(&scratch.state(), &now, "after a refusal")
    });
    run.check("mcp-agreed", |scratch| {
        ask_for_restore(&mut terminal, scratch, "bring back the sources after all", "It was done.")?;
        same(&scratch.state(), &now, "before the answer")?;
        terminal.keys(scratch.agent.mcp_answers()[0])?;
        terminal.wait_for("It was done.", || Ok(()))?;
        same(&scratch.state(), &before, "after the restore")
    });
    Ok(())
}

/// Gives a prompt at which the model calls for a restore, and waits until the user is asked.
fn ask_for_restore(terminal: &mut Terminal, scratch: &Scratch, asked: &str, ending: &str) -> Result<()> {
    scratch.model.set_script(asked, vec![tool("restore", json!({"checkpoint": 1}))], ending);
    terminal.send(asked)?;
    terminal.wait_for("Restore the files as described", || Ok(()))?;
    terminal.rest()
}
