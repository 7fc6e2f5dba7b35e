//! The report of a restore.

use super::left::Left;
use crate::id::CheckpointId;
use crate::session::RecordRewind;
use crate::store::Checkpoint;

/// Outcome of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RestoreOutcome {
    /// The files are as in the checkpoint.
    Restored,
    /// Some files differ: see [`RestoreReport::left`].
    Partly,
    /// The files already were as in the checkpoint.
    NothingToDo,
}

/// Effect of restored ignore rules on the scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RulesChanged {
    /// `.gitignore` files that change.
    pub files: Vec<Vec<u8>>,
    /// Files and directories that were ignored and are in scope by the restored rules. They were saved and restored
    /// with the rest, unless `is_cut_short`.
    pub rescoped: Vec<Vec<u8>>,
    /// True if they were too many or too large to be saved first. Running the same restore again handles them.
    pub is_cut_short: bool,
}

/// Report of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Outcome of the restore.
    pub outcome: RestoreOutcome,
    /// Checkpoint that was restored.
    pub target: Checkpoint,
    /// Paths that were restored. Empty for all.
    pub paths: Vec<Vec<u8>>,
    /// Checkpoint of the state before.
    pub safety: Option<CheckpointId>,
    /// True if undo goes back to `safety`. It does not after an abort: undo goes to the target of the abort.
    pub can_undo: bool,
    /// Files that were written.
    pub written: Vec<Vec<u8>>,
    /// Of those, files out of scope.
    pub ignored_written: Vec<Vec<u8>>,
    /// Of those, files that had been kept before a command destroyed them.
    pub kept_written: Vec<Vec<u8>>,
    /// Files out of scope that differ from the checkpoint and were left as they are.
    pub ignored_differing: Vec<Vec<u8>>,
    /// Error, if the files out of scope could not be saved first.
    pub ignored_unsaved: Option<String>,
    /// Files that were removed.
    pub removed: Vec<Vec<u8>>,
    /// Number of files and directories whose permission bits were changed.
    pub modes_changed: usize,
    /// Directories that were created.
    pub made_dirs: Vec<Vec<u8>>,
    /// Directories that were removed.
    pub removed_dirs: Vec<Vec<u8>>,
    /// Effect of restored ignore rules.
    pub rules: RulesChanged,
    /// Files that were moved aside, with their new names.
    pub moved_aside: Vec<(Vec<u8>, Vec<u8>)>,
    /// Files that differ from the checkpoint and were left as they are.
    pub left: Vec<Left>,
    /// Result for the session's record. The record is restored with the files if all of them were restored and the
    /// checkpoint has a session.
    pub record: Option<RecordRewind>,
}

/// Returns the report of a restore that changed nothing.
pub(super) fn report(
    outcome: RestoreOutcome,
    target: Checkpoint,
    safety: Option<CheckpointId>,
    left: Vec<Left>,
) -> RestoreReport {
    RestoreReport {
        outcome,
        target,
        paths: Vec::new(),
        safety,
        can_undo: safety.is_some(),
        written: Vec::new(),
        ignored_written: Vec::new(),
        kept_written: Vec::new(),
        ignored_differing: Vec::new(),
        ignored_unsaved: None,
        removed: Vec::new(),
        modes_changed: 0,
        made_dirs: Vec::new(),
        removed_dirs: Vec::new(),
        rules: RulesChanged::default(),
        moved_aside: Vec::new(),
        left,
        record: None,
    }
}
