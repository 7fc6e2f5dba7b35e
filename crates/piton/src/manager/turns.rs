//! The turns of a session: start, continuation and end, and the record of each in the ledger.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{Manager, PARENTS_MAX, PAUSE_SECS};
use crate::error::Result;
use crate::fsx;
use crate::id::{ObjectId, bounded_name};
use crate::json::keyword;
use crate::progress::Progress;
use crate::project::Project;
use crate::store::{RewindMark, SessionKey, Store, TurnNote, TurnRecord, stored_prompt, turn_name};
use crate::take::{Outcome, Report, WhySkipped};
use crate::time::Moment;
use crate::worktree::is_dir;

/// Start of a turn, as reported by the agent. All fields are optional.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TurnStart {
    /// The agent's own name for the turn.
    pub name: Option<String>,
    /// The agent's current directory.
    pub dir: Option<PathBuf>,
    /// Text of the prompt. The setting `prompt_text` decides how much of it is stored.
    pub prompt: Option<String>,
    /// Version of the agent.
    pub agent_version: Option<String>,
    /// Position of the turn in the conversation. The length of the transcript is filled in.
    pub mark: RewindMark,
    /// True if the caller will report the end of the turn with [`Manager::end_turn`]. Until then the session counts as
    /// active.
    pub tells_end: bool,
}

/// End of a turn, as reported by the agent.
#[derive(Debug, Clone)]
pub(super) struct ReportedEnd {
    pub(super) turn: String,
    /// True if the agent began the turn by itself, as a continuation of the user's.
    pub(super) is_continuation: bool,
}

impl Manager {
    /// Starts a new turn, for a prompt of the user. Other processes that work for this session find it.
    pub fn new_turn(&mut self, session: &str, now: Moment) {
        self.start_turn(session, TurnStart::default(), now);
    }

    /// Like [`Manager::new_turn`], with the agent's own name for the turn, if it has one, and its current directory.
    pub fn begin_turn(&mut self, session: &str, name: Option<&str>, dir: Option<&Path>, now: Moment) {
        let (name, dir) = (name.map(str::to_owned), dir.map(Path::to_owned));
        self.start_turn(session, TurnStart { name, dir, ..TurnStart::default() }, now);
    }

    /// Like [`Manager::new_turn`], with what the agent reports about the prompt. Has no effect if the turn already has
    /// this name, or if the session is a subagent's.
    pub fn start_turn(&mut self, session: &str, mut start: TurnStart, now: Moment) {
        start.name = start.name.as_deref().map(bounded_name);
        let Some(store) = self.enter(session, now) else {
            self.turn = Some(start.name.unwrap_or_else(|| self.make_name(now)));
            return;
        };
        let (name, dir) = (start.name.as_deref(), start.dir.as_deref());
        let key = SessionKey::new(&self.agent, session);
        let mut note = store.turns.get(&key).unwrap_or_default();
        if let Some(parent) = note.parent.clone() {
            return self.work_for(&parent, now);
        }
        if name.is_none() || note.turn.as_deref() != name {
            note.turn = Some(name.map_or_else(|| self.make_name(now), str::to_owned));
            note.misses = 0;
            note.refused.clear();
        }
        note.root = note.root.filter(|root| is_dir(root)).or_else(|| self.worth_remembering(dir));
        note.is_unprompted = false;
        (note.time_secs, note.seen_secs, note.ended_secs) = (now.secs, now.secs, None);
        note.started_secs = note.started_secs.or(Some(now.secs));
        note.is_open = start.tells_end;
        start.agent_version = start.agent_version.as_deref().map(bounded_name).or(note.version);
        note.version = start.agent_version.clone();
        // A failure is ignored: the store cannot be written then, which is reported when a checkpoint is taken.
        let _ = store.turns.save(&key, &note);
        start.mark.transcript_bytes = start.mark.transcript.as_deref().and_then(length_of);
        (self.turn, self.root, self.start) = (note.turn, note.root, Some(start));
    }

    /// Continues the session's current turn, which another process may have started. `name` is the agent's own name for
    /// it, if it has one.
    pub fn continue_turn(&mut self, session: &str, name: Option<&str>, now: Moment) {
        let name = name.map(bounded_name);
        let name = name.as_deref();
        let Some(store) = self.enter(session, now) else {
            self.turn = Some(self.unsaved_turn(session, name, now));
            return;
        };
        let key = SessionKey::new(&self.agent, session);
        let fresh = TurnNote {
            turn: Some(name.map_or_else(|| self.make_name(now), str::to_owned)),
            time_secs: now.secs,
            seen_secs: now.secs,
            started_secs: Some(now.secs),
            is_unprompted: true,
            ..TurnNote::default()
        };
        let mut note = match store.turns.get(&key) {
            Some(note) => note,
            None => store
                .turns
                .first(&key, fresh.clone())
                .unwrap_or_else(|_| TurnNote { turn: Some(self.unsaved_turn(session, name, now)), ..fresh }),
        };
        if let Some(parent) = &note.parent {
            return self.work_for(parent, now);
        }
        let name = name.filter(|name| note.also.as_deref() != Some(name));
        // A session of which only the start was reported has one turn so far. All processes derive the same name for
        // it.
        note.is_unprompted |= note.turn.is_none();
        let mut turn = note.turn.take().unwrap_or_else(|| format!("start-{}", note.time_secs));
        if note.is_unprompted && name.is_none() && now.secs != note.time_secs {
            // All processes that come after the same pause derive the same name.
            if now.secs.abs_diff(note.time_secs) >= PAUSE_SECS {
                turn = format!("after-{}", note.time_secs);
                note.misses = 0;
                note.refused.clear();
            }
            (note.turn, note.time_secs) = (Some(turn.clone()), now.secs);
            (note.seen_secs, note.ended_secs) = (now.secs, None);
            // Best effort: if it is lost, the agent gets a spare checkpoint.
            let _ = store.turns.save(&key, &note);
        } else if note.ended_secs.take().is_some() {
            note.seen_secs = now.secs;
            let _ = store.turns.save(&key, &TurnNote { turn: Some(turn.clone()), ..note.clone() });
        } else if note.seen_secs != now.secs {
            store.turns.touch(&key, now);
        }
        (self.turn, self.root) = (Some(name.map_or(turn, str::to_owned)), note.root);
    }

    /// Continues the turn under another name because the agent continues by itself, for example after a background task
    /// has ended. Calls with `name` then belong to the turn of the user's last prompt.
    pub fn continue_turn_as(&mut self, session: &str, name: Option<&str>, now: Moment) {
        let Some(store) = self.enter(session, now) else { return };
        let key = SessionKey::new(&self.agent, session);
        // Without a prompt there is no turn that it could belong to.
        if let Some(mut note) = store.turns.get(&key).filter(|note| note.turn.is_some()) {
            note.also = name.map(bounded_name);
            (note.seen_secs, note.ended_secs) = (now.secs, None);
            // Best effort: without it the agent gets a spare checkpoint.
            let _ = store.turns.save(&key, &note);
            (self.turn, self.root) = (note.turn, note.root);
        }
    }

    /// Records that a session starts or is resumed in `dir`. `parent` is the session that started it, if it is a
    /// subagent's.
    pub fn start_session(&mut self, session: &str, parent: Option<&str>, dir: Option<&Path>, now: Moment) {
        if let Some(store) = self.enter(session, now) {
            let key = SessionKey::new(&self.agent, session);
            let fresh = TurnNote {
                root: self.worth_remembering(dir),
                parent: parent.map(str::to_owned),
                time_secs: now.secs,
                seen_secs: now.secs,
                started_secs: Some(now.secs),
                ..TurnNote::default()
            };
            // Another process may report a prompt at the same moment: its turn must not be overwritten.
            let mut note = match store.turns.get(&key) {
                Some(note) => note,
                None => store.turns.first(&key, fresh.clone()).unwrap_or_else(|_| fresh.clone()),
            };
            if note == fresh {
                self.root = note.root;
                return;
            }
            note.root = fresh.root.or(note.root);
            note.parent = fresh.parent;
            // A session may be resumed by another version of the agent.
            note.version = None;
            // Some agents also report a start within a session.
            note.started_secs = note.started_secs.filter(|_| note.ended_secs.is_none()).or(Some(now.secs));
            (note.time_secs, note.seen_secs, note.ended_secs) = (now.secs, now.secs, None);
            let _ = store.turns.save(&key, &note);
            self.root = note.root;
        }
    }

    /// Records that the agent has finished the session's current turn. `name` is its own name for it, if it has one:
    /// the end of an earlier turn has no effect.
    pub fn end_turn(&mut self, session: &str, name: Option<&str>, now: Moment) {
        self.end_turn_as(session, name, false, now);
    }

    /// Like [`Manager::end_turn`], for a turn whose subagents continue in the background: the session still counts as
    /// active. If the agent reports another end after they finish, that one counts.
    pub fn end_turn_with_subagents(&mut self, session: &str, name: Option<&str>, now: Moment) {
        self.end_turn_as(session, name, true, now);
    }

    fn end_turn_as(&mut self, session: &str, name: Option<&str>, is_working: bool, now: Moment) {
        let name = name.map(bounded_name);
        let mut ended = None;
        self.note_end(session, now, |note| {
            if name.is_none() || [&note.turn, &note.also].iter().any(|known| **known == name) {
                note.is_open &= is_working;
                // A session without a reported prompt is a subagent's, or its turns are guessed.
                ended = note.turn.clone().filter(|_| !note.is_unprompted);
            }
        });
        self.end = ended.map(|turn| ReportedEnd { turn, is_continuation: false });
    }

    /// Like [`Manager::end_turn`], for a turn that the agent began by itself because another program's hook asked it to
    /// continue. Its prompt is not listed as one of the user's.
    pub fn end_continuation(&mut self, session: &str, now: Moment) {
        let open = self.settings.enabled.then(|| Store::open_existing(&self.base).ok().flatten()).flatten();
        let note = open.as_ref().and_then(|store| store.turns.get(&SessionKey::new(&self.agent, session)));
        // A turn that has ended already is the user's: the start of the continuation was not reported.
        let turn = note.filter(|note| note.is_open && note.parent.is_none()).and_then(|note| note.turn);
        if let (Some(store), Some(turn)) = (&open, turn) {
            self.amend_turn(store, session, turn, TurnRecord { continued: true, ..TurnRecord::default() });
        }
        self.end_turn(session, None, now);
        self.end = self.end.take().map(|end| ReportedEnd { is_continuation: true, ..end });
    }

    /// Records the version of the agent for the session that was entered last. Calls `find` only if the version is not
    /// known yet. If the turn has begun without it, its record is amended.
    pub fn learn_agent_version(&mut self, find: impl FnOnce() -> Option<String>) {
        let is_known = self.start.as_ref().is_some_and(|start| start.agent_version.is_some());
        let (Some(session), false) = (self.session.clone(), is_known || !self.settings.enabled) else { return };
        let Ok(Some(store)) = Store::open_existing(&self.base) else { return };
        let key = SessionKey::new(&self.agent, &session);
        let note = store.turns.get(&key).filter(|note| note.version.is_none() && note.parent.is_none());
        let Some((mut note, version)) = note.and_then(|note| Some((note, bounded_name(&find()?)))) else { return };
        note.version = Some(version.clone());
        // Best effort: without it the next prompt looks again.
        let _ = store.turns.save(&key, &note);
        match (&mut self.start, note.turn) {
            (Some(start), _) => start.agent_version = Some(version),
            (None, Some(turn)) => {
                let amendment = TurnRecord { agent_version: Some(version), ..TurnRecord::default() };
                self.amend_turn(&store, &session, turn, amendment);
            }
            (None, None) => {}
        }
    }

    /// Adds keys to the record of a turn in each project in which it used its attempt. Best effort, like all of the
    /// ledger.
    fn amend_turn(&self, store: &Store, session: &str, turn: String, amendment: TurnRecord) {
        let (agent, session) = (Some(self.agent.clone()), bounded_name(session));
        let record = TurnRecord { agent, session, turn, ..amendment };
        for project in store.known_projects().unwrap_or_default() {
            if store.records.get(&project).has_turn(&record.session, &record.turn) {
                let _ = store.ledger.append(&project, &record, || None);
            }
        }
    }

    /// Records that a session ended. It counts as inactive until its next event.
    pub fn end_session(&mut self, session: &str, now: Moment) {
        self.note_end(session, now, |note| (note.is_open, note.ended_secs) = (false, Some(now.secs)));
    }

    fn note_end(&mut self, session: &str, now: Moment, end: impl FnOnce(&mut TurnNote)) {
        (self.session, self.start, self.end) = (Some(bounded_name(session)), None, None);
        // The end of a session does not create a store.
        let Some(store) = self.settings.enabled.then(|| Store::open_existing(&self.base).ok().flatten()).flatten()
        else {
            return;
        };
        let key = SessionKey::new(&self.agent, session);
        // The end of a subagent's or an unknown session has no effect.
        if let Some(mut note) = store.turns.get(&key).filter(|note| note.parent.is_none()) {
            end(&mut note);
            note.seen_secs = now.secs;
            let _ = store.turns.save(&key, &note);
        }
    }

    fn enter(&mut self, session: &str, now: Moment) -> Option<Store> {
        (self.session, self.start) = (Some(bounded_name(session)), None);
        self.store(now).ok().filter(|_| self.settings.enabled).cloned()
    }

    fn work_for(&mut self, parent: &str, now: Moment) {
        let Ok(store) = self.store(now).cloned() else {
            return;
        };
        let mut session = parent.to_owned();
        for _ in 0..PARENTS_MAX {
            match store.turns.get(&SessionKey::new(&self.agent, &session)).and_then(|note| note.parent) {
                Some(parent) => session = parent,
                None => break,
            }
        }
        let note = store.turns.get(&SessionKey::new(&self.agent, &session)).unwrap_or_default();
        self.turn = Some(note.turn.unwrap_or_else(|| format!("start-{}", note.time_secs)));
        (self.session, self.root) = (Some(session), note.root);
    }

    fn worth_remembering(&self, dir: Option<&Path>) -> Option<PathBuf> {
        let project = Project::at(dir?, self.home.as_deref()).ok()?;
        (!project.is_too_broad()).then(|| project.dir().to_owned())
    }

    /// Returns the name of the turn if the store cannot be used: the last one in the journal, which recorded its
    /// prompt.
    fn unsaved_turn(&mut self, session: &str, name: Option<&str>, now: Moment) -> String {
        let noted = || self.settings.enabled.then(|| self.journal.last_turn(&self.agent, session)).flatten();
        let known = name.map(str::to_owned).or_else(noted);
        known.unwrap_or_else(|| self.make_name(now))
    }

    fn make_name(&mut self, now: Moment) -> String {
        self.turns_made += 1;
        turn_name(now, self.turns_made)
    }

    /// Appends the turn to the ledger of a project in which it used its attempt. A failure is ignored: it only costs
    /// the prompt's text in a list.
    pub(super) fn note_turn(
        &self,
        store: &Store,
        project: &Project,
        reason: &str,
        report: &Result<Report>,
        now: Moment,
        progress: &Progress,
    ) {
        let (Some(session), Some(turn)) = (&self.session, &self.turn) else {
            return;
        };
        let missed = match report {
            Err(_) => Some("error".to_owned()),
            Ok(Report { outcome: Outcome::Taken(_) | Outcome::Unchanged(_), .. }) => None,
            Ok(Report { outcome: Outcome::Skipped(why), .. }) => match why {
                WhySkipped::AlreadyThisTurn | WhySkipped::Disabled | WhySkipped::TooBroad => return,
                why => Some(keyword(why)),
            },
        };
        let before = match report.as_ref().map(|report| report.outcome) {
            Ok(Outcome::Taken(id) | Outcome::Unchanged(id)) => Some(id),
            _ => None,
        };
        let start = self.start.clone().unwrap_or_default();
        let prompt = start.prompt.as_deref().and_then(|prompt| stored_prompt(prompt, self.settings.prompt_text));
        let record = TurnRecord {
            agent: Some(self.agent.clone()),
            agent_version: start.agent_version,
            session: session.clone(),
            turn: turn.clone(),
            time: Some(now),
            prompted: self.start.is_some(),
            prompt,
            reason: self.start.is_none().then(|| reason.to_owned()),
            before,
            tree: report.as_ref().ok().and_then(|report| report.tree).filter(|_| before.is_some()),
            missed,
            mark: start.mark,
            ..TurnRecord::default()
        };
        let _ = store.ledger.append(project.id(), &record, || existing(store, project, progress));
    }
}

/// Returns the ids and trees of a project's checkpoints, or `None` if they cannot be read in time.
pub(super) fn existing(store: &Store, project: &Project, progress: &Progress) -> Option<HashSet<ObjectId>> {
    let held = store.locks.share_until(Some(progress)).ok()?;
    let objects = store.objects.open(&held).ok()?;
    let history = store.histories.of(&objects, project.id()).ok()?.whole().ok()?;
    Some(history.iter().flat_map(|checkpoint| [checkpoint.id, checkpoint.tree]).collect())
}

/// Returns the length of a file named by an agent.
fn length_of(path: &Path) -> Option<u64> {
    fsx::metadata_opt(path).ok()?.filter(|found| path.is_absolute() && found.is_file()).map(|found| found.len())
}
