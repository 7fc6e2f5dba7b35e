//! Earlier versions of a record. Every checkpoint taken for a session stores the record's text of that time, so that a
//! restore of the checkpoint can restore the record, too.

use super::{SessionId, Sessions};
use crate::error::Result;
use crate::fsx::{self, Durability};
use crate::store::{Checkpoint, Origin, Store};

/// Size limit of a record that is stored in a checkpoint.
const VERSION_BYTES_MAX: usize = 256 << 10;

/// Result of rewinding a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordRewind {
    /// The record was replaced by its earlier version.
    Replaced,
    /// The record was equal to it already.
    Same,
    /// The checkpoint has no record: none existed at that time, or it was too large.
    NoRecordThen,
    /// The checkpoint was not taken for a session that can have a record.
    NoSession,
    /// The current record is not saved anywhere, and was kept.
    Unsaved,
    /// It failed, for this reason.
    Failed(String),
}

impl serde::Serialize for RecordRewind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for RecordRewind {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RecordRewind".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let words = ["replaced", "same", "no_record_then", "no_session", "unsaved", "failed"];
        schemars::json_schema!({"type": "string", "enum": words})
    }
}

impl RecordRewind {
    /// Returns its name in `--json`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::Same => "same",
            Self::NoRecordThen => "no_record_then",
            Self::NoSession => "no_session",
            Self::Unsaved => "unsaved",
            Self::Failed(_) => "failed",
        }
    }
}

fn session_of(origin: &Origin) -> Option<SessionId> {
    SessionId::parse(origin.session.as_deref()?).ok()
}

/// Returns the record of the session, to be stored in a checkpoint. Returns `None` if there is none or it cannot be
/// read: that must not fail the checkpoint.
pub(crate) fn version_of(store: &Store, origin: &Origin) -> Option<Vec<u8>> {
    let bytes = Sessions::in_base(store.base()).bytes(&session_of(origin)?).ok()??;
    (bytes.len() <= VERSION_BYTES_MAX).then_some(bytes)
}

/// Returns the origin for the safety checkpoint of a restore: the session of the restored checkpoint, because that is
/// the record which the restore replaces.
pub(crate) fn origin_of_safety(target: &Checkpoint) -> Origin {
    Origin { agent: target.facts.origin.agent.clone(), session: target.facts.origin.session.clone(), turn: None }
}

impl Sessions {
    /// Replaces the record of a checkpoint's session by the version in the checkpoint.
    ///
    /// `saved` is the record that the caller has saved. A record that differs from it is kept, so that a concurrent
    /// change is not lost.
    pub fn rewind(&self, to: &Checkpoint, saved: Option<&[u8]>) -> Result<RecordRewind> {
        let Some(id) = session_of(&to.facts.origin) else {
            return Ok(RecordRewind::NoSession);
        };
        let Some(then) = &to.facts.record else {
            return Ok(RecordRewind::NoRecordThen);
        };
        let _locked = self.claim()?;
        let now = self.bytes(&id)?;
        if now.as_ref() == Some(then) {
            return Ok(RecordRewind::Same);
        }
        if now.is_some() && now.as_deref() != saved {
            return Ok(RecordRewind::Unsaved);
        }
        fsx::replace(&self.layout.session(id.as_str()), then, Durability::Synced)?;
        Ok(RecordRewind::Replaced)
    }
}
