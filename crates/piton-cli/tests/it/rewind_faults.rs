//! `piton rewind` that is killed, or whose system calls fail: conversations stay as they are, files are as before or after it,
//! and no more than a fork is left.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::Sandbox;

use crate::kit::{Ran, piton};
use crate::restore_kit::{State, assert_same, exits, state_of, text};
use crate::rewind;
use crate::rewind_agents::{self, Kind};
use crate::sweep::{After, Scene, fail, kill};

/// A rewind to the third of four prompts that is disturbed.
struct Rewinding {
    sandbox: Sandbox,
    /// Directory with everything that the agent stores of its conversations, and what is in it.
    conversations: PathBuf,
    original: State,
    /// The turn of the prompt.
    turn: String,
    before: State,
    target: State,
}

impl Rewinding {
    /// The conversation is one file.
    fn of_claude() -> Self {
        Self::new(|sandbox| rewind::four_turns(sandbox).with_file_name(""))
    }

    /// The conversation is a directory with two files.
    fn of_copilot() -> Self {
        Self::new(|sandbox| {
            let events = rewind_agents::four_turns(sandbox, Kind::Copilot, Kind::Copilot.version());
            events.ancestors().nth(2).expect("a directory").to_owned()
        })
    }

    fn new(four_turns: impl Fn(&Sandbox) -> PathBuf) -> Self {
        let sandbox = Sandbox::new();
        let conversations = four_turns(&sandbox);
        let turns = piton(&sandbox, ["turns", "--json"]).done().json();
        let turn = turns.as_array().and_then(|all| all.iter().find(|turn| turn["prompt"] == "prompt number 3"));
        let turn = turn.and_then(|turn| turn["turn"].as_str()).expect("a turn").to_owned();
        let (original, before) = (state_of(&conversations), state_of(&sandbox.project()));
        Self { conversations, original, turn, target: before.clone(), before, sandbox }
    }

    /// Returns the transcripts of forks.
    fn forks(&self, found: &State) -> Vec<PathBuf> {
        let new = found.keys().filter(|path| !self.original.contains_key(*path));
        let new = new.map(|path| self.conversations.join(Path::new(&*String::from_utf8_lossy(path))));
        new.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect()
    }
}

impl Scene for Rewinding {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn args(&self) -> Vec<&str> {
        vec!["--json", "rewind", &self.turn]
    }

    fn changes(&self) -> Vec<PathBuf> {
        vec![self.sandbox.home(), self.sandbox.project()]
    }

    fn undisturbed(&mut self, ran: Ran) {
        ran.done();
        self.target = state_of(&self.sandbox.project());
        assert_ne!(self.target, self.before);
    }

    fn check(&self, after: &After<'_>) {
        let (sandbox, when) = (&self.sandbox, format!("{after:?}"));
        let mut stored = state_of(&self.conversations);
        // Whatever is there besides the original is a complete fork, or a temporary file that no agent reads.
        let forks = self.forks(&stored);
        for fork in &forks {
            let text = fs::read_to_string(fork).expect("a fork");
            assert!(text.contains("answer number 2") && text.ends_with("}\n"), "{when}");
            assert!(!text.contains("answer number 3"), "{when}");
        }
        stored.retain(|path, _| self.original.contains_key(path));
        assert_same(&stored, &self.original, &format!("the original: {when}"));
        if text(&exits(sandbox, &["rollback"], 0).stderr).contains("was cut short") {
            assert!(!after.is_done(), "{when}");
            exits(sandbox, &["restore", "--abort"], 0);
        }
        let found = state_of(&sandbox.project());
        let is_partly = after.ran.status.code() == Some(3);
        assert!(is_partly || found == self.before || found == self.target, "{when}");
        assert!(found != self.target || is_partly || !forks.is_empty(), "files without a fork: {when}");
        exits(sandbox, &["rewind", &self.turn], 0);
        assert_same(&state_of(&sandbox.project()), &self.target, &format!("again after {when}"));
        exits(sandbox, &["rewind", "--clean"], 0);
        assert_same(&state_of(&self.conversations), &self.original, &format!("cleaned after {when}"));
    }
}

/// D1, D2.
#[test]
fn a_kill_anywhere_leaves_the_conversation_and_at_most_a_fork() {
    let swept = kill(Rewinding::of_claude);
    assert!(swept.felt >= 15, "{swept:?}");
}

/// D1, D2.
#[test]
fn a_kill_anywhere_leaves_at_most_a_fork_of_several_files() {
    let swept = kill(Rewinding::of_copilot);
    assert!(swept.felt >= 15, "{swept:?}");
}

#[test]
fn a_failure_anywhere_leaves_the_conversation_and_at_most_a_fork() {
    let swept = fail(Rewinding::of_claude);
    assert!(swept.felt >= 15, "{swept:?}");
}
