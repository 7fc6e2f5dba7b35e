//! `older`: builds the program of version 0.1 from the history of this repository, and runs the tests in which it works in a
//! store that this version wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::trees;
use crate::workspace::workspace_root;

/// The last commit of version 0.1.
const COMMIT: &str = "d79d49d";
/// Part of the names of the tests that use it.
const TESTS: &str = "version_0_1";

#[derive(clap::Args)]
pub(crate) struct OlderArgs {
    /// Program of version 0.1 [default: built from this repository]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

pub(crate) fn run(args: &OlderArgs) -> Result<ExitCode> {
    let program = match &args.program {
        Some(program) => program.canonicalize().with_context(|| format!("there is no {}", program.display()))?,
        None => build()?,
    };
    let mut tests = cargo(&workspace_root());
    tests.args(["test", "-p", "piton-cli", "--test", "it", TESTS]).env("PITON_0_1", program);
    Ok(if tests.status()?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the program of the commit below `target/older`.
fn build() -> Result<PathBuf> {
    let root = workspace_root();
    let dir = root.join("target").join("older");
    let (sources, target) = (dir.join("src"), dir.join("target"));
    trees::remove(&sources)?;
    fs::create_dir_all(&sources)?;
    let archive = dir.join("src.tar");
    let mut git = Command::new("git");
    git.current_dir(&root).args(["archive", "-o"]).arg(&archive).arg(COMMIT);
    ensure!(git.status()?.success(), "this repository does not have {COMMIT}, the last commit of version 0.1");
    let mut tar = Command::new("tar");
    ensure!(tar.arg("-xf").arg(&archive).arg("-C").arg(&sources).status()?.success(), "tar failed");
    let mut build = cargo(&sources);
    build.args(["build", "-p", "piton-cli"]).env("CARGO_TARGET_DIR", &target);
    ensure!(build.status()?.success(), "version 0.1 does not build");
    Ok(target.join("debug").join("piton"))
}

fn cargo(dir: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(dir);
    cargo
}
