//! Notices to agents after a restore, which changes files that they have read.

use std::collections::HashSet;

use crate::error::Result;
use crate::history::History;
use crate::project::Project;
use crate::restore::RestoreReport;
use crate::store::{Notice, SessionKey, Store};

/// Leaves a notice for every session that has worked in the project since the restored checkpoint, including those
/// whose turns took none because nothing had changed. Returns the number of sessions.
pub fn tell_sessions(store: &Store, project: &Project, report: &RestoreReport) -> Result<usize> {
    if report.written.is_empty() && report.removed.is_empty() {
        return Ok(0);
    }
    let target = &report.target;
    let record = store.records.get(project.id());
    let mut keys: HashSet<_> = store.turns.sessions_since(&record, target.time.secs).into_iter().collect();
    let history = History::of(store, project)?;
    let newer = history.checkpoints().iter().take_while(|checkpoint| checkpoint.id != target.id).chain([target]);
    keys.extend(newer.filter_map(|checkpoint| {
        let origin = &checkpoint.facts.origin;
        Some(SessionKey::new(origin.agent.as_deref()?, origin.session.as_deref()?))
    }));
    let names = |paths: &[Vec<u8>]| paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    let headline = format!(
        "files in {} were restored to the checkpoint {} of {}",
        project.dir().display(),
        target.id.short(),
        target.time.date_and_time()
    );
    let (written, removed) = (names(&report.written), names(&report.removed));
    let notice = Notice { headline, written, removed, ..Notice::default() };
    keys.iter().try_for_each(|key| store.turns.leave_notice(key, notice.clone()))?;
    Ok(keys.len())
}
