//! Files of a tree, as far as a merge tells them apart.

use crate::id::ObjectId;

/// One file of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Kind of the file.
    pub kind: EntryKind,
    /// Id of its contents; of a link, of its target.
    pub id: ObjectId,
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
