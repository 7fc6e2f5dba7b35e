//! Makes a checkpoint of a survey: writes the objects, the ref and the index, and drops the checkpoints above the
//! limit.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::git_state::GitCapture;
use crate::id::{CheckpointId, ObjectKind, ProjectId};
use crate::limit::RowLimit;
use crate::progress::Progress;
use crate::project::Project;
use crate::session;
use crate::settings::Settings;
use crate::skipped::{self, Extent, SkipReason, Skipped};
use crate::store::{
    Checkpoint, Facts, GcLock, IndexKind, NewCheckpoint, NewObjects, Objects, ProjectLock, ProjectRecord, Restoring,
    Room, Store, moved_meanwhile,
};
use crate::survey::{Survey, SurveyEnd};
use crate::sys::FileTime;
use crate::take::{Outcome, Report, Request, WhySkipped};
use crate::threads;
use crate::time::Moment;
use crate::worktree::{CacheNote, IndexSums, index_bytes_max};

mod local;

/// Maximum number of lines about skipped files in a checkpoint.
const SKIPPED_LINES_MAX: usize = 200;
/// Bytes that a take writes besides objects and the index: the record, the ref, the size.
const SMALL_FILES_BYTES: u64 = 8 * 4096;
/// A survey of more files than this is freed on a background thread.
const FILES_FREED_HERE_MAX: u64 = 10_000;

/// Request to make a checkpoint of a survey.
pub(crate) struct CheckpointBuilder<'a> {
    pub(crate) store: &'a Store,
    pub(crate) locked: &'a ProjectLock,
    pub(crate) project: &'a ProjectId,
    pub(crate) newest: Option<&'a Checkpoint>,
    pub(crate) request: &'a Request,
    /// The restore that this is the safety checkpoint of. A safety checkpoint is taken even if nothing changed: it is
    /// what undo goes back to.
    pub(crate) restoring: Option<Restoring>,
    /// The session's record, stored in the checkpoint. A change of it alone does not make a new checkpoint.
    pub(crate) session_record: Option<Vec<u8>>,
    pub(crate) objects: &'a Objects,
    pub(crate) settings: &'a Settings,
    /// True to make a checkpoint even if the files in scope are those of the newest: its local files are not.
    pub(crate) is_forced: bool,
    /// Maximum size of the store.
    pub(crate) bytes_max: Option<u64>,
    /// Garbage collection lock, held if room was made for this checkpoint: no other process can use that room up.
    pub(crate) collecting: Option<&'a GcLock>,
    /// True if another program may be about to move the ref regardless of its value.
    pub(crate) is_contended: bool,
    /// Cancels the wait for that.
    pub(crate) progress: Option<&'a Progress>,
    pub(crate) now: Moment,
}

/// Result of making a checkpoint of a survey.
#[expect(clippy::large_enum_variant, reason = "there is one for each take")]
pub(crate) enum BuildOutcome {
    Done(Report),
    /// The store would pass its limit: the checkpoint needs this many bytes. Nothing was written.
    NoRoom {
        bytes: u64,
    },
    /// Garbage collection by stock git deleted objects that the checkpoint relied on. The checkpoint was withdrawn:
    /// retry.
    Lost,
}

/// Time after a checkpoint of Hermes during which Hermes may still move its ref.
const HERMES_AT_WORK_SECS: i64 = 10;
/// Time for which a ref that Hermes may be about to move is watched.
const WATCHED_MS: u64 = 2_000;
const WATCH_PAUSE_MS: u64 = 10;
/// Maximum number of times that a checkpoint is rebased onto a ref that other programs keep moving.
const MOVES_MAX: u32 = 16;

/// Returns true if Hermes may be working on the project. It moves the ref without checking its value in two cases: for
/// its first checkpoint, which begins with the record, and after any other, when it drops those above its limit.
pub(crate) fn is_contended(newest: Option<&Checkpoint>, record: &ProjectRecord, now: Moment) -> bool {
    let is_recent = |secs: i64| (-HERMES_AT_WORK_SECS..=HERMES_AT_WORK_SECS).contains(&now.secs.saturating_sub(secs));
    match newest {
        Some(newest) => newest.facts.files.is_none() && is_recent(newest.time.secs),
        #[expect(clippy::cast_possible_truncation, reason = "a time in seconds")]
        None => record.is_of_hermes_alone() && record.last_touch().is_some_and(|last| is_recent(last as i64)),
    }
}

impl CheckpointBuilder<'_> {
    /// Makes a checkpoint of a complete survey, or saves the progress of a cancelled one.
    pub(crate) fn keep_end(
        mut self,
        end: SurveyEnd,
        project: &Project,
        new_objects: NewObjects,
        record: &mut ProjectRecord,
    ) -> Result<BuildOutcome> {
        match end {
            SurveyEnd::TooManyFiles => Ok(BuildOutcome::Done(Report::declined(WhySkipped::TooManyFiles))),
            SurveyEnd::Stopped(None) => Ok(BuildOutcome::Done(Report::declined(WhySkipped::Deadline))),
            SurveyEnd::Stopped(Some(survey)) => self.keep_progress(&survey, new_objects, record),
            SurveyEnd::Done(mut survey) => {
                if self.request.count_left_out {
                    survey.count_left_out(project);
                }
                self.session_record = session::version_of(self.store, &self.request.origin);
                let kept = self.keep(&survey, new_objects, record);
                let kept = kept.and_then(|kept| self.keep_local_too(kept, &survey, project, record));
                let is_large = survey.manifest.files() > FILES_FREED_HERE_MAX;
                threads::drop_in_background(survey, is_large);
                kept
            }
        }
    }

    pub(crate) fn keep(
        &self,
        survey: &Survey,
        new_objects: NewObjects,
        record: &mut ProjectRecord,
    ) -> Result<BuildOutcome> {
        let skipped = skipped::summarise(survey.skipped.clone(), usize::MAX);
        if survey.manifest.files() == 0 && self.newest.is_none() && self.restoring.is_none() {
            return Ok(self.report(survey, Outcome::Skipped(WhySkipped::Empty), skipped));
        }
        let facts = self.facts(survey, &skipped);
        // Stock git's checkpoints do not record permissions: the same tree counts as unchanged.
        let is_same = |newest: &Checkpoint| {
            newest.tree == survey.tree() && (newest.facts.files.is_none() || newest.facts.same_files(&facts))
        };
        // With the same files there is nothing new to write, unless objects of the newest checkpoint are missing.
        let is_whole = new_objects.is_empty();
        let is_enough = |newest: &Checkpoint| is_whole && is_same(newest) && self.is_listed(newest) && !self.is_forced;
        if let Some(newest) = self.newest.filter(|newest| self.restoring.is_none() && is_enough(newest)) {
            if newest.facts.files.is_none() {
                if !self.store.objects.secure_all(&new_objects.into_relied(), self.now)? {
                    return Ok(BuildOutcome::Lost);
                }
                let mut note = CacheNote::read(record.cache_note());
                note.set_held(newest.id);
                note.write(record.cache_note_mut());
            }
            let index = survey
                .cache
                .writes_index()
                .then(|| write_index(self.store, self.project, IndexKind::Newest, survey, self.now));
            self.note_index(index, survey, record.cache_note_mut());
            self.store.refs.sync_newest(self.project)?;
            return Ok(self.report(survey, Outcome::Unchanged(newest.id), skipped));
        }
        let commit = NewCheckpoint {
            tree: survey.tree(),
            parent: self.newest.map(|newest| newest.id),
            time: self.now,
            reason: &self.request.reason,
            facts: &facts,
            project: self.project,
        };
        let added = new_objects.writer().add(ObjectKind::Commit, &commit.encode())?;
        let id = added.map_err(|collision| Error::damaged("make a checkpoint", collision))?;
        if let Some(bytes) = self.lacks_room(survey, &new_objects)? {
            return Ok(BuildOutcome::NoRoom { bytes });
        }
        if self.newest.is_none() {
            // Written before the ref exists: a killed process must not leave checkpoints of an unknown directory.
            let _ = self.store.records.save(self.locked, self.project, record);
        }
        let Self { store, project, now, .. } = *self;
        let touched = record.last_touch();
        let publish = || self.publish(commit, id, new_objects, survey, touched);
        // The index can be rebuilt, so it may be written while the disk is busy with the objects, which cannot.
        let (index, published) = if survey.cache.writes_index() {
            let write = || write_index(store, project, IndexKind::Newest, survey, now);
            let (index, published) = threads::beside(write, publish);
            (Some(index), published)
        } else {
            (None, publish())
        };
        let Some(id) = published? else { return Ok(BuildOutcome::Lost) };
        self.note_index(index, survey, record.cache_note_mut());
        Ok(self.report(survey, Outcome::Taken(id), skipped))
    }

    /// Returns true if this request needs no checkpoint of its own when the files equal the newest one. A turn that
    /// begins from the end of another turn needs one: only rows have a number.
    fn is_listed(&self, newest: &Checkpoint) -> bool {
        newest.is_row() || self.request.kind.is_within_turn()
    }

    fn report(&self, survey: &Survey, outcome: Outcome, skipped: Vec<Skipped>) -> BuildOutcome {
        BuildOutcome::Done(Report {
            outcome,
            files: survey.manifest.files(),
            unprotected: survey.unprotected,
            unread_index: survey.unread_index.clone(),
            dropped_out: self.dropped_out(&skipped),
            tree: Some(survey.tree()),
            local: None,
            lost: None,
            git: GitCapture::default(),
            held_by: None,
            skipped,
        })
    }

    /// Returns the facts of the commit.
    fn facts(&self, survey: &Survey, skipped: &[Skipped]) -> Facts {
        let mut facts = survey.facts(skipped::summarise(skipped.to_vec(), SKIPPED_LINES_MAX));
        facts.kind = self.request.kind;
        facts.origin = self.request.origin.clone();
        facts.restoring = self.restoring.clone();
        facts.record = self.session_record.clone();
        facts.is_incomplete = survey.is_incomplete && self.request.is_late;
        let is_merged = facts.skipped.iter().any(|skipped| matches!(skipped.extent, Extent::Some(_)));
        facts.read_by = is_merged.then(|| FileTime::now().as_nanos());
        facts
    }

    /// Saves what a cancelled survey has read, for the next attempt.
    fn keep_progress(
        &self,
        survey: &Survey,
        new_objects: NewObjects,
        record: &mut ProjectRecord,
    ) -> Result<BuildOutcome> {
        if let Some(bytes) = self.lacks_room(survey, &new_objects)? {
            return Ok(BuildOutcome::NoRoom { bytes });
        }
        let published = new_objects.publish()?;
        self.store.unfinished.keep(self.locked, self.project, survey.tree(), self.now)?;
        if !self.store.objects.secure(&published, self.now)? {
            // Garbage collection by stock git deleted some of it: the next attempt reads everything again.
            record.set_progress(None, None);
            self.store.unfinished.drop_progress(self.locked, self.project, self.now)?;
            return Ok(BuildOutcome::Done(Report::declined(WhySkipped::Deadline)));
        }
        let written = write_index(self.store, self.project, IndexKind::Unfinished, survey, self.now);
        let progress = written.is_some().then(|| {
            let mut keys = Map::new();
            self.note_index(Some(written), survey, &mut keys);
            keys
        });
        record.set_progress(progress, self.newest.map(|newest| newest.id));
        Ok(BuildOutcome::Done(Report::declined(WhySkipped::Deadline)))
    }

    /// Publishes the objects and moves the ref. If another program moved the ref in the meantime, the checkpoint is
    /// added on top of it, under another id. Returns `None` if objects that it relies on are missing; no checkpoint was
    /// made then.
    fn publish(
        &self,
        commit: NewCheckpoint<'_>,
        id: CheckpointId,
        new_objects: NewObjects,
        survey: &Survey,
        touched: Option<f64>,
    ) -> Result<Option<CheckpointId>> {
        let Self { store, locked, project, now, .. } = *self;
        let mut published = vec![new_objects.publish()?];
        let (mut id, mut parent) = (id, commit.parent);
        for _ in 0..MOVES_MAX {
            if store.refs.advance(locked, project, parent, id, now)? && self.stays(id, touched)? {
                // Objects of the previous newest checkpoint are safe only as long as that one is the parent.
                let is_moved = parent != commit.parent;
                let relied = is_moved.then(|| survey.ids().collect());
                let is_whole = match relied {
                    None => store.objects.secure(&published[0], now)?,
                    Some(relied) => store.objects.secure_all(&relied, now)?,
                };
                if !is_whole {
                    // If another program has moved the ref in the meantime, the next attempt is added on top of that.
                    store.refs.retreat(locked, project, id, parent, now)?;
                    return Ok(None);
                }
                // A failure is ignored: the next take drops them, and the checkpoint exists either way.
                let _ = self.apply_limit(id, parent);
                return Ok(Some(id));
            }
            parent = store.refs.newest(project)?;
            if parent.is_some_and(|parent| !store.objects.is_readable(parent).unwrap_or(false)) {
                return Ok(None);
            }
            let again = store.objects.new_objects(self.objects, false);
            let added = again.writer().add(ObjectKind::Commit, &NewCheckpoint { parent, ..commit }.encode())?;
            id = added.map_err(|collision| Error::damaged("make a checkpoint", collision))?;
            published.push(again.publish()?);
        }
        Err(moved_meanwhile("move the project's ref"))
    }

    /// Watches the ref for a while if another program may be about to move it regardless of its value. Returns false if
    /// that happened and the checkpoint is not in the history any more.
    fn stays(&self, id: CheckpointId, touched: Option<f64>) -> Result<bool> {
        // A first take has saved the record already: a process that changed it since has begun its own take.
        let is_touched = || self.store.records.get(self.project).last_touch() != touched;
        if !self.is_contended && (self.newest.is_some() || !is_touched()) {
            return Ok(true);
        }
        for _ in 0..WATCHED_MS / WATCH_PAUSE_MS {
            let newest = self.store.refs.newest(self.project)?;
            if newest != Some(id) {
                return self.store.histories.leads_to(newest, id);
            }
            if self.progress.is_some_and(Progress::is_cancelled) {
                break;
            }
            std::thread::sleep(Duration::from_millis(WATCH_PAUSE_MS));
        }
        Ok(true)
    }

    /// Returns the skipped directories that cannot be read and that the previous checkpoint held.
    fn dropped_out(&self, skipped: &[Skipped]) -> Vec<Vec<u8>> {
        let unread = skipped.iter().filter(|one| one.why == SkipReason::Unreadable && one.extent != Extent::File);
        let was_held = |path: &&[u8]| {
            self.newest.is_some_and(|newest| matches!(self.objects.entry_at(newest.tree, path), Ok(Some(_))))
        };
        unread.map(|one| one.path.as_slice()).filter(was_held).map(<[u8]>::to_vec).collect()
    }

    /// Reserves the space for this checkpoint. Returns the number of bytes if there is not enough.
    fn lacks_room(&self, survey: &Survey, new_objects: &NewObjects) -> Result<Option<u64>> {
        // Without a limit the size is recorded as well: the next take may have a limit.
        let bytes_max = self.bytes_max.unwrap_or(u64::MAX);
        let index = || index_bytes_max(&survey.manifest).saturating_sub(self.store.indexes.bytes(self.project));
        let index = if survey.cache.writes_index() { index() } else { 0 };
        let bytes = new_objects.bytes_on_disk() + index + SMALL_FILES_BYTES;
        let room = self.store.size.reserve(bytes, new_objects.bytes_written(), bytes_max, self.collecting)?;
        Ok((room == Room::Lacking).then_some(bytes))
    }

    /// Drops the rows above the limit.
    fn apply_limit(&self, new: CheckpointId, parent: Option<CheckpointId>) -> Result<()> {
        let Self { store, locked, project, objects, now, .. } = *self;
        if self.request.kind.is_within_turn() {
            return Ok(());
        }
        let limit = RowLimit { store, locked, project, objects, limit: self.settings.max_snapshots, now };
        if self.restoring.is_some() { limit.note(new, parent) } else { limit.apply(new, parent) }
    }

    /// Records the state of the index; `written` is the result of replacing it, if it was to be replaced.
    fn note_index(&self, written: Option<Option<IndexSums>>, survey: &Survey, keys: &mut Map<String, Value>) {
        if survey.cache.changes_note() || written.is_some() {
            let mut note = CacheNote::read(keys);
            survey.cache.apply(&mut note, written.flatten(), &survey.manifest, survey.tree(), self.now);
            note.write(keys);
        }
    }
}

/// Replaces the index of a project. A failure is ignored: the next take then reads every file again, which is no reason
/// to fail the checkpoint.
fn write_index(store: &Store, project: &ProjectId, kind: IndexKind, survey: &Survey, now: Moment) -> Option<IndexSums> {
    store.indexes.replace(project, kind, |out| survey.write_index(now, out)).ok()
}
