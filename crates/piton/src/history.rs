//! Listing the checkpoints of a project, and finding one by number, id or mark.
//!
//! Checkpoints are looked up only in the history of the given project. The id of another project's checkpoint is not
//! found, even though its objects are in the same store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::diff;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, ObjectId, ObjectKind, ProjectId};
use crate::lookup;
use crate::project::Project;
use crate::store::{
    Checkpoint, CheckpointKind, EntryMode, Locals, Objects, Readable, Store, StoreLock, TreeChange, TurnRecord,
};
use crate::threads;
use crate::time::Moment;

/// Difference between two consecutive checkpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Files added, removed or changed.
    pub files: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
}

/// One entry of the list of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// Number in the list: the newest row is 1. `None` for the end of a turn and a step within one, which are not rows.
    pub number: Option<usize>,
    /// Checkpoint at this position.
    pub checkpoint: Checkpoint,
    /// Difference from the previous row. All zero for the oldest, `None` if either of the two is corrupt.
    pub change: Option<Change>,
    /// Ends of the turns that began here, newest first.
    pub ends: Vec<Checkpoint>,
    /// Steps within the turns that began here, newest first.
    pub steps: Vec<Checkpoint>,
}

/// JSON of a [`Listed`].
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ListedJson<'a> {
    /// position in the list; the newest is 1; null for an end and for a step of a turn
    number: Option<usize>,
    /// id of the checkpoint
    id: CheckpointId,
    /// its first seven digits
    short_id: String,
    /// time at which it was taken, as in RFC 3339
    time: Moment,
    /// why it was taken; the newest prompt, if it was taken for prompts
    reason: String,
    /// number of files that changed since the checkpoint before, or null if one of the two is damaged
    files_changed: Option<u64>,
    /// number of lines added since then, or null
    insertions: Option<u64>,
    /// number of lines removed since then, or null
    deletions: Option<u64>,
    /// agent that it was taken for, or null
    agent: Option<String>,
    /// session that it was taken for, or null
    session: Option<String>,
    /// turn that it was taken for, or null
    turn: Option<String>,
    /// cause of the checkpoint
    kind: CheckpointKind,
    /// prompts that began from it, newest first
    prompts: Vec<PromptJson<'a>>,
    /// names that the user gave it
    marks: &'a [String],
    /// true if it was completed after its deadline and lacks files that had changed by then
    incomplete: bool,
    /// ends of the turns that began from it, newest first
    ends: Vec<WithinTurnJson<'a>>,
    /// checkpoints within the turns that began from it, newest first
    steps: Vec<WithinTurnJson<'a>>,
}

/// JSON of an end or a step of a turn.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct WithinTurnJson<'a> {
    /// id of the checkpoint
    id: CheckpointId,
    /// its first seven digits
    short_id: String,
    /// time at which it was taken, as in RFC 3339
    time: Moment,
    /// why it was taken
    reason: &'a str,
    /// agent that it was taken for, or null
    agent: Option<&'a str>,
    /// session that it was taken for, or null
    session: Option<&'a str>,
    /// turn that it was taken for, or null
    turn: Option<&'a str>,
    /// cause of the checkpoint
    kind: CheckpointKind,
}

/// JSON of a turn that began from a checkpoint.
#[derive(serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PromptJson<'a> {
    /// session of the prompt
    session: &'a str,
    /// turn of the prompt
    turn: &'a str,
    /// agent that was asked, or null
    agent: Option<&'a str>,
    /// its version, or null
    agent_version: Option<&'a str>,
    /// text of the prompt as far as it is stored, or null
    prompt: Option<&'a str>,
    /// time of the prompt, or null
    time: Option<Moment>,
}

impl<'a> From<&'a Listed> for ListedJson<'a> {
    fn from(listed: &'a Listed) -> Self {
        let Listed { number, checkpoint, change, ends, steps } = listed;
        let origin = checkpoint.newest_origin();
        let prompts = checkpoint.turns.iter().filter(|turn| !turn.continued).map(PromptJson::from);
        Self {
            number: *number,
            id: checkpoint.id,
            short_id: checkpoint.id.short(),
            time: checkpoint.time,
            reason: checkpoint.reason_or_prompt(),
            files_changed: change.map(|change| change.files),
            insertions: change.map(|change| change.insertions),
            deletions: change.map(|change| change.deletions),
            agent: origin.agent,
            session: origin.session,
            turn: origin.turn,
            kind: checkpoint.facts.kind,
            prompts: prompts.collect(),
            marks: &checkpoint.marks,
            incomplete: checkpoint.facts.is_incomplete,
            ends: ends.iter().map(WithinTurnJson::from).collect(),
            steps: steps.iter().map(WithinTurnJson::from).collect(),
        }
    }
}

impl<'a> From<&'a Checkpoint> for WithinTurnJson<'a> {
    fn from(end: &'a Checkpoint) -> Self {
        let origin = &end.facts.origin;
        Self {
            id: end.id,
            short_id: end.id.short(),
            time: end.time,
            reason: &end.reason,
            agent: origin.agent.as_deref(),
            session: origin.session.as_deref(),
            turn: origin.turn.as_deref(),
            kind: end.facts.kind,
        }
    }
}

impl<'a> From<&'a TurnRecord> for PromptJson<'a> {
    fn from(turn: &'a TurnRecord) -> Self {
        Self {
            session: &turn.session,
            turn: &turn.turn,
            agent: turn.agent.as_deref(),
            agent_version: turn.agent_version.as_deref(),
            prompt: turn.prompt.as_deref(),
            time: turn.time,
        }
    }
}

crate::json::serialized_as! {
    Listed => ListedJson<'_>;
}

/// Checkpoints of a project, newest first.
///
/// ```
/// use piton::History;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temp = tempfile::tempdir()?;
/// # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
/// # std::fs::create_dir(&code)?;
/// # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
/// # let now = piton::Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
/// # let store = piton::Store::open_or_create(&base, now)?;
/// # let project = piton::Project::at(&code, None)?;
/// # let request = piton::Request::default().reason("before patch");
/// # let (settings, progress) = (piton::Settings::default().enabled(true), piton::Progress::default());
/// # piton::take(&store, &project, &request, &settings, now, &progress)?;
/// let history = History::of(&store, &project)?;
/// for listed in history.list()? {
///     let number = listed.number.expect("a row of the list");
///     println!("{number:>3}. {}  {}", listed.checkpoint.id.short(), listed.checkpoint.reason);
/// }
/// assert_eq!(history.files(history.find("1")?)?, [b"main.rs"]);
/// # Ok(())
/// # }
/// ```
pub struct History {
    readable: Readable,
    objects: Objects,
    project: ProjectId,
    locals: Locals,
    _held: StoreLock,
}

impl History {
    /// Reads the history of a project up to the first checkpoint that is corrupt. Empty for a project that the store
    /// does not know.
    pub fn of(store: &Store, project: &Project) -> Result<Self> {
        let held = store.locks.share()?;
        let objects = store.objects.open(&held)?;
        let readable = store.histories.of(&objects, project.id())?;
        Ok(Self { readable, objects, project: project.id().clone(), locals: store.locals.clone(), _held: held })
    }

    /// Returns the state of the local files at each checkpoint that has some.
    pub(crate) fn local_states(&self) -> Result<HashMap<CheckpointId, ObjectId>> {
        let states = self.locals.of(&self.project)?.into_iter();
        Ok(states.map(|local| (local.checkpoint, local.state)).collect())
    }

    /// Returns the tree of a state of local files. Fails with `Damaged` if it cannot be read.
    pub(crate) fn local_tree(&self, state: ObjectId) -> Result<ObjectId> {
        Ok(self.locals.read(&self.objects, state)?.tree)
    }

    /// Returns true if a checkpoint has a local file or a directory of local files at this path.
    pub fn has_local(&self, path: &[u8]) -> Result<bool> {
        let mut states: Vec<ObjectId> = self.local_states()?.into_values().collect();
        states.sort_unstable();
        states.dedup();
        for state in states {
            if self.objects.entry_at(self.local_tree(state)?, path)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns all checkpoints, newest first, including the ends and steps of turns. Pinned ones that are not ancestors of the
    /// newest come last, by time.
    pub fn checkpoints(&self) -> &[Checkpoint] {
        &self.readable.checkpoints
    }

    /// Returns the rows of the list, newest first: the first one is checkpoint number 1.
    pub fn rows(&self) -> impl Iterator<Item = &Checkpoint> {
        lookup::rows(&self.readable)
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the error that ended the history early, if older checkpoints exist and cannot be read.
    pub fn damage(&self) -> Option<&Error> {
        self.readable.rest.as_ref()
    }

    /// Returns the marks whose checkpoints are missing or corrupt, with the ids of these.
    pub fn unavailable_marks(&self) -> &[(String, CheckpointId)] {
        &self.readable.unavailable
    }

    /// Returns all rows, newest first, each with its difference from the previous one. Counting lines takes nearly all of
    /// the time, so it runs on all cores.
    pub fn list(&self) -> Result<Vec<Listed>> {
        self.list_newest(usize::MAX)
    }

    /// Like [`Self::list`], but returns the newest `most` entries only. Nothing is counted for the others.
    pub fn list_newest(&self, most: usize) -> Result<Vec<Listed>> {
        let (rows, shared) = (&self.rows_with_turns(), self.objects.shared());
        let all = rows.len().min(most);
        let part = all.div_ceil(threads::cores()).max(4);
        let next = AtomicUsize::new(0);
        let parts = threads::together(all.div_ceil(part), |_| {
            let mut listed = Vec::new();
            loop {
                let start = next.fetch_add(part, Ordering::Relaxed);
                if start >= all {
                    return Ok(listed);
                }
                let counter = Counter { rows, objects: shared.objects(), recall: OldContents::default() };
                listed.extend(counter.lines_of_list(start..all.min(start + part))?);
            }
        });
        let mut list: Vec<_> = parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        list.sort_by_key(|listed: &Listed| listed.number);
        Ok(list)
    }

    /// Returns the list entry of one checkpoint. An end and a step of a turn are compared with the checkpoint before them. Fails with
    /// `NotFound` if the checkpoint is not in this history.
    pub fn listed(&self, checkpoint: &Checkpoint) -> Result<Listed> {
        if let Some(fetched) = self.readable.fetched.iter().find(|other| other.id == checkpoint.id) {
            let (ends, steps) = (Vec::new(), Vec::new());
            return Ok(Listed {
                number: None,
                checkpoint: fetched.clone(),
                change: Some(Change::default()),
                ends,
                steps,
            });
        }
        let at = self.checkpoints().iter().position(|other| other.id == checkpoint.id);
        let at = at.ok_or_else(|| lookup::not_found(&self.readable, &checkpoint.id.to_string()))?;
        let objects = self.objects.shared().objects();
        let (rows, at, is_row) = if self.checkpoints()[at].is_row() {
            (self.rows_with_turns(), self.rows().take_while(|row| row.id != checkpoint.id).count(), true)
        } else {
            let pair = self.checkpoints()[at..].iter().take(2).map(|one| (one, Vec::new()));
            (pair.collect(), 0, false)
        };
        let counter = Counter { rows: &rows, objects, recall: OldContents::default() };
        let listed = counter.lines_of_list(at..at + 1)?.remove(0);
        Ok(Listed { number: listed.number.filter(|_| is_row), ..listed })
    }

    /// Returns the difference between two checkpoints of this history, and the paths that differ.
    pub(crate) fn changes_between(&self, old: CheckpointId, new: CheckpointId) -> Result<(Change, Vec<Vec<u8>>)> {
        let objects = self.objects.shared().objects();
        let (old, new) = (objects.checkpoint(old)?.tree, objects.checkpoint(new)?.tree);
        let changes = objects.compare_trees(Some(old), Some(new))?;
        let change = Counter { rows: &[], objects, recall: OldContents::default() }.change(old, new)?;
        Ok((change, changes.into_iter().map(|change| change.path).collect()))
    }

    /// Returns the rows, each with the ends and steps of the turns that began there, newest first.
    fn rows_with_turns(&self) -> Vec<(&Checkpoint, Vec<&Checkpoint>)> {
        let mut rows: Vec<_> = self.rows().map(|row| (row, Vec::new())).collect();
        // Number of rows that are newer than the checkpoint.
        let mut newer = 0;
        for checkpoint in self.checkpoints() {
            if checkpoint.is_row() {
                newer += 1;
                continue;
            }
            // One whose turn is unknown belongs to the row before it.
            let is_start = |row: &Checkpoint| row.turns.iter().any(|turn| turn.origin() == checkpoint.facts.origin);
            let at = rows.iter().skip(newer).position(|(row, _)| is_start(row)).unwrap_or(0);
            if let Some((_, within)) = rows.get_mut(newer + at) {
                within.push(checkpoint);
            }
        }
        rows
    }

    /// Returns the paths of all files and links in a checkpoint, sorted.
    pub fn files(&self, checkpoint: &Checkpoint) -> Result<Vec<Vec<u8>>> {
        let files = self.objects.compare_trees(None, Some(checkpoint.tree))?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }

    /// Returns mode and id of the entry at `path` (a file, a link or a directory) in each checkpoint, newest first.
    /// Equal values mean equal contents.
    pub fn versions(&self, path: &[u8]) -> Result<Vec<Option<(u32, ObjectId)>>> {
        let version = |checkpoint: &Checkpoint| {
            let found = self.objects.entry_at(checkpoint.tree, path)?;
            Ok(found.map(|(mode, id)| (mode.octal(), id)))
        };
        self.checkpoints().iter().map(version).collect()
    }

    /// Returns the checkpoint that `name` names: its number in the list, a prefix of its id, or one of its marks. A name
    /// of decimal digits only is a number if the list is that long, otherwise an id.
    ///
    /// Fails with `Invalid` if `name` is none of these, with `NotFound` if there is no such checkpoint, and with
    /// `Ambiguous` if several ids have the prefix.
    pub fn find(&self, name: &str) -> Result<&Checkpoint> {
        lookup::find(&self.readable, name)
    }
}

/// Counts the differences between consecutive rows, on one thread.
struct Counter<'a> {
    rows: &'a [(&'a Checkpoint, Vec<&'a Checkpoint>)],
    objects: Objects,
    recall: OldContents,
}

impl Counter<'_> {
    fn lines_of_list(mut self, range: std::ops::Range<usize>) -> Result<Vec<Listed>> {
        range.map(|at| self.line_of_list(at)).collect()
    }

    fn line_of_list(&mut self, at: usize) -> Result<Listed> {
        let (checkpoint, within) = &self.rows[at];
        let change = match self.rows.get(at + 1) {
            Some((before, _)) => match self.change(before.tree, checkpoint.tree) {
                Err(error) if error.kind() == ErrorKind::Damaged => None,
                change => Some(change?),
            },
            None => Some(Change::default()),
        };
        let of_kind = |kind| within.iter().filter(|one| one.facts.kind == kind).map(|one| (*one).clone()).collect();
        let (ends, steps) = (of_kind(CheckpointKind::End), of_kind(CheckpointKind::Step));
        Ok(Listed { number: Some(at + 1), checkpoint: (*checkpoint).clone(), change, ends, steps })
    }

    fn change(&mut self, old: ObjectId, new: ObjectId) -> Result<Change> {
        let changes = self.objects.compare_trees(Some(old), Some(new))?;
        let mut total = Change { files: changes.len() as u64, ..Change::default() };
        let mut next = OldContents::default();
        for change in &changes {
            let (insertions, deletions) = self.count(change, &mut next)?;
            total.insertions += insertions;
            total.deletions += deletions;
        }
        self.recall = next;
        Ok(total)
    }

    /// Returns the number of lines added and removed; zero if either side is not text or is larger than
    /// `TEXT_BYTES_MAX`.
    fn count(&mut self, change: &TreeChange, next: &mut OldContents) -> Result<(u64, u64)> {
        let blob =
            |side: Option<(EntryMode, ObjectId)>| side.filter(|(mode, _)| *mode != EntryMode::Commit).map(|(_, id)| id);
        let (old_id, new_id) = (blob(change.old), blob(change.new));
        if old_id == new_id {
            return Ok((0, 0));
        }
        for id in [old_id, new_id].into_iter().flatten() {
            if !self.recall.blobs.contains_key(&id) && self.objects.blob_size(id)? > diff::TEXT_BYTES_MAX as u64 {
                return Ok((0, 0));
            }
        }
        let read = |id| self.objects.read(id, ObjectKind::Blob);
        let new = match new_id {
            Some(id) => self.recall.blobs.remove(&id).map_or_else(|| read(id), Ok)?,
            None => Vec::new(),
        };
        let old = old_id.map_or(Ok(Vec::new()), read)?;
        let counts = diff::count(&old, &new);
        if let Some(id) = old_id {
            next.keep(id, old);
        }
        Ok(counts)
    }
}

/// Cache of the old sides of the entry counted last. They are the new sides of the next entry, and are not read again.
#[derive(Default)]
struct OldContents {
    blobs: HashMap<ObjectId, Vec<u8>>,
    bytes: usize,
}

impl OldContents {
    const BYTES_MAX: usize = 32 << 20;

    fn keep(&mut self, id: ObjectId, bytes: Vec<u8>) {
        if self.bytes + bytes.len() <= Self::BYTES_MAX {
            self.bytes += bytes.len();
            self.blobs.insert(id, bytes);
        }
    }
}
