//! Recorded states: the list, one of them compared with the repository, and what was lost since.

use std::collections::BTreeSet;

use super::compare::{differences, kind_of_ref};
use super::objects::{file_count, needed_objects};
use super::plan::OBJECTS;
use super::snapshot::{GitSnapshot, is_id};
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
/// last one at which a turn began or that was taken by hand. Of a checkpoint without a state, because the repository was
/// gone by then or the checkpoint was made by a restore, it is the last one before.
pub(super) fn resolve(store: &Store, project: &Project, name: &str) -> Result<GitStateRecord> {
    let history = History::of(store, project);
    let found = history.and_then(|history| history.find(name).map(|checkpoint| (checkpoint.id, checkpoint.time)));
    let log = || store.git_states.log(project.id()).into_iter().rev();
    match found {
        Ok((id, time)) => {
            let at = |record: &GitStateRecord| record.checkpoint == Some(id);
            let row = log().find(|record| at(record) && record.moment == GitStateMoment::Row);
            let is_before = |record: &GitStateRecord| {
                record.time.secs <= time.secs && record.moment != GitStateMoment::BeforeChange
            };
            let found = row.or_else(|| log().find(at)).or_else(|| log().find(is_before));
            found.ok_or_else(|| nothing_recorded(name))
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
    let mut differences = differences(&then, now.as_ref());
    differences.extend(objects_gone(store, project, &then, now.as_ref(), progress)?);
    let refs = then.refs();
    let count = |kind| refs.keys().filter(|name| kind_of_ref(name) == kind).count();
    let history = History::of(store, project).ok();
    Ok(GitStateReport {
        recorded: recorded(&record, history.as_ref()),
        head: then.head().filter(|_| !then.has_reftable()),
        has_reftable: then.has_reftable(),
        branches: count(GitItemKind::Branch),
        tags: count(GitItemKind::Tag),
        stashes: then.stash().len(),
        differences,
    })
}

/// Returns the difference that the repository lacks object files that a state needs.
fn objects_gone(
    store: &Store,
    project: &Project,
    then: &GitSnapshot,
    now: Option<&GitSnapshot>,
    progress: &Progress,
) -> Result<Option<GitDifference>> {
    let Some(now) = now else { return Ok(None) };
    let gone = needed_objects(store, project.id(), then, now, progress)?;
    let (kind, name) = (GitItemKind::Objects, OBJECTS.to_owned());
    Ok((!gone.is_empty()).then(|| GitDifference { kind, name, then: Some(file_count(&gone)), now: None }))
}

/// An item that a recorded state has and the repository lacks.
#[derive(Debug, Clone)]
pub(crate) struct LostGitItem {
    pub(crate) kind: GitItemKind,
    pub(crate) name: String,
    pub(crate) state: ObjectId,
    pub(crate) checkpoint: Option<CheckpointId>,
    /// True if the repository has something else under this name.
    pub(crate) is_replaced: bool,
}

/// Returns the branches, tags, stash entries and worktrees that states since a time have and the repository lacks, the
/// last lost first. Each is found in the newest state that has it. A branch that points elsewhere is lost if no ref
/// reaches the recorded commit.
pub(crate) fn lost_items(
    store: &Store,
    project: &Project,
    since: Option<Moment>,
    progress: &Progress,
) -> Result<Vec<LostGitItem>> {
    let log = store.git_states.log(project.id());
    let is_meant = |record: &&GitStateRecord| since.is_none_or(|since| record.time >= since);
    let first = log.iter().find(is_meant).map(|record| record.state);
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
        let mut differences = differences(&then, present.as_ref());
        if seen_states.len() == 1 {
            differences.extend(objects_gone(store, project, &then, present.as_ref(), progress)?);
        }
        let moved = present.as_ref().map(|present| moved_away(store, present, &differences, progress));
        let is_moved = |one: &GitDifference| moved.as_ref().is_some_and(|moved| moved.contains(&one.name));
        // A reftable is not parsed: any difference from the first of the states may be a loss.
        let is_changed = |one: &GitDifference| one.kind == GitItemKind::Refs && first == Some(record.state);
        let is_lost = |one: &GitDifference| one.now.is_none() || is_moved(one) || is_changed(one);
        for one in differences.into_iter().filter(is_lost) {
            let is_replaced = one.now.is_some();
            let GitDifference { kind, name, then, .. } = one;
            let is_told = matches!(
                kind,
                GitItemKind::Branch
                    | GitItemKind::Tag
                    | GitItemKind::Stash
                    | GitItemKind::Worktree
                    | GitItemKind::Objects
                    | GitItemKind::Repository
                    | GitItemKind::Refs
            );
            let key = if kind == GitItemKind::Stash { (kind, then) } else { (kind, Some(name.clone())) };
            if is_told && seen.insert(key) {
                let (state, checkpoint) = (record.state, record.checkpoint);
                found.push(LostGitItem { kind, name, state, checkpoint, is_replaced });
            }
        }
    }
    Ok(found)
}

/// Returns the names of branches that point elsewhere now, and whose recorded commits no ref reaches.
fn moved_away(
    store: &Store,
    present: &GitSnapshot,
    differences: &[GitDifference],
    progress: &Progress,
) -> BTreeSet<String> {
    let moved = |one: &&GitDifference| one.kind == GitItemKind::Branch && one.now.is_some();
    let commit = |one: &GitDifference| one.then.clone().filter(|id| is_id(id));
    let wanted: BTreeSet<String> = differences.iter().filter(moved).filter_map(commit).collect();
    if wanted.is_empty() {
        return BTreeSet::new();
    }
    let stash = present.stash().into_iter().map(|entry| entry.id);
    let head = present.head().into_iter();
    let tips = present.refs().into_values().chain(stash).chain(head);
    let objects = present.place.common.join("objects");
    let lost = store.git_states.unreachable(&objects, tips, &wanted, progress);
    let is_lost = |one: &&GitDifference| one.then.as_ref().is_some_and(|id| lost.contains(id));
    differences.iter().filter(moved).filter(is_lost).map(|one| one.name.clone()).collect()
}

fn nothing_recorded(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("find the git state of {name}"))
        .because("none was recorded with this checkpoint")
        .with_hint(Hint::ListGitStates)
}
