//! Storage of objects: a directory, or an object store. All other modules use it through the trait `Bucket`.
//!
//! An implementation replaces objects atomically, and returns an object that was written as soon as the write has
//! succeeded. A write that fails may have happened. Listings may lag behind: see `collect` for what follows from that.

use std::ops::Range;
use std::path::Path;

use crate::error::Result;

mod cloud;
mod directory;
mod location;
mod open;

pub use location::{CredentialsFrom, Location};
pub(crate) use open::{open, open_or_create};

/// An object in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectInfo {
    /// Name of the object.
    pub key: String,
    /// Size of the object.
    pub bytes: u64,
    /// Time of the last write in seconds since 1970, by the clock of the bucket.
    pub modified_secs: i64,
}

/// A flat set of objects by name.
pub(crate) trait Bucket: Send + Sync {
    /// Returns an object, or `None` if there is none of this name.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>>;
    /// Returns a part of an object, or `None` if there is no such object. Fails if it is shorter.
    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Vec<u8>>>;
    /// Writes an object, or replaces it.
    fn put(&self, key: &str, bytes: Vec<u8>) -> Result<()>;
    /// Writes an object from a file. Calls `sent` with the number of bytes after each part.
    fn put_file(&self, key: &str, file: &Path, sent: &mut dyn FnMut(u64)) -> Result<()>;
    /// Returns size and time of an object, or `None` if there is none of this name.
    fn head(&self, key: &str) -> Result<Option<ObjectInfo>>;
    /// Returns all objects whose names begin with `prefix`, which ends in a slash, sorted by name.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>>;
    /// Removes an object. One that does not exist is not an error.
    fn delete(&self, key: &str) -> Result<()>;
}
