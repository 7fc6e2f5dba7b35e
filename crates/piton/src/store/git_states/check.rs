//! Checks git states: every recorded state and its contents are there, and every held pack is whole.

use std::collections::BTreeSet;
use std::fs::File;

use super::GitContents;
use super::GitStates;
use super::held::HeldFile;
use super::object_ids::PackIds;
use crate::error::Result;
use crate::fsx;
use crate::id::{ObjectId, ProjectId};
use crate::sys;

/// A missing or corrupt file of a git state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitStateProblem {
    /// State that is affected, if it is known.
    pub(crate) state: Option<ObjectId>,
    /// File that is missing or corrupt.
    pub(crate) file: std::path::PathBuf,
    pub(crate) what: String,
}

impl GitStates {
    /// Returns the missing and corrupt files of the git states of a project.
    pub(crate) fn check(&self, project: &ProjectId) -> Result<Vec<GitStateProblem>> {
        let mut problems = Vec::new();
        let states: BTreeSet<ObjectId> = self.log(project).iter().map(|record| record.state).collect();
        for id in states {
            let mut note = |file, what: String| problems.push(GitStateProblem { state: Some(id), file, what });
            match self.get(project, id) {
                Err(error) => note(self.state_path(project, id), error.to_string()),
                Ok(state) => {
                    for file in &state.files {
                        if let Err(error) = self.contents(project, &file.contents) {
                            let name = String::from_utf8_lossy(&file.path);
                            let place = match file.contents {
                                GitContents::Stored(id) => self.contents_path(project, id),
                                GitContents::Inline(_) => self.state_path(project, id),
                            };
                            note(place, format!("{name}: {error}"));
                        }
                    }
                }
            }
        }
        let mut missing = self.listed(project);
        for held in self.held(project)? {
            missing.remove(&held.path);
            problems.extend(problem_of(&held).map(|what| GitStateProblem { state: None, file: held.file, what }));
        }
        problems.extend(missing.iter().map(|path| {
            let what = "it was held, and is missing".to_owned();
            GitStateProblem { state: None, file: self.held_path(project, path), what }
        }));
        Ok(problems)
    }

    /// Removes the states with these problems from the log, and removes incomplete held packs. The caller has locked
    /// the store.
    pub(crate) fn drop_damaged(&self, project: &ProjectId, problems: &[GitStateProblem]) -> Result<()> {
        let damaged: BTreeSet<ObjectId> = problems.iter().filter_map(|problem| problem.state).collect();
        if !damaged.is_empty() {
            let mut log = self.log(project);
            log.retain(|record| !damaged.contains(&record.state));
            self.replace_log(project, &log)?;
        }
        for problem in problems {
            super::held::release(&problem.file)?;
            // An idx without its pack is of no use, nor the other way round. The next capture links both.
            if problem.state.is_none() {
                super::held::release(&problem.file.with_extension("pack"))?;
                super::held::release(&problem.file.with_extension("idx"))?;
            }
        }
        let listed = self.listed(project);
        let is_gone = |path: &&Vec<u8>| !fsx::exists(&self.held_path(project, path)).unwrap_or(true);
        self.remove_listed(project, listed.iter().filter(is_gone))?;
        if !problems.is_empty() {
            // The next capture reads everything again.
            self.save_cache(project, &super::GitStateCache::default())?;
        }
        Ok(())
    }
}

/// Describes the defect of a held object file, if it has one.
fn problem_of(held: &HeldFile) -> Option<String> {
    if held.bytes == 0 && !held.path.ends_with(b".keep") && !held.path.ends_with(b".promisor") {
        return Some("it is empty".to_owned());
    }
    if held.path.ends_with(b".pack") && !held.file.with_extension("idx").is_file() {
        return Some("its idx is missing".to_owned());
    }
    if !held.path.ends_with(b".idx") {
        return None;
    }
    let Some(ids) = PackIds::open(&held.file) else { return Some("it is not an idx".to_owned()) };
    let checksum = ids.pack_checksum();
    let pack = held.file.with_extension("pack");
    let trailer = File::open(&pack).and_then(|file| {
        let size = file.metadata()?.len();
        let mut trailer = vec![0; checksum.len()];
        sys::read_exact_at(&file, &mut trailer, size.saturating_sub(checksum.len() as u64))?;
        Ok(trailer)
    });
    match trailer {
        Ok(trailer) if trailer == checksum => None,
        Ok(_) => Some("its pack was cut short or replaced".to_owned()),
        Err(error) => Some(format!("its pack cannot be read: {}", crate::error::plain_io(&error))),
    }
}
