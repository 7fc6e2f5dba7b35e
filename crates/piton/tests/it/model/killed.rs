//! A process that is killed during a call: its effect must be all or nothing, and the model adopts it.

use std::fs;
use std::time::Duration;

use super::call::{Answer, To, What, read_record};
use super::files::{NAMES, held};
use super::known::{Going, Kept, noted};
use super::world::{World, name_of, number_in};
use super::{Ending, PROJECTS, SESSIONS, Verb};
use crate::kit::next_tick;
use crate::restore_kit::{State, state_of};

impl World<'_> {
    /// Kills a process during a call and adopts its effect, which may be all or nothing.
    pub(super) fn kill(&mut self, verb: &Verb, after_us: u64, ending: Ending) {
        let Some((call, going)) = self.plan(verb) else { return };
        let states: Vec<_> = self.projects.iter().map(|project| state_of(&project.dir)).collect();
        let answer = self.processes.killed(&call, Duration::from_micros(after_us));
        if let Some(answer) = answer {
            return self.note(verb, &call.what, answer, going);
        }
        match verb {
            Verb::Prune { gone: Some(gone) } => fs::create_dir(&self.projects[*gone].dir).expect("a directory"),
            Verb::Purge { project, name } => self.adopt_purged(*project, NAMES[*name].as_bytes()),
            Verb::Turn { project, session, turn } => {
                let (turns, is_certain) = self.projects[*project].turns.entry(name_of(*session)).or_default();
                turns.push(format!("turn-{turn}"));
                *is_certain = false;
                self.leave_turn(*project, &name_of(*session), &format!("turn-{turn}"));
            }
            Verb::End { session } => {
                for (number, state) in states.iter().enumerate().take(PROJECTS) {
                    self.adopt(number, state.clone(), None, Some(name_of(*session)), false);
                    self.projects[number].undoable = None;
                    if std::mem::take(&mut self.projects[number].is_stale) {
                        self.go_stale(number);
                    }
                }
            }
            Verb::Take { is_trusted: true, .. } => next_tick(&self.sandbox),
            _ => {}
        }
        match verb {
            Verb::Clear => (0..PROJECTS).for_each(|number| self.doubt(number)),
            Verb::Prune { .. } | Verb::Maintain => self.doubt_stale(),
            _ => {}
        }
        if let Verb::Prune { gone: Some(gone) } = verb {
            self.doubt(*gone);
        }
        if let Some(number) = verb.project() {
            // The killed call may have updated the time of last use: a stale project is made stale again below.
            let was_stale = std::mem::take(&mut self.projects[number].is_stale);
            let restored = going.as_ref().map(|going| (going.verb == To::Undo, going.paths.clone()));
            let session = match verb {
                Verb::Turn { session, .. } | Verb::Within { session, .. } => Some(name_of(*session)),
                _ => going.as_ref().and_then(|going| going.target.session.clone()),
            };
            self.projects[number].undoable = None;
            let is_row = !matches!(verb, Verb::Within { .. });
            self.adopt(number, states[number].clone(), restored, session, is_row);
            if was_stale {
                self.go_stale(number);
            }
            if let Some(going) = going {
                self.end(number, &going, ending);
            }
        }
        for session in 0..SESSIONS {
            self.adopt_record(&name_of(session), &call.what);
        }
    }

    /// Adopts the list after a process was killed: at most one checkpoint is new, and the oldest may be missing, down
    /// to as many as are kept.
    fn adopt(
        &mut self,
        number: usize,
        state: State,
        restored: Option<(bool, Vec<Vec<u8>>)>,
        session: Option<String>,
        is_row: bool,
    ) {
        let mut listed = self.listed(number);
        listed.reverse();
        let record = session.as_ref().and_then(|session| self.sessions.get(session).cloned());
        let keeps = usize::try_from(self.max_snapshots).expect("few");
        let has_limit = self.max_total_size_mb > 0;
        let kept = &mut self.projects[number].kept;
        if let Some(id) = listed.last().filter(|id| kept.last().is_none_or(|newest| newest.id != **id)) {
            let is_plain = restored.is_none();
            let new = Kept::new(id.clone(), state, self.excludes);
            kept.push(Kept { is_row, restored, session, record, is_plain, ..new });
        }
        let gone = kept.len().saturating_sub(listed.len());
        assert!(gone == 0 || listed.len() >= keeps || has_limit, "{gone} are gone, and {} are left", listed.len());
        if has_limit {
            kept.retain(|kept| listed.contains(&kept.id));
        } else {
            kept.drain(..gone);
        }
    }

    fn adopt_purged(&mut self, number: usize, path: &[u8]) {
        let listed = self.listed(number);
        for (kept, id) in self.projects[number].kept.iter_mut().rev().zip(listed) {
            if kept.id != id {
                kept.id = id;
                kept.lose(path);
            }
        }
    }

    /// Adopts a record that was being written: it is as before, or as it was to be written or restored.
    fn adopt_record(&mut self, name: &str, what: &What) {
        let found = noted(read_record(&self.sandbox.base(), name));
        let had = self.sessions.get(name).cloned();
        if found == had {
            return;
        }
        let is_explained = match what {
            What::Delete { session } => session == name && found.is_none(),
            What::Write { session, .. } | What::Update { session, .. } => {
                session == name && found.as_ref().is_some_and(|found| found.steps.last() == Some(&number_in(what)))
            }
            What::Restore { .. } => {
                let mut all = self.projects.iter().flat_map(|project| &project.kept);
                all.any(|kept| kept.session.as_deref() == Some(name) && kept.record == found)
            }
            _ => false,
        };
        assert!(is_explained, "{name} was {had:?}, and is {found:?} after a killed {what:?}");
        match found {
            Some(found) => drop(self.sessions.insert(name.to_owned(), found)),
            None => drop(self.sessions.remove(name)),
        }
    }

    /// Continues or aborts a restore that was killed.
    fn end(&mut self, number: usize, going: &Going, ending: Ending) {
        let dir = self.projects[number].dir.clone();
        let between = state_of(&dir);
        let to = if ending == Ending::Continue { To::Continue } else { To::Abort };
        let moves_aside = false;
        let answer = self.call(What::Restore { dir: dir.clone(), to, paths: Vec::new(), moves_aside }).make();
        let between = between.into_iter().filter(|(path, _)| !is_left_over(path)).collect();
        self.adopt(number, between, None, going.target.session.clone(), true);
        let after = state_of(&dir);
        let words = format!("{ending:?} of a killed {:?} {:?}: {answer:?}", going.verb, going.paths);
        // The checkpoints that the restore and its end have taken are the newest, if they got that far.
        let newest = self.projects[number].kept.iter().rev().take(2).rev();
        let saved: Vec<_> = newest.map(|kept| self.sandbox.held_by(&kept.id)).collect();
        let went = |is_all| self.went(going, &after, &saved, is_all, &words);
        let before = &going.before;
        match (&answer, ending) {
            (Answer::Restored { left, .. }, Ending::Continue) => went(left.is_empty()).check(),
            (Answer::Restored { left, .. }, Ending::Abort) if left.is_empty() => {
                assert_eq!(held(&after, self.excludes), held(before, self.excludes), "{words}");
            }
            (Answer::Restored { .. }, Ending::Abort) => {
                let rules = self.rules_of(before);
                assert!(before.keys().any(|path| rules.ignore(path)), "{words}");
            }
            // It had not begun, or was complete.
            (Answer::Failed { kind, .. }, _) if kind == "not_found" => {
                if after != *before {
                    went(false).check_files();
                }
            }
            _ => panic!("{words}"),
        }
        assert!(!after.keys().any(|path| is_left_over(path)), "{words} left something");
    }
}

/// Returns true for a temporary file that a killed restore leaves until it is continued or aborted.
fn is_left_over(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b".piton-restore-"))
}
