//! How far a take has come, for somebody who waits at a terminal. Silent for the first half second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use piton::Progress;

use crate::output::Output;

const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);

/// Runs `work` and shows how it goes on.
pub(crate) fn watch<T>(output: &Output, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    if !output.shows_progress() {
        return work(&progress);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let watcher = std::thread::Builder::new().spawn_scoped(threads, || show(&progress, &done));
        let result = work(&progress);
        done.store(true, Ordering::Relaxed);
        if let Ok(watcher) = watcher {
            watcher.thread().unpark();
        }
        result
    })
}

fn show(progress: &Progress, done: &AtomicBool) {
    let began = Instant::now();
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a template that was tried"));
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(TICK);
        if began.elapsed() < PATIENCE || done.load(Ordering::Relaxed) {
            continue;
        }
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (read, all) = (load(&progress.bytes_read), load(&progress.bytes_to_read));
        let found = HumanCount(load(&progress.files_found));
        bar.set_message(if all == 0 {
            format!("{found} files found")
        } else {
            let rate = read * 1000 / u64::try_from(began.elapsed().as_millis()).unwrap_or(1).max(1);
            let left = all.saturating_sub(read) / rate.max(1);
            let (read, all, rate) = (HumanBytes(read), HumanBytes(all), HumanBytes(rate));
            format!("{found} files, {read} of {all} read, {rate}/s, {left} s to go")
        });
        bar.tick();
    }
    bar.finish_and_clear();
}
