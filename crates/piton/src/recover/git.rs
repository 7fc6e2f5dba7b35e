//! Parts of the project's git repository that were lost.

use super::{LostFrom, LostItem, LostKind};
use crate::error::Result;
use crate::git_state::{GitItemKind, lost_items};
use crate::history::History;
use crate::progress::Progress;
use crate::project::Project;
use crate::store::Store;
use crate::time::Moment;

/// Returns what the states that were recorded since a time have and the repository lacks. A state without a checkpoint is
/// listed with the newest one.
pub(super) fn lost(
    store: &Store,
    project: &Project,
    history: &History,
    since: Option<Moment>,
    progress: &Progress,
) -> Result<Vec<LostItem>> {
    let Some(newest) = history.checkpoints().first() else { return Ok(Vec::new()) };
    let mut items = Vec::new();
    for item in lost_items(store, project, since, progress)? {
        let kind = match item.kind {
            GitItemKind::Branch => LostKind::Branch,
            GitItemKind::Tag => LostKind::Tag,
            GitItemKind::Stash => LostKind::Stash,
            GitItemKind::Worktree => LostKind::Worktree,
            GitItemKind::Objects => LostKind::Objects,
            GitItemKind::Repository => LostKind::Repository,
            GitItemKind::Refs => LostKind::Refs,
            _ => continue,
        };
        let from = item.checkpoint.unwrap_or(newest.id);
        let row = history.rows().position(|row| row.id == from).map(|at| at + 1);
        let (path, git_state) = (item.name.into_bytes(), Some(item.state));
        let from = LostFrom::Checkpoint(from);
        let (files, is_changed, command) = (1, false, None);
        items.push(LostItem {
            kind,
            path,
            from,
            row,
            bytes: 0,
            files,
            is_changed,
            command,
            lost: None,
            is_replaced: item.is_replaced,
            git_state,
        });
    }
    Ok(items)
}
