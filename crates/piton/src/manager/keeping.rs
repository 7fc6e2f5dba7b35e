//! Keeps files that a command is about to destroy, and records those that could not be kept.

use super::{Manager, OUTSIDE_EVENTS, within_deadline};
use crate::ensured::Ensured;
use crate::journal::{Event, Level};
use crate::kept::{KeepReport, KeepRequest, as_kept, expire, keep_files};
use crate::store::{Origin, Store};
use crate::time::Moment;

/// Time that keeping may take, in milliseconds, whatever the deadline is.
const KEEP_MS_MAX: u64 = 2_000;
/// Number of gaps that one event names.
const GAPS_NAMED: usize = 3;

impl Manager {
    /// Keeps files that a command is about to destroy and that no checkpoint holds. Takes at most `deadline_ms` or two
    /// seconds, whichever is shorter. Files that could not be kept are recorded in the journal before the command runs.
    pub fn keep_files(&self, request: KeepRequest, deadline_ms: u64, now: Moment) -> KeepReport {
        if !self.settings.enabled || request.is_empty() {
            return KeepReport::default();
        }
        let Ok(store) = self.store(now) else { return KeepReport::default() };
        let origin = Origin { agent: Some(self.agent.clone()), session: self.session.clone(), turn: self.turn.clone() };
        let request = KeepRequest { origin, ..request };
        let report = within_deadline(deadline_ms.min(KEEP_MS_MAX), |progress| {
            keep_files(store, &request, &self.settings, self.home.as_deref(), now, progress)
        });
        self.note_unsaved(&request.reason, &report, now);
        self.note_released(report.released, now);
        report
    }

    /// Records the files outside of every project that the agent changes without a checkpoint. Files that were kept,
    /// and those that are already reported as not kept, are left out. Each is recorded once.
    pub fn note_outside(&self, ensured: &[Ensured], kept: &KeepReport, now: Moment) {
        for file in ensured.iter().filter(|one| one.is_outside()).map(|one| &one.dir) {
            let what = format!("{} is in no project: an agent changes it without a checkpoint", file.display());
            let is_known = || self.journal.recent(OUTSIDE_EVENTS).iter().any(|event| event.what == what);
            if !kept.names(&as_kept(file)) && !is_known() {
                self.note_warning(what, now);
            }
        }
    }

    /// Releases kept files that have expired, or that a nearly full disk needs. Costs next to nothing if there are none.
    pub fn expire_kept(&self, now: Moment) {
        if let Ok(Some(store)) = Store::open_existing(&self.base) {
            self.note_released(expire(&store, &self.settings, now), now);
        }
    }

    fn note_unsaved(&self, reason: &str, report: &KeepReport, now: Moment) {
        if report.gaps.is_empty() {
            return;
        }
        let named: Vec<String> = report.gaps.iter().take(GAPS_NAMED).map(ToString::to_string).collect();
        let more = report.gaps.len().saturating_sub(GAPS_NAMED);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let what = format!("{reason}: not saved: {}{more}", named.join("; "));
        let (session, turn) = (self.session.clone(), self.turn.clone());
        self.journal.note(&Event { session, turn, ..self.event(Level::Unsaved, self.root(), what, now) });
    }

    fn note_released(&self, released: u64, now: Moment) {
        if released > 0 {
            let what = format!("the disk is nearly full: the kept files of {released} destroyed paths were released");
            self.note_warning(what, now);
        }
    }
}
