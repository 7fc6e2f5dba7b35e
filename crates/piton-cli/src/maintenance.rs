//! Background processes: no command waits for them, and they run with low priority.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use piton::{Settings, Store, is_due};

use crate::context::Context;
use crate::remote::local::{is_configured, lock_start};

/// Starts maintenance in the background if it is due. No process has standard streams of this one: an agent waits
/// until every process has closed its pipes.
pub(crate) fn start_if_due(store: &Store, settings: &Settings, config: Option<&Path>) {
    if is_due(store, settings, Context::now()) {
        // If it cannot be started, it is still due the next time.
        start(store.base(), config, &["maintain".as_ref()], Stdio::null());
    }
}

/// Starts a push in the background if the store has a remote, and no such process is about to begin. A take costs one
/// stat more then, and the start of the process; the network is used by that process only.
pub(crate) fn start_push(store: &Store, settings: &Settings, config: Option<&Path>) {
    if settings.remote
        && is_configured(store)
        && let Some(lock) = lock_start(store)
    {
        // If it cannot be started, the next take starts it again.
        start(store.base(), config, &["push".as_ref(), "--background".as_ref()], lock.into());
    }
}

/// Starts a process that completes the checkpoint of a project which ran out of time. Returns true if it was started.
pub(crate) fn start_finish(base: &Path, config: Option<&Path>, project: &Path) -> bool {
    start(base, config, &["--checkpoints".as_ref(), "-C".as_ref(), project, "finish".as_ref()], Stdio::null())
}

fn start(base: &Path, config: Option<&Path>, args: &[&Path], stdin: Stdio) -> bool {
    let Ok(program) = env::current_exe() else { return false };
    let mut command = Command::new(program);
    command.arg("--base").arg(base);
    // `--config` fails if the file does not exist.
    if let Some(config) = config.filter(|config| config.is_file()) {
        command.arg("--config").arg(config);
    }
    command.args(args).current_dir("/");
    let Ok(mut child) = command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return false;
    };
    // A server outlives the child, which would stay a zombie. A command that ends first leaves it to init.
    let _ = thread::Builder::new().spawn(move || child.wait());
    true
}
