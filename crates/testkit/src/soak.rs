//! Everything at once, for as long as one likes: processes that take, collect and restore, all of them killed at random;
//! and a model of what must be there afterwards, which stock git is asked for.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Dice, Sandbox, clean_command, files_in, wait_for_maintenance};

const WRITERS: usize = 4;
const SNAPSHOTS_MAX: usize = 12;
const PRUNE: [&str; 5] = ["prune", "--json", "--keep-orphans", "--retention-days", "0"];
/// How many files a project has, at most.
const FILES: usize = 24;

/// What is to be run, and for how long.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The command under test.
    pub program: &'a Path,
    /// How long.
    pub length: Duration,
    /// How often everything is stopped and checked, besides at the end.
    pub check_every: Duration,
    /// The limit on the size of the store; 0 is none.
    pub size_mb_max: u64,
    /// A process is killed within that time, or not at all.
    pub kill_within: Duration,
    /// Another number is another run.
    pub seed: u64,
}

/// What it came to.
#[derive(Debug, Default)]
pub struct Soaked {
    /// Checkpoints that were acknowledged.
    pub taken: u64,
    /// Processes that were killed.
    pub killed: u64,
    /// Collections that ran to their end.
    pub collected: u64,
    /// Restores and undos that were seen to give what they should.
    pub restored: u64,
    /// Commands that gave way to others, with the exit code for that.
    pub busy: u64,
    /// Checkpoints that were declined because the store was full.
    pub declined: u64,
    /// How often everything was stopped and checked.
    pub checks: u64,
    /// Checkpoints that were compared byte for byte.
    pub compared: u64,
    /// Bytes that were acknowledged, not dropped by rule, and not there.
    pub bytes_lost: u64,
    /// The longest take, in milliseconds, as the command itself tells.
    pub take_ms_max: u64,
    /// The largest the store was when all stood still.
    pub store_bytes_max: u64,
}

#[derive(Default)]
struct Counters {
    taken: AtomicU64,
    killed: AtomicU64,
    collected: AtomicU64,
    restored: AtomicU64,
    busy: AtomicU64,
    declined: AtomicU64,
    take_ms_max: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// One acknowledged checkpoint: its id, what its files hash to, what they come to.
struct Known {
    id: String,
    hash: u64,
    bytes: u64,
}

/// One project, as its writer knows it.
#[derive(Default)]
struct Model {
    /// Acknowledged checkpoints, the oldest first.
    known: Vec<Known>,
    /// How many more there may be: takes that were killed, and what restores take for safety.
    unknown_max: usize,
}

struct Soak<'a> {
    sandbox: &'a Sandbox,
    plan: &'a Plan<'a>,
    end: Instant,
    /// Workers hold it shared while one of their processes runs; whoever checks holds it alone.
    pause: RwLock<()>,
    models: Vec<(PathBuf, Mutex<Model>)>,
    counters: Counters,
}

/// How a process ended.
enum Ended {
    Killed,
    Done(Value),
    Busy,
}

fn hash_of(dir: &Path) -> (u64, u64) {
    let files = files_in(dir);
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    (hasher.finish(), files.values().map(crate::Held::len).sum())
}

impl Plan<'_> {
    /// Runs it in a sandbox. Panics where something is not as it must be.
    pub fn run(&self, sandbox: &Sandbox) -> Soaked {
        let models = (0..=WRITERS).map(|n| (sandbox.other_project(&format!("soak-{n}")), Mutex::default())).collect();
        let soak = Soak {
            sandbox,
            plan: self,
            end: Instant::now() + self.length,
            pause: RwLock::default(),
            models,
            counters: Counters::default(),
        };
        let mut soaked = Soaked::default();
        std::thread::scope(|scope| {
            let soak = &soak;
            let mut workers: Vec<_> = (0..WRITERS)
                .map(|n| scope.spawn(move || soak.write(n, &mut Dice::new(self.seed * 100 + n as u64))))
                .collect();
            workers.push(scope.spawn(move || soak.collect(&PRUNE, self.seed * 100 + 50)));
            workers.push(scope.spawn(move || soak.collect(&["maintain", "--json"], self.seed * 100 + 51)));
            workers.push(scope.spawn(move || soak.restore(&mut Dice::new(self.seed * 100 + 52))));
            while workers.iter().any(|worker| !worker.is_finished()) {
                let next = Instant::now() + self.check_every;
                while Instant::now() < next && workers.iter().any(|worker| !worker.is_finished()) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                soak.check(&mut soaked);
            }
            for worker in workers {
                if let Err(panic) = worker.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
        soak.check(&mut soaked);
        let counters = &soak.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Soaked {
            taken: of(&counters.taken),
            killed: of(&counters.killed),
            collected: of(&counters.collected),
            restored: of(&counters.restored),
            busy: of(&counters.busy),
            declined: of(&counters.declined),
            take_ms_max: of(&counters.take_ms_max),
            ..soaked
        }
    }
}

impl Soak<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    fn command(&self, dir: &Path) -> Command {
        let mut command = clean_command(self.plan.program);
        command.env("HOME", self.sandbox.home()).env("TZ", "UTC").current_dir(dir);
        command.env("PITON_MAX_SNAPSHOTS", SNAPSHOTS_MAX.to_string());
        command.env("PITON_MAX_TOTAL_SIZE_MB", self.plan.size_mb_max.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end, or kills it.
    fn run(&self, command: &mut Command, dice: &mut Dice) -> Ended {
        let mut child = command.spawn().expect("the program starts");
        if dice.roll(3) == 0 {
            let micros = dice.roll(usize::try_from(self.plan.kill_within.as_micros()).expect("not that long"));
            std::thread::sleep(Duration::from_micros(micros as u64));
            child.kill().expect("a process of ours");
        }
        self.ended(&child.wait_with_output().expect("the process ends"))
    }

    fn ended(&self, output: &Output) -> Ended {
        let said = || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match output.status.code() {
            None => {
                count(&self.counters.killed);
                Ended::Killed
            }
            Some(0) => Ended::Done(serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said()))),
            Some(5) => {
                count(&self.counters.busy);
                Ended::Busy
            }
            Some(code) => panic!("exit code {code}: {}", said()),
        }
    }

    /// Changes files of a project, and takes checkpoints of it.
    fn write(&self, number: usize, dice: &mut Dice) {
        let (dir, model) = &self.models[number];
        while !self.is_over() {
            let _running = self.pause.read().unwrap_or_else(PoisonError::into_inner);
            change(dir, dice);
            let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
            // Two at once now and then: one of them has nothing to do.
            let second = (dice.roll(8) == 0).then(|| self.command(dir).args(["take", "--json"]).spawn());
            self.take(dir, &mut model, dice);
            if let Some(second) = second {
                let output = second.and_then(std::process::Child::wait_with_output).expect("the process ends");
                let ended = self.ended(&output);
                self.note(ended, dir, &mut model);
            }
        }
    }

    fn take(&self, dir: &Path, model: &mut Model, dice: &mut Dice) -> bool {
        let ended = self.run(self.command(dir).args(["take", "--json"]), dice);
        self.note(ended, dir, model)
    }

    /// Notes what a take said; whether there is a checkpoint of the files as they are.
    fn note(&self, ended: Ended, dir: &Path, model: &mut Model) -> bool {
        match ended {
            Ended::Killed | Ended::Busy => {
                model.unknown_max += 1;
                false
            }
            Ended::Done(report) => {
                self.counters.take_ms_max.fetch_max(report["elapsed_ms"].as_u64().unwrap_or(0), Ordering::Relaxed);
                if report["why"] == "store_full" {
                    count(&self.counters.declined);
                    return false;
                }
                let id = report["id"].as_str().unwrap_or_else(|| panic!("not taken: {report}")).to_owned();
                count(&self.counters.taken);
                let (hash, bytes) = hash_of(dir);
                // One that a killed take made may be found to be unchanged.
                if model.known.last().is_none_or(|last| last.id != id) {
                    model.known.push(Known { id, hash, bytes });
                }
                true
            }
        }
    }

    fn collect(&self, args: &[&str], seed: u64) {
        let dice = &mut Dice::new(seed);
        while !self.is_over() {
            let _running = self.pause.read().unwrap_or_else(PoisonError::into_inner);
            if !self.sandbox.store().join("HEAD").exists() {
                continue;
            }
            if let Ended::Done(report) = self.run(self.command(&self.sandbox.root()).args(args), dice) {
                assert!(report["errors"].as_u64().unwrap_or(0) == 0, "{report}");
                count(&self.counters.collected);
            }
        }
    }

    /// Takes, restores and undoes in a project of its own.
    fn restore(&self, dice: &mut Dice) {
        let (dir, model) = &self.models[WRITERS];
        let mut held = HashMap::new();
        while !self.is_over() {
            let _running = self.pause.read().unwrap_or_else(PoisonError::into_inner);
            change(dir, dice);
            let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
            if self.take(dir, &mut model, dice) {
                held.insert(model.known.last().expect("taken").id.clone(), files_in(dir));
            }
            let listed = self.command(dir).args(["rollback", "--json"]).output().expect("the process ends");
            let Ended::Done(list) = self.ended(&listed) else { continue };
            let Some(list) = list.as_array().filter(|list| !list.is_empty()) else { continue };
            let at = dice.roll(list.len());
            let target = list[at]["id"].as_str().expect("an id").to_owned();
            let before = files_in(dir);
            model.unknown_max += 2;
            let restored = self.restore_one(dir, &[&target, "-y"], dice);
            let wanted = if restored { held.get(&target).cloned() } else { None };
            let after = files_in(dir);
            if let Some(wanted) = wanted {
                assert!(after == wanted, "restore of {target}: {}", difference(&after, &wanted));
                count(&self.counters.restored);
            }
            if restored && after != before && dice.roll(2) == 0 {
                let undone = self.command(dir).args(["undo", "-y", "--json"]).output().expect("the process ends");
                if let Ended::Done(report) = self.ended(&undone) {
                    let after = files_in(dir);
                    assert!(after == before, "undo, {report}: {}", difference(&after, &before));
                    count(&self.counters.restored);
                }
            }
        }
    }

    /// Restores, and goes on with it if it is killed; whether the target is what the files must be now.
    fn restore_one(&self, dir: &Path, args: &[&str], dice: &mut Dice) -> bool {
        let before = files_in(dir);
        match self.run(self.command(dir).args(["restore", "--json"]).args(args), dice) {
            Ended::Done(_) => true,
            Ended::Busy => false,
            Ended::Killed => {
                let go_on = self.command(dir).args(["restore", "--json", "--continue", "-y"]).output();
                let output = go_on.expect("the process ends");
                match output.status.code() {
                    Some(0) => true,
                    // It had not begun, or was over.
                    Some(4) => files_in(dir) != before,
                    _ => panic!("{}", String::from_utf8_lossy(&output.stdout)),
                }
            }
        }
    }

    /// Stops everything, and compares what stock git finds with the model.
    fn check(&self, soaked: &mut Soaked) {
        let _alone = self.pause.write().unwrap_or_else(PoisonError::into_inner);
        if !self.sandbox.store().join("HEAD").exists() {
            return;
        }
        wait_for_maintenance(&self.sandbox.root());
        self.sandbox.assert_store_is_whole();
        let mut bytes = 0;
        // What killed processes left counts when it comes to the limit, and not before.
        let left = self.sandbox.temporary_files();
        crate::walk(&self.sandbox.store(), &mut |path| {
            let found = path.symlink_metadata().expect("nobody is at work");
            bytes += if found.is_dir() || left.iter().any(|left| left == path) { 0 } else { found.len() };
        });
        soaked.store_bytes_max = soaked.store_bytes_max.max(bytes);
        for (dir, model) in &self.models {
            let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
            self.check_project(dir, &mut model, soaked);
        }
        soaked.checks += 1;
    }

    fn check_project(&self, dir: &Path, model: &mut Model, soaked: &mut Soaked) {
        let list = self.command(dir).args(["rollback", "--json"]).output().expect("the process ends");
        let Ended::Done(list) = self.ended(&list) else { panic!("busy, and nobody is there") };
        let listed: Vec<_> =
            list.as_array().expect("a list").iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect();
        let is_there = |known: &Known| listed.contains(&known.id);
        let first = model.known.iter().position(is_there).unwrap_or(model.known.len());
        let lost: Vec<_> =
            model.known[first..].iter().filter(|known| !is_there(known)).map(|known| &known.id).collect();
        assert!(lost.is_empty(), "in the middle of {}: {lost:?}", dir.display());
        assert!(first < model.known.len() || model.known.is_empty() || model.unknown_max > 0, "the newest is gone");
        let is_by_rule = first == 0 || listed.len() >= SNAPSHOTS_MAX || self.plan.size_mb_max > 0;
        assert!(is_by_rule, "{}: {} are left, and {first} are gone", dir.display(), listed.len());
        assert!(listed.len() <= model.known.len() + model.unknown_max, "more than was asked for");
        for known in &model.known[first..] {
            let held = self.sandbox.held_by(&known.id);
            let mut hasher = DefaultHasher::new();
            held.hash(&mut hasher);
            soaked.compared += 1;
            if hasher.finish() != known.hash {
                soaked.bytes_lost += known.bytes;
            }
        }
        assert_eq!(soaked.bytes_lost, 0, "{}", dir.display());
        model.known.drain(..first);
    }
}

/// Changes some files of a project: text that grows and changes in lines, noise, links, directories that come and go.
fn change(dir: &Path, dice: &mut Dice) {
    for _ in 0..1 + dice.roll(4) {
        let name = dir.join(format!("d{}/f{}", dice.roll(4), dice.roll(FILES / 4)));
        fs::create_dir_all(name.parent().expect("a directory")).expect("a directory");
        match dice.roll(8) {
            0 => drop(fs::remove_file(&name)),
            1 => drop(fs::remove_dir_all(name.parent().expect("a directory"))),
            2 | 3 => fs::write(&name, dice.noise(1 + dice.clone().roll(60_000))).expect("a file"),
            _ => {
                let mut text = fs::read(&name).unwrap_or_default();
                text.truncate(40_000);
                let line = format!("line {} of {}\n", dice.roll(1_000_000), name.display());
                let at = dice.roll(text.len() + 1);
                text.splice(at..at, line.into_bytes());
                fs::write(&name, text).expect("a file");
            }
        }
    }
    // Never empty, and never the same as before.
    fs::write(dir.join("count"), dice.roll(usize::MAX >> 33).to_string()).expect("a file");
}

fn difference(found: &BTreeMap<Vec<u8>, crate::Held>, wanted: &BTreeMap<Vec<u8>, crate::Held>) -> String {
    let names = found.keys().chain(wanted.keys()).filter(|path| found.get(*path) != wanted.get(*path));
    names.map(|path| String::from_utf8_lossy(path).into_owned()).collect::<Vec<_>>().join(", ")
}
