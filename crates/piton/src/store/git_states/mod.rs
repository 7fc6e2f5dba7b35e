//! States of the users' own repositories, in `local/git/<project>/`.
//!
//! ```text
//! states/<id>     one state: every small file of the repository
//! files/<id>      contents of small files, compressed
//! held/…          object files, by their path in the repository: hard links, or copies
//! log             when the repository was in which state, and with which checkpoint; a JSON object a line
//! cache           stat data at the last capture
//! logged          checkpoint of the last line in the log
//! listed          object files that are held; one that is missing was lost
//! gone            object files that are held and are not in the repository any more, with the time
//! problem         what the last capture could not save; removed by one that saved everything
//! ```
//!
//! - D11. A state is in the log only after its contents and, unless it says that it was cut short, its objects are held.
//! - D12. A held object file is created by a link or a copy and released by unlinking its name; its bytes, mode, owner and
//!   times are never changed.
//! - D13. Object files that are gone from the repository stay for `keep_days`, unless other held files have every object
//!   in them.
//!
//! All changes are made under the lock of the project.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ProjectLock;
use super::layout::Layout;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId, content_id};
use crate::sys;
use crate::time::{self, Moment};

mod cache;
mod check;
mod held;
mod listed;
mod locks;
mod object_ids;
mod reachable;
mod release;
mod state;

pub(crate) use cache::GitStateCache;
pub(crate) use held::{HeldFile, HoldObjects, HoldResult};
pub(crate) use release::ReleasePolicy;
pub(crate) use state::{FILE_MODE, GitContents, GitState, LINK_MODE, StateFile};

/// Size limit of a small file, such as a large index.
pub(crate) const SMALL_FILE_BYTES_MAX: u64 = 256 << 20;
/// Size limit of a state file and of the files about states.
const STATE_BYTES_MAX: u64 = 256 << 20;
/// Size at which the log is cut to the newest half.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// Part of a turn at which a state was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GitStateMoment {
    /// At a checkpoint that is a row of the list.
    Row,
    /// At a step or at the end of a turn.
    Within,
    /// Before a command changed the repository.
    BeforeChange,
}

/// A change that a command made to a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GitChange {
    /// Kind and name of what was changed.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Path of the small file, escaped.
    pub(crate) path: String,
    /// Value before; `None` if there was nothing.
    pub(crate) from: Option<String>,
    /// Value after.
    pub(crate) to: Option<String>,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GitStateRecord {
    #[serde(flatten, with = "time::parts")]
    pub(crate) time: Moment,
    pub(crate) state: ObjectId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<CheckpointId>,
    pub(crate) moment: GitStateMoment,
    /// True if not every object of the state was held when it was recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_cut: bool,
    /// Changes that followed, in a record of [`GitStateMoment::BeforeChange`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<GitChange>,
}

/// The states of all projects.
#[derive(Debug, Clone)]
pub(crate) struct GitStates {
    pub(super) layout: Arc<Layout>,
}

impl GitStates {
    fn dir(&self, project: &ProjectId) -> PathBuf {
        self.layout.git_state(project)
    }

    fn state_path(&self, project: &ProjectId, id: ObjectId) -> PathBuf {
        self.dir(project).join("states").join(id.to_string())
    }

    fn contents_path(&self, project: &ProjectId, id: ObjectId) -> PathBuf {
        self.dir(project).join("files").join(id.to_string())
    }

    /// Creates the directories of a project.
    pub(crate) fn prepare(&self, _locked: &ProjectLock, project: &ProjectId) -> Result<()> {
        let dir = self.dir(project);
        for name in ["states", "files", "held"] {
            fsx::ensure_dir(&dir.join(name))?;
        }
        Ok(())
    }

    /// Stores the contents of a small file, and returns how a state refers to them.
    pub(crate) fn put_contents(&self, project: &ProjectId, bytes: Vec<u8>) -> Result<GitContents> {
        if bytes.len() <= state::INLINE_BYTES_MAX {
            return Ok(GitContents::Inline(bytes));
        }
        let id = content_id(&bytes);
        let path = self.contents_path(project, id);
        if !fsx::exists(&path)? {
            let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            let packed = out.write_all(&bytes).and_then(|()| out.finish());
            let packed = packed.map_err(|error| Error::io("compress", &path, error))?;
            fsx::replace(&path, &packed, Durability::Synced)?;
        }
        Ok(GitContents::Stored(id))
    }

    /// Returns the contents of a small file. Fails with `Damaged` if they are missing or not those that were stored.
    pub(crate) fn contents(&self, project: &ProjectId, contents: &GitContents) -> Result<Vec<u8>> {
        let id = match contents {
            GitContents::Inline(bytes) => return Ok(bytes.clone()),
            GitContents::Stored(id) => *id,
        };
        let path = self.contents_path(project, id);
        let damaged = |why: &'static str| Error::damaged(format!("read {}", path.display()), why);
        let packed = fsx::read_small(&path, SMALL_FILE_BYTES_MAX * 2)?.ok_or_else(|| damaged("it is missing"))?;
        let mut bytes = Vec::new();
        let inflate = flate2::bufread::ZlibDecoder::new(packed.as_slice());
        let read = inflate.take(SMALL_FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        match read {
            Ok(_) if content_id(&bytes) == id => Ok(bytes),
            _ => Err(damaged("its bytes are not those that were written")),
        }
    }

    /// Stores a state, and returns its id.
    pub(crate) fn put(&self, _locked: &ProjectLock, project: &ProjectId, state: &GitState) -> Result<ObjectId> {
        let (id, bytes) = state.encode();
        let path = self.state_path(project, id);
        if !fsx::exists(&path)? {
            fsx::replace(&path, &bytes, Durability::Synced)?;
        }
        Ok(id)
    }

    /// Returns a state. Fails with `Damaged` if it is missing or corrupt.
    pub(crate) fn get(&self, project: &ProjectId, id: ObjectId) -> Result<GitState> {
        let path = self.state_path(project, id);
        let damaged = |why: &'static str| Error::damaged(format!("read the git state {}", id.short()), why);
        let bytes = fsx::read_small(&path, STATE_BYTES_MAX)?.ok_or_else(|| damaged("it is missing"))?;
        GitState::decode(id, &bytes).ok_or_else(|| damaged("its bytes are not those that were written"))
    }

    /// Returns true if there is a file for a state.
    pub(crate) fn has_state(&self, project: &ProjectId, id: ObjectId) -> bool {
        fsx::exists(&self.state_path(project, id)).unwrap_or(false)
    }

    /// Returns the log, oldest first. Torn and unreadable lines are skipped.
    pub(crate) fn log(&self, project: &ProjectId) -> Vec<GitStateRecord> {
        let bytes = fsx::read_small(&self.dir(project).join("log"), LOG_BYTES_MAX * 8).ok().flatten();
        let bytes = bytes.unwrap_or_default();
        bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    /// D11: appends a line to the log, and syncs it.
    pub(crate) fn append(&self, _locked: &ProjectLock, project: &ProjectId, record: &GitStateRecord) -> Result<()> {
        let path = self.dir(project).join("log");
        let failed = |error| Error::io("write", &path, error);
        let mut file = sys::open_to_append(&path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        if size > LOG_BYTES_MAX {
            drop(file);
            let mut log = self.log(project);
            log.drain(..log.len() / 2);
            log.push(record.clone());
            self.replace_log(project, &log)?;
            self.note_logged(project, record);
            return Ok(());
        }
        let mut line = String::new();
        let mut last = [b'\n'];
        if size > 0 {
            sys::read_exact_at(&file, &mut last, size - 1).map_err(failed)?;
        }
        // A full disk may have torn the previous line.
        line.push_str(if last == *b"\n" { "" } else { "\n" });
        line.push_str(&serde_json::to_string(record).expect("plain data"));
        line.push('\n');
        file.write_all(line.as_bytes()).and_then(|()| sys::sync_file(&file)).map_err(failed)?;
        self.note_logged(project, record);
        Ok(())
    }

    fn replace_log(&self, project: &ProjectId, log: &[GitStateRecord]) -> Result<()> {
        let lines = log.iter().map(|record| serde_json::to_string(record).expect("plain data") + "\n");
        let text: String = lines.collect();
        fsx::replace(&self.dir(project).join("log"), text.as_bytes(), Durability::Synced)
    }

    /// Replaces the ids of checkpoints that were rewritten.
    pub(crate) fn rename_checkpoints(
        &self,
        _locked: &ProjectLock,
        project: &ProjectId,
        renamed: &[(CheckpointId, CheckpointId)],
    ) -> Result<()> {
        let mut log = self.log(project);
        let new_of = |id: CheckpointId| renamed.iter().find(|(old, _)| *old == id).map_or(id, |(_, new)| *new);
        let before = log.clone();
        log.iter_mut().for_each(|record| record.checkpoint = record.checkpoint.map(new_of));
        if log == before { Ok(()) } else { self.replace_log(project, &log) }
    }

    /// Describes what the last capture could not save.
    pub(crate) fn problem(&self, project: &ProjectId) -> Option<String> {
        let text = fsx::read_small(&self.dir(project).join("problem"), 1 << 16).ok().flatten()?;
        Some(String::from_utf8_lossy(&text).trim_end().to_owned()).filter(|text| !text.is_empty())
    }

    /// Records what a capture could not save, or that it saved everything.
    pub(crate) fn note_problem(&self, project: &ProjectId, problem: Option<&str>) -> Result<()> {
        let path = self.dir(project).join("problem");
        match problem {
            Some(problem) if self.problem(project).as_deref() != Some(problem) => {
                fsx::ensure_dir(&self.dir(project))?;
                fsx::replace(&path, problem.as_bytes(), Durability::Synced)
            }
            Some(_) => Ok(()),
            None => fsx::remove_file(&path),
        }
    }

    /// Returns the projects that have git states.
    pub(crate) fn projects(&self) -> Result<Vec<ProjectId>> {
        let names = fsx::names_in(&self.layout.git_states())?;
        Ok(names.iter().filter_map(|name| ProjectId::parse(name.to_str()?)).collect())
    }

    /// Returns the number of distinct states of a project.
    pub(crate) fn count(&self, project: &ProjectId) -> usize {
        self.log(project).iter().map(|record| record.state).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Returns true if a project has git states.
    pub(crate) fn has(&self, project: &ProjectId) -> bool {
        fsx::exists(&self.dir(project).join("log")).unwrap_or(false)
    }

    /// Finds a recorded state by at least 4 digits of its id.
    pub(crate) fn find(&self, project: &ProjectId, name: &str) -> Result<Option<GitStateRecord>> {
        let is_hex = (4..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex {
            return Ok(None);
        }
        let name = name.to_ascii_lowercase();
        let log = self.log(project);
        let mut found: BTreeMap<ObjectId, &GitStateRecord> = BTreeMap::new();
        for record in log.iter().filter(|record| record.state.to_string().starts_with(&name)) {
            found.insert(record.state, record);
        }
        if found.len() > 1 {
            let ids: Vec<_> = found.keys().map(ObjectId::short).collect();
            return Err(Error::new(ErrorKind::Ambiguous, format!("tell which git state {name} is"))
                .because(format!("it may be {}", ids.join(" or ")))
                .with_hint("give more digits"));
        }
        Ok(found.into_values().next().cloned())
    }

    /// Removes everything that is held for a project. Object files are only unlinked.
    pub(crate) fn remove(&self, project: &ProjectId) -> Result<()> {
        remove_dir(&self.dir(project))
    }

    /// Removes everything that is held for any project.
    pub(crate) fn remove_all(&self) -> Result<()> {
        remove_dir(&self.layout.git_states())
    }
}

fn remove_dir(dir: &std::path::Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", dir, error)),
        _ => Ok(()),
    }
}
