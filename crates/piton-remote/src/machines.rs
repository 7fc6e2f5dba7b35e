//! Who has pushed what: machines, their projects, and the checkpoints of one of them.

use std::collections::{BTreeMap, HashSet};

use piton::{CheckpointId, SentCheckpoint, SentProject};
use serde::Serialize;

use crate::error::{RemoteError, RemoteErrorKind, Result};
use crate::local::RemoteState;
use crate::records::{RefKey, RefRecord};
use crate::remote::Remote;

/// Digits of an id that name a checkpoint.
const ID_DIGITS: std::ops::RangeInclusive<usize> = 4..=40;

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
        /// The directory.
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
    /// Returns the identity of a project, the same on every machine: the name that the user gave it, the repository that
    /// it is in, or its directory.
    pub(crate) fn project_identity(&self, directory: &str, repository: Option<&str>) -> String {
        match (self.config.names.get(directory), repository) {
            (Some(name), _) => format!("name:{name}"),
            (None, Some(repository)) => format!("git:{repository}"),
            (None, None) => format!("path:{directory}"),
        }
    }

    /// Returns the name of a project for people.
    pub(crate) fn project_name(&self, project: &SentProject) -> String {
        let directory = project.dir.to_string_lossy();
        let last =
            || project.dir.file_name().map_or_else(|| directory.to_string(), |name| name.to_string_lossy().into());
        self.config.names.get(&*directory).cloned().unwrap_or_else(last)
    }

    /// Reads refs, and notes a ref that is older than one that was seen before, or gone.
    pub(crate) fn read_refs(&self, project: Option<&str>) -> Result<Vec<FoundRef>> {
        let mut found = Vec::new();
        for key in self.ref_keys(project)? {
            if let Some(record) = self.reference(&key)? {
                found.push(FoundRef { key, record });
            }
        }
        let named = found.iter().flat_map(|one| one.record.indexes.iter().cloned()).collect();
        self.local.trim_cache(&project.map_or_else(|| "idx/".to_owned(), |project| format!("idx/{project}/")), &named);
        // A push has the state in memory, and writes it. What is not noted during one is noted the next time.
        if let Some(_held) = self.local.try_lock()? {
            let mut state = self.local.state();
            let known = state.clone();
            note_seen(&mut state, &found, project.is_none());
            if state != known {
                self.local.write_state(&state)?;
            }
        }
        Ok(found)
    }
}

/// Compares refs with those that were seen before, and adds warnings. `is_all` if there are no others.
fn note_seen(state: &mut RemoteState, found: &[FoundRef], is_all: bool) {
    for FoundRef { key, record } in found {
        let seen = state.seen.entry(key.key()).or_default();
        if record.sequence < *seen {
            state.warnings.push(format!(
                "the remote shows an older state of {} on {} than before: it was rolled back",
                record.directory, record.machine
            ));
        }
        *seen = record.sequence;
    }
    if is_all {
        let there: HashSet<_> = found.iter().map(|one| one.key.key()).collect();
        for key in state.seen.keys().filter(|key| !there.contains(*key)) {
            state.warnings.push(format!("checkpoints that were in the remote are gone from it ({key})"));
        }
        state.seen.retain(|key, _| there.contains(key));
    }
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

/// Returns every machine that has pushed, the last one first.
pub fn machines(remote: &Remote) -> Result<Vec<Machine>> {
    let refs = remote.read_refs(None)?;
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
    let refs = remote.read_refs(id.as_deref())?;
    let is_machine = |one: &&FoundRef, names: &BTreeMap<String, String>| {
        names.get(&one.key.writer).is_some_and(|name| name == machine)
    };
    let named = names(&refs);
    let is_project = |one: &&FoundRef| match choice {
        ProjectChoice::Here { .. } => true,
        ProjectChoice::Named(name) => {
            one.record.project == *name || one.record.directory == *name || one.key.project.starts_with(name.as_str())
        }
    };
    let mut fitting: Vec<_> = refs.iter().filter(|one| is_machine(one, &named)).filter(is_project).cloned().collect();
    if let ProjectChoice::Here { directory, .. } = choice
        && fitting.len() > 1
    {
        // Several clones of one repository on that machine: the one in the same directory, else the newest.
        fitting.sort_by_key(|one| (one.record.directory != *directory, std::cmp::Reverse(one.record.secs)));
        fitting.truncate(1);
    }
    match fitting.len() {
        1 => Ok(fitting.remove(0)),
        0 => Err(nothing_fits(remote, machine, choice)?),
        _ => Err(RemoteError::new(RemoteErrorKind::Invalid, format!("tell which project of {machine} is meant"))
            .hint("`piton machines` lists them; give the directory or the id with `--project`")),
    }
}

fn nothing_fits(remote: &Remote, machine: &str, choice: &ProjectChoice) -> Result<RemoteError> {
    let all = machines(remote)?;
    let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
    let Some(found) = all.iter().find(|one| one.name == machine) else {
        let there_are = if names.is_empty() {
            "nothing was pushed yet".to_owned()
        } else {
            format!("there are {}", names.join(", "))
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
