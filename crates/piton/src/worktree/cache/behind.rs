//! Large index that is not rewritten for a few changes (C4): the paths at which it is outdated, within limits.

use std::collections::BTreeSet;

use super::super::manifest::Manifest;
use super::lookup::{CachedDirs, DirInCache};
use crate::relpath;

/// Up to this many files are read again with each take instead of writing the index. Their sizes and the length of
/// their paths are limited, too, so that reading the files takes a fraction of the time for writing the index.
pub(super) const PATHS_MAX: usize = 32;
const PATHS_BYTES_MAX: usize = 16 << 10;
const INDEX_PER_FILES: usize = 16;

/// Returns the paths at which an index of `index_bytes` bytes differs from the manifest, together with `before`. Returns
/// `None` if they exceed the limits, or if a directory is gone: the index has to be rewritten then.
pub(super) fn paths_behind(
    manifest: &Manifest,
    cached: &CachedDirs<'_>,
    before: BTreeSet<Vec<u8>>,
    index_bytes: usize,
) -> Option<BTreeSet<Vec<u8>>> {
    let mut files_bytes_left = (index_bytes / INDEX_PER_FILES) as u64;
    let mut paths_left = PATHS_MAX.checked_sub(before.len())?;
    let mut paths_bytes_left = PATHS_BYTES_MAX.checked_sub(before.iter().map(Vec::len).sum())?;
    let mut paths = before;
    let mut note = |path: Vec<u8>, file_bytes: u64| {
        files_bytes_left = files_bytes_left.checked_sub(file_bytes)?;
        if !paths.contains(&path) {
            paths_left = paths_left.checked_sub(1)?;
            paths_bytes_left = paths_bytes_left.checked_sub(path.len())?;
            paths.insert(path);
        }
        Some(())
    };
    for dir in &manifest.dirs {
        let known_dirs = dir.dirs.iter().filter(|below| manifest.dirs[**below].cached.is_some()).count();
        if dir.cached.is_some_and(|at| cached.dirs_in(at) != known_dirs) {
            return None;
        }
        if dir.same_files {
            continue;
        }
        let mut known = dir.cached.map(|at| cached.dir(at)).into_iter().flat_map(DirInCache::files).peekable();
        for file in &dir.files {
            let name = dir.name_of(file);
            while let Some(gone) = known.next_if(|known| known.name < name) {
                note(relpath::join(&dir.path, gone.name), 0)?;
            }
            let same = known.next_if(|known| known.name == name);
            if !same.is_some_and(|same| Some(same.entry.id) == file.id && same.entry.agrees_with(&file.stat)) {
                note(dir.path_of(file), file.stat.size)?;
            }
        }
        for gone in known {
            note(relpath::join(&dir.path, gone.name), 0)?;
        }
    }
    Some(paths)
}
