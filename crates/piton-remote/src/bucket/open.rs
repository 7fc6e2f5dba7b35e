//! Opening the bucket at a location.

use super::Bucket;
use super::cloud::CloudBucket;
use super::directory::DirectoryBucket;
use super::location::{Location, Scheme};
use crate::error::Result;

/// Opens the bucket. Fails with `Credentials` if there are none.
pub(crate) fn open(location: &Location) -> Result<Box<dyn Bucket>> {
    match location.parse()? {
        (Scheme::Directory, dir, _) => Ok(Box::new(DirectoryBucket::open(dir.as_ref())?)),
        (scheme, bucket, prefix) => Ok(Box::new(CloudBucket::open(location, scheme, bucket, prefix)?)),
    }
}
