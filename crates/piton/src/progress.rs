//! Progress of a long operation, to be read from another thread, and its cancellation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters of a long operation, and the request to cancel it. Every operation that reads a project or rewrites a store
/// takes one; counters that do not apply to it stay 0.
///
/// ```
/// # use piton::Progress;
/// let progress = Progress::default();
/// std::thread::scope(|scope| {
///     scope.spawn(|| progress.cancel()); // on a signal, or at a deadline
/// });
/// assert!(progress.is_cancelled());
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Files of the project found in scope.
    pub files_found: AtomicU64,
    /// Bytes of the project that have to be read.
    pub bytes_to_read: AtomicU64,
    /// Bytes of the project that were read.
    pub bytes_read: AtomicU64,
    /// Contents that a restore has to read and verify before it changes anything.
    pub contents_to_check: AtomicU64,
    /// Contents that were verified.
    pub contents_checked: AtomicU64,
    /// Files that a restore has to write. Set once the safety checkpoint is taken.
    pub files_to_write: AtomicU64,
    /// Files that were written.
    pub files_written: AtomicU64,
    /// Bytes to write.
    pub bytes_to_write: AtomicU64,
    /// Bytes that were written.
    pub bytes_written: AtomicU64,
    /// Bytes of the store that a check or a garbage collection has to process. Set again for each of its phases.
    pub store_bytes: AtomicU64,
    /// Bytes of the store that were processed.
    pub store_bytes_done: AtomicU64,
    cancelled: AtomicBool,
}

impl Progress {
    /// Cancels the operation: it ends soon and leaves nothing half done. A take ends as if its deadline had passed; an
    /// operation on the store keeps what is finished, and the next run does the rest. A restore that has begun to write
    /// and a purge are not cancelled. Returns true if it was cancelled before.
    pub fn cancel(&self) -> bool {
        self.cancelled.swap(true, Ordering::Relaxed)
    }

    /// Returns true once the operation was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Begins a phase that processes this many bytes of the store.
    pub(crate) fn begin_store_phase(&self, bytes: u64) {
        self.store_bytes_done.store(0, Ordering::Relaxed);
        self.store_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Adds to the bytes of the store that were processed.
    pub(crate) fn advance_store(&self, bytes: u64) {
        self.store_bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
}
