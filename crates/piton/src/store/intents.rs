//! The intent of a restore, synced to disk before the restore changes anything. A crash leaves it behind, so that the
//! next command can report the restore, finish it or abort it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ProjectLock;
use super::layout::{Layout, projects_by_file};
use crate::error::{Error, Result};
use crate::fsx::{self, Durability};
use crate::hint::Hint;
use crate::id::{CheckpointId, ProjectId};
use crate::json::escaped;

const INTENT_BYTES_MAX: u64 = 16 << 20;

/// A restore in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Intent {
    /// Checkpoint that is being restored.
    pub target: CheckpointId,
    /// Checkpoint of the state before the restore.
    pub safety: CheckpointId,
    /// Paths to restore; all if empty.
    #[serde(with = "escaped::paths")]
    pub paths: Vec<Vec<u8>>,
    /// Random text in the names of the temporary files of each attempt, noted before the first of them is made. A file
    /// without one of them in its name does not belong to the restore. Intents without the key use the id of the safety
    /// checkpoint.
    #[serde(default)]
    pub tokens: Vec<String>,
    /// Keys of later versions.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
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
        let keys: Map<String, Value> = serde_json::from_slice(&bytes).unwrap_or_default();
        let has_tokens = keys.contains_key("tokens");
        let mut intent = serde_json::from_value::<Intent>(keys.into()).ok();
        if let Some(intent) = intent.as_mut().filter(|_| !has_tokens) {
            intent.tokens = vec![intent.safety.short()];
        }
        match intent {
            Some(intent) => Ok(Some(intent)),
            None => Err(Error::damaged(format!("read {}", path.display()), "it does not say what was to be restored")
                .with_hint(Hint::RepairIntent)),
        }
    }

    /// Returns every project with an interrupted restore.
    pub(super) fn projects(&self) -> Result<Vec<ProjectId>> {
        projects_by_file(&self.layout.intents())
    }

    /// Writes the intent of a restore. It is synced on return.
    pub(crate) fn note(&self, _held: &ProjectLock, project: &ProjectId, intent: &Intent) -> Result<()> {
        let bytes = serde_json::to_vec(intent).expect("plain data");
        let path = self.layout.intent(project);
        fsx::ensure_dir(path.parent().expect("an intent is in a directory"))?;
        fsx::replace(&path, &bytes, Durability::Synced)
    }

    /// Removes the intent of a restore that is complete.
    pub(crate) fn clear(&self, _held: &ProjectLock, project: &ProjectId) -> Result<()> {
        let path = self.layout.intent(project);
        fsx::remove_file(&path)?;
        fsx::sync_dir(path.parent().expect("an intent is in a directory"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::store;

    #[test]
    fn a_restore_at_work_does_not_count_as_interrupted() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let project = ProjectId::of(temp.path());
        let held = store.locks.share().expect("the store");
        let locked = store.locks.lock_project(&held, &project).expect("a lock");
        let id = CheckpointId::from_hex("7".repeat(40).as_bytes()).expect("an id");
        let intent = Intent { target: id, safety: id, paths: Vec::new(), tokens: Vec::new(), rest: Map::new() };
        store.intents.note(&locked, &project, &intent).expect("a file");
        assert_eq!(store.interrupted_restore(&project).expect("readable"), None);
        drop(locked);
        assert!(store.interrupted_restore(&project).expect("readable").is_some());
    }

    #[test]
    fn an_intent_of_any_version_is_read_and_its_unknown_keys_are_kept() {
        let temp = tempfile::tempdir().expect("a directory");
        let store = store(&temp);
        let project = ProjectId::of(temp.path());
        let held = store.locks.share().expect("the store");
        let locked = store.locks.lock_project(&held, &project).expect("a lock");
        let path = store.intents.layout.intent(&project);
        fsx::ensure_dir(path.parent().expect("a directory")).expect("a directory");
        let id = "7".repeat(40);
        let text = format!(r#"{{"target":"{id}","safety":"{id}","paths":["a%20b"],"of_later":{{"deep":[1]}}}}"#);
        std::fs::write(&path, text).expect("a file");
        let mut intent = store.intents.get(&project).expect("readable").expect("an intent");
        assert_eq!((intent.paths.clone(), intent.tokens.clone()), (vec![b"a b".to_vec()], vec!["7777777".to_owned()]));
        intent.tokens.push("token".to_owned());
        store.intents.note(&locked, &project, &intent).expect("a file");
        let value: Value = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
        assert_eq!(value["of_later"], serde_json::json!({"deep": [1]}));
        assert_eq!(store.intents.get(&project).expect("readable"), Some(intent));
    }
}
