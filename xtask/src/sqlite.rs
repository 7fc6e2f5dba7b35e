//! `sqlite`: the test of databases under full load, for any length of time.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

const TEST: &str = "local_sqlite::a_database_under_full_load_is_saved_whole_or_reported_as_in_use";

#[derive(clap::Args)]
pub(crate) struct SqliteArgs {
    /// Length of the run
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
}

pub(crate) fn run(args: &SqliteArgs) -> Result<ExitCode> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "-p", "piton", "--test", "it", "--", "--exact", "--nocapture", TEST]);
    let status = cargo.env("PITON_SQLITE_SECONDS", (args.minutes * 60).to_string()).status();
    Ok(if status.context("cargo does not run")?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
