//! Stores damaged by a disk: each restore is either refused with nothing changed, or correct to the last byte.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use piton::{Policy, Progress, RestoreOutcome, RestoreTo, prune};
use testkit::{Sandbox, walk};

use crate::hostile::Victim;
use crate::kit::{now, take, taken};
use crate::restore_kit::{assert_same, restored, state_of, try_restore};
use crate::upkeep::{packs, store_of};
use crate::verify::damage_object;

const FIRST: RestoreTo<'_> = RestoreTo::Named("1");

/// The safety checkpoint refers to contents that the store already has. If those are corrupt, it protects nothing.
#[test]
fn what_a_restore_overwrites_is_whole_in_the_store() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = the work of a whole day\n d/e/b = the work of a whole day\n d/c = 1");
    taken(&take(&sandbox));
    let pack = bytes_of(&sandbox.base()).into_keys().find(|path| path.extension().is_some_and(|found| found == "pack"));
    sandbox.tree("a = 2\n d/e/b = 2");
    taken(&take(&sandbox));
    // The same contents again: no intact pack will contain them.
    sandbox.tree("a = the work of a whole day\n d/e/b = the work of a whole day");
    let before = state_of(&sandbox.project());
    let pack = pack.expect("a pack");
    let bytes = fs::read(&pack).expect("a pack");
    for at in 12..bytes.len() - 20 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::remove_file(&pack).expect("a pack");
        fs::write(&pack, &damaged).expect("a pack");
        if try_restore(&sandbox, FIRST, &[]).is_ok() {
            restored(&sandbox, RestoreTo::Undo, &[]);
        }
        assert_same(&state_of(&sandbox.project()), &before, &format!("byte {at}"));
    }
}

/// Returns all files of the base, to be put back later.
pub(crate) fn bytes_of(base: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    walk(base, &mut |path| {
        if path.is_file() {
            all.insert(path.to_owned(), fs::read(path).expect("a file"));
        }
    });
    all
}

pub(crate) fn put_back(base: &Path, all: &BTreeMap<PathBuf, Vec<u8>>) {
    walk(base, &mut |path| {
        if path.is_file() && !all.contains_key(path) {
            fs::remove_file(path).expect("a file");
        }
    });
    for (path, bytes) in all {
        if fs::read(path).ok().as_ref() != Some(bytes) {
            let _ = fs::remove_file(path);
            fs::write(path, bytes).expect("a file");
        }
    }
}

/// Restores from a store with one damaged file, for each way to damage it. Either the restore fails and changes
/// nothing, or every byte is correct, and undo is correct too.
fn restore_from_damaged(extension: &str, ways: impl Fn(&[u8]) -> Vec<(String, Vec<u8>)>) {
    let other = Victim::new();
    restored(&other.sandbox, FIRST, &[]);
    let target = state_of(&other.sandbox.project());
    let whole = Victim::new();
    let base = whole.sandbox.base();
    let all = bytes_of(&base);
    let file = all.keys().find(|path| path.extension().is_some_and(|found| found == extension)).expect("a file");
    let (mut refused, mut right) = (0, 0);
    for (how, bytes) in ways(&all[file]) {
        fs::remove_file(file).expect("a file");
        fs::write(file, bytes).expect("a file");
        let result = catch_unwind(AssertUnwindSafe(|| try_restore(&whole.sandbox, FIRST, &[])));
        let result = result.unwrap_or_else(|_| panic!("a panic: {how} of the {extension}"));
        match result {
            Err(_) => {
                whole.assert_untouched(&how);
                refused += 1;
            }
            Ok(report) => {
                assert_eq!(report.outcome, RestoreOutcome::Restored, "{how}: {report:?}");
                assert_same(&state_of(&whole.sandbox.project()), &target, &how);
                restored(&whole.sandbox, RestoreTo::Undo, &[]);
                whole.assert_untouched(&format!("undo, {how}"));
                right += 1;
            }
        }
        put_back(&base, &all);
    }
    assert!(refused > 5, "{refused} refused, {right} right");
}

fn flips(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let flip = |at: usize| {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        (format!("byte {at} flipped"), flipped)
    };
    (0..bytes.len()).map(flip).collect()
}

fn cuts(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let ends = (0..bytes.len()).step_by(16);
    ends.map(|end| (format!("cut off at {end}"), bytes[..end].to_vec())).collect()
}

/// R3.
#[test]
fn any_flipped_byte_of_a_pack_is_found_or_does_not_matter() {
    restore_from_damaged("pack", flips);
}

#[test]
fn any_flipped_byte_of_an_idx_is_found_or_does_not_matter() {
    restore_from_damaged("idx", flips);
}

#[test]
fn a_pack_or_idx_that_was_cut_off_is_found() {
    restore_from_damaged("pack", cuts);
    restore_from_damaged("idx", cuts);
}

/// Swaps pairs of offsets, which are at the end of an idx, before its two checksums.
pub(crate) fn swaps(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let count = usize::try_from(u32::from_be_bytes(bytes[1028..1032].try_into().expect("four bytes"))).expect("few");
    let offset = |at: usize| bytes.len() - 40 - 4 * (count - at)..bytes.len() - 40 - 4 * (count - at) + 4;
    let pairs = (0..count).flat_map(|one| (0..one).map(move |other| (one, other)));
    let swap = |(one, other): (usize, usize)| {
        let mut swapped = bytes.to_vec();
        swapped[offset(one)].copy_from_slice(&bytes[offset(other)]);
        swapped[offset(other)].copy_from_slice(&bytes[offset(one)]);
        (format!("objects {one} and {other} swapped"), swapped)
    };
    pairs.map(swap).collect()
}

#[test]
fn an_object_under_the_name_of_another_is_found() {
    restore_from_damaged("idx", swaps);
}

/// G1: the objects below an unreadable tree may be intact, and a repair would find them.
#[test]
fn a_collection_takes_nothing_away_while_something_that_is_named_is_damaged() {
    let sandbox = Sandbox::new();
    sandbox.tree("dir/a = 1\n b = 1");
    let id = taken(&take(&sandbox));
    let tree = String::from_utf8(sandbox.store_git(&["rev-parse", &format!("{id}:dir")])).expect("an id");
    damage_object(&sandbox, &packs(&sandbox)[0], tree.trim());
    let before = bytes_of(&sandbox.store().join("objects"));
    let policy = Policy::default().retention_days(0).delete_orphans(false).total_bytes_max(None);
    let pruned = prune(&store_of(&sandbox), &policy, now(), &Progress::default());
    assert!(pruned.map_or(true, |report| !report.problems.is_empty()), "it says so");
    assert!(bytes_of(&sandbox.store().join("objects")) == before);
}
