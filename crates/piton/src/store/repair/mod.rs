//! Repairing the store, as far as that is possible without the users' files.
//!
//! - V3. Nothing is destroyed: files that are replaced or removed go to `repairs/<time>/` first, and the intact objects
//!   in them have been published and synced before.
//! - V4. No checkpoint is rewritten. A history with a missing checkpoint ends above it; the intact checkpoints below it
//!   get a ref of their own.
//! - V5. A repair that is killed at any point leaves a store in which another repair finds the same or less to do.
//!
//! No other process reads or writes objects during a repair.

mod names;
mod packs;

pub(super) use names::RefPlan;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::integrity::IntegrityChecker;
use super::keeps::PublishedPacks;
use super::lock::{Exclusive, GcLock};
use super::object_copies::{Checked, Copies, ReadData};
use super::objects::Published;
use super::verify::{Finding, FindingKind, VerifyReport, check_locked, inspect, walk};
use super::{Objects, ProjectRecord, Store, StoreLock, create};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::hint::Hint;
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::json::{AtPath, JsonPathOption};
use crate::progress::Progress;
use crate::sys;
use crate::time::Moment;

/// A step of a repair, done or planned.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RepairStep {
    /// Keyword of the step: `kept_names`, `rebuilt_idx`, ...
    #[serde(rename = "step")]
    pub what: &'static str,
    /// File, ref or checkpoint that the step changes.
    pub about: String,
    /// Reason or details of the step.
    pub detail: String,
    /// Advice on what the user can do about it.
    #[serde(skip)]
    pub hint: Option<Hint>,
}

/// Data that is permanently lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Loss {
    /// Project that lost it, if known.
    pub project: Option<ProjectId>,
    /// Checkpoint that lost it, if known.
    pub checkpoint: Option<CheckpointId>,
    /// Path whose contents are lost; `None` if the checkpoint itself is lost.
    pub path: Option<Vec<u8>>,
    /// Description of the loss.
    pub what: String,
}

/// JSON of a [`Loss`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LossJson<'a> {
    /// name of the project in the store, or null
    project: Option<&'a ProjectId>,
    /// id of the checkpoint, or null
    checkpoint: Option<CheckpointId>,
    #[serde(flatten)]
    path: JsonPathOption<'a, AtPath>,
    /// description
    what: &'a str,
}

impl<'a> From<&'a Loss> for LossJson<'a> {
    fn from(loss: &'a Loss) -> Self {
        let Loss { project, checkpoint, path, what } = loss;
        let path = JsonPathOption::new(path.as_deref());
        Self { project: project.as_ref(), checkpoint: *checkpoint, path, what }
    }
}

crate::json::serialized_as! {
    Loss => LossJson<'_>;
}

/// A repair in progress. No other process reads or writes objects while this exists.
pub(crate) struct RepairRun<'a> {
    store: &'a Store,
    is_dry: bool,
    now: Moment,
    /// Directory to which files are moved that the repair replaces or removes.
    aside: PathBuf,
    pub(crate) steps: Vec<RepairStep>,
    pub(crate) moved: Vec<PathBuf>,
    pub(crate) lost: Vec<Loss>,
    /// Packs that stay protected from stock git's collection until the repair ends, since no ref may point to their
    /// objects before.
    published: Vec<PublishedPacks>,
    alone: Exclusive,
    _held: GcLock,
}

/// Result of the check that a repair is based on.
pub(crate) struct Diagnosis {
    pub(crate) report: VerifyReport,
    copies: Copies,
    checked: Checked,
}

impl<'a> RepairRun<'a> {
    /// Begins a repair once no other process uses the store. Fails with `Busy` if others use it the whole time. With
    /// `is_dry`, nothing is changed.
    pub(crate) fn begin(store: &'a Store, is_dry: bool, now: Moment, progress: &Progress) -> Result<Self> {
        fsx::ensure_dir(store.layout.lock("").as_path())?;
        let held = store.locks.lock_gc_until(Some(progress))?;
        let Some(alone) = store.locks.exclude_patiently(&held)? else {
            return Err(Error::new(ErrorKind::Busy, "repair the store")
                .because("other processes use it all the time")
                .with_hint("end them, and try again"));
        };
        let stamp = now.stamp();
        let names = (1..).map(|turn| if turn == 1 { stamp.clone() } else { format!("{stamp}-{turn}") });
        let aside = fsx::first_free(names.map(|name| store.layout.repairs().join(name)))?;
        Ok(Self {
            store,
            is_dry,
            now,
            aside,
            steps: Vec::new(),
            moved: Vec::new(),
            lost: Vec::new(),
            published: Vec::new(),
            alone,
            _held: held,
        })
    }
}

impl RepairRun<'_> {
    pub(crate) fn say(&mut self, what: &'static str, about: impl Into<String>, detail: impl Into<String>) {
        self.steps.push(RepairStep { what, about: about.into(), detail: detail.into(), hint: None });
    }

    /// Like [`Self::say`], with advice to the user.
    fn advise(&mut self, what: &'static str, about: impl Into<String>, detail: impl Into<String>, hint: Hint) {
        self.steps.push(RepairStep { what, about: about.into(), detail: detail.into(), hint: Some(hint) });
    }

    /// Returns a path for display, relative to the base.
    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(self.store.base()).unwrap_or(path).display().to_string()
    }

    /// Reads and checks everything. Fails with `Stopped` if it is cancelled.
    pub(crate) fn diagnose(&self, progress: &Progress) -> Result<Diagnosis> {
        let (report, copies, checked) = inspect(self.store, ReadData::All, progress)?;
        if report.was_stopped {
            return Err(
                Error::new(ErrorKind::Stopped, "repair the store").because("it was stopped; nothing was changed")
            );
        }
        Ok(Diagnosis { report, copies, checked })
    }

    /// Keeps the packs protected until refs point to their objects.
    pub(crate) fn hold(&mut self, published: Published) {
        self.published.push(published.packs);
    }

    /// Returns the objects that exist at this moment.
    pub(crate) fn objects(&self) -> Result<Objects> {
        self.store.objects.open(&StoreLock::none())
    }

    /// Copies the refs, `packed-refs` and `shallow`, before any of them is changed.
    pub(crate) fn keep_names(&mut self) -> Result<()> {
        self.say("kept_names", self.shown(&self.aside), "copies of refs, packed-refs and shallow");
        if self.is_dry {
            return Ok(());
        }
        fsx::ensure_dir(&self.aside)?;
        let store = self.store.layout.store();
        let mut open = vec![PathBuf::from("refs")];
        let mut files = vec![PathBuf::from("packed-refs"), PathBuf::from("shallow")];
        let mut dirs = vec![self.aside.clone()];
        while let Some(dir) = open.pop() {
            fsx::ensure_dir(&self.aside.join(&dir))?;
            dirs.push(self.aside.join(&dir));
            for name in fsx::names_in(&store.join(&dir))? {
                let path = dir.join(name);
                let is_dir = store.join(&path).is_dir();
                if is_dir { open.push(path) } else { files.push(path) }
            }
        }
        for file in files {
            if let Some(bytes) = fsx::read_small(&store.join(&file), u64::MAX)? {
                fsx::replace(&self.aside.join(&file), &bytes, fsx::Durability::Synced)?;
            }
        }
        dirs.iter().try_for_each(|dir| fsx::sync_dir(dir))
    }

    /// Moves a file to the directory of this repair. A missing file is fine.
    fn put_aside(&mut self, path: &Path) -> Result<()> {
        let Ok(below) = path.strip_prefix(self.store.layout.store()).map(Path::to_owned) else { return Ok(()) };
        if !fsx::exists(path)? {
            return Ok(());
        }
        let to = self.aside.join(below);
        let moved = to.strip_prefix(self.store.base()).unwrap_or(&to).to_owned();
        if !self.moved.contains(&moved) {
            self.moved.push(moved);
        }
        if self.is_dry {
            return Ok(());
        }
        let dir = to.parent().expect("below the directory of this repair");
        fsx::ensure_dir(dir)?;
        fs::rename(path, &to).map_err(|error| Error::io("move aside", path, error))?;
        fsx::sync_dir(dir)?;
        fsx::sync_dir(path.parent().expect("below the store"))
    }

    /// Moves a file that stock git derived, and the list that would still name it: git warns about such a list each
    /// time.
    fn put_derived_aside(&mut self, path: &Path) -> Result<()> {
        self.put_aside(path)?;
        let mut lists = ["commit-graph-chain", "multi-pack-index-chain"].iter();
        lists.try_for_each(|list| self.put_aside(&path.with_file_name(list)))
    }

    /// Copies a file that is about to be replaced to the directory of this repair. A missing file is fine.
    fn copy_aside(&mut self, path: &Path) -> Result<()> {
        let Ok(below) = path.strip_prefix(self.store.layout.store()) else { return Ok(()) };
        let to = self.aside.join(below);
        if self.is_dry || !fsx::exists(path)? {
            return Ok(());
        }
        let dir = to.parent().expect("below the directory of this repair");
        fsx::ensure_dir(dir)?;
        let copied = fs::copy(path, &to).and_then(|_| sys::sync_file(&fs::File::open(&to)?));
        copied.map_err(|error| Error::io("copy aside", path, error))?;
        self.moved.push(to.strip_prefix(self.store.base()).unwrap_or(&to).to_owned());
        fsx::sync_dir(dir)
    }

    /// Moves invalid small files to the directory of this repair, and creates them again if possible.
    pub(crate) fn repair_files(&mut self, report: &VerifyReport) -> Result<()> {
        for finding in &report.findings {
            let Some(path) = finding.path.as_ref().map(|path| self.store.base().join(path)) else { continue };
            match finding.kind {
                FindingKind::Head | FindingKind::Config => {
                    self.put_aside(&path)?;
                    self.say("made_again", self.shown(&path), finding.why.clone());
                }
                FindingKind::Index | FindingKind::Derived => {
                    self.put_derived_aside(&path)?;
                    self.say("put_aside", self.shown(&path), format!("{}; it is rebuilt when needed", finding.why));
                }
                FindingKind::Intent => self.repair_intent(finding, &path)?,
                _ => {}
            }
        }
        self.fill_in()
    }

    /// Creates the required pieces that were moved.
    fn fill_in(&self) -> Result<()> {
        if self.is_dry { Ok(()) } else { create::fill_in(&self.store.layout) }
    }

    /// Lists the copies again after the steps so far. Returns `None` in a dry run, which has changed nothing.
    fn fresh_copies(&self) -> Result<Option<Copies>> {
        if self.is_dry { Ok(None) } else { self.store.objects.copies().map(Some) }
    }

    /// Moves an invalid note of a restore. A note that names a lost object is handled once it is known which objects
    /// are lost.
    fn repair_intent(&mut self, finding: &Finding, path: &Path) -> Result<()> {
        if finding.id.is_some() {
            return Ok(());
        }
        self.put_aside(path)?;
        self.advise("put_aside", self.shown(path), finding.why.clone(), Hint::FindSafetyCheckpoint);
        Ok(())
    }

    /// Rebuilds invalid project records from the checkpoints.
    pub(crate) fn repair_records(&mut self, report: &VerifyReport) -> Result<()> {
        let broken = report.findings.iter().filter(|finding| finding.kind == FindingKind::Record);
        for project in broken.filter_map(|finding| finding.project.clone()) {
            let path = self.store.layout.record(&project);
            self.put_aside(&path)?;
            let detail = "its directory is not known until the next take in it";
            self.say("rebuilt_record", self.shown(&path), detail);
            if self.is_dry {
                continue;
            }
            let objects = self.objects()?;
            let history = self.store.histories.from(&objects, self.store.refs.newest(&project).unwrap_or_default());
            let history = history.map_or_else(|_| Vec::new(), |history| history.checkpoints);
            if let (Some(newest), Some(oldest)) = (history.first(), history.last()) {
                let record = ProjectRecord::with_times(oldest.time, newest.time);
                let locked = self.store.locks.lock_project(&StoreLock::none(), &project)?;
                self.store.records.save(&locked, &project, &record)?;
            }
        }
        Ok(())
    }

    /// Returns the projects whose directories may be searched for lost contents.
    pub(crate) fn places_to_look(&self) -> Result<Vec<(ProjectId, PathBuf)>> {
        let mut places = Vec::new();
        for project in self.store.records.projects()? {
            let dir = self.store.records.read(&project)?.dir().filter(|dir| ProjectId::of(dir) == project);
            // A directory that cannot be accessed is reported when it is searched.
            places.extend(dir.filter(|dir| fsx::exists(dir).unwrap_or(true)).map(|dir| (project, dir)));
        }
        Ok(places)
    }

    /// Removes a project's index, which must not be relied on: contents that it lists may be lost.
    pub(crate) fn forget_index(&mut self, project: &ProjectId) -> Result<()> {
        if self.is_dry { Ok(()) } else { fsx::remove_file(&self.store.layout.index(project)) }
    }

    /// Returns the objects that are referenced and missing or corrupt. If refs are damaged or missing, the objects of
    /// all commits are included.
    pub(crate) fn missing(&self, diagnosis: &Diagnosis) -> Result<BTreeSet<ObjectId>> {
        let fresh = self.fresh_copies()?;
        let copies = fresh.as_ref().unwrap_or(&diagnosis.copies);
        let mut whole = IntegrityChecker::new(copies, HashSet::new());
        let boundary = self.store.boundary.ends()?;
        let mut seen = HashSet::new();
        for id in self.store.refs.list_all()?.refs.into_values() {
            let tip = whole.any(id).1.map(|tip| tip.id);
            walk(&mut whole, tip, &boundary, &mut seen);
        }
        let is_unnamed = |finding: &Finding| matches!(finding.kind, FindingKind::Ref | FindingKind::RefMissing);
        if diagnosis.report.findings.iter().any(is_unnamed) {
            whole.all_commits();
        }
        copies.refuse_unread()?;
        Ok(whole.bad.into_keys().collect())
    }

    /// Checks the whole store after the repair. It cannot be cancelled: the report must be complete.
    pub(crate) fn is_whole(&self) -> Result<VerifyReport> {
        check_locked(self.store, ReadData::All, &Progress::default())
    }

    /// Recounts the size of the store.
    pub(crate) fn finish(self) -> Result<()> {
        if self.is_dry { Ok(()) } else { self.store.size.recount(&self.alone).map(drop) }
    }
}
