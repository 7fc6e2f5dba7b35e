//! `space`: extra disk space that a prune of a large store needs.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use testkit::{Dice, Sandbox, space};

use crate::measure::{isolated, run as run_command};
use crate::workspace::build_piton;

const MEGABYTES: u64 = 1024;
/// Maximum extra space of a prune, in thousandths of the size before.
const EXTRA_PERMILLE_MAX: u64 = 150;
const FILES: usize = 40;
const CHANGED: usize = 8;

#[derive(clap::Args)]
pub(crate) struct SpaceArgs {
    /// Size of the store
    #[arg(long, value_name = "N", default_value_t = MEGABYTES)]
    mb: u64,
}

pub(crate) fn run(args: &SpaceArgs) -> Result<ExitCode> {
    let program = build_piton()?;
    let sandbox = Sandbox::new();
    let takes = fill(&program, &sandbox, args.mb << 20)?;
    let mut pruned = Ok(Vec::new());
    let space = space::measure(&sandbox.base(), || {
        pruned = run_command(command(&program, &sandbox).args(["prune", "--json"]));
    });
    let pruned = String::from_utf8(pruned?)?;
    sandbox.assert_store_is_whole();
    let extra = space.extra_permille();
    println!("a store of {} MB, made by {takes} takes; {}", space.before >> 20, pruned.trim());
    println!(
        "  at most {} MB ({}.{} % extra), afterwards {} MB; looked at {} times",
        space.peak >> 20,
        extra / 10,
        extra % 10,
        space.after >> 20,
        space.looks
    );
    ensure!(extra < EXTRA_PERMILLE_MAX, "more than {EXTRA_PERMILLE_MAX} thousandths");
    Ok(ExitCode::SUCCESS)
}

fn command(program: &Path, sandbox: &Sandbox) -> std::process::Command {
    let mut command = isolated(program, &sandbox.home());
    command.env("PITON_MAX_TOTAL_SIZE_MB", "0").env("PITON_AUTO_PRUNE", "false").current_dir(sandbox.project());
    command
}

/// Takes checkpoints of files, half of which compress, until the store has this size; the last one drops a quarter of
/// them.
fn fill(program: &Path, sandbox: &Sandbox, bytes: u64) -> Result<u64> {
    let mut dice = Dice::new(1);
    let mut takes = 0;
    loop {
        for _ in 0..CHANGED {
            let name = sandbox.project().join(format!("f{}", dice.roll(FILES)));
            let length = 1 + dice.roll(2 << 20);
            let contents = if dice.roll(2) == 0 { dice.noise(length) } else { text(&mut dice, 3 * length) };
            fs::write(name, contents)?;
        }
        takes += 1;
        let is_last = space::bytes_below(&sandbox.base()) >= bytes;
        let kept = if is_last { takes - takes / 4 } else { 1_000_000 };
        run_command(command(program, sandbox).args(["take", "--json"]).env("PITON_MAX_SNAPSHOTS", kept.to_string()))?;
        if is_last {
            return Ok(takes);
        }
        testkit::wait_for_maintenance(&sandbox.root());
    }
}

fn text(dice: &mut Dice, bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = ["checkpoint ", "store ", "project ", "scope\n", "turn ", "restore ", "take ", "reason "];
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.extend_from_slice(dice.pick(&WORDS).as_bytes());
    }
    text
}
