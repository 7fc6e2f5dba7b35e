//! Hunks of one file: any subset of them, reverted by the library and by `git apply -R`.
//!
//! `PITON_HUNK_CASES` is the number of files with a random change and a random subset (500 if not set).

use std::collections::BTreeSet;
use std::fs;

use piton::merge::{TextMerge, hunks, merge_text, revert_hunks};
use testkit::Dice;

use super::history::change_of_one_file;
use super::oracle::{git_with, number_from};

/// Returns a patch with only the hunks of each file that are selected, by the number in the file's name.
fn with_selected_hunks(patch: &[u8], selected: &[BTreeSet<usize>]) -> Vec<u8> {
    let (mut out, mut head) = (Vec::new(), Vec::new());
    let (mut file, mut number, mut is_in_head) = (0, 0, false);
    for line in patch.split_inclusive(|byte| *byte == b'\n') {
        if let Some(name) = line.strip_prefix(b"diff --git a/new/") {
            let digits = name.split(|byte| *byte == b' ').next().expect("a name");
            file = String::from_utf8_lossy(digits).parse().expect("a number");
            (number, is_in_head) = (0, true);
            head.clear();
        }
        if line.starts_with(b"@@ ") {
            number += 1;
            is_in_head = false;
            if selected[file].contains(&number) {
                out.append(&mut head);
            }
        }
        if is_in_head {
            head.extend_from_slice(line);
        } else if selected[file].contains(&number) {
            out.extend_from_slice(line);
        }
    }
    out
}

#[test]
fn any_subset_of_hunks_is_reverted_as_git_applies_it() {
    let cases = usize::try_from(number_from("PITON_HUNK_CASES", 500)).expect("a small number");
    let sandbox = testkit::Sandbox::new();
    let (root, mut dice) = (sandbox.root().join("hunks"), Dice::new(11));
    fs::create_dir_all(root.join("new")).expect("a directory");
    git_with(&root, &["init", "--quiet"], b"");
    let (mut selected, mut wanted, mut texts, mut with_several) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for case in 0..cases {
        let (old, new) = change_of_one_file(case as u64);
        let all = hunks(&old, &new).expect("text");
        with_several += u64::from(all.len() > 1);
        let some: BTreeSet<usize> = all.iter().map(|hunk| hunk.number).filter(|_| dice.roll(2) == 0).collect();
        wanted.push(revert_hunks(&old, &new, &some).expect("text"));
        fs::write(root.join(format!("new/{case}")), &old).expect("a file");
        texts.push(new);
        selected.push(some);
    }
    git_with(&root, &["add", "."], b"");
    for (case, new) in texts.iter().enumerate() {
        fs::write(root.join(format!("new/{case}")), new).expect("a file");
    }
    let patch = git_with(&root, &["diff"], b"");
    let patch = with_selected_hunks(&patch, &selected);
    git_with(&root, &["apply", "--reverse", "--whitespace=nowarn", "-"], &patch);
    for (case, wanted) in wanted.iter().enumerate() {
        let found = fs::read(root.join(format!("new/{case}"))).expect("a file");
        assert_eq!(found.escape_ascii().to_string(), wanted.escape_ascii().to_string(), "{case}: {:?}", selected[case]);
    }
    assert!(with_several * 3 > cases as u64, "too few files have several hunks");
}

#[test]
fn all_hunks_give_the_old_text_and_none_the_new_one() {
    for case in 0..200 {
        let (old, new) = change_of_one_file(case);
        let all: BTreeSet<usize> = (1..=hunks(&old, &new).expect("text").len()).collect();
        assert_eq!(revert_hunks(&old, &new, &all), Some(old.clone()));
        assert_eq!(revert_hunks(&old, &new, &BTreeSet::new()), Some(new));
    }
    assert_eq!(hunks(b"a\0", b"b"), None);
}

#[test]
fn a_hunk_is_reverted_in_a_later_version_of_the_file() {
    let line = |number: usize| format!("line {number}\n");
    let start: String = (0..40).map(line).collect();
    let end = start.replace("line 5\n", "turn 5\n").replace("line 30\n", "turn 30\n");
    let now = format!("{}own\n", end.replace("line 15\n", "own 15\n"));
    let theirs = revert_hunks(start.as_bytes(), end.as_bytes(), &BTreeSet::from([2])).expect("text");
    let want = now.replace("turn 30\n", "line 30\n");
    assert_eq!(merge_text(end.as_bytes(), now.as_bytes(), &theirs), TextMerge::Clean(want.into_bytes()));
}
