//! Shows the progress of a take, a restore or work on the store or the remote on a terminal, after the first half second. Ctrl-C
//! cancels the work.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use piton::{Progress, grouped};

use crate::columns::{counted, cut};
use crate::interrupt::cancelled_by_signal;
use crate::output::Output;

const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(100);
/// Shown in turn before the message, so that a line without news still moves.
const SPINNER: [char; 8] = ['⠁', '⠂', '⠄', '⡀', '⢀', '⠠', '⠐', '⠈'];
/// Minimum time of observation before a rate and an estimate are shown.
const SETTLED: Duration = Duration::from_secs(2);

/// First phase of the work, which is shown until there is something to count.
#[derive(Clone, Copy)]
enum Subject {
    Files,
    Store,
    Remote,
}

/// Runs a take, a diff or a restore, and shows its progress. The first signal cancels it.
pub(crate) fn watch<T>(output: &Output, work: impl FnOnce(&Progress) -> T) -> T {
    watched(output, Subject::Files, work)
}

/// Runs work on the store, and shows its progress. The first signal cancels it.
pub(crate) fn watch_store<T>(output: &Output, work: impl FnOnce(&Progress) -> T) -> T {
    watched(output, Subject::Store, work)
}

/// Runs work on the remote, and shows its progress. The first signal cancels it.
pub(crate) fn watch_remote<T>(output: &Output, work: impl FnOnce(&Progress) -> T) -> T {
    watched(output, Subject::Remote, work)
}

fn watched<T>(output: &Output, subject: Subject, work: impl FnOnce(&Progress) -> T) -> T {
    if let Some(request) = output.request() {
        return request.watch(true, !matches!(subject, Subject::Files), work);
    }
    let progress = Progress::default();
    show_meanwhile(output, subject, &progress, || cancelled_by_signal(&progress, || work(&progress)))
}

/// Like [`watch_store`], but the first signal does not cancel the work, because it must not be left half done.
pub(crate) fn watch_to_the_end<T>(output: &Output, work: impl FnOnce(&Progress) -> T) -> T {
    if let Some(request) = output.request() {
        return request.watch(false, true, work);
    }
    let (progress, ignored) = (Progress::default(), Progress::default());
    show_meanwhile(output, Subject::Store, &progress, || cancelled_by_signal(&ignored, || work(&progress)))
}

/// Describes the progress of a request for people, without rates and estimates.
pub(crate) fn in_words(progress: &Progress, is_about_store: bool) -> String {
    let subject = if is_about_store { Subject::Store } else { Subject::Files };
    line(subject, progress, &mut Pace::default(), Duration::ZERO)
}

fn show_meanwhile<T>(output: &Output, subject: Subject, progress: &Progress, work: impl FnOnce() -> T) -> T {
    if !output.shows_progress() {
        return work();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let watcher = std::thread::Builder::new().spawn_scoped(threads, || show(subject, progress, &done));
        let result = work();
        done.store(true, Ordering::Relaxed);
        if let Ok(watcher) = watcher {
            watcher.thread().unpark();
        }
        result
    })
}

fn show(subject: Subject, progress: &Progress, done: &AtomicBool) {
    let (began, mut pace) = (Instant::now(), Pace::default());
    let mut shown = ShownLine::default();
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(TICK);
        if began.elapsed() < PATIENCE || done.load(Ordering::Relaxed) {
            continue;
        }
        shown.draw(&line(subject, progress, &mut pace, began.elapsed()));
    }
    shown.clear();
}

/// A line on the terminal that is drawn again and again in the same place.
#[derive(Default)]
struct ShownLine {
    drawings: usize,
}

impl ShownLine {
    fn draw(&mut self, message: &str) {
        let columns = terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
        let line = format!("{} {message}", SPINNER[self.drawings % SPINNER.len()]);
        self.drawings += 1;
        // A line that fills the last column would wrap.
        let _ = write!(io::stderr(), "\r{}\x1b[K", cut(&line, columns.saturating_sub(1)));
    }

    fn clear(&self) {
        if self.drawings > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A number of bytes with a binary unit.
struct HumanBytes(u64);

impl fmt::Display for HumanBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(formatter, "{} B", self.0);
        }
        let (mut number, mut unit) = (self.0 as f64 / 1024.0, 0);
        while number >= 1024.0 {
            (number, unit) = (number / 1024.0, unit + 1);
        }
        write!(formatter, "{number:.2} {}", UNITS[unit])
    }
}

/// Describes the present phase of the work.
fn line(subject: Subject, progress: &Progress, pace: &mut Pace, elapsed: Duration) -> String {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let files = |count: u64| counted(count, "file");
    let (to_write, to_check) = (load(&progress.files_to_write), load(&progress.contents_to_check));
    if to_write > 0 {
        let written = grouped(load(&progress.files_written));
        let share = pace.share(load(&progress.bytes_written), load(&progress.bytes_to_write), "written", elapsed);
        return format!("writing: {written} of {}, {share}", files(to_write));
    }
    let (store_bytes, store_bytes_done) = (load(&progress.store_bytes), load(&progress.store_bytes_done));
    // A take counts files again once it has made room in the store.
    if store_bytes > 0 && (!matches!(subject, Subject::Files) || store_bytes_done < store_bytes) {
        return pace.share(store_bytes_done, store_bytes, "done", elapsed);
    }
    let found = load(&progress.files_found);
    match (load(&progress.contents_checked), load(&progress.bytes_to_read)) {
        (checked, _) if checked < to_check => {
            format!("checking what will change: {} of {}", grouped(checked), counted(to_check, "content"))
        }
        _ if to_check > 0 => "saving the files as they are".to_owned(),
        (_, 0) if found == 0 => match subject {
            Subject::Files => "looking at the files".to_owned(),
            Subject::Store => "looking at the store".to_owned(),
            Subject::Remote => "asking the remote".to_owned(),
        },
        (_, 0) => format!("{} found", files(found)),
        (_, all) => format!("{}, {}", files(found), pace.share(load(&progress.bytes_read), all, "read", elapsed)),
    }
}

/// Rate of one phase of the work, measured from when the phase was first seen.
#[derive(Default)]
struct Pace {
    verb: &'static str,
    all: u64,
    from: u64,
    since: Duration,
}

impl Pace {
    fn share(&mut self, done: u64, all: u64, verb: &'static str, elapsed: Duration) -> String {
        if (self.verb, self.all) != (verb, all) || done < self.from {
            *self = Self { verb, all, from: done, since: elapsed };
        }
        let share = format!("{} of {} {verb}", HumanBytes(done.min(all)), HumanBytes(all));
        let (more, took) = (done - self.from, elapsed.saturating_sub(self.since));
        let rate = more * 1000 / u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        // The first moments are not representative.
        if took < SETTLED || rate == 0 {
            return share;
        }
        format!("{share}, {}/s, {} s to go", HumanBytes(rate), all.saturating_sub(done) / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(counter: &AtomicU64, value: u64) {
        counter.store(value, Ordering::Relaxed);
    }

    fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_restore_says_what_it_is_at_and_what_remains() {
        let (progress, mut pace) = (Progress::default(), Pace::default());
        let mut line = |progress: &Progress, elapsed| line(Subject::Files, progress, &mut pace, elapsed);
        assert_eq!(line(&progress, secs(1)), "looking at the files");
        set(&progress.files_found, 1);
        assert_eq!(line(&progress, secs(1)), "1 file found");
        set(&progress.contents_to_check, 1200);
        set(&progress.contents_checked, 7);
        assert_eq!(line(&progress, secs(2)), "checking what will change: 7 of 1,200 contents");
        set(&progress.contents_checked, 1200);
        assert_eq!(line(&progress, secs(3)), "saving the files as they are");
        set(&progress.files_to_write, 1500);
        set(&progress.bytes_to_write, 120 << 20);
        set(&progress.bytes_written, 20 << 20);
        assert_eq!(line(&progress, secs(60)), "writing: 0 of 1,500 files, 20.00 MiB of 120.00 MiB written");
        set(&progress.files_written, 1000);
        set(&progress.bytes_written, 70 << 20);
        let later = line(&progress, secs(65));
        assert_eq!(
            later, "writing: 1,000 of 1,500 files, 70.00 MiB of 120.00 MiB written, 10.00 MiB/s, 5 s to go",
            "the time before it does not count"
        );
    }

    #[test]
    fn a_take_that_makes_room_says_so_and_goes_back_to_its_files() {
        let (progress, mut pace) = (Progress::default(), Pace::default());
        let mut line = |progress: &Progress| line(Subject::Files, progress, &mut pace, secs(1));
        set(&progress.files_found, 3);
        assert_eq!(line(&progress), "3 files found");
        set(&progress.store_bytes, 8 << 20);
        set(&progress.store_bytes_done, 2 << 20);
        assert_eq!(line(&progress), "2.00 MiB of 8.00 MiB done");
        set(&progress.store_bytes_done, 8 << 20);
        assert_eq!(line(&progress), "3 files found");
    }

    #[test]
    fn there_is_no_estimate_from_the_first_moments() {
        let (progress, mut pace) = (Progress::default(), Pace::default());
        let mut line = |progress: &Progress, elapsed| line(Subject::Store, progress, &mut pace, elapsed);
        assert_eq!(line(&progress, secs(4)), "looking at the store");
        set(&progress.store_bytes, 126 << 20);
        set(&progress.store_bytes_done, 8 << 10);
        assert_eq!(line(&progress, secs(4)), "8.00 KiB of 126.00 MiB done");
        set(&progress.store_bytes_done, 16 << 10);
        assert_eq!(line(&progress, secs(5)), "16.00 KiB of 126.00 MiB done");
        set(&progress.store_bytes_done, 26 << 20);
        assert_eq!(line(&progress, secs(14)), "26.00 MiB of 126.00 MiB done, 2.60 MiB/s, 38 s to go");
        // Another phase with the same total: the measurement starts over.
        set(&progress.store_bytes_done, 0);
        assert_eq!(line(&progress, secs(15)), "0 B of 126.00 MiB done");
    }
}
