//! Threads that work on requests: as many at a time as the limit, the others wait in a bounded queue.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum number of requests that are worked on at a time. A take uses all cores by itself.
pub(crate) const WORKERS_MAX: usize = 8;
/// Maximum number of requests that wait.
pub(crate) const WAITING_MAX: usize = 1000;
/// Maximum size of the messages of all requests that wait. One alone may be larger.
pub(crate) const WAITING_BYTES_MAX: usize = 64 << 20;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct PoolState {
    /// Jobs, with the sizes of their messages.
    waiting: VecDeque<(Job, usize)>,
    waiting_bytes: usize,
    workers: usize,
    idle: usize,
    is_closed: bool,
}

impl PoolState {
    fn push(&mut self, job: Job, bytes: usize) {
        self.waiting.push_back((job, bytes));
        self.waiting_bytes += bytes;
    }

    /// Takes the job that has waited longest.
    fn pop(&mut self) -> Option<Job> {
        let (job, bytes) = self.waiting.pop_front()?;
        self.waiting_bytes -= bytes;
        Some(job)
    }
}

#[derive(Default)]
struct SharedPool {
    state: Mutex<PoolState>,
    /// There is a job, or there will be none any more.
    changed: Condvar,
    /// A worker has ended.
    ended: Condvar,
}

/// The threads and the queue.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<SharedPool>);

impl Pool {
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a job done on another thread, or on this one if there is no other. `bytes` is the size of its message. Returns
    /// false if too many wait, or their messages are too large.
    pub(crate) fn submit(&self, job: Job, bytes: usize) -> bool {
        let mut state = self.state();
        let is_full = state.waiting_bytes > 0 && state.waiting_bytes + bytes > WAITING_BYTES_MAX;
        if is_full || state.waiting.len() >= WAITING_MAX {
            return false;
        }
        state.push(job, bytes);
        if state.idle < state.waiting.len() && state.workers < WORKERS_MAX {
            let pool = self.clone();
            match thread::Builder::new().spawn(move || pool.work()) {
                Ok(_) => state.workers += 1,
                Err(_) if state.workers > 0 => {}
                Err(_) => {
                    let job = state.pop();
                    drop(state);
                    if let Some(job) = job {
                        job();
                    }
                    return true;
                }
            }
        }
        drop(state);
        self.0.changed.notify_one();
        true
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.pop() {
                drop(state);
                // A job answers for its own panics; a worker must not end by one.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state();
            } else if state.is_closed {
                break;
            } else {
                state.idle += 1;
                state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
        state.workers -= 1;
        drop(state);
        self.0.ended.notify_all();
    }

    /// Waits until every job is done. Calls `meanwhile` again and again until then.
    pub(crate) fn finish(&self, interval: Duration, mut meanwhile: impl FnMut()) {
        let mut state = self.state();
        state.is_closed = true;
        self.0.changed.notify_all();
        while state.workers > 0 {
            state = self.0.ended.wait_timeout(state, interval).unwrap_or_else(PoisonError::into_inner).0;
            drop(state);
            meanwhile();
            state = self.state();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    /// Submits jobs that wait until the sender is dropped, and returns how many were accepted.
    fn submit_waiting(pool: &Pool, count: usize, bytes: usize, done: &Arc<AtomicUsize>) -> (usize, mpsc::Sender<()>) {
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let mut accepted = 0;
        for _ in 0..count {
            let (held, done) = (Arc::clone(&held), Arc::clone(done));
            let job = move || {
                let _ = held.lock().expect("no job panics").recv();
                done.fetch_add(1, Ordering::SeqCst);
            };
            accepted += usize::from(pool.submit(Box::new(job), bytes));
        }
        (accepted, release)
    }

    #[test]
    fn all_jobs_are_done_and_too_many_are_refused() {
        let (pool, done) = (Pool::default(), Arc::default());
        let (accepted, release) = submit_waiting(&pool, WORKERS_MAX + WAITING_MAX + 50, 1, &done);
        assert!((WAITING_MAX..=WORKERS_MAX + WAITING_MAX).contains(&accepted), "{accepted}");
        drop(release);
        pool.finish(Duration::from_secs(1), || {});
        assert_eq!(done.load(Ordering::SeqCst), accepted);
    }

    #[test]
    fn too_many_bytes_are_refused_but_one_large_message_is_not() {
        let (pool, done) = (Pool::default(), Arc::default());
        let (accepted, release) = submit_waiting(&pool, 50, WAITING_BYTES_MAX / 4, &done);
        assert!((4..=WORKERS_MAX + 4).contains(&accepted), "{accepted}");
        drop(release);
        pool.finish(Duration::from_secs(1), || {});
        assert_eq!((done.load(Ordering::SeqCst), pool.state().waiting_bytes), (accepted, 0));
        let (accepted, _) = submit_waiting(&Pool::default(), 1, WAITING_BYTES_MAX + 1, &done);
        assert_eq!(accepted, 1);
    }
}
