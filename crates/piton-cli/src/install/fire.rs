//! Test of a hook: calls it as its agent would, and checks the result.
//!
//! The event is synthetic, and its project and base are in a temporary directory: no file of the user is touched.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use piton::{History, Project, Store};
use serde_json::Value;

use crate::agents::Agent;
use crate::agents::setup::TIMEOUT_SECS;
use crate::shell;

/// Interval at which the child process is polled.
const POLL: Duration = Duration::from_millis(2);

/// Calls the hook of an agent with a prompt, and returns the time that it took. Fails with a message if the hook fails,
/// answers anything that would stop the agent, or takes no checkpoint.
pub(crate) fn fire(agent: Agent, command: &str) -> Result<Duration, String> {
    let temp = tempfile::Builder::new().prefix("piton-doctor-").tempdir();
    let temp = temp.map_err(|error| format!("there is no temporary directory: {error}"))?;
    let root = temp.path().canonicalize().map_err(|error| error.to_string())?;
    let (project, base) = (root.join("project"), root.join("base"));
    fs::create_dir(&project)
        .and_then(|()| fs::write(project.join("file.txt"), "piton doctor\n"))
        .map_err(|error| format!("the temporary directory cannot be used: {error}"))?;
    let began = Instant::now();
    let command = shell::with_option(command, "--base", &base.to_string_lossy());
    let answer = call(agent, &command, &project, &base)?;
    let elapsed = began.elapsed();
    answer.check()?;
    let store = Store::open_existing(&base).map_err(|error| error.to_string())?;
    let taken = store.map(|store| {
        let project = Project::at(&project, None)?;
        Ok::<_, piton::Error>(!History::of(&store, &project)?.checkpoints().is_empty())
    });
    match taken.transpose().map_err(|error| error.to_string())? {
        Some(true) => Ok(elapsed),
        _ => Err("it ran, but took no checkpoint".to_owned()),
    }
}

pub(super) struct FiredAnswer {
    code: Option<i32>,
    pub(super) stdout: String,
    stderr: String,
}

impl FiredAnswer {
    /// Fails with a message if any agent would not continue after this answer.
    fn check(&self) -> Result<(), String> {
        if self.code != Some(0) {
            let how = self.code.map_or("was killed".to_owned(), |code| format!("ended with code {code}"));
            return Err(format!("it {how}: {}", first_line(&self.stderr)));
        }
        if !self.stderr.trim().is_empty() {
            return Err(format!("it wrote to stderr: {}", first_line(&self.stderr)));
        }
        if self.stdout.trim().is_empty() {
            return Ok(());
        }
        let answer: Value = serde_json::from_str(&self.stdout)
            .map_err(|_| format!("its answer is not JSON: {}", first_line(&self.stdout)))?;
        let stops = |key: &str| matches!(answer[key].as_str(), Some("block" | "deny" | "ask"));
        if stops("decision") || stops("permission") {
            return Err(format!("its answer stops the agent: {}", first_line(&self.stdout)));
        }
        Ok(())
    }
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or("(no words)")
}

fn call(agent: Agent, line: &str, project: &Path, base: &Path) -> Result<FiredAnswer, String> {
    let mut command = if agent.checks.runs_without_shell {
        let words = shell::words(line).ok_or("its quotes do not end")?;
        let (program, args) = words.split_first().ok_or("it is empty")?;
        let mut command = Command::new(program);
        command.args(args);
        command
    } else {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    };
    command.env("PITON_BASE", base).env("PITON_ENABLED", "true").current_dir(project);
    let text = (agent.checks.payload)(agent.prompt_event(), &project.to_string_lossy()).to_string();
    answer(&mut command, text.as_bytes())
}

/// Runs a program with this input, within the time that agents give a hook.
pub(super) fn answer(command: &mut Command, input: &[u8]) -> Result<FiredAnswer, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    // A hook that does not read its input is detected by its answer.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input));
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let code = wait(&mut child)?;
    let text = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(FiredAnswer { code, stdout: text(stdout), stderr: text(stderr) })
}

fn drain(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            let _ = from.take(1 << 20).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns the exit code; `None` if a signal ended the process. Kills it after the timeout that agents get.
fn wait(child: &mut Child) -> Result<Option<i32>, String> {
    let deadline = Instant::now() + Duration::from_secs(TIMEOUT_SECS);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.code()),
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(format!("it took more than {TIMEOUT_SECS} seconds"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}
