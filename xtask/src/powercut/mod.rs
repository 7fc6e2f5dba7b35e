//! Power cuts: checks the store and the user's files after a power failure at any moment.
//!
//! Real piton processes work on a real file system whose disk is recorded write by write. From the recording, disks are
//! constructed that a cut could have left, and each is mounted and checked: every checkpoint that was reported as taken
//! exists, the store is intact, an interrupted restore can be completed or aborted, nothing else was changed.
//!
//! Everything happens in separate mount and process namespaces and in memory: a killed run leaves nothing behind.

mod check;
pub(crate) mod disk;
mod model;
mod work;
mod writes;

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use testkit::Dice;

use self::check::{Check, Verdict};
use self::disk::{FileSystem, Mounted, NextBoot, Recorder};
use self::model::History;
use self::work::Piton;
use self::writes::{Replay, WriteLog, copy_sparse};

use crate::workspace::workspace_root;

/// Number of cuts taken from one recording. Each recording has different work in it.
const CUTS_PER_RECORDING: usize = 150;
/// Maximum number of bad states printed in full.
const SHOWN_MAX: u64 = 10;

#[derive(clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Needs root, loop devices, /dev/fuse, git, and of Debian: qemu-utils or qemu-system-common, e2fsprogs, \
                  xfsprogs, btrfs-progs."
)]
pub(crate) struct PowercutArgs {
    /// Number of cuts on each file system
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u64).range(1..))]
    states: u64,
    /// File systems
    #[arg(long = "fs", value_name = "LIST", value_delimiter = ',', default_value = "ext4,xfs,btrfs")]
    file_systems: Vec<FileSystem>,
    /// Seed of the work and the cuts; the work differs a little from run to run all the same
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Program to test [default: built from this workspace]
    #[arg(long, value_name = "PATH")]
    piton: Option<PathBuf>,
    /// Keep the disks of bad states there
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    keep: Option<PathBuf>,
    /// Fail if this machine lacks something, instead of saying so
    #[arg(long = "require")]
    is_required: bool,
    /// Run with a piton that does not sync directories: the check must find that out
    #[arg(long = "self-test")]
    is_self_test: bool,
    /// Set for the process that runs inside the namespaces
    #[arg(long = "inside", hide = true)]
    is_inside: bool,
}

fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Results on one file system.
#[derive(Default)]
struct Figures {
    states: u64,
    whole: u64,
    /// States with something lost, broken or wrong.
    bad: u64,
    lost: u64,
    broken: u64,
    wrong: u64,
    finished: u64,
    taken_back: u64,
    /// Disks that mounted only after the file system's own repair, or not at all: piton is not the cause.
    refused: u64,
}

pub(crate) fn run(options: &PowercutArgs) -> Result<ExitCode> {
    if options.is_inside {
        return inside(options);
    }
    if let Some(missing) = missing(options) {
        return decline(&missing, options);
    }
    let program = match &options.piton {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => build(options.is_self_test)?,
    };
    let work = workspace_root().join("target/powercut/disks");
    fs::create_dir_all(&work)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]).arg(std::env::current_exe()?);
    // Replaces this process, so that killing it ends everything.
    command.args(std::env::args_os().skip(1)).arg("--inside").arg("--piton").arg(program);
    let error = command.exec();
    Err(error).context("cannot start unshare")
}

/// Returns what this machine lacks for a run, as far as it can be checked beforehand.
fn missing(options: &PowercutArgs) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount".to_owned());
    }
    let devices = ["/dev/loop-control", "/dev/fuse"].map(Path::new);
    if let Some(device) = devices.into_iter().find(|device| !device.exists()) {
        return Some(format!("there is no {}", device.display()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let makers = options.file_systems.iter().map(|file_system| file_system.maker());
    let mut programs = ["qemu-storage-daemon", "unshare", "mount", "umount", "git"].into_iter().chain(makers);
    programs.find(|program| !is_there(program)).map(|program| format!("{program} is not installed"))
}

fn decline(why: &str, options: &PowercutArgs) -> Result<ExitCode> {
    ensure!(!options.is_required, "no power can be cut here: {why}");
    println!("skipped: no power can be cut here: {why}");
    Ok(ExitCode::SUCCESS)
}

/// Builds piton; for the self-test, a build that skips syncing directories, in a separate target directory.
fn build(is_self_test: bool) -> Result<PathBuf> {
    eprintln!("building piton");
    let root = workspace_root();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let lossy = target.join("powercut/lossy");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "piton-cli"]).current_dir(&root);
    if is_self_test {
        command.env("CARGO_ENCODED_RUSTFLAGS", "--cfg=piton_lose_syncs").arg("--target-dir").arg(&lossy);
    } else {
        command.arg("--release");
    }
    ensure!(command.status()?.success(), "piton does not build");
    Ok(if is_self_test { lossy.join("debug/piton") } else { target.join("release/piton") })
}

/// Performs the run, inside its own mount and process namespaces.
fn inside(options: &PowercutArgs) -> Result<ExitCode> {
    let work = workspace_root().join("target/powercut/disks").canonicalize()?;
    let tmpfs = Command::new("mount").args(["-t", "tmpfs", "-o", "size=75%", "tmpfs"]).arg(&work).output();
    if !tmpfs.is_ok_and(|mounted| mounted.status.success()) {
        return decline("nothing can be mounted", options);
    }
    let place = Place::make(&work, options)?;
    // Tries once everything that requires privileges or tools.
    if let Err(error) = place.record_nothing(options.file_systems[0]) {
        return decline(&format!("{error:#}"), options);
    }
    println!("seed {}", options.seed);
    println!("fs     states  whole   lost broken  files  finished  taken back  fs refused");
    let (mut bad_states, mut looked_at, mut all_states) = (0, 0, 0);
    for file_system in &options.file_systems {
        let figures = place.run(*file_system, options).with_context(|| file_system.name())?;
        let Figures { states, whole, lost, broken, wrong, finished, taken_back, refused, .. } = figures;
        let name = file_system.name();
        println!(
            "{name:<6} {states:>6} {whole:>6} {lost:>6} {broken:>6} {wrong:>6} {finished:>9} {taken_back:>11} \
             {refused:>11}"
        );
        bad_states += figures.bad;
        looked_at += figures.whole + figures.bad;
        all_states += figures.states;
    }
    ensure!(
        looked_at * 2 >= all_states,
        "only {looked_at} of {all_states} states could be mounted: that shows nothing"
    );
    if options.is_self_test {
        ensure!(bad_states > 0, "directories were not synced, and the check did not notice: it is worth nothing");
        println!("self-test: {bad_states} states are bad without the syncs of directories, as they must be");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(if bad_states > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Directory of the disks, and the program under test.
struct Place {
    dir: PathBuf,
    piton: Piton,
    keep: Option<PathBuf>,
}

/// A recording: the work that was done, and the log of writes.
struct Recorded {
    history: History,
    log: WriteLog,
}

impl Place {
    fn make(dir: &Path, options: &PowercutArgs) -> Result<Self> {
        let (home, root) = (dir.join("home"), dir.join("mnt"));
        for dir in [&home, &root] {
            fs::create_dir_all(dir)?;
        }
        let program = options.piton.clone().context("no program was named")?;
        Ok(Self { dir: dir.to_owned(), piton: Piton { program, home, root }, keep: options.keep.clone() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Fails if recording does not work on this machine.
    fn record_nothing(&self, file_system: FileSystem) -> Result<()> {
        disk::make(file_system, &self.path("live"))?;
        let recorder = Recorder::start(&self.path("live"), &self.dir)?;
        Mounted::mount(file_system, &recorder.shown, &self.piton.root)?.unmount()
    }

    /// Does the work once, on a new disk. Afterwards `certain` contains the disk as it was before the work.
    fn record(&self, file_system: FileSystem, dice: &mut Dice) -> Result<Recorded> {
        let (live, certain) = (self.path("live"), self.path("certain"));
        disk::make(file_system, &live)?;
        copy_sparse(&File::open(&live)?, &File::create(&certain)?)?;
        let recorder = Recorder::start(&live, &self.dir)?;
        let mounted = Mounted::mount(file_system, &recorder.shown, &self.piton.root)?;
        let history = work::work(&self.piton, &mounted, &recorder, dice)?;
        mounted.unmount()?;
        let log = WriteLog::read(&recorder.log)?;
        Ok(Recorded { history, log })
    }

    fn run(&self, file_system: FileSystem, options: &PowercutArgs) -> Result<Figures> {
        let mut figures = Figures::default();
        let mut dice = Dice::new(options.seed ^ (file_system as u64) << 56);
        let mut left = usize::try_from(options.states)?;
        while left > 0 {
            let recorded = self.record(file_system, &mut dice).context("the work that is to be cut short")?;
            let count = left.min(CUTS_PER_RECORDING);
            let cuts = choose_cuts(&recorded, count, &mut dice);
            let mut replay = Replay::new(&recorded.log, &self.path("certain"))?;
            let _after = NextBoot::begin(&self.dir)?;
            for cut in cuts {
                replay.cut(cut, &mut dice, &self.path("state"))?;
                self.judge(file_system, &recorded, cut, &mut dice, &mut figures)?;
            }
            left -= count;
        }
        Ok(figures)
    }

    /// Mounts one state and checks it.
    fn judge(
        &self,
        file_system: FileSystem,
        recorded: &Recorded,
        cut: usize,
        dice: &mut Dice,
        figures: &mut Figures,
    ) -> Result<()> {
        let state = self.path("state");
        let asis = self.keep.as_ref().map(|_| self.path("as-it-was"));
        if let Some(asis) = &asis {
            copy_sparse(&File::open(&state)?, &File::create(asis)?)?;
        }
        figures.states += 1;
        let mut mounted = Mounted::mount(file_system, &state, &self.piton.root);
        if mounted.is_err() {
            figures.refused += 1;
            file_system.repair(&state);
            mounted = Mounted::mount(file_system, &state, &self.piton.root);
        }
        let Ok(mounted) = mounted else { return Ok(()) };
        let log_bytes = recorded.log.requests[cut - 1].log_end;
        let check =
            Check { piton: &self.piton, history: &recorded.history, log_bytes, dice, verdict: Verdict::default() };
        let verdict = check.run()?;
        mounted.unmount()?;
        figures.whole += u64::from(verdict.is_good());
        figures.bad += u64::from(!verdict.is_good());
        figures.lost += verdict.lost.len() as u64;
        figures.broken += verdict.broken.len() as u64;
        figures.wrong += verdict.wrong.len() as u64;
        figures.finished += verdict.finished;
        figures.taken_back += verdict.taken_back;
        if !verdict.is_good() {
            self.show(file_system, recorded, cut, &verdict, figures)?;
        }
        Ok(())
    }

    fn show(
        &self,
        file_system: FileSystem,
        recorded: &Recorded,
        cut: usize,
        verdict: &Verdict,
        figures: &Figures,
    ) -> Result<()> {
        if figures.bad > SHOWN_MAX {
            return Ok(());
        }
        let log_bytes = recorded.log.requests[cut - 1].log_end;
        let step = recorded.history.under_way(log_bytes);
        let (name, all) = (file_system.name(), recorded.log.requests.len());
        eprintln!("{name}: cut after {cut} of {all} requests, during: {}", recorded.history.steps[step].what);
        verdict.complaints().for_each(|complaint| eprintln!("  {complaint}"));
        if let Some(keep) = &self.keep {
            fs::create_dir_all(keep)?;
            let to = keep.join(format!("{name}-{}", figures.states));
            copy_sparse(&File::open(self.path("as-it-was"))?, &File::create(&to)?)?;
            eprintln!("  the disk is kept as {}", to.display());
        }
        Ok(())
    }
}

/// Returns the positions of the cuts, in order: at any request, and more often right after something was reported as
/// done, and in restores.
fn choose_cuts(recorded: &Recorded, count: usize, dice: &mut Dice) -> Vec<usize> {
    let (requests, steps) = (&recorded.log.requests, &recorded.history.steps);
    let first = requests.partition_point(|request| request.log_end <= steps[0].log_end);
    let seen_by_end_of = |step: usize| requests.partition_point(|request| request.log_end <= steps[step].log_end);
    let restores: Vec<usize> = (1..steps.len()).filter(|step| steps[*step].touches.is_restore()).collect();
    let mut cut = || {
        let cut = match dice.roll(4) {
            0 => seen_by_end_of(dice.roll(steps.len())) + dice.roll(4),
            1 if !restores.is_empty() => {
                let step = restores[dice.roll(restores.len())];
                dice.between(seen_by_end_of(step - 1), seen_by_end_of(step))
            }
            _ => dice.between(first + 1, requests.len()),
        };
        cut.clamp(first + 1, requests.len())
    };
    let mut cuts: Vec<_> = (0..count).map(|_| cut()).collect();
    cuts.sort_unstable();
    cuts
}
