//! Work beside everything else: a process of its own, that no command waits for and that yields to all of them.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use piton::{Settings, Store, is_due};

use crate::context::Context;

/// Starts maintenance, if something is due. It has nothing of the caller's: an agent waits for whoever holds its pipes.
pub(crate) fn start_if_due(store: &Store, settings: &Settings, config: Option<&Path>) {
    if is_due(store, settings, Context::now()) {
        // What could not be started now is due next time, too.
        start(store.base(), config, &["maintain".as_ref()]);
    }
}

/// Starts a process that completes the checkpoint of a project which ran out of time. Returns whether it runs.
pub(crate) fn start_finish(base: &Path, config: Option<&Path>, project: &Path) -> bool {
    start(base, config, &["--checkpoints".as_ref(), "-C".as_ref(), project, "finish".as_ref()])
}

fn start(base: &Path, config: Option<&Path>, args: &[&Path]) -> bool {
    let Ok(program) = env::current_exe() else { return false };
    let mut command = Command::new(program);
    command.arg("--base").arg(base);
    // A file that is named must be there.
    if let Some(config) = config.filter(|config| config.is_file()) {
        command.arg("--config").arg(config);
    }
    command.args(args).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
}

/// Leaves the terminal and the session of the process that started this one, and lets all others go first. The priority of
/// input and output follows from the niceness.
pub(crate) fn stand_back() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::nice(19);
}
