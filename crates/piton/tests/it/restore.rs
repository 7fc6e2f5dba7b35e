//! Files that a restore brings back and removes, and undoing it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use piton::{ErrorKind, Progress, Project, Restore, RestoreOptions, RestoreOutcome, RestoreTo, Settings, Store};
use testkit::Sandbox;

use crate::kit::{newest, now, take, take_with, taken, without_roots_powers};
use crate::restore_kit::{assert_same, kind_of, left_by, listed, restore_between, restored, state_of, try_restore};

const FIRST: RestoreTo<'_> = RestoreTo::Named("1");

fn remove(sandbox: &Sandbox, path: &str) {
    let path = sandbox.path(path);
    let stat = path.symlink_metadata().expect("something to remove");
    if stat.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("removed");
}

fn with_modes(sandbox: &Sandbox) {
    sandbox.tree("a.txt = one\n secret = s\n locked = l\n *run.sh = #!\n src/deep/main.rs\n link -> a.txt\n empty/in/");
    sandbox.link("dangling", "/nowhere/at all");
    for (path, mode) in [("secret", 0o600), ("locked", 0o444), ("run.sh", 0o755), ("src/deep", 0o700), ("empty", 0o750)]
    {
        sandbox.chmod(path, mode);
    }
}

#[test]
fn every_byte_mode_link_and_empty_directory_comes_back() {
    let sandbox = Sandbox::new();
    with_modes(&sandbox);
    sandbox.write(b"bytes \xff\n\"", (0..=255).collect::<Vec<u8>>());
    let before = state_of(&sandbox.project());
    taken(&take(&sandbox));
    for path in ["secret", "locked", "src", "link", "dangling", "empty", "run.sh"] {
        remove(&sandbox, path);
    }
    sandbox.write(b"bytes \xff\n\"", "text");
    sandbox.write("a.txt", "two");
    sandbox.chmod("a.txt", 0o600);
    restored(&sandbox, FIRST, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after the restore");
    sandbox.assert_store_is_whole();
}

#[test]
fn modes_alone_come_back_without_a_write() {
    let sandbox = Sandbox::new();
    with_modes(&sandbox);
    let before = state_of(&sandbox.project());
    let inode = fs::metadata(sandbox.path("secret")).expect("a file").ino();
    taken(&take(&sandbox));
    for (path, mode) in [("secret", 0o644), ("locked", 0o755), ("run.sh", 0o600), ("src/deep", 0o777), ("empty", 0o700)]
    {
        sandbox.chmod(path, mode);
    }
    let report = restored(&sandbox, FIRST, &[]);
    assert_eq!((report.written.len(), report.removed.len(), report.modes_changed), (0, 0, 5), "{report:?}");
    assert_same(&state_of(&sandbox.project()), &before, "after the restore");
    assert_eq!(fs::metadata(sandbox.path("secret")).expect("a file").ino(), inode);
}

#[test]
fn set_id_and_sticky_bits_are_not_restored() {
    let sandbox = Sandbox::new();
    sandbox.tree("*tool = old");
    sandbox.chmod("tool", 0o4755);
    taken(&take(&sandbox));
    sandbox.write("tool", "new");
    sandbox.chmod("tool", 0o755);
    restored(&sandbox, FIRST, &[]);
    let stat = fs::metadata(sandbox.path("tool")).expect("a file");
    assert_eq!(stat.mode() & 0o7777, 0o755);
    assert_eq!(fs::read(sandbox.path("tool")).expect("a file"), b"old");
}

#[test]
fn files_made_since_are_gone_and_back_after_undo() {
    let sandbox = Sandbox::new();
    sandbox.tree("kept\n dir/kept");
    let before = state_of(&sandbox.project());
    taken(&take(&sandbox));
    sandbox.tree("made\n dir/made\n new/deep/made\n new/link -> made\n new-empty/");
    for (path, mode) in [("dir/made", 0o600), ("new", 0o700), ("new-empty", 0o700)] {
        sandbox.chmod(path, mode);
    }
    let after = state_of(&sandbox.project());
    let report = restored(&sandbox, FIRST, &[]);
    assert_eq!(report.removed.len(), 4, "{report:?}");
    assert_same(&state_of(&sandbox.project()), &before, "after the restore");
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &after, "after undo");
}

#[test]
fn equal_files_keep_their_time_and_place() {
    let sandbox = Sandbox::new();
    sandbox.tree("same\n dir/same\n dir/other = 1");
    taken(&take(&sandbox));
    let seen = |path: &str| {
        let stat = fs::metadata(sandbox.path(path)).expect("a file");
        (stat.ino(), stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec())
    };
    // Rewritten with the same bytes: a new timestamp, but no difference.
    sandbox.write("same", "same");
    let before = ["same", "dir/same"].map(seen);
    sandbox.write("dir/other", "2");
    let report = restored(&sandbox, FIRST, &[]);
    assert_eq!(report.written, [b"dir/other".to_vec()]);
    assert_eq!(["same", "dir/same"].map(seen), before);
}

#[test]
fn files_come_back_into_a_directory_that_was_emptied() {
    let sandbox = Sandbox::new();
    sandbox.tree("dir/sub/a\n dir/b\n top");
    let before = state_of(&sandbox.project());
    taken(&take(&sandbox));
    remove(&sandbox, "dir/sub/a");
    remove(&sandbox, "dir/b");
    restored(&sandbox, FIRST, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after the restore");
}

#[test]
fn files_links_and_directories_replace_each_other_and_come_back() {
    let shapes = ["x = a file", "x/in/side\n x/empty/", "x -> elsewhere", "x/", "*x = runs", "other"];
    for old in shapes {
        for new in shapes {
            let sandbox = Sandbox::new();
            sandbox.tree("stays");
            sandbox.tree(old);
            let (old_state, id) = (state_of(&sandbox.project()), taken(&take(&sandbox)));
            let _ = fs::remove_dir_all(sandbox.path("x"));
            let _ = fs::remove_file(sandbox.path("x"));
            let _ = fs::remove_file(sandbox.path("other"));
            sandbox.tree(new);
            let new_state = state_of(&sandbox.project());
            if old != new {
                restored(&sandbox, RestoreTo::Named(&id), &[]);
            }
            assert_same(&state_of(&sandbox.project()), &old_state, &format!("{new} to {old}"));
            if old != new {
                restored(&sandbox, RestoreTo::Undo, &[]);
            }
            assert_same(&state_of(&sandbox.project()), &new_state, &format!("undo of {new} to {old}"));
        }
    }
}

#[test]
fn files_with_two_names_are_restored_like_others() {
    let sandbox = Sandbox::new();
    sandbox.tree("old = 1\n other/old = 1");
    taken(&take(&sandbox));
    let before = state_of(&sandbox.project());
    for path in ["old", "other/old"] {
        remove(&sandbox, path);
    }
    sandbox.write("made", "2");
    for name in ["made-too", "old", "other/old", "other/made"] {
        fs::hard_link(sandbox.path("made"), sandbox.path(name)).expect("a second name");
    }
    let after = state_of(&sandbox.project());
    restored(&sandbox, FIRST, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after the restore");
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &after, "after undo");
}

#[test]
fn read_only_directories_are_written_and_stay_read_only() {
    if !without_roots_powers("restore::read_only_directories_are_written_and_stay_read_only") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("ro/change = 1\n ro/gone = 1\n ro/sub/deep = 1\n was-ro/file = 1\n will-be/file = 1\n other");
    let modes = |modes: [(&str, u32); 4]| modes.map(|(path, mode)| sandbox.chmod(path, mode));
    modes([("ro/sub", 0o555), ("ro", 0o555), ("was-ro", 0o755), ("will-be", 0o555)]);
    let before = state_of(&sandbox.project());
    taken(&take(&sandbox));
    modes([("ro", 0o755), ("ro/sub", 0o755), ("was-ro", 0o755), ("will-be", 0o755)]);
    sandbox
        .tree("ro/change = 2\n ro/made = 2\n ro/sub/deep = 2\n was-ro/file = 2\n was-ro/made = 2\n will-be/file = 2");
    sandbox.tree("made-ro/sub/file = 2");
    remove(&sandbox, "ro/gone");
    modes([("ro", 0o555), ("made-ro/sub", 0o555), ("made-ro", 0o555), ("was-ro", 0o555)]);
    let after = state_of(&sandbox.project());
    for round in 0..2 {
        restored(&sandbox, if round == 0 { FIRST } else { RestoreTo::Redo }, &[]);
        assert_same(&state_of(&sandbox.project()), &before, "after the restore");
        restored(&sandbox, RestoreTo::Undo, &[]);
        assert_same(&state_of(&sandbox.project()), &after, "after undo");
    }
    for path in ["ro", "made-ro/sub", "made-ro", "was-ro"] {
        sandbox.chmod(path, 0o755);
    }
}

#[test]
fn a_path_in_a_read_only_directory_is_restored_and_the_directory_stays_so() {
    if !without_roots_powers("restore::a_path_in_a_read_only_directory_is_restored_and_the_directory_stays_so") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("ro/file = 1\n ro/gone = 1");
    taken(&take(&sandbox));
    sandbox.write("ro/file", "2");
    remove(&sandbox, "ro/gone");
    sandbox.chmod("ro", 0o555);
    let before = state_of(&sandbox.project());
    restored(&sandbox, FIRST, &["ro/file", "ro/gone"]);
    assert_eq!(fs::read(sandbox.path("ro/gone")).expect("a file"), b"1");
    assert_eq!(fs::metadata(sandbox.path("ro")).expect("a directory").mode() & 0o777, 0o555);
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after undo");
    sandbox.chmod("ro", 0o755);
}

#[test]
fn a_project_that_is_read_only_itself_is_restored_and_stays_so() {
    if !without_roots_powers("restore::a_project_that_is_read_only_itself_is_restored_and_stays_so") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("changed = 1\n gone/file = 1");
    let before = state_of(&sandbox.project());
    taken(&take(&sandbox));
    sandbox.tree("changed = 2\n made/file = 2");
    remove(&sandbox, "gone");
    let after = state_of(&sandbox.project());
    sandbox.chmod("", 0o555);
    restored(&sandbox, FIRST, &[]);
    assert_same(&state_of(&sandbox.project()), &before, "after the restore");
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_same(&state_of(&sandbox.project()), &after, "after undo");
    assert_eq!(fs::metadata(sandbox.project()).expect("the project").mode() & 0o777, 0o555);
    sandbox.chmod("", 0o755);
}

#[test]
fn a_path_that_is_restored_touches_nothing_else() {
    for (paths, expected) in [
        (&["file"][..], &["file"][..]),
        (&["dir"], &["dir/changed", "dir/gone", "dir/made", "dir/sub/made"]),
        (&["dir/"], &["dir/changed", "dir/gone", "dir/made", "dir/sub/made"]),
        (&["dir/changed", "other/changed"], &["dir/changed", "other/changed"]),
        (&["./file", "link"], &["file", "link"]),
    ] {
        let sandbox = Sandbox::new();
        sandbox.tree(
            "file = 1\n dir/changed = 1\n dir/gone = 1\n dir/sub/same\n other/changed = 1\n link -> 1\n *fi* = 1",
        );
        let before = state_of(&sandbox.project());
        taken(&take(&sandbox));
        sandbox.tree(
            "file = 2\n dir/changed = 2\n dir/made = 2\n dir/sub/made = 2\n other/changed = 2\n fi* = 2\n top\n void/",
        );
        for path in ["dir/gone", "link"] {
            remove(&sandbox, path);
        }
        let after = state_of(&sandbox.project());
        let mut want = after.clone();
        for path in expected {
            match before.get(path.as_bytes()) {
                Some(node) => want.insert(path.as_bytes().to_vec(), node.clone()),
                None => want.remove(path.as_bytes()),
            };
        }
        let parsed: Vec<_> = paths.iter().map(|path| piton::parse_path(path.as_bytes()).expect("a path")).collect();
        let options = RestoreOptions::default().paths(&parsed);
        let report = restore_between(&sandbox, FIRST, options, &Settings::default(), |_| {}).expect("a restore");
        assert_eq!(left_by(&report), []);
        assert_same(&state_of(&sandbox.project()), &want, &format!("after the restore of {paths:?}"));
        // Edits elsewhere in the meantime are not affected by undo.
        sandbox.write("top", "3");
        let mut after = after;
        after.insert(b"top".to_vec(), state_of(&sandbox.project())[&b"top"[..]].clone());
        restored(&sandbox, RestoreTo::Undo, &[]);
        assert_same(&state_of(&sandbox.project()), &after, &format!("undo of {paths:?}"));
    }
}

#[test]
fn the_whole_project_by_its_path_is_a_full_restore() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n d/b = 1");
    let before = state_of(&sandbox.project());
    taken(&take(&sandbox));
    sandbox.tree("a = 2\n d/b = 2\n made");
    let paths = [piton::parse_path(b".").expect("a path")];
    let options = RestoreOptions::default().paths(&paths);
    restore_between(&sandbox, FIRST, options, &Settings::default(), |_| {}).expect("a restore");
    assert_same(&state_of(&sandbox.project()), &before, "after the restore");
}

#[test]
fn a_path_whose_directories_are_gone_comes_back_and_undo_takes_all_of_it_away() {
    let sandbox = Sandbox::new();
    sandbox.tree("src/deep/file\n src/deep/other\n src/empty/inner/\n top");
    sandbox.chmod("src", 0o700);
    taken(&take(&sandbox));
    remove(&sandbox, "src");
    let after = state_of(&sandbox.project());
    for (path, expected) in [("src/deep/file", 4), ("src/empty/inner", 4), ("src/deep", 5)] {
        restored(&sandbox, RestoreTo::Named(&listed(&sandbox).last().expect("one").0), &[path]);
        let now = state_of(&sandbox.project());
        assert!(now.contains_key(path.as_bytes()) && now.len() == expected, "{path}: {now:?}");
        assert_eq!(fs::metadata(sandbox.path("src")).expect("a directory").mode() & 0o777, 0o700);
        restored(&sandbox, RestoreTo::Undo, &[]);
        assert_same(&state_of(&sandbox.project()), &after, &format!("undo of {path}"));
    }
}

#[test]
fn a_path_that_is_nowhere_is_not_found_and_nothing_is_touched() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n d/b = 1");
    taken(&take(&sandbox));
    sandbox.tree("a = 2\n typo = 2\n d/typo = 2");
    let (files, store) = (state_of(&sandbox.project()), listed(&sandbox));
    for paths in [&["nowhere"][..], &["d/nowhere"], &["a", "nowhere"], &["typo", "nowhere"], &["a/b"], &["d*"]] {
        assert_eq!(kind_of(try_restore(&sandbox, FIRST, paths)), ErrorKind::NotFound, "{paths:?}");
        assert_same(&state_of(&sandbox.project()), &files, "after the refusal");
    }
    assert_eq!(listed(&sandbox), store);
}

/// R5.
#[test]
fn undo_and_redo_any_number_of_times() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n gone");
    let one = state_of(&sandbox.project());
    assert_eq!(kind_of(try_restore(&sandbox, RestoreTo::Undo, &[])), ErrorKind::NotFound);
    taken(&take(&sandbox));
    assert_eq!(kind_of(try_restore(&sandbox, RestoreTo::Undo, &[])), ErrorKind::NotFound);
    sandbox.tree("a = 2\n made");
    remove(&sandbox, "gone");
    let two = state_of(&sandbox.project());
    restored(&sandbox, FIRST, &[]);
    assert_eq!(kind_of(try_restore(&sandbox, RestoreTo::Redo, &[])), ErrorKind::NotFound);
    for round in 0..4 {
        restored(&sandbox, RestoreTo::Undo, &[]);
        assert_same(&state_of(&sandbox.project()), &two, &format!("undo {round}"));
        restored(&sandbox, if round % 2 == 0 { RestoreTo::Redo } else { RestoreTo::Undo }, &[]);
        assert_same(&state_of(&sandbox.project()), &one, &format!("redo {round}"));
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn the_list_says_what_each_safety_checkpoint_was_for() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    let id = taken(&take(&sandbox));
    sandbox.write("a", "2");
    restored(&sandbox, FIRST, &[]);
    let reason = newest(&sandbox).reason;
    assert!(reason.strip_prefix("before restore to ").is_some_and(|short| id.starts_with(short)), "{reason}");
    for (to, expected) in [(RestoreTo::Undo, "before undo"), (RestoreTo::Redo, "before redo")] {
        restored(&sandbox, to, &[]);
        assert_eq!(newest(&sandbox).reason, expected);
    }
}

#[test]
fn each_of_many_checkpoints_restores_by_number_and_by_id_and_the_list_never_changes() {
    let sandbox = Sandbox::new();
    let settings = Settings::default().max_snapshots(20.into());
    let states: Vec<_> = (0..20)
        .map(|n| {
            sandbox.write(format!("dir/{}", n % 7), format!("{n}"));
            sandbox.write("always", format!("{n}"));
            (taken(&take_with(&sandbox, &sandbox.project(), &settings)), state_of(&sandbox.project()))
        })
        .collect();
    sandbox.tree("made/since\n always = changed");
    let mut shown = listed(&sandbox);
    for (n, (id, state)) in states.iter().enumerate() {
        let number = shown.iter().position(|(shown, _)| shown == id).expect("in the list") + 1;
        let name = if n % 2 == 0 { number.to_string() } else { id[..8].to_owned() };
        restored(&sandbox, RestoreTo::Named(&name), &[]);
        assert_same(&state_of(&sandbox.project()), state, &format!("checkpoint {n} by {name}"));
        let now_shown = listed(&sandbox);
        assert_eq!(now_shown[now_shown.len() - shown.len()..], shown, "after checkpoint {n}");
        shown = now_shown;
    }
}

#[test]
fn what_is_there_already_takes_no_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.tree("a\n d/b\n e/");
    taken(&take(&sandbox));
    let store = state_of(&sandbox.base());
    let report = try_restore(&sandbox, FIRST, &[]).expect("a report");
    assert_eq!((report.outcome, report.safety), (RestoreOutcome::NothingToDo, None));
    assert_same(&state_of(&sandbox.base()), &store, "the store");
}

#[test]
fn a_dry_run_writes_nothing_and_cannot_be_applied() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n d/b");
    taken(&take(&sandbox));
    sandbox.tree("a = 2\n made");
    remove(&sandbox, "d");
    let (files, store) = (state_of(&sandbox.project()), state_of(&sandbox.base()));
    let options = RestoreOptions::default().is_dry(true);
    let applied = restore_between(&sandbox, FIRST, options, &Settings::default(), |restore| {
        let plan = restore.plan();
        assert_eq!(plan.written().collect::<Vec<_>>(), [(&b"a"[..], false), (b"d/b", true)]);
        assert_eq!(plan.removed().collect::<Vec<_>>(), [b"made"]);
        assert_eq!(plan.directories(), (vec![&b"d"[..]], vec![]));
    });
    assert_eq!(kind_of(applied), ErrorKind::Invalid);
    assert_same(&state_of(&sandbox.project()), &files, "the project");
    assert_same(&state_of(&sandbox.base()), &store, "the base");
}

#[test]
fn the_progress_of_a_restore_has_its_total_and_reaches_it() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 12345\n b/same = 12345\n c = 123\n kept = x\n changed = old");
    taken(&take(&sandbox));
    sandbox.tree("changed = newer");
    taken(&take(&sandbox));
    ["a", "b", "c"].into_iter().for_each(|path| remove(&sandbox, path));
    let store = Store::open_or_create(&sandbox.base(), now()).expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let (settings, progress) = (Settings::default(), Progress::default());
    let options = RestoreOptions::default();
    let restore = Restore::prepare(&store, &project, RestoreTo::Named("2"), options, &settings, now(), &progress)
        .expect("a plan");
    restore.apply_watched(&progress).expect("a restore");
    let counts = |counters: [&std::sync::atomic::AtomicU64; 2]| {
        counters.map(|counter| counter.load(std::sync::atomic::Ordering::Relaxed))
    };
    assert_eq!(counts([&progress.files_to_write, &progress.files_written]), [4, 4]);
    // Two files have the same five bytes.
    assert_eq!(counts([&progress.bytes_to_write, &progress.bytes_written]), [5 + 5 + 3 + 3, 5 + 5 + 3 + 3]);
    let [to_check, checked] = counts([&progress.contents_to_check, &progress.contents_checked]);
    assert!(to_check > 3 && checked == to_check, "what will be written, and what will be overwritten: {to_check}");
}
