//! Counts of the changes between two trees, without a patch.

use std::collections::HashMap;

use super::{DiffStatus, FileDiff, Rename, TEXT_BYTES_MAX, count, is_text};
use crate::error::Result;
use crate::id::{ObjectId, ObjectKind};
use crate::store::{EntryMode, Objects, TreeChange};

/// Returns the changed files with their counts, as [`super::diff`] does, by path.
pub(crate) fn brief(changes: Vec<TreeChange>, objects: &Objects) -> Result<Vec<FileDiff>> {
    let (renames, rest) = pair_renames(changes);
    let mut files: Vec<FileDiff> = renames
        .into_iter()
        .map(|(from, to)| FileDiff { old_path: Some(from), ..FileDiff::new(to, DiffStatus::Renamed) })
        .collect();
    for TreeChange { path, old, new } in rest {
        let blob = |side: Option<(EntryMode, ObjectId)>| side.filter(|(mode, _)| *mode != EntryMode::Commit);
        let (old, new) = (blob(old), blob(new));
        let status = match (old, new) {
            (None, None) => continue,
            (None, _) => DiffStatus::Added,
            (_, None) => DiffStatus::Deleted,
            _ => DiffStatus::Modified,
        };
        let read = |side: Option<(EntryMode, ObjectId)>| match side {
            None => Ok(Some(Vec::new())),
            Some((_, id)) if objects.blob_size(id)? > TEXT_BYTES_MAX as u64 => Ok(None),
            Some((_, id)) => objects.read(id, ObjectKind::Blob).map(Some),
        };
        let mut file = FileDiff::new(path, status);
        match (read(old)?, read(new)?) {
            (Some(old), Some(new)) if is_text(&old) && is_text(&new) => {
                (file.insertions, file.deletions) = count(&old, &new);
            }
            _ => file.is_binary = true,
        }
        files.push(file);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Pairs deleted files with added ones of the same contents and mode. Empty files are not paired, because they are all
/// equal. Returns old and new paths, and the other changes.
pub(crate) fn pair_renames(changes: Vec<TreeChange>) -> (Vec<Rename>, Vec<TreeChange>) {
    let mut gone: HashMap<(EntryMode, ObjectId), Vec<usize>> = HashMap::new();
    for (at, change) in changes.iter().enumerate().rev() {
        if let (Some(old), None) = (change.old, change.new)
            && old.1 != ObjectId::EMPTY_BLOB
        {
            gone.entry(old).or_default().push(at);
        }
    }
    if gone.is_empty() {
        return (Vec::new(), changes);
    }
    let mut pairs = Vec::new();
    let mut is_paired = vec![false; changes.len()];
    for (at, change) in changes.iter().enumerate() {
        if let (None, Some(new)) = (change.old, change.new)
            && let Some(from) = gone.get_mut(&new).and_then(Vec::pop)
        {
            (is_paired[at], is_paired[from]) = (true, true);
            pairs.push((changes[from].path.clone(), change.path.clone()));
        }
    }
    let mut is_paired = is_paired.into_iter();
    let rest = changes.into_iter().filter(|_| !is_paired.next().unwrap_or(false)).collect();
    (pairs, rest)
}
