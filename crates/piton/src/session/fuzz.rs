//! Fuzz target for session records. See `crate::fuzz`.

use super::{Record, RecordAuthor, SessionId};
use crate::time::Moment;

/// Parses a record, and uses it as an update of itself.
pub(crate) fn record(bytes: &[u8]) {
    let now = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
    let id = SessionId::parse("a").expect("a plain name");
    let Ok(given) = Record::parse(bytes) else { return };
    comes_back(&given);
    let shown = given.resume(&id);
    assert_eq!(shown.is_none(), given.is_completed());
    assert!(shown.is_none_or(|shown| shown.chars().count() <= 4000));
    let mut updated = given.clone();
    if updated.update(given.map.clone()).is_ok() {
        updated.stamp(RecordAuthor::Automatic, now);
        assert!(updated.is_automatic());
        comes_back(&updated);
        updated.stamp(RecordAuthor::Agent, now);
        assert!(!updated.is_automatic() && updated.has_task() == given.has_task());
    }
}

/// N3: a written record is read back with the same meaning, by piton and as JSON by others.
fn comes_back(record: &Record) {
    let written = record.to_yaml();
    let again = match Record::parse(written.as_bytes()) {
        Ok(again) => again,
        Err(why) => {
            assert_eq!(why.to_string(), "", "what was written cannot be read:\n{written}");
            return;
        }
    };
    assert_eq!(again.to_yaml(), written, "written once more, it is the same");
    assert_eq!(again.to_json(), record.to_json(), "and it stands for the same:\n{written}");
}
