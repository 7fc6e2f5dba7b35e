//! Tests of the remote with real processes, directories and servers.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod canaries;
mod choices;
mod collected;
mod contract;
mod damage;
mod keys;
mod killed;
mod kit;
mod machines;
mod repaired;
mod same_place;
mod stress;
