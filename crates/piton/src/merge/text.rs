//! Three-way merge of texts by lines, with the rules of git's `xdl_merge`.
//!
//! A line ends at LF: CR and a byte order mark are contents, and a last line without LF differs from one with it.

use std::ops::Range;

use crate::diff::{Hunk, changed_lines, is_text, split_lines};

/// Result of a three-way merge of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextMerge {
    /// Merged text.
    Clean(Vec<u8>),
    /// Lines that changed on both sides, in order; never empty.
    Conflict(Vec<LineConflict>),
    /// One of the three is not text, or is larger than 16 MiB.
    Binary,
}

/// Lines that changed on both sides, as ranges that count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineConflict {
    /// Lines in the base.
    pub base: Range<usize>,
    /// Lines on our side.
    pub ours: Range<usize>,
    /// Lines on their side.
    pub theirs: Range<usize>,
}

/// Merges the changes from `base` to `theirs` into `ours`.
///
/// Changes of adjacent lines conflict, as in git. A change that both sides made is taken once.
pub fn merge_text(base: &[u8], ours: &[u8], theirs: &[u8]) -> TextMerge {
    if ![base, ours, theirs].into_iter().all(is_text) {
        return TextMerge::Binary;
    }
    if base == theirs || ours == theirs {
        return TextMerge::Clean(ours.to_vec());
    }
    if base == ours {
        return TextMerge::Clean(theirs.to_vec());
    }
    let [base, ours, theirs] = [base, ours, theirs].map(split_lines);
    let regions = regions(&changed_lines(&base, &ours), &changed_lines(&base, &theirs), [&base, &ours, &theirs]);
    let is_conflict = |region: &&Region| region.changed_by == ChangedBy::Both;
    let conflicts: Vec<LineConflict> = regions.iter().filter(is_conflict).map(|region| region.lines.clone()).collect();
    if !conflicts.is_empty() {
        return TextMerge::Conflict(conflicts);
    }
    let mut merged = Vec::new();
    let mut at = 0;
    for region in regions.iter().filter(|region| region.changed_by == ChangedBy::Theirs) {
        merged.extend(ours[at..region.lines.ours.start].iter().copied().flatten());
        merged.extend(theirs[region.lines.theirs.clone()].iter().copied().flatten());
        at = region.lines.ours.end;
    }
    merged.extend(ours[at..].iter().copied().flatten());
    TextMerge::Clean(merged)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangedBy {
    Ours,
    Theirs,
    Both,
}

/// Lines that at least one side changed.
struct Region {
    changed_by: ChangedBy,
    lines: LineConflict,
}

/// Regions in the making, in order.
struct Regions(Vec<Region>);

impl Regions {
    /// Adds a region, or extends the last one if the two touch on either side.
    fn push(&mut self, changed_by: ChangedBy, lines: LineConflict) {
        match self.0.last_mut() {
            Some(last) if lines.ours.start <= last.lines.ours.end || lines.theirs.start <= last.lines.theirs.end => {
                if last.changed_by != changed_by {
                    last.changed_by = ChangedBy::Both;
                }
                last.lines.base.end = lines.base.end;
                last.lines.ours.end = lines.ours.end;
                last.lines.theirs.end = lines.theirs.end;
            }
            _ => self.0.push(Region { changed_by, lines }),
        }
    }
}

/// Returns the lines of a side that correspond to `lines` of the base, which are before `next`, the next change of that
/// side; without one, the lines count from the end.
///
/// The start is too low if the side changed some of these lines. The region before reaches as far in that case.
fn counterpart(lines: &Range<usize>, next: Option<&Hunk>, base: usize, side: usize) -> Range<usize> {
    let end = match next {
        Some(next) => next.new.start + lines.end - next.old.start,
        None => side + lines.end - base,
    };
    end.saturating_sub(lines.len())..end
}

/// Combines the changes of both sides. `texts` are base, ours and theirs.
fn regions(ours: &[Hunk], theirs: &[Hunk], texts: [&[&[u8]]; 3]) -> Vec<Region> {
    let lengths = texts.map(<[_]>::len);
    let mut regions = Regions(Vec::new());
    let (mut our, mut their) = (ours.iter().peekable(), theirs.iter().peekable());
    loop {
        let ours_is_first = match (our.peek(), their.peek()) {
            (None, None) => break,
            (Some(one), Some(two)) if one.old.end < two.old.start => true,
            (Some(one), Some(two)) if two.old.end < one.old.start => false,
            (Some(one), Some(two)) => {
                if !is_same_change(one, two, texts) {
                    regions.push(ChangedBy::Both, overlap(one, two));
                }
                let (our_end, their_end) = (one.old.end, two.old.end);
                if our_end >= their_end {
                    their.next();
                }
                if their_end >= our_end {
                    our.next();
                }
                continue;
            }
            (one, _) => one.is_some(),
        };
        if ours_is_first && let Some(hunk) = our.next() {
            let theirs = counterpart(&hunk.old, their.peek().copied(), lengths[0], lengths[2]);
            regions.push(ChangedBy::Ours, LineConflict { base: hunk.old.clone(), ours: hunk.new.clone(), theirs });
        } else if let Some(hunk) = their.next() {
            let ours = counterpart(&hunk.old, our.peek().copied(), lengths[0], lengths[1]);
            regions.push(ChangedBy::Theirs, LineConflict { base: hunk.old.clone(), ours, theirs: hunk.new.clone() });
        }
    }
    let mut regions = regions.0;
    // Both sides may come to the same lines by different changes.
    regions.retain(|region| {
        let LineConflict { ours, theirs, .. } = &region.lines;
        region.changed_by != ChangedBy::Both || ours.is_empty() || texts[1][ours.clone()] != texts[2][theirs.clone()]
    });
    regions
}

fn is_same_change(ours: &Hunk, theirs: &Hunk, texts: [&[&[u8]]; 3]) -> bool {
    ours.old == theirs.old && texts[1][ours.new.clone()] == texts[2][theirs.new.clone()]
}

/// Returns the lines of two changes that overlap or touch, on all sides from the first start to the last end.
fn overlap(ours: &Hunk, theirs: &Hunk) -> LineConflict {
    let base = ours.old.start.min(theirs.old.start)..ours.old.end.max(theirs.old.end);
    let widened = |hunk: &Hunk| {
        hunk.new.start.saturating_sub(hunk.old.start - base.start)..hunk.new.end + (base.end - hunk.old.end)
    };
    LineConflict { ours: widened(ours), theirs: widened(theirs), base }
}
