//! The intent of a restore, written to disk before the restore changes anything: a crash leaves it behind, and the next
//! command can report the restore, finish it or undo it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ProjectLock;
use super::layout::{Layout, projects_by_file};
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::relpath::{escape, unescape};

const INTENT_BYTES_MAX: u64 = 16 << 20;

/// A restore in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Checkpoint that is being restored.
    pub target: CheckpointId,
    /// Checkpoint of the state before the restore.
    pub safety: CheckpointId,
    /// Paths to restore; all if empty.
    pub paths: Vec<Vec<u8>>,
    /// Random text in the names of the temporary files of each attempt, noted before the first of them is made. A file
    /// without one of them in its name does not belong to the restore.
    pub tokens: Vec<String>,
}

/// The intents of the restores in progress.
#[derive(Debug, Clone)]
pub(crate) struct Intents {
    pub(super) layout: Arc<Layout>,
}

impl Intents {
    /// Returns the interrupted restore of a project, if there is one. Fails with `Damaged` if the file is corrupt.
    pub(crate) fn get(&self, project: &ProjectId) -> Result<Option<Intent>> {
        let path = self.layout.intent(project);
        let Some(bytes) = fsx::read_small(&path, INTENT_BYTES_MAX)? else {
            return Ok(None);
        };
        let intent = serde_json::from_slice(&bytes).ok().and_then(|value: Value| {
            let id = |key: &str| ObjectId::from_hex(value.get(key)?.as_str()?.as_bytes());
            let paths = value.get("paths")?.as_array()?.iter().map(|path| unescape(path.as_str()?.as_bytes()));
            let (target, safety) = (id("target")?, id("safety")?);
            // Intents without the key use the id of the safety checkpoint as the token.
            let tokens = match value.get("tokens") {
                None => vec![safety.short()],
                Some(tokens) => tokens.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            };
            Some(Intent { target, safety, paths: paths.collect::<Option<_>>()?, tokens })
        });
        match intent {
            Some(intent) => Ok(Some(intent)),
            None => Err(Error::damaged(format!("read {}", path.display()), "it does not say what was to be restored")
                .with_hint(
                    "`piton repair` puts it aside; `piton rollback` shows the safety checkpoint of that restore",
                )),
        }
    }

    /// Returns every project with an interrupted restore.
    pub(super) fn projects(&self) -> Result<Vec<ProjectId>> {
        projects_by_file(&self.layout.intents())
    }

    /// Writes the intent of a restore. It is synced on return.
    pub(crate) fn note(&self, _held: &ProjectLock, project: &ProjectId, intent: &Intent) -> Result<()> {
        let paths: Vec<_> = intent.paths.iter().map(|path| escape(path)).collect();
        let (target, safety) = (intent.target.to_string(), intent.safety.to_string());
        let value = json!({"target": target, "safety": safety, "paths": paths, "tokens": intent.tokens});
        let path = self.layout.intent(project);
        fsx::ensure_dir(path.parent().expect("an intent is in a directory"))?;
        fsx::replace(&path, value.to_string().as_bytes(), Durability::Synced)
    }

    /// Removes the intent of a restore that is complete.
    pub(crate) fn clear(&self, _held: &ProjectLock, project: &ProjectId) -> Result<()> {
        let path = self.layout.intent(project);
        fsx::remove_file(&path)?;
        fsx::sync_dir(path.parent().expect("an intent is in a directory"))
    }
}
