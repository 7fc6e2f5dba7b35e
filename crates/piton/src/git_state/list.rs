//! Recorded states: the list, one of them compared with the repository, and what was lost since.

use std::collections::BTreeSet;

use super::compare::{differences, kind_of_ref};
use super::snapshot::GitSnapshot;
use super::{GitDifference, GitItemKind, GitStateReport, RecordedGitState};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::history::History;
use crate::id::{CheckpointId, ObjectId};
use crate::progress::Progress;
use crate::project::Project;
use crate::store::{GitStateMoment, GitStateRecord, Store};
use crate::time::Moment;

/// Maximum number of states that are searched for lost items.
const SEARCHED_MAX: usize = 200;

/// Returns the recorded states of the project's repository, the newest first.
pub fn git_states(store: &Store, project: &Project) -> Result<Vec<RecordedGitState>> {
    let history = History::of(store, project).ok();
    let log = store.git_states.log(project.id());
    Ok(log.iter().rev().map(|record| recorded(record, history.as_ref())).collect())
}

fn recorded(record: &GitStateRecord, history: Option<&History>) -> RecordedGitState {
    let row = record
        .checkpoint
        .zip(history)
        .and_then(|(id, history)| history.rows().position(|row| row.id == id))
        .map(|at| at + 1);
    RecordedGitState {
        state: record.state,
        short_id: record.state.short(),
        time: record.time,
        moment: record.moment,
        checkpoint: record.checkpoint,
        row,
        cut_short: record.is_cut,
    }
}

/// Finds the state that was recorded with a checkpoint, or a state by its id. Of several states at a checkpoint it is the
/// last one at which a turn began or that was taken by hand.
pub(super) fn resolve(store: &Store, project: &Project, name: &str) -> Result<GitStateRecord> {
    let history = History::of(store, project);
    let found = history.and_then(|history| history.find(name).map(|checkpoint| checkpoint.id));
    let log = || store.git_states.log(project.id()).into_iter().rev();
    match found {
        Ok(id) => {
            let at = |record: &GitStateRecord| record.checkpoint == Some(id);
            let row = log().find(|record| at(record) && record.moment == GitStateMoment::Row);
            row.or_else(|| log().find(at)).ok_or_else(|| nothing_recorded(name))
        }
        Err(error) => match store.git_states.find(project.id(), name)? {
            Some(record) => Ok(record),
            None if error.kind() == ErrorKind::NotFound && store.git_states.has(project.id()) => {
                Err(nothing_recorded(name))
            }
            None => Err(error),
        },
    }
}

/// Compares the state that was recorded with a checkpoint with the repository as it is.
///
/// Fails with `NotFound` if no state was recorded there, and with `Damaged` if it cannot be read. Writes nothing.
pub fn show_git_state(store: &Store, project: &Project, name: &str, progress: &Progress) -> Result<GitStateReport> {
    let record = resolve(store, project, name)?;
    let then = GitSnapshot::of_state(store, project.id(), record.state)?;
    let now = GitSnapshot::now(&then.place, progress)?;
    let refs = then.refs();
    let count = |kind| refs.keys().filter(|name| kind_of_ref(name) == kind).count();
    let history = History::of(store, project).ok();
    Ok(GitStateReport {
        recorded: recorded(&record, history.as_ref()),
        head: then.head(),
        branches: count(GitItemKind::Branch),
        tags: count(GitItemKind::Tag),
        stashes: then.stash().len(),
        differences: differences(&then, now.as_ref()),
    })
}

/// Something that a recorded state has and the repository lacks.
#[derive(Debug, Clone)]
pub(crate) struct LostGitItem {
    pub(crate) kind: GitItemKind,
    pub(crate) name: String,
    pub(crate) state: ObjectId,
    pub(crate) checkpoint: Option<CheckpointId>,
}

/// Returns the branches, tags, stash entries and worktrees that states since a time have and the repository lacks, the
/// last lost first. Each is found in the newest state that has it.
pub(crate) fn lost_items(
    store: &Store,
    project: &Project,
    since: Option<Moment>,
    progress: &Progress,
) -> Result<Vec<LostGitItem>> {
    let log = store.git_states.log(project.id());
    let is_meant = |record: &&GitStateRecord| since.is_none_or(|since| record.time >= since);
    let mut seen_states = BTreeSet::new();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut now = None;
    for record in log.iter().rev().filter(is_meant) {
        if !seen_states.insert(record.state) || seen_states.len() > SEARCHED_MAX {
            continue;
        }
        let then = GitSnapshot::of_state(store, project.id(), record.state)?;
        let present = match &now {
            Some(present) => present,
            None => now.insert(GitSnapshot::now(&then.place, progress)?),
        };
        for GitDifference { kind, name, then, .. } in
            differences(&then, present.as_ref()).into_iter().filter(|one| one.now.is_none())
        {
            let is_told = matches!(
                kind,
                GitItemKind::Branch
                    | GitItemKind::Tag
                    | GitItemKind::Stash
                    | GitItemKind::Worktree
                    | GitItemKind::Repository
            );
            let key = if kind == GitItemKind::Stash { (kind, then) } else { (kind, Some(name.clone())) };
            if is_told && seen.insert(key) {
                found.push(LostGitItem { kind, name, state: record.state, checkpoint: record.checkpoint });
            }
        }
    }
    Ok(found)
}

fn nothing_recorded(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("find the git state of {name}"))
        .because("none was recorded with this checkpoint")
        .with_hint(Hint::ListGitStates)
}
