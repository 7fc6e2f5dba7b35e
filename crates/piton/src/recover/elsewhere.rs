//! Files that the last turn lost in other projects.

use std::path::PathBuf;

use super::{RecoverOptions, recover};
use crate::error::Result;
use crate::history::History;
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::store::Store;
use crate::time::Moment;

/// Maximum number of projects that are named.
const PROJECTS_MAX: usize = 20;

/// Losses in another project.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LostElsewhere {
    /// directory of the project
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub dir: PathBuf,
    /// number of files and parts of its git repository that are missing
    pub files: usize,
}

/// Returns the losses in other projects in which the newest turn of this project has checkpoints. A project that cannot
/// be read is left out. Fails if the history of this project cannot be read.
pub fn lost_elsewhere(
    store: &Store,
    project: &Project,
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<Vec<LostElsewhere>> {
    let Some(turn) = History::of(store, project)?.turns().into_iter().next() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for id in store.catalog.projects()?.into_iter().filter(|id| id != project.id()) {
        let is_touched = || store.ledger.turns(&id).iter().any(|other| other.is_same_turn(&turn.record));
        let Some(dir) = store.dir_of(&id).filter(|_| found.len() < PROJECTS_MAX && is_touched()) else { continue };
        let other = Project::at(&dir, None).ok().or_else(|| Project::gone(&dir, store, None));
        let Some(other) = other.filter(|other| *other.id() == id) else { continue };
        let Ok(report) = recover(store, &other, RecoverOptions::default(), settings, now, progress) else {
            continue;
        };
        let files = report.items.iter().filter(|item| !item.is_replaced).count();
        found.extend((files > 0).then_some(LostElsewhere { dir, files }));
    }
    Ok(found)
}
