//! Sessions with other activity in the project: a checkpoint that the user takes between two prompts, and two agents.

use anyhow::{Context, Result, ensure};

use super::super::agent::{self, Agent};
use super::super::tools::Step;
use super::{Run, restore_to, same};

fn shell(command: &str) -> Vec<Step> {
    vec![Step::Shell(command.to_owned())]
}

const DROP: &str = "drop the sources";
const BY_HAND: &str = "after my own edit";

/// The user edits a file and takes a checkpoint between two prompts: the second prompt begins from it.
pub(super) fn manual_take(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    run.scratch.prompt("add a line", shell("echo line >> README.md"))?;
    run.scratch.write_project("mine.txt", b"by hand\n")?;
    run.scratch.piton(&["take", "-m", BY_HAND])?.ok("piton take")?;
    let before = run.scratch.state();
    run.scratch.prompt(DROP, shell("rm -r src mine.txt"))?;
    ensure!(run.scratch.state() != before, "the agent did not delete anything");
    run.check("manual", |scratch| {
        let row = scratch.row_of(DROP)?;
        ensure!(row.reason == BY_HAND, "the prompt is at the row {:?}", row.reason);
        restore_to(scratch, &row.short_id, &before)
    });
    Ok(())
}

/// The second agent of a pair. It reports the end of its sessions; Codex, which is the first, does not.
const OTHER: &str = "gemini";

pub(super) fn is_first_of_pair(agent: &dyn Agent) -> bool {
    agent.package().name == "codex"
}

/// Two agents in one project: prompts of both are listed at one row, and the work of one is not undone by the other
/// without agreement.
pub(super) fn two_agents(run: &mut Run) -> Result<()> {
    let first = run.scratch.agent;
    let other = agent::ALL.into_iter().find(|agent| agent.package().name == OTHER).context("no such agent")?;
    if !run.settings.cache.has(other) {
        run.skip("one-row", &format!("{OTHER} is not installed"));
        run.skip("guarded", &format!("{OTHER} is not installed"));
        return Ok(());
    }
    let scratch = &mut run.scratch;
    scratch.install()?;
    scratch.agent.approve_hooks(scratch)?;
    scratch.add_agent(other, &run.settings.cache)?;
    let before = scratch.state();
    scratch.prompt("what does main do", Vec::new())?;
    scratch.switch_to(first);
    scratch.prompt(DROP, shell("rm -r src"))?;
    run.check("one-row", |scratch| {
        let row = scratch.row_of(DROP)?;
        let agents: Vec<_> = row.prompts.iter().flatten().map(|prompt| prompt.agent.as_str()).collect();
        ensure!(agents == [first.package().name, OTHER], "the row has prompts of {agents:?}");
        restore_to(scratch, &row.short_id, &before)
    });

    let scratch = &mut run.scratch;
    scratch.switch_to(other);
    scratch.prompt("add a line", shell("echo line >> README.md"))?;
    scratch.switch_to(first);
    scratch.prompt("add a file", shell("echo new > added.txt"))?;
    run.check("guarded", |scratch| {
        let row = scratch.row_of("add a line")?;
        let now = scratch.state();
        let refused = scratch.piton(&["restore", &row.short_id, "-y"])?;
        let names_it = refused.err.contains(&format!("later work of {}", first.package().name));
        ensure!(!refused.status.success() && names_it, "the restore is not refused: {}{}", refused.out, refused.err);
        same(&scratch.state(), &now, "after a restore that was refused")?;
        let agreed = ["restore", &row.short_id, "-y", "--across-sessions"];
        scratch.piton(&agreed)?.ok("piton restore --across-sessions")?;
        same(&scratch.state(), &before, "after the restore")
    });
    Ok(())
}
