//! The program of version 0.1, in a store that this version writes to. `cargo xtask older` builds it and runs the tests that use
//! it; elsewhere `PITON_0_1` names it, and without that they do nothing.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use serde_json::json;
use testkit::{Sandbox, clean_command, start_with_input};

use crate::hook_kit::{bash, event, hook, prompt};
use crate::kit::{Ran, piton};

/// The program of version 0.1 in a sandbox.
pub(crate) struct Older<'a> {
    program: OsString,
    sandbox: &'a Sandbox,
    max_snapshots: Option<u32>,
}

/// Returns the program of version 0.1, if there is one.
pub(crate) fn older(sandbox: &Sandbox) -> Option<Older<'_>> {
    Some(Older { program: std::env::var_os("PITON_0_1")?, sandbox, max_snapshots: None })
}

impl Older<'_> {
    /// Limits the number of checkpoints that it keeps.
    pub(crate) fn with_max_snapshots(self, most: u32) -> Self {
        Self { max_snapshots: Some(most), ..self }
    }

    fn command(&self) -> Command {
        let mut command = clean_command(&self.program);
        command.env("HOME", self.sandbox.home()).env("TZ", "UTC").current_dir(self.sandbox.project());
        command.envs(self.max_snapshots.map(|most| ("PITON_MAX_SNAPSHOTS", most.to_string())));
        command
    }

    /// Runs a command of it in the project. Panics if it fails.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.command();
        command.arg("-C").arg(self.sandbox.project()).arg("--base").arg(self.sandbox.base());
        Ran::from(command.args(args).output().expect("version 0.1 starts")).done()
    }

    /// Sends an event of Claude Code to its hook.
    pub(crate) fn hook(&self, sent: &str) {
        let mut command = self.command();
        command.args(["hook", "claude"]).env("PITON_ENABLED", "true");
        let child = start_with_input(&mut command, sent.as_bytes()).expect("version 0.1 starts");
        assert!(child.wait_with_output().expect("it ends").status.success());
    }
}

/// Everything that this version stores besides checkpoints is in the way of nothing that version 0.1 does, and is still there
/// afterwards.
#[test]
fn version_0_1_works_in_a_store_with_everything() {
    let sandbox = Sandbox::new();
    let Some(older) = older(&sandbox) else { return };
    sandbox.tree("a.txt = 0\\n\n b.txt = 0\\n");
    sandbox.write(".gitignore", ".env\n");
    sandbox.write(".env", "KEY=1\n");
    let git = |args: &[&str]| {
        let mut git = clean_command("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@t", "-C"]).arg(sandbox.project()).args(args);
        assert!(git.env("HOME", sandbox.home()).output().expect("git").status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "first"]);
    git(&["branch", "lost"]);
    let outside = sandbox.home().join("thesis.txt");
    fs::write(&outside, "years of work\n").expect("a file");
    for turn in ["t1", "t2"] {
        hook(&sandbox, &["claude"], prompt(&sandbox, "s", turn, turn));
        sandbox.write("a.txt", format!("{turn}\n"));
        let command = format!("rm {}; git branch -D lost", outside.display());
        hook(&sandbox, &["claude"], bash(&sandbox, "s", turn, &command));
        hook(&sandbox, &["claude"], event(&sandbox, "s", turn, "Stop", &json!({})));
    }
    fs::remove_file(&outside).expect("a file");
    git(&["branch", "-D", "lost"]);
    sandbox.write("b.txt", "by hand\n");
    let newest = piton(&sandbox, ["rollback", "--json"]).done().json()[0]["id"].as_str().expect("an id").to_owned();
    piton(&sandbox, ["mark", "1", "works"]).done();
    piton(&sandbox, ["revert", "1", "--yes"]).done();
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "t1\n");

    let listed = older.run(&["rollback", "--json"]).json();
    assert!(listed.as_array().is_some_and(|rows| rows.len() >= 5), "{listed}");
    sandbox.write("a.txt", "0.1\n");
    older.run(&["take"]);
    older.run(&["restore", "2", "--yes"]);
    older.run(&["undo", "--yes"]);
    assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "0.1\n");
    older.run(&["prune"]);
    older.run(&["verify"]);
    sandbox.assert_store_is_whole();

    piton(&sandbox, ["verify"]).done();
    assert_eq!(piton(&sandbox, ["turns", "--json"]).done().json().as_array().map(Vec::len), Some(2));
    piton(&sandbox, ["restore", "works", "--dry-run"]).done();
    fs::remove_file(sandbox.path(".env")).expect("a file");
    piton(&sandbox, ["recover", ".env", "--yes"]).done();
    assert_eq!(fs::read_to_string(sandbox.path(".env")).expect("a file"), "KEY=1\n");
    piton(&sandbox, ["recover", outside.to_str().expect("UTF-8"), "--yes"]).done();
    assert_eq!(fs::read_to_string(&outside).expect("a file"), "years of work\n");
    piton(&sandbox, ["git", "restore", &newest, "lost"]).done();
    git(&["rev-parse", "--verify", "refs/heads/lost"]);
}
