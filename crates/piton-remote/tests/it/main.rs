//! Tests of the remote with real processes, directories and servers.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod canaries;
mod collected;
mod contract;
mod damage;
mod killed;
mod kit;
mod machines;
mod stress;
