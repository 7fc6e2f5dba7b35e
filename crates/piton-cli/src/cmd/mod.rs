//! One file per command: its arguments and its function together.

pub(crate) mod diff;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod rollback;
pub(crate) mod show;
pub(crate) mod take;
pub(crate) mod verify;
