//! Histories longer than the part that a take may read.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use piton::{History, Project, RestoreOptions, RestoreTo, Settings, Store};
use testkit::Sandbox;

use crate::kit::{now, project_id, take_with, taken};

const KEPT: u64 = 70;

fn settings(max_snapshots: u64) -> Settings {
    Settings::default().max_snapshots(max_snapshots.into())
}

fn take(sandbox: &Sandbox, number: usize, max_snapshots: u64) -> String {
    sandbox.write("a.txt", format!("{number}\n"));
    taken(&take_with(sandbox, &sandbox.project(), &settings(max_snapshots)))
}

/// Returns the ids of the project's checkpoints, oldest first.
fn ids(sandbox: &Sandbox) -> Vec<String> {
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let history = History::of(&store, &project).expect("a history");
    history.checkpoints().iter().rev().map(|one| one.id.to_string()).collect()
}

fn newest_of(all: &[String], count: u64) -> &[String] {
    &all[all.len() - usize::try_from(count).expect("few")..]
}

fn file(sandbox: &Sandbox) -> PathBuf {
    sandbox.store().join("indexes").join(format!("{}.rows", project_id(sandbox)))
}

#[test]
fn a_long_history_is_cut_at_its_limit_whatever_the_file_of_ids_says() {
    let sandbox = Sandbox::new();
    let mut all: Vec<_> = (0..80).map(|number| take(&sandbox, number, KEPT)).collect();
    assert_eq!(ids(&sandbox), newest_of(&all, KEPT));
    let spoil: [&dyn Fn(); 6] = [
        &|| fs::remove_file(file(&sandbox)).expect("a file"),
        &|| fs::write(file(&sandbox), b"half").expect("a file"),
        &|| {
            let mut bytes = fs::read(file(&sandbox)).expect("a file");
            let end = bytes.len() - 20;
            bytes[..end].fill(7);
            fs::write(file(&sandbox), bytes).expect("a file");
        },
        // The invalid file was removed, and is created again.
        &|| assert!(!file(&sandbox).exists()),
        &|| {
            let bytes = fs::read(file(&sandbox)).expect("a file");
            fs::write(file(&sandbox), &bytes[..bytes.len() - 20]).expect("a file");
        },
        &|| {},
    ];
    for (number, spoil) in (100..).zip(spoil) {
        spoil();
        all.push(take(&sandbox, number, KEPT));
        assert_eq!(ids(&sandbox), newest_of(&all, KEPT), "{number}");
    }
    for number in 200..290 {
        all.push(take(&sandbox, number, KEPT));
    }
    assert_eq!(ids(&sandbox), newest_of(&all, KEPT));
    let bytes = fs::metadata(file(&sandbox)).expect("a file").len();
    assert!(bytes <= (2 * KEPT + 1) * 20, "it does not grow for ever: {bytes}");
    all.push(take(&sandbox, 300, 5));
    assert_eq!(ids(&sandbox), newest_of(&all, 5));
    all.push(take(&sandbox, 301, KEPT));
    assert_eq!(ids(&sandbox), newest_of(&all, 6));
    sandbox.assert_store_is_whole();
}

fn packs(sandbox: &Sandbox) -> BTreeSet<PathBuf> {
    let names = fs::read_dir(sandbox.store().join("objects/pack")).expect("packs").flatten().map(|entry| entry.path());
    names.filter(|path| path.extension().is_some_and(|extension| extension == "pack")).collect()
}

/// A missing object that a take does not read cannot make it fail.
#[test]
fn a_take_at_the_limit_reads_no_checkpoint_in_the_middle_of_the_history() {
    let sandbox = Sandbox::new();
    let mut all: Vec<_> = (0..80).map(|number| take(&sandbox, number, KEPT)).collect();
    let before = packs(&sandbox);
    all.push(take(&sandbox, 100, KEPT));
    let middle = packs(&sandbox).difference(&before).next().expect("its pack").clone();
    all.extend((200..220).map(|number| take(&sandbox, number, KEPT)));
    for path in [middle.with_extension("idx"), middle] {
        fs::remove_file(path).expect("a file");
    }
    all.push(take(&sandbox, 300, KEPT));
    let ends = fs::read_to_string(sandbox.store().join("shallow")).expect("ends of histories");
    assert!(ends.contains(&newest_of(&all, KEPT)[0]), "the limit holds");
}

#[test]
fn restores_keep_the_order_that_the_file_knows() {
    let sandbox = Sandbox::new();
    (0..5).for_each(|number| drop(take(&sandbox, number, KEPT)));
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let (options, progress) = (RestoreOptions::default(), piton::Progress::default());
    let to = RestoreTo::Named("3");
    let restore = piton::Restore::prepare(&store, &project, to, options, &settings(KEPT), now(), &progress);
    restore.expect("a plan").apply().expect("a restore");
    take(&sandbox, 50, KEPT);
    let in_file = fs::read(file(&sandbox)).expect("a file");
    let in_file: Vec<String> =
        in_file.chunks(20).map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    assert_eq!(in_file, ids(&sandbox));
}
