//! Ctrl-C and its like. Work that can stop is told to, and ends cleanly; the second time ends the process at once, which
//! costs nothing either: what a killed process leaves is known to the next one.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// What came, and asked for an end.
static CAUGHT: AtomicI32 = AtomicI32::new(0);
/// Whether nothing is under way that has to be told.
static IDLE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The signal that asked for an end while something was under way.
pub(crate) fn caught() -> Option<i32> {
    Some(CAUGHT.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}

/// The exit code of a process that such a signal ended, as shells have it.
pub(crate) fn exit_code() -> u8 {
    caught().and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(130)
}

/// Runs work that ends soon once `stop` is set, and sets it when a signal asks for an end.
pub(crate) fn stoppable<T>(stop: &AtomicBool, work: impl FnOnce() -> T) -> T {
    // Without it, signals do what they always do.
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
                if stop.swap(true, Ordering::Relaxed) {
                    let _ = emulate_default_handler(signal);
                }
                CAUGHT.store(signal, Ordering::Relaxed);
            }
        });
        if listener.is_err() {
            idle.store(true, Ordering::SeqCst);
        }
        // Also if the work panics: everybody would wait for the listener then.
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

/// Whoever started this process may have told it to ignore a signal, as shells do for what runs in the background.
fn heard() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    SIGNALS.into_iter().filter(|signal| ignored & 1 << (signal - 1) == 0).collect()
}
