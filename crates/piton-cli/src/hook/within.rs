//! Work that may hang, with a timeout.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// Runs `work` on another thread, and abandons it on timeout. Returns `None` then, and if it panics. If no thread can
/// be started, it runs on this one without a timeout.
pub(super) fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let work = Arc::new(Mutex::new(Some(work)));
    let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (done, is_done) = mpsc::channel();
    let theirs = Arc::clone(&work);
    let spawned = thread::Builder::new().spawn(move || {
        let work = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = done.send(work.and_then(|work| catch_unwind(AssertUnwindSafe(work)).ok()));
    });
    match spawned {
        Ok(_) => is_done.recv_timeout(limit).ok().flatten(),
        Err(_) => take(&work).and_then(|work| catch_unwind(AssertUnwindSafe(work)).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_or_hangs_is_abandoned() {
        let long = Duration::from_secs(60);
        assert_eq!(within(long, || 7), Some(7));
        assert_eq!(within(long, || std::panic::panic_any(7)), None::<()>);
        let never = || loop {
            thread::park();
        };
        assert_eq!(within(Duration::from_millis(1), never), None::<()>);
    }
}
