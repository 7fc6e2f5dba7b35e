//! A request of a program, which a command answers instead of printing to the terminal: `piton serve` and `piton mcp` run
//! every command with one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton::Progress;

/// Input and output of one request, and its cancellation. Shared between the thread that works and the one that reads.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// Bytes that the command reads instead of stdin.
    pub(crate) input: Vec<u8>,
    is_cancelled: AtomicBool,
    current: Mutex<Option<CurrentWork>>,
    answer: Mutex<Option<String>>,
    warnings: Mutex<Vec<String>>,
}

/// The work that a request is doing.
#[derive(Debug, Clone)]
struct CurrentWork {
    progress: Arc<Progress>,
    can_cancel: bool,
    is_about_store: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Request {
    /// Returns a request with these bytes in place of stdin.
    pub(crate) fn with_input(input: Vec<u8>) -> Self {
        Self { input, ..Self::default() }
    }

    /// Cancels the request. Work that may not be left half done goes on to its end.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        if let Some(work) = locked(&self.current).as_ref().filter(|work| work.can_cancel) {
            work.progress.cancel();
        }
    }

    /// Returns true once the request was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }

    /// Runs work whose progress others can read. With `can_cancel`, a cancellation of the request cancels it, also an
    /// earlier one.
    pub(crate) fn watch<T>(&self, can_cancel: bool, is_about_store: bool, work: impl FnOnce(&Progress) -> T) -> T {
        struct Leave<'a>(&'a Request);

        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                *locked(&self.0.current) = None;
            }
        }

        let progress = Arc::new(Progress::default());
        *locked(&self.current) = Some(CurrentWork { progress: Arc::clone(&progress), can_cancel, is_about_store });
        let _leave = Leave(self);
        // After the work is known, so that no cancellation is lost between the two.
        if can_cancel && self.is_cancelled() {
            progress.cancel();
        }
        work(&progress)
    }

    /// Returns the counters of the present work, and whether it is about the store.
    pub(crate) fn progress(&self) -> Option<(Arc<Progress>, bool)> {
        locked(&self.current).as_ref().map(|work| (Arc::clone(&work.progress), work.is_about_store))
    }

    /// Records the report, as one line of JSON.
    pub(crate) fn answer(&self, report: String) {
        *locked(&self.answer) = Some(report);
    }

    /// Returns the report, if there is one.
    pub(crate) fn take_answer(&self) -> Option<String> {
        locked(&self.answer).take()
    }

    /// Records a warning.
    pub(crate) fn warn(&self, warning: String) {
        locked(&self.warnings).push(warning);
    }

    /// Returns the warnings.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut locked(&self.warnings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_cancelled_cancels_its_later_work_unless_it_must_end() {
        let request = Request::default();
        request.cancel();
        assert!(request.watch(true, false, Progress::is_cancelled));
        assert!(!request.watch(false, true, Progress::is_cancelled));
        assert!(request.progress().is_none(), "no work is left");
    }

    #[test]
    fn work_in_progress_is_cancelled() {
        let request = Request::default();
        let seen = request.watch(true, false, |progress| {
            assert!(!progress.is_cancelled());
            request.cancel();
            progress.is_cancelled()
        });
        assert!(seen);
    }
}
