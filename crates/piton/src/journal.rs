//! Log of failures in the background, for `piton status` and `piton doctor`.
//!
//! An automatic checkpoint never raises an error, so a missed one must be recorded. The log is `<base>/piton.log`, with
//! one line per event. If the base is not writable, a fallback directory given by the caller is used. Readers read
//! both.
//!
//! - J1. A line is appended by a single write, so that lines of concurrent processes do not mix.
//! - J2. The log is readable by its owner only, links to it are not followed, and its size is bounded: at its limit it
//!   is renamed to `piton.log.1`, replacing an older one. An unprotected turn stays on record until the user has
//!   acknowledged it.
//! - J3. The log holds no file contents, no prompts, and of a command line only a short summary.
//! - J4. Nothing here returns an error: an event that cannot be written is dropped.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::fsx;
use crate::id::bounded_name;
use crate::json::JsonPathOption;
use crate::relpath::{escape, unescape};
use crate::store::{Origin, journal_path};
use crate::sys;
use crate::time::Moment;

/// Size at which a log is rotated.
const LOG_BYTES_MAX: u64 = 256 << 10;
/// Length limit of the text of an event, in characters.
const WHAT_CHARS_MAX: usize = 600;
/// Longest path that Linux opens.
const PATH_BYTES_MAX: usize = 4096;

/// A warning is not repeated within this time.
const WARNED_SECS: u64 = 60 * 60;

/// Meaning of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// A project has a checkpoint again after unprotected turns.
    Protected,
    /// The state differs from the user's expectation.
    Warning,
    /// An agent continued without a checkpoint.
    Unprotected,
    /// A command was about to destroy something that could not be saved.
    Unsaved,
    /// An agent continued in a place that is never taken, such as the home directory.
    Declined,
    /// The user has seen all earlier events.
    Acknowledged,
}

impl Level {
    const ALL: [Self; 6] =
        [Self::Protected, Self::Warning, Self::Unprotected, Self::Unsaved, Self::Declined, Self::Acknowledged];

    /// Returns its name in the log and in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Protected => "protected",
            Self::Warning => "warning",
            Self::Unprotected => "unprotected",
            Self::Unsaved => "unsaved",
            Self::Declined => "declined",
            Self::Acknowledged => "acknowledged",
        }
    }

    /// Returns true if an event of this level ends earlier ones.
    fn ends_others(self) -> bool {
        matches!(self, Self::Protected | Self::Acknowledged)
    }

    fn is_unprotected(self) -> bool {
        matches!(self, Self::Unprotected | Self::Declined)
    }
}

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Time of the event.
    pub time: Moment,
    /// Meaning of the event.
    pub level: Level,
    /// Agent that was running.
    pub agent: Option<String>,
    /// Session of the agent.
    pub session: Option<String>,
    /// Turn of the session.
    pub turn: Option<String>,
    /// Directory of the project.
    pub project: Option<PathBuf>,
    /// Description of the event.
    pub what: String,
}

crate::json::serialized_as_word!(Level);

crate::path_keys! {
    AtProject = "project", "project_bytes", "directory of the project, or null";
}

/// JSON of an [`Event`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct EventJson<'a> {
    /// time of the event, as in RFC 3339
    time: Moment,
    /// agent that was running, or null
    agent: Option<&'a str>,
    /// its session, or null
    session: Option<&'a str>,
    /// turn of the session, or null
    turn: Option<&'a str>,
    #[serde(flatten)]
    project: JsonPathOption<'a, AtProject>,
    /// why there is no checkpoint
    why: &'a str,
}

impl<'a> From<&'a Event> for EventJson<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            time: event.time,
            agent: event.agent.as_deref(),
            session: event.session.as_deref(),
            turn: event.turn.as_deref(),
            project: JsonPathOption::of(event.project.as_deref()),
            why: &event.what,
        }
    }
}

crate::json::serialized_as! {
    Event => EventJson<'_>;
}

impl Event {
    /// Returns an event of no agent and no project.
    pub fn new(time: Moment, level: Level, what: impl Into<String>) -> Self {
        Self { time, level, agent: None, session: None, turn: None, project: None, what: what.into() }
    }

    /// Returns the line with its newline. The project comes last, so that the lines of a project can be found by their
    /// suffix.
    pub(crate) fn encode(&self) -> String {
        let mut line = format!("{} {} {}", self.time, self.level.word(), quoted(&self.what));
        let named = [("agent", &self.agent), ("session", &self.session), ("turn", &self.turn)];
        for (key, value) in named {
            if let Some(value) = value {
                let _ = write!(line, " {key}={}", escape(bounded_name(value).as_bytes()));
            }
        }
        // A longer path cannot be opened.
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
                "project" => event.project = Some(sys::path_from_bytes(value)),
                _ => {}
            }
        }
        Some(event)
    }

    /// Returns true if the events differ in their times only.
    fn says_what(&self, other: &Self) -> bool {
        *self == Self { time: self.time, ..other.clone() }
    }
}

impl Event {
    /// Returns true if both events belong to the same turn in the same project. An event without session or turn
    /// belongs to a turn of its own.
    fn is_of_turn(&self, other: &Self) -> bool {
        let turn = |event: &Self| {
            let Event { agent, session, turn, project, .. } = event.clone();
            (agent, session, turn, project)
        };
        self.session.is_some() && self.turn.is_some() && turn(self) == turn(other)
    }
}

/// Returns the text as a JSON string, cut after `WHAT_CHARS_MAX` characters.
fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(WHAT_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    serde_json::Value::from(shown).to_string()
}

/// Returns the suffix of each line about a project.
fn ending(project: &Path) -> String {
    format!(" project={}", escape(sys::path_bytes(project)))
}

/// Turns of one project that ran without a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unprotected {
    /// Directory of the project.
    pub project: Option<PathBuf>,
    /// Number of such turns since the last successful checkpoint.
    pub turns: usize,
    /// Last of these events.
    pub last: Event,
    /// True if a checkpoint of the project has succeeded since.
    pub is_past: bool,
}

/// The log of failures of automatic protection, in one base, and its fallback directories.
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
    /// Returns the log in `base`.
    pub fn at(base: &Path) -> Self {
        Self { base: base.to_owned(), others: Vec::new() }
    }

    /// Adds a fallback directory for when the base cannot be written. It is created with owner-only permissions if it
    /// is missing.
    #[must_use]
    pub fn or_in(mut self, dir: Option<PathBuf>) -> Self {
        self.others.extend(dir);
        self
    }

    /// Like [`Self::or_in`], but in a directory that all users share: the fallback is its subdirectory `piton-<uid>`.
    #[must_use]
    pub fn or_in_shared(self, dir: &Path) -> Self {
        let own = dir.join(format!("piton-{}", sys::effective_uid()));
        self.or_in(Some(own))
    }

    /// Appends an event. Returns true if the log has it afterwards. An event of a turn that the log already has is not
    /// appended again, nor is the same warning within an hour.
    pub fn note(&self, event: &Event) -> bool {
        let line = event.encode();
        // Compare with the text as the log stores it: an event whose text was cut would never match and be appended by
        // every call.
        let event = &Event::decode(line.trim_end()).unwrap_or_else(|| event.clone());
        // Compare absolute differences: an event from a clock that was ahead must not suppress a warning until that
        // time.
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

    /// Appends an event that ends earlier ones to every log that exists: the logs of two directories are merged by time,
    /// in seconds, and only within one log an event is certain to follow what it ends. Returns true if it is on record.
    fn append_to_all(&self, event: &Event) -> bool {
        let line = event.encode();
        let places = [(&self.base, true)].into_iter().chain(self.others.iter().map(|dir| (dir, false)));
        let append_to = |(dir, is_base): (&PathBuf, bool)| {
            let log = journal_path(dir);
            is_ours(dir, is_base) && log.exists() && append(&log, &line)
        };
        let appended = places.map(append_to).filter(|is_appended| *is_appended).count();
        appended > 0 || self.append(event)
    }

    /// Appends a warning that belongs to no project.
    pub fn note_warning(&self, what: String, now: Moment) -> bool {
        let (time, level) = (now, Level::Warning);
        self.note(&Event { time, level, agent: None, session: None, turn: None, project: None, what })
    }

    /// Records that a project has a checkpoint again, if its last event says that it was unprotected.
    pub fn note_protected(&self, project: &Path, now: Moment) {
        self.note_protected_turn(project, &Origin::default(), now);
    }

    /// Like [`Self::note_protected`], for the turn that has its checkpoint: that turn no longer counts as unprotected.
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
            self.append_to_all(&noted);
        }
    }

    /// Returns the turns that ran without a checkpoint since `since_secs`, newest first, each once with its last event.
    /// Turns that got a checkpoint later, and turns that the user has acknowledged, are left out.
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
                Level::Warning | Level::Unsaved => {}
            }
        }
        open.retain(|event| event.time.secs >= since_secs);
        open.reverse();
        open
    }

    /// Returns the events since `since_secs` about files that a command was about to destroy and that could not be
    /// saved, newest first, without those that the user has acknowledged.
    pub fn unsaved(&self, since_secs: i64) -> Vec<Event> {
        let mut open: Vec<Event> = Vec::new();
        for event in self.events(|_| true) {
            match event.level {
                Level::Unsaved => open.push(event),
                Level::Acknowledged => open.clear(),
                _ => {}
            }
        }
        open.retain(|event| event.time.secs >= since_secs);
        open.reverse();
        open
    }

    /// Records that the user has seen all earlier events. Returns true if the record was written.
    pub fn acknowledge(&self, now: Moment) -> bool {
        let (time, level, what) = (now, Level::Acknowledged, "seen by the user".to_owned());
        self.append_to_all(&Event { time, level, agent: None, session: None, turn: None, project: None, what })
    }

    /// Returns the turn of the last recorded event of a session, as a fallback for callers that know no better name.
    pub(crate) fn last_turn(&self, agent: &str, session: &str) -> Option<String> {
        let is_its = |event: &Event| event.agent.as_deref() == Some(agent) && event.session.as_deref() == Some(session);
        self.events(|_| true).into_iter().rfind(is_its)?.turn
    }

    /// Returns up to `max` events, newest first.
    pub fn recent(&self, max: usize) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for event in self.events(|_| true).into_iter().rev() {
            // An event that ends earlier ones is in several logs.
            if events.len() < max && !(event.level.ends_others() && events.contains(&event)) {
                events.push(event);
            }
        }
        events
    }

    /// Returns the projects in which agents ran without a checkpoint, those that are still unprotected first.
    pub fn unprotected(&self) -> Vec<Unprotected> {
        let mut found = BTreeMap::<Option<PathBuf>, (Unprotected, HashSet<String>)>::new();
        for event in self.events(|_| true) {
            match (event.level, found.get_mut(&event.project)) {
                (Level::Unprotected | Level::Declined, known) => {
                    let name = match (&event.session, &event.turn) {
                        (Some(session), Some(turn)) => format!("{:?} {session} {turn}", event.agent),
                        // Without a name, each event counts as a turn of its own.
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

    /// Returns the events of the lines that `is_wanted` accepts, oldest first. Lines that are not events are skipped.
    ///
    /// Within one log the order of the lines counts, not their times: after a clock was set back, a new failure would
    /// otherwise seem to be older than a success before it. Times only decide how the logs of two directories are
    /// merged.
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
            // Clamp each time to the times of the lines below it, so that sorting by time keeps the order of the lines.
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

/// Returns true if the directory exists, belongs to this user and is not writable by others. The base may be a link,
/// because the user chose it.
fn is_ours(dir: &Path, may_be_link: bool) -> bool {
    let found = if may_be_link { fs::metadata(dir) } else { fs::symlink_metadata(dir) };
    found.is_ok_and(|found| {
        found.is_dir() && sys::owner(&found) == sys::effective_uid() && sys::mode(&found) & 0o022 == 0
    })
}

fn aside(log: &Path) -> PathBuf {
    log.with_added_extension("1")
}

fn append(path: &Path, line: &str) -> bool {
    let appended = open(path, line.len() as u64).and_then(|mut file| {
        let end = file.metadata()?.len();
        let mut last = [b'\n'];
        if end > 0 {
            sys::read_exact_at(&file, &mut last, end - 1)?;
        }
        // If a full disk truncated the last line, start a new one.
        let line = if last == *b"\n" { line.to_owned() } else { format!("\n{line}") };
        let written = file.write(line.as_bytes())?;
        Ok(written == line.len())
    });
    appended.unwrap_or(false)
}

/// Opens a log for appending `bytes` bytes. Rotates it first if they would exceed the limit. If another process is
/// rotating it, the full log is used.
fn open(path: &Path, bytes: u64) -> io::Result<File> {
    let file = sys::open_to_append(path)?;
    let found = file.metadata()?;
    if found.len() + bytes <= LOG_BYTES_MAX || file.try_lock().is_err() {
        return Ok(file);
    }
    // Only one of several processes renames the log: the others find another inode at the path.
    if sys::file_identity(&fs::symlink_metadata(path)?) == sys::file_identity(&found) {
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
            project: Some(sys::path_from_bytes(b"/p/\xff \xc3\xa4".to_vec())),
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
