//! Three-way merge of texts and of trees, as data: no store, no working directory, nothing written.
//!
//! Reverting a turn is a merge. The base is the state at the end of the turn, *ours* is the current state and *theirs*
//! is the state at the start of the turn. The result contains every later change and none of the turn's own.
//!
//! ```
//! use piton::merge::{TextMerge, merge_text};
//!
//! let start = b"one\ntwo\nthree\nfour\n";
//! let end = b"one\nTWO\nthree\nfour\n"; // the turn changed the second line,
//! let now = b"one\nTWO\nthree\nfour\nfive\n"; // and another line was added later.
//! assert_eq!(merge_text(end, now, start), TextMerge::Clean(b"one\ntwo\nthree\nfour\nfive\n".to_vec()));
//! ```
//!
//! The results are those of `git merge-tree` without directory renames, with three exceptions, in which this module
//! reports a conflict and git does not: two different files were added under one path, a renamed file meets another
//! file under its new name, and equal files were renamed to names that do not tell them apart. Conflict markers are
//! never part of a result.

mod entry;
mod hunks;
pub(crate) mod renames;
mod text;
mod tree;

pub use entry::{Entry, EntryKind};
pub use hunks::{TextHunk, hunks, revert_hunks};
pub use text::{LineConflict, TextMerge, merge_text};
pub use tree::{Conflict, ConflictReason, MergedContents, MergedEntry, PathChange, Tree, TreeMerge, merge_trees};
