//! How far a take or work on the store has come, for somebody who waits at a terminal. Silent for the first half second.
//! Ctrl-C ends it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use piton::{Progress, Watch};

use crate::interrupt::stoppable;
use crate::output::Output;

const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);

/// Runs a take or a restore, and shows how it goes on.
pub(crate) fn watch<T>(output: &Output, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    show_meanwhile(output, |elapsed| take_line(&progress, elapsed), || stoppable(&progress.stop, || work(&progress)))
}

/// Runs work on the store, and shows how it goes on.
pub(crate) fn watch_store<T>(output: &Output, work: impl FnOnce(&Watch) -> T) -> T {
    let watch = Watch::default();
    show_meanwhile(output, |elapsed| store_line(&watch, elapsed), || stoppable(&watch.stop, || work(&watch)))
}

/// The same for work that is worse half done than not begun: it goes on to its end.
pub(crate) fn watch_to_the_end<T>(output: &Output, work: impl FnOnce(&Watch) -> T) -> T {
    let watch = Watch::default();
    let unheard = AtomicBool::new(false);
    show_meanwhile(output, |elapsed| store_line(&watch, elapsed), || stoppable(&unheard, || work(&watch)))
}

fn show_meanwhile<T>(output: &Output, line: impl Fn(Duration) -> String + Sync, work: impl FnOnce() -> T) -> T {
    if !output.shows_progress() {
        return work();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let watcher = std::thread::Builder::new().spawn_scoped(threads, || show(&line, &done));
        let result = work();
        done.store(true, Ordering::Relaxed);
        if let Ok(watcher) = watcher {
            watcher.thread().unpark();
        }
        result
    })
}

fn show(line: &dyn Fn(Duration) -> String, done: &AtomicBool) {
    let began = Instant::now();
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a template that was tried"));
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(TICK);
        if began.elapsed() < PATIENCE || done.load(Ordering::Relaxed) {
            continue;
        }
        bar.set_message(line(began.elapsed()));
        bar.tick();
    }
    bar.finish_and_clear();
}

fn take_line(progress: &Progress, elapsed: Duration) -> String {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let found = HumanCount(load(&progress.files_found));
    match load(&progress.bytes_to_read) {
        0 => format!("{found} files found"),
        all => format!("{found} files, {}", share(load(&progress.bytes_read), all, "read", elapsed)),
    }
}

fn store_line(watch: &Watch, elapsed: Duration) -> String {
    match watch.total.load(Ordering::Relaxed) {
        0 => "looking at the store".to_owned(),
        all => share(watch.done.load(Ordering::Relaxed), all, "done", elapsed),
    }
}

fn share(done: u64, all: u64, verb: &str, elapsed: Duration) -> String {
    let rate = done * 1000 / u64::try_from(elapsed.as_millis()).unwrap_or(1).max(1);
    let left = all.saturating_sub(done) / rate.max(1);
    let (done, all, rate) = (HumanBytes(done), HumanBytes(all), HumanBytes(rate));
    format!("{done} of {all} {verb}, {rate}/s, {left} s to go")
}
