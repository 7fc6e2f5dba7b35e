//! The model: the projects with their files and checkpoints, and the session records. Every step is made for real and
//! recorded here, and then both are compared.

use std::collections::BTreeMap;
use std::fs;

use piton::Moment;
use serde_json::{Value, json};
use testkit::{Sandbox, space};

use super::call::{Answer, Call, Processes, To, What, read_record};
use super::files::{NAMES, Scope, held, is_within};
use super::known::{Going, Kept, Noted, Project, noted};
use super::{PROJECTS, SESSIONS, Step, Verb};
use crate::kit::{next_tick, now};
use crate::restore_kit::state_of;

pub(super) struct World<'a> {
    pub(super) sandbox: Sandbox,
    pub(super) processes: &'a mut Processes,
    pub(super) projects: Vec<Project>,
    pub(super) sessions: BTreeMap<String, Noted>,
    pub(super) max_snapshots: u64,
    pub(super) max_total_size_mb: u64,
    pub(super) excludes: bool,
    pub(super) count: u64,
    /// Time of the last take while an agent was at work.
    pub(super) clock_secs: i64,
}

pub(super) fn name_of(session: usize) -> String {
    format!("session-{session}")
}

impl<'a> World<'a> {
    pub(super) fn new(processes: &'a mut Processes) -> Self {
        let sandbox =
            std::env::var_os("PITON_MODEL_DIR").map_or_else(Sandbox::new, |dir| Sandbox::new_in(dir.as_ref()));
        let project =
            |number| Project { dir: sandbox.other_project(&format!("project-{number}")), ..Project::default() };
        let projects = (0..PROJECTS).map(project).collect();
        let sessions = BTreeMap::new();
        let (max_snapshots, max_total_size_mb) = (4, 0);
        let (excludes, count, clock_secs) = (false, 0, now().secs);
        Self { sandbox, processes, projects, sessions, max_snapshots, max_total_size_mb, excludes, count, clock_secs }
    }

    /// Makes a step, and compares everything that it may have changed. The user's own steps change no store.
    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Edit { project, edit } => return edit.make(&self.projects[*project].dir),
            Step::Limits { max_snapshots, max_total_size_mb } => {
                (self.max_snapshots, self.max_total_size_mb) = (*max_snapshots, *max_total_size_mb);
                return;
            }
            Step::Exclude { excludes } => {
                self.excludes = *excludes;
                return self.projects.iter_mut().for_each(|project| project.undoable = None);
            }
            Step::Work { project, takes, minutes } => self.work(*project, *takes, *minutes),
            Step::GoStale { project } => self.go_stale(*project),
            Step::Run { process, verb } => {
                if let Some((call, going)) = self.plan(verb) {
                    let answer = self.processes.call(*process, &call);
                    self.note(verb, &call.what, answer, going);
                }
            }
            Step::Both { verbs } => self.both(verbs),
            Step::Kill { verb, after_us, ending } => self.kill(verb, *after_us, *ending),
        }
        self.agree();
    }

    fn both(&mut self, verbs: &[Verb; 2]) {
        let one_by_one = |world: &mut Self| {
            for (process, verb) in verbs.iter().enumerate() {
                world.step(&Step::Run { process: process + 1, verb: verb.clone() });
            }
        };
        if !self.can_meet(&verbs[0], &verbs[1]) {
            return one_by_one(self);
        }
        let (Some(first), Some(second)) = (self.plan(&verbs[0]), self.plan(&verbs[1])) else {
            return one_by_one(self);
        };
        let answers = self.processes.both(&[first.0.clone(), second.0.clone()]);
        let [one, two] = answers;
        let mut all = vec![(&verbs[0], first, one), (&verbs[1], second, two)];
        // Of two takes of the same state, one has nothing to do; of two for the same turn, only one may take; and of
        // two updates, one yields to an agent's.
        all.sort_by_key(|(_, _, answer)| match answer {
            Answer::Taken(_) => 0,
            Answer::Unchanged(_) => 1,
            Answer::Declined => 3,
            Answer::Skipped(why) if why == "already_this_turn" => 3,
            _ => 2,
        });
        // Two updates may come in either order.
        let name = verbs[0].session().filter(|_| verbs[1].session() == verbs[0].session());
        if let (Some(name), Verb::Update { .. }, Verb::Update { .. }) = (name, &verbs[0], &verbs[1]) {
            let found = noted(read_record(&self.sandbox.base(), &name_of(name))).map(|noted| noted.steps);
            let numbers = all.iter().map(|(_, (call, _), _)| number_in(&call.what));
            let are_done = all.iter().all(|(_, _, answer)| *answer == Answer::Done);
            if are_done && found.is_some_and(|steps| steps.last().copied() == numbers.clone().next()) {
                all.reverse();
            }
        }
        let had: Vec<_> = (0..PROJECTS).map(|number| self.rows(number)).collect();
        let mut listed = Vec::new();
        for (verb, (call, going), answer) in all {
            match (verb, answer) {
                (Verb::List { project }, Answer::Listed(list)) => listed.push((*project, list)),
                (_, answer) => self.note(verb, &call.what, answer, going),
            }
            // A failed attempt is recorded afterwards, so that the same turn may have two at the same time.
            if let Verb::Turn { project, session, .. } = verb {
                let (project, name) = (&mut self.projects[*project], name_of(*session));
                let is_refused = project.refused.contains(&name);
                project.turns.entry(name).and_modify(|(_, is_certain)| *is_certain &= !is_refused);
            }
        }
        // A concurrent list shows the state before or after, or both the new checkpoints and those about to be dropped.
        for (project, list) in listed {
            let is_new = |id: &String| !had[project].contains(id);
            let all: Vec<_> = self.rows(project).into_iter().filter(is_new).chain(had[project].clone()).collect();
            let is_part =
                list.is_empty() && had[project].is_empty() || all.windows(list.len().max(1)).any(|part| part == list);
            assert!(is_part, "the list was {list:?}, and is no part of {all:?}");
        }
    }

    /// Returns true if two concurrent calls have one possible outcome, or two that can be told apart.
    fn can_meet(&self, one: &Verb, two: &Verb) -> bool {
        let meets = |one: &Verb, two: &Verb| {
            let is_take = |verb: &Verb| matches!(verb, Verb::Take { .. } | Verb::Turn { .. });
            let only_looks = |verb: &Verb| matches!(verb, Verb::List { .. } | Verb::Verify);
            let same_project = one.project().is_some() && one.project() == two.project();
            let goes_back = matches!(one, Verb::Restore { .. } | Verb::Undo { .. });
            let is_stale = |verb: &Verb| verb.project().is_some_and(|number| self.projects[number].is_stale);
            let needs_checkpoints = matches!(one, Verb::Diff { .. } | Verb::Purge { .. }) || goes_back;
            match one {
                Verb::End { .. } | Verb::Within { .. } => matches!(two, Verb::Verify),
                // The other call may drop checkpoints that this one needs.
                _ if self.max_total_size_mb > 0 && needs_checkpoints => false,
                Verb::Clear => false,
                Verb::Prune { gone } => gone.is_none() && !is_stale(two),
                Verb::Maintain => !is_stale(two),
                Verb::Update { .. } => matches!(two, Verb::Update { .. }) || one.session() != two.session(),
                _ if goes_back && two.session().is_some() => false,
                _ if same_project && goes_back => only_looks(two),
                _ if same_project && matches!(one, Verb::Purge { .. }) => matches!(two, Verb::Verify),
                Verb::Turn { session, turn, .. } if same_project => match two {
                    Verb::Turn { session: other, turn: same, .. } => session != other || turn == same,
                    _ => is_take(two) || only_looks(two),
                },
                _ if same_project => is_take(one) && is_take(two) || only_looks(one) || only_looks(two),
                _ => one.session().is_none() || one.session() != two.session(),
            }
        };
        meets(one, two) && meets(two, one)
    }

    /// Returns the call for a verb in the current state, if there is one, and its restore.
    pub(super) fn plan(&mut self, verb: &Verb) -> Option<(Call, Option<Going>)> {
        self.count += 1;
        let number = self.count;
        let dir = |project: &usize| self.projects[*project].dir.clone();
        let text = |number: u64| json!({"task": "model", "progress": [number]}).to_string();
        let going = match verb {
            Verb::Restore { .. } | Verb::Undo { .. } => Some(self.going(verb)?),
            _ => None,
        };
        let what = match verb {
            Verb::Take { project, is_trusted } => What::Take { dir: dir(project), is_trusted: *is_trusted },
            Verb::Turn { project, session, turn } => {
                What::Turn { dir: dir(project), session: name_of(*session), turn: format!("turn-{turn}") }
            }
            Verb::End { session } => What::End { session: name_of(*session) },
            Verb::Within { project, session } => What::Within { dir: dir(project), session: name_of(*session) },
            Verb::List { project } => What::List { dir: dir(project) },
            Verb::Diff { project, checkpoint } => {
                let kept = &self.projects[*project].kept;
                What::Diff { dir: dir(project), id: kept.get(checkpoint.checked_rem(kept.len())?)?.id.clone() }
            }
            Verb::Restore { project, .. } | Verb::Undo { project, .. } => {
                let going = going.as_ref().expect("made above");
                let paths = if matches!(going.verb, To::Named(_)) { going.paths.clone() } else { Vec::new() };
                What::Restore { dir: dir(project), to: going.verb.clone(), paths, moves_aside: going.moves_aside }
            }
            Verb::Prune { gone } => {
                if let Some(gone) = gone {
                    fs::remove_dir_all(dir(gone)).expect("a directory of ours");
                }
                What::Prune
            }
            Verb::Maintain => What::Maintain,
            Verb::Purge { project, name } => What::Purge { dir: dir(project), path: NAMES[*name].into() },
            Verb::Clear => What::Clear,
            Verb::Write { session, is_automatic } => {
                What::Write { session: name_of(*session), text: text(number), is_automatic: *is_automatic }
            }
            Verb::Update { session, is_automatic } => {
                What::Update { session: name_of(*session), text: text(number), is_automatic: *is_automatic }
            }
            Verb::Delete { session } => What::Delete { session: name_of(*session) },
            Verb::Verify => What::Verify,
        };
        Some((self.call(what), going))
    }

    pub(super) fn call(&self, what: What) -> Call {
        Call {
            base: self.sandbox.base(),
            home: self.sandbox.home(),
            max_snapshots: self.max_snapshots,
            max_total_size_mb: self.max_total_size_mb,
            excludes: self.excludes,
            what,
        }
    }

    fn going(&self, verb: &Verb) -> Option<Going> {
        let project = &self.projects[verb.project()?];
        let before = state_of(&project.dir);
        let moves_aside = matches!(verb, Verb::Restore { moves_aside: true, .. });
        let (target, verb, paths) = match verb {
            Verb::Restore { checkpoint, path, .. } => {
                let target = &project.kept[checkpoint.checked_rem(project.kept.len())?];
                let (now, then) = (self.rules_of(&before), Scope::of(&target.state, target.excludes));
                // Paths that the checkpoint holds, and paths created since.
                let held = target.state.keys().filter(|path| !then.ignore(path));
                let made = before.keys().filter(|path| !now.ignore(path) && !target.state.contains_key(*path));
                let paths: Vec<_> = held.chain(made.filter(|path| !then.ignore(path))).collect();
                let at = path.and_then(|path| path.checked_rem(paths.len()));
                let paths = at.map(|at| paths[at].clone()).into_iter().collect();
                (target, To::Named(target.id.clone()), paths)
            }
            Verb::Undo { wants_redo, .. } => {
                let target = project.kept.iter().rev().find(|kept| kept.restored.is_some())?;
                let (was_undo, paths) = target.restored.clone()?;
                (target, if *wants_redo && was_undo { To::Redo } else { To::Undo }, paths)
            }
            _ => return None,
        };
        Some(Going { before, target: target.clone(), verb, paths, moves_aside })
    }

    /// Makes the store believe that a project has not been used for longer than the retention time.
    pub(super) fn go_stale(&mut self, number: usize) {
        let project = &mut self.projects[number];
        let id = piton::Project::at(&project.dir, None).expect("a project").id().to_string();
        let path = self.sandbox.store().join("projects").join(format!("{id}.json"));
        let Ok(text) = fs::read_to_string(&path) else { return };
        let mut record: Value = serde_json::from_str(&text).expect("JSON");
        record["last_touch"] = json!(1_600_000_000.5);
        fs::write(path, record.to_string()).expect("a file");
        project.is_stale = true;
    }

    /// Records the answer of a call, and asserts that it is an expected one.
    pub(super) fn note(&mut self, verb: &Verb, what: &What, answer: Answer, going: Option<Going>) {
        let wrong = |answer: &Answer| -> ! { panic!("{verb:?} came to {answer:?}") };
        match (verb, answer) {
            (Verb::Take { project, is_trusted }, answer) => {
                self.note_taken(*project, None, answer, true);
                if *is_trusted {
                    next_tick(&self.sandbox);
                }
            }
            (Verb::Turn { project, session, turn }, answer) => {
                let (name, turn) = (name_of(*session), format!("turn-{turn}"));
                let had = self.projects[*project].turns.get(&name).filter(|(had, _)| had.contains(&turn));
                // A refused attempt is noted with the session, which outlives the project's record.
                let was_refused = self.projects[*project].refused.contains(&name);
                match (&answer, had) {
                    (Answer::Skipped(why), had) if why == "already_this_turn" && (had.is_some() || was_refused) => {}
                    (_, Some((_, true))) => wrong(&answer),
                    _ => {
                        self.note_taken(*project, Some(name.clone()), answer, true);
                        let Project { kept, refused, .. } = &mut self.projects[*project];
                        if kept.is_empty() {
                            refused.insert(name.clone())
                        } else {
                            refused.remove(&name)
                        };
                    }
                }
                self.leave_turn(*project, &name, &turn);
                self.projects[*project].turns.insert(name, (vec![turn], true));
            }
            (Verb::End { session } | Verb::Within { session, .. }, Answer::Ended(answers)) => {
                for (dir, answer) in answers {
                    let number =
                        self.projects.iter().position(|project| project.dir == dir).expect("a project of ours");
                    assert!(!self.projects[number].kept.is_empty(), "{verb:?} without a checkpoint at its start");
                    self.note_taken(number, Some(name_of(*session)), answer, false);
                }
            }
            (Verb::List { project }, Answer::Listed(list)) => assert_eq!(list, self.rows(*project), "the list"),
            (Verb::Diff { project, .. }, Answer::Differs(mut paths)) => {
                paths.sort();
                self.check_diff(*project, what, &paths);
            }
            (Verb::Restore { project, .. } | Verb::Undo { project, .. }, answer) => {
                self.note_restored(*project, &going.expect("a restore"), answer);
            }
            (Verb::Prune { gone }, Answer::Done) => self.note_pruned(*gone),
            // It prunes at most once a day.
            (Verb::Maintain, Answer::Done) => self.doubt_stale(),
            (Verb::Purge { project, name }, answer) => self.note_purged(*project, NAMES[*name].as_bytes(), answer),
            (Verb::Clear, Answer::Done) => (0..PROJECTS).for_each(|number| self.forget(number)),
            (Verb::Write { session, is_automatic } | Verb::Update { session, is_automatic }, answer) => {
                self.note_written(&name_of(*session), what, *is_automatic, answer);
            }
            (Verb::Delete { session }, Answer::Deleted(was_there)) => {
                assert_eq!(self.sessions.remove(&name_of(*session)).is_some(), was_there, "{verb:?}");
            }
            (Verb::Verify, Answer::Found(found)) => assert_eq!(found, [""; 0]),
            (_, answer) => wrong(&answer),
        }
    }

    /// Records that a session has begun a turn in a project. In other projects, a failed attempt is known only until
    /// then: a project without any checkpoint has no record of its own.
    pub(super) fn leave_turn(&mut self, number: usize, name: &str, turn: &str) {
        for (_, project) in self.projects.iter_mut().enumerate().filter(|(other, _)| *other != number) {
            if let Some((turns, is_certain)) = project.turns.get_mut(name) {
                *is_certain &= turns.iter().all(|had| had == turn) || !project.refused.contains(name);
            }
        }
    }

    fn note_taken(&mut self, number: usize, session: Option<String>, answer: Answer, is_row: bool) {
        let state = state_of(&self.projects[number].dir);
        let record = session.as_ref().and_then(|session| self.sessions.get(session).cloned());
        let has_limit = self.max_total_size_mb > 0;
        let keeps = usize::try_from(self.max_snapshots).expect("few");
        let project = &mut self.projects[number];
        match answer {
            Answer::Taken(id) => {
                project.is_stale = false;
                assert!(!project.kept.iter().any(|kept| kept.id == id), "an id that was there before");
                let excludes = self.excludes;
                project.kept.push(Kept { is_row, session, record, ..Kept::new(id, state, excludes) });
                project.undoable = None;
                // Ends and steps go with their row, and drop none.
                let mut rows = project.kept.iter().enumerate().rev().filter(|(_, kept)| kept.is_row);
                let oldest = rows.nth(keeps - 1).map_or(0, |(at, _)| at);
                project.kept.drain(..if is_row { oldest } else { 0 });
                if has_limit {
                    let bytes = space::bytes_below(&self.sandbox.store());
                    assert!(bytes <= self.max_total_size_mb << 20, "{bytes} bytes after a take");
                }
            }
            Answer::Unchanged(id) => {
                project.is_stale = false;
                let newest = project.kept.last().expect("a checkpoint that is the same");
                assert!(newest.is_row || !is_row, "an end has no number");
                let then =
                    if newest.is_plain { held(&newest.state, newest.excludes) } else { self.sandbox.held_by(&id) };
                assert_eq!((&id, then), (&newest.id, held(&state, self.excludes)), "unchanged since");
            }
            Answer::Skipped(why) if why == "empty" => {
                project.is_stale = false;
                let is_empty = project.kept.is_empty() && held(&state, self.excludes).is_empty();
                assert!(is_empty, "{} is not empty", project.dir.display());
            }
            Answer::Skipped(why) if why == "store_full" && has_limit => project.is_stale = false,
            other => panic!("a take came to {other:?}"),
        }
    }

    fn check_diff(&self, number: usize, what: &What, paths: &[Vec<u8>]) {
        let What::Diff { id, .. } = what else { panic!("no diff: {what:?}") };
        let (now, kept) = (state_of(&self.projects[number].dir), &self.projects[number].kept);
        let then = kept.iter().find(|kept| kept.id == *id).expect("it was there");
        if self.rules_of(&now) == Scope::of(&then.state, then.excludes) && then.is_plain {
            let (now, then) = (held(&now, self.excludes), held(&then.state, then.excludes));
            let mut differing: Vec<_> =
                now.keys().chain(then.keys()).filter(|path| now.get(*path) != then.get(*path)).collect();
            differing.sort();
            differing.dedup();
            let found: Vec<_> = paths.iter().collect();
            // Permission bits that git does not store may be reported, too.
            assert!(differing.iter().all(|path| found.contains(path)), "{found:?} differ, and not {differing:?}");
            assert!(found.iter().all(|path| now.contains_key(*path) || then.contains_key(*path)), "{found:?}");
        }
    }

    fn note_pruned(&mut self, gone: Option<usize>) {
        for number in 0..PROJECTS {
            if self.projects[number].is_stale || gone == Some(number) {
                self.forget(number);
            }
        }
        if let Some(gone) = gone {
            fs::create_dir(&self.projects[gone].dir).expect("a directory");
        }
    }

    pub(super) fn forget(&mut self, number: usize) {
        let Project { dir, refused, .. } = std::mem::take(&mut self.projects[number]);
        self.projects[number] = Project { dir, refused, ..Project::default() };
    }

    /// A prune may have dropped unused projects, or not.
    pub(super) fn doubt_stale(&mut self) {
        for number in 0..PROJECTS {
            if self.projects[number].is_stale {
                self.doubt(number);
            }
        }
    }

    /// Adopts that a project may have been dropped.
    pub(super) fn doubt(&mut self, number: usize) {
        if self.listed(number).is_empty() {
            self.projects[number].kept.clear();
            self.projects[number].turns.values_mut().for_each(|(_, is_certain)| *is_certain = false);
        }
    }

    fn note_purged(&mut self, number: usize, path: &[u8], answer: Answer) {
        self.projects[number].undoable = None;
        let kept = &mut self.projects[number].kept;
        let holds = |kept: &Kept| {
            let held = if kept.is_plain { held(&kept.state, kept.excludes) } else { self.sandbox.held_by(&kept.id) };
            held.keys().any(|other| is_within(other, path))
        };
        let first = kept.iter().position(holds);
        match (answer, first) {
            (Answer::Purged(ids), Some(first)) => {
                let old: Vec<_> = kept[first..].iter().map(|kept| kept.id.clone()).collect();
                assert_eq!(ids.iter().map(|(old, _)| old.clone()).collect::<Vec<_>>(), old, "what was rewritten");
                for (kept, (_, new)) in kept[first..].iter_mut().zip(ids) {
                    kept.id = new;
                    kept.lose(path);
                }
            }
            (Answer::Failed { kind, .. }, None) if kind == "not_found" => {}
            (answer, _) => panic!("a purge of {} came to {answer:?}", String::from_utf8_lossy(path)),
        }
    }

    fn note_written(&mut self, name: &str, what: &What, is_automatic: bool, answer: Answer) {
        let had = self.sessions.get(name);
        let is_update = matches!(what, What::Update { .. });
        let is_agents = had.is_some_and(|had| !had.is_automatic);
        match answer {
            Answer::Failed { kind, .. } if kind == "not_found" && is_update => {
                assert!(had.is_none(), "{name} is there");
            }
            Answer::Declined => assert!(is_automatic && is_agents, "{name} is not an agent's: {had:?}"),
            Answer::Done => {
                assert!(!(is_automatic && is_agents), "{name} is an agent's: {had:?}");
                let mut steps = had.filter(|_| is_update).map(|had| had.steps.clone()).unwrap_or_default();
                steps.push(number_in(what));
                self.sessions.insert(name.to_owned(), Noted { is_automatic, steps });
            }
            other => panic!("{what:?} came to {other:?}"),
        }
    }

    fn ids(&self, number: usize) -> Vec<String> {
        self.projects[number].kept.iter().rev().map(|kept| kept.id.clone()).collect()
    }

    /// Returns the ids of the rows, newest first.
    fn rows(&self, number: usize) -> Vec<String> {
        let rows = self.projects[number].kept.iter().rev().filter(|kept| kept.is_row);
        rows.map(|kept| kept.id.clone()).collect()
    }

    pub(super) fn listed(&self, number: usize) -> Vec<String> {
        self.listed_with_times(number).into_iter().map(|(id, _)| id).collect()
    }

    fn listed_with_times(&self, number: usize) -> Vec<(String, Moment)> {
        let dir = &self.projects[number].dir;
        let store = piton::Store::open_existing(&self.sandbox.base()).expect("a base that can be read");
        let Some(store) = store else { return Vec::new() };
        let project = piton::Project::at(dir, None).expect("a project");
        let history = piton::History::of(&store, &project).expect("a history");
        history.checkpoints().iter().map(|checkpoint| (checkpoint.id.to_string(), checkpoint.time)).collect()
    }

    /// Learns the times of checkpoints that were taken with the clock of the machine.
    pub(super) fn learn_times(&mut self, number: usize) {
        let times: BTreeMap<_, _> = self.listed_with_times(number).into_iter().collect();
        for kept in &mut self.projects[number].kept {
            kept.time = kept.time.or(times.get(&kept.id).copied());
        }
    }

    /// Asserts that the lists and the records match the model. Only the size limit drops checkpoints without the
    /// model's knowledge.
    fn agree(&mut self) {
        for number in 0..PROJECTS {
            let listed = self.listed(number);
            let kept = &mut self.projects[number].kept;
            if self.max_total_size_mb > 0 && !listed.is_empty() {
                kept.retain(|kept| listed.contains(&kept.id));
                // Rows behind an end that went are in the order of time.
                kept.sort_by_key(|kept| std::cmp::Reverse(listed.iter().position(|id| *id == kept.id)));
            }
            assert_eq!(listed, self.ids(number), "the list of project {number}");
        }
        for session in 0..SESSIONS {
            let name = name_of(session);
            let found = noted(read_record(&self.sandbox.base(), &name));
            assert_eq!(found.as_ref(), self.sessions.get(&name), "the record {name}");
        }
    }

    /// Asserts that everything kept exists, byte for byte, and that stock git finds no error.
    pub(super) fn finish(self) {
        if !self.sandbox.store().join("HEAD").exists() {
            return;
        }
        for kept in self.projects.iter().flat_map(|project| &project.kept) {
            let (found, held) = (self.sandbox.held_by(&kept.id), held(&kept.state, kept.excludes));
            if kept.is_plain {
                assert_eq!(found, held, "what {} holds", kept.id);
            }
            let is_right = kept.is_purged || held.iter().all(|(path, held)| found.get(path) == Some(held));
            assert!(is_right, "{} holds less than it should", kept.id);
        }
        self.sandbox.assert_store_is_whole();
    }
}

/// Returns the number in a record that is written.
pub(super) fn number_in(what: &What) -> u64 {
    let (What::Write { text, .. } | What::Update { text, .. }) = what else { panic!("no record: {what:?}") };
    let given: Value = serde_json::from_str(text).expect("JSON");
    given["progress"][0].as_u64().expect("a number")
}
