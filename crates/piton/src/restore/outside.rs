//! Files outside the scope of checkpoints: those that are in the way of a restore, those that one moved aside, and
//! those that one created there.

use std::collections::HashSet;
use std::io;

use super::left::{Left, WhyLeft};
use super::plan::RestorePlan;
use super::planner::{Draft, Planner};
use crate::id::ObjectId;
use crate::relpath;
use crate::skipped::SkipReason;
use crate::store::{EntryMode, TreeEntry};
use crate::sys::{self, Kind, Stat};
use crate::worktree::{ScopePreview, id_of_path, stat_path};

/// Suffix of the name of a file that is moved aside.
const ASIDE: &[u8] = b".uncovered-";

/// Returns true if a file named `own_name` got this name by being moved aside.
pub(super) fn is_aside_name(name: &[u8], own_name: &[u8]) -> bool {
    name.strip_prefix(own_name).is_some_and(|rest| rest.starts_with(ASIDE))
}

/// State of the path of a wanted file.
enum Outside {
    Nothing,
    /// A file or link with the wanted contents.
    Same(Stat),
    Differs,
}

impl Planner<'_> {
    /// Returns true if the restore after the target created this path out of scope, where nothing existed.
    pub(super) fn was_made_outside(&self, path: &[u8]) -> bool {
        let mut asides = self.target.facts.restoring.iter().flat_map(|restoring| &restoring.asides);
        self.made.is_some_and(|made| made.as_made.contains(path)) && !asides.any(|(aside, _)| aside == path)
    }

    /// Returns true if a wanted file is to be written at a path that was skipped because of `why`: nothing is in its
    /// place, or the file in its place is moved aside.
    pub(super) fn may_write_outside(
        &self,
        path: &[u8],
        entry: &TreeEntry,
        why: SkipReason,
        is_dir_unread: bool,
        draft: &mut Draft<'_>,
    ) -> bool {
        let leave = |draft: &mut Draft<'_>| {
            draft.plan.left.push(Left { path: path.to_vec(), why: WhyLeft::OutOfScope(why) });
            false
        };
        if draft.plan.moves_from(path) {
            return true;
        }
        match self.inspect_outside(path, entry) {
            // No checkpoint could record that it was missing before, and no undo would remove it.
            Outside::Nothing if is_dir_unread => return leave(draft),
            Outside::Nothing => return true,
            Outside::Same(now) if self.has_mode(path, &now, entry, draft) => {
                draft.touched.insert(path.to_vec());
                return false;
            }
            Outside::Same(_) | Outside::Differs => {}
        }
        match self.moves_aside {
            Some(stamp) => {
                self.move_aside(path, stamp, draft);
                true
            }
            None => leave(draft),
        }
    }

    /// Plans to rename a path to a name that is not in use and will not be.
    pub(super) fn move_aside(&self, path: &[u8], stamp: &str, draft: &mut Draft<'_>) {
        if draft.plan.asides.iter().any(|(aside, _)| aside == path) {
            return;
        }
        let (dir, own_name) = relpath::split(path);
        let name = |number: usize| {
            let number = if number == 1 { String::new() } else { format!("-{number}") };
            [own_name, ASIDE, stamp.as_bytes(), number.as_bytes()].concat()
        };
        let is_free = |name: &Vec<u8>| {
            let path = relpath::join(dir, name);
            let is_held = draft.kept_dirs.contains(path.as_slice())
                || !matches!(self.objects.entry_at(self.target.tree, &path), Ok(None));
            !is_held && !draft.plan.moves_to(&path) && self.stat(&path).is_err_and(|error| sys::is_gone(&error))
        };
        let name = (1..100).map(name).find(is_free).unwrap_or_else(|| name(100));
        draft.plan.asides.push((path.to_vec(), name));
    }

    /// Returns true if a file out of scope has the permission bits that the checkpoint wants. A link has none.
    fn has_mode(&self, path: &[u8], now: &Stat, entry: &TreeEntry, draft: &Draft<'_>) -> bool {
        entry.mode == EntryMode::Link || now.mode & 0o777 == self.wanted_mode(path, now, entry, draft)
    }

    /// Returns true if a file that the checkpoint holds at `path` is at `source`, with the permission bits that it had.
    pub(super) fn is_at(&self, source: &[u8], path: &[u8], entry: &TreeEntry, draft: &Draft<'_>) -> bool {
        matches!(self.inspect_outside(source, entry), Outside::Same(now) if self.has_mode(path, &now, entry, draft))
    }

    /// Inspects the path of a wanted file that is out of scope.
    fn inspect_outside(&self, path: &[u8], entry: &TreeEntry) -> Outside {
        let kind = match entry.mode {
            EntryMode::Link => Kind::Link,
            _ => Kind::File,
        };
        match self.stat(path) {
            Ok(stat) if stat.kind == kind && self.id_of(path, kind) == Some(entry.id) => Outside::Same(stat),
            Err(error) if sys::is_gone(&error) => Outside::Nothing,
            _ => Outside::Differs,
        }
    }

    /// Plans a wanted directory that is out of scope or within a directory that is.
    pub(super) fn want_dir_outside(&self, path: &[u8], draft: &mut Draft<'_>) {
        let is_in_the_way = match self.stat(path) {
            Ok(stat) => stat.kind != Kind::Dir,
            Err(error) if sys::is_gone(&error) => false,
            // A path whose status cannot be read counts as existing.
            Err(_) => return,
        };
        match self.moves_aside {
            _ if !is_in_the_way && self.is_dir(path) => return,
            _ if !is_in_the_way => {}
            Some(stamp) => self.move_aside(path, stamp, draft),
            None => drop(draft.blocked.insert(path.to_vec())),
        }
        draft.make_dir(path);
    }

    pub(super) fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        stat_path(self.root, path)
    }

    pub(super) fn id_of(&self, path: &[u8], kind: Kind) -> Option<ObjectId> {
        id_of_path(self.root, path, kind)
    }

    /// Returns true if there is a directory out of scope at this path. A path whose status cannot be read counts as
    /// one.
    pub(super) fn is_dir(&self, path: &[u8]) -> bool {
        match self.stat(path) {
            Ok(stat) => stat.kind == Kind::Dir,
            Err(error) => !sys::is_gone(&error),
        }
    }

    /// Removes the changes from the plan that something in their place blocks, and reports them.
    pub(super) fn drop_blocked(&self, draft: &mut Draft<'_>) {
        let Draft { plan, blocked, .. } = draft;
        let makes_files = plan.writes.iter().any(|write| write.over.is_none());
        if !makes_files && blocked.is_empty() && plan.left.is_empty() && plan.backs.is_empty() {
            return;
        }
        let staying: HashSet<Vec<u8>> =
            plan.left.iter().flat_map(|left| relpath::ancestors(&left.path)).map(<[u8]>::to_vec).collect();
        plan.drop_dirs.retain(|dir| !staying.contains(dir));
        let dropped: HashSet<&[u8]> = plan.drop_dirs.iter().map(Vec::as_slice).collect();
        let dirs_now: HashSet<&[u8]> = self.survey.manifest.dirs.iter().map(|dir| &*dir.path).collect();
        let sources: HashSet<&[u8]> = plan.backs.iter().map(|(from, _)| from.as_slice()).collect();
        let stays = |path: &[u8]| dirs_now.contains(path) && !dropped.contains(path) && !sources.contains(path);
        blocked.extend(
            plan.writes
                .iter()
                .filter(|write| write.over.is_none() && stays(&write.path))
                .map(|write| write.path.clone()),
        );
        let mut left = Vec::new();
        if !blocked.is_empty() {
            let is_blocked = |path: &[u8]| relpath::ancestors(path).any(|around| blocked.contains(around));
            left.extend(plan.writes.extract_if(.., |write| is_blocked(&write.path)).map(|write| write.path));
            left.extend(plan.make_dirs.extract_if(.., |(dir, _)| is_blocked(dir)).map(|(dir, _)| dir));
            left.sort();
            left.dedup();
            left.retain(|path| !plan.left.iter().any(|left| left.path == *path));
        }
        plan.left.extend(left.into_iter().map(|path| Left { path, why: WhyLeft::InTheWay }));
    }

    /// Finds the paths that the plan creates where no later scan looks. The safety checkpoint lists them, so that undo
    /// finds them.
    pub(super) fn find_outside(&self, plan: &mut RestorePlan) {
        let mut foresight = ScopePreview::new(&self.survey.scope, self.root, self.rules_after);
        let made = plan.writes.iter().filter(|write| write.over.is_none());
        let files = made.filter(|write| !foresight.covers_file(&write.path));
        let mut outside: Vec<_> = files.map(|write| (write.path.clone(), Some(write.id))).collect();
        let dirs = plan.make_dirs.iter().filter(|(dir, _)| !foresight.covers_dir(dir));
        outside.extend(dirs.map(|(dir, _)| (dir.clone(), None)));
        plan.outside = outside;
    }
}
