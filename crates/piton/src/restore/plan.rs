//! The plan of a restore, as data.

use std::collections::HashSet;

use super::left::Left;
use crate::id::{ObjectId, ObjectKind};
use crate::relpath;
use crate::worktree::SeenFile;

/// Plan of a restore.
#[derive(Debug, Default)]
pub struct RestorePlan {
    pub(crate) writes: Vec<Write>,
    pub(crate) removes: Vec<Remove>,
    pub(crate) modes: Vec<SetMode>,
    /// Directories to create, outermost first, with their permission bits.
    pub(crate) make_dirs: Vec<(Vec<u8>, u16)>,
    /// Directories to remove, innermost first, without those that hold something out of scope.
    pub(crate) drop_dirs: Vec<Vec<u8>>,
    /// Files that no checkpoint covers, with the names that they get.
    pub(crate) asides: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths that the undone restore had moved aside, with their original names.
    pub(crate) backs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths that the first attempt of a continued restore moved aside. They stay there.
    pub(crate) set_aside: Vec<Vec<u8>>,
    /// Paths created out of scope: files with the id of their contents, directories without.
    pub(crate) outside: Vec<(Vec<u8>, Option<ObjectId>)>,
    /// Temporary files of an earlier attempt, with the recorded state of those that may hold the user's data.
    pub(crate) leftovers: Vec<(Vec<u8>, Option<SeenFile>)>,
    /// Contents that will be overwritten or removed, and the trees that lead to them in the safety checkpoint.
    pub(crate) saved: HashSet<(ObjectKind, ObjectId)>,
    pub(crate) left: Vec<Left>,
    /// Missing kept files that come back.
    pub(crate) kept: Vec<Vec<u8>>,
    /// Kept files that came back by the undone restore, and are removed again.
    pub(crate) kept_removes: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) path: Vec<u8>,
    pub(crate) id: ObjectId,
    /// `None` for a link.
    pub(crate) mode: Option<u16>,
    pub(crate) over: Option<SeenFile>,
}

#[derive(Debug)]
pub(crate) struct Remove {
    pub(crate) path: Vec<u8>,
    pub(crate) seen: SeenFile,
}

#[derive(Debug)]
pub(crate) struct SetMode {
    pub(crate) path: Vec<u8>,
    pub(crate) mode: u16,
    /// `None` for a directory.
    pub(crate) seen: Option<SeenFile>,
}

impl SetMode {
    /// Returns the file if it has other hard links: it is replaced by a copy with the new mode, so that they keep
    /// theirs.
    pub(crate) fn linked(&self) -> Option<&SeenFile> {
        self.seen.as_ref().filter(|seen| seen.stat.links > 1)
    }
}

impl RestorePlan {
    /// Returns the number of changes.
    pub fn changes(&self) -> usize {
        let files = self.writes.len() + self.removes.len() + self.modes.len() + self.asides.len() + self.backs.len();
        let kept = self.kept.len() + self.kept_removes.len();
        files + self.make_dirs.len() + self.drop_dirs.len() + self.leftovers.len() + kept
    }

    /// Returns true if this path is renamed back or stays moved aside, or is in a directory that is.
    pub(super) fn moves_from(&self, path: &[u8]) -> bool {
        let mut moved = self.backs.iter().map(|(from, _)| from).chain(&self.set_aside);
        moved.any(|from| relpath::is_within(path, from))
    }

    /// Returns true if this path is renamed back to its original name, or is in a directory that is.
    pub(super) fn goes_back(&self, path: &[u8]) -> bool {
        self.backs.iter().any(|(from, _)| relpath::is_within(path, from))
    }

    /// Returns true if something in this directory is renamed back to its original name.
    pub(super) fn has_moves_in(&self, dir: &[u8]) -> bool {
        self.backs.iter().any(|(from, _)| relpath::is_within(from, dir))
    }

    /// Returns true if something is renamed back to this exact path.
    pub(super) fn moves_to(&self, path: &[u8]) -> bool {
        self.backs.iter().any(|(from, name)| relpath::join(relpath::split(from).0, name) == path)
    }

    /// Returns true if something is renamed back to this path or to a directory that contains it, so that the current
    /// contents have to be removed.
    pub(super) fn makes_way(&self, path: &[u8]) -> bool {
        let mut places = self.backs.iter().map(|(from, name)| relpath::join(relpath::split(from).0, name));
        places.any(|place| relpath::is_within(path, &place))
    }

    /// Returns the `.gitignore` files that will be written or removed.
    pub(super) fn changed_rules(&self) -> Vec<Vec<u8>> {
        let written = self.writes.iter().map(|write| &write.path);
        let all = written.chain(self.removes.iter().map(|remove| &remove.path));
        all.filter(|path| relpath::split(path).1 == b".gitignore").cloned().collect()
    }

    /// Returns the files that will be written, each with true if it is new.
    pub fn written(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let kept = self.kept.iter().map(|path| (path.as_slice(), true));
        self.writes.iter().map(|write| (write.path.as_slice(), write.over.is_none())).chain(kept)
    }

    /// Returns the files and directories of which only the permission bits will be set.
    pub(crate) fn modes_set(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.modes.iter().map(|set| &set.path)
    }

    /// Returns the files that will be removed.
    pub fn removed(&self) -> impl Iterator<Item = &[u8]> {
        self.removes.iter().map(|remove| &remove.path).chain(&self.kept_removes).map(Vec::as_slice)
    }

    /// Returns the files that come back as they were kept before a command destroyed them.
    pub fn kept(&self) -> &[Vec<u8>] {
        &self.kept
    }

    /// Returns the files and directories whose permission bits will change, with the new bits.
    pub fn modes_changed(&self) -> impl Iterator<Item = (&[u8], u16)> {
        self.modes.iter().map(|mode| (mode.path.as_slice(), mode.mode))
    }

    /// Returns the directories that will be created, and those that will be removed if nothing else is in them.
    pub fn directories(&self) -> (Vec<&[u8]>, Vec<&[u8]>) {
        let made = self.make_dirs.iter().map(|(dir, _)| dir.as_slice()).collect();
        (made, self.drop_dirs.iter().map(Vec::as_slice).collect())
    }

    /// Returns the files that differ and are left as they are.
    pub fn left(&self) -> &[Left] {
        &self.left
    }

    /// Returns the files that will be moved aside, with the names that they get.
    pub fn moved_aside(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.asides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A restore whose plan counts no change is skipped.
    #[test]
    fn every_planned_change_counts_once() {
        let seen = crate::sys::stat_path(std::path::Path::new("/")).expect("a root");
        let (id, path) = (ObjectId::from_bytes([7; 20]), || b"path".to_vec());
        let seen = SeenFile { stat: seen, id };
        let plan = RestorePlan {
            writes: (0..2).map(|_| Write { path: path(), id, mode: None, over: None }).collect(),
            removes: (0..3).map(|_| Remove { path: path(), seen }).collect(),
            modes: (0..5).map(|_| SetMode { path: path(), mode: 0o644, seen: None }).collect(),
            make_dirs: vec![(path(), 0o755); 7],
            drop_dirs: vec![path(); 11],
            asides: vec![(path(), path()); 13],
            backs: vec![(path(), path()); 17],
            leftovers: vec![(path(), None); 19],
            kept: vec![path(); 23],
            kept_removes: vec![path(); 29],
            ..RestorePlan::default()
        };
        assert_eq!(plan.changes(), 2 + 3 + 5 + 7 + 11 + 13 + 17 + 19 + 23 + 29);
    }
}
