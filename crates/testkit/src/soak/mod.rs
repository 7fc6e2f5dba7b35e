//! Soak test: processes that run every command that makes sense unattended, in several projects at once, all of them
//! killed at random, for any length of time; and a model of the expected state, which is compared with what stock git
//! reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::space::bytes_below;
use crate::{Sandbox, clean_command, wait_for_maintenance};

mod model;
mod worker;

use model::{Payload, Project, Shared};
use worker::Worker;

/// Number of processes that run at a time, each with its own project.
pub const WORKERS: usize = 8;
const SNAPSHOTS_MAX: usize = 12;
/// Maximum length for a slow machine to have done each thing once.
const LENGTH_MAX: Duration = Duration::from_secs(60);
/// Name of the session record that all workers add to.
const SHARED: &str = "shared";

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The command under test.
    pub program: &'a Path,
    /// Minimum length; the run goes on until each thing was done once.
    pub length: Duration,
    /// Interval at which everything is stopped and checked, besides at the end.
    pub check_every: Duration,
    /// Limit on the size of the store; 0 for none.
    pub size_mb_max: u64,
    /// Maximum time after which a process is killed, if it is killed at all.
    pub kill_within: Duration,
    /// Seed of the random choices.
    pub seed: u64,
}

/// Results of one command.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Number of runs that completed.
    pub done: u64,
    /// Number of runs that were killed.
    pub killed: u64,
    /// Number of runs that ended with the exit code for a busy store.
    pub busy: u64,
    /// Longest run in milliseconds, measured from outside.
    pub ms_max: u128,
}

/// Results of the whole run.
#[derive(Debug, Default)]
pub struct Soaked {
    /// Results by command.
    pub commands: BTreeMap<&'static str, Tally>,
    /// Checkpoints taken, including those of hooks and of restores.
    pub taken: u64,
    /// Restores and undos verified to give the expected files.
    pub restored: u64,
    /// Checkpoints declined because the store was full.
    pub declined: u64,
    /// Prompts without a checkpoint, all of them recorded as unprotected.
    pub missed: u64,
    /// Number of times that everything was stopped and checked.
    pub checks: u64,
    /// Checkpoints compared byte for byte.
    pub compared: u64,
    /// Bytes that were acknowledged and not dropped by a retention rule, but are missing.
    pub bytes_lost: u64,
    /// Longest take in milliseconds, as reported by the command itself.
    pub take_ms_max: u64,
    /// Largest size of the store, measured after a prune while no worker ran.
    pub store_bytes_max: u64,
    /// Size of everything below the base at the end.
    pub disk_bytes: u64,
}

impl Soaked {
    /// Returns true if the run did each thing that a soak is for: checkpoints, restores and prunes that completed, and
    /// processes that were killed.
    pub fn has_everything(&self) -> bool {
        self.taken > 0 && self.restored > 0 && self.done("prune") > 0 && self.killed() > 0
    }

    /// Returns the number of completed runs of a command.
    pub fn done(&self, command: &str) -> u64 {
        self.commands.get(command).map_or(0, |tally| tally.done)
    }

    /// Returns the number of processes that were killed.
    pub fn killed(&self) -> u64 {
        self.commands.values().map(|tally| tally.killed).sum()
    }

    /// Returns the command with the longest run, and its length in milliseconds.
    pub fn longest(&self) -> (&'static str, u128) {
        let all = self.commands.iter().map(|(name, tally)| (*name, tally.ms_max));
        all.max_by_key(|(_, ms)| *ms).unwrap_or_default()
    }
}

struct Soak<'a> {
    sandbox: &'a Sandbox,
    plan: &'a Plan<'a>,
    began: Instant,
    /// Held shared by a worker while one of its processes runs, and exclusively during a check.
    pause: RwLock<()>,
    projects: Vec<Mutex<Project>>,
    shared: Mutex<Shared>,
    payloads: Vec<Vec<Payload>>,
    soaked: Mutex<Soaked>,
    /// True once something is wrong: then all workers stop.
    failed: AtomicBool,
}

/// Locks a mutex, even if it is poisoned: the panic is reported elsewhere, and the data of the other workers is still
/// valid.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plan<'_> {
    /// Runs the soak in a sandbox. Panics on any deviation from the model.
    pub fn run(&self, sandbox: &Sandbox) -> Soaked {
        let project = |n| {
            let dir = sandbox.other_project(&format!("soak-{n}"));
            Mutex::new(Project { dir, has_size_limit: self.size_mb_max > 0, ..Project::default() })
        };
        let soak = Soak {
            sandbox,
            plan: self,
            began: Instant::now(),
            pause: RwLock::default(),
            projects: (0..WORKERS).map(project).collect(),
            shared: Mutex::default(),
            payloads: Payload::captured(),
            soaked: Mutex::default(),
            failed: AtomicBool::new(false),
        };
        soak.begin_shared_record();
        std::thread::scope(|scope| {
            let soak = &soak;
            let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(move || Worker::new(soak, n).work())).collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                let next = Instant::now() + self.check_every;
                while Instant::now() < next && workers.iter().any(|worker| !worker.is_finished()) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                soak.check();
            }
            for worker in workers {
                if let Err(panic) = worker.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
        soak.check();
        soak.finish();
        soak.soaked.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Soak<'_> {
    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn goes_on(&self) -> bool {
        let elapsed = self.began.elapsed();
        let has_time = elapsed < self.plan.length || elapsed < LENGTH_MAX && !lock(&self.soaked).has_everything();
        has_time && !self.has_failed()
    }

    fn command(&self, dir: &Path) -> Command {
        let mut command = clean_command(self.plan.program);
        command.env("HOME", self.sandbox.home()).env("TZ", "UTC").current_dir(dir);
        command.env("PITON_ENABLED", "true").env("PITON_RETENTION_DAYS", "0");
        command.env("PITON_MAX_SNAPSHOTS", SNAPSHOTS_MAX.to_string());
        command.env("PITON_MAX_TOTAL_SIZE_MB", self.plan.size_mb_max.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command while no worker runs. Panics if it fails.
    fn ask(&self, dir: &Path, args: &[&str]) -> Value {
        let output = self.command(dir).args(args).output().expect("the program runs");
        assert!(output.status.success(), "{args:?}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn begin_shared_record(&self) {
        let record = self.command(&self.sandbox.root());
        let (code, said, _) = worker::sent(record, &["session", "write", SHARED, "--json"], br#"{"task": "soak"}"#);
        assert_eq!(code, Some(0), "{said}");
        *lock(&self.shared) = Shared::default();
    }

    /// Stops all workers and compares what stock git reads with the model.
    fn check(&self) {
        let _alone = self.pause.write().unwrap_or_else(PoisonError::into_inner);
        if self.has_failed() {
            return;
        }
        let root = self.sandbox.root();
        lock(&self.shared).check(&self.ask(&root, &["session", "read", SHARED, "--json"])["record"]);
        self.begin_shared_record();
        if !self.sandbox.store().join("HEAD").exists() {
            return;
        }
        wait_for_maintenance(&root);
        self.sandbox.assert_store_is_whole();
        for project in &self.projects {
            self.check_project(&mut lock(project));
        }
        // A safety checkpoint may exceed the limit; the next take or prune compensates.
        self.ask(&root, &["prune", "--json"]);
        let mut soaked = lock(&self.soaked);
        soaked.store_bytes_max = soaked.store_bytes_max.max(bytes_below(&self.sandbox.store()));
        soaked.checks += 1;
    }

    fn check_project(&self, project: &mut Project) {
        let files = project.files();
        let is_new = project.agree(&self.ask(&project.dir, &["rollback", "--json"]), &files, None);
        assert!(!is_new, "{}: a checkpoint that nobody took", project.dir.display());
        assert!(!project.has_left_overs(), "{}: a restore left something", project.dir.display());
        let lost: u64 = project.known.iter().map(|known| Project::lost(known, self.sandbox.held_by(&known.id))).sum();
        let mut soaked = lock(&self.soaked);
        soaked.compared += project.known.len() as u64;
        soaked.bytes_lost += lost;
        assert_eq!(soaked.bytes_lost, 0, "{}", project.dir.display());
    }

    /// Checks, after all workers have ended, that one prune removes everything that killed processes left behind.
    fn finish(&self) {
        let root = self.sandbox.root();
        let report = self.ask(&root, &["verify", "--read-data", "--json"]);
        assert_eq!(report["whole"], true, "{report}");
        self.ask(&root, &["prune", "--json"]);
        wait_for_maintenance(&root);
        let mut left = self.sandbox.temporary_files();
        // Session notes are written without a lock: they must be old before they are known to be unused. Files that a
        // repair moved away are kept.
        let stays = ["turns", "notices", "repairs"].map(|dir| self.sandbox.store().join(dir));
        left.retain(|path| !stays.iter().any(|dir| path.starts_with(dir)));
        assert_eq!(left, [] as [&Path; 0], "temporary files are left");
        let status = self.ask(&root, &["status", "--limit", "0", "--json"]);
        let known = status["projects"].as_array().expect("projects");
        assert!(known.iter().all(|project| project["exists"] == true), "a project that is gone: {status}");
        self.sandbox.assert_store_is_whole();
        lock(&self.soaked).disk_bytes = bytes_below(&self.sandbox.base());
    }
}
