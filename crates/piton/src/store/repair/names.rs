//! Repairing refs and the ends of histories: planning the changes, and making them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use super::super::Store;
use super::super::integrity::{Commit, IntegrityChecker};
use super::super::layout::{Layout, PIN_REFS, PROJECT_REFS};
use super::super::object_copies::Copies;
use super::super::refs::is_packed_line;
use super::super::verify::{FindingKind, other_names};
use super::packs::DamagedPack;
use super::{Diagnosis, Loss, RepairRun};
use crate::error::Result;
use crate::fsx;
use crate::hint::Hint;
use crate::id::{CheckpointId, ObjectId, ProjectId};

/// Prefix of the refs for intact checkpoints below a missing one.
const RECOVERED: &str = "refs/recovered";

/// Description of a loss if the checkpoint itself is lost.
const CHECKPOINT: &str = "the checkpoint";

/// Planned changes of refs and of the ends of histories.
#[derive(Debug, Default)]
struct Plan {
    /// Refs that get a new target, with the reason.
    moved: BTreeMap<String, (ObjectId, String)>,
    removed: BTreeMap<String, String>,
    /// New refs for checkpoints that would become unreachable.
    recovered: BTreeMap<String, ObjectId>,
    /// New ends of histories.
    cuts: BTreeSet<CheckpointId>,
    /// Ends of histories whose commits are missing.
    gone: BTreeSet<CheckpointId>,
    lost: BTreeSet<Loss>,
}

/// State of the planning.
struct RefPlanner<'a> {
    whole: IntegrityChecker<'a>,
    /// Every readable commit.
    commits: HashMap<CheckpointId, Commit>,
    boundary: HashSet<CheckpointId>,
    /// Commits that were dropped on purpose and not collected yet.
    dropped: HashSet<CheckpointId>,
    /// True if ends of histories were lost, so that a history whose parents are all missing may have been cut there and
    /// has lost nothing.
    lost_ends: bool,
    /// Commits that are reachable from a ref.
    kept: HashSet<CheckpointId>,
    plan: Plan,
}

impl RepairRun<'_> {
    /// Makes every ref point to an intact object. `promised` are objects that a dry run expects to be recovered.
    pub(crate) fn repair_names(
        &mut self,
        diagnosis: &Diagnosis,
        wrecks: &[DamagedPack],
        promised: HashSet<ObjectId>,
    ) -> Result<()> {
        let fresh = self.fresh_copies()?;
        let copies = fresh.as_ref().unwrap_or(&diagnosis.copies);
        let mut plan = self.plan_names(copies, diagnosis, promised.clone())?;
        copies.refuse_unread()?;
        // The ancestors of an unreadable checkpoint are unknown, but the other unreadable commits in damaged packs are
        // known.
        if plan.lost.iter().any(|loss| loss.what == CHECKPOINT) {
            let unread = wrecks.iter().flat_map(|wreck| wreck.unread_commits(&diagnosis.copies));
            let named: HashSet<_> = plan.lost.iter().filter_map(|loss| loss.checkpoint).collect();
            let unnamed = unread.filter(|id| !copies.has(*id) && !named.contains(id));
            let lost =
                unnamed.map(|id| Loss { project: None, checkpoint: Some(id), path: None, what: CHECKPOINT.into() });
            plan.lost.extend(lost.collect::<Vec<_>>());
        }
        for (name, (id, why)) in &plan.moved {
            self.say("moved_ref", name.clone(), format!("{why}; now at {}", id.short()));
        }
        for (name, why) in &plan.removed {
            self.say("removed_ref", name.clone(), why.clone());
        }
        for (name, id) in &plan.recovered {
            let hint = Hint::ListCommits { git_dir: self.store.git_dir().to_owned(), name: name.clone() };
            self.advise("recovered", name.clone(), format!("older checkpoints from {} on", id.short()), hint);
        }
        for id in &plan.cuts {
            self.say("cut_history", id.short(), "the checkpoint before it is not whole");
        }
        for id in &plan.gone {
            self.say("forgot_end", id.short(), "shallow named it, and it is not there");
        }
        self.lost.extend(plan.lost.iter().cloned());
        if !self.is_dry {
            self.change_names(&plan, diagnosis)?;
        }
        self.repair_other_names(copies, promised)
    }

    fn plan_names(&self, copies: &Copies, diagnosis: &Diagnosis, promised: HashSet<ObjectId>) -> Result<Plan> {
        let lost_ends = diagnosis.report.findings.iter().any(|finding| finding.kind == FindingKind::Shallow);
        let mut planner = RefPlanner::new(self.store, IntegrityChecker::new(copies, promised), lost_ends)?;
        let listed = self.store.refs.list_all()?;
        let mut names: BTreeMap<String, Option<ObjectId>> =
            listed.refs.into_iter().map(|(name, id)| (name, Some(id))).collect();
        names.extend(listed.garbage.into_iter().map(|name| (name, None)));
        for finding in diagnosis.report.findings.iter().filter(|finding| finding.kind == FindingKind::RefMissing) {
            names.extend(finding.project.iter().map(|project| (Layout::ref_name(project), None)));
        }
        // Intact refs first: commits that are reachable from them need no other ref.
        let mut broken = Vec::new();
        for (name, id) in names {
            let tip = id.and_then(|id| planner.sound_tip(&name, id));
            match tip {
                Some(tip) => broken.extend(planner.keep(&name, tip).then_some((name, id, tip))),
                None => broken.extend(planner.replace(&name, id, listed.packed.get(&name)).map(|tip| (name, id, tip))),
            }
        }
        for (name, id, tip) in broken {
            planner.recover(&name, id, tip);
        }
        Ok(planner.plan)
    }

    fn change_names(&mut self, plan: &Plan, diagnosis: &Diagnosis) -> Result<()> {
        let store = self.store;
        let broken = |kind| diagnosis.report.findings.iter().any(|finding| finding.kind == kind);
        // First the refs for commits that would otherwise become unreachable.
        for (name, id) in &plan.recovered {
            store.refs.repair_ref(&self.alone, name, Some(*id), self.now)?;
        }
        for (name, (id, _)) in &plan.moved {
            // As in `salvage`: stock git may be deleting objects that were unreachable so far.
            Layout::project_in_ref(name).map_or(Ok(()), |project| fsx::remove_file(&store.layout.index(&project)))?;
            store.refs.repair_ref(&self.alone, name, Some(*id), self.now)?;
        }
        if !plan.removed.is_empty() || broken(FindingKind::PackedRefs) {
            let is_right = |line: &[u8]| {
                let name = line.get(41..).map(String::from_utf8_lossy);
                is_packed_line(line) && name.is_none_or(|name| !plan.removed.contains_key(name.as_ref()))
            };
            store.refs.repair_packed_refs(&self.alone, is_right, self.now)?;
        }
        for name in plan.removed.keys() {
            store.refs.repair_ref(&self.alone, name, None, self.now)?;
        }
        if !plan.cuts.is_empty() || !plan.gone.is_empty() || broken(FindingKind::Shallow) {
            store.boundary.repair(&self.alone, &plan.cuts, &plan.gone, self.now)?;
        }
        Ok(())
    }

    /// Moves other files that name missing objects to the directory of this repair: nothing can be collected while they
    /// exist.
    fn repair_other_names(&mut self, copies: &Copies, promised: HashSet<ObjectId>) -> Result<()> {
        let mut whole = IntegrityChecker::new(copies, promised);
        let mut gone = BTreeMap::new();
        for (path, kind, id) in other_names(self.store)? {
            if !whole.any(id).0 {
                gone.insert(path, (kind, id));
            }
        }
        for (path, (kind, id)) in gone {
            let detail = match kind {
                FindingKind::Intent => format!("the restore that it describes needs {}, which is lost", id.short()),
                _ => format!("it names {}, which is not there", id.short()),
            };
            self.say("put_aside", self.shown(&path), detail);
            self.put_aside(&path)?;
        }
        for path in files_below(self.store.layout.store().join("logs"))? {
            let text = fsx::read_small(&path, u64::MAX)?.unwrap_or_default();
            let words = text.split(|byte| *byte == b'\n').flat_map(|line| line.split(|byte| *byte == b' ').take(2));
            let mut ids = words.filter_map(ObjectId::from_hex).filter(|id| id.as_bytes() != &[0; 20]);
            if ids.any(|id| !copies.has_any(id)) {
                self.say("put_aside", self.shown(&path), "a log that names what is not there");
                self.put_aside(&path)?;
            }
        }
        self.fill_in()
    }
}

/// Returns the files in a directory and below it.
fn files_below(dir: PathBuf) -> Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![dir]);
    while let Some(dir) = open.pop() {
        for name in fsx::names_in(&dir)? {
            let path = dir.join(name);
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

/// Plan for the ref of a project whose newest checkpoint is gone: its new value and the changes that go with it.
pub(in crate::store) struct RefPlan {
    /// Newest remaining checkpoint, an intact one if there is any; `None` if none is left.
    pub(in crate::store) tip: Option<CheckpointId>,
    /// New refs for intact checkpoints that are not reachable from the tip.
    pub(in crate::store) recovered: BTreeMap<String, CheckpointId>,
    /// New ends of histories, above commits that are not intact.
    pub(in crate::store) cuts: BTreeSet<CheckpointId>,
}

impl RefPlan {
    /// Plans the new value of a project's ref, which names the missing commit `gone`. Changes nothing.
    pub(in crate::store) fn new(
        store: &Store,
        copies: &Copies,
        project: &ProjectId,
        gone: CheckpointId,
    ) -> Result<Self> {
        let mut planner = RefPlanner::new(store, IntegrityChecker::new(copies, HashSet::new()), false)?;
        let name = Layout::ref_name(project);
        let mut listed = store.refs.list_all()?;
        listed.refs.remove(&name);
        for (other, id) in &listed.refs {
            if let Some(tip) = planner.sound_tip(other, *id) {
                planner.keep(other, tip);
            }
        }
        let packed = listed.packed.get(&name);
        let mut tip = planner.replace(&name, Some(gone), packed);
        match tip {
            Some(tip) => planner.recover(&name, Some(gone), tip),
            None => {
                let from: Vec<_> = packed.copied().into_iter().collect();
                let mut readable = planner.candidates(&name, &from);
                readable.retain(|id| planner.commits.contains_key(id));
                tip = planner.heads(&readable).first().copied();
            }
        }
        copies.refuse_unread()?;
        let Plan { recovered, cuts, .. } = planner.plan;
        Ok(Self { tip, recovered, cuts })
    }
}

impl<'a> RefPlanner<'a> {
    fn new(store: &Store, mut whole: IntegrityChecker<'a>, lost_ends: bool) -> Result<Self> {
        let commits: HashMap<_, _> = whole.all_commits().into_iter().map(|commit| (commit.id, commit)).collect();
        let (ends, gone) = store.boundary.ends()?.into_iter().partition(|end| commits.contains_key(end));
        let plan = Plan { gone: BTreeSet::from_iter::<HashSet<_>>(gone), ..Plan::default() };
        let (dropped, kept) = (HashSet::new(), HashSet::new());
        let mut planner = Self { whole, commits, boundary: ends, dropped, lost_ends, kept, plan };
        let before = planner.boundary.iter().filter_map(|end| planner.commits.get(end)).flat_map(|end| &end.parents);
        planner.dropped = planner.ancestry(before.copied().collect());
        Ok(planner)
    }
}

impl RefPlanner<'_> {
    /// Returns these commits and all their ancestors, as far as they are readable.
    fn ancestry(&self, from: Vec<CheckpointId>) -> HashSet<CheckpointId> {
        let mut found = HashSet::new();
        let mut open = from;
        while let Some(id) = open.pop() {
            if let Some(commit) = self.commits.get(&id).filter(|_| found.insert(id)) {
                open.extend(&commit.parents);
            }
        }
        found
    }

    /// Like [`Self::ancestry`], but stops at the ends of histories.
    fn history(&self, from: CheckpointId) -> HashSet<CheckpointId> {
        let mut found = HashSet::new();
        let mut open = vec![from];
        while let Some(id) = open.pop() {
            if found.insert(id)
                && let Some(commit) = self.commits.get(&id).filter(|_| !self.boundary.contains(&id))
            {
                open.extend(&commit.parents);
            }
        }
        found
    }

    /// Returns the object that a ref points to, if it is intact and of the kind and the project that belong to this
    /// ref. A tag is resolved to its commit.
    fn sound_tip(&mut self, name: &str, id: ObjectId) -> Option<ObjectId> {
        let (is_whole, tip) = self.whole.any(id);
        let is_ours = name.starts_with(PROJECT_REFS);
        let project = Layout::project_in_ref(name);
        let is_right = match (&tip, &project) {
            (None, _) => !is_ours,
            (Some(_), None) => !is_ours,
            (Some(tip), Some(project)) => tip.project.as_ref().is_none_or(|named| named == project),
        };
        (is_whole && is_right).then(|| tip.map_or(id, |tip| tip.id))
    }

    /// Keeps all intact commits from `tip` on, and cuts the history above those that are not. Returns true if that
    /// loses checkpoints.
    fn keep(&mut self, name: &str, tip: ObjectId) -> bool {
        let mut was_cut = false;
        let mut open = vec![tip];
        while let Some(id) = open.pop() {
            let Some(commit) = self.commits.get(&id).cloned() else { continue };
            if !self.kept.insert(id) || self.boundary.contains(&id) {
                continue;
            }
            let is_whole = |parent: &ObjectId| self.commits.get(parent).is_some_and(|parent| parent.is_whole);
            if commit.parents.iter().all(is_whole) {
                open.extend(commit.parents);
                continue;
            }
            self.plan.cuts.insert(id);
            let is_gone = |parent: &ObjectId| !self.commits.contains_key(parent) && !self.plan.gone.contains(parent);
            // Ends of histories were lost, and all parents are missing here: this was such an end.
            if !(self.lost_ends && commit.parents.iter().all(is_gone)) {
                was_cut = true;
                commit.parents.iter().for_each(|parent| self.lose(name, *parent));
            }
        }
        was_cut
    }

    /// Records the losses of a checkpoint that is not intact.
    fn lose(&mut self, name: &str, id: CheckpointId) {
        let project = Layout::project_in_ref(name);
        let loss =
            |path, what: &str| Loss { project: project.clone(), checkpoint: Some(id), path, what: what.to_owned() };
        match self.commits.get(&id) {
            // Another intact object that is not a commit.
            None if self.whole.any(id).0 => {}
            None => drop(self.plan.lost.insert(loss(None, CHECKPOINT))),
            Some(commit) if commit.is_whole => {}
            Some(commit) => {
                let (paths, has_more) = self.whole.lost_paths(commit.tree);
                for (path, _) in paths {
                    let path = Some(path).filter(|path| !path.is_empty());
                    let what = if path.is_some() { "the contents" } else { "all files of the checkpoint" };
                    self.plan.lost.insert(loss(path, what));
                }
                if has_more {
                    self.plan.lost.insert(loss(None, "more than can be listed"));
                }
            }
        }
    }

    /// Returns all possible checkpoints of this ref: the history of `from`, and every commit that names its project.
    /// Commits of other projects and those dropped on purpose are left out.
    fn candidates(&self, name: &str, from: &[ObjectId]) -> HashSet<CheckpointId> {
        let project = Layout::project_in_ref(name);
        let is_others = |id: &CheckpointId| {
            let named = self.commits.get(id).and_then(|commit| commit.project.as_ref());
            project.is_some() && named.is_some() && named != project.as_ref()
        };
        let mut found: HashSet<_> = from.iter().flat_map(|id| self.history(*id)).collect();
        if project.is_some() {
            let of_it = self.commits.values().filter(|commit| commit.project == project);
            found.extend(of_it.map(|commit| commit.id));
        }
        found.retain(|id| !self.dropped.contains(id) && !is_others(id));
        found
    }

    /// Returns the commits that are not ancestors of others in the set, the newest first.
    fn heads(&self, among: &HashSet<CheckpointId>) -> Vec<CheckpointId> {
        let parents = among.iter().filter_map(|id| self.commits.get(id)).flat_map(|commit| &commit.parents);
        let below = self.ancestry(parents.copied().collect());
        let mut heads: Vec<_> = among.iter().filter(|id| !below.contains(id)).copied().collect();
        heads.sort_by_key(|id| (std::cmp::Reverse(self.commits.get(id).map(|commit| commit.time_secs)), *id));
        heads
    }

    /// Plans the newest intact checkpoint as the target of a ref that does not point to one. Returns the new tip, or
    /// `None` if the ref must be removed.
    fn replace(&mut self, name: &str, old: Option<ObjectId>, packed: Option<&ObjectId>) -> Option<CheckpointId> {
        let from: Vec<_> = old.into_iter().chain(packed.copied()).collect();
        let mut candidates = self.candidates(name, &from);
        // A mark must not move to another checkpoint.
        if name.starts_with(PIN_REFS) || name.starts_with(PROJECT_REFS) && Layout::project_in_ref(name).is_none() {
            candidates.clear();
        }
        let why = match old {
            None => "it named nothing",
            Some(old) if self.commits.contains_key(&old) => "it named a checkpoint that is not whole, or another's",
            Some(old) if self.whole.any(old).0 => "it named no checkpoint",
            Some(_) => "it named something that is missing or damaged",
        };
        for id in candidates.iter().chain(&old.filter(|old| !self.commits.contains_key(old))) {
            self.lose(name, *id);
        }
        candidates.retain(|id| self.commits.get(id).is_some_and(|commit| commit.is_whole));
        let tip = self.heads(&candidates).first().copied();
        match tip {
            Some(tip) => {
                self.plan.moved.insert(name.to_owned(), (tip, why.to_owned()));
                self.keep(name, tip);
            }
            None => drop(self.plan.removed.insert(name.to_owned(), format!("{why}, and nothing of it is whole"))),
        }
        tip
    }

    /// Plans refs for the intact checkpoints below a missing one.
    fn recover(&mut self, name: &str, old: Option<ObjectId>, tip: CheckpointId) {
        let from: Vec<_> = old.into_iter().chain([tip]).collect();
        let candidates = self.candidates(name, &from);
        for id in &candidates {
            self.lose(name, *id);
        }
        let is_newer = |id: &CheckpointId| !self.ancestry(vec![*id]).is_disjoint(&self.kept);
        let is_whole = |id: &&CheckpointId| self.commits.get(id).is_some_and(|commit| commit.is_whole);
        let mut rest: HashSet<_> = candidates.iter().filter(is_whole).copied().collect();
        rest.retain(|id| !self.kept.contains(id) && !is_newer(id));
        let owner = Layout::project_in_ref(name).map_or("other".to_owned(), |project: ProjectId| project.to_string());
        while let Some(head) = self.heads(&rest).first().copied() {
            self.plan.recovered.insert(format!("{RECOVERED}/{owner}/{}", head.short()), head);
            self.keep(name, head);
            rest.retain(|id| !self.kept.contains(id));
        }
    }
}
