//! Keeping, recovering, taking back and releasing kept files, killed before each system call, and with each one failing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::Sandbox;

use crate::hook_kit::{bash, prompt};
use crate::kept_kit::{FileState, announce, execute, files_below, hooked, kept_files, large, piton};
use crate::kit::Ran;
use crate::sweep::{After, Scene, fail, kill};

/// Settings of [`crate::kept_kit`], with time to spare for runs under strace.
const SETTINGS: [(&str, &str); 5] = [
    ("PITON_ENABLED", "1"),
    ("PITON_DEADLINE_MS", "10000"),
    ("PITON_MAX_FILE_SIZE_MB", "1"),
    ("PITON_KEEP_FILE_SIZE_MB", "1"),
    ("PITON_KEEP_MIN_FREE_MB", "0"),
];

type Files = BTreeMap<PathBuf, FileState>;

/// Deletes two large files of a project, and a file in no project.
const LOSS: &str = "rm -rf big.bin data ~/thesis.txt";

/// A small project with large files, and a file beside it.
fn world() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("main.rs", "fn main() {}\n");
    fs::write(sandbox.project().join("big.bin"), large(1)).expect("a file");
    fs::create_dir_all(sandbox.project().join("data/deep")).expect("a directory");
    fs::write(sandbox.project().join("data/deep/set.bin"), large(2)).expect("a file");
    fs::write(sandbox.home().join("thesis.txt"), "years of work").expect("a file");
    hooked(&sandbox, &prompt(&sandbox, "s", "p1", "go"));
    sandbox
}

/// Returns the user's files, those of the project and those beside it.
fn users_files(sandbox: &Sandbox) -> Files {
    let mut files = files_below(&sandbox.project());
    files.extend(files_below(&sandbox.home()).into_iter().filter(|(path, _)| path.ends_with("thesis.txt")));
    files
}

/// Returns the files by contents and mode: what comes back from a checkpoint has another time.
fn contents(files: &Files) -> BTreeMap<&Path, (&[u8], u32)> {
    files.iter().map(|(path, file)| (path.as_path(), (file.bytes.as_slice(), file.mode))).collect()
}

/// Asserts that nothing is left of a run that was killed: no temporary file beside the user's, and few in the base.
fn assert_nothing_piles_up(sandbox: &Sandbox, context: &str) {
    let temporary = |dir: &Path| {
        let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().contains("tmp") || name.to_string_lossy().starts_with(".piton"))
            .count()
    };
    let users: usize = [sandbox.project(), sandbox.home()].iter().map(|dir| temporary(dir)).sum();
    assert_eq!(users, 0, "{context}");
    assert!(temporary(&sandbox.base().join("local/files")) <= 2, "{context}");
}

/// Recovers what is missing. A path that is not lost is not found.
fn recover_all(sandbox: &Sandbox) {
    let thesis = sandbox.home().join("thesis.txt");
    for path in ["big.bin", "data", thesis.to_str().expect("UTF-8")] {
        let ran = piton(sandbox, &["recover", "--yes", path]);
        assert!(matches!(ran.code(), 0 | 4), "{ran:?}");
    }
}

/// Operation on kept files that is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// The hook before a command that destroys files.
    Keep,
    Recover,
    /// A recovery that replaced a file is taken back.
    Undo,
    Release,
}

/// An operation, and the user's files around it.
struct KeptScene {
    sandbox: Sandbox,
    operation: Operation,
    /// Before the loss, and before the operation.
    whole: Files,
    before: Files,
    args: Vec<String>,
}

impl KeptScene {
    fn new(operation: Operation) -> Self {
        let sandbox = world();
        let whole = users_files(&sandbox);
        if operation != Operation::Keep {
            announce(&sandbox, LOSS);
            execute(&sandbox, LOSS);
        }
        let args: &[&str] = match operation {
            Operation::Keep => &["hook", "claude"],
            Operation::Recover | Operation::Undo => &["recover", "--yes", "--json", "big.bin", "data"],
            Operation::Release => &["prune", "--kept", "--json"],
        };
        let (before, args) = (users_files(&sandbox), args.iter().map(ToString::to_string).collect());
        let scene = Self { sandbox, operation, whole, before, args };
        if operation == Operation::Undo { scene.recovered() } else { scene }
    }

    /// Runs the recovery, over another file, and returns the scene in which it is taken back.
    fn recovered(mut self) -> Self {
        fs::write(self.sandbox.project().join("big.bin"), "another one").expect("a file");
        self.before = users_files(&self.sandbox);
        let report = piton(&self.sandbox, &self.args()).done().json();
        let id = report["recovery"].as_str().expect("a name").to_owned();
        self.args = ["recover", "--undo", &id, "--json"].map(str::to_owned).to_vec();
        // The files are copied back before each run, as other inodes.
        let record = self.sandbox.base().join(format!("local/files/back.{id}"));
        let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&record).expect("a record")).expect("JSON");
        for file in json["files"].as_array_mut().expect("a list") {
            file["inode"] = serde_json::json!([0, 0]);
        }
        fs::write(&record, json.to_string()).expect("a record");
        self
    }

    /// U3: the command goes on, the user's files are as before, and what is not kept is named. The next hook keeps them in
    /// any case.
    fn check_keep(&self, after: &After<'_>, context: &str) {
        let sandbox = &self.sandbox;
        assert!(after.is_kill() || after.ran.code() == 0 && after.ran.stdout.is_empty(), "{context}");
        assert_eq!(users_files(sandbox), self.before, "{context}");
        let is_kept = kept_files(sandbox).len() == 3;
        let status = piton(sandbox, &["status", "--json"]).json();
        let is_named = ["unsaved", "unprotected", "problems"].iter().any(|key| status[key] != serde_json::json!([]));
        assert!(is_kept || after.is_kill() || is_named, "{context}: {status:#}");
        announce(sandbox, LOSS);
        execute(sandbox, LOSS);
    }

    /// Both versions are there, one of them at its path. The next release removes what a killed process left.
    fn check_undo(&self, context: &str) {
        let sandbox = &self.sandbox;
        let held: Vec<Vec<u8>> = kept_files(sandbox).iter().map(|path| fs::read(path).expect("a file")).collect();
        for (path, file) in self.before.iter().chain(&self.whole) {
            let is_there = fs::read(path).is_ok_and(|bytes| bytes == file.bytes);
            assert!(is_there || held.contains(&file.bytes), "{} {context}", path.display());
        }
        piton(sandbox, &["prune", "--kept"]).done();
    }

    /// U7: a release touches no file of the user's, and the next one completes it.
    fn check_release(&self, context: &str) {
        piton(&self.sandbox, &["prune", "--kept"]).done();
        assert_eq!(kept_files(&self.sandbox), [] as [PathBuf; 0], "{context}");
        assert_eq!(users_files(&self.sandbox), self.before, "{context}");
    }
}

impl Scene for KeptScene {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    fn input(&self) -> Vec<u8> {
        bash(&self.sandbox, "s", "p1", LOSS).into_bytes()
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        SETTINGS.to_vec()
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox.home(), self.sandbox.project()]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        let now = users_files(&self.sandbox);
        match self.operation {
            Operation::Keep => assert_eq!(kept_files(&self.sandbox).len(), 3),
            Operation::Recover => assert_eq!(files_below(&self.sandbox.project()).len(), self.whole.len() - 1),
            Operation::Undo | Operation::Release => assert_eq!(contents(&now), contents(&self.before)),
        }
    }

    /// U2: each file is as before or as after, and a recovery later completes it.
    fn check(&self, after: &After<'_>) {
        let (sandbox, context) = (&self.sandbox, format!("{after:?}"));
        // Temporary files of a killed process stay until the next command.
        let is_temporary = |path: &Path| path.to_string_lossy().contains("/.piton-restore-");
        for (path, file) in users_files(sandbox).into_iter().filter(|(path, _)| !is_temporary(path)) {
            let is = |files: &Files| files.get(&path).is_some_and(|known| known.bytes == file.bytes);
            assert!(is(&self.before) || is(&self.whole), "{} {context}", path.display());
        }
        match self.operation {
            Operation::Keep => self.check_keep(after, &context),
            Operation::Recover => {}
            Operation::Undo => self.check_undo(&context),
            Operation::Release => self.check_release(&context),
        }
        if matches!(self.operation, Operation::Keep | Operation::Recover) {
            recover_all(sandbox);
            assert_eq!(contents(&users_files(sandbox)), contents(&self.whole), "{context}");
        }
        piton(sandbox, &["verify"]).done();
        assert_nothing_piles_up(sandbox, &context);
    }
}

/// Kills the operation anywhere. At least `felt_min` kills must have an effect.
fn killed(operation: Operation, felt_min: usize) {
    let swept = kill(|| KeptScene::new(operation));
    assert!(swept.felt >= felt_min, "{swept:?}");
}

/// Makes any call of the operation fail. At least `felt_min` failures must have an effect.
fn failing(operation: Operation, felt_min: usize) {
    let swept = fail(|| KeptScene::new(operation));
    assert!(swept.felt >= felt_min, "{swept:?}");
}

#[test]
fn keeping_may_be_killed_anywhere() {
    killed(Operation::Keep, 10);
}

/// A hook never fails.
#[test]
fn keeping_survives_the_failure_of_any_call() {
    let swept = fail(|| KeptScene::new(Operation::Keep));
    assert!(swept.points >= 30, "{swept:?}");
}

#[test]
fn a_recovery_may_be_killed_anywhere() {
    killed(Operation::Recover, 10);
}

#[test]
fn a_recovery_survives_the_failure_of_any_call() {
    failing(Operation::Recover, 10);
}

#[test]
fn taking_a_recovery_back_may_be_killed_anywhere() {
    killed(Operation::Undo, 10);
}

#[test]
fn taking_a_recovery_back_survives_the_failure_of_any_call() {
    failing(Operation::Undo, 10);
}

#[test]
fn a_release_may_be_killed_anywhere() {
    killed(Operation::Release, 3);
}

#[test]
fn a_release_survives_the_failure_of_any_call() {
    failing(Operation::Release, 3);
}
