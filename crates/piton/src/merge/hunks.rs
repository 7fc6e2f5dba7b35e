//! Hunks of one file's change: numbered, and reverted one by one.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::diff::Lines;

/// One hunk of the change from an old text to a new one, without its context. Lines count from 0.
///
/// Hunks are those of `git diff` with three lines of context, and of [`unified_diff`](crate::unified_diff): changes with
/// at most six unchanged lines between them are one hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextHunk {
    /// Number of the hunk, from 1 on. The same texts always give the same numbers.
    pub number: usize,
    /// Changed lines in the old text, from the first to the last one.
    pub old: Range<usize>,
    /// Changed lines in the new text.
    pub new: Range<usize>,
}

/// Returns the hunks of a change. Returns `None` if one of the texts is not text or is larger than 16 MiB.
///
/// ```
/// let hunks = piton::merge::hunks(b"one\ntwo\n", b"one\n2\n").expect("both are text");
/// assert_eq!((hunks[0].number, hunks[0].old.clone(), hunks[0].new.clone()), (1, 1..2, 1..2));
/// ```
pub fn hunks(old: &[u8], new: &[u8]) -> Option<Vec<TextHunk>> {
    let lines = Lines::compare(old, new)?;
    let hunks = lines.hunks_with_context().into_iter().zip(1..);
    Some(
        hunks
            .map(|(group, number)| {
                let (first, last) = (&group[0], &group[group.len() - 1]);
                TextHunk { number, old: first.old.start..last.old.end, new: first.new.start..last.new.end }
            })
            .collect(),
    )
}

/// Returns the new text without the hunks with these numbers, as `git apply -R` of these hunks does. Numbers of hunks
/// that do not exist are ignored. Returns `None` where [`hunks`] does.
///
/// The result can be given to [`merge_text`](super::merge_text) as *theirs*, with the new text as base, to revert the
/// hunks in a later version of the file.
pub fn revert_hunks(old: &[u8], new: &[u8], numbers: &BTreeSet<usize>) -> Option<Vec<u8>> {
    let hunks = hunks(old, new)?;
    let lines = Lines::compare(old, new)?;
    let mut reverted = Vec::with_capacity(new.len());
    let mut at = 0;
    for hunk in hunks.iter().filter(|hunk| numbers.contains(&hunk.number)) {
        reverted.extend(lines.new[at..hunk.new.start].iter().copied().flatten());
        reverted.extend(lines.old[hunk.old.clone()].iter().copied().flatten());
        at = hunk.new.end;
    }
    reverted.extend(lines.new[at..].iter().copied().flatten());
    Some(reverted)
}
