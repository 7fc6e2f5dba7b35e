//! Pruning: drops projects whose directory is gone, unused projects and remains of older layouts, then reduces the
//! store to its size limit, then frees the space of unreachable objects.
//!
//! - P1. A project is an orphan only by evidence: its directory is gone while its parent exists, with the device and
//!   inode that were recorded when the project was last seen. An unmounted disk is not a deleted project. An automatic
//!   prune drops an orphan only if it was also unused for `retention_days`: its user may come back tomorrow.
//! - P2. Nothing outside the base is touched, and in the base only piton's own files.
//! - P3. A clock that jumps causes no immediate loss: the first automatic prune after a gap drops nothing because of
//!   its age.

use crate::error::{Error, ErrorKind, Result};
use crate::git_state::release_git_states;
use crate::hint::Hint;
use crate::id::ProjectId;
use crate::kept::{expire as expire_kept, sweep_kept};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::store::{
    ForgetIf, GcGoal, MakeRoomOutcome, ProjectRecord, ReleasePolicy, Store, collect_garbage, forget_project,
    has_many_packs, limit_locals, make_room, would_drop,
};
use crate::time::Moment;
use crate::worktree::{ParentDirectory, Presence, presence};

mod forget;
mod json;
mod plan;

pub use forget::{forget, plan_forget};
pub use plan::{Inventory, KnownProject, OldRepository, Policy, PruneAction, PruneReason, PruneTarget};
use plan::{Orphans, plan};

const HOUR_SECS: f64 = 60.0 * 60.0;

/// Result of a prune.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneReport {
    /// Number of projects and repositories of the older layout that were examined.
    pub scanned: u64,
    /// Number of those dropped because their directory is gone.
    pub deleted_orphan: u64,
    /// Number of those dropped because they were unused for too long.
    pub deleted_stale: u64,
    /// Number of archives of older layouts that were removed.
    pub deleted_archives: u64,
    /// Number of checkpoints dropped because the store was too large.
    pub dropped_checkpoints: u64,
    /// Projects, archives and repositories dropped by rule, with the reason.
    pub dropped: Vec<PrunedItem>,
    /// Failures, one line each.
    pub problems: Vec<String>,
    /// Number of bytes freed on disk.
    pub bytes_freed: u64,
}

/// Project, archive or repository that a prune dropped.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PrunedItem {
    /// Directory of a project, or name of an archive or repository in the base.
    pub name: String,
    /// Reason for dropping it.
    pub why: PruneReason,
}

/// Planned actions of a prune.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PrunePlan {
    /// State of the store that the plan is based on.
    pub inventory: Inventory,
    /// Projects, archives and repositories to drop by rule.
    pub drops: Vec<PruneAction>,
    /// Number of checkpoints of each project to drop besides, because the store is too large. `None` if dropping
    /// checkpoints cannot bring the store below its limit.
    pub over_size: Option<Vec<(ProjectId, usize)>>,
}

/// Returns the input of the pruning rules. Checks whether the directories of the projects exist.
pub(crate) fn inventory(store: &Store) -> Result<Inventory> {
    inventory_of(store, store.known_projects()?)
}

/// Like [`inventory`], for these projects only.
pub(crate) fn inventory_of(store: &Store, ids: impl IntoIterator<Item = ProjectId>) -> Result<Inventory> {
    let mut projects = Vec::new();
    for id in ids {
        let record = store.records.get(&id);
        let presence = record.dir().map_or(Presence::Unknown, |dir| presence(&dir, recorded_parent(&record)));
        projects.push(KnownProject {
            presence,
            dir: record.dir(),
            created_at: record.created_at(),
            // A record that cannot be read may belong to a project that was just used.
            last_touch: if record.is_unread() { None } else { last_touch(store, &id, &record) },
            // If the record of a restore cannot be read, it may be that of an interrupted one.
            is_restoring: !matches!(store.intents.get(&id), Ok(None)),
            marks: store.pins.marks(&id)?,
            id,
        });
    }
    let old = store.base_dir.old_repositories()?.into_iter().map(|(name, dir, last_touch)| OldRepository {
        presence: dir.map_or(Presence::Unknown, |dir| presence(&dir, ParentDirectory::OldLayout)),
        name,
        last_touch,
    });
    Ok(Inventory { projects, archives: store.base_dir.archives()?, old_repositories: old.collect() })
}

/// Returns the time of the last use of a project, from its record or else from its newest checkpoint.
fn last_touch(store: &Store, id: &ProjectId, record: &ProjectRecord) -> Option<f64> {
    let from_newest = || {
        let held = store.locks.share().ok()?;
        let newest = store.objects.open(&held).ok()?.checkpoint(store.refs.newest(id).ok()??).ok()?;
        Some(newest.time.as_secs_f64())
    };
    record.last_touch().or_else(from_newest)
}

fn recorded_parent(record: &ProjectRecord) -> ParentDirectory {
    match (record.parent_identity(), record.parent_device()) {
        (Some((device, inode)), own_device) => ParentDirectory::Identity { device, inode, own_device },
        (None, Some(device)) => ParentDirectory::Device(device),
        (None, None) => ParentDirectory::Unknown,
    }
}

/// Returns the plan of a prune by these rules. Changes nothing.
pub fn plan_prune(store: &Store, policy: &Policy, now: Moment) -> Result<PrunePlan> {
    let PrunePlan { inventory, drops, .. } = plan_prune_rules(store, policy, now)?;
    let over_size = match policy.total_bytes_max {
        Some(bytes_max) => would_drop(store, bytes_max, now)?.map(|counts| counts.into_iter().collect()),
        None => Some(Vec::new()),
    };
    Ok(PrunePlan { inventory, drops, over_size })
}

/// Like [`plan_prune`], but without the size limit, whose effect takes long to compute.
pub fn plan_prune_rules(store: &Store, policy: &Policy, now: Moment) -> Result<PrunePlan> {
    let inventory = inventory(store)?;
    let drops = plan(policy, &inventory, now.as_secs_f64(), Orphans::DropNow);
    Ok(PrunePlan { inventory, drops, over_size: Some(Vec::new()) })
}

/// Prunes by these rules, and frees the space. Blocks while another process collects garbage. Fails with `Busy` if that
/// takes too long, and with `Stopped` once `progress` is cancelled.
///
/// ```
/// use piton::{Policy, Progress, plan_prune, prune};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let request = piton::Request::default().reason("before patch");
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &request, &settings, now, &progress)?;
/// let policy = Policy::from(&settings);
/// assert!(plan_prune(&store, &policy, now)?.drops.is_empty()); // looks only
/// let report = prune(&store, &policy, now, &Progress::default())?;
/// assert_eq!((report.scanned, report.deleted_orphan, report.deleted_stale), (1, 0, 0));
/// # Ok(())
/// # }
/// ```
pub fn prune(store: &Store, policy: &Policy, now: Moment, progress: &Progress) -> Result<PruneReport> {
    prune_by(store, policy, Orphans::DropNow, now, progress)
}

fn prune_by(store: &Store, policy: &Policy, orphans: Orphans, now: Moment, progress: &Progress) -> Result<PruneReport> {
    let held = store.locks.lock_gc_after_others(progress)?;
    let before = store.base_dir.bytes()?;
    let inventory = inventory(store)?;
    let scanned = inventory.projects.len() + inventory.old_repositories.len();
    let mut report = PruneReport { scanned: scanned as u64, ..PruneReport::default() };
    report.problems.extend(store.base_dir.finish_removal().err().map(|error| error.to_string()));
    let drops = plan(policy, &inventory, now.as_secs_f64(), orphans);
    let keeps_marked = orphans == Orphans::DropWhenStale;
    drop_by_rule(store, drops, keeps_marked, &inventory, &mut report, now, progress);
    let local_bytes_max = policy.local_bytes_max.filter(|_| !progress.is_cancelled());
    if let Some(Err(error)) = local_bytes_max.map(|max| with_room(store, || limit_locals(store, &held, max, now))) {
        report.problems.push(error.to_string());
    }
    let mut note = |result: Result<()>| report.problems.extend(result.err().map(|error| error.to_string()));
    let mut dropped = 0;
    // If the caller has cancelled, do not start with the slowest part.
    if let Some(bytes_max) = policy.total_bytes_max.filter(|_| !progress.is_cancelled()) {
        let made = with_room(store, || make_room(store, &held, 0, bytes_max, now, progress));
        note(made.and_then(|made| {
            let (MakeRoomOutcome::Enough { dropped: count }
            | MakeRoomOutcome::Impossible { dropped: count }
            | MakeRoomOutcome::Stopped { dropped: count }) = made;
            dropped = count;
            match made {
                MakeRoomOutcome::Enough { .. } | MakeRoomOutcome::Stopped { .. } => Ok(()),
                MakeRoomOutcome::Impossible { .. } => {
                    Err(Error::new(ErrorKind::Full, "bring the store below its limit")
                        .because("the newest checkpoint of each project and the marked ones alone take more")
                        .with_hint(Hint::RaiseLimitOrForget))
                }
            }
        }));
    }
    note(
        with_room(store, || collect_garbage(store, &held, GcGoal::All, policy.total_bytes_max, now, progress))
            .map(drop),
    );
    note(store.ledger.remove_unknown(|| store.known_projects()));
    let git_policy = ReleasePolicy { keep_days: policy.keep_days, gone_bytes_max: policy.git_bytes_max };
    let mut released = 0;
    note(release_git_states(store, git_policy, now, progress).map(|bytes| released = bytes));
    report.dropped_checkpoints = dropped;
    report.bytes_freed = before.saturating_sub(store.base_dir.bytes()?) + released;
    Ok(report)
}

/// Drops what is planned. Failures are added to the problems of the report.
fn drop_by_rule(
    store: &Store,
    drops: Vec<PruneAction>,
    keeps_marked: bool,
    inventory: &Inventory,
    report: &mut PruneReport,
    now: Moment,
    progress: &Progress,
) {
    for dropping in drops {
        if progress.is_cancelled() {
            break;
        }
        let dropped = match &dropping.what {
            PruneTarget::Project(id) => {
                let known = inventory.projects.iter().find(|project| project.id == *id);
                let last_touch = known.and_then(|project| project.last_touch);
                let is_gone = dropping.why == PruneReason::Orphan;
                let only = ForgetIf { last_touch, is_gone, is_unmarked: keeps_marked };
                with_room(store, || forget_project(store, id, only, now, progress))
            }
            PruneTarget::Archive(name) => store.base_dir.remove_archive(name).map(|()| true),
            PruneTarget::OldRepository(name) => store.base_dir.remove_old_repository(name).map(|()| true),
        };
        match (&dropped, &dropping.what, dropping.why) {
            (Ok(true), PruneTarget::Archive(_), _) => report.deleted_archives += 1,
            (Ok(true), _, PruneReason::Orphan) => report.deleted_orphan += 1,
            (Ok(true), _, PruneReason::Stale) => report.deleted_stale += 1,
            (Ok(true), _, PruneReason::Asked) | (Ok(false), ..) => {}
            (Err(error), ..) if error.kind() == ErrorKind::Stopped => {}
            (Err(error), ..) => report.problems.push(error.to_string()),
        }
        if matches!(dropped, Ok(true)) {
            report.dropped.push(PrunedItem { name: inventory.name_of(&dropping.what), why: dropping.why });
        }
    }
}

/// Runs work that frees space but first needs some for a few small files. If the disk is full, removes rebuildable
/// files and retries once.
fn with_room<T>(store: &Store, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    match work() {
        Err(error) if error.kind() == ErrorKind::Full => {
            store.base_dir.remove_rebuildable()?;
            work()
        }
        done => done,
    }
}

/// Returns true if maintenance has something to do. Cheap enough for every take.
pub fn is_due(store: &Store, settings: &Settings, now: Moment) -> bool {
    has_many_packs(&store.objects, settings.total_bytes_max()) || is_prune_due(store, settings, now)
}

fn is_prune_due(store: &Store, settings: &Settings, now: Moment) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "hours")]
    let interval = settings.min_interval_hours as f64 * HOUR_SECS;
    // A mark from the future was set by a wrong clock.
    let age = store.base_dir.last_prune().map(|at| now.as_secs_f64() - at).filter(|age| *age >= -interval);
    settings.auto_prune && age.is_none_or(|age| age >= interval)
}

/// Returns the policy of an automatic prune, without the age limit after a gap longer than the retention time:
/// everything looks old then, because the user was away or the clock jumped. If the clock still says the same at the
/// next prune, it is right.
fn policy_after_gap(store: &Store, settings: &Settings, now: Moment) -> Policy {
    let policy = Policy::from(settings);
    #[expect(clippy::cast_precision_loss, reason = "days")]
    let kept_secs = policy.retention_days as f64 * plan::DAY_SECS;
    let is_gap = store.base_dir.last_prune().is_some_and(|at| now.as_secs_f64() - at > kept_secs);
    Policy { retention_days: if is_gap { 0 } else { policy.retention_days }, ..policy }
}

/// Result of maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Maintained {
    /// There was nothing to do, or another process is doing it.
    Nothing,
    /// Packs were consolidated; the number of bytes freed.
    Tidied(u64),
    /// An automatic prune was due.
    Pruned(PruneReport),
}

/// Does the maintenance that is due: an automatic prune, at most once in `min_interval_hours`, or consolidating packs.
/// Runs in the background, never on the path of a take.
pub fn maintain(store: &Store, settings: &Settings, now: Moment, progress: &Progress) -> Result<Maintained> {
    expire_kept(store, settings, now);
    if is_prune_due(store, settings, now) {
        sweep_kept(store, now);
        let policy = policy_after_gap(store, settings, now);
        // Marked first, so that a failing prune is not retried by every take.
        let marked = store.base_dir.mark_prune(now);
        let pruned = prune_by(store, &policy, Orphans::DropWhenStale, now, progress).map(Maintained::Pruned);
        // On a full disk, the mark may be writable only after the prune.
        return if marked.is_ok() { pruned } else { store.base_dir.mark_prune(now).and(pruned) };
    }
    match store.locks.try_lock_gc()? {
        Some(held) if has_many_packs(&store.objects, settings.total_bytes_max()) => {
            limit_locals(store, &held, settings.local_bytes_max(), now)?;
            let done = collect_garbage(store, &held, GcGoal::Due, settings.total_bytes_max(), now, progress)?;
            Ok(Maintained::Tidied(done.bytes_freed))
        }
        _ => Ok(Maintained::Nothing),
    }
}

/// Removes all checkpoints of all projects, and the remains of older layouts. Session records are kept. Returns the
/// number of bytes freed.
pub fn clear(store: &Store) -> Result<u64> {
    // Before anything is written or removed: the base may be set to a foreign directory by mistake.
    store.base_dir.check_ours()?;
    let held = store.locks.lock_gc()?;
    let bytes = store.base_dir.bytes()?;
    store.base_dir.remove_all(&held)?;
    remove_older_layouts(store)?;
    Ok(bytes.saturating_sub(store.base_dir.bytes()?))
}

/// Removes the remains of older layouts from a base without a store. Returns the number of bytes freed.
pub fn clear_base(base: &Store) -> Result<u64> {
    let bytes = base.base_dir.bytes()?;
    remove_older_layouts(base)?;
    Ok(bytes.saturating_sub(base.base_dir.bytes()?))
}

fn remove_older_layouts(store: &Store) -> Result<()> {
    clear_legacy(store)?;
    store.base_dir.old_repositories()?.iter().try_for_each(|(name, ..)| store.base_dir.remove_old_repository(name))
}

/// Prunes the remains of older layouts in a base without a store.
pub fn prune_base(base: &Store, policy: &Policy, now: Moment) -> Result<PruneReport> {
    let before = base.base_dir.bytes()?;
    let inventory = inventory_of(base, [])?;
    let mut report = PruneReport { scanned: inventory.old_repositories.len() as u64, ..PruneReport::default() };
    let drops = plan(policy, &inventory, now.as_secs_f64(), Orphans::DropNow);
    drop_by_rule(base, drops, false, &inventory, &mut report, now, &Progress::default());
    report.bytes_freed = before.saturating_sub(base.base_dir.bytes()?);
    Ok(report)
}

/// Returns the plan of a prune of a base without a store.
pub fn plan_prune_base(base: &Store, policy: &Policy, now: Moment) -> Result<PrunePlan> {
    let inventory = inventory_of(base, [])?;
    let drops = plan(policy, &inventory, now.as_secs_f64(), Orphans::DropNow);
    Ok(PrunePlan { inventory, drops, over_size: Some(Vec::new()) })
}

/// Removes the archives of older layouts. Returns the number of bytes freed.
pub fn clear_legacy(store: &Store) -> Result<u64> {
    let mut bytes = 0;
    for archive in store.base_dir.archives()? {
        store.base_dir.remove_archive(&archive.name)?;
        bytes += archive.bytes;
    }
    Ok(bytes)
}
