//! The `piton revert` command: one turn goes, everything later stays, at whatever system call it is killed.

use std::fs;
use std::path::PathBuf;

use testkit::{Sandbox, files_in, wait_for_maintenance};

use crate::fault_store::answer;
use crate::hook_kit::{event, hook, prompt};
use crate::kit::Ran;
use crate::restore_kill::Aside;
use crate::restore_kit::{State, assert_same, exits, json, leftovers, piton, state_of, text};
use crate::sweep::{After, Scene, fail, kill};

pub(crate) const TEN: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";

/// Two turns, and edits of the user. The first turn is reverted by `p1`. Returns the state after that.
pub(crate) fn play(sandbox: &Sandbox) -> State {
    sandbox.write("edited", TEN);
    sandbox.write("deleted", "words\n");
    sandbox.chmod("deleted", 0o600);
    sandbox.link("link", "edited");
    hook(sandbox, &["claude"], prompt(sandbox, "s", "p1", "first"));
    sandbox.write("edited", TEN.replace("two", "2"));
    sandbox.write("dir/added", "by the turn\n");
    fs::remove_file(sandbox.path("deleted")).expect("a file");
    fs::remove_file(sandbox.path("link")).expect("a link");
    sandbox.link("link", "dir/added");
    hook(sandbox, &["claude"], prompt(sandbox, "s", "p2", "second"));
    sandbox.write("edited", TEN.replace("two", "2").replace("nine", "9"));
    sandbox.write("own", "by the user\n");
    let now = state_of(&sandbox.project());
    // The state that is wanted is made by hand, and the current one put back.
    let mut target = now.clone();
    sandbox.write("edited", TEN.replace("nine", "9"));
    sandbox.write("deleted", "words\n");
    sandbox.chmod("deleted", 0o600);
    fs::remove_file(sandbox.path("link")).expect("a link");
    sandbox.link("link", "edited");
    let made = state_of(&sandbox.project());
    for path in ["edited", "deleted", "link"] {
        target.insert(path.as_bytes().to_vec(), made[path.as_bytes()].clone());
    }
    target.retain(|path, _| !path.starts_with(b"dir"));
    sandbox.write("edited", TEN.replace("two", "2").replace("nine", "9"));
    fs::remove_file(sandbox.path("deleted")).expect("a file");
    fs::remove_file(sandbox.path("link")).expect("a link");
    sandbox.link("link", "dir/added");
    assert_same(&state_of(&sandbox.project()), &now, "put back");
    target
}

#[test]
fn a_turn_is_reverted_by_its_row_and_undone() {
    let sandbox = Sandbox::new();
    let target = play(&sandbox);
    let before = state_of(&sandbox.project());
    let declined = exits(&sandbox, &["revert", "2"], 1);
    assert!(text(&declined.stderr).contains("--with-own-edits"), "{}", text(&declined.stderr));
    let plan = json(&sandbox, &["revert", "2", "--with-own-edits", "--dry-run"], 0);
    assert_eq!((&plan["dry_run"], &plan["outcome"], &plan["id"]), (&true.into(), &"restored".into(), &().into()));
    assert_same(&state_of(&sandbox.project()), &before, "after a dry run");
    let report = json(&sandbox, &["revert", "2", "--with-own-edits"], 0);
    assert_eq!(report["paths"], serde_json::json!(["deleted", "dir/added", "edited", "link"]));
    assert_same(&state_of(&sandbox.project()), &target, "reverted");
    exits(&sandbox, &["undo"], 0);
    assert_same(&state_of(&sandbox.project()), &before, "undone");
}

#[test]
fn a_conflict_names_lines_and_turns_and_the_rest_can_be_reverted() {
    let sandbox = Sandbox::new();
    play(&sandbox);
    sandbox.write("edited", TEN.replace("two", "II"));
    let before = files_in(&sandbox.project());
    let report = json(&sandbox, &["revert", "p1", "--with-own-edits"], 1);
    assert_eq!(report["outcome"], "conflict");
    let conflict = &report["conflicts"][0];
    assert_eq!((&conflict["path"], &conflict["reason"]), (&"edited".into(), &"lines".into()));
    assert_eq!((&conflict["lines"], &conflict["in_the_way"][0]["turn"]), (&serde_json::json!([[2, 2]]), &"p2".into()));
    let said = text(&exits(&sandbox, &["revert", "p1", "--with-own-edits"], 1).stdout);
    assert!(said.contains("CONFLICT edited: line 2; changed since by prompt: second"), "{said}");
    assert_eq!(files_in(&sandbox.project()), before);
    let report = json(&sandbox, &["revert", "p1", "--with-own-edits", "--skip-conflicts"], 3);
    assert_eq!(report["paths"], serde_json::json!(["deleted", "dir/added", "link"]));
    assert_eq!(files_in(&sandbox.project())[&b"edited"[..]], before[&b"edited"[..]]);
}

#[test]
fn paths_and_hunks_are_reverted_alone() {
    let sandbox = Sandbox::new();
    play(&sandbox);
    let report = json(&sandbox, &["revert", "p1", "--with-own-edits", "edited", "--hunk", "edited:2"], 0);
    assert_eq!(report["paths"], serde_json::json!(["edited"]));
    assert_eq!(fs::read_to_string(sandbox.path("edited")).expect("a file"), TEN.replace("nine", "9"));
    exits(&sandbox, &["revert", "p1", "--with-own-edits", "--hunk", "edited"], 2);
    exits(&sandbox, &["revert", "p1", "--with-own-edits", "--hunk", "edited:9"], 2);
}

#[test]
fn a_row_at_which_no_turn_began_names_the_nearest_one() {
    let sandbox = Sandbox::new();
    play(&sandbox);
    exits(&sandbox, &["take", "-m", "by hand"], 0);
    let output = exits(&sandbox, &["revert", "1"], 4);
    assert!(text(&output.stderr).contains("the nearest turn began from number 2"), "{}", text(&output.stderr));
}

#[test]
fn a_turn_without_a_reported_end_is_declined_and_the_files_are_named() {
    let sandbox = Sandbox::new();
    play(&sandbox);
    let said = text(&exits(&sandbox, &["revert", "p1"], 1).stderr);
    assert!(said.contains("cannot be told apart in deleted, dir/added, edited, link"), "{said}");
    let said = text(&exits(&sandbox, &["revert", "p1", "dir"], 1).stderr);
    assert!(said.contains("cannot be told apart in dir/added") && !said.contains("link"), "{said}");
}

#[test]
fn a_turn_whose_end_the_agent_reports_needs_no_consent_and_the_users_edits_stay() {
    let sandbox = Sandbox::new();
    let stop = |turn: &str| {
        hook(&sandbox, &["claude"], event(&sandbox, "s", turn, "Stop", &serde_json::json!({})));
        wait_for_maintenance(&sandbox.root());
    };
    sandbox.write("a", TEN);
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p1", "first"));
    sandbox.write("a", TEN.replace("two", "2"));
    stop("p1");
    sandbox.write("a", TEN.replace("two", "2").replace("nine", "mine"));
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "p2", "second"));
    sandbox.write("b", "by the second\n");
    stop("p2");
    sandbox.write("c", "mine, too\n");
    let before = state_of(&sandbox.project());
    assert_eq!(json(&sandbox, &["revert", "2"], 0)["paths"], serde_json::json!(["a"]));
    assert_eq!(fs::read_to_string(sandbox.path("a")).expect("a file"), TEN.replace("nine", "mine"));
    exits(&sandbox, &["undo"], 0);
    assert_same(&state_of(&sandbox.project()), &before, "undone");
    let row = json(&sandbox, &["turns"], 0)[1]["row"].to_string();
    let report = json(&sandbox, &["restore", &row, "--keep-edits"], 0);
    assert_eq!(report["paths"], serde_json::json!(["a", "b"]), "{report}");
    assert_eq!(fs::read_to_string(sandbox.path("a")).expect("a file"), TEN.replace("nine", "mine"));
    assert!(sandbox.path("c").exists() && !sandbox.path("b").exists());
}

/// As a restore: what is saved first never pushes out what is needed.
#[test]
fn the_oldest_turn_is_reverted_in_a_history_at_its_limit() {
    let sandbox = Sandbox::new();
    let target = play(&sandbox);
    let before = state_of(&sandbox.project());
    let run = |args: &[&str]| {
        let mut command = testkit::clean_command(crate::kit::PITON);
        let command = crate::restore_kit::in_sandbox(&sandbox, &mut command).env("PITON_MAX_SNAPSHOTS", "2");
        let output = command.args(args).output().expect("piton runs");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    };
    run(&["revert", "2", "--with-own-edits"]);
    assert_same(&state_of(&sandbox.project()), &target, "reverted");
    run(&["undo"]);
    assert_same(&state_of(&sandbox.project()), &before, "undone");
    run(&["redo"]);
    assert_same(&state_of(&sandbox.project()), &target, "redone");
}

#[test]
fn all_turns_since_a_row_are_taken_back_and_edits_of_the_user_stay() {
    let sandbox = Sandbox::new();
    play(&sandbox);
    let before = state_of(&sandbox.project());
    let refused = json(&sandbox, &["restore", "2", "--keep-edits"], 1);
    assert_eq!(refused["error"]["kind"], "needs_consent", "{refused}");
    let args = ["restore", "2", "--keep-edits", "--with-own-edits"];
    let plan = json(&sandbox, &[&args[..], &["--dry-run"]].concat(), 0);
    assert_eq!((&plan["dry_run"], &plan["outcome"]), (&true.into(), &"restored".into()));
    assert_same(&state_of(&sandbox.project()), &before, "after a dry run");
    let report = json(&sandbox, &args, 0);
    assert_eq!((&report["outcome"], &report["rewind"]["turn"]), (&"restored".into(), &"p1".into()));
    assert_eq!(fs::read_to_string(sandbox.path("edited")).expect("a file"), TEN);
    exits(&sandbox, &["undo"], 0);
    assert_same(&state_of(&sandbox.project()), &before, "undone");
    exits(&sandbox, &["restore", "--keep-edits", "--continue"], 2);
    exits(&sandbox, &["restore", "2", "--skip-conflicts"], 2);
}

#[test]
fn a_revert_typed_to_an_agent_is_carried_out_and_the_agent_is_told_of_it() {
    let sandbox = Sandbox::new();
    let target = play(&sandbox);
    let before = state_of(&sandbox.project());
    let typed = |turn: &str, text: &str| hook(&sandbox, &["claude"], prompt(&sandbox, "s", turn, text));
    let planned = typed("p3", "/rollback revert 2 --with-own-edits --dry-run");
    assert!(planned.contains("Plan for prompt: first: 4 files to change"), "{planned}");
    assert_same(&state_of(&sandbox.project()), &before, "after a dry run");
    let declined = typed("p4", "/rollback revert 2");
    assert!(declined.contains("--with-own-edits"), "{declined}");
    let done = typed("p5", "/rollback revert 2 --with-own-edits");
    assert!(done.contains("Reverted prompt: first: 4 files changed"), "{done}");
    assert!(done.contains("`/rollback "), "the way back: {done}");
    assert_same(&state_of(&sandbox.project()), &target, "reverted");
    let told = typed("p6", "go on");
    assert!(told.contains("was taken back, and later changes were kept") && told.contains("dir/added"), "{told}");
    exits(&sandbox, &["undo"], 0);
    let told = typed("p7", "go on");
    assert!(told.contains("were restored to the checkpoint") && told.contains("dir/added"), "{told}");
}

#[test]
fn rollback_reverts_too_and_wants_a_turn() {
    let sandbox = Sandbox::new();
    play(&sandbox);
    exits(&sandbox, &["rollback", "revert"], 2);
    // The second turn still runs: it ends with the files as they are.
    let report = json(&sandbox, &["rollback", "revert", "1"], 0);
    assert_eq!(report["paths"], serde_json::json!(["edited", "own"]));
}

/// A revert of a turn in the middle.
struct Revert {
    sandbox: Sandbox,
    before: State,
    target: State,
}

const ARGS: [&str; 4] = ["--json", "revert", "p1", "--with-own-edits"];

impl Revert {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let target = play(&sandbox);
        let before = state_of(&sandbox.project());
        Self { sandbox, before, target }
    }

    /// Checks that an interrupted revert can be finished and undone, and that it can be aborted.
    fn check_both_ways(&self, when: &str) {
        let sandbox = &self.sandbox;
        exits(sandbox, &ARGS, 2);
        let aside = Aside::copy(sandbox, "killed");
        exits(sandbox, &["restore", "--continue"], 0);
        assert_same(&state_of(&sandbox.project()), &self.target, &format!("continued after {when}"));
        exits(sandbox, &["undo"], 0);
        assert_same(&state_of(&sandbox.project()), &self.before, &format!("undone after {when}"));
        aside.put_back();
        exits(sandbox, &["restore", "--abort"], 0);
        assert_same(&state_of(&sandbox.project()), &self.before, &format!("aborted after {when}"));
    }
}

impl Scene for Revert {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        ARGS.to_vec()
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox.home(), self.sandbox.project()]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        assert_same(&state_of(&self.sandbox.project()), &self.target, "without a fault");
    }

    fn check(&self, after: &After<'_>) {
        let (sandbox, when) = (&self.sandbox, format!("{after:?}"));
        let found = state_of(&sandbox.project());
        // A file that cannot be read is in conflict, and nothing is touched.
        let is_conflict = after.ran.stdout.contains(r#""outcome":"conflict""#);
        let report = if is_conflict { None } else { answer(after) };
        sandbox.assert_store_is_whole();
        if text(&exits(sandbox, &["rollback"], 0).stderr).contains("was cut short") {
            assert!(!after.is_done(), "{when}");
            return self.check_both_ways(&when);
        }
        let is_partly = after.ran.status.code() == Some(3);
        assert!(is_partly || leftovers(sandbox).is_empty(), "{when}");
        if after.is_done() && report.is_some() {
            assert_same(&found, &self.target, &when);
        } else if is_partly {
            let output = piton(sandbox, &["undo"]);
            assert!([Some(0), Some(3)].contains(&output.status.code()), "undo after {when}: {}", text(&output.stderr));
            assert_same(&without_leftovers(sandbox), &self.before, &format!("undo after {when}"));
        } else if is_conflict {
            assert_same(&found, &self.before, &when);
        } else {
            assert!(found == self.before || found == self.target, "{when}");
        }
        exits(sandbox, &ARGS, 0);
        assert_same(&without_leftovers(sandbox), &self.target, &format!("once more after {when}"));
    }
}

/// Returns the state without temporary files, which stay if removing them failed. The next restore of everything removes
/// them.
fn without_leftovers(sandbox: &Sandbox) -> State {
    let mut state = state_of(&sandbox.project());
    state.retain(|path, _| !text(path).rsplit('/').next().is_some_and(|name| name.starts_with(".piton")));
    state
}

/// E1, R4.
#[test]
fn a_kill_anywhere_leaves_a_revert_that_can_be_finished_or_repeated() {
    assert!(kill(Revert::new).felt >= 15);
}

#[test]
fn a_failure_anywhere_leaves_a_revert_that_can_be_finished_or_repeated() {
    assert!(fail(Revert::new).felt >= 15);
}
