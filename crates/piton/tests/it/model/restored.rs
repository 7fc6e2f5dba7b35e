//! Checks of a restore: against its plan, against the request and, if nothing happened since, against every bit of the
//! state before.

use std::collections::BTreeMap;

use testkit::Held;

use super::call::{Answer, To};
use super::files::{Scope, Went, held};
use super::known::{Going, Kept};
use super::world::World;
use crate::restore_kit::{State, assert_same, state_of};

impl World<'_> {
    /// Returns the rules of a state, with the current settings.
    pub(super) fn rules_of(&self, state: &State) -> Scope {
        Scope::of(state, self.excludes)
    }

    pub(super) fn went<'b>(
        &self,
        going: &'b Going,
        after: &'b State,
        saved: &'b [BTreeMap<Vec<u8>, Held>],
        is_all: bool,
        words: &'b str,
    ) -> Went<'b> {
        let Going { before, target, paths, moves_aside, .. } = going;
        let rules = [self.rules_of(before), Scope::of(&target.state, target.excludes)];
        let (want, moves_aside, is_plain) = (&target.state, *moves_aside, target.is_plain);
        Went { before, after, want, rules, paths, is_all, moves_aside, is_plain, saved, words }
    }

    /// Records a restore, and asserts that it did what it reported, and no more.
    pub(super) fn note_restored(&mut self, number: usize, going: &Going, answer: Answer) {
        let Going { before, target, verb, paths, .. } = going;
        let after = state_of(&self.projects[number].dir);
        let words = format!("{verb:?} of {} {paths:?}: {answer:?}", target.id);
        let (safety, left, unforeseen) = match answer {
            Answer::Restored { safety, left, unforeseen } => (safety, left, unforeseen),
            // The path was removed by a purge.
            Answer::Failed { kind, .. } if kind == "not_found" && !target.is_plain && !paths.is_empty() => {
                (None, paths.clone(), None)
            }
            _ => panic!("{words}"),
        };
        assert_eq!(unforeseen, None, "{words}");
        let is_all = left.is_empty();
        let saved = safety.as_ref().map(|id| self.sandbox.held_by(id)).unwrap_or_default();
        self.went(going, &after, std::slice::from_ref(&saved), is_all, &words).check();
        let undoable = self.projects[number].undoable.take().filter(|_| matches!(verb, To::Undo | To::Redo));
        if let Some((want, _)) = undoable.filter(|(_, was)| was == before && !target.is_purged) {
            // Nothing happened since the restore: undo restores every bit, in scope or not.
            assert_same(&after, &want, &format!("undone: {words}"));
            assert!(is_all, "{words}");
        }
        let Some(id) = safety else {
            return assert_same(&after, before, &format!("nothing was to be done: {words}"));
        };
        let session = target.session.clone();
        let record = session.as_ref().and_then(|session| self.sessions.get(session).cloned());
        let restored = Some((*verb == To::Undo, paths.clone()));
        let excludes = self.excludes;
        // Files that the restore created out of scope are removed by a restore to its safety checkpoint.
        let rules = [self.rules_of(before), self.rules_of(&after)];
        let is_made = |path: &Vec<u8>| !before.contains_key(path) && rules.iter().any(|rules| rules.ignore(path));
        let makes_outside = going.moves_aside || after.keys().any(is_made);
        // A safety checkpoint also holds what the previous restore created there, and what restored rules bring into
        // scope.
        let is_usual = target.is_plain && rules[0] == rules[1] && !makes_outside;
        let is_plain = is_usual && saved == held(before, excludes);
        let project = &mut self.projects[number];
        project.is_stale = false;
        project.undoable = Some((before.clone(), after));
        let state = before.clone();
        let new = Kept::new(id, state, excludes);
        project.kept.push(Kept { restored, session: session.clone(), record, is_plain, ..new });
        // The record is restored with the files if all of them were.
        if let (Some(session), Some(record), true, true) = (session, &target.record, is_all, paths.is_empty()) {
            self.sessions.insert(session, record.clone());
        }
    }
}
