//! Files that a restore leaves alone: not covered by a checkpoint, changed since the plan, or not part of the project.

use std::fs;
use std::os::unix::fs::symlink;

use piton::{
    ErrorKind, Moment, Progress, Project, RestoreOptions, RestoreOutcome, RestoreReport, RestoreTo, Settings, Store,
};
use testkit::{Sandbox, git};

use crate::kit::{now, project_id, take, take_at, take_with, taken, without_roots_powers};
use crate::restore_kit::{
    State, assert_same, kind_of, left_by, pairs, restore_between, restored, state_of, try_restore,
};

const FIRST: RestoreTo<'_> = RestoreTo::Named("1");

fn small() -> Settings {
    Settings::default().max_file_size_mb(1)
}

fn restore_small(sandbox: &Sandbox, move_uncovered_files: bool) -> RestoreReport {
    let options = RestoreOptions::default().move_uncovered_files(move_uncovered_files);
    restore_between(sandbox, FIRST, options, &small(), |_| {}).expect("a restore")
}

fn read(sandbox: &Sandbox, path: &str) -> Vec<u8> {
    fs::read(sandbox.path(path)).expect("a file")
}

/// Restores, and runs `meanwhile` between the plan and its execution.
fn restore_while(sandbox: &Sandbox, meanwhile: impl FnOnce()) -> RestoreReport {
    let during = |_: &piton::Restore<'_>| meanwhile();
    restore_between(sandbox, FIRST, RestoreOptions::default(), &Settings::default(), during).expect("a restore")
}

fn make_fifo(sandbox: &Sandbox, path: &str) {
    let made = testkit::clean_command("mkfifo").arg(sandbox.path(path)).status().expect("mkfifo runs");
    assert!(made.success());
}

#[test]
fn files_never_covered_are_neither_touched_nor_reported() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = *.ig\\ngen/\\n\n a = 1\n x.ig = i\n gen/o\n node_modules/m.js\n .env = secret\n d/y.ig");
    sandbox.write("big", vec![b'x'; 2 << 20]);
    make_fifo(&sandbox, "pipe");
    taken(&take_with(&sandbox, &sandbox.project(), &small()));
    let before = state_of(&sandbox.project());
    sandbox.tree(
        "a = 2\n x.ig = ii\n gen/o = oo\n node_modules/m.js = mm\n .env = secret2\n d/y.ig = yy\n made/z.ig\n made/f",
    );
    sandbox.tree("since/f");
    sandbox.write("big", vec![b'y'; 2 << 20]);
    let mut want = state_of(&sandbox.project());
    want.insert(b"a".to_vec(), before[&b"a"[..]].clone());
    for path in ["made/f", "since/f", "since"] {
        want.remove(path.as_bytes());
    }
    let report = restore_small(&sandbox, false);
    assert_eq!((report.outcome, left_by(&report)), (RestoreOutcome::Restored, vec![]));
    assert_same(&state_of(&sandbox.project()), &want, "after the restore");
    let again = restore_small(&sandbox, false);
    assert_eq!(left_by(&again), []);
}

#[test]
fn what_is_there_already_but_for_what_is_left_out_takes_no_checkpoint() {
    for (tree, since) in
        [("a", "made/z.ig"), ("a\n e/", "made/deep/z.ig\n e/z.ig"), ("a\n gen/o\n gen/deep/o\n gen/empty/", "gen/made")]
    {
        let sandbox = Sandbox::new();
        sandbox.tree(tree);
        taken(&take(&sandbox));
        sandbox.tree(since);
        let settings = Settings::default().exclude(vec!["*.ig".into(), "gen/".into()]);
        let before = state_of(&sandbox.project());
        let report = restore_between(&sandbox, FIRST, RestoreOptions::default(), &settings, |_| {}).expect("a report");
        assert_eq!((report.outcome, report.safety), (RestoreOutcome::NothingToDo, None), "{since}");
        assert_same(&state_of(&sandbox.project()), &before, since);
    }
}

#[test]
fn what_is_covered_no_more_is_left_and_named_where_it_differs() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n same\n x.ig = 1\n gen/same\n gen/o = 1\n pipe = 1\n y.ig = 1\n z.ig/in");
    sandbox.tree("gen/gone = 1\n gen/deep/gone = 1");
    sandbox.tree("same.ig -> x\n link.ig -> x\n was-link.ig -> x");
    taken(&take(&sandbox));
    sandbox.tree("a = 2\n x.ig = 2\n gen/o = 2");
    for path in ["pipe", "y.ig", "link.ig", "was-link.ig"] {
        fs::remove_file(sandbox.path(path)).expect("a file");
    }
    fs::remove_file(sandbox.path("gen/gone")).expect("a file");
    fs::remove_dir_all(sandbox.path("gen/deep")).expect("a directory");
    fs::remove_dir_all(sandbox.path("z.ig")).expect("a directory");
    sandbox.tree("z.ig = a file now\n link.ig -> y\n was-link.ig = x");
    make_fifo(&sandbox, "pipe");
    let settings = Settings::default().exclude(vec!["*.ig".into(), "gen/".into()]);
    let report = restore_between(&sandbox, FIRST, RestoreOptions::default(), &settings, |_| {}).expect("a report");
    assert_eq!(report.outcome, RestoreOutcome::Partly);
    let left = left_by(&report);
    for expected in pairs(&[
        ("gen/o", "excluded"),
        ("pipe", "special"),
        ("x.ig", "excluded"),
        ("link.ig", "excluded"),
        ("was-link.ig", "excluded"),
    ]) {
        assert!(left.contains(&expected), "{expected:?} in {left:?}");
    }
    assert!(left.iter().any(|(path, _)| path.starts_with("z.ig")), "{left:?}");
    assert!(!left.iter().any(|(path, _)| path.contains("same") || path == "y.ig" || path == "a"), "{left:?}");
    // Paths where no file exists are restored: nothing can be lost there.
    assert_eq!(["gen/gone", "gen/deep/gone"].map(|path| read(&sandbox, path)), [b"1", b"1"]);
    assert_eq!((read(&sandbox, "x.ig"), read(&sandbox, "gen/o")), (b"2".to_vec(), b"2".to_vec()));
    assert_eq!((read(&sandbox, "a"), read(&sandbox, "y.ig")), (b"1".to_vec(), b"1".to_vec()));
    assert_eq!(read(&sandbox, "z.ig"), b"a file now");
}

#[test]
fn a_file_that_outgrew_the_limit_is_left_or_moved_aside_with_its_bytes() {
    let sandbox = Sandbox::new();
    sandbox.tree("log = small\n dir/log = small\n a = 1");
    taken(&take_with(&sandbox, &sandbox.project(), &small()));
    let large = vec![b'L'; 2 << 20];
    sandbox.write("log", &large);
    sandbox.write("dir/log", &large);
    sandbox.write("a", "2");
    let report = restore_small(&sandbox, false);
    assert_eq!(report.outcome, RestoreOutcome::Partly);
    assert_eq!(left_by(&report), pairs(&[("dir/log", "too_large"), ("log", "too_large")]));
    assert_eq!((read(&sandbox, "a"), read(&sandbox, "log") == large), (b"1".to_vec(), true));
    let checkpoint = crate::restore_kit::listed(&sandbox).last().expect("one").0.clone();
    let options = RestoreOptions::default().move_uncovered_files(true);
    let report = restore_between(&sandbox, RestoreTo::Named(&checkpoint), options, &small(), |_| {}).expect("a report");
    assert_eq!((report.outcome, report.moved_aside.len()), (RestoreOutcome::Restored, 2), "{report:?}");
    for (path, name) in &report.moved_aside {
        let dir = sandbox.path(path).parent().expect("a directory").to_owned();
        assert_eq!(fs::read(sandbox.path(path)).expect("a file"), b"small");
        assert!(fs::read(dir.join(testkit::os(name))).expect("what was moved") == large);
    }
    // A restore of another path brings none of it back.
    let (safety, paths) = (report.safety.expect("it was saved").to_string(), [b"a".to_vec()]);
    let options = RestoreOptions::default().paths(&paths);
    let other = restore_between(&sandbox, RestoreTo::Named(&safety), options, &small(), |_| {}).expect("a report");
    assert_eq!(other.outcome, RestoreOutcome::NothingToDo);
    // Files that were moved aside are moved back. If such a file is gone, nothing is moved to make room for it.
    let (_, name) = report.moved_aside.iter().find(|(path, _)| path == b"log").expect("it was moved");
    fs::remove_file(sandbox.path(name)).expect("what was moved");
    let undone = restore_between(&sandbox, RestoreTo::Undo, RestoreOptions::default(), &small(), |_| {});
    assert_eq!(left_by(&undone.expect("an undo")), pairs(&[("log", "left_out_then")]));
    assert_eq!((read(&sandbox, "log"), read(&sandbox, "dir/log") == large), (b"small".to_vec(), true));
}

#[test]
fn a_file_that_cannot_be_read_is_left_and_named() {
    if !without_roots_powers("restore_left::a_file_that_cannot_be_read_is_left_and_named") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("mine = 1\n closed/in = 1\n a = 1");
    taken(&take(&sandbox));
    sandbox.tree("mine = 2\n closed/in = 2\n a = 2");
    sandbox.chmod("mine", 0o000);
    sandbox.chmod("closed", 0o000);
    let report = try_restore(&sandbox, FIRST, &[]).expect("a report");
    assert_eq!(left_by(&report), pairs(&[("closed/in", "unreadable"), ("mine", "unreadable")]));
    sandbox.chmod("mine", 0o600);
    sandbox.chmod("closed", 0o700);
    assert_eq!(["mine", "closed/in", "a"].map(|path| read(&sandbox, path)), [b"2", b"2", b"1"]);
}

/// R2, W1.
#[test]
fn an_editor_that_writes_between_plan_and_work_keeps_its_text() {
    type Edit = (&'static str, &'static dyn Fn(&Sandbox), &'static str);
    let edits: [Edit; 10] = [
        ("changed", &|s| s.write("changed", "edited"), "changed"),
        ("changed", &|s| s.write("changed", "3"), "changed"),
        (
            "changed",
            &|s| {
                let before = fs::metadata(s.path("changed")).and_then(|found| found.modified()).expect("a time");
                s.write("changed", "3");
                fs::File::options()
                    .write(true)
                    .open(s.path("changed"))
                    .and_then(|file| file.set_modified(before))
                    .expect("a time");
            },
            "changed",
        ),
        (
            "changed",
            &|s| {
                s.write("changed.tmp", "edited");
                fs::rename(s.path("changed.tmp"), s.path("changed")).expect("a rename");
            },
            "changed",
        ),
        ("changed", &|s| fs::remove_file(s.path("changed")).expect("a file"), "changed"),
        ("made", &|s| s.write("made", "edited"), "changed"),
        ("made", &|s| fs::remove_file(s.path("made")).expect("a file"), "changed"),
        ("gone", &|s| s.write("gone", "edited"), "in_the_way"),
        ("gone", &|s| s.link("gone", "elsewhere"), "in_the_way"),
        ("gone", &|s| s.tree("gone/now/a/directory"), "in_the_way"),
    ];
    for (number, (path, edit, why)) in edits.into_iter().enumerate() {
        let sandbox = Sandbox::new();
        sandbox.tree("changed = 1\n gone = 1\n other = 1");
        taken(&take(&sandbox));
        sandbox.tree("changed = 2\n made = 2\n other = 2");
        fs::remove_file(sandbox.path("gone")).expect("a file");
        let mut edited = State::new();
        let report = restore_while(&sandbox, || {
            edit(&sandbox);
            edited = state_of(&sandbox.project());
        });
        let of = |state: &State| -> State {
            state
                .iter()
                .filter(|(at, _)| at.starts_with(path.as_bytes()))
                .map(|(at, node)| (at.clone(), node.clone()))
                .collect()
        };
        assert_same(&of(&state_of(&sandbox.project())), &of(&edited), &format!("edit {number}"));
        assert_eq!(
            (report.outcome, left_by(&report)),
            (RestoreOutcome::Partly, pairs(&[(path, why)])),
            "edit {number}"
        );
        assert_eq!(read(&sandbox, "other"), b"1");
        assert!(!state_of(&sandbox.project()).keys().any(|name| name.starts_with(b".piton-restore-")));
    }
}

/// Removing one link changes the timestamps of the others, so the timestamps prove nothing.
#[test]
fn a_file_with_two_names_that_is_edited_meanwhile_keeps_its_text() {
    let sandbox = Sandbox::new();
    sandbox.tree("one = 1\n two = 1");
    taken(&take(&sandbox));
    sandbox.write("one", "2");
    fs::remove_file(sandbox.path("two")).expect("a file");
    fs::hard_link(sandbox.path("one"), sandbox.path("two")).expect("a link");
    let report = restore_while(&sandbox, || sandbox.write("one", "edited"));
    assert_eq!(left_by(&report), pairs(&[("one", "changed"), ("two", "changed")]));
    assert_eq!(["one", "two"].map(|path| read(&sandbox, path)), [b"edited", b"edited"]);
}

#[test]
fn a_link_planted_in_place_of_a_directory_leads_nowhere() {
    for planted_before_the_plan in [true, false] {
        let sandbox = Sandbox::new();
        let outside = sandbox.other_project("outside");
        sandbox.tree("d/changed = 1\n d/gone = 1\n d/sub/x = 1\n e/only = 1\n other = 1");
        let before = state_of(&sandbox.project());
        taken(&take(&sandbox));
        sandbox.tree("d/changed = 2\n d/made = 2\n d/sub/x = 2\n other = 2");
        fs::remove_file(sandbox.path("d/gone")).expect("a file");
        fs::remove_dir_all(sandbox.path("e")).expect("a directory");
        for (name, text) in [("changed", "2"), ("made", "2"), ("victim", "v")] {
            fs::write(outside.join(name), text).expect("a file");
        }
        let outside_before = state_of(&outside);
        let plant = || {
            fs::rename(sandbox.path("d"), sandbox.root().join("moved-away")).expect("a rename");
            symlink(&outside, sandbox.path("d")).expect("a link");
            symlink(&outside, sandbox.path("e")).expect("a link");
        };
        if planted_before_the_plan {
            plant();
            restored(&sandbox, FIRST, &[]);
            assert_same(&state_of(&sandbox.project()), &before, "after the restore");
        } else {
            let report = restore_while(&sandbox, plant);
            assert_eq!(report.outcome, RestoreOutcome::Partly);
            let left = left_by(&report);
            for path in ["d/changed", "d/gone", "d/made", "e", "e/only"] {
                assert!(left.contains(&(path.to_owned(), "in_the_way".to_owned())), "{path}: {left:?}");
            }
            assert_eq!(read(&sandbox, "other"), b"1");
        }
        assert_same(&state_of(&outside), &outside_before, "the directory outside");
    }
}

#[test]
fn a_path_through_a_link_to_the_outside_is_left() {
    let sandbox = Sandbox::new();
    let outside = sandbox.other_project("outside");
    sandbox.tree("d/file = 1");
    taken(&take(&sandbox));
    fs::remove_dir_all(sandbox.path("d")).expect("a directory");
    fs::write(outside.join("file"), "2").expect("a file");
    symlink(&outside, sandbox.path("d")).expect("a link");
    let report = try_restore(&sandbox, FIRST, &["d/file"]).expect("a report");
    assert_eq!(report.outcome, RestoreOutcome::Partly);
    assert_eq!(fs::read(outside.join("file")).expect("a file"), b"2");
    assert!(fs::symlink_metadata(sandbox.path("d")).expect("the link").is_symlink());
}

#[test]
fn nothing_beside_the_project_changes() {
    let sandbox = Sandbox::new();
    let sibling = sandbox.other_project("project-too");
    fs::write(sibling.join("a"), "mine").expect("a file");
    sandbox.tree("a = 1\n d/b = 1");
    sandbox.link("way-out", sibling.as_os_str().as_encoded_bytes());
    taken(&take(&sandbox));
    let before = state_of(&sibling);
    sandbox.tree("a = 2\n new/c = 2");
    sandbox.link("new/way-out", "../../project-too");
    fs::remove_dir_all(sandbox.path("d")).expect("a directory");
    for to in [FIRST, RestoreTo::Undo, RestoreTo::Redo] {
        restored(&sandbox, to, &[]);
        assert_same(&state_of(&sibling), &before, "the directory beside it");
    }
}

/// W2.
#[test]
fn the_users_own_repository_is_never_touched() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n nested/b = 1");
    for dir in ["", "nested"] {
        let dir = sandbox.path(dir);
        for args in [&["init", "-q"][..], &["add", "-A"], &["commit", "-qm", "one"]] {
            assert!(git().current_dir(&dir).args(args).status().expect("git runs").success());
        }
    }
    let of_git = |sandbox: &Sandbox| -> State {
        let is_git = |path: &[u8]| path.split(|byte| *byte == b'/').any(|name| name == b".git");
        state_of(&sandbox.project()).into_iter().filter(|(path, _)| is_git(path)).collect()
    };
    taken(&take(&sandbox));
    let before = of_git(&sandbox);
    sandbox.tree("a = 2\n nested/b = 2\n made/c\n nested/made");
    for to in [FIRST, RestoreTo::Undo, RestoreTo::Redo] {
        restored(&sandbox, to, &[]);
        assert_same(&of_git(&sandbox), &before, "git's directories");
    }
    // If the checkpoint has a file where a repository exists, the repository stays.
    sandbox.tree("later = 1");
    taken(&take(&sandbox));
    fs::remove_file(sandbox.path("later")).expect("a file");
    fs::create_dir(sandbox.path("later")).expect("a directory");
    assert!(git().current_dir(sandbox.path("later")).args(["init", "-q"]).status().expect("git runs").success());
    let before = of_git(&sandbox);
    let report = try_restore(&sandbox, FIRST, &[]).expect("a report");
    assert_eq!(report.outcome, RestoreOutcome::Partly, "{report:?}");
    assert_same(&of_git(&sandbox), &before, "git's directories");
}

#[test]
fn a_checkpoint_of_another_project_is_not_found() {
    let sandbox = Sandbox::new();
    let other = sandbox.other_project("other");
    fs::write(other.join("theirs"), "t").expect("a file");
    sandbox.tree("mine");
    let id = taken(&take_with(&sandbox, &other, &Settings::default()));
    taken(&take(&sandbox));
    let before = state_of(&sandbox.project());
    let tree = String::from_utf8(sandbox.store_git(&["rev-parse", &format!("{id}^{{tree}}")])).expect("an id");
    let blob = String::from_utf8(sandbox.store_git(&["rev-parse", &format!("{id}:theirs")])).expect("an id");
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    for name in [&id, &id[..7], &id[..12], tree.trim(), blob.trim(), "99", "0", "99999999999999999999999"] {
        assert_eq!(kind_of(try_restore(&sandbox, RestoreTo::Named(name), &[])), ErrorKind::NotFound, "{name}");
        for pair in [(name, None), ("1", Some(name)), (name, Some("1"))] {
            let diff = piton::diff(&store, &project, pair, &[], &Settings::default(), &Progress::default());
            assert_eq!(kind_of(diff), ErrorKind::NotFound, "{pair:?}");
        }
    }
    for name in ["", "-x", "xyz", "HEAD", "..", "12g4", "abc", "1 ", "+1", &"a".repeat(65)] {
        assert_eq!(kind_of(try_restore(&sandbox, RestoreTo::Named(name), &[])), ErrorKind::Invalid, "{name:?}");
    }
    assert_same(&state_of(&sandbox.project()), &before, "the project");
}

/// Its entries cannot be listed, so no checkpoint could record which of them did not exist before.
#[test]
fn nothing_is_put_into_a_directory_that_cannot_be_listed() {
    if !without_roots_powers("restore_left::nothing_is_put_into_a_directory_that_cannot_be_listed") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("closed/in = 1\n closed/deep/in = 1\n a = 1");
    taken(&take(&sandbox));
    sandbox.write("a", "2");
    fs::remove_file(sandbox.path("closed/in")).expect("a file");
    fs::remove_dir_all(sandbox.path("closed/deep")).expect("a directory");
    sandbox.chmod("closed", 0o300);
    let report = try_restore(&sandbox, FIRST, &[]).expect("a restore");
    sandbox.chmod("closed", 0o700);
    assert_eq!(left_by(&report), pairs(&[("closed/deep/in", "unreadable"), ("closed/in", "unreadable")]));
    assert_eq!(read(&sandbox, "a"), b"1");
    assert_eq!(fs::read_dir(sandbox.path("closed")).expect("a directory").count(), 0);
}

/// The directory is gone, or contains something: in both cases the result is correct.
#[test]
fn a_directory_to_remove_that_is_gone_or_in_use_is_not_reported() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    taken(&take(&sandbox));
    sandbox.tree("gone/\n used/");
    let report = restore_while(&sandbox, || {
        fs::remove_dir(sandbox.path("gone")).expect("a directory");
        sandbox.write("used/meanwhile", "2");
    });
    assert_eq!((report.outcome, left_by(&report)), (RestoreOutcome::Restored, vec![]));
    assert_eq!(read(&sandbox, "used/meanwhile"), b"2");
}

#[test]
fn what_was_made_since_and_cannot_be_read_is_named() {
    if !without_roots_powers("restore_left::what_was_made_since_and_cannot_be_read_is_named") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n then/x = 1");
    sandbox.chmod("then", 0o000);
    taken(&take(&sandbox));
    sandbox.tree("a = 2\n made/x = 2\n file = 2");
    for path in ["made", "file"] {
        sandbox.chmod(path, 0o000);
    }
    let report = try_restore(&sandbox, FIRST, &[]).expect("a restore");
    assert_eq!(report.outcome, RestoreOutcome::Partly);
    // A directory that was unreadable at the checkpoint too is not reported.
    assert_eq!(left_by(&report), pairs(&[("file", "unreadable"), ("made", "unreadable")]));
    for path in ["made", "then"] {
        sandbox.chmod(path, 0o700);
    }
    assert_eq!(read(&sandbox, "made/x"), b"2");
}

#[test]
fn what_was_left_out_in_the_second_of_the_checkpoint_is_not_taken_for_new() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = *.ig\n\n a = 1");
    for number in 0..40 {
        sandbox.write(format!("d/{number}.ig"), "1");
    }
    taken(&take(&sandbox));
    sandbox.tree(".gitignore = nothing\n\n a = 2");
    let report = try_restore(&sandbox, FIRST, &[]).expect("a restore");
    assert_eq!(read(&sandbox, "d/7.ig"), b"1", "{report:?}");
}

#[test]
fn what_was_made_since_beside_what_was_left_out_goes() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = *.ig\\n\n a = 1");
    for number in 0..40 {
        sandbox.write(format!("d/{number}.ig"), "1");
    }
    let earlier = Moment { secs: now().secs - 100, ..now() };
    taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), earlier));
    sandbox.write("d/made", "2");
    restored(&sandbox, FIRST, &[]);
    assert!(!sandbox.path("d/made").exists() && sandbox.path("d/7.ig").exists());
}

#[test]
fn an_empty_directory_that_could_not_be_read_is_there_after_an_undo() {
    if !without_roots_powers("restore_left::an_empty_directory_that_could_not_be_read_is_there_after_an_undo") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    taken(&take(&sandbox));
    sandbox.write("a", "2");
    fs::create_dir_all(sandbox.path("made")).expect("a directory");
    sandbox.chmod("made", 0o000);
    let report = try_restore(&sandbox, FIRST, &[]).expect("a restore");
    assert_eq!(left_by(&report), pairs(&[("made", "unreadable")]));
    sandbox.chmod("made", 0o755);
    try_restore(&sandbox, RestoreTo::Undo, &[]).expect("an undo");
    assert_eq!(read(&sandbox, "a"), b"2");
    assert!(sandbox.path("made").is_dir());
}

/// R1, for a restore that is continued: undo returns to what the first attempt saved, which does not include files that
/// it could not read.
#[test]
fn what_the_first_try_could_not_read_is_left_by_the_second() {
    if !without_roots_powers("restore_left::what_the_first_try_could_not_read_is_left_by_the_second") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n b = 1\n dir/c = 1\n dir/same");
    let first = taken(&take(&sandbox));
    sandbox.tree("a = 2\n b = 2\n dir/c = 2\n dir/made = 2\n made = 2");
    let unread = ["a", "made", "dir"];
    unread.iter().for_each(|path| sandbox.chmod(path, 0o000));
    let safety = taken(&take(&sandbox));
    sandbox.chmod("a", 0o644);
    sandbox.chmod("made", 0o644);
    sandbox.chmod("dir", 0o755);
    let intent = sandbox.store().join(format!("restores/{}.json", project_id(&sandbox)));
    fs::create_dir_all(intent.parent().expect("a directory")).expect("a directory");
    fs::write(&intent, format!(r#"{{"target": "{first}", "safety": "{safety}", "paths": []}}"#)).expect("a file");
    let report = try_restore(&sandbox, RestoreTo::Continue, &[]).expect("a restore");
    let mut left = left_by(&report);
    left.sort();
    assert_eq!(left, pairs(&["a", "dir/c", "dir/made", "made"].map(|path| (path, "unreadable"))));
    assert_eq!(
        ["a", "b", "dir/c", "dir/made", "made"].map(|path| read(&sandbox, path)),
        [b"2", b"1", b"2", b"2", b"2"]
    );
    // A separate restore, which saves them first, restores all of them.
    assert_eq!(left_by(&restored(&sandbox, RestoreTo::Named(&first), &[])), []);
    assert_eq!(read(&sandbox, "dir/c"), b"1");
}

/// Many files that are left out at the top are one entry, which names no `.gitignore` that was made since.
#[test]
fn rules_made_since_are_gone_after_a_restore_although_many_files_were_left_out() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    (0..20).for_each(|number| sandbox.write(format!("{number}.log"), "left out"));
    let target = taken(&take(&sandbox));
    sandbox.tree(".gitignore = /data/x\\n\n data/x = made since");
    let before = state_of(&sandbox.project());
    let report = restored(&sandbox, RestoreTo::Named(&target), &[]);
    assert_eq!((report.left, sandbox.path("data").exists()), (Vec::new(), false));
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
}

#[test]
fn a_directory_whose_own_rules_hide_it_stays_when_other_rules_change() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    let target = taken(&take(&sandbox));
    sandbox.tree(".gitignore = hidden\\n\n hidden = made since\n nested/.gitignore = *\n nested/made = made since");
    let before = state_of(&sandbox.project());
    restored(&sandbox, RestoreTo::Named(&target), &[]);
    let paths = ["a", ".gitignore", "hidden", "nested/.gitignore", "nested/made"];
    assert_eq!(paths.map(|path| sandbox.path(path).exists()), [true, false, false, true, true]);
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
}
