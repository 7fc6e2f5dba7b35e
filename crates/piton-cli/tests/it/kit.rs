//! Running the command in a sandbox, by itself or under `strace`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use serde_json::Value;
use testkit::{Sandbox, clean_command, files_in, walk};

/// The program under test.
pub(crate) const PITON: &str = env!("CARGO_BIN_EXE_piton");

/// What a process came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Starts it, with pipes for all that it reads and writes.
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
    /// The exit code. A process that was killed has none.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("killed: {self:?}"))
    }

    pub(crate) fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// The one line of JSON on stdout.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It did what it was asked to.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code(), 0, "{self:?}");
        self
    }

    /// It failed with this code, and said why in the usual form.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        self
    }
}

/// The command in the sandbox's project, with the sandbox's home and nothing else in its environment.
pub(crate) fn command(sandbox: &Sandbox) -> Command {
    in_dir(sandbox, &sandbox.project())
}

/// The same in any directory.
pub(crate) fn in_dir(sandbox: &Sandbox, dir: &Path) -> Command {
    let mut command = clean_command(PITON);
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(dir);
    command
}

/// Runs it.
pub(crate) fn piton<S: AsRef<OsStr>>(sandbox: &Sandbox, args: impl IntoIterator<Item = S>) -> Ran {
    run(command(sandbox).args(args))
}

/// Runs any command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    command.output().expect("the program starts").into()
}

/// `piton take --json` of the project, under `strace` with these arguments.
pub(crate) fn take_under_strace<S: AsRef<OsStr>>(sandbox: &Sandbox, strace_args: impl IntoIterator<Item = S>) -> Ran {
    let mut command = clean_command("strace");
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.project());
    run(command.args(["-f", "-qq"]).args(strace_args).args([PITON, "take", "--json"]))
}

/// Any command in the directory around the project, under `strace` with these arguments.
pub(crate) fn run_under_strace(sandbox: &Sandbox, strace_args: &[&str], args: &[String]) -> Ran {
    let mut command = clean_command("strace");
    command.env("HOME", sandbox.home()).env("TZ", "UTC").current_dir(sandbox.root());
    run(command.args(["-f", "-qq"]).args(strace_args).arg(PITON).args(args))
}

/// Takes a checkpoint, which must work, and be of exactly the files in the project. Its id.
#[track_caller]
pub(crate) fn take_works(sandbox: &Sandbox) -> String {
    let report = piton(sandbox, ["take", "--json"]).done().json();
    let id = report["id"].as_str().unwrap_or_else(|| panic!("not taken: {report}")).to_owned();
    assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()));
    sandbox.assert_store_is_whole();
    id
}

/// The ids of the project's checkpoints, newest first, as the command lists them.
#[track_caller]
pub(crate) fn ids(sandbox: &Sandbox) -> Vec<String> {
    let list = piton(sandbox, ["rollback", "--json"]).done().json();
    let id = |one: &Value| one["id"].as_str().expect("every checkpoint has an id").to_owned();
    list.as_array().expect("a list").iter().map(id).collect()
}

/// A visible idx has its pack: git would look for the pack's objects in vain.
#[track_caller]
pub(crate) fn assert_no_half_pack(sandbox: &Sandbox) {
    for entry in fs::read_dir(sandbox.store().join("objects/pack")).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_idx = path.extension().is_some_and(|extension| extension == "idx");
        assert!(!is_idx || path.with_extension("pack").exists(), "no pack for {}", path.display());
    }
}

/// Every piece of the store is there, whoever was killed while it was made, and is its owner's alone.
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
        // The bits of a link mean nothing.
        let is_open = !found.is_symlink() && found.permissions().mode() & 0o077 != 0;
        assert!(!is_open, "{} is open to others", path.display());
    });
}

/// A copy of a directory, where there was one or none.
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
