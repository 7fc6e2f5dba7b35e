//! Regression tests, each the smallest case of a former bug.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use piton::{
    ErrorKind, History, Outcome, Progress, Project, Request, RestoreOptions, RestoreTo, Settings, SkipReason, Store,
    WhyLeft, WhySkipped,
};
use testkit::{Sandbox, files_in};

use crate::kit::{left_out, now, settled, take, take_at, take_with, taken, without_roots_powers};
use crate::restore_kit::{assert_same, restore_between, restored, state_of, try_restore};

fn id_of(sandbox: &Sandbox) -> String {
    Project::at(&sandbox.project(), None).expect("a project").id().to_string()
}

fn checkpoints(sandbox: &Sandbox, dir: &Path) -> Vec<String> {
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let history = History::of(&store, &Project::at(dir, None).expect("a project")).expect("a history");
    history.checkpoints().iter().map(|checkpoint| checkpoint.id.to_string()).collect()
}

/// The power fails: the ref is on the disk, but the index and the record are those of the previous take.
#[test]
fn links_stay_when_the_cache_is_behind_the_ref() {
    let sandbox = Sandbox::new();
    sandbox.tree("a\n link -> a\n dir/link -> nowhere");
    let take = || take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled());
    taken(&take());
    let [index, record] = [format!("indexes/{}", id_of(&sandbox)), format!("projects/{}.json", id_of(&sandbox))]
        .map(|path| sandbox.store().join(path));
    let old = [fs::read(&index), fs::read(&record)].map(|bytes| bytes.expect("a file"));
    sandbox.write("b", "b");
    taken(&take());
    fs::write(&index, &old[0]).expect("a file");
    fs::write(&record, &old[1]).expect("a file");
    sandbox.write("c", "c");
    assert_eq!(sandbox.held_by(&taken(&take())), files_in(&sandbox.project()));
}

#[test]
fn two_projects_with_the_same_files_share_no_checkpoint() {
    let sandbox = Sandbox::new();
    let (one, other) = (sandbox.other_project("one"), sandbox.other_project("other"));
    let keeping = |max_snapshots: u64| Settings::default().max_snapshots(max_snapshots.into());
    let moment = now();
    for number in 0..3 {
        for dir in [&one, &other] {
            fs::write(dir.join("f"), format!("{number}")).expect("a file");
            taken(&take_at(&sandbox.base(), dir, &keeping(20), moment));
        }
    }
    assert!(checkpoints(&sandbox, &one).iter().all(|id| !checkpoints(&sandbox, &other).contains(id)));
    fs::write(one.join("f"), "last").expect("a file");
    taken(&take_with(&sandbox, &one, &keeping(2)));
    assert_eq!((checkpoints(&sandbox, &one).len(), checkpoints(&sandbox, &other).len()), (2, 3));
    sandbox.store_git(&["gc", "--prune=now", "--quiet"]);
    sandbox.assert_store_is_whole();
}

#[test]
fn a_restore_that_was_cut_short_keeps_its_checkpoints() {
    let sandbox = Sandbox::new();
    let keeping = Settings::default().max_snapshots(2.into());
    let take = |text: &str| {
        sandbox.write("f", text);
        taken(&take_with(&sandbox, &sandbox.project(), &keeping))
    };
    let (target, safety) = (take("target"), take("safety"));
    let intent = sandbox.store().join(format!("restores/{}.json", id_of(&sandbox)));
    fs::create_dir_all(intent.parent().expect("a directory")).expect("a directory");
    fs::write(&intent, format!(r#"{{"target": "{target}", "safety": "{safety}", "paths": []}}"#)).expect("a file");
    for number in 0..4 {
        take(&number.to_string());
    }
    try_restore(&sandbox, RestoreTo::Continue, &[]).expect("a restore");
    assert_eq!(fs::read_to_string(sandbox.path("f")).expect("a file"), "target");
    take("after");
    assert_eq!(checkpoints(&sandbox, &sandbox.project()).len(), 2);
}

#[test]
fn the_store_is_no_project() {
    let sandbox = Sandbox::new();
    let base = sandbox.other_project("base");
    let store = Store::open_or_create(&base, now()).expect("a store");
    for dir in [base.clone(), base.join("store"), base.join("store/objects")] {
        let project = Project::at(&dir, None).expect("a directory");
        let request = Request::default().kind(piton::CheckpointKind::Manual);
        let taken = piton::take(&store, &project, &request, &Settings::default(), now(), &Progress::default());
        assert_eq!(taken.expect_err("it must be refused").kind(), ErrorKind::Invalid, "{}", dir.display());
    }
}

#[test]
fn a_directory_that_is_merely_called_store_is_not_taken_for_one() {
    let sandbox = Sandbox::new();
    sandbox.tree("store/index.js\n src/main.js\n package.json");
    let before = files_in(&sandbox.project());
    let refused = Store::open_or_create(&sandbox.project(), now()).expect_err("it must be refused");
    assert_eq!(refused.kind(), ErrorKind::NotOurs);
    assert_eq!(files_in(&sandbox.project()), before);
}

#[test]
fn what_a_checkpoint_left_out_is_not_removed_as_if_it_were_new() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = data/\\nnotes\\n\n data/x\n notes\n kept");
    taken(&take(&sandbox));
    sandbox.tree(".gitignore = nothing\n made-since");
    let report = try_restore(&sandbox, RestoreTo::Named("1"), &[]).expect("a restore");
    let left: Vec<_> =
        report.left.iter().map(|left| (left.path.escape_ascii().to_string(), left.why.clone())).collect();
    let why = WhyLeft::LeftOutThen(SkipReason::Ignored);
    assert_eq!(left, [("data/x".to_owned(), why.clone()), ("notes".to_owned(), why)]);
    assert!(sandbox.path("data/x").exists() && sandbox.path("notes").exists());
    assert!(!sandbox.path("made-since").exists());
}

/// Stock git does not sync loose objects: after a power cut one may exist but be empty.
#[test]
fn an_empty_loose_object_is_not_believed() {
    let sandbox = Sandbox::new();
    sandbox.write("f", "contents that stock git has had before\n");
    taken(&take(&sandbox));
    fs::write(sandbox.root().join("g"), "other contents\n").expect("a file");
    let id = sandbox.store_git(&["hash-object", "-w", &sandbox.root().join("g").display().to_string()]);
    let id = String::from_utf8(id).expect("an id");
    let loose = sandbox.store().join("objects").join(&id[..2]).join(id[2..].trim());
    fs::set_permissions(&loose, fs::Permissions::from_mode(0o600)).expect("permissions");
    fs::write(&loose, "").expect("an object");
    sandbox.write("g", "other contents\n");
    taken(&take(&sandbox));
    fs::remove_file(sandbox.path("g")).expect("a file");
    restored(&sandbox, RestoreTo::Named("1"), &[]);
    assert_eq!(fs::read(sandbox.path("g")).expect("a file"), b"other contents\n");
}

#[test]
fn a_checkpoint_of_stock_git_does_not_widen_permissions() {
    let sandbox = Sandbox::new();
    sandbox.tree("private = 1\n *run = 1");
    taken(&take(&sandbox));
    let (project, reference) = (id_of(&sandbox), format!("refs/hermes/{}", id_of(&sandbox)));
    let tree = String::from_utf8(sandbox.store_git(&["rev-parse", &format!("{reference}^{{tree}}")])).expect("an id");
    let commit = sandbox.seed_git(&project, &["commit-tree", tree.trim(), "-p", &reference, "-m", "before patch"]);
    let commit = String::from_utf8(commit.stdout).expect("an id");
    sandbox.store_git(&["update-ref", &reference, commit.trim()]);
    sandbox.tree("private = 2\n run = 2");
    sandbox.chmod("private", 0o600);
    sandbox.chmod("run", 0o600);
    restored(&sandbox, RestoreTo::Named("1"), &[]);
    let mode = |path: &str| fs::metadata(sandbox.path(path)).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode("private"), mode("run")), (0o600, 0o700));
}

#[test]
fn what_lies_in_an_included_directory_is_included() {
    let sandbox = Sandbox::new();
    sandbox.tree(".gitignore = *.csv\\n/data/*\\n\n data/t.txt\n data/deep/x.csv\n y.csv");
    let include = vec!["data/".to_owned()];
    let report = take_with(&sandbox, &sandbox.project(), &Settings::default().include(include));
    let held: Vec<_> = sandbox.held_by(&taken(&report)).into_keys().collect();
    assert_eq!(held, [&b".gitignore"[..], b"data/deep/x.csv", b"data/t.txt"]);
}

#[test]
fn what_git_tracks_is_known_in_a_part_of_a_repository_too() {
    let sandbox = Sandbox::new();
    sandbox.tree("pkg/package.json\n pkg/dist/keep.js\n pkg/dist/other.js");
    sandbox.project_git(&["init", "-q"]);
    sandbox.project_git(&["add", "-f", "pkg/dist/keep.js"]);
    let report = take_with(&sandbox, &sandbox.path("pkg"), &Settings::default());
    let held: Vec<_> = sandbox.held_by(&taken(&report)).into_keys().collect();
    assert_eq!(held, [&b"dist/keep.js"[..], b"package.json"]);
}

#[test]
fn rules_that_cover_all_the_work_are_found_wherever_they_are() {
    let sandbox = Sandbox::new();
    sandbox.tree("app/.gitignore = *\n app/main.rs");
    let report = take(&sandbox);
    assert_eq!((report.outcome, report.unprotected), (Outcome::Skipped(WhySkipped::Empty), true));
    sandbox.tree("README");
    assert!(take(&sandbox).unprotected);
    for number in 0..20 {
        sandbox.write(format!("src/{number}"), "x");
    }
    assert!(!take(&sandbox).unprotected);
}

/// A directory that may be listed but not searched: its names are readable, but stat fails for each of them.
#[test]
fn a_file_that_the_system_does_not_tell_about_is_reported() {
    if !without_roots_powers("traps::a_file_that_the_system_does_not_tell_about_is_reported") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("kept\n dir/x\n dir/y");
    sandbox.chmod("dir", 0o444);
    let report = take(&sandbox);
    sandbox.chmod("dir", 0o755);
    taken(&report);
    // Listing a directory with the calls that every Unix has needs the permission to search it.
    let is_listed = cfg!(all(target_os = "linux", not(piton_portable)));
    let each = ["dir/x (unreadable)", "dir/y (unreadable)"];
    assert_eq!(left_out(&report), if is_listed { &each[..] } else { &["dir/ (unreadable, not entered)"] });
}

#[test]
fn undo_brings_back_what_was_moved_aside() {
    let sandbox = Sandbox::new();
    let settings = Settings::default().max_file_size_mb(1);
    sandbox.tree("dir/f = small");
    taken(&take_with(&sandbox, &sandbox.project(), &settings));
    let large = vec![7; 2 << 20];
    sandbox.write("dir/f", &large);
    let options = RestoreOptions::default().move_uncovered_files(true);
    let report = restore_between(&sandbox, RestoreTo::Named("1"), options, &settings, |_| {}).expect("a restore");
    assert_eq!(report.moved_aside.len(), 1);
    assert_eq!(fs::read(sandbox.path("dir/f")).expect("a file"), b"small");
    let undone = restore_between(&sandbox, RestoreTo::Undo, RestoreOptions::default(), &settings, |_| {});
    assert_eq!(undone.expect("a restore").left, []);
    assert_eq!(fs::read(sandbox.path("dir/f")).expect("a file"), large);
    assert_eq!(fs::read_dir(sandbox.path("dir")).expect("a directory").count(), 1);
}

/// R5.
#[test]
fn redo_writes_where_undo_had_put_a_file_back_that_the_settings_cover_by_then() {
    let sandbox = Sandbox::new();
    let restore = |to, move_uncovered_files, settings: &Settings| {
        let options = RestoreOptions::default().move_uncovered_files(move_uncovered_files);
        let report = restore_between(&sandbox, to, options, settings, |_| {}).expect("a restore");
        assert_eq!(report.left, [], "{report:?}");
    };
    let (all, some) = (Settings::default(), Settings::default().exclude(vec!["*.ex".into()]));
    sandbox.tree("a.ex = old\n b = 1");
    taken(&take_with(&sandbox, &sandbox.project(), &all));
    sandbox.tree("a.ex = mine\n b = 1");
    let before = state_of(&sandbox.project());
    restore(RestoreTo::Named("1"), true, &some);
    let after = state_of(&sandbox.project());
    restore(RestoreTo::Undo, false, &all);
    assert_same(&state_of(&sandbox.project()), &before, "undone");
    restore(RestoreTo::Redo, false, &all);
    assert_same(&state_of(&sandbox.project()), &after, "redone");
}
