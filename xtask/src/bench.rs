//! The sequence of a benchmark: trees, then for each tree every row, with all contestants in turn in every round.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::contestants::{Contestant, Filesnap, Outcome, Piton, Repository, Restic, Walk, WarmGit};
use crate::hermes::Hermes;
use crate::measure::{self, isolated, settle};
use crate::report::{Report, Row, Work};
use crate::scale::{self, ScaleReport};
use crate::trees::{self, Edited, Size, Tree};
use crate::workspace::{self, workspace_root};
use crate::{bars, extras, machine, serving};

/// The first checkpoint of the large tree takes most contestants many seconds; more runs are not needed to tell them
/// apart.
const ROUNDS_MAX_FIRST_LARGE: usize = 3;
const ROUNDS: usize = 7;
const ROUNDS_QUICK: usize = 2;
/// Maximum number of rounds: above it, the stores would reach the 20 checkpoints at which old ones are dropped, and the
/// time of that would be counted as the time of a checkpoint.
const ROUNDS_MAX: u64 = 15;

#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Program to measure [default: built from this workspace]
    #[arg(long, value_name = "PATH")]
    piton: Option<PathBuf>,
    /// Directory for trees and stores; the trees stay for the next run [default: target/bench]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Measure a copy of DIR as the large tree [default: Debian's linux-source-6.1, if installed]
    #[arg(long, value_name = "DIR")]
    large: Option<PathBuf>,
    /// Timed runs of every contestant [default: 7; at most 3 where one takes many seconds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=ROUNDS_MAX))]
    rounds: Option<u64>,
    /// Trees to measure [default: all]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    only: Vec<Size>,
    /// Write the report to FILE as well, as Markdown
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Check within a minute that everything works: small and medium, 2 rounds or 1
    #[arg(long)]
    quick: bool,
    /// Instead of all that: 10,000 checkpoints, a file of 3 GB, 1,000,000 files (needs 15 GB, many minutes)
    #[arg(long)]
    scale: bool,
    /// Like --scale, or --serve, with everything N times smaller, to try the benchmark itself
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    scale_down: Option<u64>,
    /// Instead of all that: takes over `piton serve` beside calls of the library, in a tree of 34,000 files
    #[arg(long, conflicts_with = "scale")]
    serve: bool,
    /// Exit with 1 if a bar is missed
    #[arg(long)]
    strict: bool,
}

impl BenchArgs {
    fn rounds(&self) -> usize {
        let default = if self.quick { ROUNDS_QUICK } else { ROUNDS };
        self.rounds.and_then(|rounds| usize::try_from(rounds).ok()).unwrap_or(default)
    }

    fn sizes(&self) -> Vec<Size> {
        let all = Size::ALL.into_iter().filter(|size| !self.quick || *size != Size::Large);
        if self.only.is_empty() { all.collect() } else { self.only.clone() }
    }

    /// Returns the divisor of a measurement of scale, if one is asked for.
    fn scale(&self) -> Option<usize> {
        let divisor = self.scale_down.or((self.scale || self.serve).then_some(1))?;
        usize::try_from(divisor).ok()
    }
}

pub(crate) struct Setup {
    pub(crate) scratch: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) rounds: usize,
    quick: bool,
    program: PathBuf,
    /// This program, which walks trees.
    pub(crate) this: PathBuf,
    restic_no_scan: Option<bool>,
    /// `None` if it was not built.
    filesnap: Option<PathBuf>,
}

impl Setup {
    /// Returns the number of rounds for the first checkpoint, which takes seconds on the larger trees.
    fn rounds_of_first(&self, size: Size) -> usize {
        match size {
            Size::Large => self.rounds.min(ROUNDS_MAX_FIRST_LARGE),
            _ if self.quick => 1,
            _ => self.rounds,
        }
    }

    /// Returns true if restic takes part. It needs most of a second for anything, so a quick run includes it only where
    /// a target refers to it.
    fn has_restic(&self, size: Size) -> bool {
        !self.quick || size == Size::Medium
    }

    fn has_extras(&self, size: Size) -> bool {
        !self.quick || size == Size::Small
    }

    pub(crate) fn piton(&self, tree: &Path, base: &str) -> Piton {
        Piton {
            program: self.program.clone(),
            base: self.scratch.join(base),
            tree: tree.to_path_buf(),
            home: self.home.clone(),
        }
    }

    fn repository(&self, tree: &Path, dir: &str, index: &str) -> Repository {
        let dir = self.scratch.join(dir);
        Repository { index: dir.join(index), dir, tree: tree.to_path_buf(), home: self.home.clone() }
    }
}

/// Removes the stores, also if a benchmark ends early.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn run(options: &BenchArgs) -> Result<ExitCode> {
    let work = options.work.clone().unwrap_or_else(|| workspace_root().join("target").join("bench"));
    fs::create_dir_all(&work)?;
    let work = work.canonicalize()?;
    let lock = File::create(work.join("lock"))?;
    ensure!(lock.try_lock().is_ok(), "another benchmark is running in {}", work.display());
    let scratch = Scratch(work.join("run"));
    // Files that a killed run left behind.
    trees::remove(&scratch.0)?;
    let home = scratch.0.join("home");
    fs::create_dir_all(&home)?;
    measure::run(isolated("git", &home).arg("--version"))?;
    let program = workspace::piton(options.piton.as_deref())?;
    let restic_no_scan = Restic::probe(&home);
    let mut report = Report::default();
    // Building it takes longer than a quick run.
    let builds_filesnap = !options.quick && options.scale().is_none();
    let filesnap = builds_filesnap.then(|| report.keep("filesnap", Filesnap::build(&work))).flatten();
    let setup = Setup {
        scratch: scratch.0.clone(),
        home,
        rounds: options.rounds(),
        quick: options.quick,
        program,
        this: std::env::current_exe()?,
        restic_no_scan,
        filesnap,
    };

    if let Some(divisor) = options.scale() {
        return bench_scale(&setup, divisor, &work, options);
    }
    report.facts = machine::facts(&work, &setup.program, &setup.home);
    let trees = prepare(&work, options, &mut report)?;
    for tree in &trees {
        bench_tree(&setup, tree, &mut report).with_context(|| format!("the {} tree", tree.size.name()))?;
    }
    if let Some(tree) = trees.first() {
        eprintln!("hook");
        extras::hook(&setup, &tree.path, &mut report)?;
    }

    let bars = bars::bars(&report);
    let markdown = report.markdown(&bars);
    print!("{markdown}");
    if let Some(out) = &options.out {
        fs::write(out, &markdown).with_context(|| format!("cannot write {}", out.display()))?;
    }
    let missed = bars.iter().any(bars::Bar::is_missed);
    // Speed depends on the machine; correctness does not.
    let failed = report.piton_failed() || options.strict && missed;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn bench_scale(setup: &Setup, divisor: usize, work: &Path, options: &BenchArgs) -> Result<ExitCode> {
    let large = if divisor == 1 && !options.serve {
        trees::prepare(work, Size::Large, options.large.as_deref())?
    } else {
        None
    };
    let scale = if options.serve {
        ScaleReport::new("Takes over `serve`", &serving::rows(setup, divisor)?)
    } else {
        scale::run(setup, large.as_ref().map(|tree| tree.path.as_path()), divisor)?
    };
    let facts = machine::facts(work, &setup.program, &setup.home);
    let facts: String = facts.iter().map(|(name, value)| format!("- {name}: {value}\n")).collect();
    let markdown = format!("{}\n## Machine\n\n{facts}", scale.markdown);
    print!("{markdown}");
    if let Some(out) = &options.out {
        fs::write(out, &markdown).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(if options.strict && scale.is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn prepare(work: &Path, options: &BenchArgs, report: &mut Report) -> Result<Vec<Tree>> {
    let mut found = Vec::new();
    for size in options.sizes() {
        match trees::prepare(work, size, options.large.as_deref())? {
            Some(tree) => {
                report.add_tree(&tree);
                found.push(tree);
            }
            None => report.remark(format!(
                "no {} tree: neither --large nor Debian's linux-source-6.1 is there; its rows are left out",
                size.name()
            )),
        }
    }
    if found.iter().any(|tree| tree.made) {
        settle();
        wait_until_old();
    }
    Ok(found)
}

/// A file that changed less than 35 s before a scan has to be read again by the next one. No contestant is measured in
/// that window.
pub(crate) fn wait_until_old() {
    std::thread::sleep(Duration::from_secs(37));
}

/// Pauses long enough that a file's mtime differs from that of the index written next.
pub(crate) fn pause_after_edit() {
    std::thread::sleep(Duration::from_millis(150));
}

fn bench_tree(setup: &Setup, tree: &Tree, report: &mut Report) -> Result<()> {
    let mut piton = setup.piton(&tree.path, "piton");
    let mut hermes = Hermes(setup.repository(&tree.path, "hermes", "indexes/0123456789abcdef"));
    let mut git = WarmGit::new(setup.repository(&tree.path, "git", "bench-index"));
    let mut walk = Walk { program: setup.this.clone(), tree: tree.path.clone(), home: setup.home.clone() };
    let mut restic = setup.restic_no_scan.filter(|_| setup.has_restic(tree.size)).map(|no_scan| Restic {
        repository: setup.scratch.join("restic"),
        tree: tree.path.clone(),
        home: setup.home.clone(),
        no_scan,
    });
    let mut filesnap = setup.filesnap.clone().map(|program| Filesnap {
        program,
        data: setup.scratch.join("filesnap"),
        tree: tree.path.clone(),
        home: setup.home.clone(),
        last: None,
    });
    let mut lineup: Lineup<'_> = vec![&mut piton, &mut hermes, &mut git];
    lineup.extend(restic.as_mut().map(|restic| restic as &mut dyn Contestant));
    lineup.extend(filesnap.as_mut().map(|filesnap| filesnap as &mut dyn Contestant));
    lineup.push(&mut walk);

    let mut edited = take_rows(setup, tree, lineup, report)?;
    if setup.has_extras(tree.size) {
        eprintln!("list, restore and memory, {}", tree.size.name());
        extras::list(setup, tree, &mut git, &mut edited, report)?;
        extras::restore(setup, tree, &git, report)?;
        extras::memory(setup, tree, report)?;
    }
    for store in ["piton", "hermes", "git", "restic", "filesnap"] {
        trees::remove(&setup.scratch.join(store))?;
    }
    Ok(())
}

type Lineup<'a> = Vec<&'a mut dyn Contestant>;

/// Fills the three rows of taking a checkpoint. Returns the file that was edited for the third.
fn take_rows(setup: &Setup, tree: &Tree, mut lineup: Lineup<'_>, report: &mut Report) -> Result<Edited> {
    let first_rounds = setup.rounds_of_first(tree.size);
    let row = Row::new(Work::First, tree.size);
    rounds(row, first_rounds, &mut lineup, report, &mut |contestant| contestant.fresh(), Outcome::Taken);

    // A contestant may need one more run before its stat data is settled.
    lineup.retain_mut(|contestant| report.keep(contestant.column().title(), contestant.take()).is_some());
    let row = Row::new(Work::Nothing, tree.size);
    rounds(row, setup.rounds, &mut lineup, report, &mut |_| Ok(()), Outcome::Unchanged);

    let in_scope = setup.repository(&tree.path, "git", "bench-index").files()?;
    let mut edited = Edited::new(trees::spread(&tree.path, &in_scope, 1)?.remove(0))?;
    let mut edit = |_: &mut dyn Contestant| -> Result<()> {
        edited.append_line()?;
        pause_after_edit();
        Ok(())
    };
    let row = Row::new(Work::OneFile, tree.size);
    rounds(row, setup.rounds, &mut lineup, report, &mut edit, Outcome::Taken);
    Ok(edited)
}

/// Fills a row. Contestants take turns and each round begins with another one, so that none always follows the same. A
/// contestant that fails is removed from the row and from the rest of this tree.
fn rounds(
    mut row: Row,
    rounds: usize,
    lineup: &mut Lineup<'_>,
    report: &mut Report,
    before: &mut dyn FnMut(&mut dyn Contestant) -> Result<()>,
    expected: Outcome,
) {
    eprintln!("{}", row.label());
    for _ in 0..rounds {
        lineup.retain_mut(|contestant| {
            let column = contestant.column();
            let what = format!("{}, {}", row.label(), column.title());
            let time = one_run(&mut **contestant, before, expected);
            match report.keep(&what, time) {
                Some(time) => row.add(column, time),
                None => row.strike(column),
            }
            row.has(column)
        });
        if !lineup.is_empty() {
            lineup.rotate_left(1);
        }
    }
    report.rows.push(row);
}

fn one_run(
    contestant: &mut dyn Contestant,
    before: &mut dyn FnMut(&mut dyn Contestant) -> Result<()>,
    expected: Outcome,
) -> Result<Duration> {
    before(contestant)?;
    settle();
    match contestant.take()? {
        (_, Some(outcome)) if outcome != expected => {
            bail!("it found {outcome:?}, not {expected:?}")
        }
        (time, _) => Ok(time),
    }
}
