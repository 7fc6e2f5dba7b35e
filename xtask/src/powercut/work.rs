//! The work that is interrupted: a user who edits files, and piton processes beside it, all on one disk.
//!
//! It contains every operation whose order of writes matters: first and later checkpoints of several projects,
//! restores, undos, reverts, histories truncated at their limit, packs that are merged, a project that is pruned, a store at its
//! size limit. The user syncs some edits and leaves others to the file system.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use testkit::Dice;

use super::disk::{Mounted, Recorder};
use super::model::{Files, History, ProjectThen, Step, Touches, difference, files_in};
use crate::measure::{self, isolated};

const PROJECTS: [&str; 3] = ["plain", "heavy", "passing"];
/// Low, so that histories are truncated often.
pub(super) const SNAPSHOTS_MAX: usize = 8;
/// Enough takes to create more packs than maintenance leaves alone.
const ROUNDS: usize = 36;
/// Round in which the project is created that is removed later.
const PASSING_COMES: usize = 10;
const ROUNDS_AT_LIMIT: usize = 6;
const UNTIL_OLD: Duration = Duration::from_millis(110);

/// The program under test; all of its files are on the disk that is cut.
pub(super) struct Piton {
    pub(super) program: PathBuf,
    pub(super) home: PathBuf,
    pub(super) root: PathBuf,
}

impl Piton {
    pub(super) fn store(&self) -> PathBuf {
        self.root.join("base/store")
    }

    /// Runs piton in a project and returns its output, whatever the exit code.
    pub(super) fn run(&self, project: &str, args: &[&str], env: &[(&str, String)]) -> Result<Output> {
        let mut command = self.command(project);
        command.envs(env.iter().map(|(name, value)| (name, value))).arg("--json").args(args);
        measure::output(&mut command)
    }

    fn command(&self, project: &str) -> Command {
        let mut command = isolated(&self.program, &self.home);
        command.env("TZ", "UTC").env("PITON_MAX_SNAPSHOTS", SNAPSHOTS_MAX.to_string()).env("PITON_AUTO_PRUNE", "false");
        command.arg("--base").arg(self.root.join("base")).arg("-C").arg(self.root.join(project));
        command
    }

    /// Sends an event to the hook of an agent.
    pub(super) fn hook(&self, project: &str, event: &Value) -> Result<()> {
        let mut command = self.command(project);
        command.env("PITON_ENABLED", "true").env("PITON_DEADLINE_MS", "10000").args(["hook", "claude"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().context("cannot start the hook")?;
        child.stdin.take().context("a pipe")?.write_all(event.to_string().as_bytes())?;
        ensure!(child.wait()?.success(), "the hook fails with nothing cut");
        Ok(())
    }

    /// Runs piton and returns the JSON it prints. Fails if the exit code is not 0.
    pub(super) fn json(&self, project: &str, args: &[&str]) -> Result<Value> {
        let output = self.run(project, args, &[])?;
        ensure!(output.status.success(), "piton {}: {}", args.join(" "), said(&output));
        serde_json::from_slice(&output.stdout).with_context(|| format!("piton {} prints no JSON", args.join(" ")))
    }

    /// Returns the ids of a project's checkpoints, newest first.
    pub(super) fn list(&self, project: &str) -> Result<Vec<String>> {
        let output = self.run(project, &["rollback"], &[])?;
        ensure!(output.status.success(), "piton rollback: {}", said(&output));
        ids_in(&output)
    }

    pub(super) fn git(&self) -> Command {
        let mut command = isolated("git", &self.home);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.arg("--git-dir").arg(self.store());
        command
    }
}

/// Returns the ids in a printed list.
pub(super) fn ids_in(printed: &Output) -> Result<Vec<String>> {
    let list: Value = serde_json::from_slice(&printed.stdout).context("piton rollback prints no JSON")?;
    let ids = list.as_array().into_iter().flatten().filter_map(|one| one["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// Returns the status and output of a process on one line.
pub(super) fn said(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().replace('\n', " "));
    format!("{} {:.500}", output.status, text.join(" ").trim())
}

/// Does all of the work and returns its history.
pub(super) fn work(piton: &Piton, mounted: &Mounted, recorder: &Recorder, dice: &mut Dice) -> Result<History> {
    let then = PROJECTS.map(|name| ProjectThen { name, files: None, is_synced: true, listed: Vec::new() });
    let mut work =
        Work { piton, mounted, recorder, dice, now: then.to_vec(), limit_mb: None, history: History::default() };
    mounted.sync()?;
    work.note("the beginning", Touches::Nothing)?;
    for project in ["plain", "heavy"] {
        work.begin_project(project)?;
        work.take(project)?;
    }
    for round in 0..ROUNDS {
        if round == PASSING_COMES {
            work.begin_project("passing")?;
            work.take("passing")?;
        }
        let project = PROJECTS[work.dice.roll(if round < PASSING_COMES { 2 } else { 3 })];
        work.edit(project)?;
        work.take(project)?;
        match work.dice.roll(11) {
            0 | 1 => work.restore(project, false)?,
            2 => work.restore(project, true)?,
            3 => work.undo(project, "undo")?,
            4 => work.undo(project, "redo")?,
            5 | 6 => work.revert(project, round)?,
            _ => {}
        }
    }
    fs::remove_dir_all(piton.root.join("passing"))?;
    mounted.sync()?;
    work.note("the user removes passing", Touches::Edits("passing"))?;
    work.prune()?;
    work.go_to_limit()?;
    work.prune()?;
    for project in ["heavy", "plain"] {
        work.edit(project)?;
        work.take(project)?;
        work.restore(project, false)?;
        work.undo(project, "undo")?;
    }
    Ok(work.history)
}

struct Work<'a> {
    piton: &'a Piton,
    mounted: &'a Mounted,
    recorder: &'a Recorder,
    dice: &'a mut Dice,
    now: Vec<ProjectThen>,
    limit_mb: Option<u64>,
    history: History,
}

impl Work<'_> {
    fn project(&mut self, name: &str) -> &mut ProjectThen {
        self.now.iter_mut().find(|project| project.name == name).expect("one of the projects")
    }

    fn dir(&self, project: &str) -> PathBuf {
        self.piton.root.join(project)
    }

    /// Records that a step has ended and was acknowledged, with the state of all projects.
    fn note(&mut self, what: &str, touches: Touches) -> Result<()> {
        let log_end = self.recorder.log_bytes()?;
        for at in 0..self.now.len() {
            let name = self.now[at].name;
            if touches.project() == Some(name) {
                self.now[at].files = files_in(&self.dir(name))?.map(Rc::new);
            }
            let is_there = self.now[at].files.is_some() && self.piton.store().exists();
            self.now[at].listed = if is_there { self.piton.list(name)? } else { Vec::new() };
        }
        self.history.steps.push(Step { what: what.to_owned(), touches, log_end, then: self.now.clone() });
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.mounted.sync()?;
        self.now.iter_mut().for_each(|project| project.is_synced = true);
        Ok(())
    }

    fn begin_project(&mut self, name: &'static str) -> Result<()> {
        let dir = self.dir(name);
        for sub in ["", "a", "b/c", "empty"] {
            fs::create_dir_all(dir.join(sub))?;
        }
        fs::write(dir.join(".gitignore"), "*.ig\n")?;
        fs::write(dir.join("kept.ig"), "not in any checkpoint")?;
        for number in 0..24 {
            fs::write(dir.join(file_name(number)), self.some_bytes(name))?;
        }
        self.sync()?;
        self.note(&format!("the user makes {name}"), Touches::Edits(name))
    }

    fn some_bytes(&mut self, project: &str) -> Vec<u8> {
        let size = if project == "heavy" { 8 << self.dice.roll(14) } else { self.dice.between(0, 9000) };
        self.dice.noise(size)
    }

    fn edit(&mut self, project: &'static str) -> Result<()> {
        let dir = self.dir(project);
        for _ in 0..self.dice.between(2, 7) {
            let path = dir.join(file_name(self.dice.roll(28)));
            let bytes = self.some_bytes(project);
            fs::create_dir_all(path.parent().context("it is below the project")?)?;
            let how = self.dice.roll(9);
            change_file(&path, &bytes, how)?;
        }
        let is_synced = self.dice.roll(2) == 0;
        if is_synced {
            self.sync()?;
        } else {
            self.project(project).is_synced = false;
            // A file that changed just before a scan is read again by the next scan in any case. Only older files are
            // looked up in the index.
            std::thread::sleep(UNTIL_OLD);
        }
        let synced = if is_synced { "" } else { " and syncs nothing" };
        self.note(&format!("the user edits {project}{synced}"), Touches::Edits(project))
    }

    fn take(&mut self, project: &'static str) -> Result<()> {
        let limit = self.limit_mb.map(|limit| ("PITON_MAX_TOTAL_SIZE_MB", limit.to_string()));
        let output = self.piton.run(project, &["take", "-m", "work"], limit.as_slice())?;
        let taken: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let id = taken["id"].as_str().map(str::to_owned);
        match (taken["outcome"].as_str(), &id) {
            (Some("taken"), Some(id)) => self.keep(id, project),
            (Some("unchanged" | "skipped"), _) => {}
            _ => bail!("a take fails with nothing cut: {}", said(&output)),
        }
        self.note(&format!("take in {project}"), Touches::Nothing)?;
        if taken["outcome"] == "taken" {
            let listed = &self.project(project).listed;
            ensure!(listed.first() == id.as_ref(), "what was just taken is not the newest of {project}");
        }
        Ok(())
    }

    /// Records the expected content of a checkpoint that was just taken.
    fn keep(&mut self, id: &str, project: &str) {
        if let Some(files) = self.project(project).files.clone() {
            self.history.contents.insert(id.to_owned(), files);
        }
    }

    fn restore(&mut self, project: &'static str, only_one_path: bool) -> Result<()> {
        let listed = self.project(project).listed.clone();
        let id = listed[self.dice.roll(listed.len())].clone();
        let target = Rc::clone(&self.history.contents[&id]);
        let mut args = vec!["restore", "-y", &id];
        let paths: Vec<_> = target.keys().filter_map(|path| str::from_utf8(path).ok()).collect();
        let is_file = |path: &&&str| path.contains("file");
        let files: Vec<_> = paths.iter().filter(is_file).collect();
        if only_one_path && !files.is_empty() {
            args.push(files[self.dice.roll(files.len())]);
        }
        let is_whole = args.len() == 3;
        let touches = if is_whole { Touches::Restores(project) } else { Touches::RestoresSome(project) };
        self.go_back(project, &args, touches)?;
        if is_whole {
            let now = self.project(project).files.clone().unwrap_or_default();
            let difference = difference(&now, &target);
            ensure!(difference.is_empty(), "a restore that nothing cut is wrong: {difference}");
        }
        Ok(())
    }

    fn undo(&mut self, project: &'static str, verb: &str) -> Result<()> {
        // The undone restore may have restored only some files.
        self.go_back(project, &[verb, "-y"], Touches::RestoresSome(project))
    }

    fn go_back(&mut self, project: &'static str, args: &[&str], touches: Touches) -> Result<()> {
        let output = self.piton.run(project, args, &[])?;
        let done: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        // Exit code 4: there is nothing to undo.
        let is_fine = output.status.success() || output.status.code() == Some(4);
        ensure!(is_fine, "piton {} fails with nothing cut: {}", args.join(" "), said(&output));
        if let Some(safety) = done["safety_id"].as_str() {
            self.keep(safety, project);
        }
        if done["outcome"] == "restored" {
            // A restore syncs the file system before it reports success.
            self.now.iter_mut().for_each(|project| project.is_synced = true);
        }
        self.note(&format!("{} in {project}", args[0]), touches)
    }

    /// Lets an agent work for two turns, and reverts the first one.
    fn revert(&mut self, project: &'static str, round: usize) -> Result<()> {
        let turns = ["first", "second"].map(|name| format!("{name}-{round}"));
        for turn in &turns {
            self.prompt(project, turn)?;
            self.edit(project)?;
        }
        let before = self.project(project).files.clone();
        // Both turns may have changed the same file.
        let args = ["revert", "-y", &turns[0], "--with-own-edits", "--skip-conflicts"];
        let output = self.piton.run(project, &args, &[])?;
        let done: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        ensure!(matches!(output.status.code(), Some(0 | 3)), "a revert fails with nothing cut: {}", said(&output));
        ensure!(done["left"].as_array().is_some_and(Vec::is_empty), "a revert leaves files: {}", said(&output));
        if done["safety_id"].is_string() {
            // A revert syncs the file system before it reports success.
            self.now.iter_mut().for_each(|project| project.is_synced = true);
        }
        self.note(&format!("revert in {project}"), Touches::RestoresSome(project))?;
        let ProjectThen { files: after, listed, .. } = self.project(project).clone();
        for id in listed {
            // The result holds the files after the revert, and what was saved first those before it.
            let files = if done["id"].as_str() == Some(&id) { &after } else { &before };
            if let Some(files) = files {
                self.history.contents.entry(id).or_insert_with(|| Rc::clone(files));
            }
        }
        Ok(())
    }

    /// Submits a prompt to an agent whose hook takes a checkpoint.
    fn prompt(&mut self, project: &'static str, turn: &str) -> Result<()> {
        let cwd = self.dir(project);
        let event = serde_json::json!({
            "session_id": project, "prompt_id": turn, "transcript_path": "/t", "cwd": cwd,
            "hook_event_name": "UserPromptSubmit", "prompt": "work",
        });
        self.piton.hook(project, &event)?;
        self.note(&format!("a prompt in {project}"), Touches::Nothing)?;
        let ProjectThen { files, listed, .. } = self.project(project).clone();
        if let (Some(files), Some(newest)) = (files, listed.first()) {
            self.history.contents.entry(newest.clone()).or_insert(files);
        }
        Ok(())
    }

    fn prune(&mut self) -> Result<()> {
        self.piton.json("plain", &["prune"])?;
        self.note("prune", Touches::Nothing)
    }

    /// Takes checkpoints in a full store: each take has to free space first.
    fn go_to_limit(&mut self) -> Result<()> {
        let status = self.piton.json("plain", &["status"])?;
        let bytes = status["store_size_bytes"].as_u64().context("a size")?;
        self.limit_mb = Some((bytes >> 20).max(2));
        for round in 0..ROUNDS_AT_LIMIT {
            let project = ["heavy", "heavy", "plain"][round % 3];
            self.edit(project)?;
            self.take(project)?;
        }
        self.limit_mb = None;
        Ok(())
    }
}

fn file_name(number: usize) -> String {
    format!("{}file{number}", ["", "a/", "b/c/"][number % 3])
}

/// Changes a file in one of the ways that programs do.
fn change_file(path: &Path, bytes: &[u8], how: usize) -> Result<()> {
    let is_file = path.symlink_metadata().is_ok_and(|stat| stat.is_file());
    if path.is_symlink() || (how == 0 && is_file) {
        fs::remove_file(path)?;
        return Ok(());
    }
    match how {
        1 => {
            let _ = fs::remove_file(path);
            symlink("kept.ig", path)?;
        }
        2 | 7 if is_file => {
            // In place, with the same length: only the timestamps show the change.
            let file = File::options().read(true).write(true).open(path)?;
            let bytes = &bytes[..bytes.len().min(usize::try_from(file.metadata()?.len())?)];
            file.write_all_at(bytes, 0)?;
        }
        3 => File::options().append(true).create(true).open(path)?.write_all(bytes)?,
        4 | 5 => {
            let temp = path.with_extension("new");
            fs::write(&temp, bytes)?;
            fs::rename(&temp, path)?;
        }
        6 if is_file => {
            let mode = if path.metadata()?.permissions().mode() & 0o100 == 0 { 0o755 } else { 0o644 };
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        _ => fs::write(path, bytes)?,
    }
    Ok(())
}

/// Returns the bytes of every file that a checkpoint must hold, with its `<id>:<path>` name in git.
pub(super) fn held<'a>(contents: &'a HashMap<String, Rc<Files>>, id: &'a str) -> Vec<(String, &'a [u8])> {
    let files = contents.get(id).map(|files| files.iter()).into_iter().flatten();
    let held = files.filter(|(path, (kind, _))| !kind.starts_with("dir") && !path.ends_with(b".ig"));
    held.map(|(path, (_, bytes))| (format!("{id}:{}", String::from_utf8_lossy(path)), bytes.as_slice())).collect()
}
