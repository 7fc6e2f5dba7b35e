//! User's files: scope rules, scanning, reading and writing. Knows no store and no git objects.

mod cache;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod index;
mod manifest;
mod read;
mod scan;
mod scope;
mod tracked;
mod write;
mod young;

pub(crate) use cache::Cache;
pub(crate) use index::{IndexSums, index_bytes_max, is_settled, write_index};
pub(crate) use manifest::{Child, DirNode, FileNode, Limits, Manifest};
pub(crate) use read::{Contents, ReadFile, Reader, id_of_stream};
pub(crate) use scan::{Scan, ScanEnd, count_files, scan};
pub(crate) use scope::{Lists, RulesAfter, Scope, ScopePreview};
pub(crate) use write::{ChangeResult, NewContents, SeenFile, WorktreeWriter};
pub(crate) use young::young_from_nanos;
