//! Checks kept files, and sets aside sets whose list cannot be read.

use std::fs;
use std::path::PathBuf;

use super::kept::{HeldBy, KeptEntry, KeptFiles, KeptKind, KeptSet, time_in};
use crate::error::{Error, Result};
use crate::fsx;

/// Prefix of the names of sets that a repair set aside.
const DAMAGED: &str = "damaged.";

/// A defect of a set of kept files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptProblem {
    /// Name of the set.
    pub(crate) set: String,
    /// File that is missing or corrupt.
    pub(crate) file: PathBuf,
    pub(crate) what: String,
    /// Entry whose contents are lost. `None` if the list of the set cannot be read.
    pub(crate) entry: Option<KeptEntry>,
}

impl KeptFiles {
    /// Returns the defects of all sets. A set that is released meanwhile has none.
    pub(crate) fn check(&self) -> Vec<KeptProblem> {
        let mut problems = Vec::new();
        for name in self.names() {
            let found = self.set(name.clone()).and_then(|set| Ok((self.entries(&name)?, set)));
            let dir = self.layout.kept_set(&name);
            match found {
                Ok((entries, set)) => {
                    problems.extend(entries.into_iter().filter_map(|entry| self.problem(&set, entry)));
                }
                Err(_) if fs::symlink_metadata(&dir).is_err() => {}
                Err(error) => {
                    problems.push(KeptProblem { set: name, file: dir, what: error.to_string(), entry: None });
                }
            }
        }
        problems.retain(|problem| fs::symlink_metadata(self.layout.kept_set(&problem.set)).is_ok());
        problems
    }

    fn problem(&self, set: &KeptSet, entry: KeptEntry) -> Option<KeptProblem> {
        let KeptKind::File(held) = entry.kind else { return None };
        let file = self.contents(&set.name, &entry.path);
        let what = match fs::symlink_metadata(&file) {
            Err(error) => crate::error::plain_io(&error),
            Ok(found) if !found.is_file() => "it is not a file".to_owned(),
            // A link shows what was written since.
            Ok(found) if held != HeldBy::Link && found.len() != entry.size => {
                format!("it has {} bytes instead of {}", found.len(), entry.size)
            }
            Ok(_) => return None,
        };
        Some(KeptProblem { set: set.name.clone(), file, what, entry: Some(entry) })
    }

    /// Repairs the sets of these problems: removes files that are lost from the lists, and renames sets whose list cannot be
    /// read, so that they are neither offered nor found again. Nothing is deleted.
    pub(crate) fn set_aside(&self, problems: &[KeptProblem]) -> Result<()> {
        for problem in problems {
            let Some(lost) = &problem.entry else {
                let (from, to) =
                    (self.layout.kept_set(&problem.set), self.layout.kept_set(&format!("{DAMAGED}{}", problem.set)));
                fs::rename(&from, &to).map_err(|error| Error::io("rename", &from, error))?;
                continue;
            };
            let set = self.set(problem.set.clone())?;
            let mut entries = self.entries(&problem.set)?;
            entries.retain(|entry| entry != lost);
            self.replace_list(&set, &entries)?;
        }
        fsx::sync_dir(&self.layout.kept_files())
    }

    /// Removes the sets that were set aside and were kept before this time. Errors are ignored: the next call tries again.
    pub(crate) fn release_damaged(&self, before_secs: i64) {
        for name in fsx::names_in(&self.layout.kept_files()).unwrap_or_default() {
            let time = name.to_str().and_then(|name| time_in(name.strip_prefix(DAMAGED)?));
            if time.is_some_and(|time| time < before_secs) {
                let _ = fs::remove_dir_all(self.layout.kept_files().join(&name));
            }
        }
    }
}
