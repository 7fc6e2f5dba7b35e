//! JSON of a prune: of its plan, of its report and of maintenance.

use super::{Maintained, PruneAction, PrunePlan, PruneReason, PruneReport, PruneTarget, PrunedItem};
use crate::id::ProjectId;

/// JSON of a [`PruneReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PruneReportJson<'a> {
    /// number of projects and repositories of older layouts that were examined
    scanned: u64,
    /// number of those dropped because their directory is gone
    deleted_orphan: u64,
    /// number of those dropped because they were unused for too long
    deleted_stale: u64,
    /// number of failures
    errors: usize,
    /// number of bytes freed
    bytes_freed: u64,
    /// number of archives of older layouts that were removed
    deleted_archives: u64,
    /// number of checkpoints dropped because the store was too large
    dropped_checkpoints: u64,
    /// failures, one line each
    problems: &'a [String],
    /// projects, archives and repositories that were dropped by rule
    dropped: &'a [PrunedItem],
}

impl<'a> From<&'a PruneReport> for PruneReportJson<'a> {
    fn from(report: &'a PruneReport) -> Self {
        Self {
            scanned: report.scanned,
            deleted_orphan: report.deleted_orphan,
            deleted_stale: report.deleted_stale,
            errors: report.problems.len(),
            bytes_freed: report.bytes_freed,
            deleted_archives: report.deleted_archives,
            dropped_checkpoints: report.dropped_checkpoints,
            problems: &report.problems,
            dropped: &report.dropped,
        }
    }
}

/// JSON of a [`PrunePlan`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PrunePlanJson<'a> {
    /// true
    dry_run: bool,
    /// number of projects and repositories of older layouts that were examined
    scanned: usize,
    /// number of those that would be dropped because their directory is gone
    deleted_orphan: usize,
    /// number of those that would be dropped because they were unused for too long
    deleted_stale: usize,
    /// 0
    errors: u64,
    /// 0
    bytes_freed: u64,
    /// projects, archives and repositories that would be dropped by rule
    drops: Vec<PruneActionJson>,
    /// checkpoints that would be dropped because the store is too large, or null if it would be too large without them,
    /// too
    over_size: Option<Vec<OverSizeJson<'a>>>,
}

/// JSON of a [`PruneAction`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PruneActionJson {
    /// kind of target
    what: PruneTargetWord,
    /// directory of a project, or name of an archive or repository in the base
    name: String,
    /// reason
    why: PruneReason,
}

/// Kind of a [`PruneTarget`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum PruneTargetWord {
    Project,
    Archive,
    OldRepository,
}

/// JSON of the checkpoints of a project that would be dropped because the store is too large.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct OverSizeJson<'a> {
    /// name of the project in the store
    project: &'a ProjectId,
    /// number of its checkpoints, the oldest ones
    checkpoints: usize,
}

impl<'a> From<&'a PrunePlan> for PrunePlanJson<'a> {
    fn from(plan: &'a PrunePlan) -> Self {
        let count = |wanted: PruneReason| {
            let counts = |drop: &&PruneAction| drop.why == wanted && !matches!(drop.what, PruneTarget::Archive(_));
            plan.drops.iter().filter(counts).count()
        };
        let action = |drop: &PruneAction| PruneActionJson {
            what: match drop.what {
                PruneTarget::Project(_) => PruneTargetWord::Project,
                PruneTarget::Archive(_) => PruneTargetWord::Archive,
                PruneTarget::OldRepository(_) => PruneTargetWord::OldRepository,
            },
            name: plan.inventory.name_of(&drop.what),
            why: drop.why,
        };
        let over_size = plan.over_size.as_ref().map(|counts| {
            counts.iter().map(|(project, checkpoints)| OverSizeJson { project, checkpoints: *checkpoints }).collect()
        });
        Self {
            dry_run: true,
            scanned: plan.inventory.projects.len() + plan.inventory.old_repositories.len(),
            deleted_orphan: count(PruneReason::Orphan),
            deleted_stale: count(PruneReason::Stale),
            errors: 0,
            bytes_freed: 0,
            drops: plan.drops.iter().map(action).collect(),
            over_size,
        }
    }
}

/// JSON of [`Maintained`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "done", rename_all = "snake_case")]
enum MaintainedJson<'a> {
    Nothing,
    Tidied { bytes_freed: u64 },
    Pruned { report: &'a PruneReport },
}

impl<'a> From<&'a Maintained> for MaintainedJson<'a> {
    fn from(done: &'a Maintained) -> Self {
        match done {
            Maintained::Nothing => Self::Nothing,
            Maintained::Tidied(bytes_freed) => Self::Tidied { bytes_freed: *bytes_freed },
            Maintained::Pruned(report) => Self::Pruned { report },
        }
    }
}

crate::json::serialized_as! {
    PruneReport => PruneReportJson<'_>;
    PrunePlan => PrunePlanJson<'_>;
    Maintained => MaintainedJson<'_>;
}
