//! The command's tests: the real program in real processes, each in a place of its own, with stock git as the oracle.

mod commands;
mod concurrency;
mod crash;
mod faults;
mod kit;
mod memory;
mod prune;
mod purge;
mod restore;
mod restore_kill;
mod restore_kit;
mod soak;
mod surroundings;
mod upkeep_kill;
