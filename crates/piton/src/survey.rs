//! The files of a project with the object ids of their contents: the common input of take, diff and restore. Reads the
//! project, adds to a set of new objects, and publishes nothing.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::id::ObjectId;
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::skipped::{Extent, SkipReason, Skipped};
use crate::store::{Checkpoint, IndexKind, NewObjects, Objects, ProjectRecord, Store, UsualModes};
use crate::sys::Dir;
use crate::threads;
use crate::time::Moment;
use crate::worktree::{
    CacheNote, CacheUpdate, ChangedDirs, DirNode, IndexSums, IndexUpdate, Lists, Manifest, NewestFiles, NewestState,
    RulesAfter, Scan, ScanEnd, Scope, StatCache, Vouched, count_files, scan, write_index,
};

mod databases;
mod facts;
mod late;
mod local;
mod reading;
mod trees;

pub(crate) use local::{LocalInput, LocalSurvey, failed_report, local_names, survey_local};
use reading::{Reading, apply};
use trees::build_trees;
pub(crate) use trees::entry_mode;

/// Maximum number of files counted in directories that were not entered.
const COUNT_MAX: u64 = 1_000_000;

/// Input of a survey.
pub(crate) struct SurveyInput<'a> {
    pub(crate) store: &'a Store,
    pub(crate) objects: &'a Objects,
    pub(crate) project: &'a Project,
    pub(crate) record: &'a ProjectRecord,
    /// Note about the index: that of the newest checkpoint, or of what a cancelled attempt has read.
    pub(crate) note: CacheNote,
    pub(crate) index: IndexKind,
    pub(crate) newest: Option<&'a Checkpoint>,
    pub(crate) settings: &'a Settings,
    /// Time as of which files are surveyed, if it is in the past: files that changed since are skipped, and a survey
    /// that is cancelled returns what it has read.
    pub(crate) late: Option<Moment>,
    /// Directories that may have changed since the newest checkpoint. Unless it is given, all are listed.
    pub(crate) changed_dirs: Option<&'a ChangedDirs>,
    pub(crate) progress: &'a Progress,
}

impl<'a> SurveyInput<'a> {
    /// Returns the input for a survey of the current files, which continues from what an unfinished checkpoint has
    /// read.
    pub(crate) fn new(
        store: &'a Store,
        objects: &'a Objects,
        project: &'a Project,
        record: &'a ProjectRecord,
        newest: Option<&'a Checkpoint>,
        settings: &'a Settings,
        progress: &'a Progress,
    ) -> Self {
        let (index, keys) = match record.progress(newest.map(|newest| newest.id)) {
            Some(keys) => (IndexKind::Unfinished, keys),
            None => (IndexKind::Newest, record.cache_note()),
        };
        let note = CacheNote::read(keys);
        Self {
            store,
            objects,
            project,
            record,
            note,
            index,
            newest,
            settings,
            late: None,
            changed_dirs: None,
            progress,
        }
    }
}

/// Result of a survey.
pub(crate) struct Survey {
    pub(crate) manifest: Manifest,
    /// Trees of the directories, by their position in the manifest; `None` for those without files.
    pub(crate) trees: Vec<Option<ObjectId>>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) unprotected: bool,
    /// Index of the project's own git, if it could not be read.
    pub(crate) unread_index: Option<PathBuf>,
    pub(crate) scope: Box<Scope>,
    pub(crate) cache: CacheUpdate,
    /// Of a late survey: true if a file changed since its time.
    pub(crate) is_incomplete: bool,
}

/// Paths covered by a survey besides those in scope by the current rules.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extra<'a> {
    /// Files and directories that an earlier restore created out of scope.
    pub(crate) outside: Option<&'a BTreeSet<Vec<u8>>>,
    /// Rules whose scope is covered as well.
    pub(crate) rules_after: Option<&'a RulesAfter<'a>>,
    /// If more bytes than this have to be read, the survey ends as if there were too many files.
    pub(crate) bytes_max: Option<u64>,
}

/// End of a survey.
pub(crate) enum SurveyEnd {
    Done(Survey),
    TooManyFiles,
    /// Cancelled. A late survey returns what it has read until then.
    Stopped(Option<Box<Survey>>),
}

/// Surveys everything in scope. New contents and trees are added to `new_objects`.
pub(crate) fn survey(input: &SurveyInput<'_>, new_objects: &NewObjects) -> Result<SurveyEnd> {
    survey_with(input, Extra::default(), new_objects)
}

/// Like [`survey`], but also covers the paths in `extra`.
pub(crate) fn survey_with(input: &SurveyInput<'_>, extra: Extra<'_>, new_objects: &NewObjects) -> Result<SurveyEnd> {
    let SurveyInput { store, project, settings, progress, .. } = *input;
    refuse_base(store, project)?;
    let (root, scope) = (project.open_dir()?, scope_of(input, extra)?);
    let Some(root) = root else {
        return Survey::of_missing(scope, new_objects).map(SurveyEnd::Done);
    };
    let index = store.indexes.read(project.id(), input.index);
    let cache = StatCache::new(index.as_deref(), input.note.clone(), input.newest.map(newest_state));
    let (mut manifest, mut skipped, unprotected, has_young) = match look(input, extra, &root, &scope, &cache) {
        Ok(ScanEnd::Done { manifest, skipped, unprotected, has_young }) => (manifest, skipped, unprotected, has_young),
        Ok(ScanEnd::TooManyFiles) => return Ok(SurveyEnd::TooManyFiles),
        Ok(ScanEnd::Stopped) => return Ok(SurveyEnd::Stopped(None)),
        Err(error) => return Err(Error::io("read", project.dir(), error)),
    };
    if !cache.is_held() {
        forget_missing(&mut manifest, input.objects, new_objects);
    }
    if has_young {
        cache.forget_young(&mut manifest);
    }
    let (mut is_stopped, late) = (false, input.late.map(Moment::as_nanos));
    let mut is_incomplete = late.is_some_and(|since| late::leave_out_changed(&mut manifest, &mut skipped, since));
    let unknown = manifest.dirs.iter().map(unknown_files).sum::<usize>();
    if extra.bytes_max.is_some_and(|max| unknown_bytes(&manifest) > max) {
        return Ok(SurveyEnd::TooManyFiles);
    }
    if unknown > 0 {
        let threads = threads::cores();
        let reading = Reading { root: &root, manifest: &manifest, new_objects, settings, progress, threads };
        let read = reading.run()?;
        is_stopped = progress.is_cancelled();
        if is_stopped && late.is_none() {
            return Ok(SurveyEnd::Stopped(None));
        }
        is_incomplete |= apply(read, &mut manifest, &mut skipped, late);
    }
    let trees = build_trees(&manifest, cache.held_entries(), new_objects)?;
    let rules = scope.sum();
    let is_newest = input.newest.is_some_and(|newest| trees[0] == Some(newest.tree));
    let is_large = cache.is_large();
    let index_update = cache.update(&manifest, rules, unknown == 0 && is_newest, late.is_none());
    threads::drop_in_background(index, is_large);
    let survey = Survey {
        manifest,
        trees,
        skipped,
        unprotected,
        unread_index: scope.unread_index().map(Path::to_owned),
        scope: Box::new(scope),
        cache: CacheUpdate {
            index: index_update,
            rules,
            file_bytes_max: settings.file_bytes_max(),
            reread_young: has_young,
        },
        is_incomplete,
    };
    Ok(if is_stopped { SurveyEnd::Stopped(Some(Box::new(survey))) } else { SurveyEnd::Done(survey) })
}

fn newest_state(newest: &Checkpoint) -> NewestState {
    NewestState { id: newest.id, tree: newest.tree, is_own: newest.facts.files.is_some() }
}

/// Scans the project, using the state known from the index.
fn look(
    input: &SurveyInput<'_>,
    extra: Extra<'_>,
    root: &Dir,
    scope: &Scope,
    cache: &StatCache<'_>,
) -> io::Result<ScanEnd> {
    let SurveyInput { settings, progress, .. } = *input;
    let vouched = vouched_dirs(input, scope, cache);
    progress.files_found.store(0, Ordering::Relaxed);
    scan(&Scan {
        root,
        scope,
        rules_after: extra.rules_after,
        cache,
        vouched: vouched.as_ref(),
        file_bytes_max: settings.file_bytes_max(),
        files_max: settings.files_max(),
        threads: threads::cores(),
        progress,
    })
}

/// Returns the directories that need not be listed, if the caller names those that changed.
fn vouched_dirs<'a>(input: &SurveyInput<'a>, scope: &Scope, cache: &StatCache<'_>) -> Option<Vouched<'a>> {
    // Of a checkpoint that another program made, or that lacks files, the index does not have everything.
    let facts = input.newest.map(|newest| &newest.facts);
    let facts = facts.filter(|facts| facts.files.is_some() && !facts.is_incomplete && input.late.is_none())?;
    let UsualModes { file, executable, dir } = facts.usual;
    let newest = NewestFiles {
        usual_modes: [file, executable, dir],
        modes: &facts.modes,
        empty_dirs: &facts.empty_dirs,
        skipped: &facts.skipped,
    };
    cache.vouched(input.changed_dirs?, &newest, scope.sum(), input.settings.file_bytes_max())
}

fn scope_of(input: &SurveyInput<'_>, extra: Extra<'_>) -> Result<Scope> {
    let scope = scope_by_rules(input.store, input.project, input.settings)?;
    let scope = scope.with_outside(extra.outside.cloned().unwrap_or_default());
    Ok(if extra.rules_after.is_some() { scope.with_other_sum() } else { scope })
}

/// Returns the scope by the current rules alone. Fails if the exclude list of the store cannot be read.
pub(crate) fn scope_by_rules(store: &Store, project: &Project, settings: &Settings) -> Result<Scope> {
    let list = store.exclude_list()?;
    let lists = Lists { store: &list, exclude: &settings.exclude, include: &settings.include };
    let base = store.base().strip_prefix(project.dir()).ok();
    let base = base.map(|base| base.as_os_str().as_encoded_bytes().to_vec());
    // An intent that cannot be read names no temporary file: all of them count as the user's then.
    let tokens = store.intents.get(project.id()).ok().flatten().map(|intent| intent.tokens);
    Ok(Scope::new(project.dir(), lists, base, tokens.unwrap_or_default()))
}

/// Returns the number of bytes to read.
fn unknown_bytes(manifest: &Manifest) -> u64 {
    let files = manifest.dirs.iter().filter(|dir| !dir.same_files).flat_map(|dir| &dir.files);
    files.filter(|file| file.id.is_none()).map(|file| file.stat.size).sum()
}

/// Fails with `Invalid` if the project is the base or within it.
fn refuse_base(store: &Store, project: &Project) -> Result<()> {
    if !project.dir().starts_with(store.base()) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "use as a project")
        .with_path(project.dir())
        .because("it is the store's own")
        .with_hint(Hint::UseOtherBase))
}

fn forget_missing(manifest: &mut Manifest, objects: &Objects, new_objects: &NewObjects) {
    for dir in &mut manifest.dirs {
        for file in &mut dir.files {
            file.id = file.id.filter(|id| objects.has(*id));
            file.id.into_iter().for_each(|id| new_objects.rely_on(id));
        }
        dir.same_files &= dir.files.iter().all(|file| file.id.is_some());
    }
}

/// Returns the number of files of a directory to read.
fn unknown_files(dir: &DirNode) -> usize {
    if dir.same_files { 0 } else { dir.files.iter().filter(|file| file.id.is_none()).count() }
}

impl Survey {
    /// Returns the tree of the whole project.
    pub(crate) fn tree(&self) -> ObjectId {
        self.trees[0].expect("the project itself always has a tree")
    }

    /// Returns the ids of the contents and trees that were found.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ObjectId> {
        let files = self.manifest.dirs.iter().flat_map(|dir| &dir.files).filter_map(|file| file.id);
        files.chain(self.trees.iter().flatten().copied())
    }

    /// Writes the index of the survey.
    pub(crate) fn write_index(&self, now: Moment, out: impl Write) -> io::Result<IndexSums> {
        write_index(&self.manifest, &self.trees, now.as_nanos(), out)
    }

    /// Returns the survey of a deleted directory, which is empty. The index stays as it is.
    fn of_missing(scope: Scope, new_objects: &NewObjects) -> Result<Self> {
        let manifest = Manifest { dirs: vec![DirNode::default()] };
        let trees = build_trees(&manifest, None, new_objects)?;
        Ok(Self {
            manifest,
            trees,
            skipped: Vec::new(),
            unprotected: false,
            unread_index: None,
            cache: CacheUpdate {
                index: IndexUpdate::Current,
                rules: scope.sum(),
                file_bytes_max: 0,
                reread_young: false,
            },
            scope: Box::new(scope),
            is_incomplete: false,
        })
    }

    /// Counts the files in the directories that were not entered.
    pub(crate) fn count_left_out(&mut self, project: &Project) {
        let Ok(root) = Dir::open(project.dir()) else { return };
        for skipped in &mut self.skipped {
            if skipped.extent == Extent::Dir(None) && !matches!(skipped.why, SkipReason::GitDir | SkipReason::Store) {
                skipped.extent = Extent::Dir(Some(count_files(&root, &skipped.path, COUNT_MAX)));
            }
        }
    }
}
