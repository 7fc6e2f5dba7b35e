//! The local files of a checkpoint, by name: small files out of its scope that were saved with it.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::json::{AtPath, JsonPath};
use crate::project::Project;
use crate::store::{EntryMode, Objects, Store};
use crate::sys::Kind;
use crate::worktree::{id_of_path, stat_path};

/// Local files of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalFiles {
    /// Path and size of each file, sorted by path.
    pub files: Vec<(Vec<u8>, u64)>,
    /// True if not all files could be saved.
    pub is_incomplete: bool,
}

/// Returns the local files of a checkpoint. Fails with `Damaged` if they cannot be read.
pub fn local_files(store: &Store, project: &Project, checkpoint: CheckpointId) -> Result<Option<LocalFiles>> {
    let held = store.locks.share()?;
    let Some(state) = store.locals.get(project.id(), checkpoint)? else { return Ok(None) };
    let objects = store.objects.open(&held)?;
    let state = store.locals.read(&objects, state)?;
    let mut files = Vec::new();
    for file in objects.compare_trees(None, Some(state.tree))? {
        if let Some((_, id)) = file.new {
            files.push((file.path, objects.blob_size(id)?));
        }
    }
    files.sort();
    Ok(Some(LocalFiles { files, is_incomplete: state.facts.is_incomplete }))
}

/// Returns the paths of the local files that differ between two checkpoints.
pub(crate) fn differing_local_files(
    store: &Store,
    objects: &Objects,
    project: &ProjectId,
    from: CheckpointId,
    to: CheckpointId,
) -> Result<Vec<Vec<u8>>> {
    let (from, to) = (tree_of(store, objects, project, from)?, tree_of(store, objects, project, to)?);
    Ok(objects.compare_trees(from, to)?.into_iter().map(|change| change.path).collect())
}

/// Returns the sorted paths of the local files of a checkpoint that differ from the current ones (`present`), and of
/// those created since.
pub(crate) fn local_files_changed_since(
    store: &Store,
    objects: &Objects,
    project: &Project,
    from: CheckpointId,
    present: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>> {
    let tree = tree_of(store, objects, project.id(), from)?;
    let root = project.open_dir()?;
    let is_same = |path: &[u8], mode: EntryMode, id: ObjectId| {
        let kind = if mode == EntryMode::Link { Kind::Link } else { Kind::File };
        let root = root.as_ref();
        root.is_some_and(|root| {
            stat_path(root, path).is_ok_and(|stat| stat.kind == kind) && id_of_path(root, path, kind) == Some(id)
        })
    };
    let mut differing: BTreeSet<Vec<u8>> = present.into_iter().collect();
    for file in objects.compare_trees(None, tree)? {
        let Some((mode, id)) = file.new else { continue };
        if is_same(&file.path, mode, id) {
            differing.remove(&file.path);
        } else {
            differing.insert(file.path);
        }
    }
    Ok(differing.into_iter().collect())
}

fn tree_of(store: &Store, objects: &Objects, project: &ProjectId, id: CheckpointId) -> Result<Option<ObjectId>> {
    let state = store.locals.get(project, id)?;
    state.map(|state| Ok(store.locals.read(objects, state)?.tree)).transpose()
}

/// Local files of a project's newest checkpoint, for a summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalSummary {
    /// Number of files.
    pub files: u64,
    /// Paths of some of them.
    pub named: Vec<Vec<u8>>,
}

/// Number of files that a summary names.
const NAMED_MAX: usize = 8;

/// Returns the local files of the newest checkpoint of a project. Empty if they cannot be read.
pub(crate) fn local_summary(store: &Store, objects: &Objects, project: &ProjectId) -> LocalSummary {
    let newest = store.refs.newest(project).ok().flatten();
    let tree = newest.and_then(|newest| tree_of(store, objects, project, newest).ok().flatten());
    let files = tree.and_then(|tree| objects.compare_trees(None, Some(tree)).ok()).unwrap_or_default();
    let named = files.iter().take(NAMED_MAX).map(|file| file.path.clone()).collect();
    LocalSummary { files: files.len() as u64, named }
}

/// JSON of [`LocalFiles`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LocalFilesJson<'a> {
    /// files, by path
    files: Vec<LocalFileJson<'a>>,
    /// true if not all could be saved
    incomplete: bool,
}

/// JSON of one local file.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LocalFileJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtPath>,
    /// number of bytes
    bytes: u64,
}

impl<'a> From<&'a LocalFiles> for LocalFilesJson<'a> {
    fn from(local: &'a LocalFiles) -> Self {
        let file =
            |(path, bytes): &'a (Vec<u8>, u64)| LocalFileJson { path: JsonPath::new(path.as_slice()), bytes: *bytes };
        Self { files: local.files.iter().map(file).collect(), incomplete: local.is_incomplete }
    }
}

crate::json::serialized_as! {
    LocalFiles => LocalFilesJson<'_>;
}
