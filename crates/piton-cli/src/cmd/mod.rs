//! One file per command: its arguments and its function together.

pub(crate) mod blame;
pub(crate) mod cat;
pub(crate) mod clear;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod finish;
pub(crate) mod fork;
pub(crate) mod hook;
pub(crate) mod hunks;
pub(crate) mod install;
pub(crate) mod log;
pub(crate) mod mark;
pub(crate) mod mcp;
pub(crate) mod paths;
mod period;
pub(crate) mod prune;
pub(crate) mod purge;
pub(crate) mod recover;
pub(crate) mod reference;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod revert;
pub(crate) mod rewind;
pub(crate) mod rollback;
#[cfg(test)]
mod schema;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod take;
pub(crate) mod turns;
pub(crate) mod verify;
