//! Local knowledge about the remote, without network access: the files that `piton-remote` keeps in the base.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use piton::{CheckpointId, Error, ErrorKind, Moment, Outgoing, PromptText, Store, project_identity, remote_dir};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::columns::counted;
use crate::hints::Problem;
use crate::output::local;
use crate::platform;

const CONFIG: &str = "config.json";
const STATE: &str = "state.json";
const LOCK: &str = "push.lock";
const START_LOCK: &str = "start.lock";
/// Start of the text of a failure for lack of credentials.
const NO_CREDENTIALS: &str = "cannot find credentials";

/// Returns true if the store has a remote. Costs one stat.
pub(crate) fn is_configured(store: &Store) -> bool {
    remote_dir(store).join(CONFIG).exists()
}

/// Returns the lock that a process which pushes in the background has as its stdin, or `None` if another process has it:
/// that one has not read the store yet, and pushes what there is now. It unlocks the file when it begins.
pub(crate) fn lock_start(store: &Store) -> Option<File> {
    let file = platform::open_lock(&remote_dir(store).join(START_LOCK)).ok()?;
    file.try_lock().is_ok().then_some(file)
}

/// Number of checkpoints of a project that are not pushed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UnpushedProject {
    /// directory of the project
    pub(crate) directory: String,
    /// number of its checkpoints that are not pushed yet
    pub(crate) checkpoints: usize,
}

/// The remote as this machine knows it.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KnownRemote {
    /// place of the remote
    pub(crate) url: String,
    /// name of this machine there
    pub(crate) machine: String,
    /// projects with checkpoints that are not pushed yet
    pub(crate) unpushed: Vec<UnpushedProject>,
    /// time of the last push that succeeded, or null
    pub(crate) pushed: Option<Moment>,
    /// why the last push failed, or null if it did not
    pub(crate) failure: Option<String>,
    /// time before which no automatic push is tried, or null
    pub(crate) retry: Option<Moment>,
    /// findings to look at, such as a remote that was rolled back; until `piton status --ack`
    pub(crate) warnings: Vec<String>,
}

#[derive(Deserialize)]
struct RemoteConfigPart {
    location: LocationPart,
    machine: String,
    /// Names of projects that the user chose, by directory.
    #[serde(default)]
    names: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct LocationPart {
    url: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RemoteStatePart {
    refs: BTreeMap<String, RefPart>,
    failure: String,
    retry_secs: i64,
    pushed_secs: i64,
    warnings: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RefPart {
    directory: String,
    /// Identity under which the project was pushed; empty if an older version wrote it.
    identity: String,
    checkpoints: Vec<CheckpointId>,
}

/// Returns the time, unless it is 0.
pub(crate) fn moment(secs: i64) -> Option<Moment> {
    (secs > 0).then(|| local(Moment { secs, nanos: 0, offset_secs: 0 }))
}

fn unless_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl KnownRemote {
    /// Returns the remote of a store, or `None` if it has none. Fails if its files cannot be read.
    pub(crate) fn of(store: &Store) -> piton::Result<Option<Self>> {
        if !is_configured(store) {
            return Ok(None);
        }
        let dir = remote_dir(store);
        let config: RemoteConfigPart =
            read(&dir.join(CONFIG))?.ok_or_else(|| unreadable(&dir.join(CONFIG), &"it is gone"))?;
        let state: RemoteStatePart = read(&dir.join(STATE))?.unwrap_or_default();
        Ok(Some(Self {
            unpushed: unpushed(store, &config, &state)?,
            url: config.location.url,
            machine: config.machine,
            pushed: moment(state.pushed_secs),
            failure: unless_empty(state.failure),
            retry: moment(state.retry_secs),
            warnings: state.warnings,
        }))
    }

    /// Returns what the user has to know or to do.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Some(failure) = &self.failure {
            let why = match failure.strip_prefix(NO_CREDENTIALS) {
                Some(detail) => format!("not pushed: no credentials in this environment{detail}"),
                None => format!("not pushed: {failure}"),
            };
            let when =
                self.retry.map_or_else(String::new, |at| format!("it is tried again after {}; ", at.date_and_time()));
            problems.push(Problem::new(why, format!("{when}`piton push` tries it now")));
        }
        for warning in &self.warnings {
            let hint = "`piton verify --remote` checks the remote; `piton status --ack` once you have seen this";
            problems.push(Problem::new(format!("remote: {warning}"), hint));
        }
        problems
    }

    /// Returns a line for people.
    pub(crate) fn line(&self) -> String {
        format!("{} (this machine is {}); {}", self.url, self.machine, unpushed_text(&self.unpushed))
    }
}

/// Returns the place of the remote if one of these checkpoints was pushed to it by this machine.
pub(crate) fn holder_of(store: &Store, ids: &[CheckpointId]) -> piton::Result<Option<String>> {
    let dir = remote_dir(store);
    let Some(config) = read::<RemoteConfigPart>(&dir.join(CONFIG))? else { return Ok(None) };
    let state: RemoteStatePart = read(&dir.join(STATE))?.unwrap_or_default();
    let mut pushed = state.refs.values().flat_map(|own| &own.checkpoints);
    Ok(pushed.any(|id| ids.contains(id)).then_some(config.location.url))
}

/// Says how much is not pushed yet.
fn unpushed_text(unpushed: &[UnpushedProject]) -> String {
    let count: usize = unpushed.iter().map(|one| one.checkpoints).sum();
    match unpushed.len() {
        0 => "everything is pushed".to_owned(),
        projects => {
            format!("not pushed yet: {} of {}", counted(count, "checkpoint"), counted(projects, "project"))
        }
    }
}

/// Returns a directory as `piton-remote` writes it in its state: in hexadecimal if it is not UTF-8.
fn directory_text(dir: &Path) -> String {
    let hex = || dir.as_os_str().as_encoded_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    dir.to_str().map_or_else(|| format!("bytes:{}", hex()), str::to_owned)
}

fn unpushed(store: &Store, config: &RemoteConfigPart, state: &RemoteStatePart) -> piton::Result<Vec<UnpushedProject>> {
    let outgoing = Outgoing::open(store)?;
    let mut unpushed = Vec::new();
    for project in outgoing.projects()? {
        let own_text = directory_text(&project.dir);
        let name = config.names.get(&own_text).map(String::as_str);
        let identity = project_identity(name, project.repository.as_deref(), &own_text);
        // Other machines do not find what was pushed under another name.
        let is_its =
            |own: &&RefPart| own.directory == own_text && (own.identity == identity || own.identity.is_empty());
        let pushed: Vec<_> = state.refs.values().filter(is_its).collect();
        let is_new = |id: &CheckpointId| !pushed.iter().any(|pushed| pushed.checkpoints.contains(id));
        // A push says that a project cannot be read; what is known about the others is shown all the same.
        let Ok(all) = outgoing.checkpoints(&project.id, PromptText::None) else { continue };
        let checkpoints = all.iter().filter(|one| is_new(&one.id)).count();
        if checkpoints > 0 {
            let directory = project.dir.to_string_lossy().into_owned();
            unpushed.push(UnpushedProject { directory, checkpoints });
        }
    }
    Ok(unpushed)
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Damaged, "read")
        .with_path(path)
        .because(why.to_string())
        .with_hint("`piton remote remove` forgets the remote here; then add it again")
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> piton::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| unreadable(path, &error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// Removes the warnings that the user has seen. Returns their number. Fails with `Busy` while a push runs, which writes
/// the same file.
pub(crate) fn acknowledge(store: &Store) -> piton::Result<usize> {
    let dir = remote_dir(store);
    let path = dir.join(STATE);
    let failed = |error: std::io::Error| Error::io("acknowledge the warnings in", &path, error);
    let known: Option<RemoteStatePart> = if is_configured(store) { read(&path)? } else { None };
    if known.is_none_or(|state| state.warnings.is_empty()) {
        return Ok(0);
    }
    let lock = platform::open_lock(&dir.join(LOCK)).map_err(failed)?;
    if lock.try_lock().is_err() {
        return Err(Error::new(ErrorKind::Busy, "acknowledge the warnings about the remote")
            .because("a push is running")
            .with_hint("try again when it has ended"));
    }
    let Some(mut state) = read::<Value>(&path)? else { return Ok(0) };
    let seen = state["warnings"].as_array().map_or(0, Vec::len);
    state["warnings"] = Value::Array(Vec::new());
    let mut file = tempfile::Builder::new().prefix("tmp_").tempfile_in(&dir).map_err(failed)?;
    file.write_all(state.to_string().as_bytes()).and_then(|()| piton::sync_file(file.as_file())).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(seen)
}
