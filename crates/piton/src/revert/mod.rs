//! Reverts one turn: removes what the turn changed from the current files, and keeps everything that came later.
//!
//! A revert is a merge of three states (see [`merge`](crate::merge)), whose result is published as a checkpoint and then
//! restored. So it is a restore in every other respect: planned first, with a safety checkpoint, continued or aborted
//! after a crash, and undone by an undo.
//!
//! - E1. On a conflict nothing is written, unless the conflicting paths are to be skipped.
//! - E2. A file is written only if it is still as it was when it was merged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;

use crate::diff::{CONTEXT, TEXT_BYTES_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::id::{CheckpointId, IdHasher, ObjectId, ObjectKind};
use crate::merge::{self, Conflict, Entry, EntryKind, Tree, TreeMerge};
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::restore::{Restore, RestoreOptions, RestoreReport, RestoreTo};
use crate::settings::Settings;
use crate::store::{Checkpoint, EntryMode, Objects, ProjectLock, Store, StoreLock, TreeChange};
use crate::survey::{SurveyEnd, SurveyInput, entry_mode, survey};
use crate::sys::Dir;
use crate::take::{Outcome, Request, take};
use crate::time::Moment;
use crate::turns::{self, Turn, TurnEnd};

mod in_the_way;
mod json;
mod publish;

pub use in_the_way::InTheWay;

/// Options of a revert.
#[derive(Debug, Clone, Copy, Default)]
pub struct RevertOptions<'a> {
    /// Revert only these paths and everything below them, relative to the project. Empty for all.
    pub paths: &'a [Vec<u8>],
    /// Revert only these hunks of a file, each named by a line of the file at the end of the turn, from 1 on: a changed
    /// line, or one of the three lines around it that a patch shows. Files that are not named here are reverted as a
    /// whole.
    pub hunks: &'a [(Vec<u8>, BTreeSet<usize>)],
    /// Revert the files without a conflict, and leave the others as they are.
    pub skip_conflicts: bool,
    /// Revert a turn whose end was not reported, together with edits of the user until the next prompt.
    pub with_own_edits: bool,
    /// Revert a turn during which other sessions worked, together with their changes in that time.
    pub across_sessions: bool,
    /// Only find out what would be done. Writes nothing.
    pub is_dry: bool,
}

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

/// Report of a revert.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RevertReport {
    /// True if nothing was to be done.
    pub is_dry: bool,
    /// Outcome of the revert.
    pub outcome: RevertOutcome,
    /// Paths that are changed, added or removed.
    pub paths: Vec<Vec<u8>>,
    /// Paths that cannot be reverted.
    pub conflicts: Vec<RevertConflict>,
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
    refuse_interrupted(store, project)?;
    let end = end_of(turn, options)?;
    let run = Run { store, project, turn, end, options, settings, now, progress };
    let preview = run.attempt(true)?;
    if options.is_dry || preview.outcome == RevertOutcome::Conflict || preview.paths.is_empty() {
        return Ok(preview);
    }
    run.save()?;
    run.attempt(false)
}

/// Input of a revert.
struct Run<'a> {
    store: &'a Store,
    project: &'a Project,
    turn: &'a Turn,
    /// Checkpoint in which the turn ended. `None` if it ends with the current files.
    end: Option<CheckpointId>,
    options: RevertOptions<'a>,
    settings: &'a Settings,
    now: Moment,
    progress: &'a Progress,
}

impl Run<'_> {
    /// Takes a checkpoint of the current files, unless the newest one holds them.
    fn save(&self) -> Result<()> {
        let request = Request { reason: format!("before {}", self.reason()), ..Request::default() };
        let settings = Settings { enabled: true, ..self.settings.clone() };
        match take(self.store, self.project, &request, &settings, self.now, self.progress)?.outcome {
            Outcome::Taken(_) | Outcome::Unchanged(_) => Ok(()),
            Outcome::Skipped(why) => Err(Error::new(ErrorKind::Invalid, "revert a turn")
                .because(format!("the current files could not be saved first: {}", crate::json::keyword(&why)))),
        }
    }

    /// Returns the reason of the checkpoints. It does not quote the prompt, whose text is never part of a commit.
    fn reason(&self) -> String {
        format!("revert of the turn from {}", self.turn.before.short())
    }

    /// Merges, and unless it is a dry run publishes and restores the result. The newest checkpoint holds the current
    /// files then.
    fn attempt(&self, is_dry: bool) -> Result<RevertReport> {
        let Self { store, project, turn, end, options, settings, now, progress } = *self;
        let (held, locked) = self.lock(is_dry)?;
        let objects = store.objects.open(&held)?;
        let history = store.histories.of(&objects, project.id())?;
        let find = |id: CheckpointId| {
            let found = history.checkpoints.iter().find(|checkpoint| checkpoint.id == id);
            found.ok_or_else(|| gone(id))
        };
        self.check_overlapping(&history.checkpoints)?;
        let start = find(turn.before)?;
        let newest = history.checkpoints.first().ok_or_else(|| gone(turn.before))?;
        let current = if is_dry {
            let record = store.records.get(project.id());
            let input = SurveyInput::new(store, &objects, project, &record, Some(newest), settings, progress);
            current_files(store, &input)?
        } else {
            State::Tree(newest.tree)
        };
        let base = end.map(find).transpose()?.map_or_else(|| current.clone(), |end| State::Tree(end.tree));
        let mut contents = Contents { objects: &objects, project, current: current.by_id(), made: HashMap::new() };
        let trees = Trees::read(&base, &current, &State::Tree(start.tree), &mut contents, options)?;
        let merge = merge::merge_trees(&trees.base, &trees.ours, &trees.theirs, &mut |id| contents.read(id))?;
        let since = end.unwrap_or(turn.before);
        let conflicts = in_the_way::explain(&merge.conflicts, since, &history.checkpoints, &current, &objects)?;
        let outcome = match (conflicts.is_empty(), merge.changes.is_empty()) {
            (false, _) if !options.skip_conflicts => RevertOutcome::Conflict,
            (false, _) => RevertOutcome::Partly,
            (true, true) => RevertOutcome::NothingToDo,
            (true, false) => RevertOutcome::Reverted,
        };
        let paths: Vec<_> = merge.changes.iter().map(|change| change.path.clone()).collect();
        let report = RevertReport { is_dry: options.is_dry, outcome, paths, conflicts, restore: None };
        let Some(locked) = locked.filter(|_| outcome != RevertOutcome::Conflict && !report.paths.is_empty()) else {
            return Ok(report);
        };
        let publish = publish::Publish { store, project, locked: &locked, objects: &objects, newest, start, now };
        let target = publish.run(&merge.changes, &contents.made, &self.reason(), settings)?;
        let parent = newest.id;
        drop((locked, objects, held));
        let restored = self.restore(target, &merge);
        if restored.is_err() {
            // Best effort: the checkpoint of a revert that did not happen only takes a row in the list.
            let _ = publish::withdraw(store, project, target, parent, now);
        }
        let restored = restored?;
        let outcome = if restored.left.is_empty() { outcome } else { RevertOutcome::Partly };
        Ok(RevertReport { outcome, restore: Some(restored), ..report })
    }

    /// Fails with `NeedsConsent` if other sessions worked during the turn.
    fn check_overlapping(&self, checkpoints: &[Checkpoint]) -> Result<()> {
        let overlapping = turns::overlapping(self.turn, self.end, checkpoints);
        if self.options.across_sessions || overlapping.is_empty() {
            return Ok(());
        }
        let label = |other: &Turn| other.record.agent.clone().unwrap_or_else(|| "another session".to_owned());
        let names: BTreeSet<String> = overlapping.iter().map(label).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" and of ");
        Err(Error::new(ErrorKind::NeedsConsent, "revert a turn")
            .because(format!("work of {names} at the same time cannot be told apart from it"))
            .with_hint(Hint::RevertAcrossSessions))
    }

    fn lock(&self, is_dry: bool) -> Result<(StoreLock, Option<ProjectLock>)> {
        let (store, progress) = (self.store, Some(self.progress));
        let held = store.locks.share_until(progress)?;
        let locked =
            if is_dry { None } else { Some(store.locks.lock_project_until(&held, self.project.id(), progress)?) };
        Ok((held, locked))
    }

    /// Restores the published result of a merge, if the files are still as they were merged.
    fn restore(&self, target: CheckpointId, merge: &TreeMerge) -> Result<RestoreReport> {
        let Self { store, project, settings, now, progress, .. } = *self;
        let paths: Vec<Vec<u8>> = merge.changes.iter().map(|change| change.path.clone()).collect();
        let options = RestoreOptions { paths: &paths, across_sessions: true, ..RestoreOptions::default() };
        let name = target.to_string();
        let restore = Restore::prepare(store, project, RestoreTo::Named(&name), options, settings, now, progress)?;
        let plan = restore.plan();
        let written = plan.writes.iter().map(|write| (write.path.as_slice(), write.over.as_ref().map(|seen| seen.id)));
        let removed = plan.removes.iter().map(|remove| (remove.path.as_slice(), Some(remove.seen.id)));
        let modes = plan.modes.iter().filter_map(|set| Some((set.path.as_slice(), Some(set.seen.as_ref()?.id))));
        let merged: HashMap<&[u8], Option<ObjectId>> =
            merge.changes.iter().map(|change| (change.path.as_slice(), change.old.map(|old| old.id))).collect();
        if !written.chain(removed).chain(modes).all(|(path, id)| merged.get(path) == Some(&id)) {
            return Err(changed_meanwhile());
        }
        restore.apply_watched(progress)
    }
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
fn end_of(turn: &Turn, options: RevertOptions<'_>) -> Result<Option<CheckpointId>> {
    match turn.end {
        TurnEnd::Reported(end) => Ok(Some(end)),
        TurnEnd::OpenEnded(end) if options.with_own_edits => Ok(Some(end)),
        TurnEnd::Open => Ok(None),
        TurnEnd::OpenEnded(_) => Err(Error::new(ErrorKind::NeedsConsent, "revert a turn")
            .because("its end was not reported, so your own edits before the next prompt cannot be told apart")
            .with_hint(Hint::RevertWithOwnEdits)),
        TurnEnd::Dropped => Err(Error::new(ErrorKind::NotFound, "revert a turn")
            .because("the checkpoint in which it ended no longer exists")),
    }
}

type Files = BTreeMap<Vec<u8>, (EntryMode, ObjectId)>;

/// Files of one state.
#[derive(Clone)]
enum State {
    /// A tree in the store.
    Tree(ObjectId),
    /// Files that are not in the store, or not all of them.
    Files(Files),
}

impl State {
    fn by_id(&self) -> HashMap<ObjectId, Vec<u8>> {
        match self {
            Self::Tree(_) => HashMap::new(),
            Self::Files(files) => files.iter().map(|(path, (_, id))| (*id, path.clone())).collect(),
        }
    }

    fn files(&self, objects: &Objects) -> Result<Files> {
        match self {
            Self::Files(files) => Ok(files.clone()),
            Self::Tree(tree) => {
                let all = objects.compare_trees(None, Some(*tree))?;
                Ok(all.into_iter().filter_map(|change| Some((change.path, change.new?))).collect())
            }
        }
    }

    /// Returns the entry at a path.
    fn entry(&self, path: &[u8], objects: &Objects) -> Result<Option<(EntryMode, ObjectId)>> {
        match self {
            Self::Files(files) => Ok(files.get(path).copied()),
            Self::Tree(tree) => Ok(objects.entry_at(*tree, path)?.filter(|(mode, _)| *mode != EntryMode::Dir)),
        }
    }

    /// Returns the differences to another state.
    fn changes_to(&self, new: &Self, objects: &Objects) -> Result<Vec<TreeChange>> {
        if let (Self::Tree(old), Self::Tree(new)) = (self, new) {
            return objects.compare_trees(Some(*old), Some(*new));
        }
        let (old, new) = (self.files(objects)?, new.files(objects)?);
        let paths: BTreeSet<&Vec<u8>> = old.keys().chain(new.keys()).collect();
        let change = |path: &Vec<u8>| {
            let (old, new) = (old.get(path).copied(), new.get(path).copied());
            (old != new).then(|| TreeChange { path: path.clone(), old, new })
        };
        Ok(paths.into_iter().filter_map(change).collect())
    }
}

/// Returns the current files without storing them.
fn current_files(store: &Store, input: &SurveyInput<'_>) -> Result<State> {
    let new_objects = store.objects.new_objects(input.objects, true);
    let SurveyEnd::Done(survey) = survey(input, &new_objects)? else {
        return Err(Error::new(ErrorKind::Invalid, "revert a turn").because("the current files could not all be read"));
    };
    let mut files = Files::new();
    for dir in &survey.manifest.dirs {
        let known = dir.files.iter().filter_map(|file| Some((dir.path_of(file), (entry_mode(file), file.id?))));
        files.extend(known);
    }
    Ok(State::Files(files))
}

/// Contents of the three states, and those that were made from them.
struct Contents<'a> {
    objects: &'a Objects,
    project: &'a Project,
    /// Paths of current files whose contents may not be in the store.
    current: HashMap<ObjectId, Vec<u8>>,
    /// Contents with only some of the turn's hunks, by id.
    made: HashMap<ObjectId, Vec<u8>>,
}

impl Contents<'_> {
    fn read(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        if let Some(bytes) = self.made.get(&id) {
            return Ok(Some(bytes.clone()));
        }
        if self.objects.has(id) {
            let is_large = self.objects.blob_size(id)? > TEXT_BYTES_MAX as u64;
            return if is_large { Ok(None) } else { self.objects.read(id, ObjectKind::Blob).map(Some) };
        }
        let path = self.current.get(&id).ok_or_else(changed_meanwhile)?;
        let bytes = self.read_current(path).map_err(|_| changed_meanwhile())?;
        if bytes.len() > TEXT_BYTES_MAX {
            return Ok(None);
        }
        if IdHasher::of(ObjectKind::Blob, &bytes) == Ok(id) { Ok(Some(bytes)) } else { Err(changed_meanwhile()) }
    }

    /// Reads a current file, up to one byte more than a text may have.
    fn read_current(&self, path: &[u8]) -> std::io::Result<Vec<u8>> {
        let root = Dir::open(self.project.dir())?;
        let (parent, name) = relpath::split(path);
        let name = std::ffi::CString::new(name)?;
        let dir = root.open_dir(parent)?;
        if let Ok(target) = dir.read_link(&name) {
            return Ok(target);
        }
        let mut bytes = Vec::new();
        root.open_file(path)?.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// The three trees of a merge, at the paths at which they differ.
struct Trees {
    base: Tree,
    ours: Tree,
    theirs: Tree,
}

impl Trees {
    fn read(
        base: &State,
        current: &State,
        start: &State,
        contents: &mut Contents<'_>,
        options: RevertOptions<'_>,
    ) -> Result<Self> {
        let is_meant = |path: &[u8]| {
            options.paths.is_empty() || options.paths.iter().any(|wanted| relpath::is_within(path, wanted))
        };
        let mut trees = Self { base: Tree::new(), ours: Tree::new(), theirs: Tree::new() };
        let put = |tree: &mut Tree, path: &[u8], entry: Option<(EntryMode, ObjectId)>| {
            tree.extend(entry.and_then(entry_of).map(|entry| (path.to_vec(), entry)));
        };
        let of_turn = base.changes_to(start, contents.objects)?;
        let of_turn: BTreeMap<&[u8], &TreeChange> = of_turn
            .iter()
            .filter(|change| is_meant(&change.path))
            .map(|change| (change.path.as_slice(), change))
            .collect();
        let later = base.changes_to(current, contents.objects)?;
        let later: BTreeMap<&[u8], &TreeChange> = later.iter().map(|change| (change.path.as_slice(), change)).collect();
        for path in of_turn.keys().chain(later.keys()).copied().collect::<BTreeSet<&[u8]>>() {
            let (turned, changed) = (of_turn.get(path), later.get(path));
            let old = turned.or(changed).and_then(|change| change.old);
            put(&mut trees.base, path, old);
            put(&mut trees.ours, path, changed.map_or(old, |change| change.new));
            put(&mut trees.theirs, path, turned.map_or(old, |change| change.new));
        }
        for (path, lines) in options.hunks {
            trees.select_hunks(path, lines, contents)?;
        }
        Ok(trees)
    }

    /// Limits the change of one file to the hunks at these lines.
    fn select_hunks(&mut self, path: &[u8], lines: &BTreeSet<usize>, contents: &mut Contents<'_>) -> Result<()> {
        let invalid = |why: String| {
            let shown = String::from_utf8_lossy(path);
            Error::new(ErrorKind::Invalid, format!("revert hunks of {shown}")).because(why)
        };
        let no_text = || invalid("it is not text, or too large".to_owned());
        let (Some(end), Some(start)) = (self.base.get(path).copied(), self.theirs.get(path).copied()) else {
            return Err(invalid("the turn did not change a file of this name".to_owned()));
        };
        let (old, new) = (contents.read(start.id)?, contents.read(end.id)?);
        let (old, new) = old.zip(new).ok_or_else(no_text)?;
        let hunks = merge::hunks(&old, &new).ok_or_else(no_text)?;
        let mut numbers = BTreeSet::new();
        for line in lines {
            let is_at = |hunk: &&merge::TextHunk| hunk.new.start < line + CONTEXT && *line <= hunk.new.end + CONTEXT;
            let hunk = hunks.iter().find(is_at);
            numbers.insert(hunk.ok_or_else(|| invalid(format!("the turn changed nothing at line {line}")))?.number);
        }
        let partly = merge::revert_hunks(&old, &new, &numbers).ok_or_else(no_text)?;
        let id =
            IdHasher::of(ObjectKind::Blob, &partly).map_err(|collision| Error::damaged("revert hunks", collision))?;
        contents.made.insert(id, partly);
        self.theirs.insert(path.to_vec(), Entry { kind: end.kind, id });
        Ok(())
    }
}

fn entry_of((mode, id): (EntryMode, ObjectId)) -> Option<Entry> {
    let kind = match mode {
        EntryMode::File => EntryKind::File,
        EntryMode::Executable => EntryKind::Executable,
        EntryMode::Link => EntryKind::Link,
        EntryMode::Dir | EntryMode::Commit => return None,
    };
    Some(Entry { kind, id })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::merge::PathChange;
    use crate::{History, Origin};

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
        let (turn, options) = (&turn, RevertOptions::default());
        let (store, project) = (&store, &project);
        let run = Run { store, project, turn, end: None, options, settings: &settings, now: NOW, progress: &progress };
        let merged = Entry { kind: EntryKind::File, id: ObjectId::from_bytes([7; 20]) };
        let change = PathChange { path: b"file".to_vec(), old: Some(merged), new: None, renamed_from: None };
        let merge = TreeMerge { changes: vec![change], conflicts: Vec::new() };
        assert_eq!(run.restore(turn.before, &merge).expect_err("it changed").kind(), ErrorKind::Busy);
        assert_eq!(fs::read_to_string(dir.join("file")).expect("a file"), "edited since\n");
    }
}
