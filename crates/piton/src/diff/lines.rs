//! Line diff of two texts.

use gix_imara_diff::{Algorithm, Diff, InternedInput};

/// Number of bytes that git searches for a NUL to tell text from binary.
const TEXT_BYTES: usize = 8000;
/// Size limit for comparison by lines.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

/// Two texts as lines, each with its line end, and their differences.
pub(crate) struct Lines<'a> {
    pub(crate) old: Vec<&'a [u8]>,
    pub(crate) new: Vec<&'a [u8]>,
    diff: Diff,
}

/// One run of differing lines, as ranges on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk {
    pub(crate) old: std::ops::Range<usize>,
    pub(crate) new: std::ops::Range<usize>,
}

/// Returns the number of lines added and removed; zero if either side is not text.
///
/// The common prefix and suffix are skipped first: most edits are small, and counting the rest is fast then.
pub(crate) fn count(old: &[u8], new: &[u8]) -> (u64, u64) {
    if !is_text(old) || !is_text(new) {
        return (0, 0);
    }
    let (old, new) = without_common_ends(old, new);
    Lines::compare(old, new).map_or((0, 0), |lines| lines.counts())
}

/// Returns the parts that differ, as whole lines.
fn without_common_ends<'a>(old: &'a [u8], new: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let alike = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let start = old[..alike].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (old, new) = (&old[start..], &new[start..]);
    let alike = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    // The common suffix starts after its first line end: the part before it may be half of a line.
    let end = old[old.len() - alike..].iter().position(|byte| *byte == b'\n').map_or(0, |at| alike - at - 1);
    (&old[..old.len() - end], &new[..new.len() - end])
}

/// Returns true if git would treat the bytes as text and they are within `TEXT_BYTES_MAX`.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    bytes.len() <= TEXT_BYTES_MAX && !bytes[..bytes.len().min(TEXT_BYTES)].contains(&0)
}

impl<'a> Lines<'a> {
    /// Compares two texts. Returns `None` if either side is not text.
    pub(crate) fn compare(old: &'a [u8], new: &'a [u8]) -> Option<Self> {
        if !is_text(old) || !is_text(new) {
            return None;
        }
        let lines = |text: &'a [u8]| text.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
        let (old, new) = (lines(old), lines(new));
        let mut input = InternedInput::default();
        input.update_before(old.iter().copied());
        input.update_after(new.iter().copied());
        // Git's default algorithm, so that the counts equal those of `git diff`.
        let mut diff = Diff::compute(Algorithm::Myers, &input);
        diff.postprocess_lines(&input);
        Some(Self { old, new, diff })
    }

    /// Returns the number of lines added and removed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (u64::from(self.diff.count_additions()), u64::from(self.diff.count_removals()))
    }

    /// Returns the runs of differing lines, in order.
    pub(crate) fn hunks(&self) -> impl Iterator<Item = Hunk> {
        let range = |range: std::ops::Range<u32>| range.start as usize..range.end as usize;
        self.diff.hunks().map(move |hunk| Hunk { old: range(hunk.before), new: range(hunk.after) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_same_with_and_without_common_ends() {
        let texts: [&[u8]; 12] = [
            b"",
            b"a",
            b"a\n",
            b"a\nb\n",
            b"a\nb\nc\n",
            b"b\nc\n",
            b"a\nx\nc\n",
            b"a\nb\nc",
            b"\n\n",
            b"\n",
            b"a\na\na\n",
            b"c\nb\na\n",
        ];
        for old in texts {
            for new in texts {
                let whole = Lines::compare(old, new).expect("text").counts();
                assert_eq!(count(old, new), whole, "{:?} {:?}", old.escape_ascii(), new.escape_ascii());
            }
        }
        assert_eq!(count(b"a\0", b"b\0"), (0, 0));
    }
}
