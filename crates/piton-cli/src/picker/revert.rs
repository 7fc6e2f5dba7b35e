//! Reverting a turn, a file of it or a hunk from the picker.

use std::collections::BTreeSet;

use piton::{
    CheckpointId, Error, ErrorKind, History, Progress, RestoreOutcome, RevertOptions, RevertOutcome, RevertReport,
    Turn, diff, revert, tell_sessions_of_revert,
};

use super::ground::Ground;
use super::patch::Patch;
use super::state::{JobResult, Planned, RestoreRequest, RevertPart, Trouble};
use crate::cmd::restore::shown;
use crate::cmd::revert::{report_text, turn_ends};
use crate::context::Context;
use crate::output::plain;
use crate::surface::Surface;

/// Returns the turn that began from a checkpoint.
fn turn_at(ground: &Ground, id: CheckpointId) -> piton::Result<Turn> {
    History::of(&ground.store, &ground.project)?.turn(&id.to_string(), None)
}

/// Returns the changes of the turn that began from a checkpoint.
pub(super) fn compare_turn(ground: &Ground, id: CheckpointId, progress: &Progress) -> piton::Result<Patch> {
    let (from, to) = turn_ends(&turn_at(ground, id)?);
    let ends = (from.as_str(), to.as_deref());
    Ok(Patch::new(&diff(&ground.store, &ground.project, ends, &[], &ground.settings, progress)?))
}

fn run(
    ground: &Ground,
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
    revert(&ground.store, &ground.project, turn, options, &ground.settings, Context::now(), progress)
}

/// Plans a revert. Work that cannot be told apart from the turn's is part of the plan, which names it: the user is asked
/// for it separately.
pub(super) fn plan(ground: &Ground, deed: &RestoreRequest, progress: &Progress) -> Result<Planned, Trouble> {
    let (Some(part), Some(id)) = (&deed.revert, deed.to) else {
        return Err(Error::new(ErrorKind::Invalid, "revert a turn").because("none is selected").into());
    };
    ground.only_here("revert a turn")?;
    let turn = turn_at(ground, id)?;
    let (report, others) = match run(ground, &turn, part, (true, false), progress) {
        Err(error) if error.kind() == ErrorKind::NeedsConsent => {
            (run(ground, &turn, part, (true, true), progress)?, vec![plain(&error.to_string())])
        }
        report => (report?, Vec::new()),
    };
    let reason = plain(&turn.record.headline());
    if report.outcome == RevertOutcome::Conflict {
        return Err(Trouble { message: report_text(&reason, &report, Surface::Shell), hint: None });
    }
    let count = report.paths.len();
    Ok(Planned {
        deed: deed.clone(),
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
    ground: &Ground,
    agreed: &Planned,
    consent: bool,
    progress: &Progress,
) -> Result<JobResult, Trouble> {
    if plan(ground, &agreed.deed, progress)? != *agreed {
        return Err(Error::new(ErrorKind::Busy, "revert a turn")
            .because("the files or the checkpoints changed meanwhile; nothing was touched")
            .with_hint("ask again: the new plan says what changes")
            .into());
    }
    let turn = turn_at(ground, agreed.target)?;
    let part = agreed.deed.revert.clone().unwrap_or_default();
    let report = run(ground, &turn, &part, (false, consent), progress)?;
    if ground.settings.tell_agent {
        // The files are changed: a failed notice must not turn that into a failure.
        let _ = tell_sessions_of_revert(&ground.store, &ground.project, &report);
    }
    let outcome = match report.outcome {
        RevertOutcome::Reverted => RestoreOutcome::Restored,
        RevertOutcome::NothingToDo => RestoreOutcome::NothingToDo,
        _ => RestoreOutcome::Partly,
    };
    Ok(JobResult { outcome, text: report_text(&agreed.reason, &report, Surface::Shell), is_rewind: false })
}
