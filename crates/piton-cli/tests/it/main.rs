//! The command's tests, through the real binary.

mod restore;
mod restore_kill;
mod restore_kit;
