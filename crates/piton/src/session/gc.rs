//! Garbage collection of session records, and renaming of files that are not records.

use std::fs;
use std::path::Path;

use super::scalar::Stamp;
use super::{Record, SessionId, Sessions, UPDATED, too_large};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::store::{BaseLock, Layout};
use crate::sys;
use crate::time::Moment;

const DAY_SECS: i64 = 24 * 60 * 60;
/// A record of a completed task is removed after this.
const COMPLETED_SECS_MAX: i64 = DAY_SECS;
/// A temporary file of a killed process is removed after this.
const TEMPORARY_SECS_MAX: i64 = 60 * 60;

/// Result of garbage collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SessionGcReport {
    /// Records that were removed.
    pub removed: Vec<SessionId>,
    /// Files that are not records and were renamed.
    #[serde(rename = "damaged")]
    pub put_aside: Vec<QuarantinedFile>,
    /// Files that were renamed long ago, and were removed.
    pub removed_damaged: Vec<String>,
}

/// File that is not a record, and was renamed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct QuarantinedFile {
    /// Id of the record.
    pub id: SessionId,
    /// New name in the base.
    #[serde(rename = "file")]
    pub name: String,
    /// Reason why it is not a record.
    pub why: String,
}

impl Sessions {
    /// Removes records that were completed more than a day ago, and those not changed for `max_age_days`. A file that
    /// cannot be read as a record is renamed, and removed `max_age_days` later.
    pub fn collect_garbage(&self, max_age_days: u64, now: Moment) -> Result<SessionGcReport> {
        let mut collected = SessionGcReport::default();
        if fsx::metadata_opt(self.layout.base())?.is_none() {
            return Ok(collected);
        }
        let locked = self.claim()?;
        let secs_max = i64::try_from(max_age_days).ok().and_then(|days| days.checked_mul(DAY_SECS)).unwrap_or(i64::MAX);
        for id in self.list()? {
            let path = self.layout.session(id.as_str());
            let read = match self.bytes(&id) {
                Ok(bytes) => bytes.as_deref().map(|bytes| Record::parse(bytes).map_err(|why| why.to_string())),
                // Other programs may be able to read a record that is too large for piton: it is kept until it is old.
                Err(error) if error.kind() == ErrorKind::Damaged && file_age_secs(&path, now) > secs_max => {
                    Some(Err(too_large()))
                }
                Err(_) => None,
            };
            match read {
                None => {}
                Some(Ok(record)) => {
                    let age = record.age_secs(&path, now);
                    if age > secs_max || (record.is_completed() && age > COMPLETED_SECS_MAX) {
                        self.remove(&locked, &path)?;
                        collected.removed.push(id);
                    }
                }
                // Some programs write in place: a file that is open may be half of a record that is about to be
                // complete.
                Some(Err(_)) if sys::is_open_anywhere(&path) => {}
                Some(Err(why)) => {
                    let name = self.put_aside(&locked, &id, now)?;
                    collected.put_aside.push(QuarantinedFile { id, name, why });
                }
            }
        }
        self.remove_leftovers(&locked, secs_max, now, &mut collected)?;
        Ok(collected)
    }

    fn remove_leftovers(
        &self,
        locked: &BaseLock,
        secs_max: i64,
        now: Moment,
        collected: &mut SessionGcReport,
    ) -> Result<()> {
        for name in fsx::names_in(self.layout.base())? {
            let path = self.layout.in_base(&name);
            let Some(name) = name.to_str().filter(|_| path.is_file()) else {
                continue;
            };
            if let Some(stamp) = Layout::damaged_session_in(name) {
                let since = Moment::parse_stamp(stamp).map(|stamp| now.local_secs() - stamp);
                if since.unwrap_or_else(|| file_age_secs(&path, now)) > secs_max {
                    self.remove(locked, &path)?;
                    collected.removed_damaged.push(name.to_owned());
                }
            } else if name.starts_with(fsx::TEMP_PREFIX)
                && Layout::session_in(name).is_none()
                && file_age_secs(&path, now) > TEMPORARY_SECS_MAX
            {
                self.remove(locked, &path)?;
            }
        }
        Ok(())
    }

    /// Renames a file that is not a record, so that no reader of records finds it. Returns the new name.
    pub(super) fn put_aside(&self, _locked: &BaseLock, id: &SessionId, now: Moment) -> Result<String> {
        let from = self.layout.session(id.as_str());
        let names = (1..).map(|nth| Layout::damaged_session_name(id.as_str(), &now.stamp(), nth));
        let to = fsx::first_free(names.map(|name| self.layout.in_base(name)))?;
        fs::rename(&from, &to).map_err(|error| Error::io("put aside", &from, error))?;
        fsx::sync_dir(self.layout.base())?;
        Ok(to.file_name().unwrap_or_default().to_string_lossy().into_owned())
    }
}

impl Record {
    /// Returns the age of the record by its `updated` field, or by its file if that is missing or implausible.
    fn age_secs(&self, path: &Path, now: Moment) -> i64 {
        let stamp = self.map.get(UPDATED).and_then(|updated| Stamp::parse(updated.as_str()?));
        let age = stamp.map(|stamp| now.secs.saturating_sub(stamp.secs(now.offset_secs)));
        // Accept a clock that is up to a day ahead, but no time in the far future.
        age.filter(|age| *age >= -DAY_SECS).unwrap_or_else(|| file_age_secs(path, now))
    }
}

fn file_age_secs(path: &Path, now: Moment) -> i64 {
    sys::stat_path(path).map_or(0, |stat| now.secs.saturating_sub(stat.mtime.secs))
}
