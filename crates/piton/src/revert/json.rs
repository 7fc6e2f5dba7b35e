//! JSON of a revert.

use super::{InTheWay, RevertConflict, RevertOutcome, RevertReport};
use crate::id::CheckpointId;
use crate::json::{AtPath, AtPaths, JsonPath, JsonPaths};
use crate::merge::ConflictReason;
use crate::restore::{AtRemovedPaths, AtWrittenPaths, Left};

crate::path_keys! {
    AtOtherPaths = "other_paths", "other_paths_bytes", "other paths that are involved, such as the names of a renamed file";
}

/// JSON of a [`RevertReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RevertReportJson<'a> {
    /// true if it was a dry run, which changes nothing
    dry_run: bool,
    /// outcome of the revert
    outcome: RevertOutcome,
    #[serde(flatten)]
    paths: JsonPaths<'a, AtPaths>,
    /// paths that cannot be reverted
    conflicts: Vec<ConflictJson<'a>>,
    /// id of the checkpoint of the result, or null
    id: Option<CheckpointId>,
    /// id of the checkpoint of the files before, or null
    safety_id: Option<CheckpointId>,
    /// true if `piton undo` goes back to `safety_id`
    can_undo: bool,
    /// number of files that were written
    written: usize,
    /// number of files that were removed
    removed: usize,
    #[serde(flatten)]
    written_paths: JsonPaths<'a, AtWrittenPaths>,
    #[serde(flatten)]
    removed_paths: JsonPaths<'a, AtRemovedPaths>,
    /// files that were left as they are
    left: &'a [Left],
}

/// JSON of a conflict.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ConflictJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    #[serde(flatten)]
    others: JsonPaths<'a, AtOtherPaths>,
    /// cause of the conflict
    reason: &'static str,
    /// lines of the current file that changed later, each as first and last line; empty if it is not about lines
    lines: Vec<[usize; 2]>,
    /// name of the newest turn in the way, or null
    turn: Option<&'a str>,
    /// later turns and edits that changed the paths, oldest first
    in_the_way: Vec<InTheWayJson<'a>>,
}

/// JSON of a later change.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct InTheWayJson<'a> {
    /// `turn`, or `you` for an edit between turns
    by: &'static str,
    /// name of the turn, or null
    turn: Option<&'a str>,
    /// its session, or null
    session: Option<&'a str>,
    /// its agent, or null
    agent: Option<&'a str>,
    /// text of its prompt as far as it is stored, or null
    prompt: Option<&'a str>,
}

impl ConflictReason {
    /// Returns its name in `--json`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Lines(_) => "lines",
            Self::Binary => "binary",
            Self::Link => "link",
            Self::Type => "type",
            Self::AddAdd => "add_add",
            Self::DeletedByUs => "deleted_now",
            Self::DeletedByThem => "changed_later",
            Self::RenameDelete => "rename_delete",
            Self::RenameRename => "rename_rename",
            Self::RenameAdd => "rename_add",
            Self::AmbiguousRename => "ambiguous_rename",
            Self::FileDirectory => "file_directory",
            Self::Uncovered => "uncovered",
        }
    }
}

impl RevertConflict {
    /// Returns the lines of the current file that are in conflict, each as first and last line, from 1 on. The last
    /// line is before the first if lines were removed there.
    pub fn lines(&self) -> Vec<[usize; 2]> {
        match &self.conflict.reason {
            ConflictReason::Lines(lines) => lines.iter().map(|one| [one.ours.start + 1, one.ours.end]).collect(),
            _ => Vec::new(),
        }
    }
}

impl<'a> From<&'a RevertReport> for RevertReportJson<'a> {
    fn from(report: &'a RevertReport) -> Self {
        let restore = report.restore.as_ref();
        let written = restore.map_or(&[][..], |restore| &restore.written);
        let removed = restore.map_or(&[][..], |restore| &restore.removed);
        Self {
            dry_run: report.is_dry,
            outcome: report.outcome,
            paths: JsonPaths::new(&report.paths),
            conflicts: report.conflicts.iter().map(ConflictJson::from).collect(),
            id: restore.map(|restore| restore.target.id),
            safety_id: restore.and_then(|restore| restore.safety),
            can_undo: restore.is_some_and(|restore| restore.can_undo),
            written: written.len(),
            removed: removed.len(),
            written_paths: JsonPaths::new(written),
            removed_paths: JsonPaths::new(removed),
            left: restore.map_or(&[][..], |restore| &restore.left),
        }
    }
}

impl<'a> From<&'a RevertConflict> for ConflictJson<'a> {
    fn from(conflict: &'a RevertConflict) -> Self {
        Self {
            path: JsonPath::new(&conflict.conflict.path),
            others: JsonPaths::new(&conflict.conflict.others),
            reason: conflict.conflict.reason.word(),
            lines: conflict.lines(),
            turn: conflict.in_the_way.iter().rev().find_map(|by| match by {
                InTheWay::Turn(turn) => Some(turn.turn.as_str()),
                InTheWay::OwnEdits => None,
            }),
            in_the_way: conflict.in_the_way.iter().map(InTheWayJson::from).collect(),
        }
    }
}

impl<'a> From<&'a InTheWay> for InTheWayJson<'a> {
    fn from(by: &'a InTheWay) -> Self {
        match by {
            InTheWay::OwnEdits => Self { by: "you", turn: None, session: None, agent: None, prompt: None },
            InTheWay::Turn(turn) => Self {
                by: "turn",
                turn: Some(&turn.turn),
                session: Some(&turn.session),
                agent: turn.agent.as_deref(),
                prompt: turn.prompt.as_deref(),
            },
        }
    }
}

crate::json::serialized_as! {
    RevertReport => RevertReportJson<'_>;
}
