//! Checkpoints as git commits. The first line of the message is the reason; the facts that git has no field for follow
//! it, in lines that docs/FORMAT.md defines. Lines that this version does not know are ignored.

use std::collections::HashSet;

use super::facts::{CheckpointKind, FACTS_HEADER, Facts};
use super::{Objects, TurnRecord};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, ID_BYTES, ObjectId, ObjectKind, ProjectId};
use crate::sys::FileTime;
use crate::time::Moment;

const SIGNATURE: &str = "piton <piton@local>";
/// Length limit of a history: a longer one has a loop.
pub(super) const HISTORY_MAX: usize = 1_000_000;
/// Longest reason in characters: it is one line for people to read.
const REASON_CHARS_MAX: usize = 500;
/// Reason of a checkpoint that holds the state at the end of a turn.
pub(crate) const END_REASON: &str = "end of turn";
/// Start of the reason of a step within a turn: `step before terminal: rm x`.
pub(crate) const STEP_PREFIX: &str = "step ";

/// One checkpoint: the files of a project at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Id of its commit.
    pub id: CheckpointId,
    /// Tree of its files.
    pub(crate) tree: ObjectId,
    /// Previous checkpoint, which may have been dropped since.
    pub(crate) parent: Option<CheckpointId>,
    /// Time at which it was taken.
    pub time: Moment,
    /// First line of the commit message: why it was taken.
    pub reason: String,
    /// Data that git has no field for.
    pub facts: Facts,
    /// Turns that began from it, newest first.
    pub turns: Vec<TurnRecord>,
    /// Names that the user gave it.
    pub marks: Vec<String>,
}

impl Checkpoint {
    /// Returns true if the checkpoint is a numbered row of the list. The end of a turn and a step within it are not.
    pub fn is_row(&self) -> bool {
        !self.facts.kind.is_within_turn()
    }

    /// Returns true if a file that last changed at this time may have been as it is now when the checkpoint was taken.
    pub(crate) fn is_as_late_as(&self, changed: FileTime) -> bool {
        match self.facts.read_by {
            Some(nanos) => changed.as_nanos() <= nanos,
            // The time of a checkpoint is in seconds: a file that changed in that second may have existed.
            None => changed.secs <= self.time.secs,
        }
    }
}

/// Contents of a commit to be written.
#[derive(Clone, Copy)]
pub(crate) struct NewCheckpoint<'a> {
    pub(crate) tree: ObjectId,
    pub(crate) parent: Option<CheckpointId>,
    pub(crate) time: Moment,
    pub(crate) reason: &'a str,
    pub(crate) facts: &'a Facts,
    /// Written into the commit: two projects with the same files at the same second must not share a checkpoint, or
    /// cutting the history of one would cut the other's.
    pub(crate) project: &'a ProjectId,
}

impl NewCheckpoint<'_> {
    /// Returns the bytes of the commit.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!("tree {}\n", self.tree);
        if let Some(parent) = self.parent {
            text.push_str(&format!("parent {parent}\n"));
        }
        // Git has no times before 1970.
        let when = format!("{SIGNATURE} {} {}", self.time.secs.max(0), self.time.git_offset());
        text.push_str(&format!("author {when}\ncommitter {when}\n\n{}\n\npiton 1\n", one_line(self.reason)));
        text.push_str(&format!("project {}\n", self.project));
        self.facts.write(&mut text);
        text.into_bytes()
    }
}

/// Returns the reason as one readable line: control characters become spaces, and the end of a long one becomes `…`.
fn one_line(reason: &str) -> String {
    let plain = reason.replace(|character: char| character.is_control(), " ");
    let plain = plain.trim();
    let mut line: String = plain.chars().take(REASON_CHARS_MAX).collect();
    if line.len() < plain.len() {
        line.push('…');
    }
    if line.is_empty() { "checkpoint".to_owned() } else { line }
}

/// Parses a commit. Fails with `Damaged` if it names no tree, author or time.
pub(crate) fn parse(id: CheckpointId, bytes: &[u8]) -> Result<Checkpoint> {
    let bad = |why: &str| Error::damaged(format!("read the checkpoint {id}"), why.to_owned());
    let end = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let (header, message) = (&bytes[..end], bytes.get(end + 2..).unwrap_or_default());
    let field = |name: &[u8]| {
        let mut lines = header.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(b" "))
    };
    let (tree, parents) = parents_and_tree(bytes);
    let tree = tree.ok_or_else(|| bad("it names no tree"))?;
    let author = field(b"author").ok_or_else(|| bad("it has no author"))?;
    let mut words = author.rsplit(|byte| *byte == b' ');
    let offset_secs = Moment::parse_git_offset(words.next().unwrap_or_default());
    let secs = words.next().and_then(|secs| std::str::from_utf8(secs).ok()?.parse().ok());
    let mut lines = message.split(|byte| *byte == b'\n');
    let reason = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut facts = Facts::default();
    // Checkpoints made with stock git carry no facts. Those that were taken before a restore say so in the reason.
    if reason.starts_with("pre-rollback ") {
        facts.kind = CheckpointKind::Safety;
    }
    let facts_begin = lines.by_ref().any(|line| line == FACTS_HEADER);
    if facts_begin {
        // A message from another program may look like ours, and a later version may write more lines: neither may hide
        // a checkpoint, so invalid lines are ignored. Corruption is caught earlier, by the checksum of the compressed
        // bytes.
        for line in lines {
            let _ = facts.read_line(line);
        }
    } else if reason == END_REASON {
        // Another program has rewritten the commit, and kept the reason alone.
        facts.kind = CheckpointKind::End;
    } else if reason.strip_prefix(STEP_PREFIX).is_some_and(|rest| rest.starts_with("before ")) {
        facts.kind = CheckpointKind::Step;
    }
    Ok(Checkpoint {
        id,
        tree,
        parent: parents.first().copied(),
        time: Moment { secs: secs.ok_or_else(|| bad("it has no time"))?, nanos: 0, offset_secs },
        reason,
        facts,
        turns: Vec::new(),
        marks: Vec::new(),
    })
}

/// Returns the tree and the parents that any commit names. They come first: a header of the same name further on is not
/// git's.
pub(super) fn parents_and_tree(bytes: &[u8]) -> (Option<ObjectId>, Vec<ObjectId>) {
    let header = bytes.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let (mut tree, mut parents) = (None, Vec::new());
    for line in header {
        if let Some(id) = line.strip_prefix(b"tree ") {
            tree = tree.or(ObjectId::from_hex(id));
        } else if let Some(id) = line.strip_prefix(b"parent ") {
            parents.extend(ObjectId::from_hex(id));
        } else {
            break;
        }
    }
    (tree, parents)
}

/// Returns the object that a tag names.
pub(super) fn tagged(bytes: &[u8]) -> Option<ObjectId> {
    bytes.strip_prefix(b"object ").and_then(|rest| ObjectId::from_hex(rest.get(..40)?))
}

/// Returns the time of a commit in seconds since 1970.
pub(super) fn time_of(bytes: &[u8]) -> Option<i64> {
    parse(ObjectId::from_bytes([0; ID_BYTES]), bytes).ok().map(|read| read.time.secs)
}

/// Returns the project that a commit belongs to. Commits made with stock git name none, and fetched checkpoints are part
/// of no project's history.
pub(super) fn project_of(bytes: &[u8]) -> Option<ProjectId> {
    let message = bytes.windows(2).position(|two| two == b"\n\n").map(|end| &bytes[end + 2..])?;
    let facts = || message.split(|byte| *byte == b'\n').skip_while(|line| *line != FACTS_HEADER);
    let named = facts().find_map(|line| line.strip_prefix(b"project "))?;
    let is_fetched = facts().any(|line| line.starts_with(b"fetched "));
    std::str::from_utf8(named).ok().and_then(ProjectId::parse).filter(|_| !is_fetched)
}

/// Returns true if these bytes are a commit with a tree, an author and a committer.
pub(super) fn is_valid_commit(bytes: &[u8]) -> bool {
    let has = |name: &[u8]| {
        bytes.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty()).any(|line| line.starts_with(name))
    };
    bytes.starts_with(b"tree ") && parents_and_tree(bytes).0.is_some() && has(b"author ") && has(b"committer ")
}

impl Objects {
    pub(crate) fn checkpoint(&self, id: CheckpointId) -> Result<Checkpoint> {
        parse(id, &self.read(id, ObjectKind::Commit)?)
    }

    /// Returns a checkpoint and its ancestors, newest first, up to one in `ends`. Fails if any of them is corrupt.
    pub(crate) fn history(
        &self,
        newest: Option<CheckpointId>,
        ends: &HashSet<CheckpointId>,
    ) -> Result<Vec<Checkpoint>> {
        self.readable_history(newest, ends)?.whole()
    }

    /// Like [`Self::history`], but stops at the first corrupt ancestor. Fails only if the newest checkpoint is corrupt.
    pub(crate) fn readable_history(
        &self,
        newest: Option<CheckpointId>,
        ends: &HashSet<CheckpointId>,
    ) -> Result<Readable> {
        self.readable_history_to(newest, ends, usize::MAX)
    }

    /// Returns the checkpoint itself if it is a row, otherwise its nearest ancestor that is one. Returns `None` if there
    /// is none, or if it cannot be read.
    pub(super) fn row_at(&self, from: Option<CheckpointId>) -> Option<CheckpointId> {
        let mut checkpoint = self.checkpoint(from?).ok()?;
        while !checkpoint.is_row() {
            checkpoint = self.checkpoint(checkpoint.parent?).ok()?;
        }
        Some(checkpoint.id)
    }

    /// Like [`Self::readable_history`], but stops after `rows_max` rows.
    pub(super) fn readable_history_to(
        &self,
        newest: Option<CheckpointId>,
        ends: &HashSet<CheckpointId>,
        rows_max: usize,
    ) -> Result<Readable> {
        let mut next = newest;
        let (mut history, mut rows): (Vec<Checkpoint>, _) = (Vec::new(), 0);
        while let Some(id) = next.filter(|_| rows < rows_max) {
            if history.len() == HISTORY_MAX {
                return Err(Error::damaged("list the checkpoints", "there is no end to them"));
            }
            let checkpoint = match self.checkpoint(id) {
                Err(error) if error.kind() == ErrorKind::Damaged && !history.is_empty() => {
                    return Ok(Readable { rest: Some(error), ..Readable::new(history) });
                }
                checkpoint => checkpoint?,
            };
            next = checkpoint.parent.filter(|_| !ends.contains(&id));
            rows += usize::from(checkpoint.is_row());
            history.push(checkpoint);
        }
        Ok(Readable::new(history))
    }
}

/// Checkpoints of a project, newest first, as far as they can be read: a corrupt one does not hide the newer ones.
/// Pinned ones that are not ancestors of the newest come last.
pub(crate) struct Readable {
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// Error at which reading stopped, if it did not reach the oldest checkpoint.
    pub(crate) rest: Option<Error>,
    /// Marks whose checkpoints are missing or corrupt.
    pub(crate) unavailable: Vec<(String, CheckpointId)>,
    /// Checkpoints of other machines, which are found by their ids and are part of no history.
    pub(crate) fetched: Vec<Checkpoint>,
}

impl Readable {
    pub(crate) fn new(checkpoints: Vec<Checkpoint>) -> Self {
        Self { checkpoints, rest: None, unavailable: Vec::new(), fetched: Vec::new() }
    }

    /// Returns the checkpoints, or the error if some of them could not be read.
    pub(crate) fn whole(self) -> Result<Vec<Checkpoint>> {
        self.rest.map_or(Ok(self.checkpoints), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{CheckpointKind, FetchedFrom, Origin, RestoreVerb, Restoring, UsualModes};
    use super::*;
    use crate::skipped::{Extent, SkipReason, Skipped};

    fn facts() -> Facts {
        Facts {
            kind: CheckpointKind::Manual,
            origin: Origin { agent: Some("claude".into()), session: Some("a b\nc".into()), turn: None },
            restoring: Some(Restoring {
                verb: RestoreVerb::Undo,
                target: ObjectId::from_bytes([3; 20]),
                paths: vec![b"a b".to_vec(), Vec::new()],
                asides: vec![(b"x y".to_vec(), b"z".to_vec())],
                outside: vec![(b"gen/ a".to_vec(), Some(ObjectId::from_bytes([4; 20]))), (b"gen".to_vec(), None)],
                with_ignored: true,
            }),
            files: Some(3),
            usual: UsualModes { file: 0o600, executable: 0o700, dir: 0o700 },
            modes: vec![(b"a b\xff".to_vec(), 0o4755)],
            empty_dirs: vec![b"x\ny".to_vec()],
            skipped: vec![
                Skipped::file(b"one".to_vec(), SkipReason::TooLarge),
                Skipped::dir(b"two".to_vec(), SkipReason::Ignored),
                Skipped { path: b"three".to_vec(), why: SkipReason::Excluded, extent: Extent::Dir(Some(9)) },
                Skipped { path: Vec::new(), why: SkipReason::Secret, extent: Extent::Some(12) },
            ],
            fetched: Some(FetchedFrom { machine: "lap top".into(), id: ObjectId::from_bytes([5; 20]) }),
            read_by: Some(1_700_000_000_123_456_789),
            is_incomplete: true,
            record: Some("task: caf\u{e9} %20\n\nstatus: \"x\"\n".as_bytes().to_vec()),
        }
    }

    fn project() -> ProjectId {
        ProjectId::parse("0123456789abcdef").expect("sixteen digits")
    }

    #[test]
    fn everything_that_git_has_no_field_for_comes_back() {
        let facts = facts();
        let id = ObjectId::from_bytes([7; 20]);
        let time = Moment { secs: 1_700_000_000, nanos: 0, offset_secs: 3600 };
        let new = NewCheckpoint {
            tree: id,
            parent: Some(id),
            time,
            reason: "before\tterminal: x\ny",
            facts: &facts,
            project: &project(),
        };
        let read = parse(id, &new.encode()).expect("what was just written");
        assert_eq!(read.reason, "before terminal: x y");
        assert_eq!((read.tree, read.parent, read.time), (id, Some(id), time));
        assert_eq!(read.facts, facts);
        assert_eq!((time_of(&new.encode()), project_of(&new.encode())), (Some(time.secs), None), "it was fetched");
        let own = NewCheckpoint { facts: &Facts { fetched: None, ..facts.clone() }, ..new }.encode();
        assert_eq!(project_of(&own), Some(project()));
    }

    #[test]
    fn contents_of_a_file_do_not_pass_for_a_checkpoint() {
        let text =
            b"tree e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\nauthor A B <x> 5 -0200\ncommitter A B <x> 5 -0200\n\nr\n";
        assert!(is_valid_commit(text));
        for bytes in [&b"hello\n"[..], b"", b"tree of life\nauthor me\ncommitter me\n", &text[..60]] {
            assert!(!is_valid_commit(bytes), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn only_what_git_takes_for_a_parent_is_one() {
        let start = b"tree e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n";
        let parent = b"parent 0707070707070707070707070707070707070707\n";
        let end = b"author A B <x> 5 -0200\ncommitter A B <x> 5 -0200\n";
        let first = parse(ObjectId::from_bytes([0; 20]), &[&start[..], parent, end, b"\nr\n"].concat());
        assert_eq!(first.expect("a commit").parent, Some(ObjectId::from_bytes([7; 20])));
        let later = [&start[..], end, parent, b"\nr\n"].concat();
        assert_eq!(parse(ObjectId::from_bytes([0; 20]), &later).expect("a commit").parent, None);
        assert_eq!(parents_and_tree(&later).1, []);
    }

    #[test]
    fn a_checkpoint_of_stock_git_has_the_usual_facts() {
        let text = b"tree e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\nauthor A B <x> 5 -0200\ncommitter A B <x> 5 -0200\n\nbefore patch\n";
        let read = parse(ObjectId::from_bytes([0; 20]), text).expect("a commit");
        assert_eq!((read.reason.as_str(), read.time.secs, read.time.offset_secs), ("before patch", 5, -7200));
        assert_eq!(read.facts, Facts::default());
        // Text in a foreign message that looks like facts is ignored: facts come after a header line.
        let alike = [&text[..], b"\nkind manual\nfiles 3\nproject 0123456789abcdef\n"].concat();
        assert_eq!(parse(ObjectId::from_bytes([0; 20]), &alike).expect("a commit").facts, Facts::default());
        assert_eq!((time_of(text), project_of(text), project_of(&alike)), (Some(5), None, None));
    }

    #[test]
    fn a_long_reason_is_cut_and_an_empty_one_named() {
        let most = "x".repeat(REASON_CHARS_MAX);
        assert_eq!((one_line(&most), one_line(&format!("{most}y"))), (most.clone(), format!("{most}…")));
        assert_eq!((one_line(" a\nb "), one_line(" \n ")), ("a b".to_owned(), "checkpoint".to_owned()));
    }

    #[test]
    fn a_damaged_commit_is_an_error_and_not_a_panic() {
        let whole = NewCheckpoint {
            tree: ObjectId::from_bytes([1; 20]),
            parent: None,
            time: Moment { secs: 0, nanos: 0, offset_secs: 0 },
            reason: "r",
            facts: &facts(),
            project: &project(),
        }
        .encode();
        for end in 0..whole.len() {
            let _ = parse(ObjectId::from_bytes([1; 20]), &whole[..end]);
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x15;
            let _ = parse(ObjectId::from_bytes([1; 20]), &flipped);
        }
    }
}
