//! Turns whose hook was killed before it could record that they have no checkpoint.

use crate::id::ProjectId;
use crate::journal::{Event, Journal, Level};
use crate::store::{BegunHook, Origin, Store};

/// Longest time that a hook runs. A hook that gives up at its deadline records that itself, within this time.
const HOOK_SECS_MAX: i64 = 30;

/// Records the turns whose hooks were killed before their checkpoints were complete, and returns them.
///
/// A note that cannot be recorded is kept for the next call.
pub fn note_killed_hooks(store: &Store, journal: &Journal) -> Vec<Event> {
    let mut noted = Vec::new();
    store.hooks.take_killed(|begun| {
        if has_checkpoint(store, &begun) || is_told(journal, &begun) {
            return true;
        }
        let Origin { agent, session, turn } = begun.origin;
        let what = "the hook was stopped before its checkpoint was complete".to_owned();
        let (level, project) = (Level::Unprotected, Some(begun.project));
        let event = Event { time: begun.time, level, agent, session, turn, project, what };
        let is_noted = journal.note(&event);
        noted.push(event);
        is_noted
    });
    noted
}

/// Returns true if the hook was killed after its checkpoint was complete.
fn has_checkpoint(store: &Store, begun: &BegunHook) -> bool {
    let project = ProjectId::of(&begun.project);
    let newest = || {
        let held = store.locks.share().ok()?;
        let newest = store.refs.newest(&project).ok()??;
        store.objects.open(&held).ok()?.checkpoint(newest).ok()
    };
    let has_turn = match (&begun.origin.session, &begun.origin.turn) {
        (Some(session), Some(turn)) => store.records.get(&project).has_turn(session, turn),
        _ => false,
    };
    has_turn || begun.origin.turn.is_some() && newest().is_some_and(|newest| newest.facts.origin == begun.origin)
}

/// Returns true if the hook itself has recorded that it missed its checkpoint.
fn is_told(journal: &Journal, begun: &BegunHook) -> bool {
    let span = begun.time.secs..=begun.time.secs + HOOK_SECS_MAX;
    journal.unprotected_turns(begun.time.secs).iter().any(|event| {
        let is_its = event.agent == begun.origin.agent && event.session == begun.origin.session;
        is_its && (event.turn.is_none() || event.turn == begun.origin.turn) && span.contains(&event.time.secs)
    })
}
