//! A version of a lost file.

use super::LostKind;
use crate::id::ObjectId;
use crate::store::{Checkpoint, EntryMode};

/// A version of a file.
pub(super) struct Version<'a> {
    pub(super) kind: LostKind,
    pub(super) path: Vec<u8>,
    pub(super) entry: (EntryMode, ObjectId),
    /// Checkpoint that holds it.
    pub(super) checkpoint: &'a Checkpoint,
    /// Number of the state after which it was lost.
    pub(super) state: usize,
    /// True if there is another version now.
    pub(super) is_replaced: bool,
}
