//! What a restore leaves as it is, and why.

use crate::skipped::SkipReason;

/// Something that differs from the checkpoint and stays as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Relative to the project.
    pub path: Vec<u8>,
    /// Why.
    pub why: WhyLeft,
}

/// Why something was left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyLeft {
    /// It is out of scope, so no checkpoint holds what it is now.
    OutOfScope(SkipReason),
    /// It changed after the safety checkpoint.
    Changed,
    /// Something else stands in its place that may not be touched.
    InTheWay,
    /// The checkpoint holds another repository's commit here, not files.
    NoContents,
    /// The checkpoint left it out, so that it may have been there.
    LeftOutThen(SkipReason),
    /// The checkpoint held it until a purge took it out.
    Purged,
    /// The file system said no.
    Failed(String),
}

impl WhyLeft {
    /// What is said of something that the checkpoint left out for this reason.
    pub(super) fn left_out_then(why: SkipReason) -> Self {
        if why == SkipReason::Purged { Self::Purged } else { Self::LeftOutThen(why) }
    }

    /// The word for it in `--json`.
    pub fn word(&self) -> &str {
        match self {
            Self::OutOfScope(why) => why.word(),
            Self::Changed => "changed",
            Self::InTheWay => "in_the_way",
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
            Self::InTheWay => f.write_str("something else stands in its place"),
            Self::NoContents => f.write_str("the checkpoint holds no contents for it"),
            Self::LeftOutThen(why) => write!(f, "it was there, and the checkpoint left it out ({why})"),
            Self::Purged => f.write_str("it was there, and a purge took it out of the checkpoint"),
            Self::Failed(error) => f.write_str(error),
        }
    }
}
