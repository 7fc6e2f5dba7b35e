//! JSON of the report of a recovery.

use super::{LostItem, LostKind, RecoverOutcome, RecoverReport};
use crate::id::{CheckpointId, ObjectId};
use crate::json::{AtPath, JsonPath, JsonPaths};
use crate::kept::BackReport;
use crate::restore::{Left, RestoreReport, WhyLeft};
use crate::sys;
use crate::timeline::PeriodJson;

crate::path_keys! {
    AtRecovered = "recovered", "recovered_bytes", "files that are back";
}

/// JSON of a [`RecoverReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RecoverReportJson<'a> {
    /// outcome; `listed` without paths or with `--dry-run`
    outcome: RecoverOutcome,
    /// lost or recovered items, the last lost first
    items: &'a [LostItem],
    /// number of files that were lost earlier and are not listed
    older: usize,
    #[serde(flatten)]
    recovered: JsonPaths<'a, AtRecovered>,
    /// files that were left as they are
    left: Vec<Left>,
    /// name of the recovery of kept files, by which `--undo` takes it back, or null
    recovery: Option<&'a str>,
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
    /// id of the newest checkpoint that holds it, or the name of what was kept
    from: String,
    /// number of that checkpoint, or null if it is not in the list
    row: Option<usize>,
    /// number of bytes
    bytes: u64,
    /// number of files, if it is a directory
    files: u64,
    /// true if the contents were changed through another name of the file since it was kept
    changed_since: bool,
    /// command before which it was kept, shortened, or null
    command: Option<&'a str>,
    /// changes among which it was lost, or null if that was after the newest checkpoint
    lost: Option<PeriodJson<'a>>,
    /// true if there is another version now, which the recovery replaces
    replaced: bool,
    /// id of the recorded state of the git repository that has it, for `piton git restore`, or null
    git_state: Option<ObjectId>,
}

impl<'a> From<&'a RecoverReport> for RecoverReportJson<'a> {
    fn from(report: &'a RecoverReport) -> Self {
        let (restore, kept) = (report.restore.as_ref(), report.kept.as_ref());
        let written = restore.into_iter().flat_map(|restore| restore.written.iter().map(Vec::as_slice));
        let back = kept.into_iter().flat_map(|kept| kept.files.iter().map(|path| sys::path_bytes(path)));
        Self {
            outcome: report.outcome,
            items: &report.items,
            older: report.older,
            recovered: JsonPaths::new(written.chain(back)),
            left: left(restore, kept),
            recovery: kept.and_then(|kept| kept.id.as_deref()),
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
            from: item.from.to_string(),
            row: item.row,
            bytes: item.bytes,
            files: item.files,
            changed_since: item.is_changed,
            command: item.command.as_deref(),
            lost: item.lost.as_ref().map(PeriodJson::from),
            replaced: item.is_replaced,
            git_state: item.git_state,
        }
    }
}

/// Returns everything that was left as it is.
fn left(restore: Option<&RestoreReport>, kept: Option<&BackReport>) -> Vec<Left> {
    let of_restore = restore.into_iter().flat_map(|restore| restore.left.iter().cloned());
    let of_kept = kept.into_iter().flat_map(|kept| &kept.left);
    let of_kept =
        of_kept.map(|(path, why)| Left { path: sys::path_bytes(path).to_vec(), why: WhyLeft::Failed(why.clone()) });
    of_restore.chain(of_kept).collect()
}

crate::json::serialized_as! {
    RecoverReport => RecoverReportJson<'_>;
    LostItem => LostItemJson<'_>;
}
