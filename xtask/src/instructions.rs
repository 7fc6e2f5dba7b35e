//! `instructions`: counts the instructions of the calls that delay an agent, with valgrind, and compares them with
//! `instructions.toml` beside this crate. Unlike times, counts do not depend on other load on the machine.
//!
//! The trees are outside of every repository, because the state of a repository around them would be recorded, too.
//!
//! They depend on the compiler and on valgrind: with versions other than the recorded ones, nothing is compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use testkit::{Sandbox, start_with_input};

use crate::bench::{pause_after_edit, wait_until_old};
use crate::contestants::Piton;
use crate::measure::{isolated, run as run_command, text};
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
    tree: TreeKind,
}

/// Contents of the tree besides its files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeKind {
    Plain,
    /// Ten ignored files, and a secret one.
    Ignored,
    /// A git repository with two branches.
    Git,
}

impl TreeKind {
    const ALL: [Self; 3] = [Self::Plain, Self::Ignored, Self::Git];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Ignored => "ignored",
            Self::Git => "git",
        }
    }

    fn fill(self, tree: &Path) -> Result<()> {
        match self {
            Self::Plain => {}
            Self::Ignored => {
                fs::create_dir(tree.join("generated"))?;
                for number in 0..10 {
                    fs::write(tree.join("generated").join(format!("{number}.txt")), number.to_string())?;
                }
                fs::write(tree.join(".env"), "KEY=1\n")?;
            }
            Self::Git => {
                for line in ["init -q -b main", "add -A", "commit -q -m one", "branch feature"] {
                    let mut git = testkit::git();
                    git.args(["-c", "user.name=x", "-c", "user.email=x"]).args(line.split(' ')).current_dir(tree);
                    run_command(&mut git)?;
                }
            }
        }
        Ok(())
    }
}

const TAKE: Call = Call {
    name: "take, nothing changed",
    arguments: &["take", "--json"],
    tool: None,
    is_after_edit: false,
    tree: TreeKind::Plain,
};
const HOOK: Call = Call {
    name: "hook, once more in a turn",
    arguments: &["hook", "claude"],
    tool: Some("Write"),
    is_after_edit: false,
    tree: TreeKind::Plain,
};

const CALLS: [Call; 6] = [
    TAKE,
    Call { name: "take, one file changed", is_after_edit: true, ..TAKE },
    Call { name: "take, nothing changed, ignored files", tree: TreeKind::Ignored, ..TAKE },
    Call { name: "take, nothing changed, git repository", tree: TreeKind::Git, ..TAKE },
    Call { name: "hook, nothing to do", tool: Some("Read"), ..HOOK },
    HOOK,
];

#[derive(clap::Args)]
pub(crate) struct InstructionsArgs {
    /// Record the counts in instructions.toml
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &InstructionsArgs) -> Result<ExitCode> {
    let program = build_piton()?;
    let sandbox = Sandbox::new();
    let works = Work::of_all(&program, &sandbox.root())?;
    let tools = tools(&sandbox.home())?;
    let work = |call: &Call| works.iter().find(|work| work.kind == call.tree).expect("one for each tree");
    let counts = CALLS.iter().map(|call| Ok((call.name, work(call).count(call)?))).collect::<Result<Vec<_>>>()?;
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
    kind: TreeKind,
    piton: Piton,
    edited: PathBuf,
}

impl Work {
    fn of_all(program: &Path, root: &Path) -> Result<Vec<Self>> {
        let works = TreeKind::ALL.map(|kind| Self::new(kind, program, &root.join(kind.name())));
        let works = works.into_iter().collect::<Result<Vec<_>>>()?;
        wait_until_old();
        // The first checkpoint, the one of the turn that is asked for again, and those after which all index entries and
        // the stat data of the repository are settled.
        for work in &works {
            work.start(&TAKE, &[])?;
            work.start(&HOOK, &[])?;
            work.start(&TAKE, &[])?;
        }
        Ok(works)
    }

    fn new(kind: TreeKind, program: &Path, root: &Path) -> Result<Self> {
        let (tree, home) = (root.join("tree"), root.join("home"));
        fs::create_dir_all(&tree)?;
        fs::create_dir_all(&home)?;
        trees::generate(&tree, FILES, BYTES)?;
        kind.fill(&tree)?;
        let edited = tree.join("Makefile");
        Ok(Self { kind, piton: Piton { program: program.to_owned(), base: root.join("base"), tree, home }, edited })
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
