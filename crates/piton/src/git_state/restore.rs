//! Restores parts of a recorded state: `plan` decides, `apply` writes.

use super::apply::{GitTarget, apply, rebuild};
use super::list::resolve;
use super::objects::{file_count, known_objects, lost_objects, needed_objects};
use super::options::GitRestoreOptions;
use super::plan::{GitPlan, OBJECTS, plan};
use super::snapshot::GitSnapshot;
use super::{GitItem, GitItemKind, GitRestoreOutcome, GitRestoreReport};
use crate::error::Result;
use crate::id::ObjectId;
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::store::Store;
use crate::time::Moment;
use crate::worktree::{busy_error, running_commands};

/// Brings parts of the recorded state `name` back into the project's repository: a number or id of a checkpoint, or the id
/// of a state.
///
/// Fails with `NotFound` if no state was recorded there, with `Busy` while another command of git runs, and with `Damaged`
/// if the state cannot be read. Nothing is changed then.
pub fn restore_git_state(
    store: &Store,
    project: &Project,
    name: &str,
    options: GitRestoreOptions<'_>,
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<GitRestoreReport> {
    let record = resolve(store, project, name)?;
    let then = GitSnapshot::of_state(store, project.id(), record.state)?;
    if options.is_dry {
        let present = GitSnapshot::now(&then.place, progress)?;
        let planned = present.map_or_else(
            || Ok(rebuild_plan(&then)),
            |present| checked_plan(store, project, &then, &present, record.state, &options, progress),
        )?;
        return Ok(report(planned, record.state, None, 0, true));
    }
    let held = store.locks.share_until(Some(progress))?;
    let locked = store.locks.lock_project_until(&held, project.id(), Some(progress))?;
    store.git_states.remove_stale_locks(&locked, project.id())?;
    if let Some(error) = busy_error(&running_commands(&then.place)) {
        return Err(error);
    }
    let target = GitTarget { store, project, locked: &locked, place: &then.place, settings, now, progress };
    let Some(present) = GitSnapshot::now(&then.place, progress)? else {
        let planned = rebuild_plan(&then);
        let aside = then.place.name_aside();
        let objects = rebuild(&target, &then, record.state, aside.as_deref())?;
        return Ok(report(planned, record.state, None, objects, false));
    };
    let mut planned = checked_plan(store, project, &then, &present, record.state, &options, progress)?;
    if planned.items.is_empty() {
        return Ok(report(planned, record.state, None, 0, false));
    }
    let applied = apply(&target, &present, &mut planned)?;
    Ok(report(planned, record.state, Some(applied.before), applied.objects, false))
}

/// Plans a restore. What names objects that are neither held nor in the repository is left. (D15)
fn checked_plan(
    store: &Store,
    project: &Project,
    then: &GitSnapshot,
    present: &GitSnapshot,
    id: ObjectId,
    options: &GitRestoreOptions<'_>,
    progress: &Progress,
) -> Result<GitPlan> {
    let is_known = known_objects(store, project.id(), present, progress)?;
    let mut planned = plan(then, present, id, options, &is_known);
    let has_dir = present.place.has_dir("objects");
    let lost = match options.is_all || !has_dir || options.names.iter().any(|name| name == OBJECTS) {
        true => lost_objects(store, project.id(), &then.place, progress)?,
        false if options.names.is_empty() => needed_objects(store, project.id(), then, present, progress)?,
        false => Vec::new(),
    };
    if !lost.is_empty() || !has_dir {
        // `apply` adds them, before anything else.
        let item =
            GitItem { kind: GitItemKind::Objects, name: OBJECTS.to_owned(), from: None, to: Some(file_count(&lost)) };
        planned.items.push(super::plan::PlannedItem { item, actions: Vec::new() });
    }
    Ok(planned)
}

/// Returns the plan for a repository that is gone.
fn rebuild_plan(then: &GitSnapshot) -> GitPlan {
    let name = then.place.common.display().to_string();
    let to = Some(then.place.root.display().to_string());
    let item = GitItem { kind: GitItemKind::Repository, name: name.clone(), from: None, to };
    let mut items = vec![super::plan::PlannedItem { item, actions: vec![super::plan::GitAction::Rebuild] }];
    // Something else is in its place.
    items.extend(then.place.name_aside().map(|aside| {
        let (from, to) = (Some(name), Some(aside.display().to_string()));
        let item = GitItem { kind: GitItemKind::File, name: ".git".to_owned(), from, to };
        super::plan::PlannedItem { item, actions: Vec::new() }
    }));
    GitPlan { items, left: Vec::new() }
}

pub(super) fn report(
    plan: GitPlan,
    state: ObjectId,
    before: Option<ObjectId>,
    objects: u64,
    is_dry: bool,
) -> GitRestoreReport {
    let outcome = match () {
        () if plan.items.is_empty() && plan.left.is_empty() => GitRestoreOutcome::NothingToDo,
        () if is_dry => GitRestoreOutcome::Planned,
        () if plan.left.is_empty() => GitRestoreOutcome::Restored,
        () => GitRestoreOutcome::Partly,
    };
    let restored = plan.items.into_iter().map(|one| one.item).collect();
    GitRestoreReport { outcome, state, before, restored, left: plan.left, objects }
}
