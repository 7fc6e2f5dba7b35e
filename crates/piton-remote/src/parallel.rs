//! Requests that are made at the same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{RemoteError, Result};

/// Calls `work` for each of the items, `threads_max` at the same time. After the first error, `work` is not called
/// again, and that error is returned.
pub(crate) fn try_each<T: Sync>(items: &[T], threads_max: usize, work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None::<RemoteError>));
    let run = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(item) {
                next.store(items.len(), Ordering::Relaxed);
                failure.lock().expect("no thread panics with it").get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads_max.min(items.len()) {
            // If no thread can be started, the others do its work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    failure.into_inner().expect("no thread panics with it").map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RemoteErrorKind;

    #[test]
    fn every_item_is_worked_on_once() {
        let items: Vec<u64> = (1..=1000).collect();
        let sum = Mutex::new(0);
        let add = |item: &u64| {
            *sum.lock().expect("no panic") += item;
            Ok(())
        };
        try_each(&items, 8, add).expect("no error");
        assert_eq!(sum.into_inner().expect("no panic"), 500_500);
    }

    #[test]
    fn an_error_ends_the_work_and_is_returned() {
        let items: Vec<usize> = (0..1_000).collect();
        let calls = AtomicUsize::new(0);
        let fail_at_ten = |item: &usize| {
            calls.fetch_add(1, Ordering::Relaxed);
            match *item {
                10 => Err(RemoteError::new(RemoteErrorKind::Busy, "fail")),
                _ => Ok(()),
            }
        };
        let error = try_each(&items, 1, fail_at_ten).expect_err("item 10");
        assert_eq!((error.kind, calls.into_inner()), (RemoteErrorKind::Busy, 11));
    }
}
