//! Stores through a shared memory mapping: the kernel updates the timestamps of a file at the first store to a page,
//! and not at later ones until the page was written back. Another process does the storing, as an editor or a linker
//! would.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use piton::{
    CheckpointKind, Moment, Outcome, Progress, Project, Request, RestoreOptions, RestoreOutcome, RestoreTo, Settings,
    Store,
};
use testkit::Sandbox;

use crate::kit::{now, take_at, taken};
use crate::restore_kit::{left_by, pairs, restore_between, restored};

const PAGE: usize = 4096;
const FIRST: RestoreTo<'static> = RestoreTo::Named("1");

/// A process that has a file mapped and stores the bytes it receives at its beginning.
struct Mapping {
    process: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Mapping {
    /// Maps a file. Returns `None` if Python is not installed.
    fn of(path: &Path) -> Option<Self> {
        const PROGRAM: &str = "\
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    mapped = mmap.mmap(file.fileno(), 0)
    print('mapped', flush=True)
    for line in sys.stdin:
        text = line.rstrip('\\n').encode()
        mapped[:len(text)] = text
        print('stored', flush=True)
";
        if !testkit::has_program("python3") {
            return None;
        }
        let mut command = testkit::clean_command("python3");
        command.args(["-c", PROGRAM]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python runs");
        let tell = process.stdin.take().expect("a pipe");
        let hear = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut mapping = Self { process, tell, hear };
        mapping.hear("mapped");
        Some(mapping)
    }

    fn store(&mut self, text: &str) {
        writeln!(self.tell, "{text}").expect("it listens");
        self.hear("stored");
    }

    #[track_caller]
    fn hear(&mut self, expected: &str) {
        let mut line = String::new();
        self.hear.read_line(&mut line).expect("it answers");
        assert_eq!(line.trim_end(), expected);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a time by which the clock that stamps files has advanced, but no page was written back.
fn a_moment_later() -> Moment {
    Moment { secs: now().secs + 1, ..now() }
}

fn later(secs: i64) -> Moment {
    Moment { secs: now().secs + secs, ..now() }
}

fn take_then(sandbox: &Sandbox, now: Moment) -> Outcome {
    take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), now).outcome
}

fn start_of(sandbox: &Sandbox, path: &str, bytes: usize) -> String {
    let contents = std::fs::read(sandbox.path(path)).expect("a file");
    String::from_utf8_lossy(&contents[..bytes]).into_owned()
}

fn page_of(byte: &str) -> String {
    byte.repeat(PAGE)
}

/// C5.
#[test]
fn a_second_store_to_the_same_page_is_in_the_next_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.write("mapped", page_of("."));
    let Some(mut mapping) = Mapping::of(&sandbox.path("mapped")) else { return };
    assert!(matches!(take_then(&sandbox, a_moment_later()), Outcome::Taken(_)));
    mapping.store("AAAAA");
    assert!(matches!(take_then(&sandbox, a_moment_later()), Outcome::Taken(_)));
    mapping.store("BBBBB");
    assert!(matches!(take_then(&sandbox, a_moment_later()), Outcome::Taken(_)));
    // The index was written for that checkpoint, and the page is still dirty.
    mapping.store("CCCCC");
    assert!(matches!(take_then(&sandbox, a_moment_later()), Outcome::Taken(_)));
    restored(&sandbox, RestoreTo::Named("4"), &[]);
    assert_eq!(start_of(&sandbox, "mapped", 5), ".....");
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_eq!(start_of(&sandbox, "mapped", 5), "CCCCC");
}

/// A restore plans from a survey, and a survey may trust what the last take recorded.
#[test]
fn a_second_store_to_the_same_page_is_in_the_safety_checkpoint() {
    let sandbox = Sandbox::new();
    sandbox.write("mapped", page_of("."));
    let Some(mut mapping) = Mapping::of(&sandbox.path("mapped")) else { return };
    assert!(matches!(take_then(&sandbox, a_moment_later()), Outcome::Taken(_)));
    mapping.store("AAAAA");
    assert!(matches!(take_then(&sandbox, a_moment_later()), Outcome::Taken(_)));
    mapping.store("BBBBB");
    restored(&sandbox, RestoreTo::Named("2"), &[]);
    assert_eq!(start_of(&sandbox, "mapped", 5), ".....");
    restored(&sandbox, RestoreTo::Undo, &[]);
    assert_eq!(start_of(&sandbox, "mapped", 5), "BBBBB");
}

/// A file read so late that all of its pages had been written back is trusted: the next store changes the timestamp.
/// Then a take reads nothing.
#[test]
fn a_file_that_was_read_again_after_its_pages_were_written_back_is_trusted() {
    // An index of more than 1 MiB is not rewritten for this; the record notes the time instead.
    for more in [String::new(), crate::behind::bulk()] {
        let sandbox = Sandbox::new();
        sandbox.tree(&more);
        sandbox.write("mapped", page_of("."));
        let all = read_by_take(&sandbox, later(1));
        assert!(all >= PAGE as u64);
        assert_eq!(read_by_take(&sandbox, later(1)), all, "everything is young");
        assert_eq!(read_by_take(&sandbox, later(60)), all, "it was read while it was young");
        assert_eq!(read_by_take(&sandbox, later(61)), 0);
        assert_eq!(read_by_take(&sandbox, later(1)), 0, "a clock that goes back");
    }
}

/// Returns the number of bytes that a take had to read.
fn read_by_take(sandbox: &Sandbox, now: Moment) -> u64 {
    let store = Store::open_or_create(&sandbox.base(), now).expect("a store");
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let (request, progress) = (Request::default().kind(CheckpointKind::Manual), Progress::default());
    piton::take(&store, &project, &request, &Settings::default(), now, &progress).expect("a take");
    progress.bytes_to_read.load(std::sync::atomic::Ordering::Relaxed)
}

/// W1.
#[test]
fn what_is_stored_after_the_plan_is_neither_replaced_nor_removed() {
    let sandbox = Sandbox::new();
    sandbox.write("replaced", page_of("."));
    taken(&crate::kit::take(&sandbox));
    sandbox.write("replaced", page_of(","));
    sandbox.write("removed", page_of(","));
    let (Some(mut replaced), Some(mut removed)) =
        (Mapping::of(&sandbox.path("replaced")), Mapping::of(&sandbox.path("removed")))
    else {
        return;
    };
    [&mut replaced, &mut removed].into_iter().for_each(|mapping| mapping.store("AAAAA"));
    let options = RestoreOptions::default();
    let report = restore_between(&sandbox, FIRST, options, &Settings::default(), |_| {
        [&mut replaced, &mut removed].into_iter().for_each(|mapping| mapping.store("BBBBB"));
    });
    let report = report.expect("a restore");
    assert_eq!(report.outcome, RestoreOutcome::Partly);
    assert_eq!(left_by(&report), pairs(&[("removed", "changed"), ("replaced", "changed")]));
    assert_eq!(["removed", "replaced"].map(|path| start_of(&sandbox, path, 5)), ["BBBBB", "BBBBB"]);
    let names = std::fs::read_dir(sandbox.project()).expect("a directory").flatten().count();
    assert_eq!(names, 2, "nothing else is left there");
}
