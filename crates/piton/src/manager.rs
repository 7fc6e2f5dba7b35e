//! Checkpoints for authors of agents: at most one per project and turn, whatever goes wrong.
//!
//! The other functions of this library return errors. An agent at work cannot handle them, and must not be delayed or
//! stopped by its undo layer. So:
//!
//! - M1. Nothing here fails or panics because of files, the store or the disk. A missed checkpoint is returned as a
//!   value and recorded in the journal.
//! - M2. It delays the agent by at most `deadline_ms`, plus a small margin.
//! - M3. If checkpoints are switched off, it opens no file at all.
//! - M4. One checkpoint per project, session and turn, also if many processes ask at the same time.
//!
//! ```no_run
//! use piton::{Manager, Moment, Settings};
//! # fn now() -> Moment { Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 } }
//! let settings = Settings::default().enabled(true);
//! let home = Some("/home/you".as_ref());
//! let mut manager = Manager::new("/home/you/.hermes/checkpoints".as_ref(), home, settings).for_agent("mine");
//! // At each prompt of the user:
//! manager.new_turn("session-1", now());
//! // Before each tool that may change files:
//! let file = "/home/you/code/src/main.rs".as_ref();
//! let _ = manager.ensure_checkpoint(&manager.working_dir_for_path(file), "before write_file", now());
//! ```

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::diff::{self, Diff};
use crate::ensured::Ensured;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::history::{History, Listed};
use crate::id::ProjectId;
use crate::journal::{Event, Journal, Level};
use crate::progress::Progress;
use crate::project::{self, Home, Project};
use crate::restore::{Restore, RestoreOptions, RestoreReport, RestoreTo};
use crate::settings::Settings;
use crate::store::{BegunHook, CheckpointKind, Notice, Origin, SessionKey, Store, TurnNote, UnfinishedRequest};
use crate::take::{Outcome, Report, Request, WhySkipped, take};
use crate::time::Moment;
use crate::unprotected::note_killed_hooks;
use crate::worktree::{check_access, is_dir};

mod ends;
mod keeping;
mod steps;
mod turns;

pub use turns::TurnStart;

/// A turn that timed out this often is not tried again: each attempt delays the agent.
const MISSES_MAX: u64 = 3;
/// If the agent does not report prompts, work after a pause of this many seconds is a new turn. One turn too many costs
/// a checkpoint, one too few leaves a prompt unprotected.
const PAUSE_SECS: u64 = 60;
/// A file outside of every project is reported once within this many events.
const OUTSIDE_EVENTS: usize = 50;
/// Maximum depth of nested subagent sessions that is followed.
const PARENTS_MAX: usize = 8;

/// Takes checkpoints for one agent.
///
/// ```
/// use piton::{Manager, RestoreOptions, RestoreTo, Settings};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// let mut manager = Manager::new(&base, None, Settings::default().enabled(true)).for_agent("mine");
/// manager.new_turn("session 1", now); // at each prompt
/// let ensured = manager.ensure_checkpoint(&code, "before write_file", now); // before each tool; never fails the tool
/// assert!(ensured.checkpoint().is_some());
/// std::fs::write(code.join("main.rs"), "what the tool wrote")?;
/// let again = manager.ensure_checkpoint(&code, "before patch", now);
/// assert!(again.checkpoint().is_none(), "one a turn");
///
/// manager.restore(&code, RestoreTo::Named("1"), RestoreOptions::default(), now)?;
/// assert_eq!(std::fs::read_to_string(code.join("main.rs"))?, "fn main() {}\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Manager {
    base: PathBuf,
    home: Option<PathBuf>,
    settings: Settings,
    journal: Journal,
    agent: String,
    session: Option<String>,
    turn: Option<String>,
    root: Option<PathBuf>,
    /// Start of the turn, if it was reported to this process.
    start: Option<TurnStart>,
    /// End of the turn, if it was reported to this process.
    end: Option<turns::ReportedEnd>,
    turns_made: u64,
    hint_words: Option<fn(&Hint) -> String>,
    store: OnceLock<Store>,
}

impl Manager {
    /// Creates a manager for the store in `base`. `home` is the user's home directory, which is never taken as a whole.
    /// Opens no file.
    pub fn new(base: &Path, home: Option<&Path>, settings: Settings) -> Self {
        Self {
            base: base.to_owned(),
            home: home.map(Path::to_owned),
            settings,
            journal: Journal::at(base),
            agent: "agent".to_owned(),
            session: None,
            turn: None,
            root: None,
            start: None,
            end: None,
            turns_made: 0,
            hint_words: None,
            store: OnceLock::new(),
        }
    }

    /// Sets the agent's name in checkpoints and in the journal.
    #[must_use]
    pub fn for_agent(mut self, name: &str) -> Self {
        name.clone_into(&mut self.agent);
        self
    }

    /// Sets the journal that missed checkpoints are recorded in. The default is the one in the base.
    #[must_use]
    pub fn with_journal(mut self, journal: Journal) -> Self {
        self.journal = journal;
        self
    }

    /// Sets the function that puts hints into words. Without it, reasons of missed checkpoints come without a hint.
    #[must_use]
    pub fn with_hints(mut self, words: fn(&Hint) -> String) -> Self {
        self.hint_words = Some(words);
        self
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the journal that missed checkpoints are recorded in.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the directory in which the session began, if it is known.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Returns the directory in which a session began, if it is known and still exists.
    pub fn root_of(&self, session: &str) -> Option<PathBuf> {
        let store = Store::open_existing(&self.base).ok()??;
        store.turns.get(&SessionKey::new(&self.agent, session))?.root.filter(|root| is_dir(root))
    }

    /// Returns the name of the turn, if one has begun.
    pub fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// Ensures that the project around `dir`, which may also be a file, has its checkpoint of this turn.
    pub fn ensure_checkpoint(&self, dir: &Path, reason: &str, now: Moment) -> Ensured {
        let ensured = self.ensure_checkpoints(&[dir.to_owned()], reason, now).pop();
        ensured.unwrap_or_else(|| Ensured::declined(dir, WhySkipped::AlreadyThisTurn))
    }

    /// Like [`Manager::ensure_checkpoint`], for several directories. Each project is handled once, and all share one
    /// deadline.
    pub fn ensure_checkpoints(&self, dirs: &[PathBuf], reason: &str, now: Moment) -> Vec<Ensured> {
        if !self.settings.enabled {
            let declined = |dir: &PathBuf| Ensured::declined(dir, WhySkipped::Disabled);
            return dirs.iter().map(declined).collect();
        }
        let request = Request {
            reason: reason.to_owned(),
            kind: CheckpointKind::Auto,
            origin: Origin { agent: Some(self.agent.clone()), session: self.session.clone(), turn: self.turn.clone() },
            count_left_out: false,
            is_late: false,
            changed_dirs: None,
        };
        let (mut seen, home) = (HashSet::new(), Home::new(self.home.as_deref()));
        let ensured: Vec<_> = within_deadline(self.settings.deadline_ms, |progress| {
            let one = |dir: &PathBuf| self.ensure_one(dir, &home, &mut seen, &request, now, progress);
            dirs.iter().filter_map(one).collect()
        });
        self.record(&ensured, now);
        ensured
    }

    /// Returns `None` if the project was already handled in this call.
    fn ensure_one(
        &self,
        dir: &Path,
        home: &Home<'_>,
        seen: &mut HashSet<PathBuf>,
        request: &Request,
        now: Moment,
        progress: &Progress,
    ) -> Option<Ensured> {
        let store = match self.store(now) {
            Ok(store) => store,
            Err(error) => {
                return seen.insert(PathBuf::new()).then(|| Ensured::failed(dir, error));
            }
        };
        let Some(root) = Project::protecting_beside(dir, Some(store), home) else {
            // A file outside of every project, or a missing path.
            let report = check_access(dir).map(|()| Report::declined(WhySkipped::Empty));
            return seen.insert(dir.to_owned()).then(|| Ensured { dir: dir.to_owned(), report, is_unfinished: false });
        };
        if seen.contains(&root) {
            return None;
        }
        let project = match Project::at_canonical(root.clone(), home) {
            Ok(project) => project,
            Err(error) => return Some(Ensured::failed(dir, error)),
        };
        seen.insert(root.clone());
        if let (Some(session), Some(turn)) = (&self.session, &self.turn) {
            // Most calls end here, without a lock. A call that continues wrongly is stopped by the same check under the
            // lock.
            if store.records.get(project.id()).has_turn(session, turn) {
                return Some(Ensured::declined(&root, WhySkipped::AlreadyThisTurn));
            }
            let key = SessionKey::new(&self.agent, session);
            let noted = store.turns.get(&key).filter(|note| note.turn.as_deref() == Some(turn)).unwrap_or_default();
            if noted.refused.contains(project.id()) {
                return Some(Ensured::declined(&root, WhySkipped::AlreadyThisTurn));
            }
            if noted.misses >= MISSES_MAX {
                return Some(Ensured::declined(&root, WhySkipped::Deadline));
            }
        }
        // The end of an earlier turn must not keep this one from its checkpoint.
        let unfinished = store.unfinished.get(project.id()).filter(|unfinished| !unfinished.kind.is_within_turn());
        if unfinished.is_some() && store.unfinished.is_being_finished(project.id()) {
            let declined = Ensured::declined(&root, WhySkipped::BeingCompleted);
            self.note_turn(store, &project, &request.reason, &declined.report, now, progress);
            return Some(declined);
        }
        let report = {
            let begun = BegunHook { origin: request.origin.clone(), project: root.clone(), time: now };
            let _marked = store.hooks.mark_begun(&begun).ok();
            take(store, &project, request, &self.settings, now, progress)
        };
        self.note_turn(store, &project, &request.reason, &report, now, progress);
        let outcome = report.as_ref().ok().map(|report| report.outcome);
        let is_unfinished = outcome == Some(Outcome::Skipped(WhySkipped::Deadline))
            && leave_unfinished(store, &project, request, now).is_ok();
        if unfinished.is_some() && matches!(outcome, Some(Outcome::Taken(_) | Outcome::Unchanged(_))) {
            let _ = store.unfinished.withdraw(project.id());
        }
        self.note_attempt(store, project.id(), &report);
        Some(Ensured { dir: root, report, is_unfinished })
    }

    /// Records a failed attempt, so that the next one does not delay the turn again.
    fn note_attempt(&self, store: &Store, project: &ProjectId, report: &Result<Report>) {
        let is_passing = |error: &Error| matches!(error.kind(), ErrorKind::Busy | ErrorKind::Stopped);
        match report.as_ref().map(|report| report.outcome) {
            Ok(Outcome::Taken(_) | Outcome::Unchanged(_)) => {}
            Ok(Outcome::Skipped(WhySkipped::Deadline | WhySkipped::Busy)) => {
                self.change_note(store, |note| note.misses += 1);
            }
            Err(error) if is_passing(error) => {}
            _ if store.knows(project) => {}
            _ => self.change_note(store, |note| note.refused.push(project.clone())),
        }
    }

    /// Returns true if the checkpoint of the project is being completed in the background and this was not reported
    /// before. Records that it is reported now: the caller must tell the user.
    pub fn is_to_be_told(&self, dir: &Path) -> bool {
        let project = Project::at(dir, self.home.as_deref()).ok();
        let Some((project, store)) = project.zip(Store::open_existing(&self.base).ok().flatten()) else { return false };
        let unfinished = store.unfinished.get(project.id()).filter(|unfinished| !unfinished.is_told);
        unfinished.is_some_and(|unfinished| {
            store.unfinished.save(project.id(), &UnfinishedRequest { is_told: true, ..unfinished }).is_ok()
        })
    }

    /// Records the turns whose hooks were killed, and returns them.
    pub fn note_killed_hooks(&self, now: Moment) -> Vec<Event> {
        self.store(now).map(|store| note_killed_hooks(store, &self.journal)).unwrap_or_default()
    }

    /// Changes the note of this turn.
    fn change_note(&self, store: &Store, change: impl FnOnce(&mut TurnNote)) {
        let (Some(session), Some(turn)) = (&self.session, &self.turn) else {
            return;
        };
        let key = SessionKey::new(&self.agent, session);
        let mut note = store.turns.get(&key).unwrap_or_default();
        if note.turn.as_ref() != Some(turn) {
            (note.turn, note.misses) = (Some(turn.clone()), 0);
            note.refused.clear();
        }
        change(&mut note);
        let _ = store.turns.save(&key, &note);
    }

    /// Returns the directories without protection, each with the reason.
    pub fn unprotected<'a>(&self, ensured: &'a [Ensured]) -> Vec<(&'a Ensured, String)> {
        let is_broad =
            |one: &Ensured| matches!(&one.report, Ok(Report { outcome: Outcome::Skipped(WhySkipped::TooBroad), .. }));
        // An agent that works on a project's file from the home directory is as protected as it can be.
        let has_another = ensured.iter().any(|one| !is_broad(one));
        let counts = ensured.iter().filter(|one| !(has_another && is_broad(one)));
        counts.filter_map(|one| Some((one, self.reason_of(one)?))).collect()
    }

    /// Returns the reason why a directory is without protection, with advice.
    fn reason_of(&self, one: &Ensured) -> Option<String> {
        let why = one.missed(&self.settings)?;
        let hint = one.hint().and_then(|hint| Some(self.hint_words?(&hint)));
        Some(hint.map_or_else(|| why.clone(), |hint| format!("{why} (hint: {hint})")))
    }

    /// Records missed checkpoints, and that checkpoints work again.
    fn record(&self, ensured: &[Ensured], now: Moment) {
        for (one, why) in self.unprotected(ensured) {
            match &one.report {
                Ok(Report { outcome: Outcome::Skipped(WhySkipped::TooBroad), .. }) => {
                    self.note_declined(Some(&one.dir), why, now)
                }
                _ => self.note_unprotected(Some(&one.dir), why, now),
            };
        }
        let (agent, session, turn) = (Some(self.agent.clone()), self.session.clone(), self.turn.clone());
        let origin = Origin { agent, session, turn };
        for one in ensured.iter().filter(|one| one.checkpoint().is_some() && one.missed(&self.settings).is_none()) {
            self.journal.note_protected_turn(&one.dir, &origin, now);
        }
        for (one, lost) in ensured.iter().filter_map(|one| Some((one, one.report.as_ref().ok()?.lost?))) {
            let what = format!("checkpoint {} of {} is gone", lost.short(), one.dir.display());
            self.note_warning(format!("{what}: another program deleted it; the project went on without it"), now);
        }
        for problem in ensured.iter().filter_map(|one| one.report.as_ref().ok()?.git.problem.as_ref()) {
            if !self.journal.recent(OUTSIDE_EVENTS).iter().any(|event| event.what == *problem) {
                self.note_warning(problem.clone(), now);
            }
        }
        for index in ensured.iter().filter_map(|one| one.report.as_ref().ok()?.unread_index.as_ref()) {
            let why = "files that git tracks and a rule leaves out go without protection";
            self.note_warning(format!("{} cannot be read: {why}", index.display()), now);
        }
        for (one, why) in
            ensured.iter().filter_map(|one| Some((one, one.report.as_ref().ok()?.local.as_ref()?.problem()?)))
        {
            let what = format!("{}: {why}", one.dir.display());
            if !self.journal.recent(OUTSIDE_EVENTS).iter().any(|event| event.what == what) {
                self.note_warning(what, now);
            }
        }
    }

    /// Records that the agent continues without a checkpoint.
    pub fn note_unprotected(&self, dir: Option<&Path>, why: String, now: Moment) -> bool {
        let (session, turn) = (self.session.clone(), self.turn.clone());
        self.journal.note(&Event { session, turn, ..self.event(Level::Unprotected, dir, why, now) })
    }

    /// Records that the agent works in a directory that is never taken.
    pub fn note_declined(&self, dir: Option<&Path>, why: String, now: Moment) -> bool {
        let (session, turn) = (self.session.clone(), self.turn.clone());
        self.journal.note(&Event { session, turn, ..self.event(Level::Declined, dir, why, now) })
    }

    /// Records a warning that does not depend on the turn.
    pub fn note_warning(&self, what: String, now: Moment) -> bool {
        self.journal.note(&self.event(Level::Warning, None, what, now))
    }

    fn event(&self, level: Level, dir: Option<&Path>, what: String, time: Moment) -> Event {
        let (agent, project) = (Some(self.agent.clone()), dir.map(Path::to_owned));
        Event { time, level, agent, session: None, turn: None, project, what }
    }

    /// Returns true if this turn is on record as one without a checkpoint in `dir`.
    pub fn is_unprotected(&self, dir: &Path) -> bool {
        let is_ours = |event: &Event| event.session == self.session && event.turn == self.turn;
        self.journal
            .unprotected()
            .iter()
            .any(|state| !state.is_past && state.project.as_deref() == Some(dir) && is_ours(&state.last))
    }

    /// Takes the notice that a restore left for this session, if the setting `tell_agent` is on. Each notice is
    /// returned once.
    pub fn take_notice(&self, now: Moment) -> Option<Notice> {
        let session = self.session.as_ref().filter(|_| self.settings.enabled && self.settings.tell_agent)?;
        self.store(now).ok()?.turns.take_notice(&SessionKey::new(&self.agent, session))
    }

    /// Answers a prompt in place of the agent, once: a second call for the same prompt gets the same answer. `prompt`
    /// must differ from every other prompt of the session.
    pub fn answer_once(&self, session: &str, prompt: &str, answer: impl FnOnce() -> String) -> String {
        let Ok(Some(store)) = Store::open_existing(&self.base) else {
            return answer();
        };
        let _held = store.locks.lock_prompts();
        let key = SessionKey::new(&self.agent, session);
        let noted = store.turns.get(&key).unwrap_or_default();
        if let Some((_, text)) = noted.answered.filter(|(answered, _)| answered == prompt) {
            return text;
        }
        let text = answer();
        let answered = Some((prompt.to_owned(), text.clone()));
        let noted = store.turns.get(&key).unwrap_or_default();
        let _ = store.turns.save(&key, &TurnNote { answered, ..noted });
        text
    }

    /// Returns the directory that a file belongs to: see [`project::working_dir_for_path`].
    pub fn working_dir_for_path(&self, path: &Path) -> PathBuf {
        project::working_dir_for_path(path, self.home.as_deref())
    }

    /// Returns the checkpoints of the project around `dir`, newest first.
    pub fn list(&self, dir: &Path) -> Result<Vec<Listed>> {
        match Store::open_existing(&self.base)? {
            Some(store) => History::of(&store, &self.project(dir, &store)?)?.list(),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the changes in the project around `dir` since a checkpoint, which is named by number, id or mark.
    pub fn diff(&self, dir: &Path, checkpoint: &str) -> Result<Diff> {
        let store = self.existing_store()?;
        let project = self.project(dir, &store)?;
        diff::diff(&store, &project, (checkpoint, None), &[], &self.settings, &Progress::default())
    }

    /// Restores files of the project around `dir` to a checkpoint.
    pub fn restore(
        &self,
        dir: &Path,
        to: RestoreTo<'_>,
        options: RestoreOptions<'_>,
        now: Moment,
    ) -> Result<RestoreReport> {
        let store = self.existing_store()?;
        let project = self.project(dir, &store)?;
        Restore::prepare(&store, &project, to, options, &self.settings, now, &Progress::default())?.apply()
    }

    fn project(&self, dir: &Path, store: &Store) -> Result<Project> {
        Project::around(dir, Some(store), self.home.as_deref())
    }

    fn existing_store(&self) -> Result<Store> {
        Store::open_existing(&self.base)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "find a checkpoint")
                .because(format!("there is no store in {}", self.base.display()))
                .with_hint("the first checkpoint makes one; another base may be meant")
        })
    }

    fn store(&self, now: Moment) -> Result<&Store> {
        match self.store.get() {
            Some(store) => Ok(store),
            None if !self.settings.enabled => Err(Error::new(ErrorKind::Invalid, "take checkpoints")
                .because("they are off")
                .with_hint("the setting `enabled` turns them on")),
            None => {
                let store = Store::open_or_create(&self.base, now)?;
                Ok(self.store.get_or_init(|| store))
            }
        }
    }
}

/// Records that a checkpoint ran out of time, for [`crate::Completion`].
fn leave_unfinished(store: &Store, project: &Project, request: &Request, since: Moment) -> Result<()> {
    let after = store.refs.newest(project.id())?;
    let (reason, origin, kind) = (request.reason.clone(), request.origin.clone(), request.kind);
    let (is_told, rest) = (kind.is_within_turn(), Default::default());
    store.unfinished.save(project.id(), &UnfinishedRequest { reason, origin, kind, since, after, is_told, rest })
}

/// Runs `work` and cancels it at the deadline. If the timer thread cannot be started, it runs without one.
fn within_deadline<T>(deadline_ms: u64, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    let (working, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let progress = &progress;
        let timer = move || {
            if is_over.recv_timeout(Duration::from_millis(deadline_ms)) == Err(RecvTimeoutError::Timeout) {
                progress.cancel();
            }
        };
        let _ = thread::Builder::new().spawn_scoped(scope, timer);
        let done = work(progress);
        drop(working);
        done
    })
}
