//! Handling of SIGINT (Ctrl-C) and SIGTERM. The first signal asks cancellable work to stop, and it ends cleanly. The
//! second one ends the process at once, which is safe, too: the next process cleans up after a killed one.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use piton::Progress;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::platform;

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// The last signal received while work was running; 0 if none.
static CAUGHT: AtomicI32 = AtomicI32::new(0);
/// True while no work is running: signals then have their default effect.
static IDLE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Returns the signal that was received while work was running.
pub(crate) fn caught() -> Option<i32> {
    Some(CAUGHT.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// Returns the exit code for a process ended by that signal, by the convention of shells. 130 (SIGINT) if there was
/// none.
pub(crate) fn exit_code() -> u8 {
    caught().and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(130)
}

/// Runs work that can be cancelled. The first signal cancels `progress`; the second one ends the process.
pub(crate) fn cancelled_by_signal<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    // If no handler can be installed, signals keep their default effect.
    let heard = heard();
    let Ok(mut signals) = Signals::new(&heard) else { return work() };
    let idle = IDLE.get_or_init(|| {
        let idle = Arc::new(AtomicBool::new(false));
        for signal in &heard {
            let _ = register_conditional_default(*signal, Arc::clone(&idle));
        }
        idle
    });
    idle.store(false, Ordering::SeqCst);
    let closing = Closing(signals.handle());
    let result = std::thread::scope(|threads| {
        let listener = std::thread::Builder::new().spawn_scoped(threads, move || {
            for signal in signals.forever() {
                if progress.cancel() {
                    let _ = emulate_default_handler(signal);
                }
                CAUGHT.store(signal, Ordering::Relaxed);
            }
        });
        if listener.is_err() {
            idle.store(true, Ordering::SeqCst);
        }
        // Close on a panic of the work, too: the scope would wait for the listener forever.
        let _closing = closing;
        work()
    });
    idle.store(true, Ordering::SeqCst);
    result
}

struct Closing(Handle);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Returns the signals to handle. A signal that the parent process set to be ignored stays ignored, as shells do for
/// background jobs.
fn heard() -> Vec<i32> {
    SIGNALS.into_iter().filter(|signal| !platform::is_ignored(*signal)).collect()
}
