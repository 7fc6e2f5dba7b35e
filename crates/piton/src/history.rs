//! The checkpoints of one project: listing them, and finding the one that is meant.
//!
//! A checkpoint is looked up in this project's history and nowhere else, so that an id of another project in the same
//! store is not found, whatever objects the store holds.

use crate::diff::Lines;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ObjectId, ObjectKind};
use crate::project::Project;
use crate::store::{Checkpoint, EntryMode, Objects, Store, StoreLock, TreeChange};

/// The fewest digits that name a checkpoint, and the most that any hash has.
const ID_DIGITS: std::ops::RangeInclusive<usize> = 4..=64;

/// What changed from one checkpoint to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Files added, removed or changed.
    pub files: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Counted from 1, the newest.
    pub number: usize,
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// What changed against the one before it. Nothing for the oldest: there is none before it.
    pub change: Change,
}

/// The checkpoints of a project, newest first.
pub struct History {
    checkpoints: Vec<Checkpoint>,
    objects: Objects,
    _held: StoreLock,
}

impl History {
    /// Reads the history of a project. One that the store has never seen is empty.
    pub fn of(store: &Store, project: &Project) -> Result<Self> {
        let held = store.share()?;
        let objects = store.objects(&held)?;
        let checkpoints = store.history(&objects, store.newest(project.id())?)?;
        Ok(Self { checkpoints, objects, _held: held })
    }

    /// The checkpoints, newest first.
    pub fn checkpoints(&self) -> &[Checkpoint] {
        &self.checkpoints
    }

    /// The list, newest first, with what changed from one to the next.
    pub fn list(&self) -> Result<Vec<Listed>> {
        (0..self.checkpoints.len()).map(|at| self.line(at)).collect()
    }

    /// The line of the list that is about this checkpoint of this history.
    pub fn listed(&self, checkpoint: &Checkpoint) -> Result<Listed> {
        let at = self.checkpoints.iter().position(|other| other.id == checkpoint.id);
        at.map_or_else(|| Err(not_found(&self.checkpoints, &checkpoint.id.to_string())), |at| self.line(at))
    }

    fn line(&self, at: usize) -> Result<Listed> {
        let checkpoint = &self.checkpoints[at];
        let change = match self.checkpoints.get(at + 1) {
            Some(before) => self.change(before.tree, checkpoint.tree)?,
            None => Change::default(),
        };
        Ok(Listed { number: at + 1, checkpoint: checkpoint.clone(), change })
    }

    /// The paths of all files and links that a checkpoint holds, sorted.
    pub fn files(&self, checkpoint: &Checkpoint) -> Result<Vec<Vec<u8>>> {
        let files = self.objects.compare_trees(None, Some(checkpoint.tree))?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }

    /// The one that `name` means: a number of the list, or the beginning of an id. All digits are a number, if there is
    /// one, else an id.
    pub fn find(&self, name: &str) -> Result<&Checkpoint> {
        find(&self.checkpoints, name)
    }

    fn change(&self, old: ObjectId, new: ObjectId) -> Result<Change> {
        let changes = self.objects.compare_trees(Some(old), Some(new))?;
        let mut total = Change { files: changes.len() as u64, ..Change::default() };
        for change in &changes {
            let (insertions, deletions) = self.lines(change)?;
            total.insertions += insertions;
            total.deletions += deletions;
        }
        Ok(total)
    }

    /// Lines added and removed; none where either side is not text.
    fn lines(&self, change: &TreeChange) -> Result<(u64, u64)> {
        let read = |side: Option<(EntryMode, ObjectId)>| match side {
            Some((EntryMode::File | EntryMode::Executable | EntryMode::Link, id)) => {
                self.objects.read(id, ObjectKind::Blob)
            }
            _ => Ok(Vec::new()),
        };
        if change.old.map(|(_, id)| id) == change.new.map(|(_, id)| id) {
            return Ok((0, 0));
        }
        let (old, new) = (read(change.old)?, read(change.new)?);
        Ok(Lines::compare(&old, &new).map_or((0, 0), |lines| lines.counts()))
    }
}

/// The one that `name` means: a number of the list, or the beginning of an id. All digits are a number, if there is
/// one, else an id.
pub(crate) fn find<'a>(checkpoints: &'a [Checkpoint], name: &str) -> Result<&'a Checkpoint> {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number
        && let Some(checkpoint) = name.parse().ok().and_then(|number: usize| checkpoints.get(number.checked_sub(1)?))
    {
        return Ok(checkpoint);
    }
    let is_id = ID_DIGITS.contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_number && !is_id {
        return Err(Error::new(ErrorKind::Invalid, format!("take {name:?} for a checkpoint"))
            .because("a checkpoint is named by its number, or by 4 to 64 hexadecimal digits of its id")
            .with_hint("`piton rollback` lists the checkpoints"));
    }
    let prefix = name.to_ascii_lowercase();
    let mut found = checkpoints.iter().filter(|one| is_id && one.id.to_string().starts_with(&prefix));
    match (found.next(), found.next()) {
        (Some(checkpoint), None) => Ok(checkpoint),
        (Some(one), Some(other)) => Err(ambiguous(name, [one, other].into_iter().chain(found))),
        (None, _) => Err(not_found(checkpoints, name)),
    }
}

fn not_found(checkpoints: &[Checkpoint], name: &str) -> Error {
    let there_are = match checkpoints.len() {
        0 => "this project has no checkpoints".to_owned(),
        1 => "this project has 1 checkpoint".to_owned(),
        count => format!("this project has {count} checkpoints"),
    };
    Error::new(ErrorKind::NotFound, format!("find the checkpoint {name}"))
        .because(there_are)
        .with_hint("`piton rollback` lists the checkpoints")
}

fn ambiguous<'a>(name: &str, candidates: impl Iterator<Item = &'a Checkpoint>) -> Error {
    let candidates: Vec<_> = candidates.map(|one| format!("{} ({})", &one.id.to_string()[..12], one.reason)).collect();
    Error::new(ErrorKind::Ambiguous, format!("tell which checkpoint {name} is"))
        .because(format!("it could be {}", candidates.join(", ")))
        .with_hint("give more digits")
}
