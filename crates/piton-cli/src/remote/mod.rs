//! The remote: starting `piton-remote`, names of checkpoints on other machines, and what is known without asking.
//!
//! - `program` starts `piton-remote` and reads its answer. Only commands that need the remote do so; a take and a hook
//!   never load it or wait for it.
//! - `named` turns `NAME/N` into the id of a fetched checkpoint.
//! - `local` reads the files that `piton-remote` keeps in the base; `health` is what `status` and `doctor` say of them.
//! - `phrase` reads, writes and shows recovery phrases.

pub(crate) mod health;
pub(crate) mod local;
pub(crate) mod named;
pub(crate) mod phrase;
pub(crate) mod program;
