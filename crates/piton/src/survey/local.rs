//! The local files of a project, read and with ids: input of every checkpoint and of a restore. Has an index of its own,
//! trusted under the same rules as that of the project.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::databases::settle_databases;
use super::reading::{Reading, apply};
use super::trees::build_trees;
use super::{Survey, forget_missing, unknown_files};
use crate::error::{Error, Result};
use crate::id::{CheckpointId, ObjectId};
use crate::local_report::LocalReport;
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::{KeepIgnored, Settings};
use crate::skipped::SkipReason;
use crate::store::{Facts, IndexKind, LocalState, NewObjects, Objects, ProjectRecord, Store};
use crate::sys::Kind;
use crate::threads;
use crate::time::Moment;
use crate::worktree::{
    CacheNote, CacheUpdate, LocalLimits, LocalScan, Manifest, NewestState, StatCache, has_local_candidates, is_settled,
    scan_local, write_index,
};

/// Keys of the note besides those of the cache.
const STATE: &str = "state";
const TREE: &str = "tree";

/// Input of a survey of local files.
pub(crate) struct LocalInput<'a> {
    pub(crate) store: &'a Store,
    pub(crate) objects: &'a Objects,
    pub(crate) project: &'a Project,
    pub(crate) record: &'a ProjectRecord,
    pub(crate) newest: Option<CheckpointId>,
    pub(crate) settings: &'a Settings,
    /// Time at which the survey of the project began.
    pub(crate) now: Moment,
    /// True to leave out files that changed since `now`.
    pub(crate) is_late: bool,
    /// True to hash files and store nothing.
    pub(crate) is_dry: bool,
    pub(crate) progress: &'a Progress,
}

/// The local files of a project.
pub(crate) struct LocalSurvey {
    pub(crate) manifest: Manifest,
    trees: Vec<Option<ObjectId>>,
    cache: CacheUpdate,
    note: CacheNote,
    pub(crate) state: LocalState,
    /// Tree of the state.
    pub(crate) id: ObjectId,
    /// State of the newest checkpoint.
    pub(crate) before: Option<ObjectId>,
    pub(crate) new_objects: NewObjects,
    pub(crate) report: LocalReport,
}

impl LocalSurvey {
    /// Returns true if there are no local files.
    pub(crate) fn is_empty(&self) -> bool {
        self.manifest.files() == 0
    }

    /// Returns true if the newest checkpoint has the same local files.
    pub(crate) fn is_unchanged(&self) -> bool {
        if self.is_empty() { self.before.is_none() } else { self.before == Some(self.id) }
    }

    /// Writes the index, and returns the note about it and the state. A failure only costs time: all files are read again.
    pub(crate) fn write_index(&self, store: &Store, project: &Project, now: Moment) -> Option<Map<String, Value>> {
        if !self.cache.writes_index() && !self.cache.changes_note() {
            return None;
        }
        let written = self.cache.writes_index().then(|| {
            let write = |out: &mut _| write_index(&self.manifest, &self.trees, now.as_nanos(), out);
            store.indexes.replace(project.id(), IndexKind::Local, write).ok()
        });
        let mut note = self.note.clone();
        self.cache.apply(&mut note, written.flatten(), &self.manifest, self.state.tree, now);
        let mut keys = Map::new();
        note.write(&mut keys);
        keys.insert(STATE.to_owned(), self.id.to_string().into());
        keys.insert(TREE.to_owned(), self.state.tree.to_string().into());
        Some(keys)
    }
}

fn limits(settings: &Settings) -> Option<LocalLimits> {
    let limits = LocalLimits {
        file_bytes_max: settings.local_file_bytes_max(),
        total_bytes_max: settings.local_bytes_max(),
        with_secrets: settings.keep_ignored == KeepIgnored::All,
    };
    let is_off =
        settings.keep_ignored == KeepIgnored::None || limits.file_bytes_max == 0 || limits.total_bytes_max == 0;
    (!is_off).then_some(limits)
}

/// Surveys the local files of a project, given the survey of the project. Returns `None` if none are to be saved, or if
/// there are none and the newest checkpoint has none.
pub(crate) fn survey_local(input: &LocalInput<'_>, survey: &Survey) -> Result<Option<LocalSurvey>> {
    let LocalInput { store, project, objects, settings, now, progress, .. } = *input;
    let Some(limits) = limits(settings) else { return Ok(None) };
    let before = input.newest.map(|newest| store.locals.get(project.id(), newest)).transpose()?.flatten();
    if before.is_none() && !has_local_candidates(&survey.skipped) {
        return Ok(None);
    }
    let Some(root) = project.open_dir()? else { return Ok(None) };
    let noted = input.record.local_note();
    let note = noted.map(CacheNote::read).unwrap_or_default();
    let index = store.indexes.read(project.id(), IndexKind::Local);
    let cache = StatCache::new(index.as_deref(), note.clone(), held_state(before, noted));
    let LocalScan { mut manifest, too_large, unread, is_cut, has_young } =
        scan_local(&root, &survey.scope, &survey.skipped, &cache, limits, progress);
    let mut report = LocalReport { too_large, unread, is_cut, ..LocalReport::default() };
    let new_objects = store.objects.new_objects(objects, input.is_dry);
    if !cache.is_held() {
        forget_missing(&mut manifest, objects, &new_objects);
    }
    if has_young {
        cache.forget_young(&mut manifest);
    }
    if input.is_late {
        leave_out_changed(&mut manifest, now, &mut report);
    }
    let unknown = manifest.dirs.iter().map(unknown_files).sum::<usize>();
    let read: HashSet<_> = manifest.all_files().filter(|(_, file)| file.id.is_none()).map(|(path, _)| path).collect();
    // The limit of a reader is that of the settings.
    let settings = &Settings { max_file_size_mb: settings.keep_file_size_mb, ..settings.clone() };
    if unknown > 0 {
        let threads = threads::cores();
        let (root, manifest_now) = (&root, &manifest);
        let reading = Reading { root, manifest: manifest_now, new_objects: &new_objects, settings, progress, threads };
        let (results, mut skipped) = (reading.run()?, Vec::new());
        apply(results, &mut manifest, &mut skipped, None);
        report.is_cut |= progress.is_cancelled();
        report.unread.extend(skipped.into_iter().filter(|one| one.why != SkipReason::TooLarge).map(|one| one.path));
    }
    settle_databases(&root, &mut manifest, &read, &new_objects, limits.file_bytes_max, now, &mut report)?;
    let trees = build_trees(&manifest, cache.held_entries(), &new_objects)?;
    let tree = trees[0].expect("the root always has a tree");
    let state = LocalState { tree, facts: facts(&manifest, report.is_cut), in_use: report.in_use.clone() };
    let id = state.add_to(&new_objects, before)?;
    (report.files, report.bytes) = (manifest.files(), manifest.all_files().map(|(_, file)| file.stat.size).sum());
    let (rules, file_bytes_max) = (survey.scope.sum(), limits.file_bytes_max);
    let is_same = unknown == 0 && before == Some(id);
    let index_update = cache.update(&manifest, rules, is_same, false);
    let cache = CacheUpdate { index: index_update, rules, file_bytes_max, reread_young: has_young };
    Ok(Some(LocalSurvey { manifest, trees, cache, note, state, id, before, new_objects, report }))
}

/// Returns the paths of the local files of a project as they are, given its survey. Nothing is read.
pub(crate) fn local_names(
    project: &Project,
    survey: &Survey,
    settings: &Settings,
    progress: &Progress,
) -> Result<Vec<Vec<u8>>> {
    let limits = limits(settings).filter(|_| has_local_candidates(&survey.skipped));
    let (Some(limits), Some(root)) = (limits, project.open_dir()?) else { return Ok(Vec::new()) };
    let cache = StatCache::new(None, CacheNote::default(), None);
    let found = scan_local(&root, &survey.scope, &survey.skipped, &cache, limits, progress);
    Ok(found.manifest.all_files().map(|(path, _)| path).collect())
}

/// Returns the state whose objects the index names, if it is that of the newest checkpoint.
fn held_state(before: Option<ObjectId>, note: Option<&Map<String, Value>>) -> Option<NewestState> {
    let id = |key: &str| ObjectId::from_hex(note?.get(key)?.as_str()?.as_bytes());
    let (id, tree) = (id(STATE).filter(|id| Some(*id) == before)?, id(TREE)?);
    Some(NewestState { id, tree, is_own: true })
}

/// Removes the files that changed after the time of a checkpoint that is completed later.
fn leave_out_changed(manifest: &mut Manifest, now: Moment, report: &mut LocalReport) {
    for dir in &mut manifest.dirs {
        let files = dir.files.len();
        dir.files.retain(|file| is_settled(file.stat.ctime, now.as_nanos()));
        if dir.files.len() < files {
            (dir.same_files, report.is_cut) = (false, true);
        }
    }
}

/// Returns the facts of a state: the permission bits that differ from the usual ones.
fn facts(manifest: &Manifest, is_incomplete: bool) -> Facts {
    let mut facts = Facts { files: Some(manifest.files()), is_incomplete, ..Facts::default() };
    let usual = facts.usual;
    for dir in manifest.dirs.iter().filter(|dir| !dir.path.is_empty() && dir.mode != usual.dir) {
        facts.modes.push((dir.path.to_vec(), dir.mode));
    }
    for (path, file) in manifest.all_files().filter(|(_, file)| file.stat.kind == Kind::File) {
        let expected = if file.stat.mode & 0o100 != 0 { usual.executable } else { usual.file };
        if file.stat.mode != expected {
            facts.modes.push((path, file.stat.mode));
        }
    }
    facts.modes.sort();
    facts
}

/// Returns the error of a survey as the report of the checkpoint has it.
pub(crate) fn failed_report(error: &Error) -> LocalReport {
    LocalReport { failed: Some(error.to_string()), ..LocalReport::default() }
}
