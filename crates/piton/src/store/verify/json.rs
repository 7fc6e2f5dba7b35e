//! JSON of a check.

use super::{Affected, Finding, FindingKind, Severity, VerifyReport};
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::json::{AtPath, AtWorkdir, JsonPathOption};

crate::path_keys! {
    AtStorePath = "path", "path_bytes", "path of the file, relative to the base, or null";
}

/// JSON of a [`VerifyReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct VerifyReportJson<'a> {
    /// true if nothing is damaged
    whole: bool,
    /// true if the check was stopped by Ctrl-C
    stopped: bool,
    /// what was checked
    checked: CheckedJson,
    /// what is wrong, the worst first
    findings: &'a [Finding],
}

/// JSON of the numbers of things that were checked.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct CheckedJson {
    /// number of packs
    packs: u64,
    /// number of objects
    objects: u64,
    /// number of checkpoints of all projects
    checkpoints: u64,
    /// number of bytes that were read and hashed again
    bytes: u64,
}

impl<'a> From<&'a VerifyReport> for VerifyReportJson<'a> {
    fn from(report: &'a VerifyReport) -> Self {
        let VerifyReport { findings, packs, objects, checkpoints, bytes, was_stopped } = report;
        let checked = CheckedJson { packs: *packs, objects: *objects, checkpoints: *checkpoints, bytes: *bytes };
        Self { whole: report.is_whole(), stopped: *was_stopped, checked, findings }
    }
}

/// JSON of a [`Finding`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct FindingJson<'a> {
    /// kind of defect
    kind: FindingKind,
    /// `damage` if data is lost, `warning` if not
    severity: Severity,
    /// id of the object, or null
    id: Option<ObjectId>,
    #[serde(flatten)]
    path: JsonPathOption<'a, AtStorePath>,
    /// name of the project in the store, or null
    project: Option<&'a ProjectId>,
    /// description
    why: &'a str,
    /// checkpoints and paths that are affected
    projects: &'a [Affected],
}

impl<'a> From<&'a Finding> for FindingJson<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            kind: finding.kind,
            severity: finding.severity,
            id: finding.id,
            path: JsonPathOption::of(finding.path.as_deref()),
            project: finding.project.as_ref(),
            why: &finding.why,
            projects: &finding.affects,
        }
    }
}

/// JSON of an [`Affected`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct AffectedJson<'a> {
    /// ref whose history is affected
    r#ref: &'a str,
    /// name of its project in the store, or null
    project: Option<&'a ProjectId>,
    #[serde(flatten)]
    workdir: JsonPathOption<'a, AtWorkdir>,
    #[serde(flatten)]
    path: JsonPathOption<'a, AtPath>,
    /// affected checkpoints
    checkpoints: Vec<AffectedCheckpointJson>,
}

/// JSON of an affected checkpoint.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct AffectedCheckpointJson {
    /// position in the list; the newest is 1
    number: usize,
    /// id of the checkpoint
    id: CheckpointId,
    /// its first seven digits
    short_id: String,
}

impl<'a> From<&'a Affected> for AffectedJson<'a> {
    fn from(affected: &'a Affected) -> Self {
        let checkpoint = |&(number, id): &(usize, CheckpointId)| {
            let short_id = id.short();
            AffectedCheckpointJson { number, id, short_id }
        };
        Self {
            r#ref: &affected.name,
            project: affected.project.as_ref(),
            workdir: JsonPathOption::of(affected.dir.as_deref()),
            path: JsonPathOption::new(affected.path.as_deref()),
            checkpoints: affected.checkpoints.iter().map(checkpoint).collect(),
        }
    }
}

crate::json::serialized_as! {
    VerifyReport => VerifyReportJson<'_>;
    Finding => FindingJson<'_>;
    Affected => AffectedJson<'_>;
}
