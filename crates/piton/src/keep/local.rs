//! Saves the local files of a checkpoint, after the checkpoint itself. A failure is reported, and never fails the take.

use super::{BuildOutcome, CheckpointBuilder};
use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;
use crate::local_report::LocalReport;
use crate::progress::Progress;
use crate::project::Project;
use crate::store::{LocalRef, ProjectRecord, Room};
use crate::survey::{LocalInput, LocalSurvey, Survey, failed_report, survey_local};
use crate::take::{Outcome, Report};

impl CheckpointBuilder<'_> {
    /// Saves the local files of a checkpoint that was taken. If nothing but local files changed, takes a checkpoint for
    /// them.
    pub(super) fn keep_local_too(
        &mut self,
        kept: BuildOutcome,
        survey: &Survey,
        project: &Project,
        record: &mut ProjectRecord,
    ) -> Result<BuildOutcome> {
        let BuildOutcome::Done(report) = kept else { return Ok(kept) };
        let (Outcome::Taken(id) | Outcome::Unchanged(id)) = report.outcome else {
            return Ok(BuildOutcome::Done(report));
        };
        let done = |report, local: Option<LocalReport>| {
            Ok(BuildOutcome::Done(Report { local: local.map(Box::new), ..report }))
        };
        let local = match self.survey_local(survey, project, record) {
            Ok(Some(local)) => local,
            Ok(None) => return done(report, None),
            Err(error) => return done(report, Some(failed_report(&error))),
        };
        if report.outcome != Outcome::Unchanged(id) {
            let saved = match self.reserve_for(&local) {
                Ok(()) => self.save_local(id, local, project, record),
                Err(error) => failed_report(&error),
            };
            return done(report, Some(saved));
        }
        if local.is_unchanged() {
            if let Some(note) = local.write_index(self.store, project, self.now) {
                record.set_local_note(note);
            }
            return done(report, Some(local.report));
        }
        // No checkpoint is made for local files that cannot be saved.
        if let Err(error) = self.reserve_for(&local) {
            return done(report, Some(failed_report(&error)));
        }
        self.is_forced = true;
        match self.keep(survey, self.store.objects.new_objects(self.objects, false), record)? {
            BuildOutcome::Done(report) => {
                let saved = match report.outcome {
                    Outcome::Taken(id) => self.save_local(id, local, project, record),
                    _ => local.report,
                };
                done(report, Some(saved))
            }
            other => Ok(other),
        }
    }

    fn survey_local(&self, survey: &Survey, project: &Project, record: &ProjectRecord) -> Result<Option<LocalSurvey>> {
        let unwatched = Progress::default();
        let input = LocalInput {
            store: self.store,
            objects: self.objects,
            project,
            record,
            newest: self.newest.map(|newest| newest.id),
            settings: self.settings,
            now: self.now,
            is_late: self.request.is_late,
            is_dry: false,
            progress: self.progress.unwrap_or(&unwatched),
        };
        survey_local(&input, survey)
    }

    /// Reserves the space for local files. Fails with `Full` if there is not enough.
    pub(crate) fn reserve_for(&self, local: &LocalSurvey) -> Result<()> {
        let (bytes, written) = (local.new_objects.bytes_on_disk(), local.new_objects.bytes_written());
        let bytes_max = self.bytes_max.unwrap_or(u64::MAX);
        match self.store.size.reserve(bytes, written, bytes_max, self.collecting)? {
            Room::Reserved => Ok(()),
            Room::Lacking => {
                Err(Error::new(ErrorKind::Full, "save files out of scope").because("the store has reached its limit"))
            }
        }
    }

    /// Saves local files that were surveyed, for a checkpoint that exists. Returns what was saved.
    pub(crate) fn save_local(
        &self,
        id: CheckpointId,
        mut local: LocalSurvey,
        project: &Project,
        record: &mut ProjectRecord,
    ) -> LocalReport {
        let report = std::mem::take(&mut local.report);
        if local.is_empty() {
            return report;
        }
        match self.try_to_save_local(id, local, project, record) {
            Ok(is_first) => LocalReport { is_first, ..report },
            Err(error) => LocalReport { files: 0, bytes: 0, failed: Some(error.to_string()), ..report },
        }
    }

    /// Returns true if the store had no local files before.
    fn try_to_save_local(
        &self,
        id: CheckpointId,
        local: LocalSurvey,
        project: &Project,
        record: &mut ProjectRecord,
    ) -> Result<bool> {
        let Self { store, locked, now, .. } = *self;
        let note = local.write_index(store, project, now);
        let LocalSurvey { id: state, new_objects, .. } = local;
        let is_first = store.locals.is_none();
        let published = new_objects.publish()?;
        let local = LocalRef { checkpoint: id, state };
        store.locals.set(locked, project.id(), &local, now)?;
        if !store.objects.secure(&published, now)? {
            store.locals.remove(locked, project.id(), id, now)?;
            return Err(Error::new(ErrorKind::Busy, "save files out of scope")
                .because("another program's collection removed objects"));
        }
        if let Some(note) = note {
            record.set_local_note(note);
        }
        Ok(is_first)
    }
}
