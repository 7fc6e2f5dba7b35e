//! The histogram diff of git, line for line: `git merge-tree` aligns lines with it.
//!
//! The longest run of common lines that contains the rarest line splits both texts, and both halves are compared in the
//! same way. Unlike the diff library's variant it does not skip common ends first, and it visits every occurrence of a
//! line as git does; both decide which of several equal lines are taken for the same one.

use std::ops::Range;

/// Lines that occur more often do not split a text.
const OCCURRENCES_MAX: usize = 64;
/// Number of lines to examine before the rest is left to the linear algorithm. Texts with thousands of changes would
/// take quadratic time.
const WORK_MAX: usize = 20_000_000;

/// A part of both texts.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) old: Range<usize>,
    pub(super) new: Range<usize>,
}

/// Result of a comparison: equal parts, and parts that another algorithm has to compare.
#[derive(Debug, Default)]
pub(super) struct Alignment {
    pub(super) equal: Vec<Part>,
    pub(super) unresolved: Vec<Part>,
}

/// Compares two texts, given as numbers of lines below `distinct`. Equal lines have equal numbers.
pub(super) fn align(old: &[u32], new: &[u32], distinct: usize) -> Alignment {
    let mut histogram = Histogram {
        old,
        new,
        first: vec![NONE; distinct],
        next: vec![NONE; old.len()],
        counts: vec![0; distinct],
        work: 0,
    };
    let mut alignment = Alignment::default();
    let mut parts = vec![Part { old: 0..old.len(), new: 0..new.len() }];
    while let Some(part) = parts.pop() {
        if part.old.is_empty() || part.new.is_empty() {
            continue;
        }
        if histogram.work > WORK_MAX {
            alignment.unresolved.push(part);
            continue;
        }
        match histogram.split(&part) {
            Split::Nothing => {}
            Split::TooFrequent => alignment.unresolved.push(part),
            Split::At(equal) => {
                parts.push(Part { old: part.old.start..equal.old.start, new: part.new.start..equal.new.start });
                parts.push(Part { old: equal.old.end..part.old.end, new: equal.new.end..part.new.end });
                alignment.equal.push(equal);
            }
        }
    }
    alignment
}

const NONE: usize = usize::MAX;

enum Split {
    /// The part has no line in common.
    Nothing,
    /// All common lines occur too often.
    TooFrequent,
    At(Part),
}

struct Histogram<'a> {
    old: &'a [u32],
    new: &'a [u32],
    /// First place of each line in the part of the old text.
    first: Vec<usize>,
    /// Next place of the same line.
    next: Vec<usize>,
    /// Number of places of each line.
    counts: Vec<usize>,
    /// Number of lines examined so far.
    work: usize,
}

/// State of the search for the best run of common lines.
struct Best {
    equal: Option<Part>,
    /// Occurrences of the rarest line in `equal`.
    rarest: usize,
    has_common: bool,
}

impl Histogram<'_> {
    fn split(&mut self, part: &Part) -> Split {
        self.work += part.old.len() + part.new.len();
        for at in part.old.clone().rev() {
            let line = self.old[at] as usize;
            self.next[at] = self.first[line];
            self.first[line] = at;
            self.counts[line] += 1;
        }
        let mut best = Best { equal: None, rarest: OCCURRENCES_MAX + 1, has_common: false };
        let mut at = part.new.start;
        while at < part.new.end {
            at = self.improve(&mut best, at, part);
        }
        for at in part.old.clone() {
            let line = self.old[at] as usize;
            (self.first[line], self.counts[line]) = (NONE, 0);
        }
        match best.equal {
            _ if best.has_common && best.rarest > OCCURRENCES_MAX => Split::TooFrequent,
            Some(equal) => Split::At(equal),
            None => Split::Nothing,
        }
    }

    /// Tries every run of common lines that contains the line at `at` of the new text. Returns the next line to try.
    fn improve(&mut self, best: &mut Best, at: usize, part: &Part) -> usize {
        let line = self.new[at] as usize;
        let mut after = at + 1;
        let mut place = self.first[line];
        best.has_common |= place != NONE;
        if self.counts[line] > best.rarest {
            return after;
        }
        while place != NONE {
            let (equal, rarest) = self.extend(place, at, part);
            after = after.max(equal.new.end);
            let old_end = equal.old.end;
            let is_longer = best.equal.as_ref().map_or(1, |best| best.old.len()) < equal.old.len();
            if is_longer || rarest < best.rarest {
                *best = Best { equal: Some(equal), rarest, has_common: true };
            }
            while place != NONE && place < old_end {
                place = self.next[place];
            }
        }
        after
    }

    /// Extends a pair of equal lines in both directions. Returns the run, and the occurrences of its rarest line.
    fn extend(&mut self, old: usize, new: usize, part: &Part) -> (Part, usize) {
        let before = self.old[part.old.start..old].iter().rev().zip(self.new[part.new.start..new].iter().rev());
        let before = before.take_while(|(old, new)| old == new).count();
        let behind = self.old[old..part.old.end].iter().zip(&self.new[new..part.new.end]);
        let behind = behind.take_while(|(old, new)| old == new).count();
        let equal = Part { old: old - before..old + behind, new: new - before..new + behind };
        self.work += equal.old.len();
        let rarest = self.old[equal.old.clone()].iter().map(|line| self.counts[*line as usize]).min();
        (equal, rarest.unwrap_or(OCCURRENCES_MAX + 1))
    }
}
