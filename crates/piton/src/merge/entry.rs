//! Files of a tree, as far as a merge tells them apart.

use crate::id::ObjectId;
use crate::store::EntryMode;

/// One file of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Kind of the file.
    pub kind: EntryKind,
    /// Id of its contents; of a link, of its target.
    pub id: ObjectId,
}

impl Entry {
    /// Returns the file at an entry of a stored tree; `None` for a directory and for another repository's commit.
    pub(crate) fn of((mode, id): (EntryMode, ObjectId)) -> Option<Self> {
        let kind = match mode {
            EntryMode::File => EntryKind::File,
            EntryMode::Executable => EntryKind::Executable,
            EntryMode::Link => EntryKind::Link,
            EntryMode::Dir | EntryMode::Commit => return None,
        };
        Some(Self { kind, id })
    }
}

/// Kind of a file in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// Regular file.
    File,
    /// Regular file that its owner may execute.
    Executable,
    /// Symbolic link.
    Link,
}
