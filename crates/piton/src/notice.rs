//! Notices to agents after a restore or a revert, which changes files that they have read.

use std::collections::HashSet;

use crate::error::Result;
use crate::history::History;
use crate::project::Project;
use crate::restore::RestoreReport;
use crate::revert::{RevertReport, RevertScope};
use crate::store::{Checkpoint, CheckpointKind, Notice, SessionKey, Store};

/// Leaves a notice for every session that has worked in the project since the restored checkpoint, including sessions
/// whose turns took no checkpoint because nothing had changed. Returns the number of sessions.
pub fn tell_sessions(store: &Store, project: &Project, report: &RestoreReport) -> Result<usize> {
    leave_notices(store, project, &report.target, &restored(report), report)
}

/// Like [`tell_sessions`], after a rewind: says that the conversation continues from there in the session `fork`, or in
/// a new one. If the old session continues nevertheless, it learns that its files were restored.
pub fn tell_sessions_of_rewind(
    store: &Store,
    project: &Project,
    report: &RestoreReport,
    fork: Option<&str>,
) -> Result<usize> {
    let session = fork.map_or_else(|| "a new session".to_owned(), |fork| format!("the session {fork}"));
    let what = format!("{}, and the conversation was rewound to there: it continues in {session}", restored(report));
    leave_notices(store, project, &report.target, &what, report)
}

fn restored(report: &RestoreReport) -> String {
    let target = &report.target;
    let state = match target.facts.kind {
        CheckpointKind::End => "the end of a turn, ",
        CheckpointKind::Step => "a step within a turn, ",
        _ => "",
    };
    let (id, time) = (target.id.short(), target.time.date_and_time());
    format!("were restored to {state}the checkpoint {id} of {time}")
}

/// Like [`tell_sessions`], for every session that has worked in the project since the reverted turn began.
pub fn tell_sessions_of_revert(store: &Store, project: &Project, report: &RevertReport) -> Result<usize> {
    let Some(restored) = &report.restore else { return Ok(0) };
    let history = History::of(store, project)?;
    let since = history.find(&report.since.to_string())?.clone();
    drop(history);
    let (id, time) = (since.id.short(), since.time.date_and_time());
    let what = match report.scope {
        RevertScope::Turn => format!(
            "changed: what the turn that began from the checkpoint {id} of {time} did was taken back, and later changes \
             were kept"
        ),
        RevertScope::Since => format!(
            "changed: what all turns since the checkpoint {id} of {time} did was taken back, and the user's own edits \
             were kept"
        ),
    };
    leave_notices(store, project, &since, &what, restored)
}

fn leave_notices(
    store: &Store,
    project: &Project,
    since: &Checkpoint,
    what: &str,
    report: &RestoreReport,
) -> Result<usize> {
    if report.written.is_empty() && report.removed.is_empty() {
        return Ok(0);
    }
    let record = store.records.get(project.id());
    let mut keys: HashSet<_> = store.turns.sessions_since(&record, since.time.secs).into_iter().collect();
    let history = History::of(store, project)?;
    let newer = history.checkpoints().iter().take_while(|checkpoint| checkpoint.id != since.id).chain([since]);
    keys.extend(newer.filter_map(|checkpoint| {
        let origin = &checkpoint.facts.origin;
        Some(SessionKey::new(origin.agent.as_deref()?, origin.session.as_deref()?))
    }));
    let names = |paths: &[Vec<u8>]| paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    let headline = format!("files in {} {what}", project.dir().display());
    let (written, removed) = (names(&report.written), names(&report.removed));
    let notice = Notice { headline, written, removed, ..Notice::default() };
    keys.iter().try_for_each(|key| store.turns.leave_notice(key, notice.clone()))?;
    Ok(keys.len())
}
