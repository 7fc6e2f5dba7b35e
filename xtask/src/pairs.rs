//! `pairs`: the wall time of two builds of piton, run alternately on one large tree, so that other load on the machine
//! affects both alike.
//!
//! Each build has its own store of the same tree. The build that runs first alternates from pair to pair.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::start_with_input;

use crate::bench::{pause_after_edit, wait_until_old};
use crate::contestants::{Contestant as _, Piton};
use crate::measure::{self, settle};
use crate::report::{number, table};
use crate::trees;
use crate::workspace::workspace_root;

const PAIRS: u64 = 15;
const PAIRS_MAX: u64 = 1000;
const FILES: u64 = 20_000;
const FILES_MAX: u64 = 10_000_000;
/// About the size of a source file.
const BYTES_PER_FILE: usize = 4_000;
/// A hook takes a few milliseconds: one measurement is the mean of many calls.
const HOOK_CALLS: u32 = 20;
const CHECKPOINTS: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    TakeNothing,
    TakeOneFile,
    HookNothing,
    HookAgain,
    List,
    RestoreOneFile,
}

impl Case {
    const ALL: [Self; 6] =
        [Self::TakeNothing, Self::TakeOneFile, Self::HookNothing, Self::HookAgain, Self::List, Self::RestoreOneFile];

    fn title(self) -> &'static str {
        match self {
            Self::TakeNothing => "take, nothing changed",
            Self::TakeOneFile => "take, one file changed",
            Self::HookNothing => "hook, nothing to do",
            Self::HookAgain => "hook, once more in a turn",
            Self::List => "list, 20 checkpoints",
            Self::RestoreOneFile => "restore of one file",
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct PairsArgs {
    /// Program to compare with
    pub(crate) old: PathBuf,
    /// Program to compare
    new: PathBuf,
    /// Timed runs of each build
    #[arg(long, value_name = "N", default_value_t = PAIRS, value_parser = clap::value_parser!(u64).range(1..=PAIRS_MAX))]
    pub(crate) pairs: u64,
    /// Number of files in the tree
    #[arg(long, value_name = "N", default_value_t = FILES, value_parser = clap::value_parser!(u64).range(1..=FILES_MAX))]
    files: u64,
}

pub(crate) fn run(args: &PairsArgs) -> Result<ExitCode> {
    let programs = [args.old.clone(), args.new.clone()];
    let (pairs, files) = (usize::try_from(args.pairs)?, usize::try_from(args.files)?);
    let work = Work::new(&programs, files)?;
    let mut body = Vec::new();
    for case in Case::ALL {
        eprintln!("{}", case.title());
        let times = work.times(case, pairs).with_context(|| case.title().to_owned())?;
        body.push(line(case, &times));
    }
    println!(
        "Milliseconds, medians of {pairs} pairs on {files} files; the ratio is the median of the pairs' ratios.\n"
    );
    let head = ["work", "old", "new", "new / old"].map(str::to_owned);
    print!("{}", table(1, &head, &body));
    Ok(ExitCode::SUCCESS)
}

fn line(case: Case, times: &[[Duration; 2]]) -> Vec<String> {
    let of = |which: usize| median(times.iter().map(|pair| pair[which].as_secs_f64() * 1e3).collect());
    let ratio = median(times.iter().map(|[old, new]| new.as_secs_f64() / old.as_secs_f64()).collect());
    vec![case.title().to_owned(), number(of(0)), number(of(1)), format!("{ratio:.3}")]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

/// A tree, and a store of it for each build.
struct Work {
    root: PathBuf,
    pitons: [Piton; 2],
    edited: PathBuf,
}

impl Work {
    fn new(programs: &[PathBuf; 2], files: usize) -> Result<Self> {
        let root = workspace_root().join("target").join("pairs");
        trees::remove(&root)?;
        let (tree, home) = (root.join("tree"), root.join("home"));
        fs::create_dir_all(&tree)?;
        fs::create_dir_all(&home)?;
        eprintln!("a tree of {files} files");
        trees::generate(&tree, files, files * BYTES_PER_FILE)?;
        settle();
        wait_until_old();
        let piton = |program: &Path, base: &str| -> Result<Piton> {
            let program = program.canonicalize().with_context(|| program.display().to_string())?;
            Ok(Piton { program, base: root.join(base), tree: tree.clone(), home: home.clone() })
        };
        let pitons = [piton(&programs[0], "old")?, piton(&programs[1], "new")?];
        let mut work = Self { edited: tree.join("Makefile"), root: root.clone(), pitons };
        for checkpoint in 0..CHECKPOINTS {
            work.edit(checkpoint)?;
            work.pitons.iter_mut().try_for_each(|piton| piton.take().map(drop))?;
        }
        for piton in &mut work.pitons {
            // The first call of the turn, and a take after which all index entries are settled.
            hook(piton, Case::HookAgain)?;
            piton.take()?;
        }
        Ok(work)
    }

    fn edit(&self, number: usize) -> Result<()> {
        fs::write(&self.edited, format!("all:\n# edit {number}\n"))?;
        pause_after_edit();
        Ok(())
    }

    fn times(&self, case: Case, pairs: usize) -> Result<Vec<[Duration; 2]>> {
        if case == Case::TakeNothing {
            wait_until_old();
            for piton in &self.pitons {
                measure::run(&mut piton.take_command())?;
            }
        }
        let mut all = Vec::new();
        for pair in 0..pairs {
            let mut times = [Duration::ZERO; 2];
            for which in if pair.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
                times[which] = self.time(case, &self.pitons[which], 2 * pair + which)?;
            }
            all.push(times);
        }
        Ok(all)
    }

    /// Runs a case once. `number` makes each edit different.
    fn time(&self, case: Case, piton: &Piton, number: usize) -> Result<Duration> {
        let timed = |arguments: &[&str]| measure::timed(&mut piton.command(arguments)).map(|(time, _)| time);
        match case {
            Case::TakeNothing => timed(&["take", "--json"]),
            Case::TakeOneFile => {
                self.edit(1000 + number)?;
                settle();
                timed(&["take", "--json"])
            }
            Case::HookNothing | Case::HookAgain => hook(piton, case),
            Case::List => timed(&["rollback", "--json"]),
            Case::RestoreOneFile => {
                self.edit(100_000 + number)?;
                timed(&["take", "--json"])?;
                let before = fs::read(&self.edited)?;
                self.edit(200_000 + number)?;
                settle();
                let time = timed(&["restore", "1", "Makefile", "-y"])?;
                ensure!(fs::read(&self.edited)? == before, "the file was not restored");
                Ok(time)
            }
        }
    }
}

/// Returns the mean time of `HOOK_CALLS` calls of a hook.
fn hook(piton: &Piton, case: Case) -> Result<Duration> {
    let tool = if case == Case::HookAgain { "Write" } else { "Read" };
    let event = piton.tool_event(tool);
    let began = Instant::now();
    for _ in 0..HOOK_CALLS {
        call(piton.hook_command(&["hook", "claude"]), &event)?;
    }
    Ok(began.elapsed() / HOOK_CALLS)
}

fn call(mut command: Command, event: &str) -> Result<()> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let status = start_with_input(&mut command, event.as_bytes())?.wait()?;
    ensure!(status.success(), "piton hook: {status}");
    Ok(())
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = trees::remove(&self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians() {
        let pair = |old: u64, new: u64| [old, new].map(Duration::from_millis);
        let shown = line(Case::List, &[pair(10, 20), pair(100, 100), pair(1000, 1000)]);
        assert_eq!(shown[1..], ["100", "100", "1.000"]);
    }
}
