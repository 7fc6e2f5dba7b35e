//! The survey of a take that is completed after its deadline: files that changed since the prompt are left out.

use crate::skipped::{SkipReason, Skipped};
use crate::worktree::{Manifest, is_settled};

/// Removes files and directories from the manifest that changed after `since`, and adds them to `skipped`. Returns true
/// if anything changed; files may have been deleted then, too.
///
/// The times of a directory show that names in it changed, but not which. A directory that was moved, or of which
/// nothing is left, is left out as a whole, because its contents may have been elsewhere.
pub(super) fn leave_out_changed(manifest: &mut Manifest, skipped: &mut Vec<Skipped>, since: i128) -> bool {
    let mut is_any = false;
    let mut goes = vec![false; manifest.dirs.len()];
    let mut names = vec![Vec::new(); manifest.dirs.len()];
    for at in (0..manifest.dirs.len()).rev() {
        let dir = &mut manifest.dirs[at];
        let changed = dir.files.iter().filter(|file| !is_settled(file.stat.ctime, since));
        names[at] = changed.map(|file| dir.path_of(file)).collect();
        if !names[at].is_empty() {
            dir.files.retain(|file| is_settled(file.stat.ctime, since));
            dir.same_files = false;
        }
        let is_changed = !is_settled(dir.ctime, since);
        let is_moved = is_changed && is_settled(dir.mtime, since);
        let is_bare = dir.files.is_empty() && dir.dirs.iter().all(|below| goes[*below]);
        goes[at] = at > 0 && is_changed && (is_moved || is_bare);
        is_any |= is_changed || !names[at].is_empty();
    }
    // Parents come first: a directory that is left out covers everything in it.
    let mut is_within = vec![false; manifest.dirs.len()];
    for at in 0..manifest.dirs.len() {
        let is_gone = goes[at] || is_within[at];
        if !is_gone {
            skipped.extend(names[at].drain(..).map(|path| Skipped::file(path, SkipReason::Changing)));
            continue;
        }
        let dir = &mut manifest.dirs[at];
        dir.files.clear();
        (dir.same_files, dir.exceptional) = (false, true);
        if !is_within[at] {
            skipped.push(Skipped::dir(dir.path.to_vec(), SkipReason::Changing));
        }
        for below in &manifest.dirs[at].dirs {
            is_within[*below] = true;
        }
    }
    is_any
}
