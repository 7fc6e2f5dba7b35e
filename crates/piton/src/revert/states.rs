//! States that a revert merges: trees in the store, the current files, and contents that are not stored yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use super::changed_meanwhile;
use crate::diff::TEXT_BYTES_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{IdHasher, ObjectId, ObjectKind};
use crate::merge::{EntryKind, MergedContents, MergedEntry, PathChange};
use crate::project::Project;
use crate::store::{EntryMode, Objects, Store, TreeChange};
use crate::survey::{SurveyEnd, SurveyInput, entry_mode, survey};
use crate::sys::{Dir, Kind, is_gone};
use crate::worktree::{read_path, stat_path};

pub(super) type Files = BTreeMap<Vec<u8>, (EntryMode, ObjectId)>;

/// Files of one state.
#[derive(Clone)]
pub(super) enum State {
    /// A tree in the store.
    Tree(ObjectId),
    /// Files that are not in the store, or not all of them.
    Files(Files),
}

impl State {
    pub(super) fn by_id(&self) -> HashMap<ObjectId, Vec<u8>> {
        match self {
            Self::Tree(_) => HashMap::new(),
            Self::Files(files) => files.iter().map(|(path, (_, id))| (*id, path.clone())).collect(),
        }
    }

    pub(super) fn files(&self, objects: &Objects) -> Result<Files> {
        match self {
            Self::Files(files) => Ok(files.clone()),
            Self::Tree(tree) => {
                let all = objects.compare_trees(None, Some(*tree))?;
                Ok(all.into_iter().filter_map(|change| Some((change.path, change.new?))).collect())
            }
        }
    }

    /// Returns the entry at a path.
    pub(super) fn entry(&self, path: &[u8], objects: &Objects) -> Result<Option<(EntryMode, ObjectId)>> {
        match self {
            Self::Files(files) => Ok(files.get(path).copied()),
            Self::Tree(tree) => Ok(objects.entry_at(*tree, path)?.filter(|(mode, _)| *mode != EntryMode::Dir)),
        }
    }

    /// Returns the differences to another state.
    pub(super) fn changes_to(&self, new: &Self, objects: &Objects) -> Result<Vec<TreeChange>> {
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

impl State {
    /// Returns this state with the changes of a merge.
    pub(super) fn with(&self, changes: Vec<PathChange>, contents: &mut StateContents<'_>) -> Result<Self> {
        let mut files = self.files(contents.objects)?;
        for PathChange { path, new, .. } in changes {
            let Some(MergedEntry { kind, contents: merged }) = new else {
                files.remove(&path);
                continue;
            };
            let id = match merged {
                MergedContents::Stored(id) => id,
                MergedContents::Merged(bytes) => contents.make(bytes)?,
            };
            files.insert(path, (mode_of(kind), id));
        }
        Ok(Self::Files(files))
    }
}

/// Returns the current files without storing them.
pub(super) fn current_files(store: &Store, input: &SurveyInput<'_>) -> Result<State> {
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
pub(super) struct StateContents<'a> {
    pub(super) objects: &'a Objects,
    pub(super) project: &'a Project,
    /// The current files.
    pub(super) now: &'a State,
    /// Paths of current files whose contents may not be in the store, by id.
    pub(super) current: HashMap<ObjectId, Vec<u8>>,
    /// Contents that are part of no state, by id: with only some of a turn's hunks, or merged.
    pub(super) made: HashMap<ObjectId, Vec<u8>>,
}

impl StateContents<'_> {
    pub(super) fn read(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
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

    /// Adds contents that are part of no state. Returns their id.
    pub(super) fn make(&mut self, bytes: Vec<u8>) -> Result<ObjectId> {
        let id =
            IdHasher::of(ObjectKind::Blob, &bytes).map_err(|collision| Error::damaged("merge files", collision))?;
        self.made.insert(id, bytes);
        Ok(id)
    }

    /// Returns true if there is a file that is not one of the current files: it is ignored, or could not be read.
    pub(super) fn is_uncovered(&self, path: &[u8]) -> Result<bool> {
        if self.now.entry(path, self.objects)?.is_some() {
            return Ok(false);
        }
        let seen = Dir::open(self.project.dir()).and_then(|root| stat_path(&root, path));
        Ok(match seen {
            Ok(stat) => stat.kind != Kind::Dir,
            Err(error) => !is_gone(&error),
        })
    }

    /// Reads a current file, up to one byte more than a text may have.
    fn read_current(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let root = Dir::open(self.project.dir())?;
        let kind = stat_path(&root, path)?.kind;
        read_path(&root, path, kind, TEXT_BYTES_MAX as u64 + 1)
    }
}

/// Returns the mode of a file in a tree.
pub(super) fn mode_of(kind: EntryKind) -> EntryMode {
    match kind {
        EntryKind::File => EntryMode::File,
        EntryKind::Executable => EntryMode::Executable,
        EntryKind::Link => EntryMode::Link,
    }
}
