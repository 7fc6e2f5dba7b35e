//! Rewinds in the terminal interface: of a session that is open, by the printed command, by `--exec`, and after a compaction.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::state::State;

use super::super::scratch::Scratch;
use super::super::terminal::{Terminal, ending};
use super::super::tools::Step;
use super::rewind::{PROMPTS, Rewound, change, expect_held, expect_messages, rewind_to, turn_of};
use super::{Run, expect_told, same};

/// The model's summary of a conversation.
const SUMMARY: &str = "The conversation so far was about the summaryword.";
/// Timeout for a compaction.
const PATIENCE: Duration = Duration::from_secs(60);

/// Types the prompts from `first` on, of which each changes files. Returns the state before each.
fn type_prompts(terminal: &mut Terminal, scratch: &Scratch, first: usize, count: usize) -> Result<Vec<State>> {
    let mut states = Vec::new();
    for (index, prompt) in PROMPTS.iter().enumerate().skip(first).take(count) {
        states.push(scratch.state());
        // Long output, so that a summary is shorter than what it replaces.
        let output = Step::Shell(format!("seq {index}000 {index}900"));
        terminal.prompt(scratch, prompt, vec![output, change(index + 1)])?;
        ensure!(states.last() != Some(&scratch.state()), "the agent did not change the files");
    }
    Ok(states)
}

/// Gives a prompt in a terminal, and checks that the model gets the first `index` turns only.
fn go_on(terminal: &mut Terminal, scratch: &Scratch, asked: &str, index: usize) -> Result<()> {
    let count = scratch.model.count();
    terminal.prompt(scratch, asked, Vec::new())?;
    expect_messages(scratch, count, asked, index, ending)
}

/// Runs a line that continues in a session with the first turn.
fn resume(scratch: &Scratch, line: &str) -> Result<Terminal> {
    Terminal::start_line(scratch, line, &[&ending(1)])
}

/// Three prompts, then every way to continue.
pub(super) fn in_terminal(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let mut terminal = Terminal::start(&run.scratch)?;
    let states = type_prompts(&mut terminal, &run.scratch, 0, 3)?;
    settle(&run.scratch)?;
    run.check("rewind-open", |scratch| {
        let rewound = rewind_to(scratch, 2, &states[2])?;
        let count = scratch.model.count();
        go_on(&mut terminal, scratch, "go on in the open session", 3)?;
        expect_told(scratch, count, "go on in the open session", "file-3.txt")?;
        let fork = rewound.forked.context("no fork")?;
        expect_held(scratch, count, "go on in the open session", &fork, true)
    });
    run.check("rewind-running", |scratch| during_turn(&mut terminal, scratch, &states[1]));
    close(terminal, &run.scratch)?;
    run.check("rewind-printed", |scratch| {
        let Rewound { command, .. } = rewind_to(scratch, 1, &states[1])?;
        go_on(&mut resume(scratch, &command)?, scratch, "go on as it was printed", 1)
    });
    run.check("rewind-exec", |scratch| {
        let turn = turn_of(scratch, PROMPTS[2])?.turn;
        let mut terminal = resume(scratch, &format!("piton rewind '{turn}' -y --exec"))?;
        same(&scratch.state(), &states[2], "after `piton rewind --exec`")?;
        go_on(&mut terminal, scratch, "go on by exec", 2)
    });
    typed(run, &states[1])
}

/// Rewinds to the second prompt while the agent runs a command. The turn goes on.
fn during_turn(terminal: &mut Terminal, scratch: &Scratch, want: &State) -> Result<()> {
    let (prompt, ending) = ("wait until you may go on", ending(scratch.next_turn()));
    let wait = "touch ../begun; while ! test -e ../go; do sleep 0.2; done";
    scratch.model.set_script(prompt, vec![Step::Shell(wait.to_owned())], &ending);
    terminal.send(prompt)?;
    let began = Instant::now();
    while !scratch.home.join("begun").exists() {
        ensure!(began.elapsed() < PATIENCE, "the agent did not run the command: {}", terminal.shot()?);
        thread::sleep(Duration::from_millis(200));
    }
    settle(scratch)?;
    let rewound = rewind_to(scratch, 1, want);
    scratch.write_home("go", "")?;
    terminal.wait_for(&ending, || Ok(()))?;
    terminal.rest()?;
    rewound.map(drop)
}

/// A rollback typed in the agent, and then the session that its answer names.
fn typed(run: &mut Run, want: &State) -> Result<()> {
    let Some(command) = run.scratch.agent.rollback() else {
        run.skip("rewind-typed", "the agent has no such command");
        run.skip("rewind-inside", "the agent has no such command");
        return Ok(());
    };
    let mut terminal = Terminal::start(&run.scratch)?;
    run.check("rewind-typed", |scratch| {
        let row = scratch.row_of(PROMPTS[1])?;
        terminal.prompt(scratch, "look at it once more", Vec::new())?;
        terminal.send(&format!("{command} {}", row.short_id))?;
        terminal.wait_for("Continue there with", || Ok(()))?;
        same(&scratch.state(), want, "after the typed rollback")
    });
    if !run.scratch.agent.resumes_inside() {
        run.skip("rewind-inside", "the agent has no command for that with the id of a session");
        return Ok(());
    }
    run.check("rewind-inside", |scratch| {
        let forks = scratch.piton_json(&["rewind", "--list"])?;
        let fork = forks[0]["forked_session"].as_str().context("no fork")?;
        terminal.rest()?;
        terminal.send(&format!("/resume {fork}"))?;
        terminal.wait_for(&ending(1), || Ok(()))?;
        terminal.rest()?;
        go_on(&mut terminal, scratch, "go on inside", 1)
    });
    Ok(())
}

/// Two prompts, a compaction, and two more: a rewind to after and to before the compaction.
pub(super) fn after_compaction(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let mut terminal = Terminal::start(&run.scratch)?;
    let mut states = type_prompts(&mut terminal, &run.scratch, 0, 2)?;
    compact(&mut terminal, &run.scratch)?;
    let count = run.scratch.model.count();
    states.extend(type_prompts(&mut terminal, &run.scratch, 2, 2)?);
    run.check("compacted", |scratch| expect_held(scratch, count, PROMPTS[2], SUMMARY, true));
    close(terminal, &run.scratch)?;
    run.check("rewind-compacted", |scratch| {
        let Rewound { forked, .. } = rewind_to(scratch, 3, &states[3])?;
        let asked = "go on with the summary";
        let count = scratch.model.count();
        scratch.continue_in(forked.as_deref());
        scratch.prompt(asked, Vec::new())?;
        for (words, want) in [(SUMMARY, true), (PROMPTS[2], true), (&ending(3), true), (PROMPTS[3], false)] {
            expect_held(scratch, count, asked, words, want)?;
        }
        Ok(())
    });
    run.check("rewind-to-compacted", |scratch| {
        let Rewound { forked, .. } = rewind_to(scratch, 1, &states[1])?;
        let asked = "go on without the summary";
        let count = scratch.model.count();
        scratch.continue_in(forked.as_deref());
        scratch.prompt(asked, Vec::new())?;
        expect_held(scratch, count, asked, SUMMARY, false)?;
        expect_messages(scratch, count, asked, 1, ending)
    });
    Ok(())
}

/// Closes the terminal, and waits until the agent has written everything.
fn close(terminal: Terminal, scratch: &Scratch) -> Result<()> {
    drop(terminal);
    settle(scratch)
}

/// Waits until the agent no longer writes to its session: it may go on for a moment after a turn.
fn settle(scratch: &Scratch) -> Result<()> {
    let session = turn_of(scratch, PROMPTS[0])?.session;
    let (mut last, mut since) = (scratch.agent.conversation(scratch, &session)?, Instant::now());
    let began = Instant::now();
    while since.elapsed() < Duration::from_secs(3) && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(300));
        let now = scratch.agent.conversation(scratch, &session)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Has the agent replace its conversation by a summary.
fn compact(terminal: &mut Terminal, scratch: &Scratch) -> Result<()> {
    let count = scratch.model.count();
    scratch.model.answer_all_with(SUMMARY);
    terminal.send(scratch.agent.compact())?;
    let began = Instant::now();
    while scratch.model.count() == count {
        ensure!(began.elapsed() < PATIENCE, "the agent asked for no summary: {}", terminal.shot()?);
        thread::sleep(Duration::from_millis(200));
    }
    terminal.rest()?;
    terminal.rest()
}
