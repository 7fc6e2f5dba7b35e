//! `bench --scale`: reading a long history by author, beside stock git on the same commits.
//!
//! The tree is the large one of the benchmark, or a generated one if there is none. Judged is that none of it takes longer
//! than git does (`git log -S` for a search, `git log -- PATH` for the log of a path, `git blame` for a blame), nor longer
//! than a user would notice.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::bench::Setup;
use crate::contestants::Piton;
use crate::measure::{self, isolated, settle};
use crate::scale::{ScaleRow, keeping};
use crate::trees;

const CHECKPOINTS: usize = 1_000;
const FILES: usize = 5_000;
const BYTES: usize = 40_000_000;
/// One in so many checkpoints changes the file that is blamed.
const EDITS_EVERY: usize = 5;
const RATIO_MAX: f64 = 1.0;
const SEARCH_MAX: Duration = Duration::from_secs(2);
const LOG_MAX: Duration = Duration::from_millis(100);
const BLAME_MAX: Duration = Duration::from_millis(500);

/// Measures the rows on a copy of the large tree. `divisor` makes everything smaller by that factor.
pub(crate) fn rows(setup: &Setup, large: Option<&Path>, divisor: usize) -> Result<Vec<ScaleRow>> {
    let checkpoints = (CHECKPOINTS / divisor).max(2 * EDITS_EVERY);
    eprintln!("reading a history of {checkpoints} checkpoints");
    let tree = setup.scratch.join("reading");
    fs::create_dir_all(&tree)?;
    match large {
        Some(large) => trees::copy(large, &tree)?,
        None => trees::generate(&tree, (FILES / divisor).max(100), BYTES / divisor)?,
    }
    let piton = setup.piton(&tree, "reading.base");
    let mut lines: Vec<String> = (0..2_000).map(|at| format!("# line {at}\n")).collect();
    for number in 0..checkpoints {
        if number % EDITS_EVERY == 0 {
            lines.insert(number * 7919 % lines.len(), format!("# needle {number}\n"));
            fs::write(tree.join("blamed.mk"), lines.concat())?;
        }
        fs::write(tree.join(format!("edited-{}.txt", number % 50)), format!("checkpoint {number}\n"))?;
        measure::run(&mut keeping(&piton, &["take", "--json"]))?;
    }
    // As maintenance leaves it.
    measure::run(&mut keeping(&piton, &["prune"]))?;
    let found = measure::run(&mut keeping(&piton, &["search", "needle 5", "--contents", "--json"]))?;
    ensure!(String::from_utf8_lossy(&found).contains("blamed.mk"), "the search found nothing");
    let rows = [
        (
            "search",
            ["search", "needle 5", "--contents"].as_slice(),
            ["log", "--all", "-Sneedle 5", "--format=%H"].as_slice(),
            SEARCH_MAX,
        ),
        (
            "log of a path",
            &["log", "blamed.mk", "--limit", "0"],
            &["log", "--all", "--numstat", "--format=%H", "--", "blamed.mk"],
            LOG_MAX,
        ),
        ("blame", &["blame", "blamed.mk"], &["blame", "REF", "--", "blamed.mk"], BLAME_MAX),
    ]
    .iter()
    .map(|(work, ours, gits, most)| {
        let ours = fastest(setup, || keeping(&piton, ours))?;
        let gits = fastest(setup, || git(setup, &piton, gits))?;
        let beside = format!("git {}", if *work == "blame" { "blame" } else { "log" });
        let work = format!("{work}, {checkpoints} checkpoints");
        let row = ScaleRow::ratio(work, ours, (&beside, gits));
        Ok(row.with_ratio_max(RATIO_MAX).with_time_max(*most))
    })
    .collect();
    trees::remove(&piton.base)?;
    trees::remove(&tree)?;
    rows
}

fn fastest(setup: &Setup, command: impl Fn() -> Command) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..=setup.rounds {
        settle();
        best = best.min(measure::timed(&mut command())?.0);
    }
    Ok(best)
}

/// Stock git on the commits of the store. `REF` is the project's ref.
fn git(setup: &Setup, piton: &Piton, arguments: &[&str]) -> Command {
    let store = piton.base.join("store");
    let names = fs::read_dir(store.join("refs/hermes")).into_iter().flatten().flatten();
    let name = names.map(|entry| format!("refs/hermes/{}", entry.file_name().to_string_lossy())).next();
    let name = name.unwrap_or_default();
    let mut git = isolated("git", &setup.home);
    git.arg("--git-dir").arg(store).args(arguments.iter().map(|word| if *word == "REF" { &name } else { *word }));
    git
}
