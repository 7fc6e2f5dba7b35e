//! Sharing work among threads. Every thread but the first is a help, not a need: where the system has no more to give,
//! fewer do the work.

use std::thread::Builder;

/// Returns how many threads can run at the same time.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs `work` on this thread and on up to `count - 1` others, with their numbers, and gathers what each returns. The
/// work must be such that any one of them can do all of it.
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

/// Runs `aside` on another thread while this one does `main`; after it, if no thread is to be had.
pub(crate) fn beside<A: Send, M>(aside: impl Fn() -> A + Sync, main: impl FnOnce() -> M) -> (A, M) {
    let aside = &aside;
    std::thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, aside);
        let main = main();
        let aside = thread.map_or_else(|_| aside(), |thread| thread.join().expect("a thread of ours does not panic"));
        (aside, main)
    })
}

/// Frees something on another thread, if it takes longer than to begin one: nobody who waits for an answer need wait for
/// that, too.
pub(crate) fn free_aside<T: Send + 'static>(something: T, is_large: bool) {
    if is_large {
        // Where no thread is to be had it is freed here.
        let _ = Builder::new().spawn(move || drop(something));
    }
}
