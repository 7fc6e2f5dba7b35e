//! Files that no checkpoint covers, moved aside by one restore and moved back by another, while the list of excluded names
//! changes in between.

use std::fs;

use piton::{
    Moment, Progress, Project, Restore, RestoreOptions, RestorePlan, RestoreReport, RestoreTo, Settings, Store,
};
use testkit::Sandbox;

use crate::kit::{now, take_with, taken};
use crate::restore_kit::{State, assert_same, left_by, pairs, restore_between, state_of};

fn all() -> Settings {
    Settings::default()
}

/// Settings that leave out all names that end in `.ex`.
fn some() -> Settings {
    Settings::default().exclude(vec!["*.ex".into()])
}

/// Paths, sorted.
type Paths = Vec<Vec<u8>>;

fn planned(plan: &RestorePlan) -> (Paths, Paths, Paths) {
    let mut written: Vec<_> = plan.written().map(|(path, _)| path.to_vec()).collect();
    let mut left: Vec<_> = plan.left().iter().map(|left| left.path.clone()).collect();
    written.sort();
    left.sort();
    (written, plan.removed().map(<[u8]>::to_vec).collect(), left)
}

/// Restores at a given time, and what is done is what was planned.
fn restore_at(
    sandbox: &Sandbox,
    to: RestoreTo<'_>,
    move_uncovered_files: bool,
    settings: &Settings,
    now: Moment,
) -> RestoreReport {
    let store = Store::open_or_create(&sandbox.base(), now).expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let options = RestoreOptions::default().move_uncovered_files(move_uncovered_files);
    let restore = Restore::prepare(&store, &project, to, options, settings, now, &Progress::default()).expect("a plan");
    let foreseen = planned(restore.plan());
    let report = restore.apply().expect("a restore");
    let left: Vec<_> = report.left.iter().map(|left| left.path.clone()).collect();
    assert_eq!((report.written.clone(), report.removed.clone(), left), foreseen, "{report:?}");
    report
}

fn restore(sandbox: &Sandbox, to: RestoreTo<'_>, settings: &Settings) -> RestoreReport {
    restore_at(sandbox, to, false, settings, now())
}

fn restore_by_force(sandbox: &Sandbox, to: RestoreTo<'_>, settings: &Settings) -> RestoreReport {
    restore_at(sandbox, to, true, settings, now())
}

/// Takes `old`, puts `mine` in its place, and restores by force what was taken, when the settings leave out `x.ex`. Then that is
/// undone. Returns the states before the restore and after it; the newest checkpoint is the one that redo goes back to.
fn moved_aside_and_back(sandbox: &Sandbox, old: &str, mine: &str) -> [State; 2] {
    sandbox.tree(old);
    taken(&take_with(sandbox, &sandbox.project(), &all()));
    let dir = sandbox.project();
    fs::remove_dir_all(sandbox.path("x.ex")).or_else(|_| fs::remove_file(sandbox.path("x.ex"))).expect("x.ex");
    sandbox.tree(mine);
    let before = state_of(&dir);
    let report = restore_by_force(sandbox, RestoreTo::Named("1"), &some());
    assert_eq!((report.moved_aside.len(), report.left), (1, vec![]));
    let after = state_of(&dir);
    assert_eq!(restore(sandbox, RestoreTo::Undo, &some()).left, []);
    assert_same(&state_of(&dir), &before, "undone");
    [before, after]
}

/// The forms that a thing and what takes its place may have.
const FORMS: [(&str, &str); 5] = [
    ("x.ex = old\n b", "x.ex = mine\n b"),
    ("x.ex = old\n b", "x.ex -> nowhere\n b"),
    ("x.ex = old\n b", "x.ex/f = mine\n x.ex/d/\n b"),
    ("x.ex/f = old\n x.ex/d/\n b", "x.ex = mine\n b"),
    ("x.ex/f = old\n x.ex/deep/g = 1\n b", "x.ex -> nowhere\n b"),
];

/// R5.
#[test]
fn undo_moves_back_what_the_settings_cover_by_then() {
    for (old, mine) in FORMS {
        let sandbox = Sandbox::new();
        let [before, after] = moved_aside_and_back(&sandbox, old, mine);
        // Not redo: that would say the same.
        assert_eq!(restore(&sandbox, RestoreTo::Named("1"), &all()).left, [], "{old}");
        assert_same(&state_of(&sandbox.project()), &after, "restored");
        assert_eq!(restore(&sandbox, RestoreTo::Undo, &all()).left, [], "{old}");
        assert_same(&state_of(&sandbox.project()), &before, "undone");
        assert_eq!(restore(&sandbox, RestoreTo::Redo, &some()).left, [], "{old}");
        assert_same(&state_of(&sandbox.project()), &after, "redone");
    }
}

/// A path that the plan does not move is not counted as moved either.
#[test]
fn a_move_whose_place_is_taken_is_not_planned() {
    let sandbox = Sandbox::new();
    moved_aside_and_back(&sandbox, "x.ex = old\n b", "x.ex = mine\n b");
    assert_eq!(restore(&sandbox, RestoreTo::Redo, &some()).left, []);
    // The place that it had then is taken by the file itself; this is another one.
    sandbox.write("x.ex", "edited");
    let before = state_of(&sandbox.project());
    let report = restore(&sandbox, RestoreTo::Named("2"), &some());
    assert_eq!(left_by(&report), pairs(&[("x.ex", "excluded")]));
    assert_same(&state_of(&sandbox.project()), &before, "nothing was to be done");
}

#[test]
fn a_file_that_was_edited_while_it_was_aside_is_not_taken_for_what_the_checkpoint_holds() {
    let sandbox = Sandbox::new();
    let [before, _] = moved_aside_and_back(&sandbox, "x.ex = old\n b", "x.ex = mine\n b");
    let aside = restore_by_force(&sandbox, RestoreTo::Named("1"), &all());
    assert_eq!((aside.left, aside.moved_aside), (vec![], vec![]));
    let name = fs::read_dir(sandbox.project()).expect("a directory").map(|entry| entry.expect("one").file_name());
    let name = name.into_iter().find(|name| name.to_string_lossy().contains(".uncovered-")).expect("it is aside");
    sandbox.write(name.to_str().expect("text"), "edited while it was aside");
    assert_eq!(restore(&sandbox, RestoreTo::Undo, &all()).left, []);
    assert_same(&state_of(&sandbox.project()), &before, "as the checkpoint holds it");
}

fn restore_path(sandbox: &Sandbox, path: &[u8], settings: &Settings) {
    let paths = [path.to_vec()];
    let options = RestoreOptions::default().paths(&paths);
    let report = restore_between(sandbox, RestoreTo::Named("1"), options, settings, |_| {}).expect("a restore");
    assert_eq!(report.left, []);
}

#[test]
fn a_path_that_is_asked_for_takes_no_other_file_from_its_place() {
    let sandbox = Sandbox::new();
    let [before, after] = moved_aside_and_back(&sandbox, "x.ex = old\n b", "x.ex = mine\n b");
    let aside = after.keys().find(|path| path.starts_with(b"x.ex.")).expect("it was aside");
    restore_path(&sandbox, aside, &all());
    let mut with_aside = before.clone();
    with_aside.insert(aside.clone(), after[aside].clone());
    assert_same(&state_of(&sandbox.project()), &with_aside, "one path");
}

#[test]
fn a_path_that_is_asked_for_comes_back_from_where_it_went_aside() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.ex = old\n b");
    taken(&take_with(&sandbox, &sandbox.project(), &all()));
    sandbox.write("x.ex", "mine");
    let before = state_of(&sandbox.project());
    assert_eq!(restore_by_force(&sandbox, RestoreTo::Named("1"), &some()).left, []);
    restore_path(&sandbox, b"x.ex", &some());
    assert_same(&state_of(&sandbox.project()), &before, "restored");
}

#[test]
fn what_took_the_place_of_a_moved_directory_makes_way() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.ex = old\n b");
    taken(&take_with(&sandbox, &sandbox.project(), &all()));
    fs::remove_file(sandbox.path("x.ex")).expect("a file");
    sandbox.tree("x.ex/f = mine\n b");
    let before = state_of(&sandbox.project());
    assert_eq!(restore_by_force(&sandbox, RestoreTo::Named("1"), &some()).left, []);
    fs::remove_file(sandbox.path("x.ex")).expect("the file that was restored");
    sandbox.tree("x.ex/made-since\n x.ex/empty/");
    assert_eq!(restore(&sandbox, RestoreTo::Undo, &all()).left, []);
    assert_same(&state_of(&sandbox.project()), &before, "undone");
}

/// A directory that is wanted both for a file in it and for an empty one.
#[test]
fn a_file_in_the_way_is_moved_aside_once() {
    let sandbox = Sandbox::new();
    sandbox.tree("x.ex/f = old\n x.ex/empty/\n b");
    taken(&take_with(&sandbox, &sandbox.project(), &all()));
    fs::remove_dir_all(sandbox.path("x.ex")).expect("a directory");
    sandbox.tree("x.ex = mine");
    let before = state_of(&sandbox.project());
    let report = restore_by_force(&sandbox, RestoreTo::Named("1"), &some());
    assert_eq!((report.moved_aside.len(), report.left), (1, vec![]));
    assert_eq!(restore(&sandbox, RestoreTo::Undo, &some()).left, []);
    assert_same(&state_of(&sandbox.project()), &before, "undone");
}

/// Two restores in the same second.
#[test]
fn nothing_goes_aside_under_a_name_that_the_checkpoint_holds() {
    let sandbox = Sandbox::new();
    let now = now();
    sandbox.tree("x.ex = old\n b");
    taken(&take_with(&sandbox, &sandbox.project(), &all()));
    sandbox.write("x.ex", "mine");
    assert_eq!(restore_at(&sandbox, RestoreTo::Named("1"), true, &some(), now).moved_aside.len(), 1);
    let both = taken(&take_with(&sandbox, &sandbox.project(), &all()));
    let held = state_of(&sandbox.project());
    let (aside, _) = held.iter().find(|(path, _)| path.starts_with(b"x.ex.")).expect("it is aside");
    let aside = String::from_utf8(aside.clone()).expect("text");
    fs::remove_file(sandbox.path(&aside)).expect("a file");
    sandbox.write("x.ex", "another");
    let report = restore_at(&sandbox, RestoreTo::Named(&both), true, &some(), now);
    assert_eq!((report.moved_aside.len(), left_by(&report)), (1, vec![]));
    let read = |path: &str| fs::read_to_string(sandbox.path(path)).expect("a file");
    assert_eq!([read("x.ex"), read(&aside), read(&format!("{aside}-2"))], ["old", "mine", "another"]);
}

/// R5. An empty directory whose place a directory takes that is renamed back, comes back with the undo.
#[test]
fn undo_creates_an_empty_directory_whose_place_was_taken_by_a_rename() {
    let sandbox = Sandbox::new();
    let dir = sandbox.project();
    sandbox.tree("x.ex = old\n b");
    taken(&take_with(&sandbox, &dir, &all()));
    fs::remove_file(sandbox.path("x.ex")).expect("x.ex");
    sandbox.tree("x.ex/");
    let moved = restore_by_force(&sandbox, RestoreTo::Named("1"), &some());
    assert_eq!((moved.moved_aside.len(), moved.left), (1, vec![]));
    fs::remove_file(sandbox.path("x.ex")).expect("x.ex");
    sandbox.tree("x.ex/");
    let before = state_of(&dir);
    // The safety checkpoint of the restore above lists the rename.
    assert_eq!(restore(&sandbox, RestoreTo::Named("1"), &all()).left, []);
    assert_eq!(restore(&sandbox, RestoreTo::Undo, &all()).left, []);
    assert_same(&state_of(&dir), &before, "undone");
}
