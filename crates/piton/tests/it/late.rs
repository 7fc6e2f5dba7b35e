//! A checkpoint that is completed in several attempts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use piton::{Attempt, Completion, Manager, Outcome, Progress, Project, Settings, Store, WhySkipped};
use testkit::{Sandbox, files_in};

use crate::kit::{Dice, next_tick, now, settled};
use crate::upkeep::{collect, ids_of, store_of};

/// Returns a project whose first checkpoint ran out of time.
fn unfinished() -> (Sandbox, Settings) {
    unfinished_in(Sandbox::new())
}

/// Adds files to a project, so that its next checkpoint runs out of time.
fn unfinished_in(sandbox: Sandbox) -> (Sandbox, Settings) {
    let mut dice = Dice::new(5);
    for number in 0..24 {
        sandbox.write(format!("dir-{}/noise-{number}", number % 3), dice.noise(1_000_000));
    }
    sandbox.tree("dir-0/small = one\n empty/");
    next_tick(&sandbox);
    let settings = Settings::default().enabled(true).deadline_ms(1);
    // The time is later than all writes, so that nothing has changed since.
    let mut manager = Manager::new(&sandbox.base(), None, settings.clone()).for_agent("mine");
    manager.begin_turn("s", Some("t"), None, settled());
    let ensured = manager.ensure_checkpoint(&sandbox.project(), "prompt: x", settled());
    let outcome = ensured.report.as_ref().expect("a report").outcome;
    assert_eq!((outcome, ensured.is_unfinished), (Outcome::Skipped(WhySkipped::Deadline), true));
    (sandbox, settings)
}

/// Cancels an attempt as soon as it has read something. Returns the number of bytes that it had to read, and its
/// result: an attempt that has nothing left to read ends by itself.
fn attempt_until_something_is_read(store: &Store, project: &Project, settings: &Settings) -> (u64, Attempt) {
    let (progress, completion) =
        (Progress::default(), Completion::begin(store, project).expect("a lock").expect("free"));
    assert!(Completion::begin(store, project).expect("a lock").is_none(), "one process at a time");
    let is_over = AtomicBool::new(false);
    let attempt = thread::scope(|scope| {
        scope.spawn(|| {
            while progress.bytes_read.load(Ordering::Relaxed) == 0 && !is_over.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            progress.cancel();
        });
        let attempt = completion.attempt(settings, &progress);
        is_over.store(true, Ordering::Relaxed);
        attempt.expect("an attempt")
    });
    (progress.bytes_to_read.load(Ordering::Relaxed), attempt)
}

#[test]
fn an_attempt_that_is_stopped_keeps_what_it_has_read_and_no_collection_takes_it() {
    let (sandbox, settings) = unfinished();
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let mut to_read = Vec::new();
    loop {
        let (bytes, attempt) = attempt_until_something_is_read(&store_of(&sandbox), &project, &settings);
        to_read.push(bytes);
        match attempt {
            Attempt::Stopped => {}
            Attempt::Done { report, .. } => {
                assert!(matches!(report.outcome, Outcome::Taken(_)), "{report:?}");
                break;
            }
            _ => panic!("there is a request"),
        }
        assert_eq!(ids_of(&sandbox, &sandbox.project()), [""; 0], "half a checkpoint is none");
        sandbox.assert_store_is_whole();
        collect(&sandbox);
        sandbox.store_git(&["gc", "--quiet", "--prune=now"]);
    }
    assert!(
        to_read.len() > 2 && to_read.is_sorted_by(|one, next| one > next),
        "no attempt begins from the start: {to_read:?}"
    );
    let ids = ids_of(&sandbox, &sandbox.project());
    assert_eq!(sandbox.held_by(&ids[0]), files_in(&sandbox.project()));
    sandbox.assert_store_is_whole();
    let again = crate::kit::take(&sandbox);
    assert!(matches!(again.outcome, Outcome::Unchanged(_)), "the whole of it is known: {again:?}");
    assert!(!sandbox.store().join("refs/unfinished").read_dir().expect("a directory").any(|_| true));
    collect(&sandbox);
    assert_eq!(sandbox.held_by(&ids[0]), files_in(&sandbox.project()));
}

#[test]
fn a_take_by_hand_goes_on_from_what_was_read() {
    let (sandbox, settings) = unfinished();
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let store = store_of(&sandbox);
    let (all, attempt) = attempt_until_something_is_read(&store, &project, &settings);
    assert!(matches!(attempt, Attempt::Stopped), "{attempt:?}");
    let progress = Progress::default();
    let request = piton::Request::default().kind(piton::CheckpointKind::Manual);
    let report = piton::take(&store, &project, &request, &settings, now(), &progress).expect("a take");
    assert!(progress.bytes_to_read.load(Ordering::Relaxed) < all);
    let Outcome::Taken(id) = report.outcome else { panic!("{report:?}") };
    assert_eq!(sandbox.held_by(&id.to_string()), files_in(&sandbox.project()));
    let completion = Completion::begin(&store, &project).expect("a lock").expect("free");
    let attempt = completion.attempt(&settings, &Progress::default()).expect("an attempt");
    assert!(matches!(attempt, Attempt::Nothing), "{attempt:?}");
}

#[test]
fn a_restore_goes_on_from_what_was_read() {
    let sandbox = Sandbox::new();
    sandbox.tree("keep = one");
    crate::kit::take(&sandbox);
    let before = files_in(&sandbox.project());
    let (sandbox, settings) = unfinished_in(sandbox);
    let full = files_in(&sandbox.project());
    let project = Project::at(&sandbox.project(), None).expect("a project");
    let store = store_of(&sandbox);
    let (all, attempt) = attempt_until_something_is_read(&store, &project, &settings);
    assert!(matches!(attempt, Attempt::Stopped), "{attempt:?}");
    let (progress, options) = (Progress::default(), piton::RestoreOptions::default());
    let named = piton::RestoreTo::Named("1");
    let restore = piton::Restore::prepare(&store, &project, named, options, &settings, now(), &progress);
    let report = restore.expect("a plan").apply().expect("a restore");
    let to_read = progress.bytes_to_read.load(Ordering::Relaxed);
    assert!(to_read < all, "{to_read} of {all} bytes were read again");
    assert_eq!(files_in(&sandbox.project()), before);
    let safety = report.safety.expect("a safety checkpoint").to_string();
    assert_eq!(sandbox.held_by(&safety), full);
    let left = sandbox.store().join("refs/unfinished");
    assert!(!left.exists() || !left.read_dir().expect("a directory").any(|_| true), "progress is kept for nothing");
    sandbox.assert_store_is_whole();
}
