//! The command's tests: the real program in real processes, each in a place of its own, with stock git as the oracle.

mod commands;
mod completions;
mod concurrency;
mod config;
mod crash;
mod doctor;
mod faults;
mod hook_faults;
mod hook_kit;
mod hook_typed;
mod hooks;
mod install;
mod install_shapes;
mod kit;
mod manners;
mod memory;
mod restore;
mod restore_kill;
mod restore_kit;
mod session;
mod snapshots;
mod surroundings;
mod transcript;
