//! Maintenance beside everything else: a process of its own, that nobody waits for and that gives way to everybody.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use piton::{Settings, Store, is_due};

use crate::context::Context;

/// Starts maintenance, if something is due. It has nothing of the caller's: an agent waits for whoever holds its pipes.
pub(crate) fn start_if_due(store: &Store, settings: &Settings, config: Option<&Path>) {
    if !is_due(store, settings, Context::now()) {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut command = Command::new(program);
    command.arg("--base").arg(store.base());
    // A file that is named must be there.
    if let Some(config) = config.filter(|config| config.is_file()) {
        command.arg("--config").arg(config);
    }
    command.arg("maintain").current_dir("/");
    // What could not be started now is due next time, too.
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}

/// Leaves the terminal and the session of whoever started this process, and lets everybody else go first.
pub(crate) fn stand_back() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::nice(19);
}
