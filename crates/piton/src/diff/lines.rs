//! Line diff of two texts.

use gix_imara_diff::{Algorithm, Diff, InternedInput, NoSliderHeuristic, Token};

use super::histogram;

/// Number of bytes that git searches for a NUL to tell text from binary.
const TEXT_BYTES: usize = 8000;
/// Size limit for comparison by lines.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

/// Number of unchanged lines that a patch shows around each change.
pub(crate) const CONTEXT: usize = 3;

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
    bytes.len() <= TEXT_BYTES_MAX && !has_nul(bytes)
}

/// Returns true if there is a NUL among the bytes in which git looks for one.
pub(crate) fn has_nul(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(TEXT_BYTES)].contains(&0)
}

/// Splits a text into lines, each with its line end. The last line may be without one.
pub(crate) fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns the runs of differing lines as `git merge-tree` finds them: with the histogram algorithm and, unlike a diff
/// for display, without regard to indentation.
pub(crate) fn changed_lines(old: &[&[u8]], new: &[&[u8]]) -> Vec<Hunk> {
    let mut input = InternedInput::default();
    input.update_before(old.iter().copied());
    input.update_after(new.iter().copied());
    let numbers = |tokens: &[Token]| tokens.iter().map(|token| token.0).collect::<Vec<_>>();
    let (old, new) = (numbers(&input.before), numbers(&input.after));
    let alignment = histogram::align(&old, &new, input.interner.num_tokens() as usize);
    // The library postprocesses only its own diffs. In these texts, lines are equal exactly if they are aligned.
    let mut unique = (0..).map(Token);
    let (mut olds, mut news) = (vec![None; old.len()], vec![None; new.len()]);
    let mut equate = |old: usize, new: usize| {
        let token = unique.next();
        (olds[old], news[new]) = (token, token);
    };
    alignment
        .equal
        .iter()
        .flat_map(|part| part.old.clone().zip(part.new.clone()))
        .for_each(|(old, new)| equate(old, new));
    let mut linear = Diff::default();
    for part in &alignment.unresolved {
        let (before, after) = (&input.before[part.old.clone()], &input.after[part.new.clone()]);
        linear.compute_with(Algorithm::Myers, before, after, input.interner.num_tokens());
        let kept = |range: &std::ops::Range<usize>, is_changed: &dyn Fn(u32) -> bool| {
            let places = range.clone().zip(0..);
            places.filter(|(_, at)| !is_changed(*at)).map(|(place, _)| place).collect::<Vec<_>>()
        };
        let olds = kept(&part.old, &|at| linear.is_removed(at));
        let news = kept(&part.new, &|at| linear.is_added(at));
        olds.into_iter().zip(news).for_each(|(old, new)| equate(old, new));
    }
    let filled = |tokens: Vec<Option<Token>>, unique: &mut dyn Iterator<Item = Token>| {
        tokens.into_iter().map(|token| token.or_else(|| unique.next())).collect::<Option<Vec<Token>>>()
    };
    let olds = filled(olds, &mut unique).expect("there are more numbers than lines");
    let news = filled(news, &mut unique).expect("there are more numbers than lines");
    let mut diff = Diff::default();
    diff.compute_with(Algorithm::Myers, &olds, &news, 0);
    diff.postprocess_with(&input.before, &input.after, NoSliderHeuristic);
    hunks_of(&diff).collect()
}

fn hunks_of(diff: &Diff) -> impl Iterator<Item = Hunk> {
    let range = |range: std::ops::Range<u32>| range.start as usize..range.end as usize;
    diff.hunks().map(move |hunk| Hunk { old: range(hunk.before), new: range(hunk.after) })
}

impl<'a> Lines<'a> {
    /// Compares two texts. Returns `None` if either side is not text.
    pub(crate) fn compare(old: &'a [u8], new: &'a [u8]) -> Option<Self> {
        if !is_text(old) || !is_text(new) {
            return None;
        }
        let (old, new) = (split_lines(old), split_lines(new));
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
        hunks_of(&self.diff)
    }

    /// Returns the runs of differing lines, those together that a patch shows in one hunk, as git does.
    pub(crate) fn hunks_with_context(&self) -> Vec<Vec<Hunk>> {
        let hunks: Vec<Hunk> = self.hunks().collect();
        hunks.chunk_by(|a, b| b.old.start - a.old.end <= 2 * CONTEXT).map(<[_]>::to_vec).collect()
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
