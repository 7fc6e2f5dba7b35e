//! One check of the self-test: its verdict, its words and its duration.

use std::path::{Path, PathBuf};
use std::time::Instant;

use piton::Progress;

/// Result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Works.
    Ok,
    /// The file system cannot do it; piton works without it, with the limit that is named.
    Limited,
    /// A promise of piton does not hold here.
    Failed,
}

/// One check.
#[derive(Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SelfCheck {
    /// name of the check
    pub(crate) name: &'static str,
    /// `ok`, `limited` (piton works, with the limit that is named) or `failed` (a promise does not hold here)
    pub(crate) verdict: Verdict,
    /// what was found
    pub(crate) what: String,
    /// duration in milliseconds
    pub(crate) elapsed_ms: u64,
}

/// A verdict and its words.
pub(super) type VerdictInWords = (Verdict, String);

/// Checks one after the other, and times each.
pub(super) struct Checks<'a> {
    pub(super) all: Vec<SelfCheck>,
    /// Cancels the checks that are left.
    pub(super) progress: &'a Progress,
}

impl<'a> Checks<'a> {
    pub(super) fn new(progress: &'a Progress) -> Self {
        Self { all: Vec::new(), progress }
    }

    /// Adds a check. An error of the file system that the check did not expect is a failure. Does nothing once the
    /// self-test was cancelled.
    pub(super) fn add(&mut self, name: &'static str, check: impl FnOnce() -> Result<VerdictInWords, String>) {
        if self.progress.is_cancelled() {
            return;
        }
        let began = Instant::now();
        let (verdict, what) = check().unwrap_or_else(|why| (Verdict::Failed, why));
        self.all.push(SelfCheck { name, verdict, what, elapsed_ms: elapsed_ms(began) });
    }
}

/// Returns the milliseconds since then.
pub(super) fn elapsed_ms(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Returns a new directory in the scratch directory.
pub(super) fn new_dir(root: &Path, name: &str) -> Result<PathBuf, String> {
    let dir = root.join(name);
    std::fs::create_dir_all(&dir).map_err(|error| format!("cannot make a directory: {error}"))?;
    Ok(dir)
}
