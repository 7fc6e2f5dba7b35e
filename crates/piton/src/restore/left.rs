//! Paths that a restore leaves as they are, with the reasons.

use crate::skipped::SkipReason;

/// A path that differs from the checkpoint and is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Path relative to the project root.
    pub path: Vec<u8>,
    /// Reason for leaving it.
    pub why: WhyLeft,
}

/// Reason why a path is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyLeft {
    /// It is out of scope, so no checkpoint holds its current contents.
    OutOfScope(SkipReason),
    /// It changed after the safety checkpoint.
    Changed,
    /// Something else is in its place that must not be touched.
    InTheWay,
    /// It is out of scope, and replaced only if the user asks for it ([`IgnoredFiles::With`](super::IgnoredFiles)).
    Ignored,
    /// The checkpoint holds another repository's commit here, not files.
    NoContents,
    /// The checkpoint left it out, so it may have existed then.
    LeftOutThen(SkipReason),
    /// The checkpoint held it until a purge removed it.
    Purged,
    /// A file system error, as text.
    Failed(String),
}

impl WhyLeft {
    /// The words of [`Self::word`] that are not those of a [`SkipReason`].
    #[cfg(any(test, feature = "schema"))]
    pub(super) const WORDS: [&str; 7] =
        ["changed", "in_the_way", "needs_with_ignored", "no_contents", "left_out_then", "purged", "failed"];

    /// Returns the reason for a path that the checkpoint left out because of `why`.
    pub(super) fn left_out_then(why: SkipReason) -> Self {
        if why == SkipReason::Purged { Self::Purged } else { Self::LeftOutThen(why) }
    }

    /// Returns the word for the reason in `--json`.
    pub fn word(&self) -> &str {
        match self {
            Self::OutOfScope(why) => why.word(),
            Self::Changed => "changed",
            Self::InTheWay => "in_the_way",
            Self::Ignored => "needs_with_ignored",
            Self::NoContents => "no_contents",
            Self::LeftOutThen(_) => "left_out_then",
            Self::Purged => "purged",
            Self::Failed(_) => "failed",
        }
    }
}

impl std::fmt::Display for WhyLeft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OutOfScope(why) => write!(f, "{why}, so its present contents are in no checkpoint"),
            Self::Changed => f.write_str("it changed meanwhile"),
            Self::InTheWay => f.write_str("something else is in its place"),
            Self::Ignored => f.write_str("it is out of scope, and not the version that was saved"),
            Self::NoContents => f.write_str("the checkpoint holds no contents for it"),
            Self::LeftOutThen(why) => write!(f, "it was there, and the checkpoint left it out ({why})"),
            Self::Purged => f.write_str("it was there, and a purge took it out of the checkpoint"),
            Self::Failed(error) => f.write_str(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_in_the_schema() {
        let (skipped, failed) = (SkipReason::TooLarge, "No space left on device".to_owned());
        let all = [
            WhyLeft::OutOfScope(skipped),
            WhyLeft::Changed,
            WhyLeft::InTheWay,
            WhyLeft::Ignored,
            WhyLeft::NoContents,
            WhyLeft::LeftOutThen(skipped),
            WhyLeft::Purged,
            WhyLeft::Failed(failed),
        ];
        for why in all {
            let is_known = match why {
                // A new reason needs a line above.
                WhyLeft::OutOfScope(_) => SkipReason::ALL.iter().any(|one| one.word() == why.word()),
                WhyLeft::Changed
                | WhyLeft::InTheWay
                | WhyLeft::Ignored
                | WhyLeft::NoContents
                | WhyLeft::LeftOutThen(_)
                | WhyLeft::Purged
                | WhyLeft::Failed(_) => WhyLeft::WORDS.contains(&why.word()),
            };
            assert!(is_known, "{why:?}");
        }
    }
}
