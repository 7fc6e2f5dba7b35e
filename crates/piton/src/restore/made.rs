//! Files that a restore created out of scope, and their state at present.

use std::collections::BTreeSet;

use crate::store::Checkpoint;
use crate::sys::{Dir, Kind};
use crate::worktree::{id_of_path, stat_path};

/// Files and directories that the restore after a checkpoint created out of scope.
#[derive(Default)]
pub(super) struct MadeFiles {
    /// Those that are as that restore created them. A survey that is given these finds them.
    pub(super) as_made: BTreeSet<Vec<u8>>,
    /// Files that changed since. No checkpoint may hold them.
    pub(super) changed: Vec<Vec<u8>>,
    /// Kept files that it brought back and that this restore removes.
    pub(super) kept: BTreeSet<Vec<u8>>,
    /// Kept files that this restore brings back.
    pub(super) kept_back: BTreeSet<Vec<u8>>,
}

impl MadeFiles {
    /// Inspects the paths that the restore after `target` created out of scope.
    pub(super) fn after(target: &Checkpoint, root: &Dir) -> Self {
        let mut made = Self::default();
        for (path, id) in target.facts.restoring.iter().flat_map(|restoring| &restoring.outside) {
            let Ok(stat) = stat_path(root, path) else { continue };
            let is_as_made = match id {
                None => stat.kind == Kind::Dir,
                Some(id) => {
                    matches!(stat.kind, Kind::File | Kind::Link) && id_of_path(root, path, stat.kind) == Some(*id)
                }
            };
            if is_as_made {
                made.as_made.insert(path.clone());
            } else if id.is_some() {
                made.changed.push(path.clone());
            }
        }
        made
    }
}
