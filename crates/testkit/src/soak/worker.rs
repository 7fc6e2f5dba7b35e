//! One worker: changes the files of its project and runs one process after another.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::model::{Before, Files, Project, brought_back, difference};
use super::{SHARED, SNAPSHOTS_MAX, Soak, lock};
use crate::{Dice, start_with_input};

/// Maximum number of files in a project.
const FILES: usize = 24;
/// Maximum size of a file.
const BYTES_MAX: usize = 24_000;
/// Maximum number of session records that a worker owns.
const RECORDS: usize = 3;

const DONE: i32 = 0;
const PARTLY: i32 = 3;
const NOT_FOUND: i32 = 4;
const BUSY: i32 = 5;

/// Result of a process: its exit code and its JSON answer, or `None` if it was killed.
type Ended = Option<(i32, Value)>;

pub(super) struct Worker<'a> {
    soak: &'a Soak<'a>,
    number: usize,
    dice: Dice,
    /// Its own session records: name and the number written last.
    records: BTreeMap<String, u64>,
    /// The simulated agent: index of its payloads, number of payloads sent, and session.
    agent: (usize, usize, String),
    count: u64,
}

fn start(mut command: Command, args: &[&str], sent: &[u8]) -> Child {
    start_with_input(command.args(args), sent).expect("the program starts")
}

/// Returns the exit code (`None` if the process was killed), stdout and stderr.
fn wait(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().expect("the process ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs a command until it exits.
pub(super) fn sent(command: Command, args: &[&str], sent: &[u8]) -> (Option<i32>, String, String) {
    wait(start(command, args, sent))
}

impl<'a> Worker<'a> {
    pub(super) fn new(soak: &'a Soak<'a>, number: usize) -> Self {
        let dice = Dice::new(soak.plan.seed * 100 + number as u64);
        Self { soak, number, dice, records: BTreeMap::new(), agent: (0, 0, String::new()), count: 0 }
    }

    pub(super) fn work(mut self) {
        while self.soak.goes_on() {
            let _running = self.soak.pause.read().unwrap_or_else(PoisonError::into_inner);
            match self.dice.roll(40) {
                0..=13 => self.take(),
                14..=18 => self.play_agent(),
                19..=22 => self.restore(),
                23..=24 => self.undo(),
                25..=30 => self.look(),
                31..=34 => self.note(),
                35..=37 => self.keep_house(),
                38 => self.pass_by(),
                _ if self.dice.roll(4) == 0 => self.purge(),
                _ => {}
            }
        }
    }

    fn project(&self) -> MutexGuard<'a, Project> {
        lock(&self.soak.projects[self.number])
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Runs a command until it exits or, one time in 3, kills it. Panics on an exit code that is neither busy nor in
    /// `allowed`.
    fn run(&mut self, dir: &Path, args: &[&str], given: &[u8], allowed: &[i32]) -> Ended {
        let began = Instant::now();
        let mut child = start(self.soak.command(dir), args, given);
        if self.dice.roll(3) == 0 {
            let micros =
                self.dice.roll(usize::try_from(self.soak.plan.kill_within.as_micros()).expect("not that long"));
            std::thread::sleep(Duration::from_micros(micros as u64));
            child.kill().expect("a process of ours");
        }
        self.ended(args, wait(child), began, allowed)
    }

    fn ended(&self, args: &[&str], said: (Option<i32>, String, String), began: Instant, allowed: &[i32]) -> Ended {
        let (code, answer, besides) = said;
        let name = NAMES.iter().find(|name| **name == args[0]).expect("a name of a command");
        let mut soaked = lock(&self.soak.soaked);
        let tally = soaked.commands.entry(name).or_default();
        let Some(code) = code else {
            tally.killed += 1;
            return None;
        };
        tally.ms_max = tally.ms_max.max(began.elapsed().as_millis());
        match code {
            BUSY => tally.busy += 1,
            _ => tally.done += 1,
        }
        drop(soaked);
        assert!(code == BUSY || allowed.contains(&code), "{args:?}: exit code {code}: {answer}{besides}");
        Some((code, serde_json::from_str(&answer).unwrap_or(Value::Null)))
    }

    /// Updates the model from `list` and asserts that nothing is missing. `began_with` is the state of the files when
    /// the last command began. Returns true if there is a new checkpoint.
    fn agree(&mut self, project: &mut Project, began_with: &Files, before: Option<&Before>) -> bool {
        let is_new = project.agree(&self.list(&project.dir), began_with, before);
        lock(&self.soak.soaked).taken += u64::from(is_new);
        is_new
    }

    fn list(&self, dir: &Path) -> Value {
        loop {
            let began = Instant::now();
            let args = ["rollback", "--json"];
            let done = self.ended(&args, sent(self.soak.command(dir), &args, b""), began, &[DONE, NOT_FOUND]);
            match done {
                Some((DONE, list)) => return list,
                // The store does not exist yet.
                Some((NOT_FOUND, _)) => return json!([]),
                _ => {}
            }
        }
    }

    fn take(&mut self) {
        let mut project = self.project();
        change(&project.dir, &mut self.dice);
        let args = ["take", "--json"];
        // Sometimes two takes at once: one of them finds nothing to do.
        let second = (self.dice.roll(8) == 0).then(|| start(self.soak.command(&project.dir), &args, b""));
        let began = Instant::now();
        let files = project.files();
        let first = self.run(&project.dir, &args, b"", &[DONE]);
        let second = second.and_then(|second| self.ended(&args, wait(second), began, &[DONE]));
        self.agree(&mut project, &files, None);
        for (code, report) in [first, second].into_iter().flatten() {
            self.note_taken(&project, code, &report, &files);
        }
    }

    fn note_taken(&self, project: &Project, code: i32, report: &Value, files: &Files) {
        let mut soaked = lock(&self.soak.soaked);
        soaked.take_ms_max = soaked.take_ms_max.max(report["elapsed_ms"].as_u64().unwrap_or(0));
        if code == BUSY {
            return;
        }
        if report["why"] == "store_full" {
            soaked.declined += 1;
            return;
        }
        let newest = project.known.last().unwrap_or_else(|| panic!("not taken: {report}"));
        assert_eq!(report["id"], newest.id.as_str(), "{report}");
        assert!(newest.files == *files, "{report}: {}", difference(&newest.files, files));
        let is_kept = report["outcome"] == "taken" && project.known.len() > SNAPSHOTS_MAX;
        assert!(!is_kept, "{}: {} are kept after {report}", project.dir.display(), project.known.len());
    }

    /// Sends the next event of an agent. The first prompt of a session gets a checkpoint, or else is recorded as
    /// unprotected.
    fn play_agent(&mut self) {
        let soak = self.soak;
        let mut project = self.project();
        if self.dice.roll(2) == 0 {
            change(&project.dir, &mut self.dice);
        }
        if self.agent.1 == soak.payloads[self.agent.0].len() || self.agent.2.is_empty() {
            let count = self.number();
            let session = format!("agent-{}-{count}", self.number);
            self.agent = (self.dice.roll(soak.payloads.len()), 0, session);
        }
        let (agent, sent, session) = &mut self.agent;
        let payloads = &soak.payloads[*agent];
        let (payload, session) = (&payloads[*sent], session.clone());
        let is_first_prompt = is_prompt(&payload.event) && !payloads[..*sent].iter().any(|one| is_prompt(&one.event));
        *sent += 1;
        let text = payload.about(&project.dir, &soak.sandbox.home(), &session);
        let files = project.files();
        let args = ["hook", &payload.agent, &payload.event];
        let done = self.run(&project.dir.clone(), &args, text.as_bytes(), &[DONE]);
        self.agree(&mut project, &files, None);
        if done.is_some() && is_first_prompt && project.known.last().is_none_or(|newest| newest.files != files) {
            let log = |name: &str| fs::read_to_string(soak.sandbox.base().join(name)).unwrap_or_default();
            let is_on_record = (log("piton.log") + &log("piton.log.1")).contains(&session);
            assert!(is_on_record, "{} {}: no checkpoint, and nothing on record", payload.agent, payload.event);
            lock(&soak.soaked).missed += 1;
        }
    }

    fn restore(&mut self) {
        let mut project = self.project();
        if project.known.is_empty() {
            return;
        }
        let target = project.known[self.dice.roll(project.known.len())].clone();
        let names: Vec<_> = target.files.keys().collect();
        let paths = if self.dice.roll(3) == 0 { vec![names[self.dice.roll(names.len())].clone()] } else { Vec::new() };
        let mut args = vec!["restore", &target.id, "-y", "--across-sessions", "--json"];
        args.extend(paths.iter().map(|path| std::str::from_utf8(path).expect("a name of ours")));
        self.go_back(&mut project, &args, &target.files, &Before { is_undo: false, paths: paths.clone() });
    }

    fn undo(&mut self) {
        let mut project = self.project();
        let verb = if self.dice.roll(3) == 0 { "redo" } else { "undo" };
        let last = project.known.iter().rev().find_map(|known| Some((known.files.clone(), known.before.clone()?)));
        let args = [verb, "-y", "--across-sessions", "--json"];
        match last.filter(|(_, before)| verb == "undo" || before.is_undo) {
            Some((target, before)) => {
                let before = Before { is_undo: verb == "undo", ..before };
                self.go_back(&mut project, &args, &target, &before);
            }
            None => {
                let dir = project.dir.clone();
                self.run(&dir, &args, b"", &[NOT_FOUND]);
            }
        }
    }

    /// Restores with this command. A killed restore is continued or aborted.
    fn go_back(&mut self, project: &mut Project, args: &[&str], target: &Files, before: &Before) {
        let dir = project.dir.clone();
        let had = project.files();
        let wanted = brought_back(&had, target, &before.paths);
        // Without a size limit no checkpoint in the list can be dropped; with one, the target may already be gone.
        let allowed: &[i32] = if project.has_size_limit { &[DONE, NOT_FOUND] } else { &[DONE] };
        let mut ended = self.run(&dir, args, b"", allowed);
        self.agree(project, &had, Some(before));
        // Possible states of the files when the restore is complete.
        let mut goals = vec![&wanted];
        let was_killed = ended.is_none();
        while was_killed && ended.as_ref().is_none_or(|(code, _)| *code == BUSY) {
            let now = project.files();
            let is_either = |(path, held): (&Vec<u8>, _)| [&had, &wanted].iter().any(|one| one.get(path) == Some(held));
            assert!(now.iter().all(is_either), "a file that is neither: {}", difference(&now, &wanted));
            // A take in between holds the files as they are and drops nothing that the restore needs.
            if self.dice.roll(4) == 0 {
                self.run(&dir, &["take", "--json"], b"", &[DONE]);
                self.agree(project, &now, None);
            }
            let end = self.dice.pick(&["--continue", "--abort"]);
            match end {
                "--abort" => goals = vec![&had],
                // `--continue` may resume an abort that was killed.
                _ if goals != [&wanted] => goals = vec![&had, &wanted],
                _ => {}
            }
            ended = self.run(&dir, &["restore", end, "-y", "--json"], b"", &[DONE, NOT_FOUND]);
            self.agree(project, &now, Some(before));
        }
        let now = project.files();
        if matches!(ended, Some((DONE, _))) {
            assert!(goals.contains(&&now), "{args:?} in {}: {}", dir.display(), difference(&now, goals[0]));
            lock(&self.soak.soaked).restored += 1;
        } else {
            // The restore had not begun, or was complete.
            assert!(now == had || now == wanted, "{args:?} in {}: {}", dir.display(), difference(&now, &wanted));
        }
    }

    /// Purges a path from all checkpoints.
    fn purge(&mut self) {
        let mut project = self.project();
        // The path is never written again: a restore leaves a purged path alone if it exists.
        let (dir, path) = (project.dir.clone(), format!("secret-{}", self.number()));
        fs::write(dir.join(&path), &path).expect("a file");
        let files = project.files();
        self.run(&dir, &["take", "--json"], b"", &[DONE]);
        self.agree(&mut project, &files, None);
        fs::remove_file(dir.join(&path)).expect("a file");
        let files = project.files();
        let done = self.run(&dir, &["purge", &path, "-y", "--json"], b"", &[DONE, PARTLY, NOT_FOUND]);
        let list = self.list(&dir);
        project.agree_after_purge(&list, path.as_bytes());
        let is_new = project.agree(&list, &files, None);
        assert!(!is_new, "a purge took a checkpoint");
        let still_has = project.known.iter().any(|known| known.files.contains_key(path.as_bytes()));
        assert!(done.is_none_or(|(code, _)| code == BUSY || !still_has), "{path} is still there");
    }

    /// Runs a read-only command on a project, usually that of another worker, or on everything.
    fn look(&mut self) {
        let other = self.dice.roll(self.soak.projects.len());
        let dir = self.soak.sandbox.root().join(format!("soak-{other}"));
        let number = (1 + self.dice.roll(SNAPSHOTS_MAX)).to_string();
        // The worker there may be doing anything: the requested checkpoint may not exist yet, or no longer.
        let (args, allowed): (&[&str], &[i32]) = match self.dice.roll(12) {
            0 => (&["rollback", "--json"], &[DONE, NOT_FOUND]),
            1 => (&["show", &number, "--json"], &[DONE, NOT_FOUND]),
            2 => (&["diff", &number, "--json"], &[DONE, NOT_FOUND]),
            3 => (&["diff", &number, "1", "--json"], &[DONE, NOT_FOUND]),
            // A restore may be unfinished there.
            4 => (&["restore", &number, "--dry-run", "--json"], &[DONE, 2, NOT_FOUND]),
            5 => (&["status", "--json"], &[DONE]),
            6 => (&["verify", "--json"], &[DONE, NOT_FOUND]),
            7 => (&["verify", "--read-data-subset", "30%", "--json"], &[DONE, NOT_FOUND]),
            8 => (&["prune", "--dry-run", "--json"], &[DONE]),
            9 => (&["config", "get", "max_snapshots", "--json"], &[DONE]),
            // No agent is hooked up, which `doctor` reports with exit code 1.
            10 => (&["doctor", "--json"], &[DONE, 1]),
            _ => (&["session", "gc", "--json"], &[DONE]),
        };
        let done = self.run(&dir, args, b"", allowed);
        if let (Some((DONE, said)), "session") = (done, args[0]) {
            assert_eq!(said["removed"], json!([]), "{said}");
        }
    }

    /// Runs maintenance commands on the store.
    fn keep_house(&mut self) {
        let root = self.soak.sandbox.root();
        if !self.soak.sandbox.store().join("HEAD").exists() {
            return;
        }
        let args: &[&str] = match self.dice.roll(20) {
            0 => &["repair", "--json"],
            1..=9 => &["maintain", "--json"],
            _ => &["prune", "--json"],
        };
        if let Some((DONE, report)) = self.run(&root, args, b"", &[DONE]) {
            assert!(report["errors"].as_u64().unwrap_or(0) == 0, "{report}");
            assert!(args[0] != "repair" || report["whole"] == true && report["lost"] == json!([]), "{report}");
        }
    }

    /// Takes a checkpoint of a short-lived project, whose checkpoints a later prune drops.
    fn pass_by(&mut self) {
        let dir = self.soak.sandbox.other_project(&format!("passing-{}", self.number));
        fs::write(dir.join("file"), self.dice.noise(BYTES_MAX)).expect("a file");
        self.run(&dir, &["take", "--json"], b"", &[DONE]);
        fs::remove_dir_all(dir).expect("a directory of ours");
    }

    /// Writes, updates, reads or removes a session record.
    fn note(&mut self) {
        let root: PathBuf = self.soak.sandbox.root();
        let number = self.number();
        if self.dice.roll(3) == 0 {
            let step = format!("{}-{number}", self.number);
            let given = json!({"progress": [{"step": step}]}).to_string();
            // A check resets the record, but never while this command runs.
            let done = self.run(&root, &["session", "update", SHARED, "--json"], given.as_bytes(), &[DONE]);
            let mut shared = lock(&self.soak.shared);
            let steps = if matches!(done, Some((DONE, _))) { &mut shared.certain } else { &mut shared.possible };
            steps.insert(step);
            return;
        }
        let name = format!("record-{}-{}", self.number, self.dice.roll(RECORDS));
        let had = self.records.get(&name).copied();
        let given = json!({"task": "soak", "state": {"number": number}}).to_string();
        let (verb, wanted) = match self.dice.roll(4) {
            0 => ("delete", None),
            1 if had.is_some() => ("update", Some(number)),
            2 => ("read", had),
            _ => ("write", Some(number)),
        };
        let allowed = if verb == "read" && had.is_none() { NOT_FOUND } else { DONE };
        let done = self.run(&root, &["session", verb, &name, "--json"], given.as_bytes(), &[allowed]);
        let args = ["session", "read", &name, "--json"];
        let (code, text, _) = sent(self.soak.command(&root), &args, b"");
        let record: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let found = record["record"]["state"]["number"].as_u64();
        assert!(code == Some(if found.is_some() { DONE } else { NOT_FOUND }), "{args:?}: {text}");
        match done {
            Some((BUSY, _)) => assert_eq!(found, had, "{verb} {name}: it gave way"),
            Some(_) => assert_eq!(found, wanted, "{verb} {name}"),
            None => assert!(found == had || found == wanted, "{verb} {name} was killed: {text}"),
        }
        match found {
            Some(found) => drop(self.records.insert(name, found)),
            None => drop(self.records.remove(&name)),
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.soak.failed.store(true, Ordering::Relaxed);
        }
    }
}

/// Every command that is run, under the name by which it is counted.
const NAMES: [&str; 17] = [
    "take", "hook", "restore", "undo", "redo", "purge", "rollback", "show", "diff", "status", "verify", "prune",
    "config", "doctor", "session", "repair", "maintain",
];

/// Returns true for an event that an agent sends when its user submits a prompt.
fn is_prompt(event: &str) -> bool {
    let names = ["UserPromptSubmit", "BeforeAgent", "userPromptSubmitted", "pre_llm_call", "chat.message"];
    names.contains(&event) || event == "beforeSubmitPrompt"
}

fn a_path(dice: &mut Dice) -> String {
    format!("d{}/f{}", dice.roll(4), dice.roll(FILES / 4))
}

/// Changes some files of a project: text that grows and changes by lines, random bytes, symlinks, directories that
/// appear and disappear.
fn change(dir: &Path, dice: &mut Dice) {
    for _ in 0..1 + dice.roll(4) {
        let name = dir.join(a_path(dice));
        fs::create_dir_all(name.parent().expect("a directory")).expect("a directory");
        match dice.roll(9) {
            0 => drop(fs::remove_file(&name)),
            1 => drop(fs::remove_dir_all(name.parent().expect("a directory"))),
            2 => {
                let _ = fs::remove_file(&name);
                std::os::unix::fs::symlink(format!("f{}", dice.roll(FILES)), &name).expect("a link");
            }
            3 | 4 => write(&name, &dice.noise(1 + dice.clone().roll(BYTES_MAX))),
            _ => {
                let mut text = fs::read(&name).unwrap_or_default();
                text.truncate(BYTES_MAX);
                let line = format!("line {} of {}\n", dice.roll(1_000_000), name.display());
                let at = dice.roll(text.len() + 1);
                text.splice(at..at, line.into_bytes());
                write(&name, &text);
            }
        }
    }
    // Never empty, and different each time.
    fs::write(dir.join("count"), dice.roll(usize::MAX >> 33).to_string()).expect("a file");
}

/// Writes a file; replaces a symlink instead of writing through it.
fn write(path: &Path, bytes: &[u8]) {
    if path.is_symlink() {
        fs::remove_file(path).expect("a link");
    }
    fs::write(path, bytes).expect("a file");
}
