//! Local files: small files out of scope that are saved with a checkpoint. A state of them is a tree with two entries,
//! `files` and `facts`, named by a ref of its own for each checkpoint.
//!
//! - Z1. Local files are not reachable from their checkpoint: none of the checkpoint's own objects refers to them.
//! - Z2. No pack that a collection writes holds both local files and anything else.
//! - Z3. When a checkpoint is dropped, the next collection drops its local files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::commit::Checkpoint;
use super::facts::{FACTS_HEADER, Facts};
use super::layout::{LOCAL_REFS, Layout};
use super::lock::ProjectLock;
use super::objects::{NewObjects, Objects};
use super::refs::{REFS_BYTES_MAX, Refs};
use super::tree::{EntryMode, push_entry};
use crate::error::{Error, Result};
use crate::fsx;
use crate::id::{CheckpointId, IdHasher, ObjectId, ObjectKind, ProjectId};
use crate::relpath::{self, escape, unescape};
use crate::time::Moment;

/// Names of the entries of a state.
const FACTS: &[u8] = b"facts";
const FILES: &[u8] = b"files";

/// Local files of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalRef {
    pub(crate) checkpoint: CheckpointId,
    /// Tree of the state.
    pub(crate) state: ObjectId,
}

/// A state of the local files of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalState {
    /// Tree of the files.
    pub(crate) tree: ObjectId,
    /// Number of files, and permission bits.
    pub(crate) facts: Facts,
    /// Databases that were written to while they were read, by path.
    pub(crate) in_use: Vec<Vec<u8>>,
}

impl LocalState {
    /// Returns the lines of the `facts` entry.
    fn encode(&self) -> String {
        let mut text = String::from_utf8_lossy(FACTS_HEADER).into_owned();
        text.push('\n');
        self.facts.write(&mut text);
        for path in &self.in_use {
            writeln!(text, "in-use ./{}", escape(path)).expect("a string takes everything");
        }
        text
    }

    /// Reads the lines of a `facts` entry. Unknown and invalid lines are ignored.
    fn decode(tree: ObjectId, text: &[u8]) -> Self {
        let mut state = Self { tree, facts: Facts::default(), in_use: Vec::new() };
        for line in text.split(|byte| *byte == b'\n') {
            match line.strip_prefix(b"in-use ./") {
                Some(path) => state.in_use.extend(unescape(path)),
                None => drop(state.facts.read_line(line)),
            }
        }
        state
    }

    /// Adds the objects of the state, except for its files, unless it is `known`. Returns the id of the state.
    pub(crate) fn add_to(&self, new_objects: &NewObjects, known: Option<ObjectId>) -> Result<ObjectId> {
        let collided = |collision| Error::damaged("save local files", collision);
        let text = self.encode();
        // Most of the time nothing changed, and hashing costs a fraction of adding.
        let facts = IdHasher::of(ObjectKind::Blob, text.as_bytes()).map_err(collided)?;
        let mut bytes = Vec::new();
        push_entry(&mut bytes, EntryMode::File, FACTS, facts);
        push_entry(&mut bytes, EntryMode::Dir, FILES, self.tree);
        let id = IdHasher::of(ObjectKind::Tree, &bytes).map_err(collided)?;
        if known != Some(id) {
            let mut writer = new_objects.writer();
            writer.add(ObjectKind::Blob, text.as_bytes())?.map_err(collided)?;
            writer.add(ObjectKind::Tree, &bytes)?.map_err(collided)?;
        }
        Ok(id)
    }
}

/// Returns the project and the checkpoint of a ref of local files.
fn parse(name: &str) -> Option<(ProjectId, CheckpointId)> {
    let (project, id) = name.strip_prefix(LOCAL_REFS)?.split_once('/')?;
    Some((ProjectId::parse(project)?, ObjectId::from_hex(id.as_bytes())?))
}

fn ref_name(project: &ProjectId, checkpoint: CheckpointId) -> String {
    format!("{LOCAL_REFS}{project}/{checkpoint}")
}

/// Returns the local files among all refs, by project, and removes them from `refs`.
pub(super) fn split_off_locals(refs: &mut BTreeMap<String, ObjectId>) -> BTreeMap<ProjectId, Vec<LocalRef>> {
    let mut locals: BTreeMap<ProjectId, Vec<LocalRef>> = BTreeMap::new();
    refs.retain(|name, state| match parse(name) {
        Some((project, checkpoint)) => {
            locals.entry(project).or_default().push(LocalRef { checkpoint, state: *state });
            false
        }
        None => true,
    });
    locals
}

/// The local files of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Locals {
    pub(super) layout: Arc<Layout>,
    pub(super) refs: Refs,
}

impl Locals {
    /// Returns the local files of every checkpoint of a project that has some.
    pub(crate) fn of(&self, project: &ProjectId) -> Result<Vec<LocalRef>> {
        let dir = format!("{LOCAL_REFS}{project}");
        let mut found = BTreeMap::new();
        // Loose refs first: stock git writes `packed-refs` before it removes them.
        for file in fsx::names_in(&self.layout.store().join(&dir))? {
            let checkpoint = file.to_str().and_then(|file| ObjectId::from_hex(file.as_bytes()));
            let Some(checkpoint) = checkpoint else { continue };
            let path = self.layout.store().join(ref_name(project, checkpoint));
            let text = fsx::read_small(&path, REFS_BYTES_MAX)?.unwrap_or_default();
            if let Some(state) = ObjectId::from_hex(text.trim_ascii()) {
                found.insert(checkpoint, state);
            }
        }
        for (name, state) in self.refs.packed_below(&format!("{dir}/"))? {
            if let Some((_, checkpoint)) = parse(&name) {
                found.entry(checkpoint).or_insert(state);
            }
        }
        Ok(found.into_iter().map(|(checkpoint, state)| LocalRef { checkpoint, state }).collect())
    }

    /// Returns true if no project has local files. A project whose refs cannot be read counts as having some.
    pub(crate) fn is_none(&self) -> bool {
        let loose = fsx::names_in(&self.layout.store().join(LOCAL_REFS.trim_end_matches('/')));
        loose.is_ok_and(|names| names.is_empty())
            && self.refs.packed_below(LOCAL_REFS).is_ok_and(|refs| refs.is_empty())
    }

    /// Returns the state of the local files of a checkpoint.
    pub(crate) fn get(&self, project: &ProjectId, checkpoint: CheckpointId) -> Result<Option<ObjectId>> {
        let name = ref_name(project, checkpoint);
        match fsx::read_small(&self.layout.store().join(&name), REFS_BYTES_MAX)? {
            Some(text) => Ok(ObjectId::from_hex(text.trim_ascii())),
            None => Ok(self.refs.packed_below(&name)?.into_iter().find(|(found, _)| *found == name).map(|(_, id)| id)),
        }
    }

    /// Reads a state. Fails with `Damaged` if it is missing or invalid.
    pub(crate) fn read(&self, objects: &Objects, state: ObjectId) -> Result<LocalState> {
        let entries = objects.tree(state)?;
        let entry = |name: &[u8]| entries.iter().find(|entry| entry.name == name).map(|entry| entry.id);
        match (entry(FILES), entry(FACTS)) {
            (Some(tree), Some(facts)) => Ok(LocalState::decode(tree, &objects.read(facts, ObjectKind::Blob)?)),
            _ => Err(Error::damaged(format!("read the local files {state}"), "an entry is missing")),
        }
    }

    /// Names the state of the local files of a checkpoint. Synced on return.
    pub(crate) fn set(&self, _held: &ProjectLock, project: &ProjectId, local: &LocalRef, now: Moment) -> Result<()> {
        self.refs.set_ref(project.as_str(), &ref_name(project, local.checkpoint), Some(local.state), now)
    }

    /// Drops the local files of a checkpoint.
    pub(crate) fn remove(&self, held: &ProjectLock, project: &ProjectId, id: CheckpointId, now: Moment) -> Result<()> {
        self.refs.delete(held, project, &ref_name(project, id), now)
    }

    /// Drops the local files of all checkpoints of a project.
    pub(crate) fn remove_all(&self, held: &ProjectLock, project: &ProjectId, now: Moment) -> Result<()> {
        self.remove_unless(held, project, &HashSet::new(), now).map(drop)
    }

    /// Drops the local files of checkpoints that are not among `kept`. Returns true if there were any. (Z3)
    pub(crate) fn remove_unless(
        &self,
        held: &ProjectLock,
        project: &ProjectId,
        kept: &HashSet<CheckpointId>,
        now: Moment,
    ) -> Result<bool> {
        let goes: Vec<_> = self.of(project)?.into_iter().filter(|local| !kept.contains(&local.checkpoint)).collect();
        goes.iter().try_for_each(|local| self.remove(held, project, local.checkpoint, now))?;
        Ok(!goes.is_empty())
    }
}

/// Writes the trees of these files. Returns the id of the outermost.
pub(crate) fn build_tree(
    files: &BTreeMap<Vec<u8>, (EntryMode, ObjectId)>,
    new_objects: &NewObjects,
) -> Result<ObjectId> {
    let depth = |dir: &[u8]| dir.iter().filter(|byte| **byte == b'/').count() + usize::from(!dir.is_empty());
    type Entries = Vec<(Vec<u8>, EntryMode, ObjectId)>;
    // The deepest directories first: their trees are entries of those around them.
    let mut dirs: BTreeMap<(Reverse<usize>, Vec<u8>), Entries> = BTreeMap::new();
    dirs.insert((Reverse(0), Vec::new()), Vec::new());
    for (path, (mode, id)) in files {
        let (dir, name) = relpath::split(path);
        dirs.entry((Reverse(depth(dir)), dir.to_vec())).or_default().push((name.to_vec(), *mode, *id));
    }
    let mut writer = new_objects.writer();
    loop {
        let ((_, dir), mut entries) = dirs.pop_first().expect("the root comes last");
        entries.sort_by(|a, b| relpath::git_order((&a.0, a.1 == EntryMode::Dir), (&b.0, b.1 == EntryMode::Dir)));
        let mut bytes = Vec::new();
        entries.iter().for_each(|(name, mode, id)| push_entry(&mut bytes, *mode, name, *id));
        let added = writer.add(ObjectKind::Tree, &bytes)?;
        let id = added.map_err(|collision| Error::damaged("make a tree", collision))?;
        if dir.is_empty() {
            return Ok(id);
        }
        let (around, name) = relpath::split(&dir);
        dirs.entry((Reverse(depth(around)), around.to_vec())).or_default().push((name.to_vec(), EntryMode::Dir, id));
    }
}

/// Returns the ids of the checkpoints that may have local files: a history, and what is pinned besides it.
pub(super) fn ids_of(history: &[Checkpoint], pinned: impl Iterator<Item = CheckpointId>) -> HashSet<CheckpointId> {
    history.iter().map(|one| one.id).chain(pinned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::{NOW, store};

    #[test]
    fn a_state_reads_as_it_was_written() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let held = store.locks.share().expect("a lock");
        let objects = store.objects.open(&held).expect("objects");
        let new_objects = store.objects.new_objects(&objects, false);
        let tree = new_objects.writer().add(ObjectKind::Tree, b"").expect("room").expect("no collision");
        let facts = Facts { files: Some(2), modes: vec![(b".env".to_vec(), 0o600)], ..Facts::default() };
        let state = LocalState { tree, facts, in_use: vec![b"a b.db".to_vec()] };
        let id = state.add_to(&new_objects, None).expect("a state");
        drop(new_objects.publish().expect("a pack"));
        let objects = store.objects.open(&held).expect("objects");
        assert_eq!(store.locals.read(&objects, id).expect("a state"), state);
        assert!(store.locals.read(&objects, tree).is_err(), "an empty tree is none");
    }

    #[test]
    fn each_checkpoint_has_a_ref_of_its_own_packed_or_not() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let project = ProjectId::parse("0123456789abcdef").expect("an id");
        let held = store.locks.share().expect("a lock");
        let locked = store.locks.lock_project(&held, &project).expect("a lock");
        let id = |number: u8| ObjectId::from_bytes([number; 20]);
        let local = |checkpoint, state| LocalRef { checkpoint: id(checkpoint), state: id(state) };
        store.locals.set(&locked, &project, &local(1, 7), NOW).expect("a ref");
        let packed = format!("{} refs/local/{project}/{}\n", id(8), id(2));
        std::fs::write(store.layout.packed_refs(), packed).expect("a file");
        assert_eq!(store.locals.of(&project).expect("refs"), [local(1, 7), local(2, 8)]);
        let get = |checkpoint| store.locals.get(&project, id(checkpoint)).expect("refs");
        assert_eq!([get(1), get(2), get(3)], [Some(id(7)), Some(id(8)), None]);
        assert!(store.locals.remove_unless(&locked, &project, &HashSet::from([id(1)]), NOW).expect("refs"));
        assert!(!store.locals.remove_unless(&locked, &project, &HashSet::from([id(1)]), NOW).expect("refs"));
        assert_eq!(store.locals.of(&project).expect("refs"), [local(1, 7)]);
        store.locals.remove_all(&locked, &project, NOW).expect("refs");
        assert_eq!(store.locals.of(&project).expect("refs"), []);
    }
}
