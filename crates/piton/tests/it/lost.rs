//! Missing parts of a store: the rest is never treated as empty, intact or unreachable.

use std::fs;

use piton::{ErrorKind, FindingKind, History, Policy, Project, ReadData, RestoreTo, Settings, Status, Store, Watch};
use testkit::Sandbox;

use crate::kit::{now, project_id, take, take_with, taken};
use crate::repair::repair;
use crate::restore_kit::{kind_of, restored, try_restore};
use crate::upkeep::{ids_of, packs, store_of};
use crate::verify::{kinds, verify};

fn settings() -> Settings {
    Settings { enabled: true, ..Settings::default() }
}

fn try_take(sandbox: &Sandbox) -> piton::Result<piton::Report> {
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let (request, progress) = (piton::Request { reason: "again".to_owned(), ..Default::default() }, Default::default());
    piton::take(&store_of(sandbox), &project, &request, &settings(), now(), &progress)
}

fn try_list(sandbox: &Sandbox) -> piton::Result<History> {
    History::of(&store_of(sandbox), &Project::at(&sandbox.project(), None).expect("a project"))
}

/// G1. The objects of a ref are not garbage because the ref is missing.
#[test]
fn a_ref_that_is_gone_costs_no_checkpoint() {
    let sandbox = Sandbox::new();
    let mut taken_ids: Vec<String> = Vec::new();
    for text in ["1", "2", "3"] {
        sandbox.write("a", text);
        taken_ids.insert(0, taken(&take(&sandbox)));
    }
    let other = sandbox.other_project("other");
    fs::write(other.join("b"), "1").expect("a file");
    let theirs = taken(&take_with(&sandbox, &other, &settings()));
    fs::remove_file(sandbox.store().join(format!("refs/hermes/{}", project_id(&sandbox)))).expect("a ref");

    sandbox.write("a", "4");
    assert_eq!(kind_of(try_take(&sandbox)), ErrorKind::Damaged, "a new history would take its place");
    assert_eq!(kind_of(try_list(&sandbox).map(drop)), ErrorKind::Damaged);
    assert_eq!(kind_of(try_restore(&sandbox, RestoreTo::Named(&taken_ids[0]), &[])), ErrorKind::Damaged);
    let policy = Policy { retention_days: 7, delete_orphans: true, total_bytes_max: None };
    assert_eq!(kind_of(piton::prune(&store_of(&sandbox), &policy, now(), &Watch::default())), ErrorKind::Damaged);
    let status = Status::of(&store_of(&sandbox), None).expect("a status");
    assert_eq!((status.projects.len(), status.problems.len()), (2, 1), "{:?}", status.problems);
    assert!(status.problems[0].what.contains("is gone"), "{:?}", status.problems);
    fs::write(other.join("b"), "2").expect("a file");
    let theirs_again = taken(&take_with(&sandbox, &other, &settings()));

    assert!(repair(&sandbox).is_whole);
    assert_eq!(ids_of(&sandbox, &sandbox.project()), taken_ids);
    assert_eq!(ids_of(&sandbox, &other), [theirs_again, theirs]);
    piton::prune(&store_of(&sandbox), &policy, now(), &Watch::default()).expect("a prune");
    assert_eq!(ids_of(&sandbox, &sandbox.project()), taken_ids);
    taken(&take(&sandbox));
    sandbox.assert_store_is_whole();
}

/// A purge that could not collect the purged objects fails before it changes an id.
#[test]
fn a_purge_beside_a_ref_that_is_gone_changes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("keys", "secret");
    let own = taken(&take(&sandbox));
    let other = sandbox.other_project("other");
    fs::write(other.join("b"), "1").expect("a file");
    taken(&take_with(&sandbox, &other, &settings()));
    let theirs = Project::at(&other, None).expect("a project").id().to_string();
    fs::remove_file(sandbox.store().join(format!("refs/hermes/{theirs}"))).expect("a ref");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let purged = piton::purge(&store_of(&sandbox), &project, &[b"keys".to_vec()], now(), &Watch::default());
    assert_eq!(kind_of(purged), ErrorKind::Damaged);
    assert_eq!(ids_of(&sandbox, &sandbox.project()), [own]);
}

/// Once nothing is left of a project but its record, its missing ref blocks nothing.
#[test]
fn a_ref_that_is_gone_with_all_that_it_led_to_is_no_damage() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    taken(&take(&sandbox));
    fs::remove_file(sandbox.store().join(format!("refs/hermes/{}", project_id(&sandbox)))).expect("a ref");
    for pack in packs(&sandbox) {
        fs::remove_file(pack.with_extension("idx")).expect("an idx");
        fs::remove_file(pack).expect("a pack");
    }
    assert_eq!(try_list(&sandbox).expect("an empty list").checkpoints().len(), 0);
    taken(&take(&sandbox));
    sandbox.assert_store_is_whole();
}

#[test]
fn a_checkpoint_that_is_gone_keeps_nobody_from_newer_ones() {
    let sandbox = Sandbox::new();
    let mut ids: Vec<String> = Vec::new();
    let mut first = Vec::new();
    for text in ["1", "2", "3"] {
        sandbox.write("a", text);
        ids.insert(0, taken(&take(&sandbox)));
        if first.is_empty() {
            first = packs(&sandbox);
        }
    }
    fs::remove_file(first[0].with_extension("idx")).expect("an idx");
    fs::remove_file(&first[0]).expect("a pack");

    let history = try_list(&sandbox).expect("a list");
    let listed: Vec<_> = history.checkpoints().iter().map(|one| one.id.to_string()).collect();
    assert_eq!(listed, ids[..2]);
    assert_eq!(history.damage().map(piton::Error::kind), Some(ErrorKind::Damaged));
    assert_eq!(kind_of(history.find("3").map(drop)), ErrorKind::Damaged);
    let changes: Vec<_> = history.list().expect("a list").iter().map(|line| line.change.is_some()).collect();
    assert_eq!(changes, [true, true]);
    drop(history);
    sandbox.write("a", "4");
    restored(&sandbox, RestoreTo::Named("1"), &[]);
    assert_eq!(fs::read(sandbox.path("a")).expect("a file"), b"3");
    sandbox.write("a", "5");
    taken(&take(&sandbox));
    let mut left = ids_of(&sandbox, &sandbox.project());
    left.retain(|id| ids.contains(id));
    assert_eq!(left, ids[..2]);
}

#[test]
fn a_store_without_some_of_its_parts_is_damaged_and_not_absent() {
    for part in ["HEAD", "objects"] {
        let sandbox = Sandbox::new();
        sandbox.write("a", "1");
        taken(&take(&sandbox));
        let path = sandbox.store().join(part);
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.expect("a part");
        assert_eq!(kind_of(Store::open_existing(&sandbox.base()).map(drop)), ErrorKind::Damaged, "{part}");
        let rest = Store::open_damaged(&sandbox.base()).expect("a base").expect("what is left");
        assert!(!rest.verify(ReadData::No, &Watch::default()).expect("a check").is_whole(), "{part}");
        assert!(Status::of(&rest, None).is_ok(), "{part}");
    }
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let id = taken(&take(&sandbox));
    fs::remove_file(sandbox.store().join("HEAD")).expect("a part");
    assert!(repair(&sandbox).is_whole);
    assert_eq!(ids_of(&sandbox, &sandbox.project()), [id]);
    assert_eq!(kinds(&verify(&sandbox, ReadData::All)), [] as [FindingKind; 0]);
}
