//! A record of the ledger.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{CheckpointId, ObjectId};
use crate::relpath::{escape, unescape};
use crate::time::Moment;

/// A turn: one prompt and everything that the agent does for it. Keys of later versions are not read here; they survive
/// because a rewrite of the ledger works on its lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TurnRecord {
    /// Name of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Version of the agent, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The agent's name for the session.
    pub session: String,
    /// The agent's name for the turn, or the name that piton made for it.
    pub turn: String,
    /// Time at which the turn began.
    #[serde(with = "moment", skip_serializing_if = "Option::is_none")]
    pub time: Option<Moment>,
    /// True if the turn began with a prompt that the agent reported.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prompted: bool,
    /// True if the agent itself made the prompt, from the text with which another program's hook asked it to continue.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
    /// Text of the prompt, as far as it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Reason of the checkpoint, if that is not the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Checkpoint from which the turn began. `None` if the turn has no checkpoint.
    #[serde(with = "hex", skip_serializing_if = "Option::is_none")]
    pub before: Option<CheckpointId>,
    /// Tree of that checkpoint, which still identifies the state if another program has rewritten the commit.
    #[serde(with = "hex", skip_serializing_if = "Option::is_none")]
    pub tree: Option<ObjectId>,
    /// Id of the checkpoint before a purge.
    #[serde(with = "hex", skip_serializing_if = "Option::is_none")]
    pub formerly: Option<CheckpointId>,
    /// Time at which the agent reported the end of the turn.
    #[serde(with = "moment", skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// Checkpoint of the state in which the turn ended.
    #[serde(with = "hex", skip_serializing_if = "Option::is_none")]
    pub after: Option<CheckpointId>,
    /// Tree of that checkpoint.
    #[serde(with = "hex", skip_serializing_if = "Option::is_none")]
    pub after_tree: Option<ObjectId>,
    /// Id of that checkpoint before a purge.
    #[serde(with = "hex", skip_serializing_if = "Option::is_none")]
    pub after_formerly: Option<CheckpointId>,
    /// True if that checkpoint was completed in the background, after the deadline of the hook.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Checkpoints taken within the turn, before commands that destroy files, in the order in which they were taken.
    #[serde(deserialize_with = "steps", skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// Reason why the turn has no checkpoint, as a keyword.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// Position of the turn in the agent's conversation.
    #[serde(flatten)]
    pub mark: RewindMark,
}

impl TurnRecord {
    /// Returns the line of the ledger, with its newline.
    pub(super) fn encode(&self) -> String {
        serde_json::to_string(self).expect("plain data") + "\n"
    }

    /// Returns true if both records describe the same turn.
    pub(crate) fn is_same_turn(&self, other: &Self) -> bool {
        (&self.agent, &self.session, &self.turn) == (&other.agent, &other.session, &other.turn)
    }
}

/// A checkpoint within a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StepRecord {
    /// Checkpoint that was taken.
    pub id: CheckpointId,
    /// Tree of the checkpoint.
    pub tree: ObjectId,
    /// Time at which it was taken.
    pub time: Moment,
    /// Id of the checkpoint before a purge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formerly: Option<CheckpointId>,
}

impl StepRecord {
    pub(crate) fn new(id: CheckpointId, tree: ObjectId, time: Moment) -> Self {
        Self { id, tree, time, formerly: None }
    }

    fn of(value: &Value) -> Option<Self> {
        let hex = |key: &str| ObjectId::from_hex(value.get(key)?.as_str()?.as_bytes());
        let time = Moment::parse(value.get("time")?.as_str()?)?;
        Some(Self { id: hex("id")?, tree: hex("tree")?, time, formerly: hex("formerly") })
    }
}

/// Reads the steps of a turn, without those that are invalid.
fn steps<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<StepRecord>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(value.as_array().into_iter().flatten().filter_map(StepRecord::of).collect())
}

/// Position of a turn in the conversation that the agent keeps: enough to cut the conversation there later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RewindMark {
    /// File that holds the conversation.
    #[serde(with = "path", skip_serializing_if = "Option::is_none")]
    pub transcript: Option<PathBuf>,
    /// Length of that file in bytes at the time of the prompt. `None` if there was no such file yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcript_bytes: Option<u64>,
    /// The agent's id of the prompt, the turn or the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of the prompt in the conversation, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u64>,
    /// Time that the agent reported with the prompt, in its own format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamp: Option<String>,
}

mod moment {
    use super::{Deserialize, Moment};

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: serde::Serializer>(value: &Option<Moment>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value.as_ref().expect("skipped where there is none"))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Moment>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.and_then(|text| Moment::parse(&text)))
    }
}

mod hex {
    use super::{Deserialize, ObjectId};

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: serde::Serializer>(value: &Option<ObjectId>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value.as_ref().expect("skipped where there is none"))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<ObjectId>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.and_then(|text| ObjectId::from_hex(text.as_bytes())))
    }
}

mod path {
    use super::{Deserialize, PathBuf, escape, unescape};
    use crate::sys::{path_bytes, path_from_bytes};

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: serde::Serializer>(value: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        let path = value.as_ref().expect("skipped where there is none");
        to.serialize_str(&escape(path_bytes(path)))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.and_then(|text| unescape(text.as_bytes())).map(path_from_bytes))
    }
}
