//! Turns whose checkpoint is being taken: `local/begun/<name>`, one file per attempt, locked by the hook process and
//! removed when that ends. An unlocked file was left by a process that was killed.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Origin;
use super::layout::Layout;
use crate::error::Result;
use crate::fsx;
use crate::json::escaped;
use crate::sys;
use crate::time::{self, Moment};

const BEGUN_BYTES_MAX: u64 = 64 << 10;

/// An attempt to take a checkpoint for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BegunHook {
    #[serde(flatten)]
    pub(crate) origin: Origin,
    #[serde(with = "escaped::path")]
    pub(crate) project: PathBuf,
    #[serde(flatten, with = "time::parts")]
    pub(crate) time: Moment,
}

/// Removes the file of an attempt when it is dropped.
#[derive(Debug)]
pub(crate) struct BegunMark {
    path: PathBuf,
    _locked: File,
}

impl Drop for BegunMark {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The notes about attempts in progress.
#[derive(Debug, Clone)]
pub(crate) struct RunningHooks {
    pub(super) layout: Arc<Layout>,
}

impl RunningHooks {
    /// Notes that an attempt begins. The note is removed when the returned mark is dropped, and stays if the process is
    /// killed.
    pub(crate) fn mark_begun(&self, begun: &BegunHook) -> Result<BegunMark> {
        let dir = self.layout.begun();
        let mut temp = match fsx::temp_file(&dir) {
            Ok(temp) => temp,
            Err(_) => {
                fsx::ensure_dir(&dir)?;
                fsx::temp_file(&dir)?
            }
        };
        let bytes = serde_json::to_vec(begun).expect("plain data");
        let failed = |error| crate::error::Error::io("write", &dir, error);
        // Locked before it gets a name that readers look at.
        temp.as_file().lock().and_then(|()| temp.write_all(&bytes)).map_err(failed)?;
        let name = temp.path().file_name().unwrap_or_default().to_string_lossy().replacen(fsx::TEMP_PREFIX, "hook_", 1);
        let path = dir.join(name);
        let (file, temp) = temp.into_parts();
        fsx::persist(temp, &path)?;
        Ok(BegunMark { path, _locked: file })
    }

    /// Passes each note of an attempt whose process was killed to `note`, and removes it if `note` returns true. A note
    /// that cannot be read is removed, too.
    pub(crate) fn take_killed(&self, mut note: impl FnMut(BegunHook) -> bool) {
        let dir = self.layout.begun();
        for name in fsx::names_in(&dir).unwrap_or_default() {
            let path = dir.join(&name);
            let is_temporary = name.as_encoded_bytes().starts_with(fsx::TEMP_PREFIX.as_bytes());
            let Some(file) = File::open(&path).ok().filter(|file| !is_temporary && file.try_lock().is_ok()) else {
                continue;
            };
            // Another process may have removed it in the meantime.
            if file.metadata().is_ok_and(|found| sys::link_count(&found) == 0) {
                continue;
            }
            let begun = fsx::read_small(&path, BEGUN_BYTES_MAX).ok().flatten();
            if begun.and_then(|bytes| serde_json::from_slice::<BegunHook>(&bytes).ok()).is_none_or(&mut note) {
                let _ = fsx::remove_file(&path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;
    use crate::store::kit::{NOW, store};

    fn begun() -> BegunHook {
        let origin = Origin { agent: Some("claude".to_owned()), session: Some("s".to_owned()), turn: None };
        let project = PathBuf::from(std::ffi::OsString::from_vec(b"/p/\xff x".to_vec()));
        BegunHook { origin, project, time: NOW }
    }

    #[test]
    fn a_finished_attempt_leaves_no_note_and_a_killed_one_is_reported_once() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let mut told = Vec::new();
        let mark = store.hooks.mark_begun(&begun()).expect("a file");
        store.hooks.take_killed(|begun| {
            told.push(begun);
            true
        });
        assert_eq!(told, [], "it is still at work");
        drop(mark);
        assert_eq!(fsx::names_in(&store.layout.begun()).expect("names").len(), 0);
        // The lock is released with the process, and the file stays.
        let BegunMark { path, _locked: file } = &store.hooks.mark_begun(&begun()).expect("a file");
        file.unlock().expect("unlocked");
        store.hooks.take_killed(|_| false);
        assert!(path.exists(), "it is not on record");
        for _ in 0..2 {
            store.hooks.take_killed(|begun| {
                told.push(begun);
                true
            });
        }
        assert_eq!(told, [begun()]);
    }
}
