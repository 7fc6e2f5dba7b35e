//! Request and report of a take.

use std::path::PathBuf;

use crate::error::Error;
use crate::git_state::{GitCapture, GitCaptureOutcome};
use crate::id::{CheckpointId, ObjectId};
use crate::local_report::LocalReport;
use crate::skipped::Skipped;
use crate::store::{CheckpointKind, Origin};
use crate::worktree::ChangedDirs;

/// Options of a take.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Request {
    /// Reason for the checkpoint, in one line for the user.
    pub reason: String,
    /// Kind of checkpoint. Only automatic ones are limited to one per turn.
    pub kind: CheckpointKind,
    /// Agent, session and turn that the checkpoint is taken for.
    pub origin: Origin,
    /// Count the files in directories that are not entered. This takes time: set it only if a user reads the report.
    pub count_left_out: bool,
    /// Take the checkpoint as of a time in the past: files that changed after `now` are skipped as `changing`, and
    /// everything read so far is kept if the take is cancelled. Declined as `Superseded` if the project has a newer
    /// checkpoint than the request to complete this one names.
    pub(crate) is_late: bool,
    /// Directories in which something may have changed since the take of the newest checkpoint began, if the caller
    /// knows them, for example from a file system watcher. Other directories are not listed as long as the cache has
    /// everything in them. A change elsewhere is missing in this checkpoint; the next take without a list has it.
    pub changed_dirs: Option<ChangedDirs>,
}

impl Request {
    /// Sets [`Request::reason`].
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets [`Request::kind`].
    #[must_use]
    pub fn kind(mut self, kind: CheckpointKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets [`Request::origin`].
    #[must_use]
    pub fn origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Sets [`Request::count_left_out`].
    #[must_use]
    pub fn count_left_out(mut self, count_left_out: bool) -> Self {
        self.count_left_out = count_left_out;
        self
    }

    /// Sets [`Request::changed_dirs`].
    #[must_use]
    pub fn changed_dirs(mut self, changed_dirs: impl Into<Option<ChangedDirs>>) -> Self {
        self.changed_dirs = changed_dirs.into();
        self
    }
}

/// Outcome of a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// There is a new checkpoint, and it is on the disk.
    Taken(CheckpointId),
    /// Nothing changed since this checkpoint.
    Unchanged(CheckpointId),
    /// No checkpoint was taken.
    Skipped(WhySkipped),
}

/// Reason why no checkpoint was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhySkipped {
    /// Automatic checkpoints are off.
    Disabled,
    /// The directory is `/`, the home directory or a parent of it.
    TooBroad,
    /// This turn already had its checkpoint.
    AlreadyThisTurn,
    /// There are no files in scope, and no earlier checkpoint.
    Empty,
    /// There are more files in scope than the limit.
    TooManyFiles,
    /// The deadline has passed.
    Deadline,
    /// Another process held the lock of the store or the project for too long.
    Busy,
    /// An earlier checkpoint of the project is still being completed.
    BeingCompleted,
    /// A newer checkpoint was taken before this late one was completed.
    Superseded,
    /// The store has reached its limit.
    StoreFull,
}

impl std::fmt::Display for WhySkipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Disabled => "automatic checkpoints are off",
            Self::TooBroad => "/, the home directory and what is around it are never taken",
            Self::AlreadyThisTurn => "this turn had its checkpoint",
            Self::Empty => "there are no files in scope",
            Self::TooManyFiles => "there are more files in scope than max_files allows",
            Self::Deadline => "it took too long",
            Self::Busy => "another process held the store for too long",
            Self::BeingCompleted => "an earlier checkpoint is still being completed",
            Self::Superseded => "a newer checkpoint was taken",
            Self::StoreFull => "the store would pass max_total_size_mb",
        })
    }
}

/// Report of a take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Outcome of the take.
    pub outcome: Outcome,
    /// Number of files in scope.
    pub files: u64,
    /// Files and directories that were found and skipped.
    pub skipped: Vec<Skipped>,
    /// True if the project's ignore rules exclude all or nearly all of it, so that the checkpoint protects next to
    /// nothing.
    pub unprotected: bool,
    /// Index of the project's own git, if it exists and cannot be read. Files that git tracks and a rule excludes are
    /// then skipped, too.
    pub unread_index: Option<PathBuf>,
    /// Directories that the previous checkpoint held and that can no longer be read.
    pub dropped_out: Vec<Vec<u8>>,
    /// Tree of the current files, if all of them were scanned.
    pub tree: Option<ObjectId>,
    /// Local files that were saved with the checkpoint. `None` if there are none, or if they are not to be saved.
    pub local: Option<Box<LocalReport>>,
    /// The newest checkpoint, if it is missing because another program deleted it. This one follows the newest that
    /// still exists.
    pub lost: Option<CheckpointId>,
    /// State of the repository that the project is in, recorded with the checkpoint.
    pub git: GitCapture,
    /// The lock that could not be acquired and the process that held it, as text.
    pub held_by: Option<String>,
}

/// JSON of a [`Report`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ReportJson<'a> {
    /// outcome of the take
    outcome: OutcomeWord,
    /// reason why none was taken, or null
    why: Option<WhySkipped>,
    /// id of the checkpoint that holds the files, or null
    id: Option<CheckpointId>,
    /// its first seven digits, or null
    short_id: Option<String>,
    /// number of files in scope
    files: u64,
    /// files and directories that were left out
    skipped: &'a [Skipped],
    /// true if the ignore rules leave out all or nearly all files of the project
    unprotected: bool,
    /// small files out of scope that were saved with it, or null
    local: Option<&'a LocalReport>,
    /// the newest checkpoint, if another program deleted it, or null
    lost: Option<CheckpointId>,
    /// outcome of recording the state of the git repository
    git: GitCaptureOutcome,
    /// id of the recorded state of the git repository, or null
    git_state: Option<ObjectId>,
    /// what is not saved of the git repository, or null
    git_problem: Option<&'a str>,
}

/// Outcome of a take without its data.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum OutcomeWord {
    Taken,
    Unchanged,
    Skipped,
}

impl<'a> From<&'a Report> for ReportJson<'a> {
    fn from(report: &'a Report) -> Self {
        let (outcome, why, id) = match report.outcome {
            Outcome::Taken(id) => (OutcomeWord::Taken, None, Some(id)),
            Outcome::Unchanged(id) => (OutcomeWord::Unchanged, None, Some(id)),
            Outcome::Skipped(why) => (OutcomeWord::Skipped, Some(why), None),
        };
        Self {
            outcome,
            why,
            id,
            short_id: id.map(|id| id.short()),
            files: report.files,
            skipped: &report.skipped,
            unprotected: report.unprotected,
            local: report.local.as_deref(),
            lost: report.lost,
            git: report.git.outcome,
            git_state: report.git.state,
            git_problem: report.git.problem.as_deref(),
        }
    }
}

crate::json::serialized_as! {
    Report => ReportJson<'_>;
}

impl Report {
    pub(crate) fn declined(why: WhySkipped) -> Self {
        let outcome = Outcome::Skipped(why);
        Self {
            outcome,
            files: 0,
            skipped: Vec::new(),
            unprotected: false,
            unread_index: None,
            dropped_out: Vec::new(),
            tree: None,
            local: None,
            lost: None,
            git: GitCapture::default(),
            held_by: None,
        }
    }

    /// Returns the report of a take that timed out waiting for a lock.
    pub(crate) fn busy(error: &Error) -> Self {
        Self { held_by: Some(error.to_string()), ..Self::declined(WhySkipped::Busy) }
    }
}
