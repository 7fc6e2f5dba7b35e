//! Release of kept files: by age, when the disk is nearly full, or all of them.

use super::back::sweep_unfinished;
use crate::error::Result;
use crate::settings::Settings;
use crate::store::{Store, kept_time};
use crate::time::Moment;

const DAY_SECS: i64 = 24 * 60 * 60;
/// Part of the disk that stays free.
const FREE_PART: u64 = 20;

/// Result of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseReport {
    /// Number of paths whose kept files were released.
    pub released: u64,
    /// Number of bytes freed: copies, and files that had no other name left.
    pub bytes_freed: u64,
}

/// Kept files of a base.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct KeptStatus {
    /// number of paths that are kept
    pub paths: u64,
    /// number of files in them
    pub files: u64,
    /// sum of their sizes
    pub bytes: u64,
    /// number of those bytes that take space: copies, and files that have no other name left
    pub held_bytes: u64,
    /// time at which the next of them expires, as in RFC 3339, or null
    pub expires: Option<Moment>,
}

/// Returns true if the disk of the base is nearly full.
pub(crate) fn is_low(store: &Store, settings: &Settings) -> bool {
    store.kept.disk_space().is_some_and(|space| {
        space.free_bytes < settings.keep_min_free_mb << 20 || space.free_bytes < space.total_bytes / FREE_PART
    })
}

/// Releases sets older than `keep_days`; all of them if the disk is nearly full. Returns the number of sets released
/// for the latter reason. Costs next to nothing if nothing is kept. Errors are ignored: the next call tries again.
pub(crate) fn expire(store: &Store, settings: &Settings, now: Moment) -> u64 {
    let _ = store.kept.finish_releases();
    let names = store.kept.names();
    if names.is_empty() {
        return 0;
    }
    let is_low = is_low(store, settings);
    let keep_secs = i64::try_from(settings.keep_days).unwrap_or(i64::MAX).saturating_mul(DAY_SECS);
    let mut released = 0;
    for name in &names {
        let age = now.secs.saturating_sub(kept_time(name).unwrap_or(now.secs));
        if is_low || age > keep_secs {
            released += u64::from(store.kept.release(name).is_ok() && is_low);
        }
    }
    store.kept.release_damaged(if is_low { i64::MAX } else { now.secs.saturating_sub(keep_secs) });
    released
}

/// Removes what killed processes left: sets that were not complete, and temporary files of recoveries.
pub(crate) fn sweep_kept(store: &Store, now: Moment) {
    store.kept.sweep(now);
    sweep_unfinished(store);
}

/// Releases all kept files, and removes the leftovers of killed recoveries. With `is_dry`, only counts the files.
pub fn release_kept(store: &Store, is_dry: bool) -> Result<ReleaseReport> {
    if !is_dry {
        sweep_unfinished(store);
    }
    let mut report = ReleaseReport::default();
    for name in store.kept.names() {
        let bytes = store.kept.set(name.clone()).map_or(0, |set| store.kept.bytes_held(&set));
        if !is_dry {
            store.kept.release(&name)?;
        }
        report.released += 1;
        report.bytes_freed += bytes;
    }
    if !is_dry {
        store.kept.release_damaged(i64::MAX);
        store.kept.finish_releases()?;
    }
    Ok(report)
}

/// Returns the number and size of all kept files, and when the next of them expires.
pub fn kept_status(store: &Store, settings: &Settings) -> KeptStatus {
    let mut status = KeptStatus::default();
    for set in store.kept.sets() {
        status.paths += 1;
        status.files += set.header.files;
        status.bytes += set.header.bytes;
        status.held_bytes += store.kept.bytes_held(&set);
        let keep_secs = i64::try_from(settings.keep_days).unwrap_or(i64::MAX).saturating_mul(DAY_SECS);
        let secs = set.header.time.secs.saturating_add(keep_secs);
        status.expires = Some(Moment { secs, ..set.header.time });
    }
    status
}
