//! Checkpoints for the author of an agent: one at most per project and turn, whatever goes wrong.
//!
//! Everything else in this library says what failed. An agent at work has nobody to say it to, and must not be held up
//! or brought down by its undo layer. So:
//!
//! - M1. Nothing here fails or panics because of files, the store or the disk. What was missed is a value, and in the
//!   journal.
//! - M2. It holds the agent up for `deadline_ms`, and for little more.
//! - M3. Switched off, it opens no file at all.
//! - M4. One checkpoint per project, session and turn, also when many processes ask at the same moment.
//!
//! ```no_run
//! use piton::{Manager, Moment, Settings};
//! # fn now() -> Moment { Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 } }
//! let settings = Settings { enabled: true, ..Settings::default() };
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
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::diff::{self, Diff};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::history::{History, Listed};
use crate::id::CheckpointId;
use crate::journal::{Event, Journal, Level};
use crate::project::{self, Project};
use crate::restore::{Restore, RestoreOptions, RestoreReport, RestoreTo};
use crate::settings::Settings;
use crate::skipped::SkipReason;
use crate::store::{CheckpointKind, Notice, Origin, SessionKey, Store, TurnNote, turn_name};
use crate::take::{Outcome, Progress, Report, Request, WhySkipped, take};
use crate::time::Moment;

/// A turn that ran out of time that often is not tried again: each try holds the agent up.
const MISSES_MAX: u64 = 3;
/// Where nobody tells of prompts, work that goes on after a pause of so many seconds is a new turn. One too many costs a
/// checkpoint, one too few leaves a prompt unprotected.
const PAUSE_SECS: u64 = 60;
/// How far a subagent's session is followed to the one that it works for.
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
/// let mut manager = Manager::new(&base, None, Settings { enabled: true, ..Settings::default() }).for_agent("mine");
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
    turns_made: u64,
    store: OnceLock<Store>,
}

/// What came of making sure of a checkpoint.
#[derive(Debug)]
pub struct Ensured {
    /// The project, by its directory; what was asked for, where that is none.
    pub dir: PathBuf,
    /// What came of it. An error is in the journal already.
    pub report: Result<Report>,
}

impl Ensured {
    /// The checkpoint that holds the files as they are, if this call made sure of one.
    pub fn checkpoint(&self) -> Option<CheckpointId> {
        match self.report.as_ref().ok()?.outcome {
            Outcome::Taken(id) | Outcome::Unchanged(id) => Some(id),
            Outcome::Skipped(_) => None,
        }
    }

    /// Why the agent goes on without protection; `None` where it has it, or needs none.
    pub fn missed(&self, settings: &Settings) -> Option<String> {
        match &self.report {
            Err(error) => Some(match error.hint() {
                Some(hint) => format!("{error} (hint: {hint})"),
                None => error.to_string(),
            }),
            Ok(Report { unprotected: true, .. }) => {
                Some("the ignore rules of this project leave out all or nearly all of its files".to_owned())
            }
            Ok(Report { outcome: Outcome::Skipped(WhySkipped::Empty), skipped, .. })
                if skipped.iter().any(|one| one.why == SkipReason::Unreadable) =>
            {
                Some("nothing in this project could be read".to_owned())
            }
            Ok(Report { outcome: Outcome::Skipped(why), .. }) => explain(*why, settings),
            Ok(Report { dropped_out, .. }) => dropped_out.first().map(|dir| {
                let more =
                    if dropped_out.len() > 1 { format!(" and {} more", dropped_out.len() - 1) } else { String::new() };
                format!("{}/{more} cannot be read any more, and is in no new checkpoint", String::from_utf8_lossy(dir))
            }),
        }
    }
}

fn explain(why: WhySkipped, settings: &Settings) -> Option<String> {
    match why {
        WhySkipped::Disabled | WhySkipped::AlreadyThisTurn | WhySkipped::Empty => None,
        WhySkipped::TooBroad => Some("/, the home directory and what is around it are never taken".to_owned()),
        WhySkipped::TooManyFiles => Some(format!("more files in scope than max_files allows ({})", settings.max_files)),
        WhySkipped::Deadline => Some(format!(
            "it would have taken longer than deadline_ms allows ({} ms); `piton take`, once by hand, makes the next ones \
             fast",
            settings.deadline_ms
        )),
        WhySkipped::StoreFull => {
            Some(format!("the store has reached max_total_size_mb ({} MB)", settings.max_total_size_mb))
        }
    }
}

impl Manager {
    /// For the store in `base`. `home` is the user's home directory, which is never taken. Opens nothing yet.
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
            turns_made: 0,
            store: OnceLock::new(),
        }
    }

    /// The agent's name in checkpoints and in the journal.
    #[must_use]
    pub fn for_agent(mut self, name: &str) -> Self {
        name.clone_into(&mut self.agent);
        self
    }

    /// Where to note what was missed, if not in the base alone.
    #[must_use]
    pub fn with_journal(mut self, journal: Journal) -> Self {
        self.journal = journal;
        self
    }

    /// What it goes by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where it notes what was missed.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The directory in which the session began, if that is known.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The directory in which some session began, if that is known and still there.
    pub fn root_of(&self, session: &str) -> Option<PathBuf> {
        let store = Store::open_existing(&self.base).ok()??;
        store.turn_note(&SessionKey::new(&self.agent, session))?.root.filter(|root| root.is_dir())
    }

    /// The name of the turn, if one has begun.
    pub fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// A prompt of the user begins a new turn. Other processes that work for this session find it.
    pub fn new_turn(&mut self, session: &str, now: Moment) {
        self.begin_turn(session, None, None, now);
    }

    /// The same, with the agent's own name for the turn if it has one, and the directory in which it is. A name that the
    /// turn has already, and a session that works for another one, begin nothing.
    pub fn begin_turn(&mut self, session: &str, name: Option<&str>, dir: Option<&Path>, now: Moment) {
        let Some(store) = self.enter(session, now) else {
            self.turn = Some(name.map_or_else(|| self.make_name(now), str::to_owned));
            return;
        };
        let key = SessionKey::new(&self.agent, session);
        let mut note = store.turn_note(&key).unwrap_or_default();
        if let Some(parent) = note.parent.clone() {
            return self.work_for(&parent, now);
        }
        if name.is_none() || note.turn.as_deref() != name {
            note.turn = Some(name.map_or_else(|| self.make_name(now), str::to_owned));
            note.misses = 0;
        }
        note.root = note.root.filter(|root| root.is_dir()).or_else(|| self.worth_remembering(dir));
        note.is_unprompted = false;
        note.time_secs = now.secs;
        // Where it cannot be remembered, the store cannot be written either, and that is said when it matters.
        let _ = store.save_turn_note(&key, &note);
        (self.turn, self.root) = (note.turn, note.root);
    }

    /// Goes on with the turn that the session is in, perhaps begun by another process. `name` is the agent's own name for
    /// it, if it has one.
    pub fn continue_turn(&mut self, session: &str, name: Option<&str>, now: Moment) {
        let Some(store) = self.enter(session, now) else {
            self.turn = Some(name.map_or_else(|| self.make_name(now), str::to_owned));
            return;
        };
        let key = SessionKey::new(&self.agent, session);
        let fresh = TurnNote {
            turn: Some(name.map_or_else(|| self.make_name(now), str::to_owned)),
            time_secs: now.secs,
            is_unprompted: true,
            ..TurnNote::default()
        };
        let mut note = match store.turn_note(&key) {
            Some(note) => note,
            None => store.first_turn_note(&key, fresh.clone()).unwrap_or(fresh),
        };
        if let Some(parent) = &note.parent {
            return self.work_for(parent, now);
        }
        // A session of which nothing but its start was told has one turn so far, of the same name for all who ask.
        note.is_unprompted |= note.turn.is_none();
        let mut turn = note.turn.take().unwrap_or_else(|| format!("start-{}", note.time_secs));
        if note.is_unprompted && name.is_none() && now.secs != note.time_secs {
            // All who come after the same pause make the same name of it.
            if now.secs.abs_diff(note.time_secs) >= PAUSE_SECS {
                turn = format!("after-{}", note.time_secs);
                note.misses = 0;
            }
            (note.turn, note.time_secs) = (Some(turn.clone()), now.secs);
            // A help: what is not remembered costs a spare checkpoint.
            let _ = store.save_turn_note(&key, &note);
        }
        (self.turn, self.root) = (Some(name.map_or(turn, str::to_owned)), note.root);
    }

    /// A session begins or is resumed in `dir`; `parent` is the session that it works for, if it is a subagent's.
    pub fn start_session(&mut self, session: &str, parent: Option<&str>, dir: Option<&Path>, now: Moment) {
        if let Some(store) = self.enter(session, now) {
            let key = SessionKey::new(&self.agent, session);
            let mut note = store.turn_note(&key).unwrap_or_default();
            note.root = self.worth_remembering(dir).or(note.root);
            note.parent = parent.map(str::to_owned);
            note.time_secs = now.secs;
            let _ = store.save_turn_note(&key, &note);
            self.root = note.root;
        }
    }

    fn enter(&mut self, session: &str, now: Moment) -> Option<Store> {
        self.session = Some(session.to_owned());
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

    fn make_name(&mut self, now: Moment) -> String {
        self.turns_made += 1;
        turn_name(now, self.turns_made)
    }

    /// Makes sure that the project around `dir` has its checkpoint of this turn.
    pub fn ensure_checkpoint(&self, dir: &Path, reason: &str, now: Moment) -> Ensured {
        let ensured = self.ensure_checkpoints(&[dir.to_owned()], reason, now).pop();
        ensured.unwrap_or_else(|| declined(dir, WhySkipped::AlreadyThisTurn))
    }

    /// The same for the projects around some directories, each project once, within one deadline for all.
    pub fn ensure_checkpoints(&self, dirs: &[PathBuf], reason: &str, now: Moment) -> Vec<Ensured> {
        if !self.settings.enabled {
            let declined = |dir: &PathBuf| declined(dir, WhySkipped::Disabled);
            return dirs.iter().map(declined).collect();
        }
        let request = Request {
            reason: reason.to_owned(),
            kind: CheckpointKind::Auto,
            origin: Origin { agent: Some(self.agent.clone()), session: self.session.clone(), turn: self.turn.clone() },
            count_left_out: false,
        };
        let mut seen = HashSet::new();
        let ensured: Vec<_> = within_deadline(self.settings.deadline_ms, |progress| {
            let one = |dir: &PathBuf| self.ensure_one(dir, &mut seen, &request, now, progress);
            dirs.iter().filter_map(one).collect()
        });
        self.record(&ensured, now);
        ensured
    }

    /// `None` where the project had its turn in this very call.
    fn ensure_one(
        &self,
        dir: &Path,
        seen: &mut HashSet<PathBuf>,
        request: &Request,
        now: Moment,
        progress: &Progress,
    ) -> Option<Ensured> {
        let store = match self.store(now) {
            Ok(store) => store,
            Err(error) => {
                return seen.insert(PathBuf::new()).then(|| Ensured { dir: dir.to_owned(), report: Err(error) });
            }
        };
        let project = match Project::around(nearest_dir(dir), Some(store), self.home.as_deref()) {
            Ok(project) => project,
            Err(error) => return Some(Ensured { dir: dir.to_owned(), report: Err(error) }),
        };
        let dir = project.dir().to_owned();
        if !seen.insert(dir.clone()) {
            return None;
        }
        if let (Some(session), Some(turn)) = (&self.session, &self.turn) {
            // Most calls end here, without a lock. One that is wrong to go on meets the same question under the lock.
            if store.record(project.id()).has_turn(session, turn) {
                return Some(declined(&dir, WhySkipped::AlreadyThisTurn));
            }
            let key = SessionKey::new(&self.agent, session);
            let noted = store.turn_note(&key).filter(|note| note.turn.as_deref() == Some(turn));
            if noted.is_some_and(|note| note.misses >= MISSES_MAX) {
                return Some(declined(&dir, WhySkipped::Deadline));
            }
        }
        let report = take(store, &project, request, &self.settings, now, progress);
        if matches!(&report, Ok(Report { outcome: Outcome::Skipped(WhySkipped::Deadline), .. })) {
            self.count_miss(store);
        }
        Some(Ensured { dir, report })
    }

    fn count_miss(&self, store: &Store) {
        let (Some(session), Some(turn)) = (&self.session, &self.turn) else {
            return;
        };
        let key = SessionKey::new(&self.agent, session);
        let mut note = store.turn_note(&key).unwrap_or_default();
        if note.turn.as_ref() != Some(turn) {
            (note.turn, note.misses) = (Some(turn.clone()), 0);
        }
        note.misses += 1;
        let _ = store.save_turn_note(&key, &note);
    }

    /// What goes on without protection, and why.
    pub fn unprotected<'a>(&self, ensured: &'a [Ensured]) -> Vec<(&'a Ensured, String)> {
        let is_broad =
            |one: &Ensured| matches!(&one.report, Ok(Report { outcome: Outcome::Skipped(WhySkipped::TooBroad), .. }));
        // Whoever works in the home directory, on a file of a project, has what can be had.
        let has_another = ensured.iter().any(|one| !is_broad(one));
        let counts = ensured.iter().filter(|one| !(has_another && is_broad(one)));
        counts.filter_map(|one| Some((one, one.missed(&self.settings)?))).collect()
    }

    /// Puts on record what was missed, and that it works again.
    fn record(&self, ensured: &[Ensured], now: Moment) {
        for (one, why) in self.unprotected(ensured) {
            self.note_unprotected(Some(&one.dir), why, now);
        }
        for one in ensured.iter().filter(|one| one.checkpoint().is_some() && one.missed(&self.settings).is_none()) {
            self.journal.note_protected(&one.dir, now);
        }
        for index in ensured.iter().filter_map(|one| one.report.as_ref().ok()?.unread_index.as_ref()) {
            let why = "files that git tracks and a rule leaves out go without protection";
            self.note_warning(format!("{} cannot be read: {why}", index.display()), now);
        }
    }

    /// Puts on record that the agent goes on without a checkpoint.
    pub fn note_unprotected(&self, dir: Option<&Path>, why: String, now: Moment) -> bool {
        let (session, turn) = (self.session.clone(), self.turn.clone());
        self.journal.note(&Event { session, turn, ..self.event(Level::Unprotected, dir, why, now) })
    }

    /// Puts on record what is not as the user will think, whatever the turn.
    pub fn note_warning(&self, what: String, now: Moment) -> bool {
        self.journal.note(&self.event(Level::Warning, None, what, now))
    }

    fn event(&self, level: Level, dir: Option<&Path>, what: String, time: Moment) -> Event {
        let (agent, project) = (Some(self.agent.clone()), dir.map(Path::to_owned));
        Event { time, level, agent, session: None, turn: None, project, what }
    }

    /// Whether this turn is on record as one without a checkpoint in that directory.
    pub fn is_unprotected(&self, dir: &Path) -> bool {
        let is_ours = |event: &Event| event.session == self.session && event.turn == self.turn;
        self.journal
            .unprotected()
            .iter()
            .any(|state| !state.is_past && state.project.as_deref() == Some(dir) && is_ours(&state.last))
    }

    /// Takes the word that a restore left for this session, if it is to be told. It is told once.
    pub fn take_notice(&self, now: Moment) -> Option<Notice> {
        let session = self.session.as_ref().filter(|_| self.settings.enabled && self.settings.tell_agent)?;
        self.store(now).ok()?.take_notice(&SessionKey::new(&self.agent, session))
    }

    /// Answers a prompt in place of the agent, once: who asks for the same prompt again gets the same answer. `prompt`
    /// must tell it from every other prompt of the session.
    pub fn answer_once(&self, session: &str, prompt: &str, answer: impl FnOnce() -> String) -> String {
        let Ok(Some(store)) = Store::open_existing(&self.base) else {
            return answer();
        };
        let _held = store.lock_prompts();
        let key = SessionKey::new(&self.agent, session);
        let noted = store.turn_note(&key).unwrap_or_default();
        if let Some((_, text)) = noted.answered.filter(|(answered, _)| answered == prompt) {
            return text;
        }
        let text = answer();
        let answered = Some((prompt.to_owned(), text.clone()));
        let noted = store.turn_note(&key).unwrap_or_default();
        let _ = store.save_turn_note(&key, &TurnNote { answered, ..noted });
        text
    }

    /// Where a file belongs: see [`project::working_dir_for_path`].
    pub fn working_dir_for_path(&self, path: &Path) -> PathBuf {
        project::working_dir_for_path(path, self.home.as_deref())
    }

    /// The checkpoints of the project around `dir`, newest first.
    pub fn list(&self, dir: &Path) -> Result<Vec<Listed>> {
        match Store::open_existing(&self.base)? {
            Some(store) => History::of(&store, &self.project(dir, &store)?)?.list(),
            None => Ok(Vec::new()),
        }
    }

    /// What changed in the project around `dir` since a checkpoint, named by number or id.
    pub fn diff(&self, dir: &Path, checkpoint: &str) -> Result<Diff> {
        let store = self.existing_store()?;
        let project = self.project(dir, &store)?;
        diff::diff(&store, &project, (checkpoint, None), &[], &self.settings, &Progress::default())
    }

    /// Makes files of the project around `dir` equal to a checkpoint.
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
        })
    }

    fn store(&self, now: Moment) -> Result<&Store> {
        match self.store.get() {
            Some(store) => Ok(store),
            None if !self.settings.enabled => {
                Err(Error::new(ErrorKind::Invalid, "take checkpoints").because("they are off"))
            }
            None => {
                let store = Store::open_or_create(&self.base, now)?;
                Ok(self.store.get_or_init(|| store))
            }
        }
    }
}

fn declined(dir: &Path, why: WhySkipped) -> Ensured {
    Ensured { dir: dir.to_owned(), report: Ok(Report::declined(why)) }
}

/// The directory itself, or the nearest one above it that exists: a tool may be about to make it. One that cannot be
/// looked at is not passed over: what is around it is another project.
fn nearest_dir(path: &Path) -> &Path {
    path.ancestors().find(|dir| fsx::is_dir(dir).unwrap_or(true)).unwrap_or(path)
}

/// Runs `work`, which is told to stop when the time is up. Where no thread is to be had nobody tells it.
fn within_deadline<T>(deadline_ms: u64, work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    let (working, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let stop = &progress.stop;
        let watch = move || {
            if is_over.recv_timeout(Duration::from_millis(deadline_ms)) == Err(RecvTimeoutError::Timeout) {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let _ = thread::Builder::new().spawn_scoped(scope, watch);
        let done = work(&progress);
        drop(working);
        done
    })
}
