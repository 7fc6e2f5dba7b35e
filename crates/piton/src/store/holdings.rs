//! What each project holds, and what nothing holds: for people who want to know where the space went.

use std::collections::{BTreeMap, HashMap};

use super::reach::{NEVER, Reach};
use super::{Store, StoreLock};
use crate::error::Result;
use crate::id::{ObjectId, ProjectId};

/// Where the space went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// How many checkpoints each project has, and what it holds that no other does.
    pub(crate) projects: BTreeMap<ProjectId, (usize, u64)>,
    /// What nothing refers to.
    pub(crate) dead_bytes: u64,
    /// Objects that are named and not there, or not whole.
    pub(crate) missing: usize,
}

/// Who holds an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    One(usize),
    Several,
}

impl Store {
    pub(crate) fn holdings(&self, held: &StoreLock) -> Result<Holdings> {
        let roots = self.roots()?;
        let objects = self.objects(held)?;
        let mut holders: HashMap<ObjectId, Holder> = HashMap::new();
        let mut holdings = Holdings::default();
        for (at, newest) in roots.projects.values().enumerate() {
            let mut reach = Reach::new(roots.ends.clone());
            reach.all_from(&objects, *newest, NEVER);
            holdings.missing += reach.missing.len();
            for id in reach.marks.into_keys() {
                let holder = holders.entry(id).or_insert(Holder::One(at));
                if *holder != Holder::One(at) {
                    *holder = Holder::Several;
                }
            }
        }
        let mut reach = Reach::new(roots.ends.clone());
        reach.other_roots(&objects, &roots);
        holders.extend(reach.marks.into_keys().map(|id| (id, Holder::Several)));
        let mut alone = vec![0; roots.projects.len()];
        for entry in self.packs()?.iter().flat_map(|pack| &pack.entries) {
            match holders.get(&entry.id) {
                Some(Holder::One(at)) => alone[*at] += entry.bytes(),
                Some(Holder::Several) => {}
                None => holdings.dead_bytes += entry.bytes(),
            }
        }
        for (id, path) in self.loose_objects()? {
            match holders.get(&id) {
                Some(Holder::One(at)) => alone[*at] += Self::bytes_of(&path),
                Some(Holder::Several) => {}
                None => holdings.dead_bytes += Self::bytes_of(&path),
            }
        }
        for ((project, newest), bytes) in roots.projects.iter().zip(alone) {
            let count = objects.history(Some(*newest), &roots.ends).map_or(0, |history| history.len());
            holdings.projects.insert(project.clone(), (count, bytes));
        }
        Ok(holdings)
    }
}
