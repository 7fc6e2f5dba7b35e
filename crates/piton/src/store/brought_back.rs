//! Records of recoveries of kept files, in `local/files/`: `back.<id>` for each that was made, so that it can be taken
//! back, and `begun.<token>` for each that is being made, locked by its process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::kept::KeptFiles;
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, random_token};
use crate::json::escaped;
use crate::sys::{FileTime, Stat};
use crate::time::{self, Moment};

const BACK: &str = "back.";
const BEGUN: &str = "begun.";
const RECORD_BYTES_MAX: u64 = 256 << 20;
/// Number of records that are kept.
const RECORDS_MAX: usize = 100;

/// A file that was brought back, as it was right after that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BroughtBack {
    #[serde(with = "escaped::path")]
    pub(crate) path: PathBuf,
    #[serde(rename = "dir")]
    pub(crate) is_dir: bool,
    /// Set with the file that it replaced.
    pub(crate) saved: Option<String>,
    inode: (u64, u64),
    size: u64,
    mtime: (i64, u32),
}

impl BroughtBack {
    pub(crate) fn new(path: &Path, stat: Option<&Stat>, saved: Option<String>, is_dir: bool) -> Self {
        let inode = stat.map_or((0, 0), |stat| (stat.dev, stat.ino));
        let FileTime { secs, nanos } = stat.map(|stat| stat.mtime).unwrap_or_default();
        let size = stat.map_or(0, |stat| stat.size);
        Self { path: path.to_owned(), is_dir, saved, inode, size, mtime: (secs, nanos) }
    }

    /// Returns true if this is the file, unchanged.
    pub(crate) fn is(&self, now: &Stat) -> bool {
        let FileTime { secs, nanos } = now.mtime;
        (self.inode, self.size, self.mtime) == ((now.dev, now.ino), now.size, (secs, nanos))
    }
}

/// A recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackRecord {
    #[serde(flatten, with = "time::parts")]
    pub(crate) time: Moment,
    /// Checkpoint of the state before, to which an undo goes back.
    #[serde(default)]
    pub(crate) safety: Option<CheckpointId>,
    pub(crate) files: Vec<BroughtBack>,
}

/// A recovery that is being made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackNote {
    pub(crate) token: String,
    /// Directories in which it makes temporary files.
    #[serde(with = "escaped_dirs")]
    pub(crate) dirs: Vec<PathBuf>,
}

/// Directories as escaped texts.
mod escaped_dirs {
    use std::path::PathBuf;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::relpath::{escape, unescape};
    use crate::sys;

    pub(super) fn serialize<S: Serializer>(dirs: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(dirs.iter().map(|dir| escape(sys::path_bytes(dir))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        Ok(texts.iter().filter_map(|text| unescape(text.as_bytes()).map(sys::path_from_bytes)).collect())
    }
}

/// Removes the note when it is dropped. It stays if the process is killed.
#[derive(Debug)]
pub(crate) struct BackMark {
    path: PathBuf,
    _locked: File,
}

impl Drop for BackMark {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl KeptFiles {
    /// Notes that a recovery begins, before it makes its first temporary file.
    pub(crate) fn note_begun(&self, note: &BackNote) -> Result<BackMark> {
        fsx::ensure_dir(&self.layout.kept_files())?;
        let path = self.layout.kept_set(&format!("{BEGUN}{}", note.token));
        fsx::replace(&path, &serde_json::to_vec(note).expect("plain data"), Durability::Synced)?;
        let lock = || File::open(&path).and_then(|file| file.lock().map(|()| file));
        let locked = lock().map_err(|error| Error::io("lock", &path, error))?;
        Ok(BackMark { path, _locked: locked })
    }

    /// Passes the notes of recoveries that were killed to `clean`, and removes them.
    pub(crate) fn take_killed(&self, clean: impl Fn(&BackNote)) {
        for path in self.named(BEGUN) {
            let Some(_locked) = File::open(&path).ok().filter(|file| file.try_lock().is_ok()) else { continue };
            if let Ok(Some(bytes)) = fsx::read_small(&path, RECORD_BYTES_MAX)
                && let Ok(note) = serde_json::from_slice(&bytes)
            {
                clean(&note);
            }
            let _ = fs::remove_file(&path);
        }
    }

    /// Records a recovery, and returns its name.
    pub(crate) fn save_back(&self, record: &BackRecord) -> Result<String> {
        let id = format!("r-{}", &random_token()[..8]);
        let path = self.layout.kept_set(&format!("{BACK}{id}"));
        fsx::replace(&path, &serde_json::to_vec(record).expect("plain data"), Durability::Synced)?;
        let mut all: Vec<(Moment, PathBuf)> =
            self.named(BACK).into_iter().filter_map(|path| Some((read(&path)?.time, path))).collect();
        all.sort();
        for (_, old) in all.iter().rev().skip(RECORDS_MAX) {
            fsx::remove_file(old)?;
        }
        Ok(id)
    }

    /// Returns a recovery by its name.
    pub(crate) fn back(&self, id: &str) -> Option<BackRecord> {
        let name = format!("{BACK}{id}");
        let path =
            self.named(BACK).into_iter().find(|path| path.file_name().is_some_and(|own| own == name.as_str()))?;
        read(&path)
    }

    /// Removes the record of a recovery that was taken back.
    pub(crate) fn forget_back(&self, id: &str) {
        let _ = fs::remove_file(self.layout.kept_set(&format!("{BACK}{id}")));
    }

    fn named(&self, prefix: &str) -> Vec<PathBuf> {
        let dir = self.layout.kept_files();
        let names = fsx::names_in(&dir).unwrap_or_default();
        let names = names.into_iter().filter(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
        names.map(|name| dir.join(name)).collect()
    }
}

fn read(path: &Path) -> Option<BackRecord> {
    serde_json::from_slice(&fsx::read_small(path, RECORD_BYTES_MAX).ok()??).ok()
}
