//! Versions of files in checkpoints that are missing now, or differ.

use std::collections::HashSet;

use super::kept::KeptInProject;
use super::local::LocalVersions;
use super::version::Version;
use super::{LostFrom, LostItem, LostKind, RecoverOptions, is_meant, not_held};
use crate::diff::pair_renames;
use crate::error::{Error, ErrorKind, Result};
use crate::history::History;
use crate::id::{CheckpointId, ObjectId};
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath;
use crate::store::{Checkpoint, EntryMode, FileModes, TreeWalk};
use crate::sys::{Dir, Kind, Stat};
use crate::timeline::Timeline;
use crate::worktree::{database_of, database_set, id_of_path, missing_paths, stat_path};

/// A path and what a checkpoint has there.
type Found = (Vec<u8>, (EntryMode, ObjectId));

/// A checkpoint that the files were equal to.
#[derive(Clone, Copy)]
struct View<'a> {
    checkpoint: &'a Checkpoint,
    /// Only these paths; all paths if empty.
    paths: &'a [Vec<u8>],
    /// Number of the state, or of the one after which a restore made the files equal to the checkpoint.
    state: usize,
}

pub(super) struct Versions<'a> {
    history: &'a History,
    timeline: &'a Timeline<'a>,
    walk: TreeWalk<'a>,
    local: &'a LocalVersions,
    /// The newest first.
    views: Vec<View<'a>>,
    /// Root of the project. A placeholder if it is gone.
    root: Dir,
}

impl<'a> Versions<'a> {
    pub(super) fn new(
        history: &'a History,
        timeline: &'a Timeline<'a>,
        local: &'a LocalVersions,
        project: &Project,
    ) -> Result<Self> {
        let root = project.open_dir()?.map_or_else(Dir::missing, Ok);
        let root = root.map_err(|error| Error::io("open", project.dir(), error))?;
        let mut views = Vec::new();
        for (state, checkpoint) in timeline.states.iter().enumerate().rev() {
            // After a safety checkpoint, a restore made the files equal to another one.
            let restoring = checkpoint.facts.restoring.as_ref();
            views.extend(restoring.and_then(|restoring| {
                let target = history.checkpoints().iter().find(|one| one.id == restoring.target)?;
                Some(View { checkpoint: target, paths: &restoring.paths, state })
            }));
            views.push(View { checkpoint, paths: &[], state });
        }
        Ok(Self { history, timeline, walk: TreeWalk::new(history.objects()), local, views, root })
    }

    /// Returns the newest version of every file that is missing, the last lost first. A file that was renamed and is
    /// otherwise unchanged is not missing.
    pub(super) fn missing(&mut self, progress: &Progress) -> Result<Vec<Version<'a>>> {
        let (mut missing, mut seen): (Vec<Version<'a>>, HashSet<Vec<u8>>) = Default::default();
        for view in self.views.clone() {
            if progress.is_cancelled() {
                return Err(Error::new(ErrorKind::Stopped, "look for lost files").because("stopped"));
            }
            let lost = match self.timeline.states.get(view.state + 1) {
                Some(next) => {
                    let changes = self.walk.compare(view.checkpoint.tree, next.tree, view.paths)?;
                    let lost = pair_renames(changes).1.into_iter();
                    lost.filter_map(|change| Some((change.path, change.old.filter(|_| change.new.is_none())?)))
                        .collect()
                }
                None => self.files(view)?,
            };
            let lost: Vec<_> = lost.into_iter().filter(|(path, _)| seen.insert(path.clone())).collect();
            let gone = missing_paths(&self.root, lost.iter().map(|(path, _)| path.as_slice()));
            missing.extend(lost.iter().filter(|(path, _)| gone.contains(path.as_slice())).map(|(path, entry)| {
                let View { checkpoint, state, .. } = view;
                let (kind, path, is_replaced) = (LostKind::File, path.clone(), false);
                Version { kind, path, entry: *entry, checkpoint, state, is_replaced }
            }));
        }
        missing.retain(|version| version.entry.0 != EntryMode::Commit);
        self.add_missing_local(&mut missing);
        // Stable: what was lost at the same time stays together.
        missing.sort_by_key(|version| std::cmp::Reverse(version.state));
        Ok(missing)
    }

    /// Adds the newest version of every local file that is missing.
    fn add_missing_local(&self, missing: &mut Vec<Version<'a>>) {
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut states = HashSet::new();
        let known: HashSet<Vec<u8>> = missing.iter().map(|version| version.path.clone()).collect();
        for View { checkpoint, state, .. } in self.views.iter().filter(|view| view.paths.is_empty()).copied() {
            let files = self.local.of_checkpoint(checkpoint.id).filter(|(id, _)| states.insert(*id));
            let Some((_, files)) = files else { continue };
            let new: Vec<_> = files.iter().filter(|(path, _)| seen.insert(path) && !known.contains(*path)).collect();
            let gone = missing_paths(&self.root, new.iter().map(|(path, _)| path.as_slice()));
            missing.extend(new.iter().filter(|(path, _)| gone.contains(path.as_slice())).map(|(path, entry)| {
                let (kind, path, is_replaced) = (LostKind::Local, (*path).clone(), false);
                Version { kind, path, entry: **entry, checkpoint, state, is_replaced }
            }));
        }
    }

    /// Returns the newest version of an existing local file that differs from it.
    fn differing_local(&self, path: &[u8]) -> Held<'a> {
        let mut held = Held::Never;
        let current = self.stat(path);
        for View { checkpoint, state, .. } in self.views.iter().filter(|view| view.paths.is_empty()).copied() {
            let Some((_, files)) = self.local.of_checkpoint(checkpoint.id) else { continue };
            let Some(entry) = files.get(path).copied() else {
                if files.keys().any(|file| relpath::is_within(file, path)) {
                    held = Held::Same;
                }
                continue;
            };
            let modes = self.local.facts(checkpoint.id).map(FileModes::new);
            if current.is_none_or(|stat| !self.is_equal(path, &stat, entry, modes.as_ref())) {
                let (kind, path, is_replaced) = (LostKind::Local, path.to_vec(), current.is_some());
                return Held::Version(Version { kind, path, entry, checkpoint, state, is_replaced });
            }
            held = Held::Same;
        }
        held
    }

    /// Adds the files that belong to a database among the versions: they are of no use without each other.
    fn complete_databases(&self, found: &mut Vec<Version<'a>>) {
        let mut more = Vec::new();
        for version in found.iter().filter(|version| version.kind == LostKind::Local) {
            let database = database_of(&version.path).unwrap_or(&version.path);
            for path in database_set(database) {
                let is_known = found.iter().chain(&more).any(|other: &Version<'_>| other.path == path);
                let Some(entry) = self.local.entry(version.checkpoint.id, &path).filter(|_| !is_known) else {
                    continue;
                };
                let is_replaced = self.stat(&path).is_some();
                let Version { kind, checkpoint, state, .. } = *version;
                more.push(Version { kind, path, entry, checkpoint, state, is_replaced });
            }
        }
        found.extend(more);
    }

    /// Returns all files of a view.
    fn files(&self, view: View<'_>) -> Result<Vec<Found>> {
        let files = self.history.objects().compare_trees(None, Some(view.checkpoint.tree))?;
        let meant = files.into_iter().filter(|file| view.paths.is_empty() || is_meant(&file.path, view.paths));
        Ok(meant.filter_map(|file| Some((file.path, file.new?))).collect())
    }

    /// Returns the versions to recover for the paths of the options.
    pub(super) fn of_paths(
        &mut self,
        options: RecoverOptions<'_>,
        kept: &KeptInProject<'_>,
        progress: &Progress,
    ) -> Result<Vec<Version<'a>>> {
        if let Some(name) = options.from {
            return self.of_checkpoint(self.history.find(name)?.id, options.paths);
        }
        let mut found = self.missing(progress)?;
        found.retain(|version| is_meant(&version.path, options.paths));
        for path in options.paths {
            if found.iter().any(|version| relpath::is_within(&version.path, path)) {
                continue;
            }
            match (self.differing(path)?, self.differing_local(path)) {
                (Held::Version(version), _) | (_, Held::Version(version)) => found.push(version),
                (Held::Never, Held::Never) if kept.is_at(path) => {}
                (Held::Never, Held::Never) => return Err(not_held(path)),
                _ => {}
            }
        }
        self.complete_databases(&mut found);
        Ok(found)
    }

    /// Returns the files of a checkpoint at or below paths that are missing or differ now.
    fn of_checkpoint(&mut self, id: CheckpointId, paths: &[Vec<u8>]) -> Result<Vec<Version<'a>>> {
        let is_it = |one: &&Checkpoint| one.id == id;
        let checkpoint = self.history.checkpoints().iter().find(is_it).expect("it was found in this history");
        let files = self.files(View { checkpoint, paths: &[], state: 0 })?;
        let local = self.local.of_checkpoint(id).map(|(_, files)| files.clone()).unwrap_or_default();
        let is_held = |path: &&Vec<u8>| {
            let mut all = files.iter().map(|(file, _)| file).chain(local.keys());
            all.any(|file| relpath::is_within(file, path))
        };
        if let Some(path) = paths.iter().find(|path| !is_held(path)) {
            return Err(not_held(path));
        }
        let state = self.timeline.states.iter().position(|state| state.id == id).unwrap_or(0);
        let (modes, local_modes) = (modes_of(checkpoint), self.local.facts(id).map(FileModes::new));
        let mut found = Vec::new();
        let files = files.into_iter().map(|(path, entry)| (LostKind::File, path, entry));
        let all = files.chain(local.into_iter().map(|(path, entry)| (LostKind::Local, path, entry)));
        for (kind, path, entry) in all.filter(|(_, path, _)| is_meant(path, paths)) {
            let current = self.stat(&path);
            let modes = if kind == LostKind::Local { local_modes.as_ref() } else { modes.as_ref() };
            if current.is_none_or(|stat| !self.is_equal(&path, &stat, entry, modes)) {
                found.push(Version { kind, path, entry, checkpoint, state, is_replaced: current.is_some() });
            }
        }
        found.retain(|version| version.entry.0 != EntryMode::Commit);
        self.complete_databases(&mut found);
        Ok(found)
    }

    /// Returns the newest version of an existing file that differs from it.
    fn differing(&mut self, path: &[u8]) -> Result<Held<'a>> {
        let mut held = Held::Never;
        let current = self.stat(path);
        for View { checkpoint, paths, state } in self.views.clone() {
            if !paths.is_empty() && !is_meant(path, paths) {
                continue;
            }
            match self.walk.entry_at(checkpoint.tree, path)? {
                None | Some((EntryMode::Commit, _)) => {}
                // The missing files below it are found already.
                Some((EntryMode::Dir, _)) => held = Held::Same,
                Some(entry) => {
                    let modes = modes_of(checkpoint);
                    if current.is_none_or(|stat| !self.is_equal(path, &stat, entry, modes.as_ref())) {
                        let (kind, path, is_replaced) = (LostKind::File, path.to_vec(), current.is_some());
                        return Ok(Held::Version(Version { kind, path, entry, checkpoint, state, is_replaced }));
                    }
                    held = Held::Same;
                }
            }
        }
        Ok(held)
    }

    fn stat(&self, path: &[u8]) -> Option<Stat> {
        stat_path(&self.root, path).ok()
    }

    /// Returns true if a file has these contents, and the permission bits that are recorded.
    fn is_equal(
        &self,
        path: &[u8],
        stat: &Stat,
        (mode, id): (EntryMode, ObjectId),
        modes: Option<&FileModes<'_>>,
    ) -> bool {
        let kind = if mode == EntryMode::Link { Kind::Link } else { Kind::File };
        let wanted = || modes.map(|modes| modes.file(path, mode == EntryMode::Executable));
        let has_mode = kind == Kind::Link || wanted().is_none_or(|wanted| stat.mode & 0o777 == wanted);
        stat.kind == kind && has_mode && id_of_path(&self.root, path, kind) == Some(id)
    }

    /// Returns the newest checkpoint that holds all of these versions, if there is one.
    pub(super) fn holds_all(&mut self, found: &[Version<'a>]) -> Result<Option<CheckpointId>> {
        let mut sources: Vec<&Checkpoint> = Vec::new();
        for version in found {
            if !sources.iter().any(|source| source.id == version.checkpoint.id) {
                sources.push(version.checkpoint);
            }
        }
        for source in sources {
            let mut is_whole = true;
            for version in found {
                let entry = match version.kind {
                    LostKind::Local => self.local.entry(source.id, &version.path),
                    _ => self.walk.entry_at(source.tree, &version.path)?,
                };
                is_whole = is_whole && entry == Some(version.entry);
            }
            if is_whole {
                return Ok(Some(source.id));
            }
        }
        Ok(None)
    }

    pub(super) fn item(&self, version: &Version<'_>) -> Result<LostItem> {
        let is_newest = version.state + 1 == self.timeline.states.len();
        Ok(LostItem {
            kind: version.kind,
            path: version.path.clone(),
            from: LostFrom::Checkpoint(version.checkpoint.id),
            row: self.timeline.number(version.checkpoint.id),
            bytes: self.history.objects().blob_size(version.entry.1)?,
            files: 1,
            is_changed: false,
            command: None,
            lost: (!is_newest).then(|| self.timeline.period_of_step(version.state)),
            is_replaced: version.is_replaced,
            git_state: None,
        })
    }
}

/// Returns the permission bits in a checkpoint, if it records them.
fn modes_of(checkpoint: &Checkpoint) -> Option<FileModes<'_>> {
    checkpoint.facts.files.map(|_| FileModes::new(&checkpoint.facts))
}

/// Version of an existing path.
enum Held<'a> {
    Version(Version<'a>),
    /// Every version is the current one.
    Same,
    /// No checkpoint holds the path.
    Never,
}
