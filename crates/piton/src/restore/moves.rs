//! Files and directories that the restore after a checkpoint renamed, and that a restore of it renames back.
//!
//! A rename back needs a free place, and must bring what the checkpoint holds there, if it holds something. A plan is made
//! with all of them, and again without those that the plan itself leaves no place for.

use std::collections::{BTreeSet, HashSet};

use super::left::{Left, WhyLeft};
use super::outside::is_aside_name;
use super::plan::RestorePlan;
use super::planner::{Draft, Planner};
use crate::error::Result;
use crate::relpath;
use crate::store::{EntryMode, TreeEntry};
use crate::sys::{self, Kind};

impl Planner<'_> {
    /// Plans to rename back what the restore after this checkpoint renamed. For those in `stuck`, the original place is
    /// taken: they stay where they are, unless the checkpoint holds what was renamed, so that it can be written.
    pub(super) fn find_moves(&self, stuck: &BTreeSet<Vec<u8>>, draft: &mut Draft<'_>) -> Result<()> {
        let restoring = self.target.facts.restoring.as_ref();
        // An undo takes back all of it; the paths of another restore choose.
        let is_its_undo = restoring.is_some_and(|restoring| restoring.paths == self.paths);
        // The last move is taken back first: it may have used the name that an earlier one left.
        for (path, name) in restoring.iter().flat_map(|restoring| restoring.asides.iter().rev()) {
            let (dir, own_name) = relpath::split(path);
            let aside = relpath::join(dir, name);
            // A path that is asked for comes back from where it was moved aside to. No other file leaves its place for it.
            let is_meant = || self.is_meant(path) && (self.is_meant(&aside) || is_aside_name(name, own_name));
            if !(is_its_undo || is_meant()) || !relpath::is_allowed(name) || self.stat(&aside).is_err() {
                continue;
            }
            if stuck.contains(&aside) {
                if !self.is_held(path, draft)? && !self.is_held(&aside, draft)? {
                    draft.plan.set_aside.push(aside);
                    draft.plan.left.push(Left { path: path.clone(), why: WhyLeft::Changed });
                }
            } else if self.restores_what_is_held(&aside, path, draft)? {
                draft.plan.backs.push((aside, own_name.to_vec()));
            }
        }
        let first_try = self.safety.and_then(|safety| safety.facts.restoring.as_ref());
        let set_aside = first_try.into_iter().flat_map(|restoring| &restoring.asides);
        draft.plan.set_aside.extend(set_aside.map(|(path, name)| relpath::join(relpath::split(path).0, name)));
        Ok(())
    }

    /// Returns true if the checkpoint holds a file or a directory at this path.
    fn is_held(&self, path: &[u8], draft: &Draft<'_>) -> Result<bool> {
        Ok(draft.kept_dirs.contains(path) || self.objects.entry_at(self.target.tree, path)?.is_some())
    }

    /// Returns true if the checkpoint holds at `place` exactly the file or directory that is at `source`, with its
    /// permission bits, or holds nothing there.
    fn restores_what_is_held(&self, source: &[u8], place: &[u8], draft: &Draft<'_>) -> Result<bool> {
        let is_kept_dir = |dir: &[u8], at: &[u8]| {
            self.stat(at).is_ok_and(|now| now.kind == Kind::Dir && now.mode & 0o777 == draft.dir_mode(dir))
        };
        let at_source = |path: &[u8]| [source, &path[place.len()..]].concat();
        let mut kept_dirs = draft.kept_dirs.iter().filter(|dir| relpath::is_within(dir, place));
        if !kept_dirs.all(|dir| is_kept_dir(dir, &at_source(dir))) {
            return Ok(false);
        }
        let Some((mode, id)) = self.objects.entry_at(self.target.tree, place)? else { return Ok(true) };
        let mut open = vec![(place.to_vec(), mode, id)];
        while let Some((path, mode, id)) = open.pop() {
            let is_same = match mode {
                EntryMode::Dir => is_kept_dir(&path, &at_source(&path)),
                _ => self.is_at(&at_source(&path), &path, &TreeEntry { mode, name: Vec::new(), id }, draft),
            };
            if !is_same {
                return Ok(false);
            }
            if mode == EntryMode::Dir {
                let entries = self.objects.tree(id)?.into_iter();
                open.extend(entries.map(|entry| (relpath::join(&path, &entry.name), entry.mode, entry.id)));
            }
        }
        Ok(true)
    }

    /// Returns the renames of a plan whose places are taken when their turn comes, by what they rename.
    pub(super) fn stuck_moves(&self, plan: &RestorePlan) -> Vec<Vec<u8>> {
        if plan.backs.is_empty() {
            return Vec::new();
        }
        let name_in = |path: &[u8], name: &[u8]| relpath::join(relpath::split(path).0, name);
        let mut freed: HashSet<Vec<u8>> = plan.asides.iter().map(|(path, _)| path.clone()).collect();
        freed.extend(plan.removes.iter().map(|remove| remove.path.clone()));
        freed.extend(plan.drop_dirs.iter().cloned());
        let mut taken: HashSet<Vec<u8>> = plan.asides.iter().map(|(path, name)| name_in(path, name)).collect();
        let mut stuck = Vec::new();
        for (from, name) in &plan.backs {
            let place = name_in(from, name);
            let is_free = || freed.contains(&place) || self.stat(&place).is_err_and(|error| sys::is_gone(&error));
            if taken.contains(&place) || !is_free() {
                stuck.push(from.clone());
                continue;
            }
            taken.remove(from);
            freed.insert(from.clone());
            freed.remove(&place);
            taken.insert(place);
        }
        stuck
    }
}
