//! The user's files: which of them are in scope, what they are, and reading them. Knows no store and no git objects,
//! and writes nothing.

mod cache;
mod ignore;
mod index;
mod manifest;
mod read;
mod scan;
mod scope;
mod tracked;
mod wildmatch;

pub(crate) use cache::Cache;
pub(crate) use index::write_index;
pub(crate) use manifest::{Child, DirNode, FileNode, Manifest};
pub(crate) use read::{Contents, ReadFile, Reader};
pub(crate) use scan::{Scan, ScanEnd, count_files, scan};
pub(crate) use scope::{Lists, Scope};
