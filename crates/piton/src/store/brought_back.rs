//! Records of recoveries of kept files, in `local/files/`: `back.<id>` for each finished one, so that it can be undone,
//! and `begun.<token>` for each one in progress, locked by its process.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::kept::{KeptEntry, KeptFiles};
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, random_token};
use crate::json::escaped;
use crate::sys::{self, FileTime, Stat};
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
    /// Set that it came from.
    #[serde(default)]
    pub(crate) from: Option<String>,
    /// True if the file was removed again.
    #[serde(default, rename = "gone")]
    pub(crate) is_gone: bool,
    /// Device and inode; zero if the process was killed before they were known.
    inode: (u64, u64),
    size: u64,
    mtime: (i64, u32),
}

impl BroughtBack {
    pub(crate) fn new(path: &Path, stat: Option<&Stat>, saved: Option<String>, is_dir: bool) -> Self {
        let inode = stat.map_or((0, 0), |stat| (stat.dev, stat.ino));
        let FileTime { secs, nanos } = stat.map(|stat| stat.mtime).unwrap_or_default();
        let size = stat.map_or(0, |stat| stat.size);
        let (from, is_gone, mtime) = (None, false, (secs, nanos));
        Self { path: path.to_owned(), is_dir, saved, from, is_gone, inode, size, mtime }
    }

    /// Sets the set that it came from.
    pub(crate) fn with_source(self, id: String) -> Self {
        Self { from: Some(id), ..self }
    }

    /// Returns the record of the removal of this file, which the set `id` holds.
    pub(crate) fn gone(&self, id: String) -> Self {
        Self { is_gone: true, ..self.clone().with_source(id) }
    }

    /// Returns a file that is about to be brought back, as it will be.
    pub(crate) fn planned(path: &Path, entry: &KeptEntry, from: &str) -> Self {
        let FileTime { secs, nanos } = entry.mtime;
        let (size, mtime, from) = (entry.size, (secs, nanos), Some(from.to_owned()));
        let (saved, is_dir, is_gone, inode) = (None, false, false, (0, 0));
        Self { path: path.to_owned(), is_dir, saved, from, is_gone, inode, size, mtime }
    }

    /// Returns true if this is the file, unchanged.
    pub(crate) fn is(&self, now: &Stat) -> bool {
        let FileTime { secs, nanos } = now.mtime;
        let is_inode = self.inode == (0, 0) || self.inode == (now.dev, now.ino);
        is_inode && (self.size, self.mtime) == (now.size, (secs, nanos))
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
    /// Files that it replaces, as they were found, by the numbers of their temporary files.
    #[serde(default)]
    pub(crate) replaced: Vec<(usize, BroughtBack)>,
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

/// Note of a recovery that is being made. It is removed when this is dropped, and stays if the process is killed.
#[derive(Debug)]
pub(crate) struct BackMark {
    path: PathBuf,
    is_left: bool,
    _locked: File,
}

impl BackMark {
    /// Leaves the note: a temporary file could not be removed, which a later sweep tries again.
    pub(crate) fn leave(&mut self) {
        self.is_left = true;
    }
}

impl Drop for BackMark {
    fn drop(&mut self) {
        if !self.is_left {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl KeptFiles {
    /// Notes that a recovery begins, before it makes its first temporary file. The note is locked before it has its name, so
    /// that no sweep takes it for that of a killed process.
    pub(crate) fn note_begun(&self, note: &BackNote) -> Result<BackMark> {
        let dir = self.layout.kept_files();
        fsx::ensure_dir(&dir)?;
        let path = self.layout.kept_set(&format!("{BEGUN}{}", note.token));
        let mut temp = fsx::temp_file(&dir)?;
        let mut write = || {
            temp.as_file().lock()?;
            temp.write_all(&serde_json::to_vec(note).expect("plain data"))?;
            sys::sync_file(temp.as_file())
        };
        write().map_err(|error| Error::io("write", &path, error))?;
        let locked = temp.persist(&path).map_err(|error| Error::io("write", &path, error.error))?;
        let mark = BackMark { path, is_left: false, _locked: locked };
        fsx::sync_dir(&dir)?;
        Ok(mark)
    }

    /// Passes the notes of recoveries that were killed to `clean`, and removes those for which it returns true.
    pub(crate) fn take_killed(&self, clean: impl Fn(&BackNote) -> bool) {
        for path in self.named(BEGUN) {
            let Some(_locked) = File::open(&path).ok().filter(|file| file.try_lock().is_ok()) else { continue };
            let Ok(Some(bytes)) = fsx::read_small(&path, RECORD_BYTES_MAX) else { continue };
            // A note that is not readable as one names nothing.
            if serde_json::from_slice(&bytes).map_or(true, |note| clean(&note)) {
                let _ = fs::remove_file(&path);
            }
        }
    }

    /// Returns a name for a recovery.
    pub(crate) fn new_back_id() -> String {
        format!("r-{}", &random_token()[..8])
    }

    /// Records a recovery under its name.
    pub(crate) fn save_back(&self, id: &str, record: &BackRecord) -> Result<()> {
        fsx::ensure_dir(&self.layout.kept_files())?;
        let path = self.layout.kept_set(&format!("{BACK}{id}"));
        fsx::replace(&path, &serde_json::to_vec(record).expect("plain data"), Durability::Synced)?;
        let mut all: Vec<(Moment, PathBuf)> =
            self.named(BACK).into_iter().filter_map(|path| Some((read(&path)?.time, path))).collect();
        all.sort();
        for (_, old) in all.iter().rev().skip(RECORDS_MAX) {
            fsx::remove_file(old)?;
        }
        Ok(())
    }

    /// Returns the recoveries that belong to the restore with this safety checkpoint, the newest first.
    pub(crate) fn backs_of(&self, safety: CheckpointId) -> Vec<BackRecord> {
        let records = self.named(BACK).into_iter().filter_map(|path| read(&path));
        let mut records: Vec<BackRecord> = records.filter(|record| record.safety == Some(safety)).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.time));
        records
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
