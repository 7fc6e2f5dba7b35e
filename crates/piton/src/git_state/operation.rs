//! Files of an operation of git in progress, such as a merge with conflicts or a rebase. They belong to the index and to
//! `HEAD`: beside those of another state, the next commit would be a merge that drops all changes of the other side.

use std::collections::BTreeSet;

use super::snapshot::GitSnapshot;
use crate::worktree::RepositoryPlace;

/// Names in the git directory of a worktree. Directories are operations, too.
const NAMES: [&[u8]; 10] = [
    b"AUTO_MERGE",
    b"CHERRY_PICK_HEAD",
    b"MERGE_AUTOSTASH",
    b"MERGE_HEAD",
    b"MERGE_MODE",
    b"MERGE_MSG",
    b"MERGE_RR",
    b"REVERT_HEAD",
    b"SQUASH_MSG",
    b"sequencer",
];
/// Names of operations that move `HEAD`, besides those that begin with [`BISECT`].
const MOVING_HEAD: [&[u8]; 3] = [b"REBASE_HEAD", b"rebase-apply", b"rebase-merge"];
const BISECT: &[u8] = b"BISECT_";
const BISECT_REFS: &[u8] = b"refs/bisect/";

/// A file of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OperationFile {
    pub(super) path: Vec<u8>,
    /// Path of the file, or of the directory in the git directory that it is in.
    pub(super) operation: Vec<u8>,
    /// True if the operation moves `HEAD`.
    pub(super) moves_head: bool,
}

impl OperationFile {
    /// Returns `None` for the path of any other file.
    fn at(path: &[u8], place: &RepositoryPlace) -> Option<Self> {
        let own = place.own_path("");
        let own = own.strip_suffix(b"/").unwrap_or(&own);
        let below = if own.is_empty() { path } else { path.strip_prefix(own)?.strip_prefix(b"/")? };
        let first = below.split(|byte| *byte == b'/').next().unwrap_or_default();
        let is_bisection = first.starts_with(BISECT) || below.starts_with(BISECT_REFS);
        let moves_head = is_bisection || MOVING_HEAD.contains(&first);
        let length = if below.starts_with(BISECT_REFS) { BISECT_REFS.len() - 1 } else { first.len() };
        let operation = path[..path.len() - below.len() + length].to_vec();
        (moves_head || NAMES.contains(&first)).then(|| Self { path: path.to_vec(), operation, moves_head })
    }
}

/// Returns true for a file of an operation in this worktree.
pub(super) fn is_of_operation(path: &[u8], place: &RepositoryPlace) -> bool {
    OperationFile::at(path, place).is_some()
}

/// Returns the files of operations in this worktree that one of two states lacks or has with other contents.
pub(super) fn changed_operation(then: &GitSnapshot, now: &GitSnapshot) -> Vec<OperationFile> {
    let paths: BTreeSet<&Vec<u8>> = then.files.keys().chain(now.files.keys()).collect();
    let changed = paths.into_iter().filter(|path| then.bytes(path) != now.bytes(path));
    changed.filter_map(|path| OperationFile::at(path, &then.place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_operation_are_those_of_the_own_worktree() {
        let place = |own: &str| RepositoryPlace { root: "/p".into(), own: own.into(), common: "/r".into() };
        let (main, linked) = (place("/r"), place("/r/worktrees/a"));
        let found = |path: &str, place| {
            let file = OperationFile::at(path.as_bytes(), place)?;
            Some((String::from_utf8(file.operation).expect("text"), file.moves_head))
        };
        let some = |name: &str, moves_head| Some((name.to_owned(), moves_head));
        assert_eq!(found("MERGE_HEAD", &main), some("MERGE_HEAD", false));
        assert_eq!(found("sequencer/todo", &main), some("sequencer", false));
        assert_eq!(found("rebase-merge/done", &main), some("rebase-merge", true));
        assert_eq!(found("BISECT_LOG", &main), some("BISECT_LOG", true));
        assert_eq!(found("refs/bisect/bad", &main), some("refs/bisect", true));
        assert_eq!(found("worktrees/a/refs/bisect/bad", &linked), some("worktrees/a/refs/bisect", true));
        assert_eq!(found("worktrees/a/MERGE_MSG", &linked), some("worktrees/a/MERGE_MSG", false));
        for path in ["HEAD", "ORIG_HEAD", "refs/heads/MERGE_HEAD", "worktrees/a/MERGE_HEAD", "modules/m/MERGE_HEAD"] {
            assert_eq!(found(path, &main), None, "{path}");
        }
        for path in ["MERGE_HEAD", "worktrees/b/MERGE_HEAD", "worktrees/ab/MERGE_HEAD"] {
            assert_eq!(found(path, &linked), None, "{path}");
        }
    }
}
