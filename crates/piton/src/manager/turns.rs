//! The turns of a session: how they begin, go on and end, and the record of each in the ledger.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{Manager, PARENTS_MAX, PAUSE_SECS};
use crate::error::Result;
use crate::fsx;
use crate::id::{ObjectId, bounded_name};
use crate::project::Project;
use crate::store::{RewindMark, SessionKey, Store, TurnNote, TurnRecord, stored_prompt, turn_name};
use crate::take::{Outcome, Progress, Report, WhySkipped};
use crate::time::Moment;

/// The start of a turn, as the agent tells it. All of it is optional.
#[derive(Debug, Clone, Default)]
pub struct TurnStart {
    /// The agent's own name for the turn.
    pub name: Option<String>,
    /// The directory in which the agent is.
    pub dir: Option<PathBuf>,
    /// The words of the prompt. The setting `prompt_text` decides which of them are stored.
    pub prompt: Option<String>,
    /// The version of the agent.
    pub agent_version: Option<String>,
    /// The place of the turn in the conversation. The length of the transcript is filled in.
    pub mark: RewindMark,
    /// True if the end of the turn will be told with [`Manager::end_turn`]. Until then the session is at work.
    pub tells_end: bool,
}

impl Manager {
    /// A prompt of the user begins a new turn. Other processes that work for this session find it.
    pub fn new_turn(&mut self, session: &str, now: Moment) {
        self.start_turn(session, TurnStart::default(), now);
    }

    /// Like [`Manager::new_turn`], with the agent's own name for the turn if it has one, and the directory in which it is.
    pub fn begin_turn(&mut self, session: &str, name: Option<&str>, dir: Option<&Path>, now: Moment) {
        let (name, dir) = (name.map(str::to_owned), dir.map(Path::to_owned));
        self.start_turn(session, TurnStart { name, dir, ..TurnStart::default() }, now);
    }

    /// Like [`Manager::new_turn`], with what the agent tells of the prompt. A name that the turn has already, and a session
    /// that works for another one, begin nothing.
    pub fn start_turn(&mut self, session: &str, mut start: TurnStart, now: Moment) {
        start.name = start.name.as_deref().map(bounded_name);
        let Some(store) = self.enter(session, now) else {
            self.turn = Some(start.name.unwrap_or_else(|| self.make_name(now)));
            return;
        };
        let (name, dir) = (start.name.as_deref(), start.dir.as_deref());
        let key = SessionKey::new(&self.agent, session);
        let mut note = store.turn_note(&key).unwrap_or_default();
        if let Some(parent) = note.parent.clone() {
            return self.work_for(&parent, now);
        }
        if name.is_none() || note.turn.as_deref() != name {
            note.turn = Some(name.map_or_else(|| self.make_name(now), str::to_owned));
            note.misses = 0;
            note.refused.clear();
        }
        note.root = note.root.filter(|root| root.is_dir()).or_else(|| self.worth_remembering(dir));
        note.is_unprompted = false;
        (note.time_secs, note.seen_secs, note.ended_secs) = (now.secs, now.secs, None);
        note.started_secs = note.started_secs.or(Some(now.secs));
        note.is_open = start.tells_end;
        start.agent_version = start.agent_version.as_deref().map(bounded_name).or(note.version);
        note.version = start.agent_version.clone();
        // Where it cannot be remembered, the store cannot be written either, and that is said when it matters.
        let _ = store.save_turn_note(&key, &note);
        start.mark.transcript_bytes = start.mark.transcript.as_deref().and_then(length_of);
        (self.turn, self.root, self.start) = (note.turn, note.root, Some(start));
    }

    /// Goes on with the turn that the session is in, perhaps begun by another process. `name` is the agent's own name for
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
        let mut note = match store.turn_note(&key) {
            Some(note) => note,
            None => store
                .first_turn_note(&key, fresh.clone())
                .unwrap_or_else(|_| TurnNote { turn: Some(self.unsaved_turn(session, name, now)), ..fresh }),
        };
        if let Some(parent) = &note.parent {
            return self.work_for(parent, now);
        }
        let name = name.filter(|name| note.also.as_deref() != Some(name));
        // A session of which nothing but its start was told has one turn so far, of the same name for all who ask.
        note.is_unprompted |= note.turn.is_none();
        let mut turn = note.turn.take().unwrap_or_else(|| format!("start-{}", note.time_secs));
        if note.is_unprompted && name.is_none() && now.secs != note.time_secs {
            // All who come after the same pause make the same name of it.
            if now.secs.abs_diff(note.time_secs) >= PAUSE_SECS {
                turn = format!("after-{}", note.time_secs);
                note.misses = 0;
                note.refused.clear();
            }
            (note.turn, note.time_secs) = (Some(turn.clone()), now.secs);
            (note.seen_secs, note.ended_secs) = (now.secs, None);
            // A help: what is not remembered costs a spare checkpoint.
            let _ = store.save_turn_note(&key, &note);
        } else if note.ended_secs.take().is_some() {
            note.seen_secs = now.secs;
            let _ = store.save_turn_note(&key, &TurnNote { turn: Some(turn.clone()), ..note.clone() });
        } else if note.seen_secs != now.secs {
            store.touch_turn_note(&key, now);
        }
        (self.turn, self.root) = (Some(name.map_or(turn, str::to_owned)), note.root);
    }

    /// The agent goes on with the turn by itself, because a background task has ended, say. What comes under `name` from now
    /// on belongs to the turn of the user's last prompt.
    pub fn continue_turn_as(&mut self, session: &str, name: Option<&str>, now: Moment) {
        let Some(store) = self.enter(session, now) else { return };
        let key = SessionKey::new(&self.agent, session);
        // Without a prompt there is no turn that it could belong to.
        if let Some(mut note) = store.turn_note(&key).filter(|note| note.turn.is_some()) {
            note.also = name.map(bounded_name);
            (note.seen_secs, note.ended_secs) = (now.secs, None);
            // Best effort: without it the agent gets a spare checkpoint.
            let _ = store.save_turn_note(&key, &note);
            (self.turn, self.root) = (note.turn, note.root);
        }
    }

    /// A session begins or is resumed in `dir`; `parent` is the session that it works for, if it is a subagent's.
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
            // A prompt may be told of at the same moment by another process: its turn must not be replaced by none.
            let mut note = match store.turn_note(&key) {
                Some(note) => note,
                None => store.first_turn_note(&key, fresh.clone()).unwrap_or_else(|_| fresh.clone()),
            };
            if note == fresh {
                self.root = note.root;
                return;
            }
            note.root = fresh.root.or(note.root);
            note.parent = fresh.parent;
            // A session may be resumed by another version.
            note.version = None;
            // Some agents tell of a start within a session, too.
            note.started_secs = note.started_secs.filter(|_| note.ended_secs.is_none()).or(Some(now.secs));
            (note.time_secs, note.seen_secs, note.ended_secs) = (now.secs, now.secs, None);
            let _ = store.save_turn_note(&key, &note);
            self.root = note.root;
        }
    }

    /// The agent is done with the turn that the session is in. `name` is its own name for it, if it has one: the end of an
    /// earlier turn ends nothing.
    pub fn end_turn(&mut self, session: &str, name: Option<&str>, now: Moment) {
        let name = name.map(bounded_name);
        self.note_end(session, now, |note| {
            if name.is_none() || [&note.turn, &note.also].iter().any(|known| **known == name) {
                note.is_open = false;
            }
        });
    }

    /// Like [`Manager::end_turn`], for a turn that the agent began by itself because another program's hook asked it to go on.
    /// Its prompt is not listed as one of the user's.
    pub fn end_continuation(&mut self, session: &str, now: Moment) {
        let open = self.settings.enabled.then(|| Store::open_existing(&self.base).ok().flatten()).flatten();
        let note = open.as_ref().and_then(|store| store.turn_note(&SessionKey::new(&self.agent, session)));
        // A turn that has ended already is the user's: the start of the continuation was not told.
        let turn = note.filter(|note| note.is_open && note.parent.is_none()).and_then(|note| note.turn);
        if let (Some(store), Some(turn)) = (&open, turn) {
            self.amend_turn(store, session, turn, TurnRecord { continued: true, ..TurnRecord::default() });
        }
        self.end_turn(session, None, now);
    }

    /// Notes the version of the agent where it is not known yet of the session that was entered last; only then `find` is
    /// called. If the turn has begun without it, its record is amended.
    pub fn learn_agent_version(&mut self, find: impl FnOnce() -> Option<String>) {
        let is_known = self.start.as_ref().is_some_and(|start| start.agent_version.is_some());
        let (Some(session), false) = (self.session.clone(), is_known || !self.settings.enabled) else { return };
        let Ok(Some(store)) = Store::open_existing(&self.base) else { return };
        let key = SessionKey::new(&self.agent, &session);
        let note = store.turn_note(&key).filter(|note| note.version.is_none() && note.parent.is_none());
        let Some((mut note, version)) = note.and_then(|note| Some((note, bounded_name(&find()?)))) else { return };
        note.version = Some(version.clone());
        // Best effort: without it the next prompt looks again.
        let _ = store.save_turn_note(&key, &note);
        match (&mut self.start, note.turn) {
            (Some(start), _) => start.agent_version = Some(version),
            (None, Some(turn)) => {
                let amendment = TurnRecord { agent_version: Some(version), ..TurnRecord::default() };
                self.amend_turn(&store, &session, turn, amendment);
            }
            (None, None) => {}
        }
    }

    /// Adds keys to the record of a turn in each project in which it had its try. Best effort, like all of the ledger.
    fn amend_turn(&self, store: &Store, session: &str, turn: String, amendment: TurnRecord) {
        let (agent, session) = (Some(self.agent.clone()), bounded_name(session));
        let record = TurnRecord { agent, session, turn, ..amendment };
        for project in store.known_projects().unwrap_or_default() {
            if store.record(&project).has_turn(&record.session, &record.turn) {
                let _ = store.append_turn(&project, &record, || None);
            }
        }
    }

    /// A session is over. It is not at work until it is heard of again.
    pub fn end_session(&mut self, session: &str, now: Moment) {
        self.note_end(session, now, |note| (note.is_open, note.ended_secs) = (false, Some(now.secs)));
    }

    fn note_end(&mut self, session: &str, now: Moment, end: impl FnOnce(&mut TurnNote)) {
        (self.session, self.start) = (Some(bounded_name(session)), None);
        // An end makes no store.
        let Some(store) = self.settings.enabled.then(|| Store::open_existing(&self.base).ok().flatten()).flatten()
        else {
            return;
        };
        let key = SessionKey::new(&self.agent, session);
        // One that works for another, or of which nothing is known, ends nothing.
        if let Some(mut note) = store.turn_note(&key).filter(|note| note.parent.is_none()) {
            end(&mut note);
            note.seen_secs = now.secs;
            let _ = store.save_turn_note(&key, &note);
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
            match store.turn_note(&SessionKey::new(&self.agent, &session)).and_then(|note| note.parent) {
                Some(parent) => session = parent,
                None => break,
            }
        }
        let note = store.turn_note(&SessionKey::new(&self.agent, &session)).unwrap_or_default();
        self.turn = Some(note.turn.unwrap_or_else(|| format!("start-{}", note.time_secs)));
        (self.session, self.root) = (Some(session), note.root);
    }

    fn worth_remembering(&self, dir: Option<&Path>) -> Option<PathBuf> {
        let project = Project::at(dir?, self.home.as_deref()).ok()?;
        (!project.is_too_broad()).then(|| project.dir().to_owned())
    }

    /// The name of the turn where none can be remembered: that of the last one in the journal, which noted its prompt.
    fn unsaved_turn(&mut self, session: &str, name: Option<&str>, now: Moment) -> String {
        let noted = || self.settings.enabled.then(|| self.journal.last_turn(&self.agent, session)).flatten();
        let known = name.map(str::to_owned).or_else(noted);
        known.unwrap_or_else(|| self.make_name(now))
    }

    fn make_name(&mut self, now: Moment) -> String {
        self.turns_made += 1;
        turn_name(now, self.turns_made)
    }

    /// Appends the turn to the ledger of a project in which it had its try. The agent goes on without it: what is lost is
    /// the wording of a row.
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
            Err(_) => Some("error"),
            Ok(Report { outcome: Outcome::Taken(_) | Outcome::Unchanged(_), .. }) => None,
            Ok(Report { outcome: Outcome::Skipped(why), .. }) => match why {
                WhySkipped::AlreadyThisTurn | WhySkipped::Disabled | WhySkipped::TooBroad => return,
                why => Some(why.word()),
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
            missed: missed.map(str::to_owned),
            mark: start.mark,
            ..TurnRecord::default()
        };
        let _ = store.append_turn(project.id(), &record, || existing(store, project, progress));
    }
}

/// The ids and trees of a project's checkpoints, where they can be read in time.
fn existing(store: &Store, project: &Project, progress: &Progress) -> Option<HashSet<ObjectId>> {
    let held = store.share_until(Some(&progress.stop)).ok()?;
    let objects = store.objects(&held).ok()?;
    let history = store.history_of(&objects, project.id()).ok()?.whole().ok()?;
    Some(history.iter().flat_map(|checkpoint| [checkpoint.id, checkpoint.tree]).collect())
}

/// The length of a file that an agent names.
fn length_of(path: &Path) -> Option<u64> {
    fsx::look_at(path).ok()?.filter(|found| path.is_absolute() && found.is_file()).map(|found| found.len())
}
