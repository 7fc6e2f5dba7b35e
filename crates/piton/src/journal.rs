//! What went wrong while nobody was looking: a log for `piton status` and `piton doctor` to read.
//!
//! An automatic checkpoint never raises, so what it missed has to be on record. The log is `<base>/piton.log`, one line
//! an event; where the base cannot be written, a directory that the caller names takes its place, and reading looks at
//! both.
//!
//! - J1. A line is appended by one write, so that lines of processes that write at the same moment do not mix.
//! - J2. The log is its owner's alone, no link is followed to it, and it is bounded: at its limit it becomes
//!   `piton.log.1`, in place of an older one.
//!   An unprotected turn stays on record until the user has acknowledged it.
//! - J3. It holds no contents of files, no prompts and no command lines but the short summary of one.
//! - J4. Nothing here fails: what cannot be noted is not noted.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::fsx;
use crate::id::bounded_name;
use crate::relpath::{escape, unescape};
use crate::store::{Origin, journal_path};
use crate::sys;
use crate::time::Moment;

/// At this size a log is put aside.
const LOG_BYTES_MAX: u64 = 256 << 10;
/// The longest text of an event, in characters.
const WHAT_CHARS_MAX: usize = 600;
/// The longest path that Linux opens.
const PATH_BYTES_MAX: usize = 4096;

/// A warning that was given within that time is not given again.
const WARNED_SECS: u64 = 60 * 60;

/// What an event means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// After a time without, a project has a checkpoint again.
    Protected,
    /// Something is not as its user will think.
    Warning,
    /// An agent went on without a checkpoint.
    Unprotected,
    /// An agent went on where none is ever taken, as in the home directory.
    Declined,
    /// The user has seen everything before this.
    Acknowledged,
}

impl Level {
    const ALL: [Self; 5] = [Self::Protected, Self::Warning, Self::Unprotected, Self::Declined, Self::Acknowledged];

    /// The word for it, in the log and in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Protected => "protected",
            Self::Warning => "warning",
            Self::Unprotected => "unprotected",
            Self::Declined => "declined",
            Self::Acknowledged => "acknowledged",
        }
    }

    /// Returns whether an agent went on without a checkpoint.
    fn is_unprotected(self) -> bool {
        matches!(self, Self::Unprotected | Self::Declined)
    }
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time: Moment,
    /// What it means.
    pub level: Level,
    /// Which agent was at work.
    pub agent: Option<String>,
    /// In which session.
    pub session: Option<String>,
    /// In which turn of it.
    pub turn: Option<String>,
    /// Which project, by its directory.
    pub project: Option<PathBuf>,
    /// What happened, in words.
    pub what: String,
}

impl Event {
    /// The line, with its end. The project stands last, so that its lines are found by how they end.
    pub(crate) fn encode(&self) -> String {
        let mut line = format!("{} {} {}", self.time, self.level.word(), quoted(&self.what));
        let named = [("agent", &self.agent), ("session", &self.session), ("turn", &self.turn)];
        for (key, value) in named {
            if let Some(value) = value {
                let _ = write!(line, " {key}={}", escape(bounded_name(value).as_bytes()));
            }
        }
        // A longer path is none that can be opened.
        if let Some(project) = self.project.as_ref().filter(|path| path.as_os_str().len() <= PATH_BYTES_MAX) {
            let _ = write!(line, "{}", ending(project));
        }
        line.push('\n');
        line
    }

    pub(crate) fn decode(line: &str) -> Option<Self> {
        let (time, rest) = line.split_once(' ')?;
        let (word, rest) = rest.split_once(' ')?;
        let level = Level::ALL.into_iter().find(|level| level.word() == word)?;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let what = values.next()?.ok()?;
        let mut event =
            Self { time: Moment::parse(time)?, level, agent: None, session: None, turn: None, project: None, what };
        for (key, value) in rest[values.byte_offset()..].split(' ').filter_map(|pair| pair.split_once('=')) {
            let value = unescape(value.as_bytes())?;
            let text = || Some(String::from_utf8_lossy(&value).into_owned());
            match key {
                "agent" => event.agent = text(),
                "session" => event.session = text(),
                "turn" => event.turn = text(),
                "project" => event.project = Some(OsString::from_vec(value).into()),
                _ => {}
            }
        }
        Some(event)
    }

    /// Returns whether the other one says the same at another time.
    fn says_what(&self, other: &Self) -> bool {
        *self == Self { time: self.time, ..other.clone() }
    }
}

impl Event {
    /// Returns whether both are about one turn in one project. Without a name, each event is a turn of its own.
    fn is_of_turn(&self, other: &Self) -> bool {
        let turn = |event: &Self| {
            let Event { agent, session, turn, project, .. } = event.clone();
            (agent, session, turn, project)
        };
        self.session.is_some() && self.turn.is_some() && turn(self) == turn(other)
    }
}

/// One line of text in quotes.
fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(WHAT_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    serde_json::Value::from(shown).to_string()
}

/// How every line about a project ends.
fn ending(project: &Path) -> String {
    format!(" project={}", escape(project.as_os_str().as_bytes()))
}

/// Turns that went on without a checkpoint in one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unprotected {
    /// The project, by its directory.
    pub project: Option<PathBuf>,
    /// How many turns, since the last checkpoint that worked.
    pub turns: usize,
    /// The last of these events.
    pub last: Event,
    /// Since then a checkpoint of the project worked.
    pub is_past: bool,
}

/// The log of one base, and the places that may stand in for it.
///
/// ```
/// use piton::{Journal, Moment};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let base = temp.path().join("base");
/// # let now = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// let journal = Journal::at(&base).or_in(Some(temp.path().join("state"))); // where the base is missing or full
/// assert!(journal.note_warning("the disk is nearly full".to_owned(), now));
/// assert_eq!(journal.recent(10)[0].what, "the disk is nearly full");
/// assert!(journal.unprotected().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Journal {
    base: PathBuf,
    others: Vec<PathBuf>,
}

impl Journal {
    /// The journal in `base`.
    pub fn at(base: &Path) -> Self {
        Self { base: base.to_owned(), others: Vec::new() }
    }

    /// Where to write if the base does not take it: a directory, made for its owner alone where it is missing.
    #[must_use]
    pub fn or_in(mut self, dir: Option<PathBuf>) -> Self {
        self.others.extend(dir);
        self
    }

    /// The same in a directory that all users share. The name there is this user's.
    #[must_use]
    pub fn or_in_shared(self, dir: &Path) -> Self {
        let own = dir.join(format!("piton-{}", sys::effective_uid()));
        self.or_in(Some(own))
    }

    /// Appends an event; says whether it is on record. What the log says already of the same turn is not said again, nor
    /// is a warning within the hour.
    pub fn note(&self, event: &Event) -> bool {
        let line = event.encode();
        // As the log has it: what was cut would never be found there, and be said again with each call.
        let event = &Event::decode(line.trim_end()).unwrap_or_else(|| event.clone());
        // A clock that was ahead must not silence a warning until its time comes.
        let is_fresh = |told: &Event| event.time.secs.abs_diff(told.time.secs) < WARNED_SECS;
        let is_told = |told: &Event| {
            told.says_what(event) && (event.turn.is_some() || (event.level == Level::Warning && is_fresh(told)))
        };
        self.events(|_| true).iter().any(is_told) || self.append(event)
    }

    fn append(&self, event: &Event) -> bool {
        let line = event.encode();
        let in_base = is_ours(&self.base, true) && append(&journal_path(&self.base), &line);
        in_base
            || self
                .others
                .iter()
                .any(|dir| fsx::ensure_dir(dir).is_ok() && is_ours(dir, false) && append(&journal_path(dir), &line))
    }

    /// Appends a warning about no project in particular.
    pub fn note_warning(&self, what: String, now: Moment) -> bool {
        let (time, level) = (now, Level::Warning);
        self.note(&Event { time, level, agent: None, session: None, turn: None, project: None, what })
    }

    /// A project has a checkpoint again: if the journal says that it had none, that is past now.
    pub fn note_protected(&self, project: &Path, now: Moment) {
        self.note_protected_turn(project, &Origin::default(), now);
    }

    /// Like [`Self::note_protected`], for a turn that has its checkpoint: it counts as unprotected no longer.
    pub fn note_protected_turn(&self, project: &Path, origin: &Origin, now: Moment) {
        let suffix = ending(project);
        let about = self.events(|line| line.ends_with(&suffix));
        let Origin { agent, session, turn } = origin.clone();
        let (time, level, what) = (now, Level::Protected, "checkpoints work again".to_owned());
        let noted = Event { time, level, agent, session, turn, project: Some(project.to_owned()), what };
        let is_news = |level: &Level| *level == Level::Protected || level.is_unprotected();
        let last_of = |mut events: Box<dyn DoubleEndedIterator<Item = Level> + '_>| events.rfind(is_news);
        let all = last_of(Box::new(about.iter().map(|event| event.level)));
        let own = last_of(Box::new(about.iter().filter(|event| event.is_of_turn(&noted)).map(|event| event.level)));
        if [all, own].into_iter().flatten().any(Level::is_unprotected) {
            self.append(&noted);
        }
    }

    /// Returns the turns that went on without a checkpoint since then, newest first, each once and with the last that was
    /// said of it; without those that have got one and those that the user has acknowledged.
    pub fn unprotected_turns(&self, since_secs: i64) -> Vec<Event> {
        let mut open: Vec<Event> = Vec::new();
        for event in self.events(|_| true) {
            match event.level {
                Level::Unprotected | Level::Declined => match open.iter_mut().find(|known| known.is_of_turn(&event)) {
                    Some(known) => (known.level, known.what) = (event.level, event.what),
                    None => open.push(event),
                },
                Level::Protected => open.retain(|known| !known.is_of_turn(&event)),
                Level::Acknowledged => open.clear(),
                Level::Warning => {}
            }
        }
        open.retain(|event| event.time.secs >= since_secs);
        open.reverse();
        open
    }

    /// Notes that the user has seen all unprotected turns. Returns whether it is on record.
    pub fn acknowledge(&self, now: Moment) -> bool {
        let (time, level, what) = (now, Level::Acknowledged, "seen by the user".to_owned());
        self.append(&Event { time, level, agent: None, session: None, turn: None, project: None, what })
    }

    /// Returns the name of the last turn of a session that is on record, for want of a better one.
    pub(crate) fn last_turn(&self, agent: &str, session: &str) -> Option<String> {
        let is_its = |event: &Event| event.agent.as_deref() == Some(agent) && event.session.as_deref() == Some(session);
        self.events(|_| true).into_iter().rfind(is_its)?.turn
    }

    /// The newest events, newest first.
    pub fn recent(&self, max: usize) -> Vec<Event> {
        let mut events = self.events(|_| true);
        events.reverse();
        events.truncate(max);
        events
    }

    /// The projects in which agents went on without a checkpoint, those that still do first.
    pub fn unprotected(&self) -> Vec<Unprotected> {
        let mut found = BTreeMap::<Option<PathBuf>, (Unprotected, HashSet<String>)>::new();
        for event in self.events(|_| true) {
            match (event.level, found.get_mut(&event.project)) {
                (Level::Unprotected | Level::Declined, known) => {
                    let name = match (&event.session, &event.turn) {
                        (Some(session), Some(turn)) => format!("{:?} {session} {turn}", event.agent),
                        // Without a name each counts as a turn of its own.
                        _ => String::new(),
                    };
                    let new = |event: &Event| Unprotected {
                        project: event.project.clone(),
                        turns: 0,
                        last: event.clone(),
                        is_past: false,
                    };
                    let (state, turns) = match known {
                        Some(known) if !known.0.is_past => known,
                        _ => found.entry(event.project.clone()).insert_entry((new(&event), HashSet::new())).into_mut(),
                    };
                    state.turns += usize::from(name.is_empty() || turns.insert(name));
                    state.last = event;
                }
                (Level::Protected, Some((state, _))) => state.is_past = true,
                (Level::Acknowledged, _) => found.clear(),
                _ => {}
            }
        }
        let mut all: Vec<_> = found.into_values().map(|(state, _)| state).collect();
        all.sort_by_key(|state| (state.is_past, std::cmp::Reverse(state.last.time)));
        all
    }

    /// The events of those lines, oldest first. Lines that are no events are left out.
    ///
    /// In one log the order of the lines counts, not their times: a clock that was set back would make a failure of today
    /// past. Times only say how the logs of two places mix.
    fn events(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Event> {
        let places = [(&self.base, true)].into_iter().chain(self.others.iter().map(|dir| (dir, false)));
        let mut events = Vec::new();
        for (dir, is_base) in places {
            if !is_ours(dir, is_base) {
                continue;
            }
            let (log, begin) = (journal_path(dir), events.len());
            for path in [aside(&log), log] {
                let bytes = fsx::read_small(&path, 4 * LOG_BYTES_MAX).ok().flatten().unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes);
                let told = text.lines().filter(|line| is_wanted(line)).filter_map(Event::decode);
                events.extend(told.map(|event| (event.time.as_nanos(), event)));
            }
            // Nothing happened later than what stands below it.
            let mut latest = i128::MAX;
            for (at, _) in events[begin..].iter_mut().rev() {
                latest = latest.min(*at);
                *at = latest;
            }
        }
        events.sort_by_key(|(at, _)| *at);
        events.into_iter().map(|(_, event)| event).collect()
    }
}

/// Returns whether a directory is there and this user's. The base may be reached through a link: its user chose it.
fn is_ours(dir: &Path, may_be_link: bool) -> bool {
    let found = if may_be_link { fs::metadata(dir) } else { fs::symlink_metadata(dir) };
    found.is_ok_and(|found| found.is_dir() && found.uid() == sys::effective_uid() && found.mode() & 0o022 == 0)
}

fn aside(log: &Path) -> PathBuf {
    log.with_added_extension("1")
}

fn append(path: &Path, line: &str) -> bool {
    let appended = open(path, line.len() as u64).and_then(|mut file| {
        let end = file.metadata()?.len();
        let mut last = [b'\n'];
        if end > 0 {
            file.read_exact_at(&mut last, end - 1)?;
        }
        // After a line that a full disk cut off, ours begins on its own.
        let line = if last == *b"\n" { line.to_owned() } else { format!("\n{line}") };
        let written = file.write(line.as_bytes())?;
        Ok(written == line.len())
    });
    appended.unwrap_or(false)
}

/// Opens a log with room for so many bytes.
fn open(path: &Path, bytes: u64) -> io::Result<File> {
    let file = sys::open_to_append(path)?;
    let found = file.metadata()?;
    if found.len() + bytes <= LOG_BYTES_MAX || file.try_lock().is_err() {
        return Ok(file);
    }
    // Of those that want to put it aside, one does: the others find another file under the name.
    if fs::symlink_metadata(path)?.ino() == found.ino() {
        fs::rename(path, aside(path))?;
    }
    drop(file);
    sys::open_to_append(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            time: Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 3600 },
            level: Level::Unprotected,
            agent: Some("claude".to_owned()),
            session: Some("s 1".to_owned()),
            turn: None,
            project: Some(OsString::from_vec(b"/p/\xff \xc3\xa4".to_vec()).into()),
            what: "cannot write \"x\":\nno space left = bad".to_owned(),
        }
    }

    #[test]
    fn a_line_is_readable_and_comes_back() {
        let line = event().encode();
        let shown = "2026-03-16T05:36:00+01:00 unprotected \"cannot write \\\"x\\\":\\nno space left = bad\" agent=claude \
                     session=s%201 project=/p/%ff%20%c3%a4\n";
        assert_eq!(line, shown);
        assert_eq!(Event::decode(line.trim_end()), Some(event()));
    }

    #[test]
    fn a_line_is_never_longer_than_a_write_that_stays_whole() {
        let long = "ä".repeat(100_000);
        let event = Event { what: long.clone(), session: Some(long.clone()), turn: Some(long), ..event() };
        assert!(event.encode().len() < 4096, "{}", event.encode().len());
    }

    #[test]
    fn what_is_no_event_is_left_out() {
        for line in [
            "",
            "x",
            "2026 unprotected \"x\"",
            "2026-03-16T05:36:00+01:00 loud \"x\"",
            "2026-03-16T05:36:00Z warning x",
        ] {
            assert_eq!(Event::decode(line), None, "{line:?}");
        }
    }
}
