//! What could not be kept, and the setting that would change that.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::sys;
use crate::worktree::{SaveResult, Unsaved};

/// Why something is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapReason {
    /// It can only be copied, and copies are limited.
    TooLarge,
    /// Like `TooLarge`: it is on another file system than the store.
    OtherFileSystem,
    /// It is on a network file system.
    Network,
    /// It belongs to another user and cannot be read.
    NotOwned,
    /// It cannot be read.
    Unreadable,
    /// It is on a file system that is mounted below the path.
    Mounted,
    /// There are more files than are kept before one command.
    TooMany,
    /// The deadline of the hook passed.
    OutOfTime,
    /// The disk is nearly full.
    DiskLow,
    /// The store is in it.
    IsStore,
    /// The command does not say what it destroys.
    Unread,
    /// The setting of this name leaves it out.
    Setting(&'static str),
    /// Keeping failed.
    Failed(String),
}

/// Something that a command was about to destroy and that is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// Path, if it is known.
    pub path: Option<PathBuf>,
    /// Reason.
    pub why: GapReason,
    /// Number of bytes, if it is a file.
    pub bytes: u64,
    /// Part of the command that this is about, if the path is not known.
    pub text: String,
}

impl Gap {
    pub(super) fn of(path: &Path, why: GapReason) -> Self {
        Self { path: Some(path.to_owned()), why, bytes: 0, text: String::new() }
    }

    pub(super) fn unread(text: &str) -> Self {
        Self { path: None, why: GapReason::Unread, bytes: 0, text: text.to_owned() }
    }

    /// Returns the gaps of one run below `root`.
    pub(super) fn all_of(root: &Path, saved: &SaveResult) -> Vec<Self> {
        let gap = |unsaved: &crate::worktree::UnsavedFile| {
            let path =
                if unsaved.path.is_empty() { root.to_owned() } else { root.join(sys::name_from_bytes(&unsaved.path)) };
            let why = match unsaved.why {
                Unsaved::TooLarge { is_elsewhere: false } => GapReason::TooLarge,
                Unsaved::TooLarge { is_elsewhere: true } => GapReason::OtherFileSystem,
                Unsaved::OnNetwork => GapReason::Network,
                Unsaved::NotOwned => GapReason::NotOwned,
                Unsaved::Unreadable => GapReason::Unreadable,
                Unsaved::Mounted => GapReason::Mounted,
                Unsaved::TooMany => GapReason::TooMany,
                Unsaved::OutOfTime => GapReason::OutOfTime,
                Unsaved::BySetting(name) => GapReason::Setting(name),
                Unsaved::NoSpace => GapReason::Failed("the store cannot be written".to_owned()),
            };
            Self { path: Some(path), why, bytes: unsaved.bytes, text: String::new() }
        };
        saved.unsaved.iter().map(gap).collect()
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display())?,
            None => write!(f, "`{}`", self.text)?,
        }
        if self.bytes >= 1 << 20 {
            write!(f, " ({} MB)", self.bytes.div_ceil(1 << 20))?;
        }
        f.write_str(match &self.why {
            GapReason::TooLarge => ": only a copy protects it, and copies are limited by keep_total_size_mb",
            GapReason::OtherFileSystem => {
                ": it is on another file system than the store, and copies are limited by keep_total_size_mb"
            }
            GapReason::Network => ": it is on a network file system",
            GapReason::NotOwned => ": it belongs to another user and cannot be read",
            GapReason::Unreadable => ": it cannot be read",
            GapReason::Mounted => ": another file system is mounted there",
            GapReason::TooMany => ": more files than are kept before one command",
            GapReason::OutOfTime => ": there was no time for it (deadline_ms, 2 s at most)",
            GapReason::DiskLow => ": the disk is nearly full (keep_min_free_mb, or less than 5 % are free)",
            GapReason::IsStore => ": the checkpoints themselves are in it",
            GapReason::Unread => ": what it destroys cannot be told from the command",
            GapReason::Setting(name) => return write!(f, ": the setting {name} leaves it out"),
            GapReason::Failed(why) => return write!(f, ": {why}"),
        })
    }
}
