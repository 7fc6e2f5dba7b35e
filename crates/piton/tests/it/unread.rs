//! Unreadable files are not treated as corrupt, old or missing: nothing is removed because of a read error.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use piton::{
    ErrorKind, Level, Manager, Moment, Policy, Progress, Project, RepairOptions, Request, RestoreOutcome, RestoreTo,
    Settings, Store,
};
use testkit::Sandbox;

use crate::kit::{now, project_id, take, take_at, taken, without_roots_powers};
use crate::repair::repair;
use crate::restore_kit::try_restore;
use crate::upkeep::{ids_of, packs, store_of};
use crate::verify::damage_object;

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}

#[test]
fn a_repair_takes_no_object_away_that_it_could_not_read() {
    if !without_roots_powers("unread::a_repair_takes_no_object_away_that_it_could_not_read") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n b = 2");
    let id = taken(&take(&sandbox));
    // As stock git leaves them: loose objects.
    let pack = packs(&sandbox).remove(0);
    let aside = sandbox.root().join("aside.pack");
    fs::rename(&pack, &aside).expect("a pack");
    fs::remove_file(pack.with_extension("idx")).expect("an idx");
    let unpack = format!("git --git-dir={} unpack-objects -q < {}", sandbox.store().display(), aside.display());
    assert!(testkit::clean_command("sh").args(["-c", &unpack]).status().expect("a shell").success());
    let blob = String::from_utf8(sandbox.store_git(&["rev-parse", &format!("{id}:a")])).expect("an id");
    let (dir, name) = blob.trim().split_at(2);
    let loose = sandbox.store().join("objects").join(dir).join(name);
    set_mode(&loose, 0o000);
    fs::remove_file(sandbox.path("a")).expect("a file");
    let (settings, home) = (Settings::default(), sandbox.home());
    let options = RepairOptions::new(&settings).home(home.as_path());
    let error =
        piton::repair(&store_of(&sandbox), options, now(), &Progress::default()).expect_err("it cannot be read");
    assert_eq!(error.kind(), ErrorKind::Io);
    set_mode(&loose, 0o444);
    assert_eq!(ids_of(&sandbox, &sandbox.project()), [id]);
    sandbox.assert_store_is_whole();
}

#[test]
fn a_pack_that_cannot_be_opened_is_not_taken_for_gone() {
    if !without_roots_powers("unread::a_pack_that_cannot_be_opened_is_not_taken_for_gone") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n b = 2");
    let id = taken(&take(&sandbox));
    let pack = packs(&sandbox).remove(0);
    for file in [pack.clone(), pack.with_extension("idx")] {
        set_mode(&file, 0o000);
        let (settings, home) = (Settings::default(), sandbox.home());
        let options = RepairOptions::new(&settings).home(home.as_path());
        let repaired = piton::repair(&store_of(&sandbox), options, now(), &Progress::default());
        assert_eq!(repaired.expect_err("it cannot be read").kind(), ErrorKind::Io, "{}", file.display());
        set_mode(&file, 0o600);
    }
    assert_eq!(ids_of(&sandbox, &sandbox.project()), [id]);
    sandbox.assert_store_is_whole();
}

/// G1. A garbled line may have been any project's ref.
#[test]
fn a_packed_ref_that_is_garbled_costs_no_history() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    let first = taken(&take(&sandbox));
    sandbox.write("a", "2");
    let second = taken(&take(&sandbox));
    sandbox.store_git(&["pack-refs", "--all"]);
    let packed = sandbox.store().join("packed-refs");
    let text = fs::read_to_string(&packed).expect("packed refs");
    fs::write(&packed, text.replace(&second, &format!("!{}", &second[1..]))).expect("packed refs");
    let policy = Policy::default().retention_days(0).delete_orphans(false).total_bytes_max(None);
    let later = Moment { secs: now().secs + 86_400, ..now() };
    let pruned = piton::prune(&store_of(&sandbox), &policy, later, &Progress::default());
    assert_eq!(pruned.expect_err("a name cannot be read").kind(), ErrorKind::Damaged);
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let taken_again = piton::take(
        &store_of(&sandbox),
        &project,
        &Request::default(),
        &Settings::default().enabled(true),
        now(),
        &Progress::default(),
    );
    assert_eq!(taken_again.expect_err("its history cannot be found").kind(), ErrorKind::Damaged);
    assert!(repair(&sandbox).is_whole);
    for id in [first, second] {
        sandbox.store_git(&["cat-file", "-e", &id]);
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn a_project_whose_record_cannot_be_read_is_not_old() {
    if !without_roots_powers("unread::a_project_whose_record_cannot_be_read_is_not_old") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    let days = |days: i64| Moment { secs: now().secs + days * 86_400, ..now() };
    let id = taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), days(0)));
    // Used again, but unchanged.
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), days(20));
    let record = sandbox.store().join(format!("projects/{}.json", project_id(&sandbox)));
    set_mode(&record, 0o000);
    let policy = Policy::default().retention_days(7).delete_orphans(true).total_bytes_max(None);
    piton::prune(&store_of(&sandbox), &policy, days(21), &Progress::default()).expect("a prune");
    set_mode(&record, 0o600);
    assert_eq!(ids_of(&sandbox, &sandbox.project()), [id]);
}

/// R4: continuing a restore with nothing left to do completes it in the same way as one that does all of it.
#[test]
fn a_restore_of_which_only_the_end_was_cut_off_is_ended() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let target = taken(&take(&sandbox));
    sandbox.write("a", "2");
    let safety = taken(&take(&sandbox));
    sandbox.write("a", "1");
    let intent = sandbox.store().join(format!("restores/{}.json", project_id(&sandbox)));
    fs::create_dir_all(intent.parent().expect("a directory")).expect("a directory");
    fs::write(&intent, format!(r#"{{"target": "{target}", "safety": "{safety}", "paths": []}}"#)).expect("a file");
    let report = try_restore(&sandbox, RestoreTo::Continue, &[]).expect("a restore");
    assert_eq!(report.outcome, RestoreOutcome::Restored);
    assert_eq!(report.safety.map(|id| id.to_string()), Some(safety));
    assert!(!intent.exists());
}

/// A corrupt tree must not make its files count as never having existed.
#[test]
fn what_a_damaged_tree_held_is_not_said_to_be_nowhere() {
    let sandbox = Sandbox::new();
    sandbox.tree("dir/a = 1\n b = 1");
    let id = taken(&take(&sandbox));
    let tree = String::from_utf8(sandbox.store_git(&["rev-parse", &format!("{id}:dir")])).expect("an id");
    damage_object(&sandbox, &packs(&sandbox)[0], tree.trim());
    let refused = try_restore(&sandbox, RestoreTo::Named(&id), &["dir/a"]).expect_err("it is damaged");
    assert_eq!(refused.kind(), ErrorKind::Damaged);
}

/// The directory around it is another project.
#[test]
fn a_directory_that_cannot_be_looked_at_is_not_passed_over() {
    if !without_roots_powers("unread::a_directory_that_cannot_be_looked_at_is_not_passed_over") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n shut/in/b = 1");
    set_mode(&sandbox.path("shut"), 0o000);
    let settings = Settings::default().enabled(true);
    let mut manager = Manager::new(&sandbox.base(), Some(&sandbox.home()), settings);
    manager.new_turn("s", now());
    let ensured = manager.ensure_checkpoint(&sandbox.path("shut/in"), "before a test", now());
    set_mode(&sandbox.path("shut"), 0o755);
    assert_eq!(ensured.report.expect_err("it cannot be looked at").kind(), ErrorKind::Io);
}

#[test]
fn a_repair_does_not_take_a_base_that_it_cannot_look_at_for_none() {
    if !without_roots_powers("unread::a_repair_does_not_take_a_base_that_it_cannot_look_at_for_none") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    taken(&take(&sandbox));
    let around = sandbox.base().parent().expect("a directory").to_owned();
    set_mode(&around, 0o000);
    let opened = Store::open_damaged(&sandbox.base());
    set_mode(&around, 0o700);
    assert_eq!(opened.expect_err("it cannot be looked at").kind(), ErrorKind::Io);
}

/// Files are left out because of it without the user's intent: the take reports this, and the journal records it.
#[test]
fn an_index_of_the_projects_git_that_cannot_be_read_is_told() {
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree("src/a\n dist/built");
    sandbox.project_git(&["add", "-f", "."]);
    let report = take(&sandbox);
    assert_eq!((report.files, report.unread_index.as_deref()), (2, None));
    let index = sandbox.path(".git/index");
    fs::rename(&index, sandbox.path(".git/aside")).expect("an index");
    // A directory, so that reading it fails whatever the privileges of this process.
    fs::create_dir(&index).expect("a directory");
    let report = take(&sandbox);
    assert_eq!((report.files, report.unread_index.as_deref()), (1, Some(&*index)));
    let settings = Settings::default().enabled(true);
    let mut manager = Manager::new(&sandbox.base(), Some(&sandbox.home()), settings);
    manager.new_turn("s", now());
    manager.ensure_checkpoint(&sandbox.project(), "before a test", now());
    let told = manager.journal().recent(1).remove(0);
    assert!(told.level == Level::Warning && told.what.contains(".git/index cannot be read"), "{told:?}");
    // A repository to which nothing was added has no index.
    fs::remove_dir(&index).expect("a directory");
    assert_eq!(take(&sandbox).unread_index, None);
    fs::rename(sandbox.path(".git/aside"), &index).expect("an index");
    let report = take(&sandbox);
    assert_eq!((report.files, report.unread_index), (2, None));
}
