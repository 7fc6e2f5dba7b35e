//! A clock that is wrong, jumps ahead or goes back loses no checkpoint, keeps the order of a list, and hides no missed
//! checkpoint.

use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use piton::{
    Event, History, Journal, Level, Maintained, Manager, Moment, Progress, Project, Settings, Store, maintain,
};
use testkit::{Sandbox, files_in};

use crate::kit::{now, take_at, taken};

const DAY: i64 = 24 * 60 * 60;
const YEAR: i64 = 365 * DAY;

fn at(secs: i64) -> Moment {
    Moment { secs, nanos: 0, offset_secs: 0 }
}

/// Returns times before and after everything that a clock can show: 1970, the limits of signed and unsigned 32 bits,
/// and beyond.
fn strange_times() -> Vec<i64> {
    let now = now().secs;
    vec![
        now,
        0,
        1,
        now - 30 * YEAR,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        1 << 33,
        now - 5,
        -5,
        now + 60 * YEAR,
        now,
    ]
}

fn store_of(sandbox: &Sandbox) -> Store {
    Store::open_existing(&sandbox.base()).expect("a base").expect("a store")
}

fn ids(sandbox: &Sandbox, dir: &Path) -> Vec<String> {
    let project = Project::at(dir, None).expect("a project");
    let history = History::of(&store_of(sandbox), &project).expect("a history");
    history.checkpoints().iter().map(|checkpoint| checkpoint.id.to_string()).collect()
}

#[test]
fn a_list_is_in_the_order_of_the_takes_whatever_the_clock_says() {
    let sandbox = Sandbox::new();
    let mut order = Vec::new();
    for (number, secs) in strange_times().into_iter().enumerate() {
        sandbox.write("a.txt", number.to_string());
        let id = taken(&take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), at(secs)));
        assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()), "at {secs}");
        order.insert(0, id);
        assert_eq!(ids(&sandbox, &sandbox.project()), order, "at {secs}");
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn the_limit_drops_the_first_that_was_taken_whatever_the_clock_says() {
    let sandbox = Sandbox::new();
    let settings = Settings::default().max_snapshots(3.into());
    let mut order = Vec::new();
    for (number, secs) in strange_times().into_iter().enumerate() {
        sandbox.write("a.txt", number.to_string());
        order.insert(0, taken(&take_at(&sandbox.base(), &sandbox.project(), &settings, at(secs))));
        order.truncate(3);
        assert_eq!(ids(&sandbox, &sandbox.project()), order, "at {secs}");
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn an_edit_is_seen_whatever_the_clock_and_the_times_of_files_say() {
    let sandbox = Sandbox::new();
    sandbox.tree("dir/b.txt = same\n dir/c.txt = same");
    for (number, secs) in strange_times().into_iter().enumerate() {
        // Same length each time, with a timestamp as extreme as the file system accepts.
        sandbox.write("a.txt", format!("{number:04}"));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs.max(0).unsigned_abs());
        for name in ["a.txt", "dir/b.txt"] {
            let file = File::options().write(true).open(sandbox.path(name)).expect("a file");
            file.set_times(FileTimes::new().set_modified(time)).expect("a time");
        }
        for again in [secs, secs - 10, secs + YEAR] {
            let report = take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), at(again));
            let newest = &ids(&sandbox, &sandbox.project())[0];
            assert_eq!(sandbox.held_by(newest), files_in(&sandbox.project()), "at {again}: {report:?}");
        }
    }
}

/// Takes checkpoints of a second project at these times, then runs maintenance at those; returns the number of its
/// checkpoints left after each run.
fn left_after(touched: &[i64], mark: Option<i64>, maintained: &[i64]) -> Vec<usize> {
    let sandbox = Sandbox::new();
    let other = sandbox.other_project("other");
    let settings = Settings::default();
    for (number, secs) in touched.iter().enumerate() {
        fs::write(other.join("a.txt"), number.to_string()).expect("a file");
        taken(&take_at(&sandbox.base(), &other, &settings, at(*secs)));
    }
    if let Some(mark) = mark {
        fs::write(sandbox.base().join(".last_prune"), mark.to_string()).expect("a mark");
    }
    let left = |secs: &i64| {
        let done = maintain(&store_of(&sandbox), &settings, at(*secs), &Progress::default()).expect("maintenance");
        assert!(matches!(&done, Maintained::Pruned(report) if report.problems.is_empty()), "at {secs}: {done:?}");
        ids(&sandbox, &other).len()
    };
    maintained.iter().map(left).collect()
}

/// P3.
#[test]
fn a_clock_that_jumps_ahead_and_is_put_right_costs_no_checkpoint() {
    let now = now().secs;
    let days = |days: i64| now + days * DAY;
    assert_eq!(left_after(&[now, now + 5], Some(now), &[days(2), now + 50 * YEAR, days(3), days(5)]), [2; 4]);
}

#[test]
fn a_clock_that_was_not_set_yet_costs_no_checkpoint() {
    let now = now().secs;
    let days = |days: i64| now + days * DAY;
    // Used with the right clock, and once more while the clock started in 1970.
    assert_eq!(left_after(&[now, 100], Some(now), &[2 * DAY, days(1), days(3), days(5)]), [2; 4]);
    // Never used with the right clock.
    assert_eq!(left_after(&[100, 200], None, &[2 * DAY, days(1), days(3), days(30)]), [2; 4]);
}

#[test]
fn old_projects_are_pruned_once_two_prunes_agree_on_the_time() {
    let now = now().secs;
    let days = |days: i64| now + days * DAY;
    assert_eq!(left_after(&[now, now], Some(now), &[days(2), days(6), days(8)]), [2, 2, 0]);
    assert_eq!(left_after(&[now, now], Some(now), &[days(100), days(102)]), [2, 0]);
}

#[test]
fn a_session_goes_on_when_time_goes_back_within_a_turn() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = 1");
    let now = now().secs;
    let manager = || Manager::new(&sandbox.base(), Some(&sandbox.home()), Settings::default().enabled(true));
    let mut first = manager();
    first.begin_turn("s", Some("t1"), None, at(now));
    first.ensure_checkpoint(&sandbox.project(), "before patch", at(now));
    sandbox.write("a.txt", "2");
    // The same turn in another process, years earlier: it already has its checkpoint.
    let mut second = manager();
    second.continue_turn("s", Some("t1"), at(now - 3 * YEAR));
    second.ensure_checkpoint(&sandbox.project(), "before patch", at(now - 3 * YEAR));
    assert_eq!(ids(&sandbox, &sandbox.project()).len(), 1);
    second.begin_turn("s", Some("t2"), None, at(now - 3 * YEAR + 1));
    second.ensure_checkpoint(&sandbox.project(), "before patch", at(now - 3 * YEAR + 1));
    assert_eq!(ids(&sandbox, &sandbox.project()).len(), 2);
}

fn event(secs: i64, level: Level) -> Event {
    let mut event = Event::new(at(secs), level, "cannot write: no space left");
    (event.agent, event.session) = (Some("claude".to_owned()), Some("s".to_owned()));
    (event.turn, event.project) = (Some(secs.to_string()), Some("/p".into()));
    event
}

#[test]
fn a_miss_of_today_is_not_past_because_the_clock_was_ahead() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.base()).expect("a base");
    let (journal, now) = (Journal::at(&sandbox.base()), now().secs);
    let is_past = || journal.unprotected().iter().map(|state| state.is_past).collect::<Vec<_>>();
    journal.note(&event(now + 50 * YEAR, Level::Unprotected));
    journal.note_protected(Path::new("/p"), at(now + 50 * YEAR + 1));
    assert_eq!(is_past(), [true]);
    journal.note(&event(now, Level::Unprotected));
    assert_eq!(is_past(), [false]);
    journal.note_protected(Path::new("/p"), at(now - 50 * YEAR));
    assert_eq!(is_past(), [true]);
    assert_eq!(journal.recent(1)[0].time.secs, now - 50 * YEAR);
}

#[test]
fn a_warning_from_the_future_does_not_silence_those_of_today() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.base()).expect("a base");
    let (journal, now) = (Journal::at(&sandbox.base()), now().secs);
    for secs in [now + 50 * YEAR, now, now + 60] {
        journal.note_warning("a typo".to_owned(), at(secs));
    }
    assert_eq!(journal.recent(5).len(), 2);
}
