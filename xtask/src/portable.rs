//! `portable`: the tests of the library and of the command with the system calls that macOS has, on Linux.

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use crate::workspace::workspace_root;

/// Suites of the command in which the system calls matter: take, restore, recovery, names.
const SUITES: [&str; 9] = [
    "folding",
    "git_state::",
    "kept_restore",
    "losses_kept",
    "recover",
    "restore::",
    "restore_kill",
    "restore_whole",
    "self_test",
];

/// Files are copied with these calls.
const SKIPPED: &str = "where_files_can_be_cloned";

#[derive(clap::Args)]
pub(crate) struct PortableArgs {
    /// Names of tests of the command [default: those in which the system calls matter]
    names: Vec<String>,
    /// Leave out the tests of the library
    #[arg(long)]
    command_only: bool,
}

pub(crate) fn run(args: &PortableArgs) -> Result<ExitCode> {
    if !args.command_only {
        test("piton", &[])?;
    }
    let names: Vec<&str> =
        if args.names.is_empty() { SUITES.to_vec() } else { args.names.iter().map(String::as_str).collect() };
    test("piton-cli", &names)?;
    Ok(ExitCode::SUCCESS)
}

fn test(package: &str, names: &[&str]) -> Result<()> {
    let root = workspace_root();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "-p", package, "--test", "it", "--", "--skip", SKIPPED]).args(names).current_dir(&root);
    // A directory of its own: with other flags, everything is built again.
    cargo.env("CARGO_TARGET_DIR", root.join("target/portable")).env("RUSTFLAGS", "--cfg piton_portable");
    ensure!(cargo.status()?.success(), "the tests of {package} fail with the portable calls");
    Ok(())
}
