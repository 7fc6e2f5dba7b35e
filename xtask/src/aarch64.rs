//! `aarch64`: the program that is published for that architecture, under qemu-user: restores that are killed before their
//! system calls, and all commands killed at random times.
//!
//! strace sees the system calls of the emulated program among those of qemu. Failing calls are not tried: they would meet
//! qemu.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::dist::build::{self, Target};
use crate::soak;
use crate::workspace::workspace_root;

const QEMU: &str = "qemu-aarch64-static";
/// Starting a program takes qemu longer than most of piton's commands take elsewhere.
const KILL_WITHIN: Duration = Duration::from_millis(600);
/// Tests of restores that are interrupted.
const TESTS: [&str; 3] = [
    "restore_kill::a_kill_anywhere",
    "restore_kill::going_on_or_back_can_be_killed",
    "restore_kill::a_disk_that_is_full",
];

#[derive(clap::Args)]
pub(crate) struct Aarch64Args {
    /// Length of the run with kills at random times
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Occurrences of each system call at which a restore is killed [default: few]
    #[arg(long, value_name = "N")]
    points: Option<usize>,
}

pub(crate) fn run(args: &Aarch64Args) -> Result<ExitCode> {
    let root = workspace_root();
    let program = build::build(&root, Target::LinuxArm)?.join("piton");
    let wrapper = wrap(&program, &root.join("target/dist/aarch64"))?;
    let mut tests = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tests.args(["test", "-p", "piton-cli", "--test", "it", "--"]).args(TESTS).current_dir(&root);
    // Read when the tests are compiled.
    tests.env("PITON_UNDER_TEST", &wrapper).env("PITON_TEST_ALL", "1");
    tests.envs(args.points.map(|points| ("PITON_FAULT_POINTS", points.to_string())));
    ensure!(tests.status()?.success(), "interrupted restores fail on aarch64");
    soak::both(&wrapper, args.minutes, KILL_WITHIN);
    Ok(ExitCode::SUCCESS)
}

/// Writes a program of this machine that runs one of aarch64. Fails if that does not run.
fn wrap(program: &Path, dir: &Path) -> Result<PathBuf> {
    let wrapper = dir.join("piton");
    fs::create_dir_all(dir)?;
    fs::write(&wrapper, format!("#!/bin/sh\nexec {QEMU} '{}' \"$@\"\n", program.display()))?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    let output = Command::new(&wrapper).arg("--version").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the program does not run (is qemu-user-static installed?): {said}");
    Ok(wrapper)
}
