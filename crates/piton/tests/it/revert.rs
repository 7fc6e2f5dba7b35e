//! Reverting one turn: its changes go, everything later stays, and an undo brings every byte back.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use piton::merge::ConflictReason;
use piton::{
    ErrorKind, Hint, History, InTheWay, Origin, Progress, Project, RestoreTo, RevertOptions, RevertOutcome,
    RevertReport, Settings, Turn, revert,
};
use testkit::{Held, Sandbox, files_in};

use crate::kit::now;
use crate::merge::history::{State, history};
use crate::merge::oracle;
use crate::restore_kit::{assert_same, restored, state_of};
use crate::turns;
use crate::upkeep::store_of;

fn start(sandbox: &Sandbox, turn: &str) {
    turns::start(sandbox, "s", turn);
}

fn end(sandbox: &Sandbox, turn: &str) {
    turns::end(sandbox, "s", turn);
}

fn turn(sandbox: &Sandbox, name: &str) -> Turn {
    turns::turns(sandbox).into_iter().find(|turn| turn.record.turn == name).expect("a turn")
}

/// Ends a turn that changed the second line, and then edits that line by hand.
fn edited_in_the_way(sandbox: &Sandbox) {
    sandbox.write("a", TEN);
    start(sandbox, "one");
    sandbox.write("a", TEN.replace("two", "2"));
    end(sandbox, "one");
    sandbox.write("a", TEN.replace("two", "mine"));
}

fn try_revert(sandbox: &Sandbox, name: &str, options: RevertOptions<'_>) -> piton::Result<RevertReport> {
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let turn = turn(sandbox, name);
    revert(&store_of(sandbox), &project, &turn, options, &Settings::default(), now(), &Progress::default())
}

pub(crate) fn reverted(sandbox: &Sandbox, name: &str, options: RevertOptions<'_>) -> RevertReport {
    try_revert(sandbox, name, options).expect("a revert")
}

const TEN: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";

/// A turn that edits, adds, deletes and renames files, the user's edits after it, and another turn.
fn play(sandbox: &Sandbox) {
    sandbox.write("edited", TEN);
    sandbox.write("deleted", "kept words\n");
    sandbox.chmod("deleted", 0o600);
    sandbox.write("old name", TEN.replace("one", "ONE"));
    symlink("edited", sandbox.path("link")).expect("a link");
    sandbox.write("run", "#!/bin/sh\n");
    start(sandbox, "one");
    sandbox.write("edited", TEN.replace("two", "2"));
    fs::remove_file(sandbox.path("deleted")).expect("removed");
    sandbox.write("dir/added", "by the turn\n");
    fs::rename(sandbox.path("old name"), sandbox.path("new name")).expect("renamed");
    fs::remove_file(sandbox.path("link")).and_then(|()| symlink("run", sandbox.path("link"))).expect("a link");
    sandbox.chmod("run", 0o755);
    end(sandbox, "one");
    sandbox.write("edited", TEN.replace("two", "2").replace("nine", "9, by the user"));
    sandbox.write("own", "by the user\n");
    start(sandbox, "two");
    sandbox.write("new name", TEN.replace("one", "ONE").replace("ten", "10, by turn two"));
    end(sandbox, "two");
}

#[test]
fn only_the_changes_of_the_turn_go_and_an_undo_brings_every_byte_back() {
    let sandbox = Sandbox::new();
    play(&sandbox);
    let before = state_of(&sandbox.project());
    let dry = reverted(&sandbox, "one", RevertOptions::default().is_dry(true));
    assert_eq!((dry.outcome, dry.restore), (RevertOutcome::Reverted, None));
    assert_same(&state_of(&sandbox.project()), &before, "after a dry run");
    let report = reverted(&sandbox, "one", RevertOptions::default());
    assert_eq!((report.outcome, &report.paths), (RevertOutcome::Reverted, &dry.paths));
    let file = |text: &str| Held::File(false, text.as_bytes().to_vec());
    let want = State::from([
        (b"edited".to_vec(), file(&TEN.replace("nine", "9, by the user"))),
        (b"deleted".to_vec(), file("kept words\n")),
        (b"old name".to_vec(), file(&TEN.replace("one", "ONE").replace("ten", "10, by turn two"))),
        (b"link".to_vec(), Held::Link(b"edited".to_vec())),
        (b"run".to_vec(), file("#!/bin/sh\n")),
        (b"own".to_vec(), file("by the user\n")),
    ]);
    assert_eq!(files_in(&sandbox.project()), want);
    let mode = |path: &str| fs::metadata(sandbox.path(path)).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode("deleted"), mode("run")), (0o600, 0o644));
    assert!(!sandbox.path("dir").exists());
    sandbox.assert_store_is_whole();
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
    restored(&sandbox, RestoreTo::Redo, &[]);
    assert_eq!(files_in(&sandbox.project()), want);
}

/// E1.
#[test]
fn on_a_conflict_nothing_is_written_and_the_turn_in_the_way_is_named() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    sandbox.write("b", TEN);
    start(&sandbox, "one");
    sandbox.write("a", TEN.replace("two", "2"));
    sandbox.write("b", TEN.replace("two", "2"));
    end(&sandbox, "one");
    sandbox.write("c", "an edit between the turns\n");
    start(&sandbox, "two");
    sandbox.write("a", TEN.replace("two", "II"));
    end(&sandbox, "two");
    let before = (state_of(&sandbox.project()), state_of(&sandbox.store()));
    let report = reverted(&sandbox, "one", RevertOptions::default());
    assert_eq!((report.outcome, report.conflicts.len()), (RevertOutcome::Conflict, 1));
    let conflict = &report.conflicts[0];
    assert_eq!(conflict.conflict.path, b"a");
    assert!(matches!(&conflict.conflict.reason, ConflictReason::Lines(lines) if lines[0].ours == (1..2)));
    assert!(matches!(&*conflict.in_the_way, [InTheWay::Turn(by)] if by.turn == "two"), "{:?}", conflict.in_the_way);
    assert_same(&state_of(&sandbox.project()), &before.0, "the project");
    assert_same(&state_of(&sandbox.store()), &before.1, "the store");
    let report = reverted(&sandbox, "one", RevertOptions::default().skip_conflicts(true));
    assert_eq!((report.outcome, report.paths), (RevertOutcome::Partly, vec![b"b".to_vec()]));
    assert_eq!(fs::read_to_string(sandbox.path("b")).expect("a file"), TEN);
    assert_eq!(fs::read_to_string(sandbox.path("a")).expect("a file"), TEN.replace("two", "II"));
}

#[test]
fn edits_of_the_user_in_the_way_are_named_as_such() {
    let sandbox = Sandbox::new();
    edited_in_the_way(&sandbox);
    let report = reverted(&sandbox, "one", RevertOptions::default());
    assert_eq!(
        (report.outcome, &*report.conflicts[0].in_the_way),
        (RevertOutcome::Conflict, &[InTheWay::OwnEdits][..])
    );
}

#[test]
fn a_turn_that_the_user_took_back_by_hand_leaves_nothing_to_do() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    start(&sandbox, "one");
    sandbox.write("a", TEN.replace("two", "2"));
    end(&sandbox, "one");
    sandbox.write("a", TEN.replace("nine", "mine"));
    let report = reverted(&sandbox, "one", RevertOptions::default().is_dry(true));
    assert_eq!((report.outcome, report.paths), (RevertOutcome::NothingToDo, Vec::new()));
    let report = reverted(&sandbox, "one", RevertOptions::default());
    assert_eq!((report.outcome, report.paths), (RevertOutcome::NothingToDo, Vec::new()));
    assert_eq!(fs::read_to_string(sandbox.path("a")).expect("a file"), TEN.replace("nine", "mine"));
}

#[test]
fn paths_and_hunks_of_a_turn_are_reverted_alone() {
    let sandbox = Sandbox::new();
    let long = format!("{TEN}{TEN}{TEN}");
    let changed = long.replacen("two", "2", 1) + "last\n";
    sandbox.write("a", &long);
    sandbox.write("b", &long);
    start(&sandbox, "one");
    sandbox.write("a", &changed);
    sandbox.write("b", &changed);
    end(&sandbox, "one");
    let a = [b"a".to_vec()];
    let hunks = [(b"a".to_vec(), BTreeSet::from([31]))];
    let options = RevertOptions::default().paths(&a).hunks(&hunks);
    assert_eq!(reverted(&sandbox, "one", options).paths, a);
    assert_eq!(fs::read_to_string(sandbox.path("a")).expect("a file"), long.replacen("two", "2", 1));
    assert_eq!(fs::read_to_string(sandbox.path("b")).expect("a file"), changed);
    assert_eq!(reverted(&sandbox, "one", RevertOptions::default().paths(&a)).paths, a);
    assert_eq!(fs::read_to_string(sandbox.path("a")).expect("a file"), long);
    let missing = [(b"a".to_vec(), BTreeSet::from([15]))];
    let result = try_revert(&sandbox, "one", RevertOptions::default().hunks(&missing));
    assert_eq!(result.expect_err("nothing changed there").kind(), ErrorKind::Invalid);
}

#[test]
fn a_file_that_the_turn_added_or_deleted_has_no_hunks() {
    let sandbox = Sandbox::new();
    sandbox.write("deleted", TEN);
    start(&sandbox, "one");
    sandbox.write("added", TEN);
    fs::remove_file(sandbox.path("deleted")).expect("removed");
    end(&sandbox, "one");
    for (path, why) in [("added", "added"), ("deleted", "deleted"), ("other", "did not change")] {
        let hunks = [(path.as_bytes().to_vec(), BTreeSet::from([1]))];
        let options = RevertOptions::default().hunks(&hunks);
        let error = try_revert(&sandbox, "one", options).expect_err("no hunks");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&format!("{path}: the turn {why} ")), "{error}");
    }
}

#[test]
fn a_turn_without_a_reported_end_needs_consent_and_one_that_runs_does_not() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    start(&sandbox, "one");
    sandbox.write("a", TEN.replace("two", "2"));
    start(&sandbox, "two");
    sandbox.write("b", "work\n");
    let result = try_revert(&sandbox, "one", RevertOptions::default());
    assert_eq!(result.expect_err("open-ended").kind(), ErrorKind::NeedsConsent);
    assert_eq!(reverted(&sandbox, "two", RevertOptions::default()).paths, [b"b".to_vec()]);
    let options = RevertOptions::default().with_own_edits(true);
    assert_eq!(reverted(&sandbox, "one", options).outcome, RevertOutcome::Reverted);
    assert_eq!(files_in(&sandbox.project()), State::from([(b"a".to_vec(), Held::File(false, TEN.into()))]));
    assert_eq!(reverted(&sandbox, "one", options).outcome, RevertOutcome::NothingToDo);
}

#[test]
fn a_turn_during_which_another_session_worked_needs_consent() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    start(&sandbox, "one");
    sandbox.write("a", TEN.replace("two", "2"));
    let other = Origin::default().agent("codex").session("other").turn("x");
    turns::take(&sandbox, "prompt: x", other);
    sandbox.write("b", "work of codex\n");
    end(&sandbox, "one");
    let error = try_revert(&sandbox, "one", RevertOptions::default()).expect_err("codex worked, too");
    assert_eq!(error.kind(), ErrorKind::NeedsConsent);
    assert!(error.to_string().contains("codex"), "{error}");
    let options = RevertOptions::default().across_sessions(true);
    assert_eq!(reverted(&sandbox, "one", options).paths, [b"a".to_vec(), b"b".to_vec()]);
}

#[test]
fn a_turn_is_found_by_its_name_and_by_the_row_that_it_began_from() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    start(&sandbox, "one");
    sandbox.write("a", TEN.replace("two", "2"));
    start(&sandbox, "two");
    sandbox.write("b", "by hand\n");
    turns::take(&sandbox, "by hand", Origin::default());
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let history = History::of(&store_of(&sandbox), &project).expect("a history");
    let find = |name: &str, agent: Option<&str>| history.turn(name, agent).map(|turn| turn.record.turn);
    for (name, want) in [("one", "one"), ("two", "two"), ("2", "two"), ("3", "one")] {
        assert_eq!(find(name, None).expect("a turn"), want);
        assert_eq!(find(name, Some("claude")).expect("a turn"), want);
    }
    let error = find("1", None).expect_err("no turn began there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.hint(), Some(Hint::NameNearestTurn { number: 2 }));
    assert_eq!(find("2", Some("codex")).expect_err("another agent").kind(), ErrorKind::NotFound);
    assert_eq!(find("no such turn", None).expect_err("no number").kind(), ErrorKind::Invalid);
}

#[test]
fn no_commit_of_a_revert_quotes_the_prompt() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    start(&sandbox, "secret words");
    sandbox.write("a", TEN.replace("two", "2"));
    let before = turn(&sandbox, "secret words").before.short();
    reverted(&sandbox, "secret words", RevertOptions::default());
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let history = History::of(&store_of(&sandbox), &project).expect("a history");
    let reasons: Vec<_> = history.checkpoints().iter().map(|checkpoint| checkpoint.reason.clone()).collect();
    assert_eq!(
        reasons[1..3],
        [format!("revert of the turn from {before}"), format!("before revert of the turn from {before}")]
    );
    assert_eq!(reasons.iter().filter(|reason| reason.contains("secret")).count(), 1, "{reasons:?}");
}

#[test]
fn the_json_of_a_revert_names_conflicts_and_what_is_in_the_way() {
    let sandbox = Sandbox::new();
    edited_in_the_way(&sandbox);
    let report = reverted(&sandbox, "one", RevertOptions::default());
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!((&json["outcome"], &json["dry_run"], &json["id"]), (&"conflict".into(), &false.into(), &().into()));
    let conflict = serde_json::json!([{
        "path": "a", "other_paths": [], "reason": "lines", "lines": [[2, 2]], "turn": null,
        "in_the_way": [{"by": "you", "turn": null, "session": null, "agent": null, "prompt": null}],
    }]);
    assert_eq!(json["conflicts"], conflict);
}

pub(crate) fn lay_out(sandbox: &Sandbox, state: &State) {
    let project = sandbox.project();
    for entry in fs::read_dir(&project).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        let is_dir = entry.symlink_metadata().expect("an entry").is_dir();
        if is_dir { fs::remove_dir_all(entry) } else { fs::remove_file(entry) }.expect("removed");
    }
    for (path, held) in state {
        match held {
            Held::Link(target) => sandbox.link(path, target),
            Held::File(is_executable, bytes) => {
                sandbox.write(path, bytes);
                sandbox.chmod(path, if *is_executable { 0o755 } else { 0o644 });
            }
        }
    }
}

#[test]
fn random_histories_are_reverted_in_files_as_in_memory_and_undone() {
    let mut clean = 0;
    for seed in 5000..5040 {
        let states = history(seed);
        let sandbox = Sandbox::new();
        lay_out(&sandbox, &states.start);
        start(&sandbox, "one");
        lay_out(&sandbox, &states.end);
        end(&sandbox, "one");
        lay_out(&sandbox, &states.now);
        let before = state_of(&sandbox.project());
        let (merge, want) = oracle::revert(&states);
        let report = reverted(&sandbox, "one", RevertOptions::default());
        let conflicts: Vec<_> = report.conflicts.into_iter().map(|found| found.conflict).collect();
        assert_eq!(conflicts, merge.conflicts, "seed {seed}");
        if report.outcome != RevertOutcome::Reverted {
            assert_same(&state_of(&sandbox.project()), &before, &format!("seed {seed}"));
            continue;
        }
        clean += 1;
        assert_eq!(files_in(&sandbox.project()), want, "seed {seed}");
        restored(&sandbox, RestoreTo::Undo, &[]);
        assert_same(&state_of(&sandbox.project()), &before, &format!("seed {seed} after undo"));
    }
    assert!(clean > 10, "too few histories are clean: {clean}");
}
