//! Checks the store: finds corruption, and the checkpoints and files that it affects. Reads only.
//!
//! - V1. Findings are data: no corruption ends the check.
//! - V2. Every reachable object is looked up; trees and commits are read and hashed again, blobs and the rest of the
//!   packs on demand.

mod files;
mod json;

pub(super) use files::other_names;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use super::Store;
use super::commit::HISTORY_MAX;
use super::decode::IdxFault;
use super::integrity::{Commit, IntegrityChecker, ObjectFault};
use super::kept_check::KeptProblem;
use super::layout::{Layout, PROJECT_REFS};
use super::object_copies::{Checked, Copies, ObjectPlace, ReadData};
use super::refs::RefListing;
use crate::error::Result;
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::progress::Progress;

/// Limit on the number of pairs of path and checkpoint that are listed as affected. A lost tree may affect each file of
/// each checkpoint.
const AFFECTED_MAX: usize = 10_000;

/// Kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// The file `HEAD`, which makes the store a repository.
    Head,
    /// The repository's configuration.
    Config,
    /// A ref that names no object, or a missing one.
    Ref,
    /// A project that has checkpoints but no ref.
    RefMissing,
    /// The file of packed refs.
    PackedRefs,
    /// The file that lists the ends of histories.
    Shallow,
    /// A pack.
    Pack,
    /// The idx of a pack.
    Idx,
    /// A pack without an idx: readers ignore it.
    StrayPack,
    /// A missing object that something refers to.
    ObjectMissing,
    /// A corrupt object.
    ObjectDamaged,
    /// A project's record.
    Record,
    /// A project's index: it can be rebuilt.
    Index,
    /// The intent of an interrupted restore.
    Intent,
    /// A file that stock git derived from others and can rebuild.
    Derived,
    /// A recorded state of a user's repository, or an object file that is held for it.
    GitState,
    /// A file that was kept before a command destroyed it.
    Kept,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// Data is lost, or will be.
    Damage,
    /// Nothing is lost: the file can be rebuilt, or is not used.
    Warning,
}

/// One defect of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Kind of the defect.
    pub kind: FindingKind,
    /// Severity of the defect.
    pub severity: Severity,
    /// Path of the file, relative to the base.
    pub path: Option<PathBuf>,
    /// Id of the object.
    pub id: Option<ObjectId>,
    /// Project that it concerns, if any.
    pub project: Option<ProjectId>,
    /// Description of the defect.
    pub why: String,
    /// Checkpoints and paths that it affects.
    pub affects: Vec<Affected>,
}

/// Checkpoints and a path that a lost object affects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Affected {
    /// Ref whose history holds the object.
    pub name: String,
    /// Project of the ref, if it belongs to one.
    pub project: Option<ProjectId>,
    /// Directory of that project, if the store knows it.
    pub dir: Option<PathBuf>,
    /// Path that lost its contents; `None` if the checkpoint itself is lost.
    pub path: Option<Vec<u8>>,
    /// Affected checkpoints: their numbers, counted from the newest, and ids.
    pub checkpoints: Vec<(usize, CheckpointId)>,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Defects, the worst first.
    pub findings: Vec<Finding>,
    /// Number of packs.
    pub packs: u64,
    /// Number of objects that were checked.
    pub objects: u64,
    /// Number of checkpoints of all projects.
    pub checkpoints: u64,
    /// Number of bytes of objects that were read and hashed again.
    pub bytes: u64,
    /// True if the caller cancelled the check.
    pub was_stopped: bool,
}

impl VerifyReport {
    /// Returns true if nothing is lost. Returns false for a check that was cancelled.
    pub fn is_whole(&self) -> bool {
        !self.was_stopped && self.findings.iter().all(|finding| finding.severity == Severity::Warning)
    }
}

/// Everything in a store that names objects.
struct Names {
    listed: RefListing,
    boundary: HashSet<CheckpointId>,
    others: Vec<(PathBuf, FindingKind, ObjectId)>,
}

/// A check in progress.
struct Check<'a> {
    store: &'a Store,
    names: &'a Names,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn note(&mut self, kind: FindingKind, path: Option<PathBuf>, why: impl Into<String>) -> &mut Finding {
        let severity = match kind {
            FindingKind::StrayPack | FindingKind::Index | FindingKind::Derived => Severity::Warning,
            _ => Severity::Damage,
        };
        let path = path.map(|path| path.strip_prefix(self.store.base()).map(PathBuf::from).unwrap_or(path));
        self.findings.push(Finding {
            kind,
            severity,
            path,
            id: None,
            project: None,
            why: why.into(),
            affects: Vec::new(),
        });
        self.findings.last_mut().expect("pushed above")
    }
}

/// Checks the store, and changes nothing. Other processes may take checkpoints at the same time. Fails with
/// `Stopped` if the caller cancels while this waits for the store's lock.
///
/// ```
/// use piton::{Progress, ReadData};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let request = piton::Request::default().reason("before patch");
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &request, &settings, now, &progress)?;
/// let report = piton::verify(&store, ReadData::All, &Progress::default())?;
/// assert!(report.is_whole() && report.checkpoints == 1);
/// # Ok(())
/// # }
/// ```
pub fn verify(store: &Store, read: ReadData, progress: &Progress) -> Result<VerifyReport> {
    let _held = store.locks.share_until(Some(progress))?;
    let mut report = check_locked(store, read, progress)?;
    report.findings.extend(git_state_findings(store)?);
    report.findings.extend(kept_findings(store));
    report.findings.sort_by_key(|finding| (finding.severity, finding.kind));
    Ok(report)
}

/// Checks the recorded states of the users' repositories.
fn git_state_findings(store: &Store) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for project in store.git_states.projects()? {
        findings.extend(store.git_states.check(&project)?.into_iter().map(|problem| Finding {
            kind: FindingKind::GitState,
            severity: Severity::Damage,
            path: Some(problem.file.strip_prefix(store.base()).map(PathBuf::from).unwrap_or(problem.file)),
            id: problem.state,
            project: Some(project.clone()),
            why: problem.what,
            affects: Vec::new(),
        }));
    }
    Ok(findings)
}

/// Checks the kept files.
fn kept_findings(store: &Store) -> Vec<Finding> {
    let finding = |problem: KeptProblem| Finding {
        kind: FindingKind::Kept,
        severity: Severity::Damage,
        path: Some(problem.file.strip_prefix(store.base()).map(PathBuf::from).unwrap_or(problem.file)),
        id: None,
        project: None,
        why: problem.what,
        affects: Vec::new(),
    };
    store.kept.check().into_iter().map(finding).collect()
}

/// Checks the data that is kept beside the checkpoints: recorded states of repositories, and kept files. [`verify`]
/// does so, too.
pub fn check_saved_beside(store: &Store) -> Result<Vec<Finding>> {
    let _held = store.locks.share()?;
    let mut findings = git_state_findings(store)?;
    findings.extend(kept_findings(store));
    Ok(findings)
}

/// Like [`verify`], for a caller that has locked the store.
pub(super) fn check_locked(store: &Store, read: ReadData, progress: &Progress) -> Result<VerifyReport> {
    inspect(store, read, progress).map(|(report, ..)| report)
}

/// Like [`check_locked`], but also returns the copies of all objects and the result of reading them.
pub(super) fn inspect(store: &Store, read: ReadData, progress: &Progress) -> Result<(VerifyReport, Copies, Checked)> {
    // Names before objects: a take publishes objects first, so every object that is named at this point exists
    // afterwards. Ends of histories before names: a take moves its ref first and cuts afterwards.
    let boundary = store.boundary.ends()?;
    let names = Names { listed: store.refs.list_all()?, boundary, others: other_names(store)? };
    let mut copies = store.objects.copies()?;
    let mut check = Check { store, names: &names, findings: Vec::new() };
    check.files()?;
    check.packs(&copies);
    let checked = if read == ReadData::No { Checked::default() } else { copies.check(read, progress) };
    let mut whole = IntegrityChecker::new(&copies, HashSet::new());
    let checkpoints = check.names(&mut whole)?;
    check.objects(&copies, &checked, &mut whole);
    check.affects(&mut whole);
    check.findings.sort_by_key(|finding| (finding.severity, finding.kind));
    let report = VerifyReport {
        findings: check.findings,
        packs: copies.packs.len() as u64,
        objects: whole.objects().max(checked.objects),
        checkpoints,
        bytes: checked.bytes,
        was_stopped: checked.was_stopped,
    };
    drop(whole);
    Ok((report, copies, checked))
}

impl Check<'_> {
    fn packs(&mut self, copies: &Copies) {
        for pack in &copies.packs {
            let (path, idx) = (pack.name.with_added_extension("pack"), pack.name.with_added_extension("idx"));
            match &pack.idx_fault {
                // A take has just put the idx in place.
                Some(IdxFault::Missing) if idx.exists() => continue,
                Some(IdxFault::Missing) => drop(self.note(FindingKind::StrayPack, Some(path.clone()), "it has no idx")),
                Some(IdxFault::Wrong(why)) => drop(self.note(FindingKind::Idx, Some(idx), why.clone())),
                None => {}
            }
            if let Some(why) = pack.fault.clone() {
                let is_stray = pack.idx_fault == Some(IdxFault::Missing);
                let kind = if is_stray { FindingKind::StrayPack } else { FindingKind::Pack };
                self.note(kind, Some(path), why);
            }
        }
    }

    /// Walks all histories. Returns the number of checkpoints.
    fn names(&mut self, whole: &mut IntegrityChecker<'_>) -> Result<u64> {
        let Names { listed, boundary, others } = self.names;
        let mut seen = HashSet::new();
        for name in &listed.garbage {
            let project = Layout::project_in_ref(name);
            let path = self.store.layout.store().join(name);
            self.note(FindingKind::Ref, Some(path), "it names no object").project = project;
        }
        for (name, id) in &listed.refs {
            let project = Layout::project_in_ref(name);
            let (_, tip) = whole.any(*id);
            let why = match (&tip, &project) {
                _ if whole.bad.contains_key(id) => Some("it names an object that is missing or damaged"),
                (None, Some(_)) => Some("it names no checkpoint"),
                (None, None) if name.starts_with(PROJECT_REFS) => Some("it is the ref of no project"),
                (Some(tip), Some(project)) if tip.project.as_ref().is_some_and(|named| named != project) => {
                    Some("it names a checkpoint of another project")
                }
                (Some(_), None) if name.starts_with(PROJECT_REFS) => Some("it is the ref of no project"),
                _ => None,
            };
            if let Some(why) = why {
                let path = self.store.layout.store().join(name);
                let finding = self.note(FindingKind::Ref, Some(path), why);
                (finding.project, finding.id) = (project, Some(*id));
            }
            walk(whole, tip.map(|tip| tip.id), boundary, &mut seen);
        }
        let checkpoints = seen.len() as u64;
        for (path, kind, id) in others {
            let (is_whole, tip) = whole.any(*id);
            walk(whole, tip.map(|tip| tip.id), boundary, &mut seen);
            if !is_whole {
                self.note(*kind, Some(path.clone()), "it names an object that is missing or damaged").id = Some(*id);
            }
        }
        for end in boundary {
            if !whole.is_commit(*end) {
                let path = self.store.layout.shallow();
                self.note(FindingKind::Shallow, Some(path), "it names a checkpoint that is not there").id = Some(*end);
            }
        }
        self.projects_without_ref(whole, &listed.refs)?;
        Ok(checkpoints)
    }

    /// Reports projects that have checkpoints but no ref.
    fn projects_without_ref(
        &mut self,
        whole: &mut IntegrityChecker<'_>,
        refs: &BTreeMap<String, ObjectId>,
    ) -> Result<()> {
        let bare = self.store.catalog.without_ref(|project| refs.contains_key(&Layout::ref_name(project)))?;
        if bare.is_empty() {
            return Ok(());
        }
        // Corrupt objects that are unreachable are not reported.
        let bad = whole.bad.clone();
        let named: BTreeSet<_> = whole.all_commits().into_iter().filter_map(|commit| commit.project).collect();
        whole.bad = bad;
        let garbage: BTreeSet<_> = self.findings.iter().filter_map(|finding| finding.project.clone()).collect();
        for (project, is_over) in bare.iter().filter(|(one, _)| named.contains(*one) && !garbage.contains(*one)) {
            let path = self.store.layout.reference(project);
            let finding = self.note(FindingKind::RefMissing, Some(path), "the project has checkpoints, and no ref");
            finding.project = Some(project.clone());
            finding.severity = if *is_over { Severity::Damage } else { Severity::Warning };
        }
        Ok(())
    }

    /// Reports missing and corrupt objects, corrupt ones once for each copy.
    fn objects(&mut self, copies: &Copies, checked: &Checked, whole: &mut IntegrityChecker<'_>) {
        for (at, why) in &checked.bad_packs {
            let path = copies.packs[*at].name.with_added_extension("pack");
            self.note(FindingKind::Pack, Some(path), why.clone());
        }
        let mut said = HashSet::new();
        for bad in &checked.bad {
            let path = match &bad.place {
                ObjectPlace::Packed(at, _) => copies.packs[*at].name.with_added_extension("pack"),
                ObjectPlace::Loose(path) => path.clone(),
            };
            let is_lost = !copies.has(bad.id);
            let why = if is_lost { bad.why.to_string() } else { format!("{}; another copy is whole", bad.why) };
            self.note(FindingKind::ObjectDamaged, Some(path), why).id = Some(bad.id);
            said.insert(bad.id);
        }
        for (id, bad) in whole.bad.clone().into_iter().filter(|(id, _)| !said.contains(id)) {
            let (kind, why) = match bad {
                ObjectFault::Missing => (FindingKind::ObjectMissing, "it is not in the store".into()),
                ObjectFault::Damaged(why) => (FindingKind::ObjectDamaged, why),
            };
            self.note(kind, None, why).id = Some(id);
        }
    }

    /// Adds to each finding the checkpoints and paths that its object affects.
    fn affects(&mut self, whole: &mut IntegrityChecker<'_>) {
        if whole.bad.is_empty() {
            return;
        }
        let Names { listed, boundary, .. } = self.names;
        let mut affected: BTreeMap<ObjectId, Costs> = BTreeMap::new();
        let mut lines = 0;
        for (name, tip) in &listed.refs {
            let mut next = whole.any(*tip).1.map(|tip| tip.id).or(Some(*tip));
            for number in 1..HISTORY_MAX {
                let Some(id) = next.filter(|_| lines < AFFECTED_MAX) else { break };
                let commit = whole.commit(id);
                let lost = match &commit {
                    None => vec![(None, id)],
                    Some(commit) if commit.is_whole => Vec::new(),
                    Some(Commit { tree, .. }) => {
                        let (paths, _) = whole.lost_paths(*tree);
                        paths.into_iter().map(|(path, id)| (Some(path), id)).collect()
                    }
                };
                for (path, object) in lost {
                    lines += 1;
                    affected.entry(object).or_default().entry((name.clone(), path)).or_default().push((number, id));
                }
                next = commit.and_then(|commit| commit.parents.first().copied()).filter(|_| !boundary.contains(&id));
            }
        }
        let project = |name: &str| Layout::project_in_ref(name);
        let dirs: BTreeMap<_, _> =
            listed.refs.keys().map(|name| (name, project(name).and_then(|id| self.store.dir_of(&id)))).collect();
        for finding in &mut self.findings {
            let Some(costs) = finding.id.and_then(|id| affected.get(&id)) else { continue };
            finding.affects = costs
                .iter()
                .map(|((name, path), checkpoints)| Affected {
                    project: project(name),
                    dir: dirs.get(name).cloned().flatten(),
                    name: name.clone(),
                    path: path.clone(),
                    checkpoints: checkpoints.clone(),
                })
                .collect();
        }
    }
}

/// Affected checkpoints of one object, by ref and path.
type Costs = BTreeMap<(String, Option<Vec<u8>>), Vec<(usize, CheckpointId)>>;

/// Visits a commit and its ancestors, up to the ends of histories.
pub(super) fn walk(
    whole: &mut IntegrityChecker<'_>,
    tip: Option<CheckpointId>,
    boundary: &HashSet<CheckpointId>,
    seen: &mut HashSet<CheckpointId>,
) {
    let mut open: Vec<_> = tip.into_iter().collect();
    while let Some(id) = open.pop() {
        if let Some(commit) = whole.commit(id)
            && seen.insert(id)
            && !boundary.contains(&id)
        {
            open.extend(commit.parents);
        }
    }
}
