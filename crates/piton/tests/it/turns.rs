//! Turns with both ends: reported, not reported, and gone.

use std::fs;

use piton::{
    CheckpointId, CheckpointKind, ErrorKind, History, Origin, Outcome, Project, Request, Settings, Turn, TurnEnd,
    note_turn_end,
};
use testkit::Sandbox;

use crate::kit::{now, take_for};
use crate::upkeep::store_of;

pub(crate) fn origin(session: &str, turn: &str) -> Origin {
    Origin::default().agent("claude").session(session).turn(turn)
}

pub(crate) fn take(sandbox: &Sandbox, reason: &str, origin: Origin) -> CheckpointId {
    let request = Request::default().kind(CheckpointKind::Auto).origin(origin).reason(reason);
    let settings = Settings::default().enabled(true);
    match take_for(sandbox, &sandbox.project(), &settings, &request).outcome {
        Outcome::Taken(id) | Outcome::Unchanged(id) => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn start(sandbox: &Sandbox, session: &str, turn: &str) -> CheckpointId {
    take(sandbox, &format!("prompt: {turn}"), origin(session, turn))
}

pub(crate) fn end(sandbox: &Sandbox, session: &str, turn: &str) -> CheckpointId {
    let after = take(sandbox, "end of turn", Origin::default());
    let (store, project) = (store_of(sandbox), Project::at(&sandbox.project(), None).expect("a project"));
    note_turn_end(&store, &project, &origin(session, turn), after, now()).expect("noted");
    after
}

pub(crate) fn turns(sandbox: &Sandbox) -> Vec<Turn> {
    let project = Project::at(&sandbox.project(), None).expect("a project");
    History::of(&store_of(sandbox), &project).expect("a history").turns()
}

fn named(sandbox: &Sandbox) -> Vec<(String, CheckpointId, TurnEnd)> {
    turns(sandbox).into_iter().map(|turn| (turn.record.turn, turn.before, turn.end)).collect()
}

fn write(sandbox: &Sandbox, contents: &str) {
    fs::write(sandbox.project().join("file"), contents).expect("a file");
}

#[test]
fn a_turn_ends_where_its_agent_reports_it_and_else_at_the_next_prompt_of_its_session() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let one = start(&sandbox, "s", "one");
    write(&sandbox, "work of one");
    let one_end = end(&sandbox, "s", "one");
    write(&sandbox, "an edit by the user");
    let two = start(&sandbox, "s", "two");
    write(&sandbox, "work of two, and Esc");
    // A prompt of another session does not end it.
    let other = start(&sandbox, "other", "x");
    write(&sandbox, "work of x");
    let three = start(&sandbox, "s", "three");
    let want = [
        ("three".to_owned(), three, TurnEnd::Open),
        ("x".to_owned(), other, TurnEnd::Open),
        ("two".to_owned(), two, TurnEnd::OpenEnded(three)),
        ("one".to_owned(), one, TurnEnd::Reported(one_end)),
    ];
    assert_eq!(named(&sandbox), want);
}

#[test]
fn a_turn_that_changed_nothing_ends_where_it_began() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let before = start(&sandbox, "s", "one");
    assert_eq!(end(&sandbox, "s", "one"), before);
    assert_eq!(named(&sandbox), [("one".to_owned(), before, TurnEnd::Reported(before))]);
}

#[test]
fn the_end_of_a_turn_is_found_after_a_purge_and_known_to_be_gone_after_a_loss() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    sandbox.write("secret", "s");
    start(&sandbox, "s", "one");
    write(&sandbox, "1");
    end(&sandbox, "s", "one");
    let (store, project) = (store_of(&sandbox), Project::at(&sandbox.project(), None).expect("a project"));
    let secret = [b"secret".to_vec()];
    let report = piton::purge(&store, &project, &secret, now(), &piton::Progress::default()).expect("purged");
    let ids = sandbox.store_git(&["for-each-ref", "--format=%(objectname)", "refs/hermes"]);
    let newest = CheckpointId::from_hex(ids.trim_ascii_end()).expect("an id");
    assert!(report.rewritten.iter().any(|(_, new)| *new == newest));
    assert_eq!(turns(&sandbox)[0].end, TurnEnd::Reported(newest));
    // Another program drops the newest checkpoint.
    let name = sandbox.store_git(&["for-each-ref", "--format=%(refname)", "refs/hermes"]);
    let name = String::from_utf8(name).expect("a ref");
    sandbox.store_git(&["update-ref", name.trim(), &format!("{newest}~1")]);
    assert_eq!(turns(&sandbox)[0].end, TurnEnd::Dropped);
}

#[test]
fn an_end_needs_a_turn_and_a_checkpoint_of_the_project() {
    let sandbox = Sandbox::new();
    write(&sandbox, "0");
    let before = start(&sandbox, "s", "one");
    let (store, project) = (store_of(&sandbox), Project::at(&sandbox.project(), None).expect("a project"));
    let note = |origin: &Origin, after| note_turn_end(&store, &project, origin, after, now()).map_err(|e| e.kind());
    assert_eq!(note(&Origin::default(), before), Err(ErrorKind::Invalid));
    assert_eq!(note(&origin("s", "one"), CheckpointId::from_bytes([7; 20])), Err(ErrorKind::NotFound));
    assert_eq!(note(&origin("s", "other"), before), Err(ErrorKind::NotFound));
    assert_eq!(named(&sandbox), [("one".to_owned(), before, TurnEnd::Open)]);
}
