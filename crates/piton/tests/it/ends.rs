//! Checkpoints of the ends of turns: who reports them, where they are listed, and what they never do.

use std::fs;

use piton::{
    CheckpointId, CheckpointKind, Completion, History, ListedTurn, Manager, Moment, Outcome, Progress, Project,
    Request, Settings, Status, TurnEnd, TurnStart, WhySkipped, list_turns,
};
use testkit::Sandbox;

use crate::kit::{Dice, next_tick, now, settled, take_for};
use crate::upkeep::store_of;

/// A session of one agent in the sandbox's project.
struct Played<'a> {
    sandbox: &'a Sandbox,
    manager: Manager,
    session: &'static str,
    secs: i64,
}

impl<'a> Played<'a> {
    fn new(sandbox: &'a Sandbox, session: &'static str) -> Self {
        Self::with(sandbox, session, Settings::default())
    }

    fn with(sandbox: &'a Sandbox, session: &'static str, settings: Settings) -> Self {
        let settings = settings.enabled(true);
        let manager = Manager::new(&sandbox.base(), None, settings).for_agent("claude");
        Self { sandbox, manager, session, secs: 0 }
    }

    fn now(&mut self) -> Moment {
        self.secs += 1;
        let now = now();
        Moment { secs: now.secs + self.secs, ..now }
    }

    fn prompt(&mut self, turn: &str) {
        let now = self.now();
        let mut start = TurnStart::default();
        (start.name, start.prompt) = (Some(turn.into()), Some(turn.into()));
        self.manager.start_turn(self.session, start, now);
        let ensured = self.manager.ensure_checkpoint(&self.sandbox.project(), "prompt", now);
        assert!(ensured.checkpoint().is_some(), "{ensured:?}");
    }

    /// Reports the end of a turn, and returns the outcomes.
    fn end(&mut self, turn: Option<&str>) -> Vec<Outcome> {
        let now = self.now();
        self.manager.end_turn(self.session, turn, now);
        let taken = self.manager.take_turn_end(now);
        taken.into_iter().map(|one| one.report.expect("a report").outcome).collect()
    }
}

fn write(sandbox: &Sandbox, contents: &str) {
    fs::write(sandbox.project().join("file"), contents).expect("a file");
}

fn history(sandbox: &Sandbox) -> History {
    let project = Project::at(&sandbox.project(), None).expect("a project");
    History::of(&store_of(sandbox), &project).expect("a history")
}

/// Returns the rows as they are listed: number, reason and the number of ends below.
fn rows(sandbox: &Sandbox) -> Vec<(Option<usize>, String, usize)> {
    let list = history(sandbox).list().expect("a list");
    list.iter().map(|row| (row.number, row.checkpoint.headline(), row.ends.len())).collect()
}

fn row(number: usize, headline: &str, ends: usize) -> (Option<usize>, String, usize) {
    (Some(number), headline.to_owned(), ends)
}

/// Returns the contents of the file at the reported end of a turn.
fn file_at_end(sandbox: &Sandbox, turn: &str) -> Option<String> {
    let history = history(sandbox);
    let turns = history.turns();
    let found = turns.iter().find(|one| one.record.turn == turn).expect("the turn");
    let TurnEnd::Reported(id) = found.end else { return None };
    Some(String::from_utf8(sandbox.store_git(&["show", &format!("{id}:file")])).expect("text"))
}

#[test]
fn the_end_of_a_turn_is_no_row_and_the_numbers_stay_those_of_prompts() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let mut played = Played::new(&sandbox, "s");
    played.prompt("one");
    write(&sandbox, "work of one");
    assert!(matches!(played.end(Some("one"))[..], [Outcome::Taken(_)]));
    assert_eq!(rows(&sandbox), [row(1, "prompt: one", 1)]);
    write(&sandbox, "an edit of the user");
    played.prompt("two");
    write(&sandbox, "work of two");
    played.end(Some("two"));
    assert_eq!(rows(&sandbox), [row(1, "prompt: two", 1), row(2, "prompt: one", 1)]);
    assert_eq!(history(&sandbox).find("1").expect("a row").headline(), "prompt: two");
    assert!(history(&sandbox).find("3").is_err());
    // An end is named by its id.
    let end = history(&sandbox).checkpoints()[0].clone();
    assert_eq!((end.facts.kind, end.is_row()), (CheckpointKind::End, false));
    let listed = history(&sandbox).listed(&end).expect("an entry");
    assert_eq!((listed.number, listed.change.map(|change| change.files)), (None, Some(1)));
    assert_eq!(file_at_end(&sandbox, "one").as_deref(), Some("work of one"));
    assert_eq!(file_at_end(&sandbox, "two").as_deref(), Some("work of two"));
}

#[test]
fn a_prompt_in_the_state_at_an_end_is_a_row_all_the_same() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let mut played = Played::new(&sandbox, "s");
    for turn in ["one", "two", "three"] {
        played.prompt(turn);
        write(&sandbox, turn);
        played.end(Some(turn));
    }
    let want = [row(1, "prompt: three", 1), row(2, "prompt: two", 1), row(3, "prompt: one", 1)];
    assert_eq!(rows(&sandbox), want);
    let kinds = |kind| history(&sandbox).checkpoints().iter().filter(|one| one.facts.kind == kind).count();
    assert_eq!((kinds(CheckpointKind::Auto), kinds(CheckpointKind::End)), (3, 3));
    // A turn that changes nothing ends where it began, and several prompts are one row.
    played.prompt("four");
    assert!(matches!(played.end(None)[..], [Outcome::Unchanged(_)]));
    played.prompt("five");
    assert_eq!(rows(&sandbox)[..2], [row(1, "prompt: five", 0), row(2, "prompt: three", 1)]);
    assert_eq!(file_at_end(&sandbox, "four").as_deref(), Some("three"));
    // The rows do not depend on the ledger.
    fs::remove_dir_all(sandbox.base().join("local")).expect("a ledger");
    assert_eq!(rows(&sandbox).len(), 4);
}

#[test]
fn a_checkpoint_by_hand_in_the_state_at_an_end_is_a_row() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let mut played = Played::new(&sandbox, "s");
    played.prompt("one");
    write(&sandbox, "1");
    played.end(None);
    let request = Request::default().kind(CheckpointKind::Manual).reason("by hand");
    let taken = |sandbox: &Sandbox| take_for(sandbox, &sandbox.project(), &Settings::default(), &request).outcome;
    assert!(matches!(taken(&sandbox), Outcome::Taken(_)));
    assert_eq!(rows(&sandbox), [row(1, "by hand", 0), row(2, "prompt: one", 1)]);
    assert!(matches!(taken(&sandbox), Outcome::Unchanged(_)));
    write(&sandbox, "2");
    played.prompt("two");
    write(&sandbox, "3");
    played.end(None);
    played.prompt("three");
    assert!(matches!(taken(&sandbox), Outcome::Unchanged(_)));
}

#[test]
fn of_several_ends_the_last_counts_and_those_of_others_have_no_effect() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let mut played = Played::new(&sandbox, "s");
    assert_eq!(played.end(None), [], "an end without a start");
    played.prompt("one");
    write(&sandbox, "1");
    assert_eq!(played.end(Some("another turn")), []);
    // A subagent's session, and one that nothing is known of.
    let at = played.now();
    played.manager.start_session("child", Some("s"), None, at);
    let mut child = Played::new(&sandbox, "child");
    assert_eq!(child.end(None), []);
    assert_eq!(Played::new(&sandbox, "unknown").end(None), []);
    assert_eq!(file_at_end(&sandbox, "one"), None);
    played.end(Some("one"));
    assert_eq!(file_at_end(&sandbox, "one").as_deref(), Some("1"));
    write(&sandbox, "2");
    played.end(Some("one"));
    assert_eq!(file_at_end(&sandbox, "one").as_deref(), Some("2"));
    assert_eq!(rows(&sandbox), [row(1, "prompt: one", 2)]);
}

#[test]
fn a_turn_ends_where_its_continuation_does() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let mut played = Played::new(&sandbox, "s");
    played.prompt("one");
    write(&sandbox, "1");
    played.end(None);
    played.prompt("go on, another hook says");
    write(&sandbox, "2");
    let at = played.now();
    played.manager.end_continuation("s", at);
    assert_eq!(played.manager.take_turn_end(at).len(), 1);
    assert_eq!(file_at_end(&sandbox, "one").as_deref(), Some("2"));
}

#[test]
fn max_snapshots_counts_rows_and_ends_go_with_their_row() {
    let sandbox = Sandbox::new();
    let settings = Settings::default().max_snapshots(3.into());
    let mut played = Played::with(&sandbox, "s", settings);
    for turn in 0..8 {
        // In every second turn the user edits before the prompt.
        if turn % 2 == 0 {
            write(&sandbox, &format!("edit before {turn}"));
        }
        played.prompt(&turn.to_string());
        write(&sandbox, &format!("work of {turn}"));
        played.end(None);
        assert!(rows(&sandbox).len() <= 3);
    }
    let names: Vec<_> = rows(&sandbox).into_iter().map(|(_, headline, _)| headline).collect();
    assert_eq!(names, ["prompt: 7", "prompt: 6", "prompt: 5"]);
    let history = history(&sandbox);
    assert!(history.checkpoints().last().expect("one").is_row(), "no end of a dropped row");
    for turn in ["5", "6", "7"] {
        assert_eq!(file_at_end(&sandbox, turn), Some(format!("work of {turn}")));
    }
}

#[test]
fn max_snapshots_above_64_counts_rows_at_every_take() {
    let sandbox = Sandbox::new();
    let settings = Settings::default().max_snapshots(66.into());
    let mut played = Played::with(&sandbox, "s", settings);
    for turn in 0..80 {
        // In some turns nothing changes between the end and the next prompt.
        if turn % 3 == 0 {
            write(&sandbox, &format!("edit before {turn}"));
        }
        played.prompt(&turn.to_string());
        write(&sandbox, &format!("work of {turn}"));
        played.end(None);
        assert_eq!(history(&sandbox).rows().count(), 66.min(turn + 1), "turn {turn}");
    }
    let names: Vec<_> = rows(&sandbox).into_iter().map(|(_, headline, ends)| (headline, ends)).collect();
    let want: Vec<_> = (14..80).rev().map(|turn| (format!("prompt: {turn}"), 1)).collect();
    assert_eq!(names, want);
    sandbox.assert_store_is_whole();
}

#[test]
fn a_late_end_waits_for_no_prompt_and_is_recorded_when_it_is_complete() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let mut played = Played::new(&sandbox, "s");
    played.prompt("one");
    write(&sandbox, "1");
    let mut dice = Dice::new(5);
    for number in 0..24 {
        sandbox.write(format!("noise-{number}"), dice.noise(1_000_000));
    }
    next_tick(&sandbox);
    // The time is later than all writes, so that nothing has changed since.
    let at = settled();
    let mut slow = Played::with(&sandbox, "s", Settings::default().deadline_ms(1));
    slow.manager.end_turn("s", None, at);
    let taken = slow.manager.take_turn_end(at);
    assert!(taken[0].is_unfinished, "{taken:?}");
    assert_eq!(taken[0].report.as_ref().expect("a report").outcome, Outcome::Skipped(WhySkipped::Deadline));
    assert_eq!(file_at_end(&sandbox, "one"), None);
    let (store, project) = (store_of(&sandbox), Project::at(&sandbox.project(), None).expect("a project"));
    let completion = Completion::begin(&store, &project).expect("a lock").expect("not held");
    assert!(completion.origin().is_none(), "the turn is protected without it");
    let settings = Settings::default().enabled(true);
    completion.attempt(&settings, &Progress::default()).expect("completed");
    assert_eq!(file_at_end(&sandbox, "one").as_deref(), Some("1"));
    assert!(history(&sandbox).turns()[0].record.late);
}

#[test]
fn the_status_counts_rows() {
    let sandbox = Sandbox::new();
    let mut played = Played::new(&sandbox, "s");
    for turn in ["one", "two", "three"] {
        write(&sandbox, &format!("before {turn}"));
        played.prompt(turn);
        write(&sandbox, &format!("after {turn}"));
        played.end(None);
    }
    let status = Status::of(&store_of(&sandbox), None).expect("a status");
    assert_eq!((status.projects[0].checkpoints, history(&sandbox).checkpoints().len()), (3, 6));
}

/// Rewrites the newest commits of the project as Hermes does when it prunes: tree, time and subject stay.
fn rewrite_as_hermes(sandbox: &Sandbox, keep: usize) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim().to_owned();
    let name = text(sandbox.store_git(&["for-each-ref", "--format=%(refname)", "refs/hermes"]));
    let all = text(sandbox.store_git(&["log", "--format=%H %cI %s", &format!("--max-count={keep}"), &name]));
    let mut parent: Option<String> = None;
    for line in all.lines().rev() {
        let [id, time, subject] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let mut command = testkit::git();
        command.env("GIT_AUTHOR_DATE", time).env("GIT_COMMITTER_DATE", time);
        command.arg("--git-dir").arg(sandbox.store()).args(["commit-tree", &format!("{id}^{{tree}}"), "-m", subject]);
        if let Some(parent) = &parent {
            command.args(["-p", parent]);
        }
        parent = Some(text(command.output().expect("git").stdout));
    }
    sandbox.store_git(&["update-ref", &name, &parent.expect("a commit")]);
}

#[test]
fn ends_and_steps_are_found_again_after_hermes_has_rewritten_the_commits_or_known_to_be_gone() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let mut played = Played::new(&sandbox, "s");
    for turn in ["one", "two", "three"] {
        played.prompt(turn);
        write(&sandbox, &format!("made in {turn}"));
        let at = played.now();
        let taken = played.manager.take_steps(&[sandbox.project()], &[], "before terminal: rm file", at);
        assert!(matches!(taken[0].report.as_ref().expect("a report").outcome, Outcome::Taken(_)), "{taken:?}");
        write(&sandbox, &format!("left by {turn}"));
        played.end(None);
    }
    let before = rows(&sandbox);
    rewrite_as_hermes(&sandbox, 6);
    assert_eq!(rows(&sandbox), before[..2], "an end and a step are still no rows");
    let (store, project) = (store_of(&sandbox), Project::at(&sandbox.project(), None).expect("a project"));
    let turns = list_turns(&store, &project, 9).expect("turns");
    let show = |id: CheckpointId| String::from_utf8(sandbox.store_git(&["show", &format!("{id}:file")])).expect("text");
    let step = |turn: &ListedTurn| turn.steps[0].checkpoint.as_ref().map(|step| show(step.id));
    let shown: Vec<_> =
        turns.iter().map(|turn| (turn.record.turn.as_str(), turn.row, turn.after.map(show), step(turn))).collect();
    let found = |text: &str| Some(text.to_owned());
    assert_eq!(shown[0], ("three", Some(1), found("left by three"), found("made in three")));
    assert_eq!(shown[1], ("two", Some(2), found("left by two"), found("made in two")));
    assert_eq!(shown[2], ("one", None, None, None), "its checkpoints are gone");
}

#[test]
fn a_step_is_taken_only_in_a_turn_that_has_its_checkpoint() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let mut played = Played::new(&sandbox, "s");
    let steps = |played: &mut Played<'_>, taken: &[std::path::PathBuf]| {
        let at = played.now();
        played.manager.take_steps(&[sandbox.project()], taken, "before terminal: rm file", at).len()
    };
    assert_eq!(steps(&mut played, &[]), 0, "no turn");
    played.prompt("one");
    assert_eq!(steps(&mut played, &[sandbox.project()]), 0, "its start was taken by the same call");
    assert_eq!(steps(&mut played, &[]), 1);
    assert_eq!(history(&sandbox).checkpoints().len(), 1, "nothing has changed");
    write(&sandbox, "1");
    assert_eq!(steps(&mut played, &[]), 1);
    assert_eq!(rows(&sandbox).len(), 1);
    assert_eq!(history(&sandbox).list().expect("a list")[0].steps.len(), 1);
}

#[test]
fn ends_and_steps_are_found_after_a_purge() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    sandbox.write("secret", "s");
    let mut played = Played::new(&sandbox, "s");
    played.prompt("one");
    write(&sandbox, "made");
    let at = played.now();
    played.manager.take_steps(&[sandbox.project()], &[], "before terminal: rm file", at);
    write(&sandbox, "left");
    played.end(None);
    let (store, project) = (store_of(&sandbox), Project::at(&sandbox.project(), None).expect("a project"));
    let secret = [b"secret".to_vec()];
    let report = piton::purge(&store, &project, &secret, now(), &Progress::default()).expect("purged");
    assert_eq!(report.rewritten.len(), 3);
    let turns = list_turns(&store, &project, 9).expect("turns");
    let step = turns[0].steps[0].checkpoint.as_ref().expect("a step");
    assert!(report.rewritten.iter().any(|(_, new)| *new == step.id), "the ledger names the new id");
    assert_eq!(sandbox.store_git(&["show", &format!("{}:file", step.id)]), b"made");
    assert_eq!(file_at_end(&sandbox, "one").as_deref(), Some("left"));
}
