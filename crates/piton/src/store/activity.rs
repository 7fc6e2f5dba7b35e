//! Sessions that are active in a project.
//!
//! A session is no longer active once its agent reported its end, once a newer session of the same agent has started in
//! the same project and this one has neither an open turn nor an event since, or after a timeout without an event.

use std::collections::{BTreeMap, BTreeSet};

use super::turns::TurnNotes;
use super::{ProjectRecord, SessionKey, TurnNote};
use crate::time::Moment;

/// Sessions recorded in the store that belong to one project.
pub(crate) struct Activity {
    sessions: Vec<(SessionKey, TurnNote)>,
    now: Moment,
    idle_secs: Option<u64>,
}

impl Activity {
    /// Reads the notes on the sessions of the project with this record. A session without an event for `idle_minutes` is not active; 0
    /// disables that timeout.
    pub(crate) fn read(turns: &TurnNotes, record: &ProjectRecord, idle_minutes: u64, now: Moment) -> Self {
        let dir = record.dir();
        let is_here = |key: &SessionKey, note: &TurnNote| {
            note.parent.is_none() && (record.knows_session(&key.session) || dir.is_some() && note.root == dir)
        };
        let sessions = turns.all().into_iter().filter(|(key, note)| is_here(key, note)).collect();
        Self { sessions, now, idle_secs: (idle_minutes > 0).then(|| idle_minutes.saturating_mul(60)) }
    }

    /// Returns the time of the last event of a session in seconds, or `None` if the session is not active. `known_secs`
    /// is the time of its last event according to checkpoints or the ledger.
    pub(crate) fn at_work(&self, agent: Option<&str>, session: &str, known_secs: i64) -> Option<i64> {
        let is_its = |key: &SessionKey| key.session == session && agent.is_none_or(|agent| key.agent == agent);
        let note = self.sessions.iter().find(|(key, _)| is_its(key)).map(|(_, note)| note);
        let seen = note.map_or(known_secs, |note| note.seen_secs.max(known_secs));
        if note.is_some_and(|note| note.ended_secs.is_some()) {
            return None;
        }
        // A clock that was set back makes no session idle.
        let quiet_secs = u64::try_from(self.now.secs.saturating_sub(seen)).unwrap_or(0);
        if self.idle_secs.is_some_and(|idle| quiet_secs >= idle) {
            return None;
        }
        let is_newer = |(key, other): &(SessionKey, TurnNote)| {
            let is_other = key.session != session && agent.is_none_or(|agent| key.agent == agent);
            is_other && other.started_secs.is_some_and(|started| started >= seen)
        };
        let is_open = note.is_some_and(|note| note.is_open);
        (is_open || !self.sessions.iter().any(is_newer)).then_some(seen)
    }

    /// Returns the active sessions of an agent. `known` lists sessions of that agent, each with the time in seconds of
    /// its last event according to checkpoints or the ledger.
    pub(crate) fn all_at_work<'a>(
        &'a self,
        agent: &str,
        known: impl Iterator<Item = (&'a str, i64)>,
    ) -> BTreeSet<String> {
        let noted =
            self.sessions.iter().filter(|(key, _)| key.agent == agent).map(|(key, _)| (&*key.session, i64::MIN));
        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        for (session, secs) in noted.chain(known) {
            let known = last.entry(session).or_insert(secs);
            *known = secs.max(*known);
        }
        let at_work = last.into_iter().filter(|(session, secs)| self.at_work(Some(agent), session, *secs).is_some());
        at_work.map(|(session, _)| session.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment { secs: 100_000, nanos: 0, offset_secs: 0 };

    fn note(seen_secs: i64) -> TurnNote {
        TurnNote { seen_secs, started_secs: Some(seen_secs - 100), ..TurnNote::default() }
    }

    fn at_work(sessions: &[(&str, &str, TurnNote)], session: (&str, &str)) -> Option<i64> {
        let key = |(agent, session, note): &(&str, &str, TurnNote)| (SessionKey::new(agent, session), note.clone());
        let activity = Activity { sessions: sessions.iter().map(key).collect(), now: NOW, idle_secs: Some(1800) };
        activity.at_work(Some(session.0), session.1, 0)
    }

    #[test]
    fn a_session_that_was_heard_of_lately_is_at_work_until_its_end() {
        let (seen, claude) = (NOW.secs - 600, ("claude", "a"));
        assert_eq!(at_work(&[("claude", "a", note(seen))], claude), Some(seen));
        let ended = TurnNote { ended_secs: Some(seen), ..note(seen) };
        assert_eq!(at_work(&[("claude", "a", ended)], claude), None);
        assert_eq!(at_work(&[("claude", "a", note(NOW.secs - 1800))], claude), None, "idle");
        assert_eq!(
            at_work(&[("claude", "a", note(NOW.secs + 50))], claude),
            Some(NOW.secs + 50),
            "the clock was set back"
        );
        assert_eq!(at_work(&[], claude), None, "nothing is known of it since 1970");
    }

    #[test]
    fn a_newer_session_of_the_same_agent_takes_over_from_one_that_is_done() {
        let seen = NOW.secs - 600;
        let newer =
            |agent: &'static str, started| (agent, "b", TurnNote { started_secs: Some(started), ..note(NOW.secs) });
        let older = ("claude", "a", note(seen));
        let claude = ("claude", "a");
        assert_eq!(at_work(&[older.clone(), newer("claude", seen + 1)], claude), None);
        assert_eq!(at_work(&[older.clone(), newer("codex", seen + 1)], claude), Some(seen), "another agent");
        assert_eq!(at_work(&[older, newer("claude", seen - 1)], claude), Some(seen), "two terminals");
        let open = ("claude", "a", TurnNote { is_open: true, ..note(seen) });
        assert_eq!(at_work(&[open, newer("claude", seen + 1)], claude), Some(seen), "its turn goes on");
    }
}
