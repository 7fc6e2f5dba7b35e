//! A scratch home with a project, an agent, the scripted model and piton; everything that a scenario touches is in it.

use std::cell::Cell;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use testkit::state::{State, state_of};

use super::agent::Agent;
use super::install::Cache;
use super::model::Model;
use super::tools::Step;

/// A headless run that takes longer is killed. Agents are slow on a busy machine.
const RUN_SECONDS_MAX: u64 = 240;
const POLL: Duration = Duration::from_millis(50);

pub(super) struct Scratch {
    pub(super) agent: &'static dyn Agent,
    pub(super) root: PathBuf,
    pub(super) home: PathBuf,
    pub(super) project: PathBuf,
    pub(super) model: Model,
    path: String,
    session: Option<String>,
    runs: usize,
    /// Number of turns in terminals.
    turns: Cell<usize>,
}

/// The result of a program.
pub(super) struct Ran {
    pub(super) status: ExitStatus,
    pub(super) out: String,
    pub(super) err: String,
}

impl Ran {
    /// Fails unless the exit code is 0.
    pub(super) fn ok(self, what: &str) -> Result<Self> {
        let (out, err) = (self.out.trim(), self.err.trim());
        ensure!(self.status.success(), "{what}: {}: {}", self.status, tail(if err.is_empty() { out } else { err }));
        Ok(self)
    }
}

fn tail(text: &str) -> String {
    let start = text.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    text[start..].replace('\n', " | ")
}

/// A row of `piton rollback --json`.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) number: u64,
    pub(super) short_id: String,
    pub(super) reason: String,
    pub(super) kind: String,
    /// Newest first; `None` if the program does not list prompts.
    pub(super) prompts: Option<Vec<Prompt>>,
}

#[derive(Debug, Clone)]
pub(super) struct Prompt {
    pub(super) agent: String,
    pub(super) session: String,
    pub(super) turn: String,
    /// Version of the agent; empty if piton does not know it.
    pub(super) version: String,
    pub(super) words: String,
}

impl Scratch {
    pub(super) fn new(root: PathBuf, agent: &'static dyn Agent, cache: &Cache, piton: &Path) -> Result<Self> {
        let home = root.join("home/u");
        let project = home.join("p");
        for dir in [&project, &root.join("bin"), &root.join("tmp"), &root.join("log/hooks")] {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        fs::copy(piton, root.join("bin/piton")).with_context(|| format!("cannot copy {}", piton.display()))?;
        let mut path = vec![root.join("bin")];
        path.extend(cache.programs(agent));
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let path = std::env::join_paths(path)?.to_string_lossy().into_owned();
        let model = Model::start(project.display().to_string(), root.join("log/requests"), agent.background())?;
        let scratch = Self { agent, root, home, project, model, path, session: None, runs: 0, turns: Cell::new(0) };
        scratch.make_project()?;
        agent.configure(&scratch)?;
        Ok(scratch)
    }

    /// Adds another agent in the same home and project, installs its hooks, and continues with it.
    pub(super) fn add_agent(&mut self, agent: &'static dyn Agent, cache: &Cache) -> Result<()> {
        cache.programs(agent).iter().rev().try_for_each(|dir| self.search_first(dir))?;
        self.switch_to(agent);
        agent.configure(self)?;
        self.install()?;
        agent.approve_hooks(self)
    }

    /// Makes the programs of a directory come before all others.
    pub(super) fn search_first(&mut self, dir: &Path) -> Result<()> {
        let mut path = vec![dir.to_owned()];
        path.extend(std::env::split_paths(&self.path));
        self.path = std::env::join_paths(path)?.to_string_lossy().into_owned();
        Ok(())
    }

    /// Continues with another agent, in a new session.
    pub(super) fn switch_to(&mut self, agent: &'static dyn Agent) {
        (self.agent, self.session) = (agent, None);
    }

    /// Creates files of all kinds: modes, links, empty directories, bytes, names, ignored and not committed.
    fn make_project(&self) -> Result<()> {
        let files: [(&str, &[u8]); 9] = [
            ("README.md", b"alpha\n"),
            ("src/main.rs", b"fn main() {}\n"),
            ("src/lib/deep/x.rs", b"// deep\n"),
            ("src/a b.txt", b"space\n"),
            ("run.sh", b"#!/bin/sh\necho run\n"),
            ("secret.txt", b"s\n"),
            ("\u{fc}n\u{ef} c\u{f6}d\u{e9}.txt", b"unicode\n"),
            ("ignored/i.txt", b"ignored\n"),
            (".gitignore", b"ignored/\n*.log\n"),
        ];
        for (path, bytes) in files {
            self.write_project(path, bytes)?;
        }
        let bytes: Vec<u8> = (0..=255).cycle().take(16 << 10).collect();
        self.write_project("bytes.dat", &bytes)?;
        fs::create_dir_all(self.project.join("empty"))?;
        fs::create_dir_all(self.project.join("src/empty"))?;
        fs::set_permissions(self.project.join("run.sh"), Permissions::from_mode(0o755))?;
        fs::set_permissions(self.project.join("secret.txt"), Permissions::from_mode(0o600))?;
        symlink("README.md", self.project.join("link"))?;
        symlink("/nonexistent/x", self.project.join("dangling"))?;
        symlink("src", self.project.join("dirlink"))?;
        for line in
            ["git init -q -b main", "git add -A", "git -c user.name=test -c user.email=test@test commit -qm first"]
        {
            self.run_shell(line)?.ok(line)?;
        }
        self.write_project("src/main.rs", b"fn main() { /* not committed */ }\n")?;
        self.write_project("untracked.txt", b"never committed\n")
    }

    pub(super) fn project_name(&self) -> String {
        self.project.display().to_string()
    }

    pub(super) fn write_project(&self, path: &str, bytes: &[u8]) -> Result<()> {
        write(&self.project.join(path), bytes)
    }

    pub(super) fn write_home(&self, path: &str, text: &str) -> Result<()> {
        write(&self.home.join(path), text.as_bytes())
    }

    /// Returns the directory that holds the store.
    pub(super) fn base(&self) -> PathBuf {
        self.home.join(".hermes/checkpoints")
    }

    /// Returns the project's files, without `.git`.
    pub(super) fn state(&self) -> State {
        let mut state = state_of(&self.project);
        state.retain(|path, _| path != b".git" && !path.starts_with(b".git/"));
        state
    }

    /// Returns the environment of everything that runs here.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("HOME", self.home.display().to_string()),
            ("PATH", self.path.clone()),
            ("TMPDIR", self.root.join("tmp").display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
            ("SHELL", "/bin/bash".to_owned()),
            ("USER", "u".to_owned()),
            ("DO_NOT_TRACK", "1".to_owned()),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
            ("NO_PROXY", "127.0.0.1,localhost".to_owned()),
            ("no_proxy", "127.0.0.1,localhost".to_owned()),
        ];
        all.extend(self.agent.environment(self));
        all
    }

    /// Counts a turn in a terminal, and returns its number.
    pub(super) fn next_turn(&self) -> usize {
        self.turns.set(self.turns.get() + 1);
        self.turns.get()
    }

    fn run_shell(&self, line: &str) -> Result<Ran> {
        self.run(&["bash", "-c", line].map(str::to_owned), "shell")
    }

    /// Runs a program in the project, in its own process group, and kills the group on timeout. The output is written
    /// to files, so that a child left behind does not block the caller.
    pub(super) fn run(&self, line: &[String], log: &str) -> Result<Ran> {
        self.run_until(line, log, || false)
    }

    /// Like [`Self::run`], but kills the group with SIGKILL once `is_time` returns true.
    pub(super) fn run_until(&self, line: &[String], log: &str, is_time: impl Fn() -> bool) -> Result<Ran> {
        let (out, err) = (self.root.join(format!("log/{log}.out")), self.root.join(format!("log/{log}.err")));
        let (program, arguments) = line.split_first().context("no program")?;
        let mut command = Command::new(find(program, &self.path));
        command.args(arguments).current_dir(&self.project).env_clear().envs(self.environment());
        command.env("TERM", "dumb").env("NO_COLOR", "1").env("PWD", &self.project);
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let is_time = is_time();
            if is_time || began.elapsed() > Duration::from_secs(RUN_SECONDS_MAX) {
                let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                group.map(|group| kill_process_group(group, Signal::KILL)).transpose()?;
                let status = child.wait()?;
                if is_time {
                    break status;
                }
                bail!("{} did not end within {RUN_SECONDS_MAX} s: see {}", line.join(" "), out.display());
            }
            thread::sleep(POLL);
        };
        Ok(Ran { status, out: read_text(&out)?, err: read_text(&err)? })
    }

    /// Runs piton in the project as a user does in a shell.
    pub(super) fn piton(&self, arguments: &[&str]) -> Result<Ran> {
        let mut line = vec!["piton".to_owned()];
        line.extend(arguments.iter().map(|&word| word.to_owned()));
        self.run(&line, "piton")
    }

    pub(super) fn piton_json(&self, arguments: &[&str]) -> Result<Value> {
        let mut line = vec!["--json"];
        line.extend(arguments);
        let what = format!("piton {}", line.join(" "));
        let ran = self.piton(&line)?.ok(&what)?;
        serde_json::from_str(&ran.out).with_context(|| format!("{what} printed {}", tail(&ran.out)))
    }

    /// Installs the hooks with `piton install`.
    pub(super) fn install(&self) -> Result<()> {
        let mut line = vec!["install", self.agent.package().name];
        line.extend(self.agent.install_options());
        self.piton(&line)?.ok("piton install").map(drop)
    }

    /// Installs the hooks, gives the consent that the agent asks for, and records the input and output of each hook.
    pub(super) fn protect(&self) -> Result<()> {
        self.install()?;
        self.agent.approve_hooks(self)?;
        self.record_hooks()
    }

    /// Replaces the installed program by a script that records the input and output of each hook.
    pub(super) fn record_hooks(&self) -> Result<()> {
        let (program, real) = (self.root.join("bin/piton"), self.root.join("bin/piton.real"));
        let logs = self.root.join("log/hooks");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = hook ] || exec '{real}' \"$@\"\nlog='{logs}'/$(date +%s.%N)-$$\nmkdir -p \"$log\"\n\
             echo \"$*\" > \"$log/arguments\"\nenv > \"$log/env\"\ncat > \"$log/stdin\"\n\
             '{real}' \"$@\" < \"$log/stdin\" > \"$log/stdout\" 2> \"$log/stderr\"\ncode=$?\n\
             echo $code > \"$log/exit\"\ncat \"$log/stdout\"\ncat \"$log/stderr\" >&2\nexit $code\n",
            real = real.display(),
            logs = logs.display(),
        );
        fs::rename(&program, &real)?;
        fs::write(&program, script)?;
        Ok(fs::set_permissions(&program, Permissions::from_mode(0o755))?)
    }

    /// Replaces the installed program by a script that records the arguments of each call. Returns the file with them.
    pub(super) fn record_calls(&self) -> Result<PathBuf> {
        let (program, real) = (self.root.join("bin/piton"), self.root.join("bin/piton.real"));
        let log = self.root.join("log/calls");
        let script = format!("#!/bin/sh\necho \"$*\" >> '{}'\nexec '{}' \"$@\"\n", log.display(), real.display());
        fs::rename(&program, &real)?;
        fs::write(&program, script)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        Ok(log)
    }

    /// Removes the script again.
    pub(super) fn stop_recording(&self) -> Result<()> {
        match fs::rename(self.root.join("bin/piton.real"), self.root.join("bin/piton")) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => Ok(other?),
        }
    }

    /// Returns the hook calls so far: directories with `arguments`, `env`, `stdin`, `stdout`, `stderr` and `exit`,
    /// oldest first.
    pub(super) fn hook_calls(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.root.join("log/hooks"))?;
        let mut all = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        all.sort();
        Ok(all)
    }

    /// Gives the agent one prompt without a terminal, in the session of the previous run if there was one, and checks
    /// that the turn has ended.
    pub(super) fn prompt(&mut self, prompt: &str, steps: Vec<Step>) -> Result<()> {
        self.runs += 1;
        let ending = format!("That was turn {}.", self.runs);
        self.model.set_script(prompt, steps, &ending);
        let line = self.agent.headless(prompt, self.session.as_deref());
        self.run_prompt(prompt, &line)
    }

    /// Gives the agent one prompt in a fork of the session that the agent makes itself, and continues there.
    pub(super) fn prompt_in_fork(&mut self, prompt: &str, steps: Vec<Step>) -> Result<()> {
        self.runs += 1;
        self.model.set_script(prompt, steps, &format!("That was turn {}.", self.runs));
        let old = self.session.take().context("no session")?;
        let line = self.agent.headless_fork(prompt, &old).context("the agent makes no forks")?;
        self.run_prompt(prompt, &line)?;
        ensure!(self.session.as_ref() != Some(&old), "the agent made no fork");
        Ok(())
    }

    fn run_prompt(&mut self, prompt: &str, line: &[String]) -> Result<()> {
        let log = format!("run-{}", self.runs);
        let ran = self.run(line, &log)?.ok(&line.join(" "))?;
        self.session = self.agent.session(&format!("{}\n{}", ran.out, ran.err)).or_else(|| self.session.take());
        ensure!(self.session.is_some(), "no session in what `{prompt}` printed: log/{log}.out");
        let calls = self.model.calls();
        ensure!(
            calls.iter().any(|call| call.holds(prompt)),
            "no request to the model held the prompt `{prompt}`: log/{log}.out"
        );
        Ok(())
    }

    /// Gives the agent one prompt without a terminal, to which the model answers with an error after these steps.
    pub(super) fn fail_during(&mut self, prompt: &str, steps: Vec<Step>) -> Result<()> {
        self.runs += 1;
        self.model.set_failing_script(prompt, steps);
        let line = self.agent.headless(prompt, self.session.as_deref());
        self.run(&line, &format!("run-{}", self.runs))?;
        Ok(())
    }

    /// Gives the agent one prompt without a terminal, and kills it once the file `begun` is in the project.
    pub(super) fn kill_during(&mut self, prompt: &str, steps: Vec<Step>, begun: &str) -> Result<()> {
        self.runs += 1;
        self.model.set_script(prompt, steps, "That was not reached.");
        let line = self.agent.headless(prompt, self.session.as_deref());
        let file = self.project.join(begun);
        let ran = self.run_until(&line, &format!("run-{}", self.runs), || file.exists())?;
        ensure!(file.exists(), "the agent did not run the command: {}", tail(&ran.err));
        Ok(())
    }

    /// Returns the session of the last prompt.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Makes the next prompt continue a session, or begin one.
    pub(super) fn continue_in(&mut self, session: Option<&str>) {
        self.session = session.map(str::to_owned);
    }

    /// Makes the next prompt begin a new session.
    pub(super) fn forget_session(&mut self) {
        self.session = None;
    }

    pub(super) fn rows(&self) -> Result<Vec<Row>> {
        let listed = self.piton_json(&["rollback"])?;
        let rows = listed.as_array().context("`piton rollback --json` is not a list")?;
        Ok(rows.iter().map(row).collect())
    }

    /// Returns the short ids of the rows that prompts began, newest first.
    pub(super) fn prompt_ids(&self) -> Result<Vec<String>> {
        let rows = self.rows()?.into_iter();
        Ok(rows.filter(|row| row.kind == "auto" && row.reason.starts_with("prompt")).map(|row| row.short_id).collect())
    }

    /// Returns the newest row at which a prompt with this text began.
    pub(super) fn row_of(&self, prompt: &str) -> Result<Row> {
        let rows = self.rows()?;
        let is_it = |row: &&Row| match &row.prompts {
            Some(prompts) => prompts.iter().any(|one| one.words == prompt),
            None => row.reason.contains(prompt),
        };
        let found = rows.iter().find(is_it).cloned();
        found.with_context(|| format!("no row for the prompt `{prompt}`: {}", shown(&rows)))
    }
}

impl Drop for Scratch {
    /// Kills the processes that an agent left running from a copy of itself in here, such as the server of Codex.
    fn drop(&mut self) {
        let own = self.root.clone();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let is_inside = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe.starts_with(&own));
            let pid = entry.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            if let (true, Some(pid)) = (is_inside, pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Formats rows briefly, for messages.
pub(super) fn shown(rows: &[Row]) -> String {
    let one = |row: &Row| {
        let prompts = row.prompts.iter().flatten().map(|prompt| prompt.words.as_str()).collect::<Vec<_>>();
        format!("{}. {} {:?} {prompts:?}", row.number, row.kind, row.reason)
    };
    rows.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn row(value: &Value) -> Row {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let prompt = |value: &Value| Prompt {
        agent: text(&value["agent"]),
        session: text(&value["session"]),
        turn: text(&value["turn"]),
        version: text(&value["agent_version"]),
        words: text(&value["prompt"]),
    };
    Row {
        number: value["number"].as_u64().unwrap_or_default(),
        short_id: text(&value["short_id"]),
        reason: text(&value["reason"]),
        kind: text(&value["kind"]),
        prompts: value["prompts"].as_array().map(|prompts| prompts.iter().map(prompt).collect()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

pub(super) fn read_text(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the program of that name in `path`, which is not the `PATH` of this process.
fn find(program: &str, path: &str) -> PathBuf {
    let found = std::env::split_paths(path).map(|dir| dir.join(program)).find(|file| file.is_file());
    found.unwrap_or_else(|| program.into())
}
