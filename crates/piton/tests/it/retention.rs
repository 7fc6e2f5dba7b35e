//! Number of checkpoints that a project keeps: history is truncated, never rewritten.

use std::fs;
use std::path::Path;

use piton::{History, Outcome, Project, RestoreTo, Settings, Store};
use testkit::Sandbox;

use crate::kit::{take_with, taken};
use crate::restore_kit::restored;

fn keeping(max_snapshots: u64) -> Settings {
    Settings::default().max_snapshots(max_snapshots.into())
}

/// Takes that many checkpoints of a file with a counter; returns their ids, newest first.
fn take_many(sandbox: &Sandbox, dir: &Path, count: usize, max_snapshots: u64) -> Vec<String> {
    let take = |number: usize| {
        fs::write(dir.join("count"), number.to_string()).expect("a file");
        taken(&take_with(sandbox, dir, &keeping(max_snapshots)))
    };
    (0..count).rev().map(take).collect::<Vec<_>>().into_iter().rev().collect()
}

/// Returns ids and times, newest first.
fn list(sandbox: &Sandbox, dir: &Path) -> Vec<(String, i64)> {
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(dir, None).expect("a project");
    let history = History::of(&store, &project).expect("a history");
    history.checkpoints().iter().map(|checkpoint| (checkpoint.id.to_string(), checkpoint.time.secs)).collect()
}

fn git_list(sandbox: &Sandbox, newest: &str) -> Vec<String> {
    let log = sandbox.store_git(&["log", "--format=%H", newest]);
    String::from_utf8(log).expect("hexadecimal digits").lines().map(str::to_owned).collect()
}

/// S2.
#[test]
fn the_oldest_are_dropped_and_the_others_keep_ids_and_dates() {
    let sandbox = Sandbox::new();
    let dir = sandbox.project();
    let first = take_many(&sandbox, &dir, 4, 4);
    let before = list(&sandbox, &dir);
    let more = take_many(&sandbox, &dir, 2, 4);
    let after = list(&sandbox, &dir);
    assert_eq!(after.iter().map(|(id, _)| id).collect::<Vec<_>>(), [&more[0], &more[1], &first[0], &first[1]]);
    assert_eq!(after[2..], before[..2]);
    assert_eq!(git_list(&sandbox, &more[0]), after.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>());
    sandbox.assert_store_is_whole();
}

#[test]
fn what_was_dropped_is_given_back_by_git_and_the_rest_stays() {
    let sandbox = Sandbox::new();
    let (dir, other) = (sandbox.project(), sandbox.other_project("other"));
    let ids = take_many(&sandbox, &dir, 9, 3);
    let others = take_many(&sandbox, &other, 5, 2);
    crate::upkeep::collect(&sandbox);
    let ends = fs::read_to_string(sandbox.store().join("shallow")).expect("a boundary");
    let mut expected = [ids[2].as_str(), others[1].as_str()];
    expected.sort_unstable();
    assert_eq!(ends.lines().collect::<Vec<_>>(), expected, "one end for each project");
    sandbox.store_git(&["gc", "--prune=now", "--quiet"]);
    assert_eq!(sandbox.count_objects("commit"), 5);
    assert_eq!((list(&sandbox, &dir).len(), list(&sandbox, &other).len()), (3, 2));
    assert_eq!(take_with(&sandbox, &dir, &keeping(3)).outcome, Outcome::Unchanged(first_id(&sandbox, &dir)));
    sandbox.assert_store_is_whole();
}

fn first_id(sandbox: &Sandbox, dir: &Path) -> piton::CheckpointId {
    let store = Store::open_existing(&sandbox.base()).expect("a base").expect("a store");
    let project = Project::at(dir, None).expect("a project");
    History::of(&store, &project).expect("a history").checkpoints()[0].id
}

#[test]
fn every_checkpoint_of_a_list_restores_in_any_order() {
    for newest_first in [true, false] {
        let sandbox = Sandbox::new();
        let dir = sandbox.project();
        let mut ids: Vec<_> = take_many(&sandbox, &dir, 8, 5).into_iter().take(5).enumerate().collect();
        if !newest_first {
            ids.reverse();
        }
        for (number, id) in ids {
            fs::write(dir.join("count"), "something else").expect("a file");
            restored(&sandbox, RestoreTo::Named(&id), &[]);
            assert_eq!(fs::read_to_string(dir.join("count")).expect("a file"), number.to_string());
        }
        // Safety checkpoints count: the next take drops those above the limit.
        fs::write(dir.join("count"), "the end").expect("a file");
        taken(&take_with(&sandbox, &dir, &keeping(5)));
        assert_eq!(list(&sandbox, &dir).len(), 5);
        sandbox.assert_store_is_whole();
    }
}
