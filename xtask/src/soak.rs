//! `soak`: the test of the same name, with a release build and for any length of time. Runs once without a limit on the
//! size of the store and once with a limit that every take reaches.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use testkit::Sandbox;
use testkit::soak::{Plan, WORKERS};

use crate::workspace;

const MINUTES: u64 = 10;
const KILL_WITHIN: Duration = Duration::from_millis(40);

#[derive(clap::Args)]
pub(crate) struct SoakArgs {
    /// Length of the run
    #[arg(long, value_name = "N", default_value_t = MINUTES)]
    minutes: u64,
    /// Program to test [default: built from this workspace]
    #[arg(long, value_name = "PATH")]
    piton: Option<PathBuf>,
}

pub(crate) fn run(args: &SoakArgs) -> Result<ExitCode> {
    both(&workspace::piton(args.piton.as_deref())?, args.minutes, KILL_WITHIN);
    Ok(ExitCode::SUCCESS)
}

/// Runs the test twice, each time for half of the minutes. A process is killed within `kill_within` of its start.
pub(crate) fn both(program: &Path, minutes: u64, kill_within: Duration) {
    for (size_mb_max, what) in [(0, "without a limit on the size"), (4, "at a limit of 4 MB")] {
        soak(program, Duration::from_secs(minutes * 30), kill_within, size_mb_max, what);
    }
}

fn soak(program: &Path, length: Duration, kill_within: Duration, size_mb_max: u64, what: &str) {
    let plan =
        Plan { program, length, check_every: Duration::from_secs(30), size_mb_max, kill_within, seed: 1 + size_mb_max };
    println!("{} seconds {what}: {WORKERS} processes at a time, all commands, killed at random", length.as_secs());
    let done = plan.run(&Sandbox::new());
    let collections = done.done("prune") + done.done("maintain");
    println!(
        "  {} checkpoints, {collections} collections, {} restores checked, {} processes killed",
        done.taken,
        done.restored,
        done.killed()
    );
    println!(
        "  {} checks by git fsck, {} checkpoints compared byte for byte, {} bytes lost, {} declined, {} prompts missed",
        done.checks, done.compared, done.bytes_lost, done.declined, done.missed
    );
    let (name, ms) = done.longest();
    println!("  longest take {} ms by its own clock; longest wait for any command {ms} ms ({name})", done.take_ms_max);
    println!(
        "  the store came to {} bytes at most; {} bytes on disk at the end",
        done.store_bytes_max, done.disk_bytes
    );
    println!("  {:<9} {:>7} {:>7} {:>7} {:>11}", "command", "done", "killed", "busy", "longest ms");
    for (name, tally) in &done.commands {
        println!("  {name:<9} {:>7} {:>7} {:>7} {:>11}", tally.done, tally.killed, tally.busy, tally.ms_max);
    }
}
