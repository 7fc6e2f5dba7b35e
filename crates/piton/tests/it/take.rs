//! Outcomes of a take: taken, unchanged, or declined with a reason.

use std::fs;

use piton::{CheckpointKind, Origin, Outcome, Progress, Project, Request, Settings, Store, WhySkipped};
use testkit::{Sandbox, files_in};

use crate::kit::{now, take, take_for, take_with, taken};

fn auto(session: &str, turn: &str) -> Request {
    let origin = Origin::default().session(session).turn(turn);
    Request::default().reason("before write_file").kind(CheckpointKind::Auto).origin(origin)
}

fn enabled() -> Settings {
    Settings::default().enabled(true)
}

#[test]
fn a_checkpoint_holds_exactly_the_files() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n src/main.rs = fn main() {}\\n\n *run.sh = #!/bin/sh\\n\n link -> src/main.rs\n empty/");
    let id = taken(&take(&sandbox));
    assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()));
    sandbox.assert_store_is_whole();
    assert_eq!(sandbox.temporary_files(), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn nothing_changed_is_unchanged_and_writes_no_object() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n dir/b.txt");
    let id = taken(&take(&sandbox));
    let objects = sandbox.count_objects("commit");
    for _ in 0..3 {
        let report = take(&sandbox);
        assert!(matches!(report.outcome, Outcome::Unchanged(same) if same.to_string() == id), "{report:?}");
    }
    assert_eq!(sandbox.count_objects("commit"), objects);
    sandbox.assert_store_is_whole();
}

#[test]
fn each_change_is_seen() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\n dir/b.txt\n dir/deep/c.txt");
    taken(&take(&sandbox));
    let changes: [&dyn Fn(&Sandbox); 10] = [
        &|s| s.write("a.txt", "two"),
        &|s| s.write("dir/new.txt", "new"),
        &|s| fs::remove_file(s.path("dir/deep/c.txt")).expect("a file"),
        &|s| s.chmod("a.txt", 0o755),
        &|s| s.chmod("a.txt", 0o700),
        &|s| fs::create_dir(s.path("empty")).expect("a directory"),
        &|s| s.chmod("empty", 0o700),
        &|s| fs::rename(s.path("a.txt"), s.path("z.txt")).expect("a rename"),
        &|s| s.link("link", "z.txt"),
        &|s| {
            fs::remove_file(s.path("dir/new.txt")).expect("a file");
            s.tree("dir/new.txt/now-a-directory");
        },
    ];
    for (number, change) in changes.iter().enumerate() {
        change(&sandbox);
        let id = taken(&take(&sandbox));
        assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()), "after change {number}");
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn automatic_ones_are_off_by_default_and_do_no_work() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let report = piton::take(&store, &project, &auto("s", "t"), &Settings::default(), now(), &Progress::default());
    assert_eq!(report.expect("a report").outcome, Outcome::Skipped(WhySkipped::Disabled));
    assert!(!store.knows(project.id()));
}

#[test]
fn one_per_project_session_and_turn() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let project = sandbox.project();
    taken(&take_for(&sandbox, &project, &enabled(), &auto("s", "t1")));
    sandbox.write("a.txt", "2");
    let again = take_for(&sandbox, &project, &enabled(), &auto("s", "t1"));
    assert_eq!(again.outcome, Outcome::Skipped(WhySkipped::AlreadyThisTurn));
    taken(&take_for(&sandbox, &project, &enabled(), &auto("other", "t1")));
    sandbox.write("a.txt", "3");
    taken(&take_for(&sandbox, &project, &enabled(), &auto("s", "t2")));
}

#[test]
fn a_refused_take_consumes_the_turn_and_a_timeout_does_not() {
    let sandbox = Sandbox::new();
    let project = sandbox.project();
    sandbox.tree("a.txt");
    taken(&take_for(&sandbox, &project, &enabled(), &auto("s", "t0")));
    sandbox.tree("a.txt\nb.txt");
    let few = enabled().max_files(1);
    let refused = take_for(&sandbox, &project, &few, &auto("s", "t"));
    assert_eq!(refused.outcome, Outcome::Skipped(WhySkipped::TooManyFiles));
    let again = take_for(&sandbox, &project, &enabled(), &auto("s", "t"));
    assert_eq!(again.outcome, Outcome::Skipped(WhySkipped::AlreadyThisTurn));

    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let at = Project::at(&project, None).expect("a project");
    let progress = Progress::default();
    progress.cancel();
    // A process that another test starts holds a lock of this one until it executes its program.
    let late = || piton::take(&store, &at, &auto("s", "t2"), &enabled(), now(), &progress).expect("a report").outcome;
    let late = (0..10_000).map(|_| late()).find(|outcome| *outcome != Outcome::Skipped(WhySkipped::Busy));
    assert_eq!(late, Some(Outcome::Skipped(WhySkipped::Deadline)));
    taken(&take_for(&sandbox, &project, &enabled(), &auto("s", "t2")));
    assert!(sandbox.temporary_files().is_empty());
}

#[test]
fn a_turn_that_met_another_program_may_try_again() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt");
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let lock = sandbox.store().join(format!("refs/hermes/{}.lock", project.id()));
    fs::write(&lock, "").expect("stock git's own lock");
    let take = || piton::take(&store, &project, &auto("s", "t"), &enabled(), now(), &Progress::default());
    assert_eq!(take().map_err(|error| error.kind()), Err(piton::ErrorKind::Busy));
    fs::remove_file(&lock).expect("a file");
    taken(&take().expect("a report"));
}

#[test]
fn the_root_the_home_and_what_is_around_it_are_too_broad() {
    let sandbox = Sandbox::new();
    for dir in [std::path::Path::new("/"), &sandbox.home(), &sandbox.root()] {
        let report = take_with(&sandbox, dir, &Settings::default());
        assert_eq!(report.outcome, Outcome::Skipped(WhySkipped::TooBroad), "{}", dir.display());
    }
}

#[test]
fn an_empty_tree_is_declined_at_first_and_taken_later() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("only-a-directory")).expect("a directory");
    assert_eq!(take(&sandbox).outcome, Outcome::Skipped(WhySkipped::Empty));
    sandbox.tree("a.txt");
    taken(&take(&sandbox));
    fs::remove_file(sandbox.path("a.txt")).expect("a file");
    let id = taken(&take(&sandbox));
    assert!(sandbox.held_by(&id).is_empty());
    sandbox.assert_store_is_whole();
}

/// T4.
#[test]
fn more_files_than_the_limit_are_declined_and_excluded_ones_do_not_count() {
    let sandbox = Sandbox::new();
    for n in 0..30 {
        sandbox.write(format!("node_modules/{n}.js"), "x");
    }
    sandbox.tree("a\n b\n c");
    let limit = |max_files| Settings::default().max_files(max_files);
    let declined = take_with(&sandbox, &sandbox.project(), &limit(2));
    assert_eq!(declined.outcome, Outcome::Skipped(WhySkipped::TooManyFiles));
    taken(&take_with(&sandbox, &sandbox.project(), &limit(3)));
}

#[test]
fn two_identical_projects_share_their_blobs() {
    let sandbox = Sandbox::new();
    let other = sandbox.other_project("other");
    for n in 0..40 {
        let text = format!("the contents of file {n}");
        sandbox.write(format!("dir/{n}"), &text);
        fs::create_dir_all(other.join("dir")).expect("a directory");
        fs::write(other.join(format!("dir/{n}")), &text).expect("a file");
    }
    taken(&take(&sandbox));
    let before = (sandbox.count_objects("blob"), sandbox.count_objects("tree"));
    taken(&take_with(&sandbox, &other, &Settings::default()));
    assert_eq!((sandbox.count_objects("blob"), sandbox.count_objects("tree")), before);
    sandbox.assert_store_is_whole();
}
