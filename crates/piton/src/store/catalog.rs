//! The projects that a store knows, by their records and their refs, and the names from which objects are reachable.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::boundary::Boundary;
use super::integrity::IntegrityChecker;
use super::intents::Intents;
use super::layout::Layout;
use super::locals::split_off_locals;
use super::object_db::ObjectDb;
use super::pins::split_off;
use super::projects::Records;
use super::reachability::ReachRoots;
use super::refs::Refs;
use crate::error::{Error, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::{CheckpointId, ProjectId};

/// The projects of a store.
#[derive(Debug, Clone)]
pub(crate) struct Catalog {
    pub(super) layout: Arc<Layout>,
    pub(super) records: Records,
    pub(super) refs: Refs,
    pub(super) boundary: Boundary,
    pub(super) intents: Intents,
    pub(super) objects: ObjectDb,
}

impl Catalog {
    /// Returns every project that has a record, a checkpoint or a mark.
    pub(crate) fn projects(&self) -> Result<BTreeSet<ProjectId>> {
        let mut known: BTreeSet<_> = self.records.projects()?.into_iter().collect();
        let roots = self.roots()?;
        known.extend(roots.projects.into_keys().chain(roots.pins.into_keys()));
        Ok(known)
    }

    /// Returns true if the store has or had a checkpoint of the project. A record alone does not count: a refused
    /// attempt may have left one. If the record cannot be read, returns true.
    pub(crate) fn knows(&self, project: &ProjectId) -> bool {
        let is_recorded = fsx::metadata_opt(&self.layout.record(project))
            .map_or(true, |found| found.is_some_and(|found| found.is_file()));
        // The ref of a project with checkpoints may be lost. Then the record still shows that there was one.
        let had_checkpoint = || {
            let record = self.records.get(project);
            record.is_unread() || record.has_finished_take()
        };
        is_recorded && (self.has_checkpoint(project) || had_checkpoint())
    }

    /// Returns true if the project has a checkpoint, or if its ref cannot be read.
    pub(crate) fn has_checkpoint(&self, project: &ProjectId) -> bool {
        // An existing ref file counts whatever it holds, so most calls end with one stat.
        let is_there = |found: Option<std::fs::Metadata>| found.is_some_and(|found| found.is_file());
        fsx::metadata_opt(&self.layout.reference(project)).is_ok_and(is_there)
            || !matches!(self.refs.newest(project), Ok(None))
    }

    /// Returns the projects that have a record and no ref. The value is true if the ref was lost: a take of the project
    /// finished, and the project has not been forgotten since. Otherwise its first take was killed, or the project is
    /// being forgotten.
    pub(super) fn without_ref(&self, has_ref: impl Fn(&ProjectId) -> bool) -> Result<BTreeMap<ProjectId, bool>> {
        let is_over = |project: &ProjectId| self.records.get(project).has_finished_take();
        let bare = self.records.projects()?.into_iter().filter(|project| !has_ref(project));
        let mut bare: BTreeMap<_, _> = bare.map(|project| (project.clone(), is_over(&project))).collect();
        // A take may have created the ref meanwhile. A take records the index after it has set the ref, and forgetting
        // a project removes the index from the record before it deletes the ref. So if the ref was lost, the record
        // holds an index both before and after this check.
        bare.retain(|project, _| !matches!(self.refs.newest(project), Ok(Some(_))));
        bare.iter_mut().for_each(|(project, was_over)| *was_over &= is_over(project));
        Ok(bare)
    }

    /// Fails with `Damaged` if a project has lost its ref while its checkpoints still exist: the project would seem to
    /// have none, and they would be taken for unreachable.
    pub(crate) fn refuse_lost_ref(&self, has_ref: impl Fn(&ProjectId) -> bool) -> Result<()> {
        let mut lost = self.without_ref(has_ref)?;
        lost.retain(|_, has_lost_it| *has_lost_it);
        if lost.is_empty() {
            return Ok(());
        }
        let copies = self.objects.copies()?;
        let commits = IntegrityChecker::new(&copies, HashSet::new()).all_commits();
        match commits.iter().find_map(|commit| commit.project.as_ref().filter(|project| lost.contains_key(*project))) {
            None => Ok(()),
            Some(project) => {
                let path = self.layout.reference(project);
                Err(Error::damaged(format!("read {}", path.display()), "it is gone, and its checkpoints are not")
                    .with_hint(Hint::RepairRestores))
            }
        }
    }

    /// Returns the newest checkpoint of every project.
    pub(crate) fn newest_of_all(&self) -> Result<BTreeMap<ProjectId, CheckpointId>> {
        Ok(self.roots()?.projects)
    }

    pub(super) fn roots(&self) -> Result<ReachRoots> {
        let mut roots = ReachRoots { ends: self.boundary.ends()?, ..ReachRoots::default() };
        let mut refs = self.refs.all()?;
        roots.pins = split_off(&mut refs);
        roots.locals = split_off_locals(&mut refs);
        for (name, id) in refs {
            match Layout::project_in_ref(&name) {
                Some(project) => drop(roots.projects.insert(project, id)),
                None => roots.others.push(id),
            }
        }
        self.refuse_lost_ref(|project| roots.projects.contains_key(project))?;
        roots.others.extend(self.refs.named_by_heads()?.into_iter().map(|(_, id)| id));
        for project in self.intents.projects()? {
            if let Some(intent) = self.intents.get(&project)? {
                roots.others.extend([intent.target, intent.safety]);
            }
        }
        roots.logged = self.refs.logged()?;
        Ok(roots)
    }
}
