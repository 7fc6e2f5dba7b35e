//! `beside-hermes`: runs the oldest and the newest Hermes with this layout together with piton in one store, each at
//! its limit, with garbage collection by all of them. No checkpoint that piton reported as taken may be missing, and no
//! project may be stuck.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Dice, Sandbox, clean_command, files_in, git};

use crate::workspace;

/// The oldest release with this layout of the store, and the newest.
const VERSIONS: [&str; 2] = ["0.13.0", "0.19.0"];
const MINUTES: u64 = 30;
/// Limit of both programs: low, so that every checkpoint of Hermes ends with a garbage collection.
const MAX_SNAPSHOTS: usize = 5;
/// Number of takes after which piton collects garbage, too.
const TAKES_PER_PRUNE: u64 = 15;
const DRIVER: &str = include_str!("drive.py");

#[derive(clap::Args)]
pub(crate) struct BesideHermesArgs {
    /// Length of the run
    #[arg(long, value_name = "N", default_value_t = MINUTES)]
    minutes: u64,
    /// Program to test [default: built from this workspace]
    #[arg(long, value_name = "PATH")]
    piton: Option<PathBuf>,
}

pub(crate) fn run(args: &BesideHermesArgs) -> Result<ExitCode> {
    let wheels = VERSIONS.iter().map(|version| wheel(version)).collect::<Result<Vec<_>>>()?;
    let (minutes, program) = (args.minutes, workspace::piton(args.piton.as_deref())?);
    println!("{minutes} minutes: Hermes {} and {}, and piton, in one store", VERSIONS[0], VERSIONS[1]);
    let beside = Beside::new(program)?;
    let failed = beside.run(&wheels, Duration::from_secs(minutes * 60))?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the unpacked wheel of a version, downloaded once.
fn wheel(version: &str) -> Result<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/hermes").join(version);
    let unpacked = dir.join("unpacked");
    if !unpacked.join("tools/checkpoint_manager.py").exists() {
        fs::create_dir_all(&dir)?;
        let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"];
        done(Command::new("python3").args(pip).arg(&dir).arg(format!("hermes-agent=={version}")))?;
        let wheel = fs::read_dir(&dir)?.flatten().map(|entry| entry.path());
        let wheel = wheel.into_iter().find(|path| path.extension().is_some_and(|end| end == "whl"));
        let wheel = wheel.with_context(|| format!("pip left no wheel of {version}"))?;
        done(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&wheel, &unpacked]))?;
    }
    Ok(unpacked)
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{} does not start", command.get_program().display()))?;
    ensure!(status.success(), "{} failed", command.get_program().display());
    Ok(())
}

/// Counts of events, from all threads.
#[derive(Default)]
struct Tally {
    taken: AtomicU64,
    pruned: AtomicU64,
    restored: AtomicU64,
    repaired: AtomicU64,
    /// Takes that continued from an older checkpoint because the newest was missing.
    salvaged: AtomicU64,
    /// Checkpoints in the shared project that Hermes dropped when it rewrote the history.
    overwritten: AtomicU64,
    missing: AtomicU64,
    stuck: AtomicU64,
    is_over: AtomicBool,
}

struct Beside {
    program: PathBuf,
    sandbox: Sandbox,
    tally: Tally,
}

impl Beside {
    fn new(program: PathBuf) -> Result<Self> {
        let sandbox = Sandbox::new();
        for name in ["old", "new", "ours", "alone", "shared"] {
            let dir = sandbox.other_project(name);
            fs::write(dir.join("README"), name)?;
        }
        Ok(Self { program, sandbox, tally: Tally::default() })
    }

    fn run(&self, wheels: &[PathBuf], length: Duration) -> Result<bool> {
        let stop = self.sandbox.root().join("stop");
        let driver = self.sandbox.root().join("drive.py");
        fs::write(&driver, DRIVER)?;
        let dirs: Vec<_> =
            ["old", "new", "ours", "alone", "shared"].map(|name| self.sandbox.other_project(name)).into();
        let hermes: Vec<Child> = (0..2)
            .map(|at| {
                let mut command = clean_command("python3");
                command.arg(&driver).arg(&wheels[at]).arg(&stop).arg(MAX_SNAPSHOTS.to_string()).arg(at.to_string());
                command.args([&dirs[at], &dirs[4]][..=at].iter());
                command.env("HOME", self.sandbox.home()).env("HERMES_HOME", self.sandbox.home().join(".hermes"));
                Ok(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?)
            })
            .collect::<Result<_>>()?;
        let until = Instant::now() + length;
        std::thread::scope(|scope| {
            for (seed, dir) in (1..).zip(&dirs[2..4]) {
                scope.spawn(move || self.work(dir, seed, until));
            }
            scope.spawn(|| self.work_in_shared(&dirs[4], until));
        });
        self.tally.is_over.store(true, Ordering::Relaxed);
        fs::write(&stop, "")?;
        let mut of_hermes = Vec::new();
        for child in hermes {
            let output = child.wait_with_output()?;
            of_hermes.push(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        testkit::wait_for_maintenance(&self.sandbox.root());
        self.check_at_rest(&dirs)?;
        self.tell(&of_hermes)
    }

    /// Takes, repairs and prunes once more in every project of piton's, with no other process running. Errors count as
    /// stuck.
    fn check_at_rest(&self, dirs: &[PathBuf]) -> Result<()> {
        for dir in &dirs[2..] {
            // Of the shared project, only the tree is checked: objects of earlier checkpoints that Hermes lost are not
            // piton's fault.
            let part = if *dir == dirs[4] { "^{tree}" } else { "" };
            match self.last_take(dir) {
                Some(id) if self.is_whole(&format!("{id}{part}")) => {}
                Some(id) => self.miss(dir, &format!("what the last checkpoint {id} leads to is not whole")),
                None => self.miss(dir, "there is no last checkpoint"),
            }
        }
        let repair = self.run_piton(&dirs[2], &["repair"])?;
        let repaired: Value = serde_json::from_str(&String::from_utf8_lossy(&repair.stdout)).unwrap_or_default();
        println!(
            "  last repair: whole {}, {} losses",
            repaired["whole"],
            repaired["lost"].as_array().map_or(0, Vec::len)
        );
        if repaired["whole"] != true {
            self.be_stuck(&dirs[2], &String::from_utf8_lossy(&repair.stdout));
        }
        if let Err(error) = self.piton(&dirs[2], &["prune"]).and_then(|_| self.piton(&dirs[2], &["verify"])) {
            self.be_stuck(&dirs[2], &error.to_string());
        }
        for dir in &dirs[2..] {
            if self.last_take(dir).is_none_or(|id| !self.is_whole(&id)) {
                self.miss(dir, "after a repair, what the last checkpoint leads to is not whole");
            }
        }
        Ok(())
    }

    fn tell(&self, of_hermes: &[String]) -> Result<bool> {
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let git_dir = format!("--git-dir={}", self.sandbox.store().display());
        let fsck = git().arg(git_dir).args(["fsck", "--full", "--no-dangling"]).output()?;
        for (version, done) in VERSIONS.iter().zip(of_hermes) {
            println!("  Hermes {version}: {done} (checkpoints taken, tried)");
        }
        let Tally { taken, pruned, restored, repaired, salvaged, overwritten, missing, stuck, .. } = &self.tally;
        println!("  piton: {} taken, {} prunes, {} restores undone", count(taken), count(pruned), count(restored));
        println!("  {} acknowledged checkpoints missing, {} times stuck", count(missing), count(stuck));
        println!("  {} takes went on where the newest checkpoint was gone", count(salvaged));
        println!("  {} checkpoints of the shared project dropped or overwritten by Hermes", count(overwritten));
        println!("  {} repairs of what Hermes lost before a prune", count(repaired));
        // After the last repair, no error is left.
        println!("  git fsck: {}", if fsck.status.success() { "clean" } else { "objects are missing" });
        Ok(count(missing) + count(stuck) > 0 || count(taken) == 0 || !fsck.status.success())
    }

    fn run_piton(&self, dir: &Path, args: &[&str]) -> Result<Output> {
        let mut command = clean_command(&self.program);
        command.args(args).arg("--json").env("HOME", self.sandbox.home()).current_dir(dir);
        Ok(command.env("PITON_MAX_SNAPSHOTS", MAX_SNAPSHOTS.to_string()).output()?)
    }

    fn piton(&self, dir: &Path, args: &[&str]) -> Result<Value> {
        let output = self.run_piton(dir, args)?;
        let answer = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{args:?}: {answer}{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_str(&answer)?)
    }

    /// Takes a checkpoint. An error counts as a stuck project.
    fn take(&self, dir: &Path) -> Option<String> {
        match self.piton(dir, &["take"]) {
            Ok(answer) => {
                self.tally.taken.fetch_add(u64::from(answer["outcome"] == "taken"), Ordering::Relaxed);
                self.tally.salvaged.fetch_add(u64::from(answer["lost"].is_string()), Ordering::Relaxed);
                answer["id"].as_str().map(str::to_owned)
            }
            Err(error) => {
                self.be_stuck(dir, &error.to_string());
                None
            }
        }
    }

    fn be_stuck(&self, dir: &Path, why: &str) {
        println!("  stuck: {}: {why}", dir.display());
        self.tally.stuck.fetch_add(1, Ordering::Relaxed);
    }

    fn last_take(&self, dir: &Path) -> Option<String> {
        let last = self.tally.taken.load(Ordering::Relaxed);
        fs::write(dir.join("last"), last.to_string()).ok()?;
        self.take(dir)
    }

    /// Returns true if stock git finds everything reachable from a checkpoint.
    fn is_whole(&self, id: &str) -> bool {
        self.why_not_whole(id).is_none()
    }

    /// Returns the message of stock git about an incomplete checkpoint.
    fn why_not_whole(&self, id: &str) -> Option<String> {
        let git_dir = format!("--git-dir={}", self.sandbox.store().display());
        match git().arg(git_dir).args(["rev-list", "--objects", id]).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn miss(&self, dir: &Path, what: &str) {
        println!("  MISSING: {}: {what}", dir.display());
        self.tally.missing.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes checkpoints in a project that only piton uses. The newest ones must be listed and complete.
    fn work(&self, dir: &Path, seed: u64, until: Instant) {
        let mut dice = Dice::new(seed);
        let contents: Vec<_> = (0..12).map(|_| dice.noise(4_000)).collect();
        let mut held = Vec::<(String, BTreeMap<Vec<u8>, testkit::Held>)>::new();
        for round in 1_u64.. {
            if Instant::now() >= until {
                return;
            }
            // Contents recur that no checkpoint holds any more: they may be found in the store although they are about
            // to be deleted.
            for name in ["a", "b/c", "b/d"] {
                let path = dir.join(name);
                let _ = fs::create_dir_all(path.parent().expect("below the project"));
                let bytes = if dice.roll(2) == 0 { contents[dice.roll(12)].clone() } else { dice.noise(3_000) };
                let _ = fs::write(path, bytes);
            }
            let _ = fs::write(dir.join("round"), round.to_string());
            if let Some(id) = self.take(dir) {
                held.push((id, files_in(dir)));
            }
            if held.len() > MAX_SNAPSHOTS {
                held.remove(0);
            }
            self.check(dir, &held);
            if round % TAKES_PER_PRUNE == seed % TAKES_PER_PRUNE {
                self.prune(dir);
                self.check(dir, &held);
            }
            if round % 7 == 0 && self.goes_back(dir) {
                // Safety checkpoints have been added on top.
                held.clear();
            }
        }
    }

    /// Prunes. Hermes loses objects of its own histories, with or without piton: a repair must cope with that.
    fn prune(&self, dir: &Path) {
        let done = self.piton(dir, &["prune"]).or_else(|error| {
            println!("  prune, before a repair: {error}");
            self.tally.repaired.fetch_add(1, Ordering::Relaxed);
            // It may fail because Hermes loses the next object in the meantime: the prune is retried all the same.
            if let Err(error) = self.piton(dir, &["repair"]) {
                println!("  repair: {error}");
            }
            self.piton(dir, &["prune"])
        });
        match done {
            Ok(_) => drop(self.tally.pruned.fetch_add(1, Ordering::Relaxed)),
            // Hermes may have lost another object between the two.
            Err(error) => println!("  prune, after a repair: {error}"),
        }
    }

    /// Restores and undoes. Returns true if it was tried.
    fn goes_back(&self, dir: &Path) -> bool {
        let before = files_in(dir);
        match self.piton(dir, &["restore", "3", "--yes"]).and_then(|_| self.piton(dir, &["undo", "--yes"])) {
            Ok(_) if files_in(dir) == before => drop(self.tally.restored.fetch_add(1, Ordering::Relaxed)),
            Ok(_) => self.miss(dir, "undo did not bring the files back"),
            Err(error) => self.be_stuck(dir, &format!("restore: {error}")),
        }
        true
    }

    fn check(&self, dir: &Path, held: &[(String, BTreeMap<Vec<u8>, testkit::Held>)]) {
        let listed = match self.piton(dir, &["rollback"]) {
            Ok(list) => list.to_string(),
            Err(error) => return self.miss(dir, &error.to_string()),
        };
        for (id, files) in held {
            let is_whole = || std::panic::catch_unwind(|| self.sandbox.held_by(id) == *files).unwrap_or(false);
            if !listed.contains(id.as_str()) || !is_whole() {
                self.miss(dir, id);
            }
        }
    }

    /// Takes checkpoints in a project in which Hermes takes them, too, and rewrites the history at its limit: ids
    /// change then, trees stay.
    fn work_in_shared(&self, dir: &Path, until: Instant) {
        let mut dice = Dice::new(99);
        while Instant::now() < until {
            let _ = fs::write(dir.join("piton.txt"), dice.noise(2_000));
            let Some(id) = self.take(dir) else { continue };
            let tree = format!("{id}^{{tree}}");
            let Some(why) = self.why_not_whole(&tree) else { continue };
            // Hermes may have rewritten it and collected garbage in the meantime. If it is still listed under this id
            // afterwards, it must be complete.
            match self.piton(dir, &["rollback"]) {
                Ok(list) if list.to_string().contains(&id) => self.miss(dir, &format!("{id}: {why}")),
                _ => drop(self.tally.overwritten.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}
