//! `cargo xtask house`: measures how hard the sources are to read, beside their state at an older revision.
//!
//! The numbers are those that a reviewer would count: doc comments that open with an interrogative, words of the house
//! dialect, methods per type, cycles between modules, files that one concept is spread over, JSON written by hand,
//! sizes. Tests are left out of all counts except the lines of `tests`.

mod concepts;
mod prose;
mod sizes;
mod types;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Error, Result, ensure};
use testkit::modules;
use testkit::source::{Source, read_crates};

use crate::workspace::workspace_root;

/// Default revision to compare with: the last one before the sources were reviewed.
const BASELINE: &str = "d79d49d";
/// The crates that are measured.
const CRATES: [&str; 4] = ["piton", "piton-ignore", "piton-triggers", "piton-cli"];

/// One line of the table.
struct Row {
    name: String,
    value: String,
}

impl Row {
    fn new(name: impl Into<String>, value: impl fmt::Display) -> Self {
        Self { name: name.into(), value: format!("{value}") }
    }
}

/// Lists places in the sources.
type List = fn(&[Source]) -> Vec<String>;

#[derive(clap::Args)]
pub(crate) struct HouseArgs {
    /// Revision to compare with
    #[arg(long, value_name = "REV", default_value = BASELINE)]
    against: String,
    /// List the cycles between modules instead
    #[arg(long)]
    cycles: bool,
    /// List the words of the dialect instead
    #[arg(long)]
    dialect: bool,
    /// List the doc comments that open with an interrogative instead
    #[arg(long)]
    openings: bool,
    /// List the type names that occur more than once instead
    #[arg(long)]
    names: bool,
}

/// Prints the table, or the places that were asked for.
pub(crate) fn run(args: &HouseArgs) -> Result<ExitCode> {
    let root = workspace_root();
    let sources = read_crates(&root, &CRATES).map_err(Error::msg)?;
    let lists: [(bool, List); 4] = [
        (args.cycles, |sources| CRATES.iter().flat_map(|name| cycles(sources, name)).collect()),
        (args.dialect, prose::dialect),
        (args.openings, prose::openings),
        (args.names, testkit::source::repeated_names),
    ];
    if lists.iter().any(|(is_asked, _)| *is_asked) {
        let asked = lists.iter().filter(|(is_asked, _)| *is_asked);
        asked.flat_map(|(_, list)| list(&sources)).for_each(|place| println!("{place}"));
        return Ok(ExitCode::SUCCESS);
    }
    let against = args.against.as_str();
    let now = measure(&root, &sources);
    let then = measure_revision(&root, against).map_err(|error| eprintln!("cannot measure {against}: {error:#}")).ok();
    print_table(&now, then.as_deref(), against);
    Ok(ExitCode::SUCCESS)
}

/// Returns the module cycles of a crate, as text.
fn cycles(sources: &[Source], package: &str) -> Vec<String> {
    let cycles = modules::cycles(sources, package);
    cycles.into_iter().map(|cycle| format!("{package}: {}", cycle.join(" <-> "))).collect()
}

fn measure(root: &Path, sources: &[Source]) -> Vec<Row> {
    let mut rows = prose::rows(sources);
    rows.extend(types::rows(sources));
    for name in CRATES {
        rows.push(Row::new(format!("{name}: module cycles"), modules::cycles(sources, name).len()));
    }
    rows.extend(concepts::rows(sources));
    rows.extend(sizes::sizes(root, sources, &CRATES));
    rows
}

/// Measures another revision, read from git without touching the working tree.
fn measure_revision(root: &Path, revision: &str) -> Result<Vec<Row>> {
    let temp = temp_dir(root)?;
    let mut archive = Command::new("git")
        .args(["archive", "--format=tar", revision, "crates", "docs", "README.md"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("git does not start")?;
    let stdout = archive.stdout.take().context("git has no output")?;
    let unpacked = Command::new("tar").arg("-x").arg("-C").arg(&temp).stdin(stdout).status().context("tar")?;
    let is_there = archive.wait()?.success() && unpacked.success();
    let measured =
        is_there.then(|| read_crates(&temp, &CRATES).map_err(Error::msg).map(|sources| measure(&temp, &sources)));
    std::fs::remove_dir_all(&temp).context("cannot remove the unpacked revision")?;
    ensure!(is_there, "git does not know it");
    measured.context("not measured")?
}

fn temp_dir(root: &Path) -> Result<PathBuf> {
    let dir = root.join("target").join(format!("house-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

fn print_table(now: &[Row], then: Option<&[Row]>, against: &str) {
    println!("| count | {against} | now |\n|---|---:|---:|");
    for row in now {
        let before = then.and_then(|rows| rows.iter().find(|other| other.name == row.name));
        println!("| {} | {} | {} |", row.name, before.map_or("", |row| row.value.as_str()), row.value);
    }
}
