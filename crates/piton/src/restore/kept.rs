//! Kept files in the plan of a restore: those of the project that are missing come back, as local files do.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::left::{Left, WhyLeft};
use super::local::IgnoredFiles;
use super::made::MadeFiles;
use super::plan::RestorePlan;
use super::planner::Planner;
use crate::error::Result;
use crate::id::CheckpointId;
use crate::kept::{BackReport, BackRequest, KeptPlan};
use crate::project::Project;
use crate::relpath;
use crate::settings::Settings;
use crate::store::{Checkpoint, Store};
use crate::sys::{self, Dir, Kind};
use crate::time::Moment;

/// Kept files of the restore of one checkpoint.
pub(super) struct KeptPlanning<'a> {
    project: &'a Project,
    found: KeptPlan,
}

impl<'a> KeptPlanning<'a> {
    /// Finds the kept files that concern a checkpoint and these paths. Returns them, and the paths that the restore
    /// after the checkpoint created, completed with the kept files to remove and to bring back.
    pub(super) fn new(
        store: &Store,
        project: &'a Project,
        target: &Checkpoint,
        paths: &[Vec<u8>],
        ignored: IgnoredFiles,
        root: &Dir,
    ) -> (Self, MadeFiles) {
        let wanted: Vec<PathBuf> = paths.iter().map(|path| full(project, path)).collect();
        let is_meant = |path: &Path| wanted.is_empty() || wanted.iter().any(|wanted| path.starts_with(wanted));
        let found = match ignored {
            IgnoredFiles::Without => KeptPlan::default(),
            _ => KeptPlan::find(store, project.dir(), target, &is_meant),
        };
        let kept = found.away().map(|path| below(project, path)).collect();
        let kept_back = found.back().map(|path| below(project, path)).collect();
        (Self { project, found }, MadeFiles { kept, kept_back, ..MadeFiles::after(target, root) })
    }

    /// Adds the kept files to a plan, except those that it already deals with. Returns the part of the plan for kept
    /// files, and the paths of existing files that differ.
    pub(super) fn plan(self, planner: &Planner<'_>, plan: &mut RestorePlan) -> Result<(KeptPlan, Vec<Vec<u8>>)> {
        let Self { project, mut found } = self;
        let planned: HashSet<&[u8]> = plan.writes.iter().map(|write| write.path.as_slice()).collect();
        let removed: HashSet<&[u8]> = plan.removes.iter().map(|remove| remove.path.as_slice()).collect();
        let left: HashSet<&[u8]> = plan.left.iter().map(|left| left.path.as_slice()).collect();
        let (mut held, mut blocked) = (HashSet::new(), Vec::new());
        for path in found.back() {
            let path = below(project, path);
            if is_blocked(&path, planner, plan) {
                blocked.push(path);
            } else if planner.objects.entry_at(planner.target.tree, &path)?.is_some() {
                held.insert(path);
            }
        }
        found.leave_out(|path| {
            let path = below(project, path);
            let is_planned = [&planned, &removed, &left].iter().any(|paths| paths.contains(path.as_slice()));
            is_planned
                || held.contains(&path)
                || blocked.contains(&path)
                || plan.makes_way(&path)
                || plan.moves_from(&path)
        });
        plan.left.extend(blocked.into_iter().map(|path| Left { path, why: WhyLeft::InTheWay }));
        plan.kept = found.back().map(|path| below(project, path)).collect();
        plan.kept_removes = found.away().map(|path| below(project, path)).collect();
        plan.drop_dirs.retain(|dir| !plan.kept.iter().any(|path| relpath::is_within(path, dir)));
        let differing = found.differing.iter().map(|path| below(project, path)).collect();
        Ok((found, differing))
    }
}

/// Returns true if a parent directory of a path is missing and something else stays in its place.
fn is_blocked(path: &[u8], planner: &Planner<'_>, plan: &RestorePlan) -> bool {
    let is_going = |dir: &[u8]| plan.removes.iter().any(|remove| remove.path == dir);
    let is_aside = |dir: &[u8]| plan.asides.iter().any(|(aside, _)| aside == dir);
    relpath::ancestors(relpath::split(path).0)
        .any(|dir| planner.stat(dir).is_ok_and(|now| now.kind != Kind::Dir) && !is_going(dir) && !is_aside(dir))
}

/// Result for the kept files of a restore.
#[derive(Default)]
pub(super) struct KeptDone {
    pub(super) written: Vec<Vec<u8>>,
    pub(super) removed: Vec<Vec<u8>>,
    pub(super) left: Vec<Left>,
}

/// Carries out the part of a restore that concerns kept files.
pub(super) struct KeptRestore<'a> {
    pub(super) store: &'a Store,
    pub(super) project: &'a Project,
    pub(super) settings: &'a Settings,
    pub(super) safety: CheckpointId,
    pub(super) now: Moment,
}

impl KeptRestore<'_> {
    fn request(&self) -> BackRequest<'_> {
        let (within, safety) = (Some(self.project.dir()), Some(self.safety));
        BackRequest { losses: &[], within, safety, settings: self.settings, home: None, now: self.now }
    }

    /// Removes the files that the undone restore brought back. Comes before the directories around them are removed.
    pub(super) fn take_away(&self, plan: &KeptPlan, done: &mut KeptDone) {
        let result = plan.take_away(self.store, &self.request());
        let removed = self.note(result, done);
        done.removed.extend(removed);
    }

    /// Brings the missing files back. Comes after the directories around them are made.
    pub(super) fn bring_back(&self, plan: &KeptPlan, done: &mut KeptDone) {
        let result = plan.bring_back(self.store, &self.request());
        let written = self.note(result, done);
        done.written.extend(written);
    }

    fn note(&self, result: Result<BackReport>, done: &mut KeptDone) -> Vec<Vec<u8>> {
        match result {
            Ok(report) => {
                let left = report.left.into_iter();
                done.left.extend(
                    left.map(|(path, why)| Left { path: below(self.project, &path), why: WhyLeft::Failed(why) }),
                );
                report.files.iter().map(|path| below(self.project, path)).collect()
            }
            Err(error) => {
                done.left.push(Left { path: Vec::new(), why: WhyLeft::Failed(error.to_string()) });
                Vec::new()
            }
        }
    }
}

fn full(project: &Project, path: &[u8]) -> PathBuf {
    if path.is_empty() { project.dir().to_owned() } else { project.dir().join(sys::name_from_bytes(path)) }
}

fn below(project: &Project, path: &Path) -> Vec<u8> {
    sys::path_bytes(path.strip_prefix(project.dir()).unwrap_or(path)).to_vec()
}
