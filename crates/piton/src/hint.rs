//! Advice to the user about the next step, as data. The caller knows its commands and options, and words it.

use std::borrow::Cow;
use std::path::PathBuf;

/// Next step for the user after an error or a finding. Names no command, option or variable of any program: the caller
/// puts it into words for its own users.
///
/// ```
/// use piton::{ErrorKind, Hint, Store};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # std::fs::write(temp.path().join("diary.txt"), "a file of another program")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// let error = Store::open_or_create(temp.path(), now).expect_err("the directory is in use");
/// assert_eq!((error.kind(), error.hint()), (ErrorKind::NotOurs, Some(Hint::UseEmptyBase)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Hint {
    /// The advice for a failure before anything was changed.
    NothingTouched(Box<Hint>),

    /// Use another directory as the base.
    UseOtherBase,
    /// Use a base that belongs to this user.
    UseOwnBase,
    /// Use an empty or a new directory as the base.
    UseEmptyBase,

    /// List the checkpoints of this project.
    ListCheckpoints,
    /// List the projects that have checkpoints, or take the first one of this project.
    TakeFirstCheckpoint,
    /// Agree to move the mark, or remove it from the checkpoint that has it.
    MoveMark,
    /// Take another checkpoint, which completes the recorded state of the repository if that is possible.
    GitStateIncomplete,
    /// Restore the git repository again, or undo it, which also removes the lock files that were left.
    FinishGitRestore,
    /// List the recorded states of the project's git repository.
    ListGitStates,
    /// List the files of a checkpoint.
    ListFiles,
    /// See what could not be saved before it was destroyed, and why.
    ShowUnsaved,
    /// List everything that was lost, with the names of what was kept.
    ListLost,
    /// Look at the log of a file that is missing, or recover it.
    FindLostFile,
    /// List the turns that began from a checkpoint.
    ListTurns,
    /// List the turns that began from a checkpoint, and give the whole name of one.
    GiveWholeTurn,
    /// List the projects, each by its own directory.
    ListProjects,

    /// Restore the newest checkpoint of a directory that was deleted.
    RestoreDeleted,
    /// List the checkpoints and restore one.
    RestoreListed,
    /// Restore a checkpoint, or undo the last restore.
    RestoreOrUndo,
    /// Undo the last restore.
    Undo,
    /// Finish the interrupted restore of this project, or go back to before it.
    FinishRestore,
    /// Finish the interrupted restore of the project in another directory, or go back to before it.
    FinishRestoreThere,
    /// Finish the interrupted restore of the project in another directory, if there is one, and try again.
    FinishRestoreAndRetry,
    /// Look at the plan, or agree to undo the later work of others, too.
    RestoreAcrossSessions,

    /// Agree to revert the work of other sessions, too.
    RevertAcrossSessions,
    /// Agree to revert the user's own edits, too.
    RevertWithOwnEdits,
    /// Name the agent of the turn.
    NameAgent,
    /// Name the checkpoint from which the nearest turn began.
    NameNearestTurn {
        /// Number of the checkpoint in the list.
        number: usize,
    },

    /// Raise a setting.
    RaiseSetting {
        /// Name of the setting.
        name: &'static str,
    },
    /// Raise the size limit of the store, or prune it.
    RaiseLimitOrPrune,
    /// Raise the size limit of the store, or forget a project.
    RaiseLimitOrForget,
    /// Prune, or do nothing: the next take makes room, too.
    PruneOrTake,
    /// Prune once the other processes have ended.
    PruneLater,
    /// Take a checkpoint of a directory, which makes it a project of its own.
    TakeThere {
        /// The directory.
        dir: PathBuf,
    },
    /// Forget a project if it is on record by mistake.
    ForgetProject {
        /// Directory of the project.
        dir: PathBuf,
    },

    /// Check what is damaged, and repair the store.
    Repair,
    /// Repair the store: intact objects of a damaged file are kept.
    RepairSaves,
    /// Repair the store: the missing file is created again.
    RepairRestores,
    /// Repair the store: the invalid file is set aside.
    RepairSetsAside,
    /// Repair the store, which sets the record of a restore aside, and look for the safety checkpoint of that restore.
    RepairIntent,
    /// Repair a copy on another disk, if this one is failing.
    RepairCopy,
    /// Look for the safety checkpoint of an interrupted restore in the list.
    FindSafetyCheckpoint,
    /// Remove the file by which the store uses another repository, or copy the objects of that repository first.
    RemoveAlternates,
    /// List the commits of a ref in the store's repository.
    ListCommits {
        /// The repository.
        git_dir: PathBuf,
        /// Name of the ref.
        name: String,
    },

    /// Fix the file of a session record, or have it set aside.
    FixRecord,
    /// Look at an example of a session record. Nothing was changed.
    ShowRecordExample,
    /// List the session records, or write one.
    ListRecords,

    /// Advice in plain words, which needs no command of the caller.
    #[serde(untagged)]
    Text(Cow<'static, str>),
}

impl Hint {
    /// Returns the same advice for a failure before anything was changed.
    #[must_use]
    pub(crate) fn nothing_touched(self) -> Self {
        Self::NothingTouched(Box::new(self))
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}
