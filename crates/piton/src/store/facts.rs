//! Facts of a checkpoint: data that git has no field for, in lines that docs/FORMAT.md defines. Lines that this version
//! does not know are ignored.

use std::fmt::Write as _;

use crate::id::{CheckpointId, ObjectId};
use crate::relpath::{escape, unescape};
use crate::skipped::{Extent, SkipReason, Skipped};

pub(super) const FACTS_HEADER: &[u8] = b"piton 1";

/// Cause of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CheckpointKind {
    /// An agent was about to change something.
    #[default]
    Auto,
    /// A user asked for it.
    Manual,
    /// A restore was about to begin.
    Safety,
    /// An agent reported the end of a turn.
    End,
    /// Within a turn, a command was about to destroy files.
    Step,
}

crate::json::serialized_as_word!(CheckpointKind);

impl CheckpointKind {
    pub(crate) const ALL: [Self; 5] = [Self::Auto, Self::Manual, Self::Safety, Self::End, Self::Step];

    /// Returns its name in records and in `--json`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
            Self::Safety => "safety",
            Self::End => "end",
            Self::Step => "step",
        }
    }

    /// Returns true for checkpoints that belong to a turn and are not rows of the list by themselves.
    pub(crate) fn is_within_turn(self) -> bool {
        matches!(self, Self::End | Self::Step)
    }
}

/// Agent, session and turn for which a checkpoint was taken. All of it is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, Hash)]
#[serde(default)]
#[non_exhaustive]
pub struct Origin {
    /// Name of the agent.
    pub agent: Option<String>,
    /// The agent's id for the conversation.
    pub session: Option<String>,
    /// The agent's id for one prompt of the conversation.
    pub turn: Option<String>,
}

impl Origin {
    /// Sets [`Origin::agent`].
    #[must_use]
    pub fn agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Sets [`Origin::session`].
    #[must_use]
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Sets [`Origin::turn`].
    #[must_use]
    pub fn turn(mut self, turn: impl Into<String>) -> Self {
        self.turn = Some(turn.into());
        self
    }
}

/// Permission bits that most files of a checkpoint have. The exceptions are in [`Facts::modes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsualModes {
    /// Permission bits of files that are not executable.
    pub file: u16,
    /// Permission bits of executable files.
    pub executable: u16,
    /// Permission bits of directories.
    pub dir: u16,
}

impl Default for UsualModes {
    fn default() -> Self {
        Self { file: 0o644, executable: 0o755, dir: 0o755 }
    }
}

/// Origin of a checkpoint that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchedFrom {
    /// Name of the machine.
    pub machine: String,
    /// Id of the checkpoint there.
    pub id: CheckpointId,
}

/// Restore that a safety checkpoint was taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restoring {
    /// Command that was given.
    pub verb: RestoreVerb,
    /// Checkpoint to be restored.
    pub target: CheckpointId,
    /// Paths to restore; all if empty.
    pub paths: Vec<Vec<u8>>,
    /// Files that were renamed in their directory, with their new names: files that no checkpoint covers and that were
    /// moved aside, and those that were moved back.
    pub asides: Vec<(Vec<u8>, Vec<u8>)>,
    /// Files that the restore made out of scope, where no later scan finds them: files and links with the id of their
    /// contents, directories without.
    pub outside: Vec<(Vec<u8>, Option<ObjectId>)>,
    /// True if existing files out of scope were replaced.
    pub with_ignored: bool,
}

/// Commands that restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreVerb {
    /// Restores a checkpoint that was named.
    Restore,
    /// Restores the state before the last restore.
    Undo,
    /// Restores the state before the last undo.
    Redo,
}

impl RestoreVerb {
    /// Returns the name of the command.
    pub fn word(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Undo => "undo",
            Self::Redo => "redo",
        }
    }

    /// Parses the result of [`Self::word`].
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Restore, Self::Undo, Self::Redo].into_iter().find(|verb| verb.word() == word)
    }
}

/// Data of a checkpoint that git has no field for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// Cause of the checkpoint.
    pub kind: CheckpointKind,
    /// Agent, session and turn for which it was taken.
    pub origin: Origin,
    /// Restore that a safety checkpoint was taken for.
    pub restoring: Option<Restoring>,
    /// Number of files; unknown for checkpoints made with stock git.
    pub files: Option<u64>,
    /// Permission bits of most files.
    pub usual: UsualModes,
    /// Permission bits of files and directories that differ from the usual ones, by path.
    pub modes: Vec<(Vec<u8>, u16)>,
    /// Empty directories, by path.
    pub empty_dirs: Vec<Vec<u8>>,
    /// Files and directories that were seen and left out.
    pub skipped: Vec<Skipped>,
    /// Time at which all files had been read, in nanoseconds since the Unix epoch. Given if one entry of
    /// [`Facts::skipped`] covers some files of a directory: a file that changed later is none of them.
    pub read_by: Option<i128>,
    /// Text of the session's record at that time.
    pub record: Option<Vec<u8>>,
    /// Checkpoint of another machine that this one is a copy of.
    pub fetched: Option<FetchedFrom>,
    /// True if files had changed before it was completed: changed files are left out as `changing`, deleted ones are
    /// missing.
    pub is_incomplete: bool,
}

impl Facts {
    /// Returns true if two checkpoints of the same tree hold the same files with the same permission bits.
    pub(crate) fn same_files(&self, other: &Self) -> bool {
        self.usual == other.usual && self.modes == other.modes && self.empty_dirs == other.empty_dirs
    }

    pub(super) fn write(&self, message: &mut String) {
        let mut line = |text: std::fmt::Arguments<'_>| writeln!(message, "{text}").expect("a string takes everything");
        line(format_args!("kind {}", self.kind.word()));
        let origin = &self.origin;
        for (key, value) in [("agent", &origin.agent), ("session", &origin.session), ("turn", &origin.turn)] {
            if let Some(value) = value {
                line(format_args!("{key} {}", escape(value.as_bytes())));
            }
        }
        if let Some(Restoring { verb, target, paths, asides, outside, with_ignored }) = &self.restoring {
            line(format_args!("restoring {} {target}", verb.word()));
            paths.iter().for_each(|path| line(format_args!("restoring-path ./{}", escape(path))));
            for (path, name) in asides {
                line(format_args!("restoring-aside ./{} {}", escape(path), escape(name)));
            }
            if *with_ignored {
                line(format_args!("restoring-ignored with"));
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
        if let Some(nanos) = self.read_by {
            line(format_args!("read-by {nanos}"));
        }
        if let Some(FetchedFrom { machine, id }) = &self.fetched {
            line(format_args!("fetched {id} {}", escape(machine.as_bytes())));
        }
        if let Some(record) = &self.record {
            line(format_args!("record {}", escape(record)));
        }
    }

    pub(super) fn read_line(&mut self, line: &[u8]) -> Option<()> {
        let line = std::str::from_utf8(line).ok()?;
        let (key, value) = line.split_once(' ')?;
        let text = || unescape(value.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok());
        let octal = |digits: &str| u16::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777);
        match key {
            "kind" => {
                let is_it = |kind: &CheckpointKind| kind.word() == value;
                self.kind = CheckpointKind::ALL.into_iter().find(is_it).unwrap_or_default();
            }
            "agent" => self.origin.agent = text(),
            "session" => self.origin.session = text(),
            "turn" => self.origin.turn = text(),
            "restoring" => {
                let (verb, target) = value.split_once(' ')?;
                let (verb, target) = (RestoreVerb::parse(verb)?, ObjectId::from_hex(target.as_bytes())?);
                let (paths, asides, outside, with_ignored) = Default::default();
                self.restoring = Some(Restoring { verb, target, paths, asides, outside, with_ignored });
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
            "restoring-ignored" => self.restoring.as_mut()?.with_ignored = value == "with",
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
            "read-by" => self.read_by = value.parse().ok(),
            "fetched" => {
                let (id, machine) = value.split_once(' ')?;
                let machine = String::from_utf8(unescape(machine.as_bytes())?).ok()?;
                self.fetched = Some(FetchedFrom { machine, id: ObjectId::from_hex(id.as_bytes())? });
            }
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
    // A path may be empty (the project itself), but a field may not: hence the `./` in front.
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
