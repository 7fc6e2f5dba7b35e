//! The store at a glance: what it takes, for whom, and what is wrong. Changes nothing, and shows what it can of a store
//! that is damaged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{ErrorKind, Result};
use crate::prune::{KnownProject, Presence, mistaken_projects};
use crate::store::{Archive, Checkpoint, DAMAGED_HINT, Store};
use crate::time::Moment;

/// One project.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectStatus {
    /// What is on record.
    pub project: KnownProject,
    /// How many checkpoints it has.
    pub checkpoints: usize,
    /// What it holds that no other project does.
    pub bytes_alone: u64,
}

/// Something that is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusProblem {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

/// The store at a glance.
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
/// # let request = piton::Request { reason: "before patch".to_owned(), ..Default::default() };
/// # let (settings, progress) = (piton::Settings { enabled: true, ..Default::default() }, piton::Progress::default());
/// # piton::take(&store, &project, &request, &settings, now, &progress)?;
/// let status = Status::of(&store, None)?;
/// assert_eq!((status.projects.len(), status.problems.len()), (1, 0));
/// assert!(status.store_bytes > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The directory that holds everything.
    pub base: PathBuf,
    /// What the store takes on the disk.
    pub store_bytes: u64,
    /// What older layouts left takes.
    pub legacy_bytes: u64,
    /// What nothing refers to any more: the next maintenance gives it back.
    pub reclaimable_bytes: u64,
    /// The projects, the one that was used last first.
    pub projects: Vec<ProjectStatus>,
    /// What older layouts left.
    pub archives: Vec<Archive>,
    /// What is wrong.
    pub problems: Vec<StatusProblem>,
}

impl Status {
    /// Looks at a base in which there is no store.
    pub fn of_base(base: &Store) -> Result<Self> {
        Ok(Self {
            base: base.base().to_owned(),
            store_bytes: 0,
            legacy_bytes: base.legacy_bytes()?,
            reclaimable_bytes: 0,
            projects: Vec::new(),
            archives: base.archives()?,
            problems: Vec::new(),
        })
    }

    /// Looks at everything.
    pub fn of(store: &Store, total_bytes_max: Option<u64>) -> Result<Self> {
        let mut problems = Vec::new();
        let mut note = |what: String, hint: &str| {
            let problem = StatusProblem { what, hint: hint.to_owned() };
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        };
        // Locks the store by itself, for a moment at a time.
        let inventory = match store.inventory() {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                note(error.to_string(), DAMAGED_HINT);
                store.inventory_of(store.recorded_projects()?)?
            }
            inventory => inventory?,
        };
        let held = store.share()?;
        let holdings = store.holdings(&held).unwrap_or_else(|error| {
            note(error.to_string(), DAMAGED_HINT);
            Default::default()
        });
        if holdings.missing > 0 {
            note(
                match holdings.missing {
                    1 => "1 object is missing or damaged".to_owned(),
                    count => format!("{count} objects are missing or damaged"),
                },
                "`piton verify` shows which checkpoints that concerns, `piton repair` mends what can be mended",
            );
        }
        let mut projects = Vec::new();
        for project in inventory.projects {
            let shown = project.dir.as_ref().map_or_else(|| project.id.to_string(), |dir| dir.display().to_string());
            match store.interrupted_restore(&project.id) {
                Ok(None) => {}
                Ok(Some(_)) => note(
                    format!("a restore of {shown} was cut short"),
                    "in that directory, `piton restore --continue` finishes it, `piton restore --abort` goes back",
                ),
                Err(error) => note(error.to_string(), error.hint().unwrap_or_default()),
            }
            if project.presence == Presence::Unknown {
                note(
                    format!("{shown} is not to be seen, and neither is the disk that it was on"),
                    "its checkpoints are kept; mount the disk, or wait until they are pruned by age",
                );
            }
            let (checkpoints, bytes_alone) = holdings.projects.get(&project.id).copied().unwrap_or_default();
            projects.push(ProjectStatus { project, checkpoints, bytes_alone });
        }
        for problem in mistaken_projects(store).unwrap_or_default() {
            note(problem.what, &problem.hint);
        }
        projects.sort_by(|a, b| b.project.last_touch.unwrap_or(0.0).total_cmp(&a.project.last_touch.unwrap_or(0.0)));
        let store_bytes = store.count_bytes()?;
        if total_bytes_max.is_some_and(|bytes_max| store_bytes > bytes_max) {
            note("the store is larger than max_total_size_mb".to_owned(), "the next take or `piton prune` mends it");
        }
        Ok(Self {
            base: store.base().to_owned(),
            store_bytes,
            legacy_bytes: store.legacy_bytes()?,
            reclaimable_bytes: holdings.dead_bytes,
            projects,
            archives: inventory.archives,
            problems,
        })
    }
}

/// The last that an agent told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// When.
    pub time: Moment,
    /// What: an event, or the reason of the checkpoint that was taken for it.
    pub what: String,
}

/// The last that each agent told of, by what is remembered of its sessions and by the newest checkpoint of each project.
/// Calls for which nothing was to be done leave nothing behind.
pub fn last_heard(store: &Store) -> BTreeMap<String, Heard> {
    let notes = store.turn_notes().into_iter().map(|(key, note)| {
        let what = match note.turn {
            None => "a session began",
            Some(_) if note.is_unprompted => "a tool",
            Some(_) => "a prompt",
        };
        let time = Moment { secs: note.time_secs, nanos: 0, offset_secs: 0 };
        (key.agent, Heard { time, what: what.to_owned() })
    });
    let mut last: BTreeMap<String, Heard> = BTreeMap::new();
    for (agent, heard) in notes.chain(newest_checkpoints(store).unwrap_or_default()) {
        // At the same second, the checkpoint says more.
        if last.get(&agent).is_none_or(|known| known.time.secs <= heard.time.secs) {
            last.insert(agent, heard);
        }
    }
    last
}

fn newest_checkpoints(store: &Store) -> Result<Vec<(String, Heard)>> {
    let held = store.share()?;
    let objects = store.objects(&held)?;
    let mut all = Vec::new();
    for (project, id) in store.newest_of_all()? {
        let Ok(newest) = objects.checkpoint(id) else { continue };
        let mut newest = [newest];
        store.assign_turns(&project, &mut newest);
        let [Checkpoint { turns, facts, time, reason, .. }] = newest;
        all.extend(facts.origin.agent.map(|agent| (agent, Heard { time, what: reason })));
        // In the order of time, so that the last of each agent counts.
        let told = turns.into_iter().rev().filter_map(|turn| {
            let what = turn.headline();
            Some((turn.agent?, Heard { time: turn.time.unwrap_or(time), what }))
        });
        all.extend(told);
    }
    Ok(all)
}
