//! Kills and failing calls in takes that record the git state, in restores of it, and in their undo.

use crate::git_kit::{GitProject, GitView, Shape};
use crate::kit::Ran;
use crate::sweep::{After, Scene, fail, kill};
use std::path::PathBuf;
use testkit::Sandbox;

/// A command in a clone whose branch and stash are gone, with their objects.
struct AtTheLoss {
    project: GitProject,
    args: Vec<String>,
    /// Before the loss, and before the command.
    whole: GitView,
    lost: GitView,
    /// Id of the state before the loss: a take records another one with the same checkpoint.
    state: String,
}

impl AtTheLoss {
    fn new(args: &[&str]) -> Self {
        let project = GitProject::new(Shape::Clone).expect("a clone");
        let whole = project.view();
        let state = project.piton(&["take", "--json"]).done().json()["git_state"].as_str().expect("an id").to_owned();
        project.shell(
            "git branch -D feature; git stash clear; git reflog expire --expire=now --all; git gc -q --prune=now",
        );
        let lost = project.view();
        let dir = project.dir.to_str().expect("UTF-8").to_owned();
        let args = ["-C", &dir].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        Self { project, args, whole, lost, state }
    }

    /// The undo of a restore.
    fn undoing() -> Self {
        let scene = Self::new(&["git", "undo", "--json"]);
        scene.project.piton(&["git", "restore", &scene.state]).done();
        scene
    }
}

impl Scene for AtTheLoss {
    fn sandbox(&self) -> &Sandbox {
        &self.project.sandbox
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.project.sandbox.home(), self.project.dir.clone()]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
    }

    fn check(&self, after: &After<'_>) {
        let is_change = self.args.iter().any(|arg| arg == "restore" || arg == "undo");
        let context = format!("{after:?}");
        if !is_change {
            assert_eq!(self.project.view(), self.lost, "D14: {context}");
        }
        let is_undone = after.is_done() && self.args.iter().any(|arg| arg == "undo") && !after.is_kill();
        if is_undone && after.ran.json()["left"] == serde_json::json!([]) {
            assert_eq!(self.project.view().refs, self.lost.refs, "{context}");
        }
        // The next restore finishes it, and removes the lock files of a killed one.
        self.project.piton(&["git", "restore", &self.state]).done();
        let back = self.project.view();
        assert_eq!((&back.refs, &back.stash), (&self.whole.refs, &self.whole.stash), "{context}");
        self.project.assert_whole(&context);
        self.project.git(&["commit", "-q", "--allow-empty", "-m", "git works"]);
        self.project.piton(&["take"]).done();
        self.project.piton(&["verify"]).done();
    }
}

/// D15 and D17.
#[test]
fn a_restore_of_the_repository_may_be_killed_anywhere() {
    assert!(kill(|| AtTheLoss::new(&["git", "restore", "1", "--json"])).felt >= 10);
}

/// D16.
#[test]
fn a_restore_of_the_repository_survives_the_failure_of_any_call() {
    assert!(fail(|| AtTheLoss::new(&["git", "restore", "1", "--json"])).felt >= 10);
}

#[test]
fn the_undo_of_a_restore_of_the_repository_may_be_killed_anywhere() {
    assert!(kill(AtTheLoss::undoing).felt >= 10);
}

#[test]
fn the_undo_of_a_restore_of_the_repository_survives_the_failure_of_any_call() {
    assert!(fail(AtTheLoss::undoing).felt >= 10);
}

#[test]
fn a_take_that_records_the_git_state_may_be_killed_anywhere() {
    assert!(kill(|| AtTheLoss::new(&["take", "--json"])).felt >= 10);
}

#[test]
fn a_take_that_records_the_git_state_survives_the_failure_of_any_call() {
    assert!(fail(|| AtTheLoss::new(&["take", "--json"])).points >= 10);
}
