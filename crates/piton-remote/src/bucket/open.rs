//! Opening the bucket at a location.

use super::Bucket;
use super::cloud::CloudBucket;
use super::directory::DirectoryBucket;
use super::location::{Location, Scheme};
use crate::error::Result;

/// Opens the bucket. Fails with `Credentials` if there are none, with `Unavailable` if it is a directory that does not
/// exist, as on a disk that is not mounted.
pub(crate) fn open(location: &Location) -> Result<Box<dyn Bucket>> {
    match location.parse()? {
        (Scheme::Directory, dir, _) => Ok(Box::new(DirectoryBucket::open(dir.as_ref())?)),
        (scheme, bucket, prefix) => Ok(Box::new(CloudBucket::open(location, scheme, bucket, prefix)?)),
    }
}

/// Like [`open`], but creates a directory that does not exist.
pub(crate) fn open_or_create(location: &Location) -> Result<Box<dyn Bucket>> {
    if let (Scheme::Directory, dir, _) = location.parse()? {
        DirectoryBucket::create(dir.as_ref())?;
    }
    open(location)
}
