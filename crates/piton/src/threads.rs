//! Running work on several threads. Threads other than the caller's are optional: if the system refuses to start them,
//! fewer threads do the work.

use std::thread::Builder;

/// Returns the number of threads that can run at the same time.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs `work` on this thread and on up to `count - 1` others, and returns the results. Each call gets the number of
/// its thread. Any single call must be able to do all of the work, because the others may not start.
pub(crate) fn together<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let others = (1..count).map_while(|number| Builder::new().spawn_scoped(scope, move || work(number)).ok());
        let others: Vec<_> = others.collect();
        let mut done = vec![work(0)];
        done.extend(others.into_iter().map(|thread| thread.join().expect("a thread of ours does not panic")));
        done
    })
}

/// Runs `aside` on another thread while this one runs `main`. If no thread can be started, runs `aside` afterwards.
pub(crate) fn beside<A: Send, M>(aside: impl Fn() -> A + Sync, main: impl FnOnce() -> M) -> (A, M) {
    let aside = &aside;
    std::thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, aside);
        let main = main();
        let aside = thread.map_or_else(|_| aside(), |thread| thread.join().expect("a thread of ours does not panic"));
        (aside, main)
    })
}

/// Drops a value on another thread if it is large, so that the caller does not wait for its deallocation. A small one
/// is dropped here, because that is faster than starting a thread.
pub(crate) fn drop_in_background<T: Send + 'static>(something: T, is_large: bool) {
    if is_large {
        // If no thread can be started, the closure and the value are dropped here.
        let _ = Builder::new().spawn(move || drop(something));
    }
}
