//! Trees of a survey: one for each directory, rebuilt only where something changed.

use crate::error::{Error, Result};
use crate::id::{ObjectId, ObjectKind};
use crate::store::{EntryMode, NewObjects, push_entry};
use crate::sys::Kind;
use crate::worktree::{CachedDirs, Child, FileNode, Manifest};

/// Builds the trees of all directories, innermost first. A directory in which nothing changed keeps its tree.
pub(super) fn build_trees(
    manifest: &Manifest,
    cache: Option<&CachedDirs<'_>>,
    new_objects: &NewObjects,
) -> Result<Vec<Option<ObjectId>>> {
    let mut trees = vec![None; manifest.dirs.len()];
    let mut writer = None;
    for at in (0..manifest.dirs.len()).rev() {
        let dir = &manifest.dirs[at];
        let below = || dir.dirs.iter().filter(|below| trees[**below].is_some());
        if at > 0 && dir.files.is_empty() && below().next().is_none() {
            continue;
        }
        let kept = cache.zip(dir.cached).and_then(|(cache, cached)| {
            let is_kept = |below: &usize| {
                let before = manifest.dirs[*below].cached.and_then(|cached| cache.tree(cached));
                before.is_some() && before == trees[*below]
            };
            let all_kept = dir.same_files && below().count() == cache.dirs_in(cached) && below().all(is_kept);
            cache.tree(cached).filter(|_| all_kept)
        });
        trees[at] = match kept {
            Some(tree) => Some(tree),
            None => {
                let bytes = encode_tree(manifest, at, &trees);
                let writer = writer.get_or_insert_with(|| new_objects.writer());
                let added = writer.add(ObjectKind::Tree, &bytes)?;
                Some(added.map_err(|collision| Error::damaged("make a tree", collision))?)
            }
        };
    }
    Ok(trees)
}

fn encode_tree(manifest: &Manifest, at: usize, trees: &[Option<ObjectId>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for child in manifest.children(at) {
        match child {
            Child::File(name, file) => {
                let id = file.id.expect("files without an id were taken out");
                push_entry(&mut bytes, entry_mode(file), name, id);
            }
            Child::Dir(dir) => {
                if let Some(tree) = trees[dir] {
                    push_entry(&mut bytes, EntryMode::Dir, manifest.dirs[dir].name(), tree);
                }
            }
        }
    }
    bytes
}

/// Returns the mode of a file in a tree.
pub(crate) fn entry_mode(file: &FileNode) -> EntryMode {
    match file.stat.kind {
        Kind::Link => EntryMode::Link,
        _ if file.stat.mode & 0o100 != 0 => EntryMode::Executable,
        _ => EntryMode::File,
    }
}
