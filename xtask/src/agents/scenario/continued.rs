//! An agent that continues because another program's hook asked for it: the text of that hook is not a prompt of the
//! user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::agent::Agent;
use super::super::scratch::{Scratch, read_text, shown};
use super::super::tools::Step;
use super::{Run, read};

const CHANGE: &str = "add a line to the readme";
const QUESTION: &str = "what is in the readme";
/// Text of the other hook.
const WORDS: &str = "run the checks before you stop";

pub(super) fn can_go_on(agent: &dyn Agent) -> bool {
    agent.turn_end().is_some()
}

/// A prompt that changes files and one that does not, each continued once by a hook with exit code 2.
pub(super) fn by_another_hook(run: &mut Run) -> Result<()> {
    let scratch = &mut run.scratch;
    scratch.protect()?;
    let is_over = add_hook(scratch)?;
    scratch.prompt(CHANGE, vec![Step::Shell("echo line >> README.md".to_owned())])?;
    fs::remove_file(&is_over).context("the other hook did not run")?;
    scratch.prompt(QUESTION, Vec::new())?;
    ensure!(is_over.exists(), "the other hook did not run a second time");
    run.check("continued", |scratch| only_typed_prompts_are_listed(scratch));
    Ok(())
}

/// Adds a hook of another program to the end of turns. It asks the agent to continue unless the file exists, and
/// creates the file.
fn add_hook(scratch: &Scratch) -> Result<std::path::PathBuf> {
    let (script, is_over) = (scratch.root.join("bin/other-hook"), scratch.root.join("tmp/is-over"));
    let text = format!(
        "#!/bin/sh\ncat > /dev/null\n[ -e '{file}' ] && exit 0\ntouch '{file}'\necho '{WORDS}' >&2\nexit 2\n",
        file = is_over.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    let event = scratch.agent.turn_end().context("no event")?;
    for file in scratch.agent.hook_files(scratch) {
        let mut settings: Value = serde_json::from_str(&read_text(&file)?)?;
        let hook =
            json!({"type": "command", "name": "other", "command": script.display().to_string(), "timeout": 20000});
        let all = settings["hooks"][event].as_array_mut().context("piton has no hook at the end of a turn")?;
        all.push(json!({"hooks": [hook]}));
        fs::write(&file, format!("{settings:#}"))?;
    }
    Ok(is_over)
}

/// Fails unless the list has the two prompts that were typed and no other, although the agent continued after each.
fn only_typed_prompts_are_listed(scratch: &Scratch) -> Result<()> {
    let calls = scratch.model.calls();
    ensure!(calls.iter().any(|call| call.holds(WORDS)), "the agent did not go on");
    let rows = scratch.rows()?;
    let prompts: Vec<_> = rows.iter().flat_map(|row| row.prompts.iter().flatten()).collect();
    let words: Vec<_> = prompts.iter().map(|prompt| prompt.words.as_str()).collect();
    ensure!(words == [QUESTION, CHANGE], "the prompts in the list are {words:?}: {}", shown(&rows));
    let list = scratch.piton(&["rollback"])?.ok("piton rollback")?.out;
    ensure!(!list.contains(WORDS), "the list has the words of the other hook: {list}");
    let told = scratch.hook_calls()?.iter().filter(|call| read(&call.join("stdin")).contains(WORDS)).count();
    let is_told = scratch.agent.package().name == "gemini";
    ensure!(!is_told || told >= 2, "the agent told of no prompt with the words of the other hook");
    Ok(())
}
