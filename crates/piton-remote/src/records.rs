//! Small objects of a bucket: the description of the repository, the refs of each machine, its lease, and lists of
//! packs that may be deleted.
//!
//! ```text
//! piton.json                           format, id of the repository, encryption; written once
//! key/<slot>                           the keyring for one recovery phrase
//! ref/<project>/<writer>/<place>       checkpoints of one directory on one machine; only <writer> writes it
//! writer/<writer>                      when the machine was last at work, and which tombs it has seen
//! pack/<name>, idx/<name>              objects, and where they are; immutable
//! tomb/<name>                          packs and indexes that will be deleted
//! ```

use piton::SentCheckpoint;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::{RemoteError, Result};
use crate::index::{deflate, inflate};

/// Format of a repository that this version reads and writes.
pub(crate) const FORMAT: u32 = 1;
pub(crate) const REPOSITORY: &str = "piton.json";
/// Size limit of a record that is read.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// Description of a repository, in the clear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repository {
    pub(crate) format: u32,
    /// Random id.
    pub(crate) repository: String,
    /// True if everything but this and the slots is sealed.
    pub(crate) is_encrypted: bool,
}

/// Checkpoints of one directory on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RefRecord {
    /// Number of the write, from 1 on. A smaller one than was seen before means that the ref was rolled back.
    pub(crate) sequence: u64,
    /// Random text of each write: tells a machine from a copy of it.
    pub(crate) nonce: String,
    /// Name of the machine.
    pub(crate) machine: String,
    /// Name of the project, and its directory on that machine.
    pub(crate) project: String,
    pub(crate) directory: String,
    /// When it was written, by the clock of the machine.
    pub(crate) secs: i64,
    /// Newest first.
    pub(crate) checkpoints: Vec<SentCheckpoint>,
    /// Indexes that together hold every object of the checkpoints.
    pub(crate) indexes: Vec<String>,
}

/// Lease of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriterRecord {
    pub(crate) machine: String,
    /// Random text of each write.
    pub(crate) nonce: String,
    /// Tombs that it has seen: what it writes from then on does not rely on anything in them.
    pub(crate) seen: Vec<String>,
    /// Keys of its refs.
    pub(crate) refs: Vec<String>,
}

/// Objects that were unreferenced when the tomb was written, and may be deleted later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tomb {
    pub(crate) packs: Vec<String>,
    pub(crate) indexes: Vec<String>,
}

/// Returns the bytes of a record, for sealing.
pub(crate) fn encode(record: &impl Serialize) -> Vec<u8> {
    deflate(&serde_json::to_vec(record).expect("records are text"))
}

/// Reverses [`encode`]. `key` is the name of the object, for the error.
pub(crate) fn decode<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T> {
    let text = inflate(key, bytes, RECORD_BYTES_MAX)?;
    serde_json::from_slice(&text).map_err(|error| RemoteError::damaged(key, &format!("it is not a record: {error}")))
}

/// Parts of the key of a ref.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RefKey {
    pub(crate) project: String,
    pub(crate) writer: String,
    pub(crate) place: String,
}

impl RefKey {
    pub(crate) fn parse(key: &str) -> Option<Self> {
        let mut parts = key.strip_prefix("ref/")?.split('/').map(str::to_owned);
        let found = Self { project: parts.next()?, writer: parts.next()?, place: parts.next()? };
        parts.next().is_none().then_some(found)
    }

    pub(crate) fn key(&self) -> String {
        format!("ref/{}/{}/{}", self.project, self.writer, self.place)
    }
}
