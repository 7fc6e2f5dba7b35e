//! The `piton completions` and `piton man` commands. The completion candidates are in `complete`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use piton::Error;
use piton::json::{AtDir, JsonPath};

use super::install::agent;
use crate::agents::Agent;
use crate::agents::guide::guide;
use crate::options::EXIT_CODES;
use crate::output::Output;

/// Environment variable by which a shell asks for completions.
pub(crate) const VARIABLE: &str = "PITON_COMPLETE";

/// Print a script with which a shell completes commands, checkpoints and paths
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  source <(piton completions bash)   in ~/.bashrc
  source <(piton completions zsh)    in ~/.zshrc, after compinit
  piton completions fish > ~/.config/fish/completions/piton.fish

{EXIT_CODES}"))]
pub(crate) struct Completions {
    /// Shell to complete in
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print the manual page, or write those of all commands into a directory
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton man | man -l -
  piton man --dir ~/.local/share/man/man1
  piton man --markdown > REFERENCE.md

{EXIT_CODES}"))]
pub(crate) struct Man {
    /// Write one page for each command into this directory
    #[arg(long = "dir", value_name = "DIR")]
    into: Option<PathBuf>,
    /// Print everything about all commands as Markdown
    #[arg(long, conflicts_with = "into")]
    markdown: bool,
    /// Print the guide of an agent as Markdown
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["into", "markdown"], hide = true, value_parser = agent())]
    guide: Option<Agent>,
}

pub(crate) fn run(args: &Completions, output: &Output) -> anyhow::Result<()> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "piton", "piton", "piton", &mut script)?;
    say(&script, output, |script| ScriptJson { script });
    Ok(())
}

/// Prints or writes manual pages. `piton` describes the command line.
pub(crate) fn run_man(args: &Man, piton: clap::Command, output: &Output) -> anyhow::Result<()> {
    if let Some(agent) = args.guide {
        say(guide(agent).as_bytes(), output, |page| PageJson { page });
        return Ok(());
    }
    match &args.into {
        None if args.markdown => {
            say(super::reference::page(piton).as_bytes(), output, |page| PageJson { page });
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(piton).render(&mut page)?;
            say(with_dir_value(&page).as_bytes(), output, |page| PageJson { page });
        }
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(|error| Error::io("make", dir, error))?;
            clap_mangen::generate_to(piton, dir)
                .and_then(|()| repair_pages(dir))
                .map_err(|error| Error::io("write manual pages to", dir, error))?;
            output.json(&ManDirJson { dir: JsonPath::of(dir) });
            output.text(&format!("Wrote the manual pages to {}", dir.display()));
        }
    }
    Ok(())
}

/// Fixes the pages that were just written to `dir`.
fn repair_pages(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("piton") && name.ends_with(".1")) {
            let page = std::fs::read(dir.join(&name))?;
            std::fs::write(dir.join(&name), with_dir_value(&page))?;
        }
    }
    Ok(())
}

/// Returns a page with the value of `-C` added to its synopsis: the generator leaves a gap for an option without a long
/// name.
fn with_dir_value(page: &[u8]) -> String {
    String::from_utf8_lossy(page).replace(r"[\fB\-C \fR]", r"[\fB\-C\fR \fIDIR\fR]")
}

/// Prints text that is meant for a program, as it is or as JSON.
fn say<'a, R: serde::Serialize>(text: &'a [u8], output: &Output, report: impl Fn(Cow<'a, str>) -> R) {
    output.json(&report(String::from_utf8_lossy(text)));
    if !output.is_json {
        output.data(text);
    }
}

/// JSON of the completions.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ScriptJson<'a> {
    /// script to be sourced by the shell
    script: Cow<'a, str>,
}

/// JSON of a manual page.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PageJson<'a> {
    /// the page
    page: Cow<'a, str>,
}

/// JSON of `--dir`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ManDirJson<'a> {
    #[serde(flatten)]
    dir: JsonPath<'a, AtDir>,
}
