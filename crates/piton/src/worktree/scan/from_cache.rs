//! Directories that are taken from the cache without listing them (C6).

use std::sync::atomic::Ordering;

use super::{Task, ThreadResult, Work};
use crate::relpath;
use crate::worktree::manifest::{DirNode, FileNode};
use crate::worktree::scope::Decision;

impl Work<'_> {
    /// Takes a directory from the cache. Returns its subdirectories, or `None` if it has to be listed.
    pub(super) fn take_from_cache(&self, task: &Task, found: &mut ThreadResult) -> Option<Vec<Task>> {
        let scan = self.scan;
        let vouched = scan.vouched?;
        let cached = scan.cache.entries()?.dir(task.cached?);
        // The project's own directory is always listed: its rules decide if the project is protected at all. What is
        // left out except for some files depends on what git tracks.
        let may_be_taken = task.at > 0 && task.same_rules && task.judges.within().is_none();
        if !may_be_taken || !scan.cache.is_vouched(vouched, &task.path, cached) {
            return None;
        }
        let judges = task.judges.enter(&task.path, cached.file(b".gitignore").is_some(), None);
        let mut dirs: Vec<_> = cached.dirs().collect();
        dirs.sort_unstable();
        let mut below = Vec::with_capacity(dirs.len());
        for (name, at) in dirs {
            let path = relpath::join(&task.path, name);
            let (decision, judges) = judges.decide(scan.scope, &path, true, scan.root);
            if matches!(decision, Decision::Out(_)) {
                return None;
            }
            below.push(Task { at: 0, path, parent: None, judges, cached: Some(at), same_rules: true });
        }
        for task in &mut below {
            task.at = self.dirs.fetch_add(1, Ordering::Relaxed);
        }
        let mut node = DirNode {
            path: task.path.clone().into(),
            mode: vouched.dir_mode(&task.path),
            dirs: below.iter().map(|task| task.at).collect(),
            cached: task.cached,
            same_files: true,
            ..DirNode::default()
        };
        node.files.reserve_exact(cached.len());
        for file in cached.files() {
            let stat = vouched.stat(&relpath::join(&task.path, file.name), &file.entry);
            let name = node.keep_name(file.name);
            node.modes.count(&stat);
            node.files.push(FileNode { name, stat, id: Some(file.entry.id), target: None, may_be_known: false });
        }
        scan.progress.files_found.fetch_add(node.files.len() as u64, Ordering::Relaxed);
        found.nodes.push((task.at, node));
        Some(below)
    }
}
