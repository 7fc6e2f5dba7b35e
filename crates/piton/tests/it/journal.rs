//! The journal: missed checkpoints are recorded, bounded, private, and marked as past once they are resolved.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use piton::{Event, Journal, Level, Moment};
use testkit::Sandbox;

fn event(secs: i64, level: Level, turn: Option<&str>, project: &str) -> Event {
    let time = Moment { secs, nanos: 0, offset_secs: 0 };
    let mut event = Event::new(time, level, "cannot write: no space left");
    event.agent = Some("claude".to_owned());
    event.session = turn.map(|_| "s".to_owned());
    event.turn = turn.map(str::to_owned);
    event.project = Some(project.into());
    event
}

fn with_text(what: &str, mut event: Event) -> Event {
    event.what = what.to_owned();
    event
}

fn base(sandbox: &Sandbox) -> PathBuf {
    fs::create_dir_all(sandbox.base()).expect("a base");
    sandbox.base()
}

#[test]
fn events_come_back_newest_first() {
    let sandbox = Sandbox::new();
    let journal = Journal::at(&base(&sandbox));
    for secs in 1..=5 {
        assert!(journal.note(&event(secs, Level::Unprotected, None, "/p")));
    }
    let recent: Vec<_> = journal.recent(3).iter().map(|event| event.time.secs).collect();
    assert_eq!(recent, [5, 4, 3]);
    let mode = fs::metadata(sandbox.base().join("piton.log")).expect("a log").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_event_of_a_turn_is_recorded_once() {
    let sandbox = Sandbox::new();
    let journal = Journal::at(&base(&sandbox));
    for secs in 1..=5 {
        assert!(journal.note(&event(secs, Level::Unprotected, Some("t1"), "/p")));
    }
    assert!(journal.note(&event(6, Level::Unprotected, Some("t2"), "/p")));
    assert_eq!(journal.recent(10).len(), 2);
}

#[test]
fn a_warning_is_given_once_an_hour() {
    let sandbox = Sandbox::new();
    let journal = Journal::at(&base(&sandbox));
    for secs in [10, 20, 3000, 3620, 3700] {
        assert!(journal.note(&event(secs, Level::Warning, None, "/p")));
    }
    let told: Vec<_> = journal.recent(10).iter().map(|event| event.time.secs).collect();
    assert_eq!(told, [3620, 10]);
}

#[test]
fn turns_without_a_checkpoint_are_counted_until_one_works() {
    let sandbox = Sandbox::new();
    let journal = Journal::at(&base(&sandbox));
    let state = || journal.unprotected().iter().map(|one| (one.turns, one.is_past)).collect::<Vec<_>>();
    journal.note(&event(1, Level::Unprotected, Some("t1"), "/p"));
    journal.note(&with_text("again", event(2, Level::Unprotected, Some("t1"), "/p")));
    journal.note(&event(3, Level::Unprotected, Some("t2"), "/p"));
    journal.note(&event(3, Level::Warning, Some("t2"), "/p"));
    assert_eq!(state(), [(2, false)]);
    journal.note(&event(4, Level::Protected, None, "/other"));
    assert_eq!(state(), [(2, false)]);
    journal.note(&event(5, Level::Protected, None, "/p"));
    assert_eq!(state(), [(2, true)]);
    journal.note(&event(6, Level::Unprotected, Some("t3"), "/p"));
    assert_eq!(state(), [(1, false)]);
}

/// J2.
#[test]
fn it_is_bounded_and_keeps_the_newest() {
    let sandbox = Sandbox::new();
    let journal = Journal::at(&base(&sandbox));
    let long = |secs| with_text(&"x".repeat(500), event(secs, Level::Unprotected, None, "/p"));
    for secs in 1..=1500 {
        assert!(journal.note(&long(secs)));
    }
    let sizes: Vec<_> = ["piton.log", "piton.log.1"]
        .iter()
        .map(|name| fs::metadata(sandbox.base().join(name)).expect("a log").len())
        .collect();
    assert!(sizes.iter().all(|size| *size <= 256 << 10), "{sizes:?}");
    let recent = journal.recent(usize::MAX);
    assert_eq!(recent[0].time.secs, 1500);
    assert!(recent.len() > 400, "{}", recent.len());
}

#[test]
fn an_unwritable_base_has_a_fallback_log_and_both_are_read() {
    let sandbox = Sandbox::new();
    let other = sandbox.root().join("state/piton");
    let journal = Journal::at(&sandbox.base()).or_in(Some(other.clone()));
    assert!(journal.note(&event(1, Level::Unprotected, Some("t"), "/p")));
    assert!(other.join("piton.log").is_file());
    assert_eq!(fs::metadata(&other).expect("made").permissions().mode() & 0o777, 0o700);
    base(&sandbox);
    assert!(journal.note(&event(2, Level::Unprotected, Some("u"), "/p")));
    assert_eq!(journal.recent(9).len(), 2);
    assert_eq!(journal.unprotected()[0].turns, 2);
}

/// J2, J4.
#[test]
fn a_success_in_the_second_of_a_failure_ends_it_in_either_log() {
    let sandbox = Sandbox::new();
    let journal = Journal::at(&sandbox.base()).or_in(Some(sandbox.home().join("state")));
    let fail = |turn| assert!(journal.note(&event(7, Level::Unprotected, Some(turn), "/p")));
    let now = Moment { secs: 7, nanos: 0, offset_secs: 0 };
    fail("t1");
    assert!(!sandbox.base().exists(), "it is in the other log");
    let base = base(&sandbox);
    assert!(Journal::at(&base).note(&event(6, Level::Warning, None, "/p")), "the base can be written again");
    assert_eq!(journal.unprotected_turns(0).len(), 1);
    assert!(journal.acknowledge(now));
    assert_eq!((journal.unprotected_turns(0), journal.unprotected().len()), (vec![], 0));
    let elsewhere = Journal::at(&sandbox.home().join("state"));
    assert!(elsewhere.note(&event(7, Level::Unprotected, Some("t2"), "/p")));
    assert_eq!(journal.unprotected_turns(0).len(), 1, "it came after the user had looked");
    journal.note_protected(Path::new("/p"), now);
    assert!(journal.unprotected()[0].is_past);
    let acknowledged = journal.recent(10).iter().filter(|event| event.level == Level::Acknowledged).count();
    assert_eq!(acknowledged, 1, "it is shown once");
}

#[test]
fn the_journal_follows_no_link_and_never_fails() {
    let sandbox = Sandbox::new();
    let victim = sandbox.root().join("victim");
    fs::write(&victim, "precious").expect("a file");
    symlink(&victim, base(&sandbox).join("piton.log")).expect("a link");
    let elsewhere = sandbox.root().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    let link = sandbox.root().join("link");
    symlink(&elsewhere, &link).expect("a link");
    assert!(!Journal::at(&sandbox.base()).or_in(Some(link)).note(&event(1, Level::Warning, None, "/p")));
    assert_eq!(fs::read_to_string(&victim).expect("a file"), "precious");
    assert_eq!(fs::read_dir(&elsewhere).expect("a directory").count(), 0);
    assert!(!Journal::at(Path::new("/nonexistent")).note(&event(1, Level::Warning, None, "/p")));
    assert!(Journal::at(Path::new("/nonexistent")).recent(1).is_empty());
}

#[test]
fn what_is_no_event_is_passed_over_and_the_next_line_is_whole() {
    let sandbox = Sandbox::new();
    fs::write(base(&sandbox).join("piton.log"), b"garbage\n\xff\xfe\n2026-03-16T05:36:00+01:00 unprot").expect("a log");
    let journal = Journal::at(&sandbox.base());
    assert!(journal.note(&event(1, Level::Warning, None, "/p")));
    assert_eq!(journal.recent(9).len(), 1);
}

/// J1.
#[test]
fn many_at_once_lose_no_line() {
    let sandbox = Sandbox::new();
    let base = base(&sandbox);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let journal = Journal::at(&base);
            scope.spawn(move || {
                for n in 0..50 {
                    assert!(journal.note(&event(n, Level::Unprotected, None, &format!("/{worker}"))));
                }
            });
        }
    });
    assert_eq!(Journal::at(&base).recent(usize::MAX).len(), 400);
}
