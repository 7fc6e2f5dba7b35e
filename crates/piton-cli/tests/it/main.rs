//! The command's tests, through the real binary.

mod restore;
mod restore_kit;
