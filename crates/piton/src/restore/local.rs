//! Local files in a restore: those of the checkpoint that are missing come back, and existing ones are replaced if the user
//! asks for it and the safety checkpoint has saved them.
//!
//! A database and its log are one: a log beside another version of its database would destroy it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::RestoreTo;
use super::left::{Left, WhyLeft};
use super::plan::{Remove, RestorePlan, SetMode, Write};
use super::planner::Planner;
use crate::error::Result;
use crate::id::{ObjectId, ObjectKind};
use crate::kept::KeptPlan;
use crate::relpath;
use crate::skipped::SkipReason;
use crate::store::{Checkpoint, EntryMode, FileModes, Intent, LocalState};
use crate::survey::{LocalInput, LocalSurvey, SurveyInput, entry_mode, survey_local};
use crate::sys::{self, Kind};
use crate::time::Moment;
use crate::worktree::{DirNode, FileNode, SeenFile, database_of, database_set};

/// Treatment of files out of scope that were saved with the checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IgnoredFiles {
    /// Missing ones come back.
    #[default]
    Missing,
    /// They are left alone.
    Without,
    /// Missing ones come back, and existing ones are replaced once they are saved.
    With,
}

impl IgnoredFiles {
    /// Key of an intent that holds the choice.
    pub(super) const KEY: &'static str = "ignored";

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Without => "without",
            Self::With => "with",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Missing, Self::Without, Self::With].into_iter().find(|one| one.word() == word)
    }
}

/// Local files of a restore.
#[derive(Default)]
pub(super) struct LocalPlanned {
    pub(super) ignored: IgnoredFiles,
    /// The local files as they are, for the safety checkpoint.
    pub(super) survey: Option<LocalSurvey>,
    /// Error of that survey.
    pub(super) failed: Option<String>,
    /// Paths among those to be written that are local.
    pub(super) written: Vec<Vec<u8>>,
    /// Paths that are written or removed in sets of which a file exists: those of a set are changed together or not at
    /// all.
    pub(super) replacing: HashSet<Vec<u8>>,
    /// Existing files that differ from the checkpoint and are left as they are.
    pub(super) differing: Vec<Vec<u8>>,
    /// Kept files.
    pub(super) kept: KeptPlan,
}

/// Input of the plan for local files.
pub(super) struct LocalPlanning<'a> {
    input: LocalInput<'a>,
    /// State of the local files of the target.
    pub(super) state: Option<LocalState>,
    /// Error, if it cannot be read. The files in scope are restored all the same.
    unread: Option<String>,
    ignored: IgnoredFiles,
}

impl<'a> LocalPlanning<'a> {
    pub(super) fn new(
        input: &SurveyInput<'a>,
        target: &Checkpoint,
        ignored: IgnoredFiles,
        is_dry: bool,
        now: Moment,
    ) -> Self {
        let SurveyInput { store, objects, project, settings, progress, record, .. } = *input;
        let state = store.locals.get(project.id(), target.id);
        let state = state.and_then(|state| state.map(|state| store.locals.read(objects, state)).transpose());
        let (state, unread) = match state {
            Ok(state) => (state, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let newest = input.newest.map(|newest| newest.id);
        let is_late = false;
        let input = LocalInput { store, objects, project, record, newest, settings, now, is_late, is_dry, progress };
        Self { input, state, unread, ignored }
    }
}

/// Returns how files out of scope are treated: an undo replaces those that the restore replaced, and an interrupted
/// restore continues with its original choice.
pub(super) fn ignored_by(
    to: RestoreTo<'_>,
    asked: IgnoredFiles,
    target: &Checkpoint,
    intent: Option<&Intent>,
) -> IgnoredFiles {
    let noted = intent.and_then(|intent| IgnoredFiles::parse(intent.rest.get(IgnoredFiles::KEY)?.as_str()?));
    let replaced = target.facts.restoring.as_ref().is_some_and(|restoring| restoring.with_ignored);
    match to {
        RestoreTo::Continue | RestoreTo::Abort => noted.unwrap_or_default(),
        RestoreTo::Undo | RestoreTo::Redo if replaced && asked == IgnoredFiles::Missing => IgnoredFiles::With,
        _ => asked,
    }
}

type LocalEntry = (EntryMode, ObjectId);

/// Files that belong together, by the path of the database or of the single file.
type LocalSets = BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, LocalEntry>>;

impl LocalPlanning<'_> {
    /// Surveys the local files, and adds to the plan those that the checkpoint has.
    pub(super) fn plan(&self, planner: &Planner<'_>, plan: &mut RestorePlan) -> Result<LocalPlanned> {
        let mut planned = LocalPlanned { ignored: self.ignored, ..LocalPlanned::default() };
        match survey_local(&self.input, planner.survey) {
            Ok(survey) => planned.survey = survey,
            Err(error) => planned.failed = Some(error.to_string()),
        }
        let unread = self.unread.clone().map(WhyLeft::Failed);
        plan.left.extend(unread.map(|why| Left { path: Vec::new(), why }));
        let Some(state) = self.state.as_ref().filter(|_| self.ignored != IgnoredFiles::Without) else {
            return Ok(planned);
        };
        let mut sets = LocalSets::new();
        let files = planner.objects.compare_trees(None, Some(state.tree))?;
        for (path, entry) in files.into_iter().filter_map(|file| Some((file.path, file.new?))) {
            let database = database_of(&path).unwrap_or(&path).to_vec();
            sets.entry(database).or_default().insert(path, entry);
        }
        let now: BTreeMap<_, _> = planned.survey.iter().flat_map(|survey| survey.manifest.all_files()).collect();
        let planned_paths = plan.writes.iter().map(|write| &write.path).chain(plan.removes.iter().map(|one| &one.path));
        let planned_paths = planned_paths.chain(plan.left.iter().map(|left| &left.path)).cloned().collect();
        let dirs = planner.survey.manifest.dirs.iter().map(|dir| (&*dir.path, dir)).collect();
        let set_plan = LocalSetPlan {
            planner,
            planned: planned_paths,
            dirs,
            modes: FileModes::new(&state.facts),
            now: &now,
            ignored: self.ignored,
        };
        let mut replacing = HashSet::new();
        let (mut written, mut differing) = (Vec::new(), Vec::new());
        for (database, files) in &sets {
            // What is renamed back comes back as it is.
            let goes_back = files.keys().any(|path| plan.makes_way(path) || plan.moves_from(path));
            if !goes_back && set_plan.is_wanted(database, files)? {
                let is_replaced = set_plan.add(database, files, plan, &mut written, &mut differing);
                let paths = files.keys().cloned().chain(database_set(database));
                replacing.extend(paths.filter(|_| is_replaced));
            }
        }
        set_plan.add_dir_modes(&sets, plan);
        drop(now);
        plan.modes.sort_by(|a, b| b.path.cmp(&a.path));
        plan.writes.sort_by(|a, b| relpath::split(&a.path).cmp(&relpath::split(&b.path)));
        plan.removes.sort_by(|a, b| relpath::split(&a.path).cmp(&relpath::split(&b.path)));
        plan.make_dirs.sort();
        plan.make_dirs.dedup_by(|a, b| a.0 == b.0);
        (planned.written, planned.replacing, planned.differing) = (written, replacing, differing);
        Ok(planned)
    }
}

/// Plans one file, or one database with its log.
struct LocalSetPlan<'a> {
    planner: &'a Planner<'a>,
    /// Paths that the plan deals with already.
    planned: HashSet<Vec<u8>>,
    /// Directories in scope, by path.
    dirs: HashMap<&'a [u8], &'a DirNode>,
    modes: FileModes<'a>,
    /// The local files as they are, by path.
    now: &'a BTreeMap<Vec<u8>, &'a FileNode>,
    ignored: IgnoredFiles,
}

/// State of a path.
enum CurrentLocal {
    Missing,
    /// As the checkpoint has it.
    Same,
    /// Another version, which the safety checkpoint saves.
    Saved(SeenFile),
    /// Another version, which no checkpoint saves.
    Unsaved,
}

impl LocalSetPlan<'_> {
    /// Returns true if the files are among those to restore, and are out of scope now as they were then.
    fn is_wanted(&self, database: &[u8], files: &BTreeMap<Vec<u8>, LocalEntry>) -> Result<bool> {
        let planner = self.planner;
        if !planner.is_meant(database) && !files.keys().any(|path| planner.is_meant(path)) {
            return Ok(false);
        }
        for path in files.keys() {
            let dir = self.dirs.get(relpath::split(path).0);
            let in_scope = || dir.is_some_and(|dir| dir.files.iter().any(|file| dir.path_of(file) == *path));
            let is_held = || planner.objects.entry_at(planner.target.tree, path);
            if self.planned.contains(path) || in_scope() || is_held()?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn current(&self, path: &[u8], (mode, id): LocalEntry) -> CurrentLocal {
        let stat = match self.planner.stat(path) {
            Ok(stat) => stat,
            Err(error) if sys::is_gone(&error) => return CurrentLocal::Missing,
            Err(_) => return CurrentLocal::Unsaved,
        };
        let is_link = mode == EntryMode::Link;
        let wanted = || self.modes.file(path, mode == EntryMode::Executable);
        match self.now.get(path) {
            Some(file) if file.id == Some(id) && (entry_mode(file) == EntryMode::Link) == is_link => {
                let has_mode = is_link || file.stat.mode & 0o777 == wanted();
                if has_mode { CurrentLocal::Same } else { CurrentLocal::Saved(SeenFile::of(file)) }
            }
            Some(file) => CurrentLocal::Saved(SeenFile::of(file)),
            None if stat.kind == if is_link { Kind::Link } else { Kind::File } => {
                let is_same = self.planner.id_of(path, stat.kind) == Some(id);
                if is_same { CurrentLocal::Same } else { CurrentLocal::Unsaved }
            }
            None => CurrentLocal::Unsaved,
        }
    }

    /// Plans the changes of one set. Returns true if an existing file is replaced or removed.
    fn add(
        &self,
        database: &[u8],
        files: &BTreeMap<Vec<u8>, LocalEntry>,
        plan: &mut RestorePlan,
        written: &mut Vec<Vec<u8>>,
        differing: &mut Vec<Vec<u8>>,
    ) -> bool {
        let current: Vec<_> = files.iter().map(|(path, entry)| (path, *entry, self.current(path, *entry))).collect();
        // Files of the database that the checkpoint does not have.
        let others = database_set(database).into_iter().filter(|path| !files.contains_key(path));
        let others: Vec<_> = others.filter(|path| self.planner.stat(path).is_ok()).collect();
        let all_same = current.iter().all(|(_, _, current)| matches!(current, CurrentLocal::Same));
        if all_same && others.is_empty() {
            return false;
        }
        let is_changed = |current: &CurrentLocal| matches!(current, CurrentLocal::Saved(_) | CurrentLocal::Unsaved);
        let in_the_way = current.iter().any(|(_, _, current)| is_changed(current)) || !others.is_empty();
        if in_the_way && self.ignored != IgnoredFiles::With {
            let is_named = |path: &&Vec<u8>| self.planner.paths.contains(path);
            let named = current.iter().map(|(path, ..)| *path).filter(is_named);
            plan.left.extend(named.map(|path| Left { path: path.clone(), why: WhyLeft::Ignored }));
            differing.extend(current.iter().filter(|(.., now)| is_changed(now)).map(|(path, ..)| (*path).clone()));
            return false;
        }
        let unsaved =
            current.iter().filter(|(.., current)| matches!(current, CurrentLocal::Unsaved)).map(|(path, ..)| *path);
        let unsaved = unsaved.chain(others.iter().filter(|path| !self.now.contains_key(*path)));
        let unsaved: Vec<_> = unsaved.cloned().collect();
        if !unsaved.is_empty() {
            let left = |path| Left { path, why: WhyLeft::OutOfScope(SkipReason::Ignored) };
            plan.left.extend(unsaved.into_iter().map(left));
            return false;
        }
        for path in others {
            let seen = SeenFile::of(self.now[&path]);
            plan.saved.insert((ObjectKind::Blob, seen.id));
            plan.removes.push(Remove { path, seen });
        }
        for (path, entry, current) in current {
            let over = match current {
                // With an unsaved one, nothing is done.
                CurrentLocal::Same | CurrentLocal::Unsaved => continue,
                CurrentLocal::Missing => None,
                CurrentLocal::Saved(seen) => Some(seen),
            };
            self.write(path, entry, over, plan, written);
        }
        in_the_way
    }

    /// Plans to give existing directories out of scope the permission bits that they had, if existing files are replaced,
    /// too.
    fn add_dir_modes(&self, sets: &LocalSets, plan: &mut RestorePlan) {
        if self.ignored != IgnoredFiles::With {
            return;
        }
        let files = sets.values().flat_map(BTreeMap::keys);
        let dirs: BTreeSet<&[u8]> = files.flat_map(|path| relpath::ancestors(relpath::split(path).0)).collect();
        let in_scope = |dir: &[u8]| self.dirs.get(dir).is_some_and(|dir| !dir.exceptional);
        for dir in dirs.into_iter().filter(|dir| !in_scope(dir) && self.planner.is_meant(dir)) {
            let want = self.modes.dir(dir);
            let differs = self.planner.stat(dir).is_ok_and(|now| now.kind == Kind::Dir && now.mode & 0o777 != want);
            if differs && !plan.moves_from(dir) && !plan.makes_way(dir) {
                plan.modes.push(SetMode { path: dir.to_vec(), mode: want, seen: None });
            }
        }
    }

    /// Plans to write one file, and the directories that are missing around it.
    fn write(
        &self,
        path: &[u8],
        (mode, id): LocalEntry,
        over: Option<SeenFile>,
        plan: &mut RestorePlan,
        written: &mut Vec<Vec<u8>>,
    ) {
        for dir in relpath::ancestors(relpath::split(path).0) {
            match self.planner.stat(dir) {
                Ok(stat) if stat.kind == Kind::Dir => {}
                Err(error) if sys::is_gone(&error) => plan.make_dirs.push((dir.to_vec(), self.modes.dir(dir))),
                _ if plan.removes.iter().any(|remove| remove.path == dir) => {
                    plan.make_dirs.push((dir.to_vec(), self.modes.dir(dir)));
                }
                _ => {
                    plan.left.push(Left { path: path.to_vec(), why: WhyLeft::InTheWay });
                    return;
                }
            }
        }
        plan.drop_dirs.retain(|dir| !relpath::is_within(path, dir));
        plan.saved.extend(over.as_ref().map(|seen| (ObjectKind::Blob, seen.id)));
        let is_link = mode == EntryMode::Link;
        let mode = (!is_link).then(|| self.modes.file(path, mode == EntryMode::Executable));
        plan.writes.push(Write { path: path.to_vec(), id, mode, over });
        written.push(path.to_vec());
    }
}
