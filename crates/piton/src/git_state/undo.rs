//! Undoes the last restore of a repository: each change is reversed if the repository still has what the restore wrote.
//! An undo is a change itself, which the next undo reverses.

use std::collections::BTreeMap;

use super::apply::{GitTarget, apply};
use super::objects::{UNKNOWN, known_objects};
use super::plan::{GitAction, GitPlan, PlannedItem};
use super::restore::report;
use super::snapshot::{GitSnapshot, is_id, stash_log};
use super::{GitItem, GitItemKind, GitLeft, GitRestoreReport};
use crate::error::{Error, ErrorKind, Result};
use crate::id::content_id;
use crate::progress::Progress;
use crate::project::Project;
use crate::relpath::{self, unescape};
use crate::settings::Settings;
use crate::store::{GitChange, GitStateMoment, Store};
use crate::time::Moment;
use crate::worktree::{busy_error, running_commands, staged_objects};

/// Undoes the last restore of the project's repository, or the last undo.
///
/// Fails with `NotFound` if there was none, and like a restore.
pub fn undo_git_restore(
    store: &Store,
    project: &Project,
    is_dry: bool,
    settings: &Settings,
    now: Moment,
    progress: &Progress,
) -> Result<GitRestoreReport> {
    let held = store.locks.share_until(Some(progress))?;
    let locked = store.locks.lock_project_until(&held, project.id(), Some(progress))?;
    let log = store.git_states.log(project.id());
    let last = log.iter().rev().find(|record| record.moment == GitStateMoment::BeforeChange);
    let last = last.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "undo a restore of the git repository")
            .because("there was none in this project")
            .with_hint(crate::hint::Hint::ListGitStates)
    })?;
    let before = GitSnapshot::of_state(store, project.id(), last.state)?;
    if !is_dry {
        store.git_states.remove_stale_locks(&locked, project.id())?;
        if let Some(error) = busy_error(&running_commands(&before.place)) {
            return Err(error);
        }
    }
    let Some(present) = GitSnapshot::now(&before.place, progress)? else {
        return Err(Error::new(ErrorKind::Invalid, "undo a restore of the git repository")
            .because("the repository is gone")
            .with_hint(crate::hint::Hint::ListGitStates));
    };
    let mut plan = GitPlan::default();
    let sides = [UndoSide::of(&before), UndoSide::of(&present)];
    let is_known = known_objects(store, project.id(), &present, progress)?;
    for change in &last.changes {
        let one = reversed(change, &sides[0], &sides[1]);
        // D15: they were there before the restore, which may be long ago.
        let lacks = |one: &PlannedItem| one.actions.iter().any(|action| named_objects(action).any(|id| !is_known(&id)));
        match one {
            Ok(Some(one)) if lacks(&one) => {
                plan.left.push(GitLeft { kind: one.item.kind, name: one.item.name, why: UNKNOWN.to_owned() });
            }
            Ok(one) => plan.items.extend(one),
            Err(why) => {
                let kind = GitItemKind::parse(&change.kind).unwrap_or(GitItemKind::File);
                plan.left.push(GitLeft { kind, name: change.name.clone(), why: why.to_owned() });
            }
        }
    }
    let state = last.state;
    if is_dry || plan.items.is_empty() {
        return Ok(report(plan, state, None, 0, is_dry));
    }
    let target = GitTarget { store, project, locked: &locked, place: &before.place, settings, now, progress };
    let applied = apply(&target, &present, &mut plan)?;
    Ok(report(plan, state, Some(applied.before), applied.objects, false))
}

/// Returns the ids of the objects that a ref, the stash, the index or a file such as `HEAD` names.
fn named_objects(action: &GitAction) -> impl Iterator<Item = String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    let ids = match action {
        GitAction::Ref { to, .. } => to.iter().cloned().collect(),
        GitAction::Stash { log, top } => {
            let entries = text(log);
            let entries = entries.lines().filter_map(|line| line.split(' ').nth(1));
            entries.map(str::to_owned).chain(top.clone()).collect()
        }
        GitAction::File { path, file: Some(file) } if relpath::split(path).1 == b"index" => staged_objects(&file.bytes),
        GitAction::File { file: Some(file), .. } => vec![text(&file.bytes)],
        GitAction::File { file: None, .. } | GitAction::Pointer { .. } | GitAction::Rebuild => Vec::new(),
    };
    ids.into_iter().filter(|id| is_id(id))
}

const CHANGED: &str = "it was changed since";

/// A snapshot with its refs.
struct UndoSide<'a> {
    snapshot: &'a GitSnapshot,
    refs: BTreeMap<String, String>,
}

impl<'a> UndoSide<'a> {
    fn of(snapshot: &'a GitSnapshot) -> Self {
        Self { snapshot, refs: snapshot.refs() }
    }
}

/// Returns the reverse of a change; `None` if it did not happen.
fn reversed(
    change: &GitChange,
    before: &UndoSide<'_>,
    present: &UndoSide<'_>,
) -> std::result::Result<Option<PlannedItem>, &'static str> {
    let kind = GitItemKind::parse(&change.kind).ok_or("it was made by a later version")?;
    let path = unescape(change.path.as_bytes()).ok_or("its record is not valid")?;
    let file_id = |side: &UndoSide<'_>| side.snapshot.bytes(&path).map(|bytes| content_id(bytes).to_string());
    let ref_of = |side: &UndoSide<'_>| side.refs.get(&String::from_utf8_lossy(&path).into_owned()).cloned();
    let value = |side: &UndoSide<'_>| match kind {
        GitItemKind::Head => side.snapshot.head(),
        GitItemKind::Index => side.snapshot.staged().map(|id| id.to_string()),
        GitItemKind::Stash => side.snapshot.stash_value(),
        GitItemKind::Branch | GitItemKind::Tag | GitItemKind::Remote | GitItemKind::Ref => ref_of(side),
        _ => file_id(side),
    };
    if kind == GitItemKind::Repository {
        return Err("there was no repository before; remove it by hand if it is not wanted");
    }
    let (from, to) = (value(present), value(before));
    if from == to {
        return Ok(None);
    }
    if from != change.to {
        return Err(CHANGED);
    }
    let before = before.snapshot;
    let action = match kind {
        GitItemKind::Stash => {
            let (log, top) = stash_log(&before.stash());
            // A ref without entries is possible, too.
            let ref_alone =
                || before.bytes(b"refs/stash").map(|id| String::from_utf8_lossy(id.trim_ascii()).into_owned());
            GitAction::Stash { log, top: top.or_else(ref_alone) }
        }
        _ if kind.is_ref() => {
            GitAction::Ref { name: String::from_utf8_lossy(&path).into_owned(), from: from.clone(), to: to.clone() }
        }
        _ => GitAction::File { path: path.clone(), file: before.files.get(&path).cloned() },
    };
    let item = GitItem { kind, name: change.name.clone(), from, to };
    Ok(Some(PlannedItem { item, actions: vec![action] }))
}
