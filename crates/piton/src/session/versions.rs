//! Earlier versions of a record. Every checkpoint that is taken for a session carries the text of its record as it was
//! then, so that going back to the checkpoint can bring the record back, too.

use super::{SessionId, Sessions};
use crate::error::Result;
use crate::fsx::{self, Durability};
use crate::store::{Checkpoint, Origin, Store};

/// A larger record does not go into checkpoints.
const VERSION_BYTES_MAX: usize = 256 << 10;

/// What came of bringing a record back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewound {
    /// It is as it was then.
    Replaced,
    /// It was so already.
    Same,
    /// The checkpoint carries no record: there was none then, or it was too large.
    NoRecordThen,
    /// The checkpoint was not taken for a session that can have a record.
    NoSession,
    /// The record as it is now is saved nowhere, and was left alone.
    Unsaved,
    /// It could not be done, for this reason.
    Failed(String),
}

impl Rewound {
    /// The word for it in `--json`.
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

/// The record of whoever is at work, for a checkpoint to carry. None where there is none or it cannot be read: that is no
/// reason to fail a checkpoint.
pub(crate) fn version_of(store: &Store, origin: &Origin) -> Option<Vec<u8>> {
    let bytes = Sessions::in_base(store.base()).bytes(&session_of(origin)?).ok()??;
    (bytes.len() <= VERSION_BYTES_MAX).then_some(bytes)
}

/// Whose record the safety checkpoint of a restore carries: that of the session whose files are restored, because it is
/// that one which the restore brings back.
pub(crate) fn origin_of_safety(target: &Checkpoint) -> Origin {
    Origin { agent: target.facts.origin.agent.clone(), session: target.facts.origin.session.clone(), turn: None }
}

impl Sessions {
    /// Brings the record of a checkpoint's session back as it was then.
    ///
    /// `saved` is the record as the caller has saved it. One that is different by now is left alone: whoever changed it
    /// meanwhile must not lose that.
    pub fn rewind(&self, to: &Checkpoint, saved: Option<&[u8]>) -> Result<Rewound> {
        let Some(id) = session_of(&to.facts.origin) else {
            return Ok(Rewound::NoSession);
        };
        let Some(then) = &to.facts.record else {
            return Ok(Rewound::NoRecordThen);
        };
        let _locked = self.claim()?;
        let now = self.bytes(&id)?;
        if now.as_ref() == Some(then) {
            return Ok(Rewound::Same);
        }
        if now.is_some() && now.as_deref() != saved {
            return Ok(Rewound::Unsaved);
        }
        fsx::replace(&self.layout.session(id.as_str()), then, Durability::Synced)?;
        Ok(Rewound::Replaced)
    }
}
