//! Cases of a three-way merge, by name.

use piton::merge::{ConflictReason, LineConflict, TextMerge, merge_text};
use testkit::Held;

use super::history::{History, State};
use super::oracle::revert;

fn clean(text: &str) -> TextMerge {
    TextMerge::Clean(text.as_bytes().to_vec())
}

/// Builds a state from `path=contents`; `path@target` is a link, and `path*contents` an executable file.
fn state(files: &[&str]) -> State {
    let parse = |file: &&str| {
        let at = file.find(['=', '@', '*']).expect("a separator");
        let (path, contents) = (file.as_bytes()[..at].to_vec(), file.as_bytes()[at + 1..].to_vec());
        match file.as_bytes()[at] {
            b'@' => (path, Held::Link(contents)),
            separator => (path, Held::File(separator == b'*', contents)),
        }
    };
    files.iter().map(parse).collect()
}

/// Asserts the result of reverting a turn: the state that is left, and the paths in conflict with their reasons.
fn assert_reverted(start: &[&str], end: &[&str], now: &[&str], want: &[&str], conflicts: &[(&str, ConflictReason)]) {
    let (merge, left) = revert(&History { start: state(start), end: state(end), now: state(now) });
    let found: Vec<_> = merge.conflicts.iter().map(|found| (found.path.clone(), found.reason.clone())).collect();
    let wanted: Vec<_> = conflicts.iter().map(|(path, reason)| (path.as_bytes().to_vec(), reason.clone())).collect();
    assert_eq!(found, wanted);
    assert_eq!(left, state(want));
}

const LONG: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n";

#[test]
fn changes_of_different_lines_are_merged() {
    assert_eq!(merge_text(b"a\nb\nc\nd\n", b"A\nb\nc\nd\n", b"a\nb\nc\nD\n"), clean("A\nb\nc\nD\n"));
    assert_eq!(merge_text(b"a\nb\nc\n", b"a\nb\nc\n", b"x\n"), clean("x\n"));
    assert_eq!(merge_text(b"a\nb\nc\n", b"x\n", b"a\nb\nc\n"), clean("x\n"));
    assert_eq!(merge_text(b"a\nb\nc\n", b"a\nX\nc\n", b"a\nX\nc\n"), clean("a\nX\nc\n"));
}

#[test]
fn adjacent_changes_conflict() {
    let conflict = LineConflict { base: 1..3, ours: 1..3, theirs: 1..3 };
    assert_eq!(merge_text(b"a\nb\nc\nd\n", b"a\nB\nc\nd\n", b"a\nb\nC\nd\n"), TextMerge::Conflict(vec![conflict]));
    assert_eq!(merge_text(b"a\nb\nc\nd\n", b"A\nb\nc\nd\n", b"a\nb\nC\nd\n"), clean("A\nb\nC\nd\n"));
}

#[test]
fn line_ends_and_a_missing_last_one_are_contents() {
    assert_eq!(merge_text(b"a\r\nb\r\nc\r\n", b"a\r\nb\r\nc\nd\n", b"A\r\nb\r\nc\r\n"), clean("A\r\nb\r\nc\nd\n"));
    assert_eq!(merge_text(b"a\nb\nc", b"a\nb\nc\n", b"A\nb\nc"), clean("A\nb\nc\n"));
    assert!(matches!(merge_text(b"a\nb\nc", b"a\nb\nc\n", b"a\nb\nd"), TextMerge::Conflict(_)));
    assert!(matches!(merge_text(b"a\nb\n", b"a\r\nb\r\n", b"x\nb\n"), TextMerge::Conflict(_)));
}

#[test]
fn binary_files_are_taken_whole_or_conflict() {
    assert_eq!(merge_text(b"a\0", b"b\0", b"c\0"), TextMerge::Binary);
    assert_reverted(&["f=a\0"], &["f=b\0"], &["f=b\0"], &["f=a\0"], &[]);
    assert_reverted(&["f=a\0"], &["f=b\0"], &["f=c\0"], &["f=c\0"], &[("f", ConflictReason::Binary)]);
}

#[test]
fn a_text_with_many_changes_of_many_lines_is_merged() {
    let text = |ours: bool, theirs: bool| -> Vec<u8> {
        let line = |number: u32| match number % 10 {
            0 if ours => format!("ours {number}\n"),
            5 if theirs => format!("theirs {number}\n"),
            _ => format!("line {}\n", number % 5000),
        };
        (0..100_000).flat_map(|number| line(number).into_bytes()).collect()
    };
    let merged = merge_text(&text(false, false), &text(true, false), &text(false, true));
    assert!(merged == TextMerge::Clean(text(true, true)));
}

#[test]
fn a_deleted_file_comes_back_and_an_added_one_goes() {
    assert_reverted(&["old=x"], &["new=y", "keep=z"], &["new=y", "keep=z", "own=w"], &["old=x", "own=w"], &[]);
    let later = ["new=y later"];
    assert_reverted(&[], &["new=y"], &later, &later, &[("new", ConflictReason::DeletedByThem)]);
    assert_reverted(&["f=a"], &["f=b"], &[], &[], &[("f", ConflictReason::DeletedByUs)]);
    let own = ["f=mine"];
    assert_reverted(&["f=a"], &[], &own, &own, &[("f", ConflictReason::AddAdd)]);
}

#[test]
fn modes_are_merged_apart_from_contents() {
    assert_reverted(&["f=a\n"], &["f*a\n"], &["f*b\n"], &["f=b\n"], &[]);
    assert_reverted(&["f=a\n"], &["f=b\n"], &["f*b\n"], &["f*a\n"], &[]);
}

#[test]
fn links_are_taken_whole_or_conflict() {
    assert_reverted(&["f@a"], &["f@b"], &["f@b"], &["f@a"], &[]);
    assert_reverted(&["f@a"], &["f@b"], &["f@c"], &["f@c"], &[("f", ConflictReason::Link)]);
    assert_reverted(&["f=a\n"], &["f@b"], &["f@c"], &["f@c"], &[("f", ConflictReason::Type)]);
}

#[test]
fn a_later_edit_follows_the_file_back_to_its_old_name() {
    let edited = LONG.replace("seven", "SEVEN");
    assert_reverted(
        &[&format!("a={LONG}")],
        &[&format!("b={LONG}")],
        &[&format!("b={edited}")],
        &[&format!("a={edited}")],
        &[],
    );
    // The turn changed the file too, and only that change goes.
    let turned = LONG.replace("two", "TWO");
    let both = turned.replace("seven", "SEVEN");
    assert_reverted(
        &[&format!("a={LONG}")],
        &[&format!("b={turned}")],
        &[&format!("b={both}")],
        &[&format!("a={edited}")],
        &[],
    );
}

#[test]
fn a_change_goes_from_a_file_that_was_renamed_later() {
    let turned = LONG.replace("two", "TWO");
    assert_reverted(
        &[&format!("a={LONG}")],
        &[&format!("a={turned}")],
        &[&format!("b={turned}")],
        &[&format!("b={LONG}")],
        &[],
    );
}

#[test]
fn renames_that_contradict_each_other_conflict() {
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("{name}={LONG}"));
    let reasons = |reason| [("c", reason)];
    assert_reverted(&[&a], &[&b], &[&c], &[&c], &reasons(ConflictReason::RenameRename));
    assert_reverted(&[], &[&b], &[&c], &[&c], &reasons(ConflictReason::RenameDelete));
    assert_reverted(&[&a], &[&b], &[], &[], &[("b", ConflictReason::RenameDelete)]);
}

#[test]
fn equal_files_that_were_renamed_conflict_if_their_names_do_not_tell_them_apart() {
    let edited = LONG.replace("seven", "SEVEN");
    let (x, y) = (format!("b/x={LONG}"), format!("b/y={LONG}"));
    let now = [&*format!("b/x={edited}"), &*y];
    assert_reverted(
        &[&format!("a/x={LONG}"), &format!("a/y={LONG}")],
        &[&x, &y],
        &now,
        &[&format!("a/x={edited}"), &format!("a/y={LONG}")],
        &[],
    );
    let start = [&*format!("v={LONG}"), &*format!("w={LONG}")];
    assert_reverted(&start, &[&x, &y], &now, &now, &[("b/x", ConflictReason::AmbiguousRename)]);
}

#[test]
fn a_file_does_not_come_back_where_a_directory_is_needed() {
    let now = ["f/own=x"];
    assert_reverted(&["f=a"], &[], &now, &now, &[("f", ConflictReason::FileDirectory)]);
    assert_reverted(&["f=a"], &["f/turn=b"], &["f/turn=b"], &["f=a"], &[]);
}

#[test]
fn changes_apart_from_a_conflict_remain_applicable() {
    let now = ["a=mine\n", "b=turn\n"];
    let conflict = ConflictReason::Lines(vec![LineConflict { base: 0..1, ours: 0..1, theirs: 0..1 }]);
    assert_reverted(
        &["a=one\n", "b=one\n"],
        &["a=turn\n", "b=turn\n"],
        &now,
        &["a=mine\n", "b=one\n"],
        &[("a", conflict)],
    );
}
