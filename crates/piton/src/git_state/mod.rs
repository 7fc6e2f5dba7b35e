//! The state of the user's own repository: recorded with each checkpoint, compared with the present one, and brought back.
//!
//! - D14. The repository is changed by a restore and its undo only, and never by a capture.
//! - D15. Objects are in the repository before a ref names them.
//! - D16. The state before a restore is recorded before anything is changed.

use crate::id::{CheckpointId, ObjectId};
use crate::store::GitStateMoment;
use crate::time::Moment;

mod apply;
mod capture;
mod compare;
mod list;
mod objects;
mod operation;
mod options;
mod plan;
mod release;
mod restore;
mod snapshot;
mod undo;

pub(crate) use capture::{CaptureInput, capture};
pub(crate) use list::lost_items;
pub use list::{git_states, show_git_state};
pub use options::GitRestoreOptions;
pub(crate) use release::release_git_states;
pub use restore::restore_git_state;
pub use undo::undo_git_restore;

/// Outcome of recording the state of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GitCaptureOutcome {
    /// The project is in no repository.
    #[default]
    NoRepository,
    /// The repository is not one that is recorded.
    Declined,
    /// Nothing changed in it since it was recorded last.
    Unchanged,
    /// There is a new state.
    Recorded,
    /// Not everything was recorded in time.
    CutShort,
    /// It was not recorded.
    Failed,
}

/// Result of recording the state of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GitCapture {
    /// Outcome.
    pub outcome: GitCaptureOutcome,
    /// Id of the state.
    pub state: Option<ObjectId>,
    /// Number of object files that were linked.
    pub linked: u64,
    /// Number of object files that were copied.
    pub copied: u64,
    /// Description of what is not saved.
    pub problem: Option<String>,
}

/// Kind of a part of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GitItemKind {
    /// `HEAD`.
    Head,
    /// A branch.
    Branch,
    /// A tag.
    Tag,
    /// A remote-tracking branch.
    Remote,
    /// Another ref.
    Ref,
    /// An entry of the stash.
    Stash,
    /// The index: what is staged.
    Index,
    /// A linked worktree.
    Worktree,
    /// Another file, such as the configuration or a hook.
    File,
    /// All refs together, where they are in a reftable.
    Refs,
    /// Object files.
    Objects,
    /// The whole repository.
    Repository,
}

impl GitItemKind {
    const ALL: [Self; 12] = [
        Self::Head,
        Self::Branch,
        Self::Tag,
        Self::Remote,
        Self::Ref,
        Self::Stash,
        Self::Index,
        Self::Worktree,
        Self::File,
        Self::Refs,
        Self::Objects,
        Self::Repository,
    ];

    /// Returns the keyword of the kind.
    pub fn word(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Branch => "branch",
            Self::Tag => "tag",
            Self::Remote => "remote",
            Self::Ref => "ref",
            Self::Stash => "stash",
            Self::Index => "index",
            Self::Worktree => "worktree",
            Self::File => "file",
            Self::Refs => "refs",
            Self::Objects => "objects",
            Self::Repository => "repository",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    fn is_ref(self) -> bool {
        matches!(self, Self::Branch | Self::Tag | Self::Remote | Self::Ref)
    }
}

/// A difference between a recorded state and the repository as it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GitDifference {
    /// kind
    pub kind: GitItemKind,
    /// name: of a branch, a tag, a stash entry, a worktree or a file
    pub name: String,
    /// value in the recorded state, or null
    pub then: Option<String>,
    /// value now, or null
    pub now: Option<String>,
}

/// A part of a repository that was brought back.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GitItem {
    /// kind
    pub kind: GitItemKind,
    /// name; the full name of a ref if it was put elsewhere
    pub name: String,
    /// value before, or null
    pub from: Option<String>,
    /// value now, or null if it was removed
    pub to: Option<String>,
}

/// A part of a repository that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GitLeft {
    /// kind
    pub kind: GitItemKind,
    /// name
    pub name: String,
    /// reason
    pub why: String,
}

/// Outcome of a restore of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GitRestoreOutcome {
    /// Every selected item is back.
    Restored,
    /// Some parts were left as they are.
    Partly,
    /// Every selected item exists already.
    NothingToDo,
    /// Only the plan was made.
    Planned,
}

/// Report of a restore of a repository, or of its undo.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GitRestoreReport {
    /// outcome
    pub outcome: GitRestoreOutcome,
    /// id of the recorded state
    pub state: ObjectId,
    /// id of the state before, to which an undo returns, or null
    pub before: Option<ObjectId>,
    /// parts that are back, or would be
    pub restored: Vec<GitItem>,
    /// parts that were left as they are
    pub left: Vec<GitLeft>,
    /// number of object files that were added to the repository
    pub objects: u64,
}

/// A recorded state of a repository.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RecordedGitState {
    /// id of the state
    pub state: ObjectId,
    /// its first seven digits
    pub short_id: String,
    /// time at which it was recorded
    pub time: Moment,
    /// when it was recorded
    pub moment: GitStateMoment,
    /// id of the checkpoint of the files at that time, or null
    pub checkpoint: Option<CheckpointId>,
    /// number of that checkpoint in the list, or null
    pub row: Option<usize>,
    /// true if not everything was saved
    pub cut_short: bool,
}

/// A recorded state compared with the repository as it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GitStateReport {
    /// the state
    #[serde(flatten)]
    pub recorded: RecordedGitState,
    /// `HEAD` in that state, or null
    pub head: Option<String>,
    /// true if the refs are in a reftable, which is compared as a whole: nothing in it is counted
    pub has_reftable: bool,
    /// number of branches in that state
    pub branches: usize,
    /// number of tags in that state
    pub tags: usize,
    /// number of stash entries in that state
    pub stashes: usize,
    /// differences from the repository as it is
    pub differences: Vec<GitDifference>,
}
