//! `fuzz`: runs libFuzzer on everything that reads bytes from outside.
//!
//! The targets are the directories in `fuzz/corpus`, which hold the seeds of each. New inputs are kept in
//! `target/fuzz/corpus`, where the next run continues; failing inputs are written to `fuzz/artifacts`. A stable
//! compiler is enough, and no other program has to be installed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::workspace::workspace_root;

const SECONDS: u64 = 60;
/// The flags of cargo-fuzz: the fuzzer learns which edges an input takes, and what it is compared with.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];
/// An input that takes longer is a failure, and so is one that needs more memory (`fuzz/src/lib.rs` has a lower limit).
const LIMITS: [&str; 3] = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=8192"];
/// Directory in memory for the files that a target writes, so that no disk is waited for.
const MEMORY: &str = "/dev/shm";

/// Environment variable that makes this program act as the compiler.
const WRAPS: &str = "PITON_FUZZ_WRAPS_RUSTC";

#[derive(clap::Args)]
pub(crate) struct FuzzArgs {
    /// Name of a directory in fuzz/corpus [default: all]
    target: Option<String>,
    /// Time for each target
    #[arg(long, value_name = "N", default_value_t = SECONDS)]
    seconds: u64,
    /// Watch what libraries do with the input as well (builds all of them again)
    #[arg(long)]
    deep: bool,
    /// Put the inputs that were found and reach more code among the seeds in fuzz/corpus
    #[arg(long)]
    keep: bool,
}

/// Result of one target.
struct Ran {
    name: String,
    stats: String,
    log: PathBuf,
    has_failed: bool,
}

pub(crate) fn run(args: &FuzzArgs) -> Result<ExitCode> {
    let fuzz = workspace_root().join("fuzz");
    let mut names: Vec<String> = fs::read_dir(fuzz.join("corpus"))
        .context("cannot list fuzz/corpus")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.retain(|name| args.target.as_ref().is_none_or(|target| target == name));
    names.sort();
    ensure!(!names.is_empty(), "no such target: fuzz/corpus has a directory for each");
    let programs = build(args.deep)?;
    if args.keep {
        names.iter().try_for_each(|name| keep(&fuzz, &programs, name))?;
        return Ok(ExitCode::SUCCESS);
    }
    let ran = run_all(&fuzz, &programs, &names, args.seconds)?;
    let failed: Vec<_> = ran.iter().filter(|ran| ran.has_failed).collect();
    for ran in &failed {
        let log = fs::read_to_string(&ran.log).unwrap_or_default();
        let last: Vec<_> = log.lines().rev().filter(|line| !line.starts_with('#')).take(40).collect();
        println!("\n{} failed. The end of {}:", ran.name, ran.log.display());
        last.iter().rev().for_each(|line| println!("  {line}"));
        println!("The input is in {}. What it shows goes, and the input into", fuzz.join("artifacts").display());
        println!("fuzz/regressions/{}: from then on `cargo test` tries it every time.", ran.name);
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds all targets. Returns their directory.
///
/// Cargo passes the flags to the crates of this workspace only, and keeps their artifacts separate; the dependencies
/// are already built if piton was. With `deep`, all crates are instrumented, so all of them are built again in another
/// directory.
fn build(deep: bool) -> Result<PathBuf> {
    let target = workspace_root().join("target");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--package=piton-fuzz", "--features=libfuzzer", "--bins"]);
    cargo.current_dir(workspace_root());
    let programs = if deep {
        let asked = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
        let asked = String::from_utf8_lossy(&asked.stdout).into_owned();
        let host = asked.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not say its host")?;
        // With a target, even this machine's own, build scripts and proc macros are built without the flags.
        cargo.arg("--target").arg(host).arg("--target-dir").arg(target.join("fuzz"));
        cargo.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
        target.join("fuzz").join(host).join("debug")
    } else {
        cargo.arg("--target-dir").arg(&target);
        cargo.env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe().context("cannot find this program")?);
        cargo.env(WRAPS, "");
        target.join("debug")
    };
    ensure!(cargo.status().context("cannot run cargo")?.success(), "the targets cannot be built");
    Ok(programs)
}

/// Returns true if cargo started this program in place of the compiler.
pub(crate) fn is_wrapping() -> bool {
    std::env::var_os(WRAPS).is_some()
}

/// Runs the compiler with the additional flags.
pub(crate) fn wrap(arguments: &[OsString]) -> Result<ExitCode> {
    let (rustc, rest) = arguments.split_first().context("no compiler is named")?;
    let status = Command::new(rustc).args(rest).args(FLAGS).status().context("cannot run the compiler")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all targets, as many at a time as there are cores.
fn run_all(fuzz: &Path, programs: &Path, names: &[String], seconds: u64) -> Result<Vec<Ran>> {
    println!("{seconds} seconds each of {} targets", names.len());
    let left = Mutex::new(names.iter().collect::<VecDeque<_>>());
    let take = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let mut ran = Vec::new();
        while let Some(name) = take() {
            let done = run_one(fuzz, programs, name, seconds)?;
            println!("{:<10} {}{}", done.name, done.stats, if done.has_failed { "  FAILED" } else { "" });
            ran.push(done);
        }
        Ok(ran)
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let all = workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?);
        all.collect::<Result<Vec<Vec<Ran>>>>().map(|ran| ran.into_iter().flatten().collect())
    })
}

/// Returns the directory of the inputs found by earlier runs.
fn found(name: &str) -> PathBuf {
    workspace_root().join("target").join("fuzz").join("corpus").join(name)
}

fn run_one(fuzz: &Path, programs: &Path, name: &str, seconds: u64) -> Result<Ran> {
    let (found, artifacts) = (found(name), fuzz.join("artifacts").join(name));
    let regressions = fuzz.join("regressions").join(name);
    [&found, &artifacts].into_iter().try_for_each(fs::create_dir_all).context("cannot make a directory")?;
    for (number, seed) in testkit::generated_seeds(name).into_iter().enumerate() {
        fs::write(found.join(format!("table-{number:03}")), seed).context("cannot write a seed")?;
    }
    let log = found.with_extension("log");
    let mut command = Command::new(programs.join(name));
    command.arg(format!("-max_total_time={seconds}")).args(LIMITS).arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(&found).arg(fuzz.join("corpus").join(name)).args(regressions.is_dir().then_some(&regressions));
    let status = in_memory(&mut command, &log)?;
    let text = fs::read_to_string(&log).unwrap_or_default();
    Ok(Ran { name: name.to_owned(), stats: stats(&text), log, has_failed: !status })
}

/// Adds the inputs that take an edge which no seed takes to the seeds. The number of times that an edge is taken does
/// not count: that would keep thousands of inputs.
fn keep(fuzz: &Path, programs: &Path, name: &str) -> Result<()> {
    let mut command = Command::new(programs.join(name));
    command
        .args(LIMITS)
        .args(["-set_cover_merge=1", "-use_counters=0"])
        .arg(fuzz.join("corpus").join(name))
        .arg(found(name));
    ensure!(in_memory(&mut command, &found(name).with_extension("merge.log"))?, "the seeds of {name} fail");
    Ok(())
}

/// Runs a target with a temporary directory that is removed afterwards. Returns true if it succeeded.
fn in_memory(command: &mut Command, log: &Path) -> Result<bool> {
    let place = if Path::new(MEMORY).is_dir() { MEMORY.into() } else { std::env::temp_dir() };
    let name = log.file_stem().unwrap_or_default().display();
    let temp = place.join(format!("piton-fuzz-{}-{name}", std::process::id()));
    fs::create_dir_all(&temp).context("cannot make a directory for temporary files")?;
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let ran = command.env("TMPDIR", &temp).stdin(Stdio::null()).stdout(Stdio::null()).stderr(out).status();
    let _ = fs::remove_dir_all(&temp);
    Ok(ran.context("cannot run a target")?.success())
}

/// Returns the final statistics of the fuzzer, in one line.
fn stats(log: &str) -> String {
    let stat = |name: &str| {
        let mark = format!("stat::{name}:");
        log.lines().find_map(|line| line.strip_prefix(&mark)).map_or("?", str::trim).to_owned()
    };
    let last = log.lines().rfind(|line| line.starts_with('#') && line.contains(" cov: ")).unwrap_or_default();
    let word = |name: &str| last.split(name).nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or("?");
    format!(
        "{:>10} inputs  {:>7}/s  {:>6} edges  {:>6} features  {:>12} kept  {:>4} MB",
        stat("number_of_executed_units"),
        stat("average_exec_per_sec"),
        word(" cov: "),
        word(" ft: "),
        word(" corp: "),
        stat("peak_rss_mb"),
    )
}
