//! Reverts one turn: removes what the turn changed from the current files, and keeps everything that came later.
//!
//! A revert is a merge of three states (see [`merge`](crate::merge)), whose result is published as a checkpoint and then
//! restored. So it is a restore in every other respect: planned first, with a safety checkpoint, continued or aborted
//! after a crash, and undone by an undo.
//!
//! - E1. On a conflict nothing is written, unless the conflicting paths are to be skipped.
//! - E2. A file is written only if it is still as it was when it was merged.

use std::collections::{BTreeSet, HashMap};

use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::history::History;
use crate::id::{CheckpointId, ObjectId};
use crate::merge::{Conflict, PathChange};
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::restore::{Restore, RestoreOptions, RestoreReport, RestoreTo};
use crate::settings::Settings;
use crate::store::{Checkpoint, Objects, Origin, ProjectLock, Store, StoreLock};
use crate::survey::SurveyInput;
use crate::take::{Outcome, Request, take};
use crate::time::Moment;
use crate::turns::{self, Turn, TurnEnd};

mod in_the_way;
mod json;
mod options;
mod plan;
mod publish;
mod since;
mod states;
mod trees;

pub use in_the_way::InTheWay;
pub use options::RevertOptions;
use plan::{Merged, Step, merge_steps};
pub(crate) use publish::{Publish, withdraw};
use states::{State, StateContents, current_files};

/// Outcome of a revert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RevertOutcome {
    /// The turn's changes are removed; of a dry run: they can be.
    #[serde(rename = "restored")]
    Reverted,
    /// Some paths were left as they are.
    Partly,
    /// The current files contain none of the turn's changes.
    NothingToDo,
    /// Later changes are in the way. Nothing was written.
    Conflict,
}

/// Turns that a revert takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RevertScope {
    /// One turn.
    Turn,
    /// Every turn since a checkpoint.
    Since,
}

/// Report of a revert.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RevertReport {
    /// True for a dry run.
    pub is_dry: bool,
    /// Outcome of the revert.
    pub outcome: RevertOutcome,
    /// Paths that are changed, added or removed.
    pub paths: Vec<Vec<u8>>,
    /// Paths that cannot be reverted.
    pub conflicts: Vec<RevertConflict>,
    /// Turns that are reverted.
    pub scope: RevertScope,
    /// Checkpoint from which the turn began, or since which turns were reverted.
    pub since: CheckpointId,
    /// Report of the restore that changed the files. `None` if no file was touched.
    pub restore: Option<RestoreReport>,
}

/// Paths that cannot be reverted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RevertConflict {
    /// Paths and cause. The base is the end of the turn, *ours* the current state, *theirs* the start of the turn.
    pub conflict: Conflict,
    /// Later turns and edits that changed these paths, oldest first.
    pub in_the_way: Vec<InTheWay>,
}

/// Reverts one turn of [`History::turns`](crate::History::turns).
///
/// Fails with `NeedsConsent` if the end of the turn was not reported, or if another session worked during the turn,
/// unless the options allow for that; with `NotFound` if a checkpoint of the turn no longer exists; and with `Busy` if
/// files change at the same time. Nothing was touched then.
pub fn revert(
    store: &Store,
    project: &Project,
    turn: &Turn,
    options: RevertOptions<'_>,
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<RevertReport> {
    let end = end_of(turn)?;
    let work = RevertedWork { stretches: vec![Stretch { start: turn.before, end }], subject: Subject::Turn(turn) };
    Run { store, project, work, options, settings, now, progress }.run()
}

/// Reverts every turn since a checkpoint and keeps the edits of the user, those between the turns included. The
/// checkpoint is named as for a restore.
///
/// Fails like [`revert`]. Also fails with `NeedsConsent` if turns of other sessions would be reverted, unless the
/// options allow for that; all sessions count as others except `options.session` or, without it, the session whose turn
/// began first. `options.hunks` is ignored.
pub fn restore_keeping_edits(
    store: &Store,
    project: &Project,
    name: &str,
    options: RevertOptions<'_>,
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<RevertReport> {
    let options = options.hunks(&[]);
    let history = History::of(store, project)?;
    let target = history.find(name)?.id;
    let stretches = since::stretches(history.checkpoints(), target, options)?;
    drop(history);
    let work = RevertedWork { stretches, subject: Subject::Since(target) };
    Run { store, project, work, options, settings, now, progress }.run()
}

/// A stretch of history that is taken back.
struct Stretch {
    start: CheckpointId,
    /// Checkpoint in which it ended. `None` if it ends with the current files.
    end: Option<CheckpointId>,
}

/// Work that is taken back.
struct RevertedWork<'a> {
    /// The newest first. They do not overlap.
    stretches: Vec<Stretch>,
    subject: Subject<'a>,
}

enum Subject<'a> {
    Turn(&'a Turn),
    Since(CheckpointId),
}

/// Input of a revert.
struct Run<'a> {
    store: &'a Store,
    project: &'a Project,
    work: RevertedWork<'a>,
    options: RevertOptions<'a>,
    settings: &'a Settings,
    now: Moment,
    progress: &'a Progress,
}

impl Run<'_> {
    fn run(&self) -> Result<RevertReport> {
        refuse_interrupted(self.store, self.project)?;
        let preview = self.attempt(true)?;
        if self.options.is_dry || preview.outcome == RevertOutcome::Conflict || preview.paths.is_empty() {
            return Ok(preview);
        }
        self.save()?;
        self.attempt(false)
    }

    /// Takes a checkpoint of the current files, unless the newest one holds them.
    fn save(&self) -> Result<()> {
        let request = Request { reason: format!("before {}", self.reason()), ..Request::default() };
        // No checkpoint may be dropped while the revert is about to need it. The next take enforces the limits.
        let (max_snapshots, max_total_size_mb) = (u64::MAX.into(), 0);
        let settings = Settings { enabled: true, max_snapshots, max_total_size_mb, ..self.settings.clone() };
        match take(self.store, self.project, &request, &settings, self.now, self.progress)?.outcome {
            Outcome::Taken(_) | Outcome::Unchanged(_) => Ok(()),
            Outcome::Skipped(why) => Err(Error::new(ErrorKind::Invalid, "revert a turn")
                .because(format!("the current files could not be saved first: {why}"))),
        }
    }

    /// Returns the reason of the checkpoints. It does not quote the prompt, whose text is never part of a commit.
    fn reason(&self) -> String {
        match self.work.subject {
            Subject::Turn(turn) => format!("revert of the turn from {}", turn.before.short()),
            Subject::Since(target) => format!("restore to {} that keeps edits", target.short()),
        }
    }

    fn since(&self) -> CheckpointId {
        match self.work.subject {
            Subject::Turn(turn) => turn.before,
            Subject::Since(target) => target,
        }
    }

    fn scope(&self) -> RevertScope {
        match self.work.subject {
            Subject::Turn(_) => RevertScope::Turn,
            Subject::Since(_) => RevertScope::Since,
        }
    }

    /// Returns the session whose work is reverted.
    fn origin(&self, start: &Checkpoint) -> Origin {
        let origin = match self.work.subject {
            Subject::Turn(turn) => turn.record.origin(),
            Subject::Since(_) => start.newest_origin(),
        };
        // No turn began from the result.
        Origin { turn: None, ..origin }
    }

    /// Merges, and unless it is a dry run publishes and restores the result. The newest checkpoint holds the current
    /// files then.
    fn attempt(&self, is_dry: bool) -> Result<RevertReport> {
        let Self { store, project, options, settings, now, progress, .. } = *self;
        let (held, locked) = self.lock(is_dry)?;
        let objects = store.objects.open(&held)?;
        let history = store.histories.of(&objects, project.id())?;
        let find = |id: CheckpointId| {
            let found = history.checkpoints.iter().find(|checkpoint| checkpoint.id == id);
            found.ok_or_else(|| gone(id))
        };
        self.check_open_ended(&history.checkpoints, &objects)?;
        self.check_overlapping(&history.checkpoints)?;
        let newest = history.checkpoints.first().ok_or_else(|| gone(self.since()))?;
        let start = find(self.work.stretches.last().map_or(self.since(), |oldest| oldest.start))?;
        let current = if is_dry {
            let record = store.records.get(project.id());
            let input = SurveyInput::new(store, &objects, project, &record, Some(newest), settings, progress);
            current_files(store, &input)?
        } else {
            State::Tree(newest.tree)
        };
        let by_id = current.by_id();
        let mut contents =
            StateContents { objects: &objects, project, now: &current, current: by_id, made: HashMap::new() };
        let steps: Vec<Step> = self.work.stretches.iter().map(|stretch| step(stretch, &find)).collect::<Result<_>>()?;
        let Merged { changes, conflicts } = merge_steps(&steps, &mut contents, options)?;
        let explain = in_the_way::Explain { checkpoints: &history.checkpoints, current: &current, objects: &objects };
        let is_single = self.scope() == RevertScope::Turn;
        let conflicts = conflicts.into_iter().map(|(step, conflict)| {
            if is_single { explain.run(conflict, steps[step].since) } else { Ok(in_the_way::of_user(conflict)) }
        });
        let conflicts: Vec<RevertConflict> = conflicts.collect::<Result<_>>()?;
        let outcome = match (conflicts.is_empty(), changes.is_empty()) {
            (false, _) if !options.skip_conflicts => RevertOutcome::Conflict,
            (false, _) => RevertOutcome::Partly,
            (true, true) => RevertOutcome::NothingToDo,
            (true, false) => RevertOutcome::Reverted,
        };
        let paths: Vec<_> = changes.iter().map(|change| change.path.clone()).collect();
        let (is_dry, scope, since) = (options.is_dry, self.scope(), self.since());
        let report = RevertReport { is_dry, outcome, paths, conflicts, scope, since, restore: None };
        let Some(locked) = locked.filter(|_| outcome != RevertOutcome::Conflict && !report.paths.is_empty()) else {
            return Ok(report);
        };
        let origin = self.origin(start);
        let publish = Publish { store, project, locked: &locked, objects: &objects, newest, start, origin, now };
        let target = publish.run(&changes, &contents.made, &self.reason(), settings)?;
        let parent = newest.id;
        drop((locked, objects, held));
        let restored = self.restore(target, &changes);
        if restored.is_err() {
            // Best effort: the checkpoint of a revert that did not happen only takes a row in the list.
            let _ = withdraw(store, project, target, parent, now);
        }
        let restored = restored?;
        let outcome = if restored.left.is_empty() { outcome } else { RevertOutcome::Partly };
        Ok(RevertReport { outcome, restore: Some(restored), ..report })
    }

    /// Fails with `NeedsConsent` if other sessions worked during the turn.
    fn check_overlapping(&self, checkpoints: &[Checkpoint]) -> Result<()> {
        let (Subject::Turn(turn), [stretch]) = (&self.work.subject, &*self.work.stretches) else { return Ok(()) };
        let overlapping = turns::overlapping(turn, stretch.end, checkpoints);
        if self.options.across_sessions || overlapping.is_empty() {
            return Ok(());
        }
        Err(of_others(overlapping.iter(), "at the same time cannot be told apart from it"))
    }

    /// Fails with `NeedsConsent` if the end of the turn was not reported, and names the files that may hold edits of the
    /// user.
    fn check_open_ended(&self, checkpoints: &[Checkpoint], objects: &Objects) -> Result<()> {
        let Subject::Turn(Turn { before, end: TurnEnd::OpenEnded(end), .. }) = self.work.subject else {
            return Ok(());
        };
        let tree = |id: &CheckpointId| checkpoints.iter().find(|one| one.id == *id).map(|one| one.tree);
        let mut changes = objects.compare_trees(tree(before), tree(end))?;
        let paths = self.options.paths;
        changes
            .retain(|change| paths.is_empty() || paths.iter().any(|wanted| relpath::is_within(&change.path, wanted)));
        if self.options.with_own_edits || changes.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = changes.iter().take(NAMED_MAX).map(|one| String::from_utf8_lossy(&one.path)).collect();
        let more = match changes.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(open_ended(&format!(" in {}{more}", names.join(", "))))
    }

    fn lock(&self, is_dry: bool) -> Result<(StoreLock, Option<ProjectLock>)> {
        let (store, progress) = (self.store, Some(self.progress));
        let held = store.locks.share_until(progress)?;
        let locked =
            if is_dry { None } else { Some(store.locks.lock_project_until(&held, self.project.id(), progress)?) };
        Ok((held, locked))
    }

    /// Restores the published result of a merge, if the files are still as they were merged.
    fn restore(&self, target: CheckpointId, changes: &[PathChange]) -> Result<RestoreReport> {
        let Self { store, project, settings, now, progress, .. } = *self;
        let paths: Vec<Vec<u8>> = changes.iter().map(|change| change.path.clone()).collect();
        let options = RestoreOptions { paths: &paths, across_sessions: true, ..RestoreOptions::default() };
        let name = target.to_string();
        let restore = Restore::prepare(store, project, RestoreTo::Named(&name), options, settings, now, progress)?;
        let plan = restore.plan();
        let written = plan.writes.iter().map(|write| (write.path.as_slice(), write.over.as_ref().map(|seen| seen.id)));
        let removed = plan.removes.iter().map(|remove| (remove.path.as_slice(), Some(remove.seen.id)));
        let modes = plan.modes.iter().filter_map(|set| Some((set.path.as_slice(), Some(set.seen.as_ref()?.id))));
        let merged: HashMap<&[u8], Option<ObjectId>> =
            changes.iter().map(|change| (change.path.as_slice(), change.old.map(|old| old.id))).collect();
        if !written.chain(removed).chain(modes).all(|(path, id)| merged.get(path) == Some(&id)) {
            return Err(changed_meanwhile());
        }
        restore.apply_watched(progress)
    }
}

fn step<'c>(stretch: &Stretch, find: &dyn Fn(CheckpointId) -> Result<&'c Checkpoint>) -> Result<Step> {
    let tree = |id: CheckpointId| Ok(State::Tree(find(id)?.tree));
    let end = stretch.end.map(tree).transpose()?;
    Ok(Step { start: tree(stretch.start)?, end, since: stretch.end.unwrap_or(stretch.start) })
}

/// Returns the error for work of other sessions that would be reverted, too.
fn of_others<'t>(others: impl Iterator<Item = &'t Turn>, why: &str) -> Error {
    let label = |other: &Turn| other.record.agent.clone().unwrap_or_else(|| "another session".to_owned());
    let names: BTreeSet<String> = others.map(label).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" and of ");
    Error::new(ErrorKind::NeedsConsent, "revert a turn")
        .because(format!("work of {names} {why}"))
        .with_hint(Hint::RevertAcrossSessions)
}

/// Maximum number of paths named in an error.
const NAMED_MAX: usize = 8;

/// Returns the error for a turn whose end was not reported. `place` names the files.
fn open_ended(place: &str) -> Error {
    Error::new(ErrorKind::NeedsConsent, "revert a turn")
        .because(format!(
            "its end was not reported, so your own edits before the next prompt cannot be told apart{place}"
        ))
        .with_hint(Hint::RevertWithOwnEdits)
}

fn changed_meanwhile() -> Error {
    Error::new(ErrorKind::Busy, "revert a turn")
        .because("files changed at the same time")
        .with_hint("nothing was touched; try again")
}

fn gone(id: CheckpointId) -> Error {
    Error::new(ErrorKind::NotFound, "revert a turn").because(format!("its checkpoint {} no longer exists", id.short()))
}

/// Fails with `Invalid` if a restore was interrupted.
fn refuse_interrupted(store: &Store, project: &Project) -> Result<()> {
    if store.intents.get(project.id())?.is_none() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "revert a turn")
        .because("an earlier restore was cut short")
        .with_hint(Hint::FinishRestore))
}

/// Returns the checkpoint in which a turn ended, or `None` if it is still open and ends with the current files.
fn end_of(turn: &Turn) -> Result<Option<CheckpointId>> {
    match turn.end {
        TurnEnd::Reported(end) => Ok(Some(end)),
        TurnEnd::OpenEnded(end) => Ok(Some(end)),
        TurnEnd::Open => Ok(None),
        TurnEnd::Dropped => Err(Error::new(ErrorKind::NotFound, "revert a turn")
            .because("the checkpoint in which it ended no longer exists")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Origin;
    use crate::merge::{Entry, EntryKind};

    const NOW: Moment = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };

    /// E2.
    #[test]
    fn a_file_that_changed_since_the_merge_is_not_touched() {
        let temp = tempfile::tempdir().expect("a directory");
        let (base, dir) = (temp.path().join("base"), temp.path().join("code"));
        fs::create_dir(&dir).expect("a directory");
        let store = Store::open_or_create(&base, NOW).expect("a store");
        let project = Project::at(&dir, None).expect("a project");
        let (settings, progress) = (Settings { enabled: true, ..Settings::default() }, Progress::default());
        fs::write(dir.join("file"), "start\n").expect("a file");
        let name = |text: &str| Some(text.to_owned());
        let origin = Origin { agent: None, session: name("s"), turn: name("t") };
        let request = Request { reason: "prompt".to_owned(), origin, ..Request::default() };
        take(&store, &project, &request, &settings, NOW, &progress).expect("a take");
        fs::write(dir.join("file"), "edited since\n").expect("a file");
        let turn = History::of(&store, &project).expect("a history").turns().remove(0);
        let work = RevertedWork { stretches: Vec::new(), subject: Subject::Turn(&turn) };
        let (store, project, options) = (&store, &project, RevertOptions::default());
        let run = Run { store, project, work, options, settings: &settings, now: NOW, progress: &progress };
        let merged = Entry { kind: EntryKind::File, id: ObjectId::from_bytes([7; 20]) };
        let change = PathChange { path: b"file".to_vec(), old: Some(merged), new: None, renamed_from: None };
        assert_eq!(run.restore(turn.before, &[change]).expect_err("it changed").kind(), ErrorKind::Busy);
        assert_eq!(fs::read_to_string(dir.join("file")).expect("a file"), "edited since\n");
    }
}
