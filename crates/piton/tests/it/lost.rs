//! Missing parts of a store: the rest is never treated as empty, intact or unreachable.

use std::fs;

use piton::{ErrorKind, FindingKind, History, Policy, Progress, Project, ReadData, RestoreTo, Settings, Status, Store};
use testkit::Sandbox;

use crate::kit::{now, project_id, take, take_with, taken};
use crate::repair::repair;
use crate::restore_kit::{kind_of, restored, try_restore};
use crate::upkeep::{ids_of, packs, store_of};
use crate::verify::{kinds, verify};

fn settings() -> Settings {
    Settings::default().enabled(true)
}

fn try_take(sandbox: &Sandbox) -> piton::Result<piton::Report> {
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let (request, progress) = (piton::Request::default().reason("again"), Default::default());
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
    let policy = Policy::default().retention_days(7).delete_orphans(true).total_bytes_max(None);
    assert_eq!(kind_of(piton::prune(&store_of(&sandbox), &policy, now(), &Progress::default())), ErrorKind::Damaged);
    let status = Status::of(&store_of(&sandbox), None).expect("a status");
    assert_eq!((status.projects.len(), status.problems.len()), (2, 1), "{:?}", status.problems);
    assert!(status.problems[0].what.contains("is gone"), "{:?}", status.problems);
    fs::write(other.join("b"), "2").expect("a file");
    let theirs_again = taken(&take_with(&sandbox, &other, &settings()));

    assert!(repair(&sandbox).is_whole);
    assert_eq!(ids_of(&sandbox, &sandbox.project()), taken_ids);
    assert_eq!(ids_of(&sandbox, &other), [theirs_again, theirs]);
    piton::prune(&store_of(&sandbox), &policy, now(), &Progress::default()).expect("a prune");
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
    let purged = piton::purge(&store_of(&sandbox), &project, &[b"keys".to_vec()], now(), &Progress::default());
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
fn a_lost_checkpoint_does_not_prevent_newer_ones() {
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
        assert!(!piton::verify(&rest, ReadData::No, &Progress::default()).expect("a check").is_whole(), "{part}");
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

/// Runs stock git's collection as Hermes does while a ref does not lead to `commit` yet, and makes it lead there afterwards.
fn collect_before_the_ref_moves(sandbox: &Sandbox, commit: &str) {
    sandbox.store_git(&["reflog", "expire", "--expire=now", "--all"]);
    sandbox.store_git(&["gc", "--prune=now", "--quiet"]);
    fs::write(sandbox.store().join(format!("refs/hermes/{}", project_id(sandbox))), format!("{commit}\n"))
        .expect("a ref");
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text").trim().to_owned()
}

/// Writes a commit of stock git's with any tree and parent, there or not.
fn commit_of(sandbox: &Sandbox, tree: &str, parent: Option<&str>) -> String {
    let parent = parent.map(|parent| format!("parent {parent}\n")).unwrap_or_default();
    let who = "Hermes <hermes@local> 1700000000 +0000";
    let file = sandbox.root().join("commit");
    fs::write(&file, format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\nbefore write_file\n"))
        .expect("a file");
    let file = file.to_str().expect("UTF-8").to_owned();
    text(sandbox.store_git(&["hash-object", "-t", "commit", "--literally", "-w", &file]))
}

/// Hermes drops checkpoints above its limit by rewriting the commits and moving the ref there. Another Hermes that collects
/// meanwhile deletes those commits.
#[test]
fn a_take_goes_on_where_stock_git_deleted_the_newest_checkpoint() {
    let sandbox = Sandbox::new();
    let mut ids: Vec<String> = Vec::new();
    for number in ["1", "2", "3"] {
        sandbox.write("a", number);
        sandbox.write("b", "same");
        ids.insert(0, taken(&take(&sandbox)));
    }
    let tree = text(sandbox.store_git(&["rev-parse", &format!("{}^{{tree}}", ids[0])]));
    let rewritten = text(sandbox.store_git(&["commit-tree", "-m", "before write_file", "-p", &ids[1], &tree]));
    collect_before_the_ref_moves(&sandbox, &rewritten);
    assert_eq!(kind_of(try_list(&sandbox).map(drop)), ErrorKind::Damaged);

    sandbox.write("a", "4");
    let report = take(&sandbox);
    assert_eq!(report.lost.map(|lost| lost.to_string()), Some(rewritten.clone()), "it is not silent");
    ids.insert(0, taken(&report));
    assert_eq!(ids_of(&sandbox, &sandbox.project()), ids, "all that is left of the history is kept");
    sandbox.assert_store_is_whole();
    assert_eq!(sandbox.held_by(&ids[0]), testkit::files_in(&sandbox.project()));
    let mut kept_names = Vec::new();
    testkit::walk(&sandbox.store().join("repairs"), &mut |path| kept_names.extend(fs::read_to_string(path).ok()));
    assert_eq!(kept_names, [format!("{rewritten}\n")], "the name that led there is kept");
    assert_eq!(take(&sandbox).lost, None);
    assert!(verify(&sandbox, ReadData::All).is_whole());
}

/// The same where nothing is left of the project.
#[test]
fn a_take_begins_a_new_history_where_stock_git_deleted_all_checkpoints() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let first = taken(&take(&sandbox));
    let tree = text(sandbox.store_git(&["rev-parse", &format!("{first}^{{tree}}")]));
    let commit = text(sandbox.store_git(&["commit-tree", "-m", "before write_file", &tree]));
    sandbox.store_git(&["update-ref", "-d", &format!("refs/hermes/{}", project_id(&sandbox))]);
    collect_before_the_ref_moves(&sandbox, &commit);
    let report = take(&sandbox);
    let id = taken(&report);
    assert_eq!(report.lost.map(|lost| lost.to_string()), Some(commit));
    assert_eq!(ids_of(&sandbox, &sandbox.project()), [id]);
    sandbox.assert_store_is_whole();
}

/// Objects that a checkpoint by Hermes has lost are written again, even if the files are the same as in it.
#[test]
fn a_take_is_whole_where_the_newest_checkpoint_of_stock_git_is_not() {
    for keeps_index in [true, false] {
        let sandbox = Sandbox::new();
        sandbox.write("a", "1");
        sandbox.write("dir/b", "2");
        let first = taken(&take(&sandbox));
        let tree = text(sandbox.store_git(&["rev-parse", &format!("{first}^{{tree}}")]));
        // Hermes moved the ref elsewhere, and back to the same files while another Hermes collected.
        let empty = text(sandbox.store_git(&["mktree"]));
        let elsewhere = commit_of(&sandbox, &empty, None);
        let name = format!("refs/hermes/{}", project_id(&sandbox));
        sandbox.store_git(&["update-ref", &name, &elsewhere]);
        sandbox.store_git(&["gc", "--prune=now", "--quiet"]);
        let newest = commit_of(&sandbox, &tree, Some(&elsewhere));
        sandbox.store_git(&["update-ref", &name, &newest]);
        if !keeps_index {
            fs::remove_file(sandbox.store().join("indexes").join(project_id(&sandbox))).expect("an index");
        }

        let id = taken(&take(&sandbox));
        assert_eq!(sandbox.held_by(&id), testkit::files_in(&sandbox.project()));
        assert_eq!(ids_of(&sandbox, &sandbox.project()), [id, newest, elsewhere]);
        sandbox.assert_store_is_whole();
        assert!(matches!(take(&sandbox).outcome, piton::Outcome::Unchanged(_)));
    }
}

/// A pack that a repair can read again is not taken for gone.
#[test]
fn a_checkpoint_in_a_pack_without_its_idx_is_not_given_up() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let id = taken(&take(&sandbox));
    for pack in packs(&sandbox) {
        fs::remove_file(pack.with_extension("idx")).expect("an idx");
    }
    sandbox.write("a", "2");
    assert_eq!(kind_of(try_take(&sandbox)), ErrorKind::Damaged);
    assert!(repair(&sandbox).is_whole);
    assert_eq!(ids_of(&sandbox, &sandbox.project()), [id]);
}
