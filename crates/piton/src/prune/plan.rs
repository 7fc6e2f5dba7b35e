//! Pruning rules as a pure function of policy, inventory and time.

use std::path::PathBuf;

use crate::id::ProjectId;
use crate::settings::Settings;
use crate::store::Archive;
use crate::worktree::Presence;

pub(super) const DAY_SECS: f64 = 24.0 * 60.0 * 60.0;

/// Start of 2020. There is nothing older to prune: an earlier time comes from a clock that was not set, and is ignored.
const CLOCK_IS_SET_SECS: f64 = 1_577_836_800.0;

/// Pruning rules. The default prunes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Projects unused for more than this number of days are dropped; 0 means never.
    pub retention_days: u64,
    /// True if projects whose directory is gone are dropped.
    pub delete_orphans: bool,
    /// Size limit of the store.
    pub total_bytes_max: Option<u64>,
    /// Size limit of local files: those of the oldest checkpoints are dropped.
    pub local_bytes_max: Option<u64>,
    /// Days for which git objects that are gone from a user's repository are held.
    pub keep_days: u64,
    /// Size limit of git objects that are held for longer.
    pub git_bytes_max: Option<u64>,
}

impl Policy {
    /// Sets [`Policy::retention_days`].
    #[must_use]
    pub fn retention_days(mut self, retention_days: u64) -> Self {
        self.retention_days = retention_days;
        self
    }

    /// Sets [`Policy::delete_orphans`].
    #[must_use]
    pub fn delete_orphans(mut self, delete_orphans: bool) -> Self {
        self.delete_orphans = delete_orphans;
        self
    }

    /// Sets [`Policy::total_bytes_max`].
    #[must_use]
    pub fn total_bytes_max(mut self, total_bytes_max: impl Into<Option<u64>>) -> Self {
        self.total_bytes_max = total_bytes_max.into();
        self
    }
}

impl Policy {
    /// Sets [`Policy::local_bytes_max`].
    #[must_use]
    pub fn local_bytes_max(mut self, local_bytes_max: impl Into<Option<u64>>) -> Self {
        self.local_bytes_max = local_bytes_max.into();
        self
    }
}

impl From<&Settings> for Policy {
    fn from(settings: &Settings) -> Self {
        Self {
            retention_days: settings.retention_days,
            delete_orphans: settings.delete_orphans,
            total_bytes_max: settings.total_bytes_max(),
            local_bytes_max: Some(settings.local_bytes_max()),
            keep_days: settings.keep_days,
            git_bytes_max: Some(settings.git_copy_bytes_max()),
        }
    }
}

/// Treatment of projects whose directory is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Orphans {
    /// Dropped at once, because a user requested the prune.
    DropNow,
    /// Dropped once they were also unused for the retention time. Agents delete whole directories, and their users may
    /// notice only later.
    DropWhenStale,
}

/// One project of the store.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct KnownProject {
    /// Name in the store.
    pub id: ProjectId,
    /// Directory, if it is on record.
    pub dir: Option<PathBuf>,
    /// Existence of that directory.
    pub presence: Presence,
    /// Time when it was first seen, in seconds since the Unix epoch.
    pub created_at: Option<f64>,
    /// Time of its last use, in seconds since the Unix epoch.
    pub last_touch: Option<f64>,
    /// True if a restore of it was interrupted and is not finished.
    pub is_restoring: bool,
    /// Names of its marked checkpoints, sorted.
    pub marks: Vec<String>,
}

/// Repository of the older layout that is still in the base.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OldRepository {
    /// Name in the base.
    pub name: String,
    /// Existence of the directory that it belongs to.
    pub presence: Presence,
    /// Time of its last use, in seconds since the Unix epoch.
    pub last_touch: f64,
}

/// Input of the pruning rules.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Inventory {
    /// Projects of the store.
    pub projects: Vec<KnownProject>,
    /// Archives of older layouts.
    pub archives: Vec<Archive>,
    /// Repositories of the older layout.
    pub old_repositories: Vec<OldRepository>,
}

impl Inventory {
    /// Returns true if there is nothing to prune by rule.
    pub fn is_empty(&self) -> bool {
        self.projects.is_empty() && self.archives.is_empty() && self.old_repositories.is_empty()
    }

    /// Returns the directory of a project, or its id if that is unknown; for everything else, its name.
    pub fn name_of(&self, what: &PruneTarget) -> String {
        match what {
            PruneTarget::Project(id) => {
                let project = self.projects.iter().find(|project| project.id == *id);
                let dir = project.and_then(|project| project.dir.as_ref());
                dir.map_or_else(|| id.to_string(), |dir| dir.display().to_string())
            }
            PruneTarget::Archive(name) | PruneTarget::OldRepository(name) => name.clone(),
        }
    }
}

/// Target of a prune.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PruneTarget {
    /// Project, with all its checkpoints.
    Project(ProjectId),
    /// Archive, by name.
    Archive(String),
    /// Repository of the older layout, by name.
    OldRepository(String),
}

/// Reason for dropping something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PruneReason {
    /// Its directory is gone.
    Orphan,
    /// It was unused for too long.
    Stale,
    /// The user named it.
    #[serde(rename = "forgotten")]
    Asked,
}

/// Target and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PruneAction {
    /// Target.
    pub what: PruneTarget,
    /// Reason.
    pub why: PruneReason,
}

/// Applies the rules. The size limit is not part of them: it depends on the objects that each checkpoint holds
/// exclusively.
pub(super) fn plan(policy: &Policy, inventory: &Inventory, now_secs: f64, orphans: Orphans) -> Vec<PruneAction> {
    let why = |presence: Presence, last_touch: Option<f64>, is_restoring: bool| {
        let is_orphan = policy.delete_orphans && presence == Presence::Gone;
        #[expect(clippy::cast_precision_loss, reason = "days")]
        let age_max = policy.retention_days as f64 * DAY_SECS;
        let last_touch = last_touch.filter(|touched| *touched >= CLOCK_IS_SET_SECS);
        let is_stale = policy.retention_days > 0 && last_touch.is_some_and(|touched| now_secs - touched > age_max);
        let orphan_goes = is_orphan && (is_stale || orphans == Orphans::DropNow);
        match (orphan_goes, is_stale) {
            (true, _) => Some(PruneReason::Orphan),
            // The user must be able to finish an interrupted restore, however old it is.
            (false, true) if !is_restoring => Some(PruneReason::Stale),
            (false, _) => None,
        }
    };
    // Only the user drops a mark.
    let may_go = |project: &&KnownProject| orphans == Orphans::DropNow || project.marks.is_empty();
    let projects = inventory.projects.iter().filter(may_go).filter_map(|project| {
        let why = why(project.presence, project.last_touch, project.is_restoring)?;
        Some(PruneAction { what: PruneTarget::Project(project.id.clone()), why })
    });
    let old = inventory.old_repositories.iter().filter_map(|old| {
        let why = why(old.presence, Some(old.last_touch), false)?;
        Some(PruneAction { what: PruneTarget::OldRepository(old.name.clone()), why })
    });
    let archives = inventory.archives.iter().filter_map(|archive| {
        let why = why(Presence::There, Some(archive.mtime), false)?;
        Some(PruneAction { what: PruneTarget::Archive(archive.name.clone()), why })
    });
    projects.chain(old).chain(archives).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 30_000.0 * DAY_SECS;

    fn project(digit: char, presence: Presence, days_ago: Option<f64>) -> KnownProject {
        KnownProject {
            id: ProjectId::parse(&digit.to_string().repeat(16)).expect("sixteen digits"),
            dir: None,
            presence,
            created_at: None,
            is_restoring: false,
            marks: Vec::new(),
            last_touch: days_ago.map(|days| NOW - days * DAY_SECS),
        }
    }

    fn inventory() -> Inventory {
        Inventory {
            projects: vec![
                project('a', Presence::There, Some(1.0)),
                project('b', Presence::Gone, Some(1.0)),
                project('c', Presence::Unknown, Some(1.0)),
                project('d', Presence::There, Some(8.0)),
                project('e', Presence::Gone, Some(8.0)),
                project('f', Presence::There, None),
            ],
            archives: vec![
                Archive { name: "legacy-new".into(), bytes: 1, mtime: NOW },
                Archive { name: "legacy-old".into(), bytes: 1, mtime: NOW - 9.0 * DAY_SECS },
            ],
            old_repositories: vec![OldRepository { name: "x".into(), presence: Presence::Gone, last_touch: NOW }],
        }
    }

    fn names(policy: Policy) -> Vec<String> {
        names_where(policy, Orphans::DropNow)
    }

    fn names_where(policy: Policy, orphans: Orphans) -> Vec<String> {
        let drops = plan(&policy, &inventory(), NOW, orphans);
        drops.iter().map(|drop| format!("{:?} {:?}", drop.why, drop.what).replace("ProjectId", "")).collect()
    }

    #[test]
    fn orphans_stale_projects_and_old_archives_are_dropped() {
        let policy = Policy { retention_days: 7, delete_orphans: true, ..Policy::default() };
        let goes = names(policy);
        assert_eq!(goes.len(), 5, "{goes:?}");
        assert!(goes[0].starts_with("Orphan") && goes[0].contains("bbbb"), "{goes:?}");
        assert!(goes[1].starts_with("Stale") && goes[1].contains("dddd"), "{goes:?}");
        assert!(goes[2].starts_with("Orphan") && goes[2].contains("eeee"), "{goes:?}");
        assert!(goes[3].contains("OldRepository(\"x\")"), "{goes:?}");
        assert!(goes[4].contains("legacy-old"), "{goes:?}");
    }

    #[test]
    fn no_retention_means_for_ever_and_orphans_can_be_kept() {
        let keeping = Policy { retention_days: 0, delete_orphans: false, ..Policy::default() };
        assert_eq!(names(keeping), [""; 0]);
        let orphans = names(Policy { retention_days: 0, delete_orphans: true, ..Policy::default() });
        assert!(orphans.len() == 3 && orphans.iter().all(|line| line.starts_with("Orphan")), "{orphans:?}");
    }

    #[test]
    fn an_orphan_that_was_used_within_the_retention_stays_until_it_is_stale() {
        let policy = Policy { retention_days: 7, delete_orphans: true, ..Policy::default() };
        let goes = names_where(policy, Orphans::DropWhenStale);
        assert_eq!(goes.len(), 3, "{goes:?}");
        assert!(goes[0].starts_with("Stale") && goes[0].contains("dddd"), "{goes:?}");
        assert!(goes[1].starts_with("Orphan") && goes[1].contains("eeee"), "{goes:?}");
        assert!(goes[2].contains("legacy-old"), "{goes:?}");
        let for_ever = Policy { retention_days: 0, ..policy };
        assert_eq!(names_where(for_ever, Orphans::DropWhenStale), [""; 0]);
    }

    #[test]
    fn a_marked_project_is_dropped_only_by_a_users_prune() {
        let policy = Policy { retention_days: 7, delete_orphans: true, ..Policy::default() };
        let mut inventory = inventory();
        inventory.projects.iter_mut().for_each(|project| project.marks.push("release".to_owned()));
        let projects = |orphans| {
            let drops = plan(&policy, &inventory, NOW, orphans);
            drops.iter().filter(|drop| matches!(drop.what, PruneTarget::Project(_))).count()
        };
        assert_eq!((projects(Orphans::DropWhenStale), projects(Orphans::DropNow)), (0, 3));
    }
}
