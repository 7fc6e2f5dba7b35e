//! Versions of local files, which are saved with checkpoints and not part of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::version::Version;
use crate::error::Result;
use crate::id::{CheckpointId, ObjectId};
use crate::project::Project;
use crate::store::{EntryMode, Facts, FileModes, LocalRef, LocalState, NewObjects, Objects, ProjectLock, Store};
use crate::time::Moment;
use crate::worktree::{database_of, database_set};

/// Files of one state, by path.
pub(super) type LocalEntries = BTreeMap<Vec<u8>, (EntryMode, ObjectId)>;

/// The local files of all checkpoints of a project.
pub(super) struct LocalVersions {
    states: HashMap<CheckpointId, ObjectId>,
    files: HashMap<ObjectId, (LocalState, LocalEntries)>,
}

impl LocalVersions {
    /// Reads the local files of every checkpoint that has some. A state that cannot be read is left out: `verify` reports
    /// it, and the others may hold what was lost.
    pub(super) fn of(store: &Store, project: &Project, objects: &Objects) -> Result<Self> {
        let (mut states, mut files) = (HashMap::new(), HashMap::new());
        let mut unread = HashSet::new();
        for LocalRef { checkpoint, state } in store.locals.of(project.id())? {
            if !files.contains_key(&state) && !unread.contains(&state) {
                let read = store.locals.read(objects, state).and_then(|read| {
                    let all = objects.compare_trees(None, Some(read.tree))?;
                    let entries = all.into_iter().filter_map(|file| Some((file.path, file.new?))).collect();
                    Ok((read, entries))
                });
                match read {
                    Ok(read) => drop(files.insert(state, read)),
                    Err(_) => drop(unread.insert(state)),
                }
            }
            states.insert(checkpoint, state);
        }
        Ok(Self { states, files })
    }

    /// Returns the local files of a checkpoint, with the id of their state.
    pub(super) fn of_checkpoint(&self, id: CheckpointId) -> Option<(ObjectId, &LocalEntries)> {
        let state = self.states.get(&id)?;
        Some((*state, &self.files.get(state)?.1))
    }

    /// Returns one local file of a checkpoint.
    pub(super) fn entry(&self, id: CheckpointId, path: &[u8]) -> Option<(EntryMode, ObjectId)> {
        self.of_checkpoint(id)?.1.get(path).copied()
    }

    /// Returns the facts of the local files of a checkpoint.
    pub(super) fn facts(&self, id: CheckpointId) -> Option<&Facts> {
        Some(&self.files.get(self.states.get(&id)?)?.0.facts)
    }

    /// Saves the local files of `newest` with other versions of some as those of `target`.
    pub(super) fn publish(
        &self,
        (store, project, locked): (&Store, &Project, &ProjectLock),
        objects: &Objects,
        (newest, target): (CheckpointId, CheckpointId),
        versions: &[&Version<'_>],
        now: Moment,
    ) -> Result<()> {
        let current = Self::of(store, project, objects)?;
        let mut files = current.of_checkpoint(newest).map(|(_, files)| files.clone()).unwrap_or_default();
        let mut modes: BTreeMap<Vec<u8>, u16> =
            current.facts(newest).map(|facts| facts.modes.iter().cloned().collect()).unwrap_or_default();
        for version in versions {
            let database = database_of(&version.path).unwrap_or(&version.path);
            for path in database_set(database) {
                files.remove(&path);
            }
        }
        for version in versions {
            files.insert(version.path.clone(), version.entry);
            let facts = self.facts(version.checkpoint.id).cloned().unwrap_or_default();
            let wanted = FileModes::new(&facts);
            modes.insert(version.path.clone(), wanted.file(&version.path, version.entry.0 == EntryMode::Executable));
            let mut dir = crate::relpath::split(&version.path).0;
            while !dir.is_empty() {
                modes.entry(dir.to_vec()).or_insert_with(|| wanted.dir(dir));
                dir = crate::relpath::split(dir).0;
            }
        }
        let new_objects: NewObjects = store.objects.new_objects(objects, false);
        let tree = crate::store::build_tree(&files, &new_objects)?;
        let facts = Facts { files: Some(files.len() as u64), modes: modes.into_iter().collect(), ..Facts::default() };
        let state = LocalState { tree, facts, in_use: Vec::new() }.add_to(&new_objects, None)?;
        let _published = new_objects.publish()?;
        store.locals.set(locked, project.id(), &LocalRef { checkpoint: target, state }, now)
    }
}
