//! Starts `piton-remote`, the program that talks to object stores, and reads its answer: one JSON document on stdout,
//! lines of progress on stderr.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use piton::{Error, ErrorKind, Progress};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::output::{Failure, Output, Relayed};
use crate::platform;
use crate::progress::watch_remote;
use crate::remote::local::is_configured;

const PROGRAM: &str = "piton-remote";
/// Interval at which a cancellation is looked for.
const POLL: Duration = Duration::from_millis(50);
/// Number of bytes of an answer; more is not read.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// The program, in the same version as this one.
pub(crate) struct RemoteProgram {
    path: PathBuf,
    base: PathBuf,
}

/// A verb of the program with its options.
pub(crate) struct RemoteCall {
    words: Vec<OsString>,
    /// Text for its stdin.
    input: String,
}

impl RemoteCall {
    pub(crate) fn new(verb: &str) -> Self {
        Self { words: vec![verb.into()], input: String::new() }
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, value: impl AsRef<OsStr>) -> Self {
        self.words.push(value.as_ref().to_owned());
        self
    }

    /// Adds an option, if it has a value. `name` is with its dashes.
    pub(crate) fn option(mut self, name: &str, value: Option<impl AsRef<OsStr>>) -> Self {
        if let Some(value) = value {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value.as_ref());
            self.words.push(word);
        }
        self
    }

    /// Adds an option without a value, if it is set.
    pub(crate) fn flag(mut self, name: &str, is_set: bool) -> Self {
        self.words.extend(is_set.then(|| name.into()));
        self
    }

    /// Gives the program a text on stdin.
    pub(crate) fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }
}

/// Output of the program.
struct RawAnswer {
    stdout: Vec<u8>,
    /// Other lines on stderr.
    said: String,
    /// Warnings for the user.
    warnings: Vec<String>,
    status: ExitStatus,
    was_cancelled: bool,
}

impl RawAnswer {
    fn parse<T: DeserializeOwned>(self) -> anyhow::Result<T> {
        if let Ok(answer) = serde_json::from_slice::<ErrorAnswer>(&self.stdout) {
            let ErrorBody { kind, message, hint } = answer.error;
            return Err(Relayed(Failure { kind, message, hint }).into());
        }
        if self.status.success()
            && let Ok(answer) = serde_json::from_slice(&self.stdout)
        {
            return Ok(answer);
        }
        if self.was_cancelled {
            return Err(Error::new(ErrorKind::Stopped, "go on")
                .because("stopped; what was sent or received so far is whole")
                .into());
        }
        let why = if self.said.is_empty() { self.status.to_string() } else { self.said };
        Err(Error::new(ErrorKind::Io, format!("read the answer of {PROGRAM}")).because(why).into())
    }
}

/// Lines on stderr that are not progress.
#[derive(Default)]
struct SaidLines {
    warnings: Vec<String>,
    others: String,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct ErrorBody {
    kind: String,
    message: String,
    hint: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StderrLine {
    Progress { done: u64, total: u64 },
    Warning { warning: String },
}

impl RemoteProgram {
    /// Returns the path of the program: beside this one, else on the search path.
    pub(crate) fn path() -> Option<PathBuf> {
        let beside = env::current_exe().ok().map(|own| own.with_file_name(PROGRAM)).filter(|path| path.is_file());
        beside.or_else(|| Context::on_search_path(PROGRAM))
    }

    /// Finds the program for a store that has a remote. Fails with `NotFound` if it has none: that creates nothing.
    pub(crate) fn of(context: &Context) -> piton::Result<Self> {
        if !context.existing_store()?.is_some_and(|store| is_configured(&store)) {
            return Err(Error::new(ErrorKind::NotFound, "find a remote")
                .because("none was added")
                .with_hint("`piton remote add URL` adds one, such as s3://bucket/piton or file:///mnt/disk/piton"));
        }
        Self::find(&context.base)
    }

    /// Finds the program, and checks that it has the version of this one. Fails with `NotFound` if it is not installed,
    /// with `Invalid` if the versions differ.
    pub(crate) fn find(base: &Path) -> piton::Result<Self> {
        let path = Self::path().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("find the program {PROGRAM}"))
                .because("it is neither beside piton nor on the search path")
                .with_hint(NOT_INSTALLED)
        })?;
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| Error::io("start", &path, error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (own, theirs) = (env!("CARGO_PKG_VERSION"), text.trim().strip_prefix("piton-remote ").unwrap_or("unknown"));
        if own != theirs {
            return Err(Error::new(ErrorKind::Invalid, "use")
                .with_path(&path)
                .because(format!("its version is {theirs}, and that of piton is {own}"))
                .with_hint("install both from the same release"));
        }
        Ok(Self { path, base: base.to_owned() })
    }

    /// Returns a command line of the program.
    pub(crate) fn command(&self, call: &RemoteCall) -> Command {
        let mut command = Command::new(&self.path);
        command.arg("--base").arg(&self.base).args(&call.words);
        command
    }

    /// Runs the program and returns its answer. Shows its progress; the first signal ends it. Fails with the error that
    /// it reports, or with `Stopped`.
    pub(crate) fn ask<T: DeserializeOwned>(&self, call: &RemoteCall, output: &Output) -> anyhow::Result<T> {
        let answer = watch_remote(output, |progress| self.run(call, progress))?;
        for warning in &answer.warnings {
            output.warn(warning);
        }
        answer.parse()
    }

    /// Like [`Self::ask`], but only counts the progress, and ends the program when that is cancelled. Returns the warnings
    /// with the answer.
    pub(crate) fn ask_with<T: DeserializeOwned>(
        &self,
        call: &RemoteCall,
        progress: &Progress,
    ) -> anyhow::Result<(T, Vec<String>)> {
        let mut answer = self.run(call, progress)?;
        let warnings = std::mem::take(&mut answer.warnings);
        Ok((answer.parse()?, warnings))
    }

    fn run(&self, call: &RemoteCall, progress: &Progress) -> piton::Result<RawAnswer> {
        let failed = |error| Error::io("start", &self.path, error);
        let mut command = self.command(call);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that has ended does not read it; its answer says why.
            let _ = stdin.write_all(call.input.as_bytes());
        }
        let (stdout, said, was_cancelled) = follow(&mut child, progress).map_err(failed)?;
        let status = child.wait().map_err(failed)?;
        Ok(RawAnswer { stdout, said: said.others, warnings: said.warnings, status, was_cancelled })
    }
}

/// Hint for a program that is not installed.
pub(crate) const NOT_INSTALLED: &str =
    "the packages of piton carry it; from source, `cargo install --path crates/piton-remote` installs it";

/// Reads the output of the program until its end, and passes a cancellation on to it.
fn follow(child: &mut Child, progress: &Progress) -> std::io::Result<(Vec<u8>, SaidLines, bool)> {
    let (stdout, stderr, pid) = (child.stdout.take(), child.stderr.take(), child.id());
    thread::scope(|threads| {
        let (done, is_done) = channel();
        let spawned = thread::Builder::new().spawn_scoped(threads, move || {
            let mut bytes = Vec::new();
            let read = stdout.map(|stdout| stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes));
            let _ = done.send(read.transpose().map(|_| bytes));
        });
        let said = thread::Builder::new().spawn_scoped(threads, move || follow_progress(stderr, progress));
        if spawned.is_err() || said.is_err() {
            platform::terminate(pid);
        }
        spawned?;
        let said = said?;
        let mut was_cancelled = false;
        let bytes = loop {
            match is_done.recv_timeout(POLL) {
                Ok(bytes) => break bytes?,
                Err(RecvTimeoutError::Timeout) if progress.is_cancelled() && !was_cancelled => {
                    was_cancelled = true;
                    platform::terminate(pid);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Vec::new(),
            }
        };
        let said = said.join().unwrap_or_default();
        Ok((bytes, said, was_cancelled || progress.is_cancelled()))
    })
}

/// Counts the progress that the program reports. Returns its warnings, and the last lines that are anything else.
fn follow_progress(stderr: Option<impl Read>, progress: &Progress) -> SaidLines {
    const LINES_MAX: usize = 5;
    let (mut others, mut warnings): (Vec<String>, _) = (Vec::new(), Vec::new());
    for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines()) {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            Ok(StderrLine::Warning { warning }) => warnings.push(warning),
            Ok(StderrLine::Progress { done, total }) => {
                progress.store_bytes.store(total, Ordering::Relaxed);
                progress.store_bytes_done.store(done, Ordering::Relaxed);
            }
            Err(_) => others.push(line),
        }
        if others.len() > LINES_MAX {
            others.remove(0);
        }
    }
    SaidLines { warnings, others: others.join(" ").trim().to_owned() }
}
