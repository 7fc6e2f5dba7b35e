//! `instructions`: counts the instructions of the calls that delay an agent, with valgrind, and compares them with
//! `instructions.toml` beside this crate. Unlike times, counts do not depend on other load on the machine.
//!
//! They depend on the compiler and on valgrind: with versions other than the recorded ones, nothing is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use testkit::start_with_input;

use crate::bench::{pause_after_edit, wait_until_old};
use crate::contestants::Piton;
use crate::measure::{isolated, text};
use crate::trees;
use crate::workspace::{build_piton, workspace_root};

/// Maximum increase of a count, in percent.
const MORE_PERCENT_MAX: u64 = 5;
/// Counts vary with the order in which threads run and with the time that they wait, so the fewest of several runs
/// counts.
const ROUNDS: usize = 3;
const FILES: usize = 700;
const BYTES: usize = 6_000_000;

/// A call whose instructions are counted.
struct Call {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Tool that the agent is about to use. Without one, nothing is sent on stdin.
    tool: Option<&'static str>,
    is_after_edit: bool,
}

const CALLS: [Call; 4] = [
    Call { name: "take, nothing changed", arguments: &["take", "--json"], tool: None, is_after_edit: false },
    Call { name: "take, one file changed", arguments: &["take", "--json"], tool: None, is_after_edit: true },
    Call { name: "hook, nothing to do", arguments: &["hook", "claude"], tool: Some("Read"), is_after_edit: false },
    Call {
        name: "hook, once more in a turn",
        arguments: &["hook", "claude"],
        tool: Some("Write"),
        is_after_edit: false,
    },
];

#[derive(clap::Args)]
pub(crate) struct InstructionsArgs {
    /// Record the counts in instructions.toml
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &InstructionsArgs) -> Result<ExitCode> {
    let program = build_piton()?;
    let work = Work::new(program)?;
    let tools = tools(&work.piton.home)?;
    let counts = CALLS.iter().map(|call| Ok((call.name, work.count(call)?))).collect::<Result<Vec<_>>>()?;
    let noted_in = workspace_root().join("xtask").join("instructions.toml");
    if args.write {
        fs::write(&noted_in, note(&tools, &counts))?;
    }
    let noted: toml::Table = fs::read_to_string(&noted_in).context("no instructions.toml")?.parse()?;
    let noted_with = noted.get("tools").and_then(toml::Value::as_str).context("instructions.toml names no tools")?;
    let is_comparable = noted_with == tools;
    if !is_comparable {
        println!("not judged: the counts were noted with {noted_with}, this is {tools}");
    }
    let mut is_worse = false;
    for (name, count) in counts {
        let before = noted.get(name).and_then(toml::Value::as_integer).and_then(|count| u64::try_from(count).ok());
        let before = before.with_context(|| format!("no count of `{name}` in instructions.toml: run with --write"))?;
        let verdict = verdict(before, count);
        println!("{name}: {count} instructions, {before} noted: {}", verdict.unwrap_or("as noted"));
        is_worse |= verdict == Some(MORE);
    }
    let fails = is_comparable && is_worse;
    if fails {
        println!(
            "If it must be, note the new counts with `cargo xtask instructions --write` and say why in the commit."
        );
    }
    Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

const MORE: &str = "MORE than is allowed unnoticed";

fn verdict(before: u64, now: u64) -> Option<&'static str> {
    let margin = before / 100 * MORE_PERCENT_MAX;
    if now > before + margin {
        Some(MORE)
    } else if now < before - margin {
        Some("fewer: note it with --write")
    } else {
        None
    }
}

/// Returns the versions of the tools that the counts depend on.
fn tools(home: &Path) -> Result<String> {
    let rustc = text(Command::new("rustc").arg("--version"))?;
    let valgrind =
        text(isolated("valgrind", home).arg("--version")).context("valgrind is needed (Debian's package)")?;
    Ok(format!("{rustc}, {valgrind}, {}", std::env::consts::ARCH))
}

fn note(tools: &str, counts: &[(&str, u64)]) -> String {
    let mut text = format!("# Written by `cargo xtask instructions --write`.\ntools = \"{tools}\"\n");
    for (name, count) in counts {
        text += &format!("\"{name}\" = {count}\n");
    }
    text
}

/// A tree with some checkpoints.
struct Work {
    root: PathBuf,
    piton: Piton,
    edited: PathBuf,
}

impl Work {
    fn new(program: PathBuf) -> Result<Self> {
        let root = workspace_root().join("target").join("instructions");
        trees::remove(&root)?;
        let tree = root.join("tree");
        fs::create_dir_all(&tree)?;
        fs::create_dir_all(root.join("home"))?;
        trees::generate(&tree, FILES, BYTES)?;
        wait_until_old();
        let edited = tree.join("Makefile");
        let piton = Piton { program, base: root.join("base"), tree, home: root.join("home") };
        let work = Self { root, piton, edited };
        // The first checkpoint, the one of the turn that is asked for again, and one after which all index entries are
        // settled.
        work.start(&CALLS[0], &[])?;
        work.start(&CALLS[3], &[])?;
        work.start(&CALLS[0], &[])?;
        Ok(work)
    }

    /// Returns the fewest instructions of several calls.
    fn count(&self, call: &Call) -> Result<u64> {
        let mut fewest = u64::MAX;
        for round in 0..ROUNDS {
            if call.is_after_edit {
                fs::write(&self.edited, format!("all:\n# edit {round}\n"))?;
                pause_after_edit();
            }
            let said = self
                .start(call, &["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])?;
            let line =
                said.lines().find_map(|line| line.split_once("I   refs:")).context("valgrind counted nothing")?;
            fewest = fewest.min(line.1.trim().replace(',', "").parse()?);
        }
        Ok(fewest)
    }

    /// Runs a call, through another program if one is given. Returns its stderr.
    fn start(&self, call: &Call, through: &[&str]) -> Result<String> {
        let own = self.piton.hook_command(call.arguments);
        let mut command = match through {
            [] => own,
            [first, rest @ ..] => {
                let mut command = isolated(first, &self.piton.home);
                command.args(rest).arg(own.get_program()).args(own.get_args());
                command.envs(own.get_envs().filter_map(|(key, value)| Some((key, value?))));
                command
            }
        };
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let event = call.tool.map(|tool| self.piton.tool_event(tool)).unwrap_or_default();
        let output = start_with_input(&mut command, event.as_bytes())?.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}: {}: {said}", call.name, output.status);
        Ok(said)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = trees::remove(&self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_in_a_hundred_more_are_noticed_and_less_is_not() {
        assert_eq!(verdict(1000, 1050), None);
        assert_eq!(verdict(1000, 1051), Some(MORE));
        assert_eq!(verdict(1000, 950), None);
        assert!(verdict(1000, 949).is_some_and(|words| words != MORE));
    }
}
