//! How far long work has come, for somebody who waits at a terminal. Silent for the first half second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use piton::{Progress, Watch};

use crate::output::Output;

const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);

/// Runs `work` and shows how it goes on.
pub(crate) fn watch<T>(output: &Output, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    beside(output, |began| text_of_take(&progress, began), || work(&progress))
}

/// The same for work on the store.
pub(crate) fn watch_store<T>(output: &Output, work: impl FnOnce(&Watch) -> T) -> T {
    let watch = Watch::default();
    beside(output, |began| text_of_store(&watch, began), || work(&watch))
}

fn beside<T>(output: &Output, text: impl Fn(Instant) -> String + Sync, work: impl FnOnce() -> T) -> T {
    if !output.shows_progress() {
        return work();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let watcher = std::thread::Builder::new().spawn_scoped(threads, || show(&text, &done));
        let result = work();
        done.store(true, Ordering::Relaxed);
        if let Ok(watcher) = watcher {
            watcher.thread().unpark();
        }
        result
    })
}

fn show(text: &dyn Fn(Instant) -> String, done: &AtomicBool) {
    let began = Instant::now();
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a template that was tried"));
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(TICK);
        if began.elapsed() < PATIENCE || done.load(Ordering::Relaxed) {
            continue;
        }
        bar.set_message(text(began));
        bar.tick();
    }
    bar.finish_and_clear();
}

fn text_of_take(progress: &Progress, began: Instant) -> String {
    let found = HumanCount(progress.files_found.load(Ordering::Relaxed));
    match rate(&progress.bytes_read, &progress.bytes_to_read, began) {
        None => format!("{found} files found"),
        Some(text) => format!("{found} files, {text}"),
    }
}

fn text_of_store(watch: &Watch, began: Instant) -> String {
    rate(&watch.done, &watch.total, began).unwrap_or_else(|| "looking at the store".to_owned())
}

fn rate(done: &AtomicU64, all: &AtomicU64, began: Instant) -> Option<String> {
    let (done, all) = (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed));
    let rate = done * 1000 / u64::try_from(began.elapsed().as_millis()).unwrap_or(1).max(1);
    let left = all.saturating_sub(done) / rate.max(1);
    let (done, total, rate) = (HumanBytes(done), HumanBytes(all), HumanBytes(rate));
    (all > 0).then(|| format!("{done} of {total} read, {rate}/s, {left} s to go"))
}
