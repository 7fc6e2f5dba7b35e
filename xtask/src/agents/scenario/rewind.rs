//! Rewinds: files and conversation go back together, and the agent continues in the fork.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::state::State;

use super::super::scratch::Scratch;
use super::super::tools::Step;
use super::{Run, same};

/// Prompts whose words occur in no other text.
const PROMPTS: [&str; 4] =
    ["add the alphaword line", "add the betaword line", "add the gammaword line", "add the deltaword line"];

fn shell(command: &str) -> Vec<Step> {
    vec![Step::Shell(command.to_owned())]
}

/// Gives the agent four prompts that change files. Returns the state before each, and the session.
fn four_prompts(scratch: &mut Scratch) -> Result<(Vec<State>, String)> {
    let mut states = Vec::new();
    for (number, prompt) in (1..).zip(PROMPTS) {
        states.push(scratch.state());
        scratch
            .prompt(prompt, shell(&format!("echo line {number} >> README.md && echo {number} > file-{number}.txt")))?;
        ensure!(states.last() != Some(&scratch.state()), "the agent did not change the files");
    }
    let session = scratch.session().context("no session")?.to_owned();
    Ok((states, session))
}

/// Rewinds to the prompt at `index`, checks the files and the old session, and continues in the fork.
fn rewind(scratch: &mut Scratch, index: usize, states: &[State], session: &str) -> Result<()> {
    let prompts = scratch.rows()?.into_iter().flat_map(|row| row.prompts.unwrap_or_default());
    let turn = prompts.into_iter().find(|prompt| prompt.words == PROMPTS[index]).context("no such prompt")?.turn;
    let before = scratch.agent.conversation(scratch, session)?;
    let report = scratch.piton_json(&["rewind", &turn, "-y"])?;
    same(&scratch.state(), &states[index], &format!("after `piton rewind` to prompt {}", index + 1))?;
    ensure!(scratch.agent.conversation(scratch, session)? == before, "the old session was changed");
    let conversation = &report["conversation"];
    ensure!(conversation["agent"] == scratch.agent.package().name, "{conversation}");
    ensure!(conversation["session"] == session, "{conversation}");
    let forked = conversation["forked_session"].as_str();
    ensure!(forked.is_some() == (index > 0), "the fork before prompt {} is {conversation}", index + 1);
    let command = conversation["command"].as_str().context("no command")?;
    ensure!(forked.is_none_or(|forked| command.contains(forked)), "the command does not name the fork: {command}");
    let asked = format!("go on after the rewind to {}", index + 1);
    let count = scratch.model.count();
    scratch.continue_in(forked);
    scratch.prompt(&asked, Vec::new())?;
    expect_messages(scratch, count, &asked, index)?;
    ensure!(
        scratch.agent.package().name == "gemini" || scratch.agent.conversation(scratch, session)? == before,
        "the old session was changed by the prompt in the fork"
    );
    Ok(())
}

/// Fails unless the requests since `count` with the prompt hold all of the first `index` turns and nothing of the others.
fn expect_messages(scratch: &Scratch, count: usize, asked: &str, index: usize) -> Result<()> {
    let calls = scratch.model.calls();
    let calls: Vec<_> = calls.iter().skip(count).filter(|call| call.holds(asked)).collect();
    ensure!(!calls.is_empty(), "no request to the model holds `{asked}`");
    let log = scratch.root.join("log/requests");
    for (number, prompt) in (1..).zip(PROMPTS) {
        let ending = format!("That was turn {number}.");
        let is_before = number <= index;
        for words in [prompt, ending.as_str()] {
            let holds = calls.iter().any(|call| call.holds(words));
            ensure!(
                holds == is_before,
                "`{words}` in the request is {holds}, should be {is_before}: {}",
                log.display()
            );
        }
    }
    Ok(())
}

/// Four prompts, a rewind to each, and at last the old session, which still has all of them.
pub(super) fn each_prompt(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let (states, session) = four_prompts(&mut run.scratch)?;
    for (name, index) in [("rewind-4", 3), ("rewind-3", 2), ("rewind-2", 1), ("rewind-1", 0)] {
        run.check(name, |scratch| rewind(scratch, index, &states, &session));
    }
    run.check("rewind-old", |scratch| {
        let count = scratch.model.count();
        scratch.continue_in(Some(&session));
        scratch.prompt("go on in the old session", Vec::new())?;
        expect_messages(scratch, count, "go on in the old session", 4)
    });
    run.check("rewind-list", |scratch| {
        let states = fork_states(scratch)?;
        ensure!(states == ["continued"; 3], "three forks were continued: {states:?}");
        Ok(())
    });
    run.check("rewind-clean", |scratch| unused_forks_are_removed(scratch, &session));
    Ok(())
}

fn fork_states(scratch: &Scratch) -> Result<Vec<String>> {
    let listed = scratch.piton_json(&["rewind", "--list"])?;
    let state = |fork: &Value| fork["state"].as_str().unwrap_or_default().to_owned();
    Ok(listed.as_array().context("not a list")?.iter().map(state).collect())
}

/// Makes a fork and removes it. The others, which were continued, stay.
fn unused_forks_are_removed(scratch: &Scratch, session: &str) -> Result<()> {
    let prompts = scratch.rows()?.into_iter().flat_map(|row| row.prompts.unwrap_or_default());
    let turn = prompts.into_iter().find(|prompt| prompt.words == PROMPTS[2]).context("no such prompt")?.turn;
    let files = scratch.state();
    let before = scratch.agent.conversation(scratch, session)?;
    let made = scratch.piton_json(&["rewind", &turn, "--conversation-only"])?;
    let forked = made["conversation"]["forked_session"].as_str().context("no fork")?.to_owned();
    same(&scratch.state(), &files, "after a fork alone")?;
    scratch.agent.conversation(scratch, &forked).context("the fork is not there")?;
    let cleaned = scratch.piton_json(&["rewind", "--clean", "-y"])?;
    ensure!(cleaned["removed"][0]["forked_session"] == forked.as_str(), "{cleaned}");
    ensure!(cleaned["left"].as_array().map(Vec::len) == Some(3), "{cleaned}");
    ensure!(scratch.agent.conversation(scratch, &forked).is_err(), "the fork is still there");
    ensure!(scratch.agent.conversation(scratch, session)? == before, "the old session was changed");
    Ok(())
}

/// The same in a linked worktree whose path has spaces and letters beyond ASCII; then a rewind of the fork itself.
pub(super) fn in_worktree(run: &mut Run) -> Result<()> {
    let scratch = &mut run.scratch;
    let place = scratch.home.join("w\u{f6}rk tr\u{e9}e/p 2");
    let line = ["git", "worktree", "add", "-q", "-b", "other", &place.display().to_string()].map(str::to_owned);
    scratch.run(&line, "worktree")?.ok("git worktree add")?;
    scratch.project = place;
    scratch.agent.configure(scratch)?;
    scratch.protect()?;
    let (states, session) = four_prompts(scratch)?;
    run.check("rewind-worktree", |scratch| rewind(scratch, 2, &states, &session));
    run.check("rewind-fork", |scratch| {
        // The first prompt in the fork is one of the fork alone.
        let prompts = scratch.rows()?.into_iter().flat_map(|row| row.prompts.unwrap_or_default());
        let asked = "go on after the rewind to 3";
        let turn = prompts.into_iter().find(|prompt| prompt.words == asked).context("no such prompt")?.turn;
        let fork = scratch.session().context("no session")?.to_owned();
        let before = scratch.agent.conversation(scratch, &fork)?;
        let report = scratch.piton_json(&["rewind", &turn, "-y"])?;
        ensure!(report["conversation"]["session"] == fork.as_str(), "{report}");
        ensure!(scratch.agent.conversation(scratch, &fork)? == before, "the fork was changed");
        let count = scratch.model.count();
        scratch.continue_in(report["conversation"]["forked_session"].as_str());
        scratch.prompt("go on in the fork of the fork", Vec::new())?;
        expect_messages(scratch, count, "go on in the fork of the fork", 2)
    });
    Ok(())
}
