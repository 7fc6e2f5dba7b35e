//! Disk usage: the space that each project holds alone, and the space of unreachable objects.

use std::collections::{BTreeMap, BTreeSet};

use super::marks::NEVER;
use super::reachability::Reachability;
use super::size::bytes_of;
use super::{Store, StoreLock};
use crate::error::Result;
use crate::id::{ObjectId, ProjectId};

/// Disk usage by project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoreUsage {
    /// Number of rows of each project, and bytes of the objects that only this project holds.
    pub(crate) projects: BTreeMap<ProjectId, (usize, u64)>,
    /// Bytes of unreachable objects.
    pub(crate) dead_bytes: u64,
    /// Number of objects that are referenced and missing or corrupt.
    pub(crate) missing: usize,
}

/// Holder of an object: the index of a project, or one of these.
const NO_HOLDER: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

/// Records that `holder` holds every object that was reached.
fn note(holders: &mut Vec<u32>, reach: &Reachability, holder: u32) {
    holders.resize(reach.marks.slots(), NO_HOLDER);
    for (_, slot) in reach.marks.iter() {
        let noted = &mut holders[slot.index()];
        *noted = if *noted == NO_HOLDER { holder } else { SEVERAL };
    }
}

/// Returns the disk usage of every project.
pub(crate) fn usage_by_project(store: &Store, held: &StoreLock) -> Result<StoreUsage> {
    let roots = store.catalog.roots()?;
    let objects = store.objects.open(held)?;
    let mut holdings = StoreUsage::default();
    let mut reach = Reachability::new(store.objects.ids()?, roots.ends.clone());
    let mut holders: Vec<u32> = Vec::new();
    let projects: BTreeSet<_> = roots.projects.keys().chain(roots.pins.keys()).collect();
    let pins_of = |project: &ProjectId| roots.pins.get(project).into_iter().flatten().map(|pin| pin.id);
    for (at, project) in (0..).zip(&projects) {
        let tips = roots.projects.get(*project).copied().into_iter().chain(pins_of(project));
        tips.for_each(|tip| reach.all_from(&objects, tip, NEVER));
        holdings.missing += std::mem::take(&mut reach.missing).len();
        note(&mut holders, &reach, at);
        reach.marks.clear();
    }
    reach.other_roots(&objects, &roots);
    note(&mut holders, &reach, SEVERAL);
    let mut alone = vec![0; projects.len()];
    let mut count = |id: &ObjectId, bytes: u64| match reach.marks.any_slot(id).and_then(|at| holders.get(at.index())) {
        Some(&SEVERAL) => {}
        Some(&NO_HOLDER) | None => holdings.dead_bytes += bytes,
        Some(at) => alone[*at as usize] += bytes,
    };
    for pack in store.objects.packs()? {
        pack.entries().for_each(|entry| count(&entry.id, entry.bytes()));
    }
    for id in store.objects.loose_ids()? {
        count(&id, bytes_of(&store.layout.loose_object(&id)));
    }
    for (project, bytes) in projects.into_iter().zip(alone) {
        let newest = roots.projects.get(project).copied();
        let history = objects.history(newest, &roots.ends).unwrap_or_default();
        let known: BTreeSet<_> = history.iter().map(|checkpoint| checkpoint.id).collect();
        let mut rows: BTreeSet<_> = history.iter().filter(|one| one.is_row()).map(|row| row.id).collect();
        rows.extend(pins_of(project).filter(|id| !known.contains(id)));
        holdings.projects.insert(project.clone(), (rows.len(), bytes));
    }
    Ok(holdings)
}
