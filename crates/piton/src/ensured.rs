//! Result of ensuring a checkpoint for an agent, with the reason if the agent continues unprotected.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::id::CheckpointId;
use crate::settings::Settings;
use crate::skipped::SkipReason;
use crate::take::{Outcome, Report, WhySkipped};

/// Result of ensuring a checkpoint.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ensured {
    /// Directory of the project, or the requested path if no project was found.
    pub dir: PathBuf,
    /// Report of the take. An error is in the journal already.
    pub report: Result<Report>,
    /// True if the take ran out of time and must be finished by [`crate::Completion`].
    pub is_unfinished: bool,
}

impl Ensured {
    pub(crate) fn declined(dir: &Path, why: WhySkipped) -> Self {
        Self { dir: dir.to_owned(), report: Ok(Report::declined(why)), is_unfinished: false }
    }

    pub(crate) fn failed(dir: &Path, error: Error) -> Self {
        Self { dir: dir.to_owned(), report: Err(error), is_unfinished: false }
    }

    /// Returns the result of a take that finished.
    pub fn finished(dir: &Path, report: Report) -> Self {
        Self { dir: dir.to_owned(), report: Ok(report), is_unfinished: false }
    }

    /// Returns the checkpoint that holds the current files, if this call took or found one.
    pub fn checkpoint(&self) -> Option<CheckpointId> {
        match self.report.as_ref().ok()?.outcome {
            Outcome::Taken(id) | Outcome::Unchanged(id) => Some(id),
            Outcome::Skipped(_) => None,
        }
    }

    /// Returns true if the path is an existing file that no project covers.
    pub(crate) fn is_outside(&self) -> bool {
        let is_nothing = matches!(&self.report, Ok(Report { outcome: Outcome::Skipped(WhySkipped::Empty), .. }));
        is_nothing && crate::worktree::is_file(&self.dir)
    }

    /// Returns the advice that belongs to the reason of [`Self::missed`].
    pub fn hint(&self) -> Option<Hint> {
        self.report.as_ref().err().and_then(Error::hint)
    }

    /// Returns the reason why the agent continues unprotected; `None` if it is protected or needs no protection.
    pub fn missed(&self, settings: &Settings) -> Option<String> {
        match &self.report {
            Err(error) => Some(error.to_string()),
            Ok(Report { unprotected: true, .. }) => {
                Some("the ignore rules of this project leave out all or nearly all of its files".to_owned())
            }
            Ok(Report { outcome: Outcome::Skipped(WhySkipped::Empty), skipped, .. })
                if skipped.iter().any(|one| one.why == SkipReason::Unreadable) =>
            {
                Some("nothing in this project could be read".to_owned())
            }
            Ok(Report { held_by: Some(held_by), .. }) => Some(format!("the store was busy: {held_by}")),
            Ok(Report { outcome: Outcome::Skipped(why), .. }) => explain(*why, settings),
            Ok(Report { dropped_out, .. }) => dropped_out.first().map(|dir| {
                let more =
                    if dropped_out.len() > 1 { format!(" and {} more", dropped_out.len() - 1) } else { String::new() };
                format!("{}/{more} can no longer be read, and is in no new checkpoint", String::from_utf8_lossy(dir))
            }),
        }
    }
}

fn explain(why: WhySkipped, settings: &Settings) -> Option<String> {
    match why {
        WhySkipped::Disabled | WhySkipped::AlreadyThisTurn | WhySkipped::Empty | WhySkipped::Superseded => None,
        WhySkipped::TooBroad => Some(why.to_string()),
        WhySkipped::TooManyFiles => Some(format!("{why} ({})", settings.max_files)),
        WhySkipped::Deadline => Some(format!(
            "it would have taken longer than deadline_ms allows ({} ms), and continues in the background",
            settings.deadline_ms
        )),
        WhySkipped::Busy => Some("the store was busy for longer than deadline_ms allows".to_owned()),
        WhySkipped::BeingCompleted => {
            Some("an earlier checkpoint of this project is still being completed in the background".to_owned())
        }
        WhySkipped::StoreFull => {
            Some(format!("the store has reached max_total_size_mb ({} MB)", settings.max_total_size_mb))
        }
    }
}
