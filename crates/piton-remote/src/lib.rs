//! Checkpoints of many machines in one bucket: a directory, or an object store. Any machine lists and restores what
//! another one pushed.
//!
//! Push reads checkpoints from the store through [`piton::Outgoing`] and writes packs, an index and a ref. Fetch reads a
//! ref, the indexes that it names and parts of packs, and adds a checkpoint through [`piton::Incoming`]. `collect` deletes
//! what nothing refers to. `records` has the layout of a bucket.
//!
//! - B10. A ref is written last. Everything reachable from it exists by then: packs and indexes were written before it,
//!   or belong to other machines and were in no tomb that was seen after they were chosen.
//! - B11. Each ref has one writer. A machine that finds its own ref or lease changed by another writer takes a new id
//!   before it writes anything.
//! - B12. Packs and indexes are immutable, and a name is never used twice.
//! - B13. An object is deleted only if it was unreferenced at two points in time, between which every machine at work
//!   has seen that it will be deleted.
//! - B14. Only hashed names, sizes and times are readable in an encrypted repository.

mod bucket;
mod collect;
mod error;
mod fetch;
mod index;
mod keys;
mod local;
mod machines;
mod parallel;
pub mod program;
mod push;
mod records;
mod remote;
mod seal;
mod slots;
mod transfer;
mod verify;

pub use bucket::{CredentialsFrom, Location};
pub use collect::{CollectPolicy, CollectReport, collect};
pub use error::{RemoteError, RemoteErrorKind, Result};
pub use fetch::{FetchCheckpoint, FetchReport, fetch_checkpoint};
pub use keys::{Keyring, Phrase};
pub use local::{LocalDir, OwnRef, PushLock, RemoteConfig, RemoteState};
pub use machines::{Machine, MachineProject, ProjectChoice, RemoteList, list_checkpoints, machines};
pub use push::{LEASE_SECS, PushReport, PushRequest, PushedProject, push};
pub use remote::{AddRequest, Opened, Remote};
pub use transfer::Meter;
pub use verify::{RemoteFinding, RemoteVerifyReport, verify};
