//! What a restore will do, as data.

use std::collections::HashSet;

use super::left::Left;
use crate::id::{ObjectId, ObjectKind};
use crate::relpath;
use crate::worktree::SeenFile;

/// What a restore will do.
#[derive(Debug, Default)]
pub struct RestorePlan {
    pub(crate) writes: Vec<Write>,
    pub(crate) removes: Vec<Remove>,
    pub(crate) modes: Vec<SetMode>,
    /// Outermost first, with their permission bits.
    pub(crate) make_dirs: Vec<(Vec<u8>, u16)>,
    /// Innermost first, without those that hold something out of scope.
    pub(crate) drop_dirs: Vec<Vec<u8>>,
    /// Files that no checkpoint covers, and the names that they get.
    pub(crate) asides: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the restore which is taken back had given another name, and the names that it had.
    pub(crate) backs: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the first try of a restore that goes on moved aside. It stays there.
    pub(crate) set_aside: Vec<Vec<u8>>,
    /// What is made out of scope: files with the id of their contents, directories without.
    pub(crate) outside: Vec<(Vec<u8>, Option<ObjectId>)>,
    /// Temporary files that an earlier attempt left behind; with what was seen of those that may hold what was the user's.
    pub(crate) leftovers: Vec<(Vec<u8>, Option<SeenFile>)>,
    /// The contents that will be overwritten or removed, and the trees that lead to them in the safety checkpoint.
    pub(crate) saved: HashSet<(ObjectKind, ObjectId)>,
    pub(crate) left: Vec<Left>,
}

#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) path: Vec<u8>,
    pub(crate) id: ObjectId,
    /// None for a link.
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
    /// None for a directory.
    pub(crate) seen: Option<SeenFile>,
}

impl SetMode {
    /// The file, where it has other names: it is replaced by a copy with the new mode, so that they keep theirs.
    pub(crate) fn linked(&self) -> Option<&SeenFile> {
        self.seen.as_ref().filter(|seen| seen.stat.links > 1)
    }
}

impl RestorePlan {
    /// Returns how many things will change.
    pub fn changes(&self) -> usize {
        let files = self.writes.len() + self.removes.len() + self.modes.len() + self.asides.len() + self.backs.len();
        files + self.make_dirs.len() + self.drop_dirs.len() + self.leftovers.len()
    }

    /// Returns whether this goes back to a name that it had or stays aside, or is in a directory that does.
    pub(super) fn moves_from(&self, path: &[u8]) -> bool {
        let mut moved = self.backs.iter().map(|(from, _)| from).chain(&self.set_aside);
        moved.any(|from| relpath::is_within(path, from))
    }

    /// Returns whether this goes back to a name that it had, or is in a directory that does.
    pub(super) fn goes_back(&self, path: &[u8]) -> bool {
        self.backs.iter().any(|(from, _)| relpath::is_within(path, from))
    }

    /// Returns whether something in this directory goes back to a name that it had.
    pub(super) fn has_moves_in(&self, dir: &[u8]) -> bool {
        self.backs.iter().any(|(from, _)| relpath::is_within(from, dir))
    }

    /// Returns whether something goes back to this very path.
    pub(super) fn moves_to(&self, path: &[u8]) -> bool {
        self.backs.iter().any(|(from, name)| relpath::join(relpath::split(from).0, name) == path)
    }

    /// Returns whether something goes back to this path or to a directory that it is in: what is there makes way.
    pub(super) fn makes_way(&self, path: &[u8]) -> bool {
        let mut places = self.backs.iter().map(|(from, name)| relpath::join(relpath::split(from).0, name));
        places.any(|place| relpath::is_within(path, &place))
    }

    /// The `.gitignore` files that will be written or removed.
    pub(super) fn changed_rules(&self) -> Vec<Vec<u8>> {
        let written = self.writes.iter().map(|write| &write.path);
        let all = written.chain(self.removes.iter().map(|remove| &remove.path));
        all.filter(|path| relpath::split(path).1 == b".gitignore").cloned().collect()
    }

    /// The files that will be written, and whether each is new.
    pub fn written(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.writes.iter().map(|write| (write.path.as_slice(), write.over.is_none()))
    }

    /// The files that will be removed.
    pub fn removed(&self) -> impl Iterator<Item = &[u8]> {
        self.removes.iter().map(|remove| remove.path.as_slice())
    }

    /// The files and directories whose permission bits will change, and to what.
    pub fn remoded(&self) -> impl Iterator<Item = (&[u8], u16)> {
        self.modes.iter().map(|mode| (mode.path.as_slice(), mode.mode))
    }

    /// The directories that will be made, and those that will go if nothing else is in them.
    pub fn directories(&self) -> (Vec<&[u8]>, Vec<&[u8]>) {
        let made = self.make_dirs.iter().map(|(dir, _)| dir.as_slice()).collect();
        (made, self.drop_dirs.iter().map(Vec::as_slice).collect())
    }

    /// What differs and stays as it is.
    pub fn left(&self) -> &[Left] {
        &self.left
    }

    /// The files that will be moved aside, and the names that they get.
    pub fn moved_aside(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.asides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A restore of which nothing counts is taken for none.
    #[test]
    fn everything_that_will_change_counts_once() {
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
            ..RestorePlan::default()
        };
        assert_eq!(plan.changes(), 2 + 3 + 5 + 7 + 11 + 13 + 17 + 19);
    }
}
