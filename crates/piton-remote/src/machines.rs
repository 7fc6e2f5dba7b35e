//! Machines that have pushed, their projects, and the checkpoints of one machine.

use std::collections::{BTreeMap, HashSet};

use piton::{CheckpointId, SentCheckpoint, SentProject};
use serde::Serialize;

use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::local::{RemoteState, directory_text};
use crate::records::{RefKey, RefRecord};
use crate::remote::Remote;

/// Digits of an id that name a checkpoint; a project needs as many at least.
const ID_DIGITS: std::ops::RangeInclusive<usize> = 4..=40;

/// Characters of the name of a machine.
const NAME_CHARS_MAX: usize = 64;

/// Returns true if a machine can be named so: commands take the name as `NAME/N`.
fn is_machine_name(name: &str) -> bool {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    !is_number && !name.starts_with('-') && !name.contains('/') && name.chars().count() <= NAME_CHARS_MAX
}

/// Returns the name that the user gave a machine. Fails with `Invalid` if it is empty, too long or a number, begins with a
/// dash or has a slash.
pub(crate) fn machine_name(name: &str) -> Result<String> {
    if is_machine_name(name) {
        return Ok(name.to_owned());
    }
    Err(RemoteError::new(RemoteErrorKind::Invalid, format!("use {name:?} as the name of a machine"))
        .hint("a name has 1 to 64 characters, not only digits, no slash and no dash in front"))
}

/// Returns the name of a machine that the user gave none, from that of its host.
pub(crate) fn machine_name_of_host(host: &str) -> String {
    if is_machine_name(host) {
        return host.to_owned();
    }
    format!("machine-{}", host.replace('/', "-")).chars().take(NAME_CHARS_MAX).collect()
}

/// A machine that has pushed.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Name of the machine. If several have the same, some digits of their ids follow.
    pub name: String,
    /// True for this machine.
    pub this: bool,
    /// Time of its last push in seconds since 1970, by its own clock.
    pub last_seen_secs: i64,
    /// Projects that it has pushed.
    pub projects: Vec<MachineProject>,
}

/// A project of a machine.
#[derive(Debug, Clone, Serialize)]
pub struct MachineProject {
    /// Id of the project in the remote, the same on every machine.
    pub id: String,
    /// Name of the project.
    pub name: String,
    /// Its directory on that machine.
    pub directory: String,
    /// Number of its rows.
    pub checkpoints: usize,
}

/// Choice of a project.
#[derive(Debug, Clone)]
pub enum ProjectChoice {
    /// The project of a directory.
    Here {
        /// The directory; `bytes:` and hexadecimal digits if it is not UTF-8.
        directory: String,
        /// Identity of its git repository.
        repository: Option<String>,
    },
    /// Name, id or directory of a project, as `machines` shows them.
    Named(String),
}

/// Checkpoints of a machine.
#[derive(Debug, Clone, Serialize)]
pub struct RemoteList {
    /// Name of the machine.
    pub machine: String,
    /// The project.
    pub project: MachineProject,
    /// Its rows, newest first: the first is number 1.
    pub rows: Vec<SentCheckpoint>,
}

/// A ref and where it is.
#[derive(Debug, Clone)]
pub(crate) struct FoundRef {
    pub(crate) key: RefKey,
    pub(crate) record: RefRecord,
}

impl Remote {
    /// Returns the identity of a project, by the names that the user gave on this machine.
    pub(crate) fn project_identity(&self, directory: &str, repository: Option<&str>) -> String {
        self.config.project_identity(directory, repository)
    }

    /// Returns the name of a project for people.
    pub(crate) fn project_name(&self, project: &SentProject) -> String {
        let last = project.dir.file_name().unwrap_or(project.dir.as_os_str());
        let named = self.config.names.get(&directory_text(&project.dir)).cloned();
        named.unwrap_or_else(|| last.to_string_lossy().into_owned())
    }

    /// Reads refs, and notes a ref that is older than one that was seen before, or gone. A corrupt one does not hide the
    /// others.
    pub(crate) fn read_refs(&self, project: Option<&str>) -> Result<FoundRefs> {
        let mut refs = FoundRefs::default();
        for key in self.ref_keys(project)? {
            match self.reference(&key) {
                Ok(record) => refs.found.extend(record.map(|record| FoundRef { key, record })),
                Err(error) if error.kind == RemoteErrorKind::Damaged => refs.corrupt.push((key, error)),
                Err(error) => return Err(error),
            }
        }
        let there = refs.keys();
        if project.is_none() && self.local.state().seen.keys().any(|key| !there.contains(key)) {
            self.check_repository()?;
        }
        let named = refs.found.iter().flat_map(|one| one.record.indexes.iter().cloned()).collect();
        self.local.trim_cache(&project.map_or_else(|| "idx/".to_owned(), |project| format!("idx/{project}/")), &named);
        for (_, error) in &refs.corrupt {
            self.local.notify(format!("some checkpoints are not shown: {error}"));
        }
        // A push has the state in memory, and writes it. What is not noted during one is noted the next time.
        let held = self.local.try_lock()?;
        let mut state = self.local.state();
        let known = state.clone();
        for warning in note_seen(&mut state, &refs, project.is_none()) {
            self.local.notify(warning.clone());
            state.warnings.push(warning);
        }
        if held.is_some() && state != known {
            self.local.write_state(&state)?;
        }
        Ok(refs)
    }
}

/// Refs as they were read.
#[derive(Default)]
pub(crate) struct FoundRefs {
    pub(crate) found: Vec<FoundRef>,
    /// Those that cannot be read.
    corrupt: Vec<(RefKey, RemoteError)>,
}

impl FoundRefs {
    fn keys(&self) -> HashSet<String> {
        self.found.iter().map(|one| &one.key).chain(self.corrupt.iter().map(|(key, _)| key)).map(RefKey::key).collect()
    }
}

/// Compares refs with those that were seen before, and returns warnings. `is_all` if there are no others.
fn note_seen(state: &mut RemoteState, refs: &FoundRefs, is_all: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for FoundRef { key, record } in &refs.found {
        let seen = state.seen.entry(key.key()).or_default();
        if record.sequence < *seen {
            warnings.push(format!(
                "the remote shows an older state of {} on {} than before: it was rolled back",
                record.directory, record.machine
            ));
        }
        *seen = record.sequence;
    }
    if is_all {
        let there = refs.keys();
        for key in state.seen.keys().filter(|key| !there.contains(*key)) {
            warnings.push(format!("checkpoints that were in the remote are gone from it ({key})"));
        }
        state.seen.retain(|key, _| there.contains(key));
    }
    warnings
}

/// Returns the display name of each writer.
fn names(refs: &[FoundRef]) -> BTreeMap<String, String> {
    let mut by_writer: BTreeMap<String, &FoundRef> = BTreeMap::new();
    for one in refs {
        let newest = by_writer.entry(one.key.writer.clone()).or_insert(one);
        if one.record.secs > newest.record.secs {
            *newest = one;
        }
    }
    let same = |name: &str| by_writer.values().filter(|one| one.record.machine == name).count();
    let shown = |writer: &str, one: &FoundRef| match same(&one.record.machine) {
        1 => one.record.machine.clone(),
        _ => format!("{}-{}", one.record.machine, &writer[..4.min(writer.len())]),
    };
    by_writer.iter().map(|(writer, one)| (writer.clone(), shown(writer, one))).collect()
}

fn project_of(one: &FoundRef) -> MachineProject {
    MachineProject {
        id: one.key.project.clone(),
        name: one.record.project.clone(),
        directory: one.record.directory.clone(),
        checkpoints: one.record.checkpoints.iter().filter(|checkpoint| checkpoint.is_row).count(),
    }
}

/// Returns the refs without those that a later one of the same directory replaces: they were written when the project had
/// another name, or another repository.
fn without_replaced(mut refs: Vec<FoundRef>) -> Vec<FoundRef> {
    let age = |one: &FoundRef| (one.record.secs, one.record.checkpoints.first().map(|newest| newest.secs));
    refs.sort_by_key(|one| std::cmp::Reverse(age(one)));
    let mut places = HashSet::new();
    refs.retain(|one| places.insert((one.key.writer.clone(), one.key.place.clone())));
    refs
}

/// Returns every machine that has pushed, the last one first.
pub fn machines(remote: &Remote) -> Result<Vec<Machine>> {
    remote.check_repository()?;
    let refs = without_replaced(remote.read_refs(None)?.found);
    let mut machines: Vec<Machine> = Vec::new();
    for (writer, name) in names(&refs) {
        let own: Vec<_> = refs.iter().filter(|one| one.key.writer == writer).collect();
        machines.push(Machine {
            name,
            this: writer == remote.config.writer,
            last_seen_secs: own.iter().map(|one| one.record.secs).max().unwrap_or_default(),
            projects: own.iter().map(|one| project_of(one)).collect(),
        });
    }
    machines.sort_by_key(|machine| std::cmp::Reverse(machine.last_seen_secs));
    Ok(machines)
}

/// Finds the ref of a project of a machine. Fails with `NotFound`, naming what there is.
pub(crate) fn find(remote: &Remote, machine: &str, choice: &ProjectChoice) -> Result<FoundRef> {
    let id = match choice {
        ProjectChoice::Here { directory, repository } => {
            Some(remote.name("project", &remote.project_identity(directory, repository.as_deref())))
        }
        ProjectChoice::Named(_) => None,
    };
    let of_machine = |refs: &[FoundRef]| -> Vec<FoundRef> {
        let names = names(refs);
        refs.iter().filter(|one| names.get(&one.key.writer).is_some_and(|name| name == machine)).cloned().collect()
    };
    let FoundRefs { found, mut corrupt } = remote.read_refs(id.as_deref())?;
    let mut fitting = of_machine(&found);
    if let Some(id) = id.filter(|_| fitting.is_empty()) {
        // `machines` names machines by the refs of all projects, which are read only if those of this one are not enough.
        let all = remote.read_refs(None)?;
        fitting = of_machine(&all.found);
        corrupt = all.corrupt;
        fitting.retain(|one| one.key.project == id);
    }
    match choice {
        // Several clones of one repository on that machine: the one in the same directory, else the newest.
        ProjectChoice::Here { directory, .. } => {
            let place = remote.name("place", directory);
            fitting.sort_by_key(|one| (one.key.place != place, std::cmp::Reverse(one.record.secs)));
            fitting.truncate(1);
        }
        ProjectChoice::Named(name) => {
            let current = named(without_replaced(fitting.clone()), name);
            fitting = if current.is_empty() { named(fitting, name) } else { current };
        }
    }
    match fitting.len() {
        1 => Ok(fitting.remove(0)),
        0 => Err(corrupt
            .into_iter()
            .next()
            .map_or_else(|| nothing_fits(remote, machine, choice), |(_, error)| Ok(error))?),
        _ => Err(RemoteError::new(RemoteErrorKind::Invalid, format!("tell which project of {machine} is meant"))
            .hint("`piton machines` lists them; give the directory or the id with `--project`")),
    }
}

/// Returns the refs of projects with this name or directory; if there are none, those whose id it is, or begins with it.
fn named(refs: Vec<FoundRef>, name: &str) -> Vec<FoundRef> {
    let is_named = |one: &FoundRef| one.record.project == name || one.record.directory == name;
    let (named, mut others): (Vec<_>, Vec<_>) = refs.into_iter().partition(is_named);
    if !named.is_empty() {
        return named;
    }
    let is_id = name.len() >= *ID_DIGITS.start() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let prefix = name.to_ascii_lowercase();
    others.retain(|one| is_id && one.key.project.starts_with(&prefix));
    others
}

fn nothing_fits(remote: &Remote, machine: &str, choice: &ProjectChoice) -> Result<RemoteError> {
    let all = machines(remote)?;
    let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
    let Some(found) = all.iter().find(|one| one.name == machine) else {
        let there_are = if names.is_empty() {
            "nothing was pushed yet".to_owned()
        } else {
            format!("the remote has {}", names.join(", "))
        };
        return Ok(RemoteError::new(RemoteErrorKind::NotFound, format!("find the machine {machine}: {there_are}"))
            .hint("`piton machines` lists them"));
    };
    let projects: Vec<_> = found.projects.iter().map(|one| format!("{} ({})", one.name, one.directory)).collect();
    let what = match choice {
        ProjectChoice::Here { .. } => "this project".to_owned(),
        ProjectChoice::Named(name) => format!("a project {name}"),
    };
    Ok(RemoteError::new(
        RemoteErrorKind::NotFound,
        format!("find {what} on {machine}: it has pushed {}", projects.join(", ")),
    )
    .hint("`--project NAME` chooses one of them"))
}

/// Returns the rows of a project of a machine.
pub fn list_checkpoints(remote: &Remote, machine: &str, choice: &ProjectChoice) -> Result<RemoteList> {
    let found = find(remote, machine, choice)?;
    let project = project_of(&found);
    let rows = found.record.checkpoints.into_iter().filter(|one| one.is_row).collect();
    Ok(RemoteList { machine: machine.to_owned(), project, rows })
}

/// Returns the checkpoint that a number, digits of an id or a mark name.
pub(crate) fn checkpoint<'a>(record: &'a RefRecord, name: &str) -> Result<&'a SentCheckpoint> {
    let rows = || record.checkpoints.iter().filter(|one| one.is_row);
    if let Some(row) = name.parse::<usize>().ok().and_then(|number| rows().nth(number.checked_sub(1)?)) {
        return Ok(row);
    }
    if let Some(marked) = record.checkpoints.iter().find(|one| one.marks.iter().any(|mark| mark == name)) {
        return Ok(marked);
    }
    let is_id = ID_DIGITS.contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let prefix = name.to_ascii_lowercase();
    let mut found = record.checkpoints.iter().filter(|one| is_id && one.id.to_string().starts_with(&prefix));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => {
            Err(RemoteError::new(RemoteErrorKind::Invalid, format!("tell which checkpoint {name} is"))
                .hint("give more digits"))
        }
        _ => {
            let what =
                format!("find the checkpoint {name}: {} has {} of {}", record.machine, rows().count(), record.project);
            Err(RemoteError::new(RemoteErrorKind::NotFound, what).hint("`piton rollback --machine NAME` lists them"))
        }
    }
}

/// Returns the ids of all checkpoints in a ref.
pub(crate) fn ids(record: &RefRecord) -> impl Iterator<Item = CheckpointId> + '_ {
    record.checkpoints.iter().map(|one| one.id)
}
