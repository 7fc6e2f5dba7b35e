//! Versions of a session's record: every checkpoint taken for the session carries one, and a restore brings it back.

use std::fs;

use piton::session::{RecordAuthor, RecordRewind, SessionId, Sessions};
use piton::{Checkpoint, CheckpointKind, Origin, Outcome, Request, RestoreTo, Settings};
use testkit::Sandbox;

use crate::kit::{newest, now, take_for};
use crate::restore_kit::restored;

fn id() -> SessionId {
    SessionId::parse("talk").expect("an id")
}

fn note(sandbox: &Sandbox, task: &str) -> Vec<u8> {
    let text = format!("task: {task}\n");
    Sessions::in_base(&sandbox.base()).write(&id(), text.as_bytes(), RecordAuthor::Agent, now()).expect("a record");
    record(sandbox)
}

fn record(sandbox: &Sandbox) -> Vec<u8> {
    fs::read(sandbox.base().join("talk.yaml")).expect("a record")
}

fn take(sandbox: &Sandbox, session: Option<&str>) -> Outcome {
    let origin = session.map_or_else(Origin::default, |session| Origin::default().session(session));
    let request = Request::default().reason("a test").kind(CheckpointKind::Manual).origin(origin);
    take_for(sandbox, &sandbox.project(), &Settings::default(), &request).outcome
}

fn rewind(sandbox: &Sandbox, to: &Checkpoint, saved: Option<&[u8]>) -> RecordRewind {
    Sessions::in_base(&sandbox.base()).rewind(to, saved).expect("no error")
}

#[test]
fn a_checkpoint_carries_the_record_of_its_session() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let first = note(&sandbox, "first é");
    take(&sandbox, Some("talk"));
    assert_eq!(newest(&sandbox).facts.record, Some(first));
    // Only the record changed: the files are the same, so there is no new checkpoint.
    let second = note(&sandbox, "second");
    assert!(matches!(take(&sandbox, Some("talk")), Outcome::Unchanged(_)));
    sandbox.write("a", "2");
    take(&sandbox, Some("talk"));
    assert_eq!(newest(&sandbox).facts.record, Some(second));
    for session in [None, Some("another"), Some("../talk"), Some("")] {
        sandbox.write("a", format!("{session:?}"));
        take(&sandbox, session);
        assert_eq!(newest(&sandbox).facts.record, None);
    }
    // A record that is too large is left out.
    note(&sandbox, &"x".repeat(300_000));
    sandbox.write("a", "3");
    take(&sandbox, Some("talk"));
    assert_eq!(newest(&sandbox).facts.record, None);
    sandbox.assert_store_is_whole();
}

#[test]
fn a_restore_brings_the_record_back_and_an_undo_takes_it_forward_again() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let first = note(&sandbox, "first");
    take(&sandbox, Some("talk"));
    sandbox.write("a", "2");
    let second = note(&sandbox, "second");
    let report = restored(&sandbox, RestoreTo::Named("1"), &[]);
    assert_eq!(report.record, Some(RecordRewind::Replaced));
    assert_eq!(record(&sandbox), first);
    for (to, expected) in [(RestoreTo::Undo, &second), (RestoreTo::Redo, &first), (RestoreTo::Undo, &second)] {
        let report = restored(&sandbox, to, &[]);
        assert_eq!(report.record, Some(RecordRewind::Replaced));
        assert_eq!(&record(&sandbox), expected);
    }
    sandbox.assert_store_is_whole();
}

#[test]
fn a_restore_leaves_the_record_where_it_should() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    take(&sandbox, None);
    sandbox.write("a", "2");
    take(&sandbox, Some("talk"));
    sandbox.write("a", "3");
    note(&sandbox, "first");
    take(&sandbox, Some("talk"));
    sandbox.write("a", "4");
    let second = note(&sandbox, "second");
    // Restoring one file does not rewind the record.
    assert_eq!(restored(&sandbox, RestoreTo::Named("1"), &["a"]).record, None);
    assert_eq!(record(&sandbox), second);
    // Number 1 is the safety checkpoint by then, and number 2 has the first record.
    assert_eq!(restored(&sandbox, RestoreTo::Named("3"), &[]).record, Some(RecordRewind::NoRecordThen));
    assert_eq!(record(&sandbox), second);
    assert_eq!(restored(&sandbox, RestoreTo::Named("5"), &[]).record, None);
    assert_eq!(record(&sandbox), second);
}

#[test]
fn a_record_that_is_saved_nowhere_is_left_alone() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "1");
    let first = note(&sandbox, "first");
    take(&sandbox, Some("talk"));
    let checkpoint = newest(&sandbox);
    assert_eq!(rewind(&sandbox, &checkpoint, None), RecordRewind::Same);
    let second = note(&sandbox, "second");
    let third = note(&sandbox, "third");
    // The record changed after it was saved.
    assert_eq!(rewind(&sandbox, &checkpoint, Some(&second)), RecordRewind::Unsaved);
    assert_eq!(rewind(&sandbox, &checkpoint, None), RecordRewind::Unsaved);
    assert_eq!(record(&sandbox), third);
    assert_eq!(rewind(&sandbox, &checkpoint, Some(&third)), RecordRewind::Replaced);
    assert_eq!(record(&sandbox), first);
    // The record is too large for the safety checkpoint of a restore.
    let large = note(&sandbox, &"x".repeat(300_000));
    sandbox.write("a", "2");
    let report = restored(&sandbox, RestoreTo::Named("1"), &[]);
    assert_eq!(report.record, Some(RecordRewind::Unsaved));
    assert_eq!(record(&sandbox), large);
    // A deleted record comes back.
    Sessions::in_base(&sandbox.base()).delete(&id()).expect("no error");
    assert_eq!(rewind(&sandbox, &checkpoint, None), RecordRewind::Replaced);
    assert_eq!(record(&sandbox), first);
}
