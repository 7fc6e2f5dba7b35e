//! Checkpoints that ran out of time and are completed later, by another process: `local/unfinished/<project>.json` is
//! the request, `local/unfinished/<project>.index` and the key `unfinished` of the project's record are its progress,
//! and the ref `refs/unfinished/<project>` protects the objects written so far from garbage collection.
//!
//! All of it may be lost, which costs time and no checkpoint. The index is trusted no more than one that does not
//! belong to the newest checkpoint: each object that it names is looked up in the store first.

use std::fs::{File, TryLockError};
use std::sync::Arc;

use serde_json::{Value, json};

use super::facts::Origin;
use super::layout::Layout;
use super::lock::{Locks, ProjectLock};
use super::refs::Refs;
use crate::error::{Error, ErrorKind, Result};
use crate::fsx::{self, Durability};
use crate::id::{CheckpointId, ObjectId, ProjectId};
use crate::time::Moment;

const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Suffix of the lock that is held by the process that completes a project's checkpoint.
const FINISH: &str = ".finish";

/// Request to complete a checkpoint that ran out of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnfinishedRequest {
    pub(crate) reason: String,
    pub(crate) origin: Origin,
    /// Time of the prompt, as of which the checkpoint is taken.
    pub(crate) since: Moment,
    /// Newest checkpoint at that time: if there is a newer one, the request is out of date.
    pub(crate) after: Option<CheckpointId>,
    /// True if the user was told about it.
    pub(crate) is_told: bool,
}

/// Lock on completing a project's checkpoint: no other process completes it while this is held.
#[derive(Debug)]
pub(crate) struct FinishLock {
    _file: File,
}

impl UnfinishedRequest {
    fn encode(&self) -> Vec<u8> {
        let Origin { agent, session, turn } = &self.origin;
        let Moment { secs, nanos, offset_secs } = self.since;
        let value = json!({
            "reason": self.reason, "agent": agent, "session": session, "turn": turn,
            "secs": secs, "nanos": nanos, "offset_secs": offset_secs, "told": self.is_told,
            "after": self.after.map(|id| id.to_string()),
        });
        value.to_string().into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let since = Moment {
            secs: value["secs"].as_i64()?,
            nanos: value["nanos"].as_u64()?.try_into().ok().filter(|nanos| *nanos < 1_000_000_000)?,
            offset_secs: value["offset_secs"].as_i64()?.try_into().ok()?,
        };
        let origin = Origin { agent: text("agent"), session: text("session"), turn: text("turn") };
        let after = value["after"].as_str().and_then(|id| ObjectId::from_hex(id.as_bytes()));
        Some(Self { reason: text("reason")?, origin, since, after, is_told: value["told"] == true })
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
        let request = UnfinishedRequest { reason: "prompt: x".to_owned(), origin, since, after, is_told: true };
        assert_eq!(UnfinishedRequest::decode(&request.encode()), Some(request));
        for bytes in [&b""[..], b"{}", b"[]", b"{\"reason\":\"x\",\"secs\":1,\"nanos\":1000000000,\"offset_secs\":0}"] {
            assert_eq!(UnfinishedRequest::decode(bytes), None);
        }
    }
}
