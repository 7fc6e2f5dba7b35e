//! Publishes the result of a merge as a checkpoint, so that it can be restored like any other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::states::mode_of;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, ObjectId, ObjectKind};
use crate::merge::{EntryKind, MergedContents, MergedEntry, PathChange};
use crate::project::Project;
use crate::relpath;
use crate::settings::Settings;
use crate::store::{
    Checkpoint, EntryMode, Facts, NewCheckpoint, Objects, Origin, ProjectLock, Store, UsualModes, Writer,
    moved_meanwhile, push_entry,
};
use crate::time::Moment;

/// Input for publishing a result.
pub(crate) struct Publish<'a> {
    pub(crate) store: &'a Store,
    pub(crate) project: &'a Project,
    pub(crate) locked: &'a ProjectLock,
    pub(crate) objects: &'a Objects,
    /// Checkpoint of the current files.
    pub(crate) newest: &'a Checkpoint,
    /// Checkpoint from which the turn began.
    pub(crate) start: &'a Checkpoint,
    /// Session whose work is reverted.
    pub(crate) origin: Origin,
    pub(crate) now: Moment,
}

impl Publish<'_> {
    /// Publishes the current files with these changes. `made` are contents that are not in the store.
    pub(crate) fn run(
        &self,
        changes: &[PathChange],
        made: &HashMap<ObjectId, Vec<u8>>,
        reason: &str,
        settings: &Settings,
    ) -> Result<CheckpointId> {
        let new_objects = self.store.objects.new_objects(self.objects, false);
        let tree = self.tree(changes, made, &mut new_objects.writer())?;
        let facts = self.facts(changes);
        let commit = NewCheckpoint {
            tree,
            parent: Some(self.newest.id),
            time: self.now,
            reason,
            facts: &facts,
            project: self.project.id(),
        };
        let id = add(&mut new_objects.writer(), ObjectKind::Commit, &commit.encode())?;
        let (bytes, written) = (new_objects.bytes_on_disk(), new_objects.bytes_written());
        self.store.size.reserve_for("revert a turn", bytes, written, settings.total_bytes_max())?;
        let published = new_objects.publish()?;
        let project = self.project.id();
        if !self.store.refs.advance(self.locked, project, Some(self.newest.id), id, self.now)? {
            return Err(moved_meanwhile("move the project's ref"));
        }
        if !self.store.objects.secure(&published, self.now)? {
            self.store.refs.retreat(self.locked, project, id, Some(self.newest.id), self.now)?;
            return Err(Error::new(ErrorKind::Busy, "revert a turn")
                .because("another program's collection removed objects")
                .with_hint("nothing was touched; try again"));
        }
        Ok(id)
    }

    /// Writes the trees of the result, innermost first.
    fn tree(
        &self,
        changes: &[PathChange],
        made: &HashMap<ObjectId, Vec<u8>>,
        writer: &mut Writer<'_>,
    ) -> Result<ObjectId> {
        // Changed entries by directory, the deepest directories first.
        let depth = |dir: &[u8]| dir.iter().filter(|byte| **byte == b'/').count() + usize::from(!dir.is_empty());
        let mut dirs: BTreeMap<(Reverse<usize>, Vec<u8>), Edits> = BTreeMap::new();
        let edit = |dirs: &mut BTreeMap<_, Edits>, path: &[u8], entry: Option<(EntryMode, ObjectId)>| {
            let (dir, name) = relpath::split(path);
            let edits: &mut Edits = dirs.entry((Reverse(depth(dir)), dir.to_vec())).or_default();
            // A file may take the place of a directory, or a directory that of a file: what exists counts.
            let slot = edits.entry(name.to_vec()).or_default();
            *slot = entry.or(*slot);
        };
        for change in changes {
            let entry = change.new.as_ref().map(|new| write_entry(new, made, writer)).transpose()?;
            edit(&mut dirs, &change.path, entry);
        }
        // The root is written in any case.
        dirs.entry((Reverse(0), Vec::new())).or_default();
        while let Some(((_, dir), edits)) = dirs.pop_first() {
            let id = self.write_dir(&dir, edits, writer)?;
            if dir.is_empty() {
                return id.map_or_else(|| add(writer, ObjectKind::Tree, b""), Ok);
            }
            edit(&mut dirs, &dir, id.map(|id| (EntryMode::Dir, id)));
        }
        Ok(self.newest.tree)
    }

    /// Writes one directory. Returns `None` if nothing is left in it.
    fn write_dir(&self, dir: &[u8], edits: Edits, writer: &mut Writer<'_>) -> Result<Option<ObjectId>> {
        let old = match self.objects.entry_at(self.newest.tree, dir)? {
            Some((EntryMode::Dir, tree)) => self.objects.tree(tree)?,
            _ => Vec::new(),
        };
        let mut entries: Vec<(Vec<u8>, EntryMode, ObjectId)> = old
            .into_iter()
            .filter(|entry| !edits.contains_key(&entry.name))
            .map(|entry| (entry.name, entry.mode, entry.id))
            .collect();
        entries.extend(edits.into_iter().filter_map(|(name, entry)| entry.map(|(mode, id)| (name, mode, id))));
        entries.sort_by(|a, b| relpath::git_order((&a.0, a.1 == EntryMode::Dir), (&b.0, b.1 == EntryMode::Dir)));
        let mut bytes = Vec::new();
        for (name, mode, id) in &entries {
            push_entry(&mut bytes, *mode, name, *id);
        }
        if entries.is_empty() { Ok(None) } else { add(writer, ObjectKind::Tree, &bytes).map(Some) }
    }

    /// Returns the facts of the result: those of the current files, and for files that come back those of the start.
    fn facts(&self, changes: &[PathChange]) -> Facts {
        let (now, then) = (&self.newest.facts, &self.start.facts);
        let then_modes: HashMap<&[u8], u16> = then.modes.iter().map(|(path, mode)| (path.as_slice(), *mode)).collect();
        let mut modes: BTreeMap<Vec<u8>, u16> = now.modes.iter().cloned().collect();
        let mut empty_dirs = now.empty_dirs.clone();
        for PathChange { path, old, new, .. } in changes {
            let Some(new) = new else {
                modes.remove(path);
                continue;
            };
            empty_dirs.retain(|dir| !relpath::is_within(path, dir));
            if old.is_some_and(|old| old.kind == new.kind) || new.kind == EntryKind::Link {
                continue;
            }
            let mode = then_modes.get(path.as_slice()).copied().unwrap_or_else(|| usual(then.usual, new.kind));
            modes.remove(path);
            if mode != usual(now.usual, new.kind) {
                modes.insert(path.clone(), mode);
            }
            // Directories that come back with it.
            let mut dir = relpath::split(path).0;
            while !dir.is_empty() {
                let is_new = matches!(self.objects.entry_at(self.newest.tree, dir), Ok(None));
                let mode = then_modes.get(dir).copied().unwrap_or(then.usual.dir);
                if is_new && mode != now.usual.dir && !modes.contains_key(dir) {
                    modes.insert(dir.to_vec(), mode);
                }
                dir = relpath::split(dir).0;
            }
        }
        let added = changes.iter().filter(|change| change.old.is_none()).count() as u64;
        let removed = changes.iter().filter(|change| change.new.is_none()).count() as u64;
        Facts {
            files: now.files.map(|files| (files + added).saturating_sub(removed)),
            usual: now.usual,
            modes: modes.into_iter().collect(),
            empty_dirs,
            skipped: now.skipped.clone(),
            origin: self.origin.clone(),
            ..Facts::default()
        }
    }
}

type Edits = BTreeMap<Vec<u8>, Option<(EntryMode, ObjectId)>>;

fn add(writer: &mut Writer<'_>, kind: ObjectKind, bytes: &[u8]) -> Result<ObjectId> {
    writer.add(kind, bytes)?.map_err(|collision| Error::damaged("publish the result of a revert", collision))
}

fn write_entry(
    new: &MergedEntry,
    made: &HashMap<ObjectId, Vec<u8>>,
    writer: &mut Writer<'_>,
) -> Result<(EntryMode, ObjectId)> {
    let id = match &new.contents {
        MergedContents::Merged(bytes) => add(writer, ObjectKind::Blob, bytes)?,
        MergedContents::Stored(id) => match made.get(id) {
            Some(bytes) => add(writer, ObjectKind::Blob, bytes)?,
            None => *id,
        },
    };
    Ok((mode_of(new.kind), id))
}

fn usual(usual: UsualModes, kind: EntryKind) -> u16 {
    if kind == EntryKind::Executable { usual.executable } else { usual.file }
}

/// Withdraws a result that was not restored.
pub(crate) fn withdraw(
    store: &Store,
    project: &Project,
    target: CheckpointId,
    parent: CheckpointId,
    now: Moment,
) -> Result<()> {
    if store.intents.get(project.id())?.is_some_and(|intent| intent.target == target) {
        return Ok(());
    }
    let held = store.locks.share()?;
    let locked = store.locks.lock_project_until(&held, project.id(), None)?;
    store.refs.retreat(&locked, project.id(), target, Some(parent), now).map(drop)
}
