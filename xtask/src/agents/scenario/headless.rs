//! Sessions without a terminal: several prompts with resume, and consecutive runs.

use anyhow::{Result, ensure};

use super::super::scratch::Scratch;
use super::super::tools::Step;
use super::{Run, expect_rows, expect_told, read, restore_to, same, sessions};

fn shell(command: &str) -> Vec<Step> {
    vec![Step::Shell(command.to_owned())]
}

const GREETING: &str = "write a greeting and drop the sources";
const MODES: &str = "fix the modes and links as they should have been from the start, then move what nobody tracks";
const TIDY: &str = "tidy up\nand keep it short";
const TIDY_SHOWN: &str = "tidy up";
const LOOK: &str = "look around once more";

/// Three prompts that change files of all kinds, in one session with resume.
pub(super) fn session(run: &mut Run) -> Result<()> {
    let before = super::uninstall::Before::note(&run.scratch);
    run.scratch.install()?;
    let installed = super::uninstall::Before::note(&run.scratch);
    run.scratch.agent.approve_hooks(&run.scratch)?;
    run.scratch.record_hooks()?;
    let scratch = &mut run.scratch;
    let first = scratch.state();
    let write = Step::Write { path: "hello.txt".to_owned(), text: "hello from the agent\n".to_owned() };
    scratch.prompt(GREETING, vec![write, Step::Shell("rm -r src && echo done > out.txt".to_owned())])?;
    let second = scratch.state();
    let change = "chmod 644 run.sh && ln -sfn out.txt link && rmdir empty && mkdir made && echo more >> README.md && \
                  printf '\\001\\002' > bytes.dat && mv untracked.txt moved.txt && chmod 644 secret.txt";
    scratch.prompt(MODES, shell(change))?;
    let third = scratch.state();
    scratch
        .prompt(TIDY, shell("rm -r made moved.txt && echo last >> README.md && mkdir -p new/empty && chmod 700 new"))?;
    let last = scratch.state();
    ensure!(first != second && second != third && third != last, "the agent did not change the files");

    run.check("hooks", |scratch| hooks_are_quiet(scratch));
    run.check("rows", |scratch| expect_rows(scratch, &[TIDY_SHOWN, MODES, GREETING]));
    run.check("version", |scratch| expect_version(scratch));
    run.check("list", |scratch| list_has(scratch, &[TIDY_SHOWN, &MODES[..30], GREETING]));
    run.check("restore", |scratch| {
        let ids = scratch.prompt_ids()?;
        ensure!(ids.len() == 3, "three prompts have the rows {ids:?}");
        let states = [&third, &second, &first];
        ids.iter().zip(states).try_for_each(|(id, state)| restore_to(scratch, id, state))
    });
    run.check("undo", |scratch| {
        scratch.piton(&["undo", "-y"])?.ok("piton undo")?;
        same(&scratch.state(), &second, "after `piton undo`")
    });
    let count = run.scratch.model.count();
    let told = run.scratch.prompt(LOOK, Vec::new());
    run.check("told", |scratch| told.and_then(|()| expect_told(scratch, count, LOOK, "hello.txt")));
    run.scratch.stop_recording()?;
    run.check("doctor", |scratch| scratch.piton(&["doctor"])?.ok("piton doctor").map(drop));
    run.check("uninstall-after", |scratch| before.is_back(&installed, scratch));
    Ok(())
}

/// Fails unless each prompt, including the first of the session, has the version of the agent that ran.
fn expect_version(scratch: &Scratch) -> Result<()> {
    let want = scratch.agent.package().version;
    let rows = scratch.rows()?;
    let prompts: Vec<_> = rows.iter().flat_map(|row| row.prompts.iter().flatten()).collect();
    ensure!(!prompts.is_empty(), "no row has a prompt");
    for prompt in prompts {
        ensure!(prompt.version == want, "`{}` has the version {:?}, {want} ran", prompt.words, prompt.version);
    }
    Ok(())
}

/// Fails if a hook call had an exit code other than 0 or wrote to stderr.
fn hooks_are_quiet(scratch: &Scratch) -> Result<()> {
    let calls = scratch.hook_calls()?;
    ensure!(!calls.is_empty(), "the agent called no hook");
    for call in calls {
        let (exit, err) = (read(&call.join("exit")), read(&call.join("stderr")));
        ensure!(exit.trim() == "0", "a hook ended with {exit:?}: {}", call.display());
        ensure!(err.is_empty(), "a hook wrote to stderr: {err}: {}", call.display());
    }
    Ok(())
}

/// Fails unless each of these words is in a numbered line of the list.
fn list_has(scratch: &Scratch, words: &[&str]) -> Result<()> {
    let list = scratch.piton(&["rollback"])?.ok("piton rollback")?.out;
    let is_row = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let rows: Vec<_> = list.lines().filter(is_row).collect();
    for word in words {
        ensure!(rows.iter().any(|row| row.contains(word)), "no row shows `{word}`: {}", rows.join(" | "));
    }
    Ok(())
}

const QUESTIONS: [&str; 3] = ["what does main do", "who wrote the readme", "is there a licence"];
const DELETE: &str = "delete it all";

/// Three questions that change nothing, and then a prompt that does: one state, four prompts.
pub(super) fn four_prompts(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let before = run.scratch.state();
    for question in QUESTIONS {
        run.scratch.prompt(question, Vec::new())?;
    }
    run.scratch.prompt(DELETE, shell("rm -r src README.md run.sh"))?;
    ensure!(run.scratch.state() != before, "the agent did not delete anything");

    run.check("four-prompts", |scratch| {
        let row = scratch.row_of(DELETE)?;
        let words: Vec<_> = row.prompts.iter().flatten().map(|prompt| prompt.words.as_str()).collect();
        let [first, second, third] = QUESTIONS;
        ensure!(words == [DELETE, third, second, first], "the row has the prompts {words:?}");
        Ok(())
    });
    run.check("four-list", |scratch| list_has(scratch, &[DELETE]));
    run.check("four-show", |scratch| {
        let number = scratch.row_of(DELETE)?.number.to_string();
        let shown = scratch.piton(&["show", &number])?.ok("piton show")?.out;
        let missing = QUESTIONS.iter().chain(&[DELETE]).find(|prompt| !shown.contains(**prompt));
        ensure!(missing.is_none(), "`piton show {number}` does not name {missing:?}: {shown}");
        Ok(())
    });
    run.check("four-hint", |scratch| {
        let row = scratch.row_of(DELETE)?;
        let restored = scratch.piton_json(&["restore", &row.number.to_string(), "-y"])?;
        same(&scratch.state(), &before, "after the restore")?;
        let newest = row.prompts.iter().flatten().next().map(|prompt| prompt.turn.clone()).unwrap_or_default();
        let turn = &restored["rewind"]["turn"];
        ensure!(!newest.is_empty() && *turn == newest, "the hint names turn {turn}, the newest prompt's is {newest:?}");
        Ok(())
    });
    Ok(())
}

/// Two runs without resume: the session of the first has ended when the second begins.
pub(super) fn second_run(run: &mut Run) -> Result<()> {
    run.scratch.protect()?;
    let before = run.scratch.state();
    run.scratch.prompt("add the first line", shell("echo first >> README.md"))?;
    run.scratch.forget_session();
    run.scratch.prompt("add the second line", shell("echo second >> README.md && rm -r src"))?;
    run.check("second-run", |scratch| {
        let sessions = sessions(scratch)?;
        ensure!(sessions.len() == 2, "the sessions of two runs are {sessions:?}");
        let ids = scratch.prompt_ids()?;
        ensure!(ids.len() == 2, "two prompts have the rows {ids:?}");
        restore_to(scratch, &ids[1], &before)
    });
    Ok(())
}
