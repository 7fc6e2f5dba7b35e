//! JSON of a restore: of its plan and of its report.

use super::{Left, OtherWork, Restore, RestoreOutcome, RestoreReport, RulesChanged, WhyLeft};
use crate::id::CheckpointId;
use crate::json::{AtName, AtPath, AtPaths, JsonPath, JsonPaths};
use crate::session::RecordRewind;
use crate::time::Moment;

crate::path_keys! {
    AtFiles = "files", "files_bytes", "`.gitignore` files that change";
    AtRescoped = "rescoped", "rescoped_bytes", "files and directories that the restored rules bring into scope";
    AtWrite = "write", "write_bytes", "files that will be written";
    AtRemove = "remove", "remove_bytes", "files that will be removed";
    AtMakeDirs = "make_dirs", "make_dirs_bytes", "directories that will be made";
    AtDropDirs = "drop_dirs", "drop_dirs_bytes", "directories that will be removed if nothing is left in them";
    AtMadeDirs = "made_dirs", "made_dirs_bytes", "directories that were made";
    AtRemovedDirs = "removed_dirs", "removed_dirs_bytes", "directories that were removed";
    AtIgnoredWritten = "ignored_written", "ignored_written_bytes", "of the written files, those out of scope";
    AtKeptWritten = "kept_written", "kept_written_bytes", "of the written files, those that were kept before a command destroyed them";
    AtKeptWrite = "kept", "kept_bytes", "of the files that will be written, those that were kept before a command destroyed them";
    AtIgnoredDiffering = "ignored_differing", "ignored_differing_bytes", "files out of scope that differ and were left as they are";
    pub(crate) AtWrittenPaths = "written_paths", "written_paths_bytes", "files that were written";
    pub(crate) AtRemovedPaths = "removed_paths", "removed_paths_bytes", "files that were removed";
}

/// JSON of a [`RestoreReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RestoreReportJson<'a> {
    /// outcome of the restore
    outcome: RestoreOutcome,
    /// id of the checkpoint that was restored
    id: CheckpointId,
    /// id of the checkpoint of the files before, or null
    safety_id: Option<CheckpointId>,
    /// number of files that were written
    written: usize,
    /// number of files that were removed
    removed: usize,
    /// files that differ from the checkpoint and were left as they are
    left: &'a [Left],
    /// outcome for the record of the session, or null
    record: Option<&'a RecordRewind>,
    /// files that no checkpoint covers, and that were moved aside
    moved_aside: Vec<MovedAsideJson<'a>>,
    /// number of files and directories whose permission bits were changed
    modes: usize,
    #[serde(flatten)]
    made_dirs: JsonPaths<'a, AtMadeDirs>,
    #[serde(flatten)]
    removed_dirs: JsonPaths<'a, AtRemovedDirs>,
    /// effect of restored ignore rules
    rules: &'a RulesChanged,
    /// true if `piton undo` goes back to `safety_id`
    can_undo: bool,
    #[serde(flatten)]
    written_paths: JsonPaths<'a, AtWrittenPaths>,
    #[serde(flatten)]
    removed_paths: JsonPaths<'a, AtRemovedPaths>,
    #[serde(flatten)]
    ignored_written: JsonPaths<'a, AtIgnoredWritten>,
    #[serde(flatten)]
    kept_written: JsonPaths<'a, AtKeptWritten>,
    #[serde(flatten)]
    ignored_differing: JsonPaths<'a, AtIgnoredDiffering>,
}

impl<'a> From<&'a RestoreReport> for RestoreReportJson<'a> {
    fn from(report: &'a RestoreReport) -> Self {
        Self {
            outcome: report.outcome,
            id: report.target.id,
            safety_id: report.safety,
            written: report.written.len(),
            removed: report.removed.len(),
            left: &report.left,
            record: report.record.as_ref(),
            moved_aside: report.moved_aside.iter().map(MovedAsideJson::from).collect(),
            modes: report.modes_changed,
            made_dirs: JsonPaths::new(&report.made_dirs),
            removed_dirs: JsonPaths::new(&report.removed_dirs),
            rules: &report.rules,
            can_undo: report.can_undo,
            written_paths: JsonPaths::new(&report.written),
            removed_paths: JsonPaths::new(&report.removed),
            ignored_written: JsonPaths::new(&report.ignored_written),
            kept_written: JsonPaths::new(&report.kept_written),
            ignored_differing: JsonPaths::new(&report.ignored_differing),
        }
    }
}

/// JSON of a [`Restore`] that was not carried out.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RestorePlanJson<'a> {
    /// true
    dry_run: bool,
    /// outcome that the restore would have
    outcome: RestoreOutcome,
    /// id of the checkpoint that would be restored
    id: CheckpointId,
    /// null
    safety_id: Option<CheckpointId>,
    /// number of files that would be written
    written: usize,
    /// number of files that would be removed
    removed: usize,
    #[serde(flatten)]
    write: JsonPaths<'a, AtWrite>,
    #[serde(flatten)]
    kept: JsonPaths<'a, AtKeptWrite>,
    #[serde(flatten)]
    remove: JsonPaths<'a, AtRemove>,
    /// files and directories whose permission bits will change
    mode: Vec<ModeJson<'a>>,
    #[serde(flatten)]
    make_dirs: JsonPaths<'a, AtMakeDirs>,
    #[serde(flatten)]
    drop_dirs: JsonPaths<'a, AtDropDirs>,
    /// files that differ from the checkpoint and will be left as they are
    left: &'a [Left],
    /// files that no checkpoint covers, and that will be moved aside
    moved_aside: Vec<MovedAsideJson<'a>>,
    /// effect of restored ignore rules
    rules: &'a RulesChanged,
    /// later work of other sessions that would be undone, too
    other_sessions: &'a [OtherWork],
}

impl<'a> From<&'a Restore<'_>> for RestorePlanJson<'a> {
    fn from(planned: &'a Restore<'_>) -> Self {
        let plan = planned.plan();
        let (made, dropped) = plan.directories();
        let outcome = match plan.changes() {
            0 if plan.left().is_empty() => RestoreOutcome::NothingToDo,
            _ if plan.left().is_empty() => RestoreOutcome::Restored,
            _ => RestoreOutcome::Partly,
        };
        let mode = |(path, mode): (&'a [u8], u16)| ModeJson { path: JsonPath::new(path), mode: format!("{mode:o}") };
        Self {
            dry_run: true,
            outcome,
            id: planned.target().id,
            safety_id: None,
            written: plan.written().count(),
            removed: plan.removed().count(),
            write: JsonPaths::new(plan.written().map(|(path, _)| path)),
            kept: JsonPaths::new(plan.kept()),
            remove: JsonPaths::new(plan.removed()),
            mode: plan.modes_changed().map(mode).collect(),
            make_dirs: JsonPaths::new(made),
            drop_dirs: JsonPaths::new(dropped),
            left: plan.left(),
            moved_aside: plan.moved_aside().iter().map(MovedAsideJson::from).collect(),
            rules: planned.rules(),
            other_sessions: planned.others(),
        }
    }
}

/// JSON of a path and its new permission bits.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ModeJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    /// its new permission bits, in octal digits
    mode: String,
}

/// JSON of a path that is moved aside.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct MovedAsideJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    #[serde(flatten)]
    name: JsonPath<'a, AtName>,
}

impl<'a> From<&'a (Vec<u8>, Vec<u8>)> for MovedAsideJson<'a> {
    fn from((path, name): &'a (Vec<u8>, Vec<u8>)) -> Self {
        Self { path: JsonPath::new(path), name: JsonPath::new(name) }
    }
}

/// JSON of a [`Left`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LeftJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    /// reason, as a keyword
    why: &'a WhyLeft,
    /// reason, as text
    reason: String,
}

impl<'a> From<&'a Left> for LeftJson<'a> {
    fn from(left: &'a Left) -> Self {
        Self { path: JsonPath::new(&left.path), why: &left.why, reason: left.why.to_string() }
    }
}

impl serde::Serialize for WhyLeft {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for WhyLeft {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WhyLeft".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // Keywords of its own, and those of the reasons for which files are skipped.
        let own = WhyLeft::WORDS;
        let others = crate::skipped::SkipReason::ALL
            .map(crate::skipped::SkipReason::word)
            .into_iter()
            .filter(|word| !own.contains(word));
        let words: Vec<_> = own.into_iter().chain(others).collect();
        schemars::json_schema!({"type": "string", "enum": words})
    }
}

/// JSON of [`RulesChanged`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RulesChangedJson<'a> {
    #[serde(flatten)]
    files: JsonPaths<'a, AtFiles>,
    #[serde(flatten)]
    rescoped: JsonPaths<'a, AtRescoped>,
    /// true if they were too many to be saved in the same run; the same restore again handles them
    cut_short: bool,
}

impl<'a> From<&'a RulesChanged> for RulesChangedJson<'a> {
    fn from(rules: &'a RulesChanged) -> Self {
        let (files, rescoped) = (JsonPaths::new(&rules.files), JsonPaths::new(&rules.rescoped));
        Self { files, rescoped, cut_short: rules.is_cut_short }
    }
}

/// JSON of [`OtherWork`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct OtherWorkJson<'a> {
    /// the session
    session: &'a str,
    /// its agent, or null
    agent: Option<&'a str>,
    /// time of its last event, as in RFC 3339
    last_active: Moment,
    /// number of its checkpoints that were followed by changes
    checkpoints: usize,
    #[serde(flatten)]
    paths: JsonPaths<'a, AtPaths>,
}

impl<'a> From<&'a OtherWork> for OtherWorkJson<'a> {
    fn from(work: &'a OtherWork) -> Self {
        Self {
            session: &work.session,
            agent: work.agent.as_deref(),
            last_active: work.last_active,
            checkpoints: work.checkpoints,
            paths: JsonPaths::new(&work.paths),
        }
    }
}

crate::json::serialized_as! {
    RestoreReport => RestoreReportJson<'_>;
    Restore<'_> => RestorePlanJson<'_>;
    Left => LeftJson<'_>;
    RulesChanged => RulesChangedJson<'_>;
    OtherWork => OtherWorkJson<'_>;
}
