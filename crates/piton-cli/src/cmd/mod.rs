//! One file per command: its arguments and its function together.

pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod hook;
pub(crate) mod install;
pub(crate) mod restore;
pub(crate) mod rollback;
pub(crate) mod show;
pub(crate) mod take;
