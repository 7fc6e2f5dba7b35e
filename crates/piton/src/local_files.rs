//! The local files of a checkpoint, by name: small files out of its scope that were saved with it.

use crate::error::Result;
use crate::id::{CheckpointId, ObjectId};
use crate::json::{AtPath, JsonPath};
use crate::project::Project;
use crate::store::{EntryMode, Store};
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

/// Returns the paths of local files that differ between two checkpoints, or between one and the files as they are. Files
/// that were made since are not among the latter.
pub fn differing_local_files(
    store: &Store,
    project: &Project,
    from: CheckpointId,
    to: Option<CheckpointId>,
) -> Result<Vec<Vec<u8>>> {
    let held = store.locks.share()?;
    let objects = store.objects.open(&held)?;
    let tree = |id: CheckpointId| -> Result<Option<ObjectId>> {
        let state = store.locals.get(project.id(), id)?;
        state.map(|state| Ok(store.locals.read(&objects, state)?.tree)).transpose()
    };
    if let Some(to) = to {
        let changes = objects.compare_trees(tree(from)?, tree(to)?)?;
        return Ok(changes.into_iter().map(|change| change.path).collect());
    }
    let Some(tree) = tree(from)? else { return Ok(Vec::new()) };
    let root = project.open_dir()?;
    let is_same = |path: &[u8], mode: EntryMode, id: ObjectId| {
        let kind = if mode == EntryMode::Link { Kind::Link } else { Kind::File };
        let root = root.as_ref();
        root.is_some_and(|root| {
            stat_path(root, path).is_ok_and(|stat| stat.kind == kind) && id_of_path(root, path, kind) == Some(id)
        })
    };
    let files = objects.compare_trees(None, Some(tree))?.into_iter();
    let files = files.filter_map(|file| Some((file.path, file.new?)));
    Ok(files.filter(|(path, (mode, id))| !is_same(path, *mode, *id)).map(|(path, _)| path).collect())
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
