//! Making a checkpoint of what a survey found: objects, ref, index, and what goes above the limit.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::fsx;
use crate::id::{CheckpointId, ObjectKind, ProjectId};
use crate::project::Project;
use crate::session;
use crate::skipped::{self, Extent, SkipReason, Skipped};
use crate::store::{
    Checkpoint, GcLock, Intent, NewCheckpoint, NewObjects, Objects, ProjectLock, ProjectRecord, Restoring, Room, Store,
    moved_meanwhile,
};
use crate::survey::{IndexAfter, Survey, SurveyEnd};
use crate::sys;
use crate::take::{Outcome, Report, Request, WhySkipped};
use crate::threads;
use crate::time::Moment;
use crate::worktree::{IndexSums, index_bytes_max, write_index};

/// How many lines about what was left out go into a checkpoint.
const SKIPPED_LINES_MAX: usize = 200;
/// Up to so many checkpoints are read to find the oldest that stays. For more, their order is kept in a file.
const WALK_MAX: u64 = 64;
/// What a take writes besides objects and the index: the record, the ref, the size.
const SMALL_FILES_BYTES: u64 = 8 * 4096;
/// What was found of more files than this is large.
const FILES_FREED_HERE_MAX: u64 = 10_000;

/// Makes a checkpoint of what a survey found.
pub(crate) struct Keep<'a> {
    pub(crate) store: &'a Store,
    pub(crate) locked: &'a ProjectLock,
    pub(crate) project: &'a ProjectId,
    pub(crate) newest: Option<&'a Checkpoint>,
    pub(crate) request: &'a Request,
    /// What the checkpoint is the safety checkpoint of. Such a one is taken even if nothing changed: it says what undo
    /// goes back to.
    pub(crate) restoring: Option<Restoring>,
    /// The record of the session, which the checkpoint carries. It alone does not make a checkpoint another one.
    pub(crate) session_record: Option<Vec<u8>>,
    pub(crate) objects: &'a Objects,
    /// How many checkpoints the project keeps.
    pub(crate) keep_max: u64,
    /// How large the store may get.
    pub(crate) bytes_max: Option<u64>,
    /// True if room was made for it, so that all that is there is its own.
    pub(crate) collecting: Option<&'a GcLock>,
    /// Another program may be about to move the ref regardless of its value.
    pub(crate) is_contended: bool,
    /// Ends the wait for that.
    pub(crate) stop: Option<&'a AtomicBool>,
    pub(crate) now: Moment,
}

/// The result of making a checkpoint of a survey.
pub(crate) enum Kept {
    Done(Report),
    /// The store would pass its limit with so many bytes more. Nothing was written.
    NoRoom {
        bytes: u64,
    },
    /// Stock git's collection deleted objects that the checkpoint relied upon. It was taken back: begin again.
    Lost,
}

/// How long after a checkpoint of Hermes its ref may still be moved by it.
const HERMES_AT_WORK_SECS: i64 = 10;
/// How long a ref that Hermes may be about to move is watched.
const WATCHED_MS: u64 = 2_000;
const WATCH_PAUSE_MS: u64 = 10;
/// How often a checkpoint is put on top of another one, should other programs move the ref all the time.
const MOVES_MAX: u32 = 16;

/// Returns true if Hermes may be at work on the project. It moves the ref without a look at its value twice: for its first
/// checkpoint, which begins with the record, and after any other, when it drops those above its limit.
pub(crate) fn is_contended(newest: Option<&Checkpoint>, record: &ProjectRecord, now: Moment) -> bool {
    let is_recent = |secs: i64| (-HERMES_AT_WORK_SECS..=HERMES_AT_WORK_SECS).contains(&now.secs.saturating_sub(secs));
    match newest {
        Some(newest) => newest.facts.files.is_none() && is_recent(newest.time.secs),
        #[expect(clippy::cast_possible_truncation, reason = "a time in seconds")]
        None => record.is_of_hermes_alone() && record.last_touch().is_some_and(|last| is_recent(last as i64)),
    }
}

impl Keep<'_> {
    /// Makes a checkpoint of what a survey came to, if it came to its end.
    pub(crate) fn keep_end(
        mut self,
        end: SurveyEnd,
        project: &Project,
        new_objects: NewObjects,
        record: &mut ProjectRecord,
    ) -> Result<Kept> {
        match end {
            SurveyEnd::TooManyFiles => Ok(Kept::Done(Report::declined(WhySkipped::TooManyFiles))),
            SurveyEnd::Stopped(None) => Ok(Kept::Done(Report::declined(WhySkipped::Deadline))),
            SurveyEnd::Stopped(Some(survey)) => self.keep_progress(&survey, new_objects, record),
            SurveyEnd::Done(mut survey) => {
                if self.request.count_left_out {
                    survey.count_left_out(project);
                }
                self.session_record = session::version_of(self.store, &self.request.origin);
                let kept = self.keep(&survey, new_objects, record);
                let is_large = survey.manifest.files() > FILES_FREED_HERE_MAX;
                threads::free_aside(survey, is_large);
                kept
            }
        }
    }

    pub(crate) fn keep(&self, survey: &Survey, new_objects: NewObjects, record: &mut ProjectRecord) -> Result<Kept> {
        let skipped = skipped::summarise(survey.skipped.clone(), usize::MAX);
        let report = |outcome, files, skipped: Vec<Skipped>| {
            let (unprotected, unread_index) = (survey.unprotected, survey.unread_index.clone());
            let (tree, dropped_out) = (Some(survey.tree()), self.dropped_out(&skipped));
            let (lost, held_by) = (None, None);
            Kept::Done(Report { outcome, files, skipped, unprotected, unread_index, dropped_out, tree, lost, held_by })
        };
        let files = survey.manifest.files();
        if files == 0 && self.newest.is_none() && self.restoring.is_none() {
            return Ok(report(Outcome::Skipped(WhySkipped::Empty), files, skipped));
        }
        let mut facts = survey.facts(skipped::summarise(skipped.clone(), SKIPPED_LINES_MAX));
        facts.kind = self.request.kind;
        facts.origin = self.request.origin.clone();
        facts.restoring = self.restoring.clone();
        facts.record = self.session_record.clone();
        facts.is_incomplete = survey.is_incomplete && self.request.is_late;
        // Stock git's checkpoints say nothing of permissions: the same tree is the same then.
        let is_same = |newest: &Checkpoint| {
            newest.tree == survey.tree() && (newest.facts.files.is_none() || newest.facts.same_files(&facts))
        };
        // With the same files there is nothing new to write, unless the newest one has lost some of them.
        let is_whole = new_objects.is_empty();
        if let Some(newest) = self.newest.filter(|newest| self.restoring.is_none() && is_whole && is_same(newest)) {
            if newest.facts.files.is_none() {
                if !self.store.secure_all(&new_objects.into_relied(), self.now)? {
                    return Ok(Kept::Lost);
                }
                record.set_index_held(newest.id);
            }
            let path = self.store.index_path(self.project);
            let index = survey.writes_index().then(|| write_index_of(survey, &path, self.now));
            self.note_index(index.as_ref(), survey, record);
            self.store.sync_newest(self.project)?;
            return Ok(report(Outcome::Unchanged(newest.id), files, skipped));
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
            return Ok(Kept::NoRoom { bytes });
        }
        if self.newest.is_none() {
            // Before there is a ref: a process that is killed must not leave checkpoints of an unknown directory.
            let _ = self.store.save_record(self.locked, self.project, record);
        }
        let (index_path, now) = (self.store.index_path(self.project), self.now);
        let touched = record.last_touch();
        let publish = || self.publish(commit, id, new_objects, survey, touched);
        // The index can be made again, so it may go out while the disk is busy with what cannot.
        let (index, published) = if survey.writes_index() {
            let (index, published) = threads::beside(|| write_index_of(survey, &index_path, now), publish);
            (Some(index), published)
        } else {
            (None, publish())
        };
        let Some(id) = published? else { return Ok(Kept::Lost) };
        self.note_index(index.as_ref(), survey, record);
        Ok(report(Outcome::Taken(id), files, skipped))
    }

    /// Keeps what a survey that was stopped has read, for the next attempt.
    fn keep_progress(&self, survey: &Survey, new_objects: NewObjects, record: &mut ProjectRecord) -> Result<Kept> {
        if let Some(bytes) = self.lacks_room(survey, &new_objects)? {
            return Ok(Kept::NoRoom { bytes });
        }
        let path = self.store.unfinished_index_path(self.project)?;
        let published = new_objects.publish()?;
        self.store.keep_unfinished(self.locked, self.project, survey.tree(), self.now)?;
        if !self.store.secure(&published, self.now)? {
            // Stock git's collection deleted some of it: the next attempt reads everything again.
            record.set_progress(None, None);
            self.store.drop_progress(self.locked, self.project, self.now)?;
            return Ok(Kept::Done(Report::declined(WhySkipped::Deadline)));
        }
        let written = write_index_of(survey, &path, self.now);
        let mut progress = ProjectRecord::default();
        self.note_index(Some(&written), survey, &mut progress);
        record.set_progress(written.is_ok().then_some(progress), self.newest.map(|newest| newest.id));
        Ok(Kept::Done(Report::declined(WhySkipped::Deadline)))
    }

    /// Publishes the objects and moves the ref. Where another program moved it meanwhile, the checkpoint goes on top of
    /// that one, under another id. Returns `None` if objects that it relies upon are gone; then nothing was taken.
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
            if store.advance(locked, project, parent, id, now)? && self.stays(id, touched)? {
                // Objects of the checkpoint that was the newest are safe only as long as it is the parent.
                let is_moved = parent != commit.parent;
                let relied = is_moved.then(|| survey.ids().collect());
                let is_whole = match relied {
                    None => store.secure(&published[0], now)?,
                    Some(relied) => store.secure_all(&relied, now)?,
                };
                if !is_whole {
                    // If another program has moved the ref meanwhile, the next attempt goes on top of that.
                    store.retreat(locked, project, id, parent, now)?;
                    return Ok(None);
                }
                // What could not be dropped now is dropped next time; the checkpoint is there either way.
                let _ = self.drop_oldest(id, parent);
                return Ok(Some(id));
            }
            parent = store.newest(project)?;
            if parent.is_some_and(|parent| !store.is_readable(parent).unwrap_or(false)) {
                return Ok(None);
            }
            let again = store.new_objects(self.objects, false);
            let added = again.writer().add(ObjectKind::Commit, &NewCheckpoint { parent, ..commit }.encode())?;
            id = added.map_err(|collision| Error::damaged("make a checkpoint", collision))?;
            published.push(again.publish()?);
        }
        Err(moved_meanwhile("move the project's ref"))
    }

    /// Watches the ref for a while, where another program may be about to move it regardless of its value. Returns false
    /// if that happened and the checkpoint is not part of the history any more.
    fn stays(&self, id: CheckpointId, touched: Option<f64>) -> Result<bool> {
        // A first take has saved the record before: a process that changed it since has begun a take of its own.
        let is_touched = || self.store.record(self.project).last_touch() != touched;
        if !self.is_contended && (self.newest.is_some() || !is_touched()) {
            return Ok(true);
        }
        for _ in 0..WATCHED_MS / WATCH_PAUSE_MS {
            let newest = self.store.newest(self.project)?;
            if newest != Some(id) {
                return self.store.leads_to(newest, id);
            }
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(WATCH_PAUSE_MS));
        }
        Ok(true)
    }

    /// Returns the directories among what was left out that cannot be read and that the checkpoint before held.
    fn dropped_out(&self, skipped: &[Skipped]) -> Vec<Vec<u8>> {
        let unread = skipped.iter().filter(|one| one.why == SkipReason::Unreadable && one.extent != Extent::File);
        let was_held = |path: &&[u8]| {
            self.newest.is_some_and(|newest| matches!(self.objects.entry_at(newest.tree, path), Ok(Some(_))))
        };
        unread.map(|one| one.path.as_slice()).filter(was_held).map(<[u8]>::to_vec).collect()
    }

    /// Sets aside what this checkpoint takes; or says how much it is, where there is no room for it.
    fn lacks_room(&self, survey: &Survey, new_objects: &NewObjects) -> Result<Option<u64>> {
        // Without a limit it is noted all the same: there may be one for the next take.
        let bytes_max = self.bytes_max.unwrap_or(u64::MAX);
        let index = || index_bytes_max(&survey.manifest).saturating_sub(self.store.index_bytes(self.project));
        let index = if survey.writes_index() { index() } else { 0 };
        let bytes = new_objects.bytes_on_disk() + index + SMALL_FILES_BYTES;
        let room = self.store.reserve(bytes, new_objects.bytes_written(), bytes_max, self.collecting)?;
        Ok((room == Room::Lacking).then_some(bytes))
    }

    /// Drops what is above the limit. A safety checkpoint drops nothing: a user who goes back and forth among the
    /// checkpoints of a list finds all of them there until the next take.
    fn drop_oldest(&self, new: CheckpointId, parent: Option<CheckpointId>) -> Result<()> {
        let keep = self.keep_max.max(1);
        if self.restoring.is_some() {
            let add = || self.store.lineage(self.locked, self.project, parent, new, self.objects).map(drop);
            return if keep > WALK_MAX { add() } else { Ok(()) };
        }
        // A restore that was cut short needs both of its checkpoints to be finished or taken back.
        let intent = self.store.interrupted_restore(self.project)?;
        let end = match intent {
            None if keep > WALK_MAX => self.oldest_by_place(new, parent, keep)?,
            intent => self.oldest_by_walk(new, parent, keep, intent.as_ref())?,
        };
        end.map_or(Ok(()), |end| self.store.cut_before(self.locked, self.project, end, self.now))
    }

    /// The checkpoint that the history is to end at, if it is longer than that. Takes the same time however long it is.
    fn oldest_by_place(
        &self,
        new: CheckpointId,
        parent: Option<CheckpointId>,
        keep: u64,
    ) -> Result<Option<CheckpointId>> {
        let lineage = self.store.lineage(self.locked, self.project, parent, new, self.objects)?;
        if lineage.count() <= keep {
            return Ok(None);
        }
        let Some(end) = lineage.oldest_of(keep, self.objects) else {
            self.store.forget_lineage(self.project);
            return self.oldest_by_walk(new, parent, keep, None);
        };
        lineage.shrink(keep)?;
        Ok(Some(end))
    }

    /// The same, found by reading one checkpoint after the other, no more than are kept.
    fn oldest_by_walk(
        &self,
        new: CheckpointId,
        parent: Option<CheckpointId>,
        keep: u64,
        intent: Option<&Intent>,
    ) -> Result<Option<CheckpointId>> {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        let most = if intent.is_some() { usize::MAX } else { keep };
        let older = self.store.history_to(self.objects, parent, most)?;
        let is_needed = |id: CheckpointId| intent.is_some_and(|intent| [intent.target, intent.safety].contains(&id));
        let needed = older.iter().rposition(|checkpoint| is_needed(checkpoint.id)).map_or(0, |at| at + 2);
        let keep = keep.max(needed);
        if older.len() < keep {
            return Ok(None);
        }
        Ok(Some(older[..keep - 1].last().map_or(new, |oldest| oldest.id)))
    }

    /// Without the index the next take reads every file again, and that is all: not worth failing a checkpoint for.
    fn note_index(&self, written: Option<&Result<IndexSums>>, survey: &Survey, record: &mut ProjectRecord) {
        if let IndexAfter::Behind(paths) = &survey.index {
            record.set_index_behind(survey.tree(), paths);
        }
        if survey.reread_young && written.is_none() {
            record.set_index_reread(self.now);
        }
        if let Some(Ok(sums)) = written {
            let hidden = survey.manifest.hidden_rules(self.now.as_nanos());
            record.set_index_and_rules(sums.checksum.to_string(), survey.rules.to_string(), hidden);
            record.set_index_crc(sums.crc);
            record.set_index_boot(sys::boot_id().unwrap_or_default(), self.now);
        }
    }
}

fn write_index_of(survey: &Survey, path: &Path, now: Moment) -> Result<IndexSums> {
    let mut temp = fsx::temp_file(path.parent().expect("an index is in a directory"))?;
    let written = write_index(&survey.manifest, &survey.trees, now.as_nanos(), temp.as_file_mut());
    let sums = written.map_err(|error| Error::io("write", path, error))?;
    fsx::persist_large(temp.into_temp_path(), path)?;
    Ok(sums)
}
