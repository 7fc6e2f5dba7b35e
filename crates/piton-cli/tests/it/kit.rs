//! Running the command in a sandbox, directly or under `strace`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Sandbox, clean_command, files_in, walk};

use crate::schema;

/// The program under test: the one that was built with the tests, unless another one is named when they are compiled.
pub(crate) const PITON: &str = match option_env!("PITON_UNDER_TEST") {
    Some(path) => path,
    None => env!("CARGO_BIN_EXE_piton"),
};

/// Result of a process.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Returns a value of the status of a process.
pub(crate) fn status(process: &str, key: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it has not been waited for");
    status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned()
}

/// Returns true if the signal is in a mask of a status.
pub(crate) fn has_signal(mask: &str, signal: Signal) -> bool {
    u64::from_str_radix(mask, 16).expect("a mask") & 1 << (signal.as_raw() - 1) != 0
}

/// Returns the command, in a process that does not ignore Ctrl-C. The tests may run in the background of a shell, which
/// makes them and the programs that they start ignore it.
pub(crate) fn interruptible(command: &Command) -> Command {
    let is_ignored = has_signal(&status("self", "SigIgn:"), Signal::INT);
    let mut same = clean_command(if is_ignored { "env".as_ref() } else { command.get_program() });
    if is_ignored {
        same.arg("--default-signal=INT").arg(command.get_program());
    }
    same.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    same.current_dir(command.get_current_dir().expect("each command names its directory"));
    same
}

/// Starts a command with pipes for stdin, stdout and stderr.
pub(crate) fn spawn_piped(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the command prints UTF-8 only");
        Self { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ran {
    /// Returns the exit code. Panics if the process was killed.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("killed: {self:?}"))
    }

    pub(crate) fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Returns the one line of JSON on stdout.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that the command succeeded.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code(), 0, "{self:?}");
        self
    }

    /// Asserts that the command failed with this code, and printed an error in the usual form.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        self
    }
}

/// Returns the command in the sandbox's project, with the sandbox's home and nothing else in its environment.
pub(crate) fn command(sandbox: &Sandbox) -> Command {
    in_dir(sandbox, &sandbox.project())
}

/// Like [`command`], in any directory.
pub(crate) fn in_dir(sandbox: &Sandbox, dir: &Path) -> Command {
    let mut command = clean_command(PITON);
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(dir);
    command
}

/// Runs piton in the sandbox's project.
pub(crate) fn piton<S: AsRef<OsStr>>(sandbox: &Sandbox, args: impl IntoIterator<Item = S>) -> Ran {
    run(command(sandbox).args(args))
}

/// Runs any command until it exits.
pub(crate) fn run(command: &mut Command) -> Ran {
    let ran = Ran::from(command.output().expect("the program starts"));
    if command.get_program() == PITON {
        schema::check(command.get_args(), &ran.stdout);
    }
    ran
}

/// Runs `piton take --json` in the project, under `strace` with these arguments.
pub(crate) fn take_under_strace<S: AsRef<OsStr>>(sandbox: &Sandbox, strace_args: impl IntoIterator<Item = S>) -> Ran {
    let mut command = clean_command("strace");
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.project());
    run(command.args(["-f", "-qq"]).args(strace_args).args([PITON, "take", "--json"]))
}

/// Runs any piton command in the parent directory of the project, under `strace` with these arguments.
pub(crate) fn run_under_strace(sandbox: &Sandbox, strace_args: &[&str], args: &[String]) -> Ran {
    let mut command = clean_command("strace");
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.root());
    run(command.args(["-f", "-qq"]).args(strace_args).arg(PITON).args(args))
}

/// Takes a checkpoint and asserts that it holds exactly the files in the project. Returns its id.
#[track_caller]
pub(crate) fn take_works(sandbox: &Sandbox) -> String {
    let report = piton(sandbox, ["take", "--json"]).done().json();
    let id = report["id"].as_str().unwrap_or_else(|| panic!("not taken: {report}")).to_owned();
    assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()));
    sandbox.assert_store_is_whole();
    id
}

/// Returns the ids of the project's checkpoints, newest first, as the command lists them.
#[track_caller]
pub(crate) fn ids(sandbox: &Sandbox) -> Vec<String> {
    let list = piton(sandbox, ["rollback", "--json"]).done().json();
    let id = |one: &Value| one["id"].as_str().expect("every checkpoint has an id").to_owned();
    list.as_array().expect("a list").iter().map(id).collect()
}

/// Asserts that every idx has its pack: otherwise git would look for the pack's objects in vain.
#[track_caller]
pub(crate) fn assert_no_half_pack(sandbox: &Sandbox) {
    for entry in fs::read_dir(sandbox.store().join("objects/pack")).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_idx = path.extension().is_some_and(|extension| extension == "idx");
        assert!(!is_idx || path.with_extension("pack").exists(), "no pack for {}", path.display());
    }
}

/// Asserts that every part of the store exists, even if a process was killed while creating it, and is accessible only
/// to its owner.
#[track_caller]
pub(crate) fn assert_store_is_complete(sandbox: &Sandbox) {
    for (piece, words) in
        [("HEAD", "ref: "), ("config", "[core]"), ("info/exclude", "node_modules/"), ("info/attributes", "*")]
    {
        let text = fs::read_to_string(sandbox.store().join(piece)).unwrap_or_else(|error| panic!("{piece}: {error}"));
        assert!(text.starts_with(words), "{piece}: {text}");
    }
    for piece in ["locks/gc", "locks/gate", "locks/store", "refs/heads", "refs/hermes", "objects/info"] {
        assert!(sandbox.store().join(piece).exists(), "{piece} is missing");
    }
    walk(&sandbox.base(), &mut |path| {
        let found = fs::symlink_metadata(path).expect("what was just listed");
        // The permission bits of a symlink have no meaning.
        let is_open = !found.is_symlink() && found.permissions().mode() & 0o077 != 0;
        assert!(!is_open, "{} is open to others", path.display());
    });
}

/// Replaces `to`, which may not exist, by a copy of a directory.
pub(crate) fn replace_dir(from: &Path, to: &Path) {
    testkit::wait_for_maintenance(to.parent().expect("a directory in another"));
    if to.exists() {
        fs::remove_dir_all(to).expect("what was there goes");
    }
    if from.exists() {
        let copied = clean_command("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
        assert!(copied.success());
    }
}
