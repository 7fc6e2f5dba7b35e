//! Fuzz targets: for every parser of outside bytes, a function that takes any bytes and panics if a promise about them
//! does not hold. Not part of the API: compiled for fuzzing and tests only, and the tests run every input that is kept
//! in `fuzz/`.

use std::path::Path;

use piton_triggers::analyse;

use crate::diff::unified_diff;
use crate::diff::{Lines, count};
use crate::id::{ObjectId, ProjectId};
use crate::journal::Event;
use crate::lookup::find;
use crate::relpath;
use crate::session::{SessionId, fuzz as sessions};
use crate::settings::Settings;
use crate::store::{Checkpoint, Facts, Readable, fuzz as stores};
use crate::time::Moment;
use crate::worktree::fuzz as worktrees;

/// Function that takes any input of one kind.
pub type Target = fn(&[u8]);

/// All targets, by the names of their directories in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 13] = [
    ("commit", stores::commit),
    ("delta", stores::delta),
    ("diff", diff),
    ("ignore", worktrees::ignore),
    ("index", worktrees::index),
    ("names", names),
    ("notes", notes),
    ("pack", stores::pack),
    ("record", sessions::record),
    ("settings", settings),
    ("tracked", worktrees::tracked),
    ("tree", stores::tree),
    ("triggers", triggers),
];

/// Returns the target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|(other, _)| *other == name).map(|(_, target)| target)
}

/// Splits the input in two: the first two bytes are the length of the first part.
pub(crate) fn two(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return (bytes, &[]) };
    rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()))
}

/// Analyses a shell command.
fn triggers(bytes: &[u8]) {
    let command = String::from_utf8_lossy(bytes);
    let look = |command: &str| analyse(command, Path::new("/w"), Some(Path::new("/home/u")));
    let verdict = look(&command);
    assert_eq!(verdict.may_change, !verdict.dirs.is_empty(), "A3");
    assert!(verdict.may_change || verdict.paths.is_empty());
    assert!(verdict.dirs.iter().chain(&verdict.paths).all(|path| path.is_absolute()));
    let is_plain = |character: char| !character.is_control();
    assert!(verdict.summary.chars().count() <= 80 && verdict.summary.chars().all(is_plain));
    if verdict.may_change {
        // On a line of its own: what a line starts with may be taken for the end of a here-document.
        for harmless in ["true\n", "ls -l; pwd\n", "cd /x && cat y | wc\n"] {
            assert!(look(&format!("{harmless}{command}")).may_change, "a harmless command in front makes it harmless");
        }
    }
    assert!(look(&format!("rm x\n{command}")).may_change, "what follows takes a change back");
}

/// Parses records and notes of a project.
fn notes(bytes: &[u8]) {
    stores::notes(bytes);
    // The first byte selects the file.
    worktrees::note(bytes.get(1..).unwrap_or_default());
}

/// Parses the configuration.
fn settings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut settings = Settings::default();
    let problems = settings.read_yaml(&text);
    assert!(settings.max_snapshots != 0.into() && settings.deadline_ms >= 1);
    let _ = (settings.file_bytes_max(), settings.total_bytes_max(), settings.files_max());
    assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
    // The printed settings are read back as the same.
    let all: serde_json::Map<_, _> =
        Settings::TABLE.iter().map(|row| (row.key.to_owned(), settings.get(row.key))).collect();
    let printed = serde_json::json!({ "checkpoints": all }).to_string();
    let mut again = Settings::default();
    assert_eq!((again.read_yaml(&printed), &again), (Vec::new(), &settings), "{printed}");
    // A setting from text, the key first.
    if let Some((key, value)) = text.split_once('=')
        && again.set_text(key, value).is_ok()
    {
        assert!(
            again.max_snapshots != 0.into()
                && again.deadline_ms >= 1
                && Settings::TABLE.iter().any(|row| row.key == key)
        );
    }
}

/// Parses names that users type, and single lines of files.
fn names(bytes: &[u8]) {
    if let Ok(path) = relpath::parse(bytes) {
        assert_eq!(
            relpath::parse(&path).ok().filter(|_| !path.is_empty()).as_ref(),
            Some(&path).filter(|p| !p.is_empty())
        );
        assert!(path.split(|byte| *byte == b'/').all(|name| path.is_empty() || relpath::is_allowed(name)));
    }
    assert_eq!(relpath::unescape(relpath::escape(bytes).as_bytes()).as_deref(), Some(bytes));
    if let Some(plain) = relpath::unescape(bytes) {
        assert_eq!(relpath::unescape(relpath::escape(&plain).as_bytes()), Some(plain));
    }
    if let Some(id) = ObjectId::from_hex(bytes) {
        assert!(id.to_string().as_bytes().eq_ignore_ascii_case(bytes));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(id) = SessionId::parse(text) {
        let file = Path::new("/base").join(format!("{id}.yaml"));
        assert!(file.parent() == Some(Path::new("/base")) && file.file_stem().is_some_and(|stem| stem == text));
    }
    assert!(ProjectId::parse(text).is_none_or(|id| id.as_str() == text));
    if let Some(moment) = Moment::parse(text) {
        let shown = moment.to_string();
        assert_eq!(Moment::parse(&shown).map(|again| again.to_string()), Some(shown));
    }
    let _ = Moment::parse_stamp(text);
    let one = |byte| Checkpoint {
        id: ObjectId::from_bytes([byte; 20]),
        tree: ObjectId::EMPTY_BLOB,
        parent: None,
        time: Moment { secs: 0, nanos: 0, offset_secs: 0 },
        reason: String::new(),
        facts: Facts::default(),
        turns: Vec::new(),
        marks: Vec::new(),
    };
    let history = Readable::new([0x11, 0x1f, 0x12].map(one).into());
    if let Ok(found) = find(&history, text) {
        let number = history.checkpoints.iter().position(|other| other.id == found.id).map(|at| at + 1);
        assert!(found.id.to_string().starts_with(&text.to_ascii_lowercase()) || text.parse().ok() == number);
    }
    if let Some(event) = Event::decode(text) {
        let line = event.encode();
        let again = Event::decode(line.trim_end_matches('\n')).map(|event| event.encode());
        assert_eq!(again, Some(line), "a line of the journal comes back");
    }
}

/// Compares and prints the contents of files.
fn diff(bytes: &[u8]) {
    let (old, new) = two(bytes);
    let printed = unified_diff(b"name", Some(old), Some(new));
    let Some(lines) = Lines::compare(old, new) else { return };
    // The two may choose different edits of the same length.
    let ((plus, minus), (more, fewer)) = (count(old, new), lines.counts());
    assert_eq!(plus + fewer, more + minus, "both lead from the old to the new");
    assert_eq!(printed.is_empty(), old == new);
    let mut patched = Vec::new();
    let mut at = 0;
    for hunk in lines.hunks() {
        patched.extend(lines.old[at..hunk.old.start].concat());
        patched.extend(lines.new[hunk.new].concat());
        at = hunk.old.end;
    }
    patched.extend(lines.old[at..].concat());
    assert_eq!(patched, new, "the differences lead from the old to the new");
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_input_that_is_kept_keeps_its_promises() {
        for (name, target) in super::TARGETS {
            testkit::each_kept_input(name, target);
        }
    }
}
