//! State of agents' sessions that is kept between processes: notes about the current turn in `turns/<session>`, and
//! notices for the next prompt in `notices/<session>`.
//!
//! `<session>` is a hash of the agent's name and its own name for the session. Everything here is best effort: a lost
//! file causes at most an extra checkpoint or a missing message to the agent. So files are replaced atomically but not
//! synced, and old ones are removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::Digest as _;

use super::ProjectRecord;
use super::layout::Layout;
use crate::error::Result;
use crate::fsx::{self, Durability};
use crate::id::{ProjectId, bounded_name};
use crate::json::escaped;
use crate::sys;
use crate::time::Moment;

const NOTE_BYTES_MAX: u64 = 1 << 20;
/// Number of file names in a notice; the rest is only counted.
const NOTICE_NAMES_MAX: usize = 50;

/// A session, as the agent itself names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SessionKey {
    pub(crate) agent: String,
    pub(crate) session: String,
}

impl SessionKey {
    pub(crate) fn new(agent: &str, session: &str) -> Self {
        Self { agent: agent.to_owned(), session: bounded_name(session) }
    }

    pub(super) fn file_name(&self) -> String {
        let digest = sha2::Sha256::new().chain_update(&self.agent).chain_update([0]).chain_update(&self.session);
        digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// State of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TurnNote {
    /// Current turn; `None` before the first prompt.
    pub(crate) turn: Option<String>,
    /// Another name of that turn, under which the agent continued by itself.
    pub(crate) also: Option<String>,
    /// Directory in which the session began.
    #[serde(with = "escaped::path_option")]
    pub(crate) root: Option<PathBuf>,
    /// Session of the parent agent, if this one is a subagent's.
    pub(crate) parent: Option<String>,
    /// Number of timeouts in this turn.
    pub(crate) misses: u64,
    /// Projects without any checkpoint whose attempt in this turn failed or was refused: it is not repeated.
    pub(crate) refused: Vec<ProjectId>,
    /// The last prompt that was answered without the agent, and the answer.
    pub(crate) answered: Option<(String, String)>,
    /// Time in seconds at which the turn began; if the agent reports no prompts, the time of its last activity.
    #[serde(rename = "time")]
    pub(crate) time_secs: i64,
    /// True if the turn began without a reported prompt.
    #[serde(rename = "unprompted")]
    pub(crate) is_unprompted: bool,
    /// True if the turn is in progress: the agent reports ends of turns, and has not reported this one.
    #[serde(rename = "open")]
    pub(crate) is_open: bool,
    /// Time in seconds at which the session began or was resumed.
    #[serde(rename = "started")]
    pub(crate) started_secs: Option<i64>,
    /// Time in seconds at which the agent reported the end of the session.
    #[serde(rename = "ended")]
    pub(crate) ended_secs: Option<i64>,
    /// Version of the agent, if it is known.
    pub(crate) version: Option<String>,
    /// Time in seconds of the last event. It is the mtime of the file, so that an event need not rewrite the note.
    #[serde(skip)]
    pub(crate) seen_secs: i64,
    /// Keys of later versions.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// A note with the session that it is about, as it is on disk.
#[derive(Serialize, Deserialize)]
struct NoteFile<K, N> {
    #[serde(flatten)]
    key: K,
    #[serde(flatten)]
    note: N,
}

impl TurnNote {
    fn encode(&self, key: &SessionKey) -> Vec<u8> {
        serde_json::to_vec(&NoteFile { key, note: self }).expect("plain data")
    }

    fn decode(bytes: &[u8]) -> Option<(SessionKey, Self)> {
        let NoteFile::<SessionKey, Self> { key, note } = serde_json::from_slice(bytes).ok()?;
        Some((key, Self { seen_secs: note.time_secs, ..note }))
    }
}

/// Files that a restore changed without the agent's knowledge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Notice {
    /// The project and the state that it was restored to, as text.
    pub headline: String,
    /// Files with new contents.
    pub written: Vec<String>,
    /// Files that were removed.
    pub removed: Vec<String>,
    /// Number of further files.
    #[serde(default)]
    pub more: u64,
    /// Keys of later versions.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl Notice {
    /// Merges this notice with an earlier one. The earlier files come first, and the headline is this one's.
    fn after(self, earlier: Option<Self>) -> Self {
        let Some(earlier) = earlier else {
            return self.cut();
        };
        let together = |mut old: Vec<String>, new: Vec<String>, others: &[String]| {
            old.retain(|name| !new.contains(name) && !others.contains(name));
            old.extend(new);
            old
        };
        let written = together(earlier.written, self.written.clone(), &self.removed);
        let removed = together(earlier.removed, self.removed, &self.written);
        let (more, rest) = (earlier.more + self.more, earlier.rest);
        Self { headline: self.headline, written, removed, more, rest }.cut()
    }

    fn cut(mut self) -> Self {
        let all = self.written.len() + self.removed.len();
        self.written.truncate(NOTICE_NAMES_MAX);
        self.removed.truncate(NOTICE_NAMES_MAX - self.written.len());
        self.more += (all - self.written.len() - self.removed.len()) as u64;
        self
    }
}

/// The notes about sessions and the notices for them.
#[derive(Debug, Clone)]
pub(crate) struct TurnNotes {
    pub(super) layout: Arc<Layout>,
}

impl TurnNotes {
    /// Returns the note of a session.
    pub(crate) fn get(&self, key: &SessionKey) -> Option<TurnNote> {
        read_note(&self.layout.turns().join(key.file_name())).map(|(_, note)| note)
    }

    pub(crate) fn save(&self, key: &SessionKey, note: &TurnNote) -> Result<()> {
        fsx::ensure_dir(&self.layout.turns())?;
        let path = self.layout.turns().join(key.file_name());
        fsx::replace(&path, &note.encode(key), Durability::Rebuildable)?;
        let _ = sys::set_mtime(&path, note.seen_secs);
        Ok(())
    }

    /// Records the time of an event of a session.
    pub(crate) fn touch(&self, key: &SessionKey, now: Moment) {
        // Best effort: on failure the session may seem idle a little early.
        let _ = sys::set_mtime(&self.layout.turns().join(key.file_name()), now.secs);
    }

    /// Returns the note of a session, and saves `note` if there is none. Of many concurrent callers, all get the same
    /// note.
    pub(crate) fn first(&self, key: &SessionKey, note: TurnNote) -> Result<TurnNote> {
        fsx::ensure_dir(&self.layout.turns())?;
        let path = self.layout.turns().join(key.file_name());
        let is_first = fsx::place(&path, &note.encode(key))?;
        Ok(if is_first { note } else { self.get(key).unwrap_or(note) })
    }

    /// Returns the sessions that had a turn in the project of this record since this time.
    pub(crate) fn sessions_since(&self, record: &ProjectRecord, secs: i64) -> Vec<SessionKey> {
        self.all()
            .into_iter()
            .filter(|(key, note)| note.time_secs >= secs && record.knows_session(&key.session))
            .map(|(key, _)| key)
            .collect()
    }

    /// Returns the notes of all sessions.
    pub(crate) fn all(&self) -> Vec<(SessionKey, TurnNote)> {
        let names = fsx::names_in(&self.layout.turns()).unwrap_or_default();
        names.iter().filter_map(|name| read_note(&self.layout.turns().join(name))).collect()
    }

    /// Leaves a notice for a session, merged with one that is already there.
    pub(crate) fn leave_notice(&self, key: &SessionKey, notice: Notice) -> Result<()> {
        fsx::ensure_dir(&self.layout.notices())?;
        let path = self.layout.notices().join(key.file_name());
        let earlier = fsx::read_small(&path, NOTE_BYTES_MAX).ok().flatten();
        let notice = notice.after(earlier.and_then(|bytes| serde_json::from_slice(&bytes).ok()));
        let bytes = serde_json::to_vec(&notice).expect("plain data");
        fsx::replace(&path, &bytes, Durability::Rebuildable)
    }

    /// Takes the notice for a session. Of many concurrent callers, one gets it.
    pub(crate) fn take_notice(&self, key: &SessionKey) -> Option<Notice> {
        let path = self.layout.notices().join(key.file_name());
        // There is nearly always none, and then nothing is written.
        path.symlink_metadata().ok()?;
        let mine = fsx::temp_file(&self.layout.notices()).ok()?.into_temp_path();
        std::fs::rename(&path, &mine).ok()?;
        serde_json::from_slice(&fsx::read_small(&mine, NOTE_BYTES_MAX).ok()??).ok()
    }
}

fn read_note(path: &Path) -> Option<(SessionKey, TurnNote)> {
    let (key, note) = TurnNote::decode(&fsx::read_small(path, NOTE_BYTES_MAX).ok()??)?;
    let seen_secs = sys::stat_path(path).map_or(note.time_secs, |stat| stat.mtime.secs);
    Some((key, TurnNote { seen_secs, ..note }))
}

/// Returns a name for a turn that the agent does not name: the time at which it began, and a number that tells turns of
/// the same moment apart.
pub(crate) fn turn_name(now: Moment, number: u64) -> String {
    format!("{}.{:09}-{number}", now.stamp(), now.nanos)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;
    use crate::store::Store;

    #[test]
    fn a_note_comes_back_as_it_was() {
        let key = SessionKey::new("claude", "s-1 ä");
        let note = TurnNote {
            turn: Some("t".to_owned()),
            also: Some("t2".to_owned()),
            root: Some(PathBuf::from(std::ffi::OsString::from_vec(b"/p/\xff x".to_vec()))),
            parent: Some("p".to_owned()),
            misses: 2,
            refused: vec![ProjectId::of(Path::new("/p"))],
            answered: Some(("k".to_owned(), "text".to_owned())),
            time_secs: 7,
            is_unprompted: true,
            is_open: true,
            started_secs: Some(5),
            ended_secs: Some(8),
            version: Some("1.2.3".to_owned()),
            seen_secs: 7,
            rest: [("of_later".to_owned(), Value::from(1))].into_iter().collect(),
        };
        assert_eq!(TurnNote::decode(&note.encode(&key)), Some((key.clone(), note)));
        assert_eq!(TurnNote::decode(&TurnNote::default().encode(&key)), Some((key, TurnNote::default())));
        assert_eq!(TurnNote::decode(b"{\"turn\":\"t\"}"), None);
        assert_eq!(TurnNote::decode(b"\xff"), None);
    }

    #[test]
    fn agent_and_session_do_not_run_into_each_other() {
        assert_ne!(SessionKey::new("ab", "c").file_name(), SessionKey::new("a", "bc").file_name());
    }

    #[test]
    fn two_notices_become_one_and_stay_short() {
        let names = |range: std::ops::Range<u32>| range.map(|n| n.to_string()).collect::<Vec<_>>();
        let notice = |headline: &str, written, removed| Notice {
            headline: headline.to_owned(),
            written,
            removed,
            ..Notice::default()
        };
        let first = notice("first", names(0..3), names(3..5)).after(None);
        let both = notice("second", names(3..4), names(0..1)).after(Some(first));
        assert_eq!(both.headline, "second");
        assert_eq!((both.written, both.removed, both.more), (names(1..4), vec!["4".to_owned(), "0".to_owned()], 0));
        let long = notice("long", names(0..60), names(60..70)).after(None);
        assert_eq!((long.written.len(), long.removed.len(), long.more), (50, 0, 20));
        let longer = Notice { more: 3, ..notice("longer", names(0..1), names(99..99)) }.after(Some(long));
        assert_eq!((longer.written.len(), longer.more), (50, 23));
    }

    #[test]
    fn concurrent_callers_get_the_same_first_note() {
        let temp = tempfile::tempdir().expect("a directory");
        let now = Moment { secs: 1_800_000_000, nanos: 0, offset_secs: 0 };
        let store = Store::open_or_create(&temp.path().join("base"), now).expect("a store");
        let note = |turn: &str| TurnNote { turn: Some(turn.to_owned()), ..TurnNote::default() };
        for (session, turn, first) in [("s", "one", "one"), ("s", "two", "one"), ("another", "two", "two")] {
            let found = store.turns.first(&SessionKey::new("claude", session), note(turn)).expect("a note");
            assert_eq!(found.turn, note(first).turn, "{session} {turn}");
        }
    }
}
