//! Makes the plan of a restore from one survey and one checkpoint. Changes nothing.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::left::{Left, WhyLeft};
use super::made::MadeFiles;
use super::plan::{Remove, RestorePlan, SetMode, Write};
use crate::error::{Result, plain_io};
use crate::id::{ObjectId, ObjectKind};
use crate::relpath;
use crate::skipped::{Extent, SkipReason, Skipped};
use crate::store::{Checkpoint, EntryMode, Facts, FileModes, Objects, PATHS_MAX, TreeEntry, too_many_paths};
use crate::survey::{Survey, entry_mode};
use crate::sys::{Dir, Kind, Stat};
use crate::worktree::{DirNode, FileNode, RulesAfter, SeenFile};

/// Input of a plan.
pub(crate) struct Planner<'a> {
    pub(crate) survey: &'a Survey,
    pub(crate) target: &'a Checkpoint,
    pub(crate) objects: &'a Objects,
    pub(crate) root: &'a Dir,
    /// Restore only these paths and everything below them. Empty for all.
    pub(crate) paths: &'a [Vec<u8>],
    /// If set, files that no checkpoint covers are moved aside, with this text in their new names, instead of being
    /// left.
    pub(crate) moves_aside: Option<&'a str>,
    /// The checkpoint to which undo will return, if it exists already: files that it could not read are left as they
    /// are.
    pub(crate) safety: Option<&'a Checkpoint>,
    /// Paths that the restore after the target created out of scope.
    pub(super) made: Option<&'a MadeFiles>,
    /// Tree of the local files of the target.
    pub(super) local: Option<ObjectId>,
    /// The ignore rules after this restore, if it changes them.
    pub(super) rules_after: Option<&'a RulesAfter<'a>>,
}

/// One directory on both sides.
#[derive(Clone, Copy)]
struct Pair<'a> {
    now: Option<&'a DirNode>,
    now_tree: Option<ObjectId>,
    want: Option<ObjectId>,
    /// Reason why everything in it is out of scope, if it is.
    outside: Option<SkipReason>,
}

/// Plan under construction.
pub(super) struct Draft<'a> {
    pub(super) plan: RestorePlan,
    /// Directories still to be compared.
    open: Vec<(Vec<u8>, Pair<'a>)>,
    skipped: HashMap<&'a [u8], SkipReason>,
    /// Directories that hold something out of scope, and so are kept.
    staying: HashSet<&'a [u8]>,
    modes: FileModes<'a>,
    /// Directories that are empty in the checkpoint, and their parents.
    pub(super) kept_dirs: BTreeSet<&'a [u8]>,
    /// Paths whose contents are handled or that are not in the checkpoint, so that their mode needs no comparison.
    pub(super) touched: HashSet<Vec<u8>>,
    /// Paths at which something stays that a wanted directory cannot replace.
    pub(super) blocked: HashSet<Vec<u8>>,
}

impl Draft<'_> {
    pub(super) fn make_dir(&mut self, dir: &[u8]) {
        self.plan.make_dirs.push((dir.to_vec(), self.dir_mode(dir)));
    }

    /// Returns true if the directory is empty in the checkpoint, or a parent of such a one, and nothing is renamed back
    /// to its place.
    fn keeps_dir(&self, dir: &[u8]) -> bool {
        self.kept_dirs.contains(dir) && !self.plan.makes_way(dir)
    }

    /// Returns the permission bits that a directory is to have.
    pub(super) fn dir_mode(&self, dir: &[u8]) -> u16 {
        self.modes.dir(dir)
    }
}

impl<'a> Planner<'a> {
    /// Returns a planner whose plan will not be carried out.
    pub(crate) fn for_preview(
        survey: &'a Survey,
        target: &'a Checkpoint,
        objects: &'a Objects,
        root: &'a Dir,
        paths: &'a [Vec<u8>],
    ) -> Self {
        let (moves_aside, safety, made, local, rules_after) = (None, None, None, None, None);
        Self { survey, target, objects, root, paths, moves_aside, safety, made, local, rules_after }
    }

    pub(crate) fn plan(&self) -> Result<RestorePlan> {
        let mut stuck = BTreeSet::new();
        loop {
            let plan = self.plan_without(&stuck)?;
            let more = self.stuck_moves(&plan);
            if more.is_empty() {
                return Ok(plan);
            }
            stuck.extend(more);
        }
    }

    /// Makes the plan without undoing the renames of the paths in `stuck`.
    fn plan_without(&self, stuck: &BTreeSet<Vec<u8>>) -> Result<RestorePlan> {
        // Temporary files of an earlier restore are removed first, and so are kept files that an undo removes again.
        let goes = |path: &Vec<u8>| self.made.is_some_and(|made| made.kept.contains(path));
        let staying = self.survey.skipped.iter();
        let staying = staying.filter(|skipped| skipped.why != SkipReason::Temporary && !goes(&skipped.path));
        let mut draft = Draft {
            plan: RestorePlan::default(),
            open: Vec::new(),
            skipped: self.survey.skipped.iter().map(|skipped| (skipped.path.as_slice(), skipped.why)).collect(),
            staying: staying.flat_map(|skipped| relpath::ancestors(&skipped.path)).collect(),
            modes: FileModes::new(&self.target.facts),
            kept_dirs: self.target.facts.empty_dirs.iter().flat_map(|dir| relpath::ancestors(dir)).collect(),
            touched: HashSet::new(),
            blocked: HashSet::new(),
        };
        let pair = Pair {
            now: self.survey.manifest.dirs.first(),
            now_tree: self.survey.trees.first().copied().flatten(),
            want: Some(self.target.tree),
            outside: None,
        };
        self.find_moves(stuck, &mut draft)?;
        // No recursion: a tree may be deeper than the stack.
        draft.open.push((Vec::new(), pair));
        while let Some((dir, pair)) = draft.open.pop() {
            self.compare(&dir, pair, &mut draft)?;
            if draft.open.len() + draft.plan.changes() > PATHS_MAX {
                return Err(too_many_paths());
            }
        }
        let now_facts = self.survey.facts(Vec::new());
        if self.has_facts() && !now_facts.same_files(&self.target.facts) {
            self.compare_empty_dirs(&now_facts, &mut draft)?;
            self.compare_modes(&mut draft);
        }
        self.find_leftovers(&mut draft);
        self.find_unread(&mut draft);
        self.drop_blocked(&mut draft);
        let mut plan = draft.plan;
        self.find_saved_trees(&mut plan);
        plan.writes.sort_by(|a, b| relpath::split(&a.path).cmp(&relpath::split(&b.path)));
        plan.removes.sort_by(|a, b| relpath::split(&a.path).cmp(&relpath::split(&b.path)));
        plan.make_dirs.sort();
        plan.make_dirs.dedup();
        plan.drop_dirs.sort_by(|a, b| b.cmp(a));
        plan.drop_dirs.dedup();
        plan.modes.sort_by(|a, b| b.path.cmp(&a.path));
        Ok(plan)
    }

    /// Returns true if the checkpoint records permissions and empty directories. Checkpoints of stock git do not:
    /// permissions and directories then stay as they are.
    fn has_facts(&self) -> bool {
        self.target.facts.files.is_some()
    }

    /// Returns true if a path is among those to restore.
    pub(super) fn is_meant(&self, path: &[u8]) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|wanted| relpath::is_within(path, wanted))
    }

    /// Returns true if a directory may contain a path to restore.
    fn leads_to_meant(&self, dir: &[u8]) -> bool {
        self.is_meant(dir) || self.paths.iter().any(|wanted| relpath::is_within(wanted, dir))
    }

    /// Returns true if everything in a directory is among the paths to restore. Once that is removed, so is the
    /// directory, since it came with it.
    fn is_emptied(&self, dir: &[u8]) -> bool {
        let goes = |node: &DirNode| {
            let mut files = node.files.iter();
            self.leads_to_meant(&node.path) && files.all(|file| self.is_meant(&node.path_of(file)))
        };
        let mut within = self.survey.manifest.dirs.iter().filter(|node| relpath::is_within(&node.path, dir));
        self.is_meant(dir) || (self.leads_to_meant(dir) && within.all(goes))
    }

    fn compare(&self, dir: &[u8], mut pair: Pair<'_>, draft: &mut Draft<'a>) -> Result<()> {
        if draft.plan.moves_from(dir) {
            // The directory is moved away as it is.
            (pair.now, pair.now_tree) = (None, None);
        }
        let is_same = pair.want.is_some() && pair.want == pair.now_tree;
        if !self.leads_to_meant(dir) || is_same && !draft.plan.has_moves_in(dir) {
            return Ok(());
        }
        let wanted = pair.want.map_or_else(|| Ok(Vec::new()), |tree| self.objects.tree(tree))?;
        let names: HashSet<&[u8]> = wanted.iter().map(|entry| entry.name.as_slice()).collect();
        let now_files: HashMap<&[u8], &FileNode> =
            pair.now.iter().flat_map(|now| now.files.iter().map(|file| (now.name_of(file), file))).collect();
        let now_dirs: HashMap<&[u8], usize> = pair
            .now
            .iter()
            .flat_map(|now| now.dirs.iter().map(|at| (self.survey.manifest.dirs[*at].name(), *at)))
            .collect();
        for (name, file) in &now_files {
            if !names.contains(name) {
                self.remove(&relpath::join(dir, name), file, draft);
            }
        }
        for (name, at) in &now_dirs {
            if !names.contains(name) {
                self.go_into(&relpath::join(dir, name), Some(*at), None, pair.outside, draft);
            }
        }
        for entry in &wanted {
            let path = relpath::join(dir, &entry.name);
            let (file, at) = (now_files.get(&*entry.name).copied(), now_dirs.get(&*entry.name).copied());
            if draft.plan.moves_to(&path) {
                // It is renamed back as it is; whatever took its place is removed.
                if let Some(file) = file {
                    self.remove(&path, file, draft);
                } else if at.is_some() {
                    self.go_into(&path, at, None, pair.outside, draft);
                }
            } else if entry.mode == EntryMode::Dir {
                if let Some(file) = file
                    && !self.remove(&path, file, draft)
                {
                    draft.blocked.insert(path.clone());
                }
                self.go_into(&path, at, Some(entry.id), pair.outside, draft);
            } else {
                if at.is_some() {
                    self.go_into(&path, at, None, pair.outside, draft);
                }
                self.want_file(path, entry, file, pair.outside, draft);
            }
        }
        Ok(())
    }

    fn go_into(
        &self,
        path: &[u8],
        at: Option<usize>,
        want: Option<ObjectId>,
        outside: Option<SkipReason>,
        draft: &mut Draft<'a>,
    ) {
        let now = at.map(|at| &self.survey.manifest.dirs[at]);
        let now_tree = at.and_then(|at| self.survey.trees[at]);
        let outside = outside.or_else(|| draft.skipped.get(path).copied());
        match (now, want) {
            (None, Some(_)) if outside.is_some_and(is_unread) => {}
            (None, Some(_)) if !self.leads_to_meant(path) => {}
            (None, Some(_)) if outside.is_some() && !draft.plan.moves_from(path) => self.want_dir_outside(path, draft),
            (None, Some(_)) => draft.make_dir(path),
            (Some(now), None) if !draft.keeps_dir(path) && !draft.plan.moves_from(path) => {
                draft.touched.insert(path.to_vec());
                let is_known = !now.exceptional && (self.has_facts() || now_tree.is_some());
                if is_known {
                    self.drop_dir(path, draft);
                }
            }
            _ => {}
        }
        draft.open.push((path.to_vec(), Pair { now, now_tree, want, outside }));
    }

    /// Returns the reason if a file that the checkpoint does not hold existed all the same: the checkpoint lists it as
    /// skipped, or as removed by a purge. If one entry covers many files, a file counts as one of them if it has
    /// not changed since.
    fn was_left_out(&self, path: &[u8], file: &FileNode) -> Option<WhyLeft> {
        let named = find_left_out(self.target, path, || Some(file.stat))?;
        Some(WhyLeft::left_out_then(named.why)).filter(|_| !self.was_made_outside(path))
    }

    /// Like `was_left_out`, for a directory, which then stays even if it is empty.
    fn was_dir_left_out(&self, dir: &[u8]) -> bool {
        // If one entry covers many directories, this one existed if it has not changed since.
        let is_as_old = || self.stat(dir).is_ok_and(|stat| self.target.is_as_late_as(stat.ctime));
        let is_named = |skipped: &Skipped| match skipped.extent {
            Extent::File => false,
            Extent::Dir(_) => true,
            Extent::Some(_) => is_unread(skipped.why) || is_as_old(),
        };
        let mut skipped = self.target.facts.skipped.iter();
        !self.was_made_outside(dir)
            && skipped.any(|skipped| relpath::is_within(dir, &skipped.path) && is_named(skipped))
    }

    /// Returns the reason if undo could not bring back this path: the safety checkpoint was taken when it could not be
    /// read.
    fn is_unsaved(&self, path: &[u8]) -> Option<SkipReason> {
        let mut skipped = self.safety?.facts.skipped.iter().filter(|skipped| is_unread(skipped.why));
        skipped.find(|skipped| relpath::is_within(path, &skipped.path)).map(|skipped| skipped.why)
    }

    /// Plans to remove a file that the checkpoint does not hold. Returns true if it will be gone.
    fn remove(&self, path: &[u8], file: &FileNode, draft: &mut Draft<'_>) -> bool {
        let is_aside = draft.plan.moves_from(path);
        // It took the place of something that is renamed back.
        let makes_way = draft.plan.makes_way(path);
        if is_aside {
            draft.touched.insert(path.to_vec());
            return true;
        } else if let Some(why) = self.was_left_out(path, file).filter(|_| self.is_meant(path) && !makes_way) {
            draft.touched.insert(path.to_vec());
            draft.plan.left.push(Left { path: path.to_vec(), why });
        } else if let Some(why) = self.is_unsaved(path).filter(|_| self.is_meant(path)) {
            draft.touched.insert(path.to_vec());
            draft.plan.left.push(Left { path: path.to_vec(), why: WhyLeft::OutOfScope(why) });
        } else if self.is_meant(path) {
            draft.plan.saved.extend(file.id.map(|id| (ObjectKind::Blob, id)));
            draft.touched.insert(path.to_vec());
            draft.plan.removes.push(Remove { path: path.to_vec(), seen: SeenFile::of(file) });
            return true;
        }
        false
    }

    fn want_file(
        &self,
        path: Vec<u8>,
        entry: &TreeEntry,
        now: Option<&FileNode>,
        outside: Option<SkipReason>,
        draft: &mut Draft<'_>,
    ) {
        if !self.is_meant(&path) {
            return;
        }
        // A file that is renamed back makes room for the wanted one.
        let now = now.filter(|_| !draft.plan.goes_back(&path));
        if entry.mode == EntryMode::Commit {
            draft.plan.left.push(Left { path, why: WhyLeft::NoContents });
            return;
        }
        let is_same = now.is_some_and(|file| file.id == Some(entry.id) && entry_mode(file) == entry.mode);
        if let Some(why) = self.is_unsaved(&path).filter(|_| !is_same) {
            draft.touched.insert(path.clone());
            draft.plan.left.push(Left { path, why: WhyLeft::OutOfScope(why) });
            return;
        }
        let is_link = |mode| mode == EntryMode::Link;
        if let Some(file) = now
            && file.id == Some(entry.id)
            && is_link(entry_mode(file)) == is_link(entry.mode)
        {
            if entry_mode(file) != entry.mode {
                let mode = self.wanted_mode(&path, &file.stat, entry, draft);
                draft.touched.insert(path.clone());
                draft.plan.modes.push(SetMode { path, mode, seen: Some(SeenFile::of(file)) });
            }
            return;
        }
        let why = outside.or_else(|| draft.skipped.get(&*path).copied()).filter(|_| now.is_none());
        if why.is_some_and(|why| !self.may_write_outside(&path, entry, why, outside.is_some_and(is_unread), draft)) {
            return;
        }
        let is_executable = entry.mode == EntryMode::Executable;
        let mode = match (entry.mode, now) {
            (EntryMode::Link, _) => None,
            (_, Some(now)) => Some(self.wanted_mode(&path, &now.stat, entry, draft)),
            _ => Some(draft.modes.file(&path, is_executable)),
        };
        draft.touched.insert(path.clone());
        draft.plan.saved.extend(now.and_then(|file| file.id).map(|id| (ObjectKind::Blob, id)));
        draft.plan.writes.push(Write { path, id: entry.id, mode, over: now.map(SeenFile::of) });
    }

    /// Returns the permission bits that an existing file is to have.
    pub(super) fn wanted_mode(&self, path: &[u8], now: &Stat, entry: &TreeEntry, draft: &Draft<'_>) -> u16 {
        let is_executable = entry.mode == EntryMode::Executable;
        if self.has_facts() {
            draft.modes.file(path, is_executable)
        } else {
            with_execution(now.mode & 0o777, is_executable)
        }
    }

    fn compare_empty_dirs(&self, now: &Facts, draft: &mut Draft<'_>) -> Result<()> {
        let dirs = self.survey.manifest.dirs.iter().zip(&self.survey.trees);
        let trees: HashMap<&[u8], Option<ObjectId>> = dirs.map(|(dir, tree)| (&*dir.path, *tree)).collect();
        // A directory that is renamed back leaves its place to the wanted one.
        let is_there = |dir: &[u8]| trees.contains_key(dir) && !draft.plan.goes_back(dir);
        let is_unseen = |dir: &&[u8]| self.leads_to_meant(dir) && !is_there(dir) && !draft.plan.makes_way(dir);
        for dir in draft.kept_dirs.iter().copied().filter(is_unseen).collect::<Vec<_>>() {
            match self.stat(dir) {
                Ok(stat) if stat.kind == Kind::Dir && !draft.plan.goes_back(dir) => {}
                Err(error) if !crate::sys::is_gone(&error) => {
                    let why = WhyLeft::Failed(plain_io(&error));
                    draft.plan.left.push(Left { path: dir.to_vec(), why });
                }
                Ok(_) if draft.skipped.contains_key(dir) && !draft.plan.moves_from(dir) => {
                    self.want_dir_outside(dir, draft);
                }
                Ok(_) if !draft.plan.removes.iter().any(|remove| remove.path == dir) && !draft.plan.moves_from(dir) => {
                    draft.blocked.insert(dir.to_vec());
                    draft.make_dir(dir);
                }
                _ => draft.make_dir(dir),
            }
        }
        for dir in now.empty_dirs.iter().flat_map(|dir| relpath::ancestors(dir)) {
            let has_no_files = trees.get(dir).is_some_and(Option::is_none);
            let is_wanted = draft.keeps_dir(dir) || !has_no_files || self.is_wanted_dir(dir)?;
            if is_wanted || draft.plan.moves_from(dir) {
                continue;
            }
            draft.touched.insert(dir.to_vec());
            self.drop_dir(dir, draft);
        }
        Ok(())
    }

    /// Removes a directory that the checkpoint does not hold, unless something stays in it.
    fn drop_dir(&self, dir: &[u8], draft: &mut Draft<'_>) {
        let was_left_out = || self.was_dir_left_out(dir) && !draft.plan.makes_way(dir);
        if !draft.staying.contains(dir) && self.is_emptied(dir) && !was_left_out() {
            draft.plan.drop_dirs.push(dir.to_vec());
        }
    }

    /// Returns true if the checkpoint has files in a directory.
    fn is_wanted_dir(&self, dir: &[u8]) -> Result<bool> {
        Ok(matches!(self.objects.entry_at(self.target.tree, dir)?, Some((EntryMode::Dir, _))))
    }

    fn compare_modes(&self, draft: &mut Draft<'_>) {
        let Draft { plan, modes, touched, .. } = draft;
        let differs = |now: u16, want: u16| now & 0o777 != want;
        for dir in &self.survey.manifest.dirs {
            for file in dir.files.iter().filter(|file| file.stat.kind == Kind::File) {
                let path = dir.path_of(file);
                let want = modes.file(&path, file.stat.mode & 0o100 != 0);
                let is_kept = touched.contains(&path) || plan.moves_from(&path);
                if differs(file.stat.mode, want) && self.is_meant(&path) && !is_kept {
                    plan.modes.push(SetMode { path, mode: want, seen: Some(SeenFile::of(file)) });
                }
            }
            let is_kept = touched.contains(&*dir.path) || plan.moves_from(&dir.path);
            let is_covered = !dir.path.is_empty() && !dir.exceptional && !is_kept;
            let want = modes.dir(&dir.path);
            if is_covered && differs(dir.mode, want) && self.is_meant(&dir.path) {
                plan.modes.push(SetMode { path: dir.path.to_vec(), mode: want, seen: None });
            }
        }
    }

    /// Adds the trees that undo will read.
    fn find_saved_trees(&self, plan: &mut RestorePlan) {
        let removed = plan.removes.iter().map(|remove| remove.path.as_slice());
        let written = plan.writes.iter().filter(|write| write.over.is_some()).map(|write| write.path.as_slice());
        let dirs: HashSet<&[u8]> = removed.chain(written).map(|path| relpath::split(path).0).collect();
        let around: HashSet<&[u8]> = dirs.into_iter().flat_map(relpath::ancestors).chain([&b""[..]]).collect();
        let all = self.survey.manifest.dirs.iter().zip(&self.survey.trees);
        let trees = all.filter(|(dir, _)| around.contains(&*dir.path)).filter_map(|(_, tree)| *tree);
        plan.saved.extend(trees.map(|tree| (ObjectKind::Tree, tree)));
    }

    /// Reports the paths that cannot be read, and that could be when the checkpoint was taken or did not exist then.
    /// Their contents are unknown, so they are left as they are, and the user must learn that the restore is not
    /// complete.
    fn find_unread(&self, draft: &mut Draft<'_>) {
        for Skipped { path, why, .. } in self.survey.skipped.iter().filter(|skipped| is_unread(skipped.why)) {
            let was_left_out = self.target.facts.skipped.iter().any(|then| relpath::is_within(path, &then.path));
            let is_told = draft.plan.left.iter().any(|left| relpath::is_within(&left.path, path));
            if self.leads_to_meant(path) && !was_left_out && !is_told && !draft.touched.contains(path) {
                draft.plan.left.push(Left { path: path.clone(), why: WhyLeft::OutOfScope(*why) });
            }
        }
    }

    /// Finds the temporary files of an earlier attempt: those that never held the user's data, and those whose contents
    /// the store has.
    fn find_leftovers(&self, draft: &mut Draft<'_>) {
        let is_leftover = |skipped: &&Skipped| skipped.why == SkipReason::Temporary && skipped.extent == Extent::File;
        for Skipped { path, .. } in self.survey.skipped.iter().filter(is_leftover) {
            let name = relpath::split(path).1;
            if name.get(relpath::TEMPORARY.len()) == Some(&b'w') {
                draft.plan.leftovers.push((path.clone(), None));
                continue;
            }
            let seen = self.stat(path).ok().and_then(|stat| Some(SeenFile { stat, id: self.id_of(path, stat.kind)? }));
            match seen.filter(|seen| self.objects.has(seen.id)) {
                Some(seen) => draft.plan.leftovers.push((path.clone(), Some(seen))),
                None => {
                    let why = WhyLeft::OutOfScope(SkipReason::Temporary);
                    draft.plan.left.push(Left { path: path.clone(), why });
                }
            }
        }
    }
}

/// Returns true if a file was skipped because reading it failed, not because of a rule.
pub(super) fn is_unread(why: SkipReason) -> bool {
    matches!(why, SkipReason::Unreadable | SkipReason::Changing)
}

/// Returns the permission bits with or without execution for all who may read.
fn with_execution(mode: u16, is_executable: bool) -> u16 {
    if is_executable { mode | (mode & 0o444) >> 2 } else { mode & !0o111 }
}

/// Returns the entry of the skipped files of a checkpoint that names a file. If one entry covers many files, a file counts
/// as one of them if it has not changed since.
pub(super) fn find_left_out<'t>(
    target: &'t Checkpoint,
    path: &[u8],
    stat: impl Fn() -> Option<Stat>,
) -> Option<&'t Skipped> {
    target.facts.skipped.iter().find(|skipped| match skipped.extent {
        Extent::File => skipped.path == path,
        Extent::Dir(_) => relpath::is_within(path, &skipped.path),
        // They had changed by the time that they were read.
        Extent::Some(_) if skipped.why == SkipReason::Changing => relpath::is_within(path, &skipped.path),
        Extent::Some(_) => {
            relpath::is_within(path, &skipped.path) && stat().is_some_and(|stat| target.is_as_late_as(stat.ctime))
        }
    })
}
