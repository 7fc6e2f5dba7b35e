//! What a restore is about to do, on the disk before it does it: a crash in the middle leaves the intent behind, and the
//! next command can say so, finish it or take it back.

use serde_json::{Value, json};

use super::{ProjectLock, Store};
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::relpath::{escape, unescape};

const INTENT_BYTES_MAX: u64 = 16 << 20;

/// A restore that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// What is being restored.
    pub target: CheckpointId,
    /// What there was before.
    pub safety: CheckpointId,
    /// Only these paths; all, if there are none.
    pub paths: Vec<Vec<u8>>,
    /// Random text in the names of the temporary files of each attempt, noted before the first of them is made. A file
    /// without one of them in its name is not the restore's own.
    pub tokens: Vec<String>,
}

impl Store {
    /// The restore of a project that was cut short, if one was.
    pub fn interrupted_restore(&self, project: &ProjectId) -> Result<Option<Intent>> {
        let path = self.layout.intent(project);
        let Some(bytes) = fsx::read_small(&path, INTENT_BYTES_MAX)? else {
            return Ok(None);
        };
        let intent = serde_json::from_slice(&bytes).ok().and_then(|value: Value| {
            let id = |key: &str| ObjectId::from_hex(value.get(key)?.as_str()?.as_bytes());
            let paths = value.get("paths")?.as_array()?.iter().map(|path| unescape(path.as_str()?.as_bytes()));
            let (target, safety) = (id("target")?, id("safety")?);
            // Without the key, the id of the safety checkpoint was the token.
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

    /// Notes a restore before it begins. On return it outlives a power cut.
    pub(crate) fn note_intent(&self, _held: &ProjectLock, project: &ProjectId, intent: &Intent) -> Result<()> {
        let paths: Vec<_> = intent.paths.iter().map(|path| escape(path)).collect();
        let (target, safety) = (intent.target.to_string(), intent.safety.to_string());
        let value = json!({"target": target, "safety": safety, "paths": paths, "tokens": intent.tokens});
        let path = self.layout.intent(project);
        fsx::ensure_dir(path.parent().expect("an intent is in a directory"))?;
        fsx::replace(&path, value.to_string().as_bytes(), Durability::Synced)
    }

    /// The restore is over.
    pub(crate) fn clear_intent(&self, _held: &ProjectLock, project: &ProjectId) -> Result<()> {
        let path = self.layout.intent(project);
        fsx::remove_file(&path)?;
        fsx::sync_dir(path.parent().expect("an intent is in a directory"))
    }
}
