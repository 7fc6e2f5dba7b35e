//! `soak`: the test of the same name, with a release build and for as long as one likes. Once without a limit on the size
//! of the store, once with one that every take meets.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::Sandbox;
use testkit::soak::Plan;

use crate::bench::build_piton;

const MINUTES: u64 = 10;

pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let minutes = match arguments {
        [] => MINUTES,
        [name, value] if name == "--minutes" => {
            value.to_str().and_then(|value| value.parse().ok()).context("--minutes needs a number")?
        }
        _ => bail!("soak takes --minutes N, and nothing else"),
    };
    let program = build_piton()?;
    for (size_mb_max, what) in [(0, "without a limit on the size"), (4, "at a limit of 4 MB")] {
        soak(&program, Duration::from_secs(minutes * 30), size_mb_max, what);
    }
    Ok(ExitCode::SUCCESS)
}

fn soak(program: &Path, length: Duration, size_mb_max: u64, what: &str) {
    let plan = Plan {
        program,
        length,
        check_every: Duration::from_secs(30),
        size_mb_max,
        kill_within: Duration::from_millis(40),
        seed: 1 + size_mb_max,
    };
    println!("{} seconds {what}: four writers, two collectors, one restorer, killed at random", length.as_secs());
    let done = plan.run(&Sandbox::new());
    println!(
        "  {} checkpoints, {} collections, {} restores checked, {} processes killed, {} gave way, {} declined",
        done.taken, done.collected, done.restored, done.killed, done.busy, done.declined
    );
    println!(
        "  {} checks by git fsck, {} checkpoints compared byte for byte, {} bytes lost",
        done.checks, done.compared, done.bytes_lost
    );
    println!("  longest take {} ms; the store came to {} bytes at most", done.take_ms_max, done.store_bytes_max);
}
