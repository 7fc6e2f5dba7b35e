//! The hook that an agent calls before it acts: an event on stdin, an answer on stdout.
//!
//! bytes -> `decode` -> a typed event -> `run`: once per turn a checkpoint -> `answer` -> bytes.
//!
//! - H1. It fails open: whatever goes wrong, the exit code is 0, stderr stays empty and the answer is the one that lets
//!   this agent continue. (`--fail-closed` is for users who prefer that the agent stops.)
//! - H2. It fails towards protection: an event that cannot be understood is treated as one that may change files.
//! - H3. It delays the agent by at most the deadline plus a fixed margin, whatever hangs.
//! - H4. An event that needs no checkpoint opens no file: neither configuration nor store.

mod answer;
mod decode;
mod destroyed;
mod foreign;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod input;
mod own_text;
mod run;
mod salvage;
mod tools;
mod touched;
mod typed_command;
mod version;
mod within;

pub(crate) use run::{Call, dir_of, respond, respond_to};
pub(crate) use typed_command::OWN_TEXT_ARRIVED;
