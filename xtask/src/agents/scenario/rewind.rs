//! Rewinds: files and conversation go back together, and the agent continues in the fork.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::state::State;

use super::super::agent::Agent;
use super::super::scratch::{Prompt, Scratch};
use super::super::tools::Step;
use super::{Run, same};

/// Prompts whose words occur in no other text.
pub(super) const PROMPTS: [&str; 4] =
    ["add the alphaword line", "add the betaword line", "add the gammaword line", "add the deltaword line"];

/// Returns the step that changes files in the turn of that number.
pub(super) fn change(number: usize) -> Step {
    Step::Shell(format!("echo line {number} >> README.md && echo {number} > file-{number}.txt"))
}

/// Gives the agent four prompts that change files. Returns the state before each, and the session.
fn four_prompts(scratch: &mut Scratch, before_first: &[Step]) -> Result<(Vec<State>, String)> {
    let mut states = Vec::new();
    for (number, prompt) in (1..).zip(PROMPTS) {
        states.push(scratch.state());
        let mut steps = if number == 1 { before_first.to_vec() } else { Vec::new() };
        steps.push(change(number));
        scratch.prompt(prompt, steps)?;
        ensure!(states.last() != Some(&scratch.state()), "the agent did not change the files");
    }
    let session = scratch.session().context("no session")?.to_owned();
    Ok((states, session))
}

/// A rewind that was made.
pub(super) struct Rewound {
    /// Session of the fork; `None` before the first prompt.
    pub(super) forked: Option<String>,
    /// Command that continues there.
    pub(super) command: String,
}

/// Returns the newest turn with this prompt.
pub(super) fn turn_of(scratch: &Scratch, prompt: &str) -> Result<Prompt> {
    let mut prompts = scratch.rows()?.into_iter().flat_map(|row| row.prompts.unwrap_or_default());
    prompts.find(|one| one.words == prompt).with_context(|| format!("no row has the prompt `{prompt}`"))
}

/// Rewinds to the prompt at `index` from a shell, and checks the files and the old session.
pub(super) fn rewind_to(scratch: &Scratch, index: usize, want: &State) -> Result<Rewound> {
    let prompt = turn_of(scratch, PROMPTS[index])?;
    let session = prompt.session;
    let before = scratch.agent.conversation(scratch, &session)?;
    let report = scratch.piton_json(&["rewind", &prompt.turn, "-y"])?;
    same(&scratch.state(), want, &format!("after `piton rewind` to prompt {}", index + 1))?;
    ensure!(scratch.agent.conversation(scratch, &session)? == before, "the old session was changed");
    let conversation = &report["conversation"];
    ensure!(conversation["agent"] == scratch.agent.package().name, "{conversation}");
    ensure!(conversation["session"] == session.as_str(), "{conversation}");
    let forked = conversation["forked_session"].as_str();
    ensure!(forked.is_some() == (index > 0), "the fork before prompt {} is {conversation}", index + 1);
    let command = conversation["command"].as_str().context("no command")?;
    ensure!(forked.is_none_or(|forked| command.contains(forked)), "the command does not name the fork: {command}");
    if let Some(forked) = forked {
        expect_like_original(scratch, &session, forked, PROMPTS[index])?;
    }
    Ok(Rewound { forked: forked.map(str::to_owned), command: command.to_owned() })
}

/// Fails unless a fork has the permissions of the original, and a title by the prompt before which it ends.
fn expect_like_original(scratch: &Scratch, session: &str, forked: &str, prompt: &str) -> Result<()> {
    let modes = |session: &str| scratch.agent.modes(scratch, session);
    let (want, found) = (modes(session)?, modes(forked)?);
    ensure!(found == want, "the modes of the fork are {found:?}, should be {want:?} (decimal)");
    let stored = scratch.agent.title(scratch, forked)?;
    let title = format!("before: {prompt}");
    let is_titled = stored.windows(title.len()).any(|window| window == title.as_bytes());
    ensure!(is_titled, "the fork {forked} has no title `{title}`");
    Ok(())
}

/// Rewinds to the prompt at `index`, and continues in the fork without a terminal.
fn rewind(scratch: &mut Scratch, index: usize, states: &[State], session: &str) -> Result<()> {
    let rewound = rewind_to(scratch, index, &states[index])?;
    let before = scratch.agent.conversation(scratch, session)?;
    let asked = format!("go on after the rewind to {}", index + 1);
    let count = scratch.model.count();
    scratch.continue_in(rewound.forked.as_deref());
    scratch.prompt(&asked, Vec::new())?;
    expect_messages(scratch, count, &asked, index, headless_ending)?;
    ensure!(
        scratch.agent.package().name == "gemini" || scratch.agent.conversation(scratch, session)? == before,
        "the old session was changed by the prompt in the fork"
    );
    Ok(())
}

fn headless_ending(turn: usize) -> String {
    format!("That was turn {turn}.")
}

/// Fails unless the requests since `count` with the prompt hold all of the first `index` turns and nothing of the others.
/// `ending` returns the last words of the model in a turn.
pub(super) fn expect_messages(
    scratch: &Scratch,
    count: usize,
    asked: &str,
    index: usize,
    ending: fn(usize) -> String,
) -> Result<()> {
    for (number, prompt) in (1..).zip(PROMPTS) {
        for words in [prompt, ending(number).as_str()] {
            expect_held(scratch, count, asked, words, number <= index)?;
        }
    }
    Ok(())
}

/// Fails unless a request since `count` with the prompt holds these words, or unless none does.
pub(super) fn expect_held(scratch: &Scratch, count: usize, asked: &str, words: &str, want: bool) -> Result<()> {
    let calls = scratch.model.calls();
    let calls: Vec<_> = calls.iter().skip(count).filter(|call| call.holds(asked)).collect();
    ensure!(!calls.is_empty(), "no request to the model holds `{asked}`");
    let holds = calls.iter().any(|call| call.holds(words));
    let log = scratch.root.join("log/requests");
    ensure!(holds == want, "`{words}` in the request is {holds}, should be {want}: {}", log.display());
    Ok(())
}

/// Four prompts, a rewind to each, and at last the old session, which still has all of them.
pub(super) fn each_prompt(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let (states, session) = four_prompts(&mut run.scratch, &[])?;
    for (name, index) in [("rewind-4", 3), ("rewind-3", 2), ("rewind-2", 1), ("rewind-1", 0)] {
        run.check(name, |scratch| rewind(scratch, index, &states, &session));
    }
    run.check("rewind-old", |scratch| {
        let count = scratch.model.count();
        scratch.continue_in(Some(&session));
        scratch.prompt("go on in the old session", Vec::new())?;
        expect_messages(scratch, count, "go on in the old session", 4, headless_ending)
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
    let turn = turn_of(scratch, PROMPTS[2])?.turn;
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
    let (states, session) = four_prompts(scratch, &[])?;
    run.check("rewind-worktree", |scratch| rewind(scratch, 2, &states, &session));
    run.check("rewind-fork", |scratch| {
        // The first prompt in the fork is one of the fork alone.
        let turn = turn_of(scratch, "go on after the rewind to 3")?.turn;
        let fork = scratch.session().context("no session")?.to_owned();
        let before = scratch.agent.conversation(scratch, &fork)?;
        let report = scratch.piton_json(&["rewind", &turn, "-y"])?;
        ensure!(report["conversation"]["session"] == fork.as_str(), "{report}");
        ensure!(scratch.agent.conversation(scratch, &fork)? == before, "the fork was changed");
        let count = scratch.model.count();
        scratch.continue_in(report["conversation"]["forked_session"].as_str());
        scratch.prompt("go on in the fork of the fork", Vec::new())?;
        expect_messages(scratch, count, "go on in the fork of the fork", 2, headless_ending)
    });
    Ok(())
}

/// Number of rewinds that are killed, at times spread over the duration of one.
const KILLS: u32 = 16;

/// Rewinds that are killed together with what they started: the agent's server, or the program that writes its database.
pub(super) fn killed(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let (states, session) = four_prompts(&mut run.scratch, &[])?;
    run.check("rewind-killed", |scratch| {
        let turn = turn_of(scratch, PROMPTS[2])?.turn;
        let (files, conversation) = (scratch.state(), scratch.agent.conversation(scratch, &session)?);
        let line = ["piton", "rewind", &turn, "-y"].map(str::to_owned);
        let began = Instant::now();
        scratch.run(&line, "rewind")?.ok("piton rewind")?;
        let duration = began.elapsed();
        scratch.piton(&["undo", "-y"])?.ok("piton undo")?;
        let mut killed = 0;
        for number in 1..=KILLS {
            let began = Instant::now();
            let ran = scratch.run_until(&line, "killed", || began.elapsed() >= duration * number / KILLS)?;
            killed += usize::from(ran.status.code().is_none());
            let now = scratch.agent.conversation(scratch, &session)?;
            ensure!(now == conversation, "kill {number} changed the conversation");
            if scratch.piton(&["rollback"])?.err.contains("was cut short") {
                scratch.piton(&["restore", "--abort"])?.ok("piton restore --abort")?;
            }
            if scratch.state() != files {
                same(&scratch.state(), &states[2], &format!("after kill {number}"))?;
                scratch.piton(&["undo", "-y"])?.ok("piton undo")?;
            }
            same(&scratch.state(), &files, &format!("taken back after kill {number}"))?;
        }
        ensure!(killed >= 4, "only {killed} of {KILLS} were killed");
        Ok(())
    });
    run.check("rewind-after-kills", |scratch| rewind(scratch, 2, &states, &session));
    Ok(())
}

/// Returns true for agents that make forks themselves without a terminal.
pub(super) fn makes_forks(agent: &dyn Agent) -> bool {
    agent.headless_fork("", "").is_some()
}

/// A fork that the agent made itself, of a session with one prompt: a rewind to the second prompt in it, and to the first.
pub(super) fn of_own_fork(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    run.scratch.prompt(PROMPTS[0], vec![change(1)])?;
    let mut states = vec![run.scratch.state()];
    run.scratch.prompt_in_fork(PROMPTS[1], vec![change(2)])?;
    states.push(run.scratch.state());
    run.scratch.prompt(PROMPTS[2], vec![change(3)])?;
    let session = run.scratch.session().context("no session")?.to_owned();
    states.insert(0, State::new());
    run.check("rewind-own-fork", |scratch| rewind(scratch, 2, &states, &session));
    run.check("rewind-own-fork-first", |scratch| rewind(scratch, 1, &states, &session));
    Ok(())
}

const SUBTASK: &str = "look into the subword matter";
/// Results of two commands that the model calls for at once.
const RESULTS: [&str; 2] = ["parallelword one", "parallelword two"];

/// A conversation in which a subagent worked and two tools ran in parallel: it goes back like any other.
pub(super) fn with_subagent(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    run.scratch.model.set_subagent(SUBTASK, vec![Step::Shell("echo sub > sub.txt".to_owned())]);
    // Some agents do not wait for their subagents.
    let wait = "for i in $(seq 100); do test -e sub.txt && break; sleep 0.1; done";
    let parallel = ["one", "two"].map(|word| format!("printf 'parallel%s %s\\n' word {word}"));
    let steps = [Step::Subagent(SUBTASK.to_owned()), Step::Shell(wait.to_owned()), Step::Parallel(parallel.to_vec())];
    let (states, session) = four_prompts(&mut run.scratch, &steps)?;
    ensure!(run.scratch.project.join("sub.txt").exists(), "no subagent ran");
    run.check("rewind-subagent", |scratch| rewind(scratch, 2, &states, &session));
    run.check("rewind-subagent-next", |scratch| rewind(scratch, 1, &states, &session));
    run.check("rewind-parallel", |scratch| {
        let asked = ["go on after the rewind to 3", "go on after the rewind to 2"];
        let mut both = asked.iter().flat_map(|asked| RESULTS.map(|words| (asked, words)));
        both.try_for_each(|(asked, words)| expect_held(scratch, 0, asked, words, true))
    });
    Ok(())
}
