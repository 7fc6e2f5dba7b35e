//! Summary of the store: sizes, projects and problems. Changes nothing, and reports as much as possible of a corrupt
//! store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{ErrorKind, Result};
use crate::hint::Hint;
use crate::id::ProjectId;
use crate::json::{AtPath, AtWorkdir, JsonPath, JsonPathOption};
use crate::local_files::{LocalSummary, local_summary};
use crate::prune::{KnownProject, inventory, inventory_of};
use crate::relpath;
use crate::skipped::{Extent, SkipReason};
use crate::store::{Archive, Checkpoint, Objects, Store, usage_by_project};
use crate::sys;
use crate::time::Moment;
use crate::worktree::{Presence, has_marker, is_dir};

/// Status of one project.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProjectStatus {
    /// Record of the project.
    pub project: KnownProject,
    /// Number of checkpoints.
    pub checkpoints: usize,
    /// Number of bytes that no other project shares.
    pub bytes_alone: u64,
    /// Number of recorded states of its git repository.
    pub git_states: usize,
    /// Number of bytes that only the held objects of its git repository take.
    pub git_bytes: u64,
    /// Local files of its newest checkpoint.
    pub local: LocalSummary,
    /// Command that restores a deleted directory. The library leaves it empty; a program with such a command sets it.
    pub restore_command: Option<String>,
}

/// Problem, with advice.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StatusProblem {
    /// Description of the problem.
    pub what: String,
    /// Advice to the user.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub hint: Hint,
}

impl StatusProblem {
    /// Returns a problem with this advice.
    pub fn new(what: impl Into<String>, hint: Hint) -> Self {
        Self { what: what.into(), hint }
    }
}

/// Summary of the store.
///
/// ```
/// use piton::Status;
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
/// let status = Status::of(&store, None)?;
/// assert_eq!((status.projects.len(), status.problems.len()), (1, 0));
/// assert!(status.store_bytes > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// Directory that holds everything.
    pub base: PathBuf,
    /// Size of the store on disk.
    pub store_bytes: u64,
    /// Size of the remains of older layouts.
    pub legacy_bytes: u64,
    /// Size of unreachable objects, which the next maintenance frees.
    pub reclaimable_bytes: u64,
    /// Projects, most recently used first.
    pub projects: Vec<ProjectStatus>,
    /// Archives of older layouts.
    pub archives: Vec<Archive>,
    /// Problems found.
    pub problems: Vec<StatusProblem>,
}

crate::path_keys! {
    AtBase = "base", "base_bytes", "directory that holds everything";
}

/// JSON of a [`Status`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StatusJson<'a> {
    #[serde(flatten)]
    base: JsonPath<'a, AtBase>,
    /// size of the store
    store_size_bytes: u64,
    /// size of the remains of older layouts
    legacy_size_bytes: u64,
    /// sum of both
    total_size_bytes: u64,
    /// number of bytes that the next maintenance frees
    reclaimable_bytes: u64,
    /// number of projects
    project_count: usize,
    /// projects, most recently used first
    projects: &'a [ProjectStatus],
    /// archives of older layouts
    legacy_archives: &'a [Archive],
    /// what is wrong
    problems: &'a [StatusProblem],
}

impl<'a> From<&'a Status> for StatusJson<'a> {
    fn from(status: &'a Status) -> Self {
        Self {
            base: JsonPath::of(&status.base),
            store_size_bytes: status.store_bytes,
            legacy_size_bytes: status.legacy_bytes,
            total_size_bytes: status.store_bytes + status.legacy_bytes,
            reclaimable_bytes: status.reclaimable_bytes,
            project_count: status.projects.len(),
            projects: &status.projects,
            legacy_archives: &status.archives,
            problems: &status.problems,
        }
    }
}

/// JSON of a [`ProjectStatus`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ProjectStatusJson<'a> {
    /// name of the project in the store
    hash: &'a ProjectId,
    #[serde(flatten)]
    workdir: JsonPathOption<'a, AtWorkdir>,
    /// true if the directory exists
    exists: bool,
    /// `there`, `gone`, or `unknown` if its disk may not be mounted
    presence: Presence,
    /// time when it was first seen, in seconds since 1970, or null
    created_at: Option<f64>,
    /// time of its last use, in seconds since 1970, or null
    last_touch: Option<f64>,
    /// number of checkpoints
    commits: usize,
    /// names of its marked checkpoints
    marks: &'a [String],
    /// number of bytes that no other project shares
    bytes_alone: u64,
    /// number of recorded states of its git repository
    git_states: usize,
    /// number of bytes that only the held objects of its git repository take
    git_bytes: u64,
    /// number of files out of scope that are saved with its newest checkpoint
    local_files: u64,
    /// names of some of these
    local: Vec<JsonPath<'a, AtPath>>,
    /// command that restores a deleted directory, or null
    restore_command: Option<&'a str>,
}

impl<'a> From<&'a ProjectStatus> for ProjectStatusJson<'a> {
    fn from(status: &'a ProjectStatus) -> Self {
        let project = &status.project;
        Self {
            hash: &project.id,
            workdir: JsonPathOption::of(project.dir.as_deref()),
            exists: project.presence == Presence::There,
            presence: project.presence,
            created_at: project.created_at,
            last_touch: project.last_touch,
            commits: status.checkpoints,
            marks: &project.marks,
            bytes_alone: status.bytes_alone,
            git_states: status.git_states,
            git_bytes: status.git_bytes,
            local_files: status.local.files,
            local: status.local.named.iter().map(JsonPath::new).collect(),
            restore_command: status.restore_command.as_deref(),
        }
    }
}

crate::json::serialized_as! {
    Status => StatusJson<'_>;
    ProjectStatus => ProjectStatusJson<'_>;
}

impl Status {
    /// Returns the status of a base that does not exist: everything is zero.
    pub fn of_nothing(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
            store_bytes: 0,
            legacy_bytes: 0,
            reclaimable_bytes: 0,
            projects: Vec::new(),
            archives: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Returns the status of a base without a store.
    pub fn of_base(base: &Store) -> Result<Self> {
        let (legacy_bytes, archives) = (base.base_dir.legacy_bytes()?, base.base_dir.archives()?);
        Ok(Self { legacy_bytes, archives, ..Self::of_nothing(base.base()) })
    }

    /// Returns the status of a store. A store larger than `total_bytes_max` is reported as a problem.
    pub fn of(store: &Store, total_bytes_max: Option<u64>) -> Result<Self> {
        let mut problems = Vec::new();
        let mut note = |what: String, hint: Hint| {
            let problem = StatusProblem { what, hint };
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        };
        // Locks the store itself, briefly and repeatedly.
        let inventory = match inventory(store) {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                note(error.to_string(), Hint::Repair);
                inventory_of(store, store.records.projects()?)?
            }
            inventory => inventory?,
        };
        let held = store.locks.share()?;
        let holdings = usage_by_project(store, &held).unwrap_or_else(|error| {
            note(error.to_string(), Hint::Repair);
            Default::default()
        });
        if holdings.missing > 0 {
            note(
                match holdings.missing {
                    1 => "1 object is missing or damaged".to_owned(),
                    count => format!("{count} objects are missing or damaged"),
                },
                Hint::Repair,
            );
        }
        let objects = store.objects.open(&held).ok();
        let mut projects = Vec::new();
        for project in inventory.projects {
            for problem in problems_of(store, objects.as_ref(), &project) {
                note(problem.what, problem.hint);
            }
            let (checkpoints, bytes_alone) = holdings.projects.get(&project.id).copied().unwrap_or_default();
            let git_states = store.git_states.count(&project.id);
            let git_bytes = store.git_states.held_bytes(&project.id).unwrap_or(0);
            let local = objects.as_ref().map(|objects| local_summary(store, objects, &project.id)).unwrap_or_default();
            projects.push(ProjectStatus {
                project,
                checkpoints,
                bytes_alone,
                git_states,
                git_bytes,
                local,
                restore_command: None,
            });
        }
        for problem in mistaken_projects(store).unwrap_or_default() {
            note(problem.what, problem.hint);
        }
        projects.sort_by(|a, b| b.project.last_touch.unwrap_or(0.0).total_cmp(&a.project.last_touch.unwrap_or(0.0)));
        let store_bytes = store.size.count_bytes()?;
        if total_bytes_max.is_some_and(|bytes_max| store_bytes > bytes_max) {
            note("the store is larger than max_total_size_mb".to_owned(), Hint::PruneOrTake);
        }
        Ok(Self {
            base: store.base().to_owned(),
            store_bytes,
            legacy_bytes: store.base_dir.legacy_bytes()?,
            reclaimable_bytes: holdings.dead_bytes,
            projects,
            archives: inventory.archives,
            problems,
        })
    }
}

/// Returns the problems of a project.
fn problems_of(store: &Store, objects: Option<&Objects>, project: &KnownProject) -> Vec<StatusProblem> {
    let shown = project.dir.as_ref().map_or_else(|| project.id.to_string(), |dir| dir.display().to_string());
    let restoring = match store.intents.get(&project.id) {
        Ok(None) => None,
        Ok(Some(_)) => {
            Some(StatusProblem::new(format!("a restore of {shown} was cut short"), Hint::FinishRestoreThere))
        }
        Err(error) => Some(StatusProblem::new(error.to_string(), error.hint().unwrap_or(Hint::Repair))),
    };
    let git = git_problems(store, objects, &project.id, project.dir.as_deref());
    let unseen = (project.presence == Presence::Unknown).then(|| {
        StatusProblem::new(
            format!("{shown} cannot be found, and neither can the disk that it was on"),
            "its checkpoints are kept; mount the disk, or wait until they are pruned by age".into(),
        )
    });
    restoring.into_iter().chain(git).chain(unseen).collect()
}

/// Returns problems with the recorded states of the projects' git repositories: parts that are not recorded, and
/// corrupt states.
pub fn git_state_problems(store: &Store) -> Result<Vec<StatusProblem>> {
    let held = store.locks.share()?;
    let objects = store.objects.open(&held)?;
    let projects = store.known_projects()?;
    Ok(projects.iter().flat_map(|id| git_problems(store, Some(&objects), id, store.dir_of(id).as_deref())).collect())
}

fn git_problems(
    store: &Store,
    objects: Option<&Objects>,
    project: &ProjectId,
    dir: Option<&Path>,
) -> Vec<StatusProblem> {
    let shown = dir.map_or_else(|| project.to_string(), |dir| dir.display().to_string());
    let states = &store.git_states;
    let incomplete = states.problem(project).map(|problem| StatusProblem::new(problem, Hint::GitStateIncomplete));
    let cut_short = states.has_stale_locks(project).then(|| {
        let what = format!("a restore of the git repository of {shown} was cut short");
        StatusProblem::new(what, Hint::FinishGitRestore)
    });
    let nested = objects.zip(dir).map(|(objects, dir)| nested_repositories(store, objects, project, dir));
    let nested = nested.into_iter().flatten().take(NESTED_MAX).map(|inner| {
        let what = format!("branches and stashes of the git repository in {} are not recorded", inner.display());
        StatusProblem::new(what, Hint::TakeThere { dir: inner })
    });
    incomplete.into_iter().chain(cut_short).chain(nested).collect()
}

/// Number of repositories in a project that are named.
const NESTED_MAX: usize = 3;

/// Returns the directories of repositories inside a project that are not projects themselves. Submodules are not among
/// them: their repositories are inside that of the project.
fn nested_repositories(store: &Store, objects: &Objects, project: &ProjectId, dir: &Path) -> Vec<PathBuf> {
    let newest = store.refs.newest(project).ok().flatten().and_then(|id| objects.checkpoint(id).ok());
    let skipped = newest.map(|newest| newest.facts.skipped).unwrap_or_default().into_iter();
    let inner = skipped.filter(|one| one.why == SkipReason::GitDir && one.extent != Extent::File);
    let inner = inner.filter_map(|one| {
        let (around, name) = relpath::split(&one.path);
        (name == b".git" && !around.is_empty()).then(|| dir.join(sys::name_from_bytes(around)))
    });
    inner.filter(|inner| !store.knows(&ProjectId::of(inner))).collect()
}

/// Last activity of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastEvent {
    /// Time of the activity.
    pub time: Moment,
    /// Event, or the reason of the checkpoint that was taken for it.
    pub what: String,
    /// Version of the agent at that time, if it is known.
    pub version: Option<String>,
}

/// Returns the last activity of each agent, from the notes about its sessions and from the newest checkpoint of each
/// project. Calls that had nothing to do leave no trace.
pub fn last_heard(store: &Store) -> BTreeMap<String, LastEvent> {
    let notes = store.turns.all().into_iter().map(|(key, note)| {
        let what = match note.turn {
            None => "a session began",
            Some(_) if note.is_unprompted => "a tool",
            Some(_) => "a prompt",
        };
        let time = Moment { secs: note.time_secs, nanos: 0, offset_secs: 0 };
        (key.agent, LastEvent { time, what: what.to_owned(), version: note.version })
    });
    let mut last: BTreeMap<String, LastEvent> = BTreeMap::new();
    for (agent, heard) in notes.chain(newest_checkpoints(store).unwrap_or_default()) {
        // Within the same second, prefer the checkpoint: it says more.
        let known = last.get(&agent);
        if known.is_none_or(|known| known.time.secs <= heard.time.secs) {
            let version = heard.version.or_else(|| known.and_then(|known| known.version.clone()));
            last.insert(agent, LastEvent { version, ..heard });
        }
    }
    last
}

fn newest_checkpoints(store: &Store) -> Result<Vec<(String, LastEvent)>> {
    let held = store.locks.share()?;
    let objects = store.objects.open(&held)?;
    let mut all = Vec::new();
    for (project, id) in store.catalog.newest_of_all()? {
        let Ok(newest) = objects.checkpoint(id) else { continue };
        let mut newest = [newest];
        store.ledger.assign(&project, &mut newest);
        let [Checkpoint { turns, facts, time, reason, .. }] = newest;
        all.extend(facts.origin.agent.map(|agent| (agent, LastEvent { time, what: reason, version: None })));
        // Oldest first, so that the last of each agent wins.
        let told = turns.into_iter().rev().filter_map(|turn| {
            let what = turn.headline();
            Some((turn.agent?, LastEvent { time: turn.time.unwrap_or(time), what, version: turn.agent_version }))
        });
        all.extend(told);
    }
    Ok(all)
}

/// Returns the projects that are probably on record by mistake: those without checkpoints, and unmarked directories
/// that contain other projects. The latter also cover everything in them that has no checkpoints of its own.
pub fn mistaken_projects(store: &Store) -> Result<Vec<StatusProblem>> {
    let known: Vec<(ProjectId, PathBuf)> =
        store.known_projects()?.into_iter().filter_map(|id| Some((id.clone(), store.dir_of(&id)?))).collect();
    let mut problems = Vec::new();
    for (id, dir) in known.iter().filter(|(_, dir)| is_dir(dir)) {
        let inside = known.iter().filter(|(_, other)| other != dir && other.starts_with(dir)).count();
        let shown = dir.display();
        let has_fetched = || store.pins.of(id).is_ok_and(|pins| pins.iter().any(|pin| pin.name.is_fetched()));
        let what = match inside {
            // Checkpoints of other machines were fetched for it.
            _ if !store.knows(id) && has_fetched() => continue,
            _ if !store.knows(id) => format!("{shown} is on record as a project, and has no checkpoint"),
            0 => continue,
            _ if has_marker(dir) => continue,
            1 => format!("{shown} is on record as a project, and another project lies in it"),
            count => format!("{shown} is on record as a project, and {count} other projects lie in it"),
        };
        problems.push(StatusProblem { what, hint: Hint::ForgetProject { dir: dir.clone() } });
    }
    Ok(problems)
}
