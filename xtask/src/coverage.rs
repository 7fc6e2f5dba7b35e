//! `coverage`: line coverage of the library by the tests, in the test process and in the processes it starts.
//!
//! Needs `llvm-profdata` and `llvm-cov` of the compiler (`rustup component add llvm-tools`). Everything is rebuilt in
//! `target/coverage` and runs slower. Tests that inject system call failures or measure the resources of a process are
//! left out: the instrumentation makes system calls and uses memory itself. A killed process writes no profile, so the
//! figure is a lower bound.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::workspace_root;

/// Crates of the library, whose lines are counted.
const LIBRARIES: [&str; 3] = ["piton", "piton-ignore", "piton-triggers"];
/// Module names up to the `::`; a test is left out if its name contains one of them.
const LEFT_OUT: [&str; 9] = [
    "fault_store::",
    "install_faults::",
    "hook_faults::",
    "restore_kill::",
    "upkeep_kill::",
    "hang::",
    "memory::",
    "concurrency::",
    "soak::",
];

pub(crate) fn run() -> Result<ExitCode> {
    let (root, target) = (workspace_root(), workspace_root().join("target/coverage"));
    let tools = tools()?;
    let profiles = target.join("profiles");
    let _ = fs::remove_dir_all(&profiles);
    fs::create_dir_all(&profiles).with_context(|| format!("cannot make {}", profiles.display()))?;
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.arg("test").args(LIBRARIES.map(|name| format!("--package={name}"))).arg("--package=piton-cli");
        cargo.args(["--lib", "--test=it"]).args(arguments);
        cargo.current_dir(&root).env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", "-Cinstrument-coverage");
        // `%8m` makes all processes share 8 files, which they lock while they write.
        cargo.env("LLVM_PROFILE_FILE", profiles.join("%8m.profraw"));
        cargo
    };
    let left_out = LEFT_OUT.iter().flat_map(|name| ["--skip", name]);
    let tested = cargo(&["--no-fail-fast", "--"]).args(left_out).status().context("cannot run cargo")?;
    let merged = target.join("merged.profdata");
    let mut merge = Command::new(tools.join("llvm-profdata"));
    merge.args(["merge", "--sparse", "--failure-mode=all", "-o"]).arg(&merged).args(files(&profiles)?);
    ensure!(merge.status().context("cannot run llvm-profdata")?.success(), "the counts cannot be put together");
    let programs = cargo(&["--no-run", "--message-format=json"]).output().context("cannot run cargo")?.stdout;
    let programs: Vec<PathBuf> = String::from_utf8_lossy(&programs)
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<serde_json::Value>(line).ok()?["executable"].as_str().map(PathBuf::from)
        })
        .collect();
    let (first, others) = programs.split_first().context("cargo built no tests")?;
    let mut report = Command::new(tools.join("llvm-cov"));
    report.arg("report").arg(first).arg("--instr-profile").arg(&merged);
    for program in others {
        report.arg("--object").arg(program);
    }
    report.arg("--sources").args(LIBRARIES.map(|name| root.join("crates").join(name).join("src")));
    ensure!(report.status().context("cannot run llvm-cov")?.success(), "the counts cannot be shown");
    if !tested.success() {
        println!("Some tests failed: with all of them it would be more.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the directory of the compiler's own tools.
fn tools() -> Result<PathBuf> {
    let asked = Command::new("rustc").args(["--print", "target-libdir"]).output().context("cannot run rustc")?;
    let libraries = String::from_utf8(asked.stdout).context("rustc does not say where it is")?;
    let tools = Path::new(libraries.trim()).with_file_name("bin");
    ensure!(tools.join("llvm-cov").exists(), "llvm-cov is missing: `rustup component add llvm-tools`");
    Ok(tools)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
