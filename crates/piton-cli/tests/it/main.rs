//! The command's tests: the real program in real processes, each in a place of its own, with stock git as the oracle.

mod commands;
mod concurrency;
mod crash;
mod faults;
mod kit;
mod memory;
mod picker;
mod restore;
mod restore_kill;
mod restore_kit;
mod surroundings;
