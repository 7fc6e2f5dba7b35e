//! JSON of the report of a recovery.

use super::{LostItem, LostKind, RecoverOutcome, RecoverReport};
use crate::id::{CheckpointId, ObjectId};
use crate::json::{AtPath, JsonPath, JsonPaths};
use crate::restore::Left;
use crate::timeline::PeriodJson;

crate::path_keys! {
    AtRecovered = "recovered", "recovered_bytes", "files that are back";
}

/// JSON of a [`RecoverReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RecoverReportJson<'a> {
    /// outcome; `listed` if nothing was to be done
    outcome: RecoverOutcome,
    /// what was lost, or is brought back; the last lost first
    items: &'a [LostItem],
    /// number of files that were lost earlier and are not listed
    older: usize,
    #[serde(flatten)]
    recovered: JsonPaths<'a, AtRecovered>,
    /// files that were left as they are
    left: &'a [Left],
    /// id of the checkpoint that was restored from, or null
    id: Option<CheckpointId>,
    /// id of the checkpoint of the files before, or null
    safety_id: Option<CheckpointId>,
}

/// JSON of a [`LostItem`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LostItemJson<'a> {
    /// kind
    kind: LostKind,
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    /// id of the newest checkpoint that holds it
    from: CheckpointId,
    /// number of that checkpoint, or null if it is not in the list
    row: Option<usize>,
    /// number of bytes
    bytes: u64,
    /// changes among which it was lost, or null if that was after the newest checkpoint
    lost: Option<PeriodJson<'a>>,
    /// true if there is another version now, which the recovery replaces
    replaced: bool,
    /// id of the recorded state of the git repository that has it, for `piton git restore`, or null
    git_state: Option<ObjectId>,
}

impl<'a> From<&'a RecoverReport> for RecoverReportJson<'a> {
    fn from(report: &'a RecoverReport) -> Self {
        let restore = report.restore.as_ref();
        Self {
            outcome: report.outcome,
            items: &report.items,
            older: report.older,
            recovered: JsonPaths::new(restore.map_or(&[][..], |restore| &restore.written)),
            left: restore.map_or(&[], |restore| &restore.left),
            id: restore.map(|restore| restore.target.id),
            safety_id: restore.and_then(|restore| restore.safety),
        }
    }
}

impl<'a> From<&'a LostItem> for LostItemJson<'a> {
    fn from(item: &'a LostItem) -> Self {
        Self {
            kind: item.kind,
            path: JsonPath::new(&item.path),
            from: item.from,
            row: item.row,
            bytes: item.bytes,
            lost: item.lost.as_ref().map(PeriodJson::from),
            replaced: item.is_replaced,
            git_state: item.git_state,
        }
    }
}

crate::json::serialized_as! {
    RecoverReport => RecoverReportJson<'_>;
    LostItem => LostItemJson<'_>;
}
