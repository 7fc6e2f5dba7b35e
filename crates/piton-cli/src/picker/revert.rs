//! Reverting a turn, a file of it or a hunk from the picker.

use std::collections::BTreeSet;

use piton::{
    CheckpointId, Error, ErrorKind, History, Progress, RestoreOutcome, RevertOptions, RevertOutcome, RevertReport,
    Turn, diff, revert, tell_sessions_of_revert,
};

use super::opened::OpenedProject;
use super::patch::Patch;
use super::state::{JobResult, Planned, RestoreRequest, RevertPart, WorkError};
use crate::cmd::restore::shown;
use crate::cmd::revert::{report_text, turn_ends};
use crate::context::Context;
use crate::output::plain;
use crate::surface::Surface;

/// Returns the turn that began from a checkpoint.
fn turn_at(opened: &OpenedProject, id: CheckpointId) -> piton::Result<Turn> {
    History::of(&opened.store, &opened.project)?.turn(&id.to_string(), None)
}

/// Returns the changes of the turn that began from a checkpoint.
pub(super) fn compare_turn(opened: &OpenedProject, id: CheckpointId, progress: &Progress) -> piton::Result<Patch> {
    let (from, to) = turn_ends(&turn_at(opened, id)?);
    let ends = (from.as_str(), to.as_deref());
    Ok(Patch::new(&diff(&opened.store, &opened.project, ends, &[], &opened.settings, progress)?))
}

fn run(
    opened: &OpenedProject,
    turn: &Turn,
    part: &RevertPart,
    (is_dry, consent): (bool, bool),
    progress: &Progress,
) -> piton::Result<RevertReport> {
    let hunks: Vec<_> = part.hunk.iter().map(|start| (part.paths.concat(), BTreeSet::from([*start]))).collect();
    let options = RevertOptions::default()
        .paths(&part.paths)
        .hunks(&hunks)
        .with_own_edits(consent)
        .across_sessions(consent)
        .is_dry(is_dry);
    revert(&opened.store, &opened.project, turn, options, &opened.settings, Context::now(), progress)
}

/// Plans a revert. Work that cannot be told apart from the turn's is part of the plan, which names it: the user is asked
/// for it separately.
pub(super) fn plan(
    opened: &OpenedProject,
    request: &RestoreRequest,
    progress: &Progress,
) -> Result<Planned, WorkError> {
    let (Some(part), Some(id)) = (&request.revert, request.to) else {
        return Err(Error::new(ErrorKind::Invalid, "revert a turn").because("none is selected").into());
    };
    opened.only_here("revert a turn")?;
    let turn = turn_at(opened, id)?;
    let (report, others) = match run(opened, &turn, part, (true, false), progress) {
        Err(error) if error.kind() == ErrorKind::NeedsConsent => {
            (run(opened, &turn, part, (true, true), progress)?, vec![plain(&error.to_string())])
        }
        report => (report?, Vec::new()),
    };
    let reason = plain(&turn.record.headline());
    if report.outcome == RevertOutcome::Conflict {
        return Err(WorkError { message: report_text(&reason, &report, Surface::Shell), hint: None });
    }
    let count = report.paths.len();
    Ok(Planned {
        request: request.clone(),
        target: turn.before,
        reason,
        written: count,
        removed: 0,
        left: 0,
        changes: count,
        lines: report.paths.iter().map(|path| format!("  change  {}", shown(path))).collect(),
        others,
    })
}

/// Carries out the plan that the user confirmed. Fails with `Busy`, without touching anything, if the plan would be a
/// different one by then.
pub(super) fn carry_out(
    opened: &OpenedProject,
    agreed: &Planned,
    consent: bool,
    progress: &Progress,
) -> Result<JobResult, WorkError> {
    if plan(opened, &agreed.request, progress)? != *agreed {
        return Err(Error::new(ErrorKind::Busy, "revert a turn")
            .because("the files or the checkpoints changed meanwhile; nothing was touched")
            .with_hint("ask again: the new plan says what changes")
            .into());
    }
    let turn = turn_at(opened, agreed.target)?;
    let part = agreed.request.revert.clone().unwrap_or_default();
    let report = run(opened, &turn, &part, (false, consent), progress)?;
    if opened.settings.tell_agent {
        // The files are changed: a failed notice must not turn that into a failure.
        let _ = tell_sessions_of_revert(&opened.store, &opened.project, &report);
    }
    let outcome = match report.outcome {
        RevertOutcome::Reverted => RestoreOutcome::Restored,
        RevertOutcome::NothingToDo => RestoreOutcome::NothingToDo,
        _ => RestoreOutcome::Partly,
    };
    Ok(JobResult { outcome, text: report_text(&agreed.reason, &report, Surface::Shell), is_rewind: false })
}
