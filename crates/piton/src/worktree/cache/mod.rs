//! Stat cache: the result of the last scan, kept so that the next one reads only files that changed.
//!
//! It consists of an index in git's format, which has an entry for every file, and of a note in the project's record.
//! The store keeps both and interprets neither. `trust` decides when an entry replaces reading a file.

mod behind;
mod changed;
pub(super) mod codec;
mod lookup;
mod note;
mod trust;
mod young;

pub use changed::ChangedDirs;
pub(crate) use changed::{NewestFiles, Vouched};
pub(crate) use codec::{IndexSums, index_bytes_max};
pub(crate) use lookup::CachedDirs;
pub(super) use lookup::{CachedFile, DirInCache};
pub(crate) use note::CacheNote;
pub(crate) use trust::{CacheUpdate, IndexUpdate, NewestState, StatCache, is_settled, write_index};
