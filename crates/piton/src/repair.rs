//! Repairing the store: intact objects are kept, missing ones are searched for in the files of the projects, and those
//! that remain missing are reported.
//!
//! `store/repair` implements the steps. This module orders them and reads the users' files, which are never written.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::id::ObjectId;
use crate::json::JsonPaths;
use crate::progress::Progress;
use crate::project::Project;
use crate::settings::Settings;
use crate::skipped::SkipReason;
use crate::store::{Finding, Loss, ProjectRecord, RepairRun, RepairStep, Store};
use crate::survey::{SurveyEnd, SurveyInput, survey};
use crate::time::Moment;

/// Options of a repair.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RepairOptions<'a> {
    /// Settings that decide which files of a project are read.
    pub settings: &'a Settings,
    /// Home directory of the user. Neither it nor its ancestors can be a project.
    pub home: Option<&'a Path>,
    /// True to report only, without changing anything.
    pub is_dry: bool,
}

impl<'a> RepairOptions<'a> {
    /// Returns the options of a repair that is not a dry run, for a user without a home directory.
    pub fn new(settings: &'a Settings) -> Self {
        Self { settings, home: None, is_dry: false }
    }

    /// Sets [`RepairOptions::home`].
    #[must_use]
    pub fn home(mut self, home: impl Into<Option<&'a Path>>) -> Self {
        self.home = home.into();
        self
    }

    /// Sets [`RepairOptions::is_dry`].
    #[must_use]
    pub fn is_dry(mut self, is_dry: bool) -> Self {
        self.is_dry = is_dry;
        self
    }
}

/// Result of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// True for a dry run, in which nothing was changed.
    pub is_dry: bool,
    /// True if the store is intact after the repair. After a dry run: true if it was intact.
    pub is_whole: bool,
    /// Steps taken, in order.
    pub steps: Vec<RepairStep>,
    /// Number of missing objects that were recovered.
    pub healed: u64,
    /// Objects and checkpoints that are lost for good.
    pub lost: Vec<Loss>,
    /// Files that were moved out of the way, as paths relative to the base.
    pub moved_aside: Vec<PathBuf>,
    /// Problems that remain.
    pub findings: Vec<Finding>,
}

crate::path_keys! {
    AtMovedAside = "moved_aside", "moved_aside_bytes", "files that were moved out of the way, relative to the base";
}

/// JSON of a [`RepairReport`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct RepairReportJson<'a> {
    /// true if the store is whole after the repair; after a dry run, if it was whole
    whole: bool,
    /// true if nothing was changed
    dry_run: bool,
    /// steps that were or would be taken, in order
    steps: &'a [RepairStep],
    /// number of missing objects that were recovered
    healed: u64,
    /// what is lost for good
    lost: &'a [Loss],
    #[serde(flatten)]
    moved_aside: JsonPaths<'a, AtMovedAside>,
    /// what is still wrong, as in `verify`
    findings: &'a [Finding],
}

impl<'a> From<&'a RepairReport> for RepairReportJson<'a> {
    fn from(report: &'a RepairReport) -> Self {
        let RepairReport { is_dry, is_whole, steps, healed, lost, moved_aside, findings } = report;
        let moved_aside = JsonPaths::of(moved_aside);
        Self { whole: *is_whole, dry_run: *is_dry, steps, healed: *healed, lost, moved_aside, findings }
    }
}

crate::json::serialized_as! {
    RepairReport => RepairReportJson<'_>;
}

/// Repairs the store. Holds the exclusive lock, so other processes block until it returns. Fails with `Busy` if other
/// processes keep using it.
///
/// ```
/// use piton::{Progress, ReadData, RepairOptions, Settings, Store, repair};
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
/// std::fs::remove_file(store.git_dir().join("HEAD"))?;
/// let damaged = Store::open_damaged(&base)?.expect("what is left of it");
/// assert!(!piton::verify(&damaged, ReadData::No, &Progress::default())?.is_whole());
/// let settings = Settings::default();
/// let options = RepairOptions::new(&settings);
/// assert!(repair(&damaged, options, now, &Progress::default())?.is_whole);
/// # Ok(())
/// # }
/// ```
pub fn repair(store: &Store, options: RepairOptions<'_>, now: Moment, progress: &Progress) -> Result<RepairReport> {
    let mut run = RepairRun::begin(store, options.is_dry, now, progress)?;
    let mut diagnosis = run.diagnose(progress)?;
    let mut report = RepairReport {
        is_dry: options.is_dry,
        is_whole: diagnosis.report.is_whole(),
        steps: Vec::new(),
        healed: 0,
        lost: Vec::new(),
        moved_aside: Vec::new(),
        findings: diagnosis.report.findings.clone(),
    };
    let is_git_whole = repair_git_states(store, &mut run, options.is_dry)?;
    let is_kept_whole = repair_kept(store, &mut run, options.is_dry)?;
    if report.findings.is_empty() {
        report.is_whole &= is_git_whole && is_kept_whole || !options.is_dry;
        report.steps = std::mem::take(&mut run.steps);
        return Ok(report);
    }
    // Cannot be cancelled from here on: each step improves the store, but a partial repair does not make it usable.
    run.keep_names()?;
    run.repair_files(&diagnosis.report)?;
    let wrecks = run.repair_packs(&mut diagnosis)?;
    let missing = run.missing(&diagnosis)?;
    let mut promised = HashSet::new();
    if !missing.is_empty() {
        promised = look_for(&missing, store, &mut run, options)?;
        run.try_again(&diagnosis, &wrecks)?;
        let left =
            if options.is_dry { &missing - &promised.iter().copied().collect() } else { run.missing(&diagnosis)? };
        report.healed = missing.difference(&left).count() as u64;
    }
    run.repair_names(&diagnosis, &wrecks, promised)?;
    run.repair_records(&diagnosis.report)?;
    if !options.is_dry {
        let after = run.is_whole()?;
        (report.is_whole, report.findings) = (after.is_whole(), after.findings);
    }
    report.steps = std::mem::take(&mut run.steps);
    report.lost = std::mem::take(&mut run.lost);
    report.moved_aside = std::mem::take(&mut run.moved);
    run.finish()?;
    Ok(report)
}

/// Drops recorded states of users' repositories that cannot be read, and reports them. Returns true if there are none.
fn repair_git_states(store: &Store, run: &mut RepairRun<'_>, is_dry: bool) -> Result<bool> {
    let mut is_whole = true;
    for project in store.git_states.projects()? {
        let problems = store.git_states.check(&project)?;
        for problem in &problems {
            is_whole = false;
            run.say("git_state_dropped", problem.file.display().to_string(), problem.what.clone());
        }
        if !is_dry && !problems.is_empty() {
            store.git_states.drop_damaged(&project, &problems)?;
        }
    }
    Ok(is_whole)
}

/// Removes lost files from the lists of kept files, sets aside sets without a list, and reports both. Returns true if
/// there are none.
fn repair_kept(store: &Store, run: &mut RepairRun<'_>, is_dry: bool) -> Result<bool> {
    let problems = store.kept.check();
    for problem in &problems {
        run.say("kept_set_aside", problem.file.display().to_string(), problem.what.clone());
    }
    if !is_dry && !problems.is_empty() {
        store.kept.set_aside(&problems)?;
    }
    Ok(problems.is_empty())
}

/// Reads the files of all projects and adds missing objects to the store. Returns the ids of the missing objects that
/// were found.
fn look_for(
    missing: &BTreeSet<ObjectId>,
    store: &Store,
    run: &mut RepairRun<'_>,
    options: RepairOptions<'_>,
) -> Result<HashSet<ObjectId>> {
    // A limit that declines a checkpoint must not prevent recovery.
    let settings = Settings { max_files: 0, ..options.settings.clone() };
    let mut found = HashSet::new();
    for (id, dir) in run.places_to_look()? {
        let project = match Project::at(&dir, options.home) {
            Ok(project) if !project.is_too_broad() && *project.id() == id => project,
            Ok(_) => continue,
            Err(error) => {
                run.say("not_readable", dir.display().to_string(), error.to_string());
                continue;
            }
        };
        run.forget_index(&id)?;
        let objects = run.objects()?;
        let new_objects = store.objects.new_objects(&objects, options.is_dry);
        let (record, progress) = (ProjectRecord::default(), Progress::default());
        let input = SurveyInput::new(store, &objects, &project, &record, None, &settings, &progress);
        let mut unread = 0;
        let read = survey(&input, &new_objects).and_then(|end| match end {
            SurveyEnd::Done(survey) => {
                unread = survey.skipped.iter().filter(|skipped| skipped.why == SkipReason::Unreadable).count();
                let ids: HashSet<_> = survey.ids().filter(|id| missing.contains(id)).collect();
                // Publish nothing if none of the missing objects was found.
                if !ids.is_empty() && !options.is_dry {
                    run.hold(new_objects.publish()?);
                }
                Ok(ids)
            }
            SurveyEnd::TooManyFiles | SurveyEnd::Stopped(_) => Ok(HashSet::new()),
        });
        if unread > 0 {
            let what = format!("{unread} files or directories, which may hold what is lost");
            run.say("not_readable", dir.display().to_string(), what);
        }
        match read {
            Ok(ids) if ids.is_empty() => {}
            Ok(ids) => {
                let detail = match ids.len() {
                    1 => "1 lost object is there".to_owned(),
                    count => format!("{count} lost objects are there"),
                };
                run.say("healed", dir.display().to_string(), detail);
                found.extend(ids);
            }
            Err(error) => run.say("not_readable", dir.display().to_string(), error.to_string()),
        }
    }
    Ok(found)
}
