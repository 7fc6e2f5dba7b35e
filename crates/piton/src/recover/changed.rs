//! Files that changed since a checkpoint and are still there.

use std::collections::HashSet;

use super::local::LocalVersions;
use super::{LostFrom, LostItem, LostKind};
use crate::diff::{DiffStatus, diff};
use crate::error::Result;
use crate::history::History;
use crate::id::CheckpointId;
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::store::{EntryMode, Store};
use crate::worktree::stat_path;

/// Adds the files and the local files of a checkpoint that have another version now, by path, unless they are listed. If
/// the comparison fails, nothing is added: lost files are still listed.
pub(super) fn add_changed(
    items: &mut Vec<LostItem>,
    history: &History,
    local: &LocalVersions,
    id: CheckpointId,
    (store, project, settings, progress): (&Store, &Project, &Settings, &Progress),
) -> Result<()> {
    let Some(checkpoint) = history.checkpoints().iter().find(|one| one.id == id) else { return Ok(()) };
    let Ok(found) = diff(store, project, (&id.to_string(), None), &[], settings, progress) else {
        return Ok(());
    };
    let row = history.rows().position(|row| row.id == id).map(|at| at + 1);
    let objects = history.objects();
    let Some(root) = project.open_dir()? else { return Ok(()) };
    let known: HashSet<Vec<u8>> = items.iter().map(|item| item.path.clone()).collect();
    let is_there = |path: &[u8]| !known.contains(path) && stat_path(&root, path).is_ok();
    let in_scope = found.files.iter().filter(|file| file.status == DiffStatus::Modified).map(|file| &file.path);
    let in_scope = in_scope.map(|path| (LostKind::File, path));
    for (kind, path) in in_scope.chain(found.local.iter().map(|path| (LostKind::Local, path))) {
        let entry = match kind {
            LostKind::Local => local.entry(id, path),
            _ => objects.entry_at(checkpoint.tree, path)?,
        };
        let is_file = |(mode, _): &(EntryMode, _)| !matches!(mode, EntryMode::Commit | EntryMode::Dir);
        let Some((_, blob)) = entry.filter(is_file).filter(|_| is_there(path)) else { continue };
        items.push(LostItem {
            kind,
            path: path.clone(),
            from: LostFrom::Checkpoint(id),
            row,
            bytes: objects.blob_size(blob)?,
            files: 1,
            is_changed: false,
            command: None,
            lost: None,
            is_replaced: true,
            git_state: None,
        });
    }
    Ok(())
}
