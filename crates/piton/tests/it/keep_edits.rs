//! Restoring a checkpoint and keeping the edits of the user: every turn since then goes, and nothing else.

use std::fs;

use piton::{
    ErrorKind, Progress, Project, RestoreTo, RevertOptions, RevertOutcome, RevertReport, Settings,
    restore_keeping_edits, tell_sessions_of_revert,
};
use testkit::{Dice, Held, Sandbox, files_in};

use crate::kit::now;
use crate::merge::history::{State, two_turns};
use crate::merge::oracle;
use crate::restore_kit::{assert_same, restored, state_of};
use crate::revert::{lay_out, reverted};
use crate::turns::{self, end, start};
use crate::upkeep::store_of;

const TEN: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";

fn try_keeping(sandbox: &Sandbox, name: &str, options: RevertOptions<'_>) -> piton::Result<RevertReport> {
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let settings = Settings::default();
    restore_keeping_edits(&store_of(sandbox), &project, name, options, &settings, now(), &Progress::default())
}

fn kept(sandbox: &Sandbox, name: &str, options: RevertOptions<'_>) -> RevertReport {
    try_keeping(sandbox, name, options).expect("a restore")
}

fn text(sandbox: &Sandbox, path: &str) -> String {
    fs::read_to_string(sandbox.path(path)).expect("a file")
}

/// Three turns with edits of the user between them. Returns the id of the checkpoint before the second.
fn play(sandbox: &Sandbox) -> String {
    sandbox.write("a", TEN);
    start(sandbox, "s", "one");
    sandbox.write("a", TEN.replace("one", "1"));
    end(sandbox, "s", "one");
    sandbox.write("mine", "by the user\n");
    let second = start(sandbox, "s", "two");
    sandbox.write("a", TEN.replace("one", "1").replace("five", "5"));
    sandbox.write("made", "by turn two\n");
    end(sandbox, "s", "two");
    sandbox.write("a", TEN.replace("one", "1").replace("five", "5").replace("ten", "10, by the user"));
    start(sandbox, "s", "three");
    sandbox.write("a", TEN.replace("one", "1").replace("five", "V").replace("ten", "10, by the user"));
    sandbox.write("made too", "by turn three\n");
    end(sandbox, "s", "three");
    sandbox.write("mine", "by the user, twice\n");
    second.to_string()
}

#[test]
fn the_turns_since_go_and_the_edits_between_and_after_them_stay() {
    let sandbox = Sandbox::new();
    let second = play(&sandbox);
    let before = state_of(&sandbox.project());
    let dry = kept(&sandbox, &second, RevertOptions::default().is_dry(true));
    assert_eq!((dry.outcome, dry.paths.len(), dry.restore), (RevertOutcome::Reverted, 3, None));
    assert_same(&state_of(&sandbox.project()), &before, "after a dry run");
    let report = kept(&sandbox, &second, RevertOptions::default());
    assert_eq!(report.outcome, RevertOutcome::Reverted);
    let file = |text: &str| Held::File(false, text.as_bytes().to_vec());
    let want = State::from([
        (b"a".to_vec(), file(&TEN.replace("one", "1").replace("ten", "10, by the user"))),
        (b"mine".to_vec(), file("by the user, twice\n")),
    ]);
    assert_eq!(files_in(&sandbox.project()), want);
    let project = Project::at(&sandbox.project(), None).expect("a project");
    assert_eq!(tell_sessions_of_revert(&store_of(&sandbox), &project, &report).expect("told"), 1);
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
    assert_eq!(kept(&sandbox, "1", RevertOptions::default()).outcome, RevertOutcome::NothingToDo);
}

#[test]
fn an_edit_on_lines_of_a_turn_conflicts_and_the_file_is_left_by_all_turns() {
    let sandbox = Sandbox::new();
    let second = play(&sandbox);
    let edited = text(&sandbox, "a").replace("two\n", "two\nan insertion\n").replace('V', "mine");
    sandbox.write("a", &edited);
    let before = state_of(&sandbox.project());
    let report = kept(&sandbox, &second, RevertOptions::default());
    assert_eq!((report.outcome, report.conflicts.len()), (RevertOutcome::Conflict, 1));
    assert_eq!((&*report.conflicts[0].conflict.path, report.conflicts[0].lines()), (&b"a"[..], vec![[6, 6]]));
    assert_same(&state_of(&sandbox.project()), &before, "nothing is written");
    let report = kept(&sandbox, &second, RevertOptions::default().skip_conflicts(true));
    assert_eq!((report.outcome, report.paths), (RevertOutcome::Partly, vec![b"made".to_vec(), b"made too".to_vec()]));
    assert_eq!(text(&sandbox, "a"), edited);
}

/// The lines of a conflict with an earlier turn are those of the current file, not of a result in between.
#[test]
fn a_conflict_with_an_earlier_turn_names_the_lines_of_the_current_file() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    let first = start(&sandbox, "s", "one").to_string();
    sandbox.write("a", TEN.replace("nine", "9"));
    end(&sandbox, "s", "one");
    sandbox.write("a", TEN.replace("nine", "mine"));
    start(&sandbox, "s", "two");
    sandbox.write("a", format!("0\n00\n{}", TEN.replace("nine", "mine")));
    end(&sandbox, "s", "two");
    let report = kept(&sandbox, &first, RevertOptions::default());
    assert_eq!((report.outcome, report.conflicts[0].lines()), (RevertOutcome::Conflict, vec![[11, 11]]));
}

#[test]
fn turns_of_other_sessions_and_turns_without_an_end_need_consent() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    let first = start(&sandbox, "s", "one").to_string();
    sandbox.write("a", TEN.replace("two", "2"));
    start(&sandbox, "s", "two");
    sandbox.write("b", "work\n");
    end(&sandbox, "s", "two");
    sandbox.write("mine", "by the user\n");
    start(&sandbox, "other", "x");
    sandbox.write("c", "work of another\n");
    end(&sandbox, "other", "x");
    let refused = |options: RevertOptions<'_>| try_keeping(&sandbox, &first, options).expect_err("refused").kind();
    let (own, across) = (RevertOptions::default(), RevertOptions::default().across_sessions(true));
    assert_eq!((refused(own), refused(across)), (ErrorKind::NeedsConsent, ErrorKind::NeedsConsent));
    let report = kept(&sandbox, &first, across.with_own_edits(true));
    assert_eq!(report.outcome, RevertOutcome::Reverted);
    let want = [("a", TEN), ("mine", "by the user\n")];
    let want = want.map(|(path, text)| (path.as_bytes().to_vec(), Held::File(false, text.into())));
    assert_eq!(files_in(&sandbox.project()), State::from(want));
}

#[test]
fn random_histories_of_two_turns_come_out_as_git_merges_them() {
    let (mut clean, mut conflicting) = (0, 0);
    for seed in 0..40 {
        let states = two_turns(seed);
        let [start_one, end_one, start_two, end_two, now] = &states;
        let sandbox = Sandbox::new();
        lay_out(&sandbox, start_one);
        let first = start(&sandbox, "s", "one").to_string();
        lay_out(&sandbox, end_one);
        end(&sandbox, "s", "one");
        lay_out(&sandbox, start_two);
        start(&sandbox, "s", "two");
        lay_out(&sandbox, end_two);
        end(&sandbox, "s", "two");
        lay_out(&sandbox, now);
        let before = state_of(&sandbox.project());
        let report = kept(&sandbox, &first, RevertOptions::default());
        let by_git = oracle::two_turns_by_git(&states);
        if report.outcome == RevertOutcome::Conflict {
            conflicting += 1;
            assert_same(&state_of(&sandbox.project()), &before, &format!("seed {seed}"));
            continue;
        }
        clean += 1;
        assert_eq!(Some(files_in(&sandbox.project())), by_git, "seed {seed}");
        if report.restore.is_some() {
            restored(&sandbox, RestoreTo::Undo, &[]);
            assert_same(&state_of(&sandbox.project()), &before, &format!("seed {seed} after undo"));
        }
    }
    assert!(clean > 8 && conflicting > 0, "{clean} are clean, {conflicting} are not");
}

/// Changes some lines that are not the user's.
fn work(lines: &mut Vec<String>, dice: &mut Dice, name: &str) {
    for n in 0..4 {
        let own: Vec<usize> = (0..lines.len()).filter(|at| !lines[*at].starts_with("user")).collect();
        let at = own[dice.roll(own.len())];
        match dice.roll(3) {
            0 => lines[at] = format!("{name} {n}"),
            1 => lines.insert(at, format!("{name} {n}")),
            _ => drop(lines.remove(at)),
        }
    }
}

/// Adds some lines, none like another.
fn edit(lines: &mut Vec<String>, dice: &mut Dice, name: &str) {
    for n in 0..4 {
        lines.insert(dice.roll(lines.len() + 1), format!("user {name} {n}"));
    }
}

#[test]
fn no_line_of_the_user_is_taken_back() {
    let mut done = 0;
    for seed in 0..24 {
        let mut dice = Dice::new(seed + 1);
        let sandbox = Sandbox::new();
        let mut lines: Vec<String> = (0..80).map(|n| format!("line {n}")).collect();
        let write = |lines: &[String]| sandbox.write("file", lines.join("\n") + "\n");
        write(&lines);
        let first = start(&sandbox, "s", "one").to_string();
        work(&mut lines, &mut dice, "one");
        write(&lines);
        end(&sandbox, "s", "one");
        edit(&mut lines, &mut dice, "between");
        write(&lines);
        start(&sandbox, "s", "two");
        work(&mut lines, &mut dice, "two");
        write(&lines);
        end(&sandbox, "s", "two");
        edit(&mut lines, &mut dice, "after");
        write(&lines);
        let report = match seed % 3 {
            0 => reverted(&sandbox, "one", RevertOptions::default()),
            1 => reverted(&sandbox, "two", RevertOptions::default()),
            _ => kept(&sandbox, &first, RevertOptions::default()),
        };
        done += usize::from(report.outcome == RevertOutcome::Reverted);
        let result = text(&sandbox, "file");
        let of_user = |text: &mut dyn Iterator<Item = &str>| {
            text.filter(|line| line.starts_with("user")).map(str::to_owned).collect::<Vec<_>>()
        };
        let (now, was) = (of_user(&mut result.lines()), of_user(&mut lines.iter().map(String::as_str)));
        assert_eq!(now, was, "seed {seed}: {:?}", report.outcome);
    }
    assert!(done >= 8, "{done} of 24 were reverted");
}

/// An ignored file counts as covered by no checkpoint, not as deleted.
#[test]
fn a_file_that_is_ignored_since_is_a_conflict_and_stays() {
    let sandbox = Sandbox::new();
    sandbox.write("a", TEN);
    start(&sandbox, "s", "one");
    sandbox.write("a", TEN.replace("two", "2"));
    sandbox.write("build.out", "by the turn\n");
    end(&sandbox, "s", "one");
    sandbox.write(".gitignore", "*.out\n");
    turns::take(&sandbox, "by hand", piton::Origin::default());
    let report = reverted(&sandbox, "one", RevertOptions::default());
    assert_eq!((report.outcome, report.conflicts.len()), (RevertOutcome::Conflict, 1));
    assert_eq!(report.conflicts[0].conflict.reason, piton::merge::ConflictReason::Uncovered);
    let report = reverted(&sandbox, "one", RevertOptions::default().skip_conflicts(true));
    assert_eq!((report.outcome, report.paths), (RevertOutcome::Partly, vec![b"a".to_vec()]));
    assert_eq!(text(&sandbox, "build.out"), "by the turn\n");
}
