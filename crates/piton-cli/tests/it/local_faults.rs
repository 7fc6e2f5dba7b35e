//! Takes and restores with local files, killed before each system call, and with each one failing.

use std::fs;
use std::path::PathBuf;

use testkit::Sandbox;

use crate::kit::{Ran, piton};
use crate::restore_kit::{State, assert_same, exits, leftovers, state_of, text};
use crate::sweep::{After, Scene, fail, kill};

/// A project with ignored files, one checkpoint of it, and a later state.
fn scene() -> (Sandbox, State) {
    let sandbox = Sandbox::new();
    sandbox.tree("main.py = 1\n data/a = 1\n data/deep/b = 2\n .env = KEY");
    sandbox.write(".gitignore", "data/\n");
    sandbox.chmod(".env", 0o600);
    piton(&sandbox, ["take"]).done();
    let first = state_of(&sandbox.project());
    fs::remove_file(sandbox.path("data/a")).expect("a file");
    sandbox.write(".env", "OTHER");
    sandbox.write("data/new", "3");
    sandbox.write("main.py", "2");
    (sandbox, first)
}

/// A take of changed local files.
struct Take {
    sandbox: Sandbox,
    first: State,
    now: State,
}

impl Take {
    fn new() -> Self {
        let (sandbox, first) = scene();
        let now = state_of(&sandbox.project());
        Self { sandbox, first, now }
    }
}

impl Scene for Take {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["take", "--json"]
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox.home(), self.sandbox.project()]
    }

    fn undisturbed(&mut self, ran: Ran) {
        assert_eq!(ran.done().json()["local"]["files"], 3);
    }

    fn check(&self, after: &After<'_>) {
        let (sandbox, when) = (&self.sandbox, format!("{after:?}"));
        sandbox.assert_store_is_whole();
        assert_same(&state_of(&sandbox.project()), &self.now, &when);
        // A take that was reported as done has either saved the local files or says why not.
        if after.ran.status.code() == Some(0) && after.is_done() {
            let report = after.ran.json();
            let local = &report["local"];
            let is_told =
                !local["failed"].is_null() || local["cut"] == true || local["unread"] != serde_json::json!([]);
            let is_unread = report["skipped"].to_string().contains("unreadable");
            assert!(local["files"] == 3 || is_told || is_unread, "{when}: {report}");
        }
        // The next one saves them in any case.
        let next = text(&exits(sandbox, &["take", "--json"], 0).stdout);
        let next: serde_json::Value = serde_json::from_str(&next).expect("JSON");
        assert_eq!(next["local"]["files"], 3, "{when}: {next}");
        let id = next["id"].as_str().expect("an id");
        let oldest = piton(sandbox, ["rollback", "--json"]).done().json();
        let oldest = oldest.as_array().and_then(|rows| rows.last()?["id"].as_str()).expect("a row").to_owned();
        exits(sandbox, &["restore", &oldest, "--yes", "--with-ignored"], 0);
        let mut back = state_of(&sandbox.project());
        back.remove(&b"data/new"[..]);
        assert_same(&back, &self.first, &format!("the first after {when}"));
        exits(sandbox, &["restore", id, "--yes", "--with-ignored"], 0);
        let mut again = state_of(&sandbox.project());
        again.remove(&b"data/a"[..]);
        assert_same(&again, &self.now, &format!("the second after {when}"));
        piton(sandbox, ["verify"]).done();
    }
}

#[test]
fn a_take_with_local_files_may_be_killed_anywhere() {
    let swept = kill(Take::new);
    assert!(swept.felt >= 15, "{swept:?}");
}

#[test]
fn a_take_with_local_files_survives_the_failure_of_any_call() {
    let swept = fail(Take::new);
    assert!(swept.felt >= 15, "{swept:?}");
}

/// A restore that writes missing and existing local files.
struct Restoring {
    sandbox: Sandbox,
    before: State,
    target: State,
}

impl Restoring {
    fn new() -> Self {
        let (sandbox, _) = scene();
        let before = state_of(&sandbox.project());
        Self { sandbox, target: before.clone(), before }
    }

    fn is_cut_short(&self) -> bool {
        text(&exits(&self.sandbox, &["rollback"], 0).stderr).contains("was cut short")
    }
}

impl Scene for Restoring {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["--json", "restore", "1", "--yes", "--with-ignored"]
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox.home(), self.sandbox.project()]
    }

    fn undisturbed(&mut self, ran: Ran) {
        let report = ran.done().json();
        assert_eq!(report["ignored_written"], serde_json::json!([".env", "data/a"]));
        self.target = state_of(&self.sandbox.project());
    }

    /// R1, R4 and R5: whatever happens, both states can be had.
    fn check(&self, after: &After<'_>) {
        let (sandbox, when) = (&self.sandbox, format!("{after:?}"));
        sandbox.assert_store_is_whole();
        if self.is_cut_short() {
            exits(sandbox, &["restore", "--abort"], 0);
            assert_same(&state_of(&sandbox.project()), &self.before, &format!("aborted after {when}"));
            assert_eq!(leftovers(sandbox), Vec::<String>::new(), "{when}");
            return;
        }
        let found = state_of(&sandbox.project());
        let is_partly = after.ran.status.code() == Some(3);
        assert!(is_partly || found == self.before || found == self.target, "{when}");
        if after.is_done() && found != self.before {
            exits(sandbox, &["undo"], 0);
            assert_same(&state_of(&sandbox.project()), &self.before, &format!("undone after {when}"));
        }
    }
}

#[test]
fn a_restore_of_local_files_may_be_killed_anywhere() {
    let swept = kill(Restoring::new);
    assert!(swept.felt >= 15, "{swept:?}");
}

#[test]
fn a_restore_of_local_files_survives_the_failure_of_any_call() {
    let swept = fail(Restoring::new);
    assert!(swept.felt >= 15, "{swept:?}");
}
