//! The list of held object files, by which a missing one is noticed. A path a line, escaped.
//!
//! A file is added after it is held, and taken off before it is released: a crash in between leaves a file that is held
//! and not listed, never the other way round.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;

use super::GitStates;
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::ProjectId;
use crate::relpath::{escape, unescape};
use crate::sys;

/// Size limit of the list.
const LIST_BYTES_MAX: u64 = 256 << 20;

impl GitStates {
    fn list_path(&self, project: &ProjectId) -> PathBuf {
        self.dir(project).join("listed")
    }

    /// Returns the object files that are held according to the list. A torn line is skipped.
    pub(super) fn listed(&self, project: &ProjectId) -> BTreeSet<Vec<u8>> {
        let text = fsx::read_small(&self.list_path(project), LIST_BYTES_MAX).ok().flatten().unwrap_or_default();
        let whole = text.len() - text.rsplit(|byte| *byte == b'\n').next().map_or(0, <[u8]>::len);
        text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).filter_map(unescape).collect()
    }

    /// Adds object files to the list. The first list has everything that is held.
    pub(super) fn add_listed(&self, project: &ProjectId, paths: &[Vec<u8>]) -> Result<()> {
        let list = self.list_path(project);
        if !fsx::exists(&list)? {
            return self.replace_listed(project, &self.held(project)?.into_iter().map(|file| file.path).collect());
        }
        if paths.is_empty() {
            return Ok(());
        }
        let failed = |error| Error::io("write", &list, error);
        let lines: String = paths.iter().map(|path| format!("{}\n", escape(path))).collect();
        let mut file = sys::open_to_append(&list).map_err(failed)?;
        file.write_all(format!("\n{lines}").as_bytes()).map_err(failed)
    }

    /// Takes object files off the list.
    pub(super) fn remove_listed<'a>(
        &self,
        project: &ProjectId,
        paths: impl Iterator<Item = &'a Vec<u8>>,
    ) -> Result<()> {
        let mut listed = self.listed(project);
        let before = listed.len();
        for path in paths {
            listed.remove(path);
        }
        if listed.len() == before { Ok(()) } else { self.replace_listed(project, &listed) }
    }

    fn replace_listed(&self, project: &ProjectId, paths: &BTreeSet<Vec<u8>>) -> Result<()> {
        let lines: String = paths.iter().map(|path| format!("{}\n", escape(path))).collect();
        fsx::replace(&self.list_path(project), lines.as_bytes(), Durability::Rebuildable)
    }
}
