//! Checkpoints that ran out of time and are completed later, by another process: `local/unfinished/<project>.json` is
//! the request, `local/unfinished/<project>.index` and the key `unfinished` of the project's record are its progress,
//! and the ref `refs/unfinished/<project>` protects the objects written so far from garbage collection.
//!
//! All of it may be lost, which costs time and no checkpoint. The index is trusted no more than one that does not
//! belong to the newest checkpoint: each object that it names is looked up in the store first.

use std::fs::{File, TryLockError};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::facts::{CheckpointKind, Origin};
use super::layout::Layout;
use super::lock::{Locks, ProjectLock};
use super::refs::Refs;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::time::{self, Moment};

const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Suffix of the lock that is held by the process that completes a project's checkpoint.
const FINISH: &str = ".finish";

/// Request to complete a checkpoint that ran out of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnfinishedRequest {
    pub(crate) reason: String,
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// Start or end of the turn. Requests of older versions name none.
    #[serde(default, deserialize_with = "kind")]
    pub(crate) kind: CheckpointKind,
    /// Time of the event, as of which the checkpoint is taken.
    #[serde(flatten, with = "time::parts")]
    pub(crate) since: Moment,
    /// Newest checkpoint at that time: if there is a newer one, the request is out of date.
    #[serde(default)]
    pub(crate) after: Option<CheckpointId>,
    /// True if the user was informed.
    #[serde(default, rename = "told")]
    pub(crate) is_told: bool,
    /// Keys of later versions.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

fn kind<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<CheckpointKind, D::Error> {
    let word = Value::deserialize(from)?;
    Ok(CheckpointKind::ALL.into_iter().find(|kind| word == kind.word()).unwrap_or_default())
}

/// Lock on completing a project's checkpoint: no other process completes it while this is held.
#[derive(Debug)]
pub(crate) struct FinishLock {
    _file: File,
}

impl UnfinishedRequest {
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data")
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

/// The checkpoints that are to be completed.
#[derive(Debug, Clone)]
pub(crate) struct UnfinishedTakes {
    pub(super) layout: Arc<Layout>,
    pub(super) locks: Locks,
    pub(super) refs: Refs,
}

impl UnfinishedTakes {
    /// Returns the request of a project's unfinished checkpoint. An unreadable request counts as missing.
    pub(crate) fn get(&self, project: &ProjectId) -> Option<UnfinishedRequest> {
        let bytes = fsx::read_small(&self.layout.unfinished_request(project), REQUEST_BYTES_MAX).ok()??;
        UnfinishedRequest::decode(&bytes)
    }

    pub(crate) fn save(&self, project: &ProjectId, request: &UnfinishedRequest) -> Result<()> {
        fsx::ensure_dir(&self.layout.unfinished())?;
        fsx::replace(&self.layout.unfinished_request(project), &request.encode(), Durability::Rebuildable)
    }

    /// Protects the objects of this tree, which are in the store, from garbage collection.
    pub(crate) fn keep(&self, _held: &ProjectLock, project: &ProjectId, tree: ObjectId, now: Moment) -> Result<()> {
        self.refs.set_ref(project.as_str(), &Layout::unfinished_ref(project), Some(tree), now)
    }

    /// Removes the request and all progress. The caller removes the progress from the project's record.
    pub(crate) fn drop_all(&self, held: &ProjectLock, project: &ProjectId, now: Moment) -> Result<()> {
        self.withdraw(project)?;
        self.drop_progress(held, project, now)
    }

    /// Removes the progress but not the request. The caller removes it from the project's record.
    pub(crate) fn drop_progress(&self, _held: &ProjectLock, project: &ProjectId, now: Moment) -> Result<()> {
        fsx::remove_file(&self.layout.unfinished_index(project))?;
        let name = Layout::unfinished_ref(project);
        if fsx::exists(&self.layout.store().join(&name))? {
            self.refs.set_ref(project.as_str(), &name, None, now)?;
        }
        Ok(())
    }

    /// Removes the request but not the progress.
    pub(crate) fn withdraw(&self, project: &ProjectId) -> Result<()> {
        fsx::remove_file(&self.layout.unfinished_request(project))
    }

    /// Takes the lock on completing a project's checkpoint; `None` if another process holds it.
    pub(crate) fn try_lock_finish(&self, project: &ProjectId) -> Result<Option<FinishLock>> {
        let file = self.locks.lock_file(&format!("{project}{FINISH}"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(FinishLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(Error::new(ErrorKind::Io, "lock the unfinished checkpoint").because(error))
            }
        }
    }

    /// Returns true if a process is completing the project's checkpoint.
    pub(crate) fn is_being_finished(&self, project: &ProjectId) -> bool {
        let file = File::open(self.layout.lock(&format!("{project}{FINISH}")));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Returns true if another process waits for a lock that completing this project's checkpoint holds.
    pub(crate) fn must_make_way(&self, project: &ProjectId) -> bool {
        self.locks.is_wanted(project)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_back_as_it_was() {
        let origin = Origin { agent: Some("claude".to_owned()), session: Some("s ä".to_owned()), turn: None };
        let since = Moment { secs: 1_800_000_000, nanos: 7, offset_secs: -3600 };
        let after = Some(ObjectId::from_bytes([7; 20]));
        let (reason, kind, rest) = ("prompt: x".to_owned(), CheckpointKind::End, Map::new());
        let request = UnfinishedRequest { reason, origin, kind, since, after, is_told: true, rest };
        assert_eq!(UnfinishedRequest::decode(&request.encode()), Some(request));
        for bytes in [&b""[..], b"{}", b"[]", b"{\"reason\":\"x\",\"secs\":1,\"nanos\":1000000000,\"offset_secs\":0}"] {
            assert_eq!(UnfinishedRequest::decode(bytes), None);
        }
    }
}
