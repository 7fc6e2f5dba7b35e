//! Checkpoints as git commits. The first line of the message is the reason; what git has no field for follows it, in
//! lines that docs/FORMAT.md defines. Lines that this version does not know are left alone.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{Objects, Store, TurnRecord};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, ID_BYTES, ObjectId, ObjectKind, ProjectId};
use crate::relpath::{escape, unescape};
use crate::skipped::{Extent, SkipReason, Skipped};
use crate::time::Moment;

pub(super) const FACTS_HEADER: &[u8] = b"piton 1";
const SIGNATURE: &str = "piton <piton@local>";
/// A longer history is a store with a loop in it.
pub(super) const HISTORY_MAX: usize = 1_000_000;
/// A reason is for people: one line of a length that they read.
const REASON_CHARS_MAX: usize = 500;

/// What made a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointKind {
    /// An agent was about to change something.
    #[default]
    Auto,
    /// A user asked for it.
    Manual,
    /// A restore was about to begin.
    Safety,
}

impl CheckpointKind {
    /// The word for it in records and in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
            Self::Safety => "safety",
        }
    }
}

/// Who worked for whom when a checkpoint was taken. All of it is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Which agent.
    pub agent: Option<String>,
    /// The agent's name for the talk.
    pub session: Option<String>,
    /// The agent's name for one prompt of it.
    pub turn: Option<String>,
}

/// The permission bits that most files of a checkpoint have. Those of all others are in [`Facts::modes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsualModes {
    /// Of files that are not executable.
    pub file: u16,
    /// Of files that are.
    pub executable: u16,
    /// Of directories.
    pub dir: u16,
}

impl Default for UsualModes {
    fn default() -> Self {
        Self { file: 0o644, executable: 0o755, dir: 0o755 }
    }
}

/// Which restore a safety checkpoint was taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restoring {
    /// What was asked for.
    pub verb: RestoreVerb,
    /// What was to be restored.
    pub target: CheckpointId,
    /// Only these paths; all, if there are none.
    pub paths: Vec<Vec<u8>>,
    /// What was given another name in its directory, and that name: files that no checkpoint covers and that went aside,
    /// and those that came back.
    pub asides: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the restore made out of scope, where no later scan finds it: files and links with the id of their contents,
    /// directories without.
    pub outside: Vec<(Vec<u8>, Option<ObjectId>)>,
}

/// The ways to ask for a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreVerb {
    /// To a checkpoint that was named.
    Restore,
    /// To before the last restore.
    Undo,
    /// To before the last undo.
    Redo,
}

impl RestoreVerb {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Undo => "undo",
            Self::Redo => "redo",
        }
    }

    /// Reads [`Self::word`] back.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Restore, Self::Undo, Self::Redo].into_iter().find(|verb| verb.word() == word)
    }
}

/// What git has no field for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// What made the checkpoint.
    pub kind: CheckpointKind,
    /// Who was at work.
    pub origin: Origin,
    /// For a safety checkpoint: what came after it.
    pub restoring: Option<Restoring>,
    /// How many files it holds; unknown for those that stock git made.
    pub files: Option<u64>,
    /// The permission bits of most files.
    pub usual: UsualModes,
    /// The permission bits of files and directories that differ from the usual ones, by path.
    pub modes: Vec<(Vec<u8>, u16)>,
    /// Directories with nothing in them, by path.
    pub empty_dirs: Vec<Vec<u8>>,
    /// What was seen and left out.
    pub skipped: Vec<Skipped>,
    /// The text of the session's record as it was then.
    pub record: Option<Vec<u8>>,
    /// Whether files had changed before it was completed: these are left out as `changing`, deleted ones are missing.
    pub is_incomplete: bool,
}

impl Facts {
    /// Whether two checkpoints of the same tree hold the same files, bit for bit of their permissions too.
    pub(crate) fn same_files(&self, other: &Self) -> bool {
        self.usual == other.usual && self.modes == other.modes && self.empty_dirs == other.empty_dirs
    }

    fn write(&self, message: &mut String) {
        let mut line = |text: std::fmt::Arguments<'_>| writeln!(message, "{text}").expect("a string takes everything");
        line(format_args!("kind {}", self.kind.word()));
        let origin = &self.origin;
        for (key, value) in [("agent", &origin.agent), ("session", &origin.session), ("turn", &origin.turn)] {
            if let Some(value) = value {
                line(format_args!("{key} {}", escape(value.as_bytes())));
            }
        }
        if let Some(Restoring { verb, target, paths, asides, outside }) = &self.restoring {
            line(format_args!("restoring {} {target}", verb.word()));
            paths.iter().for_each(|path| line(format_args!("restoring-path ./{}", escape(path))));
            for (path, name) in asides {
                line(format_args!("restoring-aside ./{} {}", escape(path), escape(name)));
            }
            for (path, id) in outside {
                let made = id.map_or_else(|| "dir".to_owned(), |id| id.to_string());
                line(format_args!("restoring-outside {made} ./{}", escape(path)));
            }
        }
        if let Some(files) = self.files {
            line(format_args!("{}files {files}", if self.is_incomplete { "incomplete yes\n" } else { "" }));
        }
        let usual = self.usual;
        line(format_args!("usual {:o} {:o} {:o}", usual.file, usual.executable, usual.dir));
        for (path, mode) in &self.modes {
            line(format_args!("mode {mode:o} {}", escape(path)));
        }
        for path in &self.empty_dirs {
            line(format_args!("empty {}", escape(path)));
        }
        for skipped in &self.skipped {
            line(format_args!("{}", skipped_line(skipped)));
        }
        if let Some(record) = &self.record {
            line(format_args!("record {}", escape(record)));
        }
    }

    fn read_line(&mut self, line: &[u8]) -> Option<()> {
        let line = std::str::from_utf8(line).ok()?;
        let (key, value) = line.split_once(' ')?;
        let text = || unescape(value.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok());
        let octal = |digits: &str| u16::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777);
        match key {
            "kind" => {
                self.kind = match value {
                    "manual" => CheckpointKind::Manual,
                    "safety" => CheckpointKind::Safety,
                    _ => CheckpointKind::Auto,
                }
            }
            "agent" => self.origin.agent = text(),
            "session" => self.origin.session = text(),
            "turn" => self.origin.turn = text(),
            "restoring" => {
                let (verb, target) = value.split_once(' ')?;
                let (verb, target) = (RestoreVerb::parse(verb)?, ObjectId::from_hex(target.as_bytes())?);
                let (paths, asides, outside) = Default::default();
                self.restoring = Some(Restoring { verb, target, paths, asides, outside });
            }
            "restoring-aside" => {
                let (path, name) = value.strip_prefix("./")?.split_once(' ')?;
                let aside = (unescape(path.as_bytes())?, unescape(name.as_bytes())?);
                self.restoring.as_mut()?.asides.push(aside);
            }
            "restoring-outside" => {
                let (made, path) = value.split_once(" ./")?;
                let id = if made == "dir" { None } else { Some(ObjectId::from_hex(made.as_bytes())?) };
                self.restoring.as_mut()?.outside.push((unescape(path.as_bytes())?, id));
            }
            "restoring-path" => {
                let path = unescape(value.strip_prefix("./")?.as_bytes())?;
                self.restoring.as_mut()?.paths.push(path);
            }
            "incomplete" => self.is_incomplete = value == "yes",
            "files" => self.files = value.parse().ok(),
            "usual" => {
                let modes: Vec<_> = value.split(' ').filter_map(octal).collect();
                let [file, executable, dir] = modes.try_into().ok()?;
                self.usual = UsualModes { file, executable, dir };
            }
            "mode" => {
                let (mode, path) = value.split_once(' ')?;
                self.modes.push((unescape(path.as_bytes())?, octal(mode)?));
            }
            "empty" => self.empty_dirs.push(unescape(value.as_bytes())?),
            "skipped" => self.skipped.push(read_skipped(value)?),
            "record" => self.record = Some(unescape(value.as_bytes())?),
            _ => {}
        }
        Some(())
    }
}

pub(super) fn skipped_line(Skipped { path, why, extent }: &Skipped) -> String {
    let extent = match extent {
        Extent::File => "file".to_owned(),
        Extent::Dir(None) => "dir".to_owned(),
        Extent::Dir(Some(files)) => format!("dir:{files}"),
        Extent::Some(files) => format!("some:{files}"),
    };
    // A path may be empty (the project itself), a field may not: hence the dot in front.
    format!("skipped {} {extent} ./{}", why.word(), escape(path))
}

fn read_skipped(value: &str) -> Option<Skipped> {
    let mut fields = value.splitn(3, ' ');
    let why = SkipReason::parse(fields.next()?)?;
    let extent = match fields.next()? {
        "file" => Extent::File,
        "dir" => Extent::Dir(None),
        counted => match counted.split_once(':')? {
            ("dir", files) => Extent::Dir(Some(files.parse().ok()?)),
            ("some", files) => Extent::Some(files.parse().ok()?),
            _ => return None,
        },
    };
    let path = unescape(fields.next()?.strip_prefix("./")?.as_bytes())?;
    Some(Skipped { path, why, extent })
}

/// One checkpoint: the files of a project at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its name.
    pub id: CheckpointId,
    /// The tree of its files.
    pub(crate) tree: ObjectId,
    /// The one before it, which may have been dropped since.
    pub(crate) parent: Option<CheckpointId>,
    /// When it was taken.
    pub time: Moment,
    /// Why.
    pub reason: String,
    /// The rest.
    pub facts: Facts,
    /// The turns that began from it, newest first.
    pub turns: Vec<TurnRecord>,
}

/// What a checkpoint is made from.
#[derive(Clone, Copy)]
pub(crate) struct NewCheckpoint<'a> {
    pub(crate) tree: ObjectId,
    pub(crate) parent: Option<CheckpointId>,
    pub(crate) time: Moment,
    pub(crate) reason: &'a str,
    pub(crate) facts: &'a Facts,
    /// Goes into the commit: two projects with the same files at the same second must not share a checkpoint, or
    /// cutting the history of one would cut the other's.
    pub(crate) project: &'a ProjectId,
}

impl NewCheckpoint<'_> {
    /// The bytes of the commit.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!("tree {}\n", self.tree);
        if let Some(parent) = self.parent {
            text.push_str(&format!("parent {parent}\n"));
        }
        // Git has no seconds before 1970.
        let when = format!("{SIGNATURE} {} {}", self.time.secs.max(0), self.time.git_offset());
        text.push_str(&format!("author {when}\ncommitter {when}\n\n{}\n\npiton 1\n", one_line(self.reason)));
        text.push_str(&format!("project {}\n", self.project));
        self.facts.write(&mut text);
        text.into_bytes()
    }
}

/// The reason as one line that a person can read: control characters become spaces, the end of a long one dots.
fn one_line(reason: &str) -> String {
    let plain = reason.replace(|character: char| character.is_control(), " ");
    let plain = plain.trim();
    let mut line: String = plain.chars().take(REASON_CHARS_MAX).collect();
    if line.len() < plain.len() {
        line.push('…');
    }
    if line.is_empty() { "checkpoint".to_owned() } else { line }
}

pub(super) fn parse(id: CheckpointId, bytes: &[u8]) -> Result<Checkpoint> {
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
    // Stock git's checkpoints carry no facts. Those that its sequence took before a restore say so in the reason.
    if reason.starts_with("pre-rollback ") {
        facts.kind = CheckpointKind::Safety;
    }
    let facts_begin = lines.by_ref().any(|line| line == FACTS_HEADER);
    if facts_begin {
        // Somebody else's message may look like ours, and a later version may say more: neither may hide a checkpoint.
        // Damage does not come this far: compressed bytes carry a checksum.
        for line in lines {
            let _ = facts.read_line(line);
        }
    }
    Ok(Checkpoint {
        id,
        tree,
        parent: parents.first().copied(),
        time: Moment { secs: secs.ok_or_else(|| bad("it has no time"))?, nanos: 0, offset_secs },
        reason,
        facts,
        turns: Vec::new(),
    })
}

/// The tree and the parents that any commit names. They come first: a header of the same name further on is not git's.
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

/// What a tag names.
pub(super) fn tagged(bytes: &[u8]) -> Option<ObjectId> {
    bytes.strip_prefix(b"object ").and_then(|rest| ObjectId::from_hex(rest.get(..40)?))
}

/// When a commit was made, in seconds since 1970 began.
pub(super) fn time_of(bytes: &[u8]) -> Option<i64> {
    parse(ObjectId::from_bytes([0; ID_BYTES]), bytes).ok().map(|read| read.time.secs)
}

/// Which project a commit says that it is of. Stock git's do not say.
pub(super) fn project_of(bytes: &[u8]) -> Option<ProjectId> {
    let message = bytes.windows(2).position(|two| two == b"\n\n").map(|end| &bytes[end + 2..])?;
    let facts = message.split(|byte| *byte == b'\n').skip_while(|line| *line != FACTS_HEADER);
    let named = facts.into_iter().find_map(|line| line.strip_prefix(b"project "))?;
    std::str::from_utf8(named).ok().and_then(ProjectId::parse)
}

/// Whether these bytes are a commit.
pub(super) fn makes_sense(bytes: &[u8]) -> bool {
    let has = |name: &[u8]| {
        bytes.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty()).any(|line| line.starts_with(name))
    };
    bytes.starts_with(b"tree ") && parents_and_tree(bytes).0.is_some() && has(b"author ") && has(b"committer ")
}

impl Objects {
    pub(crate) fn checkpoint(&self, id: CheckpointId) -> Result<Checkpoint> {
        parse(id, &self.read(id, ObjectKind::Commit)?)
    }

    /// A checkpoint and those before it, down to where histories end.
    pub(crate) fn history(
        &self,
        newest: Option<CheckpointId>,
        ends: &HashSet<CheckpointId>,
    ) -> Result<Vec<Checkpoint>> {
        self.readable_history(newest, ends)?.whole()
    }

    /// The same down to the first that is damaged. The newest has to be whole.
    pub(crate) fn readable_history(
        &self,
        newest: Option<CheckpointId>,
        ends: &HashSet<CheckpointId>,
    ) -> Result<Readable> {
        self.readable_history_to(newest, ends, usize::MAX)
    }

    /// The same, `most` of them at most.
    fn readable_history_to(
        &self,
        newest: Option<CheckpointId>,
        ends: &HashSet<CheckpointId>,
        most: usize,
    ) -> Result<Readable> {
        let mut next = newest;
        let mut history: Vec<Checkpoint> = Vec::new();
        while let Some(id) = next.filter(|_| history.len() < most) {
            if history.len() == HISTORY_MAX {
                return Err(Error::damaged("list the checkpoints", "there is no end to them"));
            }
            let checkpoint = match self.checkpoint(id) {
                Err(error) if error.kind() == ErrorKind::Damaged && !history.is_empty() => {
                    return Ok(Readable { checkpoints: history, rest: Some(error) });
                }
                checkpoint => checkpoint?,
            };
            next = checkpoint.parent.filter(|_| !ends.contains(&id));
            history.push(checkpoint);
        }
        Ok(Readable { checkpoints: history, rest: None })
    }
}

/// Checkpoints of a project, newest first, as far as they can be read: one that is damaged keeps nobody from those after
/// it.
pub(crate) struct Readable {
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// Why there are no more of them.
    pub(crate) rest: Option<Error>,
}

impl Readable {
    /// All of them, for whoever can do nothing with less.
    pub(crate) fn whole(self) -> Result<Vec<Checkpoint>> {
        self.rest.map_or(Ok(self.checkpoints), Err)
    }
}

impl Store {
    /// The checkpoints of a project.
    pub(crate) fn history_of(&self, objects: &Objects, project: &ProjectId) -> Result<Readable> {
        // In this order: a take moves the ref first and cuts afterwards. An end that is newer than what is read as the
        // newest would not be met, and the walk would go on among objects that are gone.
        let ends = self.boundary()?;
        let newest = self.newest(project)?;
        if newest.is_none() {
            self.refuse_lost_ref(|other| other != project)?;
        }
        let mut history = objects.readable_history(newest, &ends)?;
        self.assign_turns(project, &mut history.checkpoints);
        Ok(history)
    }

    /// A checkpoint and those before it, `most` of them at most, for the holder of the project's lock.
    pub(crate) fn history_to(
        &self,
        objects: &Objects,
        newest: Option<CheckpointId>,
        most: usize,
    ) -> Result<Vec<Checkpoint>> {
        Ok(objects.readable_history_to(newest, &self.boundary()?, most)?.checkpoints)
    }

    /// A checkpoint and those before it, for whoever holds the project's lock.
    pub(crate) fn history(&self, objects: &Objects, newest: Option<CheckpointId>) -> Result<Readable> {
        objects.readable_history(newest, &self.boundary()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((time_of(&new.encode()), project_of(&new.encode())), (Some(time.secs), Some(project())));
    }

    #[test]
    fn contents_of_a_file_do_not_pass_for_a_checkpoint() {
        let text =
            b"tree e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\nauthor A B <x> 5 -0200\ncommitter A B <x> 5 -0200\n\nr\n";
        assert!(makes_sense(text));
        for bytes in [&b"hello\n"[..], b"", b"tree of life\nauthor me\ncommitter me\n", &text[..60]] {
            assert!(!makes_sense(bytes), "{}", String::from_utf8_lossy(bytes));
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
        // Words of somebody else that look like facts are none: those come after a line of their own.
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
